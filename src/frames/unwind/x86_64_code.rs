//! Where x86-64 code has no frame, by its instructions.
//!
//! The code is decoded once, from its start, and the state of the stack follows jumps forward. Compilers put rare paths at the end
//! of a function and leave out its frame elsewhere, so it may set up a frame in several places, or nowhere (V8's built-in functions,
//! capture node20).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use crate::frames::unwind::frameless::{FramelessTop, Tops};

/// Maximum size of the decoded code in bytes. Larger functions of real runtimes have tables, or a frame everywhere except at
/// their start.
const MAX_SIZE: usize = 1 << 20;

/// Maximum number of bytes on the stack of a function without a frame. None is so large without a frame pointer.
const MAX_DEPTH: u32 = 1 << 16;

/// Registers by their DWARF number.
#[rustfmt::skip]
const REGISTERS: [Register; 16] = {
    use Register::{R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP};
    [RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15]
};

/// What is known of the stack before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The return address is on the stack, below `depth` bytes.
    Frameless {
        depth: u32,
        /// The depth right after the frame pointer of the caller was pushed, if it was.
        frame_pointer: Option<u32>,
    },
    /// The return address is in a register: V8 removes arguments that way.
    InRegister(Register),
    /// The frame pointer points to that of the caller, with the return address above it.
    Framed,
    /// Not known.
    Unknown,
    /// Ways that meet here have different ones.
    Contradictory,
}

const CALLED: State = State::Frameless {
    depth: 0,
    frame_pointer: None,
};

/// Registers that functions leave to their callers as they were, in addition to the stack and the frame pointer, by their DWARF
/// numbers: rbx, r12 to r15.
const PRESERVED: u64 = 1 << 3 | 0xf << 12;

/// A state, and how it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reached {
    state: State,
    /// Whether code before leads there. The states of loops that are entered at their end, and of the cases of a switch, are only
    /// likely: those around them.
    is_certain: bool,
}

impl Reached {
    /// Returns the state of an instruction to which two ways lead.
    fn joined(self, other: Self) -> Self {
        match (self.is_certain, other.is_certain) {
            (true, false) => self,
            (false, true) => other,
            _ => Self {
                state: self.state.joined(other.state),
                ..self
            },
        }
    }
}

/// What is known at the targets of jumps, which are all ahead, by their offsets.
#[derive(Debug, Default)]
struct JumpTargets(BTreeMap<usize, Reached>);

impl JumpTargets {
    /// Adds another way to a target.
    fn add(&mut self, target: usize, way: Reached) {
        let known = self.0.entry(target).or_insert(way);
        *known = known.joined(way);
    }

    /// Takes what is known at an offset, and drops the targets before it: data looks like jumps into the middle of instructions.
    fn take(&mut self, at: usize) -> Option<Reached> {
        while let Some(target) = self.0.first_entry().filter(|target| *target.key() < at) {
            target.remove();
        }
        self.0.remove(&at)
    }

    /// Returns the offset of the first one.
    fn first(&self) -> Option<usize> {
        self.0.first_key_value().map(|(&target, _)| target)
    }
}

/// Finds out what a function has on top of the stack. `setup_call` is the offset of a call that sets up the frame of its caller.
pub fn tops(code: &[u8], setup_call: Option<usize>) -> Tops {
    let decoded = code.get(..MAX_SIZE).unwrap_or(code);
    let mut found = Tops::default();
    found.preserved = PRESERVED;
    let mut decoder = Decoder::new(64, decoded, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut targets = JumpTargets::default();
    let mut next = Some(Reached {
        state: CALLED,
        is_certain: true,
    });
    while decoder.can_decode() {
        let at = decoder.position();
        let reached = match (next, targets.take(at)) {
            (Some(one), Some(other)) => one.joined(other),
            (Some(reached), None) | (None, Some(reached)) => reached,
            // No way leads here, so what follows may be data up to the next target.
            (None, None) => {
                found.push(at, None);
                found.preserved = 0;
                let Some(Ok(())) = targets.first().map(|target| decoder.set_position(target)) else {
                    break;
                };
                // Then targets of jumps are offsets.
                decoder.set_ip(decoder.position() as u64);
                continue;
            }
        };
        decoder.decode_out(&mut instruction);
        let state = reached.state;
        found.has_frame |= state == State::Framed;
        found.push(at, state.top(&instruction));
        found.preserved &= !written(&instruction);
        let after = Reached {
            state: match state {
                _ if setup_call == Some(at) => State::Framed,
                State::Framed if restores_frame_pointer(&instruction) => {
                    before_jump(decoded.get(decoder.position()..).unwrap_or_default())
                }
                _ => state.after(&instruction),
            },
            ..reached
        };
        let is_jump =
            instruction.op0_kind() == OpKind::NearBranch64 && instruction.mnemonic() != Mnemonic::Call;
        let target = usize::try_from(instruction.near_branch64()).ok();
        if let Some(target) = target.filter(|&target| is_jump && target > at && target < decoded.len()) {
            targets.add(target, after);
        }
        let likely = |state| Reached {
            state,
            is_certain: false,
        };
        // Behind a jump is often the body of a loop, or another case of a switch; behind a return, a rare path.
        next = if !ends_path(&instruction) {
            Some(after)
        } else if is_jump {
            Some(likely(state))
        } else {
            found.has_frame.then_some(likely(State::Framed))
        };
    }
    if decoded.len() < code.len() {
        found.push(decoded.len(), None);
        found.preserved = 0;
    }
    found
}

/// Whether a call ends at an offset.
pub fn is_after_call(code: &[u8], offset: usize) -> bool {
    const SIZES: RangeInclusive<usize> = 2..=8;
    SIZES.into_iter().any(|size| {
        let start = offset.checked_sub(size);
        let call = start.and_then(|start| code.get(start..offset));
        call.is_some_and(|call| {
            let instruction = Decoder::new(64, call, DecoderOptions::NONE).decode();
            instruction.mnemonic() == Mnemonic::Call && instruction.len() == size
        })
    })
}

/// Returns the registers of [`PRESERVED`] that an instruction writes.
fn written(instruction: &Instruction) -> u64 {
    use Register::{
        BH, BL, BX, EBX, R12, R12D, R12L, R12W, R13, R13D, R13L, R13W, R14, R14D, R14L, R14W, R15, R15D,
        R15L, R15W, RBX,
    };
    let of = |register| match register {
        RBX | EBX | BX | BL | BH => 1 << 3,
        R12 | R12D | R12W | R12L => 1 << 12,
        R13 | R13D | R13W | R13L => 1 << 13,
        R14 | R14D | R14W | R14L => 1 << 14,
        R15 | R15D | R15W | R15L => 1 << 15,
        _ => 0,
    };
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Call | Mnemonic::Jmp => 0,
        Mnemonic::Xchg | Mnemonic::Xadd => of(instruction.op0_register()) | of(instruction.op1_register()),
        Mnemonic::Cpuid => of(RBX),
        _ => of(instruction.op0_register()),
    }
}

