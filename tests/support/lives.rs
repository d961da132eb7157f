//! Simulates processes that share one dump: code is loaded, moved, overwritten and inherited, files and memory are
//! mapped over it. What is at an address is found by searching all previous events of the process.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use super::dump::{DumpWriter, X86_64};
use super::generator::Random;
use super::profile::ProfileWriter;

pub const REGION: u64 = 0x7000_0000;
/// Distance between code addresses in bytes, and their number.
const DISTANCE: u64 = 0x40;
const PLACES: u64 = 24;
const SIZE: u64 = DISTANCE * (PLACES + 4);
const START: u64 = 1_000_000_000_000;
const ROOT: u32 = 100;

/// A sample with the expected content of each of its addresses.
pub struct Expected {
    pub pid: u32,
    pub time: u64,
    pub frames: Vec<Frame>,
}

/// Expected result for an address.
#[derive(Debug)]
pub struct Frame {
    /// Function name.
    pub name: Option<String>,
    /// If the process has no function there yet, the only one that it ever has there.
    pub later: Option<String>,
    /// Whether a symbol of the perf map is allowed if there is no function.
    pub may_be_symbol: bool,
}

/// A generated profile.
pub struct Made {
    pub profile: PathBuf,
    pub dump: PathBuf,
    pub expected: Vec<Expected>,
}

/// An event in the memory of a process.
#[derive(Clone)]
enum Event {
    /// Code was placed at an address; `put` is a unique ID.
    Put {
        put: u64,
        start: u64,
        end: u64,
        name: u64,
    },
    /// The code with this ID was moved away.
    Left(u64),
    /// A file was mapped, or another program was executed; removes everything in the range.
    File { start: u64, end: u64 },
}

/// Code that was placed at an address.
#[derive(Clone, Copy)]
struct Placed {
    put: u64,
    start: u64,
    size: u64,
    name: u64,
    index: u64,
}

struct Process {
    pid: u32,
    log: Vec<Event>,
    placed: Vec<Placed>,
    next_index: u64,
    /// Whether it still runs the program that writes the dump.
    writes: bool,
}

/// An address of a sample, with the process that was sampled and its number of events so far.
struct Looked {
    process: usize,
    address: u64,
    events: usize,
    /// Whether the process ran the program that writes the dump.
    writes: bool,
}

struct World {
    random: Random,
    profile: ProfileWriter,
    dump: DumpWriter,
    time: u64,
    processes: Vec<Process>,
    puts: u64,
    names: u64,
    /// Whether all functions have the same code index.
    has_one_index: bool,
    samples: Vec<(u32, u64, Vec<Looked>)>,
    /// Records that will be written a second time.
    again: Vec<Vec<u8>>,
}

/// Writes the profile and the dump for a seed to a directory.
pub fn make(folder: &Path, number: u64) -> Made {
    let mut random = Random::new(number);
    let dump_path = folder.join(format!("jit-{ROOT}.dump"));
    let has_perf_map = random.below(3) == 0;
    let mut world = World {
        has_one_index: random.below(4) == 0,
        random,
        profile: ProfileWriter::new(ByteOrder::Little),
        dump: DumpWriter::new(ByteOrder::Little, X86_64, ROOT),
        time: START,
        processes: Vec::new(),
        puts: 0,
        names: 0,
        samples: Vec::new(),
        again: Vec::new(),
    };
    world.start(dump_path.to_str().unwrap());
    for _ in 0..60 + world.random.below(120) {
        world.step();
    }
    world.sample_all();
    world.write_again();
    if has_perf_map {
        std::fs::write(folder.join(format!("perf-{ROOT}.map")), world.perf_map()).unwrap();
    }
    let profile = folder.join("perf.data");
    std::fs::write(&profile, world.profile.finish()).unwrap();
    std::fs::write(&dump_path, &world.dump.bytes).unwrap();
    Made {
        profile,
        dump: dump_path,
        expected: world.expected(has_perf_map),
    }
}

