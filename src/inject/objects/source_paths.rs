//! Adding line tables to objects, with source paths that are valid on this machine.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sha1::{Digest, Sha1};

use crate::bytes::hex_digits;
use crate::debug_info::{DebugInfo, SourceFile};
use crate::elf::dwarf::{self, Encoder, FunctionUnit, Version};
use crate::elf::object::Function;
use crate::elf::store::{SOURCE_FOLDER_LENGTH, Store};
use crate::hash::HashMap;
use crate::inject::source_maps::SourceMapOptions;
use crate::machine::Machine;

/// How line tables are written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LineOptions {
    /// DWARF version.
    pub version: Version,
    /// Folder for resolving relative source paths.
    pub source_dir: Option<PathBuf>,
    /// Prefixes of source paths, in whole components, and their replacements. The last matching prefix is
    /// replaced.
    pub path_map: Vec<(Vec<u8>, Vec<u8>)>,
    /// Which source maps are used.
    pub source_maps: SourceMapOptions,
}

/// A source file to write.
#[derive(Clone, Debug)]
pub struct SourceToWrite<'a> {
    /// Name of a folder that only this file is in.
    pub folder: String,
    /// File name in that folder.
    pub name: String,
    /// Content of the file.
    pub text: &'a [u8],
}

impl LineOptions {
    /// Adds the line table of a function to its object in `store`, with source texts if `has_texts`. Returns
    /// the source files to write. Fails if the table is too large for DWARF.
    pub fn add<'a>(
        &self,
        mut info: DebugInfo<'a>,
        function: &Function<'_>,
        store: &Path,
        folders: &SourceFolders,
        has_texts: bool,
        encoder: &mut Encoder<'_, '_>,
    ) -> Result<Vec<SourceToWrite<'a>>, dwarf::TooLarge> {
        let sources = self.place_files(&mut info, store, folders);
        if !has_texts {
            info.files.iter_mut().for_each(|file| file.text = None);
        }
        encoder.add(&FunctionUnit {
            symbol: function.name,
            address: function.address,
            size: u32::try_from(function.code.size()).unwrap_or(u32::MAX),
            info: &info,
        })?;
        Ok(sources)
    }

    /// Whether objects contain source texts.
    pub fn holds_texts(&self) -> bool {
        self.version == Version::Five
    }

    /// Returns the settings shared by all functions of an object.
    pub fn settings(&self, machine: Machine) -> dwarf::Settings<'_> {
        let directory = self.source_dir.as_deref().unwrap_or(Path::new("."));
        dwarf::Settings {
            version: self.version,
            machine,
            directory: directory.as_os_str().as_bytes(),
        }
    }

    /// Replaces paths with paths on this machine. Sources whose text is known become files in `store`, which
    /// are returned.
    fn place_files<'a>(
        &self,
        info: &mut DebugInfo<'a>,
        store: &Path,
        folders: &SourceFolders,
    ) -> Vec<SourceToWrite<'a>> {
        let mut to_write = Vec::new();
        let in_rows = info.rows.iter().filter_map(|row| row.file);
        let in_functions = info.functions.iter().filter_map(|function| function.file);
        let mut is_used = vec![false; info.files.len()];
        for file in in_rows.chain(in_functions) {
            if let Some(is_used) = is_used.get_mut(file as usize) {
                *is_used = true;
            }
        }
        let used = info.files.iter_mut().zip(is_used).filter(|&(_, is_used)| is_used);
        for (file, _) in used {
            if let Some(source) = folders.source_to_write(file) {
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
        if let Cow::Owned(mapped) = self.mapped_path(&file.path) {
            file.path = Cow::Owned(mapped);
        }
    }

    /// Returns the path on this machine, which may be relative.
    pub fn mapped_path<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        let path = plain_path(path).map_or(Cow::Borrowed(path), Cow::Owned);
        let mut mappings = self.path_map.iter().rev();
        let mapped = mappings.find_map(|(old, new)| replace_start(&path, old, new));
        mapped.map_or(path, Cow::Owned)
    }
}

