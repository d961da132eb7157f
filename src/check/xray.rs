//! Checking traces of XRay.

use crate::bytes::{ByteOrder, Reader};
use crate::check::findings::{Findings, Place};
use crate::check::rules::{Rule, xray as rules};
use crate::hash::HashMap;
use crate::runtime::xray::header::SIZE;
use crate::runtime::xray::{Error, Fault, Header, Mode, Thread, Trace, What};

/// What there is at an offset.
const HEADER: &str = "header";
const BUFFER: &str = "buffer";
const RECORD: &str = "record";

/// Checks a file; returns how many records it has, and what is wrong.
pub(super) fn check(file: &[u8]) -> (u64, Findings) {
    let mut findings = Findings::default();
    let trace = match Trace::parse(file) {
        Ok(trace) => trace,
        Err(error) => {
            let rule = match error {
                Error::Empty => &rules::EMPTY,
                Error::TooShort(_) => &rules::SHORT_HEADER,
                Error::NotATrace(_) | Error::Version { .. } | Error::Type { .. } => &rules::VERSION,
            };
            findings.add(rule, 0, || Place::at(HEADER).saying(error.to_string()));
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
        findings.add(&rules::NO_PROCESS, first.offset, || {
            Place::at(BUFFER).saying(format!("version {}", trace.header().version))
        });
    }
    if records == 0 {
        findings.add(&rules::NO_RECORDS, SIZE as u64, Place::default);
    }
    (records, findings)
}

fn check_header(header: &Header, file: &[u8], findings: &mut Findings) {
    /// Nanoseconds.
    const WALL_CLOCK: u64 = 1_000_000_000;
    match header.frequency {
        0 => findings.add(&rules::NO_FREQUENCY, 8, || Place::at(HEADER)),
        WALL_CLOCK => findings.add(&rules::WALL_CLOCK, 8, || Place::at(HEADER)),
        _ => {}
    }
    let bits = Reader::new(file.get(4..).unwrap_or_default(), header.order).u32();
    let known = match header.order {
        ByteOrder::Little => 3,
        ByteOrder::Big => 3 << 30,
    };
    if let Some(bits) = bits.filter(|bits| bits & !known != 0) {
        findings.add(&rules::HEADER_BITS, 4, || {
            Place::at(HEADER).saying(format!("{bits:#x}"))
        });
    }
}

/// The rule that a fault breaks.
fn rule_of(fault: Fault) -> Option<(&'static Rule, &'static str)> {
    Some(match fault {
        Fault::UnknownKind => (&rules::UNKNOWN_KIND, RECORD),
        Fault::UnknownRecord => (&rules::UNKNOWN_RECORD, RECORD),
        Fault::CutRecord => (&rules::CUT_RECORD, RECORD),
        Fault::BadEventSize => (&rules::BAD_EVENT_SIZE, RECORD),
        Fault::TickBack => (&rules::TICK_BACK, RECORD),
        Fault::TickOverflow => (&rules::TICK_OVERFLOW, RECORD),
        Fault::LostByWriter => (&rules::LOST_BY_WRITER, BUFFER),
        Fault::SkippedBytes => (&rules::SKIPPED_BYTES, BUFFER),
        Fault::BadSize => (&rules::BAD_SIZE, BUFFER),
        Fault::NoTick => (&rules::NO_TICK, BUFFER),
        Fault::NoWallTime => (&rules::NO_WALL_TIME, BUFFER),
        Fault::TooManyBuffers => (&rules::TOO_MANY_BUFFERS, BUFFER),
        Fault::CutTail => (&rules::CUT_TAIL, BUFFER),
    })
}

/// Checks the records of a thread; returns how many there are.
fn check_thread(trace: &Trace<'_>, thread: &Thread<'_>, findings: &mut Findings) -> u64 {
    /// The version whose layout of typed events llvm-xray takes all to have.
    const WITH_DIFFERENCES: u16 = 5;
    let is_old = trace.header().mode == Mode::Fdr && trace.header().version < WITH_DIFFERENCES;
    let mut calls = Calls::default();
    let mut count = 0_u64;
    let mut takes_arguments = false;
    for buffer in thread.buffers {
        let mut records = trace.records(buffer);
        for record in &mut records {
            count = count.saturating_add(1);
            let offset = record.offset;
            let place = || Place::at(name(record.what));
            match record.what {
                What::Enter { function } | What::EnterWithArguments { function } => calls.enter(function),
                What::Exit { function } | What::TailExit { function } => match calls.exit(function) {
                    Some(0) => {}
                    Some(lost) => findings.add_many(&rules::LOST_EXITS, lost, offset, || {
                        let message =
                            format!("function {function} is left, {lost} that it has called are not");
                        place().saying(message)
                    }),
                    None => findings.add(&rules::UNMATCHED_EXITS, offset, || {
                        place().saying(format!("function {function}"))
                    }),
                },
                What::Argument(_) if !takes_arguments => {
                    findings.add(&rules::STRAY_ARGUMENTS, offset, place);
                }
                What::Argument(_) => {}
                What::Custom { payload: b"" } => findings.add(&rules::EMPTY_EVENT, offset, place),
                What::Custom { .. } => {}
                What::Typed { payload, kind } => {
                    if payload.is_empty() {
                        findings.add(&rules::EMPTY_EVENT, offset, place);
                    }
                    findings.add(&rules::TYPED_EVENTS, offset, || {
                        place().saying(format!("type {kind}"))
                    });
                    if is_old {
                        findings.add(&rules::OLD_TYPED, offset, place);
                    }
                }
            }
            takes_arguments = match record.what {
                What::EnterWithArguments { .. } => true,
                What::Argument(_) => takes_arguments,
                _ => false,
            };
        }
        findings.add_faults(records.faults(), rule_of);
    }
    count
}

/// What a record is called, as where all of them are shown.
fn name(what: What<'_>) -> &'static str {
    match what {
        What::Enter { .. } => "enter",
        What::EnterWithArguments { .. } => "enter_arg",
        What::Exit { .. } => "exit",
        What::TailExit { .. } => "tail_exit",
        What::Argument(_) => "argument",
        What::Custom { .. } => "custom_event",
        What::Typed { .. } => "typed_event",
    }
}

/// The functions that a thread is in.
#[derive(Default)]
struct Calls {
    stack: Vec<u32>,
    /// How often each is in there, so that none is looked for in vain.
    open: HashMap<u32, u64>,
}

impl Calls {
    fn enter(&mut self, function: u32) {
        self.stack.push(function);
        let open = self.open.entry(function).or_default();
        *open = open.saturating_add(1);
    }

    /// Leaves a function, and says how many calls that it has made had no end; `None` if it was not entered.
    fn exit(&mut self, function: u32) -> Option<u64> {
        if self.open.get(&function).is_none_or(|&count| count == 0) {
            return None;
        }
        let mut lost = 0_u64;
        while let Some(left) = self.stack.pop() {
            if let Some(open) = self.open.get_mut(&left) {
                *open = open.saturating_sub(1);
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
    use crate::tally::Tally;

    /// No file for a test is as large as one in which this happens.
    #[test]
    fn too_many_buffers_break_a_rule() {
        let mut faults = Tally::default();
        faults.add(Fault::TooManyBuffers, 1 << 30);
        let mut findings = Findings::default();
        findings.add_faults(&faults, rule_of);
        assert_eq!(findings.finish()[0].rule, &rules::TOO_MANY_BUFFERS);
    }

    #[test]
    fn a_call_that_ends_takes_those_that_it_has_made_with_it() {
        let mut calls = Calls::default();
        for function in [1, 2, 1, 3] {
            calls.enter(function);
        }
        assert_eq!(calls.exit(4), None);
        assert_eq!(calls.exit(1), Some(1));
        assert_eq!(calls.exit(1), Some(1));
        assert_eq!(calls.exit(1), None);
    }
}
