//! What samples refer to: stacks, frames with inlined calls, functions, files, modules, threads and events.

use std::cmp::Ordering;
use std::sync::Arc;

use jitdump::Time;
use serde::Serialize;

use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::frames::stream::call_tree::Weight;
use crate::frames::stream::frame::FrameCode;
use crate::frames::stream::kinds::{self, Kind};
use crate::frames::unwind::Unwound;
use crate::results::diagnostics::Diagnostic;
use crate::results::summary::count;
use crate::results::summary::profile::Unit;
use crate::units::{Pid, Tid};

table_index! {
    /// Index of a stack.
    StackIndex
}

table_index! {
    /// Index of a frame.
    FrameIndex
}

table_index! {
    /// Index of a function.
    NamedFunctionIndex
}

table_index! {
    /// Index of a symbol.
    SymbolIndex
}

table_index! {
    /// Index of a source file.
    SourceFileIndex
}

table_index! {
    /// Index of a module.
    NamedModuleIndex
}

table_index! {
    /// Index of the name of a compiler tier.
    TierIndex
}

table_index! {
    /// Index of a thread.
    ThreadIndex
}

/// A sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Index of the event in [`Tables::events`].
    pub event: u32,
    /// Index of the thread.
    pub thread: ThreadIndex,
    /// Time on the profile's clock, if recorded.
    pub time: Option<Time>,
    /// CPU, if recorded.
    pub cpu: Option<u32>,
    /// Weight: number of units of the event.
    pub period: u64,
    /// Index of the stack, whose frame is the sampled one; `None` if nothing of it was recorded.
    pub stack: Option<StackIndex>,
}

impl Sample {
    /// Returns what it counts for.
    pub fn weight(&self) -> Weight {
        Weight {
            samples: 1,
            period: self.period,
        }
    }
}

/// Everything that samples refer to.
#[derive(Debug, Default)]
pub struct Tables {
    /// Events.
    pub events: Vec<Event>,
    /// Threads, in the order of their first samples.
    pub threads: IndexedTable<ThreadIndex, Thread>,
    /// Stacks. A caller comes before what it calls.
    pub stacks: IndexedTable<StackIndex, Stack>,
    /// Frames of machine code.
    pub frames: IndexedTable<FrameIndex, Frame>,
    /// Functions of the source code, those of all processes and tiers together.
    pub functions: IndexedTable<NamedFunctionIndex, NamedFunction>,
    /// Symbols: code of one function as it was compiled once.
    pub symbols: IndexedTable<SymbolIndex, Symbol>,
    /// Source files.
    pub files: IndexedTable<SourceFileIndex, File>,
    /// Executables, libraries and parts of the kernel.
    pub modules: IndexedTable<NamedModuleIndex, Module>,
    /// Names of compiler tiers.
    pub tiers: IndexedTable<TierIndex, String>,
    /// What is missing in the samples.
    pub losses: Losses,
    /// Time of the first and the last record, if records have times.
    pub times: Option<(Time, Time)>,
    /// What is not as it should be.
    pub diagnostics: Vec<Diagnostic>,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Name, such as `cycles:u`.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// Whether it does not count in the kernel.
    pub without_kernel: bool,
    /// Number of samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// ID of its process, if recorded.
    pub pid: Option<Pid>,
    /// Its ID, if recorded.
    pub tid: Option<Tid>,
    /// Its names, each with the time from which it has it.
    pub names: Vec<(Time, String)>,
    /// Last name of its process.
    pub process_name: String,
}

impl Thread {
    /// Returns the last name.
    pub fn name(&self) -> &str {
        self.names.last().map_or(&self.process_name, |(_, name)| name)
    }

    /// Returns the ID of its process, or `?`.
    pub fn pid_text(&self) -> String {
        id_text(self.pid.map(|Pid(pid)| pid))
    }

    /// Returns its ID, or `?`.
    pub fn tid_text(&self) -> String {
        id_text(self.tid.map(|Tid(tid)| tid))
    }
}

fn id_text(id: Option<u32>) -> String {
    id.map_or_else(|| "?".to_owned(), |id| id.to_string())
}

/// A stack: a frame and its callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stack {
    /// The stack of the caller; `None` for the outermost frame.
    pub caller: Option<StackIndex>,
    /// The frame.
    pub frame: FrameIndex,
}

