//! Makes unwind tables for unit tests.

use jitdump::{Address, ByteOrder};

use crate::elf::call_frames::{CallFrames, FrameSection, SectionKind};
use crate::elf::limited_reads::MemoryRoom;

/// Start of the code.
pub const START: u64 = 0x1000;

/// Returns rules for x86-64: a section with one entry for 0x100 bytes from [`START`], with these instructions.
pub fn frames(instructions: &[u8]) -> CallFrames {
    frames_after(16, instructions)
}

/// As [`frames`], with a common part of this size.
pub fn frames_after(cie_size: usize, instructions: &[u8]) -> CallFrames {
    let endian = ByteOrder::Little;
    let mut bytes = Vec::new();
    // CIE: version 1, no augmentation, factors 1 and -8, return address in column 16; CFA is rsp + 8, return address
    // at CFA - 8
    let mut cie = vec![1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1];
    cie.resize(cie_size - 4, 0);
    endian.write_u32(&mut bytes, 4 + cie.len() as u32);
    endian.write_u32(&mut bytes, 0);
    bytes.extend_from_slice(&cie);
    endian.write_u32(&mut bytes, 20 + instructions.len() as u32);
    let back = bytes.len() as u32;
    endian.write_u32(&mut bytes, back);
    endian.write_u64(&mut bytes, START);
    endian.write_u64(&mut bytes, 0x100);
    bytes.extend_from_slice(instructions);
    let section = FrameSection {
        kind: SectionKind::EhFrame,
        bytes,
        address: Address(0x5000),
        text: Address(0),
    };
    CallFrames::read(section, None, &MemoryRoom::default().file()).unwrap()
}
