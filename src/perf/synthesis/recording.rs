//! Copies the records of a recording into a profile with synthetic records among them.

use std::io::{self, Write};
use std::iter::Peekable;
use std::slice;

use crate::collections::tally::Tally;
use crate::diagnostics::Issue;
use crate::perf::profile::Profile;
use crate::perf::record::{Record, Records};
use crate::perf::synthesis::identifier::{IdInserter, Outcome};
use crate::units::Time;

/// Output for records, with counts of lost data.
#[derive(Debug)]
pub(super) struct Sink<W> {
    pub out: W,
    /// Bytes of records written.
    pub written: u64,
    pub losses: Tally<Issue>,
}

impl<W: Write> Sink<W> {
    /// Writes whole records.
    pub fn write(&mut self, records: &[u8]) -> io::Result<()> {
        self.out.write_all(records)?;
        self.written = self.written.saturating_add(records.len() as u64);
        Ok(())
    }
}

/// The records of a recording that have not been written yet.
#[derive(Debug)]
pub(super) struct Recording<'p> {
    profile: &'p Profile<'p>,
    records: Records<'p>,
    /// The next record and its time. It may have to wait for synthetic records.
    next: Option<(Record<'p>, Option<Time>)>,
    /// Offset and size of records in a pipe that hold header sections.
    head: Peekable<slice::Iter<'p, (u64, u64)>>,
    ids: IdInserter<'p>,
    buffer: Vec<u8>,
}

impl<'p> Recording<'p> {
    /// Starts with the first record. `first_id` is the ID of the first event.
    pub fn new(profile: &'p Profile<'p>, first_id: u64) -> Self {
        Self {
            profile,
            records: profile.records(),
            next: None,
            head: profile.header_records.iter().peekable(),
            ids: IdInserter::new(profile, first_id),
            buffer: Vec::new(),
        }
    }

    /// Writes all records before the first one later than `limit`, or all records if they have no times.
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

    /// Writes the remaining records, then the bytes that are not records.
    pub fn copy_rest<W: Write>(&mut self, sink: &mut Sink<W>) -> io::Result<()> {
        while let Some((record, _)) = self.take_next() {
            self.copy(&record, sink)?;
        }
        let (_, undecoded) = self.records.undecoded().unwrap_or_default();
        sink.write(undecoded)
    }

    /// Returns the problems found while reading the recording.
    pub fn faults(&self) -> &'p Tally<Issue> {
        &self.profile.faults
    }

    fn take_next(&mut self) -> Option<(Record<'p>, Option<Time>)> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        let record = self.records.next()?;
        let time = self.profile.attrs.time_of(&record, self.profile.endian);
        Some((record, time))
    }

    fn copy<W: Write>(&mut self, record: &Record<'p>, sink: &mut Sink<W>) -> io::Result<()> {
        if self.head.next_if(|&&(at, _)| at == record.offset).is_some() {
            return Ok(());
        }
        match self.ids.write_with_id(&mut self.buffer, record) {
            Outcome::Unchanged => {
                sink.write(record.bytes)?;
                sink.write(record.payload)?;
            }
            Outcome::Rewritten => {}
            Outcome::StackCut => sink.losses.add(Issue::StackWordLost, record.offset),
            Outcome::TooLarge => sink.losses.add(Issue::RecordWithoutId, record.offset),
        }
        sink.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
