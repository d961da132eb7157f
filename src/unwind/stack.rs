//! The stack of a sample, frame by frame.

use crate::code::process::SpaceId;
use crate::code::recent::Recent;
use crate::code::timeline::{Lookup, MappingIndex, Timeline};
use crate::hash::HashMap;
use crate::native::modules::{MappedModule, ModuleIndex, Modules};
use crate::units::{Address, Time};
use crate::unwind::interpreters::{FrameKind, Interpreters, KnownSymbols, fold};
use crate::unwind::jit::JitTables;
use crate::unwind::native::{NativeRules, NativeTables};
use crate::unwind::registers::{Registers, Target};
use crate::unwind::step::{Caller, End, Frame, StackCopy};

/// Maximum number of frames. Each is further up the stack than its callee, so only stacks of signals within signals can have
/// more than a copy has words.
pub const MAX_FRAMES: usize = 4096;

/// Everything that is needed to unwind.
#[derive(Debug)]
pub struct Unwinder<'a> {
    /// Machine.
    pub target: Target,
    /// Code of runtimes.
    pub timeline: &'a Timeline,
    /// Tables of that code.
    pub jit: JitTables<'a>,
    /// Executables and libraries.
    pub modules: &'a Modules,
    /// Tables of them.
    pub native: NativeTables<'a>,
    /// What to leave out of stacks, if it is.
    pub interpreters: Option<Interpreters<'a>>,
}

/// Registers and stack of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampledStack<'a> {
    /// Address space of the process.
    pub space: SpaceId,
    /// Time of the sample.
    pub time: Time,
    /// Address of the instruction.
    pub address: u64,
    /// Registers.
    pub registers: Registers,
    /// The copied part of the stack.
    pub copy: StackCopy<'a>,
}

/// What was unwound.
#[derive(Clone, Debug, Default)]
pub struct StackCounts {
    /// Number of stacks.
    pub stacks: u64,
    /// Number of frames in all of them.
    pub frames: u64,
    /// Number of stacks that are complete, up to the start of their thread.
    pub to_start: u64,
    /// Number of stacks that end where the copy does.
    pub cut: u64,
    /// Number of stacks of 32-bit processes, which have only the sampled address.
    pub narrow: u64,
    /// Frames in modules that this machine does not have.
    pub without_file: HashMap<ModuleIndex, u64>,
}

impl StackCounts {
    /// Adds the counts of other stacks.
    pub fn add(&mut self, other: &Self) {
        self.stacks += other.stacks;
        self.frames += other.frames;
        self.to_start += other.to_start;
        self.cut += other.cut;
        self.narrow += other.narrow;
        for (&module, &frames) in &other.without_file {
            *self.without_file.entry(module).or_default() += frames;
        }
    }
}

/// Where a frame is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In a function of a runtime.
    Function(MappingIndex),
    /// In other memory that runtimes use for code.
    Memory,
    /// In a file.
    Module(MappedModule),
}

/// Unwinds stacks, one after the other.
#[derive(Debug)]
pub struct StackWalk<'w, 'a> {
    unwinder: &'w Unwinder<'a>,
    recent: Recent,
    /// Addresses of the last stack: of the sampled instruction, then of calls.
    pub frames: Vec<u64>,
    /// What the frames are, if interpreters are left out.
    kinds: Vec<FrameKind>,
    known: KnownSymbols,
    /// What was unwound so far.
    pub counts: StackCounts,
}

impl<'w, 'a> StackWalk<'w, 'a> {
    /// Prepares the unwinding of stacks.
    pub fn new(unwinder: &'w Unwinder<'a>) -> Self {
        Self {
            unwinder,
            recent: Recent::default(),
            frames: Vec::new(),
            kinds: Vec::new(),
            known: KnownSymbols::default(),
            counts: StackCounts::default(),
        }
    }

    /// Returns the machine.
    pub fn target(&self) -> Target {
        self.unwinder.target
    }

