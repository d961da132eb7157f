//! Functions as an ELF file: one, or all that lie close to each other.
//!
//! ```text
//! offset = address in the object
//! 0      ELF header           ┐ PT_LOAD, offset 0, page-aligned
//! 0x40   .text; or at 0x10000 ┘
//!        program headers, .note.gnu.build-id
//!        .eh_frame, .eh_frame_hdr    their addresses lie far behind, where the process maps nothing
//!        lines, attributes of the machine
//!        .symtab, .strtab, .shstrtab, section headers
//! ```
//!
//! Each reader asks something of the layout, and this one serves all of them:
//!
//! - perf takes `address - map start + map offset` for a file offset, and that for an address in the object:
//!   `.text` lies at the same offset and address. So does samply, which otherwise takes the file for one that
//!   perf wrote wrongly in 2022 and writes another.
//! - Unwinders take `map start - map offset` for where the object starts, so an object is for one place: its
//!   functions lie in it as far from each other as they did in their process. elfutils' libdw (hotspot, perf
//!   built with it) also wants a PT_LOAD that starts at offset 0 and covers the headers; with one that starts
//!   at `.text`, as perf inject writes it, it finds nothing outside `/tmp/jitted-*`.
//! - libunwind (Debian's perf) reads the tables through the maps of the process, so they have a map of their
//!   own. A PT_LOAD for them would make the objects of neighbouring functions overlap, and libdw then drops
//!   all but one; so there is none, on purpose, though eu-elflint remarks on it.
//! - The libdw that newer perf is built with finds lines only from address 0x10000 of an object on (see
//!   [`LEAD_IN`]), so `.text` starts there where the 64 KiB before the code are free.
//! - An object of many functions covers all of their memory. The memory between them is a hole in the file
//!   ([`SparseBytes`]). Symbols have sizes, so nothing in a hole takes the name of a neighbour.
//! - Where only the name of some code is known, `.text` has a size and no content (SHT_NOBITS), as in files of
//!   debug information, and nothing of the file is loaded. Such an object lies at the code's addresses and
//!   not a byte before them. eu-elflint remarks on such sections.
//! - Build-ids: readers take two files with the same id for one, and a file whose id differs from the
//!   profile's for a wrong one. So the id covers all that the file holds, and also the address and the time
//!   of the load, which it does not.

use object::elf;
use object::endian::Endianness;
use object::write::elf::{Encoder, FileHeader, FileHeaderLayout, ProgramHeader, SectionHeader, Sym};
use sha1::{Digest, Sha1};

use crate::bytes::ByteOrder;
use crate::elf::attributes;
use crate::elf::dwarf;
use crate::elf::eh_frame::Tables;
use crate::elf::text::put_escaped;
use crate::machine::Machine;
use crate::sparse::SparseBytes;
use crate::units::BuildId;

/// What an object is made of.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The machine.
    pub machine: Machine,
    /// The functions, from the lowest address up. The code of all must be known, or of none.
    pub functions: &'a [Function<'a>],
    /// Where the first one lay in its process.
    pub address: u64,
    /// When it was put there.
    pub time: u64,
    /// How to unwind them.
    pub tables: PlacedTables<'a>,
    /// Lines and inlined calls: sections that are not loaded. Those without bytes are left out.
    pub debug: &'a [dwarf::Section<'a>],
}

/// A function in an object.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its machine code.
    pub code: Code<'a>,
    /// Its address in the object. That of the first function is one of [`Code::start`].
    pub address: u64,
}

impl Function<'_> {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.code.size())
    }
}

impl<'a> Content<'a> {
    /// The code that stands for all in the question of what is known.
    fn first_code(&self) -> Code<'a> {
        self.functions
            .first()
            .map_or(Code::Known(&[]), |function| function.code)
    }

    /// The address of the first function in the object.
    fn start(&self) -> u64 {
        let first = self.functions.first();
        first.map_or(TEXT_OFFSET, |function| function.address)
    }

    /// The size of the memory from the first function to the end of the last one, in bytes.
    fn size(&self) -> u64 {
        let end = self.functions.iter().map(Function::end).max();
        end.unwrap_or(0).saturating_sub(self.start())
    }
}

