//! Records of basic mode: 32 bytes each, of a function or of an argument, with the thread that it is of.
//!
//! A thread writes its records when it has collected some, mostly 1024; so there are runs of one thread, in its order.

use crate::bytes::{ByteOrder, Reader};
use crate::runtime::xray::header::{self, Header};
use crate::runtime::xray::index::Buffer;
use crate::runtime::xray::record::{Record, What};
use crate::runtime::xray::trace::Fault;
use crate::tally::Tally;

/// The size of a record in bytes.
pub const RECORD: usize = 32;

// Types of records.
const FUNCTION: u16 = 0;
const ARGUMENT: u16 = 1;

/// The version in which records tell the process.
const WITH_PID: u16 = 3;

/// What a record tells, all but its thread.
#[derive(Clone, Copy)]
enum Content {
    Function { cpu: u8, tick: u64, what: What<'static> },
    Argument(u64),
}

/// `None` for records of no known type.
#[inline]
fn content(record: &[u8; RECORD], order: ByteOrder) -> Option<Content> {
    let mut reader = Reader::new(record, order);
    let record_type = reader.u16()?;
    let (cpu, action) = (reader.u8()?, reader.u8()?);
    let function = reader.u32()?;
    let value = reader.u64()?;
    match record_type {
        FUNCTION => {
            let what = match action {
                0 => What::Enter { function },
                1 => What::Exit { function },
                2 => What::TailExit { function },
                3 => What::EnterWithArguments { function },
                _ => return None,
            };
            let tick = value;
            Some(Content::Function { cpu, tick, what })
        }
        // Between them, an argument has its thread.
        ARGUMENT => Some(Content::Argument(reader.u64()?)),
        _ => None,
    }
}

/// Process and thread of a record; `None` for records of no known type.
fn owner(record: &[u8; RECORD], header: &Header) -> Option<(Option<i32>, i32)> {
    let mut reader = Reader::new(record, header.order);
    match reader.u16()? {
        FUNCTION => reader.skip(14)?,
        ARGUMENT => reader.skip(6)?,
        _ => return None,
    }
    let (thread, process) = (reader.u32()? as i32, reader.u32()? as i32);
    Some(((header.version >= WITH_PID).then_some(process), thread))
}

/// Whether what follows a header is a record.
pub(super) fn starts_like_one(records: &[u8], header: &Header) -> bool {
    let is_first = |record| {
        let is_function = matches!(content(record, header.order), Some(Content::Function { .. }));
        is_function && owner(record, header).is_some_and(|(_, thread)| thread > 0)
    };
    records.first_chunk().is_some_and(is_first)
}

/// A walk over the runs of records of one thread.
#[derive(Clone, Debug)]
pub(super) struct Runs<'a> {
    header: Header,
    rest: &'a [u8],
    position: u64,
    faults: Tally<Fault>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(file: &'a [u8], header: Header) -> Self {
        Self {
            header,
            rest: file.get(header::SIZE..).unwrap_or_default(),
            position: header::SIZE as u64,
            faults: Tally::default(),
        }
    }

    /// What could not be used of what was walked so far.
    pub(super) fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }
}

impl Iterator for Runs<'_> {
    type Item = Buffer;

    fn next(&mut self) -> Option<Buffer> {
        let mut run: Option<Buffer> = None;
        let mut has_tick = false;
        while let Some((record, behind)) = self.rest.split_first_chunk() {
            let (at, end) = (self.position, self.position.saturating_add(RECORD as u64));
            let owner = owner(record, &self.header);
            let current = run.as_ref().map(|run| (run.process, run.thread));
            if current.is_some() && owner.is_some() && owner != current {
                break;
            }
            match (&mut run, owner) {
                (Some(run), _) => run.end = end,
                (None, Some((process, thread))) => {
                    run = Some(Buffer {
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
                (None, None) => self.faults.add(Fault::UnknownRecord, at),
            }
            if !has_tick
                && let Some(run) = &mut run
                && let Some(Content::Function { tick, .. }) = content(record, self.header.order)
            {
                run.tick = tick;
                has_tick = true;
            }
            self.rest = behind;
            self.position = end;
        }
        if run.is_none() && !self.rest.is_empty() {
            self.faults.add(Fault::CutTail, self.position);
            self.rest = &[];
        }
        run
    }
}

/// Reads the records of a run one by one.
#[derive(Clone, Debug)]
pub(super) struct Decoder<'a> {
    rest: &'a [u8],
    offset: u64,
    order: ByteOrder,
    /// Of the last function.
    tick: u64,
    cpu: u16,
    faults: Tally<Fault>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(content: &'a [u8], header: &Header, buffer: &Buffer) -> Self {
        Self {
            rest: content,
            offset: buffer.start,
            order: header.order,
            tick: buffer.tick,
            cpu: 0,
            faults: Tally::default(),
        }
    }

    pub(super) fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }

    /// Where the next record starts in the file.
    pub(super) fn next_offset(&self) -> u64 {
        self.offset
    }

    /// The next record.
    #[inline]
    pub(super) fn record(&mut self) -> Option<Record<'a>> {
        while let Some((record, behind)) = self.rest.split_first_chunk() {
            let offset = self.offset;
            self.rest = behind;
            self.offset = offset.saturating_add(RECORD as u64);
            let what = match content(record, self.order) {
                Some(Content::Function { cpu, tick, what }) => {
                    if tick < self.tick {
                        self.faults.add(Fault::TickBack, offset);
                    }
                    self.tick = tick;
                    self.cpu = cpu.into();
                    what
                }
                Some(Content::Argument(argument)) => What::Argument(argument),
                None => {
                    self.faults.add(Fault::UnknownRecord, offset);
                    continue;
                }
            };
            return Some(Record {
                tick: self.tick,
                cpu: self.cpu,
                offset,
                what,
            });
        }
        None
    }
}
