//! Objects as linters, other readers and perf's other commands see them.

use std::collections::HashSet;
use std::path::PathBuf;

use jitdump::ByteOrder;

use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{
    capture, has_code, inject, inject_capture, inject_into, object_maps, objects_of, perf, scratch, tools,
};

/// Returns whether a line of a linter is about something intended.
fn is_on_purpose(line: &str) -> bool {
    // Unknown code, as in separate debug files.
    let is_about_missing_code = [
        "section [ 1] '.text' has wrong type: expected PROGBITS, is NOBITS",
        "section [ 1] '.text' has unexpected type 8 for an executable section",
        "loadable segment [0] is executable but contains no executable sections",
    ];
    // If a PT_LOAD covered the unwinding tables, the objects of neighbouring functions would overlap.
    is_about_missing_code.contains(&line)
        || line.ends_with(".eh_frame': alloc flag set but section not in any loaded segment")
        || line.ends_with(".eh_frame_hdr': alloc flag set but section not in any loaded segment")
        // elfutils 0.188 supports neither the flags of MIPS, which GNU objdump needs, nor LoongArch.
        || line.starts_with("invalid machine flags: 0x80000000")
        || line.starts_with("invalid machine flags: 0x70001000")
        || line.starts_with("invalid machine flags: 0x43")
        || line.starts_with("unknown machine type 258")
}

/// Returns what linters report about objects.
pub fn remarks(objects: &[PathBuf]) -> Vec<String> {
    let mut remarks = Vec::new();
    for object in objects {
        let lint = tools::report("eu-elflint", &["--gnu-ld", tools::text(object)]);
        let lines = lint
            .lines()
            .filter(|line| !is_on_purpose(line) && *line != "No errors");
        remarks.extend(lines.map(|line| format!("{}: eu-elflint: {line}", object.display())));
        let said = tools::errors("readelf", &["-aW", tools::text(object)]);
        remarks.extend(said.lines().map(|line| format!("{}: {line}", object.display())));
    }
    remarks
}

#[test]
fn linters_have_nothing_to_say() {
    let with_maps = ["cpython312-map", "mono-map"];
    for name in capture::WITH_TRUTH
        .iter()
        .chain(&capture::FOREIGN)
        .chain(&with_maps)
    {
        for layout in ["function", "image"] {
            let folder = scratch();
            let output = inject_capture(folder.path(), name, &["--all", "--layout", layout]);
            if !folder.path().join("out.data.elf").exists() {
                continue;
            }
            // Enough of each to have addresses of every alignment.
            let mut objects = objects_of(&output);
            objects.truncate(64);
            let remarks = remarks(&objects);
            assert!(remarks.is_empty(), "{}", remarks.join("\n"));
        }
    }
}

#[test]
fn an_unknown_machine_is_the_profiles() {
    // CPython 3.13.0 omits the machine in its dumps.
    let folder = scratch();
    let output = inject_into(
        folder.path(),
        &capture::profile("cpython313-dwarf"),
        &["--no-unwind"],
    );
    let object = objects_of(&output).remove(0);
    let header = tools::run("readelf", &["-hW", tools::text(&object)]);
    assert!(header.contains("X86-64"), "{header}");
}

#[test]
fn every_function_of_a_batch_has_its_own_unwinding_entry() {
    // LLVM's ORC writes one table for all functions of an object, before them.
    let folder = scratch();
    let output = inject_capture(folder.path(), "llvm19-jitlink", &["--no-unwind"]);
    let objects = objects_of(&output);
    assert_eq!(objects.len(), 4);
    for object in objects {
        let symbols = tools::run("readelf", &["-sW", tools::text(&object)]);
        let function = symbols.lines().find(|line| line.contains(" FUNC ")).unwrap();
        let fields: Vec<&str> = function.split_whitespace().collect();
        let start = u64::from_str_radix(fields[1], 16).unwrap();
        let end = start + fields[2].parse::<u64>().unwrap();
        let frames = tools::run("readelf", &["--debug-dump=frames", tools::text(&object)]);
        let entries: Vec<&str> = frames.lines().filter(|line| line.contains(" FDE ")).collect();
        assert_eq!(entries.len(), 1, "{frames}");
        assert!(
            entries[0].ends_with(&format!("pc={start:016x}..{end:016x}")),
            "{}",
            entries[0]
        );
        let llvm = tools::run("llvm-dwarfdump", &["--eh-frame", tools::text(&object)]);
        assert!(llvm.contains("DW_CFA_def_cfa"), "{llvm}");
    }
}

