//! The index of a jitdump: where the records of its functions are.

use crate::collections::hash::HashMap;
use crate::collections::tally::Tally;
use crate::fault::Fault;
use crate::format::debug_info::{self, DebugInfoQuirks};
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
    /// Offset of the text in the content of the record, in bytes.
    pub start: usize,
    /// Size of the text, in bytes.
    pub size: u64,
}

impl EmbeddedText {
    /// Returns the text in the content of its record, without looking for its end again, which may be far before that of the
    /// record; `None` if the file has changed.
    pub fn text<'a>(&self, content: &'a [u8], path: &[u8]) -> Option<&'a [u8]> {
        let (before, rest) = content.split_at_checked(self.start)?;
        let has_path = before.strip_suffix(b"\0").unwrap_or(before).ends_with(path);
        rest.get(..usize::try_from(self.size).ok()?).filter(|_| has_path)
    }
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
            Some((name, self.range(number)?, contents.of(debug_info)?))
        });
        let examined = with_lines.take(EXAMINED_FUNCTIONS);
        let examined = examined.filter_map(|(name, code, content)| {
            let entries = debug_info::entries(content, name, code, self.header.endian)?;
            Some((name, code, entries))
        });
        self.quirks = DebugInfoQuirks::detect(examined, self.machine.is_64);
    }
}

#[cfg(test)]
mod tests {
    use crate::bytes::ByteOrder;
    use crate::format::Dump;
    use crate::machine::Machine;

    const ORDER: ByteOrder = ByteOrder::Little;

    /// Functions of 80 bytes as LLVM writes them, of which only the last one has an entry past its end.
    fn dump(functions: u64) -> Vec<u8> {
        let mut file = Vec::new();
        let mut words = |words: &[u32]| words.iter().for_each(|&word| ORDER.write_u32(&mut file, word));
        words(&[0x4A69_5444, 1, 40, 62, 0, 1, 0, 0, 0, 0]);
        for function in 1..=functions as u32 {
            let start = function * 0x100;
            let last = if function as u64 == functions { 0x51 } else { 0x48 };
            words(&[2, 72, function, 0, start, 0, 2, 0]);
            for (offset, line) in [(0x40, 1), (last, 2)] {
                words(&[start + offset, 0, line, 0]);
                words(&[u32::from_le_bytes(*b"a.c\0")]);
            }
            words(&[0, 140, function, 0, 1, 1, start, 0, start, 0, 80, 0, function, 0]);
            words(&[u32::from_le_bytes(*b"fun\0")]);
            words(&[0; 20]);
        }
        file
    }

    #[test]
    fn the_first_1000_functions_with_lines_show_the_quirks_of_a_file() {
        for (functions, bias) in [(1000, 0x40), (1001, 0)] {
            let file = dump(functions);
            let dump = Dump::parse(&file, Machine::X86_64).unwrap();
            assert!(dump.faults().is_empty());
            assert_eq!(dump.function_count() as u64, functions);
            assert_eq!(dump.quirks().bias, bias, "{functions}");
        }
    }
}
