//! The code that a log tells of: which method or helper lies where, from when on.
//!
//! A method that was compiled is told of twice: as a code buffer, by the thread that has compiled it, at once, and by
//! name, by the writer thread, some microseconds later. The address joins them. What was compiled ahead of time, and
//! everything before data version 8, has its name only; a few methods have none.
//!
//! Quirk: what a thread calls right after it was compiled, the writer thread often names before it knows where its code
//! is, and then never tells (Mono 6.8 with the options `jit` and `calls`, capture mono-calls; Work.Program:Worker is such
//! a method). The code buffer has no name then, and the method no code. A thread that compiles a method because it is
//! called enters it next, so what it enters for the first time right after a code buffer was made is taken for what is
//! in that, if neither of the two has another.
//!
//! When code goes is told by [`Unload`]s alone, and which code that is, is not: no event joins a method with its
//! class, image or domain. So code stays until other code is put there, as in all files of runtimes; what comes to
//! lie at the addresses of unloaded code before that would be named after it.

use crate::hash::{HashMap, HashSet};
use crate::runtime::mono::Names;
use crate::runtime::mono::decode::Call;
use crate::runtime::mono::event::{CodeBufferKind, Event, Kind, Metadata, Method, Pointer, Stage, ThreadId};
use crate::runtime::{Change, CodeEvent, RuntimeTime};
use crate::units::{Address, AddressRange};

/// Some code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function<'a> {
    /// Where it is.
    pub range: AddressRange,
    /// From when on.
    pub time: RuntimeTime,
    /// The thread that compiled it, or the one that told.
    pub thread: ThreadId,
    /// What it is.
    pub kind: CodeBufferKind,
    /// Whether it was compiled while the program ran, not ahead of time. Before data version 8 nothing tells, and
    /// this is false.
    pub is_compiled: bool,
    /// What it is called, and the method; generic methods share code, which then has several names. A method that the
    /// log has no name for has none.
    pub methods: Vec<(Method, &'a [u8])>,
    /// The name of a trampoline that has one.
    trampoline: &'a [u8],
}

impl<'a> Function<'a> {
    /// What to call it: the first of its methods, in brackets what it is if it is none.
    pub fn name(&self) -> Option<Vec<u8>> {
        if let Some((_, name)) = self.methods.first() {
            return Some(name.to_vec());
        }
        let kind: &[u8] = match self.kind {
            CodeBufferKind::Method => return None,
            CodeBufferKind::MethodTrampoline => b"method trampoline",
            CodeBufferKind::UnboxTrampoline => b"unbox trampoline",
            CodeBufferKind::InterfaceTrampoline => b"imt trampoline",
            CodeBufferKind::GenericsTrampoline => b"generics trampoline",
            CodeBufferKind::SpecificTrampoline => self.trampoline,
            CodeBufferKind::Helper => b"helper",
            CodeBufferKind::Monitor => b"monitor",
            CodeBufferKind::DelegateInvoke => b"delegate invoke",
            CodeBufferKind::ExceptionHandling => b"exception handling",
            CodeBufferKind::Other(_) => b"code",
        };
        Some([b"[mono ", kind, b"]"].concat())
    }
}

/// Something went, and maybe code with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unload {
    /// When.
    pub time: RuntimeTime,
    /// What.
    pub what: Unloaded,
}

/// What was unloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unloaded {
    /// A domain.
    Domain(Pointer),
    /// An image.
    Image(Pointer),
    /// An assembly.
    Assembly(Pointer),
    /// A class.
    Class(Pointer),
}

/// The code in a log.
#[derive(Clone, Debug, Default)]
pub struct Code<'a> {
    functions: Vec<Function<'a>>,
    events: Vec<CodeEvent>,
    unloads: Vec<Unload>,
    without_range: u64,
}

impl<'a> Code<'a> {
    /// All code, in the order of time.
    pub fn functions(&self) -> &[Function<'a>] {
        &self.functions
    }

