//! Disassembly of machine code, in the notation of objdump: AT&T's for x86.

use std::fmt::Write as _;

use iced_x86::{Code, Decoder, DecoderOptions, Formatter, GasFormatter, OpKind};
use jitdump::{ByteOrder, Machine};
use object::elf;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand};

/// Machines whose code is disassembled, for messages.
pub const MACHINES: &str = "x86-64, 32-bit x86 and AArch64";

/// A disassembler for one machine.
pub enum Disassembler {
    /// x86, with the number of bits of an address.
    X86(u32, Box<GasFormatter>),
    /// AArch64.
    Aarch64,
}

/// An instruction as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disassembled {
    /// The text.
    pub text: String,
    /// The address that it refers to, which is in the text as `0x1234` unless the text is relative to the instruction.
    pub target: Option<u64>,
}

impl Disassembler {
    /// Returns the disassembler for a machine; `None` if there is none.
    pub fn of(machine: Machine) -> Option<Self> {
        let bits = match machine.id {
            // Instructions of big-endian machines are little-endian, too.
            elf::EM_AARCH64 => return Some(Self::Aarch64),
            elf::EM_X86_64 => 64,
            elf::EM_386 => 32,
            _ => return None,
        };
        let mut formatter = Box::new(GasFormatter::new());
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_displacement_leading_zeros(false);
        options.set_rip_relative_addresses(true);
        options.set_space_after_operand_separator(false);
        (machine.endian == ByteOrder::Little).then_some(Self::X86(bits, formatter))
    }

    /// Returns the offsets of all instructions in a code.
    pub fn starts(&self, code: &[u8]) -> Vec<usize> {
        let Self::X86(bits, _) = self else {
            return (0..code.len()).step_by(4).collect();
        };
        let mut decoder = Decoder::new(*bits, code, DecoderOptions::NONE);
        let mut starts = Vec::new();
        while decoder.can_decode() {
            let start = decoder.position();
            starts.push(start);
            // As objdump, which tries again at the next byte.
            if decoder.decode().is_invalid() && decoder.set_position(start.saturating_add(1)).is_err() {
                break;
            }
        }
        starts
    }

    /// Returns the instruction at the start of `code`, which is at an address.
    pub fn instruction(&mut self, code: &[u8], address: u64) -> Disassembled {
        match self {
            Self::X86(bits, formatter) => x86(*bits, formatter, code, address),
            Self::Aarch64 => aarch64(code, address),
        }
    }
}

/// Decodes the instruction that `code` starts with. Returns its text and the address that it refers to, if there is
/// one.
fn x86(bits: u32, formatter: &mut GasFormatter, code: &[u8], address: u64) -> Disassembled {
    let mut decoder = Decoder::with_ip(bits, code, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let mut text = String::new();
    if instruction.code() == Code::INVALID {
        text.push_str("(bad)");
        return Disassembled { text, target: None };
    }
    formatter.format(&instruction, &mut text);
    let branch = |kind: OpKind| {
        matches!(
            kind,
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        )
    };
    let target = match instruction.op0_kind() {
        kind if branch(kind) => Some(instruction.near_branch_target()),
        _ if instruction.is_ip_rel_memory_operand() => Some(instruction.ip_rel_memory_address()),
        // Calls of JIT compilers to code that is far away.
        _ if instruction.op1_kind() == OpKind::Immediate64 => Some(instruction.immediate64()),
        _ => None,
    };
    Disassembled { text, target }
}

/// Disassembles an instruction of AArch64, or prints bytes that are none.
fn aarch64(code: &[u8], address: u64) -> Disassembled {
    let mut reader = U8Reader::new(code);
    let Ok(instruction) = InstDecoder::default().decode(&mut reader) else {
        let mut text = ".inst 0x".to_owned();
        for byte in code.iter().take(4).rev() {
            let _ = write!(text, "{byte:02x}");
        }
        return Disassembled { text, target: None };
    };
    let mut text = instruction.to_string();
    let offset = instruction.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(offset) => Some(*offset),
        _ => None,
    });
    let target = offset.map(|offset| match instruction.opcode {
        Opcode::ADRP => (address & !0xfff).wrapping_add_signed(offset),
        _ => address.wrapping_add_signed(offset),
    });
    if let (Some(target), Some(start)) = (target, text.rfind('$')) {
        text.truncate(start);
        let _ = write!(text, "{target:#x}");
    }
    Disassembled { text, target }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(machine: Machine, code: &[u8], address: u64) -> Vec<(usize, String, Option<u64>)> {
        let mut disassembler = Disassembler::of(machine).unwrap();
        let starts = disassembler.starts(code).into_iter();
        starts
            .map(|start| {
                let found = disassembler.instruction(&code[start..], address.wrapping_add(start as u64));
                (start, found.text, found.target)
            })
            .collect()
    }

    #[test]
    fn instructions_are_those_of_objdump() {
        let code = b"\x48\x8b\x47\x08\x48\xb8\x00\x10\x00\x00\x00\x7f\x00\x00\xff\xd0\x48\x8d\x05\x10\x00\x00\x00\x06\x74\xfe";
        let found = texts(Machine::X86_64, code, 0x1000);
        let found: Vec<_> = found
            .iter()
            .map(|(start, text, target)| (*start, &**text, *target))
            .collect();
        assert_eq!(
            found,
            [
                (0, "mov 0x8(%rdi),%rax", None),
                (4, "movabs $0x7f0000001000,%rax", Some(0x7f00_0000_1000)),
                (14, "call *%rax", None),
                (16, "lea 0x10(%rip),%rax", Some(0x1027)),
                (23, "(bad)", None),
                (24, "je 0x1018", Some(0x1018)),
            ]
        );
        // adrp, ldr, cbz, bl
        let words: [u32; 4] = [0xb000_0000, 0xf940_0401, 0xb4ff_ffe1, 0x9400_0100];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found = texts(Machine::AARCH64, &code, 0x1004);
        let found: Vec<_> = found.iter().map(|(_, text, target)| (&**text, *target)).collect();
        assert_eq!(
            found,
            [
                ("adrp x0, 0x2000", Some(0x2000)),
                ("ldr x1, [x0, #0x8]", None),
                ("cbz x1, 0x1008", Some(0x1008)),
                ("bl 0x1410", Some(0x1410)),
            ]
        );
        assert!(Disassembler::of(Machine::RISCV64).is_none());
    }

    #[test]
    fn any_bytes_are_instructions() {
        let mut state: u64 = 1;
        let code: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(1 << 16)
        .collect();
        for machine in [Machine::X86_64, Machine::X86, Machine::AARCH64] {
            let found = texts(machine, &code, u64::MAX - 100);
            assert!(found.windows(2).all(|two| two[0].0 < two[1].0));
            assert!(found.iter().all(|(_, text, _)| (1..200).contains(&text.len())));
        }
    }
}
