//! Refusal of outputs that would overwrite an input.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::bytes::printable_path;
use crate::files::stdio::is_standard;
use crate::load::options::LoadOptions;
use crate::load::recording::Recording;
use crate::results::diagnostics::{Diagnostic, Issue};

/// Fails if an output is one of the files that were read, or one that the options name.
pub fn refuse_input_as_output<'o>(
    options: &LoadOptions,
    recording: &Recording<'_>,
    outputs: impl IntoIterator<Item = &'o PathBuf>,
) -> Result<(), Diagnostic> {
    let input_path = Some(&*options.input).filter(|path| !is_standard(path));
    let core = options.trace.core_file.as_deref();
    let named: Vec<&Path> = recording.named_paths().chain(input_path).chain(core).collect();
    let files: Vec<_> = recording.files().collect();
    for output in outputs {
        let Some(id) = path_file_id(output) else {
            continue;
        };
        let files = files.iter().map(|file| (file.file_id, &*file.path));
        let named = named.iter().filter_map(|path| Some((path_file_id(path)?, *path)));
        if let Some((_, input)) = files.chain(named).find(|&(input, _)| input == id) {
            let same = Diagnostic::new(Issue::OutputIsInput).in_file(output);
            return Err(same.with("input", printable_path(input)));
        }
    }
    Ok(())
}

/// Device and inode of a file; `None` if it is missing or a character device such as `/dev/null`.
pub fn path_file_id(path: &Path) -> Option<(u64, u64)> {
    let metadata = if is_standard(path) {
        File::from(io::stdout().as_fd().try_clone_to_owned().ok()?).metadata()
    } else {
        fs::metadata(path)
    };
    let metadata = metadata.ok()?;
    let is_device = metadata.file_type().is_char_device();
    (!is_device).then_some((metadata.dev(), metadata.ino()))
}
