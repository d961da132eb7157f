//! The records of a jitdump in file order, with recovery after damage.

mod contents;
mod growth;
mod window;

pub use crate::format::record::contents::Contents;
pub(super) use crate::format::record::growth::Growth;
use crate::format::record::window::ContentWindow;

use crate::bytes::{ByteOrder, Reader};

/// `JIT_CODE_LOAD`: a function was compiled.
pub const LOAD: u32 = 0;
/// `JIT_CODE_MOVE`: a function's code was moved.
pub const MOVE: u32 = 1;
/// `JIT_CODE_DEBUG_INFO`: the line table of a function.
pub const DEBUG_INFO: u32 = 2;
/// `JIT_CODE_CLOSE`: the runtime ended.
pub const CLOSE: u32 = 3;
/// `JIT_CODE_UNWINDING_INFO`: the unwinding table of a function.
pub const UNWINDING_INFO: u32 = 4;
/// The first of samply's extensions ("SMP1" in little-endian bytes): lines and inlined calls.
pub const EXTENSION_FIRST: u32 = 827_346_259;
/// The second extension. In the older numbering it is a compiler tier, in the newer one lines and inlined
/// calls.
pub const JIT_TIER: u32 = 827_346_260;
/// The third extension: the text of a source file.
pub const EMBEDDED_SOURCE_FILE: u32 = 827_346_261;
/// Positions in another file: the type after samply's, proposed by this project.
pub const SOURCE_TRACK: u32 = 827_346_262;

/// Maximum number of padding bytes at the end of a record. V8 pads some records to a multiple of 8.
pub const MAX_PADDING: usize = 7;

/// Maximum length of a function's name, in bytes; the rest is cut off. The longest names from compilers,
/// those of C++ templates, have some thousands of bytes, and tools display a few hundred.
pub const MAX_NAME: usize = 1 << 16;

/// Size of a record's prefix (type, size and time), in bytes.
pub const PREFIX_SIZE: usize = 16;

/// Maximum time difference between adjacent records, for telling records from other bytes: 13 days in
/// nanoseconds.
const MAX_TIME_DIFFERENCE: u64 = 1 << 50;

/// Sizes of records of fixed size, in bytes.
const MOVE_SIZE: usize = PREFIX_SIZE + MOVE_FIELDS_SIZE;
const CLOSE_SIZE: usize = PREFIX_SIZE;

/// Size of the fields of a MOVE record, in bytes.
const MOVE_FIELDS_SIZE: usize = 48;

/// Size of the fields between the prefix of a LOAD record and its name, in bytes.
const LOAD_FIELDS_SIZE: usize = 40;

/// Number of consecutive valid records that it takes to resume after damage.
const MIN_VALID_RUN: u32 = 3;

/// What a record is. Readers match on it without a default, so that none of them overlooks a new type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordType {
    /// [`LOAD`].
    Load,
    /// [`MOVE`].
    Move,
    /// [`DEBUG_INFO`].
    DebugInfo,
    /// [`CLOSE`].
    Close,
    /// [`UNWINDING_INFO`].
    UnwindingInfo,
    /// One of samply's extensions. Their numbers have changed, so the content tells which.
    Extension,
    /// [`SOURCE_TRACK`].
    SourceTrack,
}

impl RecordType {
    /// Returns the type of [`Record::kind`]; `None` if it is unknown.
    #[inline]
    pub fn of(kind: u32) -> Option<Self> {
        Some(match kind {
            LOAD => Self::Load,
            MOVE => Self::Move,
            DEBUG_INFO => Self::DebugInfo,
            CLOSE => Self::Close,
            UNWINDING_INFO => Self::UnwindingInfo,
            EXTENSION_FIRST..=EMBEDDED_SOURCE_FILE => Self::Extension,
            SOURCE_TRACK => Self::SourceTrack,
            _ => return None,
        })
    }
}

