//! Encodes functions as an ELF file: one function, or several at neighbouring addresses.
//!
//! ```text
//! offset = address in the object
//! 0      ELF header           ┐ PT_LOAD, offset 0, page-aligned
//! 0x40   .text; or at 0x10000 ┘
//!        program headers, .note.gnu.build-id
//!        .eh_frame, .eh_frame_hdr    at much higher addresses, where the process maps nothing
//!        DWARF sections, machine attributes
//!        .symtab, .strtab, .shstrtab, section headers
//! ```
//!
//! Each reader makes its own demands on the layout:
//!
//! - perf computes `address - map start + map offset` as a file offset and uses it as an address in the object, so
//!   `.text` has the same offset and address. samply does the same; otherwise it assumes a file that perf wrote
//!   wrongly in 2022, and writes another one.
//! - Unwinders compute the load address as `map start - map offset`, so an object is valid for one address only:
//!   its functions keep the distances that they had in the process. elfutils' libdw (hotspot, perf built with it)
//!   also needs a PT_LOAD that starts at offset 0 and covers the headers. If it starts at `.text`, as in files
//!   from perf inject, libdw finds nothing outside `/tmp/jitted-*`.
//! - libunwind (Debian's perf) reads the tables through the mappings of the process, so the tables have a mapping
//!   of their own. They have no PT_LOAD on purpose, although eu-elflint complains: with one, the objects of
//!   neighbouring functions would overlap, and libdw then drops all but one.
//! - The libdw of newer perf versions finds lines only from address 0x10000 of an object on (see [`LEAD_IN`]), so
//!   `.text` starts there if the 64 KiB before the code are free.
//! - samply gives all code of a `jitted-*` file the category and the JavaScript function of the first symbol. An object of
//!   several functions starts with a symbol that is neither (`image_symbol`).
//! - An object of many functions covers their whole address range. The gaps between functions are holes in the
//!   file ([`SparseBytes`]). Symbols have sizes, so addresses in a hole do not get a neighbour's name.
//! - If only the name of some code is known, `.text` has a size but no content (SHT_NOBITS), as in separate debug
//!   files, and nothing of the file is loaded. Such an object covers exactly the addresses of the code. eu-elflint
//!   complains about such sections.
//! - Readers treat two files with the same build ID as the same file, and reject a file whose ID differs from the
//!   profile's. So the ID covers all of the file's content, and the load address and time, which are not in the
//!   file.
//!
//! The tables are parsed and rewritten with a sorted index, at addresses within 2 GiB after the code that
//! the process never maps. perf inject's readers expect them directly after the code, over the next
//! function, where libunwind finds them only if the runtime declared them. Functions without tables get some
//! by their code, if readers unwind stacks. An object without any table has an empty index: without an index,
//! libunwind gives up; with an empty one, it uses the frame pointer, but has no stack pointer for the caller.
//! So have the symbols of perf maps, through which perf with libunwind would otherwise not unwind.

use jitdump::{ByteOrder, Machine};
use object::elf;
use object::endian::Endianness;
use object::write::elf::{Encoder, FileHeader, FileHeaderLayout, ProgramHeader, SectionHeader, Sym};
use sha1::{Digest, Sha1};

use crate::elf::attributes;
use crate::elf::dwarf;
use crate::elf::eh_frame::UnwindTables;
use crate::elf::escape::write_escaped;
use crate::files::objects::sparse::SparseBytes;
use crate::units::BuildId;

/// Content of an object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectContent<'a> {
    /// Target machine.
    pub machine: Machine,
    /// Functions, by ascending address. Either the code of all is known, or of none.
    pub functions: &'a [ObjectFunction<'a>],
    /// Address of the first function in its process.
    pub address: u64,
    /// Time at which the code was loaded, in nanoseconds of the profile's clock.
    pub time: u64,
    /// Unwinding tables.
    pub tables: PlacedTables<'a>,
    /// DWARF sections, which are not loaded. Empty ones are left out.
    pub debug: &'a [dwarf::DwarfSection<'a>],
}

/// A function in an object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectFunction<'a> {
    /// Symbol name; may be empty.
    pub name: &'a [u8],
    /// Machine code.
    pub code: CodeBytes<'a>,
    /// Address in the object. That of the first function is a result of [`text_address`].
    pub address: u64,
}

impl ObjectFunction<'_> {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.code.size())
    }
}

