//! Copied stacks of AArch64: calls leave the return address in a register (x30), and code may sign it.

use std::collections::HashMap;

use jitdump::ByteOrder;
use serde_json::Value;

use crate::support::dump::{self, AARCH64, DumpWriter, X86_64};
use crate::support::profile::{ProfileWriter, Registers, UserStack, architecture, field};
use crate::support::tools::text;
use crate::support::{capture, has_code, inject, jitinject, model, objects_of, scratch};

const ENDIAN: ByteOrder = ByteOrder::Little;
const CODE: u64 = 0x7f_1000_0000;
const SIZE: u64 = 64;
const STACK: u64 = 0x7f_f000_0000;
/// Offsets in samples: the number of entries of the call chain, and the registers behind their ABI.
const CHAIN: usize = 48;
const REGISTERS: usize = CHAIN + 16;
/// PERF_CONTEXT_USER: the next address of a call chain is that of an instruction, not of a call.
const USER: u64 = -512i64 as u64;

// Functions, by their number.
const START: u64 = 0;
const LEAF: u64 = 1;
const FRAMED: u64 = 2;
const DYNAMIC: u64 = 3;
const KEPT: u64 = 4;
const SAVING: u64 = 5;
const SIGNAL: u64 = 6;
const BARE: u64 = 7;
const POPPED: u64 = 8;

/// CIE: version 1, "zR", factors 4 and -8, return address in x30, pc-relative pointers; CFA is sp.
const CIE: [u8; 16] = [1, b'z', b'R', 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0, 0, 0, 0, 0];
/// The same for signals.
const SIGNAL_CIE: [u8; 16] = [1, b'z', b'R', b'S', 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0, 0, 0, 0];

/// Instructions of the functions that have tables.
const TABLES: [(u64, [u8; 16], &[u8]); 8] = [
    // x30 is undefined.
    (START, CIE, &[0x07, 30]),
    (LEAF, CIE, &[]),
    // paciasp; stp x29, x30, [sp, #-48]!
    (FRAMED, CIE, &[0x41, 0x2d, 0x41, 0x0e, 48, 0x9d, 6, 0x9e, 5]),
    // stp x29, x30, [sp, #-32]!; mov x29, sp: the CFA is x29 + 32, wherever sp is.
    (DYNAMIC, CIE, &[0x41, 0x0e, 32, 0x9d, 4, 0x9e, 3, 0x41, 0x0d, 29]),
    // mov x19, x30; sub sp, sp, #16
    (KEPT, CIE, &[0x41, 0x09, 30, 19, 0x41, 0x0e, 16]),
    // stp x29, x30, [sp, #-16]!; ...; ldp x29, x30, [sp], #16: the table says only that the CFA is sp again.
    (POPPED, CIE, &[0x41, 0x0e, 16, 0x9d, 2, 0x9e, 1, 0x42, 0x0e, 0]),
    // stp x19, x30, [sp, #-16]!
    (SAVING, CIE, &[0x41, 0x0e, 16, 0x93, 2, 0x9e, 1]),
    // The kernel leaves x29 and the address at x29.
    (SIGNAL, SIGNAL_CIE, &[0x0c, 29, 0, 0x11, 29, 0, 0x11, 30, 0x7f]),
];

fn at(function: u64, offset: u64) -> u64 {
    CODE + 0x100 * function + offset
}

/// Signs a return address.
fn signed(address: u64) -> u64 {
    address | 0x2a15 << 48
}

/// A sample and its call chain.
struct Case {
    name: &'static str,
    registers: Vec<(usize, u64)>,
    /// Words from the stack pointer.
    words: Vec<u64>,
    chain: Vec<u64>,
}

fn case(name: &'static str, registers: &[(usize, u64)], words: &[u64], chain: &[u64]) -> Case {
    Case {
        name,
        registers: registers.to_vec(),
        words: words.to_vec(),
        chain: chain.to_vec(),
    }
}

