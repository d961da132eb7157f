//! What identifies a function from run to run: its runtime, its name and its file, without what changes when nothing
//! in the function does.
//!
//! Left out are lines, columns and compiler tiers, addresses and counters in names of generated code, hashes in the
//! names of bundles, and versions in the names of directories and libraries.

use std::borrow::Cow;

use jitdump::names;

use crate::results::name_style::ANONYMOUS;
use crate::results::summary::profile::{CodeOrigin, FunctionProfile};
use crate::tools::compare::matching::generated_names::without_counters;

/// A function's name in parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity<'a> {
    /// Kind of its code.
    pub kind: CodeOrigin,
    /// Runtime, or module of native code; may be empty.
    pub origin: Cow<'a, str>,
    /// Name without what varies; empty for anonymous functions.
    pub name: Cow<'a, str>,
    /// Source file, without what varies, if it distinguishes functions of the same name.
    pub file: Option<Cow<'a, str>>,
    /// Versions and hash that `file` lacks; may be empty.
    pub version: String,
    /// Source file as it was recorded.
    pub path: Option<Cow<'a, str>>,
    /// Line and column; 0 if unknown. They distinguish functions of the same name and file.
    pub position: (u32, u32),
}

/// Suffixes that compilers add to the parts and copies of one function.
const COPIES: [&str; 7] = [
    ".llvm.",
    ".constprop.",
    ".part.",
    ".isra.",
    ".lto_priv.",
    ".cold",
    ".localalias",
];

/// Characters of the hash of Rollup, which Vite uses.
const ROLLUP_HASH: usize = 8;

/// Least number of hexadecimal digits of an address. Shorter numbers may be identifiers.
const ADDRESS_DIGITS: usize = 8;

impl<'a> Identity<'a> {
    /// Takes the name of a function apart.
    pub fn of(function: &'a FunctionProfile) -> Self {
        let name = &*function.name;
        match function.kind {
            CodeOrigin::Jit => Self::of_jit(function),
            CodeOrigin::Native => match node_builtin(function) {
                Some(builtin) => Self {
                    kind: CodeOrigin::Jit,
                    ..Self::plain(function, "Node.js".into(), builtin.into())
                },
                None => Self::plain(function, module(function), native_name(name)),
            },
            CodeOrigin::Module => Self::plain(function, "".into(), without_numbers(base_name(name))),
            CodeOrigin::Kernel | CodeOrigin::Unknown => Self::plain(function, "".into(), name.into()),
        }
    }

    /// A function that is not distinguished by its file.
    fn plain(function: &FunctionProfile, origin: Cow<'a, str>, name: Cow<'a, str>) -> Self {
        Self {
            kind: function.kind,
            origin,
            name,
            file: None,
            version: String::new(),
            path: None,
            position: (0, 0),
        }
    }

    /// Returns the identity of a function that a runtime compiled.
    fn of_jit(function: &'a FunctionProfile) -> Self {
        let recorded = &*function.name;
        let known = function.file.as_deref().filter(|file| !file.is_empty());
        let parts = names::parts_in(recorded.as_bytes(), known.map(str::as_bytes));
        // All parts end at ASCII characters.
        let text = |part: &'a [u8]| std::str::from_utf8(part).unwrap_or_default();
        let name = without_addresses(without_counters(recorded, text(parts.function)));
        let (name, script) = php_script(name);
        // Inlined functions without a name.
        let name = if name == ANONYMOUS { "".into() } else { name };
        let path = parts.location.map(|location| Cow::Borrowed(text(location.path)));
        let path = path.or(script);
        let known = || known.map(Cow::Borrowed);
        let has_file = names::needs_file(recorded.as_bytes());
        let file = path.clone().or_else(|| known().filter(|_| has_file));
        let line = function
            .line
            .or_else(|| closure_line(recorded))
            .unwrap_or_default();
        Self {
            kind: CodeOrigin::Jit,
            origin: Cow::Borrowed(function.runtime.as_deref().unwrap_or_default()),
            name,
            version: file.as_deref().map(versions_of).unwrap_or_default(),
            file: file.map(without_versions),
            path: path.or_else(known),
            position: parts.location.map_or((line, 0), |location| {
                let line = Some(location.line).filter(|&line| line > 0).unwrap_or(line);
                (line, location.column)
            }),
        }
    }
}

