//! Build attributes of ARM and RISC-V objects, from which disassemblers learn the instruction set.
//!
//! Without them, LLVM's disassembler assumes ARMv4, which has no `bx`, and RISC-V without multiplication and
//! floating point. So the objects of these two machines list every extension in common use; extra ones do no harm.
//!
//! The format is defined in "Addenda to, and Errata in, the ABI for the Arm Architecture"; the RISC-V psABI
//! adopted it.

use jitdump::{ByteOrder, Machine};
use object::elf;

/// Section name, type and content.
pub type AttributesSection = (&'static str, elf::SectionType, Vec<u8>);

/// Value of an attribute.
enum Value {
    Number(u8),
    Text(&'static str),
}

/// ARM attributes: tags and values, each below 128.
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
    // Tag_DIV_use: allowed even where the architecture leaves it optional
    (44, Value::Number(2)),
];

/// Tag_RISCV_arch. LLVM 16 and older accept only these extension versions.
const RISCV_ARCH: u8 = 5;
const RISCV_64: &str = "rv64i2p0_m2p0_a2p0_f2p0_d2p0_c2p0_v1p0_zba1p0_zbb1p0_zbc1p0_zbs1p0";
const RISCV_32: &str = "rv32i2p0_m2p0_a2p0_f2p0_d2p0_c2p0_v1p0_zba1p0_zbb1p0_zbc1p0_zbs1p0";

/// Returns the attributes section for a machine; `None` for machines other than ARM and RISC-V.
pub fn section(machine: Machine) -> Option<AttributesSection> {
    let endian = machine.endian;
    match machine.id {
        elf::EM_ARM => Some((
            ".ARM.attributes",
            elf::SHT_ARM_ATTRIBUTES,
            encode("aeabi", &ARM, endian),
        )),
        elf::EM_RISCV => {
            let arch = if machine.is_64 { RISCV_64 } else { RISCV_32 };
            let attributes = [(RISCV_ARCH, Value::Text(arch))];
            let content = encode("riscv", &attributes, endian);
            Some((".riscv.attributes", elf::SHT_RISCV_ATTRIBUTES, content))
        }
        _ => None,
    }
}

/// Encodes one vendor's attributes for the whole file.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "all attributes are constants, a hundred bytes together"
)]
fn encode(vendor: &str, attributes: &[(u8, Value)], endian: ByteOrder) -> Vec<u8> {
    const VERSION: u8 = b'A';
    const TAG_FILE: u8 = 1;
    let mut file = Vec::new();
    for (tag, value) in attributes {
        file.push(*tag);
        match value {
            Value::Number(number) => file.push(*number),
            Value::Text(text) => write_text(&mut file, text),
        }
    }
    // Each size includes the size field itself and what precedes it in its part.
    let file_size = 1 + 4 + file.len() as u32;
    let vendor_size = 4 + vendor.len() as u32 + 1 + file_size;
    let mut out = vec![VERSION];
    endian.write_u32(&mut out, vendor_size);
    write_text(&mut out, vendor);
    out.push(TAG_FILE);
    endian.write_u32(&mut out, file_size);
    out.extend_from_slice(&file);
    out
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}
