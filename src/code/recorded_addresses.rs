//! All addresses in samples. A function at none of them changes no lookup of a sample, so a profile with few samples in
//! a million functions needs few of them.
//!
//! On the time axis, a function takes some 200 bytes. So of many functions, only those with such an address
//! in any process are placed there. What overwrites an address contains it, so no other function matters
//! for a lookup. Only where there ever was code is kept, as a few ranges
//! (`PlacedCode` in `mappings.rs`). A symbol of a perf map ends where a function begins, so a symbol
//! with such an address keeps all functions in it. Clocks are estimated by functions with such an address
//! and by whatever was loaded over any part of them.
//!
//! All functions are placed for `--all`, `--unwind`, AUX data and `timeline`, which look elsewhere, and if
//! code was moved: a move frees the parts of its source where nothing else was loaded. They are also placed
//! if there are few of them, or few for the size of the profile: the walk would take longer than it saves.

use jitdump::{Address, AddressRange};

use crate::code::profile_index::IndexedProfile;
use crate::code::samples::Samples;
use crate::collections::hash::HashMap;
use crate::collections::range_map::RangeSet;
use crate::perf::Profile;
use crate::perf::record::reader::RecordReader;
use crate::perf::record::{self, Record};
use crate::perf::sample::{Sample, deferred_callers};

/// Maximum number of pages with recorded addresses. With more of them, so many functions have samples that their
/// selection would save little.
const MAX_PAGES: usize = 1 << 18;

/// Number of blocks in a page.
const BLOCKS: u32 = u64::BITS;

/// A block of 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Block {
    page: u64,
    /// Index of the block in its page.
    bit: u32,
}

impl Block {
    fn of(Address(address): Address) -> Self {
        Self {
            page: address >> 12,
            bit: (address >> 6) as u32 % BLOCKS,
        }
    }
}

/// Addresses recorded with the samples of a profile, in blocks of 64 bytes, for all processes together.
#[derive(Clone, Debug, Default)]
pub struct RecordedAddresses {
    /// Pages of 4 KiB with recorded addresses, sorted, each with a bit for each of its blocks.
    pages: Vec<(u64, u64)>,
    /// Further ranges.
    ranges: RangeSet,
}

impl RecordedAddresses {
    /// Collects all addresses in or near `code`: of call chains, branches, registers and stacks. Returns `None` if there
    /// are too many.
    pub fn of(profile: &IndexedProfile<'_>, code: &RangeSet) -> Option<Self> {
        let Some(bounds) = code.hull() else {
            return Some(Self::default());
        };
        let index = &profile.index;
        let mut all = Pages::default();
        let start = || Collector::new(code, bounds);
        let collect = |collector: &mut Collector<'_>, records: &mut RecordReader<'_>| {
            while let Some(record) = records.next() {
                collector.add(&profile.profile, record);
            }
        };
        let samples = Samples::of(profile);
        let collectors = samples.visit_records(&index.marks, start, collect);
        collectors
            .into_iter()
            .for_each(|collector| all.merge(collector.pages));
        let mut pages: Vec<(u64, u64)> = all.blocks?.into_iter().collect();
        pages.sort_unstable();
        Some(Self {
            pages,
            ranges: RangeSet::default(),
        })
    }

    /// Adds a range.
    pub fn insert(&mut self, range: AddressRange) {
        self.ranges.insert(range);
    }

    /// Whether any address in a range may have been recorded, or the one just after it: the return address of a call
    /// at its end.
    pub fn may_be_in(&self, range: AddressRange) -> bool {
        let (first, last) = (Block::of(range.start), Block::of(range.end));
        let after = self.pages.partition_point(|&(page, _)| page < first.page);
        let pages = self.pages.iter().skip(after);
        let mut pages = pages.take_while(|&&(page, _)| page <= last.page);
        let is_recorded = pages.any(|&(page, blocks)| {
            let from = if page == first.page { first.bit } else { 0 };
            let to = if page == last.page { last.bit } else { BLOCKS - 1 };
            blocks & (u64::MAX << from) & (u64::MAX >> (BLOCKS - 1 - to)) != 0
        });
        is_recorded || self.ranges.overlaps(range)
    }
}

