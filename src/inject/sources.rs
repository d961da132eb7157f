//! Copies of the source files that lines name, in the directory of the objects.
//!
//! Paths come from files that anybody may have written, and the directory may be sent to others. So only regular text files
//! are copied, only for runtime files of the current user or root, and no link of another user is followed.
//!
//! Sources are copied before the objects are encoded: the copies' names contain a hash of their text, and the
//! line tables contain these names.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use jitdump::Tally;
use jitdump::debug_info::SourceFile;

use crate::collections::hash::HashMap;
use crate::files::objects::store::Store;
use crate::files::objects::stored_source::StoredSource;
use crate::files::open_file::is_trusted;
use crate::frames::source_files::{SourceFiles, SourceName, SourceOptions};
use crate::load::LoadOptions;
use crate::results::diagnostics::{Diagnostic, Issue};

/// Maximum size of a source file, in bytes. Bundles of JavaScript have up to some 10 MB.
const MAX_FILE: u64 = 32 << 20;

/// Maximum size of all source files, in bytes.
const MAX_FILES: u64 = 512 << 20;

/// Text of a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptText {
    /// The text.
    pub text: Vec<u8>,
    /// Whether not everybody may read the file.
    pub is_private: bool,
}

/// Source files in the folder of the objects.
#[derive(Debug)]
pub struct KeptSources<'o> {
    files: SourceFiles<'o>,
    /// Path of the copy in the folder of the objects; `None` if there is none.
    copies: HashMap<SourceName, Option<PathBuf>>,
    /// Number of bytes copied.
    size: u64,
}

