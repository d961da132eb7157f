//! Adding line tables to objects, with source paths that are valid on this machine.

use std::borrow::Cow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use percent_encoding::percent_decode;

use crate::debug_info::{DebugInfo, SourceFile, SourceFunction};
use crate::elf::dwarf::{self, Encoder, FunctionUnit, Version};
use crate::elf::object::Function;
use crate::elf::stored_source::{StoredSource, folder_name};
use crate::hash::HashMap;
use crate::inject::source_maps::SourceMapOptions;
use crate::inject::sources::{KeptSources, SourceName};
use crate::machine::Machine;
use crate::name_style::NameStyle;
use crate::runtime::names::SourceLocation;

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
    /// Whether to copy the source files into the folder of the objects, and to refer to the copies.
    pub keep_sources: bool,
    /// Which source maps are used.
    pub source_maps: SourceMapOptions,
}

/// Where source files are.
#[derive(Clone, Copy, Debug)]
pub struct SourcePlaces<'a> {
    /// Folder of the objects.
    pub store: &'a Path,
    /// Folders of texts of dumps.
    pub folders: &'a SourceFolders,
    /// Copied files.
    pub kept: &'a KeptSources,
    /// Owner of the runtime's file.
    pub owner: u32,
}

impl LineOptions {
    /// Adds the line table of a function to its object, with source texts if `has_texts`, and with names of functions in the
    /// style `names`. Returns the source files to write. Fails if the table is too large for DWARF.
    pub fn add<'a>(
        &self,
        mut info: DebugInfo<'a>,
        function: &Function<'_>,
        names: &NameStyle,
        places: SourcePlaces<'_>,
        has_texts: bool,
        encoder: &mut Encoder<'_, '_>,
    ) -> Result<Vec<StoredSource<'a>>, dwarf::TooLarge> {
        let styled = styled_names(names, &info);
        let sources = self.place_files(&mut info, places);
        if !has_texts {
            info.files.iter_mut().for_each(|file| file.text = None);
        }
        let mut info: DebugInfo<'_> = info;
        if let Some(styled) = &styled {
            for (function, name) in info.functions.iter_mut().zip(styled) {
                function.name = name;
            }
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

    /// Replaces paths with paths on this machine. Sources whose text is known become files in the folder of the objects,
    /// which are returned.
    fn place_files<'a>(&self, info: &mut DebugInfo<'a>, places: SourcePlaces<'_>) -> Vec<StoredSource<'a>> {
        let mut to_write = Vec::new();
        for file in used_files(info) {
            if let Some(source) = places.folders.source_to_write(file) {
                file.path = path_in(places.store, &source.path());
                to_write.push(source);
                continue;
            }
            self.map_path(file);
            let copy = places.kept.copy_of(places.owner, &file.path);
            if let Some(path) = copy.map(|copy| path_in(places.store, copy)) {
                file.path = path;
            }
        }
        to_write
    }

    /// Returns the source files to copy for a function whose runtime file belongs to `owner`: none unless
    /// [`LineOptions::keep_sources`] is set.
    pub fn sources_to_keep(&self, info: Option<DebugInfo<'_>>, owner: u32) -> Vec<SourceName> {
        let Some(mut info) = info.filter(|_| self.keep_sources) else {
            return Vec::new();
        };
        let files = used_files(&mut info).filter(|file| file.text.is_none());
        let names = files.map(|file| {
            self.map_path(file);
            (owner, file.path.to_vec())
        });
        names.collect()
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

/// Returns the files that lines or functions refer to.
fn used_files<'i, 'a>(info: &'i mut DebugInfo<'a>) -> impl Iterator<Item = &'i mut SourceFile<'a>> {
    let in_rows = info.rows.iter().filter_map(|row| row.file);
    let in_functions = info.functions.iter().filter_map(|function| function.file);
    let mut is_used = vec![false; info.files.len()];
    for file in in_rows.chain(in_functions) {
        if let Some(is_used) = is_used.get_mut(file as usize) {
            *is_used = true;
        }
    }
    let files = info.files.iter_mut().zip(is_used);
    files.filter_map(|(file, is_used)| is_used.then_some(file))
}

/// Returns the names of functions in another style than the runtime's.
fn styled_names<'a>(names: &NameStyle, info: &DebugInfo<'a>) -> Option<Vec<Cow<'a, [u8]>>> {
    let styled = info.functions.iter().enumerate().map(|(at, function)| match at {
        // The function itself has the name of its symbol.
        0 => Cow::Borrowed(&b""[..]),
        _ => names.apply_to_inlined(function.name, location_of(function, &info.files)),
    });
    (*names != NameStyle::Full).then(|| styled.collect())
}

/// Returns where a function is declared.
fn location_of<'f>(function: &SourceFunction<'_>, files: &'f [SourceFile<'_>]) -> Option<SourceLocation<'f>> {
    let file = files.get(function.file? as usize)?;
    Some(SourceLocation {
        path: &file.path,
        line: function.line,
        column: function.column,
    })
}

fn path_in(store: &Path, path: &Path) -> Cow<'static, [u8]> {
    Cow::Owned(store.join(path).into_os_string().into_vec())
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

/// Decodes the percent escapes of a URL, unless one stands for NUL, which no path has.
pub fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let decoded: Vec<u8> = percent_decode(text).collect();
    match decoded.contains(&0) {
        true => text.to_vec(),
        false => decoded,
    }
}

/// Folders of source files. Each text is hashed once, identified by its address in the mapped dump.
#[derive(Debug, Default)]
pub struct SourceFolders {
    known: Mutex<HashMap<(usize, usize), String>>,
}

impl SourceFolders {
    fn source_to_write<'a>(&self, file: &SourceFile<'a>) -> Option<StoredSource<'a>> {
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
        Some(StoredSource::in_folder(folder.clone(), &file.path, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
