//! What pointers of the runtime stand for: names of methods, classes, images, domains and threads.
//!
//! Logs use pointers before they tell what they are, and tell of some again when another thing has come to lie there.
//! So a name is looked up with a time, after the whole log was walked.

use crate::hash::HashMap;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::event::{Kind, Metadata, Method, Pointer, Stage, ThreadId, TypeReference};

/// What numbers stand for, from which time on.
#[derive(Clone, Debug)]
struct Definitions<T> {
    /// Sorted by number and time when all are there.
    all: Vec<(u64, RuntimeTime, T)>,
    /// The last one of each number, while they come.
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
    /// Adds one; what is said once more takes no more memory.
    fn add(&mut self, number: u64, time: RuntimeTime, value: T) {
        let last = self.last.get(&number).and_then(|&at| self.all.get(at));
        if last.is_some_and(|(_, _, known)| *known == value) {
            return;
        }
        self.last.insert(number, self.all.len());
        self.all.push((number, time, value));
    }

    /// To be called when all are there.
    fn finish(&mut self) {
        self.last = HashMap::default();
        self.all.sort_by_key(|&(number, time, _)| (number, time));
        self.all.shrink_to_fit();
    }

    /// What a number stands for at a time: the newest that was told by then, or the first that is told later.
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
    /// Takes what an event tells.
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

    /// To be called when all events were seen.
    pub(super) fn finish(&mut self) {
        self.methods.finish();
        self.classes.finish();
        self.vtables.finish();
        self.images.finish();
        self.assemblies.finish();
        self.domains.finish();
        self.threads.finish();
    }

    /// A method's name with its class and arguments.
    pub fn method(&self, method: Method, time: RuntimeTime) -> Option<&'a [u8]> {
        self.methods.at(method.0, time)
    }

    /// The full name of an object's class.
    pub fn class(&self, class: TypeReference, time: RuntimeTime) -> Option<&'a [u8]> {
        let class = match class {
            TypeReference::Class(class) => class,
            TypeReference::VTable(vtable) => self.vtables.at(vtable.0, time)?,
        };
        self.classes.at(class.0, time)
    }

    /// An image's path.
    pub fn image(&self, image: Pointer, time: RuntimeTime) -> Option<&'a [u8]> {
        self.images.at(image.0, time)
    }

    /// An assembly's full name.
    pub fn assembly(&self, assembly: Pointer, time: RuntimeTime) -> Option<&'a [u8]> {
        self.assemblies.at(assembly.0, time)
    }

    /// A domain's name.
    pub fn domain(&self, domain: Pointer, time: RuntimeTime) -> Option<&'a [u8]> {
        self.domains.at(domain.0, time)
    }

    /// A thread's name. A thread's number comes again when it has ended.
    pub fn thread(&self, thread: ThreadId, time: RuntimeTime) -> Option<&'a [u8]> {
        self.threads.at(thread.0, time)
    }

    /// All names of threads: which, from when on, and what.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, RuntimeTime, &'a [u8])> + '_ {
        let threads = self.threads.all.iter();
        threads.map(|&(thread, time, name)| (ThreadId(thread), time, name))
    }
}