impl ObjectContent<'_> {
    /// Whether the code is known: that of all functions, if and only if that of the first one is.
    fn has_code(&self) -> bool {
        let first = self.functions.first();
        first.is_none_or(|function| matches!(function.code, CodeBytes::Known(_)))
    }

    /// Returns the address of the first function in the object.
    fn start(&self) -> u64 {
        let first = self.functions.first();
        first.map_or(TEXT_OFFSET, |function| function.address)
    }

    /// Returns the size of the memory from the first function to the end of the last one, in bytes.
    fn size(&self) -> u64 {
        let end = self.functions.iter().map(ObjectFunction::end).max();
        end.unwrap_or(0).saturating_sub(self.start())
    }
}

/// Machine code of a function.
#[derive(Clone, Copy, Debug)]
pub enum CodeBytes<'a> {
    /// The code itself.
    Known(&'a [u8]),
    /// Code of which only the size is known, in bytes.
    Unknown(u64),
}

impl CodeBytes<'_> {
    /// Returns the size of the code in bytes.
    pub fn size(&self) -> u64 {
        match *self {
            Self::Known(code) => code.len() as u64,
            Self::Unknown(size) => size,
        }
    }
}

/// Returns the address of the first function in an object whose code is known if `has_code`. `has_lead_in` is whether the
/// [`LEAD_IN`] bytes before the function are free in its process.
pub fn text_address(has_code: bool, has_lead_in: bool) -> u64 {
    match (has_code, has_lead_in) {
        (true, true) => LEAD_IN,
        (true, false) => TEXT_OFFSET,
        (false, _) => UNKNOWN_TEXT_ADDRESS,
    }
}

/// Returns the file offset for an address in the object, also for code that is not in the file. This is the
/// offset of the code's mapping.
pub fn file_offset(has_code: bool, address: u64) -> u64 {
    if has_code {
        address
    } else {
        address.saturating_sub(UNKNOWN_TEXT_ADDRESS)
    }
}

/// Unwinding tables and their address in the object.
#[derive(Clone, Copy, Debug)]
pub struct PlacedTables<'a> {
    /// The tables.
    pub tables: &'a UnwindTables,
    /// Address of their first byte in the object.
    pub address: u64,
}

/// Facts about an encoded object that its mappings need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// File offset of the unwinding tables, in bytes.
    pub tables_offset: u64,
    /// Build ID of the object.
    pub build_id: BuildId,
}

/// File offset of `.text`, and its address in the object: right after the ELF header. A larger value would make
/// objects overlap if two functions are closer to each other than that.
pub const TEXT_OFFSET: u64 = 0x40;

/// File offset of `.text`, and its address in the object, if nothing else is mapped in that many bytes before the
/// code.
///
/// Quirk: perf 7.0 and later use libdw for lines. `libdw__addr2line` (`util/libdw.c`) looks the address up before
/// it adds the module's bias, and libdw puts the only module at 0x10000. So it finds no line for lower addresses,
/// and perf falls back to LLVM or addr2line, which is slower. Tested by
/// `readers::libdw_finds_the_lines_of_an_image`.
pub const LEAD_IN: u64 = 0x1_0000;

/// Address of `.text` in an object without code; its file offset is 0. No header precedes it, so that objects
/// never overlap, however close their symbols are (in CPython 3.12 they are 11 bytes apart). It is not 0, because
/// samply ignores symbols at 0, and a multiple of the page size, as libdw requires.
const UNKNOWN_TEXT_ADDRESS: u64 = 0x1000;

const TEXT_ALIGN: u64 = 16;
const NOTE_NAME: &[u8; 4] = b"GNU\0";
/// Three integers, the name and the build ID.
const NOTE_SIZE: u64 = 12 + NOTE_NAME.len() as u64 + BuildId::SIZE as u64;

/// Encodes an object into `out`, whose previous content is discarded. The same content always gives the same
/// bytes.
pub fn encode(content: &ObjectContent<'_>, out: &mut SparseBytes) -> Encoded {
    out.clear();
    let mut writer = Writer {
        encoder: encoder(content.machine),
        endian: content.machine.endian,
        out,
        sections: vec![SectionHeader::default()],
        names: vec![0],
    };
    let text = writer.text(content);
    let segments = writer.reserve_program_headers();
    let build_id = build_id(content);
    let note = writer.note(&build_id);
    let (tables_offset, tables) = writer.tables(content.tables);
    for (name, bytes) in debug_sections(content) {
        writer.unloaded_section(name, elf::SHT_PROGBITS, bytes);
    }
    if let Some((name, kind, bytes)) = attributes::section(content.machine) {
        writer.unloaded_section(name, kind, &bytes);
    }
    writer.symbols(content, text, &build_id);
    let load = load_segment(content);
    writer.finish(content.machine, segments, &[load, note, tables]);
    Encoded {
        tables_offset,
        build_id,
    }
}

