//! The index of a jitdump: where the records of its functions are.

use std::borrow::Cow;

use crate::collections::hash::HashMap;
use crate::collections::tally::Tally;
use crate::debug_info::DebugInfo;
use crate::fault::Fault;
use crate::format::debug_info;
use crate::format::debug_info::{DebugInfoQuirks, FunctionRef, LineEntry, ParsedDebugInfo};
use crate::format::debug_info2;
use crate::format::debug_info2::source_track::SourceTrack;
use crate::format::dump::function_table::FunctionTable;
use crate::format::header::Header;
use crate::format::load::Load;
use crate::format::record;
use crate::format::record::{Contents, RecordLocation};
use crate::format::source_file::EmbeddedSource;
use crate::format::tier;
use crate::format::unwinding::Unwinding;
use crate::function_view::FunctionView;
use crate::machine::Machine;
use crate::names;
use crate::names::{NameParts, SourceLocation};
use crate::units::AddressRange;

/// Embedded source files by path, in file order.
pub type EmbeddedSources = HashMap<Vec<u8>, Vec<EmbeddedText>>;

/// The text of an embedded source file.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedText {
    pub record: RecordLocation,
    /// Size of the text, in bytes.
    pub size: u64,
}

/// Number of functions with lines that are examined for quirks. All functions of a file come from the same runtime.
pub(super) const EXAMINED_FUNCTIONS: usize = 1000;

/// What a jitdump has, and where. Names, code and tables are read from its contents, which callers pass.
#[derive(Clone, Debug)]
pub struct Index {
    pub(super) header: Header,
    pub(super) machine: Machine,
    pub(super) functions: FunctionTable,
    pub(super) faults: Tally<Fault>,
    pub(super) quirks: DebugInfoQuirks,
    pub(super) sources: EmbeddedSources,
    /// Whether any function has a name of V8.
    pub(super) has_v8_code: bool,
}

/// The debug information of a function, and the faults found in it.
#[derive(Clone, Debug, Default)]
pub struct FunctionSources<'a> {
    /// Lines and inlined calls; `None` if the file has none.
    pub info: Option<DebugInfo<'a>>,
    /// Faults found in the debug information.
    pub faults: Tally<Fault>,
}

