//! DEBUG_INFO records: the line table of a function.
//!
//! ```text
//! u64 code_addr   u64 nr_entry
//! nr_entry times: u64 addr   u32 line   u32 discrim   name, NUL
//! ```
//!
//! V8, LLVM and Dart add 0x40 (0x34 on 32-bit machines) to each address, for a reader that has long changed.
//! Whether a jitdump has such addresses is decided once, by names or by the position of its entries. V8's
//! damaged file names are repaired, and other names of the same file are those in the function's name.

use crate::bytes::{ByteOrder, Reader};
use crate::collections::interner::Interner;
use crate::debug_info::{DebugInfo, LineRow, MAX_LINE, SourceFile, SourceFunction};
use crate::format::record::MAX_PADDING;
use crate::names::{self, SourceLocation};
use crate::units::{Address, AddressRange};

/// Size of an entry without its name, in bytes.
const ENTRY_SIZE: usize = 16;

/// Bytes that V8, LLVM and Dart add to every address: the size of an ELF header, here that of a 64-bit file.
pub const MAX_BIAS: u64 = 0x40;

/// The same of a 32-bit file.
const BIAS_OF_32_BITS: i128 = 0x34;

/// The name that means "same as in the previous entry".
const SAME_NAME: &[u8] = b"\xff";

/// How the entries of a jitdump are to be interpreted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DebugInfoQuirks {
    /// Bytes to subtract from each address.
    pub bias: u64,
    /// Whether the field after the line is a discriminator, as in the specification. V8 writes the column
    /// there, and so does every other runtime that writes anything but 0, except LLVM.
    pub has_discriminators: bool,
}

/// The debug information from a record, with counts of its faults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ParsedDebugInfo<'a> {
    /// Lines and inlined calls.
    pub info: DebugInfo<'a>,
    /// Number of entries with a damaged file name that was repaired.
    pub repaired: u64,
    /// Number of entries outside the function.
    pub outside: u64,
    /// Number of invalid entries: impossible line, invalid name, or a missing or cyclic caller.
    pub invalid: u64,
    /// Number of parts of inlined calls that were dropped because they were too many or nested too deep.
    pub calls_lost: u64,
    /// Number of ranges of inlined calls that are missing, or that no call has.
    pub ranges_unpaired: u64,
    /// Number of names and files that functions refer to and the record does not have.
    pub missing_indices: u64,
    /// Number of lines with a lower offset than the one before.
    pub unsorted: u64,
    /// Whether the number of entries is wrong, so that only the whole ones at the start were read.
    pub is_partial: bool,
}

/// An entry of a record, as it is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineEntry<'a> {
    /// Start address of the line's code, including what the writer adds to addresses.
    pub address: u64,
    /// Line number.
    pub line: u32,
    /// Discriminator or column.
    pub column_or_discriminator: u32,
    /// Name of the source file, without the NUL.
    pub name: &'a [u8],
    /// Whether the record refers to the name of the previous entry instead of writing it out.
    pub is_same_name: bool,
    /// Whether the name has no control characters.
    pub has_clean_name: bool,
    /// Whether the name was damaged and has been repaired.
    pub is_repaired: bool,
    /// Size of the entry in the record, in bytes.
    pub size: u32,
}

impl LineEntry<'_> {
    /// Returns whether the entry only marks the end of the code, like the last entries of Erlang and QEMU
    /// (captures erlang25, qemu).
    pub fn is_end(&self) -> bool {
        self.line == 0 && self.name.is_empty()
    }

    /// Returns the offset of the entry from a function's start, in bytes, after subtracting `bias`.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "numbers of 64 bits, their differences 128"
    )]
    pub fn offset(&self, start: Address, bias: u64) -> i128 {
        i128::from(self.address) - i128::from(start.0) - i128::from(bias)
    }

    /// Returns whether the entry is invalid: its line is impossible, or its name has control characters.
    pub fn is_invalid(&self) -> bool {
        self.line > MAX_LINE || !self.has_clean_name
    }
}

/// Numbers of examined functions by the offsets of their entries, from the start of the function.
#[derive(Clone, Copy, Debug, Default)]
struct OffsetCounts {
    /// Those with entries.
    functions: u64,
    /// With an entry exactly at the size of the header.
    exact: u64,
    /// With an entry below that, in the function.
    below: u64,
    /// With an entry that is in the function only without the size of the header.
    past_end: u64,
    /// With an entry that is not in the function without the size of the header.
    unmoved: u64,
}