/// A record of a jitdump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Offset of the record in the file, in bytes.
    pub offset: u64,
    /// Type of the record: one of the constants in this module, or any other number.
    pub kind: u32,
    /// Timestamp of the record.
    pub time: u64,
    /// The bytes after the prefix.
    pub content: &'a [u8],
}

/// Location of a record in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordLocation {
    /// Offset of the record in the file, in bytes.
    pub offset: u64,
    /// Size of the record's content (without the prefix), in bytes.
    pub size: u32,
}

impl Record<'_> {
    /// Returns the record's location.
    pub fn location(&self) -> RecordLocation {
        RecordLocation {
            offset: self.offset,
            size: u32::try_from(self.content.len()).unwrap_or(u32::MAX),
        }
    }
}

/// An item of [`Records`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// A valid record.
    Record(Record<'a>),
    /// A record with an invalid size, which was repaired: the record ends where the next valid ones start.
    Repaired(Record<'a>),
    /// Invalid bytes between records.
    Damage {
        /// Offset of the first invalid byte in the file.
        offset: u64,
        /// Number of invalid bytes.
        size: u64,
    },
    /// The last record, truncated because the program was killed or is still writing.
    CutTail {
        /// Offset of the record in the file, in bytes.
        offset: u64,
    },
}

impl<'a> Step<'a> {
    /// Returns the record; `None` for invalid bytes and a truncated record.
    pub fn record(self) -> Option<Record<'a>> {
        match self {
            Self::Record(record) | Self::Repaired(record) => Some(record),
            Self::Damage { .. } | Self::CutTail { .. } => None,
        }
    }
}

/// An iterator over the records of a file.
///
/// After an invalid record, the iteration resumes at the next offset where three valid records follow each
/// other. This check reads a bounded number of bytes, so the iteration takes linear time for any file.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    file: ContentWindow<'a>,
    position: usize,
    endian: ByteOrder,
    last_time: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Prefix {
    kind: u32,
    size: usize,
    time: u64,
}

impl Prefix {
    /// Whether it may be that of a record: its type is known, and its size includes itself.
    fn is_possible(self) -> bool {
        RecordType::of(self.kind).is_some() && self.size >= PREFIX_SIZE
    }
}

impl<'a> Records<'a> {
    /// Creates an iterator that starts at byte `start` of the file.
    pub fn new(file: &'a [u8], start: usize, endian: ByteOrder) -> Self {
        Self::in_window(ContentWindow::whole(file), start, endian, None)
    }

    /// Creates an iterator that starts at byte `position` of a file, after a record of time `last_time`.
    fn in_window(
        file: ContentWindow<'a>,
        position: usize,
        endian: ByteOrder,
        last_time: Option<u64>,
    ) -> Self {
        Self {
            file,
            position,
            endian,
            last_time,
        }
    }

    /// Whether bytes outside the window were needed, so that what was returned last may be wrong.
    fn has_missed(&self) -> bool {
        self.file.has_missed()
    }

    /// Returns the offset at which the iteration goes on, and the time of the last record.
    fn state(&self) -> (usize, Option<u64>) {
        (self.position, self.last_time)
    }

