//! What is known of code addresses: where they are, and the rules for unwinding there.

use crate::code::timeline::MappingIndex;
use crate::elf::call_frames::Rules;
use crate::frames::native::modules::MappedModule;
use crate::frames::unwind::frameless::{FramelessTop, Tops};
use crate::frames::unwind::registers::Target;

/// Where an address is.
#[derive(Clone, Copy, Debug)]
pub enum AddressKind {
    /// In a function of a runtime.
    Function(MappingIndex),
    /// In other memory that runtimes use for code.
    Memory,
    /// In a file.
    Module(MappedModule),
}

/// An address in memory that was mapped.
#[derive(Clone, Copy, Debug)]
pub struct KnownAddress<'w> {
    /// Where it is.
    pub kind: AddressKind,
    /// Rules for unwinding, if there are any.
    pub rules: Option<Rules<'w>>,
    /// What is on top of the stack, if it is in a function without rules.
    pub top: KnownTop,
    /// Whether it is in the code by which a module calls functions of others (`.plt`).
    pub is_linkage: bool,
    /// Whether it is in a module that this machine does not have.
    pub lacks_file: bool,
}

impl KnownAddress<'_> {
    /// Starts with nothing known but where it is.
    pub fn new(kind: AddressKind) -> Self {
        Self {
            kind,
            rules: None,
            top: KnownTop::default(),
            is_linkage: false,
            lacks_file: false,
        }
    }
}

/// What is on top of the stack at an address; `None` with a frame.
#[derive(Clone, Copy, Default, Debug)]
pub struct KnownTop {
    /// If the code was interrupted there.
    pub interrupted: Option<FramelessTop>,
    /// If it waits for a callee, itself without a frame, that sets up the frame of its caller.
    pub at_setup_call: Option<FramelessTop>,
    /// Whether the function never has a frame. Then it may have been entered by a jump, without a return address of its own, as
    /// PHP's traces are.
    pub may_be_entered_by_jump: bool,
    /// Bit mask of registers that the function preserves.
    pub preserved: u64,
}

impl KnownTop {
    /// Returns what a function has on top of the stack at an offset in its code.
    pub fn of(target: Target, tops: &Tops, offset: usize) -> Self {
        Self {
            interrupted: tops.at(offset),
            may_be_entered_by_jump: target == Target::X86_64 && !tops.has_frame,
            preserved: tops.preserved,
            at_setup_call: tops.is_setup_call(offset).then(|| FramelessTop::at_call(target)),
        }
    }
}
