//! Checks of each record of a jitdump, using only the records before it, as other readers do.

use jitdump::internals::format;
use jitdump::internals::format::debug_info2::DebugInfo2Layout;
use jitdump::internals::format::debug_info2::source_track::SourceTrack;
use jitdump::internals::format::record::{PREFIX_SIZE, Record, RecordType, Step};
use jitdump::internals::format::source_file::EmbeddedSource;
use jitdump::internals::format::{Load, Move, Records, debug_info2, record, tier};
use jitdump::{ByteOrder, Dump};

use crate::bytes::is_terminal_control;
use crate::results::diagnostics::CatalogueEntry;
use crate::results::diagnostics::rules::{debug_info, jitdump as rules, unwinding as unwinding_rules};
use crate::tools::check::findings::{Findings, Place};
use crate::tools::check::jitdump::code_indexes::CodeIndexes;
use crate::tools::check::jitdump::names::is_encoded_twice;
use crate::tools::check::jitdump::unwinding::TableChecker;
use crate::tools::check::jitdump::{lines, unwinding};

/// Record type with which samply reads DEBUG_INFO2 in the layout of positions with their callers.
const POSITIONS: u32 = record::JIT_TIER;

/// Time between records beyond which they have different clocks: 13 days in nanoseconds. CLOCK_MONOTONIC and
/// CLOCK_REALTIME are decades apart.
const DISTANT: u64 = 1 << 50;

/// Checks all records. Returns their number.
pub(super) fn check(file: &[u8], dump: &Dump<'_>, findings: &mut Findings) -> u64 {
    let mut checker = RecordChecker {
        file,
        dump,
        endian: dump.header().endian,
        count: 0,
        functions: 0,
        last_time: 0,
        last_empty: None,
        is_closed: false,
        pending: PendingOffsets::default(),
        code_indexes: CodeIndexes::default(),
        tables: TableChecker::default(),
        findings,
    };
    let (mut last, mut end) = (0, 0);
    for step in format::records(file, dump.header()) {
        (last, end) = match step {
            Step::Record(record) | Step::Repaired(record) => {
                checker.check(&record);
                (record.offset, end_of(&record))
            }
            Step::Damage { offset, size } => (offset, offset.saturating_add(size)),
            Step::CutTail { offset } => (offset, file.len() as u64),
        };
    }
    checker.finish(last, end)
}

fn end_of(record: &Record<'_>) -> u64 {
    let size = PREFIX_SIZE.saturating_add(record.content.len());
    record.offset.saturating_add(size as u64)
}

/// Offsets of the records that perf assigns to the next function.
#[derive(Clone, Copy, Default)]
struct PendingOffsets {
    debug_info: Option<u64>,
    debug_info2: Option<u64>,
    unwinding: Option<u64>,
}

/// Checks records one after the other.
struct RecordChecker<'w, 'a> {
    file: &'a [u8],
    dump: &'w Dump<'a>,
    endian: ByteOrder,
    count: u64,
    /// Number of functions so far, which are indexed in file order.
    functions: u32,
    last_time: u64,
    /// Offset of the last record, if it has no content.
    last_empty: Option<u64>,
    is_closed: bool,
    pending: PendingOffsets,
    code_indexes: CodeIndexes,
    tables: TableChecker<'a>,
    findings: &'w mut Findings,
}

