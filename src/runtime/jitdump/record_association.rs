//! Bringing records together that belong together.

use crate::bytes::{ByteOrder, Reader};
use crate::hash::HashMap;
use crate::runtime::jitdump::debug_info::MAX_BIAS;
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
///
/// Debug information that finds no LOAD of its address within the next batch goes to the function that was
/// loaded right behind it, if its lines are there.
#[derive(Default)]
pub(super) struct Pending {
    /// DEBUG_INFO records by their address.
    debug_info: HashMap<Address, Waiting>,
    /// The address of the last one, while no LOAD has stood behind it.
    last_debug_info: Option<Address>,
    /// DEBUG_INFO2 records that say whose they are.
    debug_info2: HashMap<Address, Waiting>,
    /// The last one that does not.
    next_debug_info2: Option<Place>,
    /// How many times records that wait were followed by LOADs and those by new ones.
    batch: u64,
    has_loaded: bool,
    unwinding: Option<PendingUnwinding>,
    /// The last JIT_TIER record.
    tier: Option<Place>,
    /// Functions that get debug information after all.
    reassigned: Vec<(u32, Place)>,
}

/// A record that waits.
#[derive(Clone, Copy)]
struct Waiting {
    place: Place,
    batch: u64,
    /// The address of its first entry.
    first_entry: Option<Address>,
    /// The function that was loaded right behind it: its number, start and size.
    next: Option<(u32, Address, u32)>,
}

#[derive(Clone, Copy)]
struct PendingUnwinding {
    place: Place,
    serves_all: bool,
    is_used: bool,
}

impl Waiting {
    /// The function that is to have it if no LOAD of its address comes.
    fn adopter(&self) -> Option<u32> {
        let (function, start, size) = self.next?;
        let distance = self.first_entry?.0.checked_sub(start.0)?;
        (distance < MAX_BIAS.saturating_add(size.into())).then_some(function)
    }
}

impl Pending {
    /// Lets a DEBUG_INFO record wait.
    pub fn debug_info(&mut self, record: &Record<'_>, order: ByteOrder, faults: &mut Tally<Fault>) {
        self.start_batch(faults);
        let mut content = Reader::new(record.content, order);
        let (Some(address), Some(_count)) = (content.u64().map(Address), content.u64()) else {
            return faults.add(Fault::DebugInfoUnpaired, record.offset);
        };
        let waiting = self.waiting(record.place(), content.u64().map(Address));
        if let Some(replaced) = self.debug_info.insert(address, waiting) {
            self.give_up(replaced, faults);
        }
        self.last_debug_info = Some(address);
    }

    /// Lets a DEBUG_INFO2 record wait.
    pub fn debug_info2(&mut self, layout: Layout, place: Place, faults: &mut Tally<Fault>) {
        self.start_batch(faults);
        let replaced = match layout {
            Layout::Positions(address) => {
                let waiting = self.waiting(place, None);
                let replaced = self.debug_info2.insert(address, waiting);
                replaced.map(|replaced| replaced.place)
            }
            Layout::Lists => self.next_debug_info2.replace(place),
        };
        if let Some(place) = replaced {
            faults.add(Fault::DebugInfoUnpaired, place.offset);
        }
    }

    fn waiting(&self, place: Place, first_entry: Option<Address>) -> Waiting {
        Waiting {
            place,
            batch: self.batch,
            first_entry,
            next: None,
        }
    }

    /// Lets a JIT_TIER record wait.
    pub fn tier(&mut self, record: &Record<'_>, faults: &mut Tally<Fault>) {
        if let Some(replaced) = self.tier.replace(record.place()) {
            faults.add(Fault::TierUnpaired, replaced.offset);
        }
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

    /// Drops all that waits.
    pub fn drop_all(&mut self, faults: &mut Tally<Fault>) {
        self.drop_nameless(faults);
        self.drop_unwinding(faults);
        self.drop_before(u64::MAX, faults);
    }

    /// Drops what says nothing of whose it is.
    pub fn drop_nameless(&mut self, faults: &mut Tally<Fault>) {
        if let Some(place) = self.next_debug_info2.take() {
            faults.add(Fault::DebugInfoUnpaired, place.offset);
        }
        if let Some(place) = self.tier.take() {
            faults.add(Fault::TierUnpaired, place.offset);
        }
        if self.unwinding.is_some_and(|unwinding| !unwinding.serves_all) {
            self.drop_unwinding(faults);
        }
        self.last_debug_info = None;
    }

    /// If LOADs have followed what waits, a new batch starts. What is left of the one before may still find
    /// its LOAD, as threads may write at the same time; what is older does not.
    fn start_batch(&mut self, faults: &mut Tally<Fault>) {
        if std::mem::take(&mut self.has_loaded) {
            self.drop_before(self.batch, faults);
            self.batch = self.batch.saturating_add(1);
        }
    }

    /// Drops debug information of the batches before `batch`.
    fn drop_before(&mut self, batch: u64, faults: &mut Tally<Fault>) {
        let is_old = |_: &Address, waiting: &mut Waiting| waiting.batch < batch;
        let mut lines: Vec<Waiting> = self
            .debug_info
            .extract_if(is_old)
            .map(|(_, waiting)| waiting)
            .collect();
        lines.sort_by_key(|waiting| waiting.place.offset);
        for waiting in lines {
            self.give_up(waiting, faults);
        }
        for (_, waiting) in self.debug_info2.extract_if(is_old) {
            faults.add(Fault::DebugInfoUnpaired, waiting.place.offset);
        }
        // To look for old ones takes as long as there is room for new ones.
        self.debug_info.shrink_to(self.debug_info.len().saturating_mul(2));
        self.debug_info2
            .shrink_to(self.debug_info2.len().saturating_mul(2));
    }

    /// Debug information of an address that is not loaded.
    fn give_up(&mut self, waiting: Waiting, faults: &mut Tally<Fault>) {
        match waiting.adopter() {
            Some(function) => self.reassigned.push((function, waiting.place)),
            None => faults.add(Fault::DebugInfoUnpaired, waiting.place.offset),
        }
    }

    fn drop_unwinding(&mut self, faults: &mut Tally<Fault>) {
        if let Some(dropped) = self.unwinding.take()
            && !dropped.is_used
        {
            faults.add(Fault::UnwindingUnpaired, dropped.place.offset);
        }
    }

    /// The debug information of a function that is loaded, by the number that it gets.
    pub fn take_debug_info(&mut self, function: u32, start: Address, size: u32) -> Option<Place> {
        self.has_loaded = true;
        let last = self.last_debug_info.take();
        if let Some(waiting) = self.debug_info.remove(&start) {
            return Some(waiting.place);
        }
        if let Some(waiting) = self.debug_info.get_mut(&last?) {
            waiting.next = Some((function, start, size));
        }
        None
    }

    /// The DEBUG_INFO2 record of a function that is loaded.
    pub fn take_debug_info2(&mut self, start: Address) -> Option<Place> {
        let own = self.debug_info2.remove(&start);
        own.map(|waiting| waiting.place)
            .or_else(|| self.next_debug_info2.take())
    }

    /// The JIT_TIER record of a function that is loaded.
    pub fn take_tier(&mut self) -> Option<Place> {
        self.tier.take()
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

    /// Functions that get debug information which was not of their address, by their numbers.
    pub fn reassigned(&mut self) -> Vec<(u32, Place)> {
        std::mem::take(&mut self.reassigned)
    }
}
