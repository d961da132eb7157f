//! Association of debug information, unwinding tables and tiers with the LOAD records that they belong to.
//!
//! DEBUG_INFO belongs to the function that is loaded at its address, in the same batch of records or the
//! next one, in any order. Without such a function, it belongs to the next one, as in perf inject.

use crate::bytes::{ByteOrder, Reader};
use crate::collections::hash::HashMap;
use crate::collections::tally::Tally;
use crate::fault::Fault;
use crate::format::debug_info::MAX_BIAS;
use crate::format::debug_info2::DebugInfo2Layout;
use crate::format::record::{Record, RecordLocation};
use crate::format::unwinding::{Placement, UnknownLayout, Unwinding};
use crate::units::Address;

/// Records that wait for their LOAD record.
///
/// The specification puts them right before it, and an UNWINDING_INFO record has no address.
///
/// Quirk: LLVM's ORC (capture llvm19-jitlink) writes an object at a time: one UNWINDING_INFO, then all
/// DEBUG_INFO records, then all LOAD records. Debug information is therefore found by its address, and
/// unwinding information with absolute addresses applies to every LOAD until the next UNWINDING_INFO.
///
/// Debug information that finds no LOAD with its address within the next batch is assigned to the function
/// that was loaded right before it at its address, else to the one right after it, if its first line is in that
/// function. samply's branch support-inlines takes the one after it for DEBUG_INFO2, whatever the address.
#[derive(Clone, Debug, Default)]
pub struct PendingRecords {
    /// DEBUG_INFO records by code address.
    debug_info: HashMap<Address, PendingDebugInfo>,
    /// Code address of the last DEBUG_INFO record, until a LOAD follows it.
    last_debug_info: Option<Address>,
    /// DEBUG_INFO2 records with a code address, by that address.
    debug_info2: HashMap<Address, PendingDebugInfo>,
    /// Code address of the last DEBUG_INFO2 record with one, until a LOAD follows it.
    last_debug_info2: Option<Address>,
    /// Index and start of the function that was loaded last, if it had no debug information then.
    last_function: Option<(u32, Address)>,
    /// SOURCE_TRACK records by code address, in file order.
    tracks: HashMap<Address, PendingTracks>,
    /// The last DEBUG_INFO2 record without a code address.
    next_debug_info2: Option<RecordLocation>,
    /// Number of the current batch. A debug information record that follows a LOAD starts a new batch.
    batch: u64,
    has_loaded: bool,
    unwinding: Option<PendingUnwinding>,
    /// The last JIT_TIER record.
    tier: Option<RecordLocation>,
    /// Whether several tiers came after the last LOAD.
    has_several_tiers: bool,
    /// Debug information without a LOAD that has its address.
    reassigned: Reassigned,
}

/// Debug information that was assigned to functions, by index, for lack of a LOAD with its address after it.
#[derive(Clone, Debug, Default)]
pub struct Reassigned {
    /// DEBUG_INFO records.
    pub debug_info: Vec<(u32, RecordLocation)>,
    /// DEBUG_INFO2 records.
    pub debug_info2: Vec<(u32, RecordLocation)>,
}

/// A function that was loaded after a record.
#[derive(Clone, Copy, Debug)]
struct NextLoad {
    index: u32,
    start: Address,
    size: u32,
}

/// A debug information record whose LOAD record may still follow.
#[derive(Clone, Copy, Debug)]
struct PendingDebugInfo {
    location: RecordLocation,
    batch: u64,
    /// Address in the record's first entry.
    first_entry: Option<Address>,
    /// The function that was loaded right after the record.
    next: Option<NextLoad>,
    /// Index of the function that was loaded right before the record at its address.
    previous: Option<u32>,
}

/// The tracks of a function whose LOAD record may still follow.
#[derive(Clone, Debug, Default)]
struct PendingTracks {
    locations: Vec<RecordLocation>,
    batch: u64,
}

#[derive(Clone, Copy, Debug)]
struct PendingUnwinding {
    location: RecordLocation,
    /// Whether its addresses are absolute, so that it applies to all functions up to the next record.
    is_shared: bool,
    /// Whether a LOAD record followed.
    is_used: bool,
}

impl PendingDebugInfo {
    /// The function that gets the record if no LOAD has its address.
    fn fallback_function(&self) -> Option<u32> {
        if self.previous.is_some() {
            return self.previous;
        }
        let next = self.next?;
        let distance = self.first_entry?.0.checked_sub(next.start.0)?;
        (distance < MAX_BIAS.saturating_add(next.size.into())).then_some(next.index)
    }
}

