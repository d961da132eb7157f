//! The profile in a summary: samples of all functions, with JIT code, native code and the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;
use object::{Object, ObjectSegment, ObjectSymbol};
use serde_json::{Value, json};

use crate::support::profile::{ProfileWriter, field};
use crate::support::{
    attempt, capture, has_code, inject, inject_into, jitinject, said, scratch, shown, tools,
};

/// Runs jitinject, which must succeed; returns the profile in its summary.
fn profile_of(folder: &Path, input: &Path, more: &[&str]) -> Value {
    let path = folder.join("summary.json");
    let output = folder.join("out.data");
    inject(
        input,
        &output,
        &[&["--summary", tools::text(&path)], more].concat(),
    );
    let mut summary: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    summary["profile"].take()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Own and total samples of the functions of a kind, by name.
fn samples_of(profile: &Value, kind: &str) -> BTreeMap<String, (u64, u64)> {
    let mut found = BTreeMap::new();
    for function in list(&profile["functions"])
        .iter()
        .filter(|function| function["kind"] == kind)
    {
        let sum = |counts: &Value| list(counts).iter().map(number).sum::<u64>();
        let (own, total): &mut (u64, u64) = found
            .entry(function["name"].as_str().unwrap().to_owned())
            .or_default();
        *own += sum(&function["self"]);
        *total += sum(&function["total"]);
    }
    found
}

/// Name, file and line of a function.
type Function = (String, String, u64);

/// Own and total samples of functions of JIT code, all compilers of one together, by the stacks of a summary.
fn samples_in_stacks(profile: &Value) -> BTreeMap<Function, (u64, u64)> {
    let functions = list(&profile["functions"]);
    let function = |index: &Value| {
        let function = &functions[number(index) as usize];
        (function["kind"] == "jit").then(|| key(function))
    };
    let stacks = list(&profile["stacks"]);
    let mut found: BTreeMap<Function, (u64, u64)> = BTreeMap::new();
    for row in stacks {
        let samples = number(&row[2]);
        if let Some(own) = function(&row[1]) {
            found.entry(own).or_default().0 += samples;
        }
        let callers = std::iter::successors(Some(row), |row| {
            usize::try_from(row[0].as_i64().unwrap())
                .ok()
                .map(|caller| &stacks[caller])
        });
        for function in callers
            .filter_map(|row| function(&row[1]))
            .collect::<BTreeSet<_>>()
        {
            found.entry(function).or_default().1 += samples;
        }
    }
    found
}

fn key(function: &Value) -> Function {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = function["line"].as_u64().unwrap_or_default();
    (text(&function["name"]), text(&function["file"]), line)
}

#[test]
fn inlined_functions_have_the_samples_that_report_counts() {
    let folder = scratch();
    for name in ["node20-inlined", "node20", "node22"] {
        let (dumps, input) = (capture::folder(name), capture::profile(name));
        let files = ["--jitdump", tools::text(&dumps)];
        let profile = profile_of(
            folder.path(),
            &input,
            &[&files[..], &["--names", "plain"]].concat(),
        );
        let output = jitinject()
            .args([
                "report",
                "--json",
                "-n",
                "0",
                "--no-native-lines",
                "-i",
                tools::text(&input),
            ])
            .args(files)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = list(&report["rows"]);
        let samples = |row: &Value, column: &str| number(&row[column]["samples"]);
        let inlined = rows.iter().filter(|row| row["inlined_into"].is_array());
        assert!(
            inlined.map(|row| samples(row, "total")).sum::<u64>() > 0,
            "{name}"
        );
        let expected: BTreeMap<Function, (u64, u64)> = rows
            .iter()
            .map(|row| (key(row), (samples(row, "self"), samples(row, "total"))))
            .collect();
        let found = samples_in_stacks(&profile);
        assert!(!found.is_empty(), "{name}");
        for (function, counts) in found {
            assert_eq!(expected.get(&function), Some(&counts), "{name} {function:?}");
        }
        for row in rows.iter().filter(|row| row["inlined_into"].is_array()) {
            assert!(
                samples_in_stacks(&profile).contains_key(&key(row)),
                "{name} {row}"
            );
        }
    }
}

/// The expected numbers come from another reader, of the profile and the objects that were written.
#[test]
fn jit_functions_have_the_samples_that_readers_show() {
    let folder = scratch();
    for name in [
        "node20",
        "node22",
        "php82",
        "multi",
        "node20-wasm",
        "mono-map",
        "node20-multievent",
    ] {
        let dumps = capture::folder(name);
        let profile = profile_of(
            folder.path(),
            &capture::profile(name),
            &["--jitdump", tools::text(&dumps)],
        );
        let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for sample in shown::stacks(&folder.path().join("out.data")) {
            let is_named = |frame: &&String| !frame.starts_with("[unknown]");
            if let Some(leaf) = sample.frames.first().filter(is_named) {
                expected.entry(leaf.clone()).or_default().0 += 1;
            }
            let functions: BTreeSet<&String> = sample.frames.iter().filter(is_named).collect();
            for function in functions {
                expected.entry(function.clone()).or_default().1 += 1;
            }
        }
        let mut found = samples_of(&profile, "jit");
        found.remove("[JIT code without a name]");
        // Readers without inlined calls count their samples for the function around them.
        let own = |samples: &BTreeMap<String, (u64, u64)>| samples.values().map(|(own, _)| own).sum::<u64>();
        assert_eq!(own(&found), own(&expected), "{name}");
        for (function, (own, total)) in expected {
            let (found_own, found_total) = found[&function];
            assert_eq!(found_total, total, "{name} {function}");
            assert!(found_own <= own, "{name} {function}");
        }
        assert!(!found.is_empty(), "{name}");
    }
}

#[test]
fn stacks_add_up_to_the_totals_of_the_functions() {
    let folder = scratch();
    let profile = profile_of(folder.path(), &capture::profile("node20"), &[]);
    let functions = list(&profile["functions"]);
    let stacks: Vec<(i64, usize, u64)> = list(&profile["stacks"])
        .iter()
        .map(|row| {
            (
                row[0].as_i64().unwrap(),
                number(&row[1]) as usize,
                number(&row[2]),
            )
        })
        .collect();
    let (mut own, mut total) = (vec![0; functions.len()], vec![0; functions.len()]);
    for (index, &(_, function, samples)) in stacks.iter().enumerate() {
        own[function] += samples;
        let mut on_stack = BTreeSet::new();
        let mut row = index as i64;
        while let Ok(at) = usize::try_from(row) {
            on_stack.insert(stacks[at].1);
            assert!(stacks[at].0 < row, "callers come first");
            row = stacks[at].0;
        }
        on_stack
            .into_iter()
            .for_each(|function| total[function] += samples);
    }
    assert_eq!(profile["stacks_omitted"], 0);
    for (index, function) in functions.iter().enumerate() {
        let name = &function["name"];
        assert_eq!(function["self"], Value::from(vec![own[index]]), "{name}");
        assert_eq!(function["total"], Value::from(vec![total[index]]), "{name}");
        let callers = function["callers"].as_array().map_or(&[][..], Vec::as_slice);
        let samples: Vec<u64> = callers.iter().map(|caller| number(&caller[1])).collect();
        assert!(
            samples.is_sorted_by(|one, next| one >= next) && samples.len() <= 3,
            "{name}"
        );
        assert!(samples.iter().sum::<u64>() <= total[index], "{name}");
    }
    assert!(
        functions
            .iter()
            .map(|function| number(&function["self"][0]))
            .is_sorted_by(|one, next| one >= next)
    );
}

#[test]
fn how_it_was_recorded_is_in_the_summary() {
    let folder = scratch();
    let labels = ["--label", "commit=3f2a90c", "--label", "run=7=b"];
    let profile = profile_of(folder.path(), &capture::profile("node20"), &labels);
    assert_eq!(
        profile["labels"],
        serde_json::json!({"commit": "3f2a90c", "run": "7=b"})
    );
    assert_eq!(
        (&profile["arch"], &profile["cpus"]),
        (&"x86_64".into(), &2.into())
    );
    assert_eq!(profile["command"][0], "/usr/bin/perf");
    assert_eq!(profile["events"][0]["name"], "cpu-clock:ppp");
    assert_eq!(profile["events"][0]["unit"], "ns");
    assert_eq!(profile["events"][0]["samples"], 625);
    assert_eq!(profile["cpu_time_ns"], profile["events"][0]["period"]);
    let threads = list(&profile["threads"]);
    assert_eq!(threads[0]["name"], "node");
    assert_eq!(
        threads
            .iter()
            .map(|thread| number(&thread["samples"][0]))
            .sum::<u64>(),
        625
    );

    let several = profile_of(folder.path(), &capture::profile("node20-multievent"), &[]);
    let events = list(&several["events"]);
    assert!(events.len() > 1);
    for (index, event) in events.iter().enumerate() {
        let own = list(&several["functions"])
            .iter()
            .map(|function| number(&function["self"][index]));
        assert_eq!(own.sum::<u64>(), number(&event["samples"]), "{event}");
    }
    for label in ["commit", "=x"] {
        let output = folder.path().join("out.data");
        let summary = folder.path().join("summary.json");
        let more = ["--summary", tools::text(&summary), "--label", label];
        assert_eq!(
            attempt(&capture::profile("php82"), &output, &more).status.code(),
            Some(2)
        );
    }
}

/// Recordings of many cgroups have an event for each of them. A summary of the other test has a list instead.
#[test]
fn numbers_of_many_events_are_those_that_are_not_zero() {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type |= field::IDENTIFIER;
    for (time, event) in (1..).zip([0, 64, 64]) {
        profile.ids = vec![event + 1];
        profile.sample(7, time, &[0x7000_0000], None);
    }
    profile.ids = (1..=65).collect();
    let folder = scratch();
    let path = folder.path().join("perf.data");
    fs::write(&path, profile.finish()).unwrap();
    let found = profile_of(folder.path(), &path, &[]);
    let counts = json!({"0": 1, "64": 2});
    assert_eq!(list(&found["events"]).len(), 65);
    assert_eq!(list(&found["threads"])[0]["samples"], counts);
    let function = &list(&found["functions"])[0];
    assert_eq!((&function["self"], &function["total"]), (&counts, &counts));
    let summary = folder.path().join("summary.json");
    let compared = jitinject()
        .arg("compare")
        .args([&summary, &summary])
        .output()
        .unwrap();
    assert!(compared.status.success(), "{}", said(&compared));
}

/// A profile of this test, with a sample in `main` of its executable and one in the kernel.
fn native_profile() -> (ProfileWriter, u64) {
    let program = std::env::current_exe().unwrap();
    let bytes = fs::read(&program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let main = file
        .symbols()
        .find(|symbol| symbol.name() == Ok("main"))
        .unwrap()
        .address();
    let mut segments = file.segments();
    let holds = |segment: &object::Segment<'_, '_>| {
        (segment.address()..segment.address() + segment.size()).contains(&main)
    };
    let segment = segments.find(holds).unwrap();
    let offset = segment.file_range().0 + (main - segment.address());
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    let page = offset & !0xfff;
    profile.mmap2(7, 0x40_0000, 0x1000_0000, page, tools::text(&program), 1);
    (profile, 0x40_0000 + (offset - page))
}

fn written(folder: &Path, profile: &ProfileWriter) -> PathBuf {
    let input = folder.join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    input
}

#[test]
fn native_code_has_the_names_in_its_file() {
    let folder = scratch();
    let (mut profile, main) = native_profile();
    profile.sample(7, 10, &[main], None);
    // The caller's return address is the first one after its code.
    profile.sample(7, 11, &[0x7000_0000, main + 1], None);
    let input = written(folder.path(), &profile);
    let found = profile_of(folder.path(), &input, &[]);
    assert_eq!(
        samples_of(&found, "native"),
        BTreeMap::from([("main".to_owned(), (1, 2))])
    );
    assert_eq!(
        samples_of(&found, "unknown"),
        BTreeMap::from([("[unknown]".to_owned(), (1, 1))])
    );
    // Files elsewhere are out of reach.
    let confined = profile_of(folder.path(), &input, &["--confine"]);
    assert!(samples_of(&confined, "native").is_empty());
    assert_eq!(samples_of(&confined, "module").len(), 1);
}

#[test]
fn a_file_of_another_build_names_nothing() {
    let folder = scratch();
    let (mut profile, main) = native_profile();
    profile.sample(7, 10, &[main], None);
    let program = std::env::current_exe().unwrap();
    let mut entry = Vec::new();
    ByteOrder::Little.write_u32(&mut entry, u32::MAX);
    entry.extend_from_slice(&[0xab; 20]);
    entry.extend_from_slice(&[20, 0, 0, 0]);
    entry.extend_from_slice(tools::text(&program).as_bytes());
    entry.resize(entry.len().next_multiple_of(64), 0);
    let mut table = Vec::new();
    ByteOrder::Little.write_u32(&mut table, 0);
    ByteOrder::Little.write_u16(&mut table, 1 << 15);
    ByteOrder::Little.write_u16(&mut table, 8 + entry.len() as u16);
    profile.features.push((2, [table, entry].concat()));
    let found = profile_of(folder.path(), &written(folder.path(), &profile), &[]);
    assert!(samples_of(&found, "native").is_empty());
    let module = program.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(samples_of(&found, "module"), BTreeMap::from([(module, (1, 1))]));
}

/// Returns a recording whose kernel has the build ID 0xabab… This machine may run the kernel that was recorded, and has its
/// symbols then.
fn recording_of_another_kernel() -> Vec<u8> {
    let mut data = fs::read(capture::profile("node20")).unwrap();
    let build_id = [
        0xe4, 0xf1, 0x8d, 0x9d, 0xc1, 0xd0, 0xe6, 0xfc, 0x2b, 0x17, 0xe9, 0x3e, 0x88, 0x5a, 0x64, 0x7b, 0x3c,
        0x0a, 0x6f, 0xc1,
    ];
    let places: Vec<usize> = memchr::memmem::find_iter(&data, &build_id).collect();
    assert!(!places.is_empty());
    for place in places {
        data[place..][..build_id.len()].fill(0xab);
    }
    data
}

/// `perf record --kcore` stores the symbols of the kernel in the profile's folder.
#[test]
fn the_kernel_has_the_names_in_the_folder_of_the_profile() {
    let folder = scratch();
    let input = folder.path().join("perf.data");
    let kernel = input.join("kcore_dir");
    fs::create_dir_all(&kernel).unwrap();
    fs::write(input.join("data"), recording_of_another_kernel()).unwrap();
    let profile = || {
        profile_of(
            folder.path(),
            &input,
            &["--jitdump", tools::text(&capture::folder("node20"))],
        )
    };
    let unnamed = profile();
    let (own, total) = samples_of(&unnamed, "kernel")["[kernel.kallsyms]"];
    assert!(own > 0);
    for name in ["kcore", "modules"] {
        fs::write(kernel.join(name), "").unwrap();
    }
    // The kernel of the recording has its code after _text; one symbol covers it all.
    fs::write(
        kernel.join("kallsyms"),
        "ffffffff81000000 T _text\nffffffff81000001 t everything\n",
    )
    .unwrap();
    let named = profile();
    assert_eq!(
        samples_of(&named, "kernel"),
        BTreeMap::from([("everything".to_owned(), (own, total))])
    );
    // A symbol outside of the kernel's mapping does not reach into it.
    fs::write(
        kernel.join("kallsyms"),
        "ffffffff80fff000 t driver_run\t[driver]\n",
    )
    .unwrap();
    let elsewhere = profile();
    assert_eq!(
        samples_of(&elsewhere, "kernel"),
        BTreeMap::from([("[kernel.kallsyms]".to_owned(), (own, total))])
    );
}

/// The kernel of the recording has its symbols in perf's build-id cache, which is not in the folder of the profile.
#[test]
fn the_kernel_of_a_confined_profile_has_no_names_from_elsewhere() {
    let folder = scratch();
    let cache = folder.path().join(".debug/[kernel.kallsyms]");
    let kernel = cache.join("ab".repeat(20));
    fs::create_dir_all(&kernel).unwrap();
    let input = folder.path().join("perf.data");
    fs::write(&input, recording_of_another_kernel()).unwrap();
    let dumps = capture::folder("node20");
    fs::write(
        kernel.join("kallsyms"),
        "ffffffff81000000 T _text\nffffffff81000001 t everything\n",
    )
    .unwrap();
    let has_names = |more: &[&str]| {
        let (summary, output) = (folder.path().join("summary.json"), folder.path().join("out.data"));
        let mut command = crate::support::jitinject();
        command.env("HOME", folder.path()).args(more);
        command.args(["-i", tools::text(&input), "--jitdump", tools::text(&dumps)]);
        command.args(["-o", tools::text(&output), "--summary", tools::text(&summary)]);
        assert!(command.output().unwrap().status.success());
        fs::read_to_string(&summary).unwrap().contains("everything")
    };
    assert!(has_names(&[]));
    assert!(!has_names(&["--confine"]));
}

#[test]
fn the_profile_is_the_same_for_any_number_of_threads() {
    let folder = scratch();
    let of = |threads: &str| {
        let name = format!("summary-{threads}.json");
        let path = folder.path().join(name);
        let output = folder.path().join("out.data");
        let mut command = crate::support::jitinject();
        command.args([
            "-q",
            "-i",
            tools::text(&capture::profile("node20")),
            "-o",
            tools::text(&output),
        ]);
        command
            .args(["--summary", tools::text(&path)])
            .env("RAYON_NUM_THREADS", threads);
        assert!(command.status().unwrap().success());
        fs::read(path).unwrap()
    };
    assert_eq!(of("1"), of("7"));
}

/// The interpreter keeps no frame pointers: stacks end in it.
#[test]
fn recorded_stacks_without_python_get_advice() {
    let folder = scratch();
    let input = capture::profile("cpython312-map");
    let ran = attempt(&input, &folder.path().join("out.data"), &[]);
    assert!(has_code(&said(&ran), "JI179"), "{}", said(&ran));
    assert!(
        said(&ran).contains("CPython: 0 of 144 samples have its functions"),
        "{}",
        said(&ran)
    );
    let unwound = attempt(
        &capture::profile("cpython313-dwarf"),
        &folder.path().join("out.data"),
        &[],
    );
    assert!(!has_code(&said(&unwound), "JI179"), "{}", said(&unwound));
}

#[test]
fn frames_without_a_name_count_for_fail_under() {
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(7, "app", true, 1);
    profile.mmap2(7, 0x40_0000, 0x1000, 0, "/nowhere/app", 1);
    profile.mmap2(7, 0x50_0000, 0x1000, 0, "//anon", 1);
    for time in 10..20 {
        profile.sample(7, time, &[0x40_0100, 0x50_0100, 0x50_0200], None);
    }
    let input = written(folder.path(), &profile);
    let summary = folder.path().join("summary.json");
    let more = ["--summary", tools::text(&summary), "--fail-under", "50"];
    let ran = attempt(&input, &folder.path().join("out.data"), &more);
    assert_eq!(ran.status.code(), Some(3), "{}", said(&ran));
    assert!(has_code(&said(&ran), "JI416"), "{}", said(&ran));
    let json: Value = serde_json::from_slice(&fs::read(&summary).unwrap()).unwrap();
    let expected = serde_json::json!({"samples": 10, "frames": 20, "named": 0, "named_percent": 0.0});
    assert_eq!(json["samples"]["in_stacks"], expected);
    // With a perf map, all have one.
    fs::write(folder.path().join("perf-7.map"), "500000 1000 everything\n").unwrap();
    let ran = attempt(&input, &folder.path().join("out.data"), &["--fail-under", "100"]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    assert!(
        said(&ran).contains("20 of their 20 JIT frames named"),
        "{}",
        said(&ran)
    );
    inject_into(folder.path(), &input, &[]);
}

#[test]
fn jit_code_of_an_output_is_jit_code_with_the_same_samples() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let before = profile_of(folder.path(), &capture::profile("node20"), &[]);
    let output = folder.path().join("first.data");
    inject(&capture::profile("node20"), &output, &[]);
    let after = profile_of(folder.path(), &output, &[]);
    let totals = |profile: &Value| -> BTreeMap<String, u64> {
        let samples = samples_of(profile, "jit").into_iter();
        samples.map(|(name, (_, total))| (name, total)).collect()
    };
    let (before, after) = (totals(&before), totals(&after));
    assert!(!after.is_empty());
    for (name, total) in &after {
        assert_eq!(before.get(name), Some(total), "{name}");
    }
    // Calls that are inlined into an object's code are not told apart.
    let tier =
        |profile: &BTreeMap<String, u64>| profile.keys().filter(|name| name.starts_with("JS:")).count();
    assert_eq!(tier(&before), tier(&after));
}
