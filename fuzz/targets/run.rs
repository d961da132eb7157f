//! A complete run on an arbitrary profile and dump; the dump starts at its magic number in the input. The run ends
//! with an error, or with a valid output and valid objects.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jitinject::inject;
use jitinject::internals::perf::Profile;
use jitinject::internals::results::summary::SampleSummary;
use jitinject::{InjectOptions, Issue, Layout, LoadOptions};
use jitinject_fuzz::read_back;

/// Magic number of a dump, in both endiannesses.
const MAGIC: [&[u8]; 2] = [b"DTiJ", b"JiTD"];

/// Directory for files, in memory. It is not removed, because the process may be killed at any time;
/// `scripts/fuzz` creates and removes it.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    // Threads would only wait for each other.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1);
    pool.use_current_thread().build_global().unwrap();
    tempfile::Builder::new().prefix("run-").tempdir().unwrap().keep()
});

pub fn run(input: &[u8]) {
    let (profile, dump) = split(input);
    let folder = FOLDER.as_path();
    let input = folder.join("perf.data");
    let options = InjectOptions {
        load: LoadOptions {
            input: input.clone(),
            jitdumps: vec![folder.join("dumps")],
            ..LoadOptions::default()
        },
        output: folder.join("out.data"),
        all: profile.len() % 3 == 0,
        // Functions are read back one by one.
        layout: Layout::Function,
        ..InjectOptions::default()
    };
    fs::create_dir_all(folder.join("dumps")).unwrap();
    fs::write(&input, profile).unwrap();
    fs::write(folder.join("dumps/jit-5000.dump"), dump).unwrap();
    let Ok(summary) = inject(&options, &mut ()) else {
        return;
    };
    check(&summary.samples);
    let written = fs::read(&options.output).unwrap();
    let written = Profile::parse(&written).expect("the output is a profile");
    // A file without any record looks like an unfinished one.
    let is_empty = written.faults.count(Issue::ProfileUnfinished) > 0;
    assert!(is_empty || written.faults.is_empty(), "{:?}", written.faults);
    let objects = folder.join("out.data.elf");
    let functions = summary.functions.written + summary.symbols.written;
    assert!(count_objects(&objects) as u64 <= functions);
    let _ = fs::remove_dir_all(objects);
}

fn split(input: &[u8]) -> (&[u8], &[u8]) {
    let mut places = 0..input.len().saturating_sub(3);
    let start = places.find(|&at| MAGIC.iter().any(|magic| input[at..].starts_with(magic)));
    input.split_at(start.unwrap_or(input.len()))
}

fn check(samples: &SampleSummary) {
    let unnamed = &samples.unnamed;
    let reasons = unnamed.before_load
        + unnamed.not_in_dump
        + unnamed.dump_unusable
        + unnamed.no_dump
        + unnamed.doubtful;
    assert_eq!(samples.jit, samples.named + reasons);
    assert!(samples.jit <= samples.total && samples.with_named_frame <= samples.total);
}

fn count_objects(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let objects = paths.filter(|path| path.is_file());
    objects
        .map(|path| read_back::object(&fs::read(path).unwrap()))
        .count()
}
