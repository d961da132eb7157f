//! Reads profiles with a small reader in Rust, and with each perf in `PERF_PROGRAMS`, which must print the same.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use byteorder::LittleEndian;
use linux_perf_data::linux_perf_event_reader::{
    CpuMode, EventRecord, RawEventRecord, SampleRecord, SamplingPolicy,
};
use linux_perf_data::{
    PerfFile, PerfFileReader, PerfFileRecord, PerfRecordIter, RawUserRecord, UserRecordType,
};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use super::generator::Expected;
use super::perf::{self, Event, Frame, Sample, UNKNOWN, without_addresses};

/// Returns the samples of a profile with their recorded call chains, by time. Only functions in jitinject's
/// objects have names: programs, libraries and kernels differ between machines.
pub fn stacks(profile: &Path) -> Vec<Sample> {
    let shown = read(profile);
    let samples = in_order(shown.iter().map(Shown::stack).collect());
    // perf unwinds copies of stacks, too.
    let is_unwound = shown.iter().any(|shown| shown.has_stack);
    let programs = if is_unwound {
        Vec::new()
    } else {
        perf::named_programs()
    };
    for program in &programs {
        let others = in_order(perf::stacks_in_objects(program, profile, &[]));
        assert_same(program, profile, &samples, &others);
    }
    samples
}

/// Returns only the sampled functions, each as a call chain of one.
pub fn leaves(profile: &Path) -> Vec<Sample> {
    let shown = read(profile);
    let samples = in_order(shown.iter().map(Shown::leaf).collect());
    for program in perf::named_programs() {
        let others = in_order(perf::stacks_in_objects(&program, profile, &["-G"]));
        assert_same(&program, profile, &samples, &others);
    }
    samples
}

/// Returns the names of the sampled functions in file order, including those of samples without a time.
pub fn symbols(profile: &Path) -> Vec<String> {
    let shown = read(profile).into_iter();
    let symbols: Vec<String> = shown.map(|shown| shown.leaf.symbol).collect();
    for program in perf::named_programs() {
        let others = perf::symbols_in_objects(&program, profile);
        assert_same(&program, profile, &symbols, &others);
    }
    symbols
}

/// Returns all fields of each sample.
pub fn events(profile: &Path) -> Vec<Event> {
    let mut events: Vec<Event> = read(profile).into_iter().map(|shown| shown.event).collect();
    events.sort_by_key(|event| (event.time, event.pid, event.tid));
    let without_ours = without_addresses(events.clone());
    for program in perf::named_programs() {
        let mut others = without_addresses(perf::events_in_objects(&program, profile));
        others.sort_by_key(|event| (event.time, event.pid, event.tid));
        // perf invents names for events without one.
        for (other, event) in others.iter_mut().zip(&events) {
            if event.name.is_empty() {
                other.name.clear();
            }
        }
        assert_same(&program, profile, &without_ours, &others);
    }
    events
}

/// Compares the samples of an output with the expected ones.
pub fn assert_named(output: &Path, expected: &[Expected]) {
    assert_expected(stacks(output), expected);
}

/// Does the same with the output of a perf program, which unwinds copies of stacks, too.
pub fn assert_named_by(program: &str, output: &Path, expected: &[Expected]) {
    assert_expected(perf::stacks_in_objects(program, output, &[]), expected);
}

fn assert_expected(shown: Vec<Sample>, expected: &[Expected]) {
    let shown: HashMap<(u32, u64), Vec<String>> = shown
        .into_iter()
        .map(|sample| ((sample.pid, sample.time), sample.frames))
        .collect();
    assert_eq!(shown.len(), expected.len(), "samples");
    let wrong: Vec<String> = expected
        .iter()
        .filter(|sample| shown.get(&(sample.pid, sample.time)) != Some(&sample.frames))
        .map(|sample| format!("{sample:?}, shown {:?}", shown.get(&(sample.pid, sample.time))))
        .collect();
    assert!(wrong.is_empty(), "{} wrong, the first: {}", wrong.len(), wrong[0]);
}

/// Sorts samples; those of the same time are sorted by PID.
fn in_order(mut samples: Vec<Sample>) -> Vec<Sample> {
    samples.sort_by_key(|sample| (sample.time, sample.pid));
    samples
}

fn assert_same<T: PartialEq + std::fmt::Debug>(program: &str, profile: &Path, ours: &[T], others: &[T]) {
    let different = ours.iter().zip(others).find(|(one, other)| one != other);
    assert!(
        ours.len() == others.len() && different.is_none(),
        "{}: {} samples, {program} shows {}; the first difference: {different:#?}",
        profile.display(),
        ours.len(),
        others.len(),
    );
}

/// A sample as read by this reader.
struct Shown {
    event: Event,
    /// Function at the sampled address.
    leaf: Frame,
    has_stack: bool,
}

