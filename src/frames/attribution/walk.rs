//! The walk over all samples that builds a call tree.

use std::ops::Range;

use jitdump::history::intersection;
use jitdump::{Address, Time};

use crate::code::process::SpaceId;
use crate::code::recent::Recent;
use crate::code::recent::known_addresses::KnownAddresses;
use crate::code::recent::last_chains::{LastChains, first_address, may_have_cookie};
use crate::code::samples::{Located, SampleFields, SampleVisitor};
use crate::code::selection::{SampledCode, Selector};
use crate::code::timeline::Lookup;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::index_of;
use crate::frames::attribution::call_tree::{CallTree, Position, TreeFrame, Weight};
use crate::frames::attribution::frame::Frame;
use crate::frames::attribution::kernel_symbols::KernelSymbols;
use crate::frames::native::modules::{MappedModule, Modules};
use crate::frames::native::symbols::NativeSymbols;
use crate::perf::Profile;
use crate::perf::record::{self};
use crate::perf::sample::ChainEntry;
use crate::units::{Pid, Tid};

/// Times of what never changes.
const ALWAYS: Range<Time> = Time(0)..Time::MAX;

/// Everything that names the frames of samples.
#[derive(Debug)]
pub struct Symbols<'a> {
    /// JIT code.
    pub selector: &'a Selector<'a>,
    /// Mapped modules.
    pub modules: &'a Modules,
    /// Symbols of the modules.
    pub native: &'a NativeSymbols<'a>,
    /// Symbols of the kernel.
    pub kernel: &'a KernelSymbols,
}

/// What a walk keeps of samples.
pub trait Keep: Default + Send {
    /// What distinguishes the frames of stacks.
    type Frame: TreeFrame;

    /// Returns the frame at a place in the code of `frame`: an offset, or an address if the code has no start.
    fn frame(frame: Frame, place: u64) -> Self::Frame;

    /// Returns the event of the nodes for samples of `event`.
    fn event_of_nodes(event: u32) -> u32;

    /// Returns the call stacks.
    fn tree(&mut self) -> &mut CallTree<Self::Frame>;

    /// Adds a sample.
    fn add(&mut self, located: &Located<SampleFields<'_>>, taken: Taken<Self::Frame>, profile: &Profile<'_>);
}

/// Where a sample was taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken<F> {
    /// Index of the event.
    pub event: u32,
    /// Number of units of the event.
    pub period: u64,
    /// Position of the stack in the tree, with the sampled function.
    pub position: Position,
    /// The sampled function, or that of the innermost caller if the sample has no address.
    pub frame: Option<F>,
}

/// Samples by stack, and by event and thread.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Samples by stack.
    pub tree: CallTree,
    /// Number of samples by thread and index of the event.
    pub threads: HashMap<(Option<Pid>, Option<Tid>, u32), u64>,
}

impl Keep for Counts {
    type Frame = Frame;

    fn frame(frame: Frame, _: u64) -> Frame {
        frame
    }

    fn event_of_nodes(event: u32) -> u32 {
        event
    }

    fn tree(&mut self) -> &mut CallTree {
        &mut self.tree
    }

    fn add(&mut self, located: &Located<SampleFields<'_>>, taken: Taken<Frame>, _: &Profile<'_>) {
        let key = (located.pid, located.content.sample.tid, taken.event);
        *self.threads.entry(key).or_default() += 1;
        let weight = Weight {
            samples: 1,
            period: taken.period,
        };
        if let Some(frame) = taken.frame {
            self.tree.weigh(taken.position, taken.event, frame, weight);
        }
    }
}

impl Counts {
    /// Creates counts for a profile of this many bytes.
    pub fn of_profile(bytes: u64) -> Self {
        Self {
            tree: CallTree::of_profile(bytes),
            threads: HashMap::default(),
        }
    }

    /// Adds the samples that walks have seen since the last time.
    pub fn take<'w, 's: 'w>(&mut self, walks: impl Iterator<Item = &'w mut Walk<'s, Self>>) {
        let mut trees = Vec::new();
        for walk in walks {
            let Self { tree, threads } = walk.take();
            trees.push(tree);
            for (key, samples) in threads {
                *self.threads.entry(key).or_default() += samples;
            }
        }
        self.tree.merge(&trees);
    }
}

/// State while reading some of the records.
pub struct Walk<'a, K: Keep> {
    symbols: &'a Symbols<'a>,
    kept: K,
    recent: Recent,
    /// Frames of sampled addresses in user space.
    leaves: KnownAddresses<K::Frame>,
    /// Frames of calls in user space.
    callers: KnownAddresses<K::Frame>,
    chains: LastChains<Outer>,
    /// Entries of the current call chain that the last one did not have, from the innermost to the outermost.
    new_entries: Vec<KnownEntry<K::Frame>>,
}

