//! Checks of XRay traces.

use jitdump::ByteOrder;

use crate::bytes::Reader;
use crate::collections::hash::HashMap;
use crate::results::diagnostics::Issue;
use crate::results::diagnostics::rules::{Rule, xray as rules};
use crate::tools::check::findings::{Findings, Place};
use crate::traces::xray::format::header::SIZE;
use crate::traces::xray::format::{Header, Mode, RecordKind, Thread, Trace};

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

fn check_header(header: &Header, file: &[u8], findings: &mut Findings) {
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

/// Returns the rule for a fault, and the type of record.
fn rule_of(fault: Issue) -> Option<(&'static Rule, &'static str)> {
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
        _ => return None,
    })
}

/// Checks the records of a thread. Returns their number.
fn check_thread(trace: &Trace<'_>, thread: &Thread<'_>, findings: &mut Findings) -> u64 {
    /// The version whose layout of typed events llvm-xray expects in all versions.
    const WITH_DIFFERENCES: u16 = 5;
    let is_old = trace.header().mode == Mode::Fdr && trace.header().version < WITH_DIFFERENCES;
    let mut stack = CallStack::default();
    let mut count = 0_u64;
    let mut takes_arguments = false;
    for buffer in thread.buffers {
        let mut records = trace.records(buffer);
        for record in &mut records {
            count = count.saturating_add(1);
            let offset = record.offset;
            let place = || Place::in_record(record.kind.name());
            match record.kind {
                RecordKind::Enter { function } | RecordKind::EnterWithArguments { function } => {
                    stack.enter(function)
                }
                RecordKind::Exit { function } | RecordKind::TailExit { function } => {
                    match stack.exit(function) {
                        Some(0) => {}
                        Some(lost) => findings.add_many(&rules::LOST_EXITS, lost, offset, || {
                            let message =
                                format!("function {function} is left, {lost} that it has called are not");
                            place().with_message(message)
                        }),
                        None => findings.add(&rules::UNMATCHED_EXITS, offset, || {
                            place().with_message(format!("function {function}"))
                        }),
                    }
                }
                RecordKind::Argument(_) if !takes_arguments => {
                    findings.add(&rules::STRAY_ARGUMENTS, offset, place);
                }
                RecordKind::Argument(_) => {}
                RecordKind::Custom { payload: b"" } => findings.add(&rules::EMPTY_EVENT, offset, place),
                RecordKind::Custom { .. } => {}
                RecordKind::Typed { payload, kind } => {
                    if payload.is_empty() {
                        findings.add(&rules::EMPTY_EVENT, offset, place);
                    }
                    findings.add(&rules::TYPED_EVENTS, offset, || {
                        place().with_message(format!("type {kind}"))
                    });
                    if is_old {
                        findings.add(&rules::OLD_TYPED, offset, place);
                    }
                }
            }
            takes_arguments = match record.kind {
                // LLVM's runtimes write arguments after either entry.
                RecordKind::Enter { .. } | RecordKind::EnterWithArguments { .. } => true,
                RecordKind::Argument(_) => takes_arguments,
                _ => false,
            };
        }
        findings.add_faults(records.faults(), rule_of);
    }
    count
}

/// Functions that a thread is in.
#[derive(Default)]
struct CallStack {
    functions: Vec<u32>,
    /// Number of open calls of each function, so that the stack is searched only for functions in it.
    open_calls: HashMap<u32, u64>,
}

impl CallStack {
    fn enter(&mut self, function: u32) {
        self.functions.push(function);
        let open_calls = self.open_calls.entry(function).or_default();
        *open_calls = open_calls.saturating_add(1);
    }

    /// Leaves a function. Returns the number of calls inside it that had no exit; `None` if it was not entered.
    fn exit(&mut self, function: u32) -> Option<u64> {
        if self.open_calls.get(&function).is_none_or(|&count| count == 0) {
            return None;
        }
        let mut lost = 0_u64;
        while let Some(left) = self.functions.pop() {
            if let Some(open_calls) = self.open_calls.get_mut(&left) {
                *open_calls = open_calls.saturating_sub(1);
            }
            if left == function {
                break;
            }
            lost = lost.saturating_add(1);
        }
        Some(lost)
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

    #[test]
    fn a_call_that_ends_takes_those_that_it_has_made_with_it() {
        let mut stack = CallStack::default();
        for function in [1, 2, 1, 3] {
            stack.enter(function);
        }
        assert_eq!(stack.exit(4), None);
        assert_eq!(stack.exit(1), Some(1));
        assert_eq!(stack.exit(1), Some(1));
        assert_eq!(stack.exit(1), None);
    }
}