impl Index {
    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the machine that the code was compiled for.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns the faults found in the records that were read.
    pub fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }

    /// Returns the number of functions.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// Returns the addresses at which a function was first loaded; `None` if it has no code.
    pub fn range(&self, function: u32) -> Option<AddressRange> {
        self.functions.range(function)
    }

    /// Returns the description of the function with index `number`.
    pub fn function<'a>(&self, contents: Contents<'a>, number: u32) -> Option<FunctionView<'a>> {
        let function = self.functions.get(number)?;
        let endian = self.header.endian;
        let content = |location| contents.of(location);
        let load = Load::parse(content(function.load)?, endian)?;
        if (load.start, load.size) != (function.start, function.size) {
            // The file has changed since the index was made.
            return None;
        }
        Some(FunctionView {
            number,
            name: load.name.get(..record::MAX_NAME).unwrap_or(load.name),
            code: Some(load.code),
            range: self.range(number)?,
            code_index: load.code_index,
            recorded_tier: function.tier.and_then(content).and_then(tier::parse),
        })
    }

    /// Returns the unwinding table of a function.
    pub fn unwinding<'a>(&self, contents: Contents<'a>, function: u32) -> Option<Unwinding<'a>> {
        let location = self.functions.unwinding(function)?;
        Unwinding::parse(contents.of(location)?, self.header.endian).ok()?
    }

    /// Returns the lines and inlined calls of a function, with the embedded texts of its files.
    pub fn sources<'a>(&self, contents: Contents<'a>, view: &FunctionView<'a>) -> FunctionSources<'a> {
        let mut found = self.lines(contents, view);
        if let (Some(info), Some(function)) = (&mut found.info, self.functions.get(view.number)) {
            self.add_texts(contents, info, function.load.offset);
        }
        found
    }

    /// Returns the lines and inlined calls of a function, from its DEBUG_INFO2 record, else from its
    /// DEBUG_INFO record, else from its name.
    pub fn lines<'a>(&self, contents: Contents<'a>, view: &FunctionView<'a>) -> FunctionSources<'a> {
        let mut found = FunctionSources::default();
        let Some(function) = self.functions.get(view.number) else {
            return found;
        };
        let endian = self.header.endian;
        let mut read = |location: Option<RecordLocation>,
                        parse: &dyn Fn(&'a [u8]) -> Option<ParsedDebugInfo<'a>>| {
            let location = location?;
            let lines = parse(contents.of(location)?);
            normalised(lines, function.size, location, &mut found.faults)
        };
        let by_lists = |content| debug_info2::parse(content, function.size, endian);
        let by_entries = |content| debug_info::parse(content, function_ref(view), self.quirks, endian);
        let lists = read(function.debug_info2, &by_lists);
        let info = match lists {
            Some(lists) if has_lines(&lists) => Some(lists),
            lists => read(function.debug_info, &by_entries)
                .filter(has_content)
                .or(lists)
                .filter(|info| has_content(info) || has_declaration(info))
                .or_else(|| names::declaration(view.name)),
        };
        found.info = info;
        found
    }

    /// Returns how a function's DEBUG_INFO2 record describes the function itself: its own name, and the file, line and column
    /// where it starts; `None` if it has no such record, or none of these are in it.
    pub fn declaration<'a>(&self, contents: Contents<'a>, view: &FunctionView<'a>) -> Option<NameParts<'a>> {
        let function = self.functions.get(view.number)?;
        let content = contents.of(function.debug_info2?)?;
        let info = debug_info2::parse(content, function.size, self.header.endian)?.info;
        let declared = info.functions.first()?;
        let path = declared
            .file
            .and_then(|file| match info.files.get(file as usize)?.path {
                Cow::Borrowed(path) => Some(path),
                Cow::Owned(_) => None,
            });
        let parts = NameParts {
            function: declared.name,
            location: path.map(|path| SourceLocation {
                path,
                line: declared.line,
                column: declared.column,
            }),
        };
        (!parts.function.is_empty() || parts.location.is_some()).then_some(parts)
    }

    /// Returns the lines and inlined calls of a function in a track; `None` if it has no such track. Of several with
    /// the same name, the last one counts.
    pub(super) fn track<'a>(
        &self,
        contents: Contents<'a>,
        view: &FunctionView<'a>,
        name: &[u8],
    ) -> Option<FunctionSources<'a>> {
        let function = self.functions.get(view.number)?;
        let endian = self.header.endian;
        let tracks = self.functions.tracks(view.number).filter_map(|location| {
            let track = SourceTrack::parse(contents.of(location)?, endian)?;
            (track.name == name).then_some((location, track))
        });
        let (location, track) = tracks.last()?;
        let mut found = FunctionSources::default();
        found.info =
            normalised(Some(track.read()), function.size, location, &mut found.faults).filter(has_content);
        if let Some(info) = &mut found.info {
            self.add_texts(contents, info, function.load.offset);
        }
        Some(found)
    }

    /// Returns the names of a function's tracks, in file order.
    pub(super) fn track_names<'a>(&self, contents: Contents<'a>, view: &FunctionView<'a>) -> Vec<&'a [u8]> {
        let tracks = self.functions.tracks(view.number);
        let tracks = tracks.filter_map(|location| {
            Some(SourceTrack::parse(contents.of(location)?, self.header.endian)?.name)
        });
        tracks.collect()
    }

    /// Returns the faults in all tracks of a function.
    pub(super) fn track_faults<'a>(&self, contents: Contents<'a>, view: &FunctionView<'a>) -> Tally<Fault> {
        let mut faults = Tally::default();
        let Some(function) = self.functions.get(view.number) else {
            return faults;
        };
        for location in self.functions.tracks(view.number) {
            let content = contents.of(location);
            let track = content.and_then(|content| SourceTrack::parse(content, self.header.endian));
            let _ =
                track.and_then(|track| normalised(Some(track.read()), function.size, location, &mut faults));
        }
        faults
    }

    /// Returns the entries of a function's DEBUG_INFO record as they are in the file.
    pub(super) fn line_entries<'a>(
        &self,
        contents: Contents<'a>,
        view: &FunctionView<'a>,
    ) -> Option<Vec<LineEntry<'a>>> {
        let location = self.functions.get(view.number)?.debug_info?;
        let content = contents.of(location)?;
        debug_info::entries(content, function_ref(view), self.header.endian)
    }

    /// Adds the embedded texts to files, for a function whose LOAD record is at `offset`.
    fn add_texts<'a>(&self, contents: Contents<'a>, info: &mut DebugInfo<'a>, offset: u64) {
        for file in &mut info.files {
            let Some(versions) = self.sources.get(&file.path[..]) else {
                continue;
            };
            let before = versions.partition_point(|version| version.record.offset < offset);
            let version = versions.get(before.saturating_sub(1));
            file.text = version.and_then(|version| {
                let content = contents.of(version.record)?;
                Some(EmbeddedSource::parse(content, self.header.endian)?.text)
            });
        }
    }

    /// Detects how to interpret the entries of DEBUG_INFO records.
    pub(super) fn detect_quirks(&mut self, contents: Contents<'_>) {
        let with_lines = self.functions.with_debug_info();
        let with_lines = with_lines.filter_map(|(number, debug_info)| {
            let load = contents.of(self.functions.get(number)?.load)?;
            let name = Load::parse(load, self.header.endian)?.name;
            let range = self.range(number)?;
            Some((FunctionRef { name, range }, contents.of(debug_info)?))
        });
        let examined = with_lines.take(EXAMINED_FUNCTIONS);
        self.quirks = DebugInfoQuirks::detect(examined, self.header.endian, self.machine.is_64);
    }
}

