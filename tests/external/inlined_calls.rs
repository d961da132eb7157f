//! Inlined calls in stacks: what `perf script` prints of an output, against what `jitinject export` writes of it and of its input,
//! call by call, with names, files and lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use jitdump::ByteOrder;
use serde_json::Value;
use tempfile::TempDir;

use crate::random_debug_info::{LISTS, POSITIONS, write_functions};
use crate::support::dump::{DumpWriter, X86_64};
use crate::support::model::{self, word};
use crate::support::profile::{ProfileWriter, UserStack, field};
use crate::support::tools::text;
use crate::support::{capture, inject_into, jitinject, perf, said, scratch};

const ORDER: ByteOrder = ByteOrder::Little;
/// Marker of user space in a call chain, and the lowest marker.
const CONTEXT_USER: u64 = -512i64 as u64;
const CONTEXT_MAX: u64 = -4095i64 as u64;
/// Types of records.
const MMAP2: u32 = 10;
const SAMPLE: u32 = 9;

/// Name of JIT code without one in exports.
const UNNAMED: &str = "[JIT code without a name]";

/// A call in JIT code.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Call {
    function: String,
    /// File and line; `None` without a line.
    place: Option<(String, u64)>,
    is_inlined: bool,
}

impl Call {
    fn new(function: &str, file: &str, line: u64, is_inlined: bool) -> Self {
        // perf prints functions without a name with their place.
        const ANONYMOUS: &str = "(anonymous)";
        let function = if function.starts_with(ANONYMOUS) {
            ANONYMOUS
        } else {
            function
        };
        // Objects have URLs such as `node:internal/util` as paths.
        let file = file.strip_prefix("./").unwrap_or(file).replace("node:", "node/");
        Self {
            function: function.to_owned(),
            // Readers name different files for code without a line.
            place: (line > 0).then_some((file, line)),
            is_inlined,
        }
    }
}

/// The calls of each sample in JIT code, the innermost first, by process and time.
type Stacks = BTreeMap<(u32, u64), Vec<Call>>;

/// Returns the stacks that a perf program prints.
fn printed(program: &str, profile: &Path) -> Stacks {
    let cache = scratch();
    let shown = perf::perf_with_cache(
        program,
        cache.path(),
        &[
            "script",
            "-f",
            "--ns",
            "--inline",
            "--no-demangle",
            "--full-source-path",
            "-F",
            "pid,time,ip,sym,dso,srcline",
            "-i",
            text(profile),
        ],
    );
    let mut stacks = Stacks::new();
    let mut stack = &mut Vec::new();
    // An empty line ends a sample.
    let mut lines = shown.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let Some(entry) = line.strip_prefix('\t') else {
            // PID SECONDS.NANOSECONDS:
            let (pid, time) = line.trim().split_once(' ').unwrap();
            let time = time.trim().trim_end_matches(':').replace('.', "");
            // Samples of the same time are the frames of one.
            stack = stacks
                .entry((pid.parse().unwrap(), time.parse().unwrap()))
                .or_default();
            continue;
        };
        let place = lines.next_if(|line| line.starts_with("  ")).unwrap_or("??:0");
        let (_, symbol) = entry.trim_start().split_once(' ').unwrap();
        let (place, is_inlined) = match place.strip_suffix(" (inlined)") {
            Some(place) => (place, true),
            None => (place, false),
        };
        let (file, line) = place.trim().rsplit_once(':').unwrap_or(("??", "0"));
        let function = match symbol
            .strip_suffix(')')
            .and_then(|symbol| symbol.rsplit_once(" ("))
        {
            Some((function, object)) if perf::is_object(object) => function,
            Some(_) if !is_inlined => continue,
            _ => symbol.strip_suffix(" (inlined)").unwrap_or(symbol),
        };
        // A line may be unknown (`?`).
        stack.push(Call::new(function, file, line.parse().unwrap_or(0), is_inlined));
    }
    stacks
}

