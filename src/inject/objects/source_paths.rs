//! Adding line tables to objects, with source paths that are valid on this machine.

use std::borrow::Cow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Mutex;

use jitdump::Machine;
use jitdump::debug_info::{DebugInfo, SourceFile, SourceFunction};
use jitdump::names::SourceLocation;

use crate::collections::hash::HashMap;
use crate::elf::dwarf::{self, Encoder, FunctionUnit, Version};
use crate::elf::object::ObjectFunction;
use crate::files::objects::stored_source::{StoredSource, folder_name};
use crate::frames::source_files::{SourceName, SourceOptions, text_to_write};
use crate::inject::sources::KeptSources;
use crate::results::name_style::NameStyle;
use crate::threads::lock;

/// How line tables are written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LineOptions {
    /// DWARF version.
    pub version: Version,
    /// Where source files are on this machine.
    pub sources: SourceOptions,
    /// Name of the track that lines are taken from, for functions that have it; `None` for the usual lines.
    pub track: Option<Vec<u8>>,
    /// Whether to copy the source files into the folder of the objects, and to refer to the copies.
    pub keep_sources: bool,
}

/// Where source files are.
#[derive(Clone, Copy, Debug)]
pub struct SourcePlaces<'a> {
    /// Folder of the objects.
    pub store: &'a Path,
    /// Folders of texts of dumps.
    pub folders: &'a SourceFolders,
    /// Copied files.
    pub kept: &'a KeptSources<'a>,
    /// Owner of the runtime's file.
    pub owner: u32,
}

impl LineOptions {
    /// Adds the line table of a function to its object, with source texts if `has_texts`, and with names of functions in the
    /// style `names`. Returns the source files to write. Fails if the table is too large for DWARF.
    pub(crate) fn add_table<'a>(
        &self,
        mut info: DebugInfo<'a>,
        function: &ObjectFunction<'_>,
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
    pub(crate) fn holds_texts(&self) -> bool {
        self.version == Version::Five
    }

    /// Returns the settings shared by all functions of an object.
    pub(crate) fn settings(&self, machine: Machine) -> dwarf::Settings<'_> {
        let directory = self.sources.source_dir.as_deref().unwrap_or(Path::new("."));
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
            file.text = text_to_write(file, places.owner);
            if let Some(source) = places.folders.source_to_write(file, places.kept) {
                file.path = path_in(places.store, &source.path());
                to_write.push(source);
                continue;
            }
            match places.kept.copy_of(places.owner, file) {
                Some(copy) => file.path = path_in(places.store, copy),
                None => self.map_path(file),
            }
        }
        to_write
    }

    fn map_path(&self, file: &mut SourceFile<'_>) {
        if let Cow::Owned(mapped) = self.sources.mapped_path(&file.path) {
            file.path = Cow::Owned(mapped);
        }
    }
}

/// Returns the source files to copy for a function whose runtime file belongs to `owner`: those whose text is not known.
pub fn sources_to_keep(info: &mut DebugInfo<'_>, owner: u32) -> Vec<SourceName> {
    let files = used_files(info).filter(|file| file.text.is_none());
    files.map(|file| SourceName::new(owner, file)).collect()
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

/// Returns the names of functions, if they are not those of the runtime: in another style, or for functions without a name.
fn styled_names<'a>(names: &NameStyle, info: &DebugInfo<'a>) -> Option<Vec<Cow<'a, [u8]>>> {
    let is_full = *names == NameStyle::Full;
    let inlined = info.functions.get(1..).unwrap_or_default();
    if is_full && inlined.iter().all(|function| !function.name.is_empty()) {
        return None;
    }
    let styled = info.functions.iter().enumerate().map(|(at, function)| match at {
        0 if is_full => Cow::Borrowed(function.name),
        // The function itself has the name of its symbol, which is in this style.
        0 => Cow::Borrowed(&b""[..]),
        _ => names.apply_to_inlined(function.name, location_of(function, &info.files)),
    });
    Some(styled.collect())
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

/// Folders of source files, and whether they are private. Each text is hashed once, identified by its address in memory.
#[derive(Debug, Default)]
pub struct SourceFolders {
    known: Mutex<HashMap<(usize, usize), (String, bool)>>,
}

impl SourceFolders {
    /// Returns the source file to write for one that has a text. The name of its folder is computed once for each text.
    fn source_to_write<'a>(&self, file: &SourceFile<'a>, kept: &KeptSources<'_>) -> Option<StoredSource<'a>> {
        let text = file.text?;
        let place = (text.as_ptr() as usize, text.len());
        let mut known = lock(&self.known);
        let (folder, is_private) = known.entry(place).or_insert_with(|| {
            let script = file.script.as_deref();
            let is_private = script.is_some_and(|script| !kept.is_public(script));
            (folder_name(&file.path, text), is_private)
        });
        let mut source = StoredSource::in_folder(folder.clone(), &file.path, text);
        source.is_private = *is_private;
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::load::LoadOptions;
    use jitdump::debug_info::LineRow;

    /// The text of a source map is as private as its script, and not for those who may not read it.
    #[test]
    fn texts_of_source_maps_are_as_private_as_their_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a.js");
        fs::write(&script, "let a;\n").unwrap();
        let (lines, load) = (LineOptions::default(), LoadOptions::default());
        let me = rustix::process::geteuid().as_raw();
        let stored = |owner: u32, script: Option<&Path>| {
            let mut file = SourceFile::from(&b"/src/a.ts"[..]);
            file.text = Some(b"let a;\n");
            file.script = script.map(|script| Cow::Owned(script.as_os_str().as_bytes().to_vec()));
            let mut info = DebugInfo {
                files: vec![file],
                rows: vec![LineRow {
                    offset: 0,
                    file: Some(0),
                    line: 1,
                    column: 0,
                    discriminator: 0,
                }],
                ..DebugInfo::default()
            };
            let places = SourcePlaces {
                store: folder.path(),
                folders: &SourceFolders::default(),
                kept: &KeptSources::new(&lines.sources, &load),
                owner,
            };
            let stored = lines.place_files(&mut info, places);
            stored.iter().map(|source| source.is_private).collect::<Vec<_>>()
        };
        let mode = |mode| fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
        let other = 0xffff_fff0;
        mode(0o644);
        assert_eq!(stored(me, Some(&script)), [false]);
        assert_eq!(stored(other, Some(&script)), [false; 0]);
        // A jitdump may have texts itself.
        assert_eq!(stored(other, None), [false]);
        mode(0o600);
        assert_eq!(stored(me, Some(&script)), [true]);
    }
}