/// Whether no other instruction follows.
fn ends_path(instruction: &Instruction) -> bool {
    use Mnemonic::{Hlt, INVALID, Int3, Jmp, Ret, Ud2};
    matches!(instruction.mnemonic(), Jmp | Ret | Ud2 | Int3 | Hlt | INVALID)
}

impl State {
    /// Returns the state where two meet. Compilers have one layout of the stack at an instruction, so what is known from one side holds.
    fn joined(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Unknown, known) | (known, Self::Unknown) => known,
            _ => Self::Contradictory,
        }
    }

    /// Returns what is on top of the stack before an instruction, if there is no frame.
    fn top(self, instruction: &Instruction) -> Option<FramelessTop> {
        let removed = match instruction.mnemonic() {
            Mnemonic::Ret if instruction.op_count() > 0 => instruction.immediate16(),
            _ => 0,
        };
        match self {
            Self::Frameless { depth, frame_pointer } => Some(FramelessTop::ReturnAddress {
                offset: depth,
                frame_pointer: frame_pointer.map(|pushed| depth.saturating_sub(pushed)),
                removed,
            }),
            Self::InRegister(register) => Some(FramelessTop::Register {
                register: REGISTERS.iter().position(|&other| other == register)? as u16,
                offset: 0,
            }),
            Self::Framed | Self::Unknown | Self::Contradictory => None,
        }
    }

    /// Returns the state after an instruction.
    fn after(self, instruction: &Instruction) -> Self {
        match self {
            Self::Frameless { depth, frame_pointer } => after_frameless(depth, frame_pointer, instruction),
            Self::InRegister(register) => match (instruction.mnemonic(), instruction.op0_register()) {
                (Mnemonic::Push, pushed) if pushed == register => CALLED,
                (Mnemonic::Add | Mnemonic::Lea, Register::RSP) => self,
                _ => Self::Unknown,
            },
            Self::Framed => match instruction.mnemonic() {
                Mnemonic::Leave => CALLED,
                Mnemonic::Pop if instruction.op0_register() == Register::RBP => CALLED,
                _ => self,
            },
            Self::Unknown | Self::Contradictory => Self::Unknown,
        }
    }
}

/// Whether an instruction loads the frame pointer of the caller and leaves the frame on the stack. V8's built-in functions do so
/// before they call another one in their place.
fn restores_frame_pointer(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_register() == Register::RBP
        && instruction.memory_base() == Register::RBP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
}

/// Returns the state at the start of code that removes what is on the stack, and jumps to another function or returns.
fn before_jump(code: &[u8]) -> State {
    /// V8 has up to ten instructions there.
    const MAX_INSTRUCTIONS: usize = 16;
    let with_depth = |depth| match moved(0, depth) {
        Some(depth) => State::Frameless {
            depth,
            frame_pointer: None,
        },
        None => State::Unknown,
    };
    let mut change = 0i64;
    let instructions = Decoder::new(64, code, DecoderOptions::NONE);
    for instruction in instructions.into_iter().take(MAX_INSTRUCTIONS) {
        match (instruction.mnemonic(), stack_change(&instruction)) {
            (Mnemonic::Jmp | Mnemonic::Ret, _) => return with_depth(change.saturating_neg()),
            (Mnemonic::Push, _) if has_stack_operand(&instruction) => {
                let copied = instruction.memory_displacement64() as i64;
                return with_depth(copied.saturating_sub(change));
            }
            (_, Some(by)) => change = change.saturating_add(by),
            (_, None) if is_stack_pointer(instruction.op0_register()) || ends_path(&instruction) => break,
            (_, None) => {}
        }
    }
    State::Unknown
}

