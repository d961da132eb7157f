//! Functions of executables and libraries without tables, by their machine code: V8's built-in functions, for example.

use std::sync::{Arc, Mutex, PoisonError};

use crate::collections::hash::HashMap;
use crate::elf::call_frames::RuleRoom;
use crate::frames::native::modules::ModuleIndex;
use crate::frames::native::symbols::NativeSymbols;
use crate::frames::unwind::frameless::Tops;
use crate::frames::unwind::known_address::KnownTop;
use crate::frames::unwind::registers::Target;
use crate::frames::unwind::x86_64_code;

/// Maximum size of a function in bytes. V8's largest built-in functions have some 20,000.
const MAX_SIZE: usize = 1 << 16;

/// Machine code of all functions without tables, each read when it is first asked for.
#[derive(Debug)]
pub struct NativeCode<'a> {
    symbols: &'a NativeSymbols<'a>,
    target: Target,
    room: &'a RuleRoom,
    /// `None` for functions that are too large, and if there is no room.
    read: Mutex<HashMap<(ModuleIndex, u32), Option<Arc<CodeWithTops>>>>,
}

/// The code of a function, with what it has on top of the stack.
type CodeWithTops = (Vec<u8>, Tops);

impl<'a> NativeCode<'a> {
    /// Prepares reading the code of functions of modules.
    pub fn new(symbols: &'a NativeSymbols<'a>, target: Target, room: &'a RuleRoom) -> Self {
        Self {
            symbols,
            target,
            room,
            read: Mutex::default(),
        }
    }

    /// Returns what a function without tables has on top of the stack at an offset in a module's file; `None` if no symbol is there.
    pub fn top(&self, module: ModuleIndex, file_offset: u64) -> Option<KnownTop> {
        let (function, offset) = self.at(module, file_offset)?;
        Some(KnownTop::of(self.target, &function.1, offset))
    }

    /// Whether an offset in a module's file is right after a call.
    pub fn is_after_call(&self, module: ModuleIndex, file_offset: u64) -> bool {
        // The call may be the last instruction of its function.
        let call = file_offset.checked_sub(1).and_then(|call| self.at(module, call));
        call.is_some_and(|(function, offset)| {
            x86_64_code::is_after_call(&function.0, offset.saturating_add(1))
        })
    }

    /// Returns the function at an offset in a module's file, and the offset in its code.
    fn at(&self, module: ModuleIndex, file_offset: u64) -> Option<(Arc<CodeWithTops>, usize)> {
        let address = self.symbols.linked_address(module, file_offset)?;
        let symbol = self.symbols.at_address(module, address)?;
        let range = self.symbols.range(module, symbol)?;
        let offset = usize::try_from(address.0.checked_sub(range.start.0)?).ok()?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let function = read
            .entry((module, symbol))
            .or_insert_with(|| self.read(module, symbol, range.size()));
        Some((function.clone()?, offset))
    }

    fn read(&self, module: ModuleIndex, symbol: u32, size: u64) -> Option<Arc<CodeWithTops>> {
        /// A row takes as much memory as so many bytes of code.
        const ROW_SIZE: usize = 16;
        if size > MAX_SIZE as u64 {
            return None;
        }
        let (machine, code) = self.symbols.code(module, symbol, MAX_SIZE)?;
        if Target::of(machine) != Some(self.target) {
            return None;
        }
        self.room.take(code.len().div_ceil(ROW_SIZE))?;
        let tops = Tops::of(self.target, &code);
        self.room.take(tops.rows().len())?;
        Some(Arc::new((code, tops)))
    }
}