impl PendingRecords {
    /// Adds a DEBUG_INFO record.
    pub fn add_debug_info(&mut self, record: &Record<'_>, endian: ByteOrder, faults: &mut Tally<Fault>) {
        self.start_batch(faults);
        let mut content = Reader::new(record.content, endian);
        let (Some(address), Some(_count)) = (content.u64().map(Address), content.u64()) else {
            return faults.add(Fault::DebugInfoUnpaired, record.offset);
        };
        let pending = self.pending_debug_info(address, record.location(), content.u64().map(Address));
        if let Some(replaced) = self.debug_info.insert(address, pending) {
            self.reassign_or_drop(replaced, faults);
        }
        self.last_debug_info = Some(address);
    }

    /// Adds a DEBUG_INFO2 record.
    pub fn add_debug_info2(
        &mut self,
        layout: DebugInfo2Layout,
        location: RecordLocation,
        faults: &mut Tally<Fault>,
    ) {
        self.start_batch(faults);
        let replaced = match layout {
            DebugInfo2Layout::Positions(address) => {
                let pending = self.pending_debug_info(address, location, None);
                let replaced = self.debug_info2.insert(address, pending);
                self.last_debug_info2 = Some(address);
                replaced.map(|replaced| replaced.location)
            }
            DebugInfo2Layout::Lists => self.next_debug_info2.replace(location),
        };
        if let Some(location) = replaced {
            faults.add(Fault::DebugInfoUnpaired, location.offset);
        }
    }

    /// Returns a record whose function is not known yet, with what decides on it.
    fn pending_debug_info(
        &self,
        address: Address,
        location: RecordLocation,
        first_entry: Option<Address>,
    ) -> PendingDebugInfo {
        let previous = self.last_function.filter(|&(_, start)| start == address);
        PendingDebugInfo {
            location,
            batch: self.batch,
            first_entry,
            next: None,
            previous: previous.map(|(function, _)| function),
        }
    }

    /// Adds a SOURCE_TRACK record for the function at an address.
    pub fn add_track(&mut self, start: Address, location: RecordLocation, faults: &mut Tally<Fault>) {
        self.start_batch(faults);
        let pending = self.tracks.entry(start).or_default();
        pending.locations.push(location);
        pending.batch = self.batch;
    }

    /// Adds a JIT_TIER record. Several before one LOAD describe tiers, and not the function.
    pub fn add_tier(&mut self, record: &Record<'_>, faults: &mut Tally<Fault>) {
        let before = self.tier.take();
        if let Some(before) = before {
            faults.add(Fault::TierUnpaired, before.offset);
            self.has_several_tiers = true;
        }
        if self.has_several_tiers {
            faults.add(Fault::TierUnpaired, record.offset)
        } else {
            self.tier = Some(record.location())
        }
    }

    /// Adds an UNWINDING_INFO record, unless it is empty.
    pub fn add_unwinding(&mut self, record: &Record<'_>, endian: ByteOrder, faults: &mut Tally<Fault>) {
        self.drop_unwinding(faults);
        match Unwinding::parse(record.content, endian) {
            Ok(None) => {}
            Ok(Some(unwinding)) => {
                self.unwinding = Some(PendingUnwinding {
                    location: record.location(),
                    is_shared: matches!(unwinding.placement, Placement::At(_)),
                    is_used: false,
                });
            }
            Err(UnknownLayout) => faults.add(Fault::BadUnwinding, record.offset),
        }
    }

    /// Drops all records.
    pub fn drop_all(&mut self, faults: &mut Tally<Fault>) {
        self.drop_without_address(faults);
        self.drop_unwinding(faults);
        self.drop_before(u64::MAX, faults);
        self.last_function = None;
    }

    /// Drops the records without a code address, except unwinding information with absolute addresses.
    pub fn drop_without_address(&mut self, faults: &mut Tally<Fault>) {
        if let Some(location) = self.next_debug_info2.take() {
            faults.add(Fault::DebugInfoUnpaired, location.offset);
        }
        if let Some(location) = self.tier.take() {
            faults.add(Fault::TierUnpaired, location.offset);
        }
        if self.unwinding.is_some_and(|unwinding| !unwinding.is_shared) {
            self.drop_unwinding(faults);
        }
        (self.last_debug_info, self.last_debug_info2) = (None, None);
    }

    /// Starts a new batch if LOADs have followed the pending records. Records of the previous batch are kept,
    /// because threads may write at the same time and their LOADs may still follow; older ones are dropped.
    fn start_batch(&mut self, faults: &mut Tally<Fault>) {
        if std::mem::take(&mut self.has_loaded) {
            self.drop_before(self.batch, faults);
            self.batch = self.batch.saturating_add(1);
        }
    }

