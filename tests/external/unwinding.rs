//! Unwinding through JIT code, by those who do it: perf with libunwind (Debian's), perf with elfutils' libdw,
//! and libdwfl itself.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{OBJECT_LAYOUTS, capture, inject_into, model, perf, scratch, tools};

/// The maps of objects with code in an output: file, start of the object, start of the code.
fn code_maps(output: &Path) -> Vec<(String, u64, u64)> {
    let parts = model::parse(&std::fs::read(output).unwrap());
    let order = parts.order;
    let maps = parts.records.iter().filter_map(|record| {
        let name = model::map_name(record, order).filter(|name| name.ends_with(".so"))?;
        let (start, _) = model::map_range(record, order);
        let offset = model::word(record, order, 32);
        // Code starts right behind the ELF header; tables do not.
        (name.contains(".elf/jitted-") && offset == 0x40).then_some((name, start - offset, start))
    });
    maps.collect()
}

/// What libdwfl says of the first byte of each function.
fn ask_libdwfl(program: &Path, maps: &[(String, u64, u64)]) -> String {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for (file, base, address) in maps {
        writeln!(stdin, "{file} {base:x} {address:x}").unwrap();
    }
    drop(stdin);
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// The trampolines of CPython lie 272 bytes apart, each with tables of its own.
#[test]
fn libdw_finds_each_function_and_its_tables_in_whatever_order_objects_are_reported() {
    let folder = scratch();
    let program = tools::compile(folder.path(), "modules.c", &["-ldw", "-lelf"]);
    let more = ["--all", "--layout", "function"];
    let output = inject_into(folder.path(), &capture::profile("cpython313-dwarf"), &more);
    let mut maps = code_maps(&output);
    assert_eq!(maps.len(), 1447);
    for _ in 0..2 {
        let answers = ask_libdwfl(&program, &maps);
        let found = answers
            .lines()
            .filter(|line| line.starts_with("py::") && line.ends_with("\tcfi"));
        assert_eq!(found.count(), maps.len(), "{answers}");
        maps.reverse();
    }
}

/// Whether a file is the very one that was recorded, by its build-id.
fn is_recorded(profile: &Path, file: &Path) -> bool {
    let list = perf::perf(&["buildid-list", "-f", "-i", tools::text(profile)]);
    let notes = tools::run("readelf", &["-nW", tools::text(file)]);
    let id = notes
        .split("Build ID: ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    id.is_some_and(|id| list.contains(id))
}

fn reaches_start(frames: &[String]) -> bool {
    frames.iter().any(|frame| {
        frame == "_start"
            || frame == "clone"
            || frame.starts_with("__libc_start")
            || frame.starts_with("clone3")
    })
}

/// The recorded interpreter must be on this machine, in the place where pyenv has it.
#[test]
#[ignore = "needs the very build of CPython 3.13.0 that was recorded"]
fn every_stack_of_cpython_shows_its_python_functions() {
    let home = std::env::var("HOME").unwrap();
    let python = Path::new(&home).join(".pyenv/versions/3.13.0");
    let files = [
        python.join("lib/libpython3.13.so.1.0"),
        python.join("bin/python3.13"),
    ];
    let profile = capture::profile("cpython313-dwarf");
    assert!(
        is_recorded(&profile, &files[0]),
        "the recorded CPython is not there"
    );
    for program in perf::programs() {
        let folder = scratch();
        let cache = folder.path().join("cache");
        for file in &files {
            perf::perf_with_cache(&program, &cache, &["buildid-cache", "-a", tools::text(file)]);
        }
        // libdw takes objects under /tmp/jitted- for something special; these must do without.
        let elsewhere = folder.path().join("some where");
        std::fs::create_dir(&elsewhere).unwrap();
        for layout in OBJECT_LAYOUTS {
            let output = inject_into(&elsewhere, &profile, layout);
            let stacks = perf::stacks_with_cache(&program, &cache, &output, &[]);
            let python = |frames: &[String]| frames.iter().filter(|frame| frame.starts_with("py::")).count();
            let with_python = stacks.iter().filter(|sample| python(&sample.frames) > 0).count();
            let frames: usize = stacks.iter().map(|sample| python(&sample.frames)).sum();
            let whole = stacks
                .iter()
                .filter(|sample| reaches_start(&sample.frames))
                .count();
            assert_eq!((stacks.len(), with_python), (150, 150), "{program} {layout:?}");
            assert!(frames >= 1279, "{program} {layout:?}: {frames} frames");
            assert!(
                whole >= 138,
                "{program} {layout:?}: {whole} stacks reach the start"
            );
        }
    }
}

#[test]
#[ignore = "needs the very build of Node.js 20.20.2 that was recorded"]
fn stacks_of_v8_reach_the_start() {
    let profile = capture::profile("node20-dwarf");
    assert!(
        is_recorded(&profile, Path::new("/usr/bin/node")),
        "the recorded node is not there"
    );
    for program in perf::programs() {
        let folder = scratch();
        // With libdw, 11 stacks end in node itself, before any JIT code: node is no PIE, and V8 maps its
        // built-in code a second time, which libdw can't express. Without injection they end there too.
        let enough = if program == "perf" { 148 } else { 137 };
        for layout in OBJECT_LAYOUTS {
            let output = inject_into(folder.path(), &profile, layout);
            let stacks = perf::stacks_with_cache(&program, folder.path(), &output, &[]);
            let whole = stacks
                .iter()
                .filter(|sample| reaches_start(&sample.frames))
                .count();
            assert!(
                whole >= enough,
                "{program} {layout:?}: {whole} of {}",
                stacks.len()
            );
        }
    }
}
