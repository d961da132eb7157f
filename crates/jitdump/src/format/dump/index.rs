//! The index of a jitdump: where the records of its functions are.

use crate::collections::hash::HashMap;
use crate::collections::tally::Tally;
use crate::fault::Fault;
use crate::format::debug_info::DebugInfoQuirks;
use crate::format::dump::function_table::FunctionTable;
use crate::format::header::Header;
use crate::format::load::Load;
use crate::format::record::{Contents, RecordLocation};
use crate::machine::Machine;
use crate::units::AddressRange;

/// Embedded source files by path, in file order.
pub type EmbeddedSources = HashMap<Vec<u8>, Vec<EmbeddedText>>;

/// The text of an embedded source file.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedText {
    pub record: RecordLocation,
    /// Size of the text, in bytes.
    pub size: u64,
}

/// Number of functions with lines that are examined for quirks. All functions of a file come from the same runtime.
pub(super) const EXAMINED_FUNCTIONS: usize = 1000;

/// What a jitdump has, and where. Names, code and tables are read from its contents, which callers pass.
#[derive(Clone, Debug)]
pub struct Index {
    pub(in crate::format) header: Header,
    pub(super) machine: Machine,
    pub(in crate::format) functions: FunctionTable,
    pub(super) faults: Tally<Fault>,
    pub(in crate::format) quirks: DebugInfoQuirks,
    pub(in crate::format) sources: EmbeddedSources,
    /// Whether any function has a name of V8.
    pub(super) has_v8_code: bool,
}

impl Index {
    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the machine that the code was compiled for.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns the faults found in the records that were read.
    pub fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }

    /// Returns the number of functions.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// Returns the addresses at which a function was first loaded; `None` if it has no code.
    pub fn range(&self, function: u32) -> Option<AddressRange> {
        self.functions.range(function)
    }

    /// Detects how to interpret the entries of DEBUG_INFO records.
    pub(super) fn detect_quirks(&mut self, contents: Contents<'_>) {
        let with_lines = self.functions.with_debug_info();
        let with_lines = with_lines.filter_map(|(number, debug_info)| {
            let load = contents.of(self.functions.get(number)?.load)?;
            let name = Load::parse(load, self.header.endian)?.name;
            let range = self.range(number)?;
            Some((name, range, contents.of(debug_info)?))
        });
        let examined = with_lines.take(EXAMINED_FUNCTIONS);
        self.quirks = DebugInfoQuirks::detect(examined, self.header.endian, self.machine.is_64);
    }
}
