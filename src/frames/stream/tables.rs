//! What samples refer to: stacks, frames with inlined calls, functions, files, modules, threads and events.

use std::sync::Arc;

use jitdump::Time;

use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::frames::source_files::SourceName;
use crate::frames::stream::call_tree::Weight;
use crate::frames::stream::frame::FrameCode;
use crate::frames::stream::kinds::{self, Kind};
use crate::frames::stream::losses::Losses;
use crate::results::diagnostics::Diagnostic;
use crate::results::summary::profile::EventSummary;
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
    pub events: Vec<EventSummary>,
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
    pub modules: IndexedTable<NamedModuleIndex, NamedModule>,
    /// Names of compiler tiers.
    pub tiers: IndexedTable<TierIndex, String>,
    /// What is missing in all samples.
    pub losses: Losses,
    /// What is missing in the samples of each event; lost samples and unwound stacks are those of all.
    pub event_losses: Vec<Losses>,
    /// Time of the first and the last record, if records have times.
    pub times: Option<(Time, Time)>,
    /// What is not as it should be.
    pub diagnostics: Vec<Diagnostic>,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// ID of its process, if recorded.
    pub pid: Option<Pid>,
    /// Its ID, if recorded.
    pub tid: Option<Tid>,
    /// Its names, each with the time from which it has it; without one, that of the thread that started it.
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
    /// The same in bytes, and who names it.
    pub name: SourceName,
    /// Text, if a runtime's file or a source map has it.
    pub text: Option<Vec<u8>>,
}

/// An executable, a library, the kernel or a module of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedModule {
    /// Path, or a name such as `[vdso]`.
    pub path: String,
    /// Its last part.
    pub name: String,
    /// Build ID in hexadecimal digits, if known.
    pub build_id: Option<String>,
    /// Whether a file of its build was found.
    pub has_file: bool,
}

/// A function in a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// Index of the frame of machine code.
    pub frame: FrameIndex,
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
    /// Returns a function with a name of its own, whose place is unknown.
    pub fn new(kind: Kind, name: String, module: Option<NamedModuleIndex>) -> Self {
        Self {
            kind,
            name,
            is_named: true,
            module,
            file: None,
            line: 0,
            column: 0,
            generated: None,
        }
    }

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
    /// Returns what is missing in the samples of an event.
    pub fn losses_of(&self, event: u32) -> Losses {
        self.event_losses
            .get(event as usize)
            .copied()
            .unwrap_or(self.losses)
    }

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
    pub fn calls(&self, stack: Option<StackIndex>) -> impl Iterator<Item = Call> {
        self.frame_indices(stack)
            .flat_map(move |frame| self.calls_in(frame))
    }

    /// Iterates over the functions in a frame, the innermost first.
    pub fn calls_in(&self, frame: FrameIndex) -> impl DoubleEndedIterator<Item = Call> {
        let lines = &self.frames[frame].lines;
        let depths = (0..lines.len() as u32).rev();
        lines.iter().zip(depths).map(move |(&line, inline_depth)| Call {
            frame,
            line,
            inline_depth,
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
        match first.kind {
            Kind::Kernel | Kind::Idle | Kind::Gc | Kind::Compiler | Kind::Language => return first.kind,
            Kind::Native | Kind::Unknown => {}
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