impl<'a> RecordChecker<'_, 'a> {
    /// Checks a record by those before it.
    fn check(&mut self, record: &Record<'a>) {
        self.count = self.count.saturating_add(1);
        self.check_position(record);
        self.check_time(record);
        match RecordType::of(record.kind) {
            Some(RecordType::Load) => self.check_load(record),
            Some(RecordType::Move) => self.check_move(record),
            Some(RecordType::DebugInfo) => self.pending.debug_info = Some(record.offset),
            Some(RecordType::Close) => self.is_closed = true,
            Some(RecordType::UnwindingInfo) => {
                self.pending.unwinding = Some(record.offset);
                unwinding::check(record, self.endian, self.findings);
            }
            Some(RecordType::Extension) => self.check_extension(record),
            Some(RecordType::SourceTrack) => {
                self.report(&debug_info::EXTENSION, record.offset);
                if SourceTrack::parse(record.content, self.endian).is_none() {
                    self.report(&debug_info::BAD_EXTENSION, record.offset);
                }
            }
            None => self.findings.add(&rules::UNKNOWN_RECORD, record.offset, || {
                Place::in_record("unknown").with_message(format!("type {}", record.kind))
            }),
        }
    }

    fn report(&mut self, rule: &'static CatalogueEntry, offset: u64) {
        self.findings.add(rule, offset, Place::default);
    }

    /// Checks what comes before a record: nothing empty, no CLOSE, and a multiple of 8 bytes.
    fn check_position(&mut self, record: &Record<'_>) {
        if let Some(offset) = self.last_empty.take() {
            self.report(&rules::EMPTY_RECORD, offset);
        }
        self.last_empty = record.content.is_empty().then_some(record.offset);
        if self.is_closed {
            self.report(&rules::AFTER_CLOSE, record.offset);
        }
        if !record.offset.is_multiple_of(8) {
            self.report(&rules::UNALIGNED, record.offset);
        }
    }

    /// Checks the time of a record, alone and after that of the record in front of it.
    fn check_time(&mut self, record: &Record<'_>) {
        let last = std::mem::replace(&mut self.last_time, record.time);
        if record.time == 0 {
            self.report(&rules::NO_TIME, record.offset);
        } else if last > 0 && record.time.abs_diff(last) > DISTANT {
            self.report(&rules::CLOCKS, record.offset);
        } else if record.time < last {
            let back = last.saturating_sub(record.time);
            self.findings.add(&rules::TIME_ORDER, record.offset, || {
                Place::default().with_message(format!("{back} before the record in front of it"))
            });
        }
    }

    /// Checks a LOAD record, its function, and whether the pending records are those that belong to it.
    fn check_load(&mut self, record: &Record<'a>) {
        let pending = std::mem::take(&mut self.pending);
        let Some(load) = Load::parse(record.content, self.endian) else {
            return;
        };
        let number = self.functions;
        let Some(function) = self.dump.function_records(number) else {
            return;
        };
        self.functions = number.saturating_add(1);
        self.check_function(record.offset, &load);
        self.check_code_index(number, record, &load);
        for (place, pending) in [
            (function.debug_info, pending.debug_info),
            (function.debug_info2, pending.debug_info2),
        ] {
            if let Some(place) = place
                && pending != Some(place.offset)
            {
                self.report(&debug_info::NOT_NEXT, place.offset);
            }
        }
        if let Some(place) = function.unwinding
            && pending.unwinding != Some(place.offset)
        {
            self.findings
                .add(&unwinding_rules::SEVERAL_LOADS, record.offset, || {
                    Place::default().with_message(format!("that of {:#x}", place.offset))
                });
        }
        self.tables.check(self.file, self.dump, number, self.findings);
        lines::check(self.file, self.dump, number, self.findings);
    }

    /// Checks the function of the LOAD record at `offset`.
    fn check_function(&mut self, offset: u64, load: &Load<'_>) {
        let mut add = |rule, message: &dyn Fn() -> String| {
            self.findings.add(rule, offset, || {
                Place::in_record("LOAD")
                    .in_function(load.name)
                    .with_message(message())
            });
        };
        let nothing_more: &dyn Fn() -> String = &String::new;
        if load.size == 0 {
            add(&rules::NO_CODE, &|| format!("at {}", load.start));
        }
        if load.vma != load.start.0 {
            add(&rules::VMA, &|| {
                format!("vma is {:#x}, code_addr {}", load.vma, load.start)
            });
        }
        if !load.padding.is_empty() {
            add(&rules::LOAD_PADDING, &|| {
                format!("{} of them", load.padding.len())
            });
        }
        let own = self.dump.header().pid;
        if own != 0 && load.pid != own {
            add(&rules::OTHER_PID, &|| format!("process {}", load.pid));
        }
        if load.name.is_empty() {
            add(&rules::NO_NAME, &|| format!("code at {}", load.start));
        }
        match std::str::from_utf8(load.name) {
            Err(_) => add(&rules::NOT_UTF8, nothing_more),
            Ok(name) => {
                if is_encoded_twice(name) {
                    add(&rules::ENCODED_TWICE, nothing_more);
                } else if name.contains(is_terminal_control) {
                    add(&rules::CONTROL_CHARACTERS, nothing_more);
                }
            }
        }
    }

    /// Checks that a function's `code_index` is unique, unless its record is a duplicate.
    fn check_code_index(&mut self, number: u32, record: &Record<'_>, load: &Load<'_>) {
        if let Some(offset) = self.code_indexes.take_early_move(load) {
            self.findings.add(&rules::EARLY_MOVE, offset, || {
                Place::default().with_message(format!("its LOAD record is at {:#x}", record.offset))
            });
        }
        let Some(before) = self.code_indexes.add_load(number, load) else {
            return;
        };
        let content = |number| Records::content(self.file, self.dump.function_records(number)?.load);
        if content(before) != Some(record.content) {
            let index = load.code_index;
            self.findings
                .add(&rules::DUPLICATE_CODE_INDEX, record.offset, || {
                    Place::default().with_message(format!("index {index}"))
                });
        }
    }

    /// Checks that the new addresses in a MOVE record are the same, and that its other fields are those of a function before
    /// it.
    fn check_move(&mut self, record: &Record<'_>) {
        let Some(moved) = Move::parse(record, self.endian) else {
            return;
        };
        if moved.vma != moved.to.0 {
            self.report(&rules::MOVE_VMA, record.offset);
        }
        self.code_indexes.note_early_move(&moved);
        if let Some(message) = self.code_indexes.apply_move(&moved, self.dump) {
            self.findings.add(&rules::INCONSISTENT_MOVE, record.offset, || {
                Place::default().with_message(message)
            });
        }
    }

    /// Checks an extension record: a DEBUG_INFO2 of either layout, or another one.
    fn check_extension(&mut self, record: &Record<'_>) {
        let kind = record.kind;
        self.findings.add(&debug_info::EXTENSION, record.offset, || {
            Place::default().with_message(format!("type {kind}"))
        });
        let layout = debug_info2::layout(record.content, self.endian);
        // samply assigns only those with positions, so that others between them and their LOAD are no problem.
        if matches!(layout, Some(DebugInfo2Layout::Positions(_))) || self.pending.debug_info2.is_none() {
            self.pending.debug_info2 = layout.map(|_| record.offset).or(self.pending.debug_info2);
        }
        let layout = match layout {
            None => return self.check_other_extension(record),
            Some(DebugInfo2Layout::Positions(_)) if kind == POSITIONS => return,
            Some(DebugInfo2Layout::Lists) if kind == record::EXTENSION_FIRST => return,
            Some(DebugInfo2Layout::Positions(_)) => "positions",
            Some(DebugInfo2Layout::Lists) => "lists",
        };
        self.findings.add(&debug_info::OTHER_LAYOUT, record.offset, || {
            Place::default().with_message(format!("{layout} as type {kind}"))
        });
    }

    /// Checks an extension record that is no DEBUG_INFO2, or a damaged one.
    fn check_other_extension(&mut self, record: &Record<'_>) {
        let is_valid = match record.kind {
            record::JIT_TIER => tier::parse(record.content).is_some(),
            record::EMBEDDED_SOURCE_FILE => EmbeddedSource::parse(record.content, self.endian).is_some(),
            _ => false,
        };
        if is_valid {
            return;
        }
        let is_lists = record.kind == record::EXTENSION_FIRST;
        let has_lists = is_lists || record.kind == POSITIONS && debug_info2::may_be_positions(record.content);
        self.findings.add(&debug_info::BAD_EXTENSION, record.offset, || {
            if has_lists {
                let message = debug_info2::mismatch(record.content, is_lists, self.endian);
                Place::default().with_message(message)
            } else {
                Place::default()
            }
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
                self.report(&rules::NO_CLOSE, last);
            }
        }
        self.count
    }
}
