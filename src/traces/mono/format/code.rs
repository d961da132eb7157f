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
//! Unload events do not identify the code that they free: no event connects a method with its class, image or
//! domain. So they are not used, and code stays until other code is loaded at its addresses, as in the files
//! of all runtimes. Anything else at the addresses of unloaded code gets the old name before that.

use jitdump::{Address, AddressRange, RuntimeTime};

use crate::collections::hash::{HashMap, HashSet};
use crate::traces::mono::format::LogNames;
use crate::traces::mono::format::decode::MethodCall;
use crate::traces::mono::format::event::{CodeBufferKind, LogEvent, LogEventKind, Method, ThreadId};

/// A function of a log: a method or a helper with its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedFunction<'a> {
    /// Address range of the code.
    pub range: AddressRange,
    /// Time at which the code was loaded.
    pub time: RuntimeTime,
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

impl<'a> LoggedFunction<'a> {
    /// Returns the name of the first method or, for code that is not a method, its kind in brackets; `None` for a method whose
    /// name is unknown.
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

/// The code of a log.
#[derive(Clone, Debug, Default)]
pub struct LogCode<'a> {
    /// All functions, in time order.
    pub functions: Vec<LoggedFunction<'a>>,
    /// Number of methods and helpers without a size, or with a size that exceeds the address space.
    pub without_range: u64,
}

impl<'a> LogCode<'a> {
    /// Returns the function at an index.
    pub fn function(&self, number: u32) -> Option<&LoggedFunction<'a>> {
        self.functions.get(usize::try_from(number).ok()?)
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
pub(super) struct CodeCollector<'a> {
    infos: Vec<CodeInfo<'a>>,
    /// Address and time of the last code buffer of each thread for a method, until the thread's next call.
    last_buffers: HashMap<ThreadId, (Address, RuntimeTime)>,
    /// Methods that were entered right after that.
    entered_after: Vec<EnteredMethod>,
    first_entries: FirstEntries,
}

/// A method that was entered right after a code buffer.
#[derive(Clone, Copy, Debug)]
struct EnteredMethod {
    method: Method,
    /// Address and time of the code buffer.
    start: Address,
    compiled: RuntimeTime,
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
            recent: vec![(Method(0), RuntimeTime(u64::MAX)); Self::CACHE_SIZE],
        }
    }
}

impl FirstEntries {
    /// Number of cached entries; a power of two.
    const CACHE_SIZE: usize = 1 << 10;

    /// Adds that a method was entered at a time.
    fn add_entry(&mut self, method: Method, time: RuntimeTime) {
        // Methods are objects of the runtime, which are at least 8 bytes apart.
        let slot = (method.0 >> 3) as usize & Self::CACHE_SIZE.saturating_sub(1);
        if let Some(recent) = self.recent.get_mut(slot) {
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

impl<'a> CodeCollector<'a> {
    /// Adds an event that is not a call.
    pub(super) fn add(&mut self, event: &LogEvent<'a>) {
        let LogEvent { time, thread, .. } = *event;
        let buffer = CodeInfo {
            start: Address(0),
            time,
            method: None,
            size: 0,
            kind: CodeBufferKind::Method,
            trampoline: b"",
        };
        match event.kind {
            LogEventKind::Jit {
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
            LogEventKind::CodeBuffer {
                kind,
                start,
                size,
                name,
            } => {
                if kind == CodeBufferKind::Method {
                    self.last_buffers.insert(thread, (start, time));
                }
                self.infos.push(CodeInfo {
                    start,
                    size,
                    kind,
                    trampoline: name,
                    ..buffer
                });
            }
            _ => {}
        }
    }

    /// Adds a call made by a thread.
    #[inline]
    pub(super) fn add_call(&mut self, thread: ThreadId, call: MethodCall) {
        if call.is_enter {
            self.first_entries.add_entry(call.method, call.time);
        }
        if !self.last_buffers.is_empty()
            && let Some((start, time)) = self.last_buffers.remove(&thread)
            && call.is_enter
        {
            self.entered_after.push(EnteredMethod {
                method: call.method,
                start,
                compiled: time,
            });
        }
    }

    /// Merges the collected information into functions. `names` resolves methods.
    pub(super) fn finish(mut self, names: &LogNames<'a>) -> LogCode<'a> {
        self.infos
            .sort_by_key(|info| (info.start, info.time, info.is_named()));
        let mut functions: Vec<LoggedFunction<'a>> = Vec::new();
        let mut without_range = 0_u64;
        for info in self.infos {
            if functions.last_mut().is_some_and(|last| merge(last, &info)) {
                continue;
            }
            let Some(range) = AddressRange::new(info.start, info.size) else {
                without_range = without_range.saturating_add(1);
                continue;
            };
            functions.push(LoggedFunction {
                range,
                time: info.time,
                kind: info.kind,
                is_compiled: !info.is_named(),
                methods: info.method.into_iter().collect(),
                trampoline: info.trampoline,
            });
        }
        let entered_first = self.entered_after.iter().filter(|entered| {
            let first = self.first_entries.all.get(&entered.method);
            first.is_some_and(|&first| first >= entered.compiled)
        });
        let entered_first = entered_first.map(|entered| (entered.method, entered.start));
        name_by_calls(&mut functions, entered_first, names);
        for function in &mut functions {
            let mut seen = HashSet::default();
            function.methods.retain(|method| seen.insert(*method));
        }
        functions.sort_by_key(|function| (function.time, function.range.start));
        LogCode {
            functions,
            without_range,
        }
    }
}

/// Names functions without a name after the method that was entered for the first time right after the
/// function was compiled, if that method has no code.
fn name_by_calls<'a>(
    functions: &mut [LoggedFunction<'a>],
    entered_first: impl Iterator<Item = (Method, Address)>,
    names: &LogNames<'a>,
) {
    let with_code = functions.iter().flat_map(|function| &function.methods);
    let with_code: HashSet<Method> = with_code.map(|&(method, _)| method).collect();
    // The functions are still sorted by address.
    for (method, start) in entered_first {
        let index = functions.partition_point(|function| function.range.start < start);
        if let Some(function) = functions.get_mut(index)
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
fn merge<'a>(last: &mut LoggedFunction<'a>, info: &CodeInfo<'a>) -> bool {
    let is_same = last.range.start == info.start
        && last.kind == info.kind
        && (last.range.size() == info.size || info.size == 0);
    // A second code buffer is other code.
    let is_repeated = !info.is_named() && last.is_compiled;
    if !is_same || is_repeated {
        return false;
    }
    match info.method {
        Some(method) => last.methods.push(method),
        None => last.is_compiled = true,
    }
    true
}
