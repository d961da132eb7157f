//! Texts of source files, which tools show.
//!
//! What is shown may be sent to others, and paths in a jitdump can name any file. So text of this machine's files is only read on
//! request, and by the rules of `--keep-sources`: regular text files, named by files of root or of the user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jitdump::{Tally, printable};
use sha2::{Digest, Sha256};

use crate::bytes::hex_digits;
use crate::files::objects::source_lists::{ListRoom, lists};
use crate::files::objects::stored_source::{SOURCES, read_list};
use crate::files::walk::{self, Scope};
use crate::frames::source_files::{SourceName, SourceOptions};
use crate::inject::{DEFAULT_OUTPUT, KeptSources};
use crate::load::LoadOptions;
use crate::results::diagnostics::Issue;

/// Maximum size of all files that are read, in bytes.
const MAX_READ: u64 = 256 << 20;

/// Reads texts of source files.
pub struct Texts<'a> {
    kept: KeptFolder,
    files: KeptSources<'a>,
    /// Number of bytes that may still be read.
    left: u64,
    /// Files without text, and why; lists that were not read.
    pub faults: Tally<Issue>,
}

impl<'a> Texts<'a> {
    /// Prepares reading.
    pub fn new(load: &LoadOptions, sources: &'a SourceOptions) -> Self {
        let mut faults = Tally::default();
        Self {
            kept: KeptFolder::beside(&load.input, &mut faults),
            files: KeptSources::new(sources, load),
            left: MAX_READ,
            faults,
        }
    }

    /// Returns the text of a file: the copy that was kept, or else the file on this machine.
    pub fn read(&mut self, name: &SourceName) -> Result<Vec<u8>, Issue> {
        match self.kept.read(&name.path) {
            Some(text) => self.counted(text),
            None => {
                let text = self.files.read(name)?.text;
                self.counted(text)
            }
        }
    }

    /// Returns the copy of a file that was kept; `None` if there is none.
    #[cfg(feature = "export")]
    pub fn read_kept(&mut self, name: &SourceName) -> Option<Result<Vec<u8>, Issue>> {
        let text = self.kept.read(&name.path)?;
        Some(self.counted(text))
    }

    fn counted(&mut self, text: Vec<u8>) -> Result<Vec<u8>, Issue> {
        let left = self.left.checked_sub(text.len() as u64);
        self.left = left.ok_or(Issue::SourceTooLarge)?;
        Ok(text)
    }
}

/// The source files that jitinject has kept beside a profile.
#[derive(Debug, Default)]
struct KeptFolder {
    folder: PathBuf,
    /// Hash and path of each file, by its original path.
    files: BTreeMap<String, (String, String)>,
}

impl KeptFolder {
    /// Reads the lists of the output of the same folder as the profile. Counts those that cannot be read.
    fn beside(profile: &Path, faults: &mut Tally<Issue>) -> Self {
        let folder = profile.parent().unwrap_or(Path::new(""));
        let folder = folder.join(format!("{DEFAULT_OUTPUT}.elf")).join(SOURCES);
        let mut files = BTreeMap::new();
        let room = ListRoom::default();
        for text in lists(&folder, |name| walk::open(name, Scope::Beneath(&folder)), &room) {
            let Some(text) = text else {
                faults.add(Issue::SourceListUnread, 0);
                continue;
            };
            let entries = read_list(&text)
                .map(|(original, hash, path)| (original.to_owned(), (hash.to_owned(), path.to_owned())));
            files.extend(entries);
        }
        Self { folder, files }
    }

    /// Returns the text of a file, if it was kept and has not changed since.
    fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (hash, path) = self.files.get(&printable(path))?;
        let file = walk::open(Path::new(path), Scope::Beneath(&self.folder));
        let text = file.and_then(|file| file.read_whole(MAX_READ)).ok()?;
        (hex_digits(&Sha256::digest(&text)) == *hash).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use crate::files::objects::stored_source::{SourceList, StoredSource};

    #[test]
    fn the_size_of_all_texts_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.js");
        fs::write(&path, "let a;\n").unwrap();
        let name = SourceName {
            owner: 0,
            path: path.as_os_str().as_bytes().to_vec(),
            script: None,
        };
        let (load, sources) = (LoadOptions::default(), SourceOptions::default());
        let mut texts = Texts::new(&load, &sources);
        // As if others had been read.
        texts.left -= (256 << 20) - 7;
        assert_eq!(texts.read(&name), Ok(b"let a;\n".to_vec()));
        assert_eq!(texts.read(&name), Err(Issue::SourceTooLarge));
    }

    #[test]
    fn kept_files_are_found_by_lists_of_up_to_16_mebibytes() {
        let folder = tempfile::tempdir().unwrap();
        let sources = folder.path().join(format!("{DEFAULT_OUTPUT}.elf")).join(SOURCES);
        let source = StoredSource::new(b"/src/a.js", b"let a;\n");
        fs::create_dir_all(sources.join(&source.folder)).unwrap();
        fs::write(sources.join(&source.folder).join(&source.name), source.text).unwrap();
        let mut list = SourceList::default();
        list.add(&source);
        let (name, text) = list.file().unwrap();
        let list = sources.join(name);
        fs::write(&list, text).unwrap();
        let resize = |size| fs::File::options().write(true).open(&list)?.set_len(size);
        let (mut load, sources) = (LoadOptions::default(), SourceOptions::default());
        load.input = folder.path().join("perf.data");
        let name = SourceName {
            owner: 0,
            path: b"/src/a.js".to_vec(),
            script: None,
        };
        let read = || {
            let mut texts = Texts::new(&load, &sources);
            let text = texts.read(&name);
            (text, texts.faults.count(Issue::SourceListUnread))
        };
        resize(16 << 20).unwrap();
        assert_eq!(read(), (Ok(source.text.to_vec()), 0));
        #[cfg(feature = "export")]
        {
            let mut texts = Texts::new(&load, &sources);
            texts.left = source.text.len() as u64;
            assert_eq!(texts.read_kept(&name), Some(Ok(source.text.to_vec())));
            assert_eq!(texts.read_kept(&name), Some(Err(Issue::SourceTooLarge)));
        }
        resize((16 << 20) + 1).unwrap();
        assert_eq!(read(), (Err(Issue::SourceNotFound), 1));
    }
}
