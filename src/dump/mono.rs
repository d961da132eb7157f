//! The buffers and events of a log of Mono's profiler.

pub(crate) mod event;

use crate::dump::Put;
use crate::dump::entry::{CUT, DAMAGE, Entry, Fields};
use crate::dump::filter::Filter;
use crate::hash::HashSet;
use crate::runtime::mono::log::BUFFER_HEADER;
use crate::runtime::mono::{Buffer, Fault, Header, Kind, Log, Method};
use crate::units::{Address, AddressRange};

/// Gives the pieces of a log that are wanted to `put`.
pub fn dump<E>(file: &[u8], filter: &Filter, put: &mut Put<'_, E>) -> Result<(), E> {
    let size = file.len() as u64;
    let log = match Log::parse(file) {
        Ok(log) => log,
        // What follows can be anything.
        Err(error) if filter.is_empty() => {
            return put(&damage(0, size, Fields::new().fault(format!("it {error}"))));
        }
        Err(_) => return Ok(()),
    };
    let about = filter.is_about_functions().then(|| Selection::of(&log, filter));
    let mut walk = Walk {
        position: 0,
        is_all: filter.is_empty(),
        put,
    };
    walk.tell(header(log.header()))?;
    for buffer in log.buffers() {
        walk.skip_to(buffer.offset, Fault::SkippedBytes)?;
        walk.tell(buffer_header(&buffer))?;
        let mut events = buffer.events();
        while let Some(event) = events.next() {
            let is_wanted = walk.is_all
                || filter.allows_time(Some(event.time.0))
                    && about.as_ref().is_none_or(|about| about.holds(&event.kind));
            let end = events.next_offset();
            if !is_wanted {
                walk.position = end;
                continue;
            }
            let (kind, fields) = event::describe(event.kind);
            (walk.put)(&Entry {
                offset: event.offset,
                size: end.saturating_sub(event.offset),
                kind,
                time: Some(event.time.0),
                fields,
            })?;
            walk.position = end;
        }
        let fault = events.fault().map_or(Fault::CutEvent, |(fault, _)| fault);
        walk.skip_to(buffer.end(), fault)?;
    }
    let fault = match size.saturating_sub(walk.position) {
        left if left < BUFFER_HEADER as u64 => Fault::CutTail,
        _ => Fault::SkippedBytes,
    };
    walk.skip_to(size, fault)
}

struct Walk<'p, 'q, E> {
    /// Up to where the file has been told.
    position: u64,
    /// Whether pieces that are no events are wanted.
    is_all: bool,
    put: &'p mut Put<'q, E>,
}

impl<E> Walk<'_, '_, E> {
    /// Tells a piece that is no event.
    fn tell(&mut self, entry: Entry<'_>) -> Result<(), E> {
        self.position = entry.offset.saturating_add(entry.size);
        match self.is_all {
            true => (self.put)(&entry),
            false => Ok(()),
        }
    }

    /// Tells that nothing could be read up to there, if there is something.
    fn skip_to(&mut self, end: u64, fault: Fault) -> Result<(), E> {
        match end.saturating_sub(self.position) {
            0 => Ok(()),
            size => self.tell(damage(self.position, size, Fields::new().fault(fault))),
        }
    }
}

fn damage(offset: u64, size: u64, fields: Fields<'_>) -> Entry<'_> {
    Entry {
        offset,
        size,
        kind: DAMAGE,
        time: None,
        fields,
    }
}

fn header<'a>(header: &Header<'a>) -> Entry<'a> {
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
    Entry {
        offset: 0,
        size: header.size as u64,
        kind: "header",
        time: None,
        fields,
    }
}

fn buffer_header<'a>(buffer: &Buffer<'a>) -> Entry<'a> {
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
    Entry {
        offset: buffer.offset,
        size: BUFFER_HEADER as u64,
        kind: "buffer",
        time: None,
        fields,
    }
}

/// The methods that are asked for.
struct Selection<'f> {
    filter: &'f Filter,
    methods: HashSet<Method>,
}

impl<'f> Selection<'f> {
    /// Finds them by their names and code.
    fn of(log: &Log<'_>, filter: &'f Filter) -> Self {
        let mut selection = Self {
            filter,
            methods: HashSet::default(),
        };
        for event in log.events() {
            if let Kind::Jit { method, .. } = event.kind
                && selection.names(&event.kind)
            {
                selection.methods.insert(method);
            }
        }
        selection
    }

    /// Whether an event tells a name and a place that are asked for.
    fn names(&self, kind: &Kind<'_>) -> bool {
        let (start, size, name) = match *kind {
            Kind::Jit {
                code: start,
                size,
                name,
                ..
            }
            | Kind::CodeBuffer {
                start, size, name, ..
            }
            | Kind::NativeSymbol { start, size, name } => (start, size, name),
            _ => return false,
        };
        let range: Option<AddressRange> = AddressRange::new(start as Address, size);
        self.filter.allows_name(name) && self.filter.allows_code(range)
    }

    /// Whether an event is about one of the methods, or tells a name and a place that are asked for.
    fn holds(&self, kind: &Kind<'_>) -> bool {
        match kind {
            Kind::Jit { method, .. }
            | Kind::Enter(method)
            | Kind::Leave(method)
            | Kind::ExceptionLeave(method)
            | Kind::Clause { method, .. } => self.methods.contains(method),
            other => self.names(other),
        }
    }
}
