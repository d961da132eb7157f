//! Copied stacks become call chains (`--unwind`).

use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use crate::report::run;
use crate::support::dump::{DumpWriter, X86_64, tables, tables_of};
use crate::support::generator::Random;
use crate::support::profile::{ProfileWriter, UserStack, architecture, field};
use crate::support::tools::text;
use crate::support::{attempt, elf, has_code, inject, model, said, scratch};

pub const ENDIAN: ByteOrder = ByteOrder::Little;
pub const CODE: u64 = 0x7f00_1000_0000;
pub const STACK: u64 = 0x7ff0_0000_0000;
const CONTEXT_USER: u64 = -512i64 as u64;
/// Offsets in samples of [`ProfileWriter`]: the number of entries of the call chain, and the registers.
const CHAIN: usize = 48;
const ABI: usize = CHAIN + 8;
pub const BP: usize = ABI + 8 + 6 * 8;

/// A process with functions that have tables, and the profile of it.
pub struct Process {
    pub folder: tempfile::TempDir,
    /// Start and frame size of each function.
    functions: Vec<(u64, u8)>,
    pub profile: ProfileWriter,
}

impl Process {
    const SIZE: u64 = 61;

    pub fn new() -> Self {
        let folder = scratch();
        let mut dump = DumpWriter::new(ENDIAN, X86_64, 10);
        let functions: Vec<(u64, u8)> = (0..24u64)
            .map(|at| (CODE + 3 + at * 0xc0, 8 * (1 + at % 9) as u8))
            .collect();
        dump.functions_with_tables(&functions, Self::SIZE);
        let path = folder.path().join("jit-10.dump");
        std::fs::write(&path, &dump.bytes).unwrap();
        Self {
            folder,
            functions,
            profile: profile_with(&path),
        }
    }

    /// Adds a sample with some calls; returns its frames.
    fn call(&mut self, random: &mut Random, time: u64) -> Vec<u64> {
        let calls: Vec<usize> = (0..1 + random.below(6))
            .map(|_| random.below(24) as usize)
            .collect();
        let addresses: Vec<u64> = calls
            .iter()
            .map(|&call| self.functions[call].0 + 1 + random.below(Self::SIZE - 2))
            .collect();
        let mut bytes = Vec::new();
        for (at, &call) in calls.iter().enumerate() {
            bytes.resize(bytes.len() + usize::from(self.functions[call].1) - 8, 0xcc);
            let caller = addresses.get(at + 1).copied().unwrap_or(0);
            bytes.extend_from_slice(&caller.to_le_bytes());
        }
        self.sample(time, addresses[0], &bytes);
        let callers = addresses[1..].iter().map(|address| address - 1);
        std::iter::once(addresses[0]).chain(callers).collect()
    }

    /// Adds a sample; returns the offset of its record.
    pub fn sample(&mut self, time: u64, ip: u64, bytes: &[u8]) -> usize {
        let at = self.profile.records.len();
        let stack = UserStack { sp: STACK, bytes };
        self.profile.sample(10, time, &[ip], Some(&stack));
        at
    }