impl Shown {
    fn with_frames<'f>(&self, frames: impl Iterator<Item = &'f Frame>) -> Sample {
        Sample {
            pid: self.event.pid,
            time: self.event.time,
            frames: frames.map(|frame| frame.symbol.clone()).collect(),
        }
    }

    fn stack(&self) -> Sample {
        self.with_frames(self.event.frames.iter())
    }

    fn leaf(&self) -> Sample {
        self.with_frames(std::iter::once(&self.leaf))
    }
}

fn read(profile: &Path) -> Vec<Shown> {
    let mut start = [0; 16];
    let mut file = File::open(profile).unwrap();
    file.read_exact(&mut start).unwrap();
    let file = File::open(profile).unwrap();
    // A pipe's header has only its size, in either endianness, after the magic number.
    if start[8..] == 16u64.to_le_bytes() || start[8..] == 16u64.to_be_bytes() {
        let PerfFileReader {
            perf_file,
            record_iter,
        } = PerfFileReader::parse_pipe(file).unwrap();
        Reader::new(perf_file).all(record_iter)
    } else {
        let PerfFileReader {
            perf_file,
            record_iter,
        } = PerfFileReader::parse_file(file).unwrap();
        Reader::new(perf_file).all(record_iter)
    }
}

/// A mapping; its start address is the key in [`Mappings`].
#[derive(Clone)]
struct Mapping {
    end: u64,
    /// File offset of its start.
    offset: u64,
    file: Rc<str>,
    is_code: bool,
}

/// Address space of a process.
type Mappings = BTreeMap<u64, Mapping>;

/// A function in an object.
struct Function {
    /// File offsets.
    start: u64,
    end: u64,
    name: String,
}

struct Reader {
    profile: PerfFile,
    processes: HashMap<i32, Mappings>,
    threads: HashMap<i32, String>,
    objects: HashMap<Rc<str>, Vec<Function>>,
    /// Event names by ID, from EVENT_UPDATE records.
    names: HashMap<u64, String>,
}

impl Reader {
    fn new(profile: PerfFile) -> Self {
        Self {
            profile,
            processes: HashMap::new(),
            threads: HashMap::from([(0, "swapper".to_owned())]),
            objects: HashMap::new(),
            names: HashMap::new(),
        }
    }

    fn all<R: Read>(mut self, mut records: PerfRecordIter<R>) -> Vec<Shown> {
        let mut samples = Vec::new();
        while let Some(record) = records.next_record(&mut self.profile).unwrap() {
            match record {
                PerfFileRecord::EventRecord { attr_index, record } => {
                    samples.extend(self.record(attr_index, &record));
                }
                PerfFileRecord::UserRecord(record) => self.update(&record),
            }
        }
        samples
    }

    /// Stores the name of an event.
    fn update(&mut self, record: &RawUserRecord<'_>) {
        const NAME: u64 = 2;
        let mut data = record.data;
        if record.record_type != UserRecordType::PERF_EVENT_UPDATE
            || data.read_u64::<LittleEndian>().unwrap() != NAME
        {
            return;
        }
        let id = data.read_u64::<LittleEndian>().unwrap();
        let name = data.read_string().unwrap().as_slice().into_owned();
        self.names.insert(id, String::from_utf8(name).unwrap());
    }

    fn record(&mut self, attr: usize, record: &RawEventRecord<'_>) -> Option<Shown> {
        /// In a FORK record: perf synthesized it for an existing process, and the child may run another program.
        const FORK_EXEC: u16 = 1 << 13;
        match record.parse().unwrap() {
            EventRecord::Mmap2(map) => {
                const PROT_EXEC: u32 = 4;
                let mapping = Mapping {
                    end: map.address.saturating_add(map.length),
                    offset: map.page_offset,
                    file: String::from_utf8_lossy(&map.path.as_slice()).into(),
                    is_code: map.protection & PROT_EXEC != 0,
                };
                put(self.processes.entry(map.pid).or_default(), map.address, mapping);
            }
            EventRecord::Mmap(map) => {
                let mapping = Mapping {
                    end: map.address.saturating_add(map.length),
                    offset: map.page_offset,
                    file: String::from_utf8_lossy(&map.path.as_slice()).into(),
                    is_code: map.is_executable,
                };
                put(self.processes.entry(map.pid).or_default(), map.address, mapping);
            }
            EventRecord::Fork(fork) => {
                if fork.pid != fork.ppid {
                    let inherited = match record.misc & FORK_EXEC {
                        0 => self.processes.get(&fork.ppid).cloned().unwrap_or_default(),
                        _ => Mappings::new(),
                    };
                    self.processes.insert(fork.pid, inherited);
                }
                if let Some(name) = self.threads.get(&fork.ptid).cloned() {
                    self.threads.insert(fork.tid, name);
                }
            }
            EventRecord::Comm(comm) => {
                let name = String::from_utf8_lossy(&comm.name.as_slice()).into_owned();
                self.threads.insert(comm.tid, name);
            }
            EventRecord::Sample(sample) => return Some(self.sample(attr, &sample)),
            _ => {}
        }
        None
    }

