//! The ends of mappings.

use jitdump::AddressRange;

use crate::code::timeline::FreedRange;
use crate::collections::range_map::RangeSet;
use crate::inject::objects::PlacedObject;

/// Smallest size of a page, in bytes.
const PAGE: u64 = 4096;

/// Lets the mapping of each object include the address after its code, unless something else is there.
///
/// Quirk: a call that never returns may be the last instruction of a function. perf with libdw (6.12, 7.3) looks up its return
/// address, and loses the stack if no object is there, or the wrong one.
///
/// The address is on the page of the last instruction, so no other memory is there.
pub fn include_ends(placed: &mut [PlacedObject], freed: &[FreedRange]) {
    let mut used = RangeSet::with_gap(0);
    let ranges = placed.iter().flat_map(|object| {
        let tables = object.tables.map(|(range, _)| range);
        std::iter::once(object.range).chain(tables)
    });
    let freed = freed.iter().map(|freed| freed.range);
    ranges.chain(freed).for_each(|range| used.insert(range));
    for object in placed {
        let end = AddressRange::new(object.range.end, 1);
        let is_free = |end: &AddressRange| !end.start.0.is_multiple_of(PAGE) && !used.overlaps(*end);
        if let Some(end) = end.filter(is_free) {
            object.range.end = end.end;
        }
    }
}
