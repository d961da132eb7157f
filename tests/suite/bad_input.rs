//! Damaged, missing and hostile files: one diagnostic each, and the undamaged part is used.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use jitdump::{ByteOrder, Header};
use jitinject::internals::files::InputFile;
use jitinject::internals::perf::Profile;
use jitinject::internals::perf::output::{Edits, Rewrite};
use jitinject::{Diagnostic, Issue};

use crate::support::dump::DumpWriter;
use crate::support::generator::{Generated, Plan, generate};
use crate::support::model;
use crate::support::profile::ProfileWriter;
use crate::support::reports::{inject_with_summary, reports};
use crate::support::{
    attempt, capture, codes, diagnostics, has_code, inject, inject_into, objects_of, said, scratch, shown,
    tools,
};

/// Runs jitinject on `input`; returns its standard error. Checks that it fails with status 1 and only the expected
/// error, and creates no file.
fn fails(folder: &Path, input: &Path, output: &Path, expected: &Diagnostic) -> String {
    let before = entries(folder);
    let ran = attempt(input, output, &[]);
    let said = said(&ran);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    let line = format!("jitinject: error[{}]: {expected}", expected.issue.id());
    assert_eq!(said.lines().next(), Some(&*line), "{said}");
    assert_eq!(codes(&said).len(), 1, "{said}");
    assert_eq!(entries(folder), before, "no file is left");
    said
}

/// Returns why a file cannot be used as a jitdump.
fn rejection(path: &Path) -> Diagnostic {
    match InputFile::open(path) {
        Ok(file) => Header::parse(&file).unwrap_err().into(),
        Err(cause) => Diagnostic::cannot_read(path, &cause),
    }
}

/// Returns the paths in a folder, sorted.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}

#[test]
fn files_that_are_not_profiles_are_rejected() {
    let folder = scratch();
    let input = folder.path().join("perf.data");
    let output = folder.path().join("out.data");
    let missing = std::fs::File::open(&input).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    let is_missing = |path: &Path| Diagnostic::cannot_read(path, &missing);
    fails(folder.path(), &input, &output, &is_missing(&input));
    let with_header_size = |size: u64| [&b"PERFILE2"[..], &size.to_le_bytes()].concat();
    let mut without_attributes = ProfileWriter::new(ByteOrder::Little).finish();
    // The size of their section.
    without_attributes[32..40].fill(0);
    let too_short = |size: u64| Diagnostic::new(Issue::ProfileTooShort).with("size", size);
    for (content, expected) in [
        (&b""[..], Diagnostic::new(Issue::EmptyFile)),
        (b"PERFILE2 and", too_short(12)),
        (b"\x7fELF 64-bit", Diagnostic::new(Issue::NotAProfile)),
        (&with_header_size(16), Diagnostic::new(Issue::ProfileNoAttrs)),
        (
            &with_header_size(20),
            Diagnostic::new(Issue::ProfileHeaderSize).with("size", 20),
        ),
        (&with_header_size(104), too_short(16)),
        (&without_attributes, Diagnostic::new(Issue::ProfileNoAttrs)),
    ] {
        std::fs::write(&input, content).unwrap();
        fails(folder.path(), &input, &output, &expected.in_file(&input));
    }
    std::fs::remove_file(&input).unwrap();
    std::fs::create_dir(&input).unwrap();
    let without_profile = Diagnostic::new(Issue::FolderWithoutProfile);
    fails(folder.path(), &input, &output, &without_profile.in_file(&input));
}

#[test]
fn invalid_compressed_records_are_left_out_and_reported() {
    const COMPRESSED: u32 = 81;
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(1, "first", false, 1);
    // The start of a Zstandard frame, then invalid bytes.
    profile.record(COMPRESSED, 0, &[&MAGIC[..], &[0xff; 64]].concat());
    profile.comm(1, "second", false, 2);
    let input = folder.path().join("perf.data");
    let file = profile.finish();
    std::fs::write(&input, &file).unwrap();
    let output = folder.path().join("out.data");
    let (said, summary) = inject_with_summary(&input, &output, &[]);
    assert!(has_code(&said, "JI155"), "{said}");
    let found = diagnostics(&summary, "JI155");
    let [found] = found[..] else { panic!("{found:?}") };
    assert_eq!(found["file"], tools::text(&input));
    assert_eq!(found["count"], 1);
    // The magic number follows the record's header of 8 bytes.
    let magic = file.windows(4).position(|bytes| bytes == MAGIC).unwrap();
    assert_eq!(found["offset"], magic - 8);
    assert_eq!(model::parse(&std::fs::read(&output).unwrap()).records.len(), 2);
}

