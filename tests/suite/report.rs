//! `jitinject report`: rows, shares, and what is missing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use jitdump::ByteOrder;
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::recording::PID;
use crate::support::reports::reports;
use crate::support::{capture, inject_capture, jitinject, said, scratch, tools};

/// Runs the program.
pub fn run(arguments: &[&str]) -> Output {
    jitinject().args(arguments).output().unwrap()
}

/// Runs `jitinject report` on a capture, which must succeed.
fn printed(name: &str, more: &[&str]) -> String {
    let (folder, profile) = (capture::folder(name), capture::profile(name));
    let files = [
        "report",
        "-i",
        tools::text(&profile),
        "--jitdump",
        tools::text(&folder),
    ];
    let output = run(&[&files[..], more].concat());
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn json(name: &str, more: &[&str]) -> Value {
    serde_json::from_str(&printed(name, &[&["--json", "-n", "0"], more].concat())).unwrap()
}

pub fn rows(report: &Value) -> &[Value] {
    report["rows"].as_array().unwrap()
}

pub fn samples(row: &Value, column: &str) -> u64 {
    row[column]["samples"].as_u64().unwrap()
}

fn sum(report: &Value, column: &str) -> u64 {
    rows(report).iter().map(|row| samples(row, column)).sum()
}

/// Start of the memory with the functions of [`recorded`].
const BASE: u64 = 0x4000_0000;

/// Returns the address of a function of [`recorded`].
pub fn address(function: u64) -> u64 {
    BASE + 0x100 * function
}

/// Writes a jitdump with functions of these names; returns the profile of its process, without samples.
pub fn recorded(folder: &Path, names: &[&str]) -> ProfileWriter {
    let path = folder.join(format!("jit-{PID}.dump"));
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    for (function, name) in (0..).zip(names) {
        dump.load(900, address(function), function, name.as_bytes(), &[0x90; 16]);
    }
    std::fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    profile.mmap2(PID, BASE, 0x4000, 0, "//anon", 501);
    profile
}

#[test]
fn every_sample_is_the_own_one_of_one_row() {
    let all = json("node20-inlined", &[])["event"]["samples"]["samples"]
        .as_u64()
        .unwrap();
    assert!(all > 0);
    for by in [
        "function", "symbol", "line", "file", "module", "tier", "kind", "thread", "process",
    ] {
        let report = json("node20-inlined", &["--by", by]);
        assert_eq!(sum(&report, "self"), all, "{by}");
        assert!(
            rows(&report)
                .iter()
                .all(|row| samples(row, "self") <= samples(row, "total")),
            "{by}"
        );
        // The text has no column of charged samples.
        if ["module", "tier", "kind", "thread", "process"].contains(&by) {
            let own = rows(&report).iter().map(|row| samples(row, "self"));
            assert!(own.is_sorted_by(|one, next| one >= next), "{by}");
        }
        let kinds = report["kinds"].as_array().unwrap().iter();
        assert_eq!(kinds.map(|row| samples(row, "samples")).sum::<u64>(), all);
    }
}

/// The output has `node:fs` as a relative path, which is not one in the folder of other sources.
#[test]
fn files_with_a_scheme_are_the_same_in_the_output() {
    let files = |report: &Value| {
        let names = rows(report).iter().filter_map(|row| row["name"].as_str());
        let relative = names.filter(|name| name.contains("internal/bootstrap") || name.contains("gen/dyn_1"));
        relative.map(str::to_owned).collect::<Vec<_>>()
    };
    let recorded = files(&json("node22", &["--by", "file"]));
    assert_eq!(recorded, ["gen/dyn_1.js", "node:internal/bootstrap/realm"]);
    let folder = scratch();
    let output = inject_capture(folder.path(), "node22", &["--source-dir", "/src"]);
    let output = tools::text(&output);
    let ran = run(&["report", "-i", output, "--by", "file", "--json", "-n", "0"]);
    let again = files(&serde_json::from_slice(&ran.stdout).unwrap());
    assert_eq!(again, ["/src/gen/dyn_1.js", "node:internal/bootstrap/realm"]);
}

/// The buffer of one CPU follows that of another.
#[test]
fn names_are_the_last_ones_by_time() {
    let folder = scratch();
    let mut writer = recorded(folder.path(), &["work"]);
    writer.comm(PID, "python3", false, 700);
    writer.comm(PID, "bash", false, 600);
    writer.sample(PID, 1000, &[address(0)], None);
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    for by in ["process", "thread"] {
        let output = run(&["report", "--json", "--by", by, tools::text(&profile)]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["rows"][0]["name"], format!("python3 {PID}"), "{by}");
    }
}

/// As in perf: the workers of a server have its name.
#[test]
fn processes_that_only_fork_have_the_name_of_their_parent() {
    let report = json("cpython313-fork", &["--by", "process"]);
    let mut names: Vec<&str> = rows(&report)
        .iter()
        .filter_map(|row| row["name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["python3.13 23220", "python3.13 23236", "python3.13 23237"]
    );
}

#[test]
fn tiers_and_copies_of_a_function_are_one_row() {
    let symbols = json("node20", &["--by", "symbol"]);
    let is_term = |row: &&Value| row["name"].as_str().unwrap().contains("term /");
    let symbols: Vec<&Value> = rows(&symbols).iter().filter(is_term).collect();
    assert!(symbols.len() > 1, "{symbols:?}");
    let functions = json("node20", &[]);
    let term: Vec<&Value> = rows(&functions)
        .iter()
        .filter(|row| row["name"] == "term")
        .collect();
    let [term] = term[..] else { panic!("{term:?}") };
    assert_eq!(term["line"], 29);
    assert!(term["tiers"].as_array().unwrap().len() > 1, "{term}");
    assert!(samples(term, "self") > 0);
    assert!(samples(term, "charged") >= samples(term, "self"));
}

#[test]
fn inlined_functions_say_into_what() {
    let report = json("node20-inlined", &[]);
    let inlined = rows(&report).iter().filter(|row| row["inlined_into"].is_array());
    assert!(inlined.filter(|row| samples(row, "self") > 0).count() > 0);
}

#[test]
fn a_function_has_lines_with_text_callers_and_callees() {
    let symbol = "JS:*eat /tmp/cap-node20/work.js:23:6";
    for place in [symbol, "eat /tmp/cap-node20/work.js:23"] {
        assert_eq!(json("node20", &[place])["function"]["row"]["name"], "eat");
    }
    let report = json("node20", &["eat"]);
    let function = &report["function"];
    assert_eq!(function["row"]["name"], "eat");
    let lines = function["lines"].as_array().unwrap();
    let own: u64 = lines.iter().map(|line| samples(line, "self")).sum();
    assert!(
        own > 0 && own <= samples(&function["row"], "self"),
        "{function:#}"
    );
    assert!(!function["callers"].as_array().unwrap().is_empty());
    let text = printed("node20", &["eat"]);
    assert!(text.contains("callers"), "{text}");
    let unknown = run(&[
        "report",
        "-i",
        tools::text(&capture::profile("node20")),
        "no_such_function",
    ]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        reports(&said(&unknown), "JI461", "no_such_function"),
        "{}",
        said(&unknown)
    );
}

#[test]
fn samples_are_selected_by_event_thread_and_time() {
    let name = "node20-multievent";
    let first = json(name, &[]);
    let other = first["event"]["others"][0].as_str().unwrap().to_owned();
    let report = json(name, &["--event", &other]);
    assert_eq!(report["event"]["name"], *other);
    let unknown = run(&[
        "report",
        "-i",
        tools::text(&capture::profile(name)),
        "--event",
        "none",
    ]);
    assert!(reports(&said(&unknown), "JI460", "none"), "{}", said(&unknown));
    let all = first["event"]["samples"]["samples"].as_u64().unwrap();
    let of_time = |time: &str| {
        let report = json(name, &["--time", time]);
        report["event"]["samples"]["samples"].as_u64().unwrap()
    };
    let (before, after) = (of_time(",0.1"), of_time("0.1,"));
    assert!(
        before < all && after < all && before + after >= all,
        "{before} {after} {all}"
    );
    let threads = json(name, &["--by", "thread"]);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows(&threads) {
        let tid = row["name"]
            .as_str()
            .unwrap()
            .rsplit(' ')
            .next()
            .unwrap()
            .to_owned();
        found.insert(tid, samples(row, "self"));
    }
    for (tid, expected) in found {
        let report = json(name, &["--tid", &tid]);
        assert_eq!(report["event"]["samples"]["samples"], expected);
    }
}

#[test]
fn what_is_missing_is_in_every_form() {
    let text = printed("node20", &[]);
    assert!(text.lines().any(|line| line.starts_with("missing: ")), "{text}");
    let markdown = printed("node20", &["--markdown"]);
    assert!(
        markdown.contains("missing: ") && markdown.contains("| --- |"),
        "{markdown}"
    );
    assert!(json("node20", &[])["missing"]["samples"].as_u64().unwrap() > 0);
    let filtered = json("node20", &["--filter", "^(eat|term)$"]);
    assert_eq!(rows(&filtered).len(), 2);
    for form in [&[][..], &["--markdown"]] {
        let text = printed("node20", &[&["-n", "1"], form].concat());
        assert!(text.contains(" more rows; -n 0 prints all"), "{text}");
    }
}

/// Their names have no paths, and their lines have.
#[test]
fn functions_are_found_by_the_files_of_their_lines() {
    for (name, filter, function) in [
        ("java17", r"Work\.java$", "Work$Node.insert(java.lang.Comparable)"),
        ("lli14-mcjit", r"/work\.c$", "insert"),
    ] {
        let report = json(name, &["--filter", filter]);
        let mut names = rows(&report).iter().map(|row| &row["name"]);
        assert!(names.any(|name| name == function), "{name}: {report:#}");
    }
}

#[test]
fn a_mistyped_profile_is_not_taken_for_a_function() {
    let folder = scratch();
    let output = jitinject()
        .current_dir(folder.path())
        .args(["report", "runn"])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        reports(&said, "JI400", "runn is neither a profile nor a directory"),
        "{said}"
    );
}

#[test]
fn every_form_has_the_same_shares() {
    for (by, names) in [
        ("line", "| charged % | self % | total % | line |"),
        ("thread", "| self % | total % | thread |"),
    ] {
        let markdown = printed("node20", &["--by", by, "--markdown"]);
        assert!(markdown.lines().any(|line| line == names), "{markdown}");
        let cells = markdown
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.matches(" | ").count());
        assert!(
            cells.skip(2).all(|count| count == names.matches(" | ").count()),
            "{markdown}"
        );
    }
}

