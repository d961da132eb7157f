//! Unwinding tables for functions that have none.
//!
//! Readers that unwind stacks follow the frame pointer through functions without tables. libunwind then has no stack pointer for
//! the caller, and loses all further ones whose tables need it; both libunwind and libdw skip the caller where the function has
//! no frame. On AArch64, perf also looks for the caller of sampled code in the link register, which most code has overwritten.

use gimli::constants as dw;
use jitdump::{AddressRange, ByteOrder, Machine};

use crate::elf::dwarf::leb128;
use crate::frames::unwind::frameless::{FramelessTop, Tops};
use crate::frames::unwind::registers::Target;

/// Maximum number of rows in a table. Functions have two for their start, and two for each return.
const MAX_ROWS: usize = 32;

/// Returns whether functions of a machine can get tables.
pub fn is_supported(machine: Machine) -> bool {
    Target::of(machine).is_some() && machine.is_64
}

/// Returns an `.eh_frame` section with an entry for a function, by its machine code. `None` for a function of x86-64 that does not
/// set up a frame: it may use the frame pointer for something else, or be entered by a jump.
pub fn eh_frame(machine: Machine, range: AddressRange, code: &[u8]) -> Option<Vec<u8>> {
    let target = Target::of(machine)?;
    let tops = Tops::of(target, code);
    if target == Target::X86_64 && !tops.has_frame {
        return None;
    }
    let mut section = Vec::new();
    entry(&mut section, |out| {
        out.extend_from_slice(&[0; 4]);
        // Version, no augmentation, alignment factors 1 and -8.
        out.extend_from_slice(&[1, 0, 1, 0x78]);
        out.push(column_of_return_address(target));
        write_rules(out, target, Some(FramelessTop::at_call(target)));
    })?;
    let start = range.start.0.to_le_bytes();
    let size = (code.len() as u64).to_le_bytes();
    let back = u32::try_from(section.len()).ok()?.checked_add(4)?;
    entry(&mut section, |out| {
        out.extend_from_slice(&back.to_le_bytes());
        out.extend_from_slice(&start);
        out.extend_from_slice(&size);
        let rows = &tops.rows;
        // The last row is for all of the rest.
        let last = match rows.get(..MAX_ROWS) {
            Some(rows) => rows.iter().rposition(|(_, top)| top.is_none()),
            None => rows.len().checked_sub(1),
        };
        let mut at = 0;
        for &(offset, top) in last.and_then(|last| rows.get(..=last)).unwrap_or_default() {
            let offset = offset as usize;
            advance(out, offset.saturating_sub(at));
            at = offset;
            write_rules(out, target, top);
        }
    })?;
    Some(section)
}