/// Splits PHP's name of the code outside functions, which is the path of the script.
fn php_script(name: Cow<'_, str>) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
    if name.starts_with('/') && name.ends_with(".php") {
        (Cow::Borrowed(""), Some(name))
    } else {
        (name, None)
    }
}

/// Returns the line in the name of a PHP closure, which has no other name: `TRACE-4$App\{closure}$6`.
fn closure_line(name: &str) -> Option<u32> {
    let (function, line) = name.strip_prefix("TRACE-")?.rsplit_once('$')?;
    line.parse().ok().filter(|_| function.ends_with("{closure}"))
}

/// Removes addresses, such as in `stub 0x7f84600048d8`.
fn without_addresses(name: Cow<'_, str>) -> Cow<'_, str> {
    if !name.contains("0x") {
        return name;
    }
    let mut text = String::with_capacity(name.len());
    let mut rest = &*name;
    while let Some((before, after)) = rest.split_once("0x") {
        text.push_str(before);
        text.push_str("0x");
        let tail = after.trim_start_matches(|character: char| character.is_ascii_hexdigit());
        let digits = after.len().saturating_sub(tail.len());
        if digits < ADDRESS_DIGITS {
            text.push_str(after.get(..digits).unwrap_or_default());
        }
        rest = tail;
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// Returns the symbol of native code without the suffixes that compilers add.
fn native_name(name: &str) -> Cow<'_, str> {
    let mut name = name;
    // Go has functions such as `main.coldStart`.
    let is_end = |after: &str| after.is_empty() || after.starts_with('.');
    let cuts = COPIES.iter().filter_map(|suffix| {
        let (before, after) = name.split_once(suffix)?;
        (suffix.ends_with('.') || is_end(after)).then_some(before.len())
    });
    let cut = cuts.min();
    if let Some(cut) = cut.filter(|&cut| cut > 0) {
        name = name.get(..cut).unwrap_or(name);
    }
    // Rust: `core::fmt::write::h0123456789abcdef`.
    let is_hash = |hash: &str| {
        hash.len() == 17 && hash.starts_with('h') && hash.bytes().skip(1).all(|byte| byte.is_ascii_hexdigit())
    };
    if let Some((path, hash)) = name.rsplit_once("::")
        && is_hash(hash)
    {
        name = path;
    }
    without_addresses(Cow::Borrowed(name))
}

/// Returns the name that V8 logs for a built-in function of Node.js. In some runs, it executes a copy of native code.
fn node_builtin(function: &FunctionProfile) -> Option<String> {
    let name = function.name.strip_prefix("Builtins_")?;
    let module = base_name(function.module.as_deref()?);
    let is_node = module.starts_with("node") || module.starts_with("libnode");
    is_node.then(|| format!("Builtin:{name}"))
}

/// Returns the file name of a function's module, without numbers.
fn module(function: &FunctionProfile) -> Cow<'_, str> {
    without_numbers(base_name(function.module.as_deref().unwrap_or_default()))
}

/// Returns the part of a path after the last slash.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Replaces numbers, such as process IDs and versions, by `*`.
fn without_numbers(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return Cow::Borrowed(text);
    }
    let is_part = |character: char| character.is_ascii_digit() || character == '.';
    Cow::Owned(replace_runs(text, |run| {
        run.starts_with(|first: char| first.is_ascii_digit())
            .then_some(is_part)
    }))
}