/// Replaces the prefix `old` of `path` with `new`, if it ends at a component boundary.
fn replace_start(path: &[u8], old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(old.strip_suffix(b"/").unwrap_or(old))?;
    let new = new.strip_suffix(b"/").unwrap_or(new);
    let replaced = [new, rest].concat();
    ((rest.is_empty() || rest.starts_with(b"/")) && !replaced.is_empty()).then_some(replaced)
}

/// Path for a name with a scheme: that of a `file:` URL (V8's modules), and for other schemes one without the
/// colon (`node:internal/util`), since perf cuts off names at the first colon.
fn plain_path(name: &[u8]) -> Option<Vec<u8>> {
    let colon = memchr::memchr(b':', name)?;
    let (scheme, rest) = (name.get(..colon)?, name.get(colon + 1..)?);
    let is_scheme = scheme.len() > 1
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(byte));
    if !is_scheme || rest.is_empty() {
        return None;
    }
    match rest.strip_prefix(b"//") {
        Some(path) if scheme == b"file" && path.starts_with(b"/") => Some(percent_decoded(path)),
        _ => {
            let start = rest.iter().position(|&byte| byte != b'/')?;
            Some([scheme, b"/", rest.get(start..)?].concat())
        }
    }
}

/// Decodes the percent escapes of a URL.
pub fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| first == b'%');
        let number = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match number.filter(|&number| number != 0) {
            Some(number) => {
                out.push(number);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = behind;
            }
        }
    }
    out
}

/// Folders of source files. Each text is hashed once, identified by its address in the mapped dump.
#[derive(Debug, Default)]
pub struct SourceFolders {
    known: Mutex<HashMap<(usize, usize), String>>,
}

impl SourceFolders {
    fn source_to_write<'a>(&self, file: &SourceFile<'a>) -> Option<SourceToWrite<'a>> {
        let text = file.text?;
        let place = (text.as_ptr() as usize, text.len());
        // No code panics while holding the lock.
        let mut known = self
            .known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let folder = known
            .entry(place)
            .or_insert_with(|| folder_name(&file.path, text));
        Some(SourceToWrite {
            folder: folder.clone(),
            name: file_name(&file.path),
            text,
        })
    }
}

/// Name that two files share only if both their paths and texts are the same.
fn folder_name(path: &[u8], text: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update((path.len() as u64).to_le_bytes());
    hash.update(path);
    hash.update(text);
    let mut name = hex_digits(&hash.finalize());
    name.truncate(SOURCE_FOLDER_LENGTH);
    name
}

/// File name for a source that had the path `path` elsewhere.
fn file_name(path: &[u8]) -> String {
    /// In bytes; far below the limits of file systems.
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
            *length += character.len_utf8();
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
            assert_eq!(file_name(path), name);
        }
    }

    #[test]
    fn the_last_prefix_that_fits_is_replaced() {
        let options = LineOptions {
            path_map: vec![
                (b"/app".to_vec(), b"/home/me/app".to_vec()),
                (b"/app/gen/".to_vec(), b"/tmp/gen".to_vec()),
            ],
            ..LineOptions::default()
        };
        let mapped = |path: &'static [u8]| {
            let mut file = SourceFile::from(path);
            options.map_path(&mut file);
            String::from_utf8(file.path.into_owned()).unwrap()
        };
        for (path, expected) in [
            (&b"/app/a.js"[..], "/home/me/app/a.js"),
            (b"/app/gen/b.js", "/tmp/gen/b.js"),
            (b"/app/gene.js", "/home/me/app/gene.js"),
            (b"/apple/c.js", "/apple/c.js"),
            (b"relative/app/c.js", "relative/app/c.js"),
            (b"file:///app/my%20file.mjs", "/home/me/app/my file.mjs"),
            (b"node:internal/util", "node/internal/util"),
            (b"webpack://x/./a.js", "webpack/x/./a.js"),
            (b"C:\\a.js", "C:\\a.js"),
        ] {
            assert_eq!(mapped(path), expected);
        }
    }
}
