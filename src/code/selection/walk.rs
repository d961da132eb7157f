//! The walk that marks the code of samples.

use std::ops::Range;

use jitdump::history::{Interval, intersection};
use jitdump::{Address, AddressRange, Time};

use crate::code::process::SpaceId;
use crate::code::recent::Recent;
use crate::code::recent::known_addresses::KnownAddresses;
use crate::code::recent::last_chains::{LastChains, first_address, may_have_cookie, replace_cookies};
use crate::code::samples::{Located, SampleRecord, SampleVisitor};
use crate::code::selection::{FrameCounts, SampledCode, Selection, Selector, SpaceCounts};
use crate::code::timeline::{Code, Lookup};
use crate::perf::record::Record;
use crate::perf::sample::{self, Sample, deferred_callers};

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
    /// Whether the address space ever has JIT code or memory.
    fn has_content(&self) -> bool {
        self.has_code() || self.jit_bounds.is_some()
    }

    /// Whether there are functions or symbols.
    fn has_code(&self) -> bool {
        self.code_bounds.is_some() || self.has_symbols
    }

    /// Whether a frame at an address, or a call just before it, can be in code or JIT memory.
    #[inline]
    fn may_be_code(&self, address: Address) -> bool {
        let bounds = [self.code_bounds, self.jit_bounds];
        let mut bounds = bounds.iter().flatten();
        self.has_symbols || bounds.any(|bounds| bounds.start <= address && address <= bounds.end)
    }
}

/// Whether a frame of a call chain has a name, if it is in JIT code, and times at which it is the same.
type KnownFrame = (Option<bool>, Range<Time>);

/// What is never JIT code.
const OTHER: KnownFrame = (None, Time(0)..Time::MAX);

/// State while reading some of the records.
pub struct SelectionWalk<'a> {
    marker: HitCode<'a>,
    /// Context of the last sample.
    context: Option<FrameContext>,
    /// Samples of the address space of `context`.
    of_space: SpaceCounts,
    chains: LastChains<FrameCounts>,
    /// A call chain without its cookies.
    replaced: Vec<[u8; 8]>,
}

/// Looks up addresses, and marks the code there.
struct HitCode<'a> {
    selector: &'a Selector<'a>,
    selection: Selection,
    recent: Recent,
    /// Code at sampled addresses, marked already.
    leaves: KnownAddresses<Option<SampledCode>>,
    /// Whether frames have names, if they are in JIT code; marked already.
    frames: KnownAddresses<Option<bool>>,
}

impl<'a> SelectionWalk<'a> {
    /// Starts a walk over some of the samples.
    pub fn new(selector: &'a Selector<'a>) -> Self {
        Self {
            marker: HitCode {
                selector,
                selection: selector.nothing(),
                recent: Recent::default(),
                leaves: KnownAddresses::default(),
                frames: KnownAddresses::default(),
            },
            context: None,
            of_space: SpaceCounts::default(),
            chains: LastChains::default(),
            replaced: Vec::new(),
        }
    }

    /// Returns what was found.
    pub fn into_selection(mut self) -> Selection {
        self.leave_space();
        self.marker.selection
    }
}

impl SampleVisitor for SelectionWalk<'_> {
    fn sample(&mut self, located: &Located<SampleRecord<'_>>) {
        let SampleRecord { record, sample } = &located.content;
        let samples = &mut self.marker.selection.samples;
        samples.total += 1;
        samples.cut += u64::from(sample.is_truncated);
        let (Some(space), time) = (located.space, located.lookup_time()) else {
            return;
        };
        self.enter(space, time);
        self.of_space.samples = self.of_space.samples.saturating_add(1);
        let mut frames = FrameCounts::default();
        let ip = located.content.user_ip();
        let leaf = ip.and_then(|ip| self.marker.leaf(space, ip, time));
        if let Some(leaf) = leaf {
            self.marker.count(leaf, &mut self.of_space);
            frames.add(leaf.is_named());
        }
        let is_deferred = !record.is_guest() && self.add_callers(sample, leaf, &mut frames);
        // A later record has all frames of such a sample in user space, the sampled one among them.
        if !is_deferred {
            self.add_stack(frames);
        }
    }

    fn deferred_chain(&mut self, chain: &Located<Record<'_>>) {
        let Some(space) = chain.space else {
            return;
        };
        self.enter(space, chain.lookup_time());
        let Self { marker, context, .. } = self;
        if let Some(context) = context.as_ref().filter(|context| context.has_content()) {
            let mut frames = FrameCounts::default();
            for address in deferred_callers(&chain.content, marker.selector.profile.endian) {
                let (is_named, _) = marker.frame(address, context);
                frames.extend(is_named);
            }
            self.add_stack(frames);
        }
    }
}

