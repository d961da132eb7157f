//! Damaged, missing and hostile files: one clear message, and whatever can be saved is saved.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use jitinject::bytes::ByteOrder;
use jitinject::inject::Options;
use jitinject::perf::Profile;
use jitinject::perf::output::{Edits, Rewrite};

use crate::support::damage::damage;
use crate::support::dump::DumpWriter;
use crate::support::generator::{Generated, Plan, Random, generate};
use crate::support::model;
use crate::support::profile::ProfileWriter;
use crate::support::{attempt, capture, inject, inject_into, objects_of, said, scratch, shown, tools};

/// Runs on `input`, which must fail with status 1, write nothing and name the file; returns what was said.
fn fails(folder: &Path, input: &Path, output: &Path) -> String {
    let before = entries(folder);
    let ran = attempt(input, output, &[]);
    let said = said(&ran);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.starts_with("jitinject: error: "), "{said}");
    assert!(said.contains(tools::text(input)), "{said}");
    assert_eq!(entries(folder), before, "nothing is left behind");
    said
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}

#[test]
fn what_is_no_profile_says_so() {
    let folder = scratch();
    let input = folder.path().join("perf.data");
    let output = folder.path().join("out.data");
    assert!(fails(folder.path(), &input, &output).contains("No such file"));
    let of_size = |size: u64| [&b"PERFILE2"[..], &size.to_le_bytes()].concat();
    for (content, expected) in [
        (&b""[..], "ends after 0 bytes"),
        (b"PERFILE2 and", "ends after 12 bytes"),
        (b"\x7fELF 64-bit", "does not start with PERFILE2"),
        (&of_size(16), "no record in it says what was recorded"),
        (&of_size(20), "less than perf writes"),
        (&of_size(104), "ends after 16 bytes"),
    ] {
        std::fs::write(&input, content).unwrap();
        let said = fails(folder.path(), &input, &output);
        assert!(said.contains(expected), "{said}");
    }
    std::fs::remove_file(&input).unwrap();
    std::fs::create_dir(&input).unwrap();
    assert!(fails(folder.path(), &input, &output).contains("perf.data/data: No such file"));
}

#[test]
fn compressed_records_that_are_none_are_left_out_and_told() {
    const COMPRESSED: u32 = 81;
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(1, "first", false, 1);
    // the start of a frame, and nonsense
    profile.record(
        COMPRESSED,
        0,
        &[&[0x28, 0xb5, 0x2f, 0xfd][..], &[0xff; 64]].concat(),
    );
    profile.comm(1, "second", false, 2);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &[]);
    assert!(
        said.contains("compressed records that can't be decompressed, left out (at "),
        "{said}"
    );
    assert_eq!(model::parse(&std::fs::read(&output).unwrap()).records.len(), 2);
}

/// A profile and its dump, without anything special.
fn small(folder: &Path, functions: u64, samples: u64) -> Generated {
    let plan = Plan {
        functions,
        samples,
        ..Plan::default()
    };
    generate(folder, &plan)
}

#[test]
fn an_output_that_is_an_input_is_refused() {
    let folder = scratch();
    let generated = small(folder.path(), 10, 10);
    let profile = std::fs::read(&generated.profile).unwrap();
    let hard_link = folder.path().join("hard");
    let soft_link = folder.path().join("soft");
    std::fs::hard_link(&generated.profile, &hard_link).unwrap();
    symlink(&generated.profile, &soft_link).unwrap();
    for output in [&generated.profile, &hard_link, &soft_link] {
        assert!(fails(folder.path(), &generated.profile, output).contains("is the same file as the input"));
    }
    let dump = folder.path().join("jit-5000.dump");
    let ran = attempt(&generated.profile, &dump, &[]);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_eq!(std::fs::read(&generated.profile).unwrap(), profile);
}

#[test]
fn an_unfinished_or_cut_profile_keeps_what_is_whole() {
    let folder = scratch();
    let generated = small(folder.path(), 100, 500);
    let file = std::fs::read(&generated.profile).unwrap();
    let output = folder.path().join("out.data");
    let mut unfinished = file.clone();
    // the size of the records, which perf writes at the end
    unfinished[48..56].fill(0);
    for (content, expected, samples) in [
        (unfinished, "the recording was not finished", 500),
        (
            file[..file.len() - 100].to_vec(),
            "the file ends before its records do",
            499,
        ),
    ] {
        std::fs::write(&generated.profile, content).unwrap();
        let said = inject(&generated.profile, &output, &[]);
        assert!(said.contains(expected), "{said}");
        let shown = shown::stacks(&output);
        assert_eq!(shown.len(), samples);
        assert!(shown.iter().all(|sample| sample.frames[0].starts_with("fn_")));
    }
}

