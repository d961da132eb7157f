//! Writes one function as a compile unit (`.debug_info`).

use gimli::constants as dw;
use jitdump::debug_info::{InlinedCall, SourceFunction};

use crate::bytes::rsplit_once;
use crate::elf::dwarf::abbreviations::{
    CHILDREN, COLUMN, EntryKind, FILE, LANGUAGE, LINE, LINES, LINKAGE_NAME, NAME, RANGES,
};
use crate::elf::dwarf::{
    EncoderMemory, FunctionUnit, Settings, Version, leb128, line, ranges, write_address,
};
use crate::elf::escape::{write_escaped, write_path};

/// Appends everything about a function, whose files are collected.
pub fn write(function: &FunctionUnit<'_>, settings: &Settings<'_>, memory: &mut EncoderMemory) {
    let lines = line::write_program(function, settings, memory);
    let path = memory.files.first(function.info);
    // The name of code without a file may end like one: `f /a.py`.
    let language = language(path.unwrap_or(function.symbol));
    let start = memory.info.len();
    let mut writer = UnitWriter {
        function,
        settings,
        start,
        names_linkage: language != Some(dw::DW_LANG_C99),
        memory,
    };
    writer.header();
    writer.unit(path, language, lines);
    writer.inlined_functions();
    writer.function();
    writer.calls();
    writer.finish();
    let address = function.address;
    ranges::write_unit_range(
        &mut memory.aranges,
        start as u32,
        address,
        function.size,
        settings,
    );
}

/// Writer of one unit.
struct UnitWriter<'u> {
    function: &'u FunctionUnit<'u>,
    settings: &'u Settings<'u>,
    memory: &'u mut EncoderMemory,
    /// Offset of the unit in `.debug_info`.
    start: usize,
    /// Whether functions get a linkage name even if it equals the name. GNU addr2line uses a function's name only
    /// if it has one or the language is C, and otherwise shows the nearest symbol.
    names_linkage: bool,
}

/// A source location as attributes.
struct LocationAttributes {
    /// Flags of the attributes that are present.
    flags: u8,
    file: u32,
    line: u32,
    column: u32,
}

