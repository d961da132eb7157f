use super::*;
use crate::debug_info::{LineRow, SourceFunction};

const MAIN: &str = "const { small } = require('./lib.js');\n\
    function tiny(x) {\n  return (x ^ 5) + 1;\n}\n\
    function hot(n) {\n  let t = 0;\n  for (let i = 0; i < n; i++) t += small(i) + tiny(t);\n  return t;\n}\n";
const LIBRARY: &str = "\n\nexports.small = function small(x) {\n  let s = x;\n\
    \x20 for (let i = 0; i < 50; i++) s = (s * 31 + leaf(i)) | 0;\n  return s;\n};\nfunction leaf(y) {\n  return y + 1;\n}\n";

fn at((line, column): (u32, u32)) -> TextPosition {
    TextPosition { line, column }
}

/// Path, start, name and positions of a known function.
type Known<'a> = (&'a str, (u32, u32), &'a str, &'a [(u32, u32)]);

/// The owner and the line of each position in `hot`, and the calls: depth, name and line.
fn resolve(
    positions: &[(u32, u32)],
    known: &[Known<'_>],
    texts: &[(&str, &str)],
) -> (Vec<String>, Vec<String>, InliningCorrections) {
    let mut functions = KnownFunctions::default();
    for &(path, start, name, positions) in known {
        let positions = positions.iter().copied().map(at).collect();
        functions.add(path.as_bytes(), at(start), name.as_bytes(), positions);
    }
    let functions = functions.finish();
    let texts: Vec<_> = texts
        .iter()
        .map(|(path, text)| (path.as_bytes(), Script::scan(text.as_bytes()).unwrap()))
        .collect();
    let scripts: Scripts<'_> = texts.iter().map(|(path, script)| (*path, script)).collect();
    let rows = positions
        .iter()
        .zip(0..)
        .map(|(&(line, column), number)| LineRow {
            offset: number * 8,
            file: Some(0),
            line,
            column,
            discriminator: 0,
        });
    let mut info = DebugInfo {
        files: vec![(&b"a.js"[..]).into()],
        functions: vec![SourceFunction {
            name: b"",
            file: Some(0),
            line: 5,
            column: 13,
        }],
        rows: rows.collect(),
        calls: Vec::new(),
    };
    let evidence = InliningEvidence {
        functions: &functions,
        scripts: &scripts,
    };
    let counts = add_calls(&mut info, positions.len() as u32 * 8, evidence).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let owners = positions.iter().zip(0..).map(|(_, number)| {
        let frames = info.frames_at(number * 8);
        let file = frames[0]
            .file
            .map_or("?".into(), |file| text(&info.files[file as usize].path));
        let names = frames.iter().map(|frame| match frame.function {
            0 => "hot".to_owned(),
            function => text(info.functions[function as usize].name),
        });
        format!(
            "{} {file}:{}",
            names.collect::<Vec<_>>().join("<"),
            frames[0].line
        )
    });
    let calls = info.calls.iter().map(|call| {
        let name = text(info.functions[call.function as usize].name);
        format!("{} {name} {}:{}", call.depth, call.line, call.column)
    });
    (owners.collect(), calls.collect(), counts)
}

/// Positions of `hot`, `small` and `tiny` as Node.js 20 writes them.
const POSITIONS: [(u32, u32); 6] = [(5, 13), (7, 31), (5, 39), (5, 44), (3, 13), (8, 3)];

#[test]
fn baseline_code_shows_which_function_a_position_is_in() {
    let known = [
        ("a.js", (5, 13), "hot", &[(7, 31), (8, 3)][..]),
        ("a.js", (2, 14), "tiny", &[(3, 13)]),
        ("lib.js", (3, 31), "small", &[(5, 39), (5, 44), (7, 3)]),
        // It has a position of `small`, but neither is it called nor has it any other.
        ("other.js", (1, 1), "unrelated", &[(5, 39)]),
    ];
    let (owners, calls, counts) = resolve(&POSITIONS, &known, &[]);
    let expected = [
        "hot a.js:5",
        "hot a.js:7",
        "small<hot lib.js:5",
        "small<hot lib.js:5",
        "tiny<hot a.js:3",
        "hot a.js:8",
    ];
    assert_eq!(owners, expected);
    assert_eq!(calls, ["0 tiny 0:0", "0 small 0:0"]);
    assert_eq!(
        counts,
        InliningCorrections {
            rows: 3,
            in_other_files: 2,
            unknown: 0
        }
    );
}

#[test]
fn texts_show_which_function_a_position_is_in() {
    let texts = [("a.js", MAIN), ("lib.js", LIBRARY)];
    let known = [
        ("a.js", (5, 13), "hot", &[][..]),
        ("lib.js", (3, 31), "small", &[]),
        ("lib.js", (8, 14), "leaf", &[]),
    ];
    let positions = [(5, 13), (7, 31), (5, 39), (9, 12), (5, 44), (3, 13), (8, 3)];
    let (owners, calls, counts) = resolve(&positions, &known, &texts);
    let expected = [
        "hot a.js:5",
        "hot a.js:7",
        "small<hot lib.js:5",
        "leaf<small<hot lib.js:9",
        "small<hot lib.js:5",
        "tiny<hot a.js:3",
        "hot a.js:8",
    ];
    assert_eq!(owners, expected);
    assert_eq!(calls, ["0 tiny 7:47", "0 small 7:36", "1 leaf 5:46"]);
    assert_eq!(counts.unknown, 0);
}

/// `run` calls `often` and `rarely`, and both call `mix`.
const CHAINS: &str = "function mix(a) {\n  return a + 1;\n}\n\nfunction hot(n) {\n  return run(n);\n}\n\
    function run(n) {\n  return often(n) ^ rarely(n);\n}\nfunction often(n) {\n  return mix(n) * 9;\n}\n\
    function rarely(n) {\n  return mix(n);\n}\n";

#[test]
fn a_function_with_several_callers_is_in_what_they_are_in() {
    let positions = [(6, 10), (2, 10), (12, 17), (9, 19), (2, 10), (15, 10)];
    let (owners, calls, _) = resolve(&positions, &[], &[("a.js", CHAINS)]);
    let expected = [
        "hot a.js:6",
        "mix<run<hot a.js:2",
        "often<run<hot a.js:12",
        "run<hot a.js:9",
        "mix<run<hot a.js:2",
        "rarely<run<hot a.js:15",
    ];
    assert_eq!(owners, expected);
    assert_eq!(
        calls,
        ["0 run 6:10", "1 mix 0:0", "1 often 9:10", "1 rarely 9:21"]
    );
    // What only one of them is known to call is in that one, whoever else is inlined.
    let (owners, calls, _) = resolve(&positions[..3], &[], &[("a.js", CHAINS)]);
    assert_eq!(owners[1], "mix<often<hot a.js:2");
    assert_eq!(calls, ["0 often 0:0", "1 mix 12:10"]);
}

#[test]
fn of_several_callers_that_before_and_after_is_the_right_one() {
    let positions = [(6, 10), (12, 17), (2, 10), (12, 17), (9, 19), (2, 10), (15, 10)];
    let (owners, calls, _) = resolve(&positions, &[], &[("a.js", CHAINS)]);
    let expected = [
        "hot a.js:6",
        "often<run<hot a.js:12",
        "mix<often<run<hot a.js:2",
        "often<run<hot a.js:12",
        "run<hot a.js:9",
        "mix<run<hot a.js:2",
        "rarely<run<hot a.js:15",
    ];
    assert_eq!(owners, expected);
    let expected = [
        "0 run 6:10",
        "1 mix 0:0",
        "1 often 9:10",
        "2 mix 12:10",
        "1 rarely 9:21",
    ];
    assert_eq!(calls, expected);
    // `f` calls `c`, so its own code around that is not called by `c`.
    let text = "function f(n) {\n  return c(n) + 1;\n}\n\nfunction hot(n) {\n  return f(n);\n}\n\
        function c(n) {\n  return f(n) * 2;\n}\n";
    let (owners, ..) = resolve(&[(6, 10), (9, 15), (2, 15), (9, 15)], &[], &[("a.js", text)]);
    assert_eq!(owners[1..], ["c<f<hot a.js:9", "f<hot a.js:2", "c<f<hot a.js:9"]);
}

#[test]
fn up_to_64_callers_are_compared() {
    for (count, expected) in [(64, "mix<c0<hot a.js:2"), (65, "mix<hot a.js:2")] {
        let mut text =
            "function mix(a) {\n  return a + 1;\n}\n\nfunction hot(n) {\n  return n + 1;\n}\n".to_owned();
        for number in 0..count {
            text.push_str(&format!("function c{number}(n) {{\n  return mix(n) * 9;\n}}\n"));
        }
        let mut positions = vec![(6, 10), (9, 17), (2, 10)];
        positions.extend((0..count).map(|number| (9 + 3 * number, 17)));
        let (owners, ..) = resolve(&positions, &[], &[("a.js", &text)]);
        assert_eq!(owners[2], expected);
    }
}

#[test]
fn a_line_of_an_unknown_function_is_dropped() {
    let known = [("a.js", (5, 13), "hot", &[(7, 31), (8, 3)][..])];
    let (owners, calls, counts) = resolve(&[(7, 31), (90, 2), (8, 3)], &known, &[]);
    assert_eq!(owners, ["hot a.js:7", "hot ?:0", "hot a.js:8"]);
    assert!(calls.is_empty());
    assert_eq!(counts.unknown, 1);
    // Of two functions with the same positions, neither is the right one.
    let twins = [
        known[0],
        ("b.js", (1, 1), "one", &[(90, 2), (90, 8)]),
        ("c.js", (1, 1), "two", &[(90, 2), (90, 8)]),
    ];
    assert_eq!(resolve(&[(7, 31), (90, 2), (90, 8)], &twins, &[]).2.unknown, 2);
    // Without anything about the function itself, only positions before its start are in another one.
    let (owners, ..) = resolve(&[(7, 31), (90, 2), (3, 3)], &[], &[]);
    assert_eq!(owners, ["hot a.js:7", "hot a.js:90", "hot ?:0"]);
}

/// `hot` calls `small`, whose text has one position of the evaluated code that is inlined into `hot`, too.
#[test]
fn positions_of_evaluated_code_are_not_those_of_other_functions() {
    let texts = [("a.js", MAIN), ("lib.js", LIBRARY)];
    let known = [
        ("a.js", (5, 13), "hot", &[(7, 31), (8, 3)][..]),
        ("lib.js", (3, 31), "small", &[]),
        ("", (2, 5), "evaluated", &[]),
    ];
    let evaluated = [(7, 31), (4, 6), (5, 39), (6, 20), (90, 2), (8, 3)];
    let (owners, calls, counts) = resolve(&evaluated, &known, &texts);
    assert_eq!(owners[2], "hot ?:0");
    assert!(calls.is_empty());
    assert_eq!(counts.unknown, 4);
    // Baseline code has the position for certain.
    let baseline = [known[0], ("lib.js", (3, 31), "small", &[(5, 39), (5, 44)])];
    assert_eq!(resolve(&evaluated, &baseline, &texts).0[2], "small<hot lib.js:5");
    // More of its rows are together than others are beside them.
    let inlined = [(7, 31), (4, 6), (5, 39), (5, 44), (5, 39), (90, 2), (8, 3)];
    assert_eq!(resolve(&inlined, &known, &texts).2.unknown, 2);
}

#[test]
fn a_position_of_several_functions_belongs_to_that_of_its_neighbours() {
    let known = [
        ("a.js", (5, 13), "hot", &[(7, 31), (8, 3)][..]),
        ("b.js", (2, 4), "f", &[(4, 3), (4, 21), (4, 30), (5, 1)]),
        ("c.js", (2, 4), "g", &[(4, 3), (4, 21), (4, 31), (5, 2)]),
    ];
    let positions = [
        (4, 30),
        (4, 3),
        (4, 21),
        (5, 1),
        (7, 31),
        (5, 2),
        (4, 31),
        (4, 21),
    ];
    let (owners, ..) = resolve(&positions, &known, &[]);
    let of = |row: &String| row.split('<').next().unwrap().to_owned();
    let found: Vec<String> = owners.iter().map(of).collect();
    assert_eq!(found, ["f", "f", "f", "f", "hot a.js:7", "g", "g", "g"]);
    // It may be the last one of the first function or the first one of the second.
    assert_eq!(
        resolve(&[(4, 30), (5, 1), (4, 3), (4, 31), (5, 2)], &known, &[])
            .2
            .unknown,
        1
    );
}

/// The text of `hot` and `tiny` is evaluated a hundred times, each time under another name.
#[test]
fn functions_of_evaluated_texts_are_those_of_the_same_evaluation() {
    const HOT: &[(u32, u32)] = &[(7, 31), (8, 3)];
    const TINY: &[(u32, u32)] = &[(3, 13)];
    let paths: Vec<String> = (0..100).map(|number| format!("{number}.js")).collect();
    let paths = paths.iter().map(String::as_str).chain(["a.js"]);
    let functions = paths.flat_map(|path| {
        let hot: Known<'_> = (path, (5, 13), "hot", HOT);
        [hot, (path, (2, 14), "tiny", TINY)]
    });
    let known: Vec<Known<'_>> = functions.collect();
    let (owners, ..) = resolve(&[(7, 31), (3, 13), (8, 3)], &known, &[]);
    assert_eq!(owners, ["hot a.js:7", "tiny<hot a.js:3", "hot a.js:8"]);
}

#[test]
fn up_to_64_functions_of_a_jitdump_are_compared_for_a_position() {
    for (others, expected) in [(63, "small<hot lib.js:90"), (64, "hot ?:0")] {
        let position = &[(90, 2)][..];
        let mut known: Vec<Known<'_>> = (1..=others)
            .map(|line| ("other.js", (line, 1), "", position))
            .collect();
        known.push(("lib.js", (1, 1), "small", position));
        let (owners, ..) = resolve(position, &known, &[("a.js", MAIN)]);
        assert_eq!(owners, [expected], "{others}");
    }
}

/// Each function is known to be inlined because the one before calls it.
#[test]
fn up_to_eight_functions_are_found_by_calls_from_each_other() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let main = "\n\n\n\nfunction hot(x) { return a(x) }";
    let function = |pair: &[&str]| format!("function {}(x) {{ return {}(x) }}\n", pair[0], pair[1]);
    let library: String = names.windows(2).map(function).collect();
    let library = "\n".repeat(5) + &library;
    let positions: Vec<(u32, u32)> = (6..=14).map(|line| (line, 24)).collect();
    let known: Vec<Known<'_>> = names
        .iter()
        .zip(positions.chunks(1))
        .map(|(name, position)| ("lib.js", (position[0].0, 11), *name, position))
        .collect();
    let texts = [("a.js", main), ("lib.js", &library)];
    let (owners, ..) = resolve(&positions, &known, &texts);
    let found: Vec<&str> = owners.iter().map(|row| row.split('<').next().unwrap()).collect();
    assert_eq!(found, ["a", "b", "c", "d", "e", "f", "g", "h", "hot ?:0"]);
}

