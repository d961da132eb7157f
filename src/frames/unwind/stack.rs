//! The stack of a sample, frame by frame.

use std::ops::Range;

use jitdump::history::intersection;
use jitdump::{Address, Time};
use linux_perf_event_reader::constants::PERF_CONTEXT_USER;

use crate::code::process::SpaceId;
use crate::code::recent::Recent;
use crate::code::recent::known_addresses::KnownAddresses;
use crate::code::timeline::{Lookup, MappingIndex, Timeline};
use crate::collections::hash::HashMap;
use crate::frames::native::modules::{ModuleIndex, Modules};
use crate::frames::unwind::code_without_tables::CodeWithoutTables;
use crate::frames::unwind::frameless::FramelessTop;
use crate::frames::unwind::interpreters::{FrameKind, Interpreters, KnownSymbols, fold};
use crate::frames::unwind::jit::JitTables;
use crate::frames::unwind::known_address::{AddressKind, KnownAddress};
use crate::frames::unwind::native::{NativeRules, NativeTables};
use crate::frames::unwind::registers::{Registers, Target};
use crate::frames::unwind::step::{End, FrameState, StackCopy};

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
    /// Their functions without tables.
    pub without_tables: CodeWithoutTables<'a>,
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
    /// Whether the instruction was sampled, rather than one of the kernel that it called.
    pub is_sampled: bool,
}

/// What was unwound.
#[derive(Clone, Debug, Default)]
pub struct UnwoundCounts {
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

impl UnwoundCounts {
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

/// What the unwinding of one stack leaves for that of the next.
#[derive(Debug, Default)]
pub struct Caches<'w> {
    code: Recent,
    places: KnownAddresses<KnownAddress<'w>>,
    symbols: KnownSymbols,
}

/// Unwinds stacks, one after the other.
#[derive(Debug)]
pub struct StackWalk<'w, 'a> {
    unwinder: &'w Unwinder<'a>,
    caches: Caches<'w>,
    /// Addresses of the last stack: of the sampled instruction, then of calls. Before the address of an instruction that a
    /// signal interrupted, and before the code that the handler returns to, is a marker ([`PERF_CONTEXT_USER`]): these
    /// are looked up exactly, as the first address of a call chain and the one after the kernel's part.
    pub frames: Vec<u64>,
    /// What the frames are, if interpreters are left out.
    kinds: Vec<FrameKind>,
    /// What was unwound so far.
    pub counts: UnwoundCounts,
}

/// What is known of an address, and times around that of the stack at which it is so, if they are known.
type Place<'w> = (KnownAddress<'w>, Option<Range<Time>>);

impl<'w, 'a> StackWalk<'w, 'a> {
    /// Prepares the unwinding of stacks.
    pub fn new(unwinder: &'w Unwinder<'a>) -> Self {
        Self {
            unwinder,
            caches: Caches::default(),
            frames: Vec::new(),
            kinds: Vec::new(),
            counts: UnwoundCounts::default(),
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
            fold(&mut self.frames, &self.kinds, stack.is_sampled);
        }
        self.counts.stacks += 1;
        let is_address = |&&entry: &&u64| entry != PERF_CONTEXT_USER;
        self.counts.frames += self.frames.iter().filter(is_address).count() as u64;
        match end {
            End::Start => self.counts.to_start += 1,
            End::Copy => self.counts.cut += 1,
            End::Lost => {}
        }
    }