/// The code of a function.
#[derive(Clone, Copy, Debug)]
pub enum Code<'a> {
    /// It.
    Known(&'a [u8]),
    /// Only how many bytes it has.
    Unknown(u64),
}

impl Code<'_> {
    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        match *self {
            Self::Known(code) => code.len() as u64,
            Self::Unknown(size) => size,
        }
    }

    /// The address of the first function in an object whose functions have such code. `has_lead_in` is whether
    /// the [`LEAD_IN`] bytes before it in its process are free.
    pub fn start(&self, has_lead_in: bool) -> u64 {
        match self {
            Self::Known(_) if has_lead_in => LEAD_IN,
            Self::Known(_) => TEXT_OFFSET,
            Self::Unknown(_) => UNKNOWN_TEXT_ADDRESS,
        }
    }

    /// The offset in the file of code at `address` of the object, or what it would be if the code were there: the
    /// offset in the map of the code.
    pub fn file_offset(&self, address: u64) -> u64 {
        match self {
            Self::Known(_) => address,
            Self::Unknown(_) => address.saturating_sub(UNKNOWN_TEXT_ADDRESS),
        }
    }
}

/// Tables for unwinding and their address in the object.
#[derive(Clone, Copy, Debug)]
pub struct PlacedTables<'a> {
    /// The tables.
    pub tables: &'a Tables,
    /// The object's address of their first byte.
    pub address: u64,
}

/// What of an encoded object its maps need to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// Where the tables start in the file.
    pub tables_offset: u64,
    /// The build-id.
    pub build_id: BuildId,
}

/// Where `.text` starts, as an offset in the file and an address in the object: behind the ELF header, and no
/// further, because the object of a function that lies closer to the one before it than this overlaps that
/// one's.
pub const TEXT_OFFSET: u64 = 0x40;

/// Where `.text` starts in an object if nothing else is mapped in so many bytes before its code, in the same way.
///
/// Quirk: perf 7.0 and later ask libdw for lines. `libdw__addr2line` (`util/libdw.c`) looks the address up before
/// it adds the module's bias, and libdw puts the only module at 0x10000: no line is found for lower addresses, and
/// perf asks LLVM or addr2line, which is slower. Shown by `readers::libdw_finds_the_lines_of_an_image`.
pub const LEAD_IN: u64 = 0x1_0000;

/// Where `.text` starts in an object without code, as an address in the object; its offset in the file is 0.
/// There is nothing that a header could stand in front of, so that objects overlap nowhere, however close
/// their symbols lie (CPython 3.12 has 11 bytes for each). It is not 0, since samply takes a symbol there for
/// none, and a multiple of the page, as libdw has it.
const UNKNOWN_TEXT_ADDRESS: u64 = 0x1000;

const TEXT_ALIGN: u64 = 16;
const NOTE_NAME: &[u8; 4] = b"GNU\0";
/// Three numbers, the name, the id.
const NOTE_SIZE: u64 = 12 + NOTE_NAME.len() as u64 + BuildId::SIZE as u64;

/// Encodes an object into `out`, which is emptied first. The same content gives the same bytes.
pub fn encode(content: &Content<'_>, out: &mut SparseBytes) -> Encoded {
    out.clear();
    let mut writer = Writer {
        encoder: encoder(content.machine),
        order: content.machine.order,
        out,
        sections: vec![SectionHeader::default()],
        names: vec![0],
    };
    let text = writer.text(content);
    let segments = writer.set_aside_segments();
    let build_id = build_id(content);
    let note = writer.note(&build_id);
    let (tables_offset, tables) = writer.tables(content.tables);
    for (name, bytes) in debug_sections(content) {
        writer.unloaded(name, elf::SHT_PROGBITS, bytes);
    }
    if let Some((name, kind, bytes)) = attributes::section(content.machine) {
        writer.unloaded(name, kind, &bytes);
    }
    writer.symbols(content, text);
    let load = load_segment(content);
    writer.finish(content.machine, segments, &[load, note, tables]);
    Encoded {
        tables_offset,
        build_id,
    }
}