    /// Ends the wait for the LOADs of records of batches before `batch`. Debug information goes to a function that was loaded before
    /// or after it instead; what is left is dropped.
    fn drop_before(&mut self, batch: u64, faults: &mut Tally<Fault>) {
        for pending in take_before(&mut self.debug_info, batch) {
            self.reassign_or_drop(pending, faults);
        }
        for pending in take_before(&mut self.debug_info2, batch) {
            let next = pending.next.map(|load| load.index);
            match pending.previous.or(next) {
                Some(function) => self.reassigned.debug_info2.push((function, pending.location)),
                None => faults.add(Fault::DebugInfoUnpaired, pending.location.offset),
            }
        }
        let is_old = |_: &Address, pending: &mut PendingTracks| pending.batch < batch;
        for (_, pending) in self.tracks.extract_if(is_old) {
            for location in pending.locations {
                faults.add(Fault::DebugInfoUnpaired, location.offset);
            }
        }
        // A search for old records takes time proportional to the capacity.
        self.debug_info.shrink_to(self.debug_info.len().saturating_mul(2));
        self.debug_info2
            .shrink_to(self.debug_info2.len().saturating_mul(2));
        self.tracks.shrink_to(self.tracks.len().saturating_mul(2));
    }

    /// Handles debug information whose address no LOAD has.
    fn reassign_or_drop(&mut self, pending: PendingDebugInfo, faults: &mut Tally<Fault>) {
        match pending.fallback_function() {
            Some(function) => self.reassigned.debug_info.push((function, pending.location)),
            None => faults.add(Fault::DebugInfoUnpaired, pending.location.offset),
        }
    }

    fn drop_unwinding(&mut self, faults: &mut Tally<Fault>) {
        if let Some(dropped) = self.unwinding.take()
            && !dropped.is_used
        {
            faults.add(Fault::UnwindingUnpaired, dropped.location.offset);
        }
    }

    /// Takes the DEBUG_INFO record of a function that is being loaded; `function` is the function's index.
    pub fn take_debug_info(&mut self, function: u32, start: Address, size: u32) -> Option<RecordLocation> {
        self.has_loaded = true;
        self.last_function = None;
        let last = self.last_debug_info.take();
        if let Some(pending) = self.debug_info.remove(&start) {
            return Some(pending.location);
        }
        self.last_function = Some((function, start));
        if let Some(pending) = self.debug_info.get_mut(&last?) {
            pending.next = Some(NextLoad {
                index: function,
                start,
                size,
            });
        }
        None
    }

    /// Takes the DEBUG_INFO2 record of a function that is being loaded; `function` is the function's index. If it has one in
    /// each layout, that with its address is used.
    pub fn take_debug_info2(
        &mut self,
        function: u32,
        start: Address,
        size: u32,
        faults: &mut Tally<Fault>,
    ) -> Option<RecordLocation> {
        let last = self.last_debug_info2.take();
        let own = self.debug_info2.remove(&start).map(|pending| pending.location);
        let next = self.next_debug_info2.take();
        if own.is_none()
            && let Some(last) = last
            && let Some(pending) = self.debug_info2.get_mut(&last)
        {
            let loaded = NextLoad {
                index: function,
                start,
                size,
            };
            pending.next = Some(loaded).filter(|_| next.is_none());
        }
        if own.is_some()
            && let Some(unused) = next
        {
            faults.add(Fault::BothLayouts, unused.offset);
        }
        let found = own.or(next);
        if found.is_some() {
            self.last_function = None;
        }
        found
    }

    /// Takes the SOURCE_TRACK records of a function that is being loaded.
    pub fn take_tracks(&mut self, start: Address) -> Vec<RecordLocation> {
        let own = self.tracks.remove(&start);
        own.map_or_else(Vec::new, |pending| pending.locations)
    }

    /// Takes the JIT_TIER record of a function that is being loaded.
    pub fn take_tier(&mut self) -> Option<RecordLocation> {
        self.has_several_tiers = false;
        self.tier.take()
    }

    /// Returns the UNWINDING_INFO record of a function that is being loaded, and keeps it for the next function
    /// if its addresses are absolute.
    pub fn take_unwinding(&mut self) -> Option<RecordLocation> {
        let unwinding = self.unwinding.as_mut()?;
        unwinding.is_used = true;
        let location = unwinding.location;
        if !unwinding.is_shared {
            self.unwinding = None;
        }
        Some(location)
    }

    /// Takes the debug information that was written after its function, or for another address.
    pub fn take_reassigned(&mut self) -> Reassigned {
        std::mem::take(&mut self.reassigned)
    }
}

/// Takes the records that were added before a batch, in file order.
fn take_before(pending: &mut HashMap<Address, PendingDebugInfo>, batch: u64) -> Vec<PendingDebugInfo> {
    let old = pending.extract_if(|_, pending| pending.batch < batch);
    let mut old: Vec<PendingDebugInfo> = old.map(|(_, pending)| pending).collect();
    old.sort_by_key(|pending| pending.location.offset);
    old
}
