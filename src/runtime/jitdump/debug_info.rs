//! DEBUG_INFO records: the lines of a function.
//!
//! ```text
//! u64 code_addr   u64 nr_entry
//! nr_entry times: u64 addr   u32 line   u32 discrim   name, NUL
//! ```

use crate::bytes::{ByteOrder, Reader};
use crate::debug_info::{DebugInfo, Row, SourceFile, SourceFunction};
use crate::hash::HashMap;
use crate::runtime::jitdump::record::MAX_PADDING;
use crate::runtime::names;
use crate::units::AddressRange;

/// Bytes of an entry before its name.
const ENTRY_SIZE: usize = 16;

/// Lines behind this one are no lines.
const MAX_LINE: u32 = 1 << 24;

/// What V8 and LLVM add to every address, in bytes: the size of an ELF header, here the larger one.
pub const MAX_BIAS: u64 = 0x40;

/// The name that stands for the one of the entry before.
const SAME_NAME: &[u8] = b"\xff";

/// What the entries of one dump mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DebugInfoQuirks {
    /// What is to be taken from each address.
    pub bias: u64,
    /// Whether the number behind the line is what the specification says. V8, and whoever else puts something
    /// there, has the column there.
    pub has_discriminators: bool,
}

/// A function whose record is read.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRef<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Where it was loaded.
    pub range: AddressRange,
}

impl FunctionRef<'_> {
    /// How far behind its start an entry lies, in bytes.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "numbers of 64 bits, their differences 128"
    )]
    pub fn offset(&self, entry: &Entry<'_>, bias: u64) -> i128 {
        i128::from(entry.address) - i128::from(self.range.start.0) - i128::from(bias)
    }
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
    /// Entries that can't be: of an impossible line, with a name that is none, or that lead nowhere or in
    /// circles.
    pub astray: u64,
    /// Parts of inlined calls that were too many or too deep.
    pub calls_lost: u64,
}

/// One entry, its address as it stands there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Where the code of the line starts, with what its writer adds to addresses.
    pub address: u64,
    /// The line.
    pub line: u32,
    /// Its discriminator, or its column.
    pub number: u32,
    /// The file's name, without the NUL.
    pub name: &'a [u8],
    /// Whether the name is not written out: it is that of the entry before.
    pub is_same_name: bool,
    /// Whether the name was damaged, and could be told.
    pub is_repaired: bool,
    /// How many bytes of the record it takes.
    pub size: u32,
}

impl Entry<'_> {
    /// Whether it only says where the code ends, as Erlang's and QEMU's last ones do (captures erlang25,
    /// qemu).
    pub fn is_end(&self) -> bool {
        self.line == 0 && self.name.is_empty()
    }

    /// Whether it can't be: of an impossible line, or with a name that is none.
    pub fn is_odd(&self) -> bool {
        self.line > MAX_LINE || !is_clean(self.name)
    }
}

impl DebugInfoQuirks {
    /// Finds out what the entries of a dump mean from some of its functions and their records.
    ///
    /// Quirk: V8 and LLVM add the size of an ELF header to every address, since perf once put the code right
    /// behind one (captures node20, node20-s390x-dump, lli14-mcjit, llvm19-jitlink). V8 is known by its
    /// names. LLVM has an entry exactly there in nearly all functions, and its last ones lie behind the code.
    /// Neither has any below, but for rows of other functions, which LLVM 19 adds to some. No other runtime
    /// looks like that (captures java17, erlang25, qemu).
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes have 64 bits, their sums 128; `below` is not more than `functions`, which is not more than the records"
    )]
    pub fn find<'a>(
        records: impl Iterator<Item = (FunctionRef<'a>, &'a [u8])>,
        order: ByteOrder,
        is_64: bool,
    ) -> Self {
        let bias = if is_64 { i128::from(MAX_BIAS) } else { 0x34 };
        let (mut functions, mut exact, mut below, mut behind) = (0u64, 0u64, 0u64, 0u64);
        let mut is_v8 = false;
        for (subject, content) in records {
            let Some(entries) = entries(content, subject, order) else {
                continue;
            };
            let entries = entries.iter().filter(|entry| !entry.is_end());
            let offsets: Vec<i128> = entries.map(|entry| subject.offset(entry, 0)).collect();
            let size = i128::from(subject.range.size());
            let any = |range: std::ops::RangeInclusive<i128>| {
                u64::from(offsets.iter().any(|offset| range.contains(offset)))
            };
            functions += u64::from(!offsets.is_empty());
            exact += any(bias..=bias);
            below += any(0..=bias - 1);
            behind += any(size + 1..=size + bias);
            is_v8 |= names::is_v8(subject.name);
        }
        let nearly_all = |count: u64| count.saturating_mul(10) >= functions.saturating_mul(9);
        let is_llvm = !is_v8 && behind > 0 && nearly_all(exact);
        let is_biased = functions > 0 && nearly_all(functions - below) && (is_v8 || is_llvm);
        Self {
            bias: if is_biased { bias as u64 } else { 0 },
            has_discriminators: is_biased && is_llvm,
        }
    }
}