impl<'o> KeptSources<'o> {
    /// Returns an empty set for the source files of a recording.
    pub fn new(options: &'o SourceOptions, load: &LoadOptions) -> Self {
        Self {
            files: SourceFiles::new(options, load),
            copies: HashMap::default(),
            size: 0,
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
                Ok(KeptText { text, is_private }) => {
                    self.size = self.size.saturating_add(text.len() as u64);
                    let mut source = StoredSource::new(&self.files.options.mapped_path(&name.path), &text);
                    source.is_private = is_private;
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
    pub fn copy_of(&self, owner: u32, file: &SourceFile<'_>) -> Option<&Path> {
        if self.copies.is_empty() {
            return None;
        }
        self.copies.get(&SourceName::new(owner, file))?.as_deref()
    }

    /// Whether everybody may read the file that a runtime named.
    pub fn is_public(&self, path: &[u8]) -> bool {
        self.files.open(path).is_ok_and(|file| file.is_public())
    }

    /// Returns the text of a file, or why it must not be copied.
    pub fn read(&self, name: &SourceName) -> Result<KeptText, Issue> {
        // Others could name files that they may not read themselves.
        if !is_trusted(name.owner) {
            return Err(Issue::SourceOfOtherUser);
        }
        let issue = |cause: io::Error| match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
                Issue::SourceNotFound
            }
            io::ErrorKind::PermissionDenied if name.script.is_some() => Issue::SourceOutsideScript,
            _ => Issue::SourceRefused,
        };
        let file = match &name.script {
            None => self.files.open(&name.path),
            Some(script) => self.files.open_original(&name.path, script),
        };
        let file = file.map_err(issue)?;
        let trail = &file.origin().trail;
        // Somebody else could have put a hard link to a private file into the folder.
        let may_be_planted = trail.is_shared && !file.has_public_mode();
        if may_be_planted || !trail.link_owners.iter().all(|&owner| is_trusted(owner)) {
            return Err(Issue::SourceRefused);
        }
        if file.size() > MAX_FILE.min(MAX_FILES.saturating_sub(self.size)) {
            return Err(Issue::SourceTooLarge);
        }
        let text = file.read_part(0, file.size()).map_err(issue)?;
        match memchr::memchr(0, &text) {
            Some(_) => Err(Issue::SourceRefused),
            None => Ok(KeptText {
                text,
                is_private: !file.is_public(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn name(path: &Path, owner: u32) -> SourceName {
        SourceName {
            owner,
            path: path.as_os_str().as_bytes().to_vec(),
            script: None,
        }
    }

    fn read_as(name: &SourceName) -> Result<Vec<u8>, Issue> {
        let (options, load) = (SourceOptions::default(), LoadOptions::default());
        let text = KeptSources::new(&options, &load).read(name)?;
        Ok(text.text)
    }

    fn read(path: &Path) -> Result<Vec<u8>, Issue> {
        read_as(&name(path, me()))
    }

    #[test]
    fn only_text_in_regular_files_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.js"), "let a;\n").unwrap();
        fs::write(at("key"), b"\0\x01").unwrap();
        // Zeros are not text, which only files that are not too large are read to see.
        for (name, size) in [("zeros", 32 << 20), ("large", (32 << 20) + 1)] {
            fs::File::create(at(name)).unwrap().set_len(size).unwrap();
        }
        symlink("a.js", at("link")).unwrap();
        let fifo = tempfile::NamedTempFile::new_in(folder.path()).unwrap();
        fs::remove_file(fifo.path()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, fifo.path(), rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(read(&at("a.js")), Ok(b"let a;\n".to_vec()));
        assert_eq!(read(&at("link")), Ok(b"let a;\n".to_vec()));
        assert_eq!(read(&at("absent")), Err(Issue::SourceNotFound));
        assert_eq!(read(&at("a.js/b")), Err(Issue::SourceNotFound));
        assert_eq!(read(Path::new("relative.js")), Err(Issue::SourceNotFound));
        assert_eq!(read(&at("key")), Err(Issue::SourceRefused));
        assert_eq!(read(&at("zeros")), Err(Issue::SourceRefused));
        assert_eq!(read(&at("large")), Err(Issue::SourceTooLarge));
        assert_eq!(read(fifo.path()), Err(Issue::SourceRefused));
        assert_eq!(read(folder.path()), Err(Issue::SourceRefused));
        // A link of /proc may lead into the mounts of another process.
        let root = Path::new("/proc/self/root").join(at("a.js").strip_prefix("/").unwrap());
        assert_eq!(read(&root), Err(Issue::SourceRefused));
    }

    #[test]
    fn files_that_the_file_of_another_user_names_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.js");
        fs::write(&path, "let a;\n").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let other = 0xffff_fff0;
        assert_eq!(read_as(&name(&path, other)), Err(Issue::SourceOfOtherUser));
        assert!(read(&path).is_ok());
    }

    #[test]
    fn files_that_only_a_source_map_names_are_near_their_script() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("package/src")).unwrap();
        fs::create_dir_all(at("project")).unwrap();
        for file in ["package/src/a.ts", "project/b.ts", "project/key", "c.ts"] {
            fs::write(at(file), "let a;\n").unwrap();
        }
        fs::set_permissions(at("package/src/a.ts"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(at("project/key"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("../project/b.ts", at("package/link.ts")).unwrap();
        let options = SourceOptions {
            source_dir: Some(at("project")),
            ..SourceOptions::default()
        };
        let load = LoadOptions::default();
        let read = |file: &str| {
            let name = SourceName {
                script: Some(at("package/a.js").as_os_str().as_bytes().to_vec()),
                ..name(&at(file), me())
            };
            KeptSources::new(&options, &load)
                .read(&name)
                .map(|kept| kept.is_private)
        };
        assert_eq!(read("package/src/a.ts"), Ok(true));
        assert_eq!(read("project/b.ts"), Ok(false));
        assert_eq!(read("project/key"), Err(Issue::SourceOutsideScript));
        assert_eq!(read("c.ts"), Err(Issue::SourceOutsideScript));
        assert_eq!(read("package/link.ts"), Err(Issue::SourceRefused));
        assert_eq!(read("package/absent.ts"), Err(Issue::SourceNotFound));
    }

    #[test]
    fn the_size_of_all_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.js");
        fs::write(&path, "let a;\n").unwrap();
        let (options, load) = (SourceOptions::default(), LoadOptions::default());
        let with_size = |size| KeptSources {
            size,
            ..KeptSources::new(&options, &load)
        };
        let name = name(&path, 0);
        assert!(with_size((512 << 20) - 7).read(&name).is_ok());
        assert_eq!(with_size((512 << 20) - 6).read(&name), Err(Issue::SourceTooLarge));
    }
}
