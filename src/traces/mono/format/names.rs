//! Names of methods and classes, which events identify by pointers.
//!
//! A log uses pointers before it defines them, and defines some again when their memory is reused. So names
//! are looked up with a time, after the whole log has been read.

use jitdump::RuntimeTime;

use crate::collections::hash::HashMap;
use crate::traces::mono::format::event::{LogEventKind, Metadata, Method, Pointer, Stage, TypeReference};

/// A value of an ID from a time on.
#[derive(Clone, Copy, Debug)]
struct Definition<T> {
    id: u64,
    time: RuntimeTime,
    value: T,
}

/// Values of IDs, each valid from a time on.
#[derive(Clone, Debug, Default)]
struct Definitions<T> {
    /// All definitions, sorted by ID and time after `finish`.
    all: Vec<Definition<T>>,
    /// Index of the last definition of each ID; used only before `finish`.
    last: HashMap<u64, usize>,
}

impl<T: Copy + PartialEq> Definitions<T> {
    /// Adds a definition, unless it repeats the last one of its ID.
    fn add(&mut self, id: u64, time: RuntimeTime, value: T) {
        let last = self.last.get(&id).and_then(|&at| self.all.get(at));
        if last.is_some_and(|last| last.value == value) {
            return;
        }
        self.last.insert(id, self.all.len());
        self.all.push(Definition { id, time, value });
    }

    /// Sorts the definitions; called after the last one has been added.
    fn finish(&mut self) {
        self.last = HashMap::default();
        self.all
            .sort_by_key(|definition| (definition.id, definition.time));
        self.all.shrink_to_fit();
    }

    /// Returns the value of an ID at a time: the newest definition up to that time, or else the first one
    /// after it.
    fn at(&self, id: u64, time: RuntimeTime) -> Option<T> {
        let next = self
            .all
            .partition_point(|definition| (definition.id, definition.time) <= (id, time));
        let definition = |at: usize| self.all.get(at).filter(|definition| definition.id == id);
        let found = next
            .checked_sub(1)
            .and_then(definition)
            .or_else(|| definition(next));
        found.map(|definition| definition.value)
    }
}

/// The names in a log.
#[derive(Clone, Debug, Default)]
pub struct LogNames<'a> {
    methods: Definitions<&'a [u8]>,
    classes: Definitions<&'a [u8]>,
    vtables: Definitions<Pointer>,
}

impl<'a> LogNames<'a> {
    /// Adds the names in an event.
    pub(super) fn add(&mut self, time: RuntimeTime, kind: &LogEventKind<'a>) {
        match *kind {
            LogEventKind::Jit { method, name, .. } => self.methods.add(method.0, time, name),
            LogEventKind::Metadata {
                stage: Stage::LoadEnd | Stage::Name,
                subject: Metadata::Class { class, name, .. },
            } => self.classes.add(class.0, time, name),
            LogEventKind::Metadata {
                stage: Stage::LoadEnd,
                subject: Metadata::VTable { vtable, class, .. },
            } => self.vtables.add(vtable.0, time, class),
            _ => {}
        }
    }

    /// Makes the names available; called after the last event.
    pub(super) fn finish(&mut self) {
        self.methods.finish();
        self.classes.finish();
        self.vtables.finish();
    }

    /// Returns the name of a method, with its class and arguments.
    pub fn method(&self, method: Method, time: RuntimeTime) -> Option<&'a [u8]> {
        self.methods.at(method.0, time)
    }

    /// Returns the full name of a class or of a vtable's class.
    pub fn class(&self, class: TypeReference, time: RuntimeTime) -> Option<&'a [u8]> {
        let class = match class {
            TypeReference::Class(class) => class,
            TypeReference::VTable(vtable) => self.vtables.at(vtable.0, time)?,
        };
        self.classes.at(class.0, time)
    }
}
