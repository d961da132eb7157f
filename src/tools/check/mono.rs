//! Checks of logs of Mono's profiler.

use jitdump::{Address, AddressRange, RuntimeTime, Tally};

use crate::collections::hash::{HashMap, HashSet};
use crate::results::diagnostics::rules::mono as rules;
use crate::results::diagnostics::{CatalogueEntry, Issue};
use crate::tools::check::call_stack::CallStack;
use crate::tools::check::findings::{Findings, Place};
use crate::tools::dump::mono::event::describe;
use crate::traces::mono::format::event::{
    CodeBufferKind, CollectionPhase, LogEventKind, Metadata, Method, MonitorEvent, Stage, ThreadId,
    TypeReference,
};
use crate::traces::mono::format::{Log, LogEvent, LogIndex};

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
    let index = LogIndex::of(&log);
    findings.add_faults(&index.faults, rule_of);
    if index.events == 0 {
        findings.add(&rules::NO_EVENTS, log.header().size as u64, Place::default);
    }
    if index.events > 0 && index.code.functions.is_empty() {
        findings.add(&rules::NO_CODE, 0, || Place::in_record(FILE));
    }
    check_events(&log, &index, &mut findings);
    (index.events, findings)
}

/// Returns the rule for a fault, and the type of record; `None` for those that no reader of Mono logs finds.
fn rule_of(fault: Issue) -> Option<(&'static CatalogueEntry, &'static str)> {
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
fn event_name(kind: LogEventKind<'_>) -> &'static str {
    describe(kind).0
}

/// Checks the order of buffers and events in time, and each event by those before it.
fn check_events(log: &Log<'_>, index: &LogIndex<'_>, findings: &mut Findings) {
    for buffer in log.out_of_order_buffers() {
        findings.add(&rules::BUFFER_ORDER, buffer.offset, || {
            Place::in_record(BUFFER).with_message(format!("by {} ns", buffer.back))
        });
    }
    let mut checker = EventChecker::new(index);
    for buffer in log.buffers() {
        let mut last = RuntimeTime::default();
        for event in buffer.events() {
            if event.time < last {
                let back = last.0.saturating_sub(event.time.0);
                findings.add(&rules::TIME_BACK, event.offset, || {
                    Place::in_record(event_name(event.kind)).with_message(format!("by {back} ns"))
                });
            }
            last = event.time;
            checker.check(&event, index, findings);
        }
    }
}

/// Checks events one after the other.
#[derive(Default)]
struct EventChecker {
    /// Start addresses of code, and whether that code has a name.
    code: HashMap<Address, bool>,
    /// Types described so far.
    known: HashSet<TypeReference>,
    /// Types used before they were described.
    used_before_known: HashSet<TypeReference>,
    /// Open calls of each thread.
    calls: HashMap<ThreadId, CallStack<Method>>,
    /// Threads that wait for a lock.
    waiting: HashSet<ThreadId>,
    /// Generations whose collections are in progress.
    collecting: HashSet<u64>,
    is_stopped: bool,
    /// Counters described so far.
    counters: HashSet<u64>,
    /// Counters that changed before they were described.
    undescribed: HashSet<u64>,
}

impl EventChecker {
    /// Starts with the code of the whole log.
    fn new(index: &LogIndex<'_>) -> Self {
        let mut code = HashMap::default();
        for function in &index.code.functions {
            *code.entry(function.range.start).or_default() |= function.name().is_some();
        }
        Self {
            code,
            ..Self::default()
        }
    }

    /// Checks an event, and whether it fits those before it.
    fn check(&mut self, event: &LogEvent<'_>, index: &LogIndex<'_>, findings: &mut Findings) {
        let LogEvent {
            time,
            thread,
            offset,
            kind,
        } = *event;
        let record = || Place::in_record(event_name(kind));
        self.check_values(event, findings);
        if !self.is_paired(thread, kind) {
            findings.add(&rules::UNPAIRED, offset, record);
        }
        match kind {
            LogEventKind::Metadata {
                stage: Stage::LoadEnd | Stage::Name,
                subject,
            } => {
                self.known.extend(match subject {
                    Metadata::Class { class, .. } => Some(TypeReference::Class(class)),
                    Metadata::VTable { vtable, .. } => Some(TypeReference::VTable(vtable)),
                    _ => None,
                });
            }
            LogEventKind::Jit { code, size, name, .. } => {
                self.check_size(code, size, findings, || record().in_function(name), offset)
            }
            LogEventKind::CodeBuffer {
                kind: buffer_kind,
                start,
                size,
                ..
            } => {
                let place = || record().with_message(format!("code at {start}"));
                self.check_size(start, size, findings, place, offset);
                if buffer_kind == CodeBufferKind::Method && self.code.get(&start) == Some(&false) {
                    findings.add(&rules::NO_NAME, offset, place);
                }
            }
            LogEventKind::Allocation { class, .. } | LogEventKind::HeapObject { class, size: 1.., .. } => {
                self.check_type(class, event, index, findings);
            }
            LogEventKind::Enter(method) => {
                self.calls.entry(thread).or_default().enter(method);
                if index.names.method(method, time).is_none() {
                    findings.add(&rules::UNNAMED_CALLS, offset, || {
                        record().with_message(format!("method {:#x}", method.0))
                    });
                }
            }
            LogEventKind::Leave(method) | LogEventKind::ExceptionLeave(method) => {
                let lost = self.calls.entry(thread).or_default().exit(method);
                let place = || record().in_function(index.names.method(method, time).unwrap_or_default());
                match lost {
                    Some(lost) => findings.add_many(&rules::LOST_LEAVES, lost, offset, || {
                        place().with_message(format!("{lost} that it has called are not left"))
                    }),
                    None => findings.add(&rules::UNMATCHED_LEAVE, offset, place),
                }
            }
            LogEventKind::CounterDescriptions(counters) => {
                self.counters.extend(counters.iter().map(|counter| counter.index));
            }
            LogEventKind::Counters { values, .. } => {
                for counter in values.iter().map(|value| value.index) {
                    if !self.counters.contains(&counter) && self.undescribed.insert(counter) {
                        findings.add(&rules::UNDESCRIBED_COUNTER, offset, || {
                            record().with_message(format!("counter {counter}"))
                        });
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks that the type of an object was described before its first use.
    fn check_type(
        &mut self,
        class: TypeReference,
        event: &LogEvent<'_>,
        index: &LogIndex<'_>,
        findings: &mut Findings,
    ) {
        if self.known.contains(&class) || !self.used_before_known.insert(class) {
            return;
        }
        let place = || Place::in_record(event_name(event.kind));
        match index.names.class(class, event.time) {
            Some(name) => findings.add(&rules::USED_BEFORE_NAMED, event.offset, || {
                place().in_function(name)
            }),
            None => findings.add(&rules::UNNAMED_TYPE, event.offset, place),
        }
    }

    /// Whether a start comes when nothing has started, and an end after its start: of waits of a thread, collections of a
    /// generation, and the time that the world stands still.
    fn is_paired(&mut self, thread: ThreadId, kind: LogEventKind<'_>) -> bool {
        match kind {
            LogEventKind::Monitor { event, .. } => match event {
                MonitorEvent::Contention => self.waiting.insert(thread),
                MonitorEvent::Done | MonitorEvent::Fail => self.waiting.remove(&thread),
                MonitorEvent::Other(_) => true,
            },
            LogEventKind::Collection { phase, generation } => match phase {
                CollectionPhase::Start => self.collecting.insert(generation),
                CollectionPhase::End => self.collecting.remove(&generation),
                CollectionPhase::PostStopWorld => !std::mem::replace(&mut self.is_stopped, true),
                CollectionPhase::PostStartWorld => std::mem::take(&mut self.is_stopped),
                _ => true,
            },
            _ => true,
        }
    }

    /// Checks the names and the numbered values in an event.
    fn check_values(&self, event: &LogEvent<'_>, findings: &mut Findings) {
        let kind = event.kind;
        let unknown: Option<i128> = match kind {
            LogEventKind::Collection {
                phase: CollectionPhase::Other(phase),
                ..
            } => Some(phase.into()),
            LogEventKind::Monitor {
                event: MonitorEvent::Other(event),
                ..
            } => Some(event.into()),
            // -1 is the unknown kind of old versions.
            LogEventKind::CodeBuffer {
                kind: CodeBufferKind::Other(number),
                ..
            } if number != -1 => Some(number.into()),
            _ => None,
        };
        if let Some(number) = unknown {
            findings.add(&rules::UNKNOWN_VALUE, event.offset, || {
                Place::in_record(event_name(kind)).with_message(number.to_string())
            });
        }
        let name = match kind {
            LogEventKind::Jit { name, .. }
            | LogEventKind::NativeSymbol { name, .. }
            | LogEventKind::CodeBuffer { name, .. } => name,
            LogEventKind::Metadata { subject, .. } => match subject {
                Metadata::Class { name, .. }
                | Metadata::Image { name, .. }
                | Metadata::Assembly { name, .. }
                | Metadata::Domain { name, .. }
                | Metadata::Thread { name, .. } => name,
                Metadata::Context { .. } | Metadata::VTable { .. } => b"",
            },
            _ => b"",
        };
        if std::str::from_utf8(name).is_err() {
            findings.add(&rules::NOT_UTF8, event.offset, || {
                Place::in_record(event_name(kind)).in_function(name)
            });
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
