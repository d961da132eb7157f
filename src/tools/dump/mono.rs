//! Dumps the buffers and events of a log of Mono's profiler.

pub(crate) mod event;

use jitdump::{AddressRange, RuntimeTime};

use crate::collections::hash::HashSet;
use crate::results::diagnostics::Issue;
use crate::tools::dump::EntrySink;
use crate::tools::dump::entry::{CUT, DumpEntry, Fields};
use crate::tools::dump::filter::EntryFilter;
use crate::traces::mono::format::list::MethodFrames;
use crate::traces::mono::format::log::BUFFER_HEADER_SIZE;
use crate::traces::mono::format::{Log, LogBuffer, LogEventKind, LogHeader, LogIndex, LogNames, Method};

/// Passes the entries of a log to `sink`, as far as the filter selects them.
pub fn dump<E>(file: &[u8], filter: &EntryFilter, sink: &mut EntrySink<'_, E>) -> Result<(), E> {
    let size = file.len() as u64;
    let log = match Log::parse(file) {
        Ok(log) => log,
        // The format of the rest is unknown.
        Err(error) if filter.is_empty() => {
            return sink(&DumpEntry::damage(0, size, format!("it {error}")));
        }
        Err(_) => return Ok(()),
    };
    let names = LogIndex::of(&log).names;
    let selection = filter
        .selects_functions()
        .then(|| SelectedMethods::of(&log, filter, &names));
    let mut writer = EntryWriter {
        position: 0,
        has_no_filter: filter.is_empty(),
        sink,
    };
    writer.emit(header(log.header()))?;
    for buffer in log.buffers() {
        writer.skip_to(buffer.offset, Issue::MonoSkippedBytes)?;
        writer.emit(buffer_header(&buffer))?;
        let mut events = buffer.events();
        while let Some(event) = events.next() {
            let is_wanted = writer.has_no_filter
                || filter.matches_time(Some(event.time.0))
                    && selection
                        .as_ref()
                        .is_none_or(|selection| selection.selects(&event.kind, event.time));
            let end = events.next_offset();
            if !is_wanted {
                writer.position = end;
                continue;
            }
            let (kind, fields) = event::describe(event.kind);
            let fields = event::with_names(fields, &event.kind, &names, event.time);
            (writer.sink)(&DumpEntry {
                offset: event.offset,
                size: end.saturating_sub(event.offset),
                kind,
                time: Some(event.time.0),
                fields,
            })?;
            writer.position = end;
        }
        let fault = events.fault().map_or(Issue::MonoCutEvent, |(fault, _)| fault);
        writer.skip_to(buffer.end(), fault)?;
    }
    let fault = match size.saturating_sub(writer.position) {
        left if left < BUFFER_HEADER_SIZE as u64 => Issue::MonoCutTail,
        _ => Issue::MonoSkippedBytes,
    };
    writer.skip_to(size, fault)
}

struct EntryWriter<'p, 'q, E> {
    /// Offset in the file up to which entries have been passed on, in bytes.
    position: u64,
    /// Whether entries other than events are selected.
    has_no_filter: bool,
    sink: &'p mut EntrySink<'q, E>,
}

impl<E> EntryWriter<'_, '_, E> {
    /// Passes on an entry that is not an event.
    fn emit(&mut self, entry: DumpEntry<'_>) -> Result<(), E> {
        self.position = entry.offset.saturating_add(entry.size);
        if self.has_no_filter {
            (self.sink)(&entry)
        } else {
            Ok(())
        }
    }

    /// Passes on the bytes up to `end` as damage, if there are any.
    fn skip_to(&mut self, end: u64, fault: Issue) -> Result<(), E> {
        match end.saturating_sub(self.position) {
            0 => Ok(()),
            size => self.emit(DumpEntry::damage(self.position, size, fault)),
        }
    }
}

