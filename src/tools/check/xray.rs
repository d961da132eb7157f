//! Checks of XRay traces.

use jitdump::ByteOrder;

use crate::bytes::Reader;
use crate::results::diagnostics::rules::xray as rules;
use crate::results::diagnostics::{CatalogueEntry, Issue};
use crate::tools::check::call_stack::CallStack;
use crate::tools::check::findings::{Findings, Place};
use crate::traces::xray::format::header::SIZE;
use crate::traces::xray::format::{
    FdrMetadata, RecordKind, ThreadBuffers, Trace, TraceHeader, TraceIndex, TraceMode, TraceRecord,
};

/// Record types in findings.
const HEADER: &str = "header";
const BUFFER: &str = "buffer";
const RECORD: &str = "record";

/// Checks a file. Returns the number of its records, and the findings.
pub(super) fn check(file: &[u8]) -> (u64, Findings) {
    let mut findings = Findings::default();
    let trace = match Trace::parse(file) {
        Ok(trace) => trace,
        Err(error) => {
            let rule = match error.issue {
                Issue::XrayEmpty => &rules::EMPTY,
                Issue::XrayTooShort => &rules::SHORT_HEADER,
                _ => &rules::VERSION,
            };
            findings.add(rule, 0, || {
                Place::in_record(HEADER).with_message(error.to_string())
            });
            return (0, findings);
        }
    };
    check_header(trace.header(), file, &mut findings);
    let index = trace.index();
    findings.add_faults(&index.faults, rule_of);
    let mut records = 0;
    check_wall_times(&trace, file, &index, &mut findings);
    for thread in index.threads() {
        records = check_thread(&trace, &thread, &mut findings).saturating_add(records);
    }
    if let Some(first) = index.buffers().iter().find(|buffer| buffer.process.is_none()) {
        findings.add(&rules::NO_PID, first.offset, || {
            Place::in_record(BUFFER).with_message(format!("version {}", trace.header().version))
        });
    }
    if records == 0 {
        findings.add(&rules::NO_RECORDS, SIZE as u64, Place::default);
    }
    (records, findings)
}

/// Checks the header of a trace.
fn check_header(header: &TraceHeader, file: &[u8], findings: &mut Findings) {
    /// Frequency of ticks that are nanoseconds.
    const WALL_CLOCK: u64 = 1_000_000_000;
    match header.frequency {
        0 => findings.add(&rules::NO_FREQUENCY, 8, || Place::in_record(HEADER)),
        WALL_CLOCK => findings.add(&rules::WALL_CLOCK, 8, || Place::in_record(HEADER)),
        _ => {}
    }
    let bits = Reader::new(file.get(4..).unwrap_or_default(), header.endian).u32();
    let known = match header.endian {
        ByteOrder::Little => 3,
        ByteOrder::Big => 3 << 30,
    };
    if let Some(bits) = bits.filter(|bits| bits & !known != 0) {
        findings.add(&rules::HEADER_BITS, 4, || {
            Place::in_record(HEADER).with_message(format!("{bits:#x}"))
        });
    }
}

/// Checks the records of the wall clock, which are among the first of each buffer.
fn check_wall_times(trace: &Trace<'_>, file: &[u8], index: &TraceIndex, findings: &mut Findings) {
    /// Number of records before the first tick: size, thread, wall clock and process.
    const FIRST: usize = 4;
    if trace.header().mode != TraceMode::Fdr {
        return;
    }
    for buffer in index.buffers() {
        let mut at = buffer.offset;
        for _ in 0..FIRST {
            let rest = usize::try_from(at).ok().and_then(|at| file.get(at..));
            let Some((record, size)) = FdrMetadata::parse(rest.unwrap_or_default(), trace.header().endian)
            else {
                break;
            };
            if let FdrMetadata::WallTime { microseconds, .. } = record
                && microseconds >= 1_000_000
            {
                findings.add(&rules::MICROSECONDS, at, || {
                    Place::in_record("wall_time").with_message(format!("{microseconds} microseconds"))
                });
            }
            at = at.saturating_add(size as u64);
        }
    }
}

/// Returns the rule for a fault, and the type of record; `None` for those that no reader of XRay traces finds.
fn rule_of(fault: Issue) -> Option<(&'static CatalogueEntry, &'static str)> {
    Some(match fault {
        Issue::XrayUnknownKind => (&rules::UNKNOWN_KIND, RECORD),
        Issue::XrayUnknownRecord => (&rules::UNKNOWN_RECORD, RECORD),
        Issue::XrayCutRecord => (&rules::CUT_RECORD, RECORD),
        Issue::XrayBadEventSize => (&rules::BAD_EVENT_SIZE, RECORD),
        Issue::XrayTickBack => (&rules::TICK_BACK, RECORD),
        Issue::XrayTickOverflow => (&rules::TICK_OVERFLOW, RECORD),
        Issue::XrayLostByWriter => (&rules::LOST_BY_WRITER, BUFFER),
        Issue::XraySkippedBytes => (&rules::SKIPPED_BYTES, BUFFER),
        Issue::XrayBadSize => (&rules::BAD_SIZE, BUFFER),
        Issue::XrayNoTick => (&rules::NO_TICK, BUFFER),
        Issue::XrayNoWallTime => (&rules::NO_WALL_TIME, BUFFER),
        Issue::XrayTooManyBuffers => (&rules::TOO_MANY_BUFFERS, BUFFER),
        Issue::XrayCutTail => (&rules::CUT_TAIL, BUFFER),
        Issue::XrayNoEnd => (&rules::NO_END, BUFFER),
        Issue::XrayAnotherTrace => (&rules::ANOTHER_TRACE, HEADER),
        _ => return None,
    })
}

