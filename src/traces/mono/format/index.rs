//! Index of a log: the code and names that are needed to interpret its events.

use jitdump::{Address, RuntimeTime, Tally};

use crate::results::diagnostics::Issue;
use crate::traces::mono::format::code::{CodeCollector, LogCode};
use crate::traces::mono::format::event::LogEventKind;
use crate::traces::mono::format::log::Log;
use crate::traces::mono::format::names::LogNames;

/// Result of a first pass over a log. Its size depends on code and names, not on the number of events.
#[derive(Clone, Debug, Default)]
pub struct LogIndex<'a> {
    /// Code of the log.
    pub code: LogCode<'a>,
    /// Names of methods and classes.
    pub names: LogNames<'a>,
    /// Symbols of native code that Mono looked up for samples, in file order.
    pub native_symbols: Vec<NativeSymbol<'a>>,
    /// Faults of the whole log; later passes find the same ones.
    pub faults: Tally<Issue>,
    /// Number of events.
    pub events: u64,
    /// Earliest and latest time of an event; `None` if there are no events.
    pub times: Option<(RuntimeTime, RuntimeTime)>,
}

/// A symbol of native code.
#[derive(Clone, Copy, Debug)]
pub struct NativeSymbol<'a> {
    /// Start address.
    pub start: Address,
    /// Size in bytes; 0 if unknown.
    pub size: u64,
    /// Name.
    pub name: &'a [u8],
}

impl<'a> LogIndex<'a> {
    /// Creates the index of a log.
    pub fn of(log: &Log<'a>) -> Self {
        let mut code = CodeCollector::default();
        let mut index = Self::default();
        let mut buffers = log.buffers();
        for buffer in &mut buffers {
            let mut events = buffer.events();
            loop {
                // A log with calls consists almost only of calls, and the index needs very little from them.
                while let Some(call) = events.next_call() {
                    index.count(call.time);
                    code.add_call(buffer.thread, call);
                }
                let Some(event) = events.next() else {
                    break;
                };
                index.count(event.time);
                index.names.add(event.time, &event.kind);
                if let LogEventKind::NativeSymbol { start, size, name } = event.kind {
                    index.native_symbols.push(NativeSymbol { start, size, name });
                }
                code.add(&event);
            }
            if let Some((fault, offset)) = events.fault() {
                index.faults.add(fault, offset);
            }
        }
        index.faults.merge(buffers.faults());
        index.names.finish();
        index.code = code.finish(&index.names);
        index
    }

    /// Counts an event and its time.
    #[inline]
    fn count(&mut self, time: RuntimeTime) {
        self.events = self.events.saturating_add(1);
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
    }
}
