//! Finding, opening and checking files.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jitinject::bytes::printable;
use jitinject::check::{self, Kind, Report};
use jitinject::files::search::{files_below, shown};
use jitinject::files::{MappedFile, Spool};
use jitinject::runtime::jitdump::marker::is_dump_name;
use jitinject::runtime::mono::packed;
use jitinject::tally::Tally;

use crate::terminal::say;

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
        let is_folder = fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let checked: Box<dyn Iterator<Item = Checked>> = match is_folder {
            true => Box::new(below(path)),
            false => Box::new(std::iter::once(Checked {
                path: shown(path),
                result: check_named(path),
            })),
        };
        checked
    })
}

/// All in a folder that is a file of one of the kinds, or is named as such and can't be read. What else lies there is
/// nobody's business.
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

fn base_name(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_default().as_bytes()
}

fn check_found(path: &Path) -> Option<Result<Report, String>> {
    let name = base_name(path);
    match MappedFile::open(path) {
        Ok(file) => {
            let kind = match file.is_empty() {
                true => Kind::of_named(&file, name),
                false => Kind::of(&file),
            };
            Some(check_opened(file, kind?, name))
        }
        Err(error) => is_dump_name(name).then(|| Err(cannot_read(&error))),
    }
}

fn check_named(path: &Path) -> Result<Report, String> {
    let name = base_name(path);
    let file = MappedFile::open(path).map_err(|error| cannot_read(&error))?;
    let kind =
        Kind::of_named(&file, name).ok_or("is no jitdump, no log of Mono's profiler and no trace of XRay")?;
    check_opened(file, kind, name)
}

fn check_opened(file: MappedFile, kind: Kind, name: &[u8]) -> Result<Report, String> {
    let is_packed = kind == Kind::MonoLog && packed::is_packed(&file);
    let report = match is_packed {
        false => check::check(kind, &file, name, &Tally::default()),
        true => {
            let unpack = || {
                let mut spool = Spool::create()?;
                let unpacked = packed::unpack(&file, packed::largest(file.len() as u64), &mut spool)?;
                Ok((spool.map(file.path())?, unpacked.faults))
            };
            let (plain, faults) =
                unpack().map_err(|error: std::io::Error| format!("cannot be unpacked: {error}"))?;
            check::check(kind, &plain, name, &faults)
        }
    };
    if file.has_shrunk() {
        return Err("was cut while it was read".to_owned());
    }
    Ok(report)
}

fn cannot_read(error: &std::io::Error) -> String {
    printable(format!("cannot be read: {error}").as_bytes())
}
