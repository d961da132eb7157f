//! Records of XRay's basic mode: 32 bytes each, for a function call or an argument, with the thread ID.
//!
//! A thread writes its records in batches, mostly of 1024. So the file has runs of records of one thread, in
//! the order in which the thread made them.

use jitdump::{ByteOrder, Tally};

use crate::bytes::Reader;
use crate::results::diagnostics::Issue;
use crate::traces::xray::format::buffer::TraceBuffer;
use crate::traces::xray::format::header;
use crate::traces::xray::format::header::TraceHeader;
use crate::traces::xray::format::record::{RecordKind, TraceRecord};

/// Size of a record, in bytes.
pub const RECORD_SIZE: usize = 32;

// Record types.
const FUNCTION: u16 = 0;
const ARGUMENT: u16 = 1;

/// First version whose records have a process ID.
const WITH_PID: u16 = 3;

/// Decoded record, without process and thread.
#[derive(Clone, Copy)]
enum RecordContent {
    Function {
        cpu: u8,
        tick: u64,
        kind: RecordKind<'static>,
    },
    Argument(u64),
}

/// Decodes a record; `None` if its type or action is unknown.
#[inline]
fn decode_content(record: &[u8; RECORD_SIZE], endian: ByteOrder) -> Option<RecordContent> {
    let mut reader = Reader::new(record, endian);
    let record_type = reader.u16()?;
    let (cpu, action) = (reader.u8()?, reader.u8()?);
    let function = reader.u32()?;
    let value = reader.u64()?;
    match record_type {
        FUNCTION => Some(RecordContent::Function {
            cpu,
            tick: value,
            kind: RecordKind::of_action(action.into(), function)?,
        }),
        // `value` is the process and thread ID here; the argument follows.
        ARGUMENT => Some(RecordContent::Argument(reader.u64()?)),
        _ => None,
    }
}

/// Returns the process and thread ID of a record; `None` if its type is unknown.
fn pid_and_tid(record: &[u8; RECORD_SIZE], header: &TraceHeader) -> Option<(Option<i32>, i32)> {
    let mut reader = Reader::new(record, header.endian);
    // CPU, action and function; then the time, if it is a call.
    let before_ids = match reader.u16()? {
        FUNCTION => 6 + 8,
        ARGUMENT => 6,
        _ => return None,
    };
    reader.skip(before_ids)?;
    let (thread, process) = (reader.u32()? as i32, reader.u32()? as i32);
    Some(((header.version >= WITH_PID).then_some(process), thread))
}

/// Returns whether the data after a header starts with a plausible record.
pub(super) fn starts_with_record(records: &[u8], header: &TraceHeader) -> bool {
    let is_first = |record| {
        let is_function = matches!(
            decode_content(record, header.endian),
            Some(RecordContent::Function { .. })
        );
        is_function && pid_and_tid(record, header).is_some_and(|(_, thread)| thread > 0)
    };
    records.first_chunk().is_some_and(is_first)
}

/// Iterator over the runs of records of one thread.
#[derive(Clone, Debug)]
pub(super) struct Runs<'a> {
    header: TraceHeader,
    rest: &'a [u8],
    position: u64,
    pub(super) faults: Tally<Issue>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(file: &'a [u8], header: TraceHeader) -> Self {
        Self {
            header,
            rest: file.get(header::SIZE..).unwrap_or_default(),
            position: header::SIZE as u64,
            faults: Tally::default(),
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = TraceBuffer;

    fn next(&mut self) -> Option<TraceBuffer> {
        let mut run: Option<TraceBuffer> = None;
        let mut has_tick = false;
        while let Some((record, rest)) = self.rest.split_first_chunk() {
            let (at, end) = (self.position, self.position.saturating_add(RECORD_SIZE as u64));
            let owner = pid_and_tid(record, &self.header);
            let current = run.as_ref().map(|run| (run.process, run.thread));
            if current.is_some() && owner.is_some() && owner != current {
                break;
            }
            match (&mut run, owner) {
                (Some(run), _) => run.end = end,
                (None, Some((process, thread))) => {
                    run = Some(TraceBuffer {
                        process,
                        thread,
                        offset: at,
                        wall: None,
                        tick: 0,
                        start: at,
                        end,
                        is_cut: false,
                    });
                }
                (None, None) => self.faults.add(Issue::XrayUnknownRecord, at),
            }
            if !has_tick
                && let Some(run) = &mut run
                && let Some(RecordContent::Function { tick, .. }) = decode_content(record, self.header.endian)
            {
                run.tick = tick;
                has_tick = true;
            }
            self.rest = rest;
            self.position = end;
        }
        if run.is_none() && !self.rest.is_empty() {
            self.faults.add(Issue::XrayCutTail, self.position);
            self.rest = &[];
        }
        run
    }
}

/// Decodes the records of a run one by one.
#[derive(Clone, Debug)]
pub(super) struct BasicDecoder<'a> {
    rest: &'a [u8],
    offset: u64,
    endian: ByteOrder,
    /// Tick of the last function record.
    tick: u64,
    cpu: u16,
    pub(super) faults: Tally<Issue>,
}

impl<'a> BasicDecoder<'a> {
    pub(super) fn new(content: &'a [u8], header: &TraceHeader, buffer: &TraceBuffer) -> Self {
        Self {
            rest: content,
            offset: buffer.start,
            endian: header.endian,
            tick: buffer.tick,
            cpu: 0,
            faults: Tally::default(),
        }
    }

    /// Returns the offset of the next record in the file, in bytes.
    pub(super) fn next_offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next record.
    #[inline]
    pub(super) fn record(&mut self) -> Option<TraceRecord<'a>> {
        while let Some((record, rest)) = self.rest.split_first_chunk() {
            let offset = self.offset;
            self.rest = rest;
            self.offset = offset.saturating_add(RECORD_SIZE as u64);
            let kind = match decode_content(record, self.endian) {
                Some(RecordContent::Function { cpu, tick, kind }) => {
                    if tick < self.tick {
                        self.faults.add(Issue::XrayTickBack, offset);
                    }
                    self.tick = tick;
                    self.cpu = cpu.into();
                    kind
                }
                Some(RecordContent::Argument(argument)) => RecordKind::Argument(argument),
                None => {
                    self.faults.add(Issue::XrayUnknownRecord, offset);
                    continue;
                }
            };
            return Some(TraceRecord {
                tick: self.tick,
                cpu: self.cpu,
                offset,
                kind,
            });
        }
        None
    }
}
