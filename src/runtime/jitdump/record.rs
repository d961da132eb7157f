//! Records of a jitdump, in the order of the file, and the way back to them where the file is damaged.

use crate::bytes::{ByteOrder, Reader};

/// `JIT_CODE_LOAD`: a function was compiled.
pub const LOAD: u32 = 0;
/// `JIT_CODE_MOVE`: its code was moved.
pub const MOVE: u32 = 1;
/// `JIT_CODE_DEBUG_INFO`: its lines.
pub const DEBUG_INFO: u32 = 2;
/// `JIT_CODE_CLOSE`: the runtime ended.
pub const CLOSE: u32 = 3;
/// `JIT_CODE_UNWINDING_INFO`: how to unwind it.
pub const UNWINDING_INFO: u32 = 4;
/// The first of samply's extensions, "SMP1" in little-endian bytes: lines and inlined calls.
pub const EXTENSION_FIRST: u32 = 827_346_259;
/// The one in the middle: a tier by the older numbering, lines and inlined calls by the newer.
pub const JIT_TIER: u32 = 827_346_260;
/// The last of them: a source file.
pub const EMBEDDED_SOURCE_FILE: u32 = 827_346_261;

/// Bytes that may stand behind what a record holds: V8 pads some to a multiple of 8.
pub const MAX_PADDING: usize = 7;

/// How many bytes of a function's name are kept. The longest that compilers make, of C++ templates, have some
/// thousands; readers show a few hundred.
pub const MAX_NAME: usize = 1 << 16;

/// Size in bytes of what each record starts with: type, size, time.
pub const PREFIX_SIZE: usize = 16;

/// How far apart in time neighbouring records are believed to be, after damage: 13 days in nanoseconds.
const NEAR: u64 = 1 << 50;

/// How many records must stand in a row before they are believed, after damage.
const RUN: u32 = 3;

/// One record where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Its type, one of the constants of this module or anything else.
    pub kind: u32,
    /// Its time.
    pub time: u64,
    /// Its bytes behind the prefix.
    pub content: &'a [u8],
}

/// Where a record lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes of its content.
    pub size: u32,
}

impl Record<'_> {
    /// Where it lies.
    pub fn place(&self) -> Place {
        Place {
            offset: self.offset,
            size: u32::try_from(self.content.len()).unwrap_or(u32::MAX),
        }
    }
}

/// What a walk over the records comes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// A record.
    Record(Record<'a>),
    /// A record whose size was wrong, and has been made out from where the next ones start.
    Repaired(Record<'a>),
    /// Bytes that are no records, before the next run of records that can be believed.
    Damage {
        /// Where they start, from the start of the file.
        offset: u64,
        /// How many there are.
        size: u64,
    },
    /// The last record, cut off by the end of the file: its program was killed, or is still writing.
    CutTail {
        /// Where it starts.
        offset: u64,
    },
}

impl<'a> Step<'a> {
    /// The record, if it is one.
    pub fn record(self) -> Option<Record<'a>> {
        match self {
            Self::Record(record) | Self::Repaired(record) => Some(record),
            Self::Damage { .. } | Self::CutTail { .. } => None,
        }
    }
}

/// Walks the records of a file.
///
/// Where what should be a record can't be one, the walk goes on at the next place where three records stand
/// in a row. Whether one does is seen from a bounded number of bytes, so the walk is linear in the file
/// whatever it holds.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    file: &'a [u8],
    position: usize,
    order: ByteOrder,
    last_time: Option<u64>,
}

/// The prefix of a record.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    kind: u32,
    size: usize,
    time: u64,
}

impl<'a> Records<'a> {
    /// Walks from byte `start` of the file.
    pub fn new(file: &'a [u8], start: usize, order: ByteOrder) -> Self {
        Self {
            file,
            position: start,
            order,
            last_time: None,
        }
    }

