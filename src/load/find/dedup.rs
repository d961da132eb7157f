//! Detection of files with the same content.

use std::sync::Arc;

use jitdump::RandomAccess;
use sha1::{Digest, Sha1};

use crate::collections::hash::HashMap;
use crate::files::PagedFile;

/// Number of bytes at the start of files to compare first: a jitdump header, which is unique due to its
/// process and time.
const START: usize = 64;

/// Bytes read at a time for the hash of a file.
const HASHED_AT_A_TIME: usize = 1 << 18;

/// What files of the same content have in common at least.
#[derive(PartialEq, Eq, Hash, Debug)]
struct SizeAndStart {
    size: u64,
    start: [u8; START],
}

impl SizeAndStart {
    fn of(file: &PagedFile) -> Self {
        let mut start = [0; START];
        file.read(0, &mut start);
        let size = file.size();
        Self { size, start }
    }
}

/// IDs for the contents of files, the same for copies. Each file is read at most once, and only if another
/// one has the same length and start.
#[derive(Debug, Default)]
pub struct ContentIds {
    by_file_id: HashMap<(u64, u64), ContentId>,
    alike: HashMap<SizeAndStart, Alike>,
    count: usize,
}

/// ID of a content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ContentId(usize);

/// Files with the same length and start.
#[derive(Debug, Default)]
struct Alike {
    /// First file, until its content is hashed.
    unread: Option<(Arc<PagedFile>, ContentId)>,
    by_hash: HashMap<[u8; 20], ContentId>,
}

impl ContentIds {
    /// Returns the ID of a file's content.
    pub fn of(&mut self, file: &Arc<PagedFile>) -> ContentId {
        if let Some(&known) = self.by_file_id.get(&file.file_id()) {
            return known;
        }
        let new = ContentId(self.count);
        let alike = self.alike.entry(SizeAndStart::of(file)).or_default();
        if let Some((first, content)) = alike.unread.take() {
            alike.by_hash.insert(hash(&first), content);
        }
        let content = if alike.by_hash.is_empty() {
            alike.unread = Some((Arc::clone(file), new));
            new
        } else {
            *alike.by_hash.entry(hash(file)).or_insert(new)
        };
        if content == new {
            self.count += 1;
        }
        self.by_file_id.insert(file.file_id(), content);
        content
    }
}

/// Returns the hash of all content.
fn hash(file: &PagedFile) -> [u8; 20] {
    let mut sha1 = Sha1::new();
    let mut buffer = vec![0; HASHED_AT_A_TIME];
    let mut offset = 0;
    loop {
        let read = file.read(offset, &mut buffer);
        sha1.update(buffer.get(..read).unwrap_or_default());
        offset += read as u64;
        if read < buffer.len() {
            return sha1.finalize().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::OpenFile;
    use std::fs;
    use std::path::Path;

    fn file(folder: &Path, name: &str, content: &[u8]) -> Arc<PagedFile> {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        Arc::new(PagedFile::of(OpenFile::open(&path).unwrap()).unwrap())
    }

    #[test]
    fn files_of_the_same_content_are_one_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut contents = ContentIds::default();
        let mut of = |name, content: &[u8]| contents.of(&file(folder.path(), name, content));
        let (long, short) = (of("a", &[1; 100]), of("short", b"short"));
        assert_ne!(long, short);
        let mut other = [1; 100];
        other[99] = 2;
        let other = of("other", &other);
        assert_ne!(other, long);
        assert_eq!(of("copy", &[1; 100]), long);
        assert_eq!(of("copied", b"short"), short);
        assert_ne!(of("longer", &[1; 101]), long);
        assert_eq!(of("third", &[3; 7]), of("another", &[3; 7]));
    }
}
