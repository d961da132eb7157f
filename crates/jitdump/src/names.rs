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
#[doc(hidden)]
pub fn is_v8(name: &[u8]) -> bool {
    without_v8_prefix(name).is_some()
}

/// The name without V8's prefix. `JS::Call` and the like are C++ or Rust names.
fn without_v8_prefix(name: &[u8]) -> Option<&[u8]> {
    let rest = V8.iter().find_map(|prefix| name.strip_prefix(*prefix));
    rest.filter(|rest| !rest.starts_with(b":"))
}

/// Whether V8 writes names like this one for functions compiled with inlined calls.
#[doc(hidden)]
pub fn is_v8_optimized(name: &[u8]) -> bool {
    v8_code(name) == Some(V8Code::Optimized)
}

/// Whether V8 writes names like this one for functions compiled by Sparkplug, its baseline compiler.
#[doc(hidden)]
pub fn is_v8_baseline(name: &[u8]) -> bool {
    v8_code(name) == Some(V8Code::Baseline)
}

/// What code with this name is, if the name has a mark of V8.
fn v8_code(name: &[u8]) -> Option<V8Code> {
    without_v8_prefix(name).and_then(v8_mark).map(|mark| mark.code)
}

/// The function's own name in V8's name of it, which ends with `location`: without prefix, tier and location.
#[doc(hidden)]
pub fn v8_function_name<'a>(name: &'a [u8], location: &SourceLocation<'a>) -> Option<&'a [u8]> {
    let rest = without_v8_prefix(name).and_then(without_v8_mark)?;
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
        let Some(Positioned { text, line, column }) = split_position(inside) else {
            return Vec::new();
        };
        let paths = memchr::memmem::find_iter(text, b" (").take(MAX_PATHS);
        return most_likely_first(
            paths.filter_map(|open| text.get(open..)?.strip_prefix(b" (")),
            line,
            column,
        );
    }
    let position = if is_v8(name) {
        split_v8_position(name)
    } else {
        split_position(name)
    };
    // Code that V8 has evaluated has no path: `get x :1:20`.
    let position = position.filter(|position| !position.text.ends_with(b" "));
    let Some(Positioned { text, line, column }) = position else {
        return Vec::new();
    };
    let spaces = memchr::memchr_iter(b' ', text).take(MAX_PATHS);
    most_likely_first(
        spaces.filter_map(|space| text.get(space..)?.strip_prefix(b" ")),
        line,
        column,
    )
}

/// Returns the location of a function that V8 calls `name`, and whose lines are all in `file`, which is no path in the name.
///
/// Quirk: V8 names functions by their script, which is nothing for evaluated code, and lines by the `//# sourceURL` in its
/// text, if there is one (capture node20-reuse), or else `<unknown>`. It writes the files of lines as they are in memory, so
/// that some are Latin-1, but names of functions in UTF-8.
#[doc(hidden)]
pub fn v8_location<'a>(name: &'a [u8], file: &'a [u8]) -> Option<SourceLocation<'a>> {
    let in_latin1 = |path: &[u8]| {
        let path = std::str::from_utf8(path);
        path.is_ok_and(|path| path.chars().eq(file.iter().copied().map(char::from)))
    };
    if !is_v8(name) {
        return None;
    }
    let locations = source_locations(name);
    let same = locations.iter().find(|location| in_latin1(location.path));
    let evaluated = || {
        let Positioned { text, line, column } = split_v8_position(name)?;
        let is_evaluated = text.ends_with(b" ") && file != b"<unknown>";
        is_evaluated.then_some(SourceLocation {
            path: file,
            line,
            column,
        })
    };
    let in_name = same.or(locations.first()).copied();
    in_name.or_else(evaluated)
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

/// Whether a path is absolute, starts with a scheme, or is in brackets. A relative path hardly ever contains such a part.
///
/// Quirk: Node.js calls code that is in no file `[eval]`, `[stdin]` or `[worker eval]`.
fn is_absolute(path: &[u8]) -> bool {
    let mut ends = path.iter().position(|byte| b": /".contains(byte)).into_iter();
    let inside = path.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    // Not `[Symbol.iterator] [eval]`, which is a function and its path.
    let is_in_brackets = inside.is_some_and(|inside| !inside.contains(&b'['));
    path.starts_with(b"/") || is_in_brackets || ends.any(|end| path.get(end) == Some(&b':'))
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

/// A text, and the position after it.
struct Positioned<'a> {
    text: &'a [u8],
    line: u32,
    /// 0 without one.
    column: u32,
}

/// Splits `text:line:column`.
fn split_position(name: &[u8]) -> Option<Positioned<'_>> {
    let (rest, column) = split_number(name)?;
    let (text, line) = split_number(rest)?;
    Some(Positioned { text, line, column })
}

/// Splits `text:line:column`, or `text:line`.
fn split_v8_position(name: &[u8]) -> Option<Positioned<'_>> {
    let without_column = || {
        let (text, line) = split_number(name)?;
        let column = 0;
        Some(Positioned { text, line, column })
    };
    split_position(name).or_else(without_column)
}

