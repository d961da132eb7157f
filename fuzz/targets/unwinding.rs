//! Arbitrary unwinding tables, read and rebuilt: gimli reads back the same entries, and finds each of them with
//! the index.

use jitdump::internals::format::unwinding::Unwinding;
use jitdump::{Address, AddressRange};
use jitinject::internals::elf::eh_frame::{EhFrame, FdeIndex, TableLayout, UnwindTables};
use jitinject::internals::elf::object::TEXT_OFFSET;
use jitinject_fuzz::choices::Choices;
use jitinject_fuzz::read_back::{self, TableEntry, TablePlace};

const CODE: u64 = 0x1000_0000;
/// Address that the code is moved to, and offset of the tables from there.
const BASE: u64 = 0x3000_0000;
const DISTANCE: u64 = 0x2_0000;

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let endian = choices.endian();
    let address_size = if choices.flag() { 4 } else { 8 };
    let size = 1 + u64::from(choices.u16());
    let content = choices.rest();
    let _ = Unwinding::parse(content, endian);
    let section = content;
    let code = AddressRange::new(Address(CODE), size).unwrap();
    // The address that perf uses.
    let address = Address(code.start.0 + size.next_multiple_of(8));
    let entries = FdeIndex::read(EhFrame {
        section,
        address,
        endian,
        address_size,
    });
    let mut wanted: Vec<AddressRange> = entries.overlapping(code).map(|entry| entry.range).collect();
    wanted.reverse();
    assert!(wanted.is_sorted_by(|a, b| a.end <= b.start));
    let lay_out = |base: u64| {
        let placed = entries
            .overlapping(code)
            .map(|entry| (entry, moved(entry.range.start.0, base)));
        let layout = TableLayout {
            eh_frame: base + DISTANCE,
            endian,
            address_size,
        };
        UnwindTables::build(placed, layout)
    };
    let Some(tables) = lay_out(BASE) else {
        return;
    };
    assert_eq!(tables.entries, wanted.len());
    // In objects, addresses below the code's start wrap around.
    let at_start = lay_out(TEXT_OFFSET).expect("all depends on distances alone");
    assert_eq!(tables.bytes, at_start.bytes);
    let place = TablePlace {
        eh_frame: BASE + DISTANCE,
        endian,
        address_size: address_size as u8,
    };
    let written = read_back::entries(&tables.bytes[..tables.eh_frame_size], place);
    // Copied instructions may have integers that gimli finds too large, and augmentations that it does not support
    // (AArch64's signed pointers and tagged memory).
    let is_too_much = |error: &gimli::Error| {
        use gimli::Error::{BadSignedLeb128, BadUnsignedLeb128, UnknownAugmentation, UnsupportedRegister};
        match error {
            BadUnsignedLeb128 | BadSignedLeb128 | UnsupportedRegister(_) => true,
            UnknownAugmentation => section.iter().any(|byte| b"BG".contains(byte)),
            _ => false,
        }
    };
    if written.iter().any(|entry| entry.as_ref().is_err_and(is_too_much)) {
        return;
    }
    let mut written: Vec<TableEntry> = written.into_iter().map(Result::unwrap).collect();
    written.sort_by_key(|entry| entry.start);
    let places: Vec<(u64, u64)> = written.iter().map(|entry| (entry.start, entry.size)).collect();
    let expected = wanted
        .iter()
        .map(|range| (moved(range.start.0, BASE), range.size()));
    assert_eq!(places, expected.collect::<Vec<_>>());
    if !written.is_empty() {
        read_back::check_index(&tables, place, &written);
    }
    check_instructions(
        section,
        TablePlace {
            eh_frame: address.0,
            ..place
        },
        &written,
    );
}

/// Returns an address after the code has been moved to `base`.
fn moved(address: u64, base: u64) -> u64 {
    base.wrapping_add(address.wrapping_sub(CODE))
}

/// Returns whether instructions contain absolute addresses. Such an entry can't be moved and is left out, so that
/// another entry for the same range, after it, is used instead.
fn is_bound(entry: &TableEntry) -> bool {
    let mut instructions = entry.instructions.iter();
    instructions.any(|instruction| instruction.contains("SetLoc"))
}

/// Checks that entries that gimli reads at the original address have the same instructions at the new one.
fn check_instructions(section: &[u8], place: TablePlace, written: &[TableEntry]) {
    let before: Vec<TableEntry> = read_back::entries(section, place).into_iter().flatten().collect();
    for entry in written {
        let start = CODE.wrapping_add(entry.start.wrapping_sub(BASE));
        let mut same_place = before
            .iter()
            .filter(|it| (it.start, it.size) == (start, entry.size) && !is_bound(it))
            .peekable();
        if same_place.peek().is_some() {
            assert!(
                same_place.any(|it| it.instructions == entry.instructions),
                "{entry:?} {before:?}"
            );
        }
    }
}
