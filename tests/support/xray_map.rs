//! Writes ELF files with an XRay instrumentation map and little else.

use jitdump::ByteOrder;

/// Load address of the map, relative to the start of the file; it need not be aligned.
const MAP: u64 = 0x5003;

/// Kind of relocations in a position-independent file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Relocations {
    /// No relocations: the file is loaded at its linked address.
    None,
    /// The addend is in the relocation; the relocated address contains zeros.
    Beside,
    /// The addend is at the relocated address.
    Inside,
}

/// Content of a file.
#[derive(Clone, Debug)]
pub struct Map {
    pub is_64: bool,
    pub endian: ByteOrder,
    /// ELF machine ID.
    pub machine: u16,
    /// Version of the entries.
    pub version: u8,
    pub relocations: Relocations,
    /// Addresses of functions, and the kinds of their entries.
    pub functions: Vec<(u64, Vec<u8>)>,
    pub build_id: Vec<u8>,
}

struct Section {
    name: &'static str,
    kind: u32,
    address: u64,
    data: Vec<u8>,
}

impl Map {
    fn pointer(&self) -> u64 {
        if self.is_64 { 8 } else { 4 }
    }

    fn put(&self, out: &mut Vec<u8>, value: u64) {
        if self.is_64 {
            self.endian.write_u64(out, value)
        } else {
            self.endian.write_u32(out, value as u32)
        }
    }

    /// Returns the map and its relocations: the address of each, and its value.
    fn map(&self) -> (Vec<u8>, Vec<(u64, u64)>) {
        let (mut out, mut relocated) = (Vec::new(), Vec::new());
        for (function, kinds) in &self.functions {
            for (kind, number) in kinds.iter().zip(0..) {
                let start = out.len();
                for address in [function + 16 * number, *function] {
                    let here = MAP + out.len() as u64;
                    let value = match (self.version, self.relocations) {
                        (2.., _) => address.wrapping_sub(here),
                        (_, Relocations::Beside) => 0,
                        _ => address,
                    };
                    relocated.push((here, address));
                    self.put(&mut out, value);
                }
                out.extend([*kind, 1, self.version]);
                out.resize(start + 4 * self.pointer() as usize, 0xaa);
            }
        }
        if self.version < 2 && self.relocations == Relocations::Beside {
            (out, relocated)
        } else {
            (out, Vec::new())
        }
    }

    fn relocations(&self, all: &[(u64, u64)]) -> Vec<u8> {
        let relative = match self.machine {
            62 => 8,
            183 => 1027,
            22 => 12,
            _ => 3,
        };
        let mut out = Vec::new();
        for &(place, address) in all {
            for field in [place, relative, address] {
                self.put(&mut out, field);
            }
        }
        out
    }

    fn note(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for field in [4, self.build_id.len() as u32, 3] {
            self.endian.write_u32(&mut out, field);
        }
        out.extend(b"GNU\0");
        out.extend(&self.build_id);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    /// Returns the file.
    pub fn write(&self) -> Vec<u8> {
        let (map, relocated) = self.map();
        let section = |name, kind, address, data| Section {
            name,
            kind,
            address,
            data,
        };
        let mut sections = vec![
            section("", 0, 0, Vec::new()),
            section("xray_instr_map", 1, MAP, map),
            section(".rela.dyn", 4, 0x100, self.relocations(&relocated)),
            section(".note.gnu.build-id", 7, 0x200, self.note()),
            section(".shstrtab", 3, 0, Vec::new()),
        ];
        let mut names = Vec::new();
        let mut starts = Vec::new();
        for it in &sections {
            starts.push(names.len() as u32);
            names.extend(it.name.bytes().chain([0]));
        }
        sections.last_mut().unwrap().data = names;
        let header = if self.is_64 { 64 } else { 52 };
        let mut places = Vec::new();
        let mut content = Vec::new();
        for it in &sections {
            places.push(header + content.len() as u64);
            content.extend(&it.data);
            content.resize(content.len().next_multiple_of(8), 0);
        }
        let mut out = self.header(header + content.len() as u64, sections.len() as u16);
        out.extend(content);
        for ((it, place), name) in sections.iter().zip(places).zip(starts) {
            self.section_header(&mut out, it, place, name);
        }
        out
    }

    fn header(&self, sections_at: u64, sections: u16) -> Vec<u8> {
        let endian = self.endian;
        let mut out = b"\x7fELF".to_vec();
        out.extend([
            1 + u8::from(self.is_64),
            1 + u8::from(endian == ByteOrder::Big),
            1,
        ]);
        out.resize(16, 0);
        let kind = if self.relocations == Relocations::None {
            2
        } else {
            3
        };
        endian.write_u16(&mut out, kind);
        endian.write_u16(&mut out, self.machine);
        endian.write_u32(&mut out, 1);
        for field in [0, 0, sections_at] {
            self.put(&mut out, field);
        }
        endian.write_u32(&mut out, 0);
        let (header, section_header) = if self.is_64 { (64, 64) } else { (52, 40) };
        for field in [header, 0, 0, section_header, sections, sections - 1] {
            endian.write_u16(&mut out, field);
        }
        out
    }

    fn section_header(&self, out: &mut Vec<u8>, it: &Section, place: u64, name: u32) {
        self.endian.write_u32(out, name);
        self.endian.write_u32(out, it.kind);
        for field in [2, it.address, place, it.data.len() as u64] {
            self.put(out, field);
        }
        self.endian.write_u32(out, 0);
        self.endian.write_u32(out, 0);
        let entry = if it.kind == 4 { 3 * self.pointer() } else { 0 };
        for field in [1 + 3 * u64::from(it.kind == 7), entry] {
            self.put(out, field);
        }
    }
}
