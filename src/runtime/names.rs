//! Compiler tiers and source locations encoded in function names, in the style of each runtime.

use crate::bytes::{rsplit_once, split_once};
use crate::debug_info::{DebugInfo, SourceFunction};

/// V8's prefixes for names of functions compiled from source. Node.js 18 writes `LazyCompile`.
const V8: [&[u8]; 5] = [b"JS:", b"Script:", b"Eval:", b"Function:", b"LazyCompile:"];

const CPYTHON: &[u8] = b"py::";

/// Maximum number of candidates for the space that separates a function name from a path.
const MAX_PATHS: usize = 16;

/// Location of a function in its source file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceLocation<'a> {
    /// Path of the file.
    pub path: &'a [u8],
    /// Line, from 1; 0 if the name has none.
    pub line: u32,
    /// Column, from 1; 0 if the name has none.
    pub column: u32,
}

/// Returns whether V8 writes names like this one for functions compiled from source.
pub fn is_v8(name: &[u8]) -> bool {
    without_v8_prefix(name).is_some()
}

/// The name without V8's prefix. `JS::Call` and the like are C++ or Rust names.
fn without_v8_prefix(name: &[u8]) -> Option<&[u8]> {
    let rest = V8.iter().find_map(|prefix| name.strip_prefix(*prefix));
    rest.filter(|rest| !rest.starts_with(b":"))
}

/// Whether V8 writes names like this one for functions compiled with inlined calls.
pub fn is_v8_optimized(name: &[u8]) -> bool {
    is_v8(name) && matches!(tier(name), Some("Maglev" | "TurboFan"))
}

/// The function's own name in V8's name of it, which ends with `location`: without prefix, tier and location.
pub fn v8_function_name<'a>(name: &'a [u8], location: &SourceLocation<'a>) -> Option<&'a [u8]> {
    let marked = without_v8_prefix(name)?;
    let (mark, _) = V8_MARKS
        .iter()
        .find(|(mark, _)| marked.starts_with(mark.as_bytes()))?;
    let rest = marked.get(mark.len()..)?;
    // Variants of the compilers: `+'`, `*'`.
    let rest = rest.strip_prefix(b"'").unwrap_or(rest);
    let head = rest.get(..memchr::memmem::rfind(rest, location.path)?)?;
    Some(head.strip_suffix(b" ").unwrap_or(head))
}

/// Parses the source locations that a name may contain, the most likely one first.
///
/// The formats are `name file:line:column` (V8, JavaScriptCore), `name (file:line:column)` (SpiderMonkey) and
/// `py::name:file` (CPython). A name can be ambiguous, because both the function name and the path may
/// contain spaces.
///
/// Quirk: V8 10 omits the column (capture node18-i386).
pub fn source_locations(name: &[u8]) -> Vec<SourceLocation<'_>> {
    if let Some(rest) = name.strip_prefix(CPYTHON) {
        return python_location(rest).into_iter().collect();
    }
    if let Some(inside) = name.strip_suffix(b")") {
        let Some((head, line, column)) = split_position(inside) else {
            return Vec::new();
        };
        let paths = memchr::memmem::find_iter(head, b" (").take(MAX_PATHS);
        return most_likely_first(
            paths.filter_map(|open| head.get(open..)?.strip_prefix(b" (")),
            line,
            column,
        );
    }
    let without_column = || {
        let (head, line) = split_number(name).filter(|_| is_v8(name))?;
        Some((head, line, 0))
    };
    let Some((head, line, column)) = split_position(name).or_else(without_column) else {
        return Vec::new();
    };
    let spaces = memchr::memchr_iter(b' ', head).take(MAX_PATHS);
    most_likely_first(
        spaces.filter_map(|space| head.get(space..)?.strip_prefix(b" ")),
        line,
        column,
    )
}

/// Returns debug information with only the function's declaration, for functions that have no line table.
pub fn declaration(name: &[u8]) -> Option<DebugInfo<'_>> {
    let location = *source_locations(name).first()?;
    Some(DebugInfo {
        files: vec![location.path.into()],
        functions: vec![SourceFunction {
            name: b"",
            file: Some(0),
            line: location.line,
            column: location.column,
        }],
        ..DebugInfo::default()
    })
}

