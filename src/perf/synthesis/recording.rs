//! The records of a recording on their way into a profile with others among them.

use std::io::{self, Write};
use std::iter::Peekable;
use std::slice;

use crate::perf::profile::{Fault, Profile};
use crate::perf::record::{Record, Records};
use crate::perf::synthesis::identifier::{Identifiers, Outcome};
use crate::perf::synthesis::loss::Loss;
use crate::tally::Tally;
use crate::units::Time;

/// Where records are written to, and what there is to tell of it.
#[derive(Debug)]
pub(super) struct Sink<W> {
    pub out: W,
    /// How many bytes of records were written.
    pub written: u64,
    pub losses: Tally<Loss>,
}

impl<W: Write> Sink<W> {
    /// Writes whole records.
    pub fn write(&mut self, records: &[u8]) -> io::Result<()> {
        self.out.write_all(records)?;
        self.written = self.written.saturating_add(records.len() as u64);
        Ok(())
    }
}

/// What of a recording has not been written yet.
#[derive(Debug)]
pub(super) struct Recording<'p> {
    profile: &'p Profile<'p>,
    records: Records<'p>,
    /// The next of them, which may have to wait for records of our own, and its time.
    next: Option<(Record<'p>, Option<Time>)>,
    /// Records of a pipe that stand for sections of a file.
    head: Peekable<slice::Iter<'p, (u64, u64)>>,
    identifiers: Identifiers<'p>,
    buffer: Vec<u8>,
}

impl<'p> Recording<'p> {
    /// All of it; the first event has this id.
    pub fn new(profile: &'p Profile<'p>, first_id: u64) -> Self {
        Self {
            profile,
            records: profile.records(),
            next: None,
            head: profile.head_records.iter().peekable(),
            identifiers: Identifiers::new(profile, first_id),
            buffer: Vec::new(),
        }
    }

    /// Writes all records before the first one that is later than `limit`, or all that there are where records have
    /// no times.
    pub fn copy_until<W: Write>(&mut self, limit: Time, sink: &mut Sink<W>) -> io::Result<()> {
        let waits = |time: Option<Time>| time.is_some_and(|time| time > limit);
        let has_times = self.profile.attrs.has_times();
        while let Some((record, time)) = self.take_next() {
            if has_times && waits(time) {
                self.next = Some((record, time));
                break;
            }
            self.copy(&record, sink)?;
        }
        Ok(())
    }

    /// Writes all that is left; what can't be read as records comes last.
    pub fn copy_rest<W: Write>(&mut self, sink: &mut Sink<W>) -> io::Result<()> {
        while let Some((record, _)) = self.take_next() {
            self.copy(&record, sink)?;
        }
        let (_, undecoded) = self.records.undecoded().unwrap_or_default();
        sink.write(undecoded)
    }

    /// What could not be read of it.
    pub fn faults(&self) -> &'p Tally<Fault> {
        &self.profile.faults
    }

    fn take_next(&mut self) -> Option<(Record<'p>, Option<Time>)> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        let record = self.records.next()?;
        let time = self.profile.attrs.time_of(&record, self.profile.order);
        Some((record, time))
    }

    fn copy<W: Write>(&mut self, record: &Record<'p>, sink: &mut Sink<W>) -> io::Result<()> {
        if self.head.next_if(|&&(at, _)| at == record.offset).is_some() {
            return Ok(());
        }
        match self.identifiers.put(&mut self.buffer, record) {
            Outcome::Unchanged => {
                sink.write(record.bytes)?;
                sink.write(record.payload)?;
            }
            Outcome::Put => {}
            Outcome::StackCut => sink.losses.add(Loss::StackWord, record.offset),
            Outcome::TooLarge => sink.losses.add(Loss::Record, record.offset),
        }
        sink.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