/// Whether the memory operand of an instruction is at a fixed distance from the stack pointer.
fn has_stack_operand(instruction: &Instruction) -> bool {
    instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None
}

/// Returns a depth of the stack after a change by so many bytes; `None` if no function without a frame has so much there.
fn moved(depth: u32, by: i64) -> Option<u32> {
    let depth = u32::try_from(i64::from(depth).checked_add(by)?).ok()?;
    (depth <= MAX_DEPTH && depth % 8 == 0).then_some(depth)
}

/// Returns by how many bytes an instruction makes the stack deeper; `None` if it does not, or not by a fixed number.
fn stack_change(instruction: &Instruction) -> Option<i64> {
    use Mnemonic::{Add, Lea, Pop, Popfq, Push, Pushfq, Sub};
    let immediate = || {
        let kind = instruction.op1_kind();
        let is_immediate = matches!(kind, OpKind::Immediate8to64 | OpKind::Immediate32to64);
        is_immediate.then(|| instruction.immediate(1) as i64)
    };
    match (instruction.mnemonic(), instruction.op0_register()) {
        (Pop, Register::RSP) => None,
        (Push | Pushfq, _) => Some(8),
        (Pop | Popfq, _) => Some(-8),
        (Sub, Register::RSP) => immediate(),
        (Add, Register::RSP) => immediate().map(i64::wrapping_neg),
        (Lea, Register::RSP) if has_stack_operand(instruction) => {
            Some((instruction.memory_displacement64() as i64).wrapping_neg())
        }
        _ => None,
    }
}

/// Whether a register is the stack pointer, or a part of it.
fn is_stack_pointer(register: Register) -> bool {
    matches!(
        register,
        Register::RSP | Register::ESP | Register::SP | Register::SPL
    )
}

/// Returns the state after an instruction without a frame.
fn after_frameless(depth: u32, frame_pointer: Option<u32>, instruction: &Instruction) -> State {
    use Mnemonic::{Call, Cmp, Enter, Lea, Leave, Mov, Pop, Push, Test, Xchg};
    let with_depth = |moved| match moved {
        Some(depth) => State::Frameless {
            depth,
            // What was removed is no longer saved.
            frame_pointer: frame_pointer.filter(|pushed| *pushed <= depth),
        },
        None => State::Unknown,
    };
    let register = instruction.op0_register();
    match (instruction.mnemonic(), register) {
        // V8's built-in functions add arguments below a copy of the return address, before they jump to another function.
        (Push, _)
            if has_stack_operand(instruction)
                && frame_pointer.is_none()
                && instruction.memory_displacement64() == u64::from(depth) =>
        {
            CALLED
        }
        (Push, Register::RBP) if frame_pointer.is_none() => match moved(depth, 8) {
            Some(depth) => State::Frameless {
                depth,
                frame_pointer: Some(depth),
            },
            None => State::Unknown,
        },
        (Pop, Register::RBP) if frame_pointer != Some(depth) => State::Unknown,
        (Pop, Register::None | Register::RSP) if depth == 0 => State::Unknown,
        (Pop, _) if depth == 0 => State::InRegister(register),
        (Lea, Register::RBP) if has_stack_operand(instruction) => {
            pointing(depth, frame_pointer, instruction.memory_displacement64() as i64)
        }
        (Mov, Register::RBP) if instruction.op1_register() == Register::RSP => {
            pointing(depth, frame_pointer, 0)
        }
        (Cmp | Test | Call, _) => with_depth(Some(depth)),
        (Enter | Leave | Xchg, _) => State::Unknown,
        _ => match stack_change(instruction) {
            Some(by) => with_depth(moved(depth, by)),
            None if is_stack_pointer(register) => State::Unknown,
            // The frame pointer of the caller is lost, if it is not on the stack.
            None if is_frame_pointer(register) && frame_pointer.is_none() => State::Unknown,
            None => with_depth(Some(depth)),
        },
    }
}

/// Whether a register is the frame pointer, or a part of it.
fn is_frame_pointer(register: Register) -> bool {
    matches!(
        register,
        Register::RBP | Register::EBP | Register::BP | Register::BPL
    )
}

/// Returns the state after the frame pointer points to `distance` bytes above the stack pointer.
fn pointing(depth: u32, frame_pointer: Option<u32>, distance: i64) -> State {
    let pushed = frame_pointer.map(|pushed| i64::from(depth.saturating_sub(pushed)));
    match (frame_pointer, pushed) {
        // The return address is right above.
        (Some(8), Some(at)) if at == distance => State::Framed,
        (Some(_), _) => State::Frameless { depth, frame_pointer },
        (None, _) => State::Unknown,
    }
}

#[cfg(test)]
mod tests;
