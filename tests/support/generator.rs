//! Generates profiles of any size, with the expected result.

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::iter::Peekable;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use super::dump::{self, DumpWriter};
use super::lines::{self, Layout};
use super::profile::{ProfileWriter, UserStack, field};

/// Parameters of a generated profile.
#[derive(Clone)]
pub struct Plan {
    pub functions: u64,
    pub samples: u64,
    pub processes: u32,
    /// Number of code addresses for functions in each process. Fewer than functions means that addresses are
    /// reused.
    pub places: u64,
    /// Distance between two such addresses in bytes. If addresses are reused, functions are up to twice as long,
    /// so that they overlap the next address.
    pub distance: u64,
    /// One in this many addresses is sampled.
    pub sampled: u64,
    /// Maximum number of functions in a call chain.
    pub depth: u64,
    /// Whether some functions are moved.
    pub moves: bool,
    pub endian: ByteOrder,
    /// Endianness of the dumps, if it differs from the profile's.
    pub dump_order: Option<ByteOrder>,
    pub machine: u32,
    /// Whether the code is at addresses of 32-bit machines.
    pub is_32: bool,
    pub runtimes: Runtimes,
    pub lines: Lines,
    pub stacks: Stacks,
    /// Whether all functions have unwinding tables, even if no stack has to be unwound.
    pub has_tables: bool,
    /// Whether there are two events, distinguished by an identifier.
    pub two_events: bool,
    /// Whether records other than samples have a trailer.
    pub has_trailer: bool,
    /// Feature sections, by ascending ID.
    pub features: Vec<(u32, Vec<u8>)>,
}

/// Runtimes that write the dumps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Runtimes {
    /// The same runtime in all processes, without quirks.
    One,
    /// A different runtime in each process, and processes without one: a system-wide profile.
    Many,
}

/// Line information in the dumps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// Lines as the runtime writes them; with [`Runtimes::One`], one line for each function.
    OfRuntime,
    /// No line information.
    Nothing,
    /// The lines of [`lines::model`].
    Model(Layout),
}

/// Source of the call chains.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stacks {
    /// Recorded by the kernel.
    Recorded,
    /// To be unwound from a copy of the stack, with unwinding tables (x86-64).
    Unwound,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            functions: 1000,
            samples: 5000,
            processes: 1,
            places: u64::MAX,
            distance: 512,
            sampled: 1,
            depth: 6,
            moves: false,
            endian: ByteOrder::Little,
            dump_order: None,
            machine: dump::X86_64,
            is_32: false,
            runtimes: Runtimes::One,
            lines: Lines::OfRuntime,
            stacks: Stacks::Recorded,
            has_tables: false,
            two_events: false,
            has_trailer: true,
            features: Vec::new(),
        }
    }
}

/// A sample as the output must contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub pid: u32,
    pub time: u64,
    pub frames: Vec<String>,
}

/// A generated profile.
pub struct Generated {
    pub profile: PathBuf,
    pub expected: Vec<Expected>,
}

/// Pseudo-random numbers, the same in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const START: u64 = 1_000_000_000_000;
const SPAN: u64 = 10_000_000_000;
/// Size of each function's stack frame in bytes, including the return address.
const FRAME: u8 = 48;

/// Writes `perf.data` and the dumps of its processes to a directory.
pub fn generate(folder: &Path, plan: &Plan) -> Generated {
    let mut expected = Vec::new();
    let profile = write(folder, plan, |sample| expected.push(sample.expected()));
    Generated { profile, expected }
}

/// Writes the same without keeping samples in memory. `tell` is called for each sample, by ascending time. Returns
/// the profile's path.
pub fn write(folder: &Path, plan: &Plan, tell: impl FnMut(&Taken)) -> PathBuf {
    let mut profile = ProfileWriter::new(plan.endian);
    profile.has_trailer = plan.has_trailer;
    profile.features.clone_from(&plan.features);
    if plan.stacks == Stacks::Unwound {
        profile.sample_type |= field::REGS_USER | field::STACK_USER;
    }
    if plan.two_events {
        profile.sample_type |= field::IDENTIFIER;
        profile.ids = vec![11, 12];
    }
    let mut sources: Vec<Source<'_>> = Vec::new();
    for number in 0..plan.processes {
        let process = Process::new(folder, plan, number);
        let marker = if plan.is_32 { 0x6000_0000 } else { 0x6000_0000_0000 };
        profile.comm(process.pid, "jitsim", true, START);
        profile.mmap2(
            process.pid,
            marker,
            4096,
            0,
            process.path.to_str().unwrap(),
            START + 1,
        );
        sources.push((Box::new(process) as Box<dyn Iterator<Item = Taken>>).peekable());
    }
    if plan.runtimes == Runtimes::Many {
        for number in 1..OTHERS {
            profile.comm(100 + number, "other", true, START);
        }
        sources.push((Box::new(others(plan)) as Box<dyn Iterator<Item = Taken>>).peekable());
    }
    let path = folder.join("perf.data");
    let mut file = File::create(&path).unwrap();
    file.write_all(&profile.head(0)).unwrap();
    let size = write_rounds(&mut file, &mut profile, plan, in_order(sources).inspect(tell));
    file.write_all(&profile.tail(size)).unwrap();
    file.rewind().unwrap();
    file.write_all(&profile.head(size)).unwrap();
    path
}

