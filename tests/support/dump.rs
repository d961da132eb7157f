//! Writes jitdumps.

use jitdump::ByteOrder;

/// Writer of a jitdump.
#[derive(Clone)]
pub struct DumpWriter {
    pub endian: ByteOrder,
    pub bytes: Vec<u8>,
    /// PID of the next records.
    pub pid: u32,
}

/// ELF machine IDs.
pub const X86_64: u32 = 62;
pub const I386: u32 = 3;
pub const AARCH64: u32 = 183;

impl DumpWriter {
    pub fn new(endian: ByteOrder, machine: u32, pid: u32) -> Self {
        let mut bytes = Vec::new();
        for word in [0x4A69_5444, 1, 40, machine, 0, pid] {
            endian.write_u32(&mut bytes, word);
        }
        endian.write_u64(&mut bytes, 0);
        endian.write_u64(&mut bytes, 0);
        Self { endian, bytes, pid }
    }

    /// Writes a record of any type.
    pub fn record(&mut self, kind: u32, time: u64, content: &[u8]) {
        self.endian.write_u32(&mut self.bytes, kind);
        self.endian.write_u32(&mut self.bytes, 16 + content.len() as u32);
        self.endian.write_u64(&mut self.bytes, time);
        self.bytes.extend_from_slice(content);
    }

    fn words(&self, words: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        self.endian.write_u32(&mut out, self.pid);
        self.endian.write_u32(&mut out, self.pid);
        for &word in words {
            self.endian.write_u64(&mut out, word);
        }
        out
    }

    /// Adds functions of `size` bytes without instructions, each with its start and the size of its frame in its table.
    pub fn functions_with_tables(&mut self, functions: &[(u64, u8)], size: u64) {
        for (index, &(address, frame)) in (0..).zip(functions) {
            let (tables, header) = tables(size, frame);
            self.unwinding(1000, &tables, &header);
            let name = format!("function_{index}");
            self.load(1000, address, index, name.as_bytes(), &vec![0x90; size as usize]);
        }
    }

    pub fn load(&mut self, time: u64, address: u64, index: u64, name: &[u8], code: &[u8]) {
        let mut content = self.words(&[address, address, code.len() as u64, index]);
        content.extend_from_slice(name);
        content.push(0);
        content.extend_from_slice(code);
        self.record(0, time, &content);
    }

    pub fn moved(&mut self, time: u64, from: u64, to: u64, size: u64, index: u64) {
        let content = self.words(&[to, from, to, size, index]);
        self.record(1, time, &content);
    }

    /// Writes line information with one entry, at the start of the function.
    pub fn debug_info(&mut self, time: u64, address: u64, file: &[u8], line: u32) {
        self.lines(time, address, file, &[(address, line)]);
    }

    /// Writes the lines of one file at some addresses; the file name is written once.
    pub fn lines(&mut self, time: u64, address: u64, file: &[u8], lines: &[(u64, u32)]) {
        self.lines_at(time, address, file, lines, 0);
    }

    /// Like [`Self::lines`], in column 1.
    pub fn positions(&mut self, time: u64, address: u64, file: &[u8], lines: &[(u64, u32)]) {
        self.lines_at(time, address, file, lines, 1);
    }

    fn lines_at(&mut self, time: u64, address: u64, file: &[u8], lines: &[(u64, u32)], column: u32) {
        let mut content = Vec::new();
        self.endian.write_u64(&mut content, address);
        self.endian.write_u64(&mut content, lines.len() as u64);
        for (at, (address, line)) in lines.iter().enumerate() {
            self.endian.write_u64(&mut content, *address);
            self.endian.write_u32(&mut content, *line);
            self.endian.write_u32(&mut content, column);
            content.extend_from_slice(if at == 0 { file } else { b"\xff" });
            content.push(0);
        }
        self.record(2, time, &content);
    }

