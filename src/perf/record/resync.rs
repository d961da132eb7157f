//! Skips damage in a profile and finds the next intact records.
//!
//! Records have no magic number, and only their sizes lead from one to the next. After a wrong size, a reader
//! that trusts it reads garbage, or nothing. Each record is therefore validated. If it is invalid, reading
//! resumes at the first byte from which records follow that pass all checks
//! ([`crate::perf::record::validation`]). That can be any byte, since bytes may be missing or extra. It can be
//! inside the previous record too: a record that lost bytes extends into the next ones.
//!
//! Limits: wrong values in fields that are not checked go unnoticed. Up to three intact records between two
//! damaged ones are skipped, because they are too few to be recognized.
//!
//! Each byte is tried as the start of a record at most twice, inside a record and after it, and each try is
//! bounded. Reading thus takes linear time for any file.

use std::io::{self, Write};
use std::ops::Range;

use jitdump::{ByteOrder, Time};

use crate::perf::attr::Attrs;
use crate::perf::record::data::ProfileBytes;
use crate::perf::record::reader::RecordReader;
use crate::perf::record::validation::{LOOKAHEAD, RecordValidator, Verdict};
use crate::perf::record::{HEADER_SIZE, Record, Records};

/// Skipped bytes between records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// Number of damaged areas.
    pub areas: u64,
    /// Offset of the first damaged area, in bytes from the first record.
    pub first_offset: u64,
    /// Total number of skipped bytes.
    pub bytes: u64,
}

impl Damage {
    /// Whether no bytes were skipped.
    pub fn is_empty(&self) -> bool {
        self.areas == 0
    }

    /// Returns the same damage with `distance` bytes added to its offset.
    pub fn offset_by(mut self, distance: u64) -> Self {
        self.first_offset = self.first_offset.saturating_add(distance);
        self
    }

    fn add(&mut self, start: u64, end: u64) {
        if self.is_empty() {
            self.first_offset = start;
        }
        self.areas = self.areas.saturating_add(1);
        self.bytes = self.bytes.saturating_add(end.saturating_sub(start));
    }
}

/// Reads records in file order and skips damaged ones, in memory. Ends at damage in a file.
#[derive(Clone, Debug)]
pub struct IntactReader<'a> {
    records: AnyRecords<'a>,
}

#[derive(Clone, Debug)]
enum AnyRecords<'a> {
    Memory(IntactRecords<'a>),
    File(UndamagedRecords<'a>),
}

impl<'a> IntactReader<'a> {
    /// Reads `data`, the records of events `attrs`.
    pub fn new(data: ProfileBytes<'a>, attrs: &'a Attrs, endian: ByteOrder) -> Self {
        let records = match data {
            ProfileBytes::Memory(bytes) => AnyRecords::Memory(IntactRecords::new(bytes, attrs, endian)),
            ProfileBytes::File(_) => AnyRecords::File(UndamagedRecords {
                validator: RecordValidator { attrs, endian },
                records: RecordReader::new(data, endian),
                times: [None; 2],
                has_ended: false,
            }),
        };
        Self { records }
    }

    /// Reads the next record.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "records are borrowed from the reader"
    )]
    pub fn next(&mut self) -> Option<Record<'_>> {
        match &mut self.records {
            AnyRecords::Memory(records) => records.next(),
            AnyRecords::File(records) => records.next(),
        }
    }

    /// Returns the bytes skipped so far.
    pub fn damage(&self) -> Damage {
        match &self.records {
            AnyRecords::Memory(records) => records.damage(),
            AnyRecords::File(_) => Damage::default(),
        }
    }

    /// After the last record: the offset of the end of the records, in bytes from the first one, if other bytes follow.
    pub fn undecoded(&self) -> Option<u64> {
        match &self.records {
            AnyRecords::Memory(records) => records.undecoded(),
            AnyRecords::File(records) => records.records.undecoded(),
        }
    }

    /// After the last record: whether there is damage in a file. Whoever wants the records after it has to read the file
    /// into memory, since every byte may be the start of a record.
    pub fn needs_memory(&self) -> bool {
        matches!(self.records, AnyRecords::File(_)) && self.undecoded().is_some()
    }
}

