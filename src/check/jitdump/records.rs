//! Checks of each record of a jitdump, using only the records before it, as other readers do.

use crate::bytes::ByteOrder;
use crate::check::findings::{Findings, Place};
use crate::check::jitdump::moves::CodeAddresses;
use crate::check::jitdump::{functions, lines, unwinding};
use crate::diagnostics::rules::{Rule, debug_info, jitdump as rules, unwinding as unwinding_rules};
use crate::runtime::jitdump::debug_info2::{self, Layout};
use crate::runtime::jitdump::record::{self, PREFIX_SIZE, Record, Step};
use crate::runtime::jitdump::{self as format, Dump, Load, Moved, Records};

/// Record type with which samply reads DEBUG_INFO2 in the layout of positions with their callers.
const POSITIONS: u32 = record::JIT_TIER;

/// Checks all records. Returns their number.
pub(super) fn check(file: &[u8], dump: &Dump<'_>, findings: &mut Findings) -> u64 {
    let mut walk = Walk {
        file,
        dump,
        endian: dump.header().endian,
        count: 0,
        functions: 0,
        last_time: 0,
        empty: None,
        is_closed: false,
        last: Last::default(),
        addresses: CodeAddresses::default(),
        findings,
    };
    let (mut last, mut end) = (0, 0);
    for step in format::records(file, dump.header()) {
        (last, end) = match step {
            Step::Record(record) | Step::Repaired(record) => {
                walk.record(&record);
                (record.offset, end_of(&record))
            }
            Step::Damage { offset, size } => (offset, offset.saturating_add(size)),
            Step::CutTail { offset } => (offset, file.len() as u64),
        };
    }
    walk.finish(last, end)
}

fn end_of(record: &Record<'_>) -> u64 {
    let size = PREFIX_SIZE.saturating_add(record.content.len());
    record.offset.saturating_add(size as u64)
}

/// Offsets of the records that perf assigns to the next function.
#[derive(Clone, Copy, Default)]
struct Last {
    debug_info: Option<u64>,
    unwinding: Option<u64>,
}

/// State of the walk over the records.
struct Walk<'w, 'a> {
    file: &'a [u8],
    dump: &'w Dump<'a>,
    endian: ByteOrder,
    count: u64,
    /// Number of functions so far, which are indexed in file order.
    functions: u32,
    last_time: u64,
    /// Offset of the last record, if it has no content.
    empty: Option<u64>,
    is_closed: bool,
    last: Last,
    addresses: CodeAddresses,
    findings: &'w mut Findings,
}

impl<'a> Walk<'_, 'a> {
    fn record(&mut self, record: &Record<'a>) {
        self.count = self.count.saturating_add(1);
        self.check_place(record);
        self.check_time(record);
        match record.kind {
            record::LOAD => self.load(record),
            record::MOVE => self.moved(record),
            record::DEBUG_INFO => self.last.debug_info = Some(record.offset),
            record::CLOSE => self.is_closed = true,
            record::UNWINDING_INFO => {
                self.last.unwinding = Some(record.offset);
                unwinding::check(record, self.endian, self.findings);
            }
            record::EXTENSION_FIRST..=record::EMBEDDED_SOURCE_FILE => self.extension(record),
            kind => self.findings.add(&rules::UNKNOWN_RECORD, record.offset, || {
                Place::at("unknown").saying(format!("type {kind}"))
            }),
        }
    }

    fn note(&mut self, rule: &'static Rule, offset: u64) {
        self.findings.add(rule, offset, Place::default);
    }

    fn check_place(&mut self, record: &Record<'_>) {
        if let Some(offset) = self.empty.take() {
            self.note(&rules::EMPTY_RECORD, offset);
        }
        self.empty = record.content.is_empty().then_some(record.offset);
        if self.is_closed {
            self.note(&rules::BEHIND_CLOSE, record.offset);
        }
        if !record.offset.is_multiple_of(8) {
            self.note(&rules::UNALIGNED, record.offset);
        }
    }

    fn check_time(&mut self, record: &Record<'_>) {
        let before = std::mem::replace(&mut self.last_time, record.time);
        if record.time == 0 {
            self.note(&rules::NO_TIME, record.offset);
        } else if record.time < before {
            let back = before.saturating_sub(record.time);
            self.findings.add(&rules::TIME_ORDER, record.offset, || {
                Place::default().saying(format!("{back} before the record in front of it"))
            });
        }
    }

    fn load(&mut self, record: &Record<'a>) {
        let last = std::mem::take(&mut self.last);
        let Some(load) = Load::parse(record.content, self.endian) else {
            return;
        };
        let number = self.functions;
        let Some(function) = self.dump.records(number) else {
            return;
        };
        self.functions = number.saturating_add(1);
        functions::check(self.dump, record.offset, &load, self.findings);
        self.check_index(number, record, &load);
        if let Some(place) = function.debug_info
            && last.debug_info != Some(place.offset)
        {
            self.note(&debug_info::NOT_NEXT, place.offset);
        }
        if let Some(place) = function.unwinding
            && last.unwinding != Some(place.offset)
        {
            self.findings
                .add(&unwinding_rules::SEVERAL_LOADS, record.offset, || {
                    Place::default().saying(format!("that of {:#x}", place.offset))
                });
        }
        lines::check(self.file, self.dump, number, self.findings);
    }

    /// Checks that a function's `code_index` is unique, unless its record is a duplicate.
    fn check_index(&mut self, number: u32, record: &Record<'_>, load: &Load<'_>) {
        let Some(before) = self.addresses.load(number, load) else {
            return;
        };
        let content = |number| Records::content(self.file, self.dump.records(number)?.load);
        if content(before) != Some(record.content) {
            let index = load.index;
            self.findings.add(&rules::INDEX_REUSED, record.offset, || {
                Place::default().saying(format!("index {index}"))
            });
        }
    }

    fn moved(&mut self, record: &Record<'_>) {
        let Some(moved) = Moved::parse(record, self.endian) else {
            return;
        };
        if let Some(message) = self.addresses.moved(&moved, self.dump) {
            self.findings.add(&rules::ODD_MOVE, record.offset, || {
                Place::default().saying(message)
            });
        }
    }

    fn extension(&mut self, record: &Record<'_>) {
        let kind = record.kind;
        self.findings.add(&debug_info::EXTENSION, record.offset, || {
            Place::default().saying(format!("type {kind}"))
        });
        let layout = debug_info2::layout(record.content, self.endian);
        let layout = match layout {
            None => return,
            Some(Layout::Positions(_)) if kind == POSITIONS => return,
            Some(Layout::Positions(_)) => "positions",
            Some(Layout::Lists) => "lists",
        };
        self.findings.add(&debug_info::OTHER_LAYOUT, record.offset, || {
            Place::default().saying(format!("{layout} as type {kind}"))
        });
    }

    /// Runs the checks at the end of the file. The last record, or damage, is from `last` to `end`. Returns the number
    /// of records.
    fn finish(mut self, last: u64, end: u64) -> u64 {
        let rest = (self.file.len() as u64).saturating_sub(end);
        if self.count > 0 {
            self.findings
                .add_many(&rules::TRAILING_ZEROS, rest, end, Place::default);
            if !self.is_closed {
                self.note(&rules::NO_CLOSE, last);
            }
        }
        self.count
    }
}
