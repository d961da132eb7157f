//! Reads the lists of source files in a directory of objects, which may have come from elsewhere.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::files::OpenFile;
use crate::files::objects::stored_source::LIST_PREFIX;

/// Maximum size of a list, and of all lists together, in bytes.
const MAX_LIST: u64 = 16 << 20;
const MAX_LISTS: u64 = 64 << 20;

/// Room for lists: any number of paths may lead to the same ones.
#[derive(Debug)]
pub struct ListRoom {
    /// Number of bytes that are left.
    left: AtomicU64,
}

impl Default for ListRoom {
    fn default() -> Self {
        Self {
            left: AtomicU64::new(MAX_LISTS),
        }
    }
}

/// Returns the lists in a folder with source files, by name; `None` for those that cannot be read, or have no room. `open` opens
/// a file by its name.
pub fn lists(
    folder: &Path,
    open: impl Fn(&Path) -> io::Result<OpenFile>,
    room: &ListRoom,
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
        let left = room.left.load(Ordering::Relaxed);
        let text = open(Path::new(&name)).and_then(|file| file.read_whole(MAX_LIST.min(left)));
        let text = text.ok()?;
        room.left
            .store(left.saturating_sub(text.len() as u64), Ordering::Relaxed);
        Some(String::from_utf8_lossy(&text).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_up_to_64_mebibytes_together() {
        let folder = tempfile::tempdir().unwrap();
        let at = |number: u32| folder.path().join(format!("{LIST_PREFIX}{number}"));
        std::fs::write(at(0), vec![b'\n'; 16 << 20]).unwrap();
        for number in 1..5 {
            std::fs::hard_link(at(0), at(number)).unwrap();
        }
        let room = ListRoom::default();
        let read = || -> Vec<bool> {
            let open = |name: &Path| OpenFile::open(&folder.path().join(name));
            let found = lists(folder.path(), open, &room);
            found.map(|list| list.is_some()).collect()
        };
        assert_eq!(read(), [true, true, true, true, false]);
        // They are not read again by another path, either.
        assert_eq!(read(), [false; 5]);
    }
}