impl<'a, K: Keep> Walk<'a, K> {
    /// Starts a walk.
    pub fn new(symbols: &'a Symbols<'a>) -> Self {
        Self {
            symbols,
            kept: K::default(),
            recent: Recent::default(),
            leaves: KnownAddresses::default(),
            callers: KnownAddresses::default(),
            chains: LastChains::default(),
            new_entries: Vec::new(),
        }
    }

    /// Takes what was kept so far.
    pub fn take(&mut self) -> K {
        // They have positions in the tree.
        self.chains = LastChains::default();
        std::mem::take(&mut self.kept)
    }
}

/// What the outer entries of a call chain have led to.
#[derive(Clone, Copy, Debug)]
struct Outer {
    /// Part of the machine of the innermost of them.
    mode: Mode,
    /// Their position in the call tree.
    position: Position,
}

/// What an entry of a call chain is.
#[derive(Clone, Debug)]
struct KnownEntry<F> {
    mode: Mode,
    /// Its frame, if it has one.
    frame: Option<F>,
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
        const KERNEL: u64 = -128i64 as u64;
        const USER: u64 = -512i64 as u64;
        match marker {
            KERNEL => Self::Kernel,
            USER => Self::User,
            _ => Self::Other,
        }
    }
}

impl<K: Keep> SampleVisitor for Walk<'_, K> {
    fn sample(&mut self, located: &Located<SampleFields<'_>>) {
        let SampleFields { record, sample } = &located.content;
        let profile = self.symbols.selector.profile;
        let event = profile.attrs.index_of(record, profile.endian);
        let fixed = profile.attrs.all().get(event).and_then(|attr| attr.fixed_period);
        let period = sample.period.or(fixed).unwrap_or(1);
        let event = index_of(event);
        let time = located.lookup_time();
        self.kept.tree().start_sample(record.offset);
        let mode = Mode::of_record(record.cpu_mode());
        let leaf = sample
            .ip
            .map(|ip| self.frame(mode, located.space, ip, time, true).0);
        let of_nodes = K::event_of_nodes(event);
        let (caller, innermost) = self.callers(located, mode, of_nodes);
        let tree = self.kept.tree();
        let position = leaf.map_or(caller, |leaf| tree.child(caller, of_nodes, leaf));
        let frame = leaf.or(innermost);
        let taken = Taken {
            event,
            period,
            position,
            frame,
        };
        self.kept.add(located, taken, profile);
    }
}

