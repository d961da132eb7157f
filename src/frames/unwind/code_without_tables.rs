//! Functions of executables and libraries without tables, by their machine code: V8's built-in functions, for example.

use std::sync::{Arc, Mutex};

use jitdump::{Address, AddressRange};

use crate::collections::hash::HashMap;
use crate::elf::call_frames::RuleRoom;
use crate::elf::limited_reads::FileMemory;
use crate::elf::symbols::FunctionRanges;
use crate::frames::native::contents::{ContentReader, ElfReads, ModuleContents};
use crate::frames::native::files::NativeFiles;
use crate::frames::native::modules::{ModuleIndex, Modules};
use crate::frames::unwind::frameless::Tops;
use crate::frames::unwind::known_address::KnownTop;
use crate::frames::unwind::registers::Target;
use crate::frames::unwind::x86_64_code;
use crate::results::diagnostics::Diagnostic;
use crate::threads::lock;

/// Maximum size of a function in bytes. V8's largest built-in functions have some 20,000.
const MAX_SIZE: u64 = 1 << 16;

/// Machine code of all functions without tables, each read when it is first asked for.
#[derive(Debug)]
pub struct CodeWithoutTables<'a> {
    functions: ModuleContents<'a, RangeReader>,
    target: Target,
    room: &'a RuleRoom,
    /// By module and linked address; `None` for functions that are too large, and if there is no room.
    read: Mutex<HashMap<(ModuleIndex, Address), ReadCode>>,
}

/// The code of a function, with what it has on top of the stack.
type CodeWithTops = (Vec<u8>, Tops);
type ReadCode = Option<Arc<CodeWithTops>>;

#[derive(Debug)]
struct RangeReader;

impl ContentReader for RangeReader {
    type Content = FunctionRanges;

    fn read(
        &self,
        file: &ElfReads<'_, '_>,
        memory: &FileMemory<'_>,
        is_wanted: &dyn Fn(Option<&[u8]>) -> bool,
    ) -> Option<FunctionRanges> {
        FunctionRanges::read_if(file, memory, is_wanted)
    }

    fn build_id<'c>(&self, functions: &'c FunctionRanges) -> &'c [u8] {
        &functions.build_id
    }

    fn memory_size(&self, functions: &FunctionRanges) -> u64 {
        functions.memory_size()
    }

    fn is_incomplete(&self, functions: &FunctionRanges) -> bool {
        !functions.is_complete
    }
}

impl<'a> CodeWithoutTables<'a> {
    /// Prepares reading the code of functions of modules.
    pub fn new(modules: &'a Modules, files: &'a NativeFiles, target: Target, room: &'a RuleRoom) -> Self {
        Self {
            functions: ModuleContents::new(modules, files, RangeReader),
            target,
            room,
            read: Mutex::default(),
        }
    }

    /// Returns what to report of files whose functions were not read.
    pub fn refused(&self) -> Option<Diagnostic> {
        self.functions.refused("symbols")
    }

    /// Returns what a function without tables has on top of the stack at an offset in a module's file; `None` if no symbol is there.
    pub fn top(&self, module: ModuleIndex, file_offset: u64) -> Option<KnownTop> {
        let (function, offset) = self.function_at(module, file_offset)?;
        Some(KnownTop::of(self.target, &function.1, offset))
    }

    /// Whether an offset in a module's file is right after a call.
    pub fn is_after_call(&self, module: ModuleIndex, file_offset: u64) -> bool {
        // The call may be the last instruction of its function.
        let call = file_offset
            .checked_sub(1)
            .and_then(|call| self.function_at(module, call));
        call.is_some_and(|(function, offset)| {
            x86_64_code::is_after_call(&function.0, offset.saturating_add(1))
        })
    }

    /// Returns the function at an offset in a module's file, and the offset in its code.
    fn function_at(&self, module: ModuleIndex, file_offset: u64) -> Option<(Arc<CodeWithTops>, usize)> {
        let content = self.functions.of(module)?;
        let address = content.file.segments.address(file_offset)?;
        let in_debug = || content.debug.as_ref()?.at(address);
        let range = content.file.at(address).or_else(in_debug)?;
        let offset = usize::try_from(address.0.checked_sub(range.start.0)?).ok()?;
        let mut read = lock(&self.read);
        let function = read
            .entry((module, range.start))
            .or_insert_with(|| self.read_function(module, &content.file, range));
        Some((function.clone()?, offset))
    }

    /// Reads the code of a function, and nothing else of its file, which may have thousands of them.
    fn read_function(&self, module: ModuleIndex, file: &FunctionRanges, range: AddressRange) -> ReadCode {
        /// A row takes as much memory as so many bytes of code.
        const ROW_SIZE: usize = 16;
        if range.size() > MAX_SIZE || Target::of(file.machine) != Some(self.target) {
            return None;
        }
        let size = usize::try_from(range.size()).ok()?;
        self.room.take(size.div_ceil(ROW_SIZE))?;
        let code = self
            .functions
            .bytes(module, file.segments.file_offset(range)?, size)?;
        let tops = Tops::of(self.target, &code);
        self.room.take(tops.rows.len())?;
        Some(Arc::new((code, tops)))
    }
}
