//! Merges several streams of records by time.
//!
//! `perf record --threads` writes a file for each ring buffer, that is for each CPU, and one with perf's own
//! records. A file consists of a few runs of records that are sorted by time. The runs of all files are
//! merged.
//!
//! The result is sorted and gets FINISHED_ROUND records, which let readers process it piece by piece.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::iter::Peekable;

use jitdump::{ByteOrder, Time};

use crate::bytes::slice;
use crate::perf::attr::Attrs;
use crate::perf::record::{self, HEADER_SIZE, Record, Records};

/// Bytes between two FINISHED_ROUND records, after which readers can release records that they have buffered.
pub(crate) const ROUND_SIZE: u64 = 1 << 20;

/// Writes the records of `parts` by time, and those of the same time in the order of the parts. Records
/// without a time follow their predecessor. If no record has a time, the parts are concatenated, with all
/// samples after the records about processes. Truncated records are dropped.
pub fn merge(parts: &[&[u8]], attrs: &Attrs, endian: ByteOrder, out: &mut dyn Write) -> io::Result<()> {
    if !attrs.has_times() {
        return concatenate(parts, endian, out);
    }
    let mut runs = Vec::new();
    for (part, data) in parts.iter().enumerate() {
        add_runs(&mut runs, part, Records::new(data, 0, endian), attrs, endian);
    }
    write_merged(runs, attrs, endian, parts, out)
}

/// Writes the records of all parts one after the other, samples behind all others.
fn concatenate(parts: &[&[u8]], endian: ByteOrder, out: &mut dyn Write) -> io::Result<()> {
    for are_samples in [false, true] {
        let records = parts.iter().flat_map(|part| Records::new(part, 0, endian));
        for record in records.filter(|record| (record.kind == record::SAMPLE) == are_samples) {
            out.write_all(record.bytes)?;
            out.write_all(record.payload)?;
        }
    }
    Ok(())
}

/// Sort key in the merged stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct MergeKey {
    time: Time,
    /// Index of the part.
    part: usize,
    /// Offset in the part.
    offset: u64,
}

/// Consecutive records of a part that are sorted by time.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Key of the first record.
    first: MergeKey,
    /// Offset of the end in the part.
    end: u64,
}

/// Adds the runs of a part: records that follow each other, with times that never go back.
fn add_runs<'a>(
    runs: &mut Vec<Run>,
    part: usize,
    records: impl Iterator<Item = Record<'a>>,
    attrs: &Attrs,
    endian: ByteOrder,
) {
    let mut last = None;
    for record in records {
        let recorded = attrs.time_of(&record, endian);
        let time = recorded.or(last).unwrap_or_default();
        match runs.last_mut() {
            Some(run) if last.is_some_and(|last| last <= time) => run.end = record.end(),
            _ => runs.push(Run {
                first: MergeKey {
                    time,
                    part,
                    offset: record.offset,
                },
                end: record.end(),
            }),
        }
        last = Some(time);
    }
}

/// A run that is being written.
struct Cursor<'a> {
    records: Peekable<Records<'a>>,
    /// Key of the next record.
    next: MergeKey,
}

impl Cursor<'_> {
    /// Skips all records before `limit`. Returns their size in bytes and whether there are more.
    fn advance(&mut self, limit: Option<MergeKey>, attrs: &Attrs, endian: ByteOrder) -> (u64, bool) {
        let mut skipped = 0u64;
        while let Some(record) = self.records.peek() {
            if let Some(time) = attrs.time_of(record, endian) {
                self.next.time = time;
            }
            self.next.offset = record.offset;
            if limit.is_some_and(|limit| limit <= self.next) {
                return (skipped, true);
            }
            skipped = skipped.saturating_add(record.size());
            self.records.next();
        }
        (skipped, false)
    }
}

/// The runs of which some records were written, and some were not.
#[derive(Default)]
struct OpenRuns<'a> {
    cursors: Vec<Cursor<'a>>,
    /// Indices of cursors whose runs have ended.
    free: Vec<usize>,
    /// Indices of the other ones, that with the earliest next record first.
    by_next: BinaryHeap<Reverse<(MergeKey, usize)>>,
}

impl<'a> OpenRuns<'a> {
    /// Returns the key of the earliest record.
    fn earliest(&self) -> Option<MergeKey> {
        self.by_next.peek().map(|&Reverse((key, _))| key)
    }

    /// Adds a run, in place of one that has ended if there is one: a file has any number of runs, and few at one time.
    fn add(&mut self, cursor: Cursor<'a>) {
        let index = self.free.pop().unwrap_or(self.cursors.len());
        self.by_next.push(Reverse((cursor.next, index)));
        match self.cursors.get_mut(index) {
            Some(place) => *place = cursor,
            None => self.cursors.push(cursor),
        }
    }
}

