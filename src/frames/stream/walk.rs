//! The walk over all samples that finds the places of their frames.

use std::ops::Range;

use jitdump::history::intersection;
use jitdump::{Address, Time};
use linux_perf_event_reader::constants::{PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER};

use crate::code::process::SpaceId;
use crate::code::recent::Recent;
use crate::code::recent::known_addresses::KnownAddresses;
use crate::code::recent::last_chains::{ChainKey, LastChains, first_address, may_have_cookie};
use crate::code::samples::{Located, SampleRecord, SampleVisitor};
use crate::code::selection::{SampledCode, Selector};
use crate::code::timeline::Lookup;
use crate::collections::indexed_table::index_of;
use crate::frames::native::modules::{MappedModule, Modules};
use crate::frames::native::symbols::NativeSymbols;
use crate::frames::stream::call_tree::StackPosition;
use crate::frames::stream::frame::{FrameAddress, FrameCode};
use crate::frames::stream::kept_paths::KeptPaths;
use crate::frames::stream::kernel_symbols::KernelSymbols;
use crate::frames::stream::rows::SampleRows;
use crate::perf::record;
use crate::perf::sample::ChainEntry;

/// Times of what never changes.
const ALWAYS: Range<Time> = Time(0)..Time::MAX;

/// Everything that names the frames of samples.
#[derive(Debug)]
pub struct FrameSymbols<'a> {
    /// JIT code.
    pub selector: &'a Selector<'a>,
    /// Mapped modules.
    pub modules: &'a Modules,
    /// Symbols of the modules.
    pub native: NativeSymbols<'a>,
    /// Symbols of the kernel.
    pub kernel: &'a KernelSymbols,
    /// Paths of source files that were copied beside objects.
    pub kept_paths: &'a KeptPaths,
}

/// Where a sample was taken.
#[derive(Clone, Copy, Debug)]
pub struct TakenSample {
    /// Index of the event.
    pub event: u32,
    /// Number of units of the event.
    pub period: u64,
    /// Position of the stack in the tree, with the sampled function.
    pub position: StackPosition,
    /// Whether it is in an object of an earlier run, and so in JIT code.
    pub is_in_object: bool,
    /// The sampled function, or that of the innermost caller if the sample has no address.
    pub place: Option<FrameAddress>,
}

/// Code whose frames are distinguished by their addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// All code.
    All,
    /// Functions of runtimes' files. All frames in a symbol of other code are the same.
    OfFunctions,
}

impl Addresses {
    /// Returns a place in `code`, as [`FrameAddress::offset`].
    fn place(self, code: FrameCode, offset: u64) -> FrameAddress {
        let is_exact = self == Self::All || matches!(code, FrameCode::Function(_));
        FrameAddress {
            code,
            offset: if is_exact { offset } else { 0 },
        }
    }
}

/// State while reading some of the records.
pub struct SampleWalk<'a> {
    symbols: &'a FrameSymbols<'a>,
    addresses: Addresses,
    rows: SampleRows,
    recent: Recent,
    /// Frames of sampled addresses in user space.
    leaves: KnownAddresses<FrameAddress>,
    /// Frames of calls in user space.
    callers: KnownAddresses<FrameAddress>,
    chains: LastChains<Outer>,
    /// Entries of the current call chain that the last one did not have, from the innermost to the outermost.
    new_entries: Vec<KnownEntry>,
}

impl<'a> SampleWalk<'a> {
    /// Starts a walk.
    pub fn new(symbols: &'a FrameSymbols<'a>, addresses: Addresses) -> Self {
        Self {
            symbols,
            addresses,
            rows: SampleRows::default(),
            recent: Recent::default(),
            leaves: KnownAddresses::default(),
            callers: KnownAddresses::default(),
            chains: LastChains::default(),
            new_entries: Vec::new(),
        }
    }

    /// Takes the samples so far.
    pub fn take(&mut self) -> SampleRows {
        // They have positions in the tree.
        self.chains = LastChains::default();
        std::mem::take(&mut self.rows)
    }
}