/// Writes a profile and its dump, without any special cases.
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
        let same = Diagnostic::new(Issue::OutputIsInput).in_file(output);
        let same = same.with("input", generated.profile.display());
        fails(folder.path(), &generated.profile, output, &same);
    }
    let dump = folder.path().join("jit-5000.dump");
    let ran = attempt(&generated.profile, &dump, &[]);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(
        reports(&said(&ran), "JI403", tools::text(&dump)),
        "{}",
        said(&ran)
    );
    assert_eq!(std::fs::read(&generated.profile).unwrap(), profile);
}

#[test]
fn an_unfinished_or_cut_profile_keeps_what_is_whole() {
    let folder = scratch();
    let generated = small(folder.path(), 100, 500);
    let file = std::fs::read(&generated.profile).unwrap();
    let output = folder.path().join("out.data");
    let mut unfinished = file.clone();
    // The size of the records, which perf writes at the end of the recording.
    unfinished[48..56].fill(0);
    for (content, expected, samples) in [
        (unfinished, &["JI150"][..], 500),
        (file[..file.len() - 100].to_vec(), &["JI151", "JI160"], 499),
    ] {
        std::fs::write(&generated.profile, content).unwrap();
        let said = inject(&generated.profile, &output, &[]);
        for code in expected {
            assert!(
                reports(&said, code, tools::text(&generated.profile)),
                "{code}: {said}"
            );
        }
        let shown = shown::stacks(&output);
        assert_eq!(shown.len(), samples);
        assert!(shown.iter().all(|sample| sample.frames[0].starts_with("fn_")));
    }
}

/// Several runtimes were recorded, and one of their dumps cannot be used. No perf map takes its place.
#[test]
fn one_bad_dump_costs_only_its_own_process() {
    type Damage = fn(&Path);
    let damages: [(Option<Issue>, Damage); 6] = [
        (None, |path| std::fs::remove_file(path).unwrap()),
        (Some(Issue::JitdumpEmpty), |path| {
            std::fs::write(path, "").unwrap()
        }),
        (Some(Issue::JitdumpTooShort), |path| {
            std::fs::write(path, b"DTiJ\x01\0\0\0\x28").unwrap()
        }),
        (Some(Issue::NotAJitdump), |path| {
            std::fs::write(path, "\x7fELF and so on").unwrap()
        }),
        (Some(Issue::CannotRead), |path| {
            std::fs::remove_file(path).unwrap();
            tools::run("mkfifo", &[tools::text(path)]);
        }),
        (Some(Issue::CannotRead), |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }),
    ];
    for (reason, damage) in damages {
        let folder = scratch();
        for entry in std::fs::read_dir(capture::folder("multi")).unwrap() {
            let entry = entry.unwrap();
            if entry.path().extension() != Some("map".as_ref()) {
                std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
            }
        }
        let dump = folder.path().join("jit-4834.dump");
        damage(&dump);
        let output = folder.path().join("out.data");
        let (said, summary) = inject_with_summary(&folder.path().join("perf.data"), &output, &[]);
        let code = match reason {
            None => "JI213",
            Some(_) => "JI215",
        };
        // Another process is one of CPython, whose interpreter keeps no frame pointers.
        assert_eq!(codes(&said), [code, "JI179"], "{reason:?}");
        let found = diagnostics(&summary, code)[0];
        assert_eq!(
            found["file"], "/tmp/jit-4834.dump",
            "the path that the profile has"
        );
        let message = found["message"].as_str().unwrap();
        assert!(message.contains("4834"), "{message}");
        if let Some(reason) = reason {
            let rejection = rejection(&dump);
            assert_eq!(rejection.issue, reason);
            assert!(message.contains(&rejection.message()), "{message}");
        }
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
    for (time, reason) in [
        (u64::MAX / 4, Issue::WrittenLater),
        (500_000_000_000, Issue::CompleteBefore),
    ] {
        let mut dump = DumpWriter::new(ByteOrder::Little, 62, 5000);
        dump.load(time, 0x7f08_0000_0000, 0, b"stale", &[0; 4096]);
        std::fs::write(&path, dump.bytes).unwrap();
        let (said, summary) = inject_with_summary(&generated.profile, &folder.path().join("out.data"), &[]);
        assert!(reports(&said, "JI215", tools::text(&path)), "{said}");
        let message = diagnostics(&summary, "JI215")[0]["message"].as_str().unwrap();
        assert!(message.contains(&Diagnostic::new(reason).message()), "{message}");
        assert_eq!(summary["functions"]["loaded"], 0, "{said}");
    }
}

