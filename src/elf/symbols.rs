//! Function symbols of executables, libraries and their separate debug files, with the names that readers show.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod plt;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;

use jitdump::{Address, AddressRange, ByteOrder, Machine};
use object::read::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadRef};
use object::{Endianness, SegmentFlags, SymbolKind, elf};

use crate::bytes::printable;
use crate::collections::hash::HashMap;
use crate::elf::executable::{MAX_SEGMENTS, Segment, Segments};
use crate::elf::limited_reads::FileMemory;
use crate::elf::symbols::plt::{Stub, Target};
use crate::results::encoded_names::demangled;

/// What follows the name of a function in that of its linkage stub.
const STUB: &str = "@plt";

/// Size of a name in bytes up to which it takes no memory while symbols are sorted.
const LONG_NAME: usize = 4 << 10;

/// Function symbols of an ELF file, and its linkage stubs, by address.
#[derive(Clone, Debug, Default)]
pub struct FunctionSymbols {
    /// Build ID; empty if the file has none.
    pub build_id: Vec<u8>,
    /// Machine of the code.
    pub machine: Option<Machine>,
    /// Whether the file has a full symbol table, not only the exported symbols.
    pub is_complete: bool,
    /// Code segments.
    pub segments: Segments,
    /// By their starts.
    symbols: Vec<NamedRange>,
    /// Names of all symbols, one after the other.
    names: Vec<u8>,
}

/// Addresses of a symbol, and where its name is in the names.
#[derive(Clone, Debug)]
struct NamedRange {
    range: AddressRange,
    name: Range<usize>,
}

/// What decides between symbols at one address, in the order of perf's `choose_best_symbol`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Preference<'n> {
    has_size: bool,
    is_strong: bool,
    is_global: bool,
    underscores: Reverse<usize>,
    length: usize,
    name: Reverse<&'n [u8]>,
}

impl<'n> Preference<'n> {
    /// Returns what decides about a symbol. `name` is its name.
    fn of(symbol: &impl ObjectSymbol<'n>, name: &'n [u8]) -> Self {
        Self {
            has_size: symbol.size() > 0,
            is_strong: !symbol.is_weak(),
            is_global: symbol.is_global(),
            underscores: Reverse(underscores(name)),
            length: name.len(),
            name: Reverse(name),
        }
    }
}

/// A function symbol as a file has it.
///
/// The order of the fields is that of symbols: by address, and at each address the best one first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FoundSymbol<'n> {
    address: u64,
    preference: Reverse<Preference<'n>>,
    /// 0 if the file has none, as often for assembly code.
    size: u64,
    /// End of its section, if it has no size.
    section_end: Option<u64>,
}

impl<'n> FoundSymbol<'n> {
    fn name(&self) -> &'n [u8] {
        self.preference.0.name.0
    }

    /// Returns its addresses. Without a size, it extends to the next symbol or the end of its section, as in perf.
    fn range(&self, next_start: Option<u64>) -> Option<AddressRange> {
        let size = match self.size {
            0 => {
                let end = next_start.into_iter().chain(self.section_end).min();
                end.map_or(1, |end| end.saturating_sub(self.address))
            }
            size => size,
        };
        AddressRange::new(Address(self.address), size)
    }
}

impl FunctionSymbols {
    /// Reads an ELF file; `None` if it is not one, if `is_wanted` is false for its build ID, or if there is no memory for it.
    pub fn read_if<'a>(
        file: impl ReadRef<'a>,
        memory: &FileMemory<'_>,
        is_wanted: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Option<Self> {
        let (file, build_id) = parse_if(file, is_wanted)?;
        let found = best_symbols(&file, memory)?;
        let next_starts = found.iter().skip(1).map(|symbol| Some(symbol.address));
        let mut symbols = Self {
            build_id,
            machine: machine_of(&file),
            is_complete: file.symbols().next().is_some(),
            segments: code_segments(&file),
            ..Self::default()
        };
        for (symbol, next_start) in found.iter().zip(next_starts.chain([None])) {
            if let Some(range) = symbol.range(next_start) {
                let named = symbols.add_name(range, symbol.name(), "", memory)?;
                symbols.symbols.push(named);
            }
        }
        symbols.add_stubs(plt::stubs(&file, memory)?, memory)?;
        Some(symbols)
    }