/// A frame of machine code: an address in a function, with the calls that were inlined there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it is in.
    pub code: FrameCode,
    /// Kind of code.
    pub kind: Kind,
    /// Module with the code; `None` for JIT code, and for what is unknown.
    pub module: Option<NamedModuleIndex>,
    /// Address: in the file as linked for native code, in memory for JIT code and the kernel. That of a call is within the
    /// instruction.
    pub address: u64,
    /// Symbol of the code, if it has one.
    pub symbol: Option<SymbolIndex>,
    /// Compiler tier of JIT code, if known.
    pub tier: Option<TierIndex>,
    /// Functions of the source code, at least one: the innermost inlined one first, the one with the symbol last. Frames at one
    /// line share them.
    pub lines: Arc<[Line]>,
}

/// A function of the source code at a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// The function.
    pub function: NamedFunctionIndex,
    /// File of the line, if known.
    pub file: Option<SourceFileIndex>,
    /// Executed line, or that of the call, from 1; 0 if it is unknown.
    pub line: u32,
    /// Column, from 1; 0 if it is unknown.
    pub column: u32,
    /// The place in the generated file, if a source map led from there.
    pub generated: Option<Location>,
}

/// A place in a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location {
    /// File.
    pub file: SourceFileIndex,
    /// Line, from 1; 0 if it is unknown.
    pub line: u32,
    /// Column, from 1; 0 if it is unknown.
    pub column: u32,
}

/// A function of the source code.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NamedFunction {
    /// Kind of code.
    pub kind: Kind,
    /// Its own name; that of its module or a text in brackets if it has none.
    pub name: String,
    /// Whether it has a name of its own.
    pub is_named: bool,
    /// Module of native code.
    pub module: Option<NamedModuleIndex>,
    /// File in which it is declared, if known.
    pub file: Option<SourceFileIndex>,
    /// First line, from 1; 0 if it is unknown.
    pub line: u32,
    /// First column, from 1; 0 if it is unknown.
    pub column: u32,
    /// Where it starts in the generated file, if a source map led from there; in one of them if there are several.
    pub generated: Option<Location>,
}

/// A symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Name, as readers of perf.data show it.
    pub name: String,
    /// Address of its first byte, as in [`Frame::address`].
    pub address: u64,
    /// Size in bytes, if known.
    pub size: Option<u64>,
}

/// A source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Path, as the runtime or a source map has it.
    pub path: String,
    /// The same in bytes.
    pub recorded_path: Vec<u8>,
    /// Owner of the runtime's file that names it.
    pub owner: u32,
    /// Path of the script whose source map names it, if no runtime does.
    pub script: Option<Vec<u8>>,
    /// Text, if a runtime's file or a source map has it.
    pub text: Option<Vec<u8>>,
}

/// An executable, a library, the kernel or a module of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Path, or a name such as `[vdso]`.
    pub path: String,
    /// Its last part.
    pub name: String,
    /// Build ID in hexadecimal digits, if known.
    pub build_id: Option<String>,
}

/// Counts of the whole profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// All samples.
    pub samples: u64,
    /// Samples in JIT code.
    pub jit: u64,
    /// Samples in JIT code without a name.
    pub unnamed: u64,
    /// Samples in files without a symbol for the address.
    pub without_symbol: u64,
    /// Samples in nothing that is known.
    pub unknown: u64,
    /// Call chains as long as the kernel records them.
    pub full_chains: FullChains,
    /// Samples whose user callers were recorded apart.
    pub deferred: u64,
    /// Samples that end before their last field.
    pub truncated: u64,
    /// Samples without callers because there were too many stacks.
    pub without_callers: u64,
}

impl Counts {
    /// Adds the counts of another part.
    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            samples,
            jit,
            unnamed,
            without_symbol,
            unknown,
            full_chains,
            deferred,
            truncated,
            without_callers,
        } = self;
        for (own, other) in [
            (samples, other.samples),
            (jit, other.jit),
            (unnamed, other.unnamed),
            (without_symbol, other.without_symbol),
            (unknown, other.unknown),
            (deferred, other.deferred),
            (truncated, other.truncated),
            (without_callers, other.without_callers),
        ] {
            *own = own.saturating_add(other);
        }
        full_chains.merge(&other.full_chains);
    }
}

/// Call chains that may lack their outermost callers.
///
/// A profile does not have the limit (`kernel.perf_event_max_stack`): it is the length of the longest chains, unless they
/// are below the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FullChains {
    /// Addresses in each of them.
    length: usize,
    /// Number of chains of this length.
    count: u64,
}