impl World {
    /// Creates the first processes: one that is launched, or several that existed before.
    fn start(&mut self, dump: &str) {
        self.processes.push(Process::new(ROOT));
        if self.random.below(2) == 0 {
            self.profile.comm(ROOT, "runtime", true, START);
            self.map_all(ROOT, dump, START + 1);
            self.time = START + 10;
            return;
        }
        // Records for existing processes as perf writes them: a fork without a time, the name, the mappings.
        self.time = START - 1_000_000;
        self.profile.present(ROOT, 1);
        self.profile.comm(ROOT, "runtime", false, 0);
        self.map_all(ROOT, dump, 0);
        for _ in 0..self.random.below(6) {
            self.time += 10;
            self.change(0);
        }
        self.time = START;
        for pid in ROOT + 50..ROOT + 50 + self.random.below(3) as u32 {
            self.profile.present(pid, ROOT);
            let mut process = Process::new(pid);
            if self.random.below(2) == 0 {
                // It was forked and continues.
                self.profile.comm(pid, "runtime", false, 0);
                self.map_all(pid, dump, 0);
                process = self.processes[0].copy(pid);
            } else {
                // It has executed another program.
                self.profile.comm(pid, "other", false, 0);
                self.profile.mmap2(pid, 0x40_0000, 0x1000, 0, "/usr/bin/other", 0);
                self.profile.mmap2(pid, REGION, SIZE, REGION, "//anon", 0);
                process.writes = false;
            }
            self.processes.push(process);
        }
        self.sample(0);
    }

    /// Maps the program, the memory for code and the dump.
    fn map_all(&mut self, pid: u32, dump: &str, time: u64) {
        self.profile
            .mmap2(pid, 0x5000_0000, 0x1000, 0, "/usr/bin/runtime", time);
        self.profile.mmap2(pid, REGION, SIZE, REGION, "//anon", time);
        self.profile.mmap2(pid, 0x6000_0000, 0x1000, 0, dump, time);
    }

    fn step(&mut self) {
        self.time += 10;
        let process = self.random.below(self.processes.len() as u64) as usize;
        match self.random.below(20) {
            0..9 => self.sample(process),
            9 if self.processes.len() < 8 => self.fork(process),
            10 if process > 0 && self.random.below(3) == 0 => self.exec(process),
            11 => self.map_file(process),
            12 => self.map_memory(process),
            13 => self.write_again(),
            _ => self.change(process),
        }
    }

    /// Loads or moves a function.
    fn change(&mut self, process: usize) {
        if !self.processes[process].writes {
            return;
        }
        let before = self.dump.bytes.len();
        self.dump.pid = self.processes[process].pid;
        if self.random.below(3) > 0 || !self.move_one(process) {
            self.load(process);
        }
        if self.random.below(4) == 0 {
            self.again.push(self.dump.bytes[before..].to_vec());
        }
    }

    fn write_again(&mut self) {
        self.dump.bytes.extend(self.again.drain(..).flatten());
    }

    fn address(&mut self) -> u64 {
        REGION + self.random.below(PLACES) * DISTANCE + self.random.below(4) * 0x10
    }

    fn load(&mut self, process: usize) {
        let (start, size) = (self.address(), 0x10 + self.random.below(0x80));
        let index = if self.has_one_index {
            0
        } else {
            self.processes[process].next_index
        };
        self.processes[process].next_index += 1;
        self.names += 1;
        let name = self.names;
        let code = vec![name as u8; size as usize];
        self.dump
            .load(self.time, start, index, function(name).as_bytes(), &code);
        self.put(process, start, size, name, index);
    }

    fn put(&mut self, process: usize, start: u64, size: u64, name: u64, index: u64) {
        self.puts += 1;
        let put = self.puts;
        let process = &mut self.processes[process];
        process.log.push(Event::Put {
            put,
            start,
            end: start + size,
            name,
        });
        process.placed.push(Placed {
            put,
            start,
            size,
            name,
            index,
        });
    }

    /// Moves a function whose start is still loaded; its end may have been overwritten.
    fn move_one(&mut self, process: usize) -> bool {
        let candidates: Vec<Placed> = {
            let process = &self.processes[process];
            let is_there = |placed: &&Placed| process.write_at(placed.start) == Some(placed.put);
            process.placed.iter().filter(is_there).copied().collect()
        };
        if candidates.is_empty() {
            return false;
        }
        let moved = candidates[self.random.below(candidates.len() as u64) as usize];
        let to = self.address();
        self.dump
            .moved(self.time, moved.start, to, moved.size, moved.index);
        self.processes[process].log.push(Event::Left(moved.put));
        self.put(process, to, moved.size, moved.name, moved.index);
        true
    }

    fn fork(&mut self, process: usize) {
        let pid = ROOT + self.processes.len() as u32;
        self.profile.fork(pid, self.processes[process].pid, self.time);
        let child = self.processes[process].copy(pid);
        self.processes.push(child);
    }

    fn exec(&mut self, process: usize) {
        let pid = self.processes[process].pid;
        self.profile.comm(pid, "other", true, self.time);
        self.profile
            .mmap2(pid, REGION, SIZE, REGION, "//anon", self.time + 1);
        let process = &mut self.processes[process];
        process.log.push(Event::File {
            start: 0,
            end: u64::MAX,
        });
        process.placed.clear();
        process.writes = false;
    }

