//! The way back to the records behind damage.
//!
//! Records have no mark that they start with, and only sizes lead from one to the next: behind the first wrong
//! one, a reader that trusts them reads nonsense, or nothing. What is met where a record must be is therefore
//! asked whether it can be one. Where it can't, reading goes on at the first byte from which records follow that
//! have everything that is known of records ([`crate::perf::record_validation`]). They may start anywhere, since bytes
//! may be missing or too many: also inside of the record before, which took its size from what followed it when
//! it had lost bytes itself.
//!
//! What can't be noticed this way: values other than those looked at; and up to three records behind damage,
//! where the next damage comes too soon for them to be believed.
//!
//! Each byte is a place where a record could start twice at most, inside of a record and behind it, and what is
//! asked at such a place is bounded: so a walk is linear in the file, whatever is in it.

use std::io::{self, Write};
use std::ops::Range;

use crate::bytes::ByteOrder;
use crate::perf::attr::Attrs;
use crate::perf::record::{HEADER_SIZE, Record, Records};
use crate::perf::record_validation::RecordValidator;
use crate::units::Time;

/// What was passed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// In how many places.
    pub places: u64,
    /// Where the first of them starts, in bytes from the first record.
    pub first_offset: u64,
    /// How many bytes in all.
    pub bytes: u64,
}

impl Damage {
    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.places == 0
    }

    /// The same, `distance` bytes further on in the file.
    pub fn moved(mut self, distance: u64) -> Self {
        self.first_offset = self.first_offset.saturating_add(distance);
        self
    }

    fn add(&mut self, start: u64, end: u64) {
        if self.is_empty() {
            self.first_offset = start;
        }
        self.places = self.places.saturating_add(1);
        self.bytes = self.bytes.saturating_add(end.saturating_sub(start));
    }
}

/// Walks records in file order, and passes over what is damaged.
#[derive(Clone, Debug)]
pub struct WholeRecords<'a> {
    validator: RecordValidator<'a>,
    records: Records<'a>,
    /// A record that can be one, and all from its start on; what follows it may still speak against it.
    held: Option<(Record<'a>, &'a [u8])>,
    /// The time of the last record that has one.
    last: Option<Time>,
    has_ended: bool,
    damage: Damage,
}

impl<'a> WholeRecords<'a> {
    /// Walks `data`, the records of events `attrs`.
    pub fn new(data: &'a [u8], attrs: &'a Attrs, order: ByteOrder) -> Self {
        Self {
            validator: RecordValidator { attrs, order },
            records: Records::new(data, 0, order),
            held: None,
            last: None,
            has_ended: false,
            damage: Damage::default(),
        }
    }

    /// What was passed over so far.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// After the walk: where records end that are followed by something else, in bytes from the first record;
    /// `None` where they go on to the end.
    pub fn undecoded(&self) -> Option<u64> {
        self.records.undecoded().map(|(offset, _)| offset)
    }

    /// Reads what can be a record.
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

    /// Goes on to the next place where records start, of `places` in `data`, which are bytes `offset` on; says
    /// whether there is one.
    fn resync(&mut self, offset: u64, data: &'a [u8], mut places: Range<usize>) -> bool {
        let starts_at = |at: &usize| {
            let rest = data.get(*at..).unwrap_or_default();
            self.validator.starts_at(rest, self.last)
        };
        let Some(distance) = places.find(starts_at) else {
            return false;
        };
        let start = offset.saturating_add(distance as u64);
        self.damage.add(offset, start);
        let rest = data.get(distance..).unwrap_or_default();
        self.records = Records::new(rest, start, self.validator.order);
        true
    }

    /// Whether a record that is followed by damage has lost bytes, so that others start inside of it; goes on
    /// there.
    fn is_torn(&mut self, record: &Record<'a>, data: &'a [u8]) -> bool {
        let size = usize::try_from(record.len()).unwrap_or(usize::MAX);
        self.resync(record.offset, data, HEADER_SIZE..size)
    }
}