impl<K: Keep> Walk<'_, K> {
    /// Returns the position of a sample's callers in the call tree, and the frame of the innermost one if the sample has no
    /// address. `mode` is that of the record.
    fn callers(
        &mut self,
        located: &Located<SampleFields<'_>>,
        mut mode: Mode,
        event: u32,
    ) -> (Position, Option<K::Frame>) {
        let (sample, time) = (&located.content.sample, located.lookup_time());
        let key = (located.space, sample.tid, event);
        let endian = self.symbols.selector.profile.endian;
        let words = sample.callchain.words();
        let chain = self.chains.of(key);
        let mut known = chain.known(words, first_address(words, endian), time);
        if may_have_cookie(words, known, endian) {
            known = 0;
        }
        let count = words.len();
        self.new_entries.clear();
        let (mut first, mut has_cookie) = (None, false);
        for (index, entry) in sample.chain_entries().enumerate() {
            if index == count - known {
                let outer = self.chains.of(key).result(known);
                let is_marker = matches!(entry, ChainEntry::Marker(_));
                if is_marker || outer.is_some_and(|outer| outer.mode == mode) {
                    break;
                }
                // The entries are the same, but in another part of the machine.
                known = 0;
            }
            let (frame, times) = match entry {
                ChainEntry::Marker(marker) => {
                    mode = Mode::of_marker(marker);
                    (None, ALWAYS)
                }
                ChainEntry::Cookie => {
                    has_cookie = true;
                    (None, ALWAYS)
                }
                ChainEntry::Address(address) => {
                    // The first address is that of the sample.
                    if first.replace(first.unwrap_or(index)).is_none() && Some(address) == sample.ip {
                        (None, ALWAYS)
                    } else {
                        // A return address may be the first one after the code of the caller.
                        let call = Address(address.0.saturating_sub(1));
                        let (frame, times) = self.frame(mode, located.space, call, time, false);
                        (Some(frame), times)
                    }
                }
            };
            self.new_entries.push(KnownEntry { mode, frame, times });
        }
        let chain = self.chains.of(key);
        chain.truncate(if has_cookie { 0 } else { known });
        let mut position = chain
            .result(known)
            .map_or(Position::Outside, |outer| outer.position);
        for (index, (word, entry)) in words.iter().zip(&self.new_entries).enumerate().rev() {
            if let Some(frame) = entry.frame {
                position = self.kept.tree().child(position, event, frame);
            }
            if !has_cookie && first.is_some_and(|first| index > first) {
                let mode = entry.mode;
                chain.push(*word, entry.times.clone(), Outer { mode, position });
            }
        }
        let innermost = self.new_entries.iter().find_map(|entry| entry.frame);
        (position, innermost)
    }

    /// Returns the frame of an address, and times around `time` at which it is the same.
    fn frame(
        &mut self,
        mode: Mode,
        space: Option<SpaceId>,
        address: Address,
        time: Time,
        is_leaf: bool,
    ) -> (K::Frame, Range<Time>) {
        match (mode, space) {
            (Mode::Kernel, _) => (K::frame(self.kernel_frame(address), address.0), ALWAYS),
            (Mode::User, Some(space)) => self.known_user_frame(space, address, time, is_leaf),
            _ => (K::frame(Frame::Unknown, address.0), ALWAYS),
        }
    }

    fn kernel_frame(&self, address: Address) -> Frame {
        match self.symbols.kernel.at(address) {
            Some(symbol) => Frame::Kernel(symbol),
            None => Frame::KernelModule(self.symbols.modules.in_kernel(address)),
        }
    }

    fn known_user_frame(
        &mut self,
        space: SpaceId,
        address: Address,
        time: Time,
        is_leaf: bool,
    ) -> (K::Frame, Range<Time>) {
        let known = match is_leaf {
            true => &mut self.leaves,
            false => &mut self.callers,
        };
        if let Some((&frame, times)) = known.get(space, address, time) {
            return (frame, times.clone());
        }
        let Found { frame, place, times } =
            self.symbols
                .user_frame(&mut self.recent, space, address, time, is_leaf);
        let frame = K::frame(frame, place);
        known.put(space, address, times.clone(), frame);
        (frame, times)
    }
}

/// What is at an address.
struct Found {
    frame: Frame,
    /// Offset in the code for a function of a runtime's file, and in the file for native code; else the address.
    place: u64,
    /// Times at which it is the same.
    times: Range<Time>,
}

impl Symbols<'_> {
    fn user_frame(
        &self,
        recent: &mut Recent,
        space: SpaceId,
        address: Address,
        time: Time,
        is_leaf: bool,
    ) -> Found {
        let timeline = self.selector.timeline;
        let (lookup, extent) = recent.lookup(timeline, space, address, time);
        let times = match (lookup, extent) {
            (Lookup::Function(at), _) if self.selector.is_uncertain(at) => {
                time..Time(time.0.saturating_add(1))
            }
            (_, Some(extent)) => extent.from..extent.until,
            _ => timeline.times_of(space, address, time),
        };
        let code = match lookup {
            Lookup::File => None,
            // Words that unwinding took for return addresses are in no memory that is executed.
            Lookup::Unmapped if !is_leaf => None,
            lookup => self.selector.classify_ip(space, address, time, lookup),
        };
        let (frame, place) = match code {
            Some(SampledCode::Function(at)) => {
                let mapping = &timeline.mappings()[at];
                let offset = address.0.saturating_sub(mapping.range.start.0);
                (Frame::Function(mapping.function), offset)
            }
            Some(SampledCode::Symbol(symbol)) => (Frame::PerfMapSymbol(symbol.id), address.0),
            Some(_) => (Frame::UnnamedJit, address.0),
            None => {
                let (mapped, mapped_times) = self.modules.with_times(space, address, time);
                return Found {
                    frame: self.native_frame(mapped, address),
                    place: mapped.map_or(address.0, |mapped| mapped.file_offset(address)),
                    times: intersection(times, mapped_times),
                };
            }
        };
        Found { frame, place, times }
    }

    fn native_frame(&self, mapped: Option<MappedModule>, address: Address) -> Frame {
        let Some(mapped) = mapped else {
            return Frame::Unknown;
        };
        match self.native.at(mapped.module, mapped.file_offset(address)) {
            Some(symbol) => Frame::Native {
                module: mapped.module,
                symbol,
            },
            None => Frame::Module(mapped.module),
        }
    }
}