impl SelectionWalk<'_> {
    /// Starts lookups of frames in an address space at a time.
    #[inline]
    fn enter(&mut self, space: SpaceId, time: Time) {
        match &mut self.context {
            Some(last) if last.space == space => last.time = time,
            _ => self.enter_other(space, time),
        }
    }

    /// Starts lookups in another address space, after the samples of the last one were added up.
    fn enter_other(&mut self, space: SpaceId, time: Time) {
        self.leave_space();
        let timeline = self.marker.selector.timeline;
        self.context = Some(FrameContext {
            space,
            time,
            code_bounds: timeline.code_bounds(space),
            jit_bounds: timeline.jit_bounds(space),
            has_symbols: timeline.symbols.are_there(space),
        });
    }

    /// Adds up the samples of the last address space.
    fn leave_space(&mut self) {
        let counts = std::mem::take(&mut self.of_space);
        if let Some(last) = self.context.take() {
            self.marker.selection.spaces.get_mut(last.space).add(&counts);
        }
    }

    /// Counts the stack of a sample.
    fn add_stack(&mut self, frames: FrameCounts) {
        self.marker.selection.samples.stacks.add_sample(frames);
        let with_jit_frame = u32::from(frames.jit > 0);
        self.of_space.with_jit_frame = self.of_space.with_jit_frame.saturating_add(with_jit_frame);
    }

    /// Adds the call chain of a sample, its frames in JIT code except the sampled one to `frames`, and all other addresses.
    /// `leaf` is the code at the sampled address. Returns whether a later record has the frames in user space, if there can be
    /// code in this address space.
    #[inline]
    fn add_callers(
        &mut self,
        sample: &Sample<'_>,
        leaf: Option<SampledCode>,
        frames: &mut FrameCounts,
    ) -> bool {
        let Self {
            marker,
            context,
            chains,
            replaced,
            ..
        } = self;
        let Some(context) = context.as_ref().filter(|context| context.has_content()) else {
            return false;
        };
        let mut is_in_stack = leaf.is_some_and(SampledCode::is_in_function);
        let endian = marker.selector.profile.endian;
        let chain = chains.of((Some(context.space), sample.tid));
        let mut words = sample.callchain.words();
        let mut first = first_address(words, endian);
        // Chains of a thread mostly differ in their first words. The others, the `known` last ones, are not looked up again.
        let mut known = chain.known_count(words, first, context.time);
        let has_cookie = may_have_cookie(words, known, endian);
        // A cookie could look like an address, and differs from sample to sample: its chain is not compared with others, nor kept.
        if has_cookie {
            replace_cookies(words, endian, replaced);
            words = replaced;
            first = first_address(words, endian);
            known = 0;
        }
        let mut outer = chain.result(known).unwrap_or_default();
        chain.truncate(known);
        let new = words.get(..words.len().saturating_sub(known)).unwrap_or_default();
        for (index, &word) in new.iter().enumerate().rev() {
            let address = endian.u64_of(word);
            let (is_named, times) = match address {
                sample::FIRST_CONTEXT_MARKER.. => OTHER,
                _ => marker.frame(Address(address), context),
            };
            // Everything further out than the first address is a caller, which the next chain may have, too.
            if index > first {
                outer.extend(is_named);
                if !has_cookie {
                    chain.push(word, times, outer);
                }
            } else if let Some(is_named) = is_named {
                is_in_stack |= is_named;
                // The chain starts with the sampled address, or, of a precise event, at another address in the same function.
                let address = Address(address);
                let is_sampled = Some(address) == sample.ip
                    || leaf.is_some() && marker.leaf(context.space, address, context.time) == leaf;
                if !is_sampled {
                    frames.add(is_named);
                }
            }
        }
        is_in_stack |= outer.named > 0;
        frames.jit += outer.jit;
        frames.named += outer.named;
        marker.selection.samples.with_named_frame += u64::from(is_in_stack);
        if context.has_code() {
            marker.mark_beyond_chain(sample, context);
        }
        has_cookie
    }
}

