//! From a frame to its caller.
//!
//! A slot outside the sampled frame, between its stack pointer and the CFA, has been popped: its register has the
//! value, although tables of compilers say otherwise until the function returns. On AArch64, a frame record may be
//! anywhere in its frame, so after a step by the frame pointer the stack pointer is only a lower bound. The
//! next rules that save a frame record say where it is below the CFA, and make it exact again.

use std::ops::Range;

use gimli::{EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian, Location, Value};

use crate::elf::call_frames::{CfaRule, RegisterRule, Rules};
use crate::frames::unwind::frameless::FramelessTop;
use crate::frames::unwind::registers::{Registers, Target};

/// Maximum number of operations of an expression. Those of linkers and C libraries have about ten, but an expression may be an
/// endless loop.
const MAX_OPERATIONS: u32 = 32;

/// The copied part of a stack.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// Address of the first byte: the stack pointer of the sample.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Why there is no caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The frame is the first one of its thread.
    Start,
    /// The caller is beyond the copied part of the stack.
    Copy,
    /// A frame cannot be unwound, or the stack is damaged.
    Lost,
}

impl StackCopy<'_> {
    /// Reads a word.
    pub fn word(&self, address: u64) -> Result<u64, End> {
        let offset = address.checked_sub(self.start).ok_or(End::Lost)?;
        let word = usize::try_from(offset).ok();
        let word = word.and_then(|offset| self.bytes.get(offset..)?.first_chunk());
        word.map(|word| u64::from_le_bytes(*word)).ok_or(End::Copy)
    }
}

/// State of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameState<'a> {
    /// Machine.
    pub target: Target,
    /// The stack.
    pub stack: StackCopy<'a>,
    /// Registers in the frame.
    pub registers: Registers,
    /// Address in the code of the frame.
    pub address: u64,
    /// Whether the frame was interrupted: by the sample or by a signal. All others wait for the return of a call.
    pub is_interrupted: bool,
    /// Whether the stack pointer in `registers` is only a lower bound: that of a caller, found by a frame record that may be
    /// anywhere in the frame of its callee.
    pub has_low_stack_pointer: bool,
    /// Whether the callee has no frame.
    pub has_frameless_callee: bool,
}