/// Several runtimes were recorded; one dump is spoilt, the others must still come out. There are no perf maps
/// to stand in.
#[test]
fn one_bad_dump_costs_only_its_own_process() {
    type Spoil = fn(&Path);
    let spoil: [(&str, Spoil); 6] = [
        ("not found there", |path| std::fs::remove_file(path).unwrap()),
        ("is empty", |path| std::fs::write(path, "").unwrap()),
        ("ends after 9 bytes", |path| {
            std::fs::write(path, b"DTiJ\x01\0\0\0\x28").unwrap()
        }),
        ("is not a jitdump", |path| {
            std::fs::write(path, "\x7fELF and so on").unwrap()
        }),
        ("is not a regular file", |path| {
            std::fs::remove_file(path).unwrap();
            tools::run("mkfifo", &[tools::text(path)]);
        }),
        ("directory", |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }),
    ];
    for (expected, spoil) in spoil {
        let folder = scratch();
        for entry in std::fs::read_dir(capture::folder("multi")).unwrap() {
            let entry = entry.unwrap();
            if entry.path().extension() != Some("map".as_ref()) {
                std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
            }
        }
        spoil(&folder.path().join("jit-4834.dump"));
        let output = folder.path().join("out.data");
        let said = inject(&folder.path().join("perf.data"), &output, &[]);
        assert!(said.contains("jitdump of process 4834"), "{said}");
        assert!(said.contains(expected), "{expected}: {said}");
        let php: u64 = capture::truth("multi")
            .iter()
            .filter(|((pid, _), _)| *pid == 4834)
            .map(|(_, (leaf, _))| leaf)
            .sum();
        assert!(
            said.contains(&format!("134 in JIT code, {} of them named", 133 - php)),
            "{said}"
        );
        assert!(
            said.contains(&format!(
                "{php} not named: the jitdump of the process is missing or unusable"
            )),
            "{said}"
        );
    }
}