    fn sample(&mut self, attr: usize, sample: &SampleRecord<'_>) -> Shown {
        let (pid, tid) = (sample.pid.unwrap_or(-1), sample.tid.unwrap_or(-1));
        let mut frame = |address, mode| Frame {
            address,
            ..self.frame(pid, address, mode)
        };
        let leaf = frame(sample.ip.unwrap_or(0), sample.cpu_mode);
        let mut frames = Vec::new();
        let mut mode = sample.cpu_mode;
        for address in chain(sample) {
            match context(address) {
                Context::Of(next) => mode = next,
                Context::None => frames.push(frame(address, mode)),
                // perf treats the whole chain as damaged.
                Context::Invalid => {
                    frames.clear();
                    break;
                }
            }
        }
        if sample.callchain.is_none() {
            frames.push(leaf.clone());
        }
        let attribute = &self.profile.event_attributes()[attr];
        let fixed = match attribute.attr.sampling_policy {
            SamplingPolicy::Period(period) => period.get(),
            _ => 1,
        };
        let updated = sample.id.and_then(|id| self.names.get(&id));
        let name = updated.or(attribute.name.as_ref()).cloned();
        let comm = self.threads.get(&tid).cloned();
        Shown {
            leaf,
            has_stack: sample.user_stack.is_some(),
            event: Event {
                comm: comm.unwrap_or_else(|| format!(":{tid}")),
                pid: pid as u32,
                tid: tid as u32,
                time: sample.timestamp.unwrap_or(0),
                period: sample.period.unwrap_or(fixed),
                name: name.unwrap_or_default(),
                frames,
            },
        }
    }

    /// Returns the function at an address of a process.
    fn frame(&mut self, pid: i32, address: u64, mode: CpuMode) -> Frame {
        let mut frame = Frame {
            address,
            symbol: UNKNOWN.to_owned(),
            file: String::new(),
        };
        let below = self
            .processes
            .get(&pid)
            .and_then(|maps| maps.range(..=address).next_back());
        let Some((start, map)) = below.filter(|(_, map)| address < map.end && map.is_code) else {
            return frame;
        };
        if mode != CpuMode::User || !perf::is_object(&map.file) {
            return frame;
        }
        frame.file = map.file.to_string();
        let offset = address - start + map.offset;
        let functions = self
            .objects
            .entry(map.file.clone())
            .or_insert_with_key(|path| functions(Path::new(&**path)));
        let at = functions.partition_point(|function| function.start <= offset);
        let below = functions[..at].last().filter(|function| offset < function.end);
        if let Some(function) = below {
            frame.symbol.clone_from(&function.name);
        }
        frame
    }
}

/// Returns the words of a recorded call chain.
fn chain(sample: &SampleRecord<'_>) -> impl Iterator<Item = u64> {
    let chain = sample.callchain.as_ref();
    let count = chain.map_or(0, |chain| chain.len());
    (0..count).filter_map(move |at| chain?.get(at))
}

/// Effect of a word in a call chain on the addresses after it.
enum Context {
    /// None: the word is an address.
    None,
    Of(CpuMode),
    Invalid,
}

fn context(word: u64) -> Context {
    const HYPERVISOR: i64 = -32;
    const KERNEL: i64 = -128;
    const USER: i64 = -512;
    const FIRST: i64 = -4095;
    match word as i64 {
        HYPERVISOR => Context::Of(CpuMode::Hypervisor),
        KERNEL => Context::Of(CpuMode::Kernel),
        USER => Context::Of(CpuMode::User),
        FIRST..=-1 => Context::Invalid,
        _ => Context::None,
    }
}

/// Adds a mapping, which replaces what it overlaps.
fn put(mappings: &mut Mappings, start: u64, mapping: Mapping) {
    let end = mapping.end;
    let overlapped: Vec<u64> = mappings
        .range(..end)
        .rev()
        .take_while(|(_, old)| start < old.end)
        .map(|(&at, _)| at)
        .collect();
    for at in overlapped {
        let old = mappings.remove(&at).unwrap();
        if at < start {
            let end = start;
            mappings.insert(at, Mapping { end, ..old.clone() });
        }
        if end < old.end {
            let offset = old.offset + (end - at);
            mappings.insert(end, Mapping { offset, ..old });
        }
    }
    mappings.insert(start, mapping);
}

/// Returns the functions of an object by file offset; none if the file does not exist.
fn functions(path: &Path) -> Vec<Function> {
    let Ok(bytes) = std::fs::read(path) else {
        return Vec::new();
    };
    let object = object::File::parse(&*bytes).unwrap();
    let symbols = object
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
    let function = |symbol: object::Symbol<'_, '_>| {
        let address = symbol.address();
        let segment = object
            .segments()
            .find(|it| (it.address()..it.address() + it.size()).contains(&address))?;
        let start = address - segment.address() + segment.file_range().0;
        Some(Function {
            start,
            end: start + symbol.size(),
            name: symbol.name().unwrap().to_owned(),
        })
    };
    let mut functions: Vec<Function> = symbols.filter_map(function).collect();
    functions.sort_by_key(|function| function.start);
    functions
}