/// Samples by ascending time.
type Source<'a> = Peekable<Box<dyn Iterator<Item = Taken> + 'a>>;

/// Merges the samples of all sources by time.
fn in_order(mut sources: Vec<Source<'_>>) -> impl Iterator<Item = Taken> {
    std::iter::from_fn(move || {
        let times = sources.iter_mut().enumerate();
        let times = times.filter_map(|(at, source)| Some((source.peek()?.time, at)));
        let (_, first) = times.min()?;
        sources[first].next()
    })
}

/// A generated sample.
pub struct Taken {
    pid: u32,
    time: u64,
    chain: Vec<u64>,
    /// Runtime of the process, if it has any.
    runtime: Option<Runtime>,
    /// Indices of the functions in the call chain.
    functions: Vec<u64>,
}

impl Taken {
    /// Returns PID, time and sampled address.
    pub fn place(&self) -> (u32, u64, u64) {
        (self.pid, self.time, self.chain[0])
    }

    /// Returns the name of the sampled function, if it has one.
    pub fn leaf(&self) -> Option<String> {
        Some(self.runtime?.function_name(self.functions[0]))
    }

    fn expected(&self) -> Expected {
        let name = |runtime: Runtime| self.functions.iter().map(move |&at| runtime.function_name(at));
        Expected {
            pid: self.pid,
            time: self.time,
            frames: match self.runtime {
                Some(runtime) => name(runtime).collect(),
                None => vec!["[unknown]".to_owned()],
            },
        }
    }
}

/// Runtimes with their quirks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runtime {
    /// No quirks.
    Plain,
    /// Lines are off by the size of an ELF header; unwinding tables have no entries.
    V8,
    /// The same on a 32-bit machine.
    V8OnI386,
    /// The header has no machine; no lines.
    CPython,
    /// Several lines of one file.
    Java,
    /// The dump is named after a thread and its process; no lines.
    Bun,
}

impl Runtime {
    fn of(plan: &Plan, pid: u32) -> Self {
        const ALL: [Runtime; 6] = [
            Runtime::Plain,
            Runtime::V8,
            Runtime::V8OnI386,
            Runtime::CPython,
            Runtime::Java,
            Runtime::Bun,
        ];
        match plan.runtimes {
            Runtimes::One => Self::Plain,
            Runtimes::Many => ALL[pid as usize % ALL.len()],
        }
    }

    fn file_name(self, pid: u32) -> String {
        match self {
            Self::Bun => format!("jit-{}-{pid}.dump", pid + 1000),
            _ => format!("jit-{pid}.dump"),
        }
    }

    fn machine(self, plan: &Plan) -> u32 {
        match self {
            Self::V8OnI386 => dump::I386,
            Self::CPython => 0,
            _ => plan.machine,
        }
    }

    fn function_name(self, number: u64) -> String {
        match self {
            Self::Plain => format!("fn_{number}"),
            Self::V8 | Self::V8OnI386 => format!("JS:*fn_{number} /src/main.js:{}:7", number + 1),
            Self::CPython => format!("py::fn_{number}:/src/main.py"),
            Self::Java => format!("Lsrc/Main;fn_{number}(Ljava/lang/Object;)V"),
            Self::Bun => format!("JSC-FTL: fn_{number}#AMHzEa"),
        }
    }