/// Returns the stacks of an export for the Firefox Profiler. `start` is the time of the first record.
fn exported(profile: &Path, more: &[&str], start: u64) -> Stacks {
    let folder = scratch();
    let output = folder.path().join("out.json.gz");
    export(profile, &output, more);
    let exported: Value =
        serde_json::from_reader(GzDecoder::new(std::fs::File::open(output).unwrap())).unwrap();
    let shared = &exported["shared"];
    let at = |table: &str, column: &str, index: u64| &shared[table][column][index as usize];
    let number = |table: &str, column: &str, index: u64| at(table, column, index).as_u64();
    let string = |index: u64| shared["stringArray"][index as usize].as_str().unwrap();
    let call = |frame: u64| {
        let library = &exported["libs"][number("frameTable", "lib", frame).unwrap() as usize];
        let library = library["name"].as_str().unwrap();
        if !perf::is_object(library) && !library.starts_with("[JIT") {
            return None;
        }
        let function = number("frameTable", "func", frame).unwrap();
        let name = string(number("funcTable", "name", function).unwrap());
        // It is in no object.
        if name == UNNAMED {
            return None;
        }
        // The place in the original program, if a source map led there.
        let original = number("frameTable", "originalLocation", frame);
        let (source, line) = match original {
            Some(original) => (
                number("sourceLocationTable", "source", original),
                number("sourceLocationTable", "line", original),
            ),
            None => (
                number("funcTable", "source", function),
                number("frameTable", "line", frame),
            ),
        };
        let file = source.map(|source| string(number("sources", "filename", source).unwrap()));
        let is_inlined = number("frameTable", "inlineDepth", frame) != Some(0);
        Some(Call::new(
            name,
            file.unwrap_or_default(),
            line.unwrap_or(0),
            is_inlined,
        ))
    };
    let mut stacks = Stacks::new();
    for thread in exported["threads"].as_array().unwrap() {
        let pid: u32 = thread["pid"].as_str().unwrap().parse().unwrap();
        let samples = &thread["samples"];
        let times = samples["time"].as_array().unwrap();
        for (stack, time) in samples["stack"].as_array().unwrap().iter().zip(times) {
            let time = start + (time.as_f64().unwrap() * 1e6).round() as u64;
            let calls = stacks.entry((pid, time)).or_default();
            let mut next = stack.as_u64();
            while let Some(stack) = next {
                calls.extend(call(number("stackTable", "frame", stack).unwrap()));
                let distance = number("stackTable", "prefixOffset", stack).unwrap();
                next = (distance > 0).then(|| stack - distance);
            }
        }
    }
    stacks
}

fn export(profile: &Path, output: &Path, more: &[&str]) {
    let mut command = jitinject();
    command
        .arg("export")
        .arg(profile)
        .arg("-o")
        .arg(output)
        .args(more);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
}

/// A sample in a file of perf.
struct Sample {
    pid: u32,
    time: u64,
    /// Addresses of its frames in user space, the innermost first: of the sampled or interrupted instruction, and of callers the
    /// byte before their return addresses.
    addresses: Vec<u64>,
}

/// Names of sample fields that tests do not write otherwise.
const ADDR: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const ID: u64 = 1 << 6;
const STREAM_ID: u64 = 1 << 9;

/// Parses a SAMPLE record.
fn sample(record: &[u8], fields: u64) -> Sample {
    assert_eq!(fields & READ, 0);
    let mut at = 8;
    let mut take = |field: u64| {
        let is_there = fields & field != 0;
        let value = is_there.then(|| word(record, ORDER, at));
        at += if is_there { 8 } else { 0 };
        value
    };
    take(field::IDENTIFIER);
    let ip = take(field::IP).unwrap();
    let pid = take(field::TID).unwrap() as u32;
    let time = take(field::TIME).unwrap();
    for field in [ADDR, ID, STREAM_ID, field::CPU, field::PERIOD] {
        take(field);
    }
    let count = take(field::CALLCHAIN).unwrap_or(0) as usize;
    let mut in_user = record[4] & 7 == 2;
    let mut addresses: Vec<u64> = in_user.then_some(ip).into_iter().collect();
    let mut after_marker = false;
    for entry in (0..count).map(|entry| word(record, ORDER, at + 8 * entry)) {
        let was_interrupted = std::mem::take(&mut after_marker);
        match entry {
            CONTEXT_MAX.. => (in_user, after_marker) = (entry == CONTEXT_USER, true),
            _ if !in_user || entry == 0 || addresses == [entry] && was_interrupted => {}
            _ => addresses.push(entry - u64::from(!was_interrupted)),
        }
    }
    Sample { pid, time, addresses }
}

/// Returns the time of the first record with a time in a profile.
fn start_of(profile: &Path) -> u64 {
    let (parts, fields) = parsed(profile);
    let times = parts
        .records
        .iter()
        .filter_map(|record| time_of(record, fields))
        .filter(|&time| time > 0);
    times.min().unwrap()
}

fn parsed(profile: &Path) -> (model::Parts, u64) {
    let parts = model::parse(&std::fs::read(profile).unwrap());
    let fields = word(&parts.attrs[0], ORDER, 24);
    (parts, fields)
}