/// The schema permits no additional properties, so a field that it does not describe is an error as well.
#[test]
fn the_json_is_as_its_schema_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/report.schema.json");
    let schema = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (name, more) in [
        ("node20", &[][..]),
        ("node20", &["--by", "thread"]),
        ("node20", &["term"]),
        ("node20-inlined", &["hot", "--instructions=2"]),
        ("node20-dwarf", &[]),
        ("cpython312-map", &["--by", "line"]),
        ("mono-map", &["Work:Fib (int)", "--instructions"]),
        ("php82", &["--by", "module"]),
    ] {
        let mut report = json(name, more);
        let errors: Vec<String> = validator
            .iter_errors(&report)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name} {more:?}: {errors:#?}");
        report["further"] = true.into();
        assert!(!validator.is_valid(&report));
    }
}

#[test]
fn an_output_has_the_same_functions() {
    // Code in files of /dev/shm is that of runtimes.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = folder.path().join("out.data");
    let profile = capture::profile("node20");
    let made = run(&["-i", tools::text(&profile), "-o", tools::text(&output)]);
    assert!(made.status.success(), "{}", said(&made));
    let counts = |report: &Value| -> BTreeMap<String, (u64, u64)> {
        let is_jit = |row: &&Value| {
            let name = row["name"].as_str().unwrap();
            name.starts_with("JS:") || name == "[JIT code]"
        };
        let rows = rows(report).iter().filter(is_jit);
        rows.map(|row| {
            let name = row["name"].as_str().unwrap().to_owned();
            (name, (samples(row, "self"), samples(row, "total")))
        })
        .collect()
    };
    for by in ["symbol", "module"] {
        let of = |input: &std::path::Path| {
            let output = run(&["report", "--json", "-n", "0", "--by", by, tools::text(input)]);
            assert!(output.status.success(), "{}", said(&output));
            counts(&serde_json::from_slice(&output.stdout).unwrap())
        };
        let (before, after) = (of(&profile), of(&output));
        assert!(!before.is_empty());
        assert_eq!(before, after, "{by}");
    }
    let in_code = |input: &Path| {
        let output = run(&["report", "--json", tools::text(input)]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["missing"]["jit"].as_u64().unwrap()
    };
    assert_eq!(in_code(&profile), 455);
    assert_eq!(in_code(&output), 455);
}

#[test]
fn the_limit_of_an_event_cuts_its_stacks() {
    const SAMPLE_MAX_STACK: usize = 104 + 108;
    let folder = scratch();
    let mut writer = recorded(folder.path(), &["a", "b", "c"]);
    writer.attr_size = 112;
    writer.sample(PID, 1000, &[address(0), address(1), address(2)], None);
    writer.sample(PID, 1001, &[address(0), address(1)], None);
    let mut bytes = writer.finish();
    let profile = folder.path().join("perf.data");
    for (limit, cut) in [(0, 0), (4, 0), (3, 1)] {
        bytes[SAMPLE_MAX_STACK] = limit;
        std::fs::write(&profile, &bytes).unwrap();
        let output = run(&["report", "--json", tools::text(&profile)]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["missing"]["cut"], cut, "{limit}");
    }
}

#[test]
fn an_event_without_samples_is_reported_as_such() {
    let other = json("node20-multievent", &[])["event"]["others"][0].clone();
    let arguments = ["--event", other.as_str().unwrap(), "--time", "0,0"];
    let report = json("node20-multievent", &arguments);
    assert_eq!(report["event"]["name"], other);
    assert_eq!(report["event"]["samples"]["samples"], 0);
}

#[test]
fn processes_and_threads_without_samples_are_not_counted() {
    let counts = |more: &[&str]| {
        let report = json("cpython313-fork", more);
        ["processes", "threads"].map(|of| report[of].as_u64().unwrap())
    };
    let [processes, threads] = counts(&[]);
    assert!(processes > 1 && threads >= processes);
    assert_eq!(counts(&["--pid", "1"]), [0, 0]);
}

#[test]
fn executables_of_another_machine_are_below_a_directory() {
    use object::{Object, ObjectSegment, ObjectSymbol};
    const BASE: u64 = 0x4000_0000;
    let folder = scratch();
    let program = env!("CARGO_BIN_EXE_jitinject");
    std::fs::create_dir_all(folder.path().join("root/absent")).unwrap();
    std::fs::copy(program, folder.path().join("root/absent/program")).unwrap();
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let main = file.symbol_by_name("main").unwrap().address();
    let segment = file.segments().find(|segment| {
        let addresses = segment.address()..segment.address() + segment.size();
        addresses.contains(&main)
    });
    let segment = segment.unwrap();
    let offset = main - segment.address() + segment.file_range().0;
    let mut writer = ProfileWriter::new(ByteOrder::Little);
    writer.mmap2(PID, BASE, 1 << 30, 0, "/absent/program", 500);
    writer.sample(PID, 1000, &[BASE + offset], None);
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    let name = |more: &[&str]| {
        let output = run(&[&["report", "--json", "-i", tools::text(&profile)], more].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        rows(&report)[0]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(&[]), "program");
    assert_eq!(
        name(&["--symfs", tools::text(&folder.path().join("root"))]),
        "main"
    );
}

/// perf records no map of the kernel where users may not read its addresses.
#[test]
fn the_kernel_is_a_module_without_a_map_of_it() {
    let folder = scratch();
    let mut writer = ProfileWriter::new(ByteOrder::Little);
    writer.comm(PID, "program", true, 500);
    let in_kernel = -128_i64 as u64;
    writer.kernel_sample(PID, 1000, &[in_kernel, 0xffff_ffff_8100_0000]);
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    let output = run(&["report", "--json", "--by", "module", tools::text(&profile)]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows(&report)[0]["name"], "[kernel.kallsyms]", "{report:#}");
}

/// CPython's interpreter is between all functions of Python.
#[test]
fn functions_of_the_language_call_each_other_through_native_code() {
    const NATIVE: u64 = 0x5000_0000;
    let folder = scratch();
    let mut writer = recorded(folder.path(), &["inner", "work", "outer"]);
    writer.mmap2(PID, NATIVE, 0x4000, 0, "/absent/interpreter.so", 502);
    let native = NATIVE + 0x10;
    let stack = [address(0), native, address(1) + 5, native, address(2) + 5, native];
    writer.sample(PID, 1000, &stack, None);
    writer.sample(PID, 1001, &stack[1..], None);
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    let report = |name: &str| {
        let output = run(&["report", "--json", "-i", tools::text(&profile), name]);
        assert!(output.status.success(), "{}", said(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        ["callers", "callees"].map(|list| {
            let shares = report["function"][list].as_array().unwrap().iter();
            let names = shares.map(|share| {
                let samples = share["samples"]["samples"].as_u64().unwrap();
                (share["name"].as_str().unwrap().to_owned(), samples)
            });
            names.collect::<Vec<_>>()
        })
    };
    let row = |name: &str, samples| (name.to_owned(), samples);
    let interpreter = |samples| {
        let name = "interpreter.so  /absent/interpreter.so  (no symbols: no file of its build found)";
        row(name, samples)
    };
    assert_eq!(
        report("work"),
        [vec![row("outer", 2)], vec![row("inner", 1), interpreter(1)]]
    );
    // What is not of the language has the functions next to it.
    assert_eq!(report("outer"), [vec![interpreter(2)], vec![row("work", 2)]]);
    assert_eq!(report("inner"), [vec![row("work", 1)], vec![]]);
}

#[test]
fn callers_and_callees_beyond_the_first_ten_are_counted() {
    let folder = scratch();
    let others = (1..24).map(|function| format!("other{function:02}"));
    let names: Vec<String> = std::iter::once("work".to_owned()).chain(others).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut writer = recorded(folder.path(), &names);
    // 11 callees, and 12 callers.
    for other in 1..12 {
        writer.sample(PID, 1000 + other, &[address(other), address(0) + 5], None);
    }
    for other in 12..24 {
        writer.sample(PID, 1000 + other, &[address(0), address(other) + 5], None);
    }
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    let report = |name: &str, format: &[&str]| {
        let arguments = ["report", "-i", tools::text(&profile), name];
        let output = run(&[&arguments[..], format].concat());
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&report("work", &["--json"])).unwrap();
    let function = &json["function"];
    for (list, omitted) in [("tiers", 0), ("callees", 1), ("callers", 2)] {
        assert_eq!(function[format!("{list}_omitted")], omitted, "{list}");
    }
    assert_eq!(function["callers"].as_array().unwrap().len(), 10);
    for format in [&[][..], &["--markdown"]] {
        let text = report("work", format);
        assert!(text.contains("\n          1 more callee\n"), "{text}");
        assert!(text.contains("\n          2 more callers\n"), "{text}");
        // The other 22 have the same in their names.
        let text = report("other", format);
        assert!(text.contains("; 12 more functions\n"), "{text}");
    }
    let all = report("work", &["-n", "0"]);
    assert!(all.contains("other23") && !all.contains(" more "), "{all}");
    let few = report("other", &["-n", "3"]);
    assert!(few.contains("; 19 more functions\n"), "{few}");
    let filtered = report("other", &["--filter", "other2[13]"]);
    assert!(filtered.contains("\nalso: other2"), "{filtered}");
    assert!(
        !filtered.contains("other01") && !filtered.contains("more"),
        "{filtered}"
    );
}

#[test]
fn rows_of_a_function_are_refused() {
    let output = run(&["report", "-i", "perf.data", "--by", "line", "work"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("--by and a function"), "{}", said(&output));
}

/// All functions of a minified script are in one line, and many have one name.
#[test]
fn functions_of_one_name_and_line_are_told_apart_by_their_column() {
    let folder = scratch();
    let names = [
        "JS:*t /app/bundle.js:1:100",
        "JS:~t /app/bundle.js:1:9000",
        "JS:*one /app/bundle.js:1:200",
        "JS:*two /app/bundle.js:1:300",
    ];
    let mut writer = recorded(folder.path(), &names);
    for time in 1000..1005 {
        writer.sample(PID, time, &[address(0), address(2) + 5], None);
    }
    writer.sample(PID, 1005, &[address(1), address(3) + 5], None);
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    let output = run(&["report", "-i", tools::text(&profile), "t", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let function = &json["function"];
    assert_eq!(samples(&function["row"], "self"), 5);
    let names = |list: &str| -> Vec<String> {
        let shares = function[list].as_array().unwrap().iter();
        shares
            .map(|share| share["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("tiers"), ["TurboFan"]);
    let callers = names("callers");
    assert!(callers.len() == 1 && callers[0].starts_with("one"), "{callers:?}");
    assert_eq!(function["others"].as_array().unwrap().len(), 1);
}
