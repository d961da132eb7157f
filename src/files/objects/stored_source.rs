//! Source files in a directory of objects: `sources/HASH/NAME`, and a list of them that `sha256sum -c` reads.
//!
//! Paths come from files that anybody may have written. They only lead to the name of a file, never to a directory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jitdump::printable;
use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::bytes::hex_digits;

/// Name of the subdirectory with source files.
pub const SOURCES: &str = "sources";

/// Length of the name of a directory with one source file.
pub const FOLDER_LENGTH: usize = 16;

/// Beginning of the name of a list of source files. As the name of an object does, it ends with a hash of the content,
/// so that several profiles can share a directory.
pub const LIST_PREFIX: &str = "SHA256SUMS-";

/// Number of hexadecimal digits of the hash in the name of a list.
const LIST_DIGITS: usize = 12;

/// A source file to store.
#[derive(Clone, Debug)]
pub struct StoredSource<'a> {
    /// Name of a folder that only this file is in, as from [`folder_name`].
    pub folder: String,
    /// File name in that folder.
    pub name: String,
    /// Path that it had, for the list.
    pub original: String,
    /// Content of the file.
    pub text: &'a [u8],
    /// Whether only the user may read it.
    pub is_private: bool,
}

impl<'a> StoredSource<'a> {
    /// Returns a source file with the text `text` that had the path `path`.
    pub fn new(path: &[u8], text: &'a [u8]) -> Self {
        Self::in_folder(folder_name(path, text), path, text)
    }

    /// As [`StoredSource::new`], with a known [`folder_name`].
    pub fn in_folder(folder: String, path: &[u8], text: &'a [u8]) -> Self {
        Self {
            folder,
            name: safe_file_name(path),
            original: printable(path),
            text,
            is_private: false,
        }
    }

    /// Returns its path in the directory of objects.
    pub fn path(&self) -> PathBuf {
        [SOURCES, &self.folder, &self.name].iter().collect()
    }
}

/// Hashes and original paths of stored files.
#[derive(Debug, Default)]
pub struct SourceList {
    /// By path below [`SOURCES`]: SHA-256 and original path.
    entries: BTreeMap<String, (String, String)>,
}

impl SourceList {
    /// Adds a file.
    pub fn add(&mut self, source: &StoredSource<'_>) {
        let hash = hex_digits(&Sha256::digest(source.text));
        let path = format!("{}/{}", source.folder, source.name);
        self.entries.insert(path, (hash, source.original.clone()));
    }

    /// Returns the name and the content of the list; `None` if it is empty.
    pub fn file(&self) -> Option<(String, String)> {
        if self.entries.is_empty() {
            return None;
        }
        let mut text =
            "# sha256sum -c checks these files. Each line follows the path that the file had.\n".to_owned();
        for (path, (hash, original)) in &self.entries {
            text.push_str(&format!("# {original}\n{hash}  {path}\n"));
        }
        let mut hash = hex_digits(&Sha256::digest(&text));
        hash.truncate(LIST_DIGITS);
        Some((format!("{LIST_PREFIX}{hash}"), text))
    }
}

/// Returns the entries of a list: original path, SHA-256, and path below [`SOURCES`]. Paths that lead elsewhere are left out.
pub fn read_list(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let lines = text.lines().zip(text.lines().skip(1));
    lines.filter_map(|(comment, entry)| {
        let original = comment.strip_prefix("# ")?;
        let (hash, path) = entry.split_once("  ")?;
        let (folder, name) = path.split_once('/')?;
        let is_below = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['/', '\0']);
        (is_below(folder) && is_below(name)).then_some((original, hash, path))
    })
}

/// Returns a name that two files share only if both their paths and texts are the same.
pub fn folder_name(path: &[u8], text: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update((path.len() as u64).to_le_bytes());
    hash.update(path);
    hash.update(text);
    let mut name = hex_digits(&hash.finalize());
    name.truncate(FOLDER_LENGTH);
    name
}

/// Returns a file name for a source that had the path `path`: its last part, of which letters, digits and `._-+@ ` stay
/// and all else becomes `_`, up to 100 bytes. It is `source` if nothing or only dots are left.
fn safe_file_name(path: &[u8]) -> String {
    /// Maximum length in bytes, far below the limits of file systems.
    const MAX_LENGTH: usize = 100;
    let name = path
        .rsplit(|byte| b"/\\".contains(byte))
        .next()
        .unwrap_or_default();
    let is_plain = |character: char| character.is_alphanumeric() || "._-+@ ".contains(character);
    let name: String = String::from_utf8_lossy(name)
        .chars()
        .map(|character| if is_plain(character) { character } else { '_' })
        .scan(0, |length, character| {
            *length = character.len_utf8().saturating_add(*length);
            (*length <= MAX_LENGTH).then_some(character)
        })
        .collect();
    match name.trim_matches('.') {
        "" => "source".into(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sources_lead_nowhere_else() {
        for (path, name) in [
            (&b"/a/b/work.js"[..], "work.js"),
            (b"gen\\dyn_1.js", "dyn_1.js"),
            (b"..", "source"),
            (b"/a/", "source"),
            (b"node:internal/util", "util"),
            (b"a\x1b[2J\0:b.js", "a__2J__b.js"),
            ("größe.js".as_bytes(), "größe.js"),
        ] {
            assert_eq!(safe_file_name(path), name);
        }
        assert_eq!(safe_file_name(&[b'x'; 101]), "x".repeat(100));
    }

    #[test]
    fn the_list_has_hashes_and_original_paths() {
        let mut list = SourceList::default();
        assert_eq!(list.file(), None);
        list.add(&StoredSource::new(b"/a/\x1b\n.js", b"abc"));
        let (name, text) = list.file().unwrap();
        assert!(name.starts_with(LIST_PREFIX) && name.len() == LIST_PREFIX.len() + LIST_DIGITS);
        let lines: Vec<&str> = text.lines().collect();
        let [_, original, hash] = lines[..] else {
            panic!("{text}")
        };
        assert_eq!(original, format!("# {}", printable(b"/a/\x1b\n.js")));
        let entries: Vec<_> = read_list(&text).collect();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].0, printable(b"/a/\x1b\n.js"));
        assert!(entries[0].2.ends_with("/__.js"));
        for outside in ["/etc/passwd", "../a", "a/../b", "a//b", "a"] {
            assert_eq!(
                read_list(&format!("# a\n00  {outside}\n")).count(),
                0,
                "{outside}"
            );
        }
        // FIPS 180-2, appendix B.1.
        assert!(hash.starts_with("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  "));
        assert!(hash.ends_with("/__.js"));
    }
}
