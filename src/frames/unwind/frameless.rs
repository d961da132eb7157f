//! Functions of runtimes that keep a frame pointer but have no tables: where they have no frame, before they set it up and after
//! they removed it.

use crate::frames::unwind::registers::Target;
use crate::frames::unwind::x86_64_code;

/// Maximum distance of the frame's setup from the start of a function of AArch64, in bytes. V8 checks flags before it.
const MAX_DISTANCE: usize = 160;

/// Where the return address of a function without a frame is, and what is between the stack pointer and its caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramelessTop {
    /// On the stack.
    ReturnAddress {
        /// Bytes between the stack pointer and the return address.
        offset: u32,
        /// Distance of the caller's frame pointer from the stack pointer in bytes, if it was pushed; it is in its register
        /// otherwise.
        frame_pointer: Option<u32>,
        /// Bytes of arguments that the return removes.
        removed: u16,
    },
    /// In a register.
    Register {
        /// DWARF number of the register.
        register: u16,
        /// Bytes between the stack pointer and the caller's: the pushed frame record, or nothing.
        offset: u32,
    },
}

impl FramelessTop {
    /// On x86-64, the return address is on top of the stack.
    const CALLED: Self = Self::ReturnAddress {
        offset: 0,
        frame_pointer: None,
        removed: 0,
    };

    /// Returns what is there right after a call.
    pub fn at_call(target: Target) -> Self {
        match target.link_register() {
            None => Self::CALLED,
            Some(register) => Self::Register { register, offset: 0 },
        }
    }

    /// Returns the distance of the caller's frame pointer from the stack pointer in bytes, if it is on the stack.
    pub fn frame_pointer(self) -> Option<u32> {
        match self {
            Self::ReturnAddress { frame_pointer, .. } => frame_pointer,
            Self::Register { offset, .. } => (offset > 0).then_some(0),
        }
    }
}

/// What a function without tables has on top of the stack where it has no frame.
#[derive(Clone, Debug, Default)]
pub struct Tops {
    /// Offsets of instructions from which on that changes, with what it is then; `None` with a frame, or if it is not known.
    pub rows: Vec<(u32, Option<FramelessTop>)>,
    /// Whether the function has a frame somewhere.
    pub has_frame: bool,
    /// Bit mask of the registers, by their DWARF number, that no instruction writes, and no callee.
    pub preserved: u64,
    /// Offset of the call by which a function of V8's Sparkplug has its frame set up.
    setup_call: Option<usize>,
}

impl Tops {
    /// Maximum number of rows. Functions have two for each part without a frame.
    const MAX_ROWS: usize = 1024;

    /// Finds out what a function has on top of the stack, by its machine code.
    pub fn of(target: Target, code: &[u8]) -> Self {
        match target {
            Target::X86_64 => {
                let setup_call = sparkplug_call(code);
                Self {
                    setup_call,
                    ..x86_64_code::tops(code, setup_call)
                }
            }
            Target::Aarch64 => aarch64_tops(target, code),
        }
    }

    /// Adds what is there from an offset on.
    pub fn push(&mut self, offset: usize, top: Option<FramelessTop>) {
        let is_new = self.rows.last().is_none_or(|&(_, last)| last != top);
        let is_room = self.rows.len() + usize::from(top.is_some()) < Self::MAX_ROWS;
        if let (Ok(offset), true, true) = (u32::try_from(offset), is_new, is_room) {
            self.rows.push((offset, top));
        }
    }

    /// Returns what is on top of the stack at the instruction at an offset, if there is no frame. `None` where there is one, or
    /// if that is not known.
    pub fn at(&self, offset: usize) -> Option<FramelessTop> {
        let after = self.rows.partition_point(|&(row, _)| row as usize <= offset);
        self.rows.get(after.checked_sub(1)?)?.1
    }

    /// Whether an offset is in the call by which a function of V8's Sparkplug has its frame set up. Until the callee does so, the
    /// return address of the function is above that of the callee (Node.js 22, `--always-sparkplug`).
    pub fn is_setup_call(&self, offset: usize) -> bool {
        const MAX_CALL_SIZE: usize = 5;
        let into = self.setup_call.and_then(|call| offset.checked_sub(call));
        into.is_some_and(|into| into < MAX_CALL_SIZE)
    }
}

