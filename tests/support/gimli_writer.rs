//! Encodes the same debug information with gimli, to compare it with our encoder's.

use gimli::constants as dw;
use gimli::write::{
    Address, AttributeValue, DirectoryId, Dwarf, EndianVec, FileId, FileInfo, LineProgram, LineString, Range,
    RangeList, Sections, Unit, UnitEntryId, Writer,
};
use gimli::{DwLang, Encoding, Format, LineEncoding, RunTimeEndian, SectionId};
use jitdump::ByteOrder;
use jitdump::debug_info::{DebugInfo, InlinedCall, LineRow, SourceFunction};
use jitinject::internals::elf::dwarf::{FunctionUnit, Settings, Version};

/// Returns the language of a source file by its path.
pub type Language = fn(&[u8]) -> Option<DwLang>;

/// Encodes units whose names and paths need no escapes. `language` returns the languages of source files. Omits
/// `.debug_aranges`, which gimli does not write.
pub fn encode(
    units: &[FunctionUnit<'_>],
    settings: Settings<'_>,
    language: Language,
) -> Vec<(&'static str, Vec<u8>)> {
    let encoding = Encoding {
        format: Format::Dwarf32,
        version: match settings.version {
            Version::Five => 5,
            _ => 4,
        },
        address_size: settings.machine.address_size() as u8,
    };
    let mut dwarf = Dwarf::new();
    for function in units {
        let unit = UnitWriter::new(function, encoding, (settings.directory, language), &mut dwarf).finish();
        dwarf.units.add(unit);
    }
    let endian = match settings.machine.endian {
        ByteOrder::Little => RunTimeEndian::Little,
        ByteOrder::Big => RunTimeEndian::Big,
    };
    let mut sections = Sections::new(EndianVec::new(endian));
    dwarf.write(&mut sections).unwrap();
    let mut all = Vec::new();
    sections
        .for_each_mut(|id: SectionId, section| {
            if section.len() > 0 {
                all.push((id.name(), section.take()));
            }
            Ok::<(), gimli::write::Error>(())
        })
        .unwrap();
    all
}

/// Writer of one unit.
struct UnitWriter<'u, 'd> {
    function: &'u FunctionUnit<'u>,
    unit: Unit,
    dwarf: &'d mut Dwarf,
    /// Whether functions get a linkage name even if it equals the name. GNU addr2line uses a function's name only
    /// if it has one or the language is C, and otherwise shows the nearest symbol.
    names_linkage: bool,
    /// ID of each file that has been requested.
    files: Vec<Option<FileId>>,
    /// Entry of each function that was inlined.
    inlined: Vec<Option<UnitEntryId>>,
}

impl<'u, 'd> UnitWriter<'u, 'd> {
    fn new(
        function: &'u FunctionUnit<'u>,
        encoding: Encoding,
        (directory, language): (&[u8], Language),
        dwarf: &'d mut Dwarf,
    ) -> Self {
        let info = function.info;
        let primary = primary_file(info);
        let path = match primary.and_then(|file| info.files.get(file as usize)) {
            Some(file) => file.path.to_vec(),
            None => function.symbol.to_vec(),
        };
        let (source_dir, source_file) = split(&path);
        let directory = directory.to_vec();
        let mut string = |bytes: &[u8]| LineString::new(bytes, encoding, &mut dwarf.line_strings);
        let mut program = LineProgram::new(
            encoding,
            LineEncoding::default(),
            string(&directory),
            source_dir.map(&mut string),
            string(source_file),
            None,
        );
        program.file_has_source = encoding.version >= 5 && info.files.iter().any(|file| file.text.is_some());
        let mut unit = Unit::new(encoding, program);
        let root = unit.get_mut(unit.root());
        root.set(dw::DW_AT_producer, AttributeValue::String(b"jitinject".to_vec()));
        root.set(dw::DW_AT_name, AttributeValue::String(path.clone()));
        let language = language(&path);
        if let Some(language) = language {
            root.set(dw::DW_AT_language, AttributeValue::Language(language));
        }
        root.set(dw::DW_AT_comp_dir, AttributeValue::String(directory.clone()));
        root.set(
            dw::DW_AT_low_pc,
            AttributeValue::Address(Address::Constant(function.address)),
        );
        root.set(dw::DW_AT_high_pc, AttributeValue::Udata(function.size.into()));
        Self {
            function,
            unit,
            dwarf,
            names_linkage: language != Some(dw::DW_LANG_C99),
            files: vec![None; info.files.len()],
            inlined: vec![None; info.functions.len()],
        }
    }

    fn finish(mut self) -> Unit {
        self.rows();
        let subprogram = self.subprogram();
        self.calls(subprogram);
        self.unit
    }

    /// Returns the ID of a file; adds the file if it is new.
    fn file(&mut self, file: Option<u32>) -> Option<FileId> {
        let at = file? as usize;
        if let Some(&Some(known)) = self.files.get(at) {
            return Some(known);
        }
        let source = self.function.info.files.get(at)?;
        let path = source.path.to_vec();
        let (directory, name) = split(&path);
        if name.is_empty() {
            return None;
        }
        let encoding = self.unit.encoding();
        let mut string = |bytes: &[u8]| LineString::new(bytes, encoding, &mut self.dwarf.line_strings);
        let directory = directory.map(&mut string);
        let name = string(name);
        let program = &mut self.unit.line_program;
        // Strings end at the first NUL, so text that contains one is left out.
        let info = source
            .text
            .filter(|text| program.file_has_source && memchr::memchr(0, text).is_none())
            .map(|text| FileInfo {
                source: Some(string(text)),
                ..FileInfo::default()
            });
        let directory: DirectoryId = match directory {
            Some(directory) => program.add_directory(directory),
            None => program.default_directory(),
        };
        let id = program.add_file(name, directory, info);
        if let Some(known) = self.files.get_mut(at) {
            *known = Some(id);
        }
        Some(id)
    }

    /// Writes the line program.
    fn rows(&mut self) {
        let info = self.function.info;
        let Some(&first) = info.rows.first() else { return };
        if primary_file(info).is_none() {
            return;
        }
        self.unit
            .line_program
            .begin_sequence(Some(Address::Constant(self.function.address)));
        let mut file = None;
        if first.offset > 0 {
            let start = info
                .functions
                .first()
                .filter(|function| function.file.is_some() && function.line > 0);
            let start = LineRow {
                offset: 0,
                file: start.map_or(first.file, |function| function.file),
                line: start.map_or(first.line, |function| function.line),
                column: start.map_or(first.column, |function| function.column),
                discriminator: 0,
            };
            self.row(&start, &mut file, false);
        }
        for (at, row) in info.rows.iter().enumerate() {
            self.row(row, &mut file, at == 0 && row.offset > 0);
        }
        self.unit.line_program.end_sequence(self.function.size.into());
    }

    /// Adds a row. `last_file` is the previous row's file, which a row without a file keeps.
    fn row(&mut self, row: &LineRow, last_file: &mut Option<FileId>, ends_prologue: bool) {
        let file = self.file(row.file);
        if file.is_some() {
            *last_file = file;
        } else if last_file.is_none() {
            let any = primary_file(self.function.info);
            *last_file = self.file(any);
        }
        let next = self.unit.line_program.row();
        next.address_offset = row.offset.into();
        if let Some(file) = *last_file {
            next.file = file;
        }
        (next.line, next.column) = match file {
            // Readers have 16 bits for a column.
            Some(_) => (row.line.into(), u16::try_from(row.column).unwrap_or(0).into()),
            None => (0, 0),
        };
        // Readers have 24 bits for a discriminator.
        let discriminator = row.discriminator;
        next.discriminator = if discriminator < 1 << 24 { discriminator } else { 0 }.into();
        next.is_statement = true;
        next.prologue_end = ends_prologue;
        self.unit.line_program.generate_row();
    }

    /// Adds the function itself.
    fn subprogram(&mut self) -> UnitEntryId {
        let function = self.function;
        let entry = self.unit.add(self.unit.root(), dw::DW_TAG_subprogram);
        let symbol = function.symbol.to_vec();
        let declared = function.info.functions.first();
        let name = declared.map_or(&b""[..], |declared| declared.name);
        let name = if name.is_empty() {
            symbol.clone()
        } else {
            name.to_vec()
        };
        if let Some(declared) = declared {
            self.declaration(entry, declared);
        }
        let (name, symbol) = (self.name(name), self.name(symbol));
        let entry_mut = self.unit.get_mut(entry);
        if name != symbol || self.names_linkage {
            entry_mut.set(dw::DW_AT_linkage_name, symbol);
        }
        entry_mut.set(dw::DW_AT_name, name);
        entry_mut.set(
            dw::DW_AT_low_pc,
            AttributeValue::Address(Address::Constant(function.address)),
        );
        entry_mut.set(dw::DW_AT_high_pc, AttributeValue::Udata(function.size.into()));
        entry
    }

    /// Returns a name as a string that functions may share.
    fn name(&mut self, name: Vec<u8>) -> AttributeValue {
        AttributeValue::StringRef(self.dwarf.strings.add(name))
    }

    /// Adds a function's declaration.
    fn declaration(&mut self, entry: UnitEntryId, function: &SourceFunction<'_>) {
        let Some(file) = self.file(function.file) else {
            return;
        };
        let entry = self.unit.get_mut(entry);
        entry.set(dw::DW_AT_decl_file, AttributeValue::FileIndex(Some(file)));
        if function.line > 0 {
            entry.set(dw::DW_AT_decl_line, AttributeValue::Udata(function.line.into()));
        }
        if function.column > 0 {
            entry.set(
                dw::DW_AT_decl_column,
                AttributeValue::Udata(function.column.into()),
            );
        }
    }

    /// Adds the inlined calls below `subprogram`.
    fn calls(&mut self, subprogram: UnitEntryId) {
        let info = self.function.info;
        // Entry and function of each caller.
        let mut callers = vec![(subprogram, 0)];
        for call in &info.calls {
            callers.truncate(call.depth as usize + 1);
            let Some(&(parent, caller)) = callers.last() else {
                return;
            };
            let Some(origin) = self.inlined(call.function) else {
                continue;
            };
            let entry = self.unit.add(parent, dw::DW_TAG_inlined_subroutine);
            let origin = AttributeValue::UnitRef(origin);
            self.unit.get_mut(entry).set(dw::DW_AT_abstract_origin, origin);
            self.ranges(entry, call);
            let caller_file = info
                .functions
                .get(caller as usize)
                .and_then(|function| function.file);
            let file = self.file(caller_file);
            let entry_mut = self.unit.get_mut(entry);
            if let Some(file) = file {
                entry_mut.set(dw::DW_AT_call_file, AttributeValue::FileIndex(Some(file)));
            }
            if call.line > 0 {
                entry_mut.set(dw::DW_AT_call_line, AttributeValue::Udata(call.line.into()));
            }
            if call.column > 0 {
                entry_mut.set(dw::DW_AT_call_column, AttributeValue::Udata(call.column.into()));
            }
            callers.push((entry, call.function));
        }
    }

    fn ranges(&mut self, entry: UnitEntryId, call: &InlinedCall) {
        let address = |start: u32| Address::Constant(self.function.address + u64::from(start));
        if let [range] = &call.ranges[..] {
            let start = address(range.start);
            let entry = self.unit.get_mut(entry);
            entry.set(dw::DW_AT_low_pc, AttributeValue::Address(start));
            entry.set(dw::DW_AT_high_pc, AttributeValue::Udata(range.len() as u64));
            return;
        }
        // The base is the unit's low_pc.
        let pair = |range: &std::ops::Range<u32>| Range::OffsetPair {
            begin: range.start.into(),
            end: range.end.into(),
        };
        let list = self
            .unit
            .ranges
            .add(RangeList(call.ranges.iter().map(pair).collect()));
        let list = AttributeValue::RangeListRef(list);
        let start = address(call.ranges.first().map_or(0, |range| range.start));
        let entry = self.unit.get_mut(entry);
        entry.set(dw::DW_AT_ranges, list);
        entry.set(dw::DW_AT_entry_pc, AttributeValue::Address(start));
    }

    /// Returns the entry of an inlined function; adds it the first time.
    fn inlined(&mut self, function: u32) -> Option<UnitEntryId> {
        let at = function as usize;
        if let Some(&Some(known)) = self.inlined.get(at) {
            return Some(known);
        }
        let declared = self.function.info.functions.get(at)?;
        let entry = self.unit.add(self.unit.root(), dw::DW_TAG_subprogram);
        self.declaration(entry, declared);
        // The function itself may be inlined into itself, and have no name except for its symbol.
        let name = match at {
            0 if declared.name.is_empty() => self.function.symbol,
            _ => declared.name,
        };
        let name = (!name.is_empty()).then(|| self.name(name.to_vec()));
        let entry_mut = self.unit.get_mut(entry);
        if let Some(name) = name {
            if self.names_linkage {
                entry_mut.set(dw::DW_AT_linkage_name, name.clone());
            }
            entry_mut.set(dw::DW_AT_name, name);
        }
        entry_mut.set(dw::DW_AT_inline, AttributeValue::Inline(dw::DW_INL_inlined));
        if let Some(known) = self.inlined.get_mut(at) {
            *known = Some(entry);
        }
        Some(entry)
    }
}

/// Returns the file that a unit is named after: that of the function, of its first line, or of the first function
/// inlined into it.
fn primary_file(info: &DebugInfo<'_>) -> Option<u32> {
    let declared = info.functions.first().and_then(|function| function.file);
    let in_rows = info.rows.iter().filter_map(|row| row.file);
    let called = info
        .calls
        .iter()
        .filter_map(|call| info.functions[call.function as usize].file);
    let mut files = declared.into_iter().chain(in_rows).chain(called);
    files.find(|&file| !info.files[file as usize].path.is_empty())
}

/// Splits a path into directory and file name.
fn split(path: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        // Paths directly below the root, and those that end in a slash, are not split.
        Some(0) | None => (None, path),
        Some(slash) if slash + 1 == path.len() => (None, path),
        Some(slash) => {
            let (directory, name) = path.split_at(slash);
            (Some(directory), name.get(1..).unwrap_or_default())
        }
    }
}