    /// Takes the next record by its own content; `None` if it is not whole, if that does not show that its size is right, or if
    /// what follows it is there already and does not start like a record.
    fn next_by_itself(&mut self) -> Option<Record<'a>> {
        let at = self.position;
        let prefix = self.prefix(at)?;
        let record = self.record(at, prefix)?;
        let has_room_for_others = record.kind == LOAD
            && unpadded_size(&record, self.endian)
                .is_none_or(|size| record.content.len().saturating_sub(size) > MAX_PADDING);
        if has_room_for_others || !self.is_plausible_time(record.time) || !is_valid(&record, self.endian) {
            return None;
        }
        let end = at.checked_add(prefix.size)?;
        let is_no_record = |next: Prefix| !next.is_possible() || !are_near(next.time, record.time);
        if self.prefix(end).is_some_and(is_no_record) {
            return None;
        }
        self.position = end;
        self.last_time = Some(record.time);
        Some(record)
    }

    /// Returns the offset at which the next record ends according to its prefix; `None` if it is no record.
    fn next_end(&self) -> Option<usize> {
        let prefix = self.prefix(self.position)?;
        self.position
            .checked_add(prefix.size)
            .filter(|_| prefix.is_possible())
    }

    /// Returns the content of the record at `location`; `None` if it exceeds the file.
    pub fn content(file: &'a [u8], location: RecordLocation) -> Option<&'a [u8]> {
        Contents::InMemory(file).of(location)
    }

    fn prefix(&self, at: usize) -> Option<Prefix> {
        let mut reader = Reader::new(self.file.get(at, PREFIX_SIZE)?, self.endian);
        Some(Prefix {
            kind: reader.u32()?,
            size: usize::try_from(reader.u32()?).ok()?,
            time: reader.u64()?,
        })
    }

    fn record(&self, at: usize, prefix: Prefix) -> Option<Record<'a>> {
        let bytes = self.file.get(at, prefix.size)?;
        Some(Record {
            offset: at as u64,
            kind: prefix.kind,
            time: prefix.time,
            content: bytes.get(PREFIX_SIZE..)?,
        })
    }

    /// Reads the record at `at`, and returns it with the offset of the next one. `None` unless the record
    /// fits into the file and is valid, either by its own content or because of what follows it.
    fn next_in_order(&self, at: usize) -> Option<(Step<'a>, usize)> {
        let prefix = self.prefix(at)?;
        if let Some(repaired) = self.repaired_fixed_size(at, prefix) {
            return Some(repaired);
        }
        let Some(record) = self.record(at, prefix) else {
            return self.repaired_by_content(at, prefix);
        };
        let end = at.checked_add(prefix.size)?;
        if self.follows(end, &record) {
            if let Some(repaired) = self.without_absorbed_records(at, prefix, &record) {
                return Some(repaired);
            }
            return Some((Step::Record(record), end));
        }
        if let Some(repaired) = self.repaired_by_content(at, prefix) {
            return Some(repaired);
        }
        if !is_valid(&record, self.endian) {
            return None;
        }
        // The content is valid, but no record follows. If the bytes that the size covers contain other
        // records, the size is wrong.
        let next = self.resynchronise(at.saturating_add(PREFIX_SIZE), end, true);
        if next >= end {
            return Some((Step::Record(record), end));
        }
        let size = next.saturating_sub(at);
        let record = self.record(at, Prefix { size, ..prefix })?;
        is_valid(&record, self.endian).then_some((Step::Repaired(record), next))
    }

    /// Repairs the size of a record whose type has a fixed size, if its own is smaller and valid records follow the right one.
    fn repaired_fixed_size(&self, at: usize, prefix: Prefix) -> Option<(Step<'a>, usize)> {
        let size = match RecordType::of(prefix.kind)? {
            RecordType::Move => MOVE_SIZE,
            RecordType::Close => CLOSE_SIZE,
            RecordType::Load
            | RecordType::DebugInfo
            | RecordType::UnwindingInfo
            | RecordType::Extension
            | RecordType::SourceTrack => return None,
        };
        let end = at.checked_add(size)?;
        if prefix.size >= size || !self.is_plausible_time(prefix.time) || !self.starts_valid_run(end) {
            return None;
        }
        let record = self.record(at, Prefix { size, ..prefix })?;
        Some((Step::Repaired(record), end))
    }

    /// Repairs the size of a LOAD record that is smaller than its name and code, if valid records follow these.
    fn repaired_by_content(&self, at: usize, prefix: Prefix) -> Option<(Step<'a>, usize)> {
        // Preallocated space has zeros.
        if prefix.kind != LOAD || prefix.time == 0 || !self.is_plausible_time(prefix.time) {
            return None;
        }
        /// Bytes up to the end of a name.
        const MAX_SIZE: usize = PREFIX_SIZE + LOAD_FIELDS_SIZE + MAX_NAME + 1;
        let left = self.file.size().checked_sub(at)?;
        let size = left.min(MAX_SIZE);
        let with_name = self.record(at, Prefix { size, ..prefix })?;
        let size = PREFIX_SIZE.checked_add(unpadded_size(&with_name, self.endian)?)?;
        if prefix.size >= size {
            return None;
        }
        self.repaired_before_others(at, prefix, size)
    }

    /// Repairs the size of a record that has `size` bytes and padding, if valid records follow.
    fn repaired_before_others(&self, at: usize, prefix: Prefix, size: usize) -> Option<(Step<'a>, usize)> {
        let size = (size..=size.checked_add(MAX_PADDING)?)
            .find(|&size| at.checked_add(size).is_some_and(|end| self.starts_valid_run(end)))?;
        let record = self.record(at, Prefix { size, ..prefix })?;
        Some((Step::Repaired(record), at.checked_add(size)?))
    }

    /// Repairs the size of a LOAD record that spans whole records after it, and so is also followed by a
    /// record.
    ///
    /// Such a record has more bytes between its name and its code than padding needs, and without them valid
    /// records follow its code.
    fn without_absorbed_records(
        &self,
        at: usize,
        prefix: Prefix,
        record: &Record<'a>,
    ) -> Option<(Step<'a>, usize)> {
        let size = PREFIX_SIZE.checked_add(unpadded_size(record, self.endian)?)?;
        let spare = prefix.size.checked_sub(size)?;
        if spare <= MAX_PADDING {
            return None;
        }
        self.repaired_before_others(at, prefix, size)
    }

    /// Whether `at` is the end of the file, or the start of what looks like the record after `before`.
    fn follows(&self, at: usize, before: &Record<'_>) -> bool {
        if at == self.file.size() {
            return true;
        }
        let record = self.prefix(at).and_then(|prefix| self.record(at, prefix));
        record.is_some_and(|record| {
            is_valid(&record, self.endian) || record.kind == before.kind || are_near(record.time, before.time)
        })
    }

    /// Whether valid records start at `at`, up to one that may be cut.
    fn starts_valid_run(&self, at: usize) -> bool {
        self.starts_run(at, true)
    }

    /// Whether valid records start at `at`: [`MIN_VALID_RUN`] of them, or all up to the end of the file. The last one of these
    /// may be cut if `may_be_cut`.
    fn starts_run(&self, mut at: usize, may_be_cut: bool) -> bool {
        for found in 0..MIN_VALID_RUN {
            if at == self.file.size() {
                return true;
            }
            let whole = self.prefix(at).and_then(|prefix| self.record(at, prefix));
            let Some(record) = whole else {
                return may_be_cut && found > 0 && self.is_cut_tail(at);
            };
            if !self.is_plausible_time(record.time) || !is_valid(&record, self.endian) {
                return false;
            }
            at = at
                .saturating_add(PREFIX_SIZE)
                .saturating_add(record.content.len());
        }
        true
    }

    fn is_plausible_time(&self, time: u64) -> bool {
        match self.last_time {
            Some(last) => are_near(last, time),
            None => time != 0,
        }
    }

    /// Returns the first offset in `from..end` at which valid records start, or else `end`. The last record of the file may
    /// be cut if `may_be_cut`.
    fn resynchronise(&self, from: usize, end: usize, may_be_cut: bool) -> usize {
        /// Maximum number of zero bytes at the start of a record: the type may be 0, but the size may not.
        const LEADING_ZEROS: usize = 7;
        let mut at = from;
        while let Some(rest) = self.file.rest(at, end) {
            let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
            if zeros > LEADING_ZEROS {
                at = at.saturating_add(zeros.saturating_sub(LEADING_ZEROS));
            } else if self.starts_run(at, may_be_cut) {
                return at;
            } else {
                at = at.saturating_add(1);
            }
        }
        end
    }

    /// Whether the file ends inside the record at `at`.
    fn is_cut_tail(&self, at: usize) -> bool {
        let left = self.file.size().saturating_sub(at);
        match self.prefix(at) {
            None => left < PREFIX_SIZE,
            Some(prefix) => prefix.is_possible() && prefix.size > left && self.is_plausible_time(prefix.time),
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        let at = self.position;
        let rest = self.file.rest(at, self.file.size())?;
        if let Some((step, end)) = self.next_in_order(at) {
            self.position = end;
            self.last_time = step.record().map(|record| record.time).or(self.last_time);
            return Some(step);
        }
        // Lines in a cut record may look like another record that is cut.
        let is_cut_tail = self.is_cut_tail(at);
        self.position = self.resynchronise(at.saturating_add(1), self.file.size(), !is_cut_tail);
        let found_nothing = self.position == self.file.size();
        if found_nothing && rest.iter().all(|&byte| byte == 0) {
            // preallocated space, not lost records
            return None;
        }
        let offset = at as u64;
        if found_nothing && is_cut_tail {
            return Some(Step::CutTail { offset });
        }
        let size = self.position.saturating_sub(at) as u64;
        Some(Step::Damage { offset, size })
    }
}

