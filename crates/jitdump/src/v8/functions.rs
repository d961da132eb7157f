//! The functions of a script.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use crate::collections::hash::HashMap;
use crate::v8::scanner;
use crate::v8::text::{Text, TextPosition};

/// A function in a script, or the code of a script outside of all functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptFunction {
    /// Extent in bytes, from the position that V8 gives the function: that of the parameters' parenthesis, or of
    /// the first token of an arrow function, to the end of the body.
    pub range: Range<u32>,
    /// Extent of the name in the script, or of the variable or property that the function is assigned to. Empty if
    /// there is none.
    pub name: Range<u32>,
    /// Index of the function that it is in. The script is in itself.
    pub parent: u32,
}

/// A call by name, as in `name(` or `object.name(`, or of a base class, as in `super(`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedCall {
    /// Extent of the called name: of the base class after `extends` if it is called by `super`.
    pub name: Range<u32>,
    /// Start of the name or of `super`.
    pub start: u32,
    /// Function with the call, as an index.
    pub function: u32,
}

/// A script whose functions are known.
#[derive(Clone, Debug)]
pub struct Script<'t> {
    text: Text<'t>,
    functions: Vec<ScriptFunction>,
    calls: Vec<NamedCall>,
    /// The calls as indices, sorted by function, name and start. Made when it is needed.
    calls_by_name: OnceLock<Vec<u32>>,
    /// A bit for each byte of the text: whether a token starts there.
    token_starts: Vec<u64>,
}

impl<'t> Script<'t> {
    /// Finds the functions of a script, which may have the types of TypeScript; `None` if the text cannot be JavaScript, or
    /// is too large or nested too deeply.
    pub fn scan(bytes: impl Into<Cow<'t, [u8]>>) -> Option<Self> {
        let text = Text::new(bytes)?;
        let found = scanner::scan(text.bytes())?;
        let mut functions = found.functions;
        let mut calls = found.calls;
        nest(&mut functions, &mut calls);
        Some(Self {
            text,
            functions,
            calls,
            calls_by_name: OnceLock::new(),
            token_starts: found.token_starts,
        })
    }

    /// Returns the text.
    pub fn text(&self) -> &Text<'t> {
        &self.text
    }

    /// Returns the functions in the order of their starts. The first one is the script itself.
    pub fn functions(&self) -> &[ScriptFunction] {
        &self.functions
    }

    /// Returns the calls in a function, without those in functions inside it.
    pub fn calls(&self, function: u32) -> impl Iterator<Item = &NamedCall> {
        let calls = self.calls.get(self.calls_of(function).places);
        calls.unwrap_or_default().iter()
    }

    /// Returns the same to look up names.
    pub(super) fn calls_of(&self, function: u32) -> FunctionCalls<'_> {
        let start = self.calls.partition_point(|call| call.function < function);
        let end = self.calls.partition_point(|call| call.function <= function);
        FunctionCalls {
            script: self,
            places: start..end,
        }
    }

    /// Returns the number of calls in the script.
    pub(super) fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// Returns the indices of the calls, sorted by function, name and start.
    fn calls_by_name(&self) -> &[u32] {
        self.calls_by_name.get_or_init(|| {
            let text = |call: &NamedCall| self.text.slice(call.name.clone());
            // Any number of calls may have their name at one place.
            let place = |call: &NamedCall| (call.name.start, call.name.end);
            let mut names: Vec<&NamedCall> = self.calls.iter().collect();
            names.sort_unstable_by_key(|call| place(call));
            names.dedup_by_key(|call| place(call));
            names.sort_by_key(|call| text(call));
            let mut ranks: HashMap<(u32, u32), u32> = HashMap::default();
            for (same, rank) in names.chunk_by(|one, next| text(one) == text(next)).zip(0..) {
                ranks.extend(same.iter().map(|call| (place(call), rank)));
            }
            let rank = |call: &NamedCall| ranks.get(&place(call)).copied().unwrap_or_default();
            let calls = self.calls.iter().zip(0u32..);
            let mut sorted: Vec<(u32, u32, u32)> = calls
                .map(|(call, index)| (call.function, rank(call), index))
                .collect();
            sorted.sort_unstable();
            sorted.into_iter().map(|(.., index)| index).collect()
        })
    }

    /// Returns the index of the innermost function at an offset.
    pub fn function_at(&self, offset: u32) -> u32 {
        let after = self
            .functions
            .partition_point(|function| function.range.start <= offset);
        let mut index = after.saturating_sub(1) as u32;
        // A script has fewer levels of functions than brackets.
        while let Some(function) = self.functions.get(index as usize) {
            // V8 counts the last byte as that of the return.
            if offset < function.range.end || function.parent == index {
                break;
            }
            index = function.parent;
        }
        index
    }

    /// Returns the index of the function that V8 places at a position.
    pub fn function_that_starts_at(&self, position: TextPosition) -> Option<u32> {
        if position == (TextPosition { line: 1, column: 1 }) {
            return Some(0);
        }
        let offset = self.text.offset(position)?;
        let rest = self.functions.get(1..)?;
        let at = rest
            .binary_search_by_key(&offset, |function| function.range.start)
            .ok()?;
        u32::try_from(at.checked_add(1)?).ok()
    }

    /// Whether a token starts at an offset. All positions of V8 are those of tokens.
    pub(crate) fn is_token_start(&self, offset: u32) -> bool {
        let word = self
            .token_starts
            .get(offset as usize / 64)
            .copied()
            .unwrap_or_default();
        word & bit(offset) != 0
    }

    /// Returns the name of a function, empty if it has none.
    pub fn name(&self, function: u32) -> &[u8] {
        let function = self.functions.get(function as usize);
        function.map_or(b"", |function| self.text.slice(function.name.clone()))
    }
}

