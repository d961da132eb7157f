//! Writes XRay traces in all versions and both endiannesses, as LLVM's runtimes did.

use jitdump::ByteOrder;
use jitinject::internals::traces::xray::format::{RecordKind, TraceMode};

/// All versions of both modes.
pub const VERSIONS: [(TraceMode, u16); 8] = [
    (TraceMode::Fdr, 1),
    (TraceMode::Fdr, 2),
    (TraceMode::Fdr, 3),
    (TraceMode::Fdr, 4),
    (TraceMode::Fdr, 5),
    (TraceMode::Basic, 1),
    (TraceMode::Basic, 2),
    (TraceMode::Basic, 3),
];

/// Value of unused bytes.
const GARBAGE: u8 = 0xaa;

/// Buffer of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer<'a> {
    pub process: i32,
    pub thread: i32,
    /// Seconds and microseconds.
    pub wall: (u64, u32),
    pub records: Vec<Record<'a>>,
}

/// A record without its offset. Argument records have time and CPU of their entry records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    pub tick: u64,
    pub cpu: u16,
    pub kind: RecordKind<'a>,
}

/// Writer of a trace.
pub struct Writer {
    mode: TraceMode,
    version: u16,
    endian: ByteOrder,
    /// Size of each buffer in bytes; in version 1, every buffer has this size in the file.
    buffer_size: u64,
    /// Whether the size of typed events is counted wrongly, as LLVM's runtimes do.
    loses_bytes: bool,
    /// Last function of basic mode, which argument records repeat.
    function: u32,
    out: Vec<u8>,
}

impl Writer {
    /// Starts a trace with its header.
    pub fn new(mode: TraceMode, version: u16, endian: ByteOrder, buffer_size: u64) -> Self {
        let mut out = Vec::new();
        endian.write_u16(&mut out, version);
        endian.write_u16(&mut out, u16::from(mode == TraceMode::Fdr));
        out.extend(match endian {
            ByteOrder::Little => [GARBAGE & !3 | 3, GARBAGE, GARBAGE, GARBAGE],
            ByteOrder::Big => [GARBAGE | 0xc0, GARBAGE, GARBAGE, GARBAGE],
        });
        endian.write_u64(&mut out, 1_000_000_000);
        endian.write_u64(&mut out, buffer_size);
        out.extend([GARBAGE; 8]);
        Self {
            mode,
            version,
            endian,
            buffer_size,
            loses_bytes: false,
            function: 0,
            out,
        }
    }

    /// From now on, truncates buffers as LLVM's runtimes do.
    pub fn lose_bytes(&mut self) {
        self.loses_bytes = true;
    }

    /// Returns the trace.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Writes a buffer; returns the offset of each of its records.
    pub fn buffer(&mut self, buffer: &Buffer<'_>) -> Vec<u64> {
        match self.mode {
            TraceMode::Fdr => self.fdr_buffer(buffer),
            TraceMode::Basic => buffer
                .records
                .iter()
                .map(|record| self.basic_record(buffer, record))
                .collect(),
        }
    }

    fn fdr_buffer(&mut self, buffer: &Buffer<'_>) -> Vec<u64> {
        let mut content = Content::new(self.version, self.endian);
        content.metadata(0, |endian, body| endian.write_u32(body, buffer.thread as u32));
        content.metadata(4, |endian, body| {
            endian.write_u64(body, buffer.wall.0);
            endian.write_u32(body, buffer.wall.1);
        });
        if self.version >= 3 {
            content.metadata(9, |endian, body| endian.write_u32(body, buffer.process as u32));
        }
        if let Some(first) = buffer.records.first() {
            content.new_cpu(first.cpu, first.tick);
        }
        let starts: Vec<usize> = buffer.records.iter().map(|it| content.record(it)).collect();
        if self.version == 1 {
            content.metadata(1, |_, _| {});
            let size = self.buffer_size as usize;
            assert!(
                content.out.len() <= size,
                "{} bytes are needed",
                content.out.len()
            );
            // Stale content: older records.
            let stale = [0x20, 0, 0, 0, 9, 0, 0, 0];
            let filler = stale.iter().cycle().take(size - content.out.len());
            content.out.extend(filler);
        } else {
            if self.loses_bytes {
                let typed = |it: &&Record<'_>| matches!(it.kind, RecordKind::Typed { .. });
                let lost = 16 * buffer.records.iter().filter(typed).count();
                content.out.truncate(content.out.len().saturating_sub(lost));
            }
            let mut extents = Content::new(self.version, self.endian);
            extents.metadata(7, |endian, body| endian.write_u64(body, content.out.len() as u64));
            self.out.extend(extents.out);
        }
        let start = self.out.len();
        self.out.extend(content.out);
        starts.iter().map(|at| (start + at) as u64).collect()
    }