    /// The content of a record that was walked before.
    pub fn content(file: &'a [u8], place: Place) -> Option<&'a [u8]> {
        let start = usize::try_from(place.offset).ok()?.checked_add(PREFIX_SIZE)?;
        file.get(start..)?.get(..usize::try_from(place.size).ok()?)
    }

    fn prefix(&self, at: usize) -> Option<Prefix> {
        let mut reader = Reader::new(self.file.get(at..)?, self.order);
        Some(Prefix {
            kind: reader.u32()?,
            size: usize::try_from(reader.u32()?).ok()?,
            time: reader.u64()?,
        })
    }

    fn record(&self, at: usize, prefix: Prefix) -> Option<Record<'a>> {
        let bytes = self.file.get(at..at.checked_add(prefix.size)?)?;
        Some(Record {
            offset: at as u64,
            kind: prefix.kind,
            time: prefix.time,
            content: bytes.get(PREFIX_SIZE..)?,
        })
    }

    /// The step at `at` and the place behind it, if there is a record that fits into the file and is
    /// believable: by itself, or because of what follows it.
    fn next_in_order(&self, at: usize) -> Option<(Step<'a>, usize)> {
        let prefix = self.prefix(at)?;
        let record = self.record(at, prefix)?;
        let behind = at.checked_add(prefix.size)?;
        if self.follows(behind, &record) {
            if let Some(repaired) = self.without_swallowed(at, prefix, &record) {
                return Some(repaired);
            }
            return Some((Step::Record(record), behind));
        }
        if !is_sound(&record, self.order) {
            return None;
        }
        // What it holds is fine, but its size leads nowhere. Where that size has skipped other records, it is
        // the size that lies.
        let next = self.resynchronise(at.saturating_add(PREFIX_SIZE), behind);
        if next >= behind {
            return Some((Step::Record(record), behind));
        }
        let size = next.saturating_sub(at);
        let record = self.record(at, Prefix { size, ..prefix })?;
        is_sound(&record, self.order).then_some((Step::Repaired(record), next))
    }

    /// A LOAD record as far as it is one, if its size takes in others behind it whole, and so leads to a record
    /// all the same: between its name and its code there is far more room than for padding, and where the code
    /// would end without it, records start.
    fn without_swallowed(&self, at: usize, prefix: Prefix, record: &Record<'a>) -> Option<(Step<'a>, usize)> {
        let size = PREFIX_SIZE.checked_add(unpadded_size(record, self.order)?)?;
        let spare = prefix.size.checked_sub(size)?;
        if spare <= MAX_PADDING {
            return None;
        }
        let size = (size..=size.checked_add(MAX_PADDING)?)
            .find(|&size| at.checked_add(size).is_some_and(|behind| self.starts_run(behind)))?;
        let record = self.record(at, Prefix { size, ..prefix })?;
        Some((Step::Repaired(record), at.checked_add(size)?))
    }

    /// Whether what stands at `at` is the end of the file or looks like a record that was written after
    /// `before`.
    fn follows(&self, at: usize, before: &Record<'_>) -> bool {
        if at == self.file.len() {
            return true;
        }
        let record = self.prefix(at).and_then(|prefix| self.record(at, prefix));
        record.is_some_and(|record| {
            is_sound(&record, self.order)
                || record.kind == before.kind
                || record.time.abs_diff(before.time) < NEAR
        })
    }

    /// Whether `at` starts a row of records that are beyond doubt: [`RUN`] of them, or fewer up to the end of
    /// the file.
    fn starts_run(&self, mut at: usize) -> bool {
        for found in 0..RUN {
            if at == self.file.len() {
                return true;
            }
            let whole = self.prefix(at).and_then(|prefix| self.record(at, prefix));
            let Some(record) = whole else {
                return found > 0 && self.is_cut_tail(at);
            };
            if !self.is_near(record.time) || !is_sound(&record, self.order) {
                return false;
            }
            at = at
                .saturating_add(PREFIX_SIZE)
                .saturating_add(record.content.len());
        }
        true
    }

    fn is_near(&self, time: u64) -> bool {
        match self.last_time {
            Some(last) => last.abs_diff(time) < NEAR,
            None => time != 0,
        }
    }