#[test]
fn a_dump_of_another_run_is_not_believed() {
    let folder = scratch();
    let generated = small(folder.path(), 10, 10);
    let path = folder.path().join("jit-5000.dump");
    for (time, expected) in [
        (u64::MAX / 4, "was written after this recording ended"),
        (500_000_000_000, "was complete before the process mapped it"),
    ] {
        let mut dump = DumpWriter::new(ByteOrder::Little, 62, 5000);
        dump.load(time, 0x7f08_0000_0000, 0, b"stale", &[0; 4096]);
        std::fs::write(&path, dump.bytes).unwrap();
        let said = inject(&generated.profile, &folder.path().join("out.data"), &[]);
        assert!(said.contains("belongs to another run"), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

/// A profile with one sample in each of some functions, which a dump gives names to.
fn with_names(folder: &Path, names: &[&[u8]]) -> PathBuf {
    let path = folder.join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 7);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    for (number, name) in (0u64..).zip(names) {
        let address = 0x4000_0000 + 0x100 * number;
        dump.load(1000 + number, address, number, name, &[0x90; 64]);
        profile.sample(7, 2000 + number, &[address + 4], None);
    }
    std::fs::write(&path, dump.bytes).unwrap();
    let input = folder.join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    input
}

#[test]
fn hostile_names_stay_names() {
    let folder = scratch();
    let long = vec![b'x'; 4096];
    let names: [&[u8]; 6] = [
        b"../../../etc/passwd",
        b"/etc/passwd",
        b"two\nlines",
        b"\x1b[31mred",
        b"caf\xe9",
        &long,
    ];
    let input = with_names(folder.path(), &names);
    let output = inject_into(folder.path(), &input, &[]);
    assert_eq!(objects_of(&output).len(), 6);
    let shown: Vec<String> = shown::leaves(&output)
        .into_iter()
        .flat_map(|sample| sample.frames)
        .collect();
    let shown = shown.join("\n");
    assert!(
        !shown.contains('\x1b'),
        "no control character reaches the terminal"
    );
    for expected in [
        "../../../etc/passwd",
        "/etc/passwd",
        r"two\x0alines",
        r"\x1b[31mred",
        "caf",
        "xxxxxxxx",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
}

#[test]
fn a_hostile_path_in_a_marker_does_not_reach_the_terminal() {
    let folder = scratch();
    let hostile = folder.path().join("\x1b[2J");
    std::fs::create_dir(&hostile).unwrap();
    std::fs::write(hostile.join("jit-8.dump"), "no jitdump").unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, "/tmp/\x1b[2J/jit-7.dump", 500);
    profile.mmap2(
        8,
        0x6000_0000,
        4096,
        0,
        tools::text(&hostile.join("jit-8.dump")),
        501,
    );
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let said = inject(&input, &folder.path().join("out.data"), &[]);
    assert!(said.contains("jit-7.dump"), "{said}");
    assert!(said.contains("is not a jitdump"), "{said}");
    assert!(!said.contains('\x1b'), "{said}");
}

#[test]
fn links_and_strangers_files_in_the_way_are_not_touched() {
    let folder = scratch();
    let input = with_names(folder.path(), &[b"name"]);
    let victim = folder.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("precious"), "text").unwrap();
    let output = folder.path().join("out.data");
    let objects = folder.path().join("out.data.elf");
    // the folder for objects is a link
    symlink(&victim, &objects).unwrap();
    let ran = attempt(&input, &output, &[]);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(!output.exists());
    // or holds something that is not ours
    std::fs::remove_file(&objects).unwrap();
    std::fs::rename(&victim, &objects).unwrap();
    let ran = attempt(&input, &output, &[]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(
        said(&ran).contains("\"precious\", which is not ours to replace"),
        "{}",
        said(&ran)
    );
    assert_eq!(std::fs::read_to_string(objects.join("precious")).unwrap(), "text");
    std::fs::remove_dir_all(&objects).unwrap();
    // the output itself is a link: it is replaced, and what it points to stays
    let target = folder.path().join("target");
    std::fs::write(&target, "text").unwrap();
    symlink(&target, &output).unwrap();
    inject_into(folder.path(), &input, &[]);
    assert_eq!(std::fs::read_to_string(target).unwrap(), "text");
    assert!(!std::fs::symlink_metadata(&output).unwrap().is_symlink());
    // a second run replaces the first's objects and leaves nothing beside them
    inject_into(folder.path(), &input, &[]);
    let left = entries(folder.path());
    assert_eq!(left.len(), 5, "{left:?}");
    assert_eq!(objects_of(&output).len(), 1);
}

#[test]
fn functions_that_cannot_be_are_passed_over() {
    let folder = scratch();
    let input = with_names(folder.path(), &[b"good"]);
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 7);
    dump.load(990, 0x4000_0000, 1, b"of no size", b"");
    dump.load(991, u64::MAX - 8, 2, b"behind the end of memory", &[0; 64]);
    dump.moved(992, 0x1234, 0x5678, 10, 99);
    dump.record(0, 993, b"far too short");
    dump.record(2, 994, b"too short as well");
    dump.record(4, 995, &[0xff; 40]);
    dump.record(99, 996, b"of a type to come");
    dump.load(1000, 0x4000_0000, 0, b"good", &[0x90; 64]);
    std::fs::write(folder.path().join("jit-7.dump"), dump.bytes).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &[]);
    for expected in [
        "LOAD records whose name or code does not fit, passed over (2,",
        "MOVE records of unknown functions, passed over (at ",
        "records of unknown types, passed over (at ",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(shown::leaves(&output)[0].frames, ["good"]);
}

/// In a pipe, the size of an attribute tells it from the ids behind it; in a file the header does.
#[test]
fn attributes_that_lie_about_their_size_reach_a_pipe_whole() {
    /// Where the first attribute says how long it is.
    const SIZE: usize = 104 + 2 * 8 + 4;
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.ids = vec![11, 12];
    profile.comm(1, "name", false, 1);
    let plain = profile.finish();
    for says in [0u32, 1, 64, 1000, u32::MAX] {
        let mut file = plain.clone();
        file[SIZE..SIZE + 4].copy_from_slice(&says.to_le_bytes());
        let profile = Profile::parse(&file).unwrap();
        let rewrite = Rewrite {
            profile: &profile,
            data_end: profile.data.len() as u64,
            auxtrace: &[],
            edits: Edits::default(),
            build_ids: Vec::new(),
            compression: None,
        };
        let mut pipe = Vec::new();
        rewrite.write_pipe(&mut pipe).unwrap();
        let piped = Profile::parse(&pipe).unwrap();
        assert!(piped.faults.is_empty(), "{:?}", piped.faults);
        let ids = |profile: &Profile<'_>| {
            profile
                .attr_entries
                .iter()
                .map(|it| it.ids.to_vec())
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&piped), ids(&profile), "{says}");
    }
}

/// Whatever a profile or a dump holds, the run ends, with an output or with an error.
#[test]
fn damage_of_any_kind_neither_panics_nor_hangs() {
    let mut random = Random::new(1);
    let plan = Plan {
        functions: 40,
        samples: 60,
        places: 20,
        moves: true,
        processes: 2,
        ..Plan::default()
    };
    let unwound = Plan {
        stacks: crate::support::generator::Stacks::Unwound,
        ..plan.clone()
    };
    let mut outcomes = [0, 0];
    for plan in [plan, unwound] {
        let folder = scratch();
        let generated = generate(folder.path(), &plan);
        let dump = folder.path().join("jit-5000.dump");
        let originals = [&generated.profile, &dump].map(|path| (path.clone(), std::fs::read(path).unwrap()));
        for round in 0..300 {
            for (path, original) in &originals {
                std::fs::write(path, original).unwrap();
            }
            let (path, original) = &originals[round % 2];
            let mut damaged = original.clone();
            damage(&mut damaged, &mut random);
            std::fs::write(path, damaged).unwrap();
            let options = Options {
                input: generated.profile.clone(),
                output: folder.path().join("out.data"),
                all: round % 3 == 0,
                ..Options::default()
            };
            outcomes[usize::from(jitinject::inject::inject(&options, &mut ()).is_ok())] += 1;
        }
    }
    assert!(
        outcomes[1] > 300,
        "most damage leaves something to save: {outcomes:?}"
    );
}