/// Blocks with recorded addresses, by page; `None` if there are too many.
#[derive(Debug)]
struct Pages {
    blocks: Option<HashMap<u64, u64>>,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            blocks: Some(HashMap::default()),
        }
    }
}

impl Pages {
    /// Adds blocks of a page. Returns all of its blocks.
    fn add(&mut self, page: u64, added: u64) -> u64 {
        let Some(blocks) = &mut self.blocks else {
            return added;
        };
        let of_page = blocks.entry(page).or_default();
        *of_page |= added;
        let all = *of_page;
        if blocks.len() > MAX_PAGES {
            self.blocks = None;
        }
        all
    }

    /// Adds all blocks of others.
    fn merge(&mut self, other: Self) {
        let Some(others) = other.blocks else {
            self.blocks = None;
            return;
        };
        for (page, blocks) in others {
            self.add(page, blocks);
        }
    }
}

/// Pages seen last, by the low bits of their number.
const RECENT: usize = 256;

/// Collects the addresses in some of the records.
struct Collector<'a> {
    code: &'a RangeSet,
    bounds: AddressRange,
    pages: Pages,
    /// Recent pages with the blocks that need not be added again.
    recent: [(u64, u64); RECENT],
}

impl<'a> Collector<'a> {
    fn new(code: &'a RangeSet, bounds: AddressRange) -> Self {
        Self {
            code,
            bounds,
            pages: Pages::default(),
            recent: [(0, 0); RECENT],
        }
    }

    /// Adds the addresses in a record.
    fn add(&mut self, profile: &Profile<'_>, record: Record<'_>) {
        let Profile { attrs, endian, .. } = profile;
        match record.kind {
            record::SAMPLE => {
                let Some(attr) = attrs.event_of(&record, *endian) else {
                    return;
                };
                let sample = Sample::parse(&record, attr, *endian);
                let branches = sample.branches.iter();
                let others = branches.chain(sample.registers.iter()).chain(sample.stack.iter());
                for address in sample
                    .ip
                    .into_iter()
                    .chain(sample.chain_addresses())
                    .chain(others)
                {
                    self.add_address(address);
                }
            }
            record::CALLCHAIN_DEFERRED => {
                for address in deferred_callers(&record, *endian) {
                    self.add_address(address);
                }
            }
            _ => {}
        }
    }

    /// Adds an address, unless it was added recently or is outside of all code.
    #[inline]
    fn add_address(&mut self, address: Address) {
        // The end is the return address of a call at the end of the code.
        if address < self.bounds.start || self.bounds.end < address {
            return;
        }
        let Block { page, bit } = Block::of(address);
        let recent = self.recent.get(page as usize % RECENT);
        if recent.is_none_or(|&(recent, known)| recent != page || known & 1 << bit == 0) {
            self.add_new(page, 1 << bit);
        }
    }

