//! From a frame to its caller.

use std::ops::Range;

use gimli::{EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian, Location, Value};

use crate::elf::call_frames::{CfaRule, Rule, Rules};
use crate::unwind::registers::{Registers, Target};

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

/// A caller.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Return address, or the address at which a signal interrupted the frame.
    pub address: u64,
    /// Its registers.
    pub registers: Registers,
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

impl Frame<'_> {
    /// Finds the caller by the rules for this address.
    pub fn caller_by(&self, rules: Rules<'_>) -> Result<Caller, End> {
        let cfa = match rules.cfa {
            CfaRule::Register(register, offset) => {
                let base = self.registers.get(*register).ok_or(End::Lost)?;
                base.checked_add_signed(*offset).ok_or(End::Lost)?
            }
            CfaRule::Expression(at) => self.evaluate(rules, at, None)?,
        };
        let stack_pointer = self.target.stack_pointer();
        let mut registers = self.registers;
        registers.set(stack_pointer, cfa);
        let mut address = match self.target.link_register() {
            // A function that calls nothing leaves the return address where it is.
            Some(_) if self.is_interrupted => self.registers.get(rules.return_address).ok_or(End::Lost),
            _ => Err(End::Start),
        };
        for (register, rule) in rules.registers {
            let value = self.value(rules, rule, *register, cfa);
            match value {
                Ok(Some(value)) => registers.set(*register, value),
                Ok(None) | Err(_) => registers.forget(*register),
            }
            if *register == rules.return_address {
                address = value.and_then(|value| value.ok_or(End::Start));
            }
        }
        let address = self.target.code_address(address?);
        self.check(Caller { address, registers }, rules.is_signal)
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
    pub fn caller_by_frame_pointer(&self) -> Result<Caller, End> {
        let pointer = self.registers.get(self.target.frame_pointer());
        let pointer = pointer.ok_or(End::Lost)?;
        if pointer == 0 {
            return Err(End::Start);
        }
        let caller = self.stack.word(pointer)?;
        let return_address = pointer.checked_add(8).ok_or(End::Lost)?;
        let address = self.stack.word(return_address)?;
        let cfa = pointer.checked_add(16).ok_or(End::Lost)?;
        // What the frame did with the other registers is not known.
        let mut registers = Registers::NONE;
        registers.set(self.target.stack_pointer(), cfa);
        registers.set(self.target.frame_pointer(), caller);
        let address = self.target.code_address(address);
        self.check(Caller { address, registers }, false)
    }

    /// Finds the caller of a function that has pushed `words` words since it was called: none, or the frame pointer.
    pub fn caller_before_frame(&self, words: u64) -> Result<Caller, End> {
        let top = self.registers.get(self.target.stack_pointer()).ok_or(End::Lost)?;
        let mut registers = self.registers;
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
        if words > 0 {
            registers.set(self.target.frame_pointer(), self.stack.word(top)?);
        }
        registers.set(self.target.stack_pointer(), cfa);
        let address = self.target.code_address(address);
        self.check(Caller { address, registers }, false)
    }

    /// Checks that a caller is one, and is further up the stack. Signals may have a stack of their own.
    fn check(&self, caller: Caller, is_signal: bool) -> Result<Caller, End> {
        if caller.address == 0 {
            return Err(End::Start);
        }
        let stack_pointer = self.target.stack_pointer();
        let (old, new) = (
            self.registers.get(stack_pointer),
            caller.registers.get(stack_pointer),
        );
        let is_leaf = self.is_interrupted && self.target.link_register().is_some();
        match is_signal || new > old || is_leaf && new == old && caller.address != self.address {
            true => Ok(caller),
            false => Err(End::Lost),
        }
    }
}