    /// Unwinds a stack frame by frame. Returns why it ends.
    fn walk(&mut self, stack: &SampledStack<'_>) -> End {
        let mut frame = FrameState {
            target: self.unwinder.target,
            stack: stack.copy,
            registers: stack.registers,
            address: stack.address,
            is_interrupted: true,
            has_low_stack_pointer: false,
            has_frameless_callee: false,
        };
        let Some(mut known) = self.known_address(stack, frame.address) else {
            self.frames.push(stack.address);
            return End::Lost;
        };
        self.add(&frame, known.kind);
        for _ in 1..MAX_FRAMES {
            let (address, was_interrupted) = (frame.address, frame.is_interrupted);
            let caller = self.next_caller(stack, &mut frame, &known);
            let is_interrupted = known.rules.is_some_and(|rules| rules.is_signal);
            if is_interrupted && !was_interrupted && self.frames.pop().is_some() {
                // No call is before the return address of a signal handler: it is the start of the code that calls
                // sigreturn.
                let kind = self.kinds.pop();
                self.add_marker();
                self.frames.push(address.saturating_add(1));
                self.kinds.extend(kind);
            }
            let caller = match caller {
                Ok(caller) => caller,
                Err(end) => return end,
            };
            frame.address = caller.saturating_sub(u64::from(!is_interrupted));
            frame.is_interrupted = is_interrupted;
            // Words that only look like return addresses are in no memory that is executed.
            match self.known_address(stack, frame.address) {
                Some(next) => known = next,
                None => return End::Lost,
            }
            if is_interrupted {
                self.add_marker();
            }
            self.add(&frame, known.kind);
        }
        End::Lost
    }

    /// Marks the next frame as one that was not left by a call.
    fn add_marker(&mut self) {
        self.frames.push(PERF_CONTEXT_USER);
        if self.unwinder.interpreters.is_some() {
            self.kinds.push(FrameKind::Other);
        }
    }

    /// Adds a frame to the stack.
    fn add(&mut self, frame: &FrameState<'_>, place: AddressKind) {
        self.frames.push(frame.address);
        if let Some(interpreters) = &self.unwinder.interpreters {
            let is_interpreter = match place {
                AddressKind::Function(mapping) => {
                    interpreters.is_function(self.unwinder.timeline.mappings[mapping].function)
                }
                AddressKind::Module(mapped) => {
                    interpreters.is_native(mapped, Address(frame.address), &mut self.caches.symbols)
                }
                AddressKind::Memory => false,
            };
            self.kinds.push(match place {
                _ if is_interpreter => FrameKind::Interpreter,
                AddressKind::Function(_) => FrameKind::Function,
                AddressKind::Module(_) | AddressKind::Memory => FrameKind::Other,
            });
        }
    }

    /// Goes from a frame to its caller, and returns its address.
    fn next_caller(
        &mut self,
        stack: &SampledStack<'_>,
        frame: &mut FrameState<'_>,
        known: &KnownAddress<'_>,
    ) -> Result<u64, End> {
        if let (true, AddressKind::Module(mapped)) = (known.lacks_file, known.kind) {
            *self.counts.without_file.entry(mapped.module).or_default() += 1;
        }
        if let Some(rules) = known.rules {
            frame.has_frameless_callee = false;
            return frame.unwind_by(rules);
        }
        let frameless = match known.kind {
            AddressKind::Module(_) if frame.is_interrupted && known.is_linkage => {
                Some(FramelessTop::at_call(frame.target))
            }
            AddressKind::Function(_) | AddressKind::Module(_) if frame.is_interrupted => {
                known.top.interrupted
            }
            AddressKind::Function(_) if frame.has_frameless_callee => known.top.at_setup_call,
            _ => None,
        };
        let frameless =
            frameless.filter(|&top| !known.top.may_be_entered_by_jump || self.is_called(stack, frame, top));
        frame.has_frameless_callee = frameless.is_some();
        match frameless {
            Some(top) => frame.unwind_without_frame(top),
            None => frame.unwind_by_frame_pointer(known.top.preserved),
        }
    }

    /// Whether the return address of a frame is right after a call.
    fn is_called(&mut self, stack: &SampledStack<'_>, frame: &FrameState<'_>, top: FramelessTop) -> bool {
        let Some(address) = frame.return_address(top) else {
            return false;
        };
        match self.known_address(stack, address.saturating_sub(1)) {
            Some(KnownAddress {
                kind: AddressKind::Function(mapping),
                ..
            }) => self.unwinder.jit.is_after_call(mapping, Address(address)),
            Some(KnownAddress {
                kind: AddressKind::Module(mapped),
                ..
            }) => {
                let offset = mapped.file_offset(Address(address));
                self.unwinder.without_tables.is_after_call(mapped.module, offset)
            }
            _ => false,
        }
    }

