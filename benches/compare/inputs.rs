//! What the programs are run on: made-up profiles, and the recordings of `testdata/`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::folders::Folders;
use crate::generator::{self, Lines, Plan, Stacks};
use crate::lines::Layout;

/// A made-up profile.
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

    /// Functions that samples touch, about so many [default: all]
    #[arg(long, value_name = "NUMBER", help_heading = "Inputs")]
    pub touched: Option<u64>,

    /// Places for functions, if there are fewer of them than functions, so that addresses are used again
    #[arg(long, value_name = "NUMBER", help_heading = "Inputs")]
    pub places: Option<u64>,

    /// What is told of lines: 0 nothing, 1 lines (DEBUG_INFO), 2 inlined calls as well (DEBUG_INFO2)
    #[arg(long, value_name = "KIND", default_value_t = 0, help_heading = "Inputs",
        value_parser = clap::value_parser!(u8).range(0..=2))]
    pub debug_info: u8,

    /// Functions have tables for unwinding
    #[arg(long, help_heading = "Inputs")]
    pub unwinding: bool,

    /// Samples have a piece of the stack instead of a call chain (and functions have tables)
    #[arg(long, help_heading = "Inputs")]
    pub stacks: bool,

    /// How many functions a call chain has at most; on average half of it
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
    /// Makes `perf.data` and its dumps in a folder.
    pub fn make(&self, folder: &Path) {
        /// perf's number of the feature.
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
            // perf record always writes it, unless it is told not to.
            features: vec![(BUILD_ID, Vec::new())],
            ..Plan::default()
        };
        generator::write(&folder, &plan, |_| {});
    }
}

/// A profile and its dumps. perf writes beside a dump, so the dumps lie in a folder that is made anew for each
/// run, where the profile says that they are.
pub struct Case<'f> {
    /// The profile.
    pub profile: PathBuf,
    folders: &'f Folders,
    /// Where the profile says that the dumps are.
    live: PathBuf,
    /// Where they are kept.
    kept: PathBuf,
    /// What else goes when this does.
    _temporary: Option<tempfile::TempDir>,
}

impl<'f> Case<'f> {
    /// Makes a profile in a folder.
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

    /// A recording, with another folder for its dumps than where it was recorded. `None` for recordings whose
    /// dumps lie in no folder of their own.
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

    /// Where the profile says that the dumps are.
    pub fn live(&self) -> &Path {
        &self.live
    }

    /// Puts the dumps where the profile says that they are, and nothing else.
    pub fn fresh_dumps(&self) {
        self.folders.make(&self.live);
        link_all(&self.kept, &self.live);
    }

    /// Removes what a run wrote beside the dumps.
    pub fn remove_live(&self) {
        self.folders.discard(&self.live);
    }

    /// The same profile without any feature, as if `perf record` had been told to collect no build-ids (`-B`).
    pub fn without_features(&self) -> PathBuf {
        /// Where the header has a bit for each feature.
        const FEATURES: u64 = 72;
        let path = self.profile.with_extension("plain");
        if !path.exists() {
            fs::copy(&self.profile, &path).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[0; 32], FEATURES).unwrap();
        }
        path
    }

    /// The profile and its dumps.
    pub fn files(&self) -> [&Path; 2] {
        [&self.profile, &self.kept]
    }
}

/// Copies the dumps of a recording, those in folders too, to where they lay under the folder of the recording.
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

/// The same files under another folder, as links where both are on one file system.
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
