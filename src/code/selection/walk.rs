//! The walk that marks the code of samples.

use std::ops::Range;

use jitdump::history::intersection;
use jitdump::{Address, AddressRange, Time};

use crate::code::process::SpaceId;
use crate::code::recent::Recent;
use crate::code::recent::known_addresses::KnownAddresses;
use crate::code::recent::last_chains::LastChains;
use crate::code::samples::{Located, SampleFields, SampleVisitor};
use crate::code::selection::{FrameCounts, SampledCode, Selection, Selector};
use crate::code::timeline::{Code, Extent, Lookup};
use crate::perf::record::Record;
use crate::perf::sample::{ChainEntry, Sample, deferred_callers};

/// Address space and time in which the frames of a sample are looked up.
#[derive(Clone, Copy)]
struct FrameContext {
    space: SpaceId,
    time: Time,
    /// Range of addresses that ever held functions.
    code_bounds: Option<AddressRange>,
    /// Range of addresses that ever were JIT memory.
    jit_bounds: Option<AddressRange>,
    /// Whether there are symbols.
    has_symbols: bool,
}

impl FrameContext {
    /// Whether there are functions or symbols.
    fn has_code(&self) -> bool {
        self.code_bounds.is_some() || self.has_symbols
    }

    /// Whether a frame at an address, or a call just before it, can be in code or JIT memory.
    fn may_be_code(&self, address: Address) -> bool {
        let bounds = [self.code_bounds, self.jit_bounds];
        let mut bounds = bounds.iter().flatten();
        self.has_symbols || bounds.any(|bounds| bounds.start <= address && address <= bounds.end)
    }
}

/// What a frame of a call chain is.
#[derive(Clone, Debug)]
struct KnownFrame {
    /// Whether it has a name, if it is in JIT code.
    is_named: Option<bool>,
    /// Times at which it is the same.
    times: Range<Time>,
}

impl KnownFrame {
    /// What is never JIT code.
    const OTHER: Self = Self {
        is_named: None,
        times: Time(0)..Time::MAX,
    };
}

/// State while reading one chunk of the records.
pub struct Walk<'a> {
    selector: &'a Selector<'a>,
    selection: Selection,
    /// Context of the last sample.
    context: Option<FrameContext>,
    recent: Recent,
    /// Content of sampled addresses, marked already.
    leaves: KnownAddresses<Lookup>,
    /// Whether frames have names, if they are in JIT code; marked already.
    frames: KnownAddresses<Option<bool>>,
    chains: LastChains<FrameCounts>,
    /// Entries of the current call chain that the last one did not have, from the innermost to the outermost.
    new_frames: Vec<KnownFrame>,
}

impl<'a> Walk<'a> {
    /// Starts a walk.
    pub fn new(selector: &'a Selector<'a>) -> Self {
        Self {
            selector,
            selection: selector.nothing(),
            context: None,
            recent: Recent::default(),
            leaves: KnownAddresses::default(),
            frames: KnownAddresses::default(),
            chains: LastChains::default(),
            new_frames: Vec::new(),
        }
    }
}

impl SampleVisitor for Walk<'_> {
    type Found = Selection;

    fn finish(self) -> Selection {
        self.selection
    }

    fn sample(&mut self, located: &Located<SampleFields<'_>>) {
        let SampleFields { record, sample } = &located.content;
        self.selection.samples.total += 1;
        self.selection.samples.cut += u64::from(sample.is_truncated);
        let (Some(space), time) = (located.space, located.lookup_time()) else {
            return;
        };
        let of_space = self.selection.spaces.get_mut(space);
        of_space.samples = of_space.samples.saturating_add(1);
        let mut frames = FrameCounts::default();
        let mut is_in_function = false;
        if let Some(ip) = located.content.user_ip() {
            let lookup = self.mark_leaf(space, ip, time);
            is_in_function = lookup.is_function();
            if let Some(is_named) = self.count(space, ip, time, lookup) {
                frames.add(is_named);
            }
        }
        if let Some(context) = self.context(space, time)
            && !record.is_guest()
        {
            self.add_chain(sample, context, is_in_function, &mut frames);
            if context.has_code() {
                self.add_possible_callers(sample, context);
            }
        }
        self.selection.samples.stacks.add_sample(frames);
        let of_space = self.selection.spaces.get_mut(space);
        of_space.with_jit_frame = of_space.with_jit_frame.saturating_add(u32::from(frames.jit > 0));
    }

    fn deferred_chain(&mut self, chain: &Located<Record<'_>>) {
        if let Some(context) = chain
            .space
            .and_then(|space| self.context(space, chain.lookup_time()))
        {
            let mut frames = FrameCounts::default();
            for address in deferred_callers(&chain.content, self.selector.profile.endian) {
                if let Some(is_named) = self.frame(address, context).is_named {
                    frames.add(is_named);
                }
            }
            self.selection.samples.stacks.add_sample(frames);
        }
    }
}

