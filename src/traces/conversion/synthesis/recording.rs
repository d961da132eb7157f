//! Copies the records of a recording into a profile with synthetic records among them.

use std::io::{self, Write};
use std::iter::Peekable;
use std::slice;

use jitdump::{Tally, Time};

use crate::perf::profile::Profile;
use crate::perf::record::Record;
use crate::perf::record::data::ProfileBytes;
use crate::perf::record::reader::RecordReader;
use crate::results::diagnostics::Issue;
use crate::traces::conversion::synthesis::identifier::{IdInserter, Outcome};

/// Output for records, with counts of lost data.
#[derive(Debug)]
pub(super) struct Sink<W> {
    pub out: W,
    /// Bytes of records written.
    pub written: u64,
    pub faults: Tally<Issue>,
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, records: &[u8]) -> io::Result<usize> {
        let written = self.out.write(records)?;
        self.written = self.written.saturating_add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The records of a recording that have not been written yet.
#[derive(Debug)]
pub(super) struct RemainingRecords<'p> {
    profile: &'p Profile<'p>,
    records: RecordReader<'p>,
    writer: RecordWriter<'p>,
}

impl<'p> RemainingRecords<'p> {
    /// Starts with the first record. `first_id` is the ID of the first event.
    pub fn new(profile: &'p Profile<'p>, first_id: u64) -> Self {
        Self {
            profile,
            records: profile.records(),
            writer: RecordWriter {
                data: profile.data,
                head: profile.header_records.iter().peekable(),
                ids: IdInserter::new(profile, first_id),
                buffer: Vec::new(),
            },
        }
    }

    /// Writes all records before the first one later than `limit`, or all records if they have no times.
    pub fn copy_until<W: Write>(&mut self, limit: Time, sink: &mut Sink<W>) -> io::Result<()> {
        let Profile { attrs, endian, .. } = self.profile;
        let has_times = attrs.has_times();
        while let Some(record) = self.records.peek() {
            if has_times && attrs.time_of(&record, *endian).is_some_and(|time| time > limit) {
                break;
            }
            self.writer.copy(&record, sink)?;
            let end = record.end();
            self.records.seek(end);
        }
        Ok(())
    }

    /// Writes the remaining records, then the bytes that are not records.
    pub fn copy_rest<W: Write>(&mut self, sink: &mut Sink<W>) -> io::Result<()> {
        while let Some(record) = self.records.next() {
            self.writer.copy(&record, sink)?;
        }
        self.profile.data.tail(self.records.offset()).copy_to(sink)
    }

    /// Returns the problems found while reading the recording.
    pub fn faults(&self) -> &'p Tally<Issue> {
        &self.profile.faults
    }
}

/// Writes the records of a recording.
#[derive(Debug)]
struct RecordWriter<'p> {
    data: ProfileBytes<'p>,
    /// Offset and size of records in a pipe that hold header sections.
    head: Peekable<slice::Iter<'p, (u64, u64)>>,
    ids: IdInserter<'p>,
    buffer: Vec<u8>,
}

impl RecordWriter<'_> {
    fn copy<W: Write>(&mut self, record: &Record<'_>, sink: &mut Sink<W>) -> io::Result<()> {
        if self.head.next_if(|&&(at, _)| at == record.offset).is_some() {
            return Ok(());
        }
        match self.ids.write_with_id(&mut self.buffer, record) {
            Outcome::Unchanged => self.data.copy_record(record, sink)?,
            Outcome::Rewritten => {}
            Outcome::StackCut => sink.faults.add(Issue::StackWordLost, record.offset),
            Outcome::TooLarge => sink.faults.add(Issue::RecordWithoutId, record.offset),
        }
        sink.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
