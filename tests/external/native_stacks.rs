//! Stacks of a native program (`programs/stacks.c`), unwound by `--unwind`: through a signal, the vdso, and libraries with
//! unwinding tables of different kinds (`programs/layer.c`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::{has_code, jitinject, perf, said, scratch, tools};

/// Options for a library that has its tables in `.debug_frame` only.
const DEBUG_FRAME: [&str; 3] = ["-g", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables"];

/// Libraries by the depth of their frames, and how they are linked.
const LIBRARIES: [(&str, &[&str]); 6] = [
    ("plain", &[]),
    ("zlib", &["-Wl,--compress-debug-sections=zlib"]),
    // `.zdebug_frame`
    ("gnu", &["-Wl,--compress-debug-sections=zlib-gnu"]),
    ("zstd", &["-Wl,--compress-debug-sections=zstd"]),
    // Its tables are in a separate debug file.
    ("separate", &[]),
    // Another build takes its place; it has frame pointers.
    ("changed", &["-fno-omit-frame-pointer"]),
];

fn build_library(folder: &Path, name: &str, size: &str, more: &[&str]) {
    let [layer, size] = [format!("-DLAYER={name}"), format!("-DSIZE={size}")];
    let fixed = ["-shared", "-fPIC", &layer, &size];
    let options = [&fixed[..], &DEBUG_FRAME, more].concat();
    tools::compile_to(&folder.join(format!("lib{name}.so")), "layer.c", &options);
}

/// Returns the stacks that a perf prints by the times of their samples, without frames in the kernel: names, or `[vdso]` for all
/// that is in there.
fn stacks(program: &str, folder: &Path, profile: &Path) -> BTreeMap<String, Vec<String>> {
    let arguments = [
        "script",
        "-f",
        "--ns",
        "--no-inline",
        "-F",
        "time,ip,sym,dso",
        "-i",
        tools::text(profile),
    ];
    let printed = perf::printed_with_cache(program, &folder.join("cache"), &arguments);
    let frame = |line: &str| {
        let (address, named) = line.trim().split_once(' ')?;
        let (name, file) = named.rsplit_once(" (")?;
        // The kernel and its modules are in the upper half of the address space.
        let in_kernel = address.len() == 16 && address.starts_with("ffff");
        let name = match file {
            "[vdso])" => "[vdso]",
            _ => name.split('@').next().unwrap_or(name),
        };
        (!in_kernel).then(|| name.to_owned())
    };
    let samples = printed
        .split("\n\n")
        .filter_map(|sample| sample.trim().split_once(':'));
    samples
        .map(|(time, stack)| (time.to_owned(), stack.lines().filter_map(frame).collect()))
        .collect()
}

#[test]
fn stacks_go_through_signals_the_vdso_and_tables_of_each_kind() {
    let scratch = scratch();
    let folder = scratch.path();
    let path = |name: &str| folder.join(name);
    for (size, (name, more)) in (19..).zip(LIBRARIES) {
        build_library(folder, name, &format!("{size}"), more);
    }
    let libraries = LIBRARIES.map(|(name, _)| format!("-l{name}"));
    let [search, run_path] = ["-L", "-Wl,-rpath,"].map(|option| format!("{option}{}", folder.display()));
    let mut options = vec!["-g", "-fomit-frame-pointer", &search, &run_path];
    options.extend(libraries.iter().map(String::as_str));
    let program = path("program");
    tools::compile_to(&program, "stacks.c", &options);
    let separate = path("libseparate.so");
    let debug_files = path("debuginfod");
    tools::separate_debug_file(&separate, &debug_files);

    let profile = path("perf.data");
    let status = Command::new("perf")
        .args([
            "record",
            "-q",
            "-N",
            "--buildid-all",
            "-k",
            "mono",
            "-e",
            "cpu-clock",
            "-F",
            "999",
        ])
        .args([
            "--call-graph",
            "dwarf,16384",
            "-o",
            tools::text(&profile),
            tools::text(&program),
        ])
        .status()
        .unwrap_or_else(|error| panic!("perf: {error}; scripts/test installs it"));
    assert!(status.success());

    let changed = path("libchanged.so");
    let recorded = path("recorded.so");
    std::fs::rename(&changed, &recorded).unwrap();
    build_library(folder, "changed", "500", &["-fasynchronous-unwind-tables"]);
    let output = path("out.data");
    let ran = jitinject()
        .args([
            "-v",
            "--unwind",
            "-i",
            tools::text(&profile),
            "-o",
            tools::text(&output),
        ])
        .env("HOME", folder)
        .env("DEBUGINFOD_CACHE_PATH", &debug_files)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(
        has_code(&said(&ran), "JI180") && said(&ran).contains("libchanged.so ("),
        "{}",
        said(&ran)
    );
    // perf needs it for the names.
    std::fs::rename(&recorded, &changed).unwrap();

    let mut layers = vec!["innermost".to_owned()];
    for (name, _) in LIBRARIES.iter().rev() {
        layers.extend([format!("{name}_inner"), format!("{name}_outer")]);
    }
    layers.push("main".to_owned());
    let in_signal = [
        "spin",
        "handle_signal",
        "__restore_rt",
        "interrupted",
        "wait_for_signals",
        "main",
    ];
    let in_vdso = ["[vdso]", "clock_gettime", "ask_clock", "main"];
    let originals = stacks("perf", folder, &profile);
    for perf in perf::programs() {
        let found = stacks(&perf, folder, &output);
        let starting = |first: &[&str]| {
            found
                .values()
                .filter(|stack| stack.len() > first.len() && stack[..first.len()].iter().eq(first))
                .count()
        };
        assert!(starting(&in_signal) > 0, "{perf}: {found:?}");
        assert!(starting(&in_vdso) > 10, "{perf}: {found:?}");
        let has = |stack: &[String], name: &str| stack.iter().any(|frame| frame == name);
        let mut in_libraries = 0;
        for stack in found.values() {
            // The first calls are in the dynamic linker, which resolves their symbols.
            let Some(innermost) = stack.iter().position(|frame| frame == "innermost") else {
                continue;
            };
            assert!(stack[innermost..].starts_with(&layers), "{perf}: {stack:?}");
            in_libraries += 1;
        }
        assert!(in_libraries > 10, "{perf}: {in_libraries}");
        for stack in found.values().filter(|stack| has(stack, "main")) {
            assert_eq!(stack.last().unwrap(), "_start", "{perf}: {stack:?}");
        }
        // libunwind does not read the tables of the libraries, and that of the vdso only from perf's cache, which is empty. It
        // shows the code that calls sigreturn by the address before it, which has no name, and the interrupted function by the
        // one before its own.
        assert_eq!(found.len(), originals.len());
        let same = found
            .iter()
            .filter(|(_, stack)| has(stack, "wait_for_signals") && !has(stack, "clock_gettime"));
        for (time, found) in same {
            let original = &originals[time];
            let signal = found.iter().position(|frame| frame == "__restore_rt");
            let compared = |stack: &[String]| {
                let mut stack = stack.to_vec();
                if let Some(at) = signal {
                    stack.drain(at..(at + 2).min(stack.len()));
                }
                stack
            };
            assert_eq!(compared(found), compared(original), "{perf}");
        }
    }
}
