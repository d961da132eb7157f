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

/// Code of a function that has no tables.
#[derive(Clone, Copy, Debug)]
pub struct FramedCode<'c> {
    target: Target,
    code: &'c [u8],
    /// Offset of the instruction that saves the frame pointer, with which the setup of the frame starts.
    setup: Option<usize>,
}

impl<'c> FramedCode<'c> {
    /// Finds where a function sets up its frame.
    pub fn new(target: Target, code: &'c [u8]) -> Self {
        let start = code.get(..MAX_DISTANCE).unwrap_or(code);
        let setup = match target {
            Target::X86_64 => {
                // push rbp; mov rbp, rsp, in both encodings
                let is_setup =
                    |bytes: &[u8]| bytes == [0x55, 0x48, 0x89, 0xe5] || bytes == [0x55, 0x48, 0x8b, 0xec];
                start.windows(4).position(is_setup)
            }
            Target::Aarch64 => {
                // stp x29, x30, [sp, #-16]!; mov x29, sp
                let is_setup = |bytes: &[u8]| bytes == [0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91];
                let setup = start.windows(8).step_by(4).position(is_setup);
                setup.map(|instructions| instructions.saturating_mul(4))
            }
        };
        Self { target, code, setup }
    }

    /// Returns what the function has on top of the stack at an offset, if it has no frame there. `None` where it has one, or
    /// if it never sets one up.
    pub fn top(&self, offset: usize) -> Option<FramelessTop> {
        let pushed = match self.target {
            Target::X86_64 => {
                if let Some(top) = x86_64_return(self.code, offset) {
                    return Some(top);
                }
                if is_before_sparkplug_frame(self.code, offset) {
                    return Some(FramelessTop::CALLED);
                }
                (
                    1,
                    FramelessTop::ReturnAddress {
                        offset: 8,
                        removed: 0,
                    },
                )
            }
            Target::Aarch64 => {
                if is_aarch64_return(self.code, offset) {
                    return Some(FramelessTop::at_call(self.target));
                }
                (
                    4,
                    FramelessTop::Register {
                        register: self.target.link_register()?,
                        offset: 16,
                    },
                )
            }
        };
        let setup = self.setup?;
        match offset {
            _ if offset <= setup => Some(FramelessTop::at_call(self.target)),
            _ if offset == setup.saturating_add(pushed.0) => Some(pushed.1),
            _ => None,
        }
    }

    /// Whether an offset is in the call by which a function of V8's Sparkplug has its frame set up. Until the callee does so, the
    /// return address of the function is above that of the callee (Node.js 22, `--always-sparkplug`).
    pub fn is_setup_call(&self, offset: usize) -> bool {
        const MAX_CALL_SIZE: usize = 5;
        let in_call = offset
            .checked_sub(SPARKPLUG_CALL)
            .is_some_and(|into| into < MAX_CALL_SIZE);
        self.target == Target::X86_64 && in_call && is_before_sparkplug_frame(self.code, SPARKPLUG_CALL)
    }

    /// Whether the function is known to have a frame of its own.
    pub fn has_own_frame(&self) -> bool {
        self.setup.is_some() || self.target == Target::X86_64 && is_before_sparkplug_frame(self.code, 0)
    }

    /// Returns what is on top of the stack from the start on, and from each offset where that changes.
    pub fn tops(&self) -> impl Iterator<Item = (usize, Option<FramelessTop>)> {
        let step = match self.target {
            Target::X86_64 => 1,
            Target::Aarch64 => 4,
        };
        let mut last = None;
        let tops = (0..self.code.len()).step_by(step).map(|offset| {
            let top = self.top(offset).filter(|_| !self.may_be_inside(offset));
            (offset, top)
        });
        tops.filter(move |&(_, top)| last.replace(top) != Some(top))
    }

    /// Whether an offset only looks like a return, and may be inside of an instruction. Only the last byte of a call matters
    /// then: unwinders look up the address before that of the return.
    fn may_be_inside(&self, offset: usize) -> bool {
        let Some((before, &[0xc2 | 0xc3, ..])) = self.code.split_at_checked(offset) else {
            return false;
        };
        let is_start = self.setup.is_some_and(|setup| offset <= setup.saturating_add(1));
        // pop rbp; leave; vzeroupper; and what is before the returns of V8 otherwise: push rcx; push r10; jg +3
        let is_after_frame = matches!(
            before,
            [.., 0x5d | 0xc9 | 0x51] | [.., 0xc5, 0xf8, 0x77] | [.., 0x41, 0x52] | [.., 0x7f, 0x03]
        );
        self.target == Target::X86_64 && !is_start && !is_after_frame
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
        // V8's interpreter removes them in another way: leave; pop rcx; add rsp, rbx; push rcx; ret
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

/// Whether a frame was removed before an instruction: a return, or one between that and `ldp x29, x30, [sp], #16`.
fn is_aarch64_return(code: &[u8], offset: usize) -> bool {
    let Some((before, at)) = code.split_at_checked(offset) else {
        return false;
    };
    at.starts_with(&[0xc0, 0x03, 0x5f, 0xd6]) || before.ends_with(&[0xfd, 0x7b, 0xc1, 0xa8])
}

/// Offset of the call by which functions of V8's Sparkplug have their frame set up.
const SPARKPLUG_CALL: usize = 15;

/// Whether an offset is before the frame of a function of V8's Sparkplug, which a built-in function sets up for it:
/// `mov ebx, imm32; movabs r12, imm64; call BaselineOutOfLinePrologue`.
fn is_before_sparkplug_frame(code: &[u8], offset: usize) -> bool {
    let is_entry = code.first() == Some(&0xbb) && code.get(5..7) == Some(&[0x49, 0xbc]);
    let is_call = code
        .get(SPARKPLUG_CALL..)
        .is_some_and(|call| call.starts_with(&[0xe8]) || call.starts_with(&[0x41, 0xff, 0xd4]));
    offset <= SPARKPLUG_CALL && is_entry && is_call
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frameless_top(target: Target, code: &[u8], offset: usize) -> Option<FramelessTop> {
        FramedCode::new(target, code).top(offset)
    }

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
        let tops: Vec<_> = FramedCode::new(Target::Aarch64, &code).tops().collect();
        let (called, pushed) = (in_register(30, 0), in_register(30, 16));
        assert_eq!(tops, [(0, called), (4, pushed), (8, None), (16, called)]);
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
        let tops = |code: &[u8], offsets: &[usize]| -> Vec<Option<FramelessTop>> {
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
        let framed = FramedCode::new(Target::X86_64, &code);
        let are_calls = [14, 15, 19, 20].map(|offset| framed.is_setup_call(offset));
        assert_eq!(are_calls, [false, true, true, false]);
        code[15] = 0x90;
        assert_eq!(frameless_top(Target::X86_64, &code, 0), None);
    }
}
