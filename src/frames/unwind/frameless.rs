//! Functions of runtimes that keep a frame pointer but have no tables: where they have no frame, before they set it up and after
//! they removed it.

use crate::frames::unwind::registers::Target;

/// Maximum distance of the frame's setup from the start of a function, in bytes. V8 checks flags before it; its interpreter's
/// entry has 110 bytes before it (capture node20).
const MAX_DISTANCE: usize = 160;

/// Registers by their DWARF number.
const RCX: u16 = 2;
const R10: u16 = 10;

/// Where the return address of a function without a frame is, and what is between the stack pointer and its caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramelessTop {
    /// On the stack.
    ReturnAddress {
        /// Bytes between the stack pointer and the return address: the pushed frame pointer, or nothing.
        offset: u64,
        /// Bytes of arguments that the return removes.
        removed: u64,
    },
    /// In a register.
    Register {
        /// DWARF number of the register.
        register: u16,
        /// Bytes between the stack pointer and the caller's: the pushed frame record, or nothing.
        offset: u64,
    },
}

impl FramelessTop {
    /// On x86-64, the return address is on top of the stack.
    const CALLED: Self = Self::ReturnAddress {
        offset: 0,
        removed: 0,
    };

    /// Returns what is there right after a call.
    pub fn at_call(target: Target) -> Self {
        match target.link_register() {
            None => Self::CALLED,
            Some(register) => Self::Register { register, offset: 0 },
        }
    }

    /// Whether the caller's frame pointer is at the stack pointer, and no longer in its register.
    pub fn has_frame_pointer(self) -> bool {
        match self {
            Self::ReturnAddress { offset, .. } | Self::Register { offset, .. } => offset > 0,
        }
    }
}

/// Returns what a function has on top of the stack at `offset` of its `code`, if it has no frame there. `None` where it has one,
/// or if it never sets one up.
pub fn frameless_top(target: Target, code: &[u8], offset: u64) -> Option<FramelessTop> {
    let offset = usize::try_from(offset).ok()?;
    let start = code.get(..MAX_DISTANCE).unwrap_or(code);
    match target {
        Target::X86_64 => {
            if let Some(top) = x86_64_return(code, offset) {
                return Some(top);
            }
            if is_before_sparkplug_frame(code, offset) {
                return Some(FramelessTop::CALLED);
            }
            // push rbp; mov rbp, rsp, in both encodings
            let is_setup =
                |bytes: &[u8]| bytes == [0x55, 0x48, 0x89, 0xe5] || bytes == [0x55, 0x48, 0x8b, 0xec];
            let setup = start.windows(4).position(is_setup)?;
            match offset {
                _ if offset <= setup => Some(FramelessTop::CALLED),
                _ if offset == setup.saturating_add(1) => Some(FramelessTop::ReturnAddress {
                    offset: 8,
                    removed: 0,
                }),
                _ => None,
            }
        }
        Target::Aarch64 => {
            // stp x29, x30, [sp, #-16]!; mov x29, sp
            let is_setup = |bytes: &[u8]| bytes == [0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91];
            let setup = start.windows(8).step_by(4).position(is_setup)?.checked_mul(4)?;
            let register = target.link_register()?;
            match offset {
                _ if offset <= setup => Some(FramelessTop::Register { register, offset: 0 }),
                _ if offset == setup.saturating_add(4) => {
                    Some(FramelessTop::Register { register, offset: 16 })
                }
                _ => None,
            }
        }
    }
}

/// Returns what is on top of the stack at an instruction of a return, after the frame was removed.
fn x86_64_return(code: &[u8], offset: usize) -> Option<FramelessTop> {
    let in_register = |register| Some(FramelessTop::Register { register, offset: 0 });
    let (before, at) = code.split_at_checked(offset)?;
    match *at {
        // ret
        [0xc3, ..] => Some(FramelessTop::CALLED),
        // ret imm16
        [0xc2, low, high, ..] => Some(FramelessTop::ReturnAddress {
            offset: 0,
            removed: u16::from_le_bytes([low, high]).into(),
        }),
        // V8 removes its arguments, of which there may be more than a function has parameters (capture node20):
        //
        //     pop rbp; cmp rcx, N; jg more; ret 8 * N
        //     more: pop r10; lea rsp, [rsp + 8 * rcx]; push r10; ret
        [0x48, 0x83, 0xf9, _, 0x7f, 0x03, 0xc2, ..]
        | [0x48, 0x81, 0xf9, _, _, _, _, 0x7f, 0x03, 0xc2, ..]
            if before.ends_with(&[0x5d]) =>
        {
            Some(FramelessTop::CALLED)
        }
        [0x7f, 0x03, 0xc2, _, _, 0x41, 0x5a, 0x48, 0x8d, ..] => Some(FramelessTop::CALLED),
        [0x41, 0x5a, 0x48, 0x8d, 0x24, 0xcc, 0x41, 0x52, 0xc3, ..] => Some(FramelessTop::CALLED),
        [0x48, 0x8d, 0x24, 0xcc, 0x41, 0x52, 0xc3, ..] if before.ends_with(&[0x41, 0x5a]) => in_register(R10),
        [0x41, 0x52, 0xc3, ..] if before.ends_with(&[0x48, 0x8d, 0x24, 0xcc]) => in_register(R10),
        // Its interpreter does so in another way: leave; pop rcx; add rsp, rbx; push rcx; ret
        [0x59, 0x48, 0x03, 0xe3, 0x51, 0xc3, ..] | [0x59, 0x48, 0x01, 0xdc, 0x51, 0xc3, ..]
            if before.ends_with(&[0xc9]) =>
        {
            Some(FramelessTop::CALLED)
        }
        [0x48, 0x03, 0xe3, 0x51, 0xc3, ..] | [0x48, 0x01, 0xdc, 0x51, 0xc3, ..]
            if before.ends_with(&[0x59]) =>
        {
            in_register(RCX)
        }
        [0x51, 0xc3, ..]
            if before.ends_with(&[0x48, 0x03, 0xe3]) || before.ends_with(&[0x48, 0x01, 0xdc]) =>
        {
            in_register(RCX)
        }
        _ => None,
    }
}