/// The function that a DEBUG_INFO record is checked against.
fn function_ref<'a>(view: &FunctionView<'a>) -> FunctionRef<'a> {
    FunctionRef {
        name: view.name,
        range: view.range,
    }
}

/// Whether debug information has rows or inlined calls.
fn has_content(info: &DebugInfo<'_>) -> bool {
    !info.rows.is_empty() || !info.calls.is_empty()
}

/// Whether debug information has a line or an inlined call.
fn has_lines(info: &DebugInfo<'_>) -> bool {
    info.rows.iter().any(|row| row.line > 0) || !info.calls.is_empty()
}

/// Whether debug information has the name or the file of its function.
fn has_declaration(info: &DebugInfo<'_>) -> bool {
    let function = info.functions.first();
    function.is_some_and(|function| !function.name.is_empty() || function.file.is_some())
}

/// Normalises the debug information of a function of `size` bytes, and counts its faults; `None` if there is none.
fn normalised<'a>(
    lines: Option<ParsedDebugInfo<'a>>,
    size: u32,
    location: RecordLocation,
    faults: &mut Tally<Fault>,
) -> Option<DebugInfo<'a>> {
    let Some(mut lines) = lines else {
        faults.add(Fault::BadDebugInfo, location.offset);
        return None;
    };
    if lines.is_partial {
        faults.add(Fault::BadDebugInfo, location.offset);
    }
    let dropped = lines.info.normalise(size);
    for (fault, count) in [
        (Fault::RepairedFileName, lines.repaired),
        (Fault::LineOutside, lines.outside.saturating_add(dropped.rows)),
        (
            Fault::LineInvalid,
            lines
                .invalid
                .saturating_add(dropped.files)
                .saturating_add(dropped.lines),
        ),
        (Fault::CallInvalid, lines.calls_lost.saturating_add(dropped.calls)),
        (
            Fault::RangeInvalid,
            lines.ranges_unpaired.saturating_add(dropped.ranges),
        ),
        (Fault::CallInsideLine, dropped.borders),
    ] {
        if count > 0 {
            faults.add_many(fault, count, location.offset);
        }
    }
    Some(lines.info)
}
