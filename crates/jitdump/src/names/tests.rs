//! Tests of names.

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
        ("JS:*hot [worker eval]:1:15", Some(("[worker eval]", 1, 15))),
        (
            "JS:*get [Symbol.x] [worker eval]:1:15",
            Some(("[worker eval]", 1, 15)),
        ),
        ("JS:*get [Symbol.x] /tmp/a.js:1:2", Some(("/tmp/a.js", 1, 2))),
        ("JS:^get x [eval]-wrapper:6:22", Some(("[eval]-wrapper", 6, 22))),
        ("JS:^ :1:20", None),
        ("JS:^get x :4:21", None),
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
    for (head, inside) in [("JS:^", "a "), ("Ion: ", "f (")] {
        let end = if head == "JS:^" { "a.js:1:2" } else { "a.js:1:2)" };
        let name = [head, &inside.repeat(40), end].concat();
        assert_eq!(source_locations(name.as_bytes()).len(), 16, "{name}");
    }
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
fn parts_of_names_are_free_of_marks() {
    for (name, function, location) in [
        ("JS:*run /tmp/a.js:1:2", "run", Some("/tmp/a.js")),
        ("JS:~run /tmp/a.js:1:2", "run", Some("/tmp/a.js")),
        ("JS:o+get x /a b.js:1:2", "get x", Some("/a b.js")),
        ("JS:*'run a.js:1:2", "run", Some("a.js")),
        ("JS:* :1:20", "", None),
        ("JS:*inner7 :4:21", "inner7", None),
        ("JS:*get x :4:21", "get x", None),
        ("Function:^ :1", "", None),
        ("LazyCompile:*eat /tmp/work.js:23", "eat", Some("/tmp/work.js")),
        ("Script:~ /tmp/a.js:1:1", "", Some("/tmp/a.js")),
        ("JS:*hot [worker eval]:1:15", "hot", Some("[worker eval]")),
        ("JS:dlmalloc-16-turbofan", "dlmalloc-16", None),
        ("sift-0-liftoff", "sift-0", None),
        ("Ion: run (/tmp/a.js:3:4)", "run", Some("/tmp/a.js")),
        ("JSC-FTL: next#AMHzEa", "next#AMHzEa", None),
        ("JSC-FTLThunk: unspecified", "JSC-FTLThunk: unspecified", None),
        (
            "JSC-ExtraCTIThunk: op_enter_handler",
            "JSC-ExtraCTIThunk: op_enter_handler",
            None,
        ),
        ("py::fib:/tmp/work.py", "fib", Some("/tmp/work.py")),
        (
            "py::<module>:<frozen importlib>",
            "<module>:<frozen importlib>",
            None,
        ),
        ("JIT$App\\fib", "App\\fib", None),
        ("Builtin:ArrayMap", "Builtin:ArrayMap", None),
        ("RegExp:(a):(b)", "RegExp:(a):(b)", None),
        ("lists:map/2", "lists:map/2", None),
        ("JS:o /tmp/a.js:1:2", "o", Some("/tmp/a.js")),
        (
            "void [App] P::Main()[OptimizedTier1]",
            "void [App] P::Main()",
            None,
        ),
        ("byte[] [App] P::Read(int[])", "byte[] [App] P::Read(int[])", None),
        ("JS::Call(int)", "JS::Call(int)", None),
        ("", "", None),
    ] {
        let found = parts(name.as_bytes());
        let path = found
            .location
            .map(|location| std::str::from_utf8(location.path).unwrap());
        assert_eq!(
            (std::str::from_utf8(found.function).unwrap(), path),
            (function, location),
            "{name}"
        );
    }
    for (name, expected) in [
        ("BytecodeHandler:Add", true),
        ("JS:~Builtin a.js:1:1", false),
        ("JSC-FTL: next#AMHzEa", false),
        ("JSC-FTLThunk: unspecified", true),
        ("JSC-DFGOSRExit: exit #1", true),
        ("VMWrapper: AtomizeString", true),
    ] {
        assert_eq!(is_built_in(name.as_bytes()), expected, "{name}");
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
        ("JSC-FTLThunk: unspecified", Some("JSC Thunk")),
        ("VMWrapper: AtomizeString", Some("Trampoline")),
        ("BaselineIC: GetProp", Some("Baseline IC")),
        ("py::fib:/tmp/work.py", Some("Python")),
        ("void [App] P::Main()[OptimizedTier1]", Some("OptimizedTier1")),
        ("void [App] P::Main()[PreJIT]", Some("PreJIT")),
        ("byte[] [App] P::Read(int[])", None),
        ("void f()[other]", None),
        ("*pointer", None),
        ("JS::*Call", None),
        ("main", None),
    ] {
        assert_eq!(super::tier(name.as_bytes()), tier, "{name}");
    }
}
