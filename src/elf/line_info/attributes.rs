//! Attributes of entries: names, numbers, addresses, paths.

use std::ops::Range;

use gimli::constants as dw;
use gimli::{Attribute, AttributeValue, Result, UnitRef};

use crate::elf::line_info::counted_reader::CountedReader;

/// Returns a name; empty if it is in a supplementary file that is missing.
pub fn name<'a, 'c>(
    unit: UnitRef<'_, CountedReader<'a, 'c>>,
    value: AttributeValue<CountedReader<'a, 'c>>,
) -> Result<&'a [u8]> {
    match value {
        AttributeValue::DebugStrRefSup(_) if unit.dwarf.sup().is_none() => Ok(&[]),
        value => Ok(unit.attr_string(value)?.bytes()),
    }
}

/// Returns the addresses of an entry's code.
pub fn ranges<'a, 'c>(
    unit: UnitRef<'_, CountedReader<'a, 'c>>,
    attributes: &[Attribute<CountedReader<'a, 'c>>],
) -> Result<Vec<Range<u64>>> {
    let (mut low, mut high, mut size) = (None, None, None);
    let mut ranges = Vec::new();
    for attribute in attributes {
        match (attribute.name(), attribute.value()) {
            (dw::DW_AT_low_pc, value) => low = unit.attr_address(value)?,
            (dw::DW_AT_high_pc, AttributeValue::Udata(value)) => size = Some(value),
            (dw::DW_AT_high_pc, value) => high = unit.attr_address(value)?,
            (dw::DW_AT_ranges, value) => {
                let mut list = unit.attr_ranges(value)?;
                // An entry has one list. Any number of attributes could name a long one.
                ranges.clear();
                while let Some(range) = list.as_mut().map_or(Ok(None), |list| list.next())? {
                    ranges.push(range.begin..range.end);
                }
            }
            _ => {}
        }
    }
    if let Some(low) = low.filter(|_| ranges.is_empty()) {
        let end = size.and_then(|size| low.checked_add(size)).or(high);
        ranges.extend(end.map(|end| low..end));
    }
    // Linkers give functions that they leave out (`--gc-sections`) the address 0.
    ranges.retain(|range| !range.is_empty() && range.start > 0);
    Ok(ranges)
}

/// Returns a number; 0 if it is not one.
pub fn number(attribute: &Attribute<CountedReader<'_, '_>>) -> u32 {
    let number = attribute.udata_value().unwrap_or(0);
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Appends a part to a path. `.` is the folder of an unknown build.
pub fn join(path: &mut Vec<u8>, part: &[u8]) {
    if part.starts_with(b"/") {
        path.clear();
    } else if !path.is_empty() && !path.ends_with(b"/") && !part.is_empty() {
        path.push(b'/');
    }
    if part != b"." {
        path.extend_from_slice(part);
    }
}
