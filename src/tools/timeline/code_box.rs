//! Code with a name, and its place on the page.

use jitdump::{AddressRange, Time};

use crate::code::perf_map_symbols::{PlacedSymbol, SymbolId};
use crate::code::process::SpaceId;
use crate::code::timeline::{FunctionId, MappingIndex, Timeline};
use crate::units::Pid;

/// Code with a name, wherever it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CodeId {
    /// A function of a dump or a log.
    Function(FunctionId),
    /// A symbol of a perf map.
    Symbol(SymbolId),
}

/// Code at one range of addresses during one interval of time.
#[derive(Clone, Copy, Debug)]
pub struct CodeBox {
    /// Function or symbol.
    pub code: CodeId,
    /// Process of the code.
    pub pid: Pid,
    /// Addresses of the code.
    pub range: AddressRange,
    /// Start time, inclusive.
    pub from: Time,
    /// End time, exclusive.
    pub until: Time,
    /// Number of samples of its process in the code at this address. Parts of partly overwritten code have the same
    /// number.
    pub samples: u32,
}

/// Code with a name, where samples can be taken in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NamedCode {
    /// A function: an index into [`Timeline::mappings`].
    Function(MappingIndex),
    /// A perf map symbol.
    Symbol(PlacedSymbol),
}

impl NamedCode {
    /// Returns the function or symbol.
    pub fn id(self, timeline: &Timeline) -> CodeId {
        match self {
            Self::Function(at) => CodeId::Function(timeline.mappings[at].function),
            Self::Symbol(symbol) => CodeId::Symbol(symbol.id),
        }
    }

    /// Returns the address space in which it was loaded.
    pub fn home(self, timeline: &Timeline) -> SpaceId {
        match self {
            Self::Function(at) => timeline.mappings[at].space,
            Self::Symbol(symbol) => symbol.space,
        }
    }
}
