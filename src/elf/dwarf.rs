//! Encodes line tables and inlined calls as DWARF sections.
//!
//! Each function has a compile unit of its own, so that a file can hold any number of functions:
//!
//! ```text
//! compile unit          name, language, low_pc, high_pc, comp_dir
//!   subprogram …        each function that was inlined, without code
//!   subprogram          the function: name, linkage name, declaration, low_pc, high_pc
//!     inlined call      callee, ranges, file, line and column of the call
//!       inlined call    …
//! line program          one sequence that covers all of the function's code
//! .debug_aranges        address range of each unit
//! ```
//!
//! Units share one table of abbreviations and their strings.
//!
//! Readers have different requirements. GNU addr2line reads line programs and units that have a range. LLVM's and
//! gimli's look up the range first; elfutils' needs `.debug_aranges`. All of them expect the code after the last
//! row to be covered, so the sequence ends at the end of the function. The first row is at the start of the
//! function: code before the runtime's first line is the prologue.
//!
//! Reuse the [`EncoderMemory`] to encode many functions: once it is large enough, nothing is allocated.
//! `gimli::write` makes 47 to 140 allocations for each function.
//!
//! - Functions have a linkage name, even if it equals the name: GNU addr2line accepts only these, or names
//!   of C.
//! - A row starts wherever an inlined call starts or ends: eu-addr2line searches for calls at the start of
//!   an address's row.
//! - There is always a DW_AT_comp_dir, `.` if unknown: without it, eu-addr2line prints `(null)`.
//! - Inlined calls with several ranges have a DW_AT_entry_pc.
//! - Paths have no colon after a scheme (`node:internal/util`), and `file:` URLs become paths: perf treats
//!   everything before the first colon as the name.
//! - No lines are invented. A function without lines but with a position in its name has a declaration
//!   only.
//! - A unit that would make a section too large is removed as a whole.

mod abbreviations;
mod files;
pub mod leb128;
mod line;
mod ranges;
mod strings;
mod unit;

use abbreviations::AbbreviationCodes;
use files::FileTable;
use jitdump::Machine;
use jitdump::debug_info::DebugInfo;
pub use line::rows_beyond_limits;
use strings::StringTable;

/// DWARF version to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Version {
    /// DWARF 4, which all current tools read.
    #[default]
    Four,
    /// DWARF 5, which can hold the text of source files (DW_LNCT_LLVM_source). GNU binutils 2.40 reject that and
    /// read no lines, so perf shows none if it uses addr2line and objdump.
    Five,
}

impl Version {
    fn to_u16(self) -> u16 {
        match self {
            Self::Four => 4,
            Self::Five => 5,
        }
    }

    /// Index of a unit's first file.
    fn first_file(self) -> u32 {
        match self {
            Self::Four => 1,
            Self::Five => 0,
        }
    }
}

/// Input for the unit of one function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionUnit<'a> {
    /// Symbol name.
    pub symbol: &'a [u8],
    /// Address of the code in the object; not 0.
    pub address: u64,
    /// Size of the code in bytes.
    pub size: u32,
    /// Lines and inlined calls, normalised for this size.
    pub info: &'a DebugInfo<'a>,
}

/// Settings that all units of a file share.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// DWARF version.
    pub version: Version,
    /// Target machine.
    pub machine: Machine,
    /// Directory for resolving relative paths. `.` if it is unknown, because eu-addr2line prints `(null)` if it is
    /// missing.
    pub directory: &'a [u8],
}

/// Section name and content.
pub type DwarfSection<'a> = (&'static str, &'a [u8]);

/// All sections; empty ones need not be written.
pub type Sections<'a> = [DwarfSection<'a>; 7];

/// The error for a function that can't be added, because section offsets would exceed 32 bits, or its addresses
/// exceed the machine's address size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too large for DWARF of 32 bits")]
pub struct TooLarge;

/// Maximum section size in bytes; 32-bit lengths from 0xffff_fff0 on are reserved.
const MAX_SECTION: usize = 0xffff_ffef;

/// Capacity of each buffer that is kept for the next encoder, in bytes.
const RETAINED_CAPACITY: usize = 1 << 20;