    fn basic_record(&mut self, buffer: &Buffer<'_>, record: &Record<'_>) -> u64 {
        let start = self.out.len();
        let (endian, out) = (self.endian, &mut self.out);
        let process = match self.version {
            3 => buffer.process as u32,
            _ => u32::from_ne_bytes([GARBAGE; 4]),
        };
        if let RecordKind::Argument(argument) = record.kind {
            endian.write_u16(out, 1);
            out.extend([GARBAGE; 2]);
            endian.write_u32(out, self.function);
            endian.write_u32(out, buffer.thread as u32);
            endian.write_u32(out, process);
            endian.write_u64(out, argument);
        } else {
            let (action, function) = action(&record.kind).expect("there are no events in basic mode");
            self.function = function;
            endian.write_u16(out, 0);
            out.extend([record.cpu as u8, action]);
            endian.write_u32(out, function);
            endian.write_u64(out, record.tick);
            endian.write_u32(out, buffer.thread as u32);
            endian.write_u32(out, process);
        }
        out.resize(start + 32, GARBAGE);
        start as u64
    }
}

/// Returns the action and the function ID.
fn action(kind: &RecordKind<'_>) -> Option<(u8, u32)> {
    match *kind {
        RecordKind::Enter { function } => Some((0, function)),
        RecordKind::Exit { function } => Some((1, function)),
        RecordKind::TailExit { function } => Some((2, function)),
        RecordKind::EnterWithArguments { function } => Some((3, function)),
        _ => None,
    }
}

/// Content of a flight data recorder buffer.
struct Content {
    version: u16,
    endian: ByteOrder,
    cpu: u16,
    base: u64,
    out: Vec<u8>,
}

impl Content {
    fn new(version: u16, endian: ByteOrder) -> Self {
        Self {
            version,
            endian,
            cpu: 0,
            base: 0,
            out: Vec::new(),
        }
    }

    fn metadata(&mut self, kind: u8, body: impl FnOnce(ByteOrder, &mut Vec<u8>)) {
        let end = self.out.len() + 16;
        self.out.push(match self.endian {
            ByteOrder::Little => kind << 1 | 1,
            ByteOrder::Big => kind | 0x80,
        });
        body(self.endian, &mut self.out);
        self.out.resize(end, GARBAGE);
    }

    fn new_cpu(&mut self, cpu: u16, tick: u64) {
        self.metadata(2, |endian, body| {
            endian.write_u16(body, cpu);
            endian.write_u64(body, tick);
        });
        (self.cpu, self.base) = (cpu, tick);
    }

    fn wrap(&mut self, tick: u64) {
        self.metadata(3, |endian, body| endian.write_u64(body, tick));
        self.base = tick;
    }

    /// Writes a record, with the metadata that must precede it; returns its offset.
    fn record(&mut self, record: &Record<'_>) -> usize {
        let has_own_cpu = self.version == 4 && matches!(record.kind, RecordKind::Custom { .. });
        if record.cpu != self.cpu && !has_own_cpu {
            self.new_cpu(record.cpu, record.tick);
        }
        if let Some((action, function)) = action(&record.kind) {
            return self.function(action, function, record.tick);
        }
        match record.kind {
            RecordKind::Argument(argument) => {
                let start = self.out.len();
                self.metadata(6, |endian, body| endian.write_u64(body, argument));
                start
            }
            RecordKind::Custom { payload } => self.event(5, record, None, payload),
            RecordKind::Typed { kind, payload } => self.event(8, record, Some(kind), payload),
            _ => unreachable!(),
        }
    }

    fn function(&mut self, action: u8, function: u32, tick: u64) -> usize {
        assert!(function < 1 << 28);
        let fits = |base| tick.checked_sub(base).and_then(|delta| u32::try_from(delta).ok());
        if fits(self.base).is_none() {
            self.wrap(tick);
        }
        let delta = fits(self.base).unwrap();
        let start = self.out.len();
        let word = match self.endian {
            ByteOrder::Little => u32::from(action) << 1 | function << 4,
            ByteOrder::Big => u32::from(action) << 28 | function,
        };
        self.endian.write_u32(&mut self.out, word);
        self.endian.write_u32(&mut self.out, delta);
        self.base = tick;
        start
    }

    fn event(&mut self, number: u8, record: &Record<'_>, kind: Option<u16>, payload: &[u8]) -> usize {
        // `None` if the distance exceeds 32 bits.
        let delta = |base: u64| i32::try_from(i128::from(record.tick) - i128::from(base)).ok();
        let has_delta = self.version >= 5;
        if has_delta && delta(self.base).is_none() {
            self.wrap(record.tick);
        }
        let start = self.out.len();
        let (base, version) = (self.base, self.version);
        self.metadata(number, |endian, body| {
            endian.write_u32(body, payload.len() as u32);
            if has_delta {
                endian.write_u32(body, delta(base).unwrap() as u32)
            } else {
                endian.write_u64(body, record.tick)
            }
            match kind {
                Some(kind) => endian.write_u16(body, kind),
                None if version == 4 => endian.write_u16(body, record.cpu),
                None => {}
            }
        });
        if has_delta {
            self.base = record.tick;
        }
        self.out.extend(payload);
        start
    }
}
