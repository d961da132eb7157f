//! Names of methods, classes, images, domains and threads, which events identify by pointers.
//!
//! A log uses pointers before it defines them, and defines some again when their memory is reused. So names
//! are looked up with a time, after the whole log has been read.

use crate::hash::HashMap;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::{Kind, Metadata, Method, Pointer, Stage, ThreadId, TypeReference};

/// Values of IDs, each valid from a time on.
#[derive(Clone, Debug)]
struct Definitions<T> {
    /// All definitions, sorted by ID and time after `finish`.
    all: Vec<(u64, RuntimeTime, T)>,
    /// Index of the last definition of each ID; used only before `finish`.
    last: HashMap<u64, usize>,
}

impl<T> Default for Definitions<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            last: HashMap::default(),
        }
    }
}

impl<T: Copy + PartialEq> Definitions<T> {
    /// Adds a definition, unless it repeats the last one of its ID.
    fn add(&mut self, number: u64, time: RuntimeTime, value: T) {
        let last = self.last.get(&number).and_then(|&at| self.all.get(at));
        if last.is_some_and(|(_, _, known)| *known == value) {
            return;
        }
        self.last.insert(number, self.all.len());
        self.all.push((number, time, value));
    }

    /// Sorts the definitions; called after the last one has been added.
    fn finish(&mut self) {
        self.last = HashMap::default();
        self.all.sort_by_key(|&(number, time, _)| (number, time));
        self.all.shrink_to_fit();
    }

    /// Returns the value of an ID at a time: the newest definition up to that time, or else the first one
    /// after it.
    fn at(&self, number: u64, time: RuntimeTime) -> Option<T> {
        let behind = self
            .all
            .partition_point(|&(other, at, _)| (other, at) <= (number, time));
        let fits = |at: usize| self.all.get(at).filter(|(other, _, _)| *other == number);
        let found = behind.checked_sub(1).and_then(fits).or_else(|| fits(behind));
        found.map(|&(_, _, value)| value)
    }
}

/// The names in a log.
#[derive(Clone, Debug, Default)]
pub struct Names<'a> {
    methods: Definitions<&'a [u8]>,
    classes: Definitions<&'a [u8]>,
    vtables: Definitions<Pointer>,
    images: Definitions<&'a [u8]>,
    assemblies: Definitions<&'a [u8]>,
    domains: Definitions<&'a [u8]>,
    threads: Definitions<&'a [u8]>,
}

impl<'a> Names<'a> {
    /// Adds the names in an event.
    pub(super) fn add(&mut self, time: RuntimeTime, kind: &Kind<'a>) {
        let (stage, subject) = match *kind {
            Kind::Jit { method, name, .. } => return self.methods.add(method.0, time, name),
            Kind::Metadata { stage, subject } => (stage, subject),
            _ => return,
        };
        match (stage, subject) {
            (Stage::LoadEnd | Stage::Name, Metadata::Class { class, name, .. }) => {
                self.classes.add(class.0, time, name);
            }
            (Stage::LoadEnd | Stage::Name, Metadata::Image { image, name, .. }) => {
                self.images.add(image.0, time, name);
            }
            (Stage::LoadEnd | Stage::Name, Metadata::Assembly { assembly, name, .. }) => {
                self.assemblies.add(assembly.0, time, name);
            }
            (Stage::Name, Metadata::Domain { domain, name }) => self.domains.add(domain.0, time, name),
            (Stage::Name, Metadata::Thread { thread, name }) => self.threads.add(thread.0, time, name),
            (Stage::LoadEnd, Metadata::VTable { vtable, class, .. }) => {
                self.vtables.add(vtable.0, time, class);
            }
            _ => {}
        }
    }

    /// Makes the names available; called after the last event.
    pub(super) fn finish(&mut self) {
        self.methods.finish();
        self.classes.finish();
        self.vtables.finish();
        self.images.finish();
        self.assemblies.finish();
        self.domains.finish();
        self.threads.finish();
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

    /// Returns the path of an image.
    pub fn image(&self, image: Pointer, time: RuntimeTime) -> Option<&'a [u8]> {
        self.images.at(image.0, time)
    }

    /// Returns the full name of an assembly.
    pub fn assembly(&self, assembly: Pointer, time: RuntimeTime) -> Option<&'a [u8]> {
        self.assemblies.at(assembly.0, time)
    }

    /// Returns the name of a domain.
    pub fn domain(&self, domain: Pointer, time: RuntimeTime) -> Option<&'a [u8]> {
        self.domains.at(domain.0, time)
    }

    /// Returns the name of a thread. Thread IDs are reused after a thread has ended.
    pub fn thread(&self, thread: ThreadId, time: RuntimeTime) -> Option<&'a [u8]> {
        self.threads.at(thread.0, time)
    }

    /// Iterates over all thread names, each with the time from which it is valid.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, RuntimeTime, &'a [u8])> + '_ {
        let threads = self.threads.all.iter();
        threads.map(|&(thread, time, name)| (ThreadId(thread), time, name))
    }
}
