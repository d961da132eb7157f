//! Search, opening and checking of files.

use std::fs;
use std::path::{Path, PathBuf};

use jitdump::internals::bytes::printable_path;
use jitinject::internals::files::InputFile;
use jitinject::internals::files::search::files_below;
use jitinject::internals::files::stdio::is_standard;
use jitinject::internals::files::temp_file::temp_file_error;
use jitinject::internals::frames::source_files::SourceOptions;
use jitinject::internals::frames::source_files::paths::SourceFiles;
use jitinject::internals::perf::header::is_profile;
use jitinject::internals::results::FileKind;
use jitinject::internals::tools::check;
use jitinject::internals::tools::check::CheckReport;
use jitinject::{Diagnostic, Issue, LoadOptions};

use crate::cli::commands::input::{RuntimeFile, base_name};
use crate::cli::terminal::report;

/// Maximum size of a source file that lines are compared with, in bytes.
const MAX_SOURCE: u64 = 64 << 20;

/// A checked file.
#[derive(Debug)]
pub struct CheckedFile {
    /// Path, without control characters.
    pub path: String,
    /// Findings, or why it cannot be checked.
    pub result: Result<CheckReport, Diagnostic>,
}

/// Checks files lazily.
pub fn check_all(paths: &[PathBuf]) -> impl Iterator<Item = CheckedFile> {
    paths.iter().flat_map(|path| {
        let is_folder = || fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let checked: Box<dyn Iterator<Item = CheckedFile>> = if !is_standard(path) && is_folder() {
            Box::new(check_folder(path))
        } else {
            Box::new(std::iter::once(CheckedFile {
                path: printable_path(path),
                result: check_named(path),
            }))
        };
        checked
    })
}

/// Checks the files in a directory that are profiles, or have the content or the name of a runtime file.
fn check_folder(folder: &Path) -> impl Iterator<Item = CheckedFile> {
    let mut diagnostics = Vec::new();
    let files = files_below(folder, &mut diagnostics);
    diagnostics.iter().for_each(report);
    let mut found = files.into_iter().filter_map(|path| {
        let result = check_if_known(&path)?;
        Some(CheckedFile {
            path: printable_path(&path),
            result,
        })
    });
    let first = found.next().unwrap_or_else(|| CheckedFile {
        path: printable_path(folder),
        result: Err(Diagnostic::new(Issue::NotAFolderOfFiles).in_file(folder)),
    });
    std::iter::once(first).chain(found)
}

/// Checks a file of a folder; `None` if neither its name nor its content is of a kind that is checked.
fn check_if_known(path: &Path) -> Option<Result<CheckReport, Diagnostic>> {
    let name = base_name(path);
    let has_name = FileKind::from_name(name).is_some();
    let file = match InputFile::open(path) {
        Ok(file) => file,
        Err(error) => return has_name.then(|| Err(Diagnostic::cannot_read(path, &error))),
    };
    match FileKind::from_content(&file) {
        None if !has_name && !is_profile(&file) => None,
        _ => Some(
            RuntimeFile::of(file)
                .map_err(|error| Diagnostic::cannot_read(path, &error))
                .and_then(check),
        ),
    }
}

/// Checks a file; `-` is standard input.
pub fn check_named(path: &Path) -> Result<CheckReport, Diagnostic> {
    let input = RuntimeFile::open(path);
    input
        .map_err(|error| Diagnostic::cannot_read(path, &error))
        .and_then(check)
}

/// Checks an open file. Fails if it was truncated meanwhile.
fn check(input: RuntimeFile) -> Result<CheckReport, Diagnostic> {
    let report = if is_profile(&input.file) {
        check::check_profile(&input.file).map_err(temp_file_error)?
    } else {
        check_runtime_file(&input)?
    };
    if input.file.has_shrunk() {
        Err(Diagnostic::new(Issue::FileShrunk).in_file(input.file.path()))
    } else {
        Ok(report)
    }
}

/// Checks a runtime's file, with the source files of this machine that it names.
fn check_runtime_file(input: &RuntimeFile) -> Result<CheckReport, Diagnostic> {
    let kind = input.kind().ok_or_else(|| {
        let unknown = Diagnostic::new(Issue::NotARuntimeFile).in_file(input.file.path());
        unknown.with("kinds", "profile, jitdump")
    })?;
    let name = base_name(input.file.path());
    let (sources, load) = (SourceOptions::default(), LoadOptions::default());
    let sources = SourceFiles::new(&sources, &load);
    let faults = &input.packing_faults;
    Ok(check::check(kind, &input.file, name, faults, &|name| {
        sources
            .open(name)
            .and_then(|file| file.read_whole(MAX_SOURCE))
            .ok()
    }))
}
