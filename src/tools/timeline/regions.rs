//! Divides the code of a process into regions of close addresses.
//!
//! A process can have code at few addresses across most of its address space.

use jitdump::{Address, AddressRange};

use crate::collections::range_map::merged;

/// Gaps smaller than this are never cut, in bytes: one page.
const MIN_GAP: u64 = 4096;

/// Gaps larger than this are always cut, in bytes, so that JavaScript's numbers are exact within a region: 2^53 bytes
/// are two million functions, each with such a gap.
const MAX_GAP: u64 = 1 << 32;

/// Maximum number of regions of a process without larger gaps; more are not distinguishable.
const MAX_REGIONS: usize = 64;

/// Returns the regions that contain all of `ranges`, by address.
pub fn regions(ranges: Vec<AddressRange>) -> Vec<AddressRange> {
    let covered = merged(ranges, |end, start| start <= end);
    let least = least_gap(&covered);
    merged(covered, |end, start| gap(end, start) < least)
}

/// Returns the size from which on gaps between `covered` addresses are cut, so that only the largest ones are.
fn least_gap(covered: &[AddressRange]) -> u64 {
    let neighbours = covered.iter().zip(covered.iter().skip(1));
    let mut gaps: Vec<u64> = neighbours
        .map(|(one, next)| gap(one.end, next.start))
        .filter(|&gap| gap >= MIN_GAP)
        .collect();
    gaps.sort_unstable_by(|one, other| other.cmp(one));
    match gaps.get(MAX_REGIONS - 1) {
        // Only larger gaps are cut, so the number of regions stays within the limit.
        Some(largest_kept) => largest_kept.saturating_add(1).min(MAX_GAP),
        None => MIN_GAP,
    }
}

fn gap(end: Address, start: Address) -> u64 {
    start.0.saturating_sub(end.0)
}

/// Returns the region that contains an address, with its index.
pub fn find(regions: &[AddressRange], address: Address) -> Option<(usize, AddressRange)> {
    let after = regions.partition_point(|region| region.start <= address);
    let at = after.checked_sub(1)?;
    let region = regions.get(at).filter(|region| region.contains(address))?;
    Some((at, *region))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, size: u64) -> AddressRange {
        AddressRange::new(Address(start), size).unwrap()
    }

    #[test]
    fn code_that_lies_close_together_is_one_region() {
        let found = regions(vec![
            range(0x7f00_0000_1000, 64),
            range(0x1000, 0x100),
            range(0x10c0, 0x100),
            range(0x1fff, 1),
        ]);
        assert_eq!(found, [range(0x1000, 0x1000), range(0x7f00_0000_1000, 64)]);
        assert_eq!(find(&found, Address(0x1fff)), Some((0, found[0])));
        assert_eq!(find(&found, Address(0x2000)), None);
        assert_eq!(find(&found, Address(0x7f00_0000_1001)), Some((1, found[1])));
    }

    #[test]
    fn gaps_of_less_than_a_page_are_in_a_region() {
        let with_gap = |gap: u64| regions(vec![range(0x1000, 64), range(0x1040 + gap, 64)]).len();
        assert_eq!([4095, 4096].map(with_gap), [1, 2]);
    }

    #[test]
    fn there_are_no_more_regions_than_can_be_told_apart() {
        let far_apart = (1..=1000).map(|at| range(at * at * 0x10000, 64)).collect();
        let found = regions(far_apart);
        assert_eq!(found.len(), 64);
        let with_gaps = |size: u64| regions((1..=1000u64).map(|at| range(at * size, 64)).collect()).len();
        assert_eq!(with_gaps((1 << 32) + 64), 1000);
        assert_eq!(with_gaps((1 << 32) + 63), 1);
        assert!(regions(Vec::new()).is_empty());
    }
}