    /// One of them.
    pub fn function(&self, number: u32) -> Option<&Function<'a>> {
        self.functions.get(usize::try_from(number).ok()?)
    }

    /// Where one of them is.
    pub fn range(&self, number: u32) -> Option<AddressRange> {
        self.function(number).map(|function| function.range)
    }

    /// What happened to them, in the order of time.
    pub fn events(&self) -> &[CodeEvent] {
        &self.events
    }

    /// What was unloaded, in the order of the file.
    pub fn unloads(&self) -> &[Unload] {
        &self.unloads
    }

    /// How many methods and helpers were told of without a size, or with one that leaves the address space.
    pub fn without_range(&self) -> u64 {
        self.without_range
    }
}

/// What one event tells of code.
#[derive(Clone, Copy, Debug)]
struct Told<'a> {
    start: Address,
    time: RuntimeTime,
    /// The method and its name; `None` of a code buffer.
    method: Option<(Method, &'a [u8])>,
    size: u64,
    thread: ThreadId,
    kind: CodeBufferKind,
    trampoline: &'a [u8],
}

impl Told<'_> {
    fn is_named(&self) -> bool {
        self.method.is_some()
    }
}

/// Collects what events tell of code.
#[derive(Clone, Debug, Default)]
pub(super) struct Collector<'a> {
    told: Vec<Told<'a>>,
    unloads: Vec<Unload>,
    /// Of each thread, the code buffer of a method that it has made, and when, if it has done nothing since.
    made: HashMap<ThreadId, (Address, RuntimeTime)>,
    /// Methods that were entered right after that.
    entered_after: Vec<(Method, Address, RuntimeTime)>,
    entered: FirstEntries,
}

/// When methods were entered first. The buffers of several threads are not in the order of time.
#[derive(Clone, Debug)]
struct FirstEntries {
    all: HashMap<Method, RuntimeTime>,
    /// Some of them that came lately, and when: most calls are of few methods, and to look for each of them in `all` takes
    /// as long as all else.
    recent: Vec<(Method, RuntimeTime)>,
}

impl Default for FirstEntries {
    fn default() -> Self {
        Self {
            all: HashMap::default(),
            recent: vec![(Method(0), RuntimeTime(u64::MAX)); Self::RECENT],
        }
    }
}

impl FirstEntries {
    /// A power of two.
    const RECENT: usize = 1 << 10;

    fn add(&mut self, method: Method, time: RuntimeTime) {
        // Methods are objects of the runtime, which lie 8 bytes apart at least.
        let place = (method.0 >> 3) as usize & Self::RECENT.saturating_sub(1);
        if let Some(recent) = self.recent.get_mut(place) {
            let (known, since) = *recent;
            if known == method && since <= time {
                return;
            }
            *recent = (method, time);
        }
        let first = self.all.entry(method).or_insert(time);
        *first = time.min(*first);
    }
}

impl<'a> Collector<'a> {
    /// Takes an event that is no call.
    pub(super) fn add(&mut self, event: &Event<'a>) {
        let Event { time, thread, .. } = *event;
        let buffer = Told {
            start: Address(0),
            time,
            method: None,
            size: 0,
            thread,
            kind: CodeBufferKind::Method,
            trampoline: b"",
        };
        match event.kind {
            Kind::Jit {
                method,
                code,
                size,
                name,
            } => self.told.push(Told {
                start: code,
                size,
                method: Some((method, name)),
                ..buffer
            }),
            Kind::CodeBuffer {
                kind,
                start,
                size,
                name,
            } => {
                if kind == CodeBufferKind::Method {
                    self.made.insert(thread, (start, time));
                }
                self.told.push(Told {
                    start,
                    size,
                    kind,
                    trampoline: name,
                    ..buffer
                });
            }
            Kind::Metadata {
                stage: Stage::UnloadEnd,
                subject,
            } => self.unloads.extend(
                match subject {
                    Metadata::Class { class, .. } => Some(Unloaded::Class(class)),
                    Metadata::Image { image, .. } => Some(Unloaded::Image(image)),
                    Metadata::Assembly { assembly, .. } => Some(Unloaded::Assembly(assembly)),
                    Metadata::Domain { domain, .. } => Some(Unloaded::Domain(domain)),
                    Metadata::Thread { .. } | Metadata::Context { .. } | Metadata::VTable { .. } => None,
                }
                .map(|what| Unload { time, what }),
            ),
            _ => {}
        }
    }

