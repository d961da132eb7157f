//! Where code lies: pieces of calls (`.debug_ranges`, `.debug_rnglists`), and units (`.debug_aranges`).

use std::ops::Range;

use gimli::constants as dw;

use crate::elf::dwarf::{Settings, Version, leb128, put_address};

/// Appends the ranges of a call, in bytes from the start of its unit's code; returns their offset.
pub fn put_list(out: &mut Vec<u8>, ranges: &[Range<u32>], settings: &Settings<'_>) -> u32 {
    let machine = settings.machine;
    match settings.version {
        Version::Four => {
            let offset = out.len() as u32;
            for range in ranges {
                put_address(out, range.start.into(), machine);
                put_address(out, range.end.into(), machine);
            }
            put_address(out, 0, machine);
            put_address(out, 0, machine);
            offset
        }
        Version::Five => {
            if out.is_empty() {
                put_lists_header(out, settings);
            }
            let offset = out.len() as u32;
            for range in ranges {
                out.push(dw::DW_RLE_offset_pair.0);
                leb128::put_unsigned(out, range.start.into());
                leb128::put_unsigned(out, range.end.into());
            }
            out.push(dw::DW_RLE_end_of_list.0);
            offset
        }
    }
}

/// Appends what stands before all lists of a section: all units share one table.
fn put_lists_header(out: &mut Vec<u8>, settings: &Settings<'_>) {
    const SEGMENT_SIZE: u8 = 0;
    const OFFSET_COUNT: u32 = 0;
    let order = settings.machine.order;
    order.put_u32(out, 0);
    order.put_u16(out, settings.version.number());
    out.extend_from_slice(&[settings.machine.address_size() as u8, SEGMENT_SIZE]);
    order.put_u32(out, OFFSET_COUNT);
}

/// Writes the size of the lists where it belongs, when all are there.
pub fn finish_lists(out: &mut [u8], settings: &Settings<'_>) {
    if settings.version == Version::Five {
        settings.machine.order.set_length(out, 0);
    }
}

/// Appends where the code of a unit lies. `unit` is the unit's offset in `.debug_info`.
pub fn put_code(out: &mut Vec<u8>, unit: u32, address: u64, size: u32, settings: &Settings<'_>) {
    const VERSION: u16 = 2;
    const SEGMENT_SIZE: u8 = 0;
    let machine = settings.machine;
    let order = machine.order;
    let address_size = machine.address_size() as usize;
    let start = out.len();
    order.put_u32(out, 0);
    order.put_u16(out, VERSION);
    order.put_u32(out, unit);
    out.extend_from_slice(&[address_size as u8, SEGMENT_SIZE]);
    // The header ends where the first pair is aligned; there is that pair, and one of zeros.
    let pair = address_size.saturating_mul(2);
    out.resize(start.saturating_add(12usize.next_multiple_of(pair)), 0);
    for number in [address, size.into(), 0, 0] {
        put_address(out, number, machine);
    }
    order.set_length(out, start);
}