impl FullChains {
    /// Addresses in the longest chain that the kernel records by default.
    pub const DEFAULT_LENGTH: usize = 127;

    /// Adds a chain of so many addresses.
    pub fn add(&mut self, length: usize) {
        self.merge(&Self { length, count: 1 });
    }

    fn merge(&mut self, other: &Self) {
        match self.length.cmp(&other.length) {
            Ordering::Less => *self = *other,
            Ordering::Equal => self.count = self.count.saturating_add(other.count),
            Ordering::Greater => {}
        }
    }

    /// Number of chains that are likely cut.
    fn cut(&self) -> u64 {
        // With a higher limit, the longest chain may be whole; several of the same length rarely are.
        let is_limit = self.length == Self::DEFAULT_LENGTH || self.count > 1;
        if is_limit { self.count } else { 0 }
    }
}

impl Default for FullChains {
    fn default() -> Self {
        Self {
            length: Self::DEFAULT_LENGTH,
            count: 0,
        }
    }
}

/// What is missing in the samples of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Losses {
    /// Number of samples.
    pub samples: u64,
    /// Samples that perf lost.
    pub lost: u64,
    /// Samples in JIT code.
    pub jit: u64,
    /// Those without a name.
    pub unnamed: u64,
    /// Samples in files, or in the kernel, without a symbol for the address.
    pub without_symbol: u64,
    /// Samples in nothing that is known.
    pub unknown: u64,
    /// Whether no event of time or cycles counts in the kernel.
    pub without_kernel: bool,
    /// Stacks that were unwound.
    pub unwound: u64,
    /// Stacks that are not whole: the copy ends too early, or the kernel recorded as many callers as it can.
    pub cut: u64,
    /// Samples whose callers were recorded apart from them, and are missing.
    pub deferred: u64,
    /// Samples that end before their last field.
    pub truncated: u64,
    /// Samples without callers because there were too many stacks.
    pub without_callers: u64,
}

impl Losses {
    /// Returns what is missing. `lost` is the number of samples that perf lost.
    pub(super) fn of(counts: &Counts, lost: u64, unwound: &Unwound, events: &[Event]) -> Self {
        let unwound = unwound.summary.unwrap_or_default();
        // Events of logs and traces never count there.
        let is_time = |event: &&Event| event.samples > 0 && event.unit != Unit::Occurrences;
        let mut sampled = events.iter().filter(is_time).peekable();
        Self {
            samples: counts.samples,
            lost,
            jit: counts.jit,
            unnamed: counts.unnamed,
            without_symbol: counts.without_symbol,
            unknown: counts.unknown,
            without_kernel: sampled.peek().is_some() && sampled.all(|event| event.without_kernel),
            unwound: unwound.stacks,
            cut: match unwound.stacks {
                0 => counts.full_chains.cut(),
                _ => unwound.cut,
            },
            deferred: counts.deferred,
            truncated: counts.truncated,
            without_callers: counts.without_callers,
        }
    }

    /// Returns what is missing, one text for each loss.
    fn parts(&self) -> Vec<String> {
        let of = |part: u64, all: u64, what: &str| (part > 0).then(|| format!("{part} of {all} {what}"));
        let parts = [
            (self.lost > 0).then(|| format!("{} lost", count(self.lost, "sample"))),
            of(self.unnamed, self.jit, "samples in JIT code without a name"),
            of(
                self.without_symbol,
                self.samples,
                "samples in files without a symbol",
            ),
            of(self.unknown, self.samples, "samples in unknown code"),
            self.without_kernel.then(|| "kernel time not recorded".to_owned()),
            match self.unwound {
                0 => of(
                    self.cut,
                    self.samples,
                    "stacks cut at the kernel's limit (sysctl kernel.perf_event_max_stack)",
                ),
                unwound => of(self.cut, unwound.max(self.samples), "stacks cut"),
            },
            of(
                self.deferred,
                self.samples,
                "samples without their deferred callers",
            ),
            of(self.truncated, self.samples, "samples truncated"),
            of(
                self.without_callers,
                self.samples,
                "samples without callers, because stacks are too many",
            ),
        ];
        parts.into_iter().flatten().collect()
    }

    /// Whether anything is missing.
    pub fn is_any(&self) -> bool {
        !self.parts().is_empty()
    }