/// Reusable memory of an [`Encoder`].
#[derive(Debug, Default)]
pub struct EncoderMemory {
    abbreviations: Vec<u8>,
    aranges: Vec<u8>,
    info: Vec<u8>,
    line: Vec<u8>,
    line_strings: StringTable,
    ranges: Vec<u8>,
    strings: StringTable,
    /// Abbreviation codes in use, for `.debug_abbrev`.
    codes: AbbreviationCodes,
    /// Files of the current unit.
    files: FileTable,
    /// For each function of the current unit, the offset of its inlined entry in the unit; 0 if it has none.
    origins: Vec<u32>,
    /// Functions of the current unit that contain the next call, outermost first.
    callers: Vec<u32>,
}

/// Encodes units into DWARF sections, one after another.
#[derive(Debug)]
pub struct Encoder<'b, 's> {
    settings: Settings<'s>,
    memory: &'b mut EncoderMemory,
    max_section: usize,
}

impl<'b, 's> Encoder<'b, 's> {
    /// Returns an encoder without units. Discards the content of the memory.
    pub fn new(memory: &'b mut EncoderMemory, settings: Settings<'s>) -> Self {
        memory.clear();
        Self {
            settings,
            memory,
            max_section: MAX_SECTION,
        }
    }

    /// Adds the unit of a function. If it is too large, the sections are left unchanged.
    pub fn add(&mut self, function: &FunctionUnit<'_>) -> Result<(), TooLarge> {
        let end = function.address.checked_add(function.size.into());
        let is_64 = self.settings.machine.is_64;
        end.filter(|&end| is_64 || end <= u32::MAX.into())
            .ok_or(TooLarge)?;
        let lengths = self.memory.lengths();
        let codes = self.memory.codes;
        self.memory.files.collect(function.info, self.settings.version);
        unit::write(function, &self.settings, self.memory);
        if self.has_room(self.memory.lengths()) {
            return Ok(());
        }
        self.memory.truncate(lengths);
        self.memory.codes = codes;
        Err(TooLarge)
    }

    /// Whether sections may have these lengths.
    fn has_room(&self, lengths: [usize; 6]) -> bool {
        lengths.into_iter().all(|length| length <= self.max_section)
    }

    /// Returns the size of the source texts and file names so far, in bytes.
    pub fn text_size(&self) -> u64 {
        self.memory.line_strings.bytes.len() as u64
    }

    /// Returns the sections with all units.
    pub fn finish(self) -> Sections<'b> {
        let memory = self.memory;
        memory.codes.write_table(&mut memory.abbreviations);
        ranges::finish_range_lists(&mut memory.ranges, &self.settings);
        let ranges = match self.settings.version {
            Version::Four => ".debug_ranges",
            Version::Five => ".debug_rnglists",
        };
        [
            (".debug_abbrev", &memory.abbreviations),
            (".debug_info", &memory.info),
            (".debug_aranges", &memory.aranges),
            (".debug_line", &memory.line),
            (".debug_line_str", &memory.line_strings.bytes),
            (ranges, &memory.ranges),
            (".debug_str", &memory.strings.bytes),
        ]
    }
}

impl EncoderMemory {
    /// Empties the buffers for the next object. Very large ones are freed.
    fn clear(&mut self) {
        for bytes in [
            &mut self.abbreviations,
            &mut self.aranges,
            &mut self.info,
            &mut self.line,
            &mut self.ranges,
        ] {
            bytes.clear();
            bytes.shrink_to(RETAINED_CAPACITY);
        }
        self.strings.clear(RETAINED_CAPACITY);
        self.line_strings.clear(RETAINED_CAPACITY);
        self.codes = AbbreviationCodes::default();
    }

    /// Returns the lengths of the sections that grow with each unit.
    fn lengths(&self) -> [usize; 6] {
        [
            self.aranges.len(),
            self.info.len(),
            self.line.len(),
            self.ranges.len(),
            self.line_strings.bytes.len(),
            self.strings.bytes.len(),
        ]
    }

    /// Truncates these sections to earlier lengths.
    fn truncate(&mut self, [aranges, info, line, ranges, line_strings, strings]: [usize; 6]) {
        self.aranges.truncate(aranges);
        self.info.truncate(info);
        self.line.truncate(line);
        self.ranges.truncate(ranges);
        self.line_strings.truncate(line_strings);
        self.strings.truncate(strings);
    }
}