    /// Adds stubs, with the names that perf and objdump print; `None` if there is no memory for them.
    fn add_stubs<'s>(
        &mut self,
        stubs: impl Iterator<Item = Stub<'s>>,
        memory: &FileMemory<'_>,
    ) -> Option<()> {
        let mut added = Vec::new();
        for Stub { range, target } in stubs {
            // A linker may add symbols of its own.
            let known = self.at(range.start).and_then(|known| self.range(known));
            if known.is_some_and(|known| known.start == range.start) {
                continue;
            }
            let name: Cow<'_, [u8]> = match target {
                Target::Symbol(name) => name.into(),
                Target::Address(address) => {
                    let symbol = self.at(address).and_then(|at| self.symbols.get(at as usize));
                    let name = symbol.and_then(|symbol| self.names.get(symbol.name.clone()));
                    name.unwrap_or_default().to_vec().into()
                }
            };
            if !name.is_empty() {
                added.push(self.add_name(range, &name, STUB, memory)?);
            }
        }
        self.symbols.extend(added);
        self.symbols.sort_by_key(|symbol| symbol.range.start);
        Some(())
    }

    /// Adds the name of a symbol. Returns the symbol; `None` if there is no memory for it.
    fn add_name(
        &mut self,
        range: AddressRange,
        name: &[u8],
        suffix: &str,
        memory: &FileMemory<'_>,
    ) -> Option<NamedRange> {
        let start = self.names.len();
        let size = name.len().saturating_add(suffix.len());
        memory.take(size.saturating_add(size_of::<NamedRange>()) as u64)?;
        self.names.extend_from_slice(name);
        self.names.extend_from_slice(suffix.as_bytes());
        Some(NamedRange {
            range,
            name: start..self.names.len(),
        })
    }

    /// Returns the number of symbols.
    pub fn count(&self) -> u32 {
        u32::try_from(self.symbols.len()).unwrap_or(u32::MAX)
    }

    /// Returns the size in memory in bytes.
    pub fn memory_size(&self) -> u64 {
        self.names.len().saturating_add(size_of_val(&*self.symbols)) as u64
    }

    /// Returns the index of the symbol at a linked address.
    pub fn at(&self, address: Address) -> Option<u32> {
        let after = self
            .symbols
            .partition_point(|symbol| symbol.range.start <= address);
        let index = after.checked_sub(1)?;
        let range = self.symbols.get(index)?.range;
        range.contains(address).then_some(u32::try_from(index).ok()?)
    }

    /// Returns the name of a symbol, without the encoding of C++ and Rust compilers.
    pub fn name(&self, index: u32) -> Option<Cow<'_, str>> {
        let symbol = self.symbols.get(index as usize)?;
        Some(decoded(self.names.get(symbol.name.clone())?))
    }

    /// Returns the linked addresses of a symbol.
    pub fn range(&self, index: u32) -> Option<AddressRange> {
        Some(self.symbols.get(index as usize)?.range)
    }
}

/// Returns the best function symbol at each address, sorted; `None` if there is no memory for all of them.
fn best_symbols<'a, R: ReadRef<'a>>(
    file: &object::File<'a, R>,
    memory: &FileMemory<'_>,
) -> Option<Vec<FoundSymbol<'a>>> {
    // The lowest bit of a function's address is the instruction set, Thumb.
    let mode_bit = u64::from(file.architecture() == object::Architecture::Arm);
    let mut found = Vec::new();
    let symbols = file.symbols().chain(file.dynamic_symbols());
    for symbol in symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && !symbol.is_undefined()) {
        let Ok(name) = symbol.name_bytes() else {
            continue;
        };
        memory.take_one::<FoundSymbol<'_>>()?;
        // The order may depend on all of each name, and any number of symbols may have the same long one.
        memory.take(name.len().saturating_sub(LONG_NAME) as u64)?;
        found.push(FoundSymbol {
            address: symbol.address() & !mode_bit,
            preference: Reverse(Preference::of(&symbol, name)),
            size: symbol.size(),
            section_end: match symbol.size() {
                0 => end_of_section(file, &symbol),
                _ => None,
            },
        });
    }
    found.sort_unstable();
    found.dedup_by_key(|symbol| symbol.address);
    Some(found)
}