    /// Appends the records that precede a function's load record.
    fn write_before(self, dump: &mut DumpWriter, time: u64, address: u64, size: u64, number: u64) {
        let line = 1 + number as u32;
        match self {
            Self::Plain => dump.debug_info(time, address, b"src/main.js", line),
            Self::V8 => {
                dump.lines(time, address, b"/src/main.js", &[(address + 0x40, line)]);
                let (_, header) = dump::tables(size, FRAME);
                dump.unwinding(time, &[], &header);
            }
            Self::V8OnI386 => dump.lines(time, address, b"/src/main.js", &[(address + 0x34, line)]),
            Self::CPython => {
                let (tables, header) = dump::tables(size, FRAME);
                dump.unwinding(time, &tables, &header);
            }
            Self::Java => {
                let lines = [(address, line), (address + 5, line + 1), (address + 11, line + 2)];
                dump.lines(time, address, b"src/Main.java", &lines);
            }
            Self::Bun => {}
        }
    }
}

/// Number of processes without a runtime, including the idle process.
const OTHERS: u32 = 20;

/// Returns samples of processes without a runtime.
fn others(plan: &Plan) -> impl Iterator<Item = Taken> {
    let step = SPAN / plan.samples;
    let mut random = Random::new(plan.samples);
    (1..plan.samples / 10).map(move |at| {
        let number = random.below(OTHERS.into()) as u32;
        Taken {
            pid: if number == 0 { 0 } else { 100 + number },
            // differs from the times of the other samples
            time: START + 10 + at * step * 10 + 77,
            chain: vec![0x40_0000 + random.below(0x10_0000)],
            runtime: None,
            functions: Vec::new(),
        }
    })
}

/// A function that is currently loaded.
#[derive(Clone, Copy)]
struct Live {
    /// Code index in the dump.
    number: u64,
    size: u64,
    /// Whether its end has been overwritten.
    is_cut: bool,
}

/// A simulated process, which yields samples and writes its dump meanwhile.
struct Process<'a> {
    plan: &'a Plan,
    runtime: Runtime,
    pid: u32,
    /// Start address of its code.
    base: u64,
    /// Path of the dump.
    path: PathBuf,
    dump: DumpWriter,
    /// File that the dump is flushed to.
    file: BufWriter<File>,
    /// Function at each address.
    live: Vec<Option<Live>>,
    loaded: u64,
    /// Number of time steps so far.
    ticks: u64,
    random: Random,
}

impl Iterator for Process<'_> {
    type Item = Taken;

    /// In each time step, either a function is loaded or a sample is taken, in the requested proportion.
    fn next(&mut self) -> Option<Taken> {
        let plan = self.plan;
        let ticks = plan.functions + plan.samples / u64::from(plan.processes);
        let step = SPAN / ticks;
        while self.ticks < ticks {
            self.ticks += 1;
            // Times are unique in the whole profile, so that they identify samples.
            let time = START + 10 + self.ticks * step + u64::from(self.pid % 64);
            let due = plan.functions * self.ticks / ticks;
            if self.loaded < due.max(1) && self.loaded < plan.functions {
                self.arrive(time);
                self.loaded += 1;
                self.write_dump();
            } else {
                return Some(self.take(time));
            }
        }
        self.file.flush().unwrap();
        None
    }
}

impl<'a> Process<'a> {
    fn new(folder: &Path, plan: &'a Plan, number: u32) -> Self {
        let pid = 5000 + number;
        let runtime = Runtime::of(plan, pid);
        let machine = runtime.machine(plan);
        let path = folder.join(runtime.file_name(pid));
        let is_32 = plan.is_32 || machine == dump::I386;
        Self {
            plan,
            runtime,
            pid,
            base: if is_32 {
                0x5000_0000
            } else {
                0x7f00_0000_0000 + u64::from(pid % 64) * 0x10_0000_0000
            },
            file: BufWriter::new(File::create(&path).unwrap()),
            path,
            dump: DumpWriter::new(plan.dump_order.unwrap_or(plan.endian), machine, pid),
            live: vec![None; plan.places.min(plan.functions) as usize],
            loaded: 0,
            ticks: 0,
            random: Random::new(plan.functions ^ plan.places ^ u64::from(pid)),
        }
    }

    fn write_dump(&mut self) {
        self.file.write_all(&self.dump.bytes).unwrap();
        self.dump.bytes.clear();
    }

    fn address(&self, place: usize) -> u64 {
        self.base + place as u64 * self.plan.distance
    }

    /// Loads a function at the next address, or moves one that is loaded.
    fn arrive(&mut self, time: u64) {
        let plan = self.plan;
        let number = self.loaded;
        let place = (number % plan.places) as usize;
        let address = self.address(place);
        if plan.moves && number % 5 == 4 {
            let from = self.any_place();
            if from != place
                && let Some(function) = self.live[from].take_if(|function| !function.is_cut)
            {
                let from = self.address(from);
                self.dump
                    .moved(time, from, address, function.size, function.number);
                self.put(place, function);
                return;
            }
        }
        let least = if matches!(plan.lines, Lines::Model(_)) {
            200
        } else {
            16
        };
        let size = if plan.places == u64::MAX {
            200
        } else {
            least + self.random.below(2 * plan.distance - least)
        };
        self.write_all_records(time, address, size, number);
        let function = Live {
            number,
            size,
            is_cut: false,
        };
        self.put(place, function);
    }

