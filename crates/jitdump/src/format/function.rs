//! A function in a file: its name, code and lines.

use std::borrow::Cow;

use crate::collections::tally::Tally;
use crate::debug_info::DebugInfo;
use crate::fault::Fault;
use crate::format::debug_info;
use crate::format::debug_info::{LineEntry, ParsedDebugInfo};
use crate::format::debug_info2;
use crate::format::debug_info2::source_track::SourceTrack;
use crate::format::dump::{FunctionRecords, Index};
use crate::format::load::Load;
use crate::format::record;
use crate::format::record::{Contents, RecordLocation};
use crate::format::tier;
use crate::names;
use crate::names::{NameParts, SourceLocation};
use crate::units::AddressRange;

/// A function as its file describes it. All but its name and code is read when it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// Name as the runtime wrote it, without the NUL.
    pub name: &'a [u8],
    /// Machine code, exactly as long as `range`; `None` if the file has none.
    pub code: Option<&'a [u8]>,
    /// Addresses at which the code was first loaded.
    pub range: AddressRange,
    /// ID of the thread that loaded the code, as the runtime sees it; `None` if the file has none.
    pub tid: Option<u32>,
    /// `None` if its file is not a jitdump.
    records: Option<Records<'a>>,
}

/// The debug information of a function, and the faults found in it.
#[derive(Clone, Debug, Default)]
pub struct FunctionSources<'a> {
    /// Lines and inlined calls; `None` if the file has none.
    pub info: Option<DebugInfo<'a>>,
    /// Faults found in the debug information.
    pub faults: Tally<Fault>,
}

/// The records of a function in a jitdump.
#[derive(Clone, Copy, Debug)]
struct Records<'a> {
    index: &'a Index,
    contents: Contents<'a>,
    number: u32,
}

impl<'a> Function<'a> {
    /// Reads the LOAD record of the function with index `number`; `None` if there is no such function, or if the file has
    /// changed since the index was made.
    pub(crate) fn read(index: &'a Index, contents: Contents<'a>, number: u32) -> Option<Self> {
        let function = index.functions.get(number)?;
        let load = Load::parse(contents.of(function.load)?, index.header.endian)?;
        if (load.start, load.size) != (function.start, function.size) {
            return None;
        }
        Some(Self {
            name: load.name.get(..record::MAX_NAME).unwrap_or(load.name),
            code: Some(load.code),
            range: index.range(number)?,
            tid: Some(load.tid),
            records: Some(Records {
                index,
                contents,
                number,
            }),
        })
    }

    /// A function in a file with names and possibly code, but without lines.
    #[doc(hidden)]
    pub fn named(name: &'a [u8], code: Option<&'a [u8]>, range: AddressRange) -> Self {
        Self {
            name,
            code,
            range,
            tid: None,
            records: None,
        }
    }

    /// Returns the compiler tier, from the file's records or else from the name.
    pub fn tier(&self) -> Option<&'a [u8]> {
        let recorded = || self.records?.content(|function| function.tier);
        let by_name = || names::tier(self.name).map(str::as_bytes);
        recorded().and_then(tier::parse).or_else(by_name)
    }

    /// Returns the lines and inlined calls, with the embedded texts of their files.
    pub fn sources(&self) -> FunctionSources<'a> {
        let mut found = self.lines();
        if let (Some(info), Some(records)) = (&mut found.info, self.records) {
            records.add_texts(info);
        }
        found
    }

    /// Returns the lines and inlined calls, from the DEBUG_INFO2 record, else from the DEBUG_INFO record, else from the
    /// name.
    pub(crate) fn lines(&self) -> FunctionSources<'a> {
        let mut found = FunctionSources::default();
        let Some((records, function)) = self.located() else {
            return found;
        };
        let endian = records.index.header.endian;
        let mut read = |location: Option<RecordLocation>,
                        parse: &dyn Fn(&'a [u8]) -> Option<ParsedDebugInfo<'a>>| {
            let location = location?;
            let parsed = parse(records.contents.of(location)?);
            normalised(parsed, function.size, location, &mut found.faults)
        };
        let by_lists = |content| debug_info2::parse(content, function.size, endian);
        let by_entries =
            |content| debug_info::parse(content, self.name, self.range, records.index.quirks, endian);
        let lists = read(function.debug_info2, &by_lists);
        let info = match lists {
            Some(lists) if has_lines(&lists) => Some(lists),
            lists => read(function.debug_info, &by_entries)
                .filter(has_content)
                .or(lists)
                .filter(|info| has_content(info) || has_declaration(info))
                .or_else(|| names::declaration(self.name)),
        };
        found.info = info;
        found
    }

    /// Returns how the DEBUG_INFO2 record describes the function itself: its own name, and the file, line and column
    /// where it starts; `None` if it has no such record, or none of these are in it.
    pub fn declaration(&self) -> Option<NameParts<'a>> {
        let (records, function) = self.located()?;
        let content = records.contents.of(function.debug_info2?)?;
        let info = debug_info2::parse(content, function.size, records.index.header.endian)?.info;
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

    /// Returns the lines and inlined calls in a track; `None` if the function has no such track. Of several with
    /// the same name, the last one counts.
    pub fn track(&self, name: &[u8]) -> Option<FunctionSources<'a>> {
        let (location, track) = self.tracks().filter(|(_, track)| track.name == name).last()?;
        let mut found = FunctionSources::default();
        let info = self.track_info(location, track, &mut found.faults);
        found.info = info.filter(has_content);
        if let (Some(info), Some(records)) = (&mut found.info, self.records) {
            records.add_texts(info);
        }
        Some(found)
    }

    /// Returns the names of the tracks, in file order.
    #[doc(hidden)]
    pub fn track_names(&self) -> impl Iterator<Item = &'a [u8]> {
        self.tracks().map(|(_, track)| track.name)
    }

    /// Returns the faults in all tracks.
    #[doc(hidden)]
    pub fn track_faults(&self) -> Tally<Fault> {
        let mut faults = Tally::default();
        for (location, track) in self.tracks() {
            self.track_info(location, track, &mut faults);
        }
        faults
    }

    /// Returns the entries of the DEBUG_INFO record as they are in the file.
    #[doc(hidden)]
    pub fn line_entries(&self) -> Option<Vec<LineEntry<'a>>> {
        let records = self.records?;
        let content = records.content(|function| function.debug_info)?;
        debug_info::entries(content, self.name, self.range, records.index.header.endian)
    }

    fn located(&self) -> Option<(Records<'a>, FunctionRecords)> {
        let records = self.records?;
        Some((records, records.index.functions.get(records.number)?))
    }

    fn tracks(&self) -> impl Iterator<Item = (RecordLocation, SourceTrack<'a>)> {
        let tracks = self.records.map(|records| {
            let locations = records.index.functions.tracks(records.number);
            locations.filter_map(move |location| {
                let content = records.contents.of(location)?;
                let track = SourceTrack::parse(content, records.index.header.endian)?;
                Some((location, track))
            })
        });
        tracks.into_iter().flatten()
    }

    /// Reads the lines of a track, as far as they are valid in the function.
    fn track_info(
        &self,
        location: RecordLocation,
        track: SourceTrack<'a>,
        faults: &mut Tally<Fault>,
    ) -> Option<DebugInfo<'a>> {
        let size = u32::try_from(self.range.size()).ok()?;
        normalised(Some(track.read()), size, location, faults)
    }
}