impl DebugInfoQuirks {
    /// Detects the quirks of a jitdump from some of its functions: their names, addresses and entries.
    ///
    /// Quirk: V8, LLVM and Dart add the size of an ELF header to every address, because perf once put the code
    /// right after one (captures node20, node20-s390x-dump, lli14-mcjit, llvm19-jitlink). V8 is recognised by
    /// its function names. LLVM has an entry at exactly this offset in nearly all functions, and its last
    /// entries are past the end of the code. Dart's stubs have later first entries, but nearly all functions have
    /// entries past their end (3.13.4: 955 of the first 1,000), and none has others than moved ones. None
    /// of them has entries at lower offsets, except rows of other functions, which LLVM 19 adds to some
    /// functions. No other runtime has these patterns (captures java17, erlang25, qemu).
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes have 64 bits, their sums 128; no count is more than `functions`, which is not more than the records"
    )]
    pub fn detect<'a>(
        examined: impl Iterator<Item = (&'a [u8], AddressRange, Vec<LineEntry<'a>>)>,
        is_64: bool,
    ) -> Self {
        let bias = if is_64 {
            i128::from(MAX_BIAS)
        } else {
            BIAS_OF_32_BITS
        };
        let mut counts = OffsetCounts::default();
        let mut is_v8 = false;
        for (name, code, entries) in examined {
            let entries = entries.iter().filter(|entry| !entry.is_end());
            let offsets: Vec<i128> = entries.map(|entry| entry.offset(code.start, 0)).collect();
            let size = i128::from(code.size());
            let any = |range: std::ops::RangeInclusive<i128>| {
                u64::from(offsets.iter().any(|offset| range.contains(offset)))
            };
            counts.functions += u64::from(!offsets.is_empty());
            counts.exact += any(bias..=bias);
            counts.below += any(0..=bias - 1);
            counts.past_end += any(size + 1..=size + bias);
            let is_moved = |offset: &i128| (bias..=size + bias).contains(offset);
            counts.unmoved += u64::from(!offsets.iter().all(is_moved));
            is_v8 |= names::is_v8(name);
        }
        let functions = counts.functions;
        let nearly_all = |count: u64| count.saturating_mul(10) >= functions.saturating_mul(9);
        let is_llvm = !is_v8 && counts.past_end > 0 && nearly_all(counts.exact);
        let is_dart = nearly_all(functions - counts.unmoved) && nearly_all(counts.past_end);
        let is_biased =
            functions > 0 && nearly_all(functions - counts.below) && (is_v8 || is_llvm || is_dart);
        Self {
            bias: if is_biased { bias as u64 } else { 0 },
            has_discriminators: is_biased && is_llvm,
        }
    }
}

/// Reads the entries of a record, without interpreting them; `None` if the record is invalid.
pub fn entries<'a>(
    content: &'a [u8],
    name: &'a [u8],
    range: AddressRange,
    endian: ByteOrder,
) -> Option<Vec<LineEntry<'a>>> {
    read_entries(content, name, range, &names::source_locations(name), endian)
}

/// Parses the content of a record; `None` if it is invalid.
pub fn parse<'a>(
    content: &'a [u8],
    name: &'a [u8],
    range: AddressRange,
    quirks: DebugInfoQuirks,
    endian: ByteOrder,
) -> Option<ParsedDebugInfo<'a>> {
    let locations = names::source_locations(name);
    let mut lines = ParsedDebugInfo::default();
    let entries = match read_entries(content, name, range, &locations, endian) {
        Some(entries) => entries,
        None => {
            lines.is_partial = true;
            whole_entries(content, name, range, quirks.bias, endian)?
        }
    };
    let mut files = Files::default();
    let places = EntryPlaces::new(&entries, range, quirks.bias);
    // The file of entries without a file name.
    let own_file = locations.first().map(|location| location.path);
    lines.info.rows.reserve_exact(entries.len());
    lines.repaired = entries.iter().filter(|entry| entry.is_repaired).count() as u64;
    for (at, entry) in entries.iter().enumerate() {
        let place = places.place_of(entry, at == 0);
        if entry.is_invalid() {
            lines.invalid = lines.invalid.saturating_add(1);
            // Its code does not have the line of the entry before.
            if let EntryPlace::Code(offset) = place {
                lines.info.rows.push(LineRow {
                    offset,
                    ..LineRow::default()
                });
            }
            continue;
        }
        let offset = match place {
            EntryPlace::Code(offset) => offset,
            EntryPlace::Nowhere => continue,
            EntryPlace::Outside => {
                lines.outside = lines.outside.saturating_add(1);
                continue;
            }
        };
        let (column, discriminator) = if quirks.has_discriminators {
            (0, entry.column_or_discriminator)
        } else {
            (entry.column_or_discriminator, 0)
        };
        let name = Some(entry.name).filter(|name| !name.is_empty());
        lines.info.rows.push(LineRow {
            offset,
            file: name
                .or(own_file.filter(|_| entry.line > 0))
                .map(|name| files.number_of(name)),
            line: entry.line,
            column,
            discriminator,
        });
    }
    let function = files.declaration(name, &locations);
    if names::is_v8_baseline(name) {
        lines.outside = 0;
        lines.info.rows = baseline_row(&function, &lines.info.rows).into_iter().collect();
    }
    lines.info.functions = vec![function];
    lines.info.files = files.finish();
    Some(lines)
}