    /// The next place from `from` on, but before `end`, where records can be believed; `end` if there is
    /// none.
    fn resynchronise(&self, from: usize, end: usize) -> usize {
        /// A type may be 0 and the first bytes of a size too, but not all of both: so many zeros at most
        /// start a record.
        const LEADING_ZEROS: usize = 7;
        let mut at = from;
        while let Some(rest) = self.file.get(at..end).filter(|rest| !rest.is_empty()) {
            let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
            if zeros > LEADING_ZEROS {
                at = at.saturating_add(zeros.saturating_sub(LEADING_ZEROS));
            } else if self.starts_run(at) {
                return at;
            } else {
                at = at.saturating_add(1);
            }
        }
        end
    }

    /// Whether the file ends inside the record at `at`.
    fn is_cut_tail(&self, at: usize) -> bool {
        let left = self.file.len().saturating_sub(at);
        match self.prefix(at) {
            None => left < PREFIX_SIZE,
            Some(prefix) => is_known(prefix.kind) && prefix.size > left && self.is_near(prefix.time),
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        let at = self.position;
        let rest = self.file.get(at..).filter(|rest| !rest.is_empty())?;
        if let Some((step, behind)) = self.next_in_order(at) {
            self.position = behind;
            self.last_time = step.record().map(|record| record.time).or(self.last_time);
            return Some(step);
        }
        self.position = self.resynchronise(at.saturating_add(1), self.file.len());
        let found_nothing = self.position == self.file.len();
        if found_nothing && rest.iter().all(|&byte| byte == 0) {
            // Space that was set aside, not records that were lost.
            return None;
        }
        let offset = at as u64;
        if found_nothing && self.is_cut_tail(at) {
            return Some(Step::CutTail { offset });
        }
        let size = self.position.saturating_sub(at) as u64;
        Some(Step::Damage { offset, size })
    }
}

fn is_known(kind: u32) -> bool {
    kind <= UNWINDING_INFO || (EXTENSION_FIRST..=EMBEDDED_SOURCE_FILE).contains(&kind)
}

/// Whether a record is of a known type and the sizes inside it fit into it.
fn is_sound(record: &Record<'_>, order: ByteOrder) -> bool {
    is_known(record.kind) && sizes_fit(record, order) == Some(true)
}

/// How many bytes the content of a LOAD record has without padding: the fixed fields, the name with its NUL, and
/// the code.
fn unpadded_size(record: &Record<'_>, order: ByteOrder) -> Option<usize> {
    /// Up to the size of the code, and behind it.
    const BEFORE: u64 = 24;
    const FIXED: usize = 40;
    if record.kind != LOAD {
        return None;
    }
    let mut content = Reader::new(record.content, order);
    content.skip(BEFORE)?;
    let code_size = usize::try_from(content.u64()?).ok()?;
    let name_size = memchr::memchr(0, record.content.get(FIXED..)?)?;
    FIXED
        .checked_add(name_size)?
        .checked_add(1)?
        .checked_add(code_size)
}

fn sizes_fit(record: &Record<'_>, order: ByteOrder) -> Option<bool> {
    let mut content = Reader::new(record.content, order);
    let room = record.content.len() as u64;
    Some(match record.kind {
        LOAD => {
            content.skip(24)?;
            let code_size = content.u64()?;
            // behind the fixed fields, at least an empty name with its NUL
            code_size < room.checked_sub(40)?
        }
        MOVE => room >= 48,
        DEBUG_INFO => {
            content.skip(8)?;
            // each entry has at least two numbers and an empty name
            content.u64()? <= room.checked_sub(16)? / 17
        }
        UNWINDING_INFO => {
            let data_size = content.u64()?;
            let header_size = content.u64()?;
            data_size <= room.checked_sub(24)? && header_size <= data_size
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: ByteOrder = ByteOrder::Little;

    fn record(kind: u32, time: u64, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        ORDER.put_u32(&mut out, kind);
        ORDER.put_u32(&mut out, (PREFIX_SIZE + content.len()) as u32);
        ORDER.put_u64(&mut out, time);
        out.extend_from_slice(content);
        out
    }

    fn load(time: u64, code: &[u8]) -> Vec<u8> {
        let mut content = vec![0; 24];
        ORDER.put_u64(&mut content, code.len() as u64);
        ORDER.put_u64(&mut content, time);
        content.extend_from_slice(b"name\0");
        content.extend_from_slice(code);
        record(LOAD, time, &content)
    }

    fn walk(file: &[u8]) -> Vec<Step<'_>> {
        Records::new(file, 0, ORDER).collect()
    }

    fn times(steps: &[Step<'_>]) -> Vec<u64> {
        let records = steps.iter().filter_map(|step| step.record());
        records.map(|record| record.time).collect()
    }

    #[test]
    fn unknown_records_are_passed_by_their_size() {
        let file = [
            load(1, b"abc"),
            record(77, 2, b"what"),
            record(78, 3, b""),
            record(CLOSE, 4, b""),
        ];
        let steps = file.concat();
        assert_eq!(times(&walk(&steps)), [1, 2, 3, 4]);
    }

    #[test]
    fn a_cut_tail_keeps_all_that_is_whole() {
        let whole = [load(1, b"abc"), load(2, b"abcd")].concat();
        for cut in 1..load(3, b"xyz").len() {
            let file = [whole.clone(), load(3, b"xyz")[..cut].to_vec()].concat();
            let steps = walk(&file);
            assert_eq!(times(&steps), [1, 2], "cut after {cut} bytes");
            let last = Step::CutTail {
                offset: whole.len() as u64,
            };
            assert!(
                cut < 8 || steps.last() == Some(&last),
                "cut after {cut} bytes: {steps:?}"
            );
        }
    }

    #[test]
    fn the_walk_goes_on_behind_damage() {
        let head = [load(1, b"abc"), load(2, b"abcd")].concat();
        let tail = [load(3, b"e"), load(4, &[0; 300]), record(CLOSE, 5, b"")].concat();
        for junk in [
            &b"junk"[..],
            &[0; 5000],
            &[0xff; 33],
            &load(9, b"torn in the middle")[7..],
        ] {
            let file = [&head, junk, &tail].concat();
            let steps = walk(&file);
            assert_eq!(times(&steps), [1, 2, 3, 4, 5]);
            let damage = Step::Damage {
                offset: head.len() as u64,
                size: junk.len() as u64,
            };
            assert!(steps.contains(&damage), "{steps:?}");
        }
    }

    #[test]
    fn a_size_that_lies_does_not_hide_the_records_behind_it() {
        let first = load(1, b"abc");
        let rest = [load(2, b"d"), load(3, b"e"), load(4, b"f"), load(5, b"g")].concat();
        for size in [
            0,
            1,
            15,
            first.len() as u32 + 60,
            (first.len() + load(2, b"d").len()) as u32,
            first.len() as u32 + 100,
            u32::MAX,
        ] {
            let mut file = [first.clone(), rest.clone()].concat();
            file[4..8].copy_from_slice(&size.to_le_bytes());
            let steps = walk(&file);
            let found = times(&steps);
            assert!(found.ends_with(&[2, 3, 4, 5]), "size {size}: {found:?}");
            if let Step::Repaired(record) = steps[0] {
                assert_eq!(record.content, &first[PREFIX_SIZE..]);
            }
        }
    }

    /// Each record is sound, but what follows it, an unknown one of time 0, is not like it.
    #[test]
    fn records_that_do_not_look_alike_cost_no_more_than_others() {
        let late = 1 << 60;
        let pair = [load(late, b"abc"), record(99, 0, b"unknown")].concat();
        let file = pair.repeat(20_000);
        assert_eq!(walk(&file).len(), 40_000);
    }

    #[test]
    fn space_set_aside_at_the_end_is_no_damage() {
        let file = [load(1, b"abc"), vec![0; 4096]].concat();
        assert_eq!(walk(&file).len(), 1);
    }

    #[test]
    fn a_record_whose_content_lies_is_still_a_record() {
        let mut bad = load(2, b"abc");
        // code_size
        bad[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        let file = [load(1, b"abc"), bad, load(3, b"abc")].concat();
        assert_eq!(times(&walk(&file)), [1, 2, 3]);
    }
}