impl<'a> Records<'a> {
    fn content(&self, location: impl FnOnce(&FunctionRecords) -> Option<RecordLocation>) -> Option<&'a [u8]> {
        let function = self.index.functions.get(self.number)?;
        self.contents.of(location(&function)?)
    }

    /// Adds the embedded texts to files: the last one before the function's LOAD record, or else the first.
    fn add_texts(&self, info: &mut DebugInfo<'a>) {
        let Some(load) = self.index.functions.load(self.number) else {
            return;
        };
        for file in &mut info.files {
            let Some(versions) = self.index.sources.get(&file.path[..]) else {
                continue;
            };
            let before = versions.partition_point(|version| version.record.offset < load.offset);
            let version = versions.get(before.saturating_sub(1));
            file.text =
                version.and_then(|version| version.text(self.contents.of(version.record)?, &file.path));
        }
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

/// Normalises the debug information of a function of `size` bytes that was parsed at `location`, and counts its faults.
/// `parsed` is `None` if none of it can be read.
fn normalised<'a>(
    parsed: Option<ParsedDebugInfo<'a>>,
    size: u32,
    location: RecordLocation,
    faults: &mut Tally<Fault>,
) -> Option<DebugInfo<'a>> {
    let Some(mut parsed) = parsed else {
        faults.add(Fault::BadDebugInfo, location.offset);
        return None;
    };
    if parsed.is_partial {
        faults.add(Fault::BadDebugInfo, location.offset);
    }
    let dropped = parsed.info.normalise(size);
    for (fault, count) in [
        (Fault::RepairedFileName, parsed.repaired),
        (Fault::LineOutside, parsed.outside.saturating_add(dropped.rows)),
        (
            Fault::LineInvalid,
            parsed
                .invalid
                .saturating_add(dropped.files)
                .saturating_add(dropped.lines),
        ),
        (
            Fault::CallInvalid,
            parsed.calls_lost.saturating_add(dropped.calls),
        ),
        (
            Fault::RangeInvalid,
            parsed.ranges_unpaired.saturating_add(dropped.ranges),
        ),
        (Fault::CallInsideLine, dropped.borders),
    ] {
        if count > 0 {
            faults.add_many(fault, count, location.offset);
        }
    }
    Some(parsed.info)
}

#[cfg(test)]
mod tests {
    use crate::bytes::ByteOrder;
    use crate::fault::Fault;
    use crate::format::Dump;
    use crate::machine::Machine;

    #[test]
    fn names_are_cut_after_64_kib() {
        for (length, faults) in [(65_536, 0), (65_537, 1)] {
            let order = ByteOrder::Little;
            let mut file = Vec::new();
            for word in [0x4A69_5444, 1, 40, 62, 0, 1, 0, 0, 0, 0] {
                order.write_u32(&mut file, word);
            }
            for word in [0, 16 + 40 + length + 1 + 3] {
                order.write_u32(&mut file, word);
            }
            // Time, process and thread, address twice, size of the code, index.
            for word in [1, 0, 0x1000, 0x1000, 3, 0] {
                order.write_u64(&mut file, word);
            }
            file.resize(file.len() + length as usize, b'x');
            file.extend_from_slice(b"\0abc");
            let dump = Dump::parse(&file, Machine::X86_64).unwrap();
            assert_eq!(dump.function(0).unwrap().name.len(), 65_536, "{length}");
            assert_eq!(dump.faults().count(Fault::LongName), faults, "{length}");
        }
    }
}