/// The calls in a function, without those in functions inside it.
#[derive(Debug)]
pub(super) struct FunctionCalls<'s> {
    script: &'s Script<'s>,
    /// The indices of the calls, which are also their places in [`Script::calls_by_name`].
    places: Range<usize>,
}

impl<'s> FunctionCalls<'s> {
    /// Returns the number of calls.
    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// Returns the name in each call.
    pub(super) fn names(&self) -> impl Iterator<Item = &'s [u8]> {
        let script = self.script;
        let calls = script.calls.get(self.places.clone()).unwrap_or_default();
        calls.iter().map(move |call| script.text.slice(call.name.clone()))
    }

    /// Whether a name is called.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        !self.places_of(name).is_empty()
    }

    /// Returns the places of the calls of a name. No other name in the script has them.
    pub(super) fn places_of(&self, name: &[u8]) -> Range<usize> {
        let script = self.script;
        let sorted = script
            .calls_by_name()
            .get(self.places.clone())
            .unwrap_or_default();
        let called = |&index: &u32| {
            let call = script.calls.get(index as usize);
            call.map_or(&b""[..], |call| script.text.slice(call.name.clone()))
        };
        let start = sorted.partition_point(|index| called(index) < name);
        let end = sorted.partition_point(|index| called(index) <= name);
        let place = |at: usize| self.places.start.saturating_add(at);
        place(start)..place(end)
    }

    /// Returns where the calls at some places start, in the order of the text.
    pub(super) fn starts(&self, places: Range<usize>) -> impl DoubleEndedIterator<Item = TextPosition> {
        let script = self.script;
        let sorted = script.calls_by_name().get(places).unwrap_or_default();
        let calls = sorted
            .iter()
            .filter_map(move |&index| script.calls.get(index as usize));
        calls.map(move |call| script.text.position(call.start))
    }

    /// Returns the position of the calls of a name, or only their line if there are several on one line; `None` if it is
    /// unknown.
    pub(super) fn site(&self, name: &[u8]) -> Option<TextPosition> {
        let mut starts = self.starts(self.places_of(name));
        let first = starts.next()?;
        match starts.next_back() {
            None => Some(first),
            // Those between them are on the same line, too.
            Some(last) => (last.line == first.line).then_some(TextPosition {
                line: first.line,
                column: 0,
            }),
        }
    }
}

/// Bit of an offset in its word of [`Script::token_starts`].
pub(super) fn bit(offset: u32) -> u64 {
    1u64.wrapping_shl(offset)
}