/// Appends an address.
fn write_address(out: &mut Vec<u8>, address: u64, machine: Machine) {
    if machine.is_64 {
        machine.endian.write_u64(out, address)
    } else {
        machine.endian.write_u32(out, address as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitdump::ByteOrder;
    use jitdump::debug_info::{InlinedCall, LineRow, SourceFile, SourceFunction};

    fn info<'a>(path: &'a [u8], name: &'a [u8]) -> DebugInfo<'a> {
        let mut info = DebugInfo {
            files: vec![SourceFile::from(path)],
            functions: vec![SourceFunction {
                name,
                ..SourceFunction::default()
            }],
            rows: vec![LineRow {
                offset: 0,
                file: Some(0),
                line: 1,
                column: 0,
                discriminator: 0,
            }],
            calls: vec![InlinedCall {
                depth: 0,
                function: 0,
                ranges: vec![1..3, 5..9],
                line: 1,
                column: 0,
            }],
        };
        info.normalise(100);
        info
    }

    fn unit<'a>(info: &'a DebugInfo<'a>) -> FunctionUnit<'a> {
        FunctionUnit {
            symbol: b"symbol",
            address: 0x40,
            size: 100,
            info,
        }
    }

    fn settings(version: Version, machine: u32) -> Settings<'static> {
        Settings {
            version,
            machine: Machine::new(machine, ByteOrder::Little),
            directory: b".",
        }
    }

    fn encoded(infos: &[&DebugInfo<'_>], version: Version, max_section: usize) -> Vec<Vec<u8>> {
        let mut memory = EncoderMemory::default();
        let mut encoder = Encoder::new(&mut memory, settings(version, 62));
        encoder.max_section = max_section;
        for info in infos {
            let _ = encoder.add(&unit(info));
        }
        encoder.finish().iter().map(|(_, bytes)| bytes.to_vec()).collect()
    }

    #[test]
    fn a_unit_that_is_too_large_leaves_no_trace() {
        let long = [b'x'; 200];
        let (small, large) = (info(b"a.js", b"inlined"), info(&long, &long));
        for version in [Version::Four, Version::Five] {
            let without = encoded(&[&small, &small], version, MAX_SECTION);
            let with = encoded(&[&small, &large, &small], version, MAX_SECTION);
            assert_ne!(with, without);
            let size = |sections: &[Vec<u8>]| sections.iter().map(Vec::len).max().unwrap();
            assert!(size(&with) > size(&without));
            for max_section in size(&without)..size(&with) {
                let tried = encoded(&[&small, &large, &small], version, max_section);
                assert!(size(&tried) <= max_section);
                if max_section < 200 {
                    assert_eq!(tried, without, "{max_section}");
                }
            }
        }
    }

    #[test]
    fn sections_are_smaller_than_the_reserved_lengths() {
        let mut memory = EncoderMemory::default();
        let encoder = Encoder::new(&mut memory, settings(Version::Four, 62));
        assert!(encoder.has_room([0xffff_ffef; 6]));
        for section in 0..6 {
            let mut lengths = [0; 6];
            lengths[section] = 0xffff_fff0;
            assert!(!encoder.has_room(lengths), "{section}");
        }
    }

    #[test]
    fn columns_of_16_bits_and_discriminators_of_24_are_written_and_larger_ones_left_out() {
        let row = |column: u32, discriminator: u32| {
            let mut info = info(b"a.js", b"inlined");
            info.rows[0].column = column;
            info.rows[0].discriminator = discriminator;
            info
        };
        for version in [Version::Four, Version::Five] {
            let without = encoded(&[&row(0, 0)], version, usize::MAX);
            for (column, discriminator, is_written) in [
                (0xffff, 0, true),
                (0x1_0000, 0, false),
                (0, 0xff_ffff, true),
                (0, 0x100_0000, false),
            ] {
                let info = row(column, discriminator);
                let is_left_out = encoded(&[&info], version, usize::MAX) == without;
                assert_eq!(is_left_out, !is_written, "{column} {discriminator}");
                assert_eq!(rows_beyond_limits(&info), u64::from(!is_written));
            }
        }
    }

    #[test]
    fn addresses_fit_into_the_machine() {
        let info = info(b"a.js", b"");
        for (machine, address, fits) in [
            (3, 0xffff_ff00, true),
            (3, 0xffff_ffa0, false),
            (3, 1 << 32, false),
            (62, 1 << 32, true),
            (62, u64::MAX - 10, false),
        ] {
            let mut memory = EncoderMemory::default();
            let mut encoder = Encoder::new(&mut memory, settings(Version::Four, machine));
            let function = FunctionUnit {
                address,
                ..unit(&info)
            };
            assert_eq!(encoder.add(&function).is_ok(), fits, "{machine} {address:#x}");
        }
    }
}
