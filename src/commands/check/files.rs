//! Finding, opening and checking files.

use std::fs;
use std::path::{Path, PathBuf};

use jitinject::bytes::printable;
use jitinject::check::{self, Report};
use jitinject::files::MappedFile;
use jitinject::files::search::{files_below, shown};
use jitinject::inject::is_standard;
use jitinject::runtime::FileKind;

use crate::commands::input::{Opened, base_name};
use crate::terminal::say;

/// Why a file can't be checked that can be read.
const NONE_OF_THESE: &str = "is no jitdump, no log of Mono's profiler and no trace of XRay";

/// A file, and what was found.
#[derive(Debug)]
pub struct Checked {
    /// Which, without what could steer a terminal.
    pub path: String,
    /// What is wrong with it; or why it can't be checked, as the rest of a sentence about it.
    pub result: Result<Report, String>,
}

/// Checks all files, one by one as they are asked for.
pub fn all(paths: &[PathBuf]) -> impl Iterator<Item = Checked> {
    paths.iter().flat_map(|path| {
        let is_folder = || fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let checked: Box<dyn Iterator<Item = Checked>> = match !is_standard(path) && is_folder() {
            true => Box::new(below(path)),
            false => Box::new(std::iter::once(Checked {
                path: shown(path),
                result: check_named(path),
            })),
        };
        checked
    })
}

/// All in a folder that is a file of one of the kinds, or has the name of one, whatever is in it. What else lies there
/// is nobody's business.
fn below(folder: &Path) -> impl Iterator<Item = Checked> {
    let mut notes = Vec::new();
    let files = files_below(folder, &mut notes);
    notes.iter().for_each(|note| say(&format!("warning: {note}")));
    let mut found = files.into_iter().filter_map(|path| {
        let result = check_found(&path)?;
        Some(Checked {
            path: shown(&path),
            result,
        })
    });
    let first = found.next().unwrap_or_else(|| Checked {
        path: shown(folder),
        result: Err("has no jitdump, log or trace in it".to_owned()),
    });
    std::iter::once(first).chain(found)
}

fn check_found(path: &Path) -> Option<Result<Report, String>> {
    let name = base_name(path);
    let has_name = FileKind::of_name(name).is_some();
    let file = match MappedFile::open(path) {
        Ok(file) => file,
        Err(error) => return has_name.then(|| Err(cannot_read(&error))),
    };
    match FileKind::of(&file) {
        None if !has_name => None,
        _ => Some(
            Opened::of(file)
                .map_err(|error| cannot_read(&error))
                .and_then(check),
        ),
    }
}

fn check_named(path: &Path) -> Result<Report, String> {
    let opened = Opened::open(path);
    opened.map_err(|error| cannot_read(&error)).and_then(check)
}

fn check(opened: Opened) -> Result<Report, String> {
    let kind = opened.kind().ok_or(NONE_OF_THESE)?;
    let name = base_name(opened.file.path());
    let report = check::check(kind, &opened.file, name, &opened.packing_faults());
    match opened.file.has_shrunk() {
        true => Err("was cut while it was read".to_owned()),
        false => Ok(report),
    }
}

fn cannot_read(error: &std::io::Error) -> String {
    printable(format!("cannot be read: {error}").as_bytes())
}
