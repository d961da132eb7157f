//! Functions as frames of a stack refer to them.

use crate::code::perf_map_symbols::SymbolId;
use crate::code::timeline::FunctionId;
use crate::frames::native::modules::ModuleIndex;

/// What a frame of a stack is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Frame {
    /// A function of a runtime's file.
    Function(FunctionId),
    /// A symbol of a perf map.
    PerfMapSymbol(SymbolId),
    /// JIT code without a name, or without a certain one.
    UnnamedJit,
    /// A symbol of an executable or library, by the indices of both.
    Native {
        /// Index of the module.
        module: ModuleIndex,
        /// Index of the symbol in it.
        symbol: u32,
    },
    /// Code without a symbol in this module.
    Module(ModuleIndex),
    /// A symbol of the kernel.
    Kernel(u32),
    /// Code of the kernel without a symbol, in the module with this index, if known.
    KernelModule(Option<ModuleIndex>),
    /// Anything else.
    Unknown,
}
