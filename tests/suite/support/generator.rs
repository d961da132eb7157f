//! Made-up profiles of any size, with the truth about them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jitinject::bytes::ByteOrder;

use super::dump::{self, DumpWriter};
use super::profile::{ProfileWriter, UserStack, field};

/// What to make.
#[derive(Clone)]
pub struct Plan {
    pub functions: u64,
    pub samples: u64,
    pub processes: u32,
    /// How many places there are for functions in each process; fewer than functions means that addresses are
    /// used again and again.
    pub places: u64,
    /// Whether some functions are moved.
    pub moves: bool,
    pub order: ByteOrder,
    /// The order of the dumps, where it is another.
    pub dump_order: Option<ByteOrder>,
    pub machine: u32,
    /// Whether the code lies where machines of 32 bits have it.
    pub is_32: bool,
    pub runtimes: Runtimes,
    pub stacks: Stacks,
    /// Whether there are two events, told apart by an identifier.
    pub two_events: bool,
    /// Whether records other than samples have a trailer.
    pub has_trailer: bool,
}

/// Who writes the dumps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Runtimes {
    /// The same in all processes, without a peculiarity.
    One,
    /// Each process has another, and there are processes without any: the whole of a machine.
    Many,
}

/// Where call chains come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stacks {
    /// The kernel wrote them down.
    Recorded,
    /// They must be unwound from a piece of the stack, by tables for unwinding (x86-64).
    Unwound,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            functions: 1000,
            samples: 5000,
            processes: 1,
            places: u64::MAX,
            moves: false,
            order: ByteOrder::Little,
            dump_order: None,
            machine: dump::X86_64,
            is_32: false,
            runtimes: Runtimes::One,
            stacks: Stacks::Recorded,
            two_events: false,
            has_trailer: true,
        }
    }
}

/// A sample as it must come out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub pid: u32,
    pub time: u64,
    pub frames: Vec<String>,
}

/// What was made.
pub struct Generated {
    pub profile: PathBuf,
    pub expected: Vec<Expected>,
}

/// Numbers that look random and are the same every time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// A number below `limit`.
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
/// Bytes between two places; functions are up to twice the usual distance long, so that they reach into the
/// next place.
const PLACE: u64 = 512;
/// Bytes of stack that each function uses, with its return address.
const FRAME: u8 = 48;

/// A function that is there now.
#[derive(Clone)]
struct Live {
    name: String,
    index: u64,
    size: u64,
    /// Whether something has been put over its end.
    is_cut: bool,
}

/// Makes `perf.data` and the dumps of its processes in a folder.
pub fn generate(folder: &Path, plan: &Plan) -> Generated {
    let mut random = Random::new(plan.functions ^ plan.places);
    let mut profile = ProfileWriter::new(plan.order);
    profile.has_trailer = plan.has_trailer;
    if plan.stacks == Stacks::Unwound {
        profile.sample_type |= field::REGS_USER | field::STACK_USER;
    }
    if plan.two_events {
        profile.sample_type |= field::IDENTIFIER;
        profile.ids = vec![11, 12];
    }
    let mut samples = Vec::new();
    for number in 0..plan.processes {
        let pid = 5000 + number;
        let runtime = Runtime::of(plan, pid);
        let path = folder.join(runtime.file_name(pid));
        let marker = if plan.is_32 { 0x6000_0000 } else { 0x6000_0000_0000 };
        profile.comm(pid, "jitsim", true, START);
        profile.mmap2(pid, marker, 4096, 0, path.to_str().unwrap(), START + 1);
        let (dump, taken) = process(plan, runtime, pid, &mut random);
        std::fs::write(path, dump.bytes).unwrap();
        samples.extend(taken);
    }
    if plan.runtimes == Runtimes::Many {
        samples.extend(others(&mut profile, plan, &mut random));
    }
    samples.sort_by_key(|sample: &Taken| sample.time);
    write_rounds(&mut profile, plan, &samples);
    let path = folder.join("perf.data");
    std::fs::write(&path, profile.finish()).unwrap();
    let expected = samples.into_iter().map(|sample| Expected {
        pid: sample.pid,
        time: sample.time,
        frames: sample.frames,
    });
    Generated {
        profile: path,
        expected: expected.collect(),
    }
}

struct Taken {
    pid: u32,
    time: u64,
    chain: Vec<u64>,
    frames: Vec<String>,
}

/// What a runtime does in its own way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runtime {
    /// Nothing.
    Plain,
    /// Lines that are off by the size of an ELF header, tables for unwinding that say nothing.
    V8,
    /// The same on a machine of 32 bits.
    V8OnI386,
    /// No machine in the header, no lines.
    CPython,
    /// Several lines of one file.
    Java,
    /// A file named after a thread and its process, no lines.
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

    /// Appends what stands before a function's own record.
    fn put_before(self, dump: &mut DumpWriter, time: u64, address: u64, size: u64, number: u64) {
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

/// Processes without a runtime, the idle one among them: names and samples.
fn others(profile: &mut ProfileWriter, plan: &Plan, random: &mut Random) -> Vec<Taken> {
    const OTHERS: u64 = 20;
    for number in 1..OTHERS {
        profile.comm(100 + number as u32, "other", true, START);
    }
    let step = SPAN / plan.samples;
    let sample = |at| {
        let number = random.below(OTHERS) as u32;
        Taken {
            pid: if number == 0 { 0 } else { 100 + number },
            // between those of the others
            time: START + 10 + at * step * 10 + 77,
            chain: vec![0x40_0000 + random.below(0x10_0000)],
            frames: vec!["[unknown]".to_owned()],
        }
    };
    (1..plan.samples / 10).map(sample).collect()
}

/// A process: what it is made by, and where its code starts.
struct Process<'a> {
    plan: &'a Plan,
    runtime: Runtime,
    base: u64,
}