/// Returns the DWARF sections that are not empty.
fn debug_sections<'a>(content: &ObjectContent<'a>) -> impl Iterator<Item = dwarf::DwarfSection<'a>> {
    let sections = content.debug.iter().copied();
    sections.filter(|(_, bytes)| !bytes.is_empty())
}

fn encoder(machine: Machine) -> Encoder<Endianness> {
    let endian = match machine.endian {
        ByteOrder::Little => Endianness::Little,
        ByteOrder::Big => Endianness::Big,
    };
    Encoder::new(endian, machine.is_64, machine.id)
}

/// Returns the SHA-1 of everything that defines the object. Each part is preceded by its length, so that different
/// objects cannot share an ID.
fn build_id(content: &ObjectContent<'_>) -> BuildId {
    let mut hash = Sha1::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    let machine = content.machine;
    part(&machine.id.0.to_le_bytes());
    part(&[
        u8::from(machine.is_64),
        u8::from(machine.endian == ByteOrder::Big),
    ]);
    part(&content.address.to_le_bytes());
    part(&content.time.to_le_bytes());
    part(&(content.functions.len() as u64).to_le_bytes());
    for function in content.functions {
        part(function.name);
        part(&function.address.to_le_bytes());
        match function.code {
            CodeBytes::Known(code) => part(code),
            CodeBytes::Unknown(size) => {
                part(b"");
                part(&size.to_le_bytes());
            }
        }
    }
    part(&content.tables.address.to_le_bytes());
    part(&content.tables.tables.bytes);
    for (name, bytes) in debug_sections(content) {
        part(name.as_bytes());
        part(bytes);
    }
    BuildId(hash.finalize().into())
}

/// Returns the segment of the ELF header and the code, or the bare address range of code that is not in the file.
fn load_segment(content: &ObjectContent<'_>) -> ProgramHeader {
    let (address, file_size, size) = if content.has_code() {
        let size = content.start().saturating_add(content.size());
        (0, size, size)
    } else {
        (content.start(), 0, content.size())
    };
    ProgramHeader {
        p_type: elf::PT_LOAD,
        p_flags: elf::PF_R | elf::PF_X,
        p_offset: 0,
        p_vaddr: address,
        p_paddr: address,
        p_filesz: file_size,
        p_memsz: size,
        p_align: 0x1000,
    }
}

/// Returns the segment of a single section.
fn read_only_segment(kind: elf::ProgramType, section: &SectionHeader) -> ProgramHeader {
    ProgramHeader {
        p_type: kind,
        p_flags: elf::PF_R,
        p_offset: section.sh_offset,
        p_vaddr: section.sh_addr,
        p_paddr: section.sh_addr,
        p_filesz: section.sh_size,
        p_memsz: section.sh_size,
        p_align: section.sh_addralign,
    }
}

/// Returns the name for a function without one, which starts at this address of its process.
pub fn unnamed(address: u64) -> Vec<u8> {
    format!("[unnamed {address:#x}]").into_bytes()
}

/// Appends a symbol's name. Readers ignore symbols without a name, so these are named after their process address.
fn write_symbol_name(out: &mut Vec<u8>, name: &[u8], address: u64) {
    if name.is_empty() {
        out.extend_from_slice(&unnamed(address));
    }
    write_escaped(out, name);
    out.push(0);
}

/// Number of program headers in each object: code, build ID, unwinding tables.
const SEGMENTS: usize = 3;

/// Space reserved for the program headers.
struct ReservedHeaders {
    /// Offset in the file.
    offset: u64,
    /// Index in the stored bytes, which exclude holes.
    position: usize,
}

struct Writer<'o> {
    encoder: Encoder<Endianness>,
    endian: ByteOrder,
    out: &'o mut SparseBytes,
    sections: Vec<SectionHeader>,
    /// Content of `.shstrtab`.
    names: Vec<u8>,
}

