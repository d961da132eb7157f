//! Writing jitdumps.

use jitinject::bytes::ByteOrder;

/// A jitdump in the making.
#[derive(Clone)]
pub struct DumpWriter {
    pub order: ByteOrder,
    pub bytes: Vec<u8>,
    /// The process that the next records are of.
    pub pid: u32,
}

/// ELF's numbers of x86-64 and its 32-bit predecessor.
pub const X86_64: u32 = 62;
pub const I386: u32 = 3;

impl DumpWriter {
    pub fn new(order: ByteOrder, machine: u32, pid: u32) -> Self {
        let mut bytes = Vec::new();
        for word in [0x4A69_5444, 1, 40, machine, 0, pid] {
            order.put_u32(&mut bytes, word);
        }
        order.put_u64(&mut bytes, 0);
        order.put_u64(&mut bytes, 0);
        Self { order, bytes, pid }
    }

    /// A record of any type.
    pub fn record(&mut self, kind: u32, time: u64, content: &[u8]) {
        self.order.put_u32(&mut self.bytes, kind);
        self.order.put_u32(&mut self.bytes, 16 + content.len() as u32);
        self.order.put_u64(&mut self.bytes, time);
        self.bytes.extend_from_slice(content);
    }

    fn words(&self, words: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        self.order.put_u32(&mut out, self.pid);
        self.order.put_u32(&mut out, self.pid);
        for &word in words {
            self.order.put_u64(&mut out, word);
        }
        out
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

    /// One entry, at the start of the function.
    pub fn debug_info(&mut self, time: u64, address: u64, file: &[u8], line: u32) {
        self.lines(time, address, file, &[(address, line)]);
    }

    /// Lines of one file at some addresses; the file is written once.
    pub fn lines(&mut self, time: u64, address: u64, file: &[u8], lines: &[(u64, u32)]) {
        let mut content = Vec::new();
        self.order.put_u64(&mut content, address);
        self.order.put_u64(&mut content, lines.len() as u64);
        for (at, (address, line)) in lines.iter().enumerate() {
            self.order.put_u64(&mut content, *address);
            self.order.put_u32(&mut content, *line);
            self.order.put_u32(&mut content, 0);
            content.extend_from_slice(if at == 0 { file } else { b"\xff" });
            content.push(0);
        }
        self.record(2, time, &content);
    }

    /// The tables first and their header last, as perf reads them.
    pub fn unwinding(&mut self, time: u64, tables: &[u8], header: &[u8]) {
        let size = (tables.len() + header.len()) as u64;
        let mut content = Vec::new();
        for word in [size, header.len() as u64, 0] {
            self.order.put_u64(&mut content, word);
        }
        content.extend_from_slice(tables);
        content.extend_from_slice(header);
        self.record(4, time, &content);
    }
}

/// An `.eh_frame` for x86-64 code of `size` bytes that keeps no frame pointer and has, all the time, `frame`
/// bytes on the stack, its return address among them; and an `.eh_frame_hdr`. The frame counts on lying right
/// behind the code, rounded up to 8 bytes.
pub fn tables(size: u64, frame: u8) -> (Vec<u8>, [u8; 20]) {
    let order = ByteOrder::Little;
    let mut out = Vec::new();
    // CIE: version 1, "zR", factors 1 and -8, return address in column 16, pc-relative pointers; CFA is rsp +
    // 8
    let cie = [1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
    order.put_u32(&mut out, 4 + cie.len() as u32);
    order.put_u32(&mut out, 0);
    out.extend_from_slice(&cie);
    // FDE: CFA is rsp + frame
    let start = out.len() as u64;
    order.put_u32(&mut out, 20);
    order.put_u32(&mut out, start as u32 + 4);
    let position = size.next_multiple_of(8) + start + 8;
    order.put_u32(&mut out, (position as i32).wrapping_neg() as u32);
    order.put_u32(&mut out, size as u32);
    out.extend_from_slice(&[0, 0x0e, frame, 0, 0, 0, 0, 0]);
    order.put_u32(&mut out, 0);
    let mut header = [0; 20];
    header[..4].copy_from_slice(&[1, 0x1b, 3, 0x3b]);
    (out, header)
}
