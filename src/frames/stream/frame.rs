//! Functions and places in them, as frames of a stack refer to them.

use crate::code::perf_map_symbols::SymbolId;
use crate::code::timeline::FunctionId;
use crate::frames::native::modules::ModuleIndex;

/// What a frame of a stack is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameCode {
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

/// What distinguishes frames: the function and the address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameAddress {
    /// What the frame is in.
    pub code: FrameCode,
    /// Offset in the code for a function of a runtime's file, and in the file for native code; else the address.
    pub offset: u64,
}

impl FrameAddress {
    /// Returns the function of a runtime's file.
    pub fn function(&self) -> Option<FunctionId> {
        match self.code {
            FrameCode::Function(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the module of native code with a symbol.
    pub fn module(&self) -> Option<ModuleIndex> {
        match self.code {
            FrameCode::Native { module, .. } => Some(module),
            _ => None,
        }
    }

    /// Returns the symbol of native code.
    pub fn native_symbol(&self) -> Option<u32> {
        match self.code {
            FrameCode::Native { symbol, .. } => Some(symbol),
            _ => None,
        }
    }

    /// Returns the symbol of a perf map.
    pub fn symbol(&self) -> Option<SymbolId> {
        match self.code {
            FrameCode::PerfMapSymbol(id) => Some(id),
            _ => None,
        }
    }
}
