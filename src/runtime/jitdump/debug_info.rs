//! DEBUG_INFO records: the lines of a function.
//!
//! ```text
//! u64 code_addr   u64 nr_entry
//! nr_entry times: u64 addr   u32 line   u32 discrim   name, NUL
//! ```

use rustc_hash::FxHashMap;

use crate::bytes::{ByteOrder, Reader};
use crate::debug_info::{DebugInfo, Row, SourceFile, SourceFunction};
use crate::runtime::names;
use crate::units::AddressRange;

/// Bytes of an entry before its name.
const ENTRY_SIZE: usize = 16;

/// Lines behind this one are no lines.
const MAX_LINE: u32 = 1 << 24;

/// Bytes that may stand behind the last entry: V8 pads its records to a multiple of 8.
const MAX_PADDING: usize = 7;

/// The name that stands for the one of the entry before.
const SAME_NAME: &[u8] = b"\xff";

/// What the entries of one dump mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conventions {
    /// What is to be taken from each address.
    pub bias: u64,
    /// Whether the number behind the line is what the specification says. V8, and whoever else puts something
    /// there, has the column there.
    pub has_discriminators: bool,
}

/// A function whose record is read.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Where it was loaded.
    pub range: AddressRange,
}

/// What was found, and what was wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lines<'a> {
    /// What was found.
    pub info: DebugInfo<'a>,
    /// Entries whose name was damaged and could be told.
    pub repaired: u64,
    /// Entries that lie outside the function.
    pub outside: u64,
}

/// One entry, its address as it stands there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry<'a> {
    address: u64,
    line: u32,
    number: u32,
    name: &'a [u8],
    is_repaired: bool,
}

impl Entry<'_> {
    /// Whether it only says where the code ends, as Erlang's and QEMU's last ones do (captures erlang25, qemu).
    fn is_end(&self) -> bool {
        self.line == 0 && self.name.is_empty()
    }
}

impl Conventions {
    /// Finds out what the entries of a dump mean from some of its functions and their records.
    ///
    /// Quirk: V8 and LLVM add the size of an ELF header to every address, since perf once put the code right
    /// behind one (captures node20, node20-s390x-dump, lli14-mcjit, llvm19-jitlink). V8 is known by its names.
    /// LLVM's first entry is exactly there in nearly all functions, and its last ones lie behind the code. No
    /// other runtime does that (captures java17, erlang25, qemu).
    pub fn find<'a>(
        records: impl Iterator<Item = (Subject<'a>, &'a [u8])>,
        order: ByteOrder,
        is_64: bool,
    ) -> Self {
        let bias = if is_64 { 0x40 } else { 0x34 };
        let (mut functions, mut exact, mut behind) = (0u64, 0u64, 0u64);
        let mut is_v8 = false;
        for (subject, content) in records {
            let Some(entries) = read(content, subject, order) else {
                continue;
            };
            let mut offsets = entries
                .iter()
                .filter(|entry| !entry.is_end())
                .map(|entry| entry.address.wrapping_sub(subject.range.start.0) as i64);
            let Some(first) = offsets.next() else { continue };
            if first < bias {
                return Self::default();
            }
            functions += 1;
            exact += u64::from(first == bias);
            behind += u64::from(offsets.any(|offset| offset > subject.range.size() as i64));
            is_v8 |= names::is_v8(subject.name);
        }
        let is_llvm = !is_v8 && behind > 0 && exact * 10 >= functions * 9;
        Self {
            bias: if is_v8 || is_llvm { bias as u64 } else { 0 },
            has_discriminators: is_llvm,
        }
    }
}

/// Reads the content of a record; `None` if it can't be understood.
pub fn parse<'a>(
    content: &'a [u8],
    subject: Subject<'a>,
    conventions: Conventions,
    order: ByteOrder,
) -> Option<Lines<'a>> {
    let entries = read(content, subject, order)?;
    let mut lines = Lines::default();
    let mut files = Files::default();
    let size = i128::from(subject.range.size());
    let offset = |entry: &Entry<'_>| {
        i128::from(entry.address) - i128::from(subject.range.start.0) - i128::from(conventions.bias)
    };
    let has_start = entries.iter().any(|entry| offset(entry) == 0);
    for (at, entry) in entries.iter().enumerate() {
        lines.repaired += u64::from(entry.is_repaired);
        let mut offset = offset(entry);
        // Quirk: Erlang's first entry is that of the function's header, below its code (capture erlang25).
        if at == 0 && (-HEADER_SIZE..0).contains(&offset) && !has_start {
            offset = 0;
        }
        if !(0..size).contains(&offset) {
            // Where the code ends is known without being told.
            lines.outside += u64::from(!entry.is_end() && offset != size);
            continue;
        }
        let (column, discriminator) = match conventions.has_discriminators {
            true => (0, entry.number),
            false => (entry.number, 0),
        };
        lines.info.rows.push(Row {
            offset: offset as u32,
            file: (!entry.name.is_empty()).then(|| files.add(entry.name)),
            line: entry.line,
            column,
            discriminator,
        });
    }
    let place = place_of(subject, |path| files.has(path));
    lines.info.functions = vec![SourceFunction {
        name: b"",
        file: place.map(|place| files.add(place.path)),
        line: place.map_or(0, |place| place.line),
        column: place.map_or(0, |place| place.column),
    }];
    lines.info.files = files.finish();
    Some(lines)
}