/// Returns the row of all code of V8's Sparkplug.
///
/// Quirk: V8 writes offsets in the bytecode of a function as addresses of its Sparkplug code, for which it has no other table
/// (captures node20, node20-arm64-fp: most are no multiples of 4). All of the code has the line of the function instead, or the
/// first one if its name has none. V8 is recognised by its function names.
fn baseline_row(function: &SourceFunction<'_>, rows: &[LineRow]) -> Option<LineRow> {
    let of_function = function.file.map(|file| LineRow {
        offset: 0,
        file: Some(file),
        line: function.line,
        column: function.column,
        discriminator: 0,
    });
    of_function.or(rows.first().map(|row| LineRow { offset: 0, ..*row }))
}

/// Where the code of an entry is.
enum EntryPlace {
    /// At this offset in the code of the function, in bytes.
    Code(u32),
    /// The entry marks the end of the code, or is for the header of the function.
    Nowhere,
    /// In no code of the function.
    Outside,
}

/// Where the code of the entries of a record is.
struct EntryPlaces {
    code: AddressRange,
    bias: u64,
    /// Whether an entry is for the first byte.
    has_start: bool,
}

impl EntryPlaces {
    /// Finds out whether an entry is at the start of the code.
    fn new(entries: &[LineEntry<'_>], code: AddressRange, bias: u64) -> Self {
        let has_start = entries.iter().any(|entry| entry.offset(code.start, bias) == 0);
        Self {
            code,
            bias,
            has_start,
        }
    }

    /// Returns where the code of an entry is. `is_first` is whether it is the first one of its function.
    fn place_of(&self, entry: &LineEntry<'_>, is_first: bool) -> EntryPlace {
        let size = i128::from(self.code.size());
        let offset = entry.offset(self.code.start, self.bias);
        if (0..size).contains(&offset) {
            EntryPlace::Code(offset as u32)
        } else if is_first && (-MAX_ERLANG_HEADER..0).contains(&offset) && !entry.is_invalid() {
            // Quirk: Erlang's first entry is for the function's header, below its code (capture erlang25).
            if self.has_start {
                EntryPlace::Nowhere
            } else {
                EntryPlace::Code(0)
            }
        } else if entry.is_end() || offset == size {
            EntryPlace::Nowhere
        } else {
            EntryPlace::Outside
        }
    }
}

/// Maximum distance in bytes between the start of the header of an Erlang function and its code.
const MAX_ERLANG_HEADER: i128 = 0x80;

/// Reads the entries at the start of a record whose number of entries is wrong, up to the first one that is invalid or not in
/// the function; `None` if there are none.
///
/// Not those of V8: its damaged names have any number of NULs, which are not ends of entries.
fn whole_entries<'a>(
    content: &'a [u8],
    name: &'a [u8],
    range: AddressRange,
    bias: u64,
    endian: ByteOrder,
) -> Option<Vec<LineEntry<'a>>> {
    if names::is_v8(name) {
        return None;
    }
    let mut reader = Reader::new(content, endian);
    reader.skip(16)?;
    let end = i128::from(range.size());
    let is_whole = |entry: &LineEntry<'_>| {
        let is_inside = (0..=end).contains(&entry.offset(range.start, bias));
        let is_text = || entry.is_same_name || std::str::from_utf8(entry.name).is_ok();
        is_inside && !entry.is_invalid() && is_text()
    };
    let entries: Vec<_> = EntryIter::new(reader, u64::MAX, None)
        .take_while(is_whole)
        .collect();
    (!entries.is_empty()).then_some(entries)
}