/// Damage in the middle of a recording costs the records that it lies in, and no more.
#[test]
fn samples_outside_damage_in_a_profile_keep_their_names() {
    type Spoil = fn(&mut [u8]);
    let spoil: [(&str, Spoil); 3] = [
        ("a header of zeros", |bytes| bytes[..8].fill(0)),
        ("a size doubled", |bytes| {
            let size = u16::from_le_bytes([bytes[6], bytes[7]]) * 2;
            bytes[6..8].copy_from_slice(&size.to_le_bytes());
        }),
        ("noise", |bytes| {
            let mut random = Random::new(7);
            bytes[..4096].fill_with(|| random.below(256) as u8);
        }),
    ];
    for name in ["node22", "java17", "llvm19-jitlink"] {
        let folder = scratch();
        for entry in std::fs::read_dir(capture::folder(name)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
            }
        }
        let input = folder.path().join("perf.data");
        let output = folder.path().join("out.data");
        let sound = std::fs::read(&input).unwrap();
        inject(&input, &output, &[]);
        let expected = shown::stacks(&output);
        let (start, end) = middle(&sound);
        for (what, spoil) in spoil {
            let mut damaged = sound.clone();
            spoil(&mut damaged[start..end]);
            std::fs::write(&input, &damaged).unwrap();
            let said = inject(&input, &output, &[]);
            assert!(
                said.contains("damage among its records, "),
                "{name}, {what}: {said}"
            );
            let shown = shown::stacks(&output);
            let profile = Profile::parse(&sound).unwrap();
            let base = profile.data_offset as usize;
            // What the damage lies in may be one sample or many.
            let reach = damaged
                .iter()
                .zip(&sound)
                .rposition(|(one, other)| one != other)
                .unwrap();
            let touched = profile.records().filter(|record| {
                let (from, to) = (base + record.offset as usize, base + record.end() as usize);
                record.kind == 9 && start < to && from <= reach
            });
            let touched = touched.count();
            assert_eq!(shown.len(), expected.len() - touched, "{name}, {what}");
            let mut left = expected.iter();
            // Those that are shown are the same, in the same order.
            assert!(
                shown.iter().all(|sample| left.any(|other| other == sample)),
                "{name}, {what}"
            );
        }
    }
}

/// Where in a file the sample in the middle of its records starts, and where records end.
fn middle(file: &[u8]) -> (usize, usize) {
    let profile = Profile::parse(file).unwrap();
    let base = profile.data_offset as usize;
    let half = profile.data.len() as u64 / 2;
    let mut samples = profile.records().filter(|record| record.kind == 9);
    let sample = samples.find(|record| record.offset >= half).unwrap();
    (base + sample.offset as usize, base + profile.data.len())
}

#[test]
fn packed_files_are_told_with_the_program_to_unpack_them() {
    let packed: [(&str, &[u8]); 5] = [
        ("gzip", &[0x1f, 0x8b, 8]),
        ("zstd", &[0x28, 0xb5, 0x2f, 0xfd]),
        ("xz", b"\xfd7zXZ\0"),
        ("bzip2", b"BZh91AY"),
        ("lz4", &[4, 0x22, 0x4d, 0x18]),
    ];
    for (program, start) in packed {
        let folder = scratch();
        let output = folder.path().join("out.data");
        let packed = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, [start, &[0; 100]].concat()).unwrap();
            path
        };
        let ran = attempt(&packed("perf.data.packed"), &output, &[]);
        assert!(!ran.status.success());
        let told =
            format!("it is compressed with {program}; unpack it first: {program} -dc FILE > perf.data");
        assert!(said(&ran).contains(&told), "{}", said(&ran));
        for (option, name) in [("--jitdump", "jit-11682.dump"), ("--perf-map", "perf-11682.map")] {
            let path = packed(name);
            let said = inject(
                &capture::profile("node20"),
                &output,
                &[option, tools::text(&path)],
            );
            let told = format!("is compressed with {program}: not used; unpack it with {program} -d");
            let is_told = |line: &str| line.contains(name) && line.contains(&told);
            assert!(said.lines().any(is_told), "{said}");
        }
    }
}