/// The sections of lines and inlined calls that hold anything.
fn debug_sections<'a>(content: &Content<'a>) -> impl Iterator<Item = dwarf::Section<'a>> {
    let sections = content.debug.iter().copied();
    sections.filter(|(_, bytes)| !bytes.is_empty())
}

fn encoder(machine: Machine) -> Encoder<Endianness> {
    let endian = match machine.order {
        ByteOrder::Little => Endianness::Little,
        ByteOrder::Big => Endianness::Big,
    };
    Encoder::new(endian, machine.is_64, machine.number)
}

/// SHA-1 over all that makes the object what it is, each part behind its length, so that no two objects
/// share an id.
fn build_id(content: &Content<'_>) -> BuildId {
    let mut hash = Sha1::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    let machine = content.machine;
    part(&machine.number.0.to_le_bytes());
    part(&[u8::from(machine.is_64), u8::from(machine.order == ByteOrder::Big)]);
    part(&content.address.to_le_bytes());
    part(&content.time.to_le_bytes());
    part(&(content.functions.len() as u64).to_le_bytes());
    for function in content.functions {
        part(function.name);
        part(&function.address.to_le_bytes());
        match function.code {
            Code::Known(code) => part(code),
            Code::Unknown(size) => {
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

/// Header and code, as a loader would map them; or the addresses of code that is not there.
fn load_segment(content: &Content<'_>) -> ProgramHeader {
    let code = content.first_code();
    let (address, file_size, size) = match code {
        Code::Known(_) => {
            let size = content.start().saturating_add(content.size());
            (0, size, size)
        }
        Code::Unknown(_) => (content.start(), 0, content.size()),
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

/// A name as a symbol. One without a name would be none to its readers; its address in the process stands in.
fn put_symbol_name(out: &mut Vec<u8>, name: &[u8], address: u64) {
    if name.is_empty() {
        out.extend_from_slice(format!("[unnamed {address:#x}]").as_bytes());
    }
    put_escaped(out, name);
    out.push(0);
}

/// How many program headers each object has: code, build-id, tables for unwinding.
const SEGMENTS: usize = 3;

/// The room for the program headers.
struct SegmentsPlace {
    /// Its offset in the file.
    offset: u64,
    /// Its position among the stored bytes.
    position: usize,
}

struct Writer<'o> {
    encoder: Encoder<Endianness>,
    order: ByteOrder,
    out: &'o mut SparseBytes,
    sections: Vec<SectionHeader>,
    /// `.shstrtab`.
    names: Vec<u8>,
}

impl Writer<'_> {
    /// Adds a section; returns its number.
    fn section(&mut self, name: &str, mut header: SectionHeader) -> u32 {
        let number = self.sections.len() as u32;
        header.sh_name = self.names.len() as u32;
        self.names.extend_from_slice(name.as_bytes());
        self.names.push(0);
        self.sections.push(header);
        number
    }

    fn align(&mut self, to: u64) -> u64 {
        let offset = self.out.len().next_multiple_of(to);
        self.out.pad_to(offset);
        offset
    }

    /// Leaves room for the program headers.
    fn set_aside_segments(&mut self) -> SegmentsPlace {
        let offset = self.align(self.encoder.address_size());
        let position = self.out.stored_size() as usize;
        let size = self.encoder.program_header_size().saturating_mul(SEGMENTS as u64);
        self.out.pad_to(offset.saturating_add(size));
        SegmentsPlace { offset, position }
    }

    /// Adds the note with the build-id; returns the program header that leads to it.
    fn note(&mut self, build_id: &BuildId) -> ProgramHeader {
        const ALIGN: u64 = 4;
        let offset = self.align(ALIGN);
        for number in [
            NOTE_NAME.len() as u32,
            BuildId::SIZE as u32,
            elf::NT_GNU_BUILD_ID.0,
        ] {
            self.order.put_u32(self.out.stored_mut(), number);
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
        self.section(".note.gnu.build-id", section);
        ProgramHeader {
            p_type: elf::PT_NOTE,
            p_flags: elf::PF_R,
            p_offset: offset,
            p_vaddr: 0,
            p_paddr: 0,
            p_filesz: NOTE_SIZE,
            p_memsz: NOTE_SIZE,
            p_align: ALIGN,
        }
    }

    /// Adds the code, with zeros between functions.
    fn text(&mut self, content: &Content<'_>) -> u32 {
        self.out.pad_to(TEXT_OFFSET);
        let mut kind = elf::SHT_NOBITS;
        for function in content.functions {
            if let Code::Known(code) = function.code {
                kind = elf::SHT_PROGBITS;
                self.out.pad_to(function.address);
                self.out.extend_from_slice(code);
            }
        }
        let code = content.first_code();
        let section = SectionHeader {
            sh_type: kind,
            sh_flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
            sh_addr: content.start(),
            sh_offset: code.file_offset(content.start()),
            sh_size: content.size(),
            sh_addralign: TEXT_ALIGN,
            ..SectionHeader::default()
        };
        self.section(".text", section)
    }

    /// Adds the tables; returns their offset in the file and the program header that leads to them.
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
        self.section(".eh_frame", frame);
        self.section(".eh_frame_hdr", header);
        let segment = ProgramHeader {
            p_type: elf::PT_GNU_EH_FRAME,
            p_flags: elf::PF_R,
            p_offset: header_offset,
            p_vaddr: header_address,
            p_paddr: header_address,
            p_filesz: header_size,
            p_memsz: header_size,
            p_align: 4,
        };
        (offset, segment)
    }

    /// Adds a section that is not loaded.
    fn unloaded(&mut self, name: &str, kind: elf::SectionType, content: &[u8]) {
        let header = SectionHeader {
            sh_type: kind,
            sh_offset: self.out.len(),
            sh_size: content.len() as u64,
            sh_addralign: 1,
            ..SectionHeader::default()
        };
        self.out.extend_from_slice(content);
        self.section(name, header);
    }

    /// Adds the symbol tables: a local symbol for each function. Local, since a runtime may give the same name
    /// to many.
    fn symbols(&mut self, content: &Content<'_>, text: u32) {
        let symtab_offset = self.align(self.encoder.address_size());
        self.encoder.null_symbol(self.out.stored_mut());
        let mut names = vec![0];
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
            put_symbol_name(&mut names, function.name, address);
        }
        let strtab_offset = self.out.len();
        self.out.extend_from_slice(&names);
        // That table is the section behind this one, and the first symbol is the empty one.
        let strtab = (self.sections.len() as u32).saturating_add(1);
        let locals = (content.functions.len() as u32).saturating_add(1);
        let symtab = SectionHeader {
            sh_offset: symtab_offset,
            sh_size: strtab_offset.saturating_sub(symtab_offset),
            ..self.encoder.symtab_section_header(strtab, locals)
        };
        self.section(".symtab", symtab);
        self.strings(".strtab", strtab_offset);
    }

    /// Adds a table of strings that starts at `offset` and ends here.
    fn strings(&mut self, name: &str, offset: u64) -> u32 {
        let header = SectionHeader {
            sh_offset: offset,
            sh_size: self.out.len().saturating_sub(offset),
            ..self.encoder.strtab_section_header()
        };
        self.section(name, header)
    }

    /// Adds the names of the sections and the headers of everything.
    fn finish(mut self, machine: Machine, place: SegmentsPlace, segments: &[ProgramHeader; SEGMENTS]) {
        let names_offset = self.out.len();
        let shstrtab = self.strings(".shstrtab", names_offset);
        self.out.extend_from_slice(&self.names);
        if let Some(header) = self.sections.last_mut() {
            header.sh_size = self.names.len() as u64;
        }
        let layout = FileHeaderLayout {
            e_phoff: place.offset,
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
            e_machine: machine.number,
            e_flags: machine.flags(),
            ..FileHeader::default()
        };
        // It can only fail for more segments than sections can count.
        let written = self.encoder.file_header(&mut head, &file_header, &layout);
        debug_assert!(written.is_ok());
        self.out.overwrite(0, &head);
        head.clear();
        for segment in segments {
            self.encoder.program_header(&mut head, segment);
        }
        self.out.overwrite(place.position, &head);
    }
}
