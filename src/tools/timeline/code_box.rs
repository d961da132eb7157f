//! Code with a name, and its place on the page.

use jitdump::{AddressRange, Time};

use crate::code::perf_map_symbols::SymbolId;
use crate::code::selection::SampledCode;
use crate::code::timeline::{FunctionId, Timeline};
use crate::units::Pid;

/// Code with a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    /// A function of a dump or a log.
    Function(FunctionId),
    /// A symbol of a perf map.
    Symbol(SymbolId),
}

/// Code at one range of addresses during one interval of time.
#[derive(Clone, Copy, Debug)]
pub struct CodeBox {
    /// Function or symbol.
    pub item: Item,
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

/// Returns the function or symbol that a sample was taken in.
pub fn item_of(timeline: &Timeline, leaf: SampledCode) -> Option<Item> {
    match leaf {
        SampledCode::Function(at) => Some(Item::Function(timeline.mappings()[at].function)),
        SampledCode::Symbol(symbol) => Some(Item::Symbol(symbol.id)),
        _ => None,
    }
}