    /// Returns what is known of an address; `None` if nothing is mapped there.
    fn known_address(&mut self, stack: &SampledStack<'_>, address: u64) -> Option<KnownAddress<'w>> {
        let (space, time, address) = (stack.space, stack.time, Address(address));
        if let Some((&known, _)) = self.caches.places.get(space, address, time) {
            return Some(known);
        }
        let (known, times) = self.find_place(stack, address)?;
        if let Some(times) = times {
            self.caches.places.put(space, address, times, known);
        }
        Some(known)
    }

    /// Finds out where an address is, and at which times, as far as that is known. `None` if no code can be there.
    fn find_place(&mut self, stack: &SampledStack<'_>, address: Address) -> Option<Place<'w>> {
        let (unwinder, SampledStack { space, time, .. }) = (self.unwinder, *stack);
        let (lookup, extent) = self.caches.code.lookup(unwinder.timeline, space, address, time);
        match lookup {
            Lookup::Function(mapping) => {
                let times = extent.map(|extent| extent.from..extent.until);
                Some(self.in_function(stack, address, mapping, times))
            }
            Lookup::File => self.in_file(stack, address),
            Lookup::Anonymous if unwinder.modules.has_data(space, address, time) => None,
            Lookup::Freed(_) | Lookup::Symbol(_) | Lookup::Anonymous => {
                Some((KnownAddress::new(AddressKind::Memory), None))
            }
            Lookup::Unmapped => None,
        }
    }

    /// Finds the rules for a function of a runtime at an address, in its own tables or in those of the file that is mapped there:
    /// runtimes log functions in executables, too. `times` are those of the function.
    fn in_function(
        &self,
        stack: &SampledStack<'_>,
        address: Address,
        mapping: MappingIndex,
        times: Option<Range<Time>>,
    ) -> Place<'w> {
        let unwinder = self.unwinder;
        let mut known = KnownAddress::new(AddressKind::Function(mapping));
        known.rules = unwinder.jit.at(mapping, address);
        if known.rules.is_some() {
            return (known, times);
        }
        let (mapped, mapped_times) = unwinder.modules.module_at(stack.space, address, stack.time);
        let native = mapped.map(|mapped| unwinder.native.at(mapped.module, mapped.file_offset(address)));
        match native {
            Some(NativeRules::Rules(rules)) => known.rules = Some(rules),
            _ => known.top = unwinder.jit.top(mapping, address).unwrap_or_default(),
        }
        (known, times.map(|times| intersection(times, mapped_times)))
    }

    /// Finds the rules for an address in a file; `None` if the file is not executable there.
    fn in_file(&self, stack: &SampledStack<'_>, address: Address) -> Option<Place<'w>> {
        let (unwinder, SampledStack { space, time, .. }) = (self.unwinder, *stack);
        let (mapped, times) = unwinder.modules.module_at(space, address, time);
        let mapped = mapped.filter(|mapped| mapped.is_executable)?;
        let mut known = KnownAddress::new(AddressKind::Module(mapped));
        let offset = mapped.file_offset(address);
        match unwinder.native.at(mapped.module, offset) {
            NativeRules::Rules(rules) => known.rules = Some(rules),
            NativeRules::Linkage => known.is_linkage = true,
            NativeRules::NoRules => {
                let top = unwinder.without_tables.top(mapped.module, offset);
                known.top = top.unwrap_or_default();
            }
            NativeRules::NoFile => known.lacks_file = true,
        }
        let times = intersection(times, unwinder.timeline.times_at(space, address, time));
        Some((known, Some(times)))
    }
}