/// Returns an iterator over the entries of a record, up to the first truncated one.
pub fn entries_until_truncated(content: &[u8], endian: ByteOrder) -> EntryIter<'_> {
    let mut reader = Reader::new(content, endian);
    let _address = reader.u64();
    let left = reader.u64().unwrap_or_default();
    EntryIter::new(reader, left, None)
}

/// Reads the entries of a record whose function's name gives `locations`.
///
/// Quirk: V8 before 13.6 writes file names from freed memory: the length is correct, but the first 16 bytes
/// are overwritten, partly with NULs (23 of 68 records of capture node20). Such a name is repaired if its
/// remaining bytes match the path in the function's name. A path too short to have any is used if all entries
/// have the size that it implies.
fn read_entries<'a>(
    content: &'a [u8],
    name: &'a [u8],
    range: AddressRange,
    locations: &[SourceLocation<'a>],
    endian: ByteOrder,
) -> Option<Vec<LineEntry<'a>>> {
    let mut reader = Reader::new(content, endian);
    let _address = reader.u64()?;
    let count = reader.u64()?;
    let body = reader.rest();
    let paths = locations.iter().map(|location| location.path);
    let is_sound = |entries: &Vec<LineEntry<'a>>| !entries.iter().any(LineEntry::is_invalid);
    let by_path_end = || {
        let mut paths = paths.clone().filter(|_| names::is_v8(name));
        paths.find_map(|path| read_consecutive(body, count, endian, Some(path)).filter(is_sound))
    };
    let consecutive = || read_consecutive(body, count, endian, None);
    let by_path_size = || {
        paths
            .clone()
            .find_map(|path| read_equal_sized(body, count, endian, path, range))
    };
    // If all entries can be read consecutively, an invalid one is an isolated error.
    by_path_end()
        .or_else(|| consecutive().filter(is_sound))
        .or_else(by_path_size)
        .or_else(consecutive)
}

/// Reads consecutive entries; `None` unless they fill the record. Names that match `path` except for their
/// damaged start are repaired.
fn read_consecutive<'a>(
    body: &'a [u8],
    count: u64,
    endian: ByteOrder,
    path: Option<&'a [u8]>,
) -> Option<Vec<LineEntry<'a>>> {
    let room = body.len() / (ENTRY_SIZE + 1);
    let mut entries: Vec<LineEntry<'a>> =
        Vec::with_capacity(usize::try_from(count).map_or(room, |count| count.min(room)));
    let mut walk = EntryIter::new(Reader::new(body, endian), count, path);
    entries.extend(&mut walk);
    let padding = walk.rest();
    let is_at_end = padding.len() <= MAX_PADDING || padding.iter().all(|&byte| byte == 0);
    (walk.left == 0 && is_at_end).then_some(entries)
}

/// An iterator over consecutive entries. It stops after the last one, or at the first truncated one.
#[derive(Clone, Debug)]
pub struct EntryIter<'a> {
    reader: Reader<'a>,
    left: u64,
    /// The path that damaged names are compared with.
    path: Option<&'a [u8]>,
    /// The last name, and whether it has no control characters. Any number of entries can have a long one.
    last_name: Option<(&'a [u8], bool)>,
}

impl<'a> EntryIter<'a> {
    /// Iterates over the `left` entries that follow. Damaged names are compared with `path`.
    fn new(reader: Reader<'a>, left: u64, path: Option<&'a [u8]>) -> Self {
        Self {
            reader,
            left,
            path,
            last_name: None,
        }
    }

    /// Returns the bytes after the last entry that was read.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }
}

impl<'a> Iterator for EntryIter<'a> {
    type Item = LineEntry<'a>;

    fn next(&mut self) -> Option<LineEntry<'a>> {
        let left = self.left.checked_sub(1)?;
        let mut reader = self.reader;
        let (address, line, column_or_discriminator) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let damaged = self.path.filter(|path| is_damaged(reader.rest(), path));
        let name = match damaged {
            Some(path) => {
                reader.skip(path.len() as u64)?;
                reader.skip(1)?;
                path
            }
            None => reader.c_string()?,
        };
        let last = self.last_name.filter(|_| name == SAME_NAME);
        let size = self.rest().len().saturating_sub(reader.rest().len());
        let (name, has_clean_name) = last.unwrap_or_else(|| (name, is_clean(name)));
        (self.reader, self.left, self.last_name) = (reader, left, Some((name, has_clean_name)));
        Some(LineEntry {
            address,
            line,
            column_or_discriminator,
            name,
            is_same_name: last.is_some(),
            has_clean_name,
            is_repaired: damaged.is_some(),
            size: u32::try_from(size).unwrap_or(u32::MAX),
        })
    }
}

