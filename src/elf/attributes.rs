//! Which instructions a machine has, for the disassemblers that ask.
//!
//! LLVM's disassembler takes ARM code for that of ARMv4, which has no `bx`, and RISC-V code for that of a
//! machine without multiplication and floating point, unless a section says otherwise. So the objects of
//! these two machines name everything that is in common use: it matters only what is missing.
//!
//! The format of the section is that of the "Addenda to, and Errata in, the ABI for the Arm Architecture",
//! which the RISC-V psABI took over.

use object::elf;

use crate::bytes::ByteOrder;
use crate::machine::Machine;

/// A section with attributes: its name, its type and its content.
pub type Section = (&'static str, elf::SectionType, Vec<u8>);

/// The value of an attribute.
enum Value {
    Number(u8),
    Text(&'static str),
}

/// Attributes of ARM: tags and numbers, each below 128.
const ARM: [(u8, Value); 7] = [
    // Tag_CPU_arch: ARMv8
    (6, Value::Number(14)),
    // Tag_CPU_arch_profile: application
    (7, Value::Number(b'A')),
    // Tag_ARM_ISA_use, Tag_THUMB_ISA_use: all of both
    (8, Value::Number(1)),
    (9, Value::Number(2)),
    // Tag_FP_arch, Tag_Advanced_SIMD_arch: those of ARMv8
    (10, Value::Number(7)),
    (12, Value::Number(3)),
    // Tag_DIV_use: also where the architecture leaves division open
    (44, Value::Number(2)),
];

/// Tag_RISCV_arch. LLVM 16 and before know these versions only.
const RISCV_ARCH: u8 = 5;
const RISCV_64: &str = "rv64i2p0_m2p0_a2p0_f2p0_d2p0_c2p0_v1p0_zba1p0_zbb1p0_zbc1p0_zbs1p0";
const RISCV_32: &str = "rv32i2p0_m2p0_a2p0_f2p0_d2p0_c2p0_v1p0_zba1p0_zbb1p0_zbc1p0_zbs1p0";

/// The section of a machine that has one.
pub fn section(machine: Machine) -> Option<Section> {
    let order = machine.order;
    match machine.number {
        elf::EM_ARM => Some((
            ".ARM.attributes",
            elf::SHT_ARM_ATTRIBUTES,
            encode("aeabi", &ARM, order),
        )),
        elf::EM_RISCV => {
            let arch = if machine.is_64 { RISCV_64 } else { RISCV_32 };
            let attributes = [(RISCV_ARCH, Value::Text(arch))];
            let content = encode("riscv", &attributes, order);
            Some((".riscv.attributes", elf::SHT_RISCV_ATTRIBUTES, content))
        }
        _ => None,
    }
}

/// One vendor's attributes of the whole file.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "all attributes are constants, a hundred bytes together"
)]
fn encode(vendor: &str, attributes: &[(u8, Value)], order: ByteOrder) -> Vec<u8> {
    const VERSION: u8 = b'A';
    const TAG_FILE: u8 = 1;
    let mut file = Vec::new();
    for (tag, value) in attributes {
        file.push(*tag);
        match value {
            Value::Number(number) => file.push(*number),
            Value::Text(text) => put_text(&mut file, text),
        }
    }
    // Sizes count themselves and what stands before them.
    let file_size = 1 + 4 + file.len() as u32;
    let vendor_size = 4 + vendor.len() as u32 + 1 + file_size;
    let mut out = vec![VERSION];
    order.put_u32(&mut out, vendor_size);
    put_text(&mut out, vendor);
    out.push(TAG_FILE);
    order.put_u32(&mut out, file_size);
    out.extend_from_slice(&file);
    out
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}
