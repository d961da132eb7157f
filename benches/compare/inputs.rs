//! Inputs of the programs: generated profiles, and the recordings in `testdata/`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::amplified::amplified;
use crate::folders::Folders;
use crate::generator::{self, Lines, Plan, Stacks};
use crate::lines::Layout;

/// A generated profile.
#[derive(Args, Clone, Debug)]
pub struct Input {
    /// Functions of each process
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 100_000,
        help_heading = "Inputs"
    )]
    pub functions: u64,

    /// Samples
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1_000_000,
        help_heading = "Inputs"
    )]
    pub samples: u64,

    /// Processes, up to 64
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "Inputs",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub processes: u32,

    /// Approximate number of functions hit by samples [default: all]
    #[arg(long, value_name = "NUMBER", help_heading = "Inputs")]
    pub touched: Option<u64>,

    /// Code addresses for functions; if fewer than functions, addresses are reused
    #[arg(long, value_name = "NUMBER", help_heading = "Inputs")]
    pub places: Option<u64>,

    /// Line information: 0 none, 1 lines (DEBUG_INFO), 2 also inlined calls (DEBUG_INFO2)
    #[arg(long, value_name = "KIND", default_value_t = 0, help_heading = "Inputs",
        value_parser = clap::value_parser!(u8).range(0..=2))]
    pub debug_info: u8,

    /// Functions have unwinding tables
    #[arg(long, help_heading = "Inputs")]
    pub unwinding: bool,

    /// Samples have a copy of the stack instead of a call chain (and functions have unwinding tables)
    #[arg(long, help_heading = "Inputs")]
    pub stacks: bool,

    /// Maximum depth of call chains; the average is half of it
    #[arg(long, value_name = "NUMBER", default_value_t = 32, help_heading = "Inputs")]
    pub depth: u64,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            functions: 100_000,
            samples: 1_000_000,
            processes: 1,
            touched: None,
            places: None,
            debug_info: 0,
            unwinding: false,
            stacks: false,
            depth: 32,
        }
    }
}

impl Input {
    /// Writes `perf.data` and its dumps to a directory.
    pub fn make(&self, folder: &Path) {
        /// Feature ID in perf.
        const BUILD_ID: u32 = 2;
        fs::create_dir_all(folder).unwrap();
        let folder = fs::canonicalize(folder).unwrap();
        let plan = Plan {
            functions: self.functions,
            samples: self.samples,
            processes: self.processes,
            places: self.places.unwrap_or(u64::MAX),
            distance: 256,
            sampled: self
                .touched
                .map_or(1, |touched| (self.functions / touched.max(1)).max(1)),
            depth: self.depth,
            lines: match self.debug_info {
                0 => Lines::Nothing,
                1 => Lines::Model(Layout::Lines),
                _ => Lines::Model(Layout::Lists),
            },
            stacks: if self.stacks {
                Stacks::Unwound
            } else {
                Stacks::Recorded
            },
            has_tables: self.unwinding,
            // perf record writes it by default.
            features: vec![(BUILD_ID, Vec::new())],
            ..Plan::default()
        };
        generator::write(&folder, &plan, |_| {});
    }
}

/// A profile and its dumps. perf writes files next to a dump, so the directory of the dumps is recreated for each
/// run, at the path in the profile.
pub struct Case<'f> {
    /// Path of the profile.
    pub profile: PathBuf,
    folders: &'f Folders,
    /// Directory of the dumps according to the profile.
    live: PathBuf,
    /// Directory of the original dumps.
    kept: PathBuf,
    /// Temporary directory that is removed with the case.
    _temporary: Option<tempfile::TempDir>,
}

impl<'f> Case<'f> {
    /// Generates a profile in a directory.
    pub fn synthetic_symbols(folder: &Path, input: &Input, folders: &'f Folders) -> Self {
        let live = folder.join("jit");
        input.make(&live);
        let profile = folder.join("perf.data");
        fs::rename(live.join("perf.data"), &profile).unwrap();
        let kept = folder.join("dumps");
        fs::rename(&live, &kept).unwrap();
        Self {
            profile,
            folders,
            live,
            kept,
            _temporary: None,
        }
    }

    /// Returns a recording, with another directory for its dumps than the recorded one. `None` if its dumps have
    /// no directory of their own.
    pub fn recording(folder: &Path, name: &str, folders: &'f Folders) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        let mut bytes = fs::read(source.join("perf.data")).unwrap();
        let old = format!("/tmp/cap-{name}/");
        let random = old.len() - "/tmp/jb-/".len();
        let temporary = tempfile::Builder::new()
            .prefix("jb-")
            .rand_bytes(random)
            .tempdir_in("/tmp")
            .unwrap();
        let live = temporary.path().to_owned();
        let new = format!("{}/", live.display());
        let places: Vec<usize> = memchr::memmem::find_iter(&bytes, &old).collect();
        for &place in &places {
            bytes[place..place + old.len()].copy_from_slice(new.as_bytes());
        }
        fs::create_dir_all(folder).unwrap();
        let profile = folder.join("perf.data");
        fs::write(&profile, bytes).unwrap();
        let kept = folder.join("dumps");
        copy_dumps(&source, &kept);
        (!places.is_empty()).then_some(Self {
            profile,
            folders,
            live,
            kept,
            _temporary: Some(temporary),
        })
    }

    /// Returns a recording with at least so many samples, with another directory for its dumps than the recorded one.
    pub fn amplified(folder: &Path, name: &str, samples: u64, folders: &'f Folders) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        let profile = fs::read(source.join("perf.data")).unwrap();
        let own = format!("/tmp/cap-{name}/");
        let has_own = memchr::memmem::find(&profile, own.as_bytes()).is_some();
        let old = if has_own { &own } else { "/tmp/" };
        let live = folder.join("jit");
        let new = format!("{}/", live.display());
        fs::create_dir_all(folder).unwrap();
        let path = folder.join("perf.data");
        fs::write(&path, amplified(&profile, samples, [old, &new])).unwrap();
        let kept = folder.join("dumps");
        copy_dumps(&source, &kept);
        Self {
            profile: path,
            folders,
            live,
            kept,
            _temporary: None,
        }
    }

    /// Returns the directory of the dumps according to the profile.
    pub fn live(&self) -> &Path {
        &self.live
    }

    /// Writes the dumps to their paths in the profile, and removes everything else there.
    pub fn fresh_dumps(&self) {
        self.folders.make(&self.live);
        link_all(&self.kept, &self.live);
    }

    /// Removes the dumps and what a run wrote next to them.
    pub fn remove_live(&self) {
        self.folders.discard(&self.live);
    }

    /// Writes the same profile without features, as `perf record -B` does, which collects no build IDs.
    pub fn without_features(&self) -> PathBuf {
        /// Offset of the feature bits in the header.
        const FEATURES: u64 = 72;
        let path = self.profile.with_extension("plain");
        if !path.exists() {
            fs::copy(&self.profile, &path).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[0; 32], FEATURES).unwrap();
        }
        path
    }

    /// Returns the paths of the profile and its dumps.
    pub fn files(&self) -> [&Path; 2] {
        [&self.profile, &self.kept]
    }
}

/// Copies the dumps of a recording, including those in subdirectories.
fn copy_dumps(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (name, path) = (entry.file_name(), entry.path());
        if path.is_dir() {
            copy_dumps(&path, &to.join(name));
        } else if path.extension().is_some_and(|extension| extension == "dump") {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// Links or copies a directory tree.
fn link_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            link_all(&path, &target);
        } else if fs::hard_link(&path, &target).is_err() {
            fs::copy(&path, &target).unwrap();
        }
    }
}