#[test]
fn perf_lists_the_objects_with_the_build_ids_that_are_in_them() {
    // node20 has a table of build IDs, node20-buildid has them in its mappings.
    for name in ["node20", "node20-buildid"] {
        let folder = scratch();
        let output = inject_into(folder.path(), &capture::profile(name), &[]);
        let list = perf::perf(&["buildid-list", "-f", "-i", tools::text(&output)]);
        let listed: Vec<(&str, &str)> = list.lines().filter_map(|line| line.split_once(' ')).collect();
        let objects = objects_of(&output);
        let of_objects: Vec<_> = listed
            .iter()
            .filter(|(_, path)| objects.contains(&PathBuf::from(path)))
            .collect();
        assert!(of_objects.len() >= 9, "{list}");
        for (build_id, path) in of_objects {
            let notes = tools::run("readelf", &["-nW", path]);
            assert!(
                notes.contains(&format!("Build ID: {build_id}")),
                "{path}: {build_id}: {notes}"
            );
        }
        let ids: HashSet<&str> = listed.iter().map(|(build_id, _)| *build_id).collect();
        assert_eq!(ids.len(), listed.len(), "no two share an id");
    }
}

#[test]
fn perf_annotates_a_function() {
    let folder = scratch();
    let output = inject_into(folder.path(), &capture::profile("node20"), &[]);
    let symbol = "JS:*eat /tmp/cap-node20/work.js:23:6";
    let annotated = perf::perf(&[
        "annotate",
        "-f",
        "--stdio",
        "-i",
        tools::text(&output),
        "-s",
        symbol,
    ]);
    assert!(annotated.contains("push   %rbp"), "{annotated}");
    assert!(annotated.contains("(135 samples,"), "{annotated}");
}

/// Runtimes that give all functions the same index, or the same name, or none.
#[test]
fn objects_are_distinct_whatever_the_runtime_calls_them() {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 7);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    for number in 0..4u64 {
        let address = 0x4000_0000 + 0x100 * number;
        dump.load(
            1000 + number,
            address,
            0,
            if number < 3 { b"same" } else { b"" },
            &[0x90; 64],
        );
        profile.sample(7, 2000 + number, &[address + 4], None);
    }
    dump.moved(3000, 0x4000_0000, 0x5000_0000, 64, 0);
    profile.sample(7, 4000, &[0x5000_0004], None);
    std::fs::write(&path, dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder.path(), &input, &[]);
    let objects = objects_of(&output);
    assert_eq!(objects.len(), 5);
    let ids: HashSet<String> = objects
        .iter()
        .map(|path| tools::run("readelf", &["-n", tools::text(path)]))
        .collect();
    assert_eq!(
        ids.len(),
        5,
        "build IDs differ even if name and code are the same"
    );
    let shown: Vec<_> = perf::stacks(&output, &[])
        .into_iter()
        .map(|sample| sample.frames)
        .collect();
    let unnamed = "[unnamed 0x40000300]";
    assert_eq!(shown, [["same"], ["same"], ["same"], [unnamed], ["same"]]);
}

/// Six adjacent functions, the last but one of which is replaced; memory protection changes after the first.
#[test]
fn an_image_is_mapped_once_and_what_replaces_code_is_mapped_over_it() {
    const START: u64 = 0x4000_0000;
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 7);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    for number in 0..6u64 {
        let address = START + 0x100 * number;
        let name = format!("function_{number}");
        dump.load(1000 + 100 * number, address, number, name.as_bytes(), &[0x90; 64]);
        profile.mmap2(7, START, 0x1000, START, "//anon", 1050 + 100 * number);
        profile.sample(7, 1060 + 100 * number, &[address + 63], None);
    }
    dump.load(2000, START + 0x420, 6, b"other", &[0x90; 32]);
    profile.sample(7, 2001, &[START + 0x41f], None);
    profile.sample(7, 2002, &[START + 0x420], None);
    profile.sample(7, 2003, &[START + 0x53f], None);
    std::fs::write(&path, dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder.path(), &input, &["--layout", "image"]);

    let objects = objects_of(&output);
    assert_eq!(objects.len(), 4);
    let own = [(0x400, 0x440), (0x500, 0x540), (0x420, 0x440)];
    let own = own.map(|(start, end)| (START + start, START + end));
    assert_eq!(
        object_maps(&output),
        [&[(START, START + 0x340)][..], &own].concat()
    );
    let shown = perf::stacks(&output, &[]).into_iter();
    let shown: Vec<String> = shown.map(|sample| sample.frames.concat()).collect();
    let mut expected: Vec<String> = (0..6).map(|number| format!("function_{number}")).collect();
    expected.extend(["function_4", "other", "function_5"].map(str::to_owned));
    assert_eq!(shown, expected);

    // An output is recognised as such, and both kinds of objects may be replaced.
    let again = folder.path().join("again.data");
    let said = inject(&output, &again, &["-v"]);
    assert!(has_code(&said, "JI166"), "{said}");
    inject_into(folder.path(), &input, &["--layout", "function"]);
    assert_eq!(objects_of(&output).len(), 7);
}