/// Replaces versions in the folders of a path, and a hash in its file name, by `*`.
pub fn without_versions(path: Cow<'_, str>) -> Cow<'_, str> {
    let plain = path.strip_prefix("file://").unwrap_or(&path);
    let (folders, file) = plain.rsplit_once('/').unwrap_or(("", plain));
    let has_version = has_version(folders);
    let hash = hash_of(file);
    if !has_version && hash.is_none() {
        return if plain.len() == path.len() {
            path
        } else {
            Cow::Owned(plain.to_owned())
        };
    }
    let mut text = String::with_capacity(plain.len());
    if has_version {
        text.push_str(&without_folder_versions(folders))
    } else {
        text.push_str(folders)
    }
    if plain.contains('/') {
        text.push('/');
    }
    match hash {
        Some(hash) => text.push_str(&file.replacen(hash, "*", 1)),
        None => text.push_str(file),
    }
    Cow::Owned(text)
}

/// Returns what [`without_versions`] leaves out.
fn versions_of(path: &str) -> String {
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
    let numbers = folders.split(|character: char| !character.is_ascii_digit() && character != '.');
    let versions = numbers.filter(|number| has_version(number));
    versions.chain(hash_of(file)).collect::<Vec<_>>().join("/")
}

/// Whether a text has a digit, a dot and a digit.
fn has_version(text: &str) -> bool {
    text.as_bytes().windows(3).any(|window| match window {
        [before, b'.', after] => before.is_ascii_digit() && after.is_ascii_digit(),
        _ => false,
    })
}

/// Replaces `20.11.1` and the like.
fn without_folder_versions(text: &str) -> String {
    let is_part = |character: char| character.is_ascii_digit() || character == '.';
    replace_runs(text, |rest| {
        let run = rest.len().saturating_sub(rest.trim_start_matches(is_part).len());
        has_version(rest.get(..run).unwrap_or_default()).then_some(is_part)
    })
}

/// Replaces runs by `*`. For a position in the text, `start` returns which characters form a run there.
fn replace_runs<P: Fn(char) -> bool>(text: &str, start: impl Fn(&str) -> Option<P>) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if !first.is_ascii_digit() {
            replaced.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        let after = rest.trim_start_matches(|character: char| character.is_ascii_digit());
        match start(rest) {
            Some(is_part) => {
                let tail = rest.trim_start_matches(is_part);
                // A dot at the end is punctuation.
                let run = rest.len().saturating_sub(tail.len());
                replaced.push('*');
                if rest.get(..run).is_some_and(|run| run.ends_with('.')) {
                    replaced.push('.');
                }
                rest = tail;
            }
            None => {
                let digits = rest.len().saturating_sub(after.len());
                replaced.push_str(rest.get(..digits).unwrap_or_default());
                rest = after;
            }
        }
    }
    replaced
}

/// Returns the content hash in the name of a bundle, such as `main.3f9ac1d2.js` or `chunk-ABCDEF12.js`.
fn hash_of(file: &str) -> Option<&str> {
    rollup_hash(file).or_else(|| hash_part(file))
}

/// Returns the hash of Rollup, which may contain what separates other parts of the name: `lib-B4-K8KWk.js`.
fn rollup_hash(file: &str) -> Option<&str> {
    let (stem, _) = file.rsplit_once('.')?;
    let (before, hash) = stem.split_at_checked(stem.len().checked_sub(ROLLUP_HASH)?)?;
    let name = before.strip_suffix(['.', '-', '_'])?;
    let is_base64 = hash
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let has_upper = hash.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_hash = is_base64 && has_upper && !hash.split(['-', '_']).all(is_word);
    (is_hash && !name.is_empty()).then_some(hash)
}

/// Whether a part of a name is an abbreviation, or consists of words such as `dataGrid`; numbers may follow.
fn is_word(part: &str) -> bool {
    let part = part.trim_end_matches(|last: char| last.is_ascii_digit());
    let is_lower = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    let mut words = part.split(|first: char| first.is_ascii_uppercase());
    part.bytes().all(|byte| byte.is_ascii_uppercase())
        || (words.next().is_none_or(is_lower) && words.all(|word| word.len() > 1 && is_lower(word)))
}

/// Returns the hash that is a part of its own.
fn hash_part(file: &str) -> Option<&str> {
    let mut parts = file.split(['.', '-', '_']);
    // The first part is the name, and the last one the extension.
    parts.next()?;
    parts.next_back()?;
    parts.find(|part| is_hash(part))
}