/// What the outer entries of a call chain have led to.
#[derive(Clone, Copy, Debug)]
struct Outer {
    /// Part of the machine of the innermost of them.
    mode: Mode,
    /// Whether the innermost of them was interrupted.
    is_interrupted: bool,
    /// Their position in the call tree.
    position: StackPosition,
}

/// What an entry of a call chain is.
#[derive(Clone, Debug)]
struct KnownEntry {
    mode: Mode,
    /// Whether it is the address of an interrupted instruction: the first one in a part of the machine.
    is_interrupted: bool,
    /// Its place, if it has one.
    place: Option<FrameAddress>,
    /// Times at which it is the same.
    times: Range<Time>,
}

/// Part of the machine that an address belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Kernel,
    User,
    /// A guest or the hypervisor.
    Other,
}

impl Mode {
    /// Mode in a record's header.
    fn of_record(cpu_mode: u16) -> Self {
        match cpu_mode {
            record::MISC_KERNEL => Self::Kernel,
            record::MISC_USER => Self::User,
            _ => Self::Other,
        }
    }

    /// Mode that a marker in a call chain starts (`enum perf_callchain_context`).
    fn of_marker(marker: u64) -> Self {
        match marker {
            PERF_CONTEXT_KERNEL => Self::Kernel,
            PERF_CONTEXT_USER => Self::User,
            _ => Self::Other,
        }
    }
}

/// What was read of a call chain.
struct ReadChain {
    /// Number of its outermost entries whose places are known from the last chain.
    known: usize,
    /// Index of its first address.
    first: Option<usize>,
    /// Whether callers are in a later record.
    has_cookie: bool,
}

impl SampleVisitor for SampleWalk<'_> {
    /// A sample may have 40 bytes, and its row takes 64.
    const BATCH: u64 = 4 << 20;

    fn sample(&mut self, located: &Located<SampleRecord<'_>>) {
        let SampleRecord { record, sample } = &located.content;
        let profile = self.symbols.selector.profile;
        let event = profile.attrs.index_of(record, profile.endian);
        let fixed = profile.attrs.all().get(event).and_then(|attr| attr.fixed_period);
        let period = sample.period.or(fixed).unwrap_or(1);
        let event = index_of(event);
        let time = located.lookup_time();
        self.rows.tree.start_sample(record.offset);
        let mode = Mode::of_record(located.content.cpu_mode());
        let leaf = sample
            .ip
            .map(|ip| self.place(mode, located.space, ip, time, true).0);
        let (caller, innermost) = self.callers(located, mode, leaf);
        let taken = TakenSample {
            event,
            period,
            position: leaf.map_or(caller, |leaf| self.rows.tree.child(caller, leaf)),
            is_in_object: leaf.is_some_and(|leaf| match leaf.code {
                FrameCode::Native { module, .. } | FrameCode::Module(module) => {
                    self.symbols.modules.has_jit_code(module)
                }
                _ => false,
            }),
            place: leaf.or(innermost),
        };
        self.rows.add_sample(located, &taken, profile);
    }
}