/// Splits `text:number`.
fn split_number(text: &[u8]) -> Option<(&[u8], u32)> {
    let (head, number) = rsplit_once(text, b':')?;
    let number = std::str::from_utf8(number).ok()?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    Some((head, is_number.then(|| number.parse().ok())??))
}

/// V8's tiers by the mark after the prefix. Variants append `'` or other characters to the mark.
const V8_MARKS: [V8Mark; 6] = [
    V8Mark::new("~", "Ignition", V8Code::Interpreter),
    V8Mark::new("^", "Sparkplug", V8Code::Baseline),
    V8Mark::new("+", "Maglev", V8Code::Optimized),
    V8Mark::new("o+", "Maglev", V8Code::Optimized),
    V8Mark::new("*", "TurboFan", V8Code::Optimized),
    V8Mark::new("o*", "TurboFan", V8Code::Optimized),
];

/// A mark of V8's names.
struct V8Mark {
    mark: &'static str,
    tier: &'static str,
    code: V8Code,
}

impl V8Mark {
    const fn new(mark: &'static str, tier: &'static str, code: V8Code) -> Self {
        Self { mark, tier, code }
    }
}

/// What code with a mark is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum V8Code {
    /// Entry of the interpreter.
    Interpreter,
    /// Code without inlined calls, whose records have offsets in the bytecode.
    Baseline,
    /// Code with inlined calls.
    Optimized,
}

fn v8_mark(marked: &[u8]) -> Option<&'static V8Mark> {
    V8_MARKS
        .iter()
        .find(|mark| marked.starts_with(mark.mark.as_bytes()))
}

/// What follows the mark of a tier; `None` without a mark.
fn without_v8_mark(marked: &[u8]) -> Option<&[u8]> {
    let mark = v8_mark(marked)?;
    let rest = marked.get(mark.mark.len()..)?;
    // Variants of the compilers: `+'`, `*'`.
    Some(rest.strip_prefix(b"'").unwrap_or(rest))
}

/// What the beginning of a name says, apart from the tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Prefix {
    /// The rest is the name of a function of the program.
    Function,
    /// The rest is the name of code of the program that is not a function, or its number belongs to the name.
    Code,
    /// The code is part of the runtime.
    Runtime,
}

use Prefix::{Code, Function, Runtime};

/// Tiers by name prefix. A prefix that starts with another one comes before it. `JSC-FTL: name` is a function,
/// `JSC-FTLThunk: name` is not.
const PREFIXES: [(&str, &str, Prefix); 32] = [
    ("Builtin:", "Builtin", Runtime),
    ("BytecodeHandler:", "Ignition", Runtime),
    ("RegExp:", "RegExp", Code),
    ("RegExp.", "RegExp", Code),
    ("Stub:", "Stub", Runtime),
    ("JSC-LLInt", "JSC LLInt", Runtime),
    ("JSC-Baseline: ", "JSC Baseline", Function),
    ("JSC-DFG: ", "JSC DFG", Function),
    ("JSC-FTL: ", "JSC FTL", Function),
    ("JSC-WasmIPInt: ", "JSC IPInt", Function),
    ("JSC-WasmBBQ: ", "JSC BBQ", Function),
    ("JSC-WasmOMG: ", "JSC OMG", Function),
    ("JSC-Yarr", "JSC Yarr", Code),
    ("JSC-", "JSC Thunk", Runtime),
    ("BaselineInterpreter", "Baseline Interpreter", Runtime),
    ("BlinterpOp: ", "Baseline Interpreter", Runtime),
    ("Interpreter: ", "Interpreter", Function),
    ("Baseline: ", "Baseline", Function),
    ("BaselineIC: ", "Baseline IC", Code),
    ("BaselineICFallback: ", "Baseline IC", Code),
    ("Ion: ", "Ion", Function),
    ("IonIC: ", "Ion IC", Code),
    ("IC: ", "IC", Code),
    ("Wasm: ", "Wasm", Function),
    ("Trampoline: ", "Trampoline", Runtime),
    ("VMWrapper: ", "Trampoline", Runtime),
    ("py::", "Python", Function),
    ("TRACE-", "PHP Trace", Code),
    ("JIT$", "PHP Function", Function),
    ("wasm-function", "Wasm", Code),
    ("wasm[", "Wasm", Code),
    ("wasm::", "Wasm", Code),
];

/// Tiers by name suffix: V8's WebAssembly code.
const SUFFIXES: [(&str, &str); 2] = [("-liftoff", "Liftoff"), ("-turbofan", "TurboFan")];

/// Tiers that .NET writes after the parameters of a method: `void [App] Program::Main()[OptimizedTier1]`
/// (`GetJitOptimizationTierStr` in src/coreclr/vm/prestub.cpp; `PreJIT` is ReadyToRun code).
const DOTNET: [&str; 8] = [
    "PreJIT",
    "QuickJitted",
    "InstrumentedTier",
    "InstrumentedTierOptimized",
    "OptimizedTier1",
    "OptimizedTier1OSR",
    "Optimized",
    "MinOptJitted",
];