    /// Writes the lines of a function in a track, which are in one file, at offsets from the start of the function.
    pub fn track(&mut self, time: u64, address: u64, name: &[u8], file: &[u8], lines: &[(u32, u32)]) {
        /// SOURCE_TRACK, as in docs/runtime-authors.md.
        const KIND: u32 = 827_346_262;
        let padded = |text: &[u8]| {
            let mut padded = text.to_vec();
            padded.resize((text.len() + 1).next_multiple_of(4), 0);
            padded
        };
        let files = padded(file);
        let mut content = Vec::new();
        self.endian.write_u64(&mut content, address);
        content.extend(padded(name));
        for number in [1, files.len() as u32, 0, 0, 0, 0, 0, lines.len() as u32] {
            self.endian.write_u32(&mut content, number);
        }
        content.extend(files);
        for (offset, line) in lines {
            for number in [*offset, 0, *line, 0] {
                self.endian.write_u32(&mut content, number);
            }
        }
        self.record(KIND, time, &content);
    }

    /// Writes inlined calls for a function at an address: of two chains in turn, each of which has a depth of 60.
    pub fn alternating_calls(&mut self, time: u64, address: u64, entries: u32) {
        /// DEBUG_INFO2 with positions.
        const KIND: u32 = 827_346_260;
        const DEPTH: u32 = 60;
        let mut content = Vec::new();
        let positions = 1 + 2 * DEPTH;
        for number in [address, entries.into(), positions.into(), 2] {
            self.endian.write_u64(&mut content, number);
        }
        for entry in 0..entries {
            self.endian.write_u32(&mut content, entry);
            self.endian.write_u32(&mut content, DEPTH * (1 + entry % 2));
        }
        for position in 0..positions {
            let caller = match position {
                0 => u32::MAX,
                position if position == DEPTH + 1 => 0,
                position => position - 1,
            };
            for number in [caller, 0, 1, 1 + position, 1, 5, 1] {
                self.endian.write_u32(&mut content, number);
            }
        }
        content.extend(b"inlined\0a.js\0");
        self.record(KIND, time, &content);
    }

    /// Writes unwinding tables first and their header last, as perf reads them.
    pub fn unwinding(&mut self, time: u64, tables: &[u8], header: &[u8]) {
        let size = (tables.len() + header.len()) as u64;
        let mut content = Vec::new();
        for word in [size, header.len() as u64, 0] {
            self.endian.write_u64(&mut content, word);
        }
        content.extend_from_slice(tables);
        content.extend_from_slice(header);
        self.record(4, time, &content);
    }
}

/// Returns an `.eh_frame` and an `.eh_frame_hdr` for x86-64 code of `size` bytes that has no frame pointer and
/// always uses `frame` bytes of stack, including the return address. The tables must directly follow the code,
/// rounded up to 8 bytes.
pub fn tables(size: u64, frame: u8) -> (Vec<u8>, [u8; 20]) {
    // CIE: version 1, "zR", factors 1 and -8, return address in column 16, pc-relative pointers; CFA is rsp + 8
    let cie = [1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
    // CFA is rsp + frame
    tables_of(size, &cie, &[0x0e, frame])
}

/// Returns the same with the content of a CIE with pc-relative pointers, whose size is a multiple of 4, and the
/// instructions for the code.
pub fn tables_of(size: u64, cie: &[u8], instructions: &[u8]) -> (Vec<u8>, [u8; 20]) {
    let endian = ByteOrder::Little;
    let mut out = Vec::new();
    endian.write_u32(&mut out, 4 + cie.len() as u32);
    endian.write_u32(&mut out, 0);
    out.extend_from_slice(cie);
    // The size of the augmentation data, which are none, comes first.
    let mut rest = [&[0], instructions].concat();
    rest.resize(rest.len().next_multiple_of(8), 0);
    let start = out.len() as u64;
    endian.write_u32(&mut out, 12 + rest.len() as u32);
    endian.write_u32(&mut out, start as u32 + 4);
    let position = size.next_multiple_of(8) + start + 8;
    endian.write_u32(&mut out, (position as i32).wrapping_neg() as u32);
    endian.write_u32(&mut out, size as u32);
    out.extend_from_slice(&rest);
    endian.write_u32(&mut out, 0);
    let mut header = [0; 20];
    header[..4].copy_from_slice(&[1, 0x1b, 3, 0x3b]);
    (out, header)
}