#[test]
fn up_to_4096_positions_are_looked_up_in_other_scripts() {
    let main = "\n\n\n\nfunction hot(x) { return small(x) }";
    for (lines, unknown) in [(4096, 0), (4097, 1)] {
        let library = "\n".repeat(5) + "function small(x) {\n" + &"x\n".repeat(lines) + "}";
        let positions: Vec<(u32, u32)> = (7..).map(|line| (line, 1)).take(lines).collect();
        let texts = [("a.js", main), ("lib.js", &library)];
        let (owners, _, counts) = resolve(&positions, &[], &texts);
        assert_eq!(owners[4095], "small<hot lib.js:4102");
        assert_eq!((counts.rows, counts.unknown), (4096, unknown), "{lines}");
    }
}

/// Each function calls another one, whose position a third one has, too.
#[test]
fn many_functions_are_found_by_calls_from_many_others() {
    const COUNT: u32 = 2_000;
    let names =
        |prefix: &str| -> Vec<String> { (0..COUNT).map(|number| format!("{prefix}{number}")).collect() };
    let (called, others) = (names("called"), names("other"));
    let function = |name: &String| format!("function f(x) {{ return {name}(x) }}\n");
    let main = "\n\n\n\nfunction hot(x) { }\n".to_owned() + &called.iter().map(function).collect::<String>();
    let near: Vec<(u32, u32)> = (6..6 + COUNT).map(|line| (line, 17)).collect();
    let far: Vec<(u32, u32)> = (50_000..50_000 + COUNT).map(|line| (line, 3)).collect();
    let mut known: Vec<Known<'_>> = Vec::new();
    for (path, names) in [("b.js", &called), ("c.js", &others)] {
        let functions = names.iter().zip(far.chunks(1));
        known.extend(functions.map(|(name, position)| (path, (position[0].0, 1), name.as_str(), position)));
    }
    let positions = [near, far.clone()].concat();
    let (owners, _, counts) = resolve(&positions, &known, &[("a.js", &main)]);
    assert_eq!(owners[0], "f<hot a.js:6");
    assert_eq!(owners[COUNT as usize], "called0<f<hot b.js:50000");
    let expected = InliningCorrections {
        rows: 2 * u64::from(COUNT),
        in_other_files: COUNT.into(),
        unknown: 0,
    };
    assert_eq!(counts, expected);
}
