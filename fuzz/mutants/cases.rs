//! Valid profiles with their dumps, which mutants are derived from.

use std::fs;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;
use jitinject_fuzz::generator::{self, Lines, Plan, Runtimes, Stacks};
use jitinject_fuzz::lines::Layout;
use tempfile::TempDir;

use crate::oracle::{self, Expected};
use crate::pieces::{Format, Pieces};
use crate::profile::Profile;

/// A profile and its dumps.
pub struct Case {
    pub name: String,
    pub profile: Pieces,
    pub dumps: Vec<Pieces>,
    /// Paths of the dumps in the profile.
    pub dump_paths: Vec<PathBuf>,
    pub expected: Vec<Expected>,
    /// Directory of the dumps.
    folder: TempDir,
}

/// Recordings in which the path of the dumps can be replaced by a directory for each mutant.
const RECORDINGS: [&str; 8] = [
    "bun",
    "lli14-mcjit",
    "llvm19-jitlink",
    "node18-i386",
    "node20-wasm",
    "node22",
    "qemu",
    "wasmtime",
];

/// Returns all cases, with their dumps in directories below `folder`, or in `/tmp`.
pub fn all(folder: &Path) -> Vec<Case> {
    let synthetic_symbols = plans().into_iter().enumerate().map(|(number, plan)| {
        let folder = tempfile::tempdir_in(folder).unwrap();
        let path = generator::write(folder.path(), &plan, |_| {});
        let profile = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        Case::new(format!("made-up-{number}"), &profile, folder)
    });
    synthetic_symbols
        .chain(RECORDINGS.into_iter().map(recording))
        .collect()
}

/// Returns the parameters of small files, which can be damaged often.
fn plans() -> Vec<Plan> {
    let small = Plan {
        functions: 60,
        samples: 150,
        ..Plan::default()
    };
    vec![
        small.clone(),
        Plan {
            places: 25,
            moves: true,
            processes: 2,
            ..small.clone()
        },
        Plan {
            lines: Lines::Model(Layout::Lists),
            has_tables: true,
            ..small.clone()
        },
        Plan {
            endian: ByteOrder::Big,
            machine: 22,
            two_events: true,
            lines: Lines::Model(Layout::Positions),
            ..small.clone()
        },
        Plan {
            stacks: Stacks::Unwound,
            ..small.clone()
        },
        Plan {
            runtimes: Runtimes::Many,
            processes: 4,
            ..small
        },
    ]
}

fn recording(name: &str) -> Case {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../testdata")
        .join(name);
    let mut profile = fs::read(source.join("perf.data")).unwrap();
    // Another directory with a path of the same length as in the profile.
    let old = format!("/tmp/cap-{name}");
    let folder = tempfile::Builder::new()
        .prefix("jm-")
        .rand_bytes(old.len() - "/tmp/jm-".len())
        .tempdir_in("/tmp")
        .unwrap();
    let new = folder.path().to_str().unwrap();
    for at in 0..profile.len() - old.len() {
        if profile[at..].starts_with(old.as_bytes()) {
            profile[at..at + old.len()].copy_from_slice(new.as_bytes());
        }
    }
    copy_dumps(&source, folder.path());
    Case::new(name.to_owned(), &profile, folder)
}

fn copy_dumps(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_dumps(&path, &target);
        } else if path.extension().is_some_and(|extension| extension == "dump") {
            fs::copy(&path, target).unwrap();
        }
    }
}

fn dumps_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(dumps_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "dump") {
            found.push(path);
        }
    }
    found.sort();
    found
}

impl Case {
    fn new(name: String, profile: &[u8], folder: TempDir) -> Self {
        let dump_paths = dumps_in(folder.path());
        let dumps: Vec<Pieces> = dump_paths
            .iter()
            .map(|path| Pieces::new(&fs::read(path).unwrap(), Format::Dump).unwrap())
            .collect();
        let mut frames = Profile::read(profile).unwrap().frames;
        frames.sort_unstable();
        frames.dedup();
        Self {
            name,
            expected: oracle::expected(&dumps, &frames),
            profile: Pieces::new(profile, Format::Profile).unwrap(),
            dumps,
            dump_paths,
            folder,
        }
    }

    /// Writes the dumps to their paths in the profile, and removes everything else there.
    pub fn write_dumps(&self, dumps: &[Pieces]) {
        for entry in fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        for (path, dump) in self.dump_paths.iter().zip(dumps) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, dump.bytes()).unwrap();
        }
    }
}
