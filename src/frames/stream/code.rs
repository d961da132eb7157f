//! Machine code of the symbols in the tables, with its lines, and the names of what it refers to.

use std::sync::Arc;

use jitdump::{Address, Machine, Time, printable};

use crate::code::process::SpaceId;
use crate::code::timeline::Lookup;
use crate::frames::native::modules;
use crate::frames::stream::frame::FrameCode;
use crate::frames::stream::naming::Namer;
use crate::frames::stream::tables::{Line, SymbolIndex};
use crate::load::{function_of, symbol_of};

/// Most bytes of one function that are read. Functions in machine code rarely have more than 100 KB.
const MAX_CODE: usize = 1 << 20;

/// Machine code of a function.
#[derive(Clone, Debug)]
pub struct MachineCode {
    /// The machine that it is for.
    pub machine: Machine,
    /// Its first bytes, at most 1 MiB.
    pub bytes: Vec<u8>,
}

/// Name of what an address refers to, and the offset of the address in it.
type Referred = (String, u64);

impl Namer<'_> {
    /// Returns the machine code of a symbol; `None` if no file has it.
    pub fn machine_code(&self, symbol: SymbolIndex) -> Option<MachineCode> {
        match self.code_of(symbol)? {
            FrameCode::Function(id) => {
                let files = &self.recording.runtime_files.used;
                let bytes = function_of(files, id)?.code?;
                Some(MachineCode {
                    machine: files[id.file].code.machine(),
                    bytes: bytes.get(..MAX_CODE).unwrap_or(bytes).to_vec(),
                })
            }
            FrameCode::Native { module, symbol } => {
                let (machine, bytes) = self.symbols.native.code(module, symbol, MAX_CODE)?;
                Some(MachineCode { machine, bytes })
            }
            _ => None,
        }
    }

    /// Returns the functions and lines at sorted offsets in the code of a symbol, as in [`Frame::lines`].
    ///
    /// [`Frame::lines`]: crate::frames::stream::tables::Frame::lines
    pub fn lines_at(&mut self, symbol: SymbolIndex, offsets: &[u64]) -> Vec<Arc<[Line]>> {
        let Some(code) = self.code_of(symbol) else {
            return Vec::new();
        };
        let FrameCode::Native { module, symbol } = code else {
            return self.lines_in(code, offsets, None);
        };
        let lines = self.native_lines.zip(self.symbols.native.range(module, symbol));
        let read = lines.and_then(|(lines, range)| Some((lines, lines.read(module, vec![range])?)));
        let info = read
            .as_ref()
            .and_then(|(lines, read)| lines.functions(read).into_iter().next());
        self.lines_in(code, offsets, info)
    }

    /// Returns what was at addresses that the code of a symbol refers to, when it was compiled.
    pub fn referred(&self, symbol: SymbolIndex, addresses: &[u64]) -> Vec<Option<Referred>> {
        let addresses = addresses.iter().map(|&address| Address(address));
        match self.code_of(symbol) {
            Some(FrameCode::Function(id)) => {
                let mut mappings = self.symbols.selector.timeline.mappings.iter();
                let Some(mapping) = mappings.find(|mapping| mapping.function == id) else {
                    return Vec::new();
                };
                addresses
                    .map(|address| self.in_memory(mapping.space, address, mapping.since))
                    .collect()
            }
            Some(FrameCode::Native { module, .. }) => {
                addresses.map(|address| self.in_module(module, address)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn code_of(&self, symbol: SymbolIndex) -> Option<FrameCode> {
        let mut codes = self.codes.iter();
        codes.find(|(_, known)| **known == symbol).map(|(&code, _)| code)
    }

    /// Returns what is at an address at a time; `None` if it has no name.
    fn in_memory(&self, space: SpaceId, address: Address, time: Time) -> Option<Referred> {
        let timeline = self.symbols.selector.timeline;
        let (name, start) = match timeline.at(space, address, time) {
            Lookup::Function(at) => {
                let mapping = &timeline.mappings[at];
                let function = function_of(&self.recording.runtime_files.used, mapping.function)?;
                (self.names_and_lines.name(function.name), mapping.range.start)
            }
            Lookup::Symbol(placed) => {
                let symbol = symbol_of(&self.recording.maps, placed.id)?;
                (self.names_and_lines.name(symbol.name), symbol.range.start)
            }
            _ => {
                let (mapped, _) = self.symbols.modules.module_at(space, address, time);
                let mapped = mapped?;
                let linked = self
                    .symbols
                    .native
                    .linked_address(mapped.module, mapped.file_offset(address))?;
                return self.in_module(mapped.module, linked);
            }
        };
        Some((printable(&name), address.0.saturating_sub(start.0)))
    }

    fn in_module(&self, module: modules::ModuleIndex, address: Address) -> Option<Referred> {
        let native = &self.symbols.native;
        let symbol = native.at_address(module, address)?;
        let (name, range) = native.symbol(module, symbol)?;
        Some((
            printable(name.as_bytes()),
            address.0.saturating_sub(range.start.0),
        ))
    }
}