    /// Returns what is missing, as one line.
    pub fn text(&self) -> String {
        match self.parts() {
            parts if parts.is_empty() => {
                "nothing: no sample lost, all code named, kernel time recorded, no stack cut".to_owned()
            }
            parts => parts.join("; "),
        }
    }
}

/// A function in a stack.
#[derive(Clone, Copy, Debug)]
pub struct Call<'t> {
    /// The frame of machine code.
    pub frame: &'t Frame,
    /// The function and its line.
    pub line: Line,
    /// Number of callers in the same frame of machine code; 0 for the function that was compiled.
    pub inline_depth: u32,
}

impl Location {
    /// Returns a place; `None` if the file is unknown.
    pub fn of(file: Option<SourceFileIndex>, line: u32, column: u32) -> Option<Self> {
        file.map(|file| Self { file, line, column })
    }
}

impl NamedFunction {
    /// Returns where it starts in the file of the source.
    pub fn location(&self) -> Option<Location> {
        Location::of(self.file, self.line, self.column)
    }

    /// Returns where it starts in the file that was compiled.
    pub fn compiled(&self) -> Option<Location> {
        self.generated.or(self.location())
    }
}

impl Line {
    /// Returns the place in the file of the source.
    pub fn location(&self) -> Option<Location> {
        Location::of(self.file, self.line, self.column)
    }

    /// Returns the place in the file that was compiled.
    pub fn compiled(&self) -> Option<Location> {
        self.generated.or(self.location())
    }
}

impl Tables {
    /// Iterates over the frames of machine code in a stack, the innermost first.
    pub fn frame_indices(&self, stack: Option<StackIndex>) -> impl Iterator<Item = FrameIndex> {
        let stacks = std::iter::successors(stack, |&stack| self.stacks[stack].caller);
        stacks.map(|stack| self.stacks[stack].frame)
    }

    /// Iterates over the frames of machine code in a stack, the innermost first.
    pub fn frames(&self, stack: Option<StackIndex>) -> impl Iterator<Item = &Frame> {
        self.frame_indices(stack).map(|frame| &self.frames[frame])
    }

    /// Iterates over the functions in a stack, with the inlined ones, the innermost first.
    pub fn calls(&self, stack: Option<StackIndex>) -> impl Iterator<Item = Call<'_>> {
        self.frames(stack).flat_map(|frame| {
            let depths = (0..frame.lines.len() as u32).rev();
            frame
                .lines
                .iter()
                .zip(depths)
                .map(move |(&line, inline_depth)| Call {
                    frame,
                    line,
                    inline_depth,
                })
        })
    }

    /// Returns the kind of a sample: that of the kernel if it was taken there, else what the thread or the functions up to the
    /// innermost one of the language do.
    pub fn kind(&self, stack: Option<StackIndex>, thread: ThreadIndex) -> Kind {
        let thread = &self.threads[thread];
        let mut frames = self.frames(stack);
        let Some(first) = frames.next() else {
            return Kind::Unknown;
        };
        if thread.pid == Some(Pid(0)) {
            return Kind::Idle;
        }
        if let Kind::Kernel | Kind::Idle | Kind::Gc | Kind::Compiler | Kind::Language = first.kind {
            return first.kind;
        }
        let outer = frames.take_while(|frame| frame.kind != Kind::Language);
        let of_frame = outer
            .map(|frame| frame.kind)
            .find(|kind| matches!(kind, Kind::Gc | Kind::Compiler));
        of_frame
            .or_else(|| kinds::of_thread(thread.name()))
            .unwrap_or(first.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(lengths: &[usize]) -> u64 {
        let parts = lengths.chunks(2).map(|lengths| {
            let mut part = FullChains::default();
            lengths.iter().for_each(|&length| part.add(length));
            part
        });
        let whole = parts.fold(FullChains::default(), |mut whole, part| {
            whole.merge(&part);
            whole
        });
        whole.cut()
    }

    #[test]
    fn chains_are_cut_at_the_default_or_at_the_length_of_the_longest_ones() {
        assert_eq!(cut(&[]), 0);
        assert_eq!(cut(&[126, 126]), 0);
        assert_eq!(cut(&[126, 127, 3]), 1);
        // The limit was higher, and no chain reached it, or several did.
        assert_eq!(cut(&[127, 127, 127, 200]), 0);
        assert_eq!(cut(&[127, 512, 512, 200, 512]), 3);
    }
}
