//! Tables for unwinding that are designed to be slow.

use std::fs;

use jitdump::ByteOrder;

use crate::support::dump::{DumpWriter, X86_64, tables_of};
use crate::support::profile::{ProfileWriter, UserStack, field};
use crate::support::{inject, tools};

const CODE: u64 = 0x7f00_1000_0000;
const STACK: u64 = 0x7ff0_0000_0000;
const SIZE: u64 = 61;

/// Unwinds 100 samples, whose stacks are full of return addresses into a function with these instructions.
fn work(instructions: &[u8]) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let cie = [1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
    let (tables, header) = tables_of(SIZE, &cie, instructions);
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 10);
    dump.unwinding(1000, &tables, &header);
    dump.load(1000, CODE, 0, b"slow", &[0x90; SIZE as usize]);
    let path = folder.path().join("jit-10.dump");
    fs::write(&path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type |= field::REGS_USER | field::STACK_USER;
    profile.mmap2(10, CODE, 0x10_0000, 0, "//anon", 200);
    profile.mmap2(10, CODE + 0x20_0000, 0x1000, 0, tools::text(&path), 300);
    let bytes: Vec<u8> = (0..1024)
        .flat_map(|at| (CODE + 1 + at % 60).to_le_bytes())
        .collect();
    for time in 0..100 {
        let stack = UserStack {
            sp: STACK,
            bytes: &bytes,
        };
        profile.sample(10, 2000 + time, &[CODE + 1], Some(&stack));
    }
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    inject(&input, &output, &["--unwind", "-v"], "100 stacks unwound")
}

/// Each table is evaluated once, not for each frame, and an entry has a limit.
#[test]
fn long_tables_are_evaluated_once() {
    let states = |size: usize| {
        // Rules for all registers, then DW_CFA_remember_state and DW_CFA_restore_state.
        let mut states: Vec<u8> = (0..17).flat_map(|register| [0x80 | register, 1]).collect();
        states.extend([0x0a, 0x0b].repeat(size / 2));
        states
    };
    // More rows than bytes of code.
    let rows = |size| vec![0x40; size];
    let usual = work(&[0x0e, 8]);
    for (name, long) in [("states", work(&states(40_000))), ("rows", work(&rows(60_000)))] {
        println!("{name}: {long} blocks, otherwise {usual}");
        assert!(long < 4 * usual, "{name}: {long} blocks, otherwise {usual}");
    }
}

#[test]
fn loops_in_expressions_end() {
    let cfa = |expression: &[u8]| [&[0x0f, expression.len() as u8], expression].concat();
    let usual = work(&[0x0e, 8]);
    // DW_OP_skip to itself; a value that is pushed again and again
    for expression in [&[0x2f, 0xfd, 0xff][..], &[0x77, 0, 0x12, 0x2f, 0xfc, 0xff]] {
        let long = work(&cfa(expression));
        println!("{long} blocks, otherwise {usual}");
        assert!(long < 4 * usual, "{long} blocks, otherwise {usual}");
    }
}