/// Writes a profile with one sample in each of some functions, and a dump with their names.
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
    assert!(reports(&said, "JI213", "jit-7.dump"), "{said}");
    assert!(reports(&said, "JI215", "jit-8.dump"), "{said}");
    let rejection = rejection(&hostile.join("jit-8.dump"));
    assert_eq!(rejection.issue, Issue::NotAJitdump);
    assert!(reports(&said, "JI215", &rejection.message()), "{said}");
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
    // The folder for objects is a symbolic link.
    symlink(&victim, &objects).unwrap();
    let ran = attempt(&input, &output, &[]);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_eq!(codes(&said(&ran)), ["JI408"], "{}", said(&ran));
    assert!(!output.exists());
    // The folder has a file that jitinject did not write.
    std::fs::remove_file(&objects).unwrap();
    std::fs::rename(&victim, &objects).unwrap();
    let ran = attempt(&input, &output, &[]);
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(codes(&said(&ran)), ["JI409"], "{}", said(&ran));
    assert!(reports(&said(&ran), "JI409", "precious"), "{}", said(&ran));
    assert!(
        reports(&said(&ran), "JI409", tools::text(&objects)),
        "{}",
        said(&ran)
    );
    assert_eq!(std::fs::read_to_string(objects.join("precious")).unwrap(), "text");
    std::fs::remove_dir_all(&objects).unwrap();
    // The output is a link: it is replaced, and its target stays.
    let target = folder.path().join("target");
    std::fs::write(&target, "text").unwrap();
    symlink(&target, &output).unwrap();
    inject_into(folder.path(), &input, &[]);
    assert_eq!(std::fs::read_to_string(target).unwrap(), "text");
    assert!(!std::fs::symlink_metadata(&output).unwrap().is_symlink());
    // A second run replaces the objects of the first one, and leaves no other files.
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
    let mut starts = Vec::new();
    let mut start = |dump: &DumpWriter| starts.push(dump.bytes.len());
    start(&dump);
    dump.load(991, u64::MAX - 8, 2, b"beyond the end of memory", &[0; 64]);
    start(&dump);
    dump.moved(992, 0x1234, 0x5678, 10, 99);
    dump.record(0, 993, b"far too short");
    start(&dump);
    dump.record(2, 994, b"too short as well");
    start(&dump);
    dump.record(4, 995, &[0xff; 40]);
    start(&dump);
    dump.record(99, 996, b"of a future type");
    dump.load(1000, 0x4000_0000, 0, b"good", &[0x90; 64]);
    let path = folder.path().join("jit-7.dump");
    std::fs::write(&path, dump.bytes).unwrap();
    let output = folder.path().join("out.data");
    let (said, summary) = inject_with_summary(&input, &output, &[]);
    let expected = [
        ("JI014", 2),
        ("JI016", 1),
        ("JI017", 1),
        ("JI019", 1),
        ("JI020", 1),
    ];
    assert_eq!(codes(&said), expected.map(|(code, _)| code), "{said}");
    for ((code, count), start) in expected.into_iter().zip(starts) {
        let found = diagnostics(&summary, code);
        let [found] = found[..] else { panic!("{found:?}") };
        assert_eq!(found["severity"], "warning");
        assert_eq!(found["file"], tools::text(&path));
        assert_eq!(found["count"], count, "{found}");
        assert_eq!(found["offset"], start, "{found}");
    }
    assert_eq!(shown::leaves(&output)[0].frames, ["good"]);
}

/// In a pipe, the IDs start where the attribute ends by its own size; in a file, the header has the size.
#[test]
fn attributes_that_lie_about_their_size_reach_a_pipe_whole() {
    /// Offset of the first attribute's size.
    const SIZE: usize = 104 + 2 * 8 + 4;
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.ids = vec![11, 12];
    profile.comm(1, "name", false, 1);
    let plain = profile.finish();
    for size in [0u32, 1, 64, 1000, u32::MAX] {
        let mut file = plain.clone();
        file[SIZE..SIZE + 4].copy_from_slice(&size.to_le_bytes());
        let profile = Profile::parse(&file).unwrap();
        let rewrite = Rewrite {
            profile: &profile,
            data_end: profile.data.len(),
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
        assert_eq!(ids(&piped), ids(&profile), "{size}");
    }
}

#[test]
fn for_compressed_files_the_program_to_decompress_them_is_named() {
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
        let write = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, [start, &[0; 100]].concat()).unwrap();
            path
        };
        let input = write("perf.data.packed");
        let packed = Diagnostic::new(Issue::ProfilePacked).with("program", program);
        let packed = packed.in_file(&input);
        let said = fails(folder.path(), &input, &output, &packed);
        assert!(packed.help().contains(&format!("{program} -dc ")));
        assert!(said.contains(&packed.help()), "{said}");
        for (option, name) in [("--jitdump", "jit-11682.dump"), ("--perf-map", "perf-11682.map")] {
            let path = write(name);
            let said = inject(
                &capture::profile("node20"),
                &output,
                &[option, tools::text(&path)],
            );
            let packed = Diagnostic::new(Issue::FileCompressed).with("program", program);
            let packed = packed.in_file(&path).to_string();
            assert!(reports(&said, "JI203", &packed), "{said}");
            assert!(reports(&said, "JI203", &format!("{program} -d")), "{said}");
        }
    }
}
