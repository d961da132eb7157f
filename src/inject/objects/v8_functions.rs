//! What the jitdumps of V8 and the scripts on this machine have of its functions.

use crate::code::timeline::{CodeMapping, FileIndex};
use crate::debug_info::DebugInfo;
use crate::diagnostics::Issue;
use crate::indexed_table::IndexedTable;
use crate::inject::script_files::ScriptFiles;
use crate::inject::source_maps::SourceMapFiles;
use crate::load::{UsedFile, function_of};
use crate::runtime::jitdump::{Dump, FunctionSources};
use crate::runtime::names::SourceLocation;
use crate::runtime::{CodeFile, FunctionView, names};
use crate::script::Position;
use crate::script::known_functions::KnownFunctions;
use crate::script::original_lines::{self, SourceMaps};
use crate::script::v8_inlining::{self, Evidence, Inlined, Scripts};
use crate::tally::Tally;
use crate::threads;

/// The functions of each jitdump with code of V8 among `mappings`.
pub fn known_functions<'a>(
    files: &'a IndexedTable<FileIndex, UsedFile<'_>>,
    mappings: &[CodeMapping],
) -> IndexedTable<FileIndex, Option<KnownFunctions<'a>>> {
    let has_name = |mapping: &CodeMapping| {
        function_of(files, mapping.function).is_some_and(|view| names::is_v8(view.name))
    };
    let mut is_v8 = files.map(|_| false);
    for (mapping, has_name) in mappings.iter().zip(threads::map(mappings, has_name)) {
        is_v8[mapping.function.file] |= has_name;
    }
    let known = files.enumerate().map(|(file, used)| match &used.code {
        CodeFile::Jitdump(dump) if is_v8[file] => Some(functions_of(dump)),
        _ => None,
    });
    known.collect()
}

/// Returns the functions of a jitdump that V8 compiled from scripts.
pub fn functions_of<'a>(dump: &'a Dump<'_>) -> KnownFunctions<'a> {
    let mut functions = KnownFunctions::default();
    for number in 0..dump.function_count() as u32 {
        let Some(view) = dump.function(number).filter(|view| names::is_v8(view.name)) else {
            continue;
        };
        let entries = match names::is_v8_optimized(view.name) {
            true => None,
            false => dump.line_entries(&view),
        };
        let entries = entries.unwrap_or_default();
        let locations = names::source_locations(view.name);
        let known = locations
            .iter()
            .find(|location| entries.iter().any(|entry| entry.name == location.path));
        let Some(location) = known.or(locations.first()).filter(|location| location.column > 0) else {
            continue;
        };
        let start = Position {
            line: location.line,
            column: location.column,
        };
        let name = names::v8_function_name(view.name, location).unwrap_or_default();
        let positions = entries
            .iter()
            .filter(|entry| !entry.is_invalid() && entry.line > 0);
        let positions = positions.map(|entry| Position {
            line: entry.line,
            column: entry.column_or_discriminator,
        });
        functions.add(location.path, start, name, positions.collect());
    }
    functions.finish()
}

/// What is known of the functions of each jitdump.
#[derive(Debug)]
pub struct V8Functions<'a> {
    known: &'a IndexedTable<FileIndex, Option<KnownFunctions<'a>>>,
    scripts: Scripts<'a>,
    maps: SourceMaps<'a>,
}

impl<'a> V8Functions<'a> {
    /// Combines the functions of jitdumps and the texts of scripts.
    pub fn new(
        known: &'a IndexedTable<FileIndex, Option<KnownFunctions<'a>>>,
        scripts: &'a ScriptFiles,
        maps: &'a SourceMapFiles,
    ) -> Self {
        Self {
            known,
            scripts: scripts.by_path(),
            maps: maps.by_path(),
        }
    }

    /// Returns the lines and inlined calls of a function, in the files that people wrote, and the faults found in them.
    pub fn lines_of(
        &self,
        file: FileIndex,
        code: &'a CodeFile<'_>,
        view: &FunctionView<'a>,
    ) -> (Option<DebugInfo<'a>>, Tally<Issue>) {
        let FunctionSources { mut info, mut faults } = code.sources(view);
        if let Some(info) = &mut info {
            let inlined = self.add_calls(file, view, info);
            faults.add_many(Issue::InlinedLineUnknown, inlined.unknown, 0);
            self.use_source_maps(info);
        }
        (info, faults)
    }

    /// Replaces lines and names by those of the original files.
    fn use_source_maps(&self, info: &mut DebugInfo<'a>) {
        original_lines::replace(info, &self.maps, &self.scripts);
    }

    /// Returns the name of a function with its original name and position, if its script has a source map: prefix and tier
    /// stay.
    pub fn original_name(&self, name: &'a [u8]) -> Option<Vec<u8>> {
        if self.maps.is_empty() {
            return None;
        }
        let locations = names::source_locations(name);
        let mapped = |location: &&SourceLocation<'a>| self.maps.contains_key(location.path);
        let location = locations.iter().find(mapped)?;
        let own_name = names::v8_function_name(name, location)?;
        let start = Position {
            line: location.line,
            column: location.column,
        };
        let script = self.scripts.get(location.path).copied();
        let original = self.maps.get(location.path)?.function(script, start)?;
        // V8 names a function `name path:line:column`; prefix and tier are before the name.
        let head = memchr::memmem::rfind(name, location.path)?;
        let prefix = name.get(..head.checked_sub(own_name.len())?.checked_sub(1)?)?;
        let own_name = if original.name.is_empty() {
            own_name
        } else {
            original.name
        };
        let Position { line, column } = original.start;
        let position = format!(":{line}:{column}");
        Some([prefix, own_name, b" ", original.path, position.as_bytes()].concat())
    }

    /// Adds the inlined calls of a function, if V8 compiled it with any.
    fn add_calls(&self, file: FileIndex, view: &FunctionView<'a>, info: &mut DebugInfo<'a>) -> Inlined {
        let Some(functions) = self.known[file]
            .as_ref()
            .filter(|_| names::is_v8_optimized(view.name))
        else {
            return Inlined::default();
        };
        let size = u32::try_from(view.range.size()).unwrap_or(u32::MAX);
        let evidence = Evidence {
            functions,
            scripts: &self.scripts,
        };
        v8_inlining::add_calls(info, size, evidence).unwrap_or_default()
    }
}