fn prefix(name: &[u8]) -> Option<&'static (&'static str, &'static str, Prefix)> {
    PREFIXES
        .iter()
        .find(|(text, ..)| name.starts_with(text.as_bytes()))
}

fn suffix(name: &[u8]) -> Option<&'static (&'static str, &'static str)> {
    SUFFIXES.iter().find(|(text, _)| name.ends_with(text.as_bytes()))
}

/// Returns the compiler tier encoded in a function name.
pub fn tier(name: &[u8]) -> Option<&'static str> {
    let by_mark = without_v8_prefix(name).and_then(v8_mark).map(|mark| mark.tier);
    by_mark
        .or_else(|| suffix(name).map(|(_, tier)| *tier))
        .or_else(|| prefix(name).map(|(_, tier, _)| *tier))
        .or_else(|| {
            let (_, tier) = split_dotnet_tier(name)?;
            DOTNET.into_iter().find(|known| known.as_bytes() == tier)
        })
}

/// Returns all tiers that names can have; some more than once.
#[doc(hidden)]
pub fn all_tiers() -> impl Iterator<Item = &'static str> {
    let by_prefix = PREFIXES.iter().map(|(_, tier, _)| *tier);
    let by_mark = V8_MARKS.iter().map(|mark| mark.tier);
    let by_suffix = SUFFIXES.iter().map(|(_, tier)| *tier);
    by_prefix.chain(by_mark).chain(by_suffix).chain(DOTNET)
}

/// Returns whether a name is that of code that is part of the runtime itself.
pub fn is_built_in(name: &[u8]) -> bool {
    prefix(name).is_some_and(|(.., prefix)| *prefix == Runtime)
}

/// Returns whether functions of different files often have the same name, as in JavaScript and Python. PHP's functions and
/// classes are global.
#[doc(hidden)]
pub fn needs_file(name: &[u8]) -> bool {
    let of_function = |&(text, _, prefix): &(&str, &str, Prefix)| prefix == Function && text != "JIT$";
    is_v8(name) || prefix(name).is_some_and(of_function)
}

/// The parts of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameParts<'a> {
    /// The function's own name, without marks of its compiler and without its location; empty if it has none.
    pub function: &'a [u8],
    /// Source location, if the name contains one.
    pub location: Option<SourceLocation<'a>>,
}

impl<'a> NameParts<'a> {
    /// Returns these parts, and those of `other` where they are missing.
    #[doc(hidden)]
    pub fn or(self, other: NameParts<'a>) -> NameParts<'a> {
        NameParts {
            function: if self.function.is_empty() {
                other.function
            } else {
                self.function
            },
            location: self.location.or(other.location),
        }
    }
}

/// Splits a name into its parts.
pub fn parts(name: &[u8]) -> NameParts<'_> {
    parts_in(name, None)
}

/// Splits the name of a function into its parts. Where the name is ambiguous, the path is `known`.
pub fn parts_in<'a>(name: &'a [u8], known: Option<&[u8]>) -> NameParts<'a> {
    let locations = source_locations(name);
    let in_known = locations.iter().find(|location| Some(location.path) == known);
    let location = in_known.or(locations.first()).copied();
    let head = match location {
        Some(location) => memchr::memmem::rfind(name, location.path).and_then(|path| {
            let ends: [&[u8]; 3] = [b" (", b" ", b":"];
            ends.iter().find_map(|end| name.get(..path)?.strip_suffix(*end))
        }),
        // V8 names evaluated code `name :line:column`.
        None if is_v8(name) => {
            let position = split_v8_position(name);
            position.and_then(|position| position.text.strip_suffix(b" "))
        }
        None => None,
    };
    NameParts {
        function: without_marks(head.unwrap_or(name)),
        location,
    }
}

/// The name without marks of compilers.
fn without_marks(name: &[u8]) -> &[u8] {
    if let Some(rest) = without_v8_prefix(name) {
        if let Some(rest) = without_v8_mark(rest) {
            return rest;
        }
        // WebAssembly: `JS:name-12-turbofan`.
        return suffix(rest).map_or(rest, |(text, _)| {
            rest.strip_suffix(text.as_bytes()).unwrap_or(rest)
        });
    }
    if let Some((text, _)) = suffix(name) {
        return name.strip_suffix(text.as_bytes()).unwrap_or(name);
    }
    match prefix(name) {
        Some((text, _, Function)) => name.strip_prefix(text.as_bytes()).unwrap_or(name),
        _ => split_dotnet_tier(name).map_or(name, |(head, _)| head),
    }
}

/// Splits off what .NET writes after the parameters of a method, in brackets: its tier.
fn split_dotnet_tier(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, tier) = rsplit_once(name.strip_suffix(b"]")?, b'[')?;
    let is_tier = head.ends_with(b")") && tier.iter().all(u8::is_ascii_alphanumeric);
    is_tier.then_some((head, tier))
}

#[cfg(test)]
mod tests;