/// What is known of a function that has no record, from its name.
pub fn of_name(name: &[u8]) -> Option<DebugInfo<'_>> {
    let place = *names::places(name).first()?;
    Some(DebugInfo {
        files: vec![place.path.into()],
        functions: vec![SourceFunction {
            name: b"",
            file: Some(0),
            line: place.line,
            column: place.column,
        }],
        ..DebugInfo::default()
    })
}

/// How far below its code a function's header may start, in bytes.
const HEADER_SIZE: i128 = 0x80;

/// Where a function's name says that it is: of several readings, the one whose file is known.
fn place_of<'a>(subject: Subject<'a>, is_known: impl Fn(&[u8]) -> bool) -> Option<names::Place<'a>> {
    let places = names::places(subject.name);
    let known = places.iter().find(|place| is_known(place.path));
    known.or(places.first()).copied()
}

/// The entries of a record.
///
/// Quirk: V8 before 13.6 writes file names from memory that it has freed, as long as the right one, but with
/// other bytes in place of the first 16, NULs among them (23 of 68 records of capture node20). What is left of
/// the name tells whether it is the one in the function's own name. Where that name is too short for anything
/// to be left of it, all entries having the same size does.
fn read<'a>(content: &'a [u8], subject: Subject<'a>, order: ByteOrder) -> Option<Vec<Entry<'a>>> {
    let mut reader = Reader::new(content, order);
    let _address = reader.u64()?;
    let count = reader.u64()?;
    let body = reader.rest();
    let places = names::places(subject.name);
    let paths = places.iter().map(|place| place.path);
    let by_end = || {
        let mut paths = paths.clone().filter(|_| names::is_v8(subject.name));
        paths.find_map(|path| walk(body, count, order, Some(path)))
    };
    let by_size = || {
        paths
            .clone()
            .find_map(|path| stride(body, count, order, path, subject))
    };
    by_end()
        .or_else(|| walk(body, count, order, None))
        .or_else(by_size)
}

/// Reads entries one behind the other; `None` if that leads out of step. Names of which only the end is that
/// of `path` are taken for it.
fn walk<'a>(body: &'a [u8], count: u64, order: ByteOrder, path: Option<&'a [u8]>) -> Option<Vec<Entry<'a>>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    let mut reader = Reader::new(body, order);
    for _ in 0..count {
        let (address, line, number) = (reader.u64()?, reader.u32()?, reader.u32()?);
        if line > MAX_LINE {
            return None;
        }
        let damaged = path.filter(|path| is_damaged(reader.rest(), path));
        let name = match damaged {
            Some(path) => {
                reader.skip(path.len() as u64 + 1)?;
                path
            }
            None => {
                let end = memchr::memchr(0, reader.rest())?;
                let name = reader.bytes(end as u64)?;
                reader.skip(1)?;
                name
            }
        };
        let name = match entries.last() {
            Some(last) if name == SAME_NAME => last.name,
            _ if is_clean(name) => name,
            _ => return None,
        };
        entries.push(Entry {
            address,
            line,
            number,
            name,
            is_repaired: damaged.is_some(),
        });
    }
    (reader.rest().len() <= MAX_PADDING).then_some(entries)
}

/// How much of a name V8's freed memory has lost.
const LOST: usize = 16;

/// Whether `bytes` start with a name of which only the end is that of `path`.
fn is_damaged(bytes: &[u8], path: &[u8]) -> bool {
    let (Some(name), Some(&0)) = (bytes.get(..path.len()), bytes.get(path.len())) else {
        return false;
    };
    let is_end_whole = path.len() > LOST && name.get(LOST..) == path.get(LOST..);
    is_end_whole && (!is_clean(name) || std::str::from_utf8(name).is_err())
}

/// Reads entries that all have names as long as `path`, whatever is in them.
fn stride<'a>(
    body: &[u8],
    count: u64,
    order: ByteOrder,
    path: &'a [u8],
    subject: Subject<'_>,
) -> Option<Vec<Entry<'a>>> {
    let size = ENTRY_SIZE + path.len() + 1;
    let total = usize::try_from(count).ok()?.checked_mul(size)?;
    let padding = body.len().checked_sub(total)?;
    if padding > MAX_PADDING {
        return None;
    }
    let low = subject.range.start.0;
    let high = subject.range.end.0.saturating_add(NEAR_FUNCTION);
    let entry = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes, order);
        let (address, line, number) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let is_sound = (low..=high).contains(&address) && line <= MAX_LINE && bytes.ends_with(&[0]);
        is_sound.then_some(Entry {
            address,
            line,
            number,
            name: path,
            is_repaired: true,
        })
    };
    body.get(..total)?.chunks_exact(size).map(entry).collect()
}

/// How far behind its function an entry may lie: the bias of V8.
const NEAR_FUNCTION: u64 = 0x40;

/// Whether a name has no control characters.
fn is_clean(name: &[u8]) -> bool {
    !name.iter().any(u8::is_ascii_control)
}

/// The files of a function, each once.
#[derive(Default)]
struct Files<'a> {
    known: FxHashMap<&'a [u8], u32>,
    paths: Vec<&'a [u8]>,
}

impl<'a> Files<'a> {
    fn add(&mut self, path: &'a [u8]) -> u32 {
        *self.known.entry(path).or_insert_with(|| {
            self.paths.push(path);
            self.paths.len() as u32 - 1
        })
    }

    fn has(&self, path: &[u8]) -> bool {
        self.known.contains_key(path)
    }

    fn finish(self) -> Vec<SourceFile<'a>> {
        self.paths.into_iter().map(SourceFile::from).collect()
    }
}
