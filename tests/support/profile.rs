//! Writes profiles.

use jitdump::ByteOrder;

/// Sample fields in the profiles of the tests. The last three are optional.
pub mod field {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const IDENTIFIER: u64 = 1 << 16;
}

const BASIC: u64 = field::IP | field::TID | field::TIME | field::CALLCHAIN | field::CPU | field::PERIOD;

/// Registers in samples with a stack.
#[derive(Clone, Copy)]
pub struct Registers {
    /// Bit mask of perf's numbers.
    pub mask: u64,
    /// Numbers of the stack pointer and the instruction pointer.
    pub sp: u32,
    pub ip: u32,
}

impl Registers {
    /// Those of x86-64 without the segment registers.
    pub const X86_64: Self = Self {
        mask: 0xff_0fff,
        sp: 7,
        ip: 8,
    };
    pub const AARCH64: Self = Self {
        mask: 0x1_ffff_ffff,
        sp: 31,
        ip: 32,
    };
}

/// Stack copy for unwinders.
pub struct UserStack<'a> {
    pub sp: u64,
    pub bytes: &'a [u8],
}

/// Writer of a profile with one event, or several events with identifiers.
pub struct ProfileWriter {
    pub endian: ByteOrder,
    pub sample_type: u64,
    /// Event IDs; empty for one event without an ID.
    pub ids: Vec<u64>,
    /// Whether all IDs belong to one event.
    pub is_one_event: bool,
    /// Whether records other than samples have a trailer.
    pub has_trailer: bool,
    pub clock: Option<u32>,
    /// Software event; 0 is cpu-clock.
    pub config: u64,
    /// Additional flags of the attribute.
    pub flags: u64,
    /// Size of an attribute in bytes; padded with zeros.
    pub attr_size: usize,
    /// Registers in samples with a stack.
    pub registers: Registers,
    /// Feature sections, by ascending ID.
    pub features: Vec<(u32, Vec<u8>)>,
    pub records: Vec<u8>,
}

/// Returns the feature section with the architecture, as `uname -m` prints it, of a little-endian machine. Without it, a profile
/// is of the machine that reads it.
pub fn architecture(name: &str) -> (u32, Vec<u8>) {
    const SIZE: u32 = 64;
    let mut section = SIZE.to_le_bytes().to_vec();
    section.extend_from_slice(name.as_bytes());
    section.resize(4 + SIZE as usize, 0);
    (6, section)
}

