//! Where x86-64 code has no frame, by its instructions.
//!
//! The code is decoded once, from its start, along jumps forward: what is reached in no other way, such as tables between
//! instructions, is not decoded. Compilers put rare paths at the end and leave out their frames elsewhere, so a function may set
//! up its frame in several places, or nowhere.

use std::collections::BTreeMap;

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
}

const CALLED: State = State::Frameless {
    depth: 0,
    frame_pointer: None,
};

/// Finds out what a function has on top of the stack. `setup_call` is the offset of a call that sets up the frame of its caller.
pub fn tops(code: &[u8], setup_call: Option<usize>) -> Tops {
    let decoded = code.get(..MAX_SIZE).unwrap_or(code);
    let mut found = Tops::default();
    let mut decoder = Decoder::new(64, decoded, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    // States at the targets of jumps that are further on.
    let mut targets: BTreeMap<usize, State> = BTreeMap::new();
    let mut next = Some(CALLED);
    loop {
        let at = decoder.position();
        // Some jumps seem to go into the middle of an instruction, if that was no instruction.
        while let Some(target) = targets.first_entry().filter(|target| *target.key() < at) {
            target.remove();
        }
        let state = match (next, targets.get(&at).copied()) {
            (Some(state), Some(other)) if state != other => State::Unknown,
            (Some(state), _) => state,
            (None, _) => {
                found.push(at, None);
                let Some((&target, &state)) = targets.first_key_value() else {
                    break;
                };
                if decoder.set_position(target).is_err() {
                    break;
                }
                // So that targets of jumps are offsets.
                decoder.set_ip(target as u64);
                next = Some(state);
                continue;
            }
        };
        if !decoder.can_decode() {
            break;
        }
        decoder.decode_out(&mut instruction);
        found.has_frame |= state == State::Framed;
        found.has_unknown |= state == State::Unknown;
        found.push(at, state.top(&instruction));
        let after = match setup_call == Some(at) {
            true => State::Framed,
            false => state.after(&instruction),
        };
        if instruction.op0_kind() == OpKind::NearBranch64 && instruction.mnemonic() != Mnemonic::Call {
            let target = usize::try_from(instruction.near_branch64()).ok();
            if let Some(target) = target.filter(|&target| target > at && target < decoded.len()) {
                let known = targets.entry(target).or_insert(after);
                if *known != after {
                    *known = State::Unknown;
                }
            }
        }
        next = (!ends_path(&instruction)).then_some(after);
    }
    if decoded.len() < code.len() {
        found.push(decoded.len(), None);
    }
    found
}

/// Whether no other instruction follows.
fn ends_path(instruction: &Instruction) -> bool {
    use Mnemonic::{Hlt, INVALID, Int3, Jmp, Ret, Ud2};
    matches!(instruction.mnemonic(), Jmp | Ret | Ud2 | Int3 | Hlt | INVALID)
}

impl State {
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
            Self::Framed | Self::Unknown => None,
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
            Self::Unknown => self,
        }
    }
}

/// Returns the state after an instruction without a frame.
fn after_frameless(depth: u32, frame_pointer: Option<u32>, instruction: &Instruction) -> State {
    use Mnemonic::{Add, Call, Cmp, Lea, Leave, Mov, Pop, Popfq, Push, Pushfq, Sub, Test, Xchg};
    let moved = |by: i64| {
        let depth = i64::from(depth).checked_add(by);
        let depth = depth.and_then(|depth| u32::try_from(depth).ok());
        match depth.filter(|depth| *depth <= MAX_DEPTH && depth % 8 == 0) {
            Some(depth) => State::Frameless {
                depth,
                // What was removed is no longer saved.
                frame_pointer: frame_pointer.filter(|pushed| *pushed <= depth),
            },
            None => State::Unknown,
        }
    };
    let register = instruction.op0_register();
    let has_immediate = matches!(
        instruction.op1_kind(),
        OpKind::Immediate8to64 | OpKind::Immediate32to64
    );
    match (instruction.mnemonic(), register) {
        (Push, Register::RBP) if frame_pointer.is_none() => match moved(8) {
            State::Frameless { depth, .. } => State::Frameless {
                depth,
                frame_pointer: Some(depth),
            },
            other => other,
        },
        (Push | Pushfq, _) => moved(8),
        (Pop, Register::RBP) if frame_pointer != Some(depth) => State::Unknown,
        (Pop, _) if depth == 0 => match register {
            Register::None | Register::RSP => State::Unknown,
            _ => State::InRegister(register),
        },
        (Pop, Register::RSP) => State::Unknown,
        (Pop | Popfq, _) => moved(-8),
        (Sub, Register::RSP) if has_immediate => moved(instruction.immediate(1) as i64),
        (Add, Register::RSP) if has_immediate => moved((instruction.immediate(1) as i64).wrapping_neg()),
        (Lea, Register::RSP | Register::RBP)
            if instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None =>
        {
            let distance = instruction.memory_displacement64() as i64;
            match register {
                Register::RSP => moved(distance.wrapping_neg()),
                _ => pointing(depth, frame_pointer, distance),
            }
        }
        (Mov, Register::RBP) if instruction.op1_register() == Register::RSP => {
            pointing(depth, frame_pointer, 0)
        }
        (Cmp | Test | Call, _) => moved(0),
        (Leave | Xchg, _) => State::Unknown,
        (_, Register::RSP | Register::ESP | Register::SP | Register::SPL) => State::Unknown,
        // The frame pointer of the caller is lost, if it is not on the stack.
        (_, Register::RBP | Register::EBP | Register::BP | Register::BPL) if frame_pointer.is_none() => {
            State::Unknown
        }
        _ => moved(0),
    }
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
