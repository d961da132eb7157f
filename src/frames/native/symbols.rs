//! Symbols of executables and libraries, from files that this machine has.

use jitdump::{Address, AddressRange, Machine};

use crate::elf::limited_reads::FileMemory;
use crate::elf::symbols::FunctionSymbols;
use crate::frames::native::contents::{ContentReader, ElfReads, ModuleContent, ModuleContents};
use crate::frames::native::files::NativeFiles;
use crate::frames::native::modules::{ModuleIndex, Modules};
use crate::results::diagnostics::Diagnostic;

/// Symbols of all modules, each read when it is first asked for.
#[derive(Debug)]
pub struct NativeSymbols<'a> {
    modules: &'a Modules,
    symbols: ModuleContents<'a, SymbolReader>,
}

#[derive(Debug)]
struct SymbolReader;

impl ContentReader for SymbolReader {
    type Content = FunctionSymbols;

    fn read(
        &self,
        file: &ElfReads<'_, '_>,
        memory: &FileMemory<'_>,
        is_wanted: &dyn Fn(Option<&[u8]>) -> bool,
    ) -> Option<FunctionSymbols> {
        FunctionSymbols::read_if(file, memory, is_wanted)
    }

    fn build_id<'c>(&self, symbols: &'c FunctionSymbols) -> &'c [u8] {
        &symbols.build_id
    }

    fn memory_size(&self, symbols: &FunctionSymbols) -> u64 {
        symbols.memory_size()
    }

    fn is_incomplete(&self, symbols: &FunctionSymbols) -> bool {
        !symbols.is_complete
    }
}

impl<'a> NativeSymbols<'a> {
    /// Prepares reading the symbols of modules.
    pub fn new(modules: &'a Modules, files: &'a NativeFiles) -> Self {
        Self {
            modules,
            symbols: ModuleContents::new(modules, files, SymbolReader),
        }
    }

    /// Returns what to report of files whose symbols were not read.
    pub fn refused(&self) -> Option<Diagnostic> {
        self.symbols.refused("symbols")
    }

    /// Returns the index of the symbol at an offset in a module's file.
    pub fn at(&self, module: ModuleIndex, file_offset: u64) -> Option<u32> {
        self.at_address(module, self.linked_address(module, file_offset)?)
    }

    /// Returns the index of the symbol at a linked address in a module: symbols of the debug file come first.
    pub fn at_address(&self, module: ModuleIndex, address: Address) -> Option<u32> {
        let ModuleContent { file, debug, .. } = self.of(module)?;
        let Some(debug) = debug else {
            return file.at(address);
        };
        // Only the module's own file has linkage stubs.
        let of_file = || file.at(address)?.checked_add(debug.count());
        debug.at(address).or_else(of_file)
    }

    /// Returns the machine of a module, and the first bytes of the code of a symbol, at most `max`.
    pub fn code(&self, module: ModuleIndex, symbol: u32, max: usize) -> Option<(Machine, Vec<u8>)> {
        let file = &self.of(module)?.file;
        let range = self.range(module, symbol)?;
        let size = range.size().min(max as u64);
        let offset = file.segments.file_offset(AddressRange::new(range.start, size)?)?;
        let code = self.symbols.bytes(module, offset, usize::try_from(size).ok()?)?;
        Some((file.machine?, code))
    }

    /// Returns the name and the linked addresses of a symbol.
    pub fn symbol(&self, module: ModuleIndex, symbol: u32) -> Option<(String, AddressRange)> {
        let (symbols, index) = self.table_of(module, symbol)?;
        Some((symbols.name(index)?.into_owned(), symbols.range(index)?))
    }

    /// Returns the linked addresses of a symbol.
    pub fn range(&self, module: ModuleIndex, symbol: u32) -> Option<AddressRange> {
        let (symbols, index) = self.table_of(module, symbol)?;
        symbols.range(index)
    }

    /// Returns the linked address of an offset in a module's file.
    pub fn linked_address(&self, module: ModuleIndex, file_offset: u64) -> Option<Address> {
        self.of(module)?.file.segments.address(file_offset)
    }

    /// Returns the build ID of a module: the recorded one, or that of its file.
    pub fn build_id(&self, module: ModuleIndex) -> Option<&[u8]> {
        let recorded = self.modules.all[module].build_id.as_deref();
        recorded.or_else(|| Some(&*self.of(module)?.file.build_id).filter(|id| !id.is_empty()))
    }

    /// Whether this machine has a file of the build of a module.
    pub fn has_file(&self, module: ModuleIndex) -> bool {
        self.of(module).is_some()
    }

    /// Returns the symbols of the file that has a symbol, and its index among them.
    fn table_of(&self, module: ModuleIndex, symbol: u32) -> Option<(&FunctionSymbols, u32)> {
        let ModuleContent { file, debug, .. } = self.of(module)?;
        let Some(debug) = debug else {
            return Some((file, symbol));
        };
        match symbol.checked_sub(debug.count()) {
            Some(of_file) => Some((file, of_file)),
            None => Some((debug, symbol)),
        }
    }

    fn of(&self, module: ModuleIndex) -> Option<&ModuleContent<FunctionSymbols>> {
        let is_file = self.modules.all[module].path.starts_with(b"/");
        is_file.then(|| self.symbols.of(module)).flatten()
    }
}