/// Number of bytes at the start of a name that V8's freed memory has lost.
const DAMAGED_SIZE: usize = 16;

/// Whether `bytes` start with a damaged copy of `path`: the end is intact, but the first [`DAMAGED_SIZE`] bytes are
/// not.
fn is_damaged(bytes: &[u8], path: &[u8]) -> bool {
    let (Some(name), Some(&0)) = (bytes.get(..path.len()), bytes.get(path.len())) else {
        return false;
    };
    let is_end_whole = path.len() > DAMAGED_SIZE && name.get(DAMAGED_SIZE..) == path.get(DAMAGED_SIZE..);
    is_end_whole && (!is_clean(name) || std::str::from_utf8(name).is_err())
}

/// Reads entries whose names are all as long as `path`, whatever they contain, and replaces them by `path`.
fn read_equal_sized<'a>(
    body: &[u8],
    count: u64,
    endian: ByteOrder,
    path: &'a [u8],
    range: AddressRange,
) -> Option<Vec<LineEntry<'a>>> {
    let size = path.len().checked_add(ENTRY_SIZE + 1)?;
    let total = usize::try_from(count).ok()?.checked_mul(size)?;
    let padding = body.len().checked_sub(total)?;
    if padding > MAX_PADDING {
        return None;
    }
    let low = range.start.0;
    let high = range.end.0.saturating_add(MAX_BIAS);
    let has_clean_name = is_clean(path);
    let entry = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes, endian);
        let (address, line, column_or_discriminator) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let is_sound = (low..=high).contains(&address) && line <= MAX_LINE && bytes.ends_with(&[0]);
        is_sound.then_some(LineEntry {
            address,
            line,
            column_or_discriminator,
            name: path,
            is_same_name: false,
            has_clean_name,
            is_repaired: true,
            size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        })
    };
    body.get(..total)?.chunks_exact(size).map(entry).collect()
}

/// Whether a name has no control characters.
fn is_clean(name: &[u8]) -> bool {
    !name.iter().any(u8::is_ascii_control)
}

/// The files of a function, without duplicates.
#[derive(Default)]
struct Files<'a> {
    paths: Interner<&'a [u8]>,
    /// The path that was added last, and its index: entries that share a name are not hashed again.
    last: Option<(&'a [u8], u32)>,
}

impl<'a> Files<'a> {
    /// Returns the number of a file, which is new if it has none yet.
    fn number_of(&mut self, path: &'a [u8]) -> u32 {
        if let Some((last, number)) = self.last
            && std::ptr::eq(last, path)
        {
            return number;
        }
        let number = self.paths.of(path);
        self.last = Some((path, number));
        number
    }

    fn has(&self, path: &'a [u8]) -> bool {
        self.paths.has(&path)
    }

    /// The path, if there is only one.
    fn only(&self) -> Option<&'a [u8]> {
        match self.paths.all.rows() {
            [path] => Some(*path),
            _ => None,
        }
    }

    /// Replaces the only path. Its index stays.
    fn rename_only(&mut self, path: &'a [u8]) {
        *self = Self::default();
        self.number_of(path);
    }

    /// Returns the function itself, where its name says that it is. If that is ambiguous, its file is one that an entry
    /// has, too.
    fn declaration(&mut self, name: &'a [u8], locations: &[SourceLocation<'a>]) -> SourceFunction<'a> {
        let known = locations.iter().find(|location| self.has(location.path));
        let mut location = known.or(locations.first()).copied();
        if known.is_none()
            && let Some(script) = self.only()
            && let Some(in_name) = names::v8_location(name, script)
        {
            self.rename_only(in_name.path);
            location = Some(in_name);
        }
        SourceFunction {
            name: b"",
            file: location.map(|location| self.number_of(location.path)),
            line: location.map_or(0, |location| location.line),
            column: location.map_or(0, |location| location.column),
        }
    }

    fn finish(self) -> Vec<SourceFile<'a>> {
        self.paths.all.into_iter().map(SourceFile::from).collect()
    }
}

#[cfg(test)]
mod tests;
