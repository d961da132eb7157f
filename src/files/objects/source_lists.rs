//! Reads the lists of source files in a directory of objects, which may have come from elsewhere.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::files::OpenFile;
use crate::files::objects::stored_source::LIST_PREFIX;

/// Maximum size of a list, in bytes.
const MAX_LIST: u64 = 16 << 20;

/// Returns the lists in a folder with source files, by name; `None` for those that cannot be read. `open` opens a file by its
/// name.
pub fn lists(
    folder: &Path,
    open: impl Fn(&Path) -> io::Result<OpenFile>,
) -> impl Iterator<Item = Option<String>> {
    let mut names: Vec<OsString> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name.as_bytes().starts_with(LIST_PREFIX.as_bytes()))
        .collect();
    names.sort_unstable();
    names.into_iter().map(move |name| {
        let text = open(Path::new(&name)).and_then(|file| file.read_whole(MAX_LIST));
        Some(String::from_utf8_lossy(&text.ok()?).into_owned())
    })
}