impl SampleWalk<'_> {
    /// Returns the position of a sample's callers in the call tree, and the frame of the innermost one if the sample has no
    /// address. `mode` is that of the record, `leaf` is the frame of the sampled address.
    fn callers(
        &mut self,
        located: &Located<SampleRecord<'_>>,
        mode: Mode,
        leaf: Option<FrameAddress>,
    ) -> (StackPosition, Option<FrameAddress>) {
        let sample = &located.content.sample;
        let key = (located.space, sample.tid);
        let ReadChain {
            known,
            first,
            has_cookie,
        } = self.read_new_entries(located, mode, leaf);
        // A later record has what a cookie stands for, so a chain with one is not kept.
        let first = first.filter(|_| !has_cookie);
        self.chains.of(key).truncate(if has_cookie { 0 } else { known });
        let position = self.add_entries(key, sample.callchain.words(), known, first);
        let innermost = self.new_entries.iter().find_map(|entry| entry.place);
        (position, innermost)
    }

    /// Finds the places of the entries of a call chain into `new_entries`, up to the outermost ones that are like those of the
    /// last chain of the thread.
    fn read_new_entries(
        &mut self,
        located: &Located<SampleRecord<'_>>,
        mut mode: Mode,
        leaf: Option<FrameAddress>,
    ) -> ReadChain {
        let (sample, time) = (&located.content.sample, located.lookup_time());
        let key = (located.space, sample.tid);
        let endian = self.symbols.selector.profile.endian;
        let words = sample.callchain.words();
        let chain = self.chains.of(key);
        let mut known = chain.known_count(words, first_address(words, endian), time);
        if may_have_cookie(words, known, endian) {
            known = 0;
        }
        // At least as many as are known.
        let count = words.len();
        self.new_entries.clear();
        let (mut first, mut has_cookie, mut is_interrupted) = (None, false, false);
        for (index, entry) in sample.chain_entries().enumerate() {
            if index == count - known {
                let outer = self.chains.of(key).result(known);
                let is_marker = matches!(entry, ChainEntry::Marker(_));
                let is_same = |outer: Outer| (outer.mode, outer.is_interrupted) == (mode, is_interrupted);
                if is_marker || outer.is_some_and(is_same) {
                    break;
                }
                // The entries are the same, but in another part of the machine, or only one of the chains returns there.
                known = 0;
            }
            let (mut place, mut times) = (None, ALWAYS);
            match entry {
                ChainEntry::Marker(marker) => mode = Mode::of_marker(marker),
                ChainEntry::Cookie => has_cookie = true,
                ChainEntry::Address(address) => {
                    // The first address is that of the sample.
                    let is_first = *first.get_or_insert(index) == index;
                    if !is_first || Some(address) != sample.ip {
                        let (caller, caller_times) =
                            self.place_of_caller(mode, located.space, address, time, is_interrupted);
                        // Quirk: a precise event (`cycles:P`, perf's default where the CPU has it) is sampled at the instruction
                        // that caused it, but the call chain starts where the interrupt came a little later
                        // (`setup_pebs_fixed_sample_data` in the kernel's arch/x86/events/intel/ds.c, `perf_ibs_handle_irq`).
                        let is_sampled = is_first && leaf.is_some_and(|leaf| leaf.code == caller.code);
                        place = (!is_sampled).then_some(caller);
                        times = caller_times;
                    }
                }
            }
            self.new_entries.push(KnownEntry {
                mode,
                is_interrupted,
                place,
                times,
            });
            is_interrupted = matches!(entry, ChainEntry::Marker(_));
        }
        ReadChain {
            known,
            first,
            has_cookie,
        }
    }

    /// Returns the place of an address in a call chain, and times around `time` at which it is the same.
    fn place_of_caller(
        &mut self,
        mode: Mode,
        space: Option<SpaceId>,
        address: Address,
        time: Time,
        is_interrupted: bool,
    ) -> (FrameAddress, Range<Time>) {
        // A return address may be the first one after the code of the caller. A page fault or a signal may have interrupted
        // the first instruction of a function.
        let before = u64::from(!is_interrupted);
        let address = Address(address.0.saturating_sub(before));
        self.place(mode, space, address, time, false)
    }

    /// Adds the new entries of a call chain to the tree, as callees of the outermost `known` entries, and those further
    /// out than `first` to the last chains. Returns the position of the innermost one.
    fn add_entries(
        &mut self,
        key: ChainKey,
        words: &[[u8; 8]],
        known: usize,
        first: Option<usize>,
    ) -> StackPosition {
        let chain = self.chains.of(key);
        let outer = chain.result(known);
        let mut position = outer.map_or(StackPosition::Outside, |outer| outer.position);
        for (index, (word, entry)) in words.iter().zip(&self.new_entries).enumerate().rev() {
            if let Some(place) = entry.place {
                position = self.rows.tree.child(position, place);
            }
            if first.is_some_and(|first| index > first) {
                let outer = Outer {
                    mode: entry.mode,
                    is_interrupted: entry.is_interrupted,
                    position,
                };
                chain.push(*word, entry.times.clone(), outer);
            }
        }
        position
    }

    /// Returns the place of an address, and times around `time` at which it is the same.
    fn place(
        &mut self,
        mode: Mode,
        space: Option<SpaceId>,
        address: Address,
        time: Time,
        is_leaf: bool,
    ) -> (FrameAddress, Range<Time>) {
        match (mode, space) {
            (Mode::Kernel, _) => {
                let (code, times) = self.symbols.kernel_code(address, time);
                (self.addresses.place(code, address.0), times)
            }
            (Mode::User, Some(space)) => self.known_user_place(space, address, time, is_leaf),
            _ => (self.addresses.place(FrameCode::Unknown, address.0), ALWAYS),
        }
    }

    /// Returns what is at an address of a process, and the times at which it is. It is looked up only if it is not
    /// known yet.
    fn known_user_place(
        &mut self,
        space: SpaceId,
        address: Address,
        time: Time,
        is_leaf: bool,
    ) -> (FrameAddress, Range<Time>) {
        let known = if is_leaf {
            &mut self.leaves
        } else {
            &mut self.callers
        };
        if let Some((&place, times)) = known.get(space, address, time) {
            return (place, times.clone());
        }
        let (FrameAddress { code, offset }, times) =
            self.symbols
                .user_frame(&mut self.recent, space, address, time, is_leaf);
        let place = self.addresses.place(code, offset);
        known.put(space, address, times.clone(), place);
        (place, times)
    }
}