/// Writes the records of all runs in the order of time. `parts` are the files with these runs.
fn write_merged(
    mut runs: Vec<Run>,
    attrs: &Attrs,
    endian: ByteOrder,
    parts: &[&[u8]],
    out: &mut dyn Write,
) -> io::Result<()> {
    let bytes = |part: usize, start, end| {
        let part = parts.get(part).copied().unwrap_or_default();
        slice(part, start, end).unwrap_or_default()
    };
    runs.sort_unstable_by_key(|run| run.first);
    let mut pending_runs = runs.iter().peekable();
    let mut open = OpenRuns::default();
    let mut bytes_since_round = 0u64;
    loop {
        let earliest = open.earliest();
        let is_due = |run: &&Run| earliest.is_none_or(|earliest| run.first < earliest);
        if let Some(run) = pending_runs.next_if(is_due) {
            let MergeKey { part, offset, .. } = run.first;
            open.add(Cursor {
                records: Records::new(bytes(part, offset, run.end), offset, endian).peekable(),
                next: run.first,
            });
            continue;
        }
        let Some(Reverse((MergeKey { part, offset, .. }, index))) = open.by_next.pop() else {
            break;
        };
        // Its records are written up to the first one of another run.
        let others = [open.earliest(), pending_runs.peek().map(|run| run.first)];
        let limit = others.into_iter().flatten().min();
        let Some(cursor) = open.cursors.get_mut(index) else {
            continue;
        };
        let (skipped, has_more) = cursor.advance(limit, attrs, endian);
        out.write_all(bytes(part, offset, offset.saturating_add(skipped)))?;
        if has_more {
            open.by_next.push(Reverse((cursor.next, index)));
        } else {
            open.free.push(index);
        }
        bytes_since_round = bytes_since_round.saturating_add(skipped);
        if bytes_since_round >= ROUND_SIZE {
            bytes_since_round = 0;
            write_finished_round(endian, out)?;
        }
    }
    write_finished_round(endian, out)
}

/// Writes a FINISHED_ROUND record: all later records are at least as late as those before the previous one.
pub(crate) fn write_finished_round(endian: ByteOrder, out: &mut dyn Write) -> io::Result<()> {
    let mut round = Vec::with_capacity(HEADER_SIZE);
    record::write_header(&mut round, endian, record::FINISHED_ROUND, 0, HEADER_SIZE);
    out.write_all(&round)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::Attr;
    use crate::perf::testing::{self, ORDER, SAMPLE_ID_ALL};

    /// A record type that needs no fields except these.
    const KIND: u32 = record::AUX;

    /// An event whose records only have a time.
    fn attrs() -> Attrs {
        let bytes = testing::attr(64, 4, SAMPLE_ID_ALL);
        let mut attrs = Attrs::default();
        attrs.push(Attr::parse(&bytes, ORDER), std::iter::empty());
        attrs
    }

    fn put(out: &mut Vec<u8>, number: u64, time: u64) {
        out.extend(testing::record(KIND, 0, &[number, time]));
    }

    fn merged(parts: &[Vec<u8>]) -> Vec<(u64, u64)> {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut out = Vec::new();
        merge(&parts, &attrs(), ORDER, &mut out).unwrap();
        let records = Records::new(&out, 0, ORDER).filter(|record| record.kind == KIND);
        let fields = records.map(|record| {
            let mut body = record.body(ORDER);
            (body.u64().unwrap(), body.u64().unwrap())
        });
        fields.collect()
    }

    #[test]
    fn records_of_several_parts_are_merged_by_time() {
        let mut parts = vec![Vec::new(); 3];
        let mut expected = Vec::new();
        // A part with the records of two CPUs, ten of each in turn.
        for number in 0..10_000u64 {
            let time = 1000 + number % 10 * 3 + number / 20 * 30;
            let part = (number * 7 % 3) as usize;
            put(&mut parts[part], number, time);
            expected.push((time, part, number));
        }
        expected.sort_by_key(|&(time, part, _)| (time, part));
        let expected: Vec<(u64, u64)> = expected.iter().map(|&(time, _, n)| (n, time)).collect();
        assert_eq!(merged(&parts), expected);
    }

    #[test]
    fn records_without_a_time_follow_their_predecessor() {
        let mut first = Vec::new();
        put(&mut first, 1, 10);
        record::write_header(&mut first, ORDER, 78, 0, 8);
        put(&mut first, 2, 30);
        let mut second = Vec::new();
        put(&mut second, 3, 20);
        let mut out = Vec::new();
        merge(&[&first, &second], &attrs(), ORDER, &mut out).unwrap();
        let kinds: Vec<u32> = Records::new(&out, 0, ORDER).map(|record| record.kind).collect();
        assert_eq!(kinds, [KIND, 78, KIND, KIND, record::FINISHED_ROUND]);
    }
}
