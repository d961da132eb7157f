//! Which files are there already, under whatever names.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use sha1::{Digest, Sha1};

use crate::files::MappedFile;

/// How many bytes at the start of a file are looked at first: a jitdump's header, in which no two have the same
/// process and time.
const START: usize = 64;

/// The length of a file, and how it starts.
type Look = (usize, [u8; START]);

/// Files by what is in them. Each is read once at most, however many there are.
#[derive(Debug, Default)]
pub struct Copies {
    numbers: FxHashSet<(u64, u64)>,
    by_look: FxHashMap<Look, Alike>,
}

/// Files of one length that start alike.
#[derive(Debug, Default)]
struct Alike {
    /// Those whose content is not hashed yet.
    unread: Vec<Arc<MappedFile>>,
    hashes: FxHashSet<[u8; 20]>,
}

impl Copies {
    /// Adds a file.
    pub fn add(&mut self, file: &Arc<MappedFile>) {
        self.numbers.insert(file.number());
        let alike = self.by_look.entry(look(file)).or_default();
        alike.unread.push(Arc::clone(file));
    }

    /// Whether this very file or one of the same content was added.
    pub fn has(&mut self, file: &MappedFile) -> bool {
        if self.numbers.contains(&file.number()) {
            return true;
        }
        let Some(alike) = self.by_look.get_mut(&look(file)) else {
            return false;
        };
        alike
            .hashes
            .extend(alike.unread.drain(..).map(|file| hash(&file)));
        alike.hashes.contains(&hash(file))
    }
}

fn look(file: &MappedFile) -> Look {
    let mut start = [0; START];
    start.iter_mut().zip(&file[..]).for_each(|(to, &from)| *to = from);
    (file.len(), start)
}

fn hash(file: &MappedFile) -> [u8; 20] {
    Sha1::digest(&file[..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn file(folder: &Path, name: &str, content: &[u8]) -> Arc<MappedFile> {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        Arc::new(MappedFile::open(&path).unwrap())
    }

    #[test]
    fn files_of_the_same_content_are_known_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut copies = Copies::default();
        copies.add(&file(folder.path(), "a", &[1; 100]));
        copies.add(&file(folder.path(), "short", b"short"));
        assert!(copies.has(&file(folder.path(), "copy", &[1; 100])));
        assert!(copies.has(&file(folder.path(), "copied", b"short")));
        assert!(!copies.has(&file(folder.path(), "longer", &[1; 101])));
        let mut other = [1; 100];
        other[99] = 2;
        assert!(!copies.has(&file(folder.path(), "other", &other)));
    }
}
