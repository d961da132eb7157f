use super::*;
use crate::elf::testing::{START, frames, frames_after};

#[test]
fn rules_are_those_of_the_last_row_before_an_address() {
    // advance 4; CFA is rsp + 16
    let frames = frames(&[0x44, 0x0e, 16]);
    let room = RuleRoom::default();
    let offset = |address| match frames.at(Address(address), &room)?.cfa {
        CfaRule::Register(7, offset) => Some(*offset),
        _ => None,
    };
    let found = [
        START - 1,
        START,
        START + 3,
        START + 4,
        START + 0xff,
        START + 0x100,
    ]
    .map(offset);
    assert_eq!(found, [None, Some(8), Some(8), Some(16), Some(16), None]);
    let rules = frames.at(Address(START), &room).unwrap();
    assert!(matches!(rules.registers, [(16, RegisterRule::Offset(-8))]));
    assert_eq!((rules.return_address, rules.is_signal), (16, false));
}

#[test]
fn registers_up_to_32_have_rules_and_others_have_none() {
    // Registers 32 and 33 are at CFA - 16.
    let frames = frames(&[0x80 | 32, 2, 0x80 | 33, 2]);
    let rules = frames.at(Address(START), &RuleRoom::default()).unwrap();
    let mut registers: Vec<u16> = rules.registers.iter().map(|(register, _)| *register).collect();
    registers.sort_unstable();
    assert_eq!(registers, [16, 32]);
}

#[test]
fn entries_have_rules_after_a_common_part_of_up_to_4096_bytes() {
    let room = RuleRoom::default();
    let has_rules = |cie_size| frames_after(cie_size, &[]).at(Address(START), &room).is_some();
    assert!(has_rules(4096));
    assert!(!has_rules(4097));
    assert!(frames_after(4097, &[]).is_empty());
}

#[test]
fn entries_beyond_the_limits_have_no_rules() {
    let room = RuleRoom::default();
    let has_rules = |instructions: &[u8], room| frames(instructions).at(Address(START), room).is_some();
    assert!(has_rules(&vec![0; (64 << 10) - 100], &room));
    assert!(!has_rules(&vec![0; 64 << 10], &room));
    // Rules for 30 registers, and as many rows as there is space for.
    let mut many: Vec<u8> = (0..30).flat_map(|register| [0x80 | register, 1]).collect();
    many.resize(many.len() + (256 << 10) / 40, 0x40);
    assert!(has_rules(&many, &room));
    many.resize(many.len() + (256 << 10) / 30, 0x40);
    assert!(!has_rules(&many, &room));
    // The value of a register is an expression of this size.
    let with_expression = |size: usize| {
        let mut instructions = vec![0x16, 3, (size & 0x7f) as u8 | 0x80, (size >> 7) as u8];
        instructions.resize(4 + size, 0x96);
        instructions
    };
    assert!(has_rules(&with_expression(256), &room));
    assert!(!has_rules(&with_expression(257), &room));
    assert!(!has_rules(&[], &RuleRoom(AtomicU64::new(1))), "there is no room");
    // An entry that exceeds a limit takes room, too.
    let room = RuleRoom(AtomicU64::new(300 << 10));
    assert!(frames(&many).at(Address(START), &room).is_none());
    assert!(room.0.load(Ordering::Relaxed) < (50 << 10));
}

/// As where the objects of several compilers were linked into one program.
#[test]
fn entries_after_a_common_part_of_an_unknown_version_are_found() {
    let mut section = frames(&[]).section;
    let entries = section.bytes.clone();
    let unknown = [8, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0];
    section.bytes.extend(unknown);
    section.bytes.extend(&entries);
    // An entry ends with its address and its size, in 8 bytes each.
    let address = section.bytes.len() - 16;
    section.bytes[address..][..8].copy_from_slice(&(START + 0x100).to_le_bytes());
    let frames = CallFrames::read(section, None, &MemoryRoom::default().file()).unwrap();
    assert!(frames.starts().eq([START, START + 0x100].map(Address)));
    let has_rules = |address| frames.at(Address(address), &RuleRoom::default()).is_some();
    assert!(has_rules(START + 0xff) && has_rules(START + 0x1ff));
}

/// Otherwise, all of them together could have the square of the section's size.
#[test]
fn overlapping_common_parts_are_read_up_to_eight_times_the_size_of_a_section() {
    const COUNT: u32 = 100;
    let mut bytes = Vec::new();
    for at in 0..COUNT {
        bytes.extend(20_u32.to_le_bytes());
        bytes.extend((COUNT * 24 + at * 13).to_le_bytes());
        bytes.extend((START + u64::from(at) * 16).to_le_bytes());
        bytes.extend(16_u64.to_le_bytes());
    }
    // Each extends over those after it: version 1, no augmentation.
    for _ in 0..COUNT {
        bytes.extend(2000_u32.to_le_bytes());
        bytes.extend([0xff, 0xff, 0xff, 0xff, 1, 0, 1, 1, 16]);
    }
    bytes.resize(bytes.len() + 2000, 0);
    assert_eq!(bytes.len() * 8 / 2000, 22);
    let section = FrameSection {
        kind: SectionKind::DebugFrame,
        bytes,
        address: Address(0),
        text: Address(0),
    };
    let found = section.scan(&MemoryRoom::default().file()).unwrap();
    assert_eq!(found.entries.len(), 22);
}

/// Returns how many of so many entries of an index stay that all lead to the same one.
fn indexed(count: u32) -> usize {
    let section = frames(&[0x44, 0x0e, 16]).section;
    // The first is the common part.
    let entry = 16 + 4;
    // Version 1; the address, the number of entries and these have 8, 4 and 4 bytes.
    let mut bytes = vec![1, 0x04, 0x03, 0x03];
    bytes.extend(section.address.0.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    for at in 0..count {
        bytes.extend((START as u32 + at).to_le_bytes());
        bytes.extend((section.address.0 as u32 + entry).to_le_bytes());
    }
    let header = FrameHeader {
        bytes,
        address: Address(0x8000),
    };
    let frames = CallFrames::read(section, Some(header), &MemoryRoom::default().file()).unwrap();
    frames.entries.len()
}

/// As in `.eh_frame_hdr` of a crafted file.
#[test]
fn entries_are_evaluated_for_up_to_eight_times_the_bytes_of_their_section() {
    assert_eq!(indexed(1), 1);
    // 39 of 47 bytes are read for each.
    assert_eq!(indexed(200), 9);
}