impl Walk<'_> {
    /// Returns the lookup context for frames; `None` if the address space never has JIT code or memory.
    fn context(&mut self, space: SpaceId, time: Time) -> Option<FrameContext> {
        let context = match self.context {
            Some(last) if last.space == space => FrameContext { time, ..last },
            _ => {
                let timeline = self.selector.timeline;
                FrameContext {
                    space,
                    time,
                    code_bounds: timeline.code_bounds(space),
                    jit_bounds: timeline.jit_bounds(space),
                    has_symbols: timeline.has_symbols(space),
                }
            }
        };
        self.context = Some(context);
        (context.has_code() || context.jit_bounds.is_some()).then_some(context)
    }

    /// Adds the call chain of a sample, and its frames in JIT code except the sampled one to `frames`. `is_in_stack` is
    /// whether the sampled address is in a function.
    fn add_chain(
        &mut self,
        sample: &Sample<'_>,
        context: FrameContext,
        mut is_in_stack: bool,
        frames: &mut FrameCounts,
    ) {
        let key = (Some(context.space), sample.tid, 0);
        let known = self.chains.of(key).known(sample, context.time);
        let count = sample.callchain.count();
        self.new_frames.clear();
        let (mut first, mut has_cookie) = (None, false);
        for entry in sample.chain_entries().take(count - known) {
            let frame = match entry {
                ChainEntry::Address(address) => self.frame(address, context),
                ChainEntry::Marker(_) | ChainEntry::Cookie => KnownFrame::OTHER,
            };
            has_cookie |= entry == ChainEntry::Cookie;
            is_in_stack |= frame.is_named == Some(true);
            // The chain starts with the sampled address.
            let is_sampled = || matches!(entry, ChainEntry::Address(address) if Some(address) == sample.ip);
            if let Some(is_named) = frame.is_named
                && (first.is_some() || !is_sampled())
            {
                frames.add(is_named);
            }
            if matches!(entry, ChainEntry::Address(_)) {
                first = first.or(Some(self.new_frames.len()));
            }
            self.new_frames.push(frame);
        }
        let chain = self.chains.of(key);
        let mut outer = chain.result(known).unwrap_or_default();
        is_in_stack |= outer.named > 0;
        frames.jit += outer.jit;
        frames.named += outer.named;
        self.selection.samples.with_named_frame += u64::from(is_in_stack);
        chain.truncate(if has_cookie { 0 } else { known });
        let new = sample
            .callchain
            .bytes()
            .as_chunks()
            .0
            .iter()
            .zip(&self.new_frames);
        let callers = first.map_or(0, |first| self.new_frames.len() - first - 1);
        for (word, frame) in new.rev().take(callers).filter(|_| !has_cookie) {
            frame
                .is_named
                .into_iter()
                .for_each(|is_named| outer.add(is_named));
            chain.push(*word, frame.times.clone(), outer);
        }
    }

    /// Adds the branches, registers and stack of a sample.
    fn add_possible_callers(&mut self, sample: &Sample<'_>, context: FrameContext) {
        for address in sample.branches.iter() {
            self.mark_address(address, context);
        }
        // Words of the stack may be return addresses; only unwinding shows which.
        for address in sample.registers.iter().chain(sample.stack.iter()) {
            self.mark_caller(address, context);
        }
    }

    /// Returns the content of a sampled address, and marks the code or records the address as unknown.
    fn mark_leaf(&mut self, space: SpaceId, ip: Address, time: Time) -> Lookup {
        if let Some((&lookup, _)) = self.leaves.get(space, ip, time) {
            return lookup;
        }
        self.selection.lookups += 1;
        let (lookup, extent) = self.find(space, ip, time);
        self.mark(space, ip, lookup);
        self.note_unknown(space, ip, lookup);
        let times = match extent {
            Some(extent) => extent.from..extent.until,
            None => self.selector.timeline.times_of(space, ip, time),
        };
        self.leaves.put(space, ip, times, lookup);
        lookup
    }

    /// Returns what a frame is, and marks its code as [`Self::mark_frame`] does.
    fn frame(&mut self, address: Address, context: FrameContext) -> KnownFrame {
        let FrameContext { space, time, .. } = context;
        if !context.may_be_code(address) {
            return KnownFrame::OTHER;
        }
        if let Some((&is_named, times)) = self.frames.get(space, address, time) {
            let times = times.clone();
            return KnownFrame { is_named, times };
        }
        self.selection.lookups += 1;
        let is_named = self.mark_frame(address, context);
        let times = self.times_of_caller(address, context);
        self.frames.put(space, address, times.clone(), is_named);
        KnownFrame { is_named, times }
    }

    /// Returns times at which a return address and the call before it have the same content.
    fn times_of_caller(&mut self, address: Address, context: FrameContext) -> Range<Time> {
        let FrameContext { space, time, .. } = context;
        let before = Address(address.0.saturating_sub(1));
        match self.recent.get(space, address, time) {
            Some(found) if found.extent.range.contains(before) => found.extent.from..found.extent.until,
            _ => {
                let timeline = self.selector.timeline;
                let [at, before] = [address, before].map(|address| timeline.times_of(space, address, time));
                intersection(at, before)
            }
        }
    }

    /// Marks the code at a frame's address, or records the address as unknown. Returns whether the frame has a name, if
    /// it is in JIT code.
    fn mark_frame(&mut self, address: Address, context: FrameContext) -> Option<bool> {
        let (lookup, is_in_function) = self.mark_caller(address, context);
        let is_within = |bounds: Option<AddressRange>| bounds.is_some_and(|bounds| bounds.contains(address));
        if let Some(lookup) = lookup
            && is_within(context.code_bounds)
        {
            self.note_unknown(context.space, address, lookup);
        }
        if is_in_function {
            return Some(true);
        }
        let lookup = match lookup {
            None if is_within(context.jit_bounds) => Some(self.find(context.space, address, context.time).0),
            lookup => lookup,
        };
        lookup?.frame_has_name()
    }

    /// Records an address among code as unknown if it matches no code, or if it is in a file where the address space
    /// or an ancestor ever has code: an object for that code may already cover it.
    fn note_unknown(&mut self, space: SpaceId, address: Address, lookup: Lookup) {
        let is_unknown = match lookup {
            Lookup::Anonymous | Lookup::Unmapped => true,
            Lookup::File => self.selector.timeline.ever_has_code(space, address),
            Lookup::Function(_) | Lookup::Freed(_) | Lookup::Symbol(_) => false,
        };
        if is_unknown {
            self.selection.unknown.insert(space, address);
        }
    }

    /// Marks the code at an address of a call chain. Returns what is there, if the address can be code, and whether
    /// the call is in a function. If the caller ends with a call, the return address is one past its last byte.
    #[inline]
    fn mark_caller(&mut self, address: Address, context: FrameContext) -> (Option<Lookup>, bool) {
        let before = Address(address.0.saturating_sub(1));
        // Most frames are in recently marked functions.
        if context
            .code_bounds
            .is_some_and(|code_bounds| code_bounds.contains(address))
            && let Some(found) = self.recent.get(context.space, address, context.time)
            && let Code::Function(mapping) = found.code
            && found.extent.range.contains(before)
        {
            return (Some(Lookup::Function(mapping)), true);
        }
        self.mark_unfamiliar_caller(address, before, context)
    }

    fn mark_unfamiliar_caller(
        &mut self,
        address: Address,
        before: Address,
        context: FrameContext,
    ) -> (Option<Lookup>, bool) {
        let (lookup, extent) = self.mark_lookup(address, context);
        let is_in_function = lookup.is_some_and(Lookup::is_function);
        if extent.is_some_and(|extent| extent.range.contains(before)) {
            return (lookup, is_in_function);
        }
        (lookup, self.mark_address(before, context) | is_in_function)
    }

    fn mark_address(&mut self, address: Address, context: FrameContext) -> bool {
        let (lookup, _) = self.mark_lookup(address, context);
        lookup.is_some_and(Lookup::is_function)
    }

    /// Marks the code at an address. Returns what is there, if the address can be code, and the extent around it.
    fn mark_lookup(&mut self, address: Address, context: FrameContext) -> (Option<Lookup>, Option<Extent>) {
        let FrameContext {
            space,
            time,
            code_bounds,
            ..
        } = context;
        let timeline = self.selector.timeline;
        let is_near_function = code_bounds.is_some_and(|code_bounds| code_bounds.contains(address));
        if !is_near_function && !timeline.may_have_symbol(space, address) {
            return (None, None);
        }
        let (lookup, extent) = self.find(space, address, time);
        self.mark(space, address, lookup);
        (Some(lookup), extent)
    }

    /// Returns the content of an address at a time, and for code the extent around it.
    fn find(&mut self, space: SpaceId, address: Address, time: Time) -> (Lookup, Option<Extent>) {
        self.recent.lookup(self.selector.timeline, space, address, time)
    }

    /// Marks the code at an address as hit.
    fn mark(&mut self, space: SpaceId, address: Address, lookup: Lookup) {
        match lookup {
            Lookup::Function(at) => self.selection.mappings[at] = true,
            Lookup::Freed(at) => {
                self.selection.freed_ranges[at] = true;
                self.mark_withheld(space, address);
            }
            Lookup::Symbol(symbol) => {
                self.selection.symbols.insert(symbol);
            }
            Lookup::Anonymous | Lookup::Unmapped => self.mark_withheld(space, address),
            Lookup::File => {}
        }
    }

    /// Marks the functions that hide perf map symbols at an address. When jitinject reads its own output, it must not
    /// find a symbol there either, and it recognizes only functions that have an object.
    fn mark_withheld(&mut self, space: SpaceId, address: Address) {
        for mapping in self.selector.timeline.symbols_withheld_by(space, address) {
            self.selection.mappings[mapping] = true;
        }
    }

    /// Counts a sampled address. Returns whether it has a name, if it is in JIT code.
    fn count(&mut self, space: SpaceId, ip: Address, time: Time, lookup: Lookup) -> Option<bool> {
        let leaf = self.selector.classify_ip(space, ip, time, lookup)?;
        let samples = &mut self.selection.samples;
        let of_space = self.selection.spaces.get_mut(space);
        let (counter, part) = match leaf {
            SampledCode::Function(at) => (&mut samples.named, Some(&mut self.selection.hits[at])),
            SampledCode::Symbol(symbol) => {
                samples.named_by_map += 1;
                let hits = self.selection.symbol_hits.entry(symbol.id).or_default();
                (&mut samples.named, Some(hits))
            }
            SampledCode::Doubtful(file) => {
                self.selection.doubtful[file] += 1;
                (&mut samples.doubtful, None)
            }
            SampledCode::BeforeLoad => (&mut samples.before_load, Some(&mut of_space.before_load)),
            SampledCode::NotInDump => (&mut samples.not_in_dump, Some(&mut of_space.not_in_dump)),
            SampledCode::DumpUnusable => (&mut samples.dump_unusable, Some(&mut of_space.dump_unusable)),
            SampledCode::NoDump => (&mut samples.no_dump, Some(&mut of_space.no_dump)),
        };
        *counter += 1;
        if let Some(part) = part {
            *part = part.saturating_add(1);
        }
        Some(leaf.is_named())
    }
}
