//! Output of an earlier run, which a failing run must not change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{capture, inject, scratch, tools};

/// All files of an output: the profile and its objects, with their content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    pub profile: Option<Vec<u8>>,
    pub objects: Vec<(PathBuf, Vec<u8>)>,
}

impl State {
    pub fn of(folder: &Path) -> Self {
        let entries = fs::read_dir(folder.join("out.data.elf"));
        let paths = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
        let mut objects: Vec<_> = paths
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        objects.sort();
        Self {
            profile: fs::read(folder.join("out.data")).ok(),
            objects,
        }
    }
}

/// Returns the temporary files that an unfinished run left.
pub fn left_over(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_hidden = |path: &PathBuf| tools::text(path).contains("/.jitinject-");
    entries.filter(is_hidden).collect()
}

/// An input, and the output of an earlier run.
pub struct Scene {
    pub folder: tempfile::TempDir,
    pub input: PathBuf,
    pub output: PathBuf,
    pub before: State,
}

impl Scene {
    pub fn new() -> Self {
        let folder = scratch();
        let output = folder.path().join("out.data");
        inject(&capture::profile("wasmtime"), &output, &[]);
        Self {
            input: capture::profile("php82"),
            output,
            before: State::of(folder.path()),
            folder,
        }
    }

    /// Runs jitinject in a shell after the command `first`.
    pub fn run_after(&self, first: &str, more: &[&str]) -> Output {
        Command::new("sh")
            .args(["-c", &format!("{first}; exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_jitinject"))
            .args(["--all", "--layout", "function", "-i", tools::text(&self.input)])
            .args(["-o", tools::text(&self.output)])
            .args(more)
            .output()
            .unwrap()
    }

    pub fn assert_unchanged(&self, what: &str) {
        assert!(State::of(self.folder.path()) == self.before, "{what}");
        assert_eq!(left_over(self.folder.path()), Vec::<PathBuf>::new(), "{what}");
    }
}