/// The life of one process: its dump, and the samples taken in it.
fn process(plan: &Plan, runtime: Runtime, pid: u32, random: &mut Random) -> (DumpWriter, Vec<Taken>) {
    let machine = runtime.machine(plan);
    let is_32 = plan.is_32 || machine == dump::I386;
    let base = if is_32 {
        0x5000_0000
    } else {
        0x7f00_0000_0000 + u64::from(pid % 64) * 0x10_0000_0000
    };
    let process = Process { plan, runtime, base };
    let mut dump = DumpWriter::new(plan.dump_order.unwrap_or(plan.order), machine, pid);
    let mut live: BTreeMap<u64, Live> = BTreeMap::new();
    let mut samples = Vec::new();
    let count = plan.samples / u64::from(plan.processes);
    let step = SPAN / (plan.functions + count);
    let mut loaded = 0;
    // Each step of time, either a function comes or a sample is taken, in the proportion that was asked for.
    for tick in 1..=plan.functions + count {
        // Times are unique in the whole profile, so that samples can be told apart by them.
        let time = START + 10 + tick * step + u64::from(pid % 64);
        let due = plan.functions * tick / (plan.functions + count);
        if loaded < due.max(1) && loaded < plan.functions {
            process.arrive(&mut dump, &mut live, loaded, time, random);
            loaded += 1;
        } else {
            samples.push(take(&live, pid, time, random));
        }
    }
    (dump, samples)
}

impl Process<'_> {
    /// A function arrives at the next place, or one that is there is moved to it.
    fn arrive(
        &self,
        dump: &mut DumpWriter,
        live: &mut BTreeMap<u64, Live>,
        number: u64,
        time: u64,
        random: &mut Random,
    ) {
        let plan = self.plan;
        let address = self.base + (number % plan.places) * PLACE;
        if plan.moves && number % 5 == 4 {
            let from = nth(live, random);
            if from != address && !live[&from].is_cut {
                let function = live.remove(&from).unwrap();
                dump.moved(time, from, address, function.size, function.index);
                put(live, address, function);
                return;
            }
        }
        let size = if plan.places == u64::MAX {
            200
        } else {
            16 + random.below(2 * PLACE - 16)
        };
        let name = self.runtime.function_name(number);
        let code: Vec<u8> = (0..size).map(|at| (at ^ number) as u8).collect();
        self.runtime.put_before(dump, time, address, size, number);
        if plan.stacks == Stacks::Unwound {
            let (tables, header) = dump::tables(size, FRAME);
            dump.unwinding(time, &tables, &header);
        }
        dump.load(time, address, number, name.as_bytes(), &code);
        let function = Live {
            name,
            index: number,
            size,
            is_cut: false,
        };
        put(live, address, function);
    }
}

/// Puts a function in place; what it overwrites is shortened or gone.
fn put(live: &mut BTreeMap<u64, Live>, address: u64, function: Live) {
    let end = address + function.size;
    let covered: Vec<u64> = live.range(address..end).map(|(&start, _)| start).collect();
    for start in covered {
        // Only its head is overwritten in truth, but what is left of it is never sampled.
        live.remove(&start);
    }
    if let Some((&start, before)) = live.range_mut(..address).next_back() {
        before.is_cut |= before.size > address - start;
        before.size = before.size.min(address - start);
    }
    live.insert(address, function);
}

/// A function that is there.
fn nth(live: &BTreeMap<u64, Live>, random: &mut Random) -> u64 {
    let at = random.below(live.len() as u64) as usize;
    *live.keys().nth(at).unwrap()
}

fn take(live: &BTreeMap<u64, Live>, pid: u32, time: u64, random: &mut Random) -> Taken {
    let mut taken = Taken {
        pid,
        time,
        chain: Vec::new(),
        frames: Vec::new(),
    };
    for _ in 0..1 + random.below(6) {
        let start = nth(live, random);
        let function = &live[&start];
        // An address that is returned to can't be a function's first.
        taken.chain.push(start + 1 + random.below(function.size - 1));
        taken.frames.push(function.name.clone());
    }
    taken
}

/// Writes samples as perf does: in rounds, each processor's behind the other's.
fn write_rounds(profile: &mut ProfileWriter, plan: &Plan, samples: &[Taken]) {
    const STACK_START: u64 = 0x7fff_0000_0000;
    for round in samples.chunks(500) {
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
        profile.finished_round();
    }
}

/// The stack of functions that each have a frame of [`FRAME`] bytes; the outermost returns to nowhere.
fn stack_of(chain: &[u64]) -> Vec<u8> {
    let mut stack = Vec::new();
    for return_address in chain.iter().skip(1).copied().chain([0]) {
        stack.resize(stack.len() + usize::from(FRAME) - 8, 0);
        stack.extend_from_slice(&return_address.to_le_bytes());
    }
    stack
}