impl UnitWriter<'_> {
    /// Appends the header of the unit.
    fn header(&mut self) {
        /// Offset of the abbreviations that all units share.
        const ABBREVIATIONS: u32 = 0;
        let endian = self.settings.machine.endian;
        let address_size = self.settings.machine.address_size() as u8;
        let out = &mut self.memory.info;
        // The length, which is set at the end.
        endian.write_u32(out, 0);
        endian.write_u16(out, self.settings.version.to_u16());
        match self.settings.version {
            Version::Four => {
                endian.write_u32(out, ABBREVIATIONS);
                out.push(address_size);
            }
            Version::Five => {
                out.extend_from_slice(&[dw::DW_UT_compile.0, address_size]);
                endian.write_u32(out, ABBREVIATIONS);
            }
        }
    }

    /// Writes the compile unit's entry, named after its file, or after the function if it has no file.
    fn unit(&mut self, path: Option<&[u8]>, language: Option<dw::DwLang>, lines: Option<u32>) {
        let flags = CHILDREN | flag(LANGUAGE, language.is_some()) | flag(LINES, lines.is_some());
        let strings = &mut self.memory.strings;
        let producer = strings.add(|out| out.extend_from_slice(b"jitinject"));
        let name = strings.add(|out| match path {
            Some(path) => write_path(out, path),
            None => write_escaped(out, self.function.symbol),
        });
        let directory = strings.add(|out| write_path(out, self.settings.directory));
        self.entry(EntryKind::Unit, flags);
        self.u32(producer);
        self.u32(name);
        if let Some(language) = language {
            self.leb128(language.0.into());
        }
        self.u32(directory);
        self.code_range(0, self.function.size);
        if let Some(lines) = lines {
            self.u32(lines);
        }
    }

    /// Writes the inlined functions, once each.
    fn inlined_functions(&mut self) {
        let info = self.function.info;
        self.memory.origins.clear();
        self.memory.origins.resize(info.functions.len(), 0);
        for call in &info.calls {
            let at = call.function as usize;
            let Some(function) = info.functions.get(at) else {
                continue;
            };
            let here = self.memory.info.len().saturating_sub(self.start) as u32;
            if let Some(origin) = self.memory.origins.get_mut(at).filter(|origin| **origin == 0) {
                *origin = here;
                // The function itself may be inlined into itself, and have no name except for its symbol.
                let name = match at {
                    0 if function.name.is_empty() => self.function.symbol,
                    _ => function.name,
                };
                self.inlined_function(function, name);
            }
        }
    }

    /// Writes the entry of a function that is inlined. `name` is in place of its own, which may be empty.
    fn inlined_function(&mut self, function: &SourceFunction<'_>, name: &[u8]) {
        let has_name = !name.is_empty();
        let location = self.declaration(function);
        let flags =
            flag(NAME, has_name) | flag(LINKAGE_NAME, has_name && self.names_linkage) | location.flags;
        self.entry(EntryKind::Inlined, flags);
        if has_name {
            let name = self.string(name);
            if self.names_linkage {
                self.u32(name);
            }
            self.u32(name);
        }
        self.location(&location);
        self.memory.info.push(dw::DW_INL_inlined.0);
    }

    /// Writes the function itself.
    fn function(&mut self) {
        let function = self.function;
        let declared = function.info.functions.first();
        let linkage_name = self.string(function.symbol);
        let name = declared
            .map(|declared| declared.name)
            .filter(|name| !name.is_empty());
        let name = name.map_or(linkage_name, |name| self.string(name));
        let location = declared.map_or(LocationAttributes::NONE, |declared| self.declaration(declared));
        let has_linkage_name = name != linkage_name || self.names_linkage;
        let flags = flag(CHILDREN, !function.info.calls.is_empty())
            | flag(LINKAGE_NAME, has_linkage_name)
            | location.flags;
        self.entry(EntryKind::Function, flags);
        if has_linkage_name {
            self.u32(linkage_name);
        }
        self.u32(name);
        self.location(&location);
        self.code_range(0, function.size);
    }

    /// Writes the inlined calls in the function.
    fn calls(&mut self) {
        let info = self.function.info;
        if info.calls.is_empty() {
            return;
        }
        // Functions that contain the next call.
        self.memory.callers.clear();
        self.memory.callers.push(0);
        let mut calls = info.calls.iter().peekable();
        while let Some(call) = calls.next() {
            while self.memory.callers.len() > (call.depth as usize).saturating_add(1) {
                self.memory.callers.pop();
                self.end_children();
            }
            let has_calls = calls.peek().is_some_and(|next| next.depth > call.depth);
            self.call(call, has_calls);
            if has_calls {
                self.memory.callers.push(call.function);
            }
        }
        for _ in 0..self.memory.callers.len() {
            self.end_children();
        }
    }

    /// Writes an inlined call, up to its children.
    fn call(&mut self, call: &InlinedCall, has_calls: bool) {
        let info = self.function.info;
        let caller = self.memory.callers.last();
        let caller = caller.and_then(|&caller| info.functions.get(caller as usize));
        let file = self.memory.files.index(caller.and_then(|caller| caller.file));
        let location = LocationAttributes::new(file, call.line, call.column);
        let range = match &call.ranges[..] {
            [range] => Some(range),
            _ => None,
        };
        let flags = flag(CHILDREN, has_calls) | flag(RANGES, range.is_none()) | location.flags;
        let origin = self.memory.origins.get(call.function as usize);
        let origin = origin.copied().unwrap_or(0);
        self.entry(EntryKind::Call, flags);
        self.u32(origin);
        match range {
            Some(range) => self.code_range(range.start, range.end.wrapping_sub(range.start)),
            None => {
                let list = ranges::write_range_list(&mut self.memory.ranges, &call.ranges, self.settings);
                self.u32(list);
                // hotspot tells calls at the same position, or without one, apart by their first address, which it
                // takes from here or from the lower bound of a single range.
                self.address(call.ranges.first().map_or(0, |range| range.start));
            }
        }
        self.location(&location);
    }

    fn finish(mut self) {
        self.end_children();
        let endian = self.settings.machine.endian;
        endian.set_length(&mut self.memory.info, self.start);
    }

    /// Starts an entry.
    fn entry(&mut self, kind: EntryKind, flags: u8) {
        let code = self.memory.codes.of(kind, flags);
        self.memory.info.push(code);
    }

    fn end_children(&mut self) {
        self.memory.info.push(0);
    }

    /// Writes a 32-bit integer.
    fn u32(&mut self, value: u32) {
        self.settings
            .machine
            .endian
            .write_u32(&mut self.memory.info, value);
    }

    fn leb128(&mut self, value: u64) {
        leb128::write_unsigned(&mut self.memory.info, value);
    }

    /// Writes the address of an offset in the function.
    fn address(&mut self, offset: u32) {
        let address = self.function.address.wrapping_add(offset.into());
        write_address(&mut self.memory.info, address, self.settings.machine);
    }

    /// Writes the address of an offset in the function, and a size.
    fn code_range(&mut self, offset: u32, size: u32) {
        self.address(offset);
        self.leb128(size.into());
    }

    /// Returns the offset of a name in `.debug_str`; functions may share it.
    fn string(&mut self, name: &[u8]) -> u32 {
        self.memory.strings.add(|out| write_escaped(out, name))
    }

    /// Returns a function's declaration; line and column mean nothing without a file.
    fn declaration(&self, function: &SourceFunction<'_>) -> LocationAttributes {
        match self.memory.files.index(function.file) {
            Some(file) => LocationAttributes::new(Some(file), function.line, function.column),
            None => LocationAttributes::NONE,
        }
    }

    /// Writes those attributes of a location that it has.
    fn location(&mut self, location: &LocationAttributes) {
        for (flag, value) in [
            (FILE, location.file),
            (LINE, location.line),
            (COLUMN, location.column),
        ] {
            if location.flags & flag != 0 {
                self.leb128(value.into());
            }
        }
    }
}

