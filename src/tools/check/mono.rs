//! Checks of logs of Mono's profiler.

use jitdump::{Address, AddressRange, Tally};

use crate::collections::hash::{HashMap, HashSet};
use crate::results::diagnostics::Issue;
use crate::results::diagnostics::rules::{Rule, mono as rules};
use crate::tools::check::findings::{Findings, Place};
use crate::tools::dump::mono::event::describe;
use crate::traces::mono::format::event::{
    CodeBufferKind, Kind, Metadata, Method, Stage, ThreadId, TypeReference,
};
use crate::traces::mono::format::{Event, Index, Log};

/// Record types in findings.
const FILE: &str = "file";
const HEADER: &str = "header";
const BUFFER: &str = "buffer";
const EVENT: &str = "event";

/// Checks a file, which was decompressed with the faults in `unpacking`. Returns the number of its events, and the
/// findings.
pub(super) fn check(file: &[u8], unpacking: &Tally<Issue>) -> (u64, Findings) {
    let mut findings = Findings::default();
    let log = match Log::parse(file) {
        Ok(log) => log,
        Err(error) => {
            let rule = match error.issue {
                Issue::MonoEmpty => &rules::EMPTY,
                Issue::MonoDataVersion => &rules::DATA_VERSION,
                Issue::MonoPointerSize => &rules::POINTER_SIZE,
                Issue::MonoFlags => &rules::FLAGS,
                _ => &rules::SHORT_HEADER,
            };
            findings.add(rule, 0, || {
                Place::in_record(HEADER).with_message(error.to_string())
            });
            return (0, findings);
        }
    };
    findings.add_faults(unpacking, rule_of);
    if log.header().pid == 0 {
        findings.add(&rules::NO_PID, 0, || Place::in_record(HEADER));
    }
    let index = Index::of(&log);
    findings.add_faults(&index.faults, rule_of);
    if index.events == 0 {
        findings.add(&rules::NO_EVENTS, log.header().size as u64, Place::default);
    }
    if index.events > 0 && index.code.functions().is_empty() {
        findings.add(&rules::NO_CODE, 0, || Place::in_record(FILE));
    }
    check_events(&log, &index, &mut findings);
    (index.events, findings)
}

/// Returns the rule for a fault, and the type of record.
fn rule_of(fault: Issue) -> Option<(&'static Rule, &'static str)> {
    Some(match fault {
        Issue::MonoUnknownEvent => (&rules::UNKNOWN_EVENT, EVENT),
        Issue::MonoCutEvent => (&rules::CUT_EVENT, EVENT),
        Issue::MonoBadCount => (&rules::BAD_COUNT, EVENT),
        Issue::MonoUnterminatedString => (&rules::UNTERMINATED_STRING, EVENT),
        Issue::MonoLongNumber => (&rules::LONG_NUMBER, EVENT),
        Issue::MonoUnknownCounter => (&rules::UNKNOWN_COUNTER, EVENT),
        Issue::MonoSkippedBytes => (&rules::SKIPPED_BYTES, BUFFER),
        Issue::MonoBadSize => (&rules::BAD_SIZE, BUFFER),
        Issue::MonoCutTail => (&rules::CUT_TAIL, BUFFER),
        Issue::MonoBadGzip => (&rules::BAD_GZIP, FILE),
        Issue::MonoCutGzip => (&rules::CUT_GZIP, FILE),
        Issue::MonoInvalidGzipContent => (&rules::INVALID_GZIP_CONTENT, FILE),
        Issue::MonoGzipTooLarge => (&rules::GZIP_TOO_LARGE, FILE),
        Issue::MonoTrailingGzipBytes => (&rules::TRAILING_GZIP_BYTES, FILE),
        _ => return None,
    })
}