/// Whether records of these times may be next to each other.
fn are_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) < MAX_TIME_DIFFERENCE
}

/// Whether the type of a record is known and the sizes in its content fit into it.
fn is_valid(record: &Record<'_>, endian: ByteOrder) -> bool {
    RecordType::of(record.kind).is_some_and(|known| sizes_fit(record, known, endian) == Some(true))
}

/// Size of the content of a LOAD record without padding, in bytes: fixed fields, name with its NUL, code.
fn unpadded_size(record: &Record<'_>, endian: ByteOrder) -> Option<usize> {
    /// Size in bytes of the fields before `code_size`.
    const BEFORE: u64 = 24;
    if record.kind != LOAD {
        return None;
    }
    let mut content = Reader::new(record.content, endian);
    content.skip(BEFORE)?;
    let code_size = usize::try_from(content.u64()?).ok()?;
    let name_size = memchr::memchr(0, record.content.get(LOAD_FIELDS_SIZE..)?)?;
    LOAD_FIELDS_SIZE
        .checked_add(name_size)?
        .checked_add(1)?
        .checked_add(code_size)
}

/// Whether the sizes in a record of a type fit into it; `None` if it is too short to have them.
fn sizes_fit(record: &Record<'_>, known: RecordType, endian: ByteOrder) -> Option<bool> {
    let mut content = Reader::new(record.content, endian);
    let room = record.content.len() as u64;
    Some(match known {
        RecordType::Load => {
            content.skip(24)?;
            let code_size = content.u64()?;
            // After the fixed fields, there is at least an empty name with its NUL.
            code_size < room.checked_sub(40)?
        }
        RecordType::Move => {
            (MOVE_FIELDS_SIZE..=MOVE_FIELDS_SIZE.saturating_add(MAX_PADDING)).contains(&record.content.len())
        }
        RecordType::DebugInfo => {
            content.skip(8)?;
            // Each entry has at least 16 bytes and an empty name with its NUL.
            content.u64()? <= room.checked_sub(16)? / 17
        }
        RecordType::UnwindingInfo => {
            let data_size = content.u64()?;
            let header_size = content.u64()?;
            data_size <= room.checked_sub(24)? && header_size <= data_size
        }
        // These have no fields, or sizes that their parsers check.
        RecordType::Close | RecordType::Extension | RecordType::SourceTrack => true,
    })
}

#[cfg(test)]
mod tests;