impl<'a> Iterator for WholeRecords<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        while !self.has_ended {
            let next = self.read();
            let rest = self.records.undecoded();
            let is_followed = next.is_some() || rest.is_none();
            let held = std::mem::replace(&mut self.held, next);
            if let Some((record, data)) = held {
                if is_followed || !self.is_torn(&record, data) {
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

/// Whether readers refuse a record that is whole, until it is written by [`mend`].
pub fn needs_mending(record: &Record<'_>, attrs: &Attrs, order: ByteOrder) -> bool {
    record.is_misaligned() || attrs.missing_trailer(record, order).is_some()
}

/// Writes the records that are whole, all with sizes that readers take. Returns what was passed over.
pub fn mend(mut records: WholeRecords<'_>, out: &mut dyn Write) -> io::Result<Damage> {
    let RecordValidator { attrs, order } = records.validator;
    let mut mended = Vec::new();
    for record in records.by_ref() {
        mended.clear();
        if let Some(size) = attrs.missing_trailer(&record, order) {
            record.put_with_trailer(&mut mended, order, size);
        } else if record.is_misaligned() {
            record.put_aligned(&mut mended, order);
        } else {
            out.write_all(record.bytes)?;
            out.write_all(record.payload)?;
        }
        out.write_all(&mended)?;
    }
    Ok(records.damage())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::Attr;
    use crate::perf::record;

    const ORDER: ByteOrder = ByteOrder::Little;

    /// Two events whose records hold an id, an address, a process and a time.
    fn attrs() -> Attrs {
        let mut bytes = vec![0; 64];
        bytes[4..8].copy_from_slice(&64u32.to_le_bytes());
        bytes[24..32].copy_from_slice(&(1u64 << 16 | 0b111).to_le_bytes());
        bytes[40..48].copy_from_slice(&(1u64 << 18).to_le_bytes());
        let mut attrs = Attrs::default();
        for id in [70, 71] {
            attrs.push(Attr::parse(&bytes, ORDER), std::iter::once(id));
        }
        attrs
    }

    fn sample(number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        record::put_header(&mut out, ORDER, record::SAMPLE, 2, 40);
        for word in [70 + number % 2, 0x1000 + number, 5 | 5 << 32, 1_000_000 + number] {
            ORDER.put_u64(&mut out, word);
        }
        out
    }

    const SIZE: usize = 40;

    fn samples(count: u64) -> Vec<u8> {
        (0..count).flat_map(sample).collect()
    }

    /// The addresses of the samples that are read, and what was passed over.
    fn read(data: &[u8]) -> (Vec<u64>, Damage, Option<u64>) {
        let attrs = attrs();
        let mut walk = WholeRecords::new(data, &attrs, ORDER);
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
    fn sound_records_are_read_and_nothing_is_told() {
        assert_eq!(read(&samples(20)), (without(20, &[]), Damage::default(), None));
    }

    #[test]
    fn records_behind_a_damaged_header_are_found_again() {
        type Spoil = fn(&mut Vec<u8>, usize);
        let spoil: [(Spoil, u64); 6] = [
            (|data, at| data[at..at + 8].fill(0), 1),
            (|data, at| data[at..at + 8].fill(0xff), 1),
            // sizes: none, too small, not a multiple of 8, doubled
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
            assert_eq!((damage.places, damage.first_offset), (lost, 7 * SIZE as u64));
            assert_eq!((damage.bytes, end), (SIZE as u64, None));
        }
    }

    #[test]
    fn missing_and_surplus_bytes_of_any_number_cost_only_the_records_they_are_in() {
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
    fn a_record_that_lost_bytes_takes_none_of_the_next() {
        for size in 1..=8 {
            let mut data = samples(20);
            let end = 8 * SIZE;
            data.drain(end - size..end);
            let (found, damage, _) = read(&data);
            assert_eq!(found, without(20, &[7]), "{size}");
            assert_eq!((damage.places, damage.bytes), (1, (SIZE - size) as u64));
        }
    }

    #[test]
    fn records_of_perf_that_say_they_are_longer_take_none_of_the_next() {
        let index = [record::ID_INDEX, record::THREAD_MAP].map(|kind| {
            let mut out = Vec::new();
            let entries = if kind == record::ID_INDEX {
                [0; 32].as_slice()
            } else {
                &[0; 24]
            };
            record::put_header(&mut out, ORDER, kind, 0, (16 + entries.len()) as u16);
            ORDER.put_u64(&mut out, 1);
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
    fn what_may_be_of_a_type_to_come_is_followed_by_records() {
        let mut data = samples(30);
        data[7 * SIZE..7 * SIZE + 8].copy_from_slice(&[89, 0, 0, 0, 0, 0, SIZE as u8, 0]);
        assert_eq!(read_all(&data), 30);
        data[7 * SIZE + 6] = 3 * SIZE as u8 + 8;
        assert_eq!(read_all(&data), 29);
    }

    #[test]
    fn every_type_of_perf_is_found_behind_damage() {
        for kind in record::USER_TYPE_START..=86 {
            if kind == record::AUXTRACE {
                continue;
            }
            let mut data = samples(10);
            data.extend([0xff; 16]);
            let start = data.len();
            record::put_header(&mut data, ORDER, kind, 0, 80);
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
    fn what_is_whole_stays_the_same_when_it_is_read_again() {
        let mut data = samples(40);
        for at in [3, 11, 25] {
            data[at * SIZE + 4..at * SIZE + 30].fill(0x3a);
        }
        let attrs = attrs();
        let mut once = Vec::new();
        let damage = mend(WholeRecords::new(&data, &attrs, ORDER), &mut once).unwrap();
        assert_eq!((damage.places, damage.first_offset), (3, 3 * SIZE as u64));
        let mut twice = Vec::new();
        assert!(
            mend(WholeRecords::new(&once, &attrs, ORDER), &mut twice)
                .unwrap()
                .is_empty()
        );
        assert!(once == twice);
    }

    #[test]
    fn a_file_that_ends_inside_a_record_is_cut_and_not_damaged() {
        let data = samples(20);
        let (found, damage, end) = read(&data[..data.len() - 9]);
        assert_eq!(found, without(20, &[19]));
        assert!(damage.is_empty());
        assert_eq!(end, Some(19 * SIZE as u64));
    }

    #[test]
    fn walks_are_linear_in_what_can_look_like_records() {
        let round = [68, 0, 0, 0, 0, 0, 8, 0];
        let chain: Vec<u8> = round.repeat(3).into_iter().chain([0; 8]).collect();
        let jump = [81, 0, 0, 0, 0, 0, 0xf8, 0xff];
        // The largest records, each followed by damage.
        let torn = [&jump[..], &[0; 0xfff8]].concat();
        for data in [
            vec![0; 1 << 21],
            chain.repeat(1 << 16),
            jump.repeat(1 << 18),
            torn.repeat(1 << 5),
        ] {
            let start = std::time::Instant::now();
            let _ = read_all(&data);
            assert!(start.elapsed().as_secs() < 5);
        }
    }

    fn read_all(data: &[u8]) -> usize {
        let attrs = attrs();
        WholeRecords::new(data, &attrs, ORDER).count()
    }
}