/// Turns `paths`, which are sorted from longest to shortest, into locations with the most likely one first.
fn most_likely_first<'a>(
    paths: impl Iterator<Item = &'a [u8]>,
    line: u32,
    column: u32,
) -> Vec<SourceLocation<'a>> {
    let paths = paths.filter(|path| !path.is_empty());
    let mut locations: Vec<SourceLocation<'_>> =
        paths.map(|path| SourceLocation { path, line, column }).collect();
    match locations.iter().position(|location| is_absolute(location.path)) {
        Some(likeliest) => locations.swap(0, likeliest),
        None => locations.reverse(),
    }
    locations
}

/// Whether a path is absolute or starts with a scheme. A relative path hardly ever contains such a part.
fn is_absolute(path: &[u8]) -> bool {
    let mut ends = path.iter().position(|byte| b": /".contains(byte)).into_iter();
    path.starts_with(b"/") || ends.any(|end| path.get(end) == Some(&b':'))
}

/// Parses `FUNCTION:FILE`.
fn python_location(rest: &[u8]) -> Option<SourceLocation<'_>> {
    let (_, path) = split_once(rest, b':')?;
    // `<frozen importlib>` and the like are not files.
    (!path.is_empty() && !path.starts_with(b"<")).then_some(SourceLocation {
        path,
        line: 0,
        column: 0,
    })
}

/// Splits `text:line:column`.
fn split_position(text: &[u8]) -> Option<(&[u8], u32, u32)> {
    let (rest, column) = split_number(text)?;
    let (head, line) = split_number(rest)?;
    Some((head, line, column))
}

/// Splits `text:number`.
fn split_number(text: &[u8]) -> Option<(&[u8], u32)> {
    let (head, number) = rsplit_once(text, b':')?;
    let number = std::str::from_utf8(number).ok()?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    Some((head, is_number.then(|| number.parse().ok())??))
}

/// V8's tiers by the marker after the prefix. Variants append `'` or other characters to the marker.
const V8_MARKS: [(&str, &str); 6] = [
    ("~", "Ignition"),
    ("^", "Sparkplug"),
    ("+", "Maglev"),
    ("o+", "Maglev"),
    ("*", "TurboFan"),
    ("o*", "TurboFan"),
];

/// Tiers by name prefix. A prefix that starts with another one comes before it.
const PREFIXES: [(&str, &str); 30] = [
    ("Builtin:", "Builtin"),
    ("BytecodeHandler:", "Ignition"),
    ("RegExp:", "RegExp"),
    ("RegExp.", "RegExp"),
    ("Stub:", "Stub"),
    ("JSC-LLInt", "JSC LLInt"),
    ("JSC-Baseline", "JSC Baseline"),
    ("JSC-DFG", "JSC DFG"),
    ("JSC-FTL", "JSC FTL"),
    ("JSC-WasmIPInt", "JSC IPInt"),
    ("JSC-WasmBBQ", "JSC BBQ"),
    ("JSC-WasmOMG", "JSC OMG"),
    ("JSC-Yarr", "JSC Yarr"),
    ("JSC-", "JSC Thunk"),
    ("BaselineInterpreter", "Baseline Interpreter"),
    ("BlinterpOp: ", "Baseline Interpreter"),
    ("Interpreter: ", "Interpreter"),
    ("Baseline: ", "Baseline"),
    ("BaselineIC: ", "Baseline IC"),
    ("Ion: ", "Ion"),
    ("IonIC: ", "Ion IC"),
    ("IC: ", "IC"),
    ("Wasm: ", "Wasm"),
    ("Trampoline: ", "Trampoline"),
    ("py::", "Python"),
    ("TRACE-", "PHP Trace"),
    ("JIT$", "PHP Function"),
    ("wasm-function", "Wasm"),
    ("wasm[", "Wasm"),
    ("wasm::", "Wasm"),
];

/// Tiers by name suffix: V8's WebAssembly code.
const SUFFIXES: [(&str, &str); 2] = [("-liftoff", "Liftoff"), ("-turbofan", "TurboFan")];