/// The entries of a record as they stand there; `None` if it can't be understood.
pub fn entries<'a>(content: &'a [u8], subject: FunctionRef<'a>, order: ByteOrder) -> Option<Vec<Entry<'a>>> {
    read(content, subject, &names::places(subject.name), order)
}

/// Reads the content of a record; `None` if it can't be understood.
pub fn parse<'a>(
    content: &'a [u8],
    subject: FunctionRef<'a>,
    conventions: DebugInfoQuirks,
    order: ByteOrder,
) -> Option<Lines<'a>> {
    let places = names::places(subject.name);
    let entries = read(content, subject, &places, order)?;
    let mut lines = Lines::default();
    let mut files = Files::default();
    let size = i128::from(subject.range.size());
    let offset = |entry: &Entry<'_>| subject.offset(entry, conventions.bias);
    let has_start = entries.iter().any(|entry| offset(entry) == 0);
    // Whose file is not named is of the function's own.
    let own_file = places.first().map(|place| place.path);
    lines.info.rows.reserve_exact(entries.len());
    lines.repaired = entries.iter().filter(|entry| entry.is_repaired).count() as u64;
    for (at, entry) in entries.iter().enumerate() {
        if entry.is_odd() {
            lines.astray = lines.astray.saturating_add(1);
            continue;
        }
        let mut offset = offset(entry);
        // Quirk: Erlang's first entry is that of the function's header, below its code (capture erlang25).
        if at == 0 && (-HEADER_SIZE..0).contains(&offset) {
            if has_start {
                continue;
            }
            offset = 0;
        }
        if !(0..size).contains(&offset) {
            // Where the code ends is known without being told.
            let is_the_end = entry.is_end() || offset == size;
            lines.outside = lines.outside.saturating_add(u64::from(!is_the_end));
            continue;
        }
        let (column, discriminator) = match conventions.has_discriminators {
            true => (0, entry.number),
            false => (entry.number, 0),
        };
        let name = Some(entry.name).filter(|name| !name.is_empty());
        lines.info.rows.push(Row {
            offset: offset as u32,
            file: name
                .or(own_file.filter(|_| entry.line > 0))
                .map(|name| files.add(name)),
            line: entry.line,
            column,
            discriminator,
        });
    }
    // Of several readings of the name, the one whose file is known.
    let known = places.iter().find(|place| files.has(place.path));
    let place = known.or(places.first());
    lines.info.functions = vec![SourceFunction {
        name: b"",
        file: place.map(|place| files.add(place.path)),
        line: place.map_or(0, |place| place.line),
        column: place.map_or(0, |place| place.column),
    }];
    lines.info.files = files.finish();
    Some(lines)
}

/// How far below its code a function's header may start, in bytes.
const HEADER_SIZE: i128 = 0x80;

/// The entries of a record one behind the other, as far as they go.
pub fn entries_in_step(content: &[u8], order: ByteOrder) -> Walk<'_> {
    let mut reader = Reader::new(content, order);
    let _address = reader.u64();
    let left = reader.u64().unwrap_or_default();
    Walk::new(reader, left, None)
}

/// The entries of a record, of a function whose name says that it may be at `places`.
///
/// Quirk: V8 before 13.6 writes file names from memory that it has freed, as long as the right one, but with
/// other bytes in place of the first 16, NULs among them (23 of 68 records of capture node20). What is left
/// of the name tells whether it is the one in the function's own name. Where that name is too short for
/// anything to be left of it, all entries having the same size does.
fn read<'a>(
    content: &'a [u8],
    subject: FunctionRef<'a>,
    places: &[names::Place<'a>],
    order: ByteOrder,
) -> Option<Vec<Entry<'a>>> {
    let mut reader = Reader::new(content, order);
    let _address = reader.u64()?;
    let count = reader.u64()?;
    let body = reader.rest();
    let paths = places.iter().map(|place| place.path);
    let is_sound = |entries: &Vec<Entry<'a>>| !entries.iter().any(Entry::is_odd);
    let by_end = || {
        let mut paths = paths.clone().filter(|_| names::is_v8(subject.name));
        paths.find_map(|path| walk(body, count, order, Some(path)).filter(is_sound))
    };
    let in_step = || walk(body, count, order, None);
    let by_size = || {
        paths
            .clone()
            .find_map(|path| stride(body, count, order, path, subject))
    };
    // Where entries follow each other up to the end, an odd one is a single damage.
    by_end()
        .or_else(|| in_step().filter(is_sound))
        .or_else(by_size)
        .or_else(in_step)
}