/// Returns the end of the section that a symbol is in; `None` if there is none.
fn end_of_section<'a>(file: &impl Object<'a>, symbol: &impl ObjectSymbol<'a>) -> Option<u64> {
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    section.address().checked_add(section.size())
}

/// Returns the number of underscores that a name starts with, up to 64: any number of symbols may have the same long name.
fn underscores(name: &[u8]) -> usize {
    let start = name.iter().take(64);
    start.take_while(|&&byte| byte == b'_').count()
}

/// Parses an ELF file; `None` if it is not one, or if `is_wanted` is false for its build ID. Returns the build ID as well; empty
/// if it has none.
pub(super) fn parse_if<'a, R: ReadRef<'a>>(
    file: R,
    is_wanted: impl FnOnce(Option<&[u8]>) -> bool,
) -> Option<(object::File<'a, R>, Vec<u8>)> {
    let file = object::File::parse(file).ok()?;
    let build_id = file.build_id().ok()?;
    if !is_wanted(build_id) {
        return None;
    }
    let build_id = build_id.unwrap_or_default().to_vec();
    Some((file, build_id))
}

/// Returns the machine of an ELF file.
fn machine_of<'a, R: ReadRef<'a>>(file: &object::File<'a, R>) -> Option<Machine> {
    let (id, endian) = match file {
        object::File::Elf32(file) => (file.elf_header().e_machine, file.endianness()),
        object::File::Elf64(file) => (file.elf_header().e_machine, file.endianness()),
        _ => return None,
    };
    let order = match endian {
        Endianness::Little => ByteOrder::Little,
        Endianness::Big => ByteOrder::Big,
    };
    Some(Machine::new(id.get(endian).0.into(), order))
}

/// Where an ELF file has functions, by its symbols with a size.
#[derive(Debug)]
pub struct FunctionRanges {
    /// Build ID; empty if the file has none.
    pub build_id: Vec<u8>,
    /// Machine of the code.
    pub machine: Machine,
    /// Whether the file has a full symbol table, not only the exported symbols.
    pub is_complete: bool,
    /// Code segments.
    pub segments: Segments,
    /// By their starts.
    ranges: Vec<AddressRange>,
}

impl FunctionRanges {
    /// Reads an ELF file; `None` if it is not one, if `is_wanted` is false for its build ID, or if there is no memory for it.
    pub fn read_if<'a>(
        file: impl ReadRef<'a>,
        memory: &FileMemory<'_>,
        is_wanted: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Option<Self> {
        let (file, build_id) = parse_if(file, is_wanted)?;
        let is_complete = file.symbols().next().is_some();
        let exported = (!is_complete).then(|| file.dynamic_symbols());
        let mut ranges = Vec::new();
        for symbol in file.symbols().chain(exported.into_iter().flatten()) {
            let range = AddressRange::new(Address(symbol.address()), symbol.size());
            let is_function = symbol.kind() == SymbolKind::Text && !symbol.is_undefined();
            if let Some(range) = range.filter(|_| is_function) {
                memory.take(size_of::<AddressRange>() as u64)?;
                ranges.push(range);
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        Some(Self {
            build_id,
            machine: machine_of(&file)?,
            is_complete,
            segments: code_segments(&file),
            ranges,
        })
    }

    /// Returns the linked addresses of the function at one of them.
    pub fn at(&self, address: Address) -> Option<AddressRange> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        range.contains(address).then_some(*range)
    }

    /// Returns the size in memory in bytes.
    pub fn memory_size(&self) -> u64 {
        size_of_val(&*self.ranges) as u64
    }
}

/// Returns the segments with machine code, up to [`MAX_SEGMENTS`].
pub(super) fn code_segments<'a>(file: &impl Object<'a>) -> Segments {
    let is_code = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.contains(elf::PF_X));
    let segments = file.segments().enumerate();
    let segments = segments.filter(|(_, segment)| is_code(segment.flags()));
    let segments = segments.filter_map(|(index, segment)| {
        let (file_offset, file_size) = segment.file_range();
        // Objects of functions with names only have no code. In files with nothing but debug information, all segments except
        // the first have other offsets than in the program.
        let size = match index {
            0 => segment.size(),
            _ => file_size,
        };
        let range = AddressRange::new(Address(segment.address()), size)?;
        Some(Segment {
            file_offset,
            file_size,
            range,
        })
    });
    Segments(segments.take(MAX_SEGMENTS).collect())
}