impl HitCode<'_> {
    /// Marks the code at the branches of a sample, and at what its registers and stack have in case it is a return address. A
    /// reader may look it up, but it is no frame, so nothing is counted.
    fn mark_beyond_chain(&mut self, sample: &Sample<'_>, context: &FrameContext) {
        // Most samples have none of these, and to start an iteration takes a division.
        if !sample.branches.is_empty() {
            for address in sample.branches.iter() {
                // A branch starts and ends at these addresses themselves, while a return address is behind its call.
                self.mark_address(address, context);
            }
        }
        // Words of the stack may be return addresses; only unwinding shows which.
        for words in [sample.registers, sample.stack] {
            if !words.is_empty() {
                for address in words.iter() {
                    self.mark_caller(address, context);
                }
            }
        }
    }

    /// Returns the JIT code at a sampled address, and marks it or records the address as unknown.
    #[inline]
    fn leaf(&mut self, space: SpaceId, ip: Address, time: Time) -> Option<SampledCode> {
        if let Some(found) = self.recent.get(space, ip, time)
            && let Code::Function(at) = found.value
            && !self.selector.is_uncertain(at)
        {
            return Some(SampledCode::Function(at));
        }
        match self.leaves.get(space, ip, time) {
            Some((&leaf, _)) => leaf,
            None => self.new_leaf(space, ip, time),
        }
    }

    /// Looks up a sampled address, marks the code there, and remembers it for as long as it is there.
    fn new_leaf(&mut self, space: SpaceId, ip: Address, time: Time) -> Option<SampledCode> {
        self.selection.lookups += 1;
        let (lookup, extent) = self.lookup_with_extent(space, ip, time);
        self.mark(space, ip, lookup);
        self.note_unknown(space, ip, lookup);
        let leaf = self.selector.classify_ip(space, ip, time, lookup);
        let times = match extent {
            _ if matches!(lookup, Lookup::Function(at) if self.selector.is_uncertain(at)) => {
                time..Time(time.0.saturating_add(1))
            }
            Some(extent) => extent.from..extent.until,
            None => self.selector.timeline.times_at(space, ip, time),
        };
        self.leaves.put(space, ip, times, leaf);
        leaf
    }

    /// Returns what a frame is, and marks its code as [`Self::mark_frame`] does.
    #[inline]
    fn frame(&mut self, address: Address, context: &FrameContext) -> KnownFrame {
        if !context.may_be_code(address) {
            return OTHER;
        }
        if let Some(extent) = self.recent_function(address, context) {
            return (Some(true), extent.from..extent.until);
        }
        match self.frames.get(context.space, address, context.time) {
            Some((&is_named, times)) => (is_named, times.clone()),
            None => self.new_frame(address, context),
        }
    }

    /// As [`Self::frame`] of an address that is not known at this time. It is remembered for as long as it stays the same.
    #[inline(never)]
    fn new_frame(&mut self, address: Address, context: &FrameContext) -> KnownFrame {
        self.selection.lookups += 1;
        let is_named = self.mark_frame(address, context);
        let times = self.times_of_caller(address, context);
        self.frames.put(context.space, address, times.clone(), is_named);
        (is_named, times)
    }

    /// Returns times at which a return address and the call before it have the same content.
    fn times_of_caller(&mut self, address: Address, context: &FrameContext) -> Range<Time> {
        let &FrameContext { space, time, .. } = context;
        let before = before(address);
        match self.recent.get(space, address, time) {
            Some(found) if found.range.contains(before) => found.from..found.until,
            _ => {
                let timeline = self.selector.timeline;
                let [at, before] = [address, before].map(|address| timeline.times_at(space, address, time));
                intersection(at, before)
            }
        }
    }

    /// Marks the code at a frame's address, or records the address as unknown. Returns whether the frame has a name, if
    /// it is in JIT code.
    fn mark_frame(&mut self, address: Address, context: &FrameContext) -> Option<bool> {
        let (lookup, is_in_function) = self.mark_unfamiliar_caller(address, context);
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
            None if is_within(context.jit_bounds) => {
                Some(self.lookup_with_extent(context.space, address, context.time).0)
            }
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

    /// Marks the code at what may be a return address.
    #[inline]
    fn mark_caller(&mut self, address: Address, context: &FrameContext) {
        if self.recent_function(address, context).is_none() {
            self.mark_unfamiliar_caller(address, context);
        }
    }

    /// Returns the recently marked function that has a return address and the call before it. Most frames are in one.
    #[inline]
    fn recent_function(&mut self, address: Address, context: &FrameContext) -> Option<Interval<Code>> {
        let &FrameContext {
            space,
            time,
            code_bounds,
            ..
        } = context;
        if !code_bounds?.contains(address) {
            return None;
        }
        let &found = self.recent.get(space, address, time)?;
        let is_in_function =
            matches!(found.value, Code::Function(_)) && found.range.contains(before(address));
        is_in_function.then_some(found)
    }

    /// Marks the code at a return address. Returns what is there, if the address can be code, and whether the call is in a
    /// function. If the caller ends with a call, the return address is one past its last byte.
    fn mark_unfamiliar_caller(&mut self, address: Address, context: &FrameContext) -> (Option<Lookup>, bool) {
        let before = before(address);
        let (lookup, extent) = self.mark_lookup(address, context);
        let is_in_function = lookup.is_some_and(Lookup::has_name);
        if extent.is_some_and(|extent| extent.range.contains(before)) {
            return (lookup, is_in_function);
        }
        (lookup, self.mark_address(before, context) | is_in_function)
    }

    /// Marks the code at an address. Returns whether it has a name.
    fn mark_address(&mut self, address: Address, context: &FrameContext) -> bool {
        let (lookup, _) = self.mark_lookup(address, context);
        lookup.is_some_and(Lookup::has_name)
    }

    /// Marks the code at an address. Returns what is there, if the address can be code, and the extent around it.
    fn mark_lookup(
        &mut self,
        address: Address,
        context: &FrameContext,
    ) -> (Option<Lookup>, Option<Interval<Code>>) {
        let &FrameContext {
            space,
            time,
            code_bounds,
            ..
        } = context;
        let timeline = self.selector.timeline;
        let is_near_function = code_bounds.is_some_and(|code_bounds| code_bounds.contains(address));
        if !is_near_function && !timeline.symbols.has(space, address) {
            return (None, None);
        }
        let (lookup, extent) = self.lookup_with_extent(space, address, time);
        self.mark(space, address, lookup);
        (Some(lookup), extent)
    }

    /// Returns the content of an address at a time, and for code the extent around it.
    fn lookup_with_extent(
        &mut self,
        space: SpaceId,
        address: Address,
        time: Time,
    ) -> (Lookup, Option<Interval<Code>>) {
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
        for mapping in self.selector.timeline.symbols.withheld_by(space, address) {
            self.selection.mappings[mapping] = true;
        }
    }

    /// Counts a sample in JIT code.
    fn count(&mut self, leaf: SampledCode, of_space: &mut SpaceCounts) {
        let samples = &mut self.selection.samples;
        let (counter, part) = match leaf {
            SampledCode::Function(at) => (&mut samples.named, Some(&mut self.selection.hits[at])),
            SampledCode::Symbol(id) => {
                samples.named_by_map += 1;
                let hits = self.selection.symbol_hits.entry(id).or_default();
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
    }
}

/// Returns the last address of the call that returns to an address.
fn before(return_address: Address) -> Address {
    Address(return_address.0.saturating_sub(1))
}