/// Returns what a function of AArch64 has on top of the stack.
fn aarch64_tops(target: Target, code: &[u8]) -> Tops {
    let mut tops = Tops::default();
    let Some(link) = target.link_register() else {
        return tops;
    };
    // stp x29, x30, [sp, #-16]!; mov x29, sp
    let is_setup = |bytes: &[u8]| bytes == [0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91];
    let start = code.get(..MAX_DISTANCE).unwrap_or(code);
    let setup = start.windows(8).step_by(4).position(is_setup);
    let setup = setup.map(|instructions| instructions.saturating_mul(4));
    tops.has_frame = setup.is_some();
    for at in (0..code.len()).step_by(4) {
        let in_link = |offset| {
            Some(FramelessTop::Register {
                register: link,
                offset,
            })
        };
        tops.push(
            at,
            match setup {
                _ if is_aarch64_return(code, at) => in_link(0),
                Some(setup) if at <= setup => in_link(0),
                Some(setup) if at == setup.saturating_add(4) => in_link(16),
                _ => None,
            },
        );
    }
    tops
}

/// Whether a frame was removed before an instruction: a return, or one between that and `ldp x29, x30, [sp], #16`.
fn is_aarch64_return(code: &[u8], offset: usize) -> bool {
    let Some((before, at)) = code.split_at_checked(offset) else {
        return false;
    };
    at.starts_with(&[0xc0, 0x03, 0x5f, 0xd6]) || before.ends_with(&[0xfd, 0x7b, 0xc1, 0xa8])
}

/// Returns the offset of the call by which a function of V8's Sparkplug has its frame set up, by a built-in function:
/// `mov ebx, imm32; movabs r12, imm64; call BaselineOutOfLinePrologue`. `None` for all other functions.
fn sparkplug_call(code: &[u8]) -> Option<usize> {
    const CALL: usize = 15;
    let is_entry = code.first() == Some(&0xbb) && code.get(5..7) == Some(&[0x49, 0xbc]);
    let call = code.get(CALL..)?;
    let is_call = call.starts_with(&[0xe8]) || call.starts_with(&[0x41, 0xff, 0xd4]);
    (is_entry && is_call).then_some(CALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_top_is_known_at_each_instruction_of_aarch64() {
        // stp x29, x30, [sp, #-16]!; mov x29, sp; nop; ldp x29, x30, [sp], #16; add sp, sp, #16; ret
        let code = [
            0xa9bf_7bfdu32,
            0x9100_03fd,
            0xd503_201f,
            0xa8c1_7bfd,
            0x9100_43ff,
            0xd65f_03c0,
        ];
        let code = code.map(u32::to_le_bytes).concat();
        let tops = Tops::of(Target::Aarch64, &code);
        let register = |offset| Some(FramelessTop::Register { register: 30, offset });
        let (called, pushed) = (register(0), register(16));
        assert_eq!(tops.rows, [(0, called), (4, pushed), (8, None), (16, called)]);
        assert_eq!(tops.at(20), called);
    }

    #[test]
    fn a_frame_of_aarch64_is_set_up_at_most_so_far_from_the_start() {
        let setup = [0xa9bf_7bfdu32, 0x9100_03fd].map(u32::to_le_bytes).concat();
        let top = |before: usize| {
            let code = [[0x1f, 0x20, 0x03, 0xd5].repeat(before / 4), setup.clone()].concat();
            Tops::of(Target::Aarch64, &code).at(0)
        };
        assert_eq!(top(160 - 8), Some(FramelessTop::at_call(Target::Aarch64)));
        assert_eq!(top(160 - 4), None);
    }

    #[test]
    fn sparkplug_functions_have_no_frame_until_their_first_call_returns() {
        let mut code = vec![
            0xbb, 1, 0, 0, 0, 0x49, 0xbc, 1, 2, 3, 4, 5, 6, 7, 8, 0xe8, 1, 2, 3, 4, 0x90,
        ];
        let tops = Tops::of(Target::X86_64, &code);
        let called = Some(FramelessTop::CALLED);
        assert_eq!(
            [0, 5, 15, 20].map(|offset| tops.at(offset)),
            [called, called, called, None]
        );
        let are_calls = [14, 15, 19, 20].map(|offset| tops.is_setup_call(offset));
        assert_eq!(are_calls, [false, true, true, false]);
        code[15] = 0x90;
        assert!(!Tops::of(Target::X86_64, &code).is_setup_call(15));
    }

    #[test]
    fn functions_have_up_to_1024_rows_and_the_last_is_unknown() {
        // push rbp; mov rbp, rsp; pop rbp: three rows
        let code = [0x55, 0x48, 0x89, 0xe5, 0x5d].repeat(1000);
        let tops = Tops::of(Target::X86_64, &code);
        assert_eq!(tops.rows.len(), 1023);
        assert_eq!(tops.at(code.len() - 1), None);
    }
}
