//! Debug information as DWARF sections.
//!
//! One compile unit for each function, so that as many of them as wanted can stand in one file:
//!
//! ```text
//! compile unit          name, language, low_pc, high_pc, comp_dir
//!   subprogram …        each function that was inlined, without code
//!   subprogram          the function: name, linkage name, declaration, low_pc, high_pc
//!     inlined call      what was called, ranges, file, line and column of the call
//!       inlined call    …
//! line program          one sequence that covers all of the function's code
//! .debug_aranges        where each unit's code lies
//! ```
//!
//! Units share one table of abbreviations, and their strings.
//!
//! Readers differ in what they need. GNU addr2line looks at line programs and at units that have a range;
//! LLVM's and gimli's want the range first; elfutils' wants `.debug_aranges`. All want the code behind the
//! last row to be covered, so the sequence ends where the function does. The first row is where the function
//! starts: code before the first line that a runtime tells of is what leads up to it.
//!
//! Whoever encodes many functions keeps the [`Buffers`]: once these have grown, nothing is allocated.

mod abbreviations;
mod files;
mod leb128;
mod line;
mod ranges;
mod strings;
mod unit;

use crate::debug_info::DebugInfo;
use crate::machine::Machine;

use abbreviations::Codes;
use files::Files;
use strings::Strings;

/// A version of DWARF.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// Read by everything in use.
    #[default]
    Four,
    /// Holds the text of source files, where it is known (DW_LNCT_LLVM_source). GNU binutils 2.40 take that
    /// for an error and read no lines; so perf, which asks addr2line and objdump, shows none.
    Five,
}

impl Version {
    fn number(self) -> u16 {
        match self {
            Self::Four => 4,
            Self::Five => 5,
        }
    }

    /// The number of a unit's first file.
    fn first_file(self) -> u32 {
        match self {
            Self::Four => 1,
            Self::Five => 0,
        }
    }
}

/// One function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionUnit<'a> {
    /// Its name, as the symbol has it.
    pub symbol: &'a [u8],
    /// Where its code starts, as an address in the object. Not 0.
    pub address: u64,
    /// How many bytes of code it has.
    pub size: u32,
    /// Where they come from; normalised for this size.
    pub info: &'a DebugInfo<'a>,
}

/// What all units of a file share.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The version.
    pub version: Version,
    /// What it is for.
    pub machine: Machine,
    /// The folder that relative paths start from: `.` if it is not known, since eu-addr2line prints `(null)`
    /// for none.
    pub directory: &'a [u8],
}

/// A section: its name and its bytes.
pub type Section<'a> = (&'static str, &'a [u8]);

/// All sections that there may be; one that has no bytes is not needed.
pub type Sections<'a> = [Section<'a>; 7];

/// A function can't be added, because offsets in a section would need more than 32 bits, or its addresses
/// more than the machine has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too large for DWARF of 32 bits")]
pub struct TooLarge;

/// How large a section can be: from here on, a length stands for something else.
const MAX_SECTION: usize = 0xffff_ffef;

/// How many bytes of each buffer stay for the next encoder.
const KEPT: usize = 1 << 20;

/// The memory of an [`Encoder`], for one after the other.
#[derive(Debug, Default)]
pub struct Buffers {
    abbreviations: Vec<u8>,
    aranges: Vec<u8>,
    info: Vec<u8>,
    line: Vec<u8>,
    line_strings: Strings,
    ranges: Vec<u8>,
    strings: Strings,
    /// What `.debug_abbrev` must hold.
    codes: Codes,
    /// The files of the unit in the making.
    files: Files,
    /// Where the entry of each of its functions that was inlined starts in it; 0 for the others.
    origins: Vec<u32>,
    /// Which of its functions the next call lies in, from the outermost.
    callers: Vec<u32>,
}

/// Encodes units, one behind the other.
#[derive(Debug)]
pub struct Encoder<'b, 's> {
    settings: Settings<'s>,
    buffers: &'b mut Buffers,
    max_section: usize,
}