    /// Appends all records of a function to the dump.
    fn write_all_records(&mut self, time: u64, address: u64, size: u64, number: u64) {
        let dump = &mut self.dump;
        match self.plan.lines {
            Lines::OfRuntime => self.runtime.write_before(dump, time, address, size, number),
            Lines::Nothing => {}
            Lines::Model(layout) => {
                let model = lines::model(number as u32);
                lines::write_lines(dump, layout, time, address, &model);
            }
        }
        if self.plan.has_tables || self.plan.stacks == Stacks::Unwound {
            let (tables, header) = dump::tables(size, FRAME);
            dump.unwinding(time, &tables, &header);
        }
        let name = self.runtime.function_name(number);
        let code: Vec<u8> = (0..size).map(|at| (at ^ number) as u8).collect();
        dump.load(time, address, number, name.as_bytes(), &code);
    }

    /// Places a function; functions that it overwrites are shortened or removed.
    fn put(&mut self, place: usize, function: Live) {
        let distance = self.plan.distance;
        let reached = place + ((function.size - 1) / distance) as usize;
        let end = self.live.len().min(reached + 1);
        // Only its start is overwritten, but the rest is never sampled.
        self.live[place..end].fill(None);
        // No function extends beyond the next address.
        if let Some(before) = place.checked_sub(1).and_then(|before| self.live[before].as_mut()) {
            before.is_cut |= before.size > distance;
            before.size = before.size.min(distance);
        }
        self.live[place] = Some(function);
    }

    /// Returns the index of an address with a function.
    fn any_place(&mut self) -> usize {
        // Addresses are used in ascending order.
        let used = self.live.len().min(self.loaded as usize);
        let sampled = self.plan.sampled as usize;
        for every in [sampled, 1] {
            let count = used.div_ceil(every);
            let start = self.random.below(count as u64) as usize;
            let places = (start..count).chain(0..start).map(|at| at * every);
            if let Some(place) = places.into_iter().find(|&place| self.live[place].is_some()) {
                return place;
            }
        }
        unreachable!("no function is there")
    }

    fn take(&mut self, time: u64) -> Taken {
        let mut taken = Taken {
            pid: self.pid,
            time,
            chain: Vec::new(),
            runtime: Some(self.runtime),
            functions: Vec::new(),
        };
        for _ in 0..1 + self.random.below(self.plan.depth) {
            let place = self.any_place();
            let function = self.live[place].unwrap();
            // A return address can't be the first address of a function.
            let offset = 1 + self.random.below(function.size - 1);
            taken.chain.push(self.address(place) + offset);
            taken.functions.push(function.number);
        }
        taken
    }
}

/// Writes records and then samples as perf does: in rounds, one CPU after the other. Returns the number of bytes
/// written.
fn write_rounds(
    file: &mut File,
    profile: &mut ProfileWriter,
    plan: &Plan,
    mut samples: impl Iterator<Item = Taken>,
) -> u64 {
    const STACK_START: u64 = 0x7fff_0000_0000;
    let mut size = 0;
    loop {
        let round: Vec<Taken> = samples.by_ref().take(500).collect();
        for processor in 0..2 {
            for sample in round.iter().skip(processor).step_by(2) {
                let stack = (plan.stacks == Stacks::Unwound).then(|| stack_of(&sample.chain));
                let stack = stack.as_ref().map(|bytes| UserStack {
                    sp: STACK_START,
                    bytes,
                });
                profile.sample(sample.pid, sample.time, &sample.chain, stack.as_ref());
            }
        }
        if !round.is_empty() {
            profile.finished_round();
        }
        file.write_all(&profile.records).unwrap();
        size += profile.records.len() as u64;
        profile.records.clear();
        if round.is_empty() {
            return size;
        }
    }
}

/// Returns the stack of functions with a frame of [`FRAME`] bytes each; the outermost return address is 0.
fn stack_of(chain: &[u64]) -> Vec<u8> {
    let mut stack = Vec::new();
    for return_address in chain.iter().skip(1).copied().chain([0]) {
        stack.resize(stack.len() + usize::from(FRAME) - 8, 0);
        stack.extend_from_slice(&return_address.to_le_bytes());
    }
    stack
}
