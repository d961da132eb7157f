//! What becomes of lines on their way from a runtime's file into an object.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use crate::debug_info::{DebugInfo, SourceFile};
use crate::elf::dwarf::Version;
use crate::elf::store::{SOURCE_FOLDER_LENGTH, Store};

/// How lines are written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LineOptions {
    /// The version of DWARF.
    pub version: Version,
    /// The folder that relative paths of sources start from.
    pub source_dir: Option<PathBuf>,
    /// What paths of sources start with, and what that becomes. Of several that fit, the last one counts.
    pub path_map: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A source file to be written.
#[derive(Clone, Debug)]
pub struct SourceToWrite<'a> {
    /// The folder for it alone.
    pub folder: String,
    /// Its name there.
    pub name: String,
    /// Its text.
    pub text: &'a [u8],
}

impl LineOptions {
    /// Makes paths lead to files on this machine, those whose text is known to files in `store`, which are to be
    /// written.
    pub fn place_files<'a>(&self, info: &mut DebugInfo<'a>, store: &Path) -> Vec<SourceToWrite<'a>> {
        let mut to_write = Vec::new();
        for file in &mut info.files {
            if let Some(source) = source_to_write(file) {
                let path = Store::source_path(store, &source.folder, &source.name);
                file.path = Cow::Owned(path.as_os_str().as_bytes().to_vec());
                to_write.push(source);
            } else {
                self.map_path(file);
            }
        }
        to_write
    }

    fn map_path(&self, file: &mut SourceFile<'_>) {
        let mut mappings = self.path_map.iter().rev();
        let mapped = mappings.find_map(|(old, new)| Some([new, file.path.strip_prefix(&old[..])?].concat()));
        if let Some(mapped) = mapped {
            file.path = Cow::Owned(mapped);
        }
    }
}

fn source_to_write<'a>(file: &SourceFile<'a>) -> Option<SourceToWrite<'a>> {
    let text = file.text?;
    let mut hash = Sha1::new();
    hash.update((file.path.len() as u64).to_le_bytes());
    hash.update(&file.path);
    hash.update(text);
    let mut folder: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    folder.truncate(SOURCE_FOLDER_LENGTH);
    Some(SourceToWrite {
        folder,
        name: file_name(&file.path),
        text,
    })
}

/// A name for a file that was called `path` elsewhere.
fn file_name(path: &[u8]) -> String {
    /// Far from what file systems allow.
    const MAX_LENGTH: usize = 100;
    let name = path
        .rsplit(|byte| b"/\\".contains(byte))
        .next()
        .unwrap_or_default();
    let is_plain = |character: char| character.is_alphanumeric() || "._-+@ ".contains(character);
    let name: String = String::from_utf8_lossy(name)
        .chars()
        .map(|character| if is_plain(character) { character } else { '_' })
        .take(MAX_LENGTH)
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
            assert_eq!(file_name(path), name);
        }
    }

    #[test]
    fn the_last_prefix_that_fits_is_replaced() {
        let options = LineOptions {
            path_map: vec![
                (b"/app".to_vec(), b"/home/me/app".to_vec()),
                (b"/app/gen".to_vec(), b"/tmp/gen".to_vec()),
            ],
            ..LineOptions::default()
        };
        let mapped = |path: &'static [u8]| {
            let mut file = SourceFile::from(path);
            options.map_path(&mut file);
            String::from_utf8(file.path.into_owned()).unwrap()
        };
        assert_eq!(mapped(b"/app/a.js"), "/home/me/app/a.js");
        assert_eq!(mapped(b"/app/gen/b.js"), "/tmp/gen/b.js");
        assert_eq!(mapped(b"relative/app/c.js"), "relative/app/c.js");
    }
}