impl<'b, 's> Encoder<'b, 's> {
    /// Starts without any unit; whatever is in the buffers is lost.
    pub fn new(buffers: &'b mut Buffers, settings: Settings<'s>) -> Self {
        buffers.clear();
        Self {
            settings,
            buffers,
            max_section: MAX_SECTION,
        }
    }

    /// Adds the unit of a function. If it is too large, nothing of it is left.
    pub fn add(&mut self, function: &FunctionUnit<'_>) -> Result<(), TooLarge> {
        let end = function.address.checked_add(function.size.into());
        let is_64 = self.settings.machine.is_64;
        end.filter(|&end| is_64 || end <= u32::MAX.into())
            .ok_or(TooLarge)?;
        let lengths = self.buffers.lengths();
        let codes = self.buffers.codes;
        self.buffers.files.collect(function.info, self.settings.version);
        unit::put(function, &self.settings, self.buffers);
        let mut now = self.buffers.lengths().into_iter();
        if now.all(|length| length <= self.max_section) {
            return Ok(());
        }
        self.buffers.truncate(lengths);
        self.buffers.codes = codes;
        Err(TooLarge)
    }

    /// How many bytes the texts of source files and the names of files have so far.
    pub fn text_size(&self) -> u64 {
        self.buffers.line_strings.bytes.len() as u64
    }

    /// The sections with all units.
    pub fn finish(self) -> Sections<'b> {
        let buffers = self.buffers;
        buffers.codes.put_table(&mut buffers.abbreviations);
        ranges::finish_lists(&mut buffers.ranges, &self.settings);
        let ranges = match self.settings.version {
            Version::Four => ".debug_ranges",
            Version::Five => ".debug_rnglists",
        };
        [
            (".debug_abbrev", &buffers.abbreviations),
            (".debug_info", &buffers.info),
            (".debug_aranges", &buffers.aranges),
            (".debug_line", &buffers.line),
            (".debug_line_str", &buffers.line_strings.bytes),
            (ranges, &buffers.ranges),
            (".debug_str", &buffers.strings.bytes),
        ]
    }
}

impl Buffers {
    fn clear(&mut self) {
        for bytes in [
            &mut self.abbreviations,
            &mut self.aranges,
            &mut self.info,
            &mut self.line,
            &mut self.ranges,
        ] {
            bytes.clear();
            bytes.shrink_to(KEPT);
        }
        self.strings.clear(KEPT);
        self.line_strings.clear(KEPT);
        self.codes = Codes::default();
    }

    /// The lengths of the sections that grow with each unit.
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

    /// Cuts these sections back to earlier lengths.
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
fn put_address(out: &mut Vec<u8>, address: u64, machine: Machine) {
    match machine.is_64 {
        true => machine.order.put_u64(out, address),
        false => machine.order.put_u32(out, address as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::ByteOrder;
    use crate::debug_info::{InlinedCall, Row, SourceFile, SourceFunction};

    fn info<'a>(path: &'a [u8], name: &'a [u8]) -> DebugInfo<'a> {
        let mut info = DebugInfo {
            files: vec![SourceFile::from(path)],
            functions: vec![SourceFunction {
                name,
                ..SourceFunction::default()
            }],
            rows: vec![Row {
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
        let mut buffers = Buffers::default();
        let mut encoder = Encoder::new(&mut buffers, settings(version, 62));
        encoder.max_section = max_section;
        for info in infos {
            let _ = encoder.add(&unit(info));
        }
        encoder.finish().iter().map(|(_, bytes)| bytes.to_vec()).collect()
    }

    #[test]
    fn nothing_is_left_of_a_unit_that_is_too_large() {
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
    fn addresses_fit_into_the_machine() {
        let info = info(b"a.js", b"");
        for (machine, address, fits) in [
            (3, 0xffff_ff00, true),
            (3, 0xffff_ffa0, false),
            (3, 1 << 32, false),
            (62, 1 << 32, true),
            (62, u64::MAX - 10, false),
        ] {
            let mut buffers = Buffers::default();
            let mut encoder = Encoder::new(&mut buffers, settings(Version::Four, machine));
            let function = FunctionUnit {
                address,
                ..unit(&info)
            };
            assert_eq!(encoder.add(&function).is_ok(), fits, "{machine} {address:#x}");
        }
    }
}
