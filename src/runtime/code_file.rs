//! What one file of a runtime tells of code, whatever its format.

use crate::machine::Machine;
use crate::runtime::jitdump::unwinding::Unwinding;
use crate::runtime::jitdump::{Dump, FunctionSources};
use crate::runtime::named_code::SymbolOnlyCode;
use crate::runtime::{CodeEvent, names};
use crate::units::AddressRange;

/// A file that tells of code.
#[derive(Clone, Debug)]
pub enum CodeFile<'a> {
    /// A jitdump: all about each function.
    Jitdump(Dump<'a>),
    /// A log that has names and places of functions.
    Named(SymbolOnlyCode<'a>),
}

/// One function with what the file says about it.
#[derive(Clone, Copy, Debug)]
pub struct FunctionView<'a> {
    /// Which of the file's functions it is.
    pub number: u32,
    /// Its name as the runtime wrote it, without a NUL.
    pub name: &'a [u8],
    /// Its machine code, as many bytes as `range` has, if that is known.
    pub code: Option<&'a [u8]>,
    /// Where the code was put at first.
    pub range: AddressRange,
    /// The number that the runtime knows it under (`code_index` of a jitdump), which need not be unique.
    pub index: u64,
    /// How to unwind it.
    pub unwinding: Option<Unwinding<'a>>,
    /// Which compiler made it, if the file says so.
    pub recorded_tier: Option<&'a [u8]>,
}

impl<'a> FunctionView<'a> {
    /// Which compiler made it, as far as the file or the name says.
    pub fn tier(&self) -> Option<&'a [u8]> {
        let by_name = || names::tier(self.name).map(str::as_bytes);
        self.recorded_tier.or_else(by_name)
    }
}

impl<'a> CodeFile<'a> {
    /// The number of the process that wrote it, as it knew itself.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Jitdump(dump) => dump.header().pid,
            Self::Named(named) => named.pid,
        }
    }

    /// The machine that the code is for.
    pub fn machine(&self) -> Machine {
        match self {
            Self::Jitdump(dump) => dump.machine(),
            Self::Named(named) => named.machine,
        }
    }

    /// What happened to the functions, in the order of time.
    pub fn events(&self) -> &[CodeEvent] {
        match self {
            Self::Jitdump(dump) => dump.events(),
            Self::Named(named) => named.events(),
        }
    }

    /// Where a function's code was put at first; `None` where it has no code.
    pub fn range(&self, function: u32) -> Option<AddressRange> {
        match self {
            Self::Jitdump(dump) => dump.range(function),
            Self::Named(named) => named.function(function).map(|function| function.range),
        }
    }

    /// All about one function.
    pub fn function(&self, number: u32) -> Option<FunctionView<'_>> {
        match self {
            Self::Jitdump(dump) => dump.function(number),
            Self::Named(named) => named.view(number),
        }
    }

    /// Whether the file has a function's machine code.
    pub fn has_code(&self, function: u32) -> bool {
        match self {
            Self::Jitdump(_) => true,
            Self::Named(named) => named
                .function(function)
                .is_some_and(|function| function.code.is_some()),
        }
    }

    /// How to unwind a function.
    pub fn unwinding(&self, function: u32) -> Option<Unwinding<'a>> {
        match self {
            Self::Jitdump(dump) => dump.unwinding(function),
            Self::Named(_) => None,
        }
    }

    /// How many bytes the file has for a function.
    pub fn record_bytes(&self, function: u32) -> u64 {
        match self {
            Self::Jitdump(dump) => dump.record_bytes(function),
            Self::Named(named) => named.record_bytes(function),
        }
    }

    /// How many bytes the texts of source files in it have together.
    pub fn source_bytes(&self) -> u64 {
        match self {
            Self::Jitdump(dump) => dump.source_bytes(),
            Self::Named(_) => 0,
        }
    }

    /// Where in its sources a function's code comes from.
    pub fn sources<'v>(&'v self, view: &FunctionView<'v>) -> FunctionSources<'v> {
        match self {
            Self::Jitdump(dump) => dump.sources(view),
            Self::Named(_) => FunctionSources::default(),
        }
    }
}
