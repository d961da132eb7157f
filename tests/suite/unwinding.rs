//! Tables for unwinding.

use jitinject::bytes::ByteOrder;
use jitinject::elf::eh_frame::{EhFrame, Entries, TableLayout, Tables};
use jitinject::units::{Address, AddressRange};

/// An `.eh_frame` with an entry for each range of addresses, as they are.
fn eh_frame(ranges: &[(u64, u64)]) -> Vec<u8> {
    let order = ByteOrder::Little;
    let mut out = Vec::new();
    // CIE: version 1, no augmentation, factors 1 and -8, return address in column 16
    let cie = [1, 0, 1, 0x78, 16, 0, 0, 0];
    order.put_u32(&mut out, 4 + cie.len() as u32);
    order.put_u32(&mut out, 0);
    out.extend_from_slice(&cie);
    for &(start, size) in ranges {
        order.put_u32(&mut out, 20);
        let back = out.len() as u32;
        order.put_u32(&mut out, back);
        order.put_u64(&mut out, start);
        order.put_u64(&mut out, size);
    }
    out
}

/// A large CIE could be read again for each of many entries.
#[test]
fn an_entry_of_a_huge_cie_is_not_read() {
    let code = AddressRange::new(Address(0x1000), 0x100).unwrap();
    for (size, is_read) in [(512, true), (513, false), (100_000, false)] {
        let plain = eh_frame(&[(0x1000, 0x100)]);
        // The CIE grows by instructions that do nothing, and its entry is that much further from it.
        let more = size - u32::from_le_bytes(plain[..4].try_into().unwrap());
        let mut section = size.to_le_bytes().to_vec();
        section.extend_from_slice(&plain[4..16]);
        section.resize(section.len() + more as usize, 0);
        section.extend_from_slice(&plain[16..20]);
        let back = u32::from_le_bytes(plain[20..24].try_into().unwrap()) + more;
        section.extend_from_slice(&back.to_le_bytes());
        section.extend_from_slice(&plain[24..]);
        let entries = Entries::read(EhFrame {
            section: &section,
            address: Address(0x9000),
            order: ByteOrder::Little,
            address_size: 8,
        });
        assert_eq!(entries.of(code).count(), usize::from(is_read), "{size}");
    }
}

/// Sizes in the tables are 32 bits with a sign.
#[test]
fn an_entry_for_2_gib_is_refused() {
    let code = AddressRange::new(Address(0x1000), 0x100).unwrap();
    for (size, fits) in [
        (i32::MAX as u64, true),
        (1 << 31, false),
        (u64::from(u32::MAX), false),
    ] {
        let section = eh_frame(&[(0x1000, size)]);
        let entries = Entries::read(EhFrame {
            section: &section,
            address: Address(0x9000),
            order: ByteOrder::Little,
            address_size: 8,
        });
        let placed = entries.of(code).map(|entry| (entry, 0x40));
        let layout = TableLayout {
            eh_frame: 0x2000,
            order: ByteOrder::Little,
            address_size: 8,
        };
        assert_eq!(Tables::lay_out(placed, layout).is_some(), fits, "{size:#x}");
    }
}

/// An entry may start before its function does. In the object, whose code starts near address 0, there is no
/// such address; only its distance counts.
#[test]
fn an_entry_in_front_of_the_code_comes_first_in_the_index() {
    let section = eh_frame(&[(0x0ff0, 0x20), (0x1010, 0x10), (0x1080, 0x20)]);
    let entries = Entries::read(EhFrame {
        section: &section,
        address: Address(0x9000),
        order: ByteOrder::Little,
        address_size: 8,
    });
    let code = AddressRange::new(Address(0x1000), 0x100).unwrap();
    let laid_out = |base: u64| {
        let placed = entries.of(code).map(|entry| {
            let distance = entry.range.start.0.wrapping_sub(code.start.0);
            (entry, base.wrapping_add(distance))
        });
        let layout = TableLayout {
            eh_frame: base + 0x2000,
            order: ByteOrder::Little,
            address_size: 8,
        };
        Tables::lay_out(placed, layout).unwrap().bytes
    };
    assert_eq!(laid_out(0), laid_out(0x1_0000_0000));
}