impl FrameSymbols<'_> {
    /// Returns the code at an address of the kernel, and times around `time` at which it is the same. A symbol ends with
    /// its module at the latest.
    fn kernel_code(&self, address: Address, time: Time) -> (FrameCode, Range<Time>) {
        let Self { kernel, modules, .. } = self;
        let (reported, times) = kernel.reported(address, time);
        let module = modules.in_kernel(address);
        let is_here =
            |&symbol: &u32| kernel.start(symbol).map(|start| modules.in_kernel(start)) == Some(module);
        let code = match reported.or_else(|| kernel.at(address).filter(is_here)) {
            Some(symbol) => FrameCode::Kernel(symbol),
            None => FrameCode::KernelModule(module),
        };
        (code, times)
    }

    /// Returns what is at an address, and times around `time` at which it is the same.
    fn user_frame(
        &self,
        recent: &mut Recent,
        space: SpaceId,
        address: Address,
        time: Time,
        is_leaf: bool,
    ) -> (FrameAddress, Range<Time>) {
        let timeline = self.selector.timeline;
        let (lookup, extent) = recent.lookup(timeline, space, address, time);
        let times = match (lookup, extent) {
            (Lookup::Function(at), _) if self.selector.is_uncertain(at) => {
                time..Time(time.0.saturating_add(1))
            }
            (_, Some(extent)) => extent.from..extent.until,
            _ => timeline.times_at(space, address, time),
        };
        let sampled = match lookup {
            Lookup::File => None,
            // Words that unwinding took for return addresses are in no memory that is executed.
            Lookup::Unmapped if !is_leaf => None,
            lookup => self.selector.classify_ip(space, address, time, lookup),
        };
        let (code, offset) = match sampled {
            Some(SampledCode::Function(at)) => {
                let mapping = &timeline.mappings[at];
                let offset = address.0.saturating_sub(mapping.range.start.0);
                (FrameCode::Function(mapping.function), offset)
            }
            Some(SampledCode::Symbol(id)) => (FrameCode::PerfMapSymbol(id), address.0),
            Some(_) => (FrameCode::UnnamedJit, address.0),
            None => {
                let (mapped, mapped_times) = self.modules.module_at(space, address, time);
                let code = self.native_code(mapped, address);
                let offset = mapped.map_or(address.0, |mapped| mapped.file_offset(address));
                return (FrameAddress { code, offset }, intersection(times, mapped_times));
            }
        };
        (FrameAddress { code, offset }, times)
    }

    /// Returns the code at an address in a mapped module, if there is one.
    fn native_code(&self, mapped: Option<MappedModule>, address: Address) -> FrameCode {
        let Some(mapped) = mapped else {
            return FrameCode::Unknown;
        };
        match self.native.at(mapped.module, mapped.file_offset(address)) {
            Some(symbol) => FrameCode::Native {
                module: mapped.module,
                symbol,
            },
            None => FrameCode::Module(mapped.module),
        }
    }
}