/// Checks the records of a thread. Returns their number.
fn check_thread(trace: &Trace<'_>, thread: &ThreadBuffers<'_>, findings: &mut Findings) -> u64 {
    let mut checker = ThreadChecker::new(trace.header());
    let mut count = 0_u64;
    for buffer in thread.buffers {
        let mut records = trace.records(buffer);
        for record in &mut records {
            count = count.saturating_add(1);
            checker.check(&record, findings);
        }
        findings.add_faults(records.faults(), rule_of);
    }
    count
}

/// The first version whose runtimes advance past the data of custom events.
const WITH_SOUND_CUSTOM: u16 = 3;

/// The version whose layout of typed events llvm-xray expects in all versions.
const WITH_DIFFERENCES: u16 = 5;

/// Checks the records of a thread, in their order.
struct ThreadChecker {
    /// Whether runtimes of this version overwrite the data of custom events.
    overwrites_custom: bool,
    /// Whether typed events have a layout that llvm-xray does not expect.
    has_old_typed: bool,
    stack: CallStack<u32>,
    /// Whether an argument may be next.
    takes_arguments: bool,
}

impl ThreadChecker {
    fn new(header: &TraceHeader) -> Self {
        let is_before = |version: u16| header.mode == TraceMode::Fdr && header.version < version;
        Self {
            overwrites_custom: is_before(WITH_SOUND_CUSTOM),
            has_old_typed: is_before(WITH_DIFFERENCES),
            stack: CallStack::default(),
            takes_arguments: false,
        }
    }

    /// Checks a record by those before it.
    fn check(&mut self, record: &TraceRecord<'_>, findings: &mut Findings) {
        let offset = record.offset;
        let place = || Place::in_record(record.kind.name());
        if record.kind.function() == Some(0) {
            findings.add(&rules::FUNCTION_0, offset, place);
        }
        match record.kind {
            RecordKind::Enter { function } | RecordKind::EnterWithArguments { function } => {
                self.stack.enter(function);
            }
            RecordKind::Exit { function } | RecordKind::TailExit { function } => {
                check_exit(function, record, &mut self.stack, findings);
            }
            RecordKind::Argument(_) if !self.takes_arguments => {
                findings.add(&rules::STRAY_ARGUMENTS, offset, place);
            }
            RecordKind::Argument(_) => {}
            RecordKind::Custom { payload } => {
                if self.overwrites_custom {
                    findings.add(&rules::OLD_CUSTOM, offset, place);
                }
                if payload.is_empty() {
                    findings.add(&rules::EMPTY_EVENT, offset, place);
                }
            }
            RecordKind::Typed { payload, kind } => {
                if payload.is_empty() {
                    findings.add(&rules::EMPTY_EVENT, offset, place);
                }
                findings.add(&rules::TYPED_EVENTS, offset, || {
                    place().with_message(format!("type {kind}"))
                });
                if self.has_old_typed {
                    findings.add(&rules::OLD_TYPED, offset, place);
                }
            }
        }
        self.takes_arguments = match record.kind {
            // LLVM's runtimes write arguments after either entry.
            RecordKind::Enter { .. } | RecordKind::EnterWithArguments { .. } => true,
            RecordKind::Argument(_) => self.takes_arguments,
            _ => false,
        };
    }
}

/// Checks the exit of a function, which a record has.
fn check_exit(function: u32, record: &TraceRecord<'_>, stack: &mut CallStack<u32>, findings: &mut Findings) {
    let place = || Place::in_record(record.kind.name());
    match stack.exit(function) {
        Some(0) => {}
        Some(lost) => findings.add_many(&rules::LOST_EXITS, lost, record.offset, || {
            place().with_message(format!(
                "function {function} is left, {lost} that it has called are not"
            ))
        }),
        None => findings.add(&rules::UNMATCHED_EXITS, record.offset, || {
            place().with_message(format!("function {function}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitdump::Tally;

    /// A file in which this happens is too large for a test.
    #[test]
    fn too_many_buffers_break_a_rule() {
        let mut faults = Tally::default();
        faults.add(Issue::XrayTooManyBuffers, 1 << 30);
        let mut findings = Findings::default();
        findings.add_faults(&faults, rule_of);
        assert_eq!(findings.finish()[0].rule, &rules::TOO_MANY_BUFFERS);
    }
}