/// Returns the compiler tier encoded in a function name.
pub fn tier(name: &[u8]) -> Option<&'static str> {
    let find = |table: &[(&str, &'static str)], fits: &dyn Fn(&[u8]) -> bool| {
        let found = table.iter().find(|(text, _)| fits(text.as_bytes()));
        found.map(|(_, tier)| *tier)
    };
    let by_mark =
        without_v8_prefix(name).and_then(|marked| find(&V8_MARKS, &|mark| marked.starts_with(mark)));
    by_mark
        .or_else(|| find(&SUFFIXES, &|suffix| name.ends_with(suffix)))
        .or_else(|| find(&PREFIXES, &|prefix| name.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likeliest(name: &str) -> Option<(String, u32, u32)> {
        let location = *source_locations(name.as_bytes()).first()?;
        let path = String::from_utf8(location.path.to_vec()).unwrap();
        Some((path, location.line, location.column))
    }

    #[test]
    fn places_are_found_in_the_names_of_each_runtime() {
        for (name, expected) in [
            ("JS:^eat /tmp/work.js:23:6", Some(("/tmp/work.js", 23, 6))),
            (
                "JS:*with space /tmp/work.js:59:95",
                Some(("/tmp/work.js", 59, 95)),
            ),
            ("JS:^f /my files/work.js:1:2", Some(("/my files/work.js", 1, 2))),
            ("JS:~normalize node:path:66:25", Some(("node:path", 66, 25))),
            (
                "JS:^ file:///tmp/a b.js:1:20",
                Some(("file:///tmp/a b.js", 1, 20)),
            ),
            ("JS:^dyn gen/dyn_1.js:1:20", Some(("gen/dyn_1.js", 1, 20))),
            ("LazyCompile:*eat /tmp/work.js:23", Some(("/tmp/work.js", 23, 0))),
            ("JS:^ :1:20", None),
            ("Function:^ :1", None),
            ("Ion: run (/tmp/a.js:3:4)", Some(("/tmp/a.js", 3, 4))),
            (
                "Ion: run (/My App (1)/a.js:3:4)",
                Some(("/My App (1)/a.js", 3, 4)),
            ),
            ("py::fib:/tmp/work.py", Some(("/tmp/work.py", 0, 0))),
            ("py::<module>:<frozen importlib._bootstrap>", None),
            ("RegExp.< src: '(\\d+)' flags: ''", None),
            ("lists:map/2", None),
            ("std::vector<int>::push_back(int)", None),
            ("", None),
        ] {
            let expected = expected.map(|(path, line, column)| (path.to_owned(), line, column));
            assert_eq!(likeliest(name), expected, "{name}");
        }
        assert_eq!(source_locations(b"JS:^with space work.js:1:2").len(), 2);
    }

    #[test]
    fn names_of_functions_have_neither_tier_nor_location() {
        for (name, expected) in [
            ("JS:*hot /tmp/a.js:5:13", "hot"),
            ("JS:*'exports.anon /tmp/a.js:5:13", "exports.anon"),
            ("JS:^get g /tmp/a b.js:5:13", "get g"),
            ("JS:o+ node:path:1:1", ""),
            ("LazyCompile:*eat /tmp/work.js:23", "eat"),
        ] {
            let location = source_locations(name.as_bytes())[0];
            let found = v8_function_name(name.as_bytes(), &location);
            assert_eq!(found, Some(expected.as_bytes()), "{name}");
        }
    }

    #[test]
    fn tiers_are_recognized_by_names() {
        for (name, tier) in [
            ("JS:~f a.js:1:1", Some("Ignition")),
            ("JS:^f a.js:1:1", Some("Sparkplug")),
            ("JS:+'f a.js:1:1", Some("Maglev")),
            ("JS:o*f a.js:1:1", Some("TurboFan")),
            ("LazyCompile:*f a.js:1:1", Some("TurboFan")),
            ("JS:?f a.js:1:1", None),
            ("Builtin:ArrayMap", Some("Builtin")),
            ("sift-0-liftoff", Some("Liftoff")),
            ("JS:dlmalloc-16-turbofan", Some("TurboFan")),
            ("JSC-FTL: next#AMHzEa", Some("JSC FTL")),
            ("JSC-FTLThunk: unspecified", Some("JSC FTL")),
            ("BaselineIC: GetProp", Some("Baseline IC")),
            ("py::fib:/tmp/work.py", Some("Python")),
            ("*pointer", None),
            ("JS::*Call", None),
            ("main", None),
        ] {
            assert_eq!(super::tier(name.as_bytes()), tier, "{name}");
        }
    }
}