/// Whether an offset is before the frame of a function of V8's Sparkplug, which a built-in function sets up for it:
/// `mov ebx, imm32; movabs r12, imm64; call BaselineOutOfLinePrologue`.
fn is_before_sparkplug_frame(code: &[u8], offset: usize) -> bool {
    const CALL: usize = 15;
    let is_entry = code.first() == Some(&0xbb) && code.get(5..7) == Some(&[0x49, 0xbc]);
    let is_call = code
        .get(CALL..)
        .is_some_and(|call| call.starts_with(&[0xe8]) || call.starts_with(&[0x41, 0xff, 0xd4]));
    offset <= CALL && is_entry && is_call
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLED: Option<FramelessTop> = Some(FramelessTop::CALLED);

    const fn pushed(offset: u64) -> Option<FramelessTop> {
        Some(FramelessTop::ReturnAddress { offset, removed: 0 })
    }

    const fn in_register(register: u16, offset: u64) -> Option<FramelessTop> {
        Some(FramelessTop::Register { register, offset })
    }

    #[test]
    fn what_is_on_top_is_known_at_each_instruction_of_a_prologue() {
        // nop; push rbp; mov rbp, rsp; pop rbp; ret
        let code = [0x90, 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3];
        let tops = [0, 1, 2, 5, 6].map(|offset| frameless_top(Target::X86_64, &code, offset));
        assert_eq!(tops, [CALLED, CALLED, pushed(8), None, CALLED]);
        assert_eq!(frameless_top(Target::X86_64, &[0x90, 0x90], 0), None);
        let code = [0xa9bf_7bfdu32, 0x9100_03fd, 0xd65f_03c0]
            .map(u32::to_le_bytes)
            .concat();
        let tops = [0, 4, 8].map(|offset| frameless_top(Target::Aarch64, &code, offset));
        assert_eq!(tops, [in_register(30, 0), in_register(30, 16), None]);
    }

    #[test]
    fn a_frame_is_set_up_at_most_so_far_from_the_start() {
        let code = |before: usize| [vec![0x90; before], vec![0x55, 0x48, 0x89, 0xe5]].concat();
        let top = |before| frameless_top(Target::X86_64, &code(before), 0);
        assert_eq!(top(160 - 4), CALLED);
        assert_eq!(top(160 - 3), None);
    }

    #[test]
    fn what_is_on_top_is_known_at_each_instruction_of_a_return() {
        let removing = |removed| Some(FramelessTop::ReturnAddress { offset: 0, removed });
        let tops = |code: &[u8], offsets: &[u64]| -> Vec<Option<FramelessTop>> {
            let top = |&offset| frameless_top(Target::X86_64, code, offset);
            offsets.iter().map(top).collect()
        };
        assert_eq!(tops(&[0x5d, 0xc2, 0x08, 0x01], &[0, 1]), [None, removing(0x108)]);
        // mov rsp, rbp; pop rbp; cmp rcx, 3; jg +3; ret 24; pop r10; lea rsp, [rsp + 8 * rcx]; push r10; ret
        let code = [
            0x48, 0x89, 0xec, 0x5d, 0x48, 0x83, 0xf9, 0x03, 0x7f, 0x03, 0xc2, 0x18, 0x00, 0x41, 0x5a, 0x48,
            0x8d, 0x24, 0xcc, 0x41, 0x52, 0xc3,
        ];
        let r10 = in_register(R10, 0);
        assert_eq!(
            tops(&code, &[0, 3, 4, 8, 10, 13, 15, 19, 21]),
            [None, None, CALLED, CALLED, removing(24), CALLED, r10, r10, CALLED]
        );
        // leave; pop rcx; add rsp, rbx; push rcx; ret
        for add in [[0x48, 0x03, 0xe3], [0x48, 0x01, 0xdc]] {
            let code = [&[0xc9, 0x59][..], &add, &[0x51, 0xc3]].concat();
            let rcx = in_register(RCX, 0);
            assert_eq!(tops(&code, &[0, 1, 2, 5, 6]), [None, CALLED, rcx, rcx, CALLED]);
        }
    }

    #[test]
    fn sparkplug_functions_have_no_frame_until_their_first_call_returns() {
        let mut code = vec![
            0xbb, 1, 0, 0, 0, 0x49, 0xbc, 1, 2, 3, 4, 5, 6, 7, 8, 0xe8, 1, 2, 3, 4, 0x90,
        ];
        let tops = [0, 5, 15, 20].map(|offset| frameless_top(Target::X86_64, &code, offset));
        assert_eq!(tops, [CALLED, CALLED, CALLED, None]);
        code[15] = 0x90;
        assert_eq!(frameless_top(Target::X86_64, &code, 0), None);
    }
}