/// Returns the name of a function without the encoding of its compiler.
pub fn decoded(name: &[u8]) -> Cow<'_, str> {
    let name = String::from_utf8_lossy(name);
    let stub = name.strip_suffix(STUB);
    match demangled(stub.unwrap_or(&name)) {
        Some(demangled) if stub.is_some() => Cow::Owned(demangled + STUB),
        Some(demangled) => Cow::Owned(demangled),
        None => name,
    }
}

/// Names without the encoding of a compiler, each decoded once.
#[derive(Debug, Default)]
pub struct DecodedNames(HashMap<Vec<u8>, String>);

impl DecodedNames {
    /// Returns the name of a function as [`decoded`] does, as printable text.
    pub fn decoded(&mut self, name: &[u8]) -> String {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let new = printable(decoded(name).as_bytes());
        self.0.insert(name.to_vec(), new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::executable::tests::with_segments;
    use crate::elf::limited_reads::MemoryRoom;
    use crate::elf::symbols::plt::tests::{DYNSYM, PLT};

    #[test]
    fn some_underscores_are_counted() {
        for (name, count) in [("", 0), ("a_", 0), ("__libc_start", 2)] {
            assert_eq!(underscores(name.as_bytes()), count, "{name}");
        }
        assert_eq!(underscores(&[b'_'; 65_000]), 64);
    }

    #[test]
    fn this_program_has_symbols() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let symbols = FunctionSymbols::read_if(&file[..], &MemoryRoom::default().file(), |_| true).unwrap();
        assert!(symbols.is_complete && !symbols.segments.0.is_empty());
        let index = (0..symbols.symbols.len() as u32).find(|&index| symbols.name(index).unwrap() == "main");
        let main = symbols.range(index.unwrap()).unwrap();
        assert_eq!(symbols.at(main.start), index);
        assert_eq!(symbols.at(Address(main.end.0 - 1)), index);
        assert_ne!(symbols.at(main.end), index);
        let segment = symbols.segments.0[0];
        assert_eq!(
            symbols.segments.address(segment.file_offset),
            Some(segment.range.start)
        );
        let ranges = FunctionRanges::read_if(&file[..], &MemoryRoom::default().file(), |_| true).unwrap();
        assert_eq!(ranges.at(main.start), Some(main));
        let offset = ranges.segments.file_offset(main).unwrap();
        assert_eq!(ranges.segments.address(offset), Some(main.start));
        assert_eq!(symbols.segments.file_offset(main), Some(offset));
        let parsed = object::File::parse(&file[..]).unwrap();
        let code = parsed
            .segments()
            .find_map(|segment| segment.data_range(main.start.0, main.size()).unwrap());
        assert_eq!(code, Some(&file[offset as usize..][..main.size() as usize]));
        assert_eq!(
            [Some(ranges.machine), symbols.machine],
            [Some(Machine::host()); 2]
        );
        let outside = AddressRange::new(Address(segment.range.end.0 - 1), 2).unwrap();
        assert_eq!(ranges.segments.file_offset(outside), None);
        assert_eq!(symbols.segments.file_offset(outside), None);
    }

    /// The first as in objects of functions with names only, both as in files with nothing but debug information.
    #[test]
    fn code_that_is_in_memory_alone_has_addresses_in_the_first_segment() {
        const SIZES_IN_FILE: [usize; 2] = [64 + 32, 64 + 56 + 32];
        let mut file = with_segments(2);
        for at in SIZES_IN_FILE {
            file[at..][..8].fill(0);
        }
        let segments = code_segments(&object::File::parse(&*file).unwrap());
        assert_eq!(segments.address(0x10), Some(Address(0x40_0010)));
        assert_eq!(segments.address(0x1010), None);
        let code = AddressRange::new(Address(0x40_0010), 1).unwrap();
        assert_eq!(segments.file_offset(code), None);
    }

    #[test]
    fn stubs_are_named_after_their_functions() {
        let code = [plt::tests::jump(PLT, 0x3000), plt::tests::jump(PLT + 6, 0x3008)].concat();
        let relocations = [(0x3000, 2, 0), (0x3008, 0, 0x2000)];
        let file = plt::tests::file(&code, &relocations, DYNSYM);
        let symbols = FunctionSymbols::read_if(&file[..], &MemoryRoom::default().file(), |_| true).unwrap();
        let at = |address| {
            let index = symbols.at(Address(address))?;
            Some((symbols.name(index)?.into_owned(), symbols.range(index)?.start.0))
        };
        let named = |name: &str, start| Some((name.to_owned(), start));
        assert_eq!(at(PLT + 5), named("work@plt", PLT));
        assert_eq!(at(PLT + 6), named("chosen@plt", PLT + 6));
        assert_eq!(at(PLT + 12), None);
        assert_eq!(at(0x2000), named("chosen", 0x2000));
        // A symbol without a size ends with its section.
        assert_eq!(at(0x20ff), named("start", 0x20f0));
        assert_eq!(at(0x2100), None);
    }

    /// Returns an object file for a machine with these symbols: the names, and the values of functions of 16 bytes.
    fn object_file(
        machine: object::Architecture,
        symbols: impl IntoIterator<Item = (Vec<u8>, u64)>,
    ) -> Vec<u8> {
        use object::write::{Object, StandardSection, Symbol, SymbolSection};
        let mut file = Object::new(object::BinaryFormat::Elf, machine, Endianness::Little);
        let text = file.section_id(StandardSection::Text);
        file.append_section_data(text, &[0; 32], 4);
        for (name, value) in symbols {
            file.add_symbol(Symbol {
                name,
                value,
                size: 16,
                kind: SymbolKind::Text,
                scope: object::SymbolScope::Linkage,
                weak: false,
                section: SymbolSection::Section(text),
                flags: object::SymbolFlags::None,
            });
        }
        file.write().unwrap()
    }

    #[test]
    fn long_names_are_not_compared_any_number_of_times() {
        let symbols = std::iter::repeat_n((vec![b'a'; 60_000], 0), 1000);
        let file = object_file(object::Architecture::X86_64, symbols);
        // They share the name.
        assert!(file.len() < 200_000);
        let count = |bytes| {
            let symbols = FunctionSymbols::read_if(&file[..], &MemoryRoom::new(bytes).file(), |_| true);
            symbols.map(|symbols| symbols.count())
        };
        assert_eq!([32 << 20, 64 << 20].map(count), [None, Some(1)]);
    }

    #[test]
    fn addresses_of_thumb_code_are_even() {
        let symbols = [("before", 1), ("leaf", 17)].map(|(name, value)| (name.into(), value));
        let file = object_file(object::Architecture::Arm, symbols);
        let symbols = FunctionSymbols::read_if(&file[..], &MemoryRoom::default().file(), |_| true).unwrap();
        let at = |address| symbols.name(symbols.at(Address(address))?).map(Cow::into_owned);
        let found = [0, 15, 16, 31].map(|address| at(address).unwrap());
        assert_eq!(found, ["before", "before", "leaf", "leaf"]);
    }

    #[test]
    fn anything_else_has_none() {
        let read =
            |file: &'static [u8]| FunctionSymbols::read_if(file, &MemoryRoom::default().file(), |_| true);
        assert!(read(b"\x7fELF").is_none() && read(b"").is_none());
    }
}
