//! Writes the address ranges of calls (`.debug_ranges`, `.debug_rnglists`) and of units (`.debug_aranges`).

use std::ops::Range;

use gimli::constants as dw;

use crate::elf::dwarf::{Settings, Version, leb128, write_address};

/// Appends the ranges of a call, in bytes from the start of its unit's code; returns their offset.
pub fn write_range_list(out: &mut Vec<u8>, ranges: &[Range<u32>], settings: &Settings<'_>) -> u32 {
    let machine = settings.machine;
    match settings.version {
        Version::Four => {
            let offset = out.len() as u32;
            for range in ranges {
                write_address(out, range.start.into(), machine);
                write_address(out, range.end.into(), machine);
            }
            write_address(out, 0, machine);
            write_address(out, 0, machine);
            offset
        }
        Version::Five => {
            if out.is_empty() {
                write_rnglists_header(out, settings);
            }
            let offset = out.len() as u32;
            for range in ranges {
                out.push(dw::DW_RLE_offset_pair.0);
                leb128::write_unsigned(out, range.start.into());
                leb128::write_unsigned(out, range.end.into());
            }
            out.push(dw::DW_RLE_end_of_list.0);
            offset
        }
    }
}

/// Appends the header for all lists of a section; all units share one table.
fn write_rnglists_header(out: &mut Vec<u8>, settings: &Settings<'_>) {
    const SEGMENT_SIZE: u8 = 0;
    const OFFSET_COUNT: u32 = 0;
    let endian = settings.machine.endian;
    endian.write_u32(out, 0);
    endian.write_u16(out, settings.version.to_u16());
    out.extend_from_slice(&[settings.machine.address_size() as u8, SEGMENT_SIZE]);
    endian.write_u32(out, OFFSET_COUNT);
}

/// Writes the size of the lists into the header, once they are complete.
pub fn finish_range_lists(out: &mut [u8], settings: &Settings<'_>) {
    if settings.version == Version::Five {
        settings.machine.endian.set_length(out, 0);
    }
}

/// Appends the address range of a unit; `unit` is its offset in `.debug_info`.
pub fn write_unit_range(out: &mut Vec<u8>, unit: u32, address: u64, size: u32, settings: &Settings<'_>) {
    const VERSION: u16 = 2;
    const SEGMENT_SIZE: u8 = 0;
    let machine = settings.machine;
    let endian = machine.endian;
    let address_size = machine.address_size() as usize;
    let start = out.len();
    endian.write_u32(out, 0);
    endian.write_u16(out, VERSION);
    endian.write_u32(out, unit);
    out.extend_from_slice(&[address_size as u8, SEGMENT_SIZE]);
    // The header is padded to the alignment of the first pair. There is one pair, and a terminating pair of zeros.
    let pair = address_size.saturating_mul(2);
    out.resize(start.saturating_add(12usize.next_multiple_of(pair)), 0);
    for word in [address, size.into(), 0, 0] {
        write_address(out, word, machine);
    }
    endian.set_length(out, start);
}