/// Reads the records of a file up to the first damage.
#[derive(Clone, Debug)]
struct UndamagedRecords<'a> {
    validator: RecordValidator<'a>,
    records: RecordReader<'a>,
    /// Times that [`IntactRecords`] knows at the next record: without that of the last record, which it checks by the next
    /// one, and with it.
    times: [Option<Time>; 2],
    has_ended: bool,
}

impl UndamagedRecords<'_> {
    #[inline]
    fn next(&mut self) -> Option<Record<'_>> {
        let [known, last] = self.times;
        if self.has_ended || !is_intact(&mut self.records, &self.validator, known) {
            self.has_ended = true;
            return None;
        }
        let record = self.records.next()?;
        self.times = [last, self.validator.time_of(&record).or(last)];
        Some(record)
    }
}

/// Whether the next record is intact.
#[inline]
fn is_intact(records: &mut RecordReader<'_>, validator: &RecordValidator<'_>, last: Option<Time>) -> bool {
    let verdict = match records.peek() {
        Some(record) => validator.judge(&record, last),
        None => return false,
    };
    match verdict {
        Verdict::Record => true,
        Verdict::Invalid => false,
        Verdict::Depends(facts) => {
            let left = records.data().len().saturating_sub(records.offset());
            let offset = records.offset();
            let data = records.ahead(LOOKAHEAD);
            Record::parse(data, offset, left, validator.endian)
                .is_some_and(|record| validator.is_record_before(&record, &facts, data, last))
        }
    }
}

/// Iterates over records in memory, in file order, and skips damaged ones.
#[derive(Clone, Debug)]
pub struct IntactRecords<'a> {
    validator: RecordValidator<'a>,
    records: Records<'a>,
    /// A possible record and all bytes from its start. What follows may show that it is damaged.
    candidate: Option<(Record<'a>, &'a [u8])>,
    /// Time of the last record that has one.
    last: Option<Time>,
    has_ended: bool,
    damage: Damage,
}

impl<'a> IntactRecords<'a> {
    /// Iterates over `data`, the records of events `attrs`.
    pub fn new(data: &'a [u8], attrs: &'a Attrs, endian: ByteOrder) -> Self {
        Self {
            validator: RecordValidator { attrs, endian },
            records: Records::new(data, 0, endian),
            candidate: None,
            last: None,
            has_ended: false,
            damage: Damage::default(),
        }
    }

    /// Returns the bytes skipped so far.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// After the iteration: the offset of the end of the records, in bytes from the first one, if other bytes
    /// follow. `None` if the records reach the end.
    pub fn undecoded(&self) -> Option<u64> {
        self.records.undecoded().map(|(offset, _)| offset)
    }

    /// Reads the next record if it is valid.
    fn read(&mut self) -> Option<(Record<'a>, &'a [u8])> {
        let (_, data) = self.records.undecoded()?;
        let before = self.records.clone();
        if let Some(record) = self.records.next()
            && self.validator.is_record(&record, data, self.last)
        {
            return Some((record, data));
        }
        self.records = before;
        None
    }

    /// Continues at the next of `offsets` in `data` where records start. `offset` is that of `data`, in bytes
    /// from the first record. Returns whether there is one.
    fn resync(&mut self, offset: u64, data: &'a [u8], mut offsets: Range<usize>) -> bool {
        let starts_at = |at: &usize| {
            let rest = data.get(*at..).unwrap_or_default();
            self.validator.starts_at(rest, self.last)
        };
        let Some(distance) = offsets.find(starts_at) else {
            return false;
        };
        let start = offset.saturating_add(distance as u64);
        self.damage.add(offset, start);
        let rest = data.get(distance..).unwrap_or_default();
        self.records = Records::new(rest, start, self.validator.endian);
        true
    }

    /// Whether a record before damage has lost bytes, so that other records start inside it. If so, reading
    /// continues there.
    fn resync_inside(&mut self, record: &Record<'a>, data: &'a [u8]) -> bool {
        let size = usize::try_from(record.size()).unwrap_or(usize::MAX);
        self.resync(record.offset, data, HEADER_SIZE..size)
    }
}

