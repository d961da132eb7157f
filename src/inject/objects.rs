//! From functions to objects in a folder, and what the profile must say about them.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::code::grouping::{Groups, Mapped, Source};
use crate::code::perf_map_symbols::PlacedSymbol;
use crate::code::process::{Processes, SpaceId};
use crate::code::timeline::{CodeMapping, FreedRange, FunctionId};
use crate::code::unknown_addresses::UnknownAddresses;
use crate::elf::store;
use crate::inject::output::Output;
use crate::inject::perf_maps::UsedMap;
use crate::inject::source_paths::LineOptions;
use crate::inject::sources::UsedFile;
use crate::inject::{Layout, function_objects, symbol_objects};
use crate::machine::Machine;
use crate::runtime::jitdump;
use crate::tally::Tally;
use crate::units::{AddressRange, BuildId, Pid, Time};

/// An object that was written, and where it is to be mapped.
#[derive(Clone, Debug)]
pub struct PlacedObject {
    /// The process.
    pub pid: Pid,
    /// Its address space.
    pub space: SpaceId,
    /// From when on.
    pub time: Time,
    /// Its place among all that happened to the address space.
    pub sequence: u32,
    /// Where its code lies, or a part of it.
    pub range: AddressRange,
    /// The offset in the file that the first byte of that part has.
    pub file_offset: u64,
    /// Where its tables for unwinding are to lie, and where they start in the file, if they hold anything.
    pub tables: Option<(AddressRange, u64)>,
    /// Its build-id.
    pub build_id: BuildId,
    /// Its path.
    pub path: Vec<u8>,
}

/// What an object had to do without.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// The unwinding information has no entry for the function.
    NoEntry,
    /// The unwinding information of all functions is many times as large as the dumps.
    TablesTooLarge,
    /// There is no place for tables within 2 GiB behind the function.
    NoPlace,
    /// Its lines can't be written as DWARF.
    LinesTooLarge,
    /// The texts of sources in all objects are many times as large as the dumps.
    TextsTooLarge,
    /// There are so many objects that it got none.
    TooMuch,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoEntry => "functions whose unwinding information has no usable entry for them, written without",
            Self::TablesTooLarge => {
                "functions written without their unwinding tables, since those of others are larger than the dumps already"
            }
            Self::NoPlace => {
                "functions without unused addresses within 2 GiB behind them, written without their unwinding tables"
            }
            Self::LinesTooLarge => "functions whose lines are too large for DWARF, written without",
            Self::TextsTooLarge => {
                "functions written without the text of their sources, since those of others are many times as large as the dumps already"
            }
            Self::TooMuch => {
                "functions left out, since the objects of others are many times as large as the dumps already"
            }
        })
    }
}

/// The objects of a run.
#[derive(Debug, Default)]
pub struct Objects {
    /// All that were written, wherever they are to be mapped: first those of dumps, by address space and
    /// time, then those of perf maps, by symbol.
    pub placed: Vec<PlacedObject>,
    /// How many functions of dumps are in them.
    pub functions: u64,
    /// How many there are for these.
    pub function_objects: u64,
    /// How many there are for symbols of perf maps; each may be mapped at several times.
    pub symbols: u64,
    /// What was wrong with their lines, for each dump.
    pub line_faults: Vec<Tally<jitdump::Fault>>,
    /// What they had to do without.
    pub faults: Tally<Fault>,
}

/// What objects are made from.
pub struct Input<'a> {
    /// The files that functions come from.
    pub files: &'a [UsedFile<'a>],
    /// The perf maps that symbols come from.
    pub maps: &'a [UsedMap<'a>],
    /// The processes that they lie in.
    pub processes: &'a Processes,
    /// The machine that was recorded, for what does not say its own.
    pub recorded: Machine,
    /// How lines are written.
    pub lines: &'a LineOptions,
    /// Whether symbols tell which compiler made a function.
    pub has_tiers: bool,
}

impl Input<'_> {
    /// How many bytes the records of a function have together.
    pub fn record_bytes(&self, function: FunctionId) -> u64 {
        let used = self.files.get(function.file as usize);
        used.map_or(0, |used| used.code.record_bytes(function.function))
    }

    /// Whether the machine code of a function is known.
    fn has_code(&self, function: FunctionId) -> bool {
        let used = self.files.get(function.file as usize);
        used.is_some_and(|used| used.code.has_code(function.function))
    }

    /// Which of `functions` share an object. `freed_ranges`, `symbols` and `unknown` are those of the same selection.
    pub fn groups(
        &self,
        layout: Layout,
        functions: Vec<CodeMapping>,
        freed_ranges: &[FreedRange],
        symbols: &[PlacedSymbol],
        unknown: &UnknownAddresses,
    ) -> Groups {
        if layout == Layout::Function {
            return Groups::of_one(functions);
        }
        let mapped = Mapped {
            mappings: &functions,
            freed_ranges,
            symbols,
            unknown,
        };
        Groups::as_large_as_can_be(self.processes, mapped, |mapping| Source {
            bytes: self.record_bytes(mapping.function),
            has_code: self.has_code(mapping.function),
        })
    }
}

/// Writes the objects of `functions`, one for each group, and of `symbols`, which are sorted, and tells
/// `progress` of each function and symbol.
pub fn write(
    input: &Input<'_>,
    functions: &Groups,
    symbols: &[PlacedSymbol],
    output: &mut Output,
    mut progress: impl FnMut(u64),
) -> Result<Objects, store::Error> {
    let mut objects = function_objects::write(input, functions, output, &mut progress)?;
    symbol_objects::write(input, symbols, output, &mut objects, progress)?;
    Ok(objects)
}

/// Tables start at multiples of this.
pub const TABLE_ALIGN: u64 = 16;

/// The path as the profile has it.
///
/// perf with libdw takes a file whose path starts with `/tmp/jitted-` for one that perf inject made, and
/// looks for its code where ours don't have it (unwind-libdw.c, since Linux 6.8).
pub fn path_for_readers(path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    match path.strip_prefix(b"/tmp/jitted-") {
        Some(rest) => [b"/tmp/./jitted-", rest].concat(),
        None => path.to_vec(),
    }
}