/// Reads entries one behind the other; `None` if that leads out of step. Names of which only the end is that
/// of `path` are taken for it.
fn walk<'a>(body: &'a [u8], count: u64, order: ByteOrder, path: Option<&'a [u8]>) -> Option<Vec<Entry<'a>>> {
    let room = body.len() / (ENTRY_SIZE + 1);
    let mut entries: Vec<Entry<'a>> =
        Vec::with_capacity(usize::try_from(count).map_or(room, |count| count.min(room)));
    let mut walk = Walk::new(Reader::new(body, order), count, path);
    entries.extend(&mut walk);
    let padding = walk.rest();
    let is_at_end = padding.len() <= MAX_PADDING || padding.iter().all(|&byte| byte == 0);
    (walk.left == 0 && is_at_end).then_some(entries)
}

/// A walk over entries, one behind the other. It ends behind the last one, or where one is not whole.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    reader: Reader<'a>,
    left: u64,
    /// What names are taken for of which only the end is there.
    path: Option<&'a [u8]>,
    last_name: Option<&'a [u8]>,
}

impl<'a> Walk<'a> {
    fn new(reader: Reader<'a>, left: u64, path: Option<&'a [u8]>) -> Self {
        Self {
            reader,
            left,
            path,
            last_name: None,
        }
    }

