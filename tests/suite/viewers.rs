//! How viewers know JIT code: by the names of objects and by their first symbol.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use jitdump::ByteOrder;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::{capture, inject, inject_into, model, object_maps, objects_of, scratch, tools};

/// The layout by default, which the tests' own default replaces.
const AUTO: [&str; 2] = ["--layout", "auto"];

/// inferno 0.12 (`collapse/perf.rs`, `annotate_jit`): `/jitted-` in the path and `.so` at its end. PerfView
/// (`LinuxPerfScriptEventParser.cs`) has the same rule for the file name.
fn is_known_to_inferno(path: &str) -> bool {
    let (_, name) = path.rsplit_once('/').unwrap();
    name.starts_with("jitted-") && name.ends_with(".so")
}

/// HHVM's scripts and others: `jitted-\d+-\d+\.so`, the names of perf inject.
fn is_name_of_perf_inject(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap();
    let numbers = name
        .strip_prefix("jitted-")
        .and_then(|name| name.strip_suffix(".so"));
    let numbers = numbers.and_then(|numbers| numbers.split_once('-'));
    numbers.is_some_and(|(pid, number)| pid.parse::<u32>().is_ok() && number.parse::<u64>().is_ok())
}

/// samply 0.13 (`jit_function_name`): the first function symbol names the function of the whole file.
fn name_for_samply(object: &Path) -> String {
    let bytes = fs::read(object).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let first = file.symbols().find(|symbol| symbol.kind() == SymbolKind::Text);
    first.unwrap().name().unwrap().to_owned()
}

/// Number of functions in an object.
fn functions_in(object: &Path) -> usize {
    let bytes = fs::read(object).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    file.symbols().filter(|symbol| symbol.is_definition()).count()
}

#[test]
fn viewers_know_jit_code_by_the_names_of_objects() {
    for name in ["node20", "php82", "java17", "llvm19-jitlink", "cpython313-dwarf"] {
        for layout in ["auto", "image", "function"] {
            let folder = scratch();
            let dumps = capture::folder(name);
            let more = [
                "--no-unwind",
                "--layout",
                layout,
                "--jitdump",
                tools::text(&dumps),
            ];
            let output = inject_into(folder.path(), &capture::profile(name), &more);
            let objects = objects_of(&output);
            assert!(!objects.is_empty(), "{name}");
            for object in objects.iter().map(|path| tools::text(path)) {
                assert!(
                    is_known_to_inferno(object) && is_name_of_perf_inject(object),
                    "{object}"
                );
            }
        }
    }
}

/// samply shows JavaScript functions, and the compiler of each, if they have an object each. An object of several functions
/// has a first name that is none of theirs: neither function nor compiler of one is that of all.
#[test]
fn samply_takes_no_function_for_another() {
    for (layout, are_separate) in [("auto", true), ("image", false)] {
        let folder = scratch();
        let output = inject_into(folder.path(), &capture::profile("node20"), &["--layout", layout]);
        let mut images = HashSet::new();
        let mut separate = 0;
        for object in objects_of(&output) {
            let (first, functions) = (name_for_samply(&object), functions_in(&object));
            match functions {
                1 => separate += usize::from(first.starts_with("JS:")),
                _ => assert!(first.starts_with("JIT image ") && images.insert(first)),
            }
        }
        assert_eq!(images.is_empty(), are_separate, "{images:?}");
        assert_eq!(separate > 20, are_separate, "{separate}");
    }
}

/// Two functions less than an ELF header apart, of which readers with libdw would lose one if they unwind stacks.
#[test]
fn neighbours_share_an_object_only_if_stacks_are_unwound() {
    let objects = |name: &str| {
        let folder = scratch();
        let dumps = capture::folder(name);
        let more = [&AUTO[..], &["--jitdump", tools::text(&dumps)]].concat();
        let output = inject_into(folder.path(), &capture::profile(name), &more);
        let objects = objects_of(&output);
        let shared = objects.iter().filter(|object| functions_in(object) > 1).count();
        (objects.len(), shared)
    };
    assert_eq!(objects("node20").1, 0);
    let (all, shared) = objects("llvm19-jitlink");
    assert!(all >= 1 && shared >= 1, "{all} {shared}");
}

/// Many functions share objects, so that readers do not run out of file descriptors.
#[test]
fn functions_have_an_object_each_if_they_are_few() {
    const START: u64 = 0x7f00_0000_0000;
    for (functions, expected) in [(256, 256), (257, 1)] {
        let folder = scratch();
        let dump_path = folder.path().join("jit-10.dump");
        let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 10);
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.mmap2(10, START, 0x10_0000, 0, "//anon", 200);
        profile.mmap2(10, 0x7fff_0000_0000, 0x1000, 0, tools::text(&dump_path), 300);
        for function in 0..functions {
            let start = START + 0x100 * function;
            dump.load(1000, start, function, b"function", &[0x90; 64]);
            profile.sample(10, 2000, &[start + 0x10], None);
        }
        fs::write(&dump_path, &dump.bytes).unwrap();
        let input = folder.path().join("perf.data");
        fs::write(&input, profile.finish()).unwrap();
        let output = inject_into(folder.path(), &input, &AUTO);
        assert_eq!(objects_of(&output).len(), expected);
    }
}

/// samply prints "two modules at the same start address" and drops the maps of files that overlap new ones.
#[test]
fn no_map_of_a_file_starts_where_another_one_does() {
    let folder = scratch();
    let input = capture::profile("node20");
    let output = folder.path().join("out.data");
    inject(&input, &output, &AUTO);
    let starts = |profile: &Path| {
        let parts = model::parse(&fs::read(profile).unwrap());
        let maps = parts.records.iter().filter_map(|record| {
            let name = model::map_name(record, parts.endian)?;
            let is_file = name.starts_with('/') && !name.contains(".elf/");
            is_file.then(|| model::map_range(record, parts.endian).0)
        });
        maps.collect::<Vec<u64>>()
    };
    let repeated = |starts: &[u64]| {
        let mut seen = HashSet::new();
        starts.iter().filter(|start| !seen.insert(**start)).count()
    };
    let (before, after) = (starts(&input), starts(&output));
    assert!(after.len() >= before.len() + 16, "{after:x?}");
    assert_eq!(repeated(&after), repeated(&before), "{after:x?}");
    let objects = object_maps(&output);
    assert!(objects.iter().all(|(start, _)| !after.contains(start)));
}