/// Returns the time of a record of the kernel.
fn time_of(record: &[u8], fields: u64) -> Option<u64> {
    match model::kind(record, ORDER) {
        SAMPLE => Some(sample(record, fields).time),
        kind if kind < 64 => {
            let last = [field::TIME, ID, STREAM_ID, field::CPU, field::IDENTIFIER];
            let size = 8 * last.iter().filter(|&field| fields & field != 0).count();
            Some(word(record, ORDER, record.len() - size))
        }
        _ => None,
    }
}

/// Writes a profile with the mappings of objects in an output, in which each frame of a sample is a sample of its own,
/// with an empty stack to unwind: perf 6.1 prints inlined calls in stacks that it unwinds, and none in recorded call chains.
fn split_into_frames(output: &Path) -> PathBuf {
    let (parts, fields) = parsed(output);
    let mut profile = ProfileWriter::new(ORDER);
    profile.sample_type |= field::REGS_USER | field::STACK_USER;
    for record in &parts.records {
        let name = model::map_name(record, ORDER).filter(|name| perf::is_object(name));
        if let Some(name) = name {
            assert_eq!(model::kind(record, ORDER), MMAP2);
            let pid = word(record, ORDER, 8) as u32;
            let (start, end) = model::map_range(record, ORDER);
            let file_offset = word(record, ORDER, 32);
            let time = time_of(record, fields).unwrap();
            profile.mmap2(pid, start, end - start, file_offset, &name, time);
        }
    }
    let stack = UserStack {
        sp: 0x7fff_0000_0000,
        bytes: &[0; 64],
    };
    let samples = parts
        .records
        .iter()
        .filter(|record| model::kind(record, ORDER) == SAMPLE);
    for record in samples {
        let sample = sample(record, fields);
        for address in sample.addresses {
            profile.sample(sample.pid, sample.time, &[address], Some(&stack));
        }
    }
    let path = output.with_extension("frames.data");
    std::fs::write(&path, profile.finish()).unwrap();
    path
}

/// Counts of what was compared.
#[derive(Debug, Default)]
struct Compared {
    samples: usize,
    calls: usize,
    inlined: usize,
    with_line: usize,
}

/// Compares stacks by process and time.
fn compare(found: &Stacks, expected: &Stacks, what: &str) -> Compared {
    let mut compared = Compared::default();
    for (key, expected) in expected {
        let found = found.get(key).map_or(&[][..], Vec::as_slice);
        assert_eq!(found, expected, "{what}, {key:?}");
        compared.samples += 1;
        compared.calls += expected.len();
        compared.inlined += expected.iter().filter(|call| call.is_inlined).count();
        compared.with_line += expected.iter().filter(|call| call.place.is_some()).count();
    }
    compared
}

/// perf 6.12 leaves out a function if the line of a call that is inlined there is not known. It is taken from `exported`.
fn with_left_out(mut printed: Stacks, exported: &Stacks) -> Stacks {
    for (key, calls) in &mut printed {
        let Some(known) = exported.get(key) else {
            continue;
        };
        let mut found = std::mem::take(calls).into_iter().peekable();
        for known in known {
            let is_inside = calls.last().is_some_and(|call: &Call| call.is_inlined);
            if is_inside && !known.is_inlined && known.place.is_none() && found.peek() != Some(known) {
                calls.push(known.clone());
            } else {
                calls.extend(found.next());
            }
        }
        calls.extend(found);
    }
    printed
}

/// perf marks no inlined call of a function in itself.
fn marked_by_perf(mut stacks: Stacks) -> Stacks {
    for calls in stacks.values_mut() {
        let mut outer = String::new();
        for call in calls.iter_mut().rev() {
            if call.is_inlined {
                call.is_inlined = call.function != outer
            } else {
                outer.clone_from(&call.function)
            }
        }
    }
    stacks
}

/// Functions of stacks, the innermost first, whether they are inlined, and the number of such stacks.
type Names = BTreeMap<Vec<(String, bool)>, u64>;

/// Returns the first word of a name, before the place that collapsed stacks have.
fn first_word(name: &str) -> String {
    name.split(' ').next().unwrap().to_owned()
}

fn names_of(stacks: &Stacks) -> Names {
    let mut names = Names::new();
    for calls in stacks.values().filter(|calls| !calls.is_empty()) {
        let calls = calls
            .iter()
            .map(|call| (first_word(&call.function), call.is_inlined));
        *names.entry(calls.collect()).or_default() += 1;
    }
    names
}