impl Writer<'_> {
    /// Adds a section; returns its index.
    fn section(&mut self, name: &str, mut header: SectionHeader) -> u32 {
        let index = self.sections.len() as u32;
        header.sh_name = self.names.len() as u32;
        self.names.extend_from_slice(name.as_bytes());
        self.names.push(0);
        self.sections.push(header);
        index
    }

    fn align(&mut self, to: u64) -> u64 {
        let offset = self.out.size().next_multiple_of(to);
        self.out.pad_to(offset);
        offset
    }

    /// Reserves space for the program headers.
    fn reserve_program_headers(&mut self) -> ReservedHeaders {
        let offset = self.align(self.encoder.address_size());
        let position = self.out.stored_size() as usize;
        let size = self.encoder.program_header_size().saturating_mul(SEGMENTS as u64);
        self.out.pad_to(offset.saturating_add(size));
        ReservedHeaders { offset, position }
    }

    /// Adds the build ID note; returns its program header.
    fn note(&mut self, build_id: &BuildId) -> ProgramHeader {
        const ALIGN: u64 = 4;
        let offset = self.align(ALIGN);
        for word in [
            NOTE_NAME.len() as u32,
            BuildId::SIZE as u32,
            elf::NT_GNU_BUILD_ID.0,
        ] {
            self.endian.write_u32(self.out.stored_mut(), word);
        }
        self.out.extend_from_slice(NOTE_NAME);
        self.out.extend_from_slice(&build_id.0);
        let section = SectionHeader {
            sh_type: elf::SHT_NOTE,
            sh_offset: offset,
            sh_size: NOTE_SIZE,
            sh_addralign: ALIGN,
            ..SectionHeader::default()
        };
        let segment = read_only_segment(elf::PT_NOTE, &section);
        self.section(".note.gnu.build-id", section);
        segment
    }

    /// Adds the code, with zeros between functions; returns the section's index.
    fn text(&mut self, content: &ObjectContent<'_>) -> u32 {
        self.out.pad_to(TEXT_OFFSET);
        let mut kind = elf::SHT_NOBITS;
        for function in content.functions {
            if let CodeBytes::Known(code) = function.code {
                kind = elf::SHT_PROGBITS;
                self.out.pad_to(function.address);
                self.out.extend_from_slice(code);
            }
        }
        let section = SectionHeader {
            sh_type: kind,
            sh_flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
            sh_addr: content.start(),
            sh_offset: file_offset(content.has_code(), content.start()),
            sh_size: content.size(),
            sh_addralign: TEXT_ALIGN,
            ..SectionHeader::default()
        };
        self.section(".text", section)
    }

    /// Adds the unwinding tables; returns their file offset and program header.
    fn tables(&mut self, placed: PlacedTables<'_>) -> (u64, ProgramHeader) {
        const ALIGN: u64 = 8;
        let offset = self.align(ALIGN);
        self.out.extend_from_slice(&placed.tables.bytes);
        let frame_size = placed.tables.eh_frame_size as u64;
        let header_size = (placed.tables.bytes.len() as u64).saturating_sub(frame_size);
        let header_offset = offset.saturating_add(frame_size);
        let header_address = placed.address.wrapping_add(frame_size);
        let frame = SectionHeader {
            sh_type: elf::SHT_PROGBITS,
            sh_flags: elf::SHF_ALLOC,
            sh_addr: placed.address,
            sh_offset: offset,
            sh_size: frame_size,
            sh_addralign: ALIGN,
            ..SectionHeader::default()
        };
        let header = SectionHeader {
            sh_addr: header_address,
            sh_offset: header_offset,
            sh_size: header_size,
            sh_addralign: 4,
            ..frame.clone()
        };
        let segment = read_only_segment(elf::PT_GNU_EH_FRAME, &header);
        self.section(".eh_frame", frame);
        self.section(".eh_frame_hdr", header);
        (offset, segment)
    }

    /// Adds a section that is not loaded.
    fn unloaded_section(&mut self, name: &str, kind: elf::SectionType, content: &[u8]) {
        let header = SectionHeader {
            sh_type: kind,
            sh_offset: self.out.size(),
            sh_size: content.len() as u64,
            sh_addralign: 1,
            ..SectionHeader::default()
        };
        self.out.extend_from_slice(content);
        self.section(name, header);
    }

    /// Adds the symbol table with one symbol per function. The symbols are local, because a runtime may give many
    /// functions the same name.
    fn symbols(&mut self, content: &ObjectContent<'_>, text: u32, build_id: &BuildId) {
        let symtab_offset = self.align(self.encoder.address_size());
        self.encoder.null_symbol(self.out.stored_mut());
        let mut names = vec![0];
        // With the null symbol.
        let mut locals = (content.functions.len() as u32).saturating_add(1);
        if content.functions.len() > 1 {
            self.image_symbol(&mut names, build_id);
            locals = locals.saturating_add(1);
        }
        for function in content.functions {
            let symbol = Sym {
                section: Some(text),
                st_name: names.len() as u32,
                st_info: elf::SymbolInfo::new(elf::STB_LOCAL, elf::STT_FUNC),
                st_other: elf::SymbolOther::default(),
                st_shndx: elf::SymbolSection::default(),
                st_value: function.address,
                st_size: function.code.size(),
            };
            self.encoder.symbol(self.out.stored_mut(), &symbol);
            let into_code = function.address.wrapping_sub(content.start());
            let address = content.address.wrapping_add(into_code);
            write_symbol_name(&mut names, function.name, address);
        }
        let strtab_offset = self.out.size();
        self.out.extend_from_slice(&names);
        // The string table is the next section.
        let strtab = (self.sections.len() as u32).saturating_add(1);
        let symtab = SectionHeader {
            sh_offset: symtab_offset,
            sh_size: strtab_offset.saturating_sub(symtab_offset),
            ..self.encoder.symtab_section_header(strtab, locals)
        };
        self.section(".symtab", symtab);
        self.string_table(".strtab", strtab_offset);
    }

    /// Adds the first symbol of an object with several functions, and its name to `names`.
    ///
    /// Quirk: samply (0.13, `jit_function_name`) uses the first function symbol of a file named `jitted-*.so` for the
    /// category of all its code, as if the file had one function, and shows it as the JavaScript function of each frame if
    /// its name is V8's. By a name of no runtime, samply only knows that the code is JIT code. The symbol is undefined,
    /// and readers that look up addresses ignore it. Its name is a different one in each object, because `samply
    /// --reuse-threads` takes code of one name and size for the same.
    fn image_symbol(&mut self, names: &mut Vec<u8>, build_id: &BuildId) {
        let symbol = Sym {
            section: None,
            st_name: names.len() as u32,
            st_info: elf::SymbolInfo::new(elf::STB_LOCAL, elf::STT_FUNC),
            st_other: elf::SymbolOther::default(),
            st_shndx: elf::SHN_UNDEF,
            st_value: 0,
            st_size: 0,
        };
        self.encoder.symbol(self.out.stored_mut(), &symbol);
        names.extend_from_slice(format!("JIT image {build_id}").as_bytes());
        names.push(0);
    }

    /// Adds a string table that starts at `offset` and ends at the current end of the file.
    fn string_table(&mut self, name: &str, offset: u64) -> u32 {
        let header = SectionHeader {
            sh_offset: offset,
            sh_size: self.out.size().saturating_sub(offset),
            ..self.encoder.strtab_section_header()
        };
        self.section(name, header)
    }

    /// Adds the section names and all headers.
    fn finish(mut self, machine: Machine, reserved: ReservedHeaders, segments: &[ProgramHeader; SEGMENTS]) {
        let names_offset = self.out.size();
        let shstrtab = self.string_table(".shstrtab", names_offset);
        self.out.extend_from_slice(&self.names);
        if let Some(header) = self.sections.last_mut() {
            header.sh_size = self.names.len() as u64;
        }
        let layout = FileHeaderLayout {
            e_phoff: reserved.offset,
            segment_num: SEGMENTS as u32,
            e_shoff: self.align(self.encoder.address_size()),
            section_num: self.sections.len() as u32,
            shstrtab_index: shstrtab,
        };
        self.encoder.null_section_header(self.out.stored_mut(), &layout);
        for section in self.sections.iter().skip(1) {
            self.encoder.section_header(self.out.stored_mut(), section);
        }
        let mut head = Vec::new();
        let file_header = FileHeader {
            e_type: elf::ET_DYN,
            e_machine: machine.id,
            e_flags: machine.flags(),
            ..FileHeader::default()
        };
        // Fails only for more segments than the header can count.
        let written = self.encoder.file_header(&mut head, &file_header, &layout);
        debug_assert!(written.is_ok());
        self.out.overwrite(0, &head);
        head.clear();
        for segment in segments {
            self.encoder.program_header(&mut head, segment);
        }
        self.out.overwrite(reserved.position, &head);
    }
}