/// Whether part of a file name looks like a hash, and not like a word or a number.
fn is_hash(part: &str) -> bool {
    let has_digit = part.bytes().any(|byte| byte.is_ascii_digit());
    let is_hexadecimal = part
        .bytes()
        .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let is_upper = part
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    let is_mixed = part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && part.bytes().any(|byte| byte.is_ascii_uppercase())
        && part.bytes().any(|byte| byte.is_ascii_lowercase());
    match part.len() {
        6..=7 => is_hexadecimal && has_digit,
        8 => (has_digit && (is_hexadecimal || is_mixed)) || is_upper,
        9.. => has_digit && (is_hexadecimal || is_upper || is_mixed),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(kind: &str, name: &str, more: &[(&str, &str)]) -> FunctionProfile {
        let mut fields = serde_json::json!({"name": name, "kind": kind});
        for (field, value) in more {
            fields[*field] = (*value).into();
        }
        serde_json::from_value(fields).unwrap()
    }

    #[track_caller]
    fn expect(kind: &str, name: &str, expected: (&str, Option<&str>, (u32, u32))) {
        let function = function(kind, name, &[]);
        let identity = Identity::of(&function);
        let found = (&*identity.name, identity.file.as_deref(), identity.position);
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn names_of_every_runtime_lose_tiers_lines_and_numbers() {
        for (name, function, file, position) in [
            ("JS:*main /ci/app.js:21:14", "main", Some("/ci/app.js"), (21, 14)),
            ("JS:~main /ci/app.js:21:14", "main", Some("/ci/app.js"), (21, 14)),
            ("JS:o+main /ci/app.js:21:14", "main", Some("/ci/app.js"), (21, 14)),
            ("JS:*'main /ci/app.js:21:14", "main", Some("/ci/app.js"), (21, 14)),
            ("JS:o /ci/app.js:1:2", "o", Some("/ci/app.js"), (1, 2)),
            ("LazyCompile:*eat /w.js:23", "eat", Some("/w.js"), (23, 0)),
            ("JS:^ /ci/app.js:3:4", "", Some("/ci/app.js"), (3, 4)),
            (
                "JS:*get value /ci/app.js:3:4",
                "get value",
                Some("/ci/app.js"),
                (3, 4),
            ),
            ("JS:~next node:fs:1:2", "next", Some("node:fs"), (1, 2)),
            ("JS:~f file:///a/b.mjs:1:2", "f", Some("/a/b.mjs"), (1, 2)),
            ("JS:* :1:20", "", None, (0, 0)),
            ("Builtin:ArrayMap", "Builtin:ArrayMap", None, (0, 0)),
            ("JSC-FTL: next#AMHzEa", "next", None, (0, 0)),
            ("JSC-DFG: #AQcMO0", "", None, (0, 0)),
            (
                "JSC-FTLThunk: unspecified",
                "JSC-FTLThunk: unspecified",
                None,
                (0, 0),
            ),
            ("Ion: run (/tmp/a.js:3:4)", "run", Some("/tmp/a.js"), (3, 4)),
            ("py::fib:/tmp/work.py", "fib", Some("/tmp/work.py"), (0, 0)),
            ("TRACE-3$App\\Math\\fib$7", "App\\Math\\fib", None, (0, 0)),
            ("TRACE-12$/tmp/work.php$20", "", Some("/tmp/work.php"), (0, 0)),
            ("TRACE-4$App\\{closure}$6", "App\\{closure}", None, (6, 0)),
            ("JIT$App\\Math\\fib", "App\\Math\\fib", None, (0, 0)),
            ("work:insert/2", "work:insert/2", None, (0, 0)),
            (
                "LWork$$Lambda$8.0x00007f84600048d8;applyAsInt(I)I",
                "LWork$$Lambda;applyAsInt(I)I",
                None,
                (0, 0),
            ),
            (
                "int W$$Lambda$1/0x00007f04b0000c08.accept(int)",
                "int W$$Lambda.accept(int)",
                None,
                (0, 0),
            ),
            (
                "int W$$Lambda/0x00007f04b0000c08.add(int)",
                "int W$$Lambda.add(int)",
                None,
                (0, 0),
            ),
            ("JS:sift-65-turbofan", "sift", None, (0, 0)),
            ("JS:sift-65-liftoff", "sift", None, (0, 0)),
            ("julia_fib_123", "julia_fib", None, (0, 0)),
            (
                "void [App] P::Main()[OptimizedTier1]",
                "void [App] P::Main()",
                None,
                (0, 0),
            ),
            ("wasm[0]::function[12]::sift", "wasm::sift", None, (0, 0)),
            ("fib-turbofan", "fib", None, (0, 0)),
            ("stub 0x7f84600048d8", "stub 0x", None, (0, 0)),
            ("guest-0x4016ae", "guest-0x4016ae", None, (0, 0)),
        ] {
            expect("jit", name, (function, file, position));
        }
    }

    #[test]
    fn files_of_debug_information_are_found_in_names() {
        let with_file = [("file", "/ci/my app.js")];
        let function = function("jit", "JS:*do it /ci/my app.js:2:3", &with_file);
        let identity = Identity::of(&function);
        assert_eq!((&*identity.name, identity.position), ("do it", (2, 3)));
        assert_eq!(identity.file.as_deref(), Some("/ci/my app.js"));
        let java = self::function("jit", "LWork;fib(I)I", &[("file", "Work.java")]);
        assert_eq!(Identity::of(&java).file, None);
    }

    #[test]
    fn native_names_lose_what_compilers_add() {
        for (name, expected) in [
            ("memcpy", "memcpy"),
            ("inflate.constprop.0", "inflate"),
            ("parse.cold", "parse"),
            ("parse.cold.1", "parse"),
            ("main.coldStore", "main.coldStore"),
            ("run.llvm.123456789", "run"),
            ("core::fmt::write::h0123456789abcdef", "core::fmt::write"),
            (".cold", ".cold"),
        ] {
            expect("native", name, (expected, None, (0, 0)));
        }
        expect("module", "libnode.so.115", ("libnode.so.*", None, (0, 0)));
        expect("module", "perf-1234.map", ("perf-*.map", None, (0, 0)));
        expect("kernel", "do_idle", ("do_idle", None, (0, 0)));
    }

    #[test]
    fn built_in_functions_of_node_are_the_same_in_all_runs() {
        let logged = function("jit", "Builtin:ToString", &[("runtime", "Node.js")]);
        let native = |module: &str| function("native", "Builtins_ToString", &[("module", module)]);
        for (module, expected) in [
            ("/usr/bin/node", true),
            ("/usr/bin/nodejs", true),
            ("/usr/lib/libnode.so.115", true),
            ("/usr/bin/deno", false),
        ] {
            let is_same = Identity::of(&native(module)) == Identity::of(&logged);
            assert_eq!(is_same, expected, "{module}");
        }
    }

    #[test]
    fn versions_and_hashes_in_paths_are_left_out() {
        for (path, expected) in [
            (
                "/opt/node-v20.11.1-linux-x64/lib/a.js",
                "/opt/node-v*-linux-x64/lib/a.js",
            ),
            (
                "/usr/lib/python3.13/json/decoder.py",
                "/usr/lib/python*/json/decoder.py",
            ),
            ("/ci/main.3f9ac1d2.js", "/ci/main.*.js"),
            ("/ci/chunk-ABCDEF12.js", "/ci/chunk-*.js"),
            ("/ci/chunk-ABCDEFGH.mjs", "/ci/chunk-*.mjs"),
            ("/ci/index-BtE5x9kQ.js", "/ci/index-*.js"),
            ("/ci/lib-DqZAxPXr.js", "/ci/lib-*.js"),
            ("/ci/lib-CLOBlI_A.js", "/ci/lib-*.js"),
            ("/ci/lib-B4-K8KWk.js", "/ci/lib-*.js"),
            ("/ci/polyfills.bundle.js", "/ci/polyfills.bundle.js"),
            ("/ci/my-DataGrid.js", "/ci/my-DataGrid.js"),
            ("/ci/my-API-Page.js", "/ci/my-API-Page.js"),
            ("/ci/my-polyfill.js", "/ci/my-polyfill.js"),
            ("/ci/my-feedback.test.js", "/ci/my-feedback.test.js"),
            ("/ci/v8.1/a", "/ci/v*/a"),
            ("a.js", "a.js"),
        ] {
            assert_eq!(without_versions(path.into()), expected, "{path}");
        }
    }

    #[test]
    fn any_name_is_taken_apart() {
        proptest::proptest!(|(name: String, file: String, kind in 0..5)| {
            let kind = ["jit", "native", "kernel", "module", "unknown"][kind as usize];
            for prefix in ["", "JS:*", "TRACE-1$", "wasm[0]::", "JSC-DFG: ", "py::"] {
                let text = format!("{prefix}{name} {file}:1:2");
                let function = function(kind, &text, &[("file", &file)]);
                Identity::of(&function);
            }
        });
    }
}