impl ProfileWriter {
    pub fn new(endian: ByteOrder) -> Self {
        Self {
            endian,
            sample_type: BASIC,
            ids: Vec::new(),
            is_one_event: false,
            has_trailer: true,
            clock: Some(1),
            config: 0,
            flags: 0,
            attr_size: 128,
            registers: Registers::X86_64,
            features: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Writes a record of any type.
    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.endian.write_u32(&mut self.records, kind);
        self.endian.write_u16(&mut self.records, misc);
        let size = u16::try_from(8 + body.len()).unwrap();
        self.endian.write_u16(&mut self.records, size);
        self.records.extend_from_slice(body);
    }

    /// Writes a record that ends with a trailer.
    fn kernel_record(&mut self, kind: u32, misc: u16, mut body: Vec<u8>, pid: u32, time: u64) {
        let endian = self.endian;
        let has = |field| self.has_trailer && self.sample_type & field != 0;
        if has(field::TID) {
            endian.write_u32(&mut body, pid);
            endian.write_u32(&mut body, pid);
        }
        if has(field::TIME) {
            endian.write_u64(&mut body, time);
        }
        if has(field::CPU) {
            endian.write_u64(&mut body, 0);
        }
        if has(field::IDENTIFIER) {
            endian.write_u64(&mut body, self.ids.last().copied().unwrap_or(0));
        }
        self.record(kind, misc, &body);
    }

    fn name(body: &mut Vec<u8>, name: &str) {
        body.extend_from_slice(name.as_bytes());
        let size = (body.len() + 1).next_multiple_of(8);
        body.resize(size, 0);
    }

    pub fn comm(&mut self, pid: u32, name: &str, is_exec: bool, time: u64) {
        let mut body = Vec::new();
        self.endian.write_u32(&mut body, pid);
        self.endian.write_u32(&mut body, pid);
        Self::name(&mut body, name);
        self.kernel_record(3, u16::from(is_exec) << 13, body, pid, time);
    }

    /// Writes the records for a new thread of a process, and its name.
    pub fn thread(&mut self, pid: u32, tid: u32, name: &str, time: u64) {
        let mut body = Vec::new();
        for word in [pid, pid, tid, pid] {
            self.endian.write_u32(&mut body, word);
        }
        self.endian.write_u64(&mut body, time);
        self.kernel_record(7, 0, body, pid, time);
        let mut body = Vec::new();
        self.endian.write_u32(&mut body, pid);
        self.endian.write_u32(&mut body, tid);
        Self::name(&mut body, name);
        self.kernel_record(3, 0, body, pid, time);
    }

    pub fn fork(&mut self, child: u32, parent: u32, time: u64) {
        self.fork_record(0, child, parent, time);
    }

    /// Writes the FORK record that perf synthesizes for a process that exists when the recording starts, with
    /// PERF_RECORD_MISC_FORK_EXEC and without a time.
    pub fn present(&mut self, pid: u32, parent: u32) {
        self.fork_record(1 << 13, pid, parent, 0);
    }

    fn fork_record(&mut self, misc: u16, child: u32, parent: u32, time: u64) {
        let mut body = Vec::new();
        for word in [child, parent, child, parent] {
            self.endian.write_u32(&mut body, word);
        }
        self.endian.write_u64(&mut body, time);
        self.kernel_record(7, misc, body, child, time);
    }

    /// Writes the EXIT record of a thread.
    pub fn exit(&mut self, pid: u32, tid: u32, time: u64) {
        let mut body = Vec::new();
        for word in [pid, 1, tid, 1] {
            self.endian.write_u32(&mut body, word);
        }
        self.endian.write_u64(&mut body, time);
        self.kernel_record(4, 0, body, pid, time);
    }

    /// Writes a private mapping with read and execute permission.
    pub fn mmap2(&mut self, pid: u32, address: u64, size: u64, file_offset: u64, name: &str, time: u64) {
        let numbers = [address, size, file_offset];
        self.mapping(pid, numbers, 0, name, time);
    }

    /// Writes a mapping of memory that forked processes share.
    pub fn shared_memory(&mut self, pid: u32, address: u64, size: u64, time: u64) {
        self.mapping(pid, [address, size, 0], 7, "/dev/zero (deleted)", time);
    }

    /// Writes a mapping with address, size and offset in the file; a shared one has an inode.
    fn mapping(&mut self, pid: u32, numbers: [u64; 3], inode: u64, name: &str, time: u64) {
        let endian = self.endian;
        let mut body = Vec::new();
        endian.write_u32(&mut body, pid);
        endian.write_u32(&mut body, pid);
        for word in numbers {
            endian.write_u64(&mut body, word);
        }
        endian.write_u32(&mut body, 8);
        endian.write_u32(&mut body, 1);
        endian.write_u64(&mut body, inode);
        endian.write_u64(&mut body, 0);
        endian.write_u32(&mut body, 5);
        endian.write_u32(&mut body, if inode > 0 { 1 } else { 2 });
        Self::name(&mut body, name);
        self.kernel_record(10, 2, body, pid, time);
    }

    /// Writes the KSYMBOL record of code that the kernel has made or removed.
    pub fn kernel_code(&mut self, address: u64, size: u32, is_removed: bool, name: &str, time: u64) {
        let mut body = Vec::new();
        self.endian.write_u64(&mut body, address);
        self.endian.write_u32(&mut body, size);
        self.endian.write_u16(&mut body, 1);
        self.endian.write_u16(&mut body, is_removed.into());
        Self::name(&mut body, name);
        self.kernel_record(17, 0, body, 0, time);
    }

    /// Writes the mapping that perf synthesizes for the kernel, whose `_text` is at `address`.
    pub fn kernel_map(&mut self, address: u64, size: u64, build_id: &[u8; 20]) {
        let mut body = Vec::new();
        for word in [u32::MAX, 0] {
            self.endian.write_u32(&mut body, word);
        }
        for word in [address, size, address] {
            self.endian.write_u64(&mut body, word);
        }
        body.extend_from_slice(&[20, 0, 0, 0]);
        body.extend_from_slice(build_id);
        for word in [0, 0] {
            self.endian.write_u32(&mut body, word);
        }
        Self::name(&mut body, "[kernel.kallsyms]_text");
        self.kernel_record(10, 1 << 14 | 1, body, u32::MAX, 0);
    }

    pub fn finished_round(&mut self) {
        self.record(68, 0, &[]);
    }

    /// Writes a sample in user space. `chain` starts with the sampled address.
    pub fn sample(&mut self, pid: u32, time: u64, chain: &[u64], stack: Option<&UserStack<'_>>) {
        self.precise_sample(pid, time, chain[0], chain, stack);
    }

    /// Writes a sample in user space at `ip`, whose call chain may start elsewhere.
    pub fn precise_sample(
        &mut self,
        pid: u32,
        time: u64,
        ip: u64,
        chain: &[u64],
        stack: Option<&UserStack<'_>>,
    ) {
        const CONTEXT_USER: u64 = -512i64 as u64;
        let endian = self.endian;
        let mut body = self.sample_start(pid, time, ip);
        if self.sample_type & field::STACK_USER != 0 {
            endian.write_u64(&mut body, 0);
        } else {
            endian.write_u64(&mut body, chain.len() as u64 + 1);
            endian.write_u64(&mut body, CONTEXT_USER);
            for &address in chain {
                endian.write_u64(&mut body, address);
            }
        }
        if let Some(stack) = stack {
            self.write_stack(&mut body, ip, stack);
        }
        self.record(9, 2, &body);
    }

    /// Writes a sample in the kernel, with its call chain and the markers in it, the first of which is that of the kernel.
    pub fn kernel_sample(&mut self, pid: u32, time: u64, chain: &[u64]) {
        let mut body = self.sample_start(pid, time, chain[1]);
        self.endian.write_u64(&mut body, chain.len() as u64);
        for &entry in chain {
            self.endian.write_u64(&mut body, entry);
        }
        self.record(9, 1, &body);
    }

    /// Returns the fields of a sample before its call chain.
    fn sample_start(&self, pid: u32, time: u64, ip: u64) -> Vec<u8> {
        let endian = self.endian;
        let mut body = Vec::new();
        let has = |field| self.sample_type & field != 0;
        if has(field::IDENTIFIER) {
            endian.write_u64(&mut body, self.ids.first().copied().unwrap_or(0));
        }
        endian.write_u64(&mut body, ip);
        endian.write_u32(&mut body, pid);
        endian.write_u32(&mut body, pid);
        if has(field::TIME) {
            endian.write_u64(&mut body, time);
        }
        endian.write_u64(&mut body, 0);
        endian.write_u64(&mut body, 1_000_000);
        body
    }

    fn write_stack(&self, body: &mut Vec<u8>, ip: u64, stack: &UserStack<'_>) {
        let endian = self.endian;
        // registers of a 64-bit process
        endian.write_u64(body, 2);
        for register in (0..64).filter(|register| self.registers.mask >> register & 1 != 0) {
            let value = match register {
                _ if register == self.registers.sp => stack.sp,
                _ if register == self.registers.ip => ip,
                _ => 0,
            };
            endian.write_u64(body, value);
        }
        endian.write_u64(body, stack.bytes.len() as u64);
        body.extend_from_slice(stack.bytes);
        endian.write_u64(body, stack.bytes.len() as u64);
    }

    pub fn attr(&self) -> Vec<u8> {
        let endian = self.endian;
        let mut out = Vec::new();
        // mmap, comm, freq, task, mmap2, comm_exec
        let mut flags: u64 = self.flags | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 13 | 1 << 23 | 1 << 24;
        flags |= u64::from(self.has_trailer) << 18 | u64::from(self.clock.is_some()) << 25;
        if endian == ByteOrder::Big {
            flags = flags.reverse_bits();
        }
        let has_stack = self.sample_type & field::STACK_USER != 0;
        endian.write_u32(&mut out, 1);
        endian.write_u32(&mut out, self.attr_size as u32);
        for word in [self.config, 999, self.sample_type, 4, flags, 0, 0, 0, 0] {
            endian.write_u64(&mut out, word);
        }
        endian.write_u64(&mut out, if has_stack { self.registers.mask } else { 0 });
        endian.write_u32(&mut out, if has_stack { 8192 } else { 0 });
        endian.write_u32(&mut out, self.clock.unwrap_or(0));
        out.resize(self.attr_size, 0);
        out
    }

    /// Returns everything before `size` bytes of records.
    pub fn head(&self, size: u64) -> Vec<u8> {
        let endian = self.endian;
        let attr = self.attr();
        let ids_each = if self.is_one_event { self.ids.len() } else { 1 };
        let events = (self.ids.len() / ids_each.max(1)).max(1);
        let ids_offset = 104;
        let attrs_offset = ids_offset + 8 * self.ids.len();
        let entry = attr.len() + 16;
        let data_offset = attrs_offset + events * entry;
        let mut set = [0u64; 4];
        for (id, _) in &self.features {
            set[*id as usize / 64] |= 1 << (id % 64);
        }
        let mut out = Vec::new();
        out.extend_from_slice(match endian {
            ByteOrder::Little => b"PERFILE2",
            ByteOrder::Big => b"2ELIFREP",
        });
        for word in [104, entry, attrs_offset, events * entry, data_offset] {
            endian.write_u64(&mut out, word as u64);
        }
        for word in [size, 0, 0].into_iter().chain(set) {
            endian.write_u64(&mut out, word);
        }
        for &id in &self.ids {
            endian.write_u64(&mut out, id);
        }
        for event in 0..events {
            out.extend_from_slice(&attr);
            endian.write_u64(&mut out, (ids_offset + 8 * event) as u64);
            endian.write_u64(
                &mut out,
                if self.ids.is_empty() {
                    0
                } else {
                    8 * ids_each as u64
                },
            );
        }
        out
    }

    /// Returns everything after `size` bytes of records.
    pub fn tail(&self, size: u64) -> Vec<u8> {
        let endian = self.endian;
        let mut out = Vec::new();
        let mut offset = self.head(size).len() as u64 + size + 16 * self.features.len() as u64;
        for (_, content) in &self.features {
            endian.write_u64(&mut out, offset);
            endian.write_u64(&mut out, content.len() as u64);
            offset += content.len() as u64;
        }
        for (_, content) in &self.features {
            out.extend_from_slice(content);
        }
        out
    }

    /// Returns the profile in pipe format, without features.
    pub fn finish_pipe(&self) -> Vec<u8> {
        let endian = self.endian;
        let mut out = Vec::new();
        out.extend_from_slice(match endian {
            ByteOrder::Little => b"PERFILE2",
            ByteOrder::Big => b"2ELIFREP",
        });
        endian.write_u64(&mut out, 16);
        let attr = self.attr();
        for event in 0..self.ids.len().max(1) {
            let id = self.ids.get(event);
            endian.write_u32(&mut out, 64);
            endian.write_u16(&mut out, 0);
            endian.write_u16(&mut out, (8 + attr.len() + id.map_or(0, |_| 8)) as u16);
            out.extend_from_slice(&attr);
            if let Some(&id) = id {
                endian.write_u64(&mut out, id);
            }
        }
        [out, self.records.clone()].concat()
    }

    /// Returns the whole file.
    pub fn finish(&self) -> Vec<u8> {
        let size = self.records.len() as u64;
        [self.head(size), self.records.clone(), self.tail(size)].concat()
    }
}