    /// Takes a call by a thread.
    #[inline]
    pub(super) fn add_call(&mut self, thread: ThreadId, call: Call) {
        if call.is_enter {
            self.entered.add(call.method, call.time);
        }
        if !self.made.is_empty()
            && let Some((start, time)) = self.made.remove(&thread)
            && call.is_enter
        {
            self.entered_after.push((call.method, start, time));
        }
    }

    /// Joins what was told; `pid` is the process of the log, and `names` what it calls methods.
    pub(super) fn finish(mut self, pid: u32, names: &Names<'a>) -> Code<'a> {
        self.told
            .sort_by_key(|told| (told.start, told.time, told.is_named()));
        let mut functions: Vec<Function<'a>> = Vec::new();
        let mut without_range = 0_u64;
        for told in self.told {
            if functions.last_mut().is_some_and(|last| join(last, &told)) {
                continue;
            }
            let Some(range) = AddressRange::new(told.start, told.size) else {
                without_range = without_range.saturating_add(1);
                continue;
            };
            functions.push(Function {
                range,
                time: told.time,
                thread: told.thread,
                kind: told.kind,
                is_compiled: !told.is_named(),
                methods: told.method.into_iter().collect(),
                trampoline: told.trampoline,
            });
        }
        let entered_first = self.entered_after.iter().filter(|&&(method, _, made)| {
            let first = self.entered.all.get(&method);
            first.is_some_and(|&first| first >= made)
        });
        let entered_first = entered_first.map(|&(method, start, _)| (method, start));
        name_by_calls(&mut functions, entered_first, names);
        for function in &mut functions {
            let mut seen = HashSet::default();
            function.methods.retain(|method| seen.insert(*method));
        }
        functions.sort_by_key(|function| (function.time, function.range.start));
        let loads = (0..).zip(&functions).map(|(function, it)| CodeEvent {
            time: it.time,
            pid,
            function,
            change: Change::Load,
        });
        Code {
            events: loads.collect(),
            functions,
            unloads: self.unloads,
            without_range,
        }
    }
}

/// Names functions that have no name by the methods that were entered, for the first time, right after they were made, as
/// far as these have no code.
fn name_by_calls<'a>(
    functions: &mut [Function<'a>],
    entered_first: impl Iterator<Item = (Method, Address)>,
    names: &Names<'a>,
) {
    let with_code = functions.iter().flat_map(|function| &function.methods);
    let with_code: HashSet<Method> = with_code.map(|&(method, _)| method).collect();
    // The functions are in the order of their addresses still.
    for (method, start) in entered_first {
        let place = functions.partition_point(|function| function.range.start < start);
        if let Some(function) = functions.get_mut(place)
            && function.range.start == start
            && function.kind == CodeBufferKind::Method
            && function.methods.is_empty()
            && !with_code.contains(&method)
            && let Some(name) = names.method(method, function.time)
        {
            function.methods.push((method, name));
        }
    }
}

/// Adds to a function what is told of it once more; `false` if that is another one at its place.
fn join<'a>(last: &mut Function<'a>, told: &Told<'a>) -> bool {
    let is_same = last.range.start == told.start
        && last.kind == told.kind
        && (last.range.size() == told.size || told.size == 0);
    // A second code buffer is other code.
    let is_repeated = !told.is_named() && last.is_compiled;
    if !is_same || is_repeated {
        return false;
    }
    match told.method {
        Some(method) => last.methods.push(method),
        None => last.is_compiled = true,
    }
    true
}