/// Returns the functions in collapsed stacks of a recording whose names are in `expected`: the others are native.
fn folded(input: &Path, more: &[&str], expected: &Names) -> Names {
    let folder = scratch();
    let output = folder.path().join("out.folded");
    export(input, &output, more);
    let known: BTreeSet<&String> = expected.keys().flatten().map(|(name, _)| name).collect();
    let mut names = Names::new();
    for line in std::fs::read_to_string(output).unwrap().lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let mut calls = Vec::new();
        let mut outer = String::new();
        for frame in stack.split(';').skip(1) {
            let (text, is_inlined) = match frame.strip_suffix("_[i]") {
                Some(text) => (text, true),
                None => (frame.strip_suffix("_[j]").unwrap_or(frame), false),
            };
            let name = first_word(text);
            if !is_inlined {
                outer.clone_from(&name);
            }
            // As perf marks them.
            let is_marked = is_inlined && name != outer;
            if known.contains(&name) {
                calls.push((name, is_marked));
            }
        }
        calls.reverse();
        if !calls.is_empty() {
            *names.entry(calls).or_default() += count.parse::<u64>().unwrap();
        }
    }
    names
}

/// Compares what perf programs and exports have of a recording.
fn compare_recording(input: &Path, dumps: &Path) -> Compared {
    let folder = scratch();
    let dumps = ["--jitdump", text(dumps)];
    // perf 7.3 leaves out a function in an object of its own if the line of a call that is inlined there is not known.
    let fixed = ["--names", "plain", "--unwind", "--layout", "image"];
    let output = inject_into(folder.path(), input, &[&dumps[..], &fixed].concat());
    let of_output = marked_by_perf(exported(&output, &[], start_of(&output)));
    let of_dump = [&dumps[..], &["--no-native-lines"]].concat();
    let of_input = marked_by_perf(exported(input, &of_dump, start_of(input)));
    compare(&of_input, &of_output, "input and output");
    let frames = split_into_frames(&output);
    let mut compared = Compared::default();
    for program in perf::programs() {
        let printed = with_left_out(printed(&program, &frames), &of_output);
        compared = compare(&of_output, &printed, &program);
        let expected = names_of(&printed);
        assert_eq!(folded(input, &of_dump, &expected), expected, "{program}");
    }
    compared
}

/// Copies a capture, with names of the same length in place of those with other characters than ASCII: perf 6.12 takes a byte
/// above 127 that addr2line prints for an error, and then loses some of what follows.
fn with_ascii_names(name: &str) -> TempDir {
    let copy = scratch();
    for entry in std::fs::read_dir(capture::folder(name)).unwrap() {
        let path = entry.unwrap().path();
        let Ok(mut bytes) = std::fs::read(&path) else {
            continue;
        };
        let (other, ascii) = ("größe".as_bytes(), b"groesse");
        let places: Vec<usize> = memchr::memmem::find_iter(&bytes, other).collect();
        for at in places {
            bytes[at..at + ascii.len()].copy_from_slice(ascii);
        }
        std::fs::write(copy.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    copy
}

/// Captures with inlined calls, and their number in all stacks.
const CAPTURES: [(&str, usize); 6] = [
    ("node20", 1284),
    ("node20-dwarf", 374),
    ("node20-inlined", 193),
    // A page fault interrupts JIT code.
    ("node20-pidns", 684),
    ("node20-typescript", 490),
    ("node22", 773),
];

#[test]
fn perf_prints_the_calls_that_exports_have() {
    for (name, inlined) in CAPTURES {
        let folder = with_ascii_names(name);
        let compared = compare_recording(&folder.path().join("perf.data"), folder.path());
        println!("{name}: {compared:?}");
        assert_eq!(compared.inlined, inlined, "{name}: {compared:?}");
    }
}

/// Random functions with both layouts of DEBUG_INFO2 records, which call each other.
#[test]
fn perf_prints_the_calls_of_random_functions_that_exports_have() {
    const PID: u32 = 7;
    for kind in [LISTS, POSITIONS] {
        let folder = scratch();
        let path = folder.path().join("jit-7.dump");
        let mut dump = DumpWriter::new(ORDER, X86_64, PID);
        let addresses = write_functions(&mut dump, kind, 500);
        std::fs::write(&path, &dump.bytes).unwrap();
        let mut profile = ProfileWriter::new(ORDER);
        profile.mmap2(PID, 0x6000_0000, 4096, 0, text(&path), 500);
        for (stack, time) in addresses.chunks(4).zip(2000..) {
            // Return addresses are those after calls.
            let mut chain = stack.to_vec();
            chain[1..].iter_mut().for_each(|address| *address += 1);
            profile.sample(PID, time, &chain, None);
        }
        let input = folder.path().join("perf.data");
        std::fs::write(&input, profile.finish()).unwrap();
        let compared = compare_recording(&input, folder.path());
        println!("{compared:?}");
        assert!(compared.calls > 10_000 && compared.inlined > 5000, "{compared:?}");
    }
}
