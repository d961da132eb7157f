//! Small ELF files with sections of any size, as a damaged or hostile file may have them.

/// Type of a shared library (`ET_DYN`).
pub const LIBRARY: u16 = 3;
/// Type of a core file (`ET_CORE`).
pub const CORE: u16 = 4;

/// Address of the code segment.
pub const ADDRESS: u64 = 0x1000;

/// A section.
pub struct Section<'a> {
    /// Name.
    pub name: &'a str,
    /// Whether it is compressed: the content starts with a header for that.
    pub is_compressed: bool,
    /// Size in the section table.
    pub size: u64,
    /// Its bytes, which may be fewer.
    pub content: &'a [u8],
}

/// Returns the header of a section that is compressed with zlib (1) or zstd (2), before `compressed`.
pub fn compressed(format: u64, size: u64, compressed: &[u8]) -> Vec<u8> {
    let header = [format, size, 8];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(compressed);
    bytes
}

/// Returns an ELF file for x86-64 with a code segment of 4 KiB at 0x1000, from the start of the file. Sections have that address.
pub fn file(kind: u16, sections: &[Section<'_>]) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    let mut names = b"\0.shstrtab\0".to_vec();
    let count = sections.len() as u64 + 2;
    let start = HEADER + SEGMENT + 64 * count;
    let mut table = Table::default();
    table.section(0, 0, 0, [0; 3]);
    let mut contents = Vec::new();
    let size = names.len()
        + sections
            .iter()
            .map(|section| section.name.len() + 1)
            .sum::<usize>();
    table.section(1, 3, 0, [0, start, size as u64]);
    for section in sections {
        let offset = start + size as u64 + contents.len() as u64;
        let flags = if section.is_compressed { 1 << 11 } else { 0 };
        table.section(names.len() as u32, 1, flags, [ADDRESS, offset, section.size]);
        names.extend(section.name.as_bytes());
        names.push(0);
        contents.extend(section.content);
    }
    let mut elf = Table(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
    elf.halves(&[kind, 62, 1, 0]);
    elf.words(&[ADDRESS, HEADER, HEADER + SEGMENT]);
    elf.halves(&[0, 0, HEADER as u16, SEGMENT as u16, 1, 64, count as u16, 1]);
    // PT_LOAD, readable and executable
    elf.halves(&[1, 0, 5, 0]);
    elf.words(&[0, ADDRESS, 0, 0x1000, 0x1000, 0x1000]);
    [elf.0, table.0, names, contents].concat()
}

/// Returns a library for x86-64 with functions, but without unwinding tables, and the offsets of their code in the file. The code
/// segment is the start of the file, at 0x1000.
pub fn with_functions(functions: &[(&str, &[u8])]) -> (Vec<u8>, Vec<u64>) {
    const HEADERS: u64 = 64 + 56 + 3 * 64;
    let (mut names, mut code, mut offsets) = (vec![0], Vec::new(), Vec::new());
    let mut symbols = Table(vec![0; 24]);
    for (name, bytes) in functions {
        let offset = HEADERS + code.len() as u64;
        offsets.push(offset);
        symbols.0.extend((names.len() as u32).to_le_bytes());
        // STB_GLOBAL, STT_FUNC; default visibility; an absolute address
        symbols.0.extend([0x12, 0, 0xf1, 0xff]);
        symbols.words(&[ADDRESS + offset, bytes.len() as u64]);
        names.extend(name.as_bytes());
        names.push(0);
        code.extend_from_slice(bytes);
    }
    names.resize(names.len().next_multiple_of(8), 0);
    code.resize(code.len().next_multiple_of(8), 0xcc);
    let names_at = HEADERS + code.len() as u64;
    let symbols_at = names_at + names.len() as u64;
    let mut elf = Table(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
    elf.halves(&[LIBRARY, 62, 1, 0]);
    elf.words(&[ADDRESS, 64, 64 + 56]);
    elf.halves(&[0, 0, 64, 56, 1, 64, 3, 1]);
    elf.halves(&[1, 0, 5, 0]);
    elf.words(&[0, ADDRESS, 0, names_at, names_at, 0x1000]);
    elf.section(0, 0, 0, [0; 3]);
    elf.section(0, 3, 0, [0, names_at, names.len() as u64]);
    elf.section(0, 2, 0, [0, symbols_at, symbols.0.len() as u64]);
    // The names of the symbols are in section 1, and a symbol has 24 bytes.
    let end = elf.0.len();
    elf.0[end - 24] = 1;
    elf.0[end - 8] = 24;
    ([elf.0, code, names, symbols.0].concat(), offsets)
}

#[derive(Default)]
struct Table(Vec<u8>);

impl Table {
    fn halves(&mut self, values: &[u16]) {
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    fn words(&mut self, values: &[u64]) {
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    fn section(&mut self, name: u32, kind: u32, flags: u64, [address, offset, size]: [u64; 3]) {
        self.0.extend(name.to_le_bytes());
        self.0.extend(kind.to_le_bytes());
        self.words(&[flags, address, offset, size, 0, 8, 0]);
    }
}