    /// Unwinds a stack into [`Self::frames`].
    ///
    /// A caller gets the address before its return address, which is in the call. perf does the same: a call may be the
    /// last instruction of a function, and readers do not all look up the address before.
    pub fn unwind(&mut self, stack: &SampledStack<'_>) {
        self.frames.clear();
        self.kinds.clear();
        let end = self.walk(stack);
        if self.unwinder.interpreters.is_some() {
            fold(&mut self.frames, &self.kinds);
        }
        self.counts.stacks += 1;
        self.counts.frames += self.frames.len() as u64;
        match end {
            End::Start => self.counts.to_start += 1,
            End::Copy => self.counts.cut += 1,
            End::Lost => {}
        }
    }

    fn walk(&mut self, stack: &SampledStack<'_>) -> End {
        let mut frame = Frame {
            target: self.unwinder.target,
            stack: stack.copy,
            registers: stack.registers,
            address: stack.address,
            is_interrupted: true,
        };
        let Some(mut place) = self.place(stack, frame.address) else {
            self.frames.push(stack.address);
            return End::Lost;
        };
        self.add(&frame, place);
        while self.frames.len() < MAX_FRAMES {
            let (caller, is_interrupted) = self.caller(&frame, place);
            if let (true, false, Some(address)) =
                (is_interrupted, frame.is_interrupted, self.frames.last_mut())
            {
                // No call is before the return address of a signal handler: it is the start of the code that calls
                // sigreturn.
                *address = frame.address.saturating_add(1);
            }
            let caller = match caller {
                Ok(caller) => caller,
                Err(end) => return end,
            };
            let before = u64::from(!is_interrupted);
            frame = Frame {
                registers: caller.registers,
                address: caller.address.saturating_sub(before),
                is_interrupted,
                ..frame
            };
            // Words that only look like return addresses are in no memory that is executed.
            match self.place(stack, frame.address) {
                Some(next) => place = next,
                None => return End::Lost,
            }
            self.add(&frame, place);
        }
        End::Lost
    }

    /// Adds a frame to the stack.
    fn add(&mut self, frame: &Frame<'_>, place: Place) {
        self.frames.push(frame.address);
        if let Some(interpreters) = &self.unwinder.interpreters {
            let is_interpreter = match place {
                Place::Function(mapping) => {
                    interpreters.is_function(self.unwinder.timeline.mappings()[mapping].function)
                }
                Place::Module(mapped) => {
                    interpreters.is_native(mapped, Address(frame.address), &mut self.known)
                }
                Place::Memory => false,
            };
            self.kinds.push(match place {
                _ if is_interpreter => FrameKind::Interpreter,
                Place::Function(_) => FrameKind::Function,
                _ => FrameKind::Other,
            });
        }
    }

    /// Returns the caller of a frame, and whether it was interrupted by a signal.
    fn caller(&mut self, frame: &Frame<'_>, place: Place) -> (Result<Caller, End>, bool) {
        let unwinder = self.unwinder;
        let address = Address(frame.address);
        let rules = match place {
            Place::Function(mapping) => unwinder.jit.at(mapping, address),
            Place::Memory => None,
            Place::Module(mapped) => match unwinder.native.at(mapped.module, mapped.file_offset(address)) {
                NativeRules::Rules(rules) => Some(rules),
                NativeRules::NoRules => None,
                NativeRules::NoFile => {
                    *self.counts.without_file.entry(mapped.module).or_default() += 1;
                    None
                }
            },
        };
        if let Some(rules) = rules {
            return (frame.caller_by(rules), rules.is_signal);
        }
        let pushed = match place {
            Place::Function(mapping) if frame.is_interrupted => unwinder.jit.pushed_words(mapping, address),
            _ => None,
        };
        let caller = match pushed {
            Some(words) => frame.caller_before_frame(words),
            None => frame.caller_by_frame_pointer(),
        };
        (caller, false)
    }

    /// Returns where an address is; `None` if nothing is mapped there.
    fn place(&mut self, stack: &SampledStack<'_>, address: u64) -> Option<Place> {
        let (space, time, address) = (stack.space, stack.time, Address(address));
        let (lookup, _) = self.recent.lookup(self.unwinder.timeline, space, address, time);
        match lookup {
            Lookup::Function(mapping) => Some(Place::Function(mapping)),
            Lookup::File => self.unwinder.modules.at(space, address, time).map(Place::Module),
            Lookup::Freed(_) | Lookup::Symbol(_) | Lookup::Anonymous => Some(Place::Memory),
            Lookup::Unmapped => None,
        }
    }
}