impl<'a> Iterator for IntactRecords<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        while !self.has_ended {
            let next = self.read();
            let rest = self.records.undecoded();
            let is_followed = next.is_some() || rest.is_none();
            let candidate = std::mem::replace(&mut self.candidate, next);
            if let Some((record, data)) = candidate {
                if is_followed || !self.resync_inside(&record, data) {
                    self.last = self.validator.time_of(&record).or(self.last);
                    return Some(record);
                }
            } else if let (None, Some((offset, data))) = (next, rest) {
                self.has_ended = !self.resync(offset, data, 1..data.len());
            } else {
                self.has_ended = next.is_none();
            }
        }
        None
    }
}

/// Whether readers reject an intact record unless [`repair`] rewrites it.
pub fn needs_repair(record: &Record<'_>, attrs: &Attrs, endian: ByteOrder) -> bool {
    record.is_misaligned() || attrs.missing_trailer(record, endian).is_some()
}

/// Writes the intact records, with sizes that readers accept. Returns the skipped bytes.
pub fn repair(
    data: ProfileBytes<'_>,
    attrs: &Attrs,
    endian: ByteOrder,
    out: &mut dyn Write,
) -> io::Result<Damage> {
    let mut records = IntactReader::new(data, attrs, endian);
    let mut repaired = Vec::new();
    while let Some(record) = records.next() {
        repaired.clear();
        if let Some(size) = attrs.missing_trailer(&record, endian) {
            record.write_with_trailer(&mut repaired, endian, size);
        } else if record.is_misaligned() {
            record.write_aligned(&mut repaired, endian);
        } else {
            repaired.extend_from_slice(record.bytes);
        }
        out.write_all(&repaired)?;
        data.copy_payload(&record, out)?;
    }
    Ok(records.damage())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::Attr;
    use crate::perf::record;
    use crate::perf::testing::{self, BlocksInMemory, ORDER, SAMPLE_ID_ALL};

    /// Two events whose records have an ID, an address, a PID, a TID and a time.
    fn attrs() -> Attrs {
        let bytes = testing::attr(64, 1 << 16 | 0b111, SAMPLE_ID_ALL);
        let mut attrs = Attrs::default();
        for id in [70, 71] {
            attrs.push(Attr::parse(&bytes, ORDER), std::iter::once(id));
        }
        attrs
    }

    fn sample(number: u64) -> Vec<u8> {
        let words = [70 + number % 2, 0x1000 + number, 5 | 5 << 32, 1_000_000 + number];
        testing::record(record::SAMPLE, record::MISC_USER, &words)
    }

    const SIZE: usize = 40;

    fn samples(count: u64) -> Vec<u8> {
        (0..count).flat_map(sample).collect()
    }

    /// Returns the addresses of the samples that are read, the damage, and the offset of trailing bytes.
    fn read(data: &[u8]) -> (Vec<u64>, Damage, Option<u64>) {
        let attrs = attrs();
        let mut walk = IntactRecords::new(data, &attrs, ORDER);
        let addresses = walk
            .by_ref()
            .map(|record| ORDER.u64_at(record.bytes, 16).unwrap() - 0x1000)
            .collect();
        (addresses, walk.damage(), walk.undecoded())
    }

    fn without(count: u64, lost: &[u64]) -> Vec<u64> {
        (0..count).filter(|number| !lost.contains(number)).collect()
    }

    #[test]
    fn intact_records_are_read_without_damage() {
        assert_eq!(read(&samples(20)), (without(20, &[]), Damage::default(), None));
    }

    #[test]
    fn records_after_a_damaged_header_are_found() {
        type Spoil = fn(&mut Vec<u8>, usize);
        let spoil: [(Spoil, u64); 6] = [
            (|data, at| data[at..at + 8].fill(0), 1),
            (|data, at| data[at..at + 8].fill(0xff), 1),
            // Sizes: zero, too small, not a multiple of 8, doubled.
            (|data, at| data[at + 6] = 0, 1),
            (|data, at| data[at + 6] = 16, 1),
            (|data, at| data[at + 6] += 1, 1),
            (|data, at| data[at + 6] *= 2, 1),
        ];
        for (number, (spoil, lost)) in spoil.into_iter().enumerate() {
            let mut data = samples(20);
            spoil(&mut data, 7 * SIZE);
            let (found, damage, end) = read(&data);
            assert_eq!(found, without(20, &[7]), "{number}");
            assert_eq!((damage.areas, damage.first_offset), (lost, 7 * SIZE as u64));
            assert_eq!((damage.bytes, end), (SIZE as u64, None));
        }
    }

    #[test]
    fn missing_and_extra_bytes_cost_only_their_own_records() {
        for size in 1..SIZE {
            let mut shorter = samples(20);
            shorter.drain(7 * SIZE + 3..7 * SIZE + 3 + size);
            let found = read(&shorter).0;
            let rest = without(20, &[7, 8]);
            assert!(
                rest.iter().all(|number| found.contains(number)),
                "{size}: {found:?}"
            );
            let mut longer = samples(20);
            longer.splice(7 * SIZE..7 * SIZE, vec![0xa5; size]);
            let (found, damage, _) = read(&longer);
            assert_eq!(found, without(20, &[]), "{size}");
            assert_eq!(damage.bytes, size as u64);
        }
    }

    #[test]
    fn a_record_that_lost_bytes_ends_before_the_next_one() {
        for size in 1..=8 {
            let mut data = samples(20);
            let end = 8 * SIZE;
            data.drain(end - size..end);
            let (found, damage, _) = read(&data);
            assert_eq!(found, without(20, &[7]), "{size}");
            assert_eq!((damage.areas, damage.bytes), (1, (SIZE - size) as u64));
        }
    }

    #[test]
    fn perfs_records_with_too_large_sizes_end_before_the_next_one() {
        let index = [record::ID_INDEX, record::THREAD_MAP].map(|kind| {
            let mut out = Vec::new();
            let entries = if kind == record::ID_INDEX {
                [0; 32].as_slice()
            } else {
                &[0; 24]
            };
            record::write_header(&mut out, ORDER, kind, 0, 16 + entries.len());
            ORDER.write_u64(&mut out, 1);
            [&out, entries].concat()
        });
        let cpus = [74, 0, 0, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0].to_vec();
        let [ids, threads] = index;
        for (whole, sizes) in [
            (ids, &[96, 800, 801][..]),
            (threads, &[80, 800]),
            (cpus, &[799, 17]),
        ] {
            for size in sizes {
                let mut data = [&whole, &samples(30)[..]].concat();
                assert_eq!(read_all(&data), 31);
                data[6..8].copy_from_slice(&u16::to_le_bytes(*size));
                assert_eq!(read_all(&data), 30, "{size}");
            }
        }
    }

    #[test]
    fn records_of_future_types_must_be_followed_by_records() {
        let mut data = samples(30);
        data[7 * SIZE..7 * SIZE + 8].copy_from_slice(&[89, 0, 0, 0, 0, 0, SIZE as u8, 0]);
        assert_eq!(read_all(&data), 30);
        data[7 * SIZE + 6] = 3 * SIZE as u8 + 8;
        assert_eq!(read_all(&data), 29);
    }

    #[test]
    fn every_type_of_perf_is_found_after_damage() {
        for kind in record::USER_TYPE_START..=86 {
            if kind == record::AUXTRACE {
                continue;
            }
            let mut data = samples(10);
            data.extend([0xff; 16]);
            let start = data.len();
            record::write_header(&mut data, ORDER, kind, 0, 80);
            data.resize(start + 80, 0);
            if kind == record::ID_INDEX || kind == record::THREAD_MAP {
                data[start + 8] = if kind == record::ID_INDEX { 2 } else { 3 };
            } else if matches!(kind, record::FINISHED_ROUND | record::FINISHED_INIT) {
                data[start + 6] = 8;
                data.truncate(start + 8);
            }
            data.extend(samples(10));
            assert_eq!(read_all(&data), 21, "{kind}");
        }
    }

    #[test]
    fn repaired_records_need_no_repair() {
        let mut data = samples(40);
        for at in [3, 11, 25] {
            data[at * SIZE + 4..at * SIZE + 30].fill(0x3a);
        }
        let attrs = attrs();
        let mut once = Vec::new();
        let damage = repair(ProfileBytes::from(&data[..]), &attrs, ORDER, &mut once).unwrap();
        assert_eq!((damage.areas, damage.first_offset), (3, 3 * SIZE as u64));
        let mut twice = Vec::new();
        let damage = repair(ProfileBytes::from(&once[..]), &attrs, ORDER, &mut twice).unwrap();
        assert!(damage.is_empty());
        assert!(once == twice);
    }

    #[test]
    fn a_file_that_ends_inside_a_record_is_truncated_and_not_damaged() {
        let data = samples(20);
        let (found, damage, end) = read(&data[..data.len() - 9]);
        assert_eq!(found, without(20, &[19]));
        assert!(damage.is_empty());
        assert_eq!(end, Some(19 * SIZE as u64));
    }

    fn read_all(data: &[u8]) -> usize {
        let attrs = attrs();
        IntactRecords::new(data, &attrs, ORDER).count()
    }

    /// Large records, some with data after them, of unknown events or of unknown types.
    fn many_records() -> Vec<u8> {
        let mut data = Vec::new();
        for number in 0..400_u64 {
            data.extend(sample(number));
            let size = (number * 997 % 65_536) as usize & !7;
            match number % 5 {
                0 => record::write_header(&mut data, ORDER, 89, 0, size.max(8)),
                1 => {
                    record::write_header(&mut data, ORDER, record::AUXTRACE, 0, 48);
                    ORDER.write_u64(&mut data, 5 * size as u64);
                    data.resize(data.len() + 32 + 4 * size, 0x5a);
                }
                _ => record::write_header(&mut data, ORDER, record::COMPRESSED, 0, size.max(8)),
            }
            data.resize(data.len() + size.max(8) - 8, 0xa5);
            if number % 5 == 1 {
                data.resize(data.len() + 8, 0xa5);
            }
            if number % 7 == 0 {
                let at = data.len();
                data.extend(sample(number));
                ORDER.set_u64(&mut data, at + 8, 99);
            }
        }
        data
    }

    #[test]
    fn records_of_a_file_are_those_in_memory() {
        let data = many_records();
        let attrs = attrs();
        let mut in_memory = IntactRecords::new(&data, &attrs, ORDER);
        let file = BlocksInMemory::new(data.clone());
        let mut in_file = IntactReader::new(ProfileBytes::of_file(&file), &attrs, ORDER);
        let mut count = 0;
        for expected in in_memory.by_ref() {
            let found = in_file.next().unwrap();
            assert_eq!((found.offset, found.bytes), (expected.offset, expected.bytes));
            assert_eq!(found.size(), expected.size());
            assert!(expected.payload.starts_with(found.payload));
            count += 1;
        }
        assert!(count > 800 && in_memory.damage().is_empty());
        assert!(in_file.next().is_none() && !in_file.needs_memory());
        for is_file in [false, true] {
            let mut repaired = Vec::new();
            let source = if is_file {
                ProfileBytes::of_file(&file)
            } else {
                ProfileBytes::from(&data[..])
            };
            repair(source, &attrs, ORDER, &mut repaired).unwrap();
            assert!(repaired == data, "{is_file}");
        }
    }

    #[test]
    fn damage_in_a_file_needs_memory() {
        let whole = samples(20_000);
        let attrs = attrs();
        let damage: [fn(&mut Vec<u8>); 4] = [
            |data| data[400_006] = 1,
            |data| data.truncate(data.len() - 1),
            |data| {
                data.remove(500_003);
            },
            |data| data[799_966] = 0xff,
        ];
        for (number, spoil) in damage.into_iter().enumerate() {
            let mut data = whole.clone();
            spoil(&mut data);
            let file = BlocksInMemory::new(data);
            let mut records = IntactReader::new(ProfileBytes::of_file(&file), &attrs, ORDER);
            while records.next().is_some() {}
            assert!(records.needs_memory(), "{number}");
        }
    }
}
