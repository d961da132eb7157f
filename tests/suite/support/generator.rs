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
    pub machine: u32,
    pub stacks: Stacks,
    /// Whether there are two events, told apart by an identifier.
    pub two_events: bool,
    /// Whether records other than samples have a trailer.
    pub has_trailer: bool,
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
            machine: dump::X86_64,
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
        let path = folder.join(format!("jit-{pid}.dump"));
        profile.comm(pid, "jitsim", true, START);
        profile.mmap2(pid, 0x6000_0000_0000, 4096, 0, path.to_str().unwrap(), START + 1);
        let (dump, taken) = process(plan, pid, &mut random);
        std::fs::write(path, dump.bytes).unwrap();
        samples.extend(taken);
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

/// The life of one process: its dump, and the samples taken in it.
fn process(plan: &Plan, pid: u32, random: &mut Random) -> (DumpWriter, Vec<Taken>) {
    let base = 0x7f00_0000_0000 + u64::from(pid % 64) * 0x10_0000_0000;
    let mut dump = DumpWriter::new(plan.order, plan.machine, pid);
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
            arrive(plan, &mut dump, &mut live, base, loaded, time, random);
            loaded += 1;
        } else {
            samples.push(take(&live, pid, time, random));
        }
    }
    (dump, samples)
}

/// A function arrives at the next place, or one that is there is moved to it.
fn arrive(
    plan: &Plan,
    dump: &mut DumpWriter,
    live: &mut BTreeMap<u64, Live>,
    base: u64,
    number: u64,
    time: u64,
    random: &mut Random,
) {
    let address = base + (number % plan.places) * PLACE;
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
    let name = format!("fn_{number}");
    let code: Vec<u8> = (0..size).map(|at| (at ^ number) as u8).collect();
    dump.debug_info(time, address, b"src/main.js", 1 + number as u32);
    if plan.stacks == Stacks::Unwound {
        let (tables, header) = dump::tables(size, FRAME);
        dump.unwinding(time, &tables, &header);
    }
    dump.load(time, address, number, name.as_bytes(), &code);
    put(
        live,
        address,
        Live {
            name,
            index: number,
            size,
            is_cut: false,
        },
    );
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