    /// What is behind the last entry.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let left = self.left.checked_sub(1)?;
        let mut reader = self.reader;
        let (address, line, number) = (reader.u64()?, reader.u32()?, reader.u32()?);
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
        (self.reader, self.left, self.last_name) = (reader, left, Some(last.unwrap_or(name)));
        Some(Entry {
            address,
            line,
            number,
            name: last.unwrap_or(name),
            is_same_name: last.is_some(),
            is_repaired: damaged.is_some(),
            size: u32::try_from(size).unwrap_or(u32::MAX),
        })
    }
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
    subject: FunctionRef<'_>,
) -> Option<Vec<Entry<'a>>> {
    let size = path.len().checked_add(ENTRY_SIZE + 1)?;
    let total = usize::try_from(count).ok()?.checked_mul(size)?;
    let padding = body.len().checked_sub(total)?;
    if padding > MAX_PADDING {
        return None;
    }
    let low = subject.range.start.0;
    let high = subject.range.end.0.saturating_add(MAX_BIAS);
    let entry = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes, order);
        let (address, line, number) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let is_sound = (low..=high).contains(&address) && line <= MAX_LINE && bytes.ends_with(&[0]);
        is_sound.then_some(Entry {
            address,
            line,
            number,
            name: path,
            is_same_name: false,
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

/// The files of a function, each once.
#[derive(Default)]
struct Files<'a> {
    known: HashMap<&'a [u8], u32>,
    paths: Vec<&'a [u8]>,
}

impl<'a> Files<'a> {
    fn add(&mut self, path: &'a [u8]) -> u32 {
        *self.known.entry(path).or_insert_with(|| {
            let number = self.paths.len() as u32;
            self.paths.push(path);
            number
        })
    }

    fn has(&self, path: &[u8]) -> bool {
        self.known.contains_key(path)
    }

    fn finish(self) -> Vec<SourceFile<'a>> {
        self.paths.into_iter().map(SourceFile::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Address;

    const START: u64 = 0x1000;
    const SIZE: u64 = 0x200;
    const ORDER: ByteOrder = ByteOrder::Little;

    fn subject(name: &[u8]) -> FunctionRef<'_> {
        FunctionRef {
            name,
            range: AddressRange::new(Address(START), SIZE).unwrap(),
        }
    }

    /// A record with entries of offset, line and name, followed by some bytes.
    fn record(entries: &[(i64, u32, &[u8])], rest: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        ORDER.put_u64(&mut out, START);
        ORDER.put_u64(&mut out, entries.len() as u64);
        for (offset, line, name) in entries {
            ORDER.put_u64(&mut out, START.wrapping_add_signed(*offset));
            ORDER.put_u32(&mut out, *line);
            ORDER.put_u32(&mut out, 3);
            out.extend_from_slice(name);
            out.push(0);
        }
        out.extend_from_slice(rest);
        out
    }

    /// The offset, line and file of each row.
    fn rows(name: &[u8], content: &[u8], conventions: DebugInfoQuirks) -> Option<Vec<(u32, u32, String)>> {
        let lines = parse(content, subject(name), conventions, ORDER)?;
        let file = |row: &Row| {
            let file = row.file.map(|file| lines.info.files[file as usize].path.to_vec());
            String::from_utf8(file.unwrap_or_default()).unwrap()
        };
        Some(
            lines
                .info
                .rows
                .iter()
                .map(|row| (row.offset, row.line, file(row)))
                .collect(),
        )
    }

    fn of(rows: &[(u32, u32, &str)]) -> Option<Vec<(u32, u32, String)>> {
        Some(
            rows.iter()
                .map(|&(offset, line, file)| (offset, line, file.to_owned()))
                .collect(),
        )
    }

    #[test]
    fn names_repeat_and_ends_are_no_lines() {
        let content = record(
            &[
                (-0x31, 7, b"a.erl"),
                (8, 8, b"\xff"),
                (4, 9, b"b.erl"),
                (0x200, 0, b""),
            ],
            b"",
        );
        let plain = DebugInfoQuirks::default();
        let expected = of(&[(0, 7, "a.erl"), (8, 8, "a.erl"), (4, 9, "b.erl")]);
        assert_eq!(rows(b"m:f/1", &content, plain), expected);
        let lines = parse(&content, subject(b"m:f/1"), plain, ORDER).unwrap();
        assert_eq!(lines.outside, 0);
    }

    #[test]
    fn rows_of_other_functions_are_counted() {
        let content = record(&[(-0x500, 1, b"a.c"), (0, 2, b"a.c"), (0x300, 3, b"a.c")], b"");
        let lines = parse(&content, subject(b"f"), DebugInfoQuirks::default(), ORDER).unwrap();
        assert_eq!((lines.info.rows.len(), lines.outside), (1, 2));
    }

    /// As long as the right one, its first bytes overwritten, as V8 does it.
    fn damaged(path: &[u8]) -> Vec<u8> {
        let mut name = path.to_vec();
        let lost = name.len().min(LOST);
        name[..lost].copy_from_slice(&b"\x2d\xdc\x02\xf4\x64\x7f\0\0\x34\x17\xda\xd9\0\x19\x29\x47"[..lost]);
        name
    }

    #[test]
    fn damaged_names_are_told_from_the_function() {
        let path = b"/tmp/project/work.js";
        let bad = damaged(path);
        for (name, padding) in [
            (&b"JS:^f /tmp/project/work.js:1:2"[..], &b""[..]),
            (b"JS:^f", b""),
            (b"JS:^with space /tmp/project/work.js:1:2", b"\0\xab\0\0\0\0\x01"),
        ] {
            let content = record(
                &[(0x40, 1, &bad), (0x48, 2, b"node:path"), (0x50, 3, path)],
                padding,
            );
            let biased = DebugInfoQuirks {
                bias: 0x40,
                has_discriminators: false,
            };
            let work = "/tmp/project/work.js";
            let expected = of(&[(0, 1, work), (8, 2, "node:path"), (16, 3, work)]);
            let expected = expected.filter(|_| name.contains(&b'/'));
            assert_eq!(rows(name, &content, biased), expected);
        }
        // too short for anything to be left of it: all entries have the same size
        let bad = damaged(b"short.js");
        let content = record(&[(0x40, 1, &bad), (0x48, 2, &bad)], b"");
        let found = rows(b"JS:^f short.js:1:2", &content, DebugInfoQuirks::default());
        assert_eq!(found, of(&[(0x40, 1, "short.js"), (0x48, 2, "short.js")]));
    }

    #[test]
    fn the_bias_is_that_of_v8_and_llvm_only() {
        let find = |name: &'static [u8], offsets: &[&[i64]]| {
            let entries = offsets.iter().map(|offsets| {
                let entries: Vec<_> = offsets.iter().map(|&offset| (offset, 1, &b"a"[..])).collect();
                record(&entries, b"")
            });
            let records: Vec<Vec<u8>> = entries.collect();
            let pairs = records.iter().map(|content| (subject(name), &content[..]));
            DebugInfoQuirks::find(pairs, ORDER, true).bias
        };
        // V8: never below, not always exactly there
        assert_eq!(find(b"JS:^f a.js:1:1", &[&[0x40, 0x60], &[0x47]]), 0x40);
        assert_eq!(find(b"JS:^f a.js:1:1", &[&[0x10, 0x60], &[0x47]]), 0);
        // LLVM: exactly there, and behind the end; rows of another function do not disturb
        assert_eq!(find(b"main", &[&[0x40, 0x220], &[-0x300, 0x40, 0x210]]), 0x40);
        // a method of Java's whose first line comes as late
        assert_eq!(find(b"LWork;run()V", &[&[0x40, 0x60], &[0x40]]), 0);
        assert_eq!(find(b"LWork;run()V", &[&[0x57, 0x60], &[0x220]]), 0);
        assert_eq!(find(b"f", &[]), 0);
    }
}