/// Each way to the caller leaves its registers in the frame, and returns the return address, or the address at which a signal
/// interrupted the caller.
impl FrameState<'_> {
    /// Finds the caller by the rules for this address.
    pub fn unwind_by(&mut self, rules: Rules<'_>) -> Result<u64, End> {
        let callee = *self;
        let by_record = if self.has_low_stack_pointer {
            self.cfa_by_frame_record(rules)
        } else {
            None
        };
        let cfa = match (rules.cfa, by_record) {
            (_, Some(cfa)) => cfa,
            (CfaRule::Register(register, offset), None) => {
                let base = self.registers.get(*register).ok_or(End::Lost)?;
                base.checked_add_signed(*offset).ok_or(End::Lost)?
            }
            (CfaRule::Expression(at), None) => self.evaluate(rules, at, None)?,
        };
        self.has_low_stack_pointer &= by_record.is_none() && rules.is_by(self.target.stack_pointer());
        self.registers.set(self.target.stack_pointer(), cfa);
        let mut address = match self.target.link_register() {
            // A function that calls nothing leaves the return address where it is.
            Some(_) if self.is_interrupted => callee.registers.get(rules.return_address).ok_or(End::Lost),
            _ => Err(End::Start),
        };
        for (register, rule) in rules.registers {
            let value = callee.register_value(rules, rule, *register, cfa);
            match value {
                Ok(Some(value)) => self.registers.set(*register, value),
                Ok(None) | Err(_) => self.registers.forget(*register),
            }
            if *register == rules.return_address {
                address = value.and_then(|value| value.ok_or(End::Start));
            }
        }
        callee.check_caller(address?, &self.registers, rules.is_signal)
    }

    /// Returns the CFA by the frame record that the rules place below it, and that the frame pointer points to; `None` if they
    /// have none.
    fn cfa_by_frame_record(&self, rules: Rules<'_>) -> Option<u64> {
        let saved = |wanted| {
            let mut rules = rules.registers.iter();
            rules.find_map(|(register, rule)| match rule {
                RegisterRule::Offset(offset) if *register == wanted => Some(*offset),
                _ => None,
            })
        };
        let (pointer, link) = (self.target.frame_pointer(), self.target.link_register()?);
        let record = saved(pointer)?;
        if saved(link)? != record.checked_add(8)? {
            return None;
        }
        self.registers
            .get(pointer)?
            .checked_add_signed(record.checked_neg()?)
    }

    /// Returns the caller's value of a register; `None` if it has none.
    fn register_value(
        &self,
        rules: Rules<'_>,
        rule: &RegisterRule,
        register: u16,
        cfa: u64,
    ) -> Result<Option<u64>, End> {
        let of = |register| self.registers.get(register).ok_or(End::Lost);
        let at = |offset| cfa.checked_add_signed(offset).ok_or(End::Lost);
        Ok(Some(match rule {
            RegisterRule::Undefined => return Ok(None),
            RegisterRule::SameValue => of(register)?,
            // Tables of compilers have a register in its slot until the function returns, but what is below the stack pointer
            // has been popped: the register has its value again. In a prologue it still has it.
            RegisterRule::Offset(offset) if self.is_popped(at(*offset)?) => of(register)?,
            RegisterRule::Offset(offset) => self.stack.word(at(*offset)?)?,
            RegisterRule::ValueOffset(offset) => at(*offset)?,
            RegisterRule::Register(other) => of(*other)?,
            RegisterRule::Expression(expression) => {
                let slot = self.evaluate(rules, expression, Some(cfa))?;
                // GCC's slot of a realigned frame is where the frame pointer points to: after `leave`, in the frame of a caller.
                let is_beyond = self.is_interrupted && !rules.is_signal && slot >= cfa;
                if is_beyond || self.is_popped(slot) {
                    of(register)?
                } else {
                    self.stack.word(slot)?
                }
            }
            RegisterRule::ValueExpression(expression) => self.evaluate(rules, expression, Some(cfa))?,
        }))
    }

    /// Whether a slot of an interrupted frame is below its stack pointer.
    fn is_popped(&self, slot: u64) -> bool {
        let top = self.registers.get(self.target.stack_pointer());
        self.is_interrupted && top.is_some_and(|top| slot < top)
    }

    /// Evaluates an expression; rules of registers start with the CFA.
    fn evaluate(&self, rules: Rules<'_>, at: &Range<usize>, cfa: Option<u64>) -> Result<u64, End> {
        let encoding = gimli::Encoding {
            format: gimli::Format::Dwarf32,
            version: 4,
            address_size: 8,
        };
        let bytes = EndianSlice::new(rules.expression(at), LittleEndian);
        let mut evaluation: Evaluation<EndianSlice<'_, LittleEndian>> =
            Expression(bytes).evaluation(encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().map_err(|_| End::Lost)?;
        // Each round ends with an operation, of which there are not many.
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.expression_register(rules, register.0)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let word = self.stack.word(address)?;
                    let unused = 64u32.saturating_sub(u32::from(size).saturating_mul(8));
                    let word = word.checked_shl(unused).and_then(|word| word.checked_shr(unused));
                    evaluation.resume_with_memory(Value::Generic(word.unwrap_or_default()))
                }
                _ => return Err(End::Lost),
            }
            .map_err(|_| End::Lost)?;
        }
        match evaluation.as_result().last().map(|piece| &piece.location) {
            Some(Location::Address { address }) => Ok(*address),
            _ => Err(End::Lost),
        }
    }

    /// Returns a register for an expression. The table of a procedure linkage table needs the address itself.
    fn expression_register(&self, rules: Rules<'_>, register: u16) -> Result<u64, End> {
        match self.target {
            Target::X86_64 if register == rules.return_address => Ok(self.address),
            _ => self.registers.get(register).ok_or(End::Lost),
        }
    }

    /// Finds the caller by the frame pointer. `preserved` is the bit mask of other registers that are the caller's.
    pub fn unwind_by_frame_pointer(&mut self, preserved: u64) -> Result<u64, End> {
        let pointer = self.registers.get(self.target.frame_pointer());
        let pointer = pointer.ok_or(End::Lost)?;
        if pointer == 0 {
            return Err(End::Start);
        }
        let caller = self.stack.word(pointer)?;
        let return_address = pointer.checked_add(8).ok_or(End::Lost)?;
        let address = self.stack.word(return_address)?;
        let cfa = pointer.checked_add(16).ok_or(End::Lost)?;
        let callee = *self;
        // AArch64 has no rule for where in a frame its record is: gcc puts it at the bottom, V8's JSEntry below 18 registers.
        self.has_low_stack_pointer = self.target.link_register().is_some();
        // What the frame did with the other registers is not known.
        self.registers.retain(preserved);
        self.registers.set(self.target.stack_pointer(), cfa);
        self.registers.set(self.target.frame_pointer(), caller);
        callee.check_caller(address, &self.registers, false)
    }

    /// Returns the return address of a function that has no frame, if it is on the stack.
    pub fn return_address(&self, top: FramelessTop) -> Option<u64> {
        let FramelessTop::ReturnAddress { offset, .. } = top else {
            return None;
        };
        let stack_pointer = self.registers.get(self.target.stack_pointer())?;
        self.stack.word(stack_pointer.checked_add(offset.into())?).ok()
    }

    /// Finds the caller of a function that has no frame.
    pub fn unwind_without_frame(&mut self, top: FramelessTop) -> Result<u64, End> {
        let stack_pointer = self.registers.get(self.target.stack_pointer()).ok_or(End::Lost)?;
        let after = |offset: u64| stack_pointer.checked_add(offset).ok_or(End::Lost);
        let (cfa, address) = match top {
            FramelessTop::ReturnAddress { offset, removed, .. } => {
                let offset = u64::from(offset);
                let removed = u64::from(removed);
                (
                    after(offset.saturating_add(8).saturating_add(removed))?,
                    self.stack.word(after(offset)?)?,
                )
            }
            FramelessTop::Register { register, offset } => (
                after(offset.into())?,
                self.registers.get(register).ok_or(End::Lost)?,
            ),
        };
        let callee = *self;
        if let Some(offset) = top.frame_pointer() {
            let pointer = self.stack.word(after(offset.into())?)?;
            self.registers.set(self.target.frame_pointer(), pointer);
        }
        self.registers.set(self.target.stack_pointer(), cfa);
        callee.check_caller(address, &self.registers, false)
    }

    /// Checks that an address is that of a caller, whose registers show that it is further up the stack. Signals may have a
    /// stack of their own.
    fn check_caller(&self, address: u64, caller: &Registers, is_signal: bool) -> Result<u64, End> {
        let address = self.target.code_address(address);
        if address == 0 {
            return Err(End::Start);
        }
        let stack_pointer = self.target.stack_pointer();
        let (old, new) = (self.registers.get(stack_pointer), caller.get(stack_pointer));
        let is_leaf = self.is_interrupted && self.target.link_register().is_some();
        if is_signal || new > old || is_leaf && new == old && address != self.address {
            Ok(address)
        } else {
            Err(End::Lost)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::call_frames::RuleRoom;
    use crate::elf::testing::{START, frames};
    use jitdump::Address;

    #[test]
    fn expressions_have_up_to_32_operations() {
        let room = RuleRoom::default();
        for (operations, caller) in [(32, Ok(0x2000)), (33, Err(End::Lost))] {
            // CFA is the result of an expression: the stack pointer plus 8, then no-ops.
            let mut instructions = vec![0x0f, operations as u8 + 1, 0x77, 8];
            instructions.resize(operations + 3, 0x96);
            let frames = frames(&instructions);
            let mut registers = Registers::NONE;
            registers.set(7, 0x7000);
            let mut frame = FrameState {
                target: Target::X86_64,
                stack: StackCopy {
                    start: 0x7000,
                    bytes: &0x2000_u64.to_le_bytes(),
                },
                registers,
                address: START,
                is_interrupted: false,
                has_low_stack_pointer: false,
                has_frameless_callee: false,
            };
            let rules = frames.at(Address(START), &room).unwrap();
            assert_eq!(frame.unwind_by(rules), caller, "{operations}");
        }
    }

    /// GCC's rule for the frame pointer of a realigned frame, DW_CFA_expression (rbp: DW_OP_breg6 0), is still there after `leave`.
    #[test]
    fn a_slot_beyond_the_sampled_frame_has_been_popped() {
        let room = RuleRoom::default();
        // CFA is r10.
        let frames = frames(&[0x0c, 10, 0, 0x10, 6, 2, 0x76, 0]);
        let words = [0x11, 0x2000, 0x33, 0x44u64].map(u64::to_le_bytes).concat();
        // The frame pointer in the frame, at the CFA, and in the frame of a caller: 0x33 is not its value then.
        for (pointer, is_interrupted, value) in [
            (0x7000, true, 0x11),
            (0x7010, true, 0x7010),
            (0x7018, true, 0x7018),
            (0x7010, false, 0x33),
        ] {
            let mut registers = Registers::NONE;
            registers.set(6, pointer);
            registers.set(7, 0x7000);
            registers.set(10, 0x7010);
            let mut frame = FrameState {
                target: Target::X86_64,
                stack: StackCopy {
                    start: 0x7000,
                    bytes: &words,
                },
                registers,
                address: START,
                is_interrupted,
                has_low_stack_pointer: false,
                has_frameless_callee: false,
            };
            let rules = frames.at(Address(START), &room).unwrap();
            assert_eq!(frame.unwind_by(rules), Ok(0x2000));
            assert_eq!(
                frame.registers.get(6),
                Some(value),
                "{pointer:x} {is_interrupted}"
            );
        }
    }
}