/// Returns the name of an event, as in the output of `jitinject dump`.
fn event_name(kind: Kind<'_>) -> &'static str {
    describe(kind).0
}

/// Checks each event.
fn check_events(log: &Log<'_>, index: &Index<'_>, findings: &mut Findings) {
    let mut checker = EventChecker::new(index);
    for buffer in log.buffers() {
        let mut last = None;
        for event in buffer.events() {
            if let Some(before) = last.filter(|&before| event.time < before) {
                let back = before.0.saturating_sub(event.time.0);
                findings.add(&rules::TIME_BACK, event.offset, || {
                    Place::in_record(event_name(event.kind)).with_message(format!("by {back} ns"))
                });
            }
            last = Some(event.time);
            checker.check(&event, index, findings);
        }
    }
}

/// Checks events one after the other.
struct EventChecker {
    /// Start addresses of code, and whether that code has a name.
    code: HashMap<Address, bool>,
    /// Types described so far.
    known: HashSet<TypeReference>,
    /// Types used before they were described.
    used_before_known: HashSet<TypeReference>,
    /// Number of open calls of each method in each thread.
    open_calls: HashMap<(ThreadId, Method), u64>,
}

impl EventChecker {
    fn new(index: &Index<'_>) -> Self {
        let mut code = HashMap::default();
        for function in index.code.functions() {
            *code.entry(function.range.start).or_default() |= function.name().is_some();
        }
        Self {
            code,
            known: HashSet::default(),
            used_before_known: HashSet::default(),
            open_calls: HashMap::default(),
        }
    }

    fn check(&mut self, event: &Event<'_>, index: &Index<'_>, findings: &mut Findings) {
        let Event {
            time,
            thread,
            offset,
            kind,
        } = *event;
        let record = || Place::in_record(event_name(kind));
        match kind {
            Kind::Metadata {
                stage: Stage::LoadEnd | Stage::Name,
                subject,
            } => {
                self.known.extend(match subject {
                    Metadata::Class { class, .. } => Some(TypeReference::Class(class)),
                    Metadata::VTable { vtable, .. } => Some(TypeReference::VTable(vtable)),
                    _ => None,
                });
            }
            Kind::Jit { code, size, name, .. } => {
                self.check_size(code, size, findings, || record().in_function(name), offset)
            }
            Kind::CodeBuffer {
                kind, start, size, ..
            } => {
                let place = || record().with_message(format!("code at {start}"));
                self.check_size(start, size, findings, place, offset);
                if kind == CodeBufferKind::Method && self.code.get(&start) == Some(&false) {
                    findings.add(&rules::NO_NAME, offset, place);
                }
            }
            Kind::Allocation { class, .. }
                if !self.known.contains(&class) && self.used_before_known.insert(class) =>
            {
                match index.names.class(class, time) {
                    Some(name) => {
                        findings.add(&rules::USED_BEFORE_NAMED, offset, || record().in_function(name))
                    }
                    None => findings.add(&rules::UNNAMED_TYPE, offset, record),
                }
            }
            Kind::Enter(method) => {
                let depth = self.open_calls.entry((thread, method)).or_default();
                *depth = depth.saturating_add(1);
                if index.names.method(method, time).is_none() {
                    findings.add(&rules::UNNAMED_CALLS, offset, || {
                        record().with_message(format!("method {:#x}", method.0))
                    });
                }
            }
            Kind::Leave(method) | Kind::ExceptionLeave(method) => {
                let depth = self.open_calls.get_mut(&(thread, method));
                match depth.filter(|depth| **depth > 0) {
                    Some(depth) => *depth = depth.saturating_sub(1),
                    None => findings.add(&rules::UNMATCHED_LEAVE, offset, || {
                        let name = index.names.method(method, time);
                        record().in_function(name.unwrap_or_default())
                    }),
                }
            }
            _ => {}
        }
    }

    /// Checks that code has a size, here or in another event.
    fn check_size(
        &self,
        start: Address,
        size: u64,
        findings: &mut Findings,
        place: impl FnOnce() -> Place,
        offset: u64,
    ) {
        if AddressRange::new(start, size).is_none() && !self.code.contains_key(&start) {
            findings.add(&rules::NO_SIZE, offset, place);
        }
    }
}