/// Appends an entry with its length.
fn entry(section: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Option<()> {
    let start = section.len();
    section.extend_from_slice(&[0; 4]);
    write(section);
    let length = section.len().checked_sub(start)?.checked_sub(4)?;
    ByteOrder::Little.set_u32(section, start, u32::try_from(length).ok()?);
    Some(())
}

/// DWARF number of the register, or column, of the return address.
fn column_of_return_address(target: Target) -> u8 {
    match target {
        Target::X86_64 => 16,
        Target::Aarch64 => 30,
    }
}

/// Where the return address of a frame is.
enum ReturnAddress {
    /// This many words below the CFA.
    Saved(u64),
    /// In a register.
    Register(u16),
}

/// The rules of a row.
struct RowRules {
    /// The register that the CFA is above.
    base: u16,
    /// The distance of the CFA from it, in bytes.
    distance: u64,
    /// How many words below the CFA the frame pointer of the caller is; `None` if it is in its register.
    frame_pointer: Option<u64>,
    return_address: ReturnAddress,
}

impl RowRules {
    /// Returns the rules for what is on top of the stack; `None` means a frame.
    fn of(target: Target, top: Option<FramelessTop>) -> Self {
        match top {
            // The frame pointer points to that of the caller, with the return address above it.
            None => Self {
                base: target.frame_pointer(),
                distance: 16,
                frame_pointer: Some(2),
                return_address: ReturnAddress::Saved(1),
            },
            Some(FramelessTop::ReturnAddress {
                offset,
                frame_pointer,
                removed,
            }) => {
                let removed = u64::from(removed);
                let distance = u64::from(offset).saturating_add(8).saturating_add(removed);
                let words_below = |at: u32| distance.saturating_sub(at.into()) / 8;
                Self {
                    base: target.stack_pointer(),
                    distance,
                    frame_pointer: frame_pointer.map(words_below),
                    return_address: ReturnAddress::Saved(removed / 8 + 1),
                }
            }
            Some(FramelessTop::Register { register, offset }) => Self {
                base: target.stack_pointer(),
                distance: offset.into(),
                frame_pointer: (offset > 0).then_some(2),
                return_address: ReturnAddress::Register(register),
            },
        }
    }
}

/// Appends all rules for what is on top of the stack, since they may differ from those of the row before; `None` means a frame.
fn write_rules(out: &mut Vec<u8>, target: Target, top: Option<FramelessTop>) {
    let RowRules {
        base,
        distance,
        frame_pointer,
        return_address,
    } = RowRules::of(target, top);
    let column = column_of_return_address(target);
    out.push(dw::DW_CFA_def_cfa.0);
    leb128::write_unsigned(out, base.into());
    leb128::write_unsigned(out, distance);
    let pointer = target.frame_pointer() as u8;
    match frame_pointer {
        Some(words) => {
            out.push(dw::DW_CFA_offset.0 | pointer);
            leb128::write_unsigned(out, words);
        }
        None => out.extend_from_slice(&[dw::DW_CFA_same_value.0, pointer]),
    }
    match return_address {
        ReturnAddress::Saved(words) => {
            out.push(dw::DW_CFA_offset.0 | column);
            leb128::write_unsigned(out, words);
        }
        ReturnAddress::Register(register) if register == u16::from(column) => {
            out.extend_from_slice(&[dw::DW_CFA_same_value.0, column]);
        }
        ReturnAddress::Register(register) => {
            out.extend_from_slice(&[dw::DW_CFA_register.0, column]);
            leb128::write_unsigned(out, register.into());
        }
    }
}

/// Appends the distance to the next row, in bytes of code.
fn advance(out: &mut Vec<u8>, distance: usize) {
    match distance {
        0 => {}
        1..0x40 => out.push(dw::DW_CFA_advance_loc.0 | distance as u8),
        0x40..0x100 => out.extend_from_slice(&[dw::DW_CFA_advance_loc1.0, distance as u8]),
        _ => {
            out.push(dw::DW_CFA_advance_loc4.0);
            // No function has 4 GiB.
            out.extend_from_slice(&u32::try_from(distance).unwrap_or(u32::MAX).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::call_frames::{CfaRule, EntryRows, RegisterRule, RuleRoom};
    use crate::elf::eh_frame::{EhFrame, FdeIndex};
    use jitdump::Address;

    const START: Address = Address(0x1000);

    /// Returns the CFA and the rules of all registers at each of `offsets`.
    fn rules(machine: Machine, code: &[u8], offsets: &[u64]) -> Vec<(CfaRule, Vec<(u16, RegisterRule)>)> {
        let range = AddressRange::new(START, code.len() as u64).unwrap();
        let section = eh_frame(machine, range, code).unwrap();
        let index = FdeIndex::read(EhFrame {
            section: &section,
            address: Address(0),
            endian: ByteOrder::Little,
            address_size: 8,
        });
        let room = RuleRoom::default();
        let at = |&offset: &u64| {
            let address = Address(START.0 + offset);
            let (_, entry) = index.at(address).unwrap();
            let rows = EntryRows::of_fde(entry, &room).unwrap();
            let rules = rows.at(address).unwrap();
            (rules.cfa.clone(), rules.registers.to_vec())
        };
        offsets.iter().map(at).collect()
    }

    #[test]
    fn x86_64_has_rules_for_prologue_body_and_returns() {
        // push rbp; mov rbp, rsp; nop; pop rbp; ret; nop; pop rbp; ret 16
        let code = [
            0x55, 0x48, 0x89, 0xe5, 0x90, 0x5d, 0xc3, 0x90, 0x5d, 0xc2, 0x10, 0x00,
        ];
        let machine = Machine::of_profile(Some(b"x86_64"), ByteOrder::Little);
        let found = rules(machine, &code, &[0, 1, 4, 6, 7, 9]);
        let cfa: Vec<_> = found.iter().map(|(cfa, _)| cfa.clone()).collect();
        let by = CfaRule::Register;
        assert_eq!(
            cfa,
            [by(7, 8), by(7, 16), by(6, 16), by(7, 8), by(6, 16), by(7, 24)]
        );
        let saved = |at: usize, register| {
            let rule = found[at].1.iter().find(|(of, _)| *of == register);
            rule.map(|(_, rule)| rule.clone())
        };
        assert_eq!(saved(2, 6), Some(RegisterRule::Offset(-16)));
        assert_eq!(saved(3, 6), Some(RegisterRule::SameValue));
        assert_eq!(saved(3, 16), Some(RegisterRule::Offset(-8)));
        assert_eq!(saved(5, 16), Some(RegisterRule::Offset(-24)));
        let range = AddressRange::new(START, 2).unwrap();
        assert_eq!(eh_frame(machine, range, &[0x90, 0xc3]), None);
        // After the last row, there is a frame, as there is at a return that it was not removed before.
        let mut code = vec![0x55, 0x48, 0x89, 0xe5, 0x90, 0xc3];
        code.extend([0x5d, 0xc3, 0x90].repeat(100));
        let found = rules(machine, &code, &[5, 7, 300]);
        let cfa: Vec<_> = found.into_iter().map(|(cfa, _)| cfa).collect();
        assert_eq!(cfa, [by(6, 16), by(7, 8), by(6, 16)]);
    }

    #[test]
    fn tables_have_up_to_32_rows() {
        // push rbp; mov rbp, rsp; nop; then returns: pop rbp; ret; nop. Two rows are for the start, one is for the frame, and two
        // are for each return and the frame after it.
        let mut code = vec![0x55, 0x48, 0x89, 0xe5, 0x90];
        code.extend([0x5d, 0xc3, 0x90].repeat(100));
        let machine = Machine::of_profile(Some(b"x86_64"), ByteOrder::Little);
        let nth = |number: u64| 5 + 3 * (number - 1) + 1;
        let found = rules(machine, &code, &[nth(1), nth(14), nth(15), nth(16)]);
        let cfa: Vec<_> = found.into_iter().map(|(cfa, _)| cfa).collect();
        let by = CfaRule::Register;
        assert_eq!(cfa, [by(7, 8), by(7, 8), by(6, 16), by(6, 16)]);
    }

    #[test]
    fn aarch64_has_rules_for_all_functions() {
        let machine = Machine::of_profile(Some(b"aarch64"), ByteOrder::Little);
        // stp x29, x30, [sp, #-16]!; mov x29, sp; nop
        let code = [0xa9bf_7bfdu32, 0x9100_03fd, 0xd503_201f]
            .map(u32::to_le_bytes)
            .concat();
        let found = rules(machine, &code, &[0, 4, 8]);
        let cfa: Vec<_> = found.into_iter().map(|(cfa, _)| cfa).collect();
        let by = CfaRule::Register;
        assert_eq!(cfa, [by(31, 0), by(31, 16), by(29, 16)]);
        let found = rules(machine, &[0x1f, 0x20, 0x03, 0xd5], &[0]);
        assert_eq!(found[0].0, by(29, 16));
        assert!(found[0].1.contains(&(30, RegisterRule::Offset(-8))));
    }
}
