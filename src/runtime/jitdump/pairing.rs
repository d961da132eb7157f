//! Bringing records together that belong together.

use rustc_hash::FxHashMap;

use crate::bytes::{ByteOrder, Reader};
use crate::runtime::jitdump::debug_info2::Layout;
use crate::runtime::jitdump::dump::Fault;
use crate::runtime::jitdump::record::{Place, Record};
use crate::runtime::jitdump::unwinding::{NotUnderstood, Placement, Unwinding};
use crate::tally::Tally;
use crate::units::Address;

/// DEBUG_INFO, UNWINDING_INFO and other records that wait for their LOAD.
///
/// The format has them stand right before it, and UNWINDING_INFO does not even say whose it is. Quirk: LLVM's
/// ORC (capture llvm19-jitlink) writes an object at a time: one UNWINDING_INFO, then all DEBUG_INFO, then all
/// LOAD records. So debug information is found by its address, and unwinding information that speaks of
/// absolute addresses serves every LOAD until the next.
#[derive(Default)]
pub(super) struct Pending {
    debug_info: FxHashMap<Address, Place>,
    /// The last DEBUG_INFO: where it lies and the address of its first entry.
    last_debug_info: Option<(Address, Place, Option<Address>)>,
    has_loaded: bool,
    unwinding: Option<PendingUnwinding>,
    /// DEBUG_INFO2 records that say whose they are.
    debug_info2: FxHashMap<Address, Place>,
    /// The last one that does not.
    next_debug_info2: Option<Place>,
    /// The last JIT_TIER record.
    tier: Option<Place>,
}

#[derive(Clone, Copy)]
struct PendingUnwinding {
    place: Place,
    serves_all: bool,
    is_used: bool,
}

/// How far from its function an entry of debug information may lie and still be believed to belong to it, in
/// bytes. V8 and LLVM write addresses that are 0x40 too high.
const NEAR_FUNCTION: u64 = 0x40;

impl Pending {
    /// Lets a DEBUG_INFO record wait.
    pub fn debug_info(&mut self, record: &Record<'_>, order: ByteOrder, faults: &mut Tally<Fault>) {
        if self.has_loaded {
            self.start_debug_batch(faults);
        }
        let mut content = Reader::new(record.content, order);
        let (Some(address), Some(_count)) = (content.u64().map(Address), content.u64()) else {
            return faults.add(Fault::DebugInfoUnpaired, record.offset);
        };
        let replaced = self.debug_info.insert(address, record.place());
        if let Some(place) = replaced {
            faults.add(Fault::DebugInfoUnpaired, place.offset);
        }
        let first_entry = content.u64().map(Address);
        self.last_debug_info = Some((address, record.place(), first_entry));
    }

    /// Lets an UNWINDING_INFO record wait, if it says anything.
    pub fn unwinding(&mut self, record: &Record<'_>, order: ByteOrder, faults: &mut Tally<Fault>) {
        self.drop_unwinding(faults);
        match Unwinding::parse(record.content, order) {
            Ok(None) => {}
            Ok(Some(unwinding)) => {
                self.unwinding = Some(PendingUnwinding {
                    place: record.place(),
                    serves_all: matches!(unwinding.placement, Placement::At(_)),
                    is_used: false,
                });
            }
            Err(NotUnderstood) => faults.add(Fault::BadUnwinding, record.offset),
        }
    }

    /// Lets a DEBUG_INFO2 record wait.
    pub fn debug_info2(&mut self, layout: Layout, place: Place, faults: &mut Tally<Fault>) {
        let replaced = match layout {
            Layout::Positions(address) => {
                if self.has_loaded {
                    self.start_debug_batch(faults);
                }
                self.debug_info2.insert(address, place)
            }
            Layout::Lists => self.next_debug_info2.replace(place),
        };
        if let Some(place) = replaced {
            faults.add(Fault::DebugInfoUnpaired, place.offset);
        }
    }

    /// The DEBUG_INFO2 record of a function that is loaded.
    pub fn take_debug_info2(&mut self, start: Address) -> Option<Place> {
        let own = self.debug_info2.remove(&start);
        own.or_else(|| self.next_debug_info2.take())
    }

    /// Lets a JIT_TIER record wait.
    pub fn tier(&mut self, record: &Record<'_>) {
        self.tier = Some(record.place());
    }

    /// The JIT_TIER record of a function that is loaded.
    pub fn take_tier(&mut self) -> Option<Place> {
        self.tier.take()
    }

    /// Drops what found no LOAD; nothing is pending after that.
    pub fn start_batch(&mut self, faults: &mut Tally<Fault>) {
        self.start_debug_batch(faults);
        self.drop_unwinding(faults);
        if let Some(place) = self.next_debug_info2.take() {
            faults.add(Fault::DebugInfoUnpaired, place.offset);
        }
        self.tier = None;
    }

    fn start_debug_batch(&mut self, faults: &mut Tally<Fault>) {
        let lines = std::mem::take(&mut self.debug_info).into_values();
        let calls = std::mem::take(&mut self.debug_info2).into_values();
        for place in lines.chain(calls) {
            faults.add(Fault::DebugInfoUnpaired, place.offset);
        }
        self.last_debug_info = None;
        self.has_loaded = false;
    }

    fn drop_unwinding(&mut self, faults: &mut Tally<Fault>) {
        if let Some(dropped) = self.unwinding.take()
            && !dropped.is_used
        {
            faults.add(Fault::UnwindingUnpaired, dropped.place.offset);
        }
    }

    /// The debug information of a function that is loaded.
    pub fn take_debug_info(&mut self, start: Address, size: u32) -> Option<Place> {
        self.has_loaded = true;
        let last = self.last_debug_info.take();
        if let Some(place) = self.debug_info.remove(&start) {
            return Some(place);
        }
        let (address, place, first_entry) = last?;
        let distance = first_entry?.0.checked_sub(start.0)?;
        if distance > NEAR_FUNCTION.saturating_add(size.into()) {
            return None;
        }
        self.debug_info.remove(&address);
        Some(place)
    }

    /// The unwinding information of a function that is loaded.
    pub fn take_unwinding(&mut self) -> Option<Place> {
        let unwinding = self.unwinding.as_mut()?;
        unwinding.is_used = true;
        let place = unwinding.place;
        if !unwinding.serves_all {
            self.unwinding = None;
        }
        Some(place)
    }
}