impl LocationAttributes {
    const NONE: Self = Self {
        flags: 0,
        file: 0,
        line: 0,
        column: 0,
    };

    /// Returns a location; line and column are 0 if they are unknown.
    fn new(file: Option<u32>, line: u32, column: u32) -> Self {
        Self {
            flags: flag(FILE, file.is_some()) | flag(LINE, line > 0) | flag(COLUMN, column > 0),
            file: file.unwrap_or(0),
            line,
            column,
        }
    }
}

/// Returns `flag` if the attribute is present.
fn flag(flag: u8, is_there: bool) -> u8 {
    if is_there { flag } else { 0 }
}

/// Returns the DWARF language of a source file by the end of its name. DWARF 5 has none for JavaScript and most other
/// languages of JIT compilers.
fn language(path: &[u8]) -> Option<dw::DwLang> {
    let (_, extension) = rsplit_once(path, b'.')?;
    Some(match extension {
        b"c" => dw::DW_LANG_C99,
        b"cc" | b"cpp" | b"cxx" => dw::DW_LANG_C_plus_plus,
        b"f90" => dw::DW_LANG_Fortran90,
        b"go" => dw::DW_LANG_Go,
        b"hs" => dw::DW_LANG_Haskell,
        b"java" => dw::DW_LANG_Java,
        b"jl" => dw::DW_LANG_Julia,
        b"kt" => dw::DW_LANG_Kotlin,
        b"m" => dw::DW_LANG_ObjC,
        b"ml" => dw::DW_LANG_OCaml,
        b"py" => dw::DW_LANG_Python,
        b"rs" => dw::DW_LANG_Rust,
        b"swift" => dw::DW_LANG_Swift,
        b"zig" => dw::DW_LANG_Zig,
        _ => return None,
    })
}
