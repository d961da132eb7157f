//! Runs programs in turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::folders::Folders;
use crate::measure::{self, End};
use crate::programs;
use crate::table::Row;

/// A program in the comparison.
pub struct Contestant<'c> {
    name: String,
    runs: usize,
    /// Its output directories, which are recreated for each run.
    folders: Vec<PathBuf>,
    /// Creates everything else that it needs; returns the command.
    prepare: Box<dyn FnMut() -> Command + 'c>,
}

impl<'c> Contestant<'c> {
    pub fn new(name: &str, runs: usize, folders: &[&Path], prepare: impl FnMut() -> Command + 'c) -> Self {
        Self {
            name: name.to_owned(),
            runs,
            folders: folders.iter().map(|path| path.to_path_buf()).collect(),
            prepare: Box::new(prepare),
        }
    }
}

/// Runs all programs in turn, so that other load affects all of them equally. Programs with fewer runs take part
/// in the last rounds. Keeps the output of each program's last run.
pub fn run(mut contestants: Vec<Contestant<'_>>, limit: Duration, folders: &Folders) -> Vec<Row> {
    let rounds = contestants.iter().map(|contestant| contestant.runs).max();
    let rounds = rounds.unwrap_or(0);
    let rows = contestants.iter().map(|contestant| Row {
        program: contestant.name.clone(),
        runs: Vec::new(),
        files: None,
    });
    let mut rows: Vec<Row> = rows.collect();
    for round in 0..rounds {
        for (contestant, row) in contestants.iter_mut().zip(&mut rows) {
            let is_hopeless = row.runs.iter().any(|run| run.end != End::Done);
            if round + contestant.runs < rounds || is_hopeless {
                continue;
            }
            contestant.folders.iter().for_each(|path| folders.make(path));
            let mut command = (contestant.prepare)();
            let before = programs::files(&contestant.folders);
            // Pending writes of other programs must not slow this one down.
            rustix::fs::sync();
            row.runs.push(measure::run(&mut command, limit));
            let made = programs::files(&contestant.folders) - before;
            row.files = (!contestant.folders.is_empty()).then_some(made);
        }
    }
    rows
}

/// Reads all files once, so that they are in the page cache.
pub fn warm(paths: &[&Path]) {
    for path in paths {
        if path.is_dir() {
            let entries: Vec<PathBuf> = fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            warm(&entries.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        } else {
            let mut file = fs::File::open(path).unwrap();
            std::io::copy(&mut file, &mut std::io::sink()).unwrap();
        }
    }
}
