//! Unwinding tables.

use jitdump::{Address, AddressRange, ByteOrder};
use jitinject::internals::elf::eh_frame::{EhFrame, FdeIndex, TableLayout, UnwindTables};

/// Returns an `.eh_frame` with an entry for each range, given as absolute start address and size.
fn eh_frame(ranges: &[(u64, u64)]) -> Vec<u8> {
    let endian = ByteOrder::Little;
    let mut out = Vec::new();
    // CIE: version 1, no augmentation, factors 1 and -8, return address in column 16
    let cie = [1, 0, 1, 0x78, 16, 0, 0, 0];
    endian.write_u32(&mut out, 4 + cie.len() as u32);
    endian.write_u32(&mut out, 0);
    out.extend_from_slice(&cie);
    for &(start, size) in ranges {
        endian.write_u32(&mut out, 20);
        let back = out.len() as u32;
        endian.write_u32(&mut out, back);
        endian.write_u64(&mut out, start);
        endian.write_u64(&mut out, size);
    }
    out
}

/// A large CIE would be parsed again for each of its entries.
#[test]
fn an_entry_of_a_huge_cie_is_not_read() {
    let code = AddressRange::new(Address(0x1000), 0x100).unwrap();
    for (size, is_read) in [(512, true), (513, false), (100_000, false)] {
        let plain = eh_frame(&[(0x1000, 0x100)]);
        // Pads the CIE with no-ops, and adjusts the distance to it in its entry.
        let more = size - u32::from_le_bytes(plain[..4].try_into().unwrap());
        let mut section = size.to_le_bytes().to_vec();
        section.extend_from_slice(&plain[4..16]);
        section.resize(section.len() + more as usize, 0);
        section.extend_from_slice(&plain[16..20]);
        let back = u32::from_le_bytes(plain[20..24].try_into().unwrap()) + more;
        section.extend_from_slice(&back.to_le_bytes());
        section.extend_from_slice(&plain[24..]);
        let entries = FdeIndex::read(EhFrame {
            section: &section,
            address: Address(0x9000),
            endian: ByteOrder::Little,
            address_size: 8,
        });
        assert_eq!(entries.overlapping(code).count(), usize::from(is_read), "{size}");
    }
}

/// Sizes in the tables are signed 32-bit numbers.
#[test]
fn an_entry_for_2_gib_is_refused() {
    let code = AddressRange::new(Address(0x1000), 0x100).unwrap();
    for (size, fits) in [
        (i32::MAX as u64, true),
        (1 << 31, false),
        (u64::from(u32::MAX), false),
    ] {
        let section = eh_frame(&[(0x1000, size)]);
        let entries = FdeIndex::read(EhFrame {
            section: &section,
            address: Address(0x9000),
            endian: ByteOrder::Little,
            address_size: 8,
        });
        let placed = entries.overlapping(code).map(|entry| (entry, 0x40));
        let layout = TableLayout {
            eh_frame: 0x2000,
            endian: ByteOrder::Little,
            address_size: 8,
        };
        assert_eq!(UnwindTables::build(placed, layout).is_some(), fits, "{size:#x}");
    }
}

/// An entry may start before its function. The code of an object starts near address 0, so that start address wraps around;
/// only its distance from the code counts.
#[test]
fn an_entry_in_front_of_the_code_comes_first_in_the_index() {
    let section = eh_frame(&[(0x0ff0, 0x20), (0x1010, 0x10), (0x1080, 0x20)]);
    let entries = FdeIndex::read(EhFrame {
        section: &section,
        address: Address(0x9000),
        endian: ByteOrder::Little,
        address_size: 8,
    });
    let code = AddressRange::new(Address(0x1000), 0x100).unwrap();
    let laid_out = |base: u64| {
        let placed = entries.overlapping(code).map(|entry| {
            let distance = entry.range.start.0.wrapping_sub(code.start.0);
            (entry, base.wrapping_add(distance))
        });
        let layout = TableLayout {
            eh_frame: base + 0x2000,
            endian: ByteOrder::Little,
            address_size: 8,
        };
        UnwindTables::build(placed, layout).unwrap().bytes
    };
    assert_eq!(laid_out(0), laid_out(0x1_0000_0000));
}

/// Tables are laid out before their address is known.
#[test]
fn moved_tables_are_those_built_at_the_new_address() {
    let section = eh_frame(&[(0x0ff0, 0x20), (0x1010, 0x10), (0x1080, 0x20)]);
    let code = AddressRange::new(Address(0x1000), 0x100).unwrap();
    for endian in [ByteOrder::Little, ByteOrder::Big] {
        let entries = FdeIndex::read(EhFrame {
            section: &section,
            address: Address(0x9000),
            endian: ByteOrder::Little,
            address_size: 8,
        });
        let built = |eh_frame: u64| {
            let placed = entries.overlapping(code).map(|entry| {
                let distance = entry.range.start.0.wrapping_sub(code.start.0);
                (entry, distance.wrapping_add(0x40))
            });
            let layout = TableLayout {
                eh_frame,
                endian,
                address_size: 8,
            };
            UnwindTables::build(placed, layout)
        };
        let near = built(0x140).unwrap();
        for distance in [0, 0x10, 0x1000_0000, 0x7fff_fe00] {
            let moved = near.clone().moved(distance, endian).unwrap();
            let expected = built(0x140 + distance as u64).unwrap();
            assert_eq!(moved.bytes, expected.bytes, "{distance:#x}");
        }
        for distance in [0x7fff_ffff, 0x1_0000_0000, i64::MAX, i64::MIN] {
            assert!(near.clone().moved(distance, endian).is_none());
            assert!(built(0x140_u64.wrapping_add_signed(distance)).is_none());
        }
    }
}