    fn range(&mut self) -> (u64, u64) {
        let start = self.random.below(PLACES);
        let count = 1 + self.random.below(PLACES / 3);
        (REGION + start * DISTANCE, count.min(PLACES - start) * DISTANCE)
    }

    fn map_file(&mut self, process: usize) {
        let (start, size) = self.range();
        let process = &mut self.processes[process];
        self.profile
            .mmap2(process.pid, start, size, 0, "/usr/lib/library", self.time);
        process.log.push(Event::File {
            start,
            end: start + size,
        });
    }

    fn map_memory(&mut self, process: usize) {
        let (start, size) = self.range();
        let pid = self.processes[process].pid;
        self.profile.mmap2(pid, start, size, start, "//anon", self.time);
    }

    fn sample(&mut self, process: usize) {
        let depth = 1 + self.random.below(3);
        // Readers look up return addresses minus one, so no address is at the boundary of a range.
        let chain: Vec<u64> = (0..depth)
            .map(|_| self.address() + self.random.below(0x10))
            .collect();
        self.sample_at(process, &chain);
    }

    fn sample_at(&mut self, process: usize, chain: &[u64]) {
        let Process { pid, log, writes, .. } = &self.processes[process];
        self.profile.sample(*pid, self.time, chain, None);
        let looked = chain.iter().map(|&address| Looked {
            process,
            address,
            events: log.len(),
            writes: *writes,
        });
        self.samples.push((*pid, self.time, looked.collect()));
    }

    /// Finally takes a sample in each process at each address.
    fn sample_all(&mut self) {
        for process in 0..self.processes.len() {
            for place in 0..PLACES * 2 {
                self.time += 10;
                self.sample_at(process, &[REGION + place * DISTANCE / 2 + 4]);
            }
        }
    }

    fn perf_map(&mut self) -> String {
        let symbols = (0..PLACES).filter_map(|place| {
            let is_there = self.random.below(2) == 0;
            is_there.then(|| format!("{:x} {DISTANCE:x} symbol_{place}\n", REGION + place * DISTANCE))
        });
        symbols.collect()
    }

    fn expected(self, has_perf_map: bool) -> Vec<Expected> {
        let processes = &self.processes;
        let frame = move |looked: &Looked| {
            let process = &processes[looked.process];
            Frame {
                name: at(&process.log[..looked.events], looked.address).map(|(_, name)| function(name)),
                later: process.only_later(looked).map(function),
                may_be_symbol: has_perf_map && looked.writes,
            }
        };
        let samples = self.samples.iter().map(|(pid, time, looked)| Expected {
            pid: *pid,
            time: *time,
            frames: looked.iter().map(frame).collect(),
        });
        samples.collect()
    }
}

impl Process {
    fn new(pid: u32) -> Self {
        Self {
            pid,
            log: Vec::new(),
            placed: Vec::new(),
            next_index: 1,
            writes: true,
        }
    }

    /// Returns a copy of the process, as after a fork.
    fn copy(&self, pid: u32) -> Self {
        Self {
            pid,
            log: self.log.clone(),
            placed: self.placed.clone(),
            ..*self
        }
    }

    fn write_at(&self, address: u64) -> Option<u64> {
        at(&self.log, address).map(|(put, _)| put)
    }

    fn only_later(&self, looked: &Looked) -> Option<u64> {
        let holds = |start, end| (start..end).contains(&looked.address);
        let mut puts = self
            .log
            .iter()
            .enumerate()
            .filter_map(|(at, event)| match *event {
                Event::Put { start, end, name, .. } if holds(start, end) => Some((at, name)),
                _ => None,
            });
        match (puts.next(), puts.next()) {
            (Some((at, name)), None) if at >= looked.events => Some(name),
            _ => None,
        }
    }
}

/// Returns the ID and the name of the code at an address after some events.
fn at(events: &[Event], address: u64) -> Option<(u64, u64)> {
    let mut left = HashSet::new();
    for event in events.iter().rev() {
        match *event {
            Event::Left(put) => drop(left.insert(put)),
            Event::Put {
                put,
                start,
                end,
                name,
            } if (start..end).contains(&address) => {
                return (!left.contains(&put)).then_some((put, name));
            }
            Event::File { start, end } if (start..end).contains(&address) => return None,
            _ => {}
        }
    }
    None
}

fn function(name: u64) -> String {
    format!("function_{name}")
}