    pub fn set(&mut self, sample: usize, offset: usize, value: u64) {
        let at = sample + offset;
        self.profile.records[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn write(&self, is_pipe: bool) -> PathBuf {
        let path = self.folder.path().join("perf.data");
        let bytes = if is_pipe {
            self.pipe()
        } else {
            self.profile.finish()
        };
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Returns the profile in pipe format, with its features before the other records.
    fn pipe(&self) -> Vec<u8> {
        const HEADER_FEATURE: u32 = 80;
        let pipe = self.profile.finish_pipe();
        let (head, records) = pipe.split_at(pipe.len() - self.profile.records.len());
        let mut features = ProfileWriter::new(ENDIAN);
        for (id, content) in &self.profile.features {
            let mut body = [&u64::from(*id).to_le_bytes()[..], content].concat();
            body.resize(body.len().next_multiple_of(8), 0);
            features.record(HEADER_FEATURE, 0, &body);
        }
        [head, &features.records, records].concat()
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("out.data")
    }

    /// Unwinds; returns the output and what was said.
    pub fn unwind(&self, more: &[&str]) -> (model::Parts, String) {
        let output = self.output();
        let said = inject(&self.write(false), &output, &[&["-v"], more].concat());
        (model::parse(&std::fs::read(output).unwrap()), said)
    }
}

/// Starts the profile of a process with a jitdump and copies of stacks.
fn profile_with(dump: &Path) -> ProfileWriter {
    let mut profile = ProfileWriter::new(ENDIAN);
    profile.features.push(architecture("x86_64"));
    profile.sample_type |= field::REGS_USER | field::STACK_USER;
    profile.comm(10, "work", true, 100);
    profile.mmap2(10, CODE, 0x10_0000, 0, "//anon", 200);
    profile.mmap2(10, CODE + 0x20_0000, 0x1000, 0, text(dump), 300);
    profile
}

/// The samples of a profile.
pub fn samples(parts: &model::Parts) -> Vec<&[u8]> {
    let samples = parts
        .records
        .iter()
        .filter(|record| model::kind(record, ENDIAN) == 9);
    samples.map(|record| &record[..]).collect()
}

/// The user part of a sample's call chain.
pub fn chain(sample: &[u8]) -> Vec<u64> {
    let word = |at| model::word(sample, ENDIAN, at);
    assert_eq!(word(CHAIN + 8), CONTEXT_USER);
    (1..word(CHAIN) as usize)
        .map(|at| word(CHAIN + 8 + 8 * at))
        .collect()
}

fn attr_word(file: &Path, at: usize) -> u64 {
    let bytes = std::fs::read(file).unwrap();
    let attrs = model::word(&bytes, ENDIAN, 24) as usize;
    model::word(&bytes, ENDIAN, attrs + at)
}

#[test]
fn call_chains_replace_the_stacks_they_come_from() {
    let mut random = Random::new(7);
    let mut process = Process::new();
    let expected: Vec<Vec<u64>> = (0..200)
        .map(|time| process.call(&mut random, 2000 + time))
        .collect();
    let (input, output) = (process.write(false), process.output());
    for (is_pipe, more) in [
        (false, &["--unwind"][..]),
        (true, &["--unwind"]),
        (false, &["--unwind", "--all"]),
    ] {
        process.write(is_pipe);
        let said = inject(&input, &output, more);
        assert!(said.contains("200 stacks unwound"), "{said}");
        assert!(said.contains("; 200 to the start of the thread"), "{said}");
        assert!(said.contains("(100.0 %)"), "{said}");
        let parts = model::parse(&std::fs::read(&output).unwrap());
        let samples = samples(&parts);
        let found: Vec<Vec<u64>> = samples.iter().map(|sample| chain(sample)).collect();
        assert_eq!(found, expected);
        for (sample, frames) in samples.iter().zip(&expected) {
            assert_eq!(
                sample.len(),
                CHAIN + 8 * (2 + frames.len()),
                "nothing else is left"
            );
        }
        // sample_type, exclude_callchain_user, sample_regs_user, sample_stack_user
        assert_eq!(attr_word(&output, 24) & (field::REGS_USER | field::STACK_USER), 0);
        assert_ne!(attr_word(&output, 24) & field::CALLCHAIN, 0);
        assert_eq!(attr_word(&output, 40) & 1 << 22, 0);
        assert_eq!((attr_word(&output, 80), attr_word(&output, 88) as u32), (0, 0));
    }
}

/// Whether the samples of an output have copied stacks.
fn has_copies(output: &Path) -> bool {
    attr_word(output, 24) & field::STACK_USER != 0
}

#[test]
fn stacks_are_unwound_by_default_if_the_files_are_here() {
    let mut process = Process::new();
    let mut random = Random::new(9);
    for time in 2000..2200 {
        process.call(&mut random, time);
    }
    let (input, output) = (process.write(false), process.output());
    for (options, has_copies) in [
        (&[][..], false),
        (&["--no-unwind"], true),
        (&["--unwind", "--no-unwind"], true),
        (&["--no-unwind", "--unwind"], false),
    ] {
        let said = inject(&input, &output, options);
        assert_eq!(
            said.contains("200 stacks unwound"),
            !has_copies,
            "{options:?}: {said}"
        );
        assert_eq!(self::has_copies(&output), has_copies, "{options:?}");
    }
    // One of four frames is in a file that is not here.
    process
        .profile
        .mmap2(10, 0x7f20_0000_0000, 0x1000, 0, "/nowhere/libmissing.so", 400);
    let words = [0u64; 8].map(u64::to_le_bytes).concat();
    for time in 3000..3100 {
        process.sample(time, 0x7f20_0000_0010, &words);
    }
    process.write(false);
    let said = inject(&input, &output, &[]);
    assert!(
        has_code(&said, "JI188") && said.contains("libmissing.so (100)"),
        "{said}"
    );
    assert!(self::has_copies(&output));
    let samples = |output: &Path| model::parse(&std::fs::read(output).unwrap()).records;
    let unchanged = samples(&output);
    inject(&input, &output, &["--no-unwind"]);
    assert_eq!(samples(&output), unchanged);
    inject(&input, &output, &["--unwind"]);
    assert!(!self::has_copies(&output));
}

#[test]
fn stacks_stay_on_request() {
    let mut random = Random::new(8);
    let mut process = Process::new();
    let expected: Vec<Vec<u64>> = (0..20)
        .map(|time| process.call(&mut random, 2000 + time))
        .collect();
    // The copy leaves no room for the call chain.
    let largest = process.sample(3000, CODE + 4, &vec![0; 65_200]);
    let old = process.profile.records[largest..].to_vec();
    let (parts, _) = process.unwind(&["--unwind=keep"]);
    let samples = samples(&parts);
    let originals = model::parse(&std::fs::read(process.write(false)).unwrap());
    for ((sample, original), frames) in samples.iter().zip(self::samples(&originals)).zip(&expected) {
        assert_eq!(chain(sample), *frames);
        assert_eq!(sample[CHAIN + 8 * (2 + frames.len())..], original[ABI..]);
    }
    let cut = samples[20];
    assert!(
        cut.len() <= 0xffff && cut.len() + 16 >= old.len(),
        "{}",
        cut.len()
    );
    let kept = field::REGS_USER | field::STACK_USER;
    assert_eq!(attr_word(&process.output(), 24) & kept, kept);
}

#[test]
fn a_call_chain_of_the_kernel_stays_before_that_of_the_program() {
    const KERNEL: u64 = -128i64 as u64;
    let mut process = Process::new();
    // The callee of function 0, with a frame of 8 bytes, is the kernel.
    let at = process.sample(2000, CODE + 4, &0u64.to_le_bytes());
    let kernel = [2, KERNEL, 0xffff_ffff_8100_0000].map(u64::to_le_bytes).concat();
    process.profile.records.splice(at + CHAIN..at + CHAIN + 8, kernel);
    let size = (process.profile.records.len() - at) as u16;
    process.profile.records[at + 6..at + 8].copy_from_slice(&size.to_le_bytes());
    let (parts, _) = process.unwind(&["--unwind"]);
    let words: Vec<u64> = (0..5)
        .map(|at| model::word(samples(&parts)[0], ENDIAN, CHAIN + 8 * at))
        .collect();
    assert_eq!(words, [4, KERNEL, 0xffff_ffff_8100_0000, CONTEXT_USER, CODE + 4]);
}

/// Code with frame pointers but without tables: the caller is found from the first instruction to the last.
#[test]
fn frame_pointers_are_followed_where_there_is_no_table() {
    // nop; push rbp; mov rbp, rsp; nop; pop rbp; ret
    let code = [0x90, 0x55, 0x48, 0x89, 0xe5, 0x90, 0x5d, 0xc3];
    let callee = CODE + 0x8000;
    let caller = CODE + 0x8800;
    let mut process = Process::new();
    let mut dump = DumpWriter::new(ENDIAN, X86_64, 10);
    for (index, start) in [(0, callee), (1, caller)] {
        dump.load(1000, start, index, b"framed", &code);
    }
    std::fs::write(process.folder.path().join("jit-10.dump"), &dump.bytes).unwrap();
    // What is at the stack pointer, and the offset of the frame pointer from there.
    let frame = STACK + 0x100;
    let cases: [(u64, &[u64], u64); 5] = [
        (0, &[caller + 5, 0, 0], frame),
        (1, &[caller + 5, 0, 0], frame),
        (2, &[frame, caller + 5, 0], frame),
        (5, &[frame, caller + 5, 0], STACK),
        (7, &[caller + 5, 0, 0], frame),
    ];
    for (time, (offset, top, bp)) in (2000..).zip(cases) {
        let mut words = top.to_vec();
        words.resize(0x20, 0);
        // The caller's frame has the end of the chain.
        words.extend([0, 0]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let sample = process.sample(time, callee + offset, &bytes);
        process.set(sample, BP, bp);
    }
    let (parts, said) = process.unwind(&["--unwind"]);
    assert!(said.contains("; 5 to the start of the thread"), "{said}");
    for (sample, (offset, ..)) in samples(&parts).iter().zip(cases) {
        assert_eq!(chain(sample), [callee + offset, caller + 4], "at {offset}");
    }
}

/// An address is looked up once for many stacks, but what was found counts only while it is there.
#[test]
fn stacks_are_unwound_by_what_is_there_at_their_time() {
    let (library, function) = (0x7f20_0000_0000, CODE + 0x8000);
    let mut process = Process::new();
    // A function with a frame of 16 bytes, and then one with 32 bytes in its place.
    let mut dump = DumpWriter::new(ENDIAN, X86_64, 10);
    for (index, (time, frame)) in (0..).zip([(1000, 16), (2500, 32)]) {
        let (tables, header) = tables(Process::SIZE, frame);
        dump.unwinding(time, &tables, &header);
        let code = [0x90; Process::SIZE as usize];
        dump.load(time, function, index, b"replaced", &code);
    }
    std::fs::write(process.folder.path().join("jit-10.dump"), &dump.bytes).unwrap();
    // A library, which the process replaces after it was copied.
    let profile = &mut process.profile;
    profile.mmap2(10, library, 0x1000, 0, "/nowhere/libmissing.so", 400);
    profile.fork(11, 10, 3500);
    profile.mmap2(10, library, 0x1000, 0, "//anon", 4000);
    let (first, second) = (library + 0x10, library + 0x30);
    let words = [0, first + 1, 0, second + 1];
    let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    let cases = [
        (10, 2000, first),
        (10, 3000, second),
        (10, 2010, first),
        (10, 3010, second),
        (10, 5000, second),
        (11, 5000, second),
        (10, 5010, second),
        (11, 5010, second),
    ];
    for (pid, time, _) in cases {
        let sample = process.profile.records.len();
        let copy = UserStack {
            sp: STACK,
            bytes: &bytes,
        };
        process.profile.sample(pid, time, &[function + 4], Some(&copy));
        process.set(sample, BP, 0);
    }
    let (parts, said) = process.unwind(&["--unwind"]);
    for (sample, (pid, time, caller)) in samples(&parts).iter().zip(cases) {
        assert_eq!(chain(sample), [function + 4, caller], "{pid} at {time}");
    }
    // The frames that were in the library: all but two.
    assert!(said.contains("libmissing.so (6)"), "{said}");
}

#[test]
fn what_cannot_be_unwound_is_reported() {
    // A library that is not there, by its frame pointer.
    let mut process = Process::new();
    process
        .profile
        .mmap2(10, 0x7f20_0000_0000, 0x1000, 0, "/nowhere/libmissing.so", 400);
    let words = [0, 0x7f20_0000_0020u64, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let sample = process.sample(2000, 0x7f20_0000_0010, &bytes);
    process.set(sample, BP, STACK);
    let (parts, said) = process.unwind(&["--unwind"]);
    assert_eq!(chain(samples(&parts)[0]), [0x7f20_0000_0010, 0x7f20_0000_001f]);
    assert!(
        has_code(&said, "JI180") && said.contains("libmissing.so (2)"),
        "{said}"
    );

    // A copy that ends before the return address.
    let mut process = Process::new();
    let (address, frame) = process.functions[8];
    process.sample(2000, address, &vec![0; usize::from(frame) - 8]);
    let (parts, said) = process.unwind(&["--unwind"]);
    assert_eq!(chain(samples(&parts)[0]), [address]);
    assert!(
        said.contains("warning[JI181]") && said.contains("1 cut off by the size of the copy"),
        "{said}"
    );

    // A 32-bit process. The sample gets no user part, as perf has none either.
    let mut process = Process::new();
    let sample = process.sample(2000, address, &[0; 64]);
    process.set(sample, ABI, 1);
    let (parts, said) = process.unwind(&["--unwind"]);
    assert_eq!(samples(&parts)[0].len(), CHAIN + 8);
    assert!(has_code(&said, "JI182"), "{said}");
}

#[test]
fn reports_count_stacks_that_end_in_code_that_cannot_be_unwound() {
    let mut process = Process::new();
    let unmapped = CODE + 0x30_0000;
    for (time, function, word) in [
        (1000, 0, 0),
        (1010, 0, unmapped),
        (1020, 0, unmapped),
        (1030, 1, 0),
    ] {
        // The first function returns by the word, the second one by that after it, which was not copied.
        let ip = process.functions[function].0 + 1;
        process.sample(time, ip, &word.to_le_bytes());
    }
    let output = run(&["report", "--json", text(&process.write(false))]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = ["unwound", "cut", "not_unwound"].map(|name| report["missing"][name].as_u64());
    assert_eq!(counts, [Some(4), Some(1), Some(2)], "{report:#}");
}

#[test]
fn libraries_of_holes_are_not_read() {
    const SIZE: u64 = 400 << 20;
    let mut process = Process::new();
    // Files in /dev/shm are taken for memory.
    let libraries = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let sparse = libraries.path().join("libsparse.so");
    let tables = |is_compressed, size, content| {
        let section = elf::Section {
            name: ".debug_frame",
            is_compressed,
            size,
            content,
        };
        elf::file(elf::LIBRARY, &[section])
    };
    let start = tables(false, SIZE, b"");
    std::fs::write(&sparse, &start).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&sparse).unwrap();
    file.set_len(start.len() as u64 + SIZE).unwrap();
    // A section that claims a thousand times its size.
    let zeros = zstd::bulk::compress(&vec![0; 8 << 20], 1).unwrap();
    let compressed = elf::compressed(2, 8 << 20, &zeros);
    let packed = libraries.path().join("libpacked.so");
    std::fs::write(&packed, tables(true, compressed.len() as u64, &compressed)).unwrap();
    for (library, at) in [(&sparse, 0x7f20_0000_0000), (&packed, 0x7f30_0000_0000)] {
        process.profile.mmap2(10, at, 0x1000, 0, text(library), 400);
        process.sample(2000, at + 0x10, &[0; 64]);
    }
    let (_, said) = process.unwind(&["--unwind"]);
    assert!(
        said.contains("warning[JI186]") && said.contains("2 files of executables"),
        "{said}"
    );
    assert!(said.contains("2 stacks unwound"), "{said}");
}

#[test]
fn profiles_that_cannot_be_unwound_stay_as_they_are() {
    let folder = scratch();
    let mut profile = ProfileWriter::new(ENDIAN);
    profile.sample(10, 2000, &[CODE], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = attempt(&input, &folder.path().join("out.data"), &["--unwind"]);
    assert!(has_code(&said(&output), "JI183"), "{}", said(&output));

    let with_arch = |process: &mut Process| {
        process.profile.features = vec![architecture("riscv64")];
    };
    let without_times = |process: &mut Process| process.profile.sample_type &= !field::TIME;
    for code in ["JI184", "JI185"] {
        let mut process = Process::new();
        match code {
            "JI184" => with_arch(&mut process),
            _ => without_times(&mut process),
        }
        process.sample(2000, CODE + 4, &[0; 64]);
        let (parts, said) = process.unwind(&["--unwind"]);
        assert!(has_code(&said, code), "{said}");
        let originals = model::parse(&std::fs::read(process.write(false)).unwrap());
        assert_eq!(samples(&parts), samples(&originals));
        assert_ne!(attr_word(&process.output(), 24) & field::STACK_USER, 0);
    }
}

/// Each word of the stack is the return address of a frame that has nothing else.
#[test]
fn stacks_have_up_to_4096_frames() {
    for callers in [4095, 4096] {
        let mut process = Process::new();
        let (address, _) = process.functions[0];
        let mut bytes = (address + 10).to_le_bytes().repeat(callers);
        bytes.extend([0; 8]);
        process.sample(2000, address, &bytes);
        let (parts, said) = process.unwind(&["--unwind"]);
        assert_eq!(chain(samples(&parts)[0]).len(), 4096, "{callers}: {said}");
    }
}

/// Random words, frames that lead to themselves or back, and words that all look like return addresses.
/// Markers of signals are no frames.
#[test]
fn deep_stacks_have_4096_frames_with_signals_and_without() {
    // A CIE of signal handlers' return code: the same as that of other functions, and "S".
    let cie = [
        1, b'z', b'R', b'S', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0,
    ];
    let (in_function, in_return_code) = (CODE + 8, CODE + 0xc8);
    let folder = scratch();
    let mut dump = DumpWriter::new(ENDIAN, X86_64, 10);
    dump.functions_with_tables(&[(CODE, 8)], 64);
    let (tables, header) = tables_of(64, &cie, &[0x0e, 8]);
    dump.unwinding(1000, &tables, &header);
    dump.load(1000, CODE + 0xc0, 1, b"return_code", &[0x90; 64]);
    let path = folder.path().join("jit-10.dump");
    std::fs::write(&path, &dump.bytes).unwrap();
    for (signals, markers) in [(0, 0), (3, 6)] {
        let mut process = Process::new();
        process.profile = profile_with(&path);
        let word = |at: u64| {
            if at < signals {
                [in_return_code, in_function]
            } else {
                [in_function; 2]
            }
        };
        let words = (0..2100).flat_map(word).flat_map(u64::to_le_bytes);
        process.sample(2000, in_function, &words.collect::<Vec<u8>>());
        let (parts, _) = process.unwind(&["--unwind"]);
        let chain = chain(samples(&parts)[0]);
        let found = chain.iter().filter(|&&entry| entry == CONTEXT_USER).count();
        assert_eq!((chain.len() - found, found), (4096, markers));
    }
}

#[test]
fn hostile_stacks_end() {
    let mut random = Random::new(9);
    let words = |fill: &mut dyn FnMut(u64) -> u64| -> Vec<u8> {
        (0..1024).flat_map(|at| fill(at).to_le_bytes()).collect()
    };
    let mut process = Process::new();
    let mut time = 2000;
    for _ in 0..200 {
        let stacks = [
            words(&mut |_| random.below(u64::MAX)),
            words(&mut |_| CODE + random.below(0x2000)),
            words(&mut |_| STACK),
            words(&mut |at| STACK + 8 * (1023 - at)),
            words(&mut |at| {
                if at % 2 == 0 {
                    STACK + 8 * (at + 2)
                } else {
                    CODE + 0x9000
                }
            }),
        ];
        for bytes in stacks {
            for ip in [CODE + 4, CODE + 0x9000] {
                let sample = process.sample(time, ip, &bytes);
                process.set(sample, BP, STACK + 8 * random.below(1024));
                time += 1;
            }
        }
    }
    let (parts, said) = process.unwind(&["--unwind"]);
    assert!(said.contains("2000 stacks unwound"), "{said}");
    assert!(
        samples(&parts)
            .iter()
            .all(|sample| sample.len() <= CHAIN + 8 * 1030)
    );
}
