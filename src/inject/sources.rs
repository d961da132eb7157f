//! Copies of the source files that lines name, in the folder of the objects.
//!
//! Paths come from files that anybody may have written, and the folder may be sent to others. So only regular files of
//! text are copied, which the owner of the runtime's file can read as well, and no link of another user is followed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::collections::hash::HashMap;
use crate::collections::tally::Tally;
use crate::diagnostics::{Diagnostic, Issue};
use crate::elf::store::Store;
use crate::elf::stored_source::StoredSource;
use crate::files::OpenFile;
use crate::files::links::resolve;
use crate::files::open_file::is_trusted;

/// Maximum size of a source file, in bytes. Bundles of JavaScript have up to some 10 MB.
const MAX_FILE: u64 = 32 << 20;

/// Maximum size of all source files, in bytes.
const MAX_FILES: u64 = 512 << 20;

/// A source file: the owner of the runtime's file, and the path in it.
pub type SourceName = (u32, Vec<u8>);

/// Source files in the folder of the objects.
#[derive(Debug, Default)]
pub struct KeptSources {
    /// Folder for relative paths.
    directory: Option<PathBuf>,
    /// Path of the copy in the folder of the objects; `None` if there is none.
    copies: HashMap<SourceName, Option<PathBuf>>,
    /// Number of bytes copied.
    size: u64,
}

impl KeptSources {
    /// Returns an empty set. Relative paths start from `directory`; without one, they name no file.
    pub fn new(directory: Option<&Path>) -> Self {
        Self {
            directory: directory.map(Path::to_owned),
            ..Self::default()
        }
    }

    /// Copies files into the store, each once. Counts those that cannot be copied. Fails if the store cannot be written.
    pub fn keep(
        &mut self,
        names: BTreeSet<SourceName>,
        store: &mut Store,
        faults: &mut Tally<Issue>,
    ) -> Result<(), Diagnostic> {
        for name in names {
            if self.copies.contains_key(&name) {
                continue;
            }
            let copy = match self.read(&name) {
                Ok(text) => {
                    self.size = self.size.saturating_add(text.len() as u64);
                    let source = StoredSource::new(&name.1, &text);
                    store.write_source(&source)?;
                    Some(source.path())
                }
                Err(issue) => {
                    faults.add(issue, 0);
                    None
                }
            };
            self.copies.insert(name, copy);
        }
        Ok(())
    }

    /// Returns the path of a copy in the folder of the objects.
    pub fn copy_of(&self, owner: u32, path: &[u8]) -> Option<&Path> {
        if self.copies.is_empty() {
            return None;
        }
        self.copies.get(&(owner, path.to_vec()))?.as_deref()
    }

    /// Returns the text of a file, or why it must not be copied.
    pub fn read(&self, (owner, path): &SourceName) -> Result<Vec<u8>, Issue> {
        let path = Path::new(OsStr::from_bytes(path));
        let path = match &self.directory {
            Some(directory) => directory.join(path),
            None if path.is_absolute() => path.to_owned(),
            None => return Err(Issue::SourceNotFound),
        };
        let issue = |cause: io::Error| match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
                Issue::SourceNotFound
            }
            _ => Issue::SourceRefused,
        };
        let resolved = resolve(&path).map_err(issue)?;
        let is_own = |&user: &u32| is_trusted(user) || user == *owner;
        let file = OpenFile::open(&path).map_err(issue)?;
        let is_allowed = resolved.link_owners.iter().all(is_own)
            && resolved.file_id == file.file_id()
            && (is_trusted(*owner) || may_read(*owner, &path).map_err(issue)?);
        if !is_allowed {
            return Err(Issue::SourceRefused);
        }
        if file.size() > MAX_FILE.min(MAX_FILES.saturating_sub(self.size)) {
            return Err(Issue::SourceTooLarge);
        }
        let text = file.read_part(0, file.size()).map_err(issue)?;
        match memchr::memchr(0, &text) {
            Some(_) => Err(Issue::SourceRefused),
            None => Ok(text),
        }
    }
}

/// Returns whether a user may read a file, by the modes of it and of its folders. Groups are left out.
fn may_read(user: u32, path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    let has = |path: &Path, bit: u32| -> io::Result<bool> {
        let found = fs::metadata(path)?;
        let shift = if found.uid() == user { 6 } else { 0 };
        Ok(found.mode() & (bit << shift) != 0)
    };
    let mut folders = path.ancestors().skip(1);
    Ok(has(&path, 4)? && folders.try_fold(true, |may, folder| Ok::<_, io::Error>(may && has(folder, 1)?))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn read(path: &Path, owner: u32) -> Result<Vec<u8>, Issue> {
        KeptSources::new(None).read(&(owner, path.as_os_str().as_bytes().to_vec()))
    }

    #[test]
    fn only_text_in_regular_files_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let me = rustix::process::geteuid().as_raw();
        fs::write(at("a.js"), "let a;\n").unwrap();
        fs::write(at("key"), b"\0\x01").unwrap();
        fs::File::create(at("large"))
            .unwrap()
            .set_len(MAX_FILE + 1)
            .unwrap();
        symlink("a.js", at("link")).unwrap();
        let fifo = tempfile::NamedTempFile::new_in(folder.path()).unwrap();
        fs::remove_file(fifo.path()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, fifo.path(), rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(read(&at("a.js"), me), Ok(b"let a;\n".to_vec()));
        assert_eq!(read(&at("link"), me), Ok(b"let a;\n".to_vec()));
        assert_eq!(read(&at("absent"), me), Err(Issue::SourceNotFound));
        assert_eq!(read(&at("a.js/b"), me), Err(Issue::SourceNotFound));
        assert_eq!(read(Path::new("relative.js"), me), Err(Issue::SourceNotFound));
        assert_eq!(read(&at("key"), me), Err(Issue::SourceRefused));
        assert_eq!(read(&at("large"), me), Err(Issue::SourceTooLarge));
        assert_eq!(read(fifo.path(), me), Err(Issue::SourceRefused));
        assert_eq!(read(folder.path(), me), Err(Issue::SourceRefused));
    }

    #[test]
    fn files_that_the_owner_of_the_dump_cannot_read_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.js");
        fs::write(&path, "let a;\n").unwrap();
        // Nobody's.
        let other = 0xffff_fff0;
        for (folder_mode, mode, is_kept) in
            [(0o711, 0o644, true), (0o700, 0o644, false), (0o711, 0o640, false)]
        {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(folder_mode)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path, other).is_ok(), is_kept, "{folder_mode:o} {mode:o}");
        }
    }

    #[test]
    fn the_size_of_all_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.js");
        fs::write(&path, "let a;\n").unwrap();
        let name = (0, path.as_os_str().as_bytes().to_vec());
        let with_size = |size| KeptSources {
            size,
            ..KeptSources::default()
        };
        assert!(with_size(MAX_FILES - 7).read(&name).is_ok());
        assert_eq!(with_size(MAX_FILES - 6).read(&name), Err(Issue::SourceTooLarge));
    }
}
