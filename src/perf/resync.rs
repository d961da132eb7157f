//! The way back to the records behind damage.
//!
//! Records have no mark that they start with, and only sizes lead from one to the next: behind the first wrong
//! one, a reader that trusts them reads nonsense, or nothing. What is met where a record must be is therefore
//! asked whether it can be one. Where it can't, reading goes on at the first byte behind from which records
//! follow that have everything that is known of records ([`crate::perf::plausible`]). They may start anywhere, since bytes
//! may be missing or too many.
//!
//! What can't be noticed this way: values other than those looked at; and up to three records behind damage,
//! where the next damage comes too soon for them to be believed.
//!
//! Each byte is passed once as part of a record and once as a place where one could start, and what is asked at
//! such a place is bounded: so a walk is linear in the file, whatever is in it.

use std::io::{self, Write};

use crate::bytes::ByteOrder;
use crate::perf::attr::Attrs;
use crate::perf::plausible::Plausible;
use crate::perf::record::{Record, Records};
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
    plausible: Plausible<'a>,
    records: Records<'a>,
    /// The time of the last record that has one.
    last: Option<Time>,
    has_ended: bool,
    damage: Damage,
}

impl<'a> WholeRecords<'a> {
    /// Walks `data`, the records of events `attrs`.
    pub fn new(data: &'a [u8], attrs: &'a Attrs, order: ByteOrder) -> Self {
        Self {
            plausible: Plausible { attrs, order },
            records: Records::new(data, 0, order),
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

    /// Goes on to the next place where records start; says whether there is one.
    fn resync(&mut self) -> bool {
        let (offset, data) = self.records.undecoded().unwrap_or_default();
        let starts_at = |at: &usize| {
            let rest = data.get(*at..).unwrap_or_default();
            self.plausible.starts_at(rest, self.last)
        };
        let Some(distance) = (1..data.len()).find(starts_at) else {
            return false;
        };
        let start = offset.saturating_add(distance as u64);
        self.damage.add(offset, start);
        let rest = data.get(distance..).unwrap_or_default();
        self.records = Records::new(rest, start, self.plausible.order);
        true
    }
}

impl<'a> Iterator for WholeRecords<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        while !self.has_ended {
            let (_, data) = self.records.undecoded()?;
            let before = self.records.clone();
            if let Some(record) = self.records.next()
                && self.plausible.is_record(&record, data, self.last)
            {
                self.last = self.plausible.time_of(&record).or(self.last);
                return Some(record);
            }
            self.records = before;
            self.has_ended = !self.resync();
        }
        None
    }
}

/// Writes the records that are whole. Returns what was passed over.
pub fn mend(mut records: WholeRecords<'_>, out: &mut dyn Write) -> io::Result<Damage> {
    for record in records.by_ref() {
        out.write_all(record.bytes)?;
        out.write_all(record.payload)?;
    }
    Ok(records.damage())
}