/// Returns the entry of the header of a log.
fn header<'a>(header: &LogHeader<'a>) -> DumpEntry<'a> {
    let fields = Fields::new()
        .number("major", header.major)
        .number("minor", header.minor)
        .number("data_version", header.data_version)
        .number("pointer_size", header.pointer_size)
        .number("startup_ms", header.startup_ms)
        .number_if("startup_ns", header.startup_ns)
        .number("timer_overhead", header.timer_overhead)
        .number("pid", header.pid)
        .number_if("port", header.port)
        .name_if("arguments", header.arguments)
        .name_if("architecture", header.architecture)
        .name_if("system", header.system);
    DumpEntry::new(0, header.size as u64, "header", fields)
}

/// Returns the entry of the header of a buffer.
fn buffer_header<'a>(buffer: &LogBuffer<'a>) -> DumpEntry<'a> {
    let fields = Fields::new()
        .number("events_size", buffer.size())
        .number("time_base", buffer.time_base.0)
        .hex("pointer_base", buffer.pointer_base())
        .hex("object_base", buffer.object_base())
        .hex("thread", buffer.thread.0)
        .hex("method_base", buffer.method_base());
    let there = buffer.content().len() as u64;
    let fields = match buffer.size().saturating_sub(there) {
        0 => fields,
        missing => fields.word(CUT, "events").number("missing", missing),
    };
    DumpEntry::new(buffer.offset, BUFFER_HEADER_SIZE as u64, "buffer", fields)
}

/// Methods that a filter selects.
struct SelectedMethods<'f> {
    filter: &'f EntryFilter,
    methods: HashSet<Method>,
    names: &'f LogNames<'f>,
}

impl<'f> SelectedMethods<'f> {
    /// Collects the methods whose name and code match. Only the events of their compilation have both.
    fn of(log: &Log<'_>, filter: &'f EntryFilter, names: &'f LogNames<'f>) -> Self {
        let compiled = log.events().filter_map(|event| match event.kind {
            LogEventKind::Jit { method, .. } if has_selected_code(filter, &event.kind) => Some(method),
            _ => None,
        });
        Self {
            filter,
            methods: compiled.collect(),
            names,
        }
    }

    /// Returns whether an event refers to a selected method, is about an object of a type whose name matches, or has a name and
    /// an address range that match.
    fn selects(&self, kind: &LogEventKind<'_>, time: RuntimeTime) -> bool {
        let has_selected_frame =
            |frames: &MethodFrames<'_>| frames.iter().any(|method| self.methods.contains(&method));
        let is_selected_class = |class| {
            let name = self.names.class(class, time);
            self.filter.address.is_none() && name.is_some_and(|name| self.filter.matches_name(name))
        };
        match kind {
            LogEventKind::Jit { method, .. }
            | LogEventKind::Enter(method)
            | LogEventKind::Leave(method)
            | LogEventKind::ExceptionLeave(method)
            | LogEventKind::Clause { method, .. } => self.methods.contains(method),
            LogEventKind::Allocation { class, frames, .. } => {
                has_selected_frame(frames) || is_selected_class(*class)
            }
            LogEventKind::HeapObject { class, .. } => is_selected_class(*class),
            LogEventKind::Throw { frames, .. }
            | LogEventKind::Monitor { frames, .. }
            | LogEventKind::HandleCreated { frames, .. }
            | LogEventKind::HandleDestroyed { frames, .. }
            | LogEventKind::SampleHit { frames, .. } => has_selected_frame(frames),
            other => has_selected_code(self.filter, other),
        }
    }
}

/// Whether an event has a name and an address range that the filter selects.
fn has_selected_code(filter: &EntryFilter, kind: &LogEventKind<'_>) -> bool {
    let (start, size, name) = match *kind {
        LogEventKind::Jit {
            code: start,
            size,
            name,
            ..
        }
        | LogEventKind::CodeBuffer {
            start, size, name, ..
        }
        | LogEventKind::NativeSymbol { start, size, name } => (start, size, name),
        _ => return false,
    };
    filter.matches_name(name) && filter.matches_code(AddressRange::new(start, size))
}