fn cases() -> Vec<Case> {
    let start = at(START, 12);
    vec![
        case(
            "a function that calls nothing",
            &[(30, at(FRAMED, 20))],
            &[0, signed(start), 0, 0, 0, 0],
            &[at(LEAF, 8), at(FRAMED, 19), start - 1],
        ),
        case(
            "before its first instruction",
            &[(30, start)],
            &[0],
            &[at(FRAMED, 0), start - 1],
        ),
        case(
            "signed, but not saved",
            &[(30, signed(start))],
            &[0],
            &[at(FRAMED, 4), start - 1],
        ),
        case(
            "saved; x30 is that of a call that returned",
            &[(30, at(LEAF, 8))],
            &[0, signed(start), 0, 0, 0, 0],
            &[at(FRAMED, 8), start - 1],
        ),
        case(
            "a frame of any size",
            &[(29, STACK + 64)],
            &[
                // what it has allocated
                1,
                2,
                3,
                4,
                5,
                6,
                7,
                8, //
                0,
                at(FRAMED, 20),
                0,
                0, //
                0,
                signed(start),
                0,
                0,
                0,
                0,
            ],
            &[at(DYNAMIC, 16), at(FRAMED, 19), start - 1],
        ),
        case(
            "the return address in another register",
            &[(19, start), (30, at(LEAF, 8))],
            &[0, 0],
            &[at(KEPT, 8), start - 1],
        ),
        case(
            "that register, saved by the callee",
            &[(19, 1), (30, 1)],
            &[start, at(KEPT, 16), 0, 0],
            &[at(SAVING, 8), at(KEPT, 15), start - 1],
        ),
        case(
            "a signal handler; the interrupted function has a frame",
            &[],
            &[
                // frame of the handler
                STACK + 64,
                signed(at(SIGNAL, 4)),
                0,
                0,
                0,
                0,
                0,
                0, //
                // x29 and address of the interrupted function, then its frame
                STACK + 88,
                at(DYNAMIC, 16),
                0,
                0,
                start,
                0,
                0,
            ],
            &[
                at(FRAMED, 20),
                USER,
                at(SIGNAL, 4),
                USER,
                at(DYNAMIC, 16),
                start - 1,
            ],
        ),
        case(
            "without tables, before its frame",
            &[(30, start)],
            &[0],
            &[at(BARE, 0), start - 1],
        ),
        case(
            "without tables, before the frame pointer is set",
            &[(29, 1), (30, start)],
            &[0, start],
            &[at(BARE, 4), start - 1],
        ),
        case(
            "without tables, by the frame pointer",
            &[(29, STACK + 16), (30, 1)],
            &[0, 0, 0, signed(start)],
            &[at(BARE, 8), start - 1],
        ),
        case(
            "a frame record at the bottom of its frame, then a function whose table counts from the stack pointer",
            &[(29, STACK), (30, 1)],
            &[
                STACK + 48,
                at(FRAMED, 20),
                // registers that the function without tables has saved
                1,
                2,
                3,
                4, //
                0,
                signed(start),
                0,
                0,
                0,
                0,
            ],
            &[at(BARE, 8), at(FRAMED, 19), start - 1],
        ),
        case(
            "after the frame record was popped",
            &[(29, 0), (30, signed(start))],
            // What was below the stack pointer is not in the copy.
            &[0],
            &[at(POPPED, 12), start - 1],
        ),
    ]
}