/// Sorts functions and calls, and finds the functions that each is in.
fn nest(functions: &mut [ScriptFunction], all_calls: &mut [NamedCall]) {
    // Of two functions that start together, the first one contains the second one.
    functions.sort_by_key(|function| (function.range.start, std::cmp::Reverse(function.range.end)));
    all_calls.sort_by_key(|call| call.start);
    let mut open = OpenFunctions::default();
    let mut calls = all_calls.iter_mut().peekable();
    for (index, function) in (0..).zip(functions) {
        let start = function.range.start;
        while let Some(call) = calls.next_if(|call| call.start < start) {
            call.function = open.innermost_at(call.start).unwrap_or_default();
        }
        function.parent = open.innermost_at(start).unwrap_or(index);
        open.0.push((index, function.range.end));
    }
    for call in calls {
        call.function = open.innermost_at(call.start).unwrap_or_default();
    }
    all_calls.sort_by_key(|call| (call.function, call.start));
}

/// Indices and ends of the functions around an offset, the innermost one last.
#[derive(Default)]
struct OpenFunctions(Vec<(u32, u32)>);

impl OpenFunctions {
    /// Returns the innermost function at an offset, which is not before the last one.
    fn innermost_at(&mut self, offset: u32) -> Option<u32> {
        // The first one is the script.
        while self.0.len() > 1 && self.0.pop_if(|(_, end)| *end <= offset).is_some() {}
        self.0.last().map(|&(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions of a script: start, name, and the text of the extent.
    fn functions(text: &str) -> Vec<(u32, u32, String, String)> {
        let script = Script::scan(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
        let functions = script.functions().iter().zip(0..).skip(1);
        let shown = functions.map(|(function, index)| {
            let position = script.text().position(function.range.start);
            let text = String::from_utf8_lossy(script.text().slice(function.range.clone()));
            let name = String::from_utf8_lossy(script.name(index));
            (
                position.line,
                position.column,
                name.into_owned(),
                text.into_owned(),
            )
        });
        shown.collect()
    }

    /// V8's own positions, from the names of a jitdump of Node.js 20.
    #[test]
    fn functions_start_where_v8_says() {
        let text = include_str!("../../../../testdata/scripts/functions.js");
        let expected = include_str!("../../../../testdata/scripts/functions.txt");
        let mut found: Vec<String> = functions(text)
            .iter()
            .map(|(line, column, ..)| format!("{line}:{column}"))
            .collect();
        found.dedup();
        let expected: Vec<&str> = expected.lines().collect();
        assert_eq!(found, expected);
    }

    /// V8's own positions, from its log in Node.js 24, which removed the types. Initializers of classes are left out: V8 24
    /// places them at the first field.
    #[test]
    fn functions_of_typescript_start_where_v8_says() {
        let text = include_str!("../../../../testdata/scripts/types.ts");
        let expected = include_str!("../../../../testdata/scripts/types.txt");
        let expected: Vec<&str> = expected.lines().collect();
        let mut found: Vec<String> = functions(text)
            .into_iter()
            .map(|(line, column, _, text)| (format!("{line}:{column}"), text))
            .filter(|(position, text)| expected.contains(&&position[..]) || !text.starts_with("class"))
            .map(|(position, _)| position)
            .collect();
        found.dedup();
        assert_eq!(found, expected);
    }

    #[test]
    fn functions_of_typescript_end_where_their_bodies_do() {
        for (text, expected) in [
            ("f = (a: b): c => d\ng()", &["(a: b): c => d"][..]),
            ("f = (a): a is (b) => c => d, (e)", &["(a): a is (b) => c => d"]),
            ("f = (a): (b | c) => d", &["(a): (b | c) => d"]),
            (
                "function f(a): { b: c } { return d }",
                &["(a): { b: c } { return d }"],
            ),
            ("a ? (b: c): d => e : f", &["(b: c): d => e"]),
            ("let a: () => b = () => c", &["() => c"]),
            ("a = { b: {} as c as () => d, as() {} }", &["() {}"]),
            ("f<() => void>(() => a) as () => b; (c: d)", &["() => a"]),
            (
                "type A<B> = (a: B) => void\ninterface C { d(e: () => f): void }",
                &[],
            ),
            ("a = <T,>(b: T) => { c! / 1 }; /}/", &["(b: T) => { c! / 1 }"]),
        ] {
            let found: Vec<String> = functions(text).into_iter().map(|(.., text)| text).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn signatures_without_a_body_are_no_calls() {
        let text = "class A { a(b: c): d; a(b: any) { e<() => void>(b as f); } abstract h(): i; j?(): k } declare function l(): m";
        let script = Script::scan(text.as_bytes()).unwrap();
        let calls: Vec<&[u8]> = (0..script.functions().len() as u32)
            .flat_map(|function| script.calls(function))
            .map(|call| script.text().slice(call.name.clone()))
            .collect();
        assert_eq!(calls, [b"e"]);
    }

    /// These are comparisons, conditionals, names and so on, although TypeScript has types at such places.
    #[test]
    fn javascript_has_no_types() {
        for (text, count) in [
            ("a<b>(() => c)", 1),
            ("a ? (b) : c => d", 1),
            ("a ? b() : () => c", 1),
            (
                "switch (a) { case (b): { () => c } case d ? e : (f): () => g }",
                2,
            ),
            ("if (a) b: for (;;) { break b }", 0),
            ("type = (a) => b; interface\nC; declare\n(() => d)", 2),
            ("import { as as as } from 'as'; let as = () => as, satisfies", 1),
            (
                "a = { as() {}, type() {}, readonly: () => b, get abstract() {}, declare }",
                4,
            ),
            (
                "class A { private() {} readonly = () => a; declare\nstatic() {} type\n}",
                4,
            ),
            ("async as => as\n!a", 1),
        ] {
            assert_eq!(functions(text).len(), count, "{text}");
        }
    }

    #[test]
    fn types_have_up_to_64_nested_brackets() {
        for (start, end) in [("(", ")"), ("{ b: ", "}"), ("`${", "}`")] {
            let nested = |depth: usize| {
                let text = format!("let a: {}c{} = () => d", start.repeat(depth), end.repeat(depth));
                Script::scan(text.into_bytes()).map(|script| script.functions().len())
            };
            assert_eq!(nested(64), Some(2), "{start}");
            assert_ne!(nested(65), Some(2), "{start}");
        }
    }

    #[test]
    fn functions_end_where_their_bodies_do() {
        for (text, expected) in [
            ("a = x => x / 2, b", &["x => x / 2"][..]),
            ("c ? x => x ? 1 : 2 : y => 3", &["x => x ? 1 : 2", "y => 3"]),
            ("f(x => y => [x, y], 5)", &["x => y => [x, y]", "y => [x, y]"]),
            ("f = x => x\ng = y => y\n(1)", &["x => x", "y => y\n(1)"]),
            (
                "a = async (b) => ({ c() { return `${d => `}`}` } })",
                &[
                    "async (b) => ({ c() { return `${d => `}`}` } })",
                    "() { return `${d => `}`}` }",
                    "d => `}`",
                ],
            ),
            (
                "if (a) /}/.test(b); function f() { return /[/}]/ }",
                &["() { return /[/}]/ }"],
            ),
            (
                "x = a / b / function () { return 1 } / 2 // }",
                &["() { return 1 }"],
            ),
            (
                "x = { get if() { if (1) {} }, function() {}, class: function () {} }",
                &["() { if (1) {} }", "() {}", "() {}"],
            ),
            (
                "switch (a) { case b: { /'/ } default: f = () => { } }",
                &["() => { }"],
            ),
            (
                "class A extends B(() => 1) { static { a } x = () => 2\n async *y() { } }",
                &[
                    "class A extends B(() => 1) { static { a } x = () => 2\n async *y() { } }",
                    "() => 1",
                    "() => 2",
                    "() { }",
                ],
            ),
            (
                "let {a, b: c} = (d = {e: 1}) => { l: for (;;) { } }\n/}/",
                &["(d = {e: 1}) => { l: for (;;) { } }"],
            ),
            ("a++ / (() => 1) / 2; 'don\\'t'; 1e-5.toFixed", &["() => 1"]),
            ("#!/usr/bin/env }\n() => /* } */ 1", &["() => /* } */ 1"]),
            (
                "[...function () {}, ...async () => 1]",
                &["() {}", "async () => 1"],
            ),
        ] {
            let found: Vec<String> = functions(text).into_iter().map(|(.., text)| text).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn names_are_those_of_declarations_and_assignments() {
        let text = "function a() {} b = () => 1; c.d = async function* () {}; e = { f() {}, g: h => h, 'i': function j() {} };
            class K { #l() {} get m() {} n = async o => o }; (function () {})";
        let names: Vec<String> = functions(text).into_iter().map(|(_, _, name, _)| name).collect();
        assert_eq!(names, ["a", "b", "d", "f", "g", "j", "", "#l", "m", "n", ""]);
    }

    #[test]
    fn calls_belong_to_the_innermost_function() {
        let text =
            "a(b(1)); function c(x = d()) { e.f(() => g(2)); if (h) { new I() } } x = { j() { k?.l() } }";
        let script = Script::scan(text.as_bytes()).unwrap();
        let calls = |function: u32| -> Vec<&str> {
            let calls = script.calls(function);
            calls
                .map(|call| std::str::from_utf8(script.text().slice(call.name.clone())).unwrap())
                .collect()
        };
        assert_eq!(
            [calls(0), calls(1), calls(2), calls(3)],
            [vec!["a", "b"], vec!["d", "f", "I"], vec!["g"], vec!["l"]]
        );
        let at = |text_at: &str| script.function_at(text.find(text_at).unwrap() as u32);
        assert_eq!(
            [
                at("b(1)"),
                at("d()"),
                at("g(2)"),
                at("h)"),
                at("x = {"),
                at("l()")
            ],
            [0, 1, 2, 1, 0, 3]
        );
        assert!(script.is_token_start(text.find("g(2)").unwrap() as u32));
        assert!(!script.is_token_start(text.find("unction c").unwrap() as u32));
    }

    #[test]
    fn super_calls_the_base_class() {
        let text = "class A extends b['c'].B { constructor() { super(1); class C { x = super.y(); constructor() { super() } } } }
            class D extends E { constructor() { [class extends f(A) { constructor() { super() } }]; super() } }";
        let script = Script::scan(text.as_bytes()).unwrap();
        let calls = (0..script.functions().len() as u32).flat_map(|function| script.calls(function));
        let calls: Vec<_> = calls
            .map(|call| {
                let name = String::from_utf8_lossy(script.text().slice(call.name.clone()));
                (script.text().position(call.start).column, name.into_owned())
            })
            .collect();
        let expected = [
            (44, "B"),
            (74, "y"),
            (95, "super"),
            (101, "E"),
            (64, "f"),
            (87, "super"),
        ];
        assert_eq!(calls, expected.map(|(column, name)| (column, name.to_owned())));
    }

    #[test]
    fn calls_are_found_by_name() {
        let text = "function f() { b(); a(); aa(); b() }\nfunction g() { a();\na() }\n\
            class A extends b { constructor() { super(); super(); a() } }";
        let script = Script::scan(text.as_bytes()).unwrap();
        let sites = |function: &str| {
            let mut functions = 0..script.functions().len() as u32;
            let function = functions.find(|&index| script.name(index) == function.as_bytes());
            let calls = script.calls_of(function.unwrap());
            let site = |name: &str| {
                let name = name.as_bytes();
                assert_eq!(calls.has(name), calls.names().any(|called| called == name));
                calls.site(name).map(|site| (site.line, site.column))
            };
            (calls.count(), ["", "a", "aa", "b", "c"].map(site))
        };
        let column = |line: &str, call: &str| line.find(call).map(|at| at as u32 + 1).unwrap();
        let [f, constructor] = [0, 3].map(|line| text.lines().nth(line).unwrap());
        let (a, aa) = ((1, column(f, "a()")), (1, column(f, "aa()")));
        assert_eq!(sites("f"), (4, [None, Some(a), Some(aa), Some((1, 0)), None]));
        assert_eq!(sites("g"), (2, [None; 5]));
        // `super` calls the base class.
        let a = (4, column(constructor, "a()"));
        assert_eq!(
            sites("constructor"),
            (3, [None, Some(a), None, Some((4, 0)), None])
        );
    }

    #[test]
    fn scripts_have_fewer_than_1024_nested_brackets() {
        let nested = |depth: usize| "(".repeat(depth) + &")".repeat(depth);
        assert!(Script::scan(nested(1023).as_bytes()).is_some());
        assert!(Script::scan(nested(1024).as_bytes()).is_none());
    }

    #[test]
    fn what_is_no_script_has_no_functions() {
        for text in ["(]", "}", "f(", "`${", "a = /b"] {
            assert!(Script::scan(text.as_bytes()).is_none(), "{text}");
        }
        assert_eq!(Script::scan(&b""[..]).unwrap().functions().len(), 1);
    }
}
