//! The code described by a log: methods and helpers with their addresses and load times.
//!
//! A method that is compiled at run time is logged twice. The thread that compiles it writes a code buffer
//! event at once. The writer thread writes its name some microseconds later. The two events are matched by
//! address. Methods compiled ahead of time, and all methods before data version 8, have only the event with
//! the name. A few methods have no name.
//!
//! Quirk: if a thread calls a method right after it was compiled, the writer thread often names it before the
//! address of its code is available, and then never logs the address (Mono 6.8 with the options `jit` and
//! `calls`, capture mono-calls; Work.Program:Worker is such a method). The code buffer then has no name, and
//! the method has no code. A thread that compiles a method because of a call enters that method next. So if
//! the first call after a code buffer is also the first entry of a method, the method is matched with the
//! code buffer, unless one of them has another match.
//!
//! [`Unload`]s are the only events about the end of code, but they do not identify it: no event connects a
//! method with its class, image or domain. So code stays until other code is loaded at its addresses, as in
//! the files of all runtimes. Anything else that uses the addresses of unloaded code before that gets the old
//! name.

use crate::hash::{HashMap, HashSet};
use crate::runtime::mono::Names;
use crate::runtime::mono::decode::Call;
use crate::runtime::mono::event::{CodeBufferKind, Event, Kind, Metadata, Method, Pointer, Stage, ThreadId};
use crate::runtime::{Change, CodeEvent, RuntimeTime};
use crate::units::{Address, AddressRange};

/// A function of a log: a method or a helper with its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function<'a> {
    /// Address range of the code.
    pub range: AddressRange,
    /// Time at which the code was loaded.
    pub time: RuntimeTime,
    /// Thread that compiled the code, or the thread that logged it.
    pub thread: ThreadId,
    /// Kind of code.
    pub kind: CodeBufferKind,
    /// Whether the code was compiled at run time, not ahead of time. Always false before data version 8,
    /// which does not record this.
    pub is_compiled: bool,
    /// The methods of the code with their names. Generic methods share code, which then has several names.
    /// Empty for methods without a name in the log.
    pub methods: Vec<(Method, &'a [u8])>,
    /// Name of a specific trampoline; otherwise empty.
    trampoline: &'a [u8],
}

impl<'a> Function<'a> {
    /// Returns the name of the first method or, for code that is not a method, its kind in brackets.
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

/// An unload event, which may have freed code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unload {
    /// Time of the event.
    pub time: RuntimeTime,
    /// What was unloaded.
    pub what: Unloaded,
}

/// An unloaded part of the program.
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

/// The code of a log.
#[derive(Clone, Debug, Default)]
pub struct Code<'a> {
    functions: Vec<Function<'a>>,
    events: Vec<CodeEvent>,
    unloads: Vec<Unload>,
    without_range: u64,
}

impl<'a> Code<'a> {
    /// Returns all functions, in time order.
    pub fn functions(&self) -> &[Function<'a>] {
        &self.functions
    }

    /// Returns the function at an index.
    pub fn function(&self, number: u32) -> Option<&Function<'a>> {
        self.functions.get(usize::try_from(number).ok()?)
    }

    /// Returns the address range of the function at an index.
    pub fn range(&self, number: u32) -> Option<AddressRange> {
        self.function(number).map(|function| function.range)
    }

    /// Returns the events of all functions, in time order.
    pub fn events(&self) -> &[CodeEvent] {
        &self.events
    }

    /// Returns the unload events, in file order.
    pub fn unloads(&self) -> &[Unload] {
        &self.unloads
    }

    /// Returns the number of methods and helpers without a size, or with a size that exceeds the address
    /// space.
    pub fn without_range(&self) -> u64 {
        self.without_range
    }
}

/// Code information from one event.
#[derive(Clone, Copy, Debug)]
struct CodeInfo<'a> {
    start: Address,
    time: RuntimeTime,
    /// Method and its name; `None` for a code buffer.
    method: Option<(Method, &'a [u8])>,
    size: u64,
    thread: ThreadId,
    kind: CodeBufferKind,
    trampoline: &'a [u8],
}

impl CodeInfo<'_> {
    fn is_named(&self) -> bool {
        self.method.is_some()
    }
}

/// Collects code information from events.
#[derive(Clone, Debug, Default)]
pub(super) struct Collector<'a> {
    infos: Vec<CodeInfo<'a>>,
    unloads: Vec<Unload>,
    /// The code buffer that each thread has made for a method, with its time, until the thread's next call.
    made: HashMap<ThreadId, (Address, RuntimeTime)>,
    /// Methods that were entered right after that, with the address and time of the code buffer.
    entered_after: Vec<(Method, Address, RuntimeTime)>,
    entered: FirstEntries,
}

/// Times of the first entries of methods. Buffers of different threads are not in time order.
#[derive(Clone, Debug)]
struct FirstEntries {
    all: HashMap<Method, RuntimeTime>,
    /// Cache of recent entries in `all`. Most calls are to few methods, and searching `all` for each call
    /// would take as long as everything else.
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
    /// Number of cached entries; a power of two.
    const RECENT: usize = 1 << 10;

    fn add(&mut self, method: Method, time: RuntimeTime) {
        // Methods are objects of the runtime, which are at least 8 bytes apart.
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
    /// Adds an event that is not a call.
    pub(super) fn add(&mut self, event: &Event<'a>) {
        let Event { time, thread, .. } = *event;
        let buffer = CodeInfo {
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
            } => self.infos.push(CodeInfo {
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
                self.infos.push(CodeInfo {
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

    /// Adds a call made by a thread.
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

    /// Merges the collected information into functions. `pid` is the process ID of the log; `names` resolves
    /// methods.
    pub(super) fn finish(mut self, pid: u32, names: &Names<'a>) -> Code<'a> {
        self.infos
            .sort_by_key(|infos| (infos.start, infos.time, infos.is_named()));
        let mut functions: Vec<Function<'a>> = Vec::new();
        let mut without_range = 0_u64;
        for infos in self.infos {
            if functions.last_mut().is_some_and(|last| join(last, &infos)) {
                continue;
            }
            let Some(range) = AddressRange::new(infos.start, infos.size) else {
                without_range = without_range.saturating_add(1);
                continue;
            };
            functions.push(Function {
                range,
                time: infos.time,
                thread: infos.thread,
                kind: infos.kind,
                is_compiled: !infos.is_named(),
                methods: infos.method.into_iter().collect(),
                trampoline: infos.trampoline,
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

/// Names functions without a name after the method that was entered for the first time right after the
/// function was compiled, if that method has no code.
fn name_by_calls<'a>(
    functions: &mut [Function<'a>],
    entered_first: impl Iterator<Item = (Method, Address)>,
    names: &Names<'a>,
) {
    let with_code = functions.iter().flat_map(|function| &function.methods);
    let with_code: HashSet<Method> = with_code.map(|&(method, _)| method).collect();
    // The functions are still sorted by address.
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

/// Merges information into the function that it repeats; returns `false` if it is about other code.
fn join<'a>(last: &mut Function<'a>, infos: &CodeInfo<'a>) -> bool {
    let is_same = last.range.start == infos.start
        && last.kind == infos.kind
        && (last.range.size() == infos.size || infos.size == 0);
    // A second code buffer is other code.
    let is_repeated = !infos.is_named() && last.is_compiled;
    if !is_same || is_repeated {
        return false;
    }
    match infos.method {
        Some(method) => last.methods.push(method),
        None => last.is_compiled = true,
    }
    true
}