#[test]
fn callers_are_found_in_the_link_register_and_on_the_stack() {
    let folder = scratch();
    let dump_path = folder.path().join("jit-10.dump");
    let mut dump = DumpWriter::new(ENDIAN, AARCH64, 10);
    let nops = 0xd503_201fu32.to_le_bytes().repeat(SIZE as usize / 4);
    for (function, cie, instructions) in TABLES {
        let (tables, header) = dump::tables_of(SIZE, &cie, instructions);
        dump.unwinding(1000, &tables, &header);
        if function == DYNAMIC {
            let lines = [(at(DYNAMIC, 0), 1), (at(DYNAMIC, 16), 2)];
            dump.lines(1000, at(DYNAMIC, 0), b"code.js", &lines);
        }
        dump.load(1000, at(function, 0), function, b"function", &nops);
    }
    // stp x29, x30, [sp, #-16]!; mov x29, sp
    let prologue = [0xa9bf_7bfdu32, 0x9100_03fd].map(u32::to_le_bytes).concat();
    let bare = [&prologue, &nops[prologue.len()..]].concat();
    dump.load(1000, at(BARE, 0), BARE, b"function", &bare);
    std::fs::write(&dump_path, &dump.bytes).unwrap();

    let mut profile = ProfileWriter::new(ENDIAN);
    profile.registers = Registers::AARCH64;
    profile.sample_type |= field::REGS_USER | field::STACK_USER;
    profile.features.push(architecture("aarch64"));
    profile.comm(10, "work", true, 100);
    profile.mmap2(10, CODE, 0x10_0000, 0, "//anon", 200);
    profile.mmap2(10, CODE + 0x20_0000, 0x1000, 0, text(&dump_path), 300);
    let cases = cases();
    for (time, case) in (2000..).zip(&cases) {
        let sample = profile.records.len();
        let bytes: Vec<u8> = case.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let copy = UserStack {
            sp: STACK,
            bytes: &bytes,
        };
        profile.sample(10, time, &[case.chain[0]], Some(&copy));
        for &(register, value) in &case.registers {
            let place = sample + REGISTERS + 8 * register;
            profile.records[place..place + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &["-v", "--unwind"]);
    let parts = model::parse(&std::fs::read(&output).unwrap());
    let samples = parts
        .records
        .iter()
        .filter(|record| model::kind(record, ENDIAN) == 9);
    let mut found = 0;
    for (sample, case) in samples.zip(&cases) {
        let word = |at| model::word(sample, ENDIAN, at);
        let chain = (1..word(CHAIN) as usize).map(|entry| word(CHAIN + 8 + 8 * entry));
        let chain: Vec<u64> = chain.collect();
        assert_eq!(chain, case.chain, "{}: {chain:x?}", case.name);
        found += 1;
    }
    assert_eq!(found, cases.len());
    let all = format!("; {} to the start of the thread", cases.len());
    assert!(said.contains(&all), "{said}");

    // One sample was taken at the second line, and a signal interrupted that line in another one.
    for profile in [&input, &output] {
        let report = jitinject()
            .args(["report", "--by", "line", "--json", text(profile)])
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let rows = report["rows"].as_array().unwrap().iter();
        let lines = rows.filter(|row| row["file"] == "code.js");
        let lines: Vec<_> = lines
            .map(|row| (&row["line"], &row["total"]["samples"]))
            .collect();
        assert_eq!(lines, [(&Value::from(2), &Value::from(2))], "{report:#}");
    }
}

/// The frame records of a real program were followed by another program. It finds fewer frames, but each of them is one.
#[test]
fn callers_of_node_are_those_of_its_frame_records() {
    let folder = scratch();
    let recorded = capture::folder("node20-arm64-dwarf");
    let unpacked = |name: &str| zstd::decode_all(&*std::fs::read(recorded.join(name)).unwrap()).unwrap();
    let files = folder.path().join("files");
    tar::Archive::new(&*unpacked("symfs.tar.zst"))
        .unpack(&files)
        .unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, unpacked("perf.data.zst")).unwrap();
    let output = folder.path().join("out.data");
    let options = ["--unwind", "--jitdump", text(&recorded), "--symfs", text(&files)];
    inject(&input, &output, &options);

    let parts = model::parse(&std::fs::read(&output).unwrap());
    let samples = parts
        .records
        .iter()
        .filter(|record| model::kind(record, ENDIAN) == 9);
    let chains = samples.map(|sample| {
        let word = |at| model::word(sample, ENDIAN, at);
        // Address of the instruction, process and thread, time, address of the data, period, call chain.
        let (thread, time) = (word(16) >> 32, word(24));
        let chain = (0..word(48) as usize).map(|entry| word(56 + 8 * entry));
        ((thread, time), chain.collect())
    });
    let chains: HashMap<(u64, u64), Vec<u64>> = chains.collect();
    let table = std::fs::read_to_string(recorded.join("frame-records.tsv")).unwrap();
    let mut stacks = 0;
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let mut fields = row.split('\t');
        let mut number = || fields.next().unwrap().parse::<u64>().unwrap();
        let chain = &chains[&(number(), number())];
        let _end = fields.next().unwrap();
        for call in fields.next().unwrap().split(' ').filter(|call| !call.is_empty()) {
            let call = u64::from_str_radix(call, 16).unwrap();
            assert!(chain.contains(&call), "{call:x} of {row}: {chain:x?}");
        }
        stacks += 1;
    }
    assert_eq!(stacks, 130);
}

/// Erlang writes x86-64's number on this machine, too.
#[test]
fn code_has_the_machine_that_it_ran_on() {
    let folder = scratch();
    let dump_path = folder.path().join("jit-10.dump");
    let mut dump = DumpWriter::new(ENDIAN, X86_64, 10);
    dump.load(1000, CODE, 0, b"function", &[0; SIZE as usize]);
    std::fs::write(&dump_path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ENDIAN);
    profile.features.push(architecture("aarch64"));
    profile.mmap2(10, CODE, 0x1000, 0, "//anon", 200);
    profile.mmap2(10, CODE + 0x20_0000, 0x1000, 0, text(&dump_path), 300);
    profile.sample(10, 2000, &[CODE + 8], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &["-v"]);
    assert!(has_code(&said, "JI036"), "{said}");
    let objects = objects_of(&output);
    let machines = objects.iter().filter(|path| path.is_file()).map(|path| {
        let file = std::fs::read(path).unwrap();
        u32::from(ENDIAN.u16_at(&file, 18).unwrap())
    });
    assert_eq!(machines.collect::<Vec<_>>(), [AARCH64]);
}
