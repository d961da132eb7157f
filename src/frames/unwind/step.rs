//! From a frame to its caller.

use std::ops::Range;

use gimli::{EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian, Location, Value};

use crate::elf::call_frames::{CfaRule, Rule, Rules};
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
pub struct Frame<'a> {
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
}

/// Each way to the caller leaves its registers in the frame, and returns the return address, or the address at which a signal
/// interrupted the caller.
impl Frame<'_> {
    /// Finds the caller by the rules for this address.
    pub fn unwind_by(&mut self, rules: Rules<'_>) -> Result<u64, End> {
        let callee = *self;
        let cfa = match rules.cfa {
            CfaRule::Register(register, offset) => {
                let base = self.registers.get(*register).ok_or(End::Lost)?;
                base.checked_add_signed(*offset).ok_or(End::Lost)?
            }
            CfaRule::Expression(at) => self.evaluate(rules, at, None)?,
        };
        self.registers.set(self.target.stack_pointer(), cfa);
        let mut address = match self.target.link_register() {
            // A function that calls nothing leaves the return address where it is.
            Some(_) if self.is_interrupted => callee.registers.get(rules.return_address).ok_or(End::Lost),
            _ => Err(End::Start),
        };
        for (register, rule) in rules.registers {
            let value = callee.value(rules, rule, *register, cfa);
            match value {
                Ok(Some(value)) => self.registers.set(*register, value),
                Ok(None) | Err(_) => self.registers.forget(*register),
            }
            if *register == rules.return_address {
                address = value.and_then(|value| value.ok_or(End::Start));
            }
        }
        callee.check(address?, &self.registers, rules.is_signal)
    }

    /// Returns the caller's value of a register; `None` if it has none.
    fn value(&self, rules: Rules<'_>, rule: &Rule, register: u16, cfa: u64) -> Result<Option<u64>, End> {
        let of = |register| self.registers.get(register).ok_or(End::Lost);
        let at = |offset| cfa.checked_add_signed(offset).ok_or(End::Lost);
        Ok(Some(match rule {
            Rule::Undefined => return Ok(None),
            Rule::SameValue => of(register)?,
            Rule::Offset(offset) => self.stack.word(at(*offset)?)?,
            Rule::ValueOffset(offset) => at(*offset)?,
            Rule::Register(other) => of(*other)?,
            Rule::Expression(expression) => {
                self.stack.word(self.evaluate(rules, expression, Some(cfa))?)?
            }
            Rule::ValueExpression(expression) => self.evaluate(rules, expression, Some(cfa))?,
        }))
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

    /// Finds the caller by the frame pointer.
    pub fn unwind_by_frame_pointer(&mut self) -> Result<u64, End> {
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
        // What the frame did with the other registers is not known.
        self.registers = Registers::NONE;
        self.registers.set(self.target.stack_pointer(), cfa);
        self.registers.set(self.target.frame_pointer(), caller);
        callee.check(address, &self.registers, false)
    }

    /// Finds the caller of a function that has pushed `words` words since it was called: none, or the frame pointer.
    pub fn unwind_before_frame(&mut self, words: u64) -> Result<u64, End> {
        let top = self.registers.get(self.target.stack_pointer()).ok_or(End::Lost)?;
        let (cfa, address) = match self.target.link_register() {
            None => {
                let at = top.checked_add(words.saturating_mul(8)).ok_or(End::Lost)?;
                (at.checked_add(8).ok_or(End::Lost)?, self.stack.word(at)?)
            }
            Some(link) => {
                let cfa = top.checked_add(words.saturating_mul(16)).ok_or(End::Lost)?;
                (cfa, self.registers.get(link).ok_or(End::Lost)?)
            }
        };
        let callee = *self;
        if words > 0 {
            self.registers
                .set(self.target.frame_pointer(), self.stack.word(top)?);
        }
        self.registers.set(self.target.stack_pointer(), cfa);
        callee.check(address, &self.registers, false)
    }

    /// Checks that an address is that of a caller, whose registers show that it is further up the stack. Signals may have a
    /// stack of their own.
    fn check(&self, address: u64, caller: &Registers, is_signal: bool) -> Result<u64, End> {
        let address = self.target.code_address(address);
        if address == 0 {
            return Err(End::Start);
        }
        let stack_pointer = self.target.stack_pointer();
        let (old, new) = (self.registers.get(stack_pointer), caller.get(stack_pointer));
        let is_leaf = self.is_interrupted && self.target.link_register().is_some();
        match is_signal || new > old || is_leaf && new == old && address != self.address {
            true => Ok(address),
            false => Err(End::Lost),
        }
    }
}