    /// Adds a block of a page, if code is near that page.
    fn add_new(&mut self, page: u64, block: u64) {
        let start = Address(page << 12);
        let known = if self.code.is_near(start, 1 << 12) {
            self.pages.add(page, block)
        } else {
            u64::MAX
        };
        if let Some(recent) = self.recent.get_mut(page as usize % RECENT) {
            *recent = (page, known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::{Map, ProcessEvent, Processes};
    use crate::code::timeline::{
        CodeMapping, FileIndex, FunctionId, Lookup, PlacedCode, PlacedEvent, Timeline,
    };
    use crate::perf::process_records::Backing;
    use crate::units::Pid;
    use jitdump::Time;
    use proptest::prelude::*;
    use std::ops::Range;

    fn range(start: u64, size: u64) -> AddressRange {
        AddressRange::new(Address(start), size).unwrap()
    }

    fn of_addresses(addresses: &[u64]) -> RecordedAddresses {
        let mut pages = Pages::default();
        for block in addresses.iter().map(|&address| Block::of(Address(address))) {
            pages.add(block.page, 1 << block.bit);
        }
        let mut pages: Vec<_> = pages.blocks.unwrap().into_iter().collect();
        pages.sort_unstable();
        RecordedAddresses {
            pages,
            ranges: RangeSet::default(),
        }
    }

    proptest! {
        #[test]
        fn lookups_at_recorded_addresses_need_no_other_functions(
            loads in prop::collection::vec((0u64..100, 1u32..3, 0u64..0x4000, 1u64..0x400), 1..60),
            recorded in prop::collection::vec(0u64..0x5000, 1..8),
        ) {
            let map = |pid, time, start, backing| ProcessEvent::Map(Pid(pid), Map::private(time, range(start, 0x1000), backing));
            let processes = Processes::new(vec![
                map(1, 5, 0x1000, Backing::Anonymous),
                ProcessEvent::Fork { child: Pid(2), parent: Pid(1), time: Time(30) },
                map(1, 60, 0x2000, Backing::File),
                map(2, 70, 0x3000, Backing::Anonymous),
            ]);
            let addresses = of_addresses(&recorded);
            let (mut all, mut few) = (PlacedCode::default(), PlacedCode::default());
            for (number, &(time, pid, start, size)) in (0..).zip(&loads) {
                let Some(space) = processes.space_at(Pid(pid), Time(time)) else {
                    continue;
                };
                let event = PlacedEvent {
                    time: Time(time),
                    space,
                    function: FunctionId { file: FileIndex(0), function: number },
                    range: Some(range(start, size)),
                    left: None,
                };
                all.add(event);
                if addresses.may_be_in(range(start, size)) {
                    few.add(event)
                } else {
                    few.add_addresses(&event)
                }
            }
            let [all, few] = [all, few].map(|code| Timeline::new(&processes, code));
            prop_assert!(few.mappings.len() <= all.mappings.len());
            for (space, _) in processes.iter() {
                prop_assert_eq!(all.code_bounds(space), few.code_bounds(space));
                for address in recorded.iter().flat_map(|&at| [at, at.saturating_sub(1)]).map(Address) {
                    prop_assert_eq!(all.ever_has_code(space, address), few.ever_has_code(space, address));
                    prop_assert_eq!(all.may_be_jit(space, address), few.may_be_jit(space, address));
                    for time in (0..110).step_by(5).map(Time) {
                        let found = [&all, &few].map(|timeline| match timeline.at(space, address, time) {
                            Lookup::Function(at) => {
                                let CodeMapping { function, space, range, since, .. } = timeline.mappings[at];
                                Ok((function, space, range, since))
                            }
                            other => Err(other),
                        });
                        prop_assert_eq!(found[0], found[1]);
                        let later = [&all, &few].map(|timeline| timeline.has_later_code(space, address, time));
                        prop_assert_eq!(later[0], later[1]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_range_has_the_blocks_of_its_addresses_and_of_its_end() {
        let mut recorded = RecordedAddresses {
            pages: vec![(0x10, 1 << 2), (0x12, 1 << 63)],
            ranges: RangeSet::default(),
        };
        let may_be_in =
            |recorded: &RecordedAddresses, start, end: u64| recorded.may_be_in(range(start, end - start));
        for (start, end, expected) in [
            (0x1_0000, 0x1_007f, false),
            (0x1_0000, 0x1_0080, true),
            (0x1_00bf, 0x1_00d0, true),
            (0x1_00c0, 0x1_2fbf, false),
            (0x1_00c0, 0x1_2fc0, true),
            (0x1_0000, 0x1_8000, true),
            (0x1_1000, 0x1_8000, true),
            (0x1_2fff, 0x1_8000, true),
            (0x1_3000, 0x1_8000, false),
            (0x0_0000, 0x0_8000, false),
        ] {
            assert_eq!(may_be_in(&recorded, start, end), expected, "{start:#x}..{end:#x}");
        }
        recorded.insert(range(0x1_4000, 0x10));
        assert!(may_be_in(&recorded, 0x1_3000, 0x1_8000));
        assert!(!may_be_in(&recorded, 0x1_4010, 0x1_8000));
    }

    #[test]
    fn addresses_of_262_144_pages_are_kept_and_of_more_pages_none() {
        let pages = |pages: Range<u64>| {
            let mut all = Pages::default();
            pages.for_each(|page| {
                all.add(page, 1);
            });
            all
        };
        let mut all = pages(0..262_144);
        all.merge(pages(1000..1010));
        assert_eq!(all.blocks.as_ref().map(HashMap::len), Some(262_144));
        all.merge(pages(262_144..262_145));
        assert_eq!(all.blocks, None);
        all.merge(pages(0..1));
        assert_eq!(all.blocks, None, "other functions may be needed as well");
    }
}
