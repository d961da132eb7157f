//! `jitinject report FUNCTION --instructions`: disassembly with samples, of several copies, and where there is none.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use jitdump::ByteOrder;
use serde_json::Value;

use crate::support::dump::{AARCH64, DumpWriter, X86_64};
use crate::support::profile::{ProfileWriter, architecture};
use crate::support::recording::PID;
use crate::support::{capture, jitinject, said, scratch, tools};

/// Addresses of the functions.
const FIRST: u64 = 0x4000_0000;
const CALLEE: u64 = 0x4000_1000;
const SECOND: u64 = 0x4000_2000;

/// push, mov, a call of the function at `CALLEE`, a branch to the second instruction, ret.
const LOOP: &[u8] = b"\x55\x48\x89\xe5\xe8\xf7\x0f\x00\x00\x75\xf6\xc3";

/// RISC-V.
const RISCV: u32 = 243;

/// A recording of one process with a dump.
struct Made {
    _folder: tempfile::TempDir,
    profile: PathBuf,
}

impl Made {
    /// Writes a dump with two copies of a function and one that it calls, and a profile with samples at addresses.
    fn new(machine: u32, code: &[u8], samples: &[u64]) -> Self {
        let folder = scratch();
        let dump = folder.path().join(format!("jit-{PID}.dump"));
        let mut writer = DumpWriter::new(ByteOrder::Little, machine, PID);
        writer.load(900, CALLEE, 0, b"ca\x1b[2Jllee", &[0xc3]);
        for (index, address) in [(1, FIRST), (2, SECOND)] {
            writer.lines(1000, address, b"/src/app.js", &[(address, 7), (address + 4, 9)]);
            writer.load(1000, address, index, b"spin", code);
        }
        fs::write(&dump, writer.bytes).unwrap();
        let mut writer = ProfileWriter::new(ByteOrder::Little);
        let architectures = [(X86_64, "x86_64"), (AARCH64, "aarch64")];
        let own = architectures.iter().find(|(known, _)| *known == machine);
        writer.features.extend(own.map(|(_, name)| architecture(name)));
        writer.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&dump), 500);
        writer.mmap2(PID, FIRST, 0x4000, 0, "//anon", 501);
        for (time, &address) in (2000..).zip(samples) {
            writer.sample(PID, time, &[address], None);
        }
        let profile = folder.path().join("perf.data");
        fs::write(&profile, writer.finish()).unwrap();
        Self {
            _folder: folder,
            profile,
        }
    }

    fn run(&self, more: &[&str]) -> Output {
        let report = ["report", "-i", tools::text(&self.profile)];
        jitinject().args([&report[..], more].concat()).output().unwrap()
    }

    fn printed(&self, more: &[&str]) -> String {
        let output = self.run(more);
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the copies of a function.
    fn copies(&self, more: &[&str]) -> Vec<Value> {
        let printed = self.printed(&[&["spin", "--json"], more].concat());
        let report: Value = serde_json::from_str(&printed).unwrap();
        report["function"]["code"]["copies"].as_array().unwrap().clone()
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Offset, text, samples and line of each instruction of a copy.
fn instructions(copy: &Value) -> Vec<(u64, String, u64, u64)> {
    let instructions = array(&copy["instructions"]).iter();
    instructions
        .map(|instruction| {
            (
                instruction["offset"].as_u64().unwrap(),
                instruction["text"].as_str().unwrap().to_owned(),
                instruction["self"]["samples"].as_u64().unwrap(),
                instruction["lines"][0]["line"].as_u64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn samples_count_for_the_instruction_at_their_address() {
    let made = Made::new(
        X86_64,
        LOOP,
        &[FIRST + 1, FIRST + 1, FIRST + 1, FIRST + 4, SECOND],
    );
    let copies = made.copies(&["--instructions"]);
    let counts: Vec<_> = copies
        .iter()
        .map(|copy| copy["self"]["samples"].as_u64())
        .collect();
    assert_eq!(counts, [Some(4), Some(1)]);
    let found = instructions(&copies[0]);
    let found: Vec<_> = found
        .iter()
        .map(|(offset, text, samples, line)| (*offset, &**text, *samples, *line))
        .collect();
    // Names are printable, and targets are addresses of a time.
    assert_eq!(
        found,
        [
            (0, "push %rbp", 0, 7),
            (1, "mov %rsp,%rbp", 3, 7),
            (4, "call ca\\u{1b}[2Jllee", 1, 9),
            (9, "jne +1", 0, 9),
            (11, "ret", 0, 9),
        ]
    );
    // Other copies are listed only.
    assert_eq!(array(&copies[1]["instructions"]).len(), 0);
    let all = made.copies(&["--instructions=0"]);
    assert_eq!(array(&all[1]["instructions"]).len(), 5);
    let text = made.printed(&["spin", "--instructions"]);
    let row = |end: &str| {
        let mut lines = text.lines();
        lines.find(|line| line.ends_with(end)).map(str::to_owned)
    };
    assert_eq!(row("mov %rsp,%rbp").unwrap(), "   75.00      +1  mov %rsp,%rbp");
    assert!(
        row("spin app.js:9")
            .unwrap()
            .starts_with("   25.00      +4  call ca"),
        "{text}"
    );
    assert!(
        text.contains("   80.00  spin at 0x40000000, 12 bytes\n"),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
    let markdown = made.printed(&["spin", "--instructions", "--markdown"]);
    assert!(
        markdown.contains("\n   75.00      +1  mov %rsp,%rbp\n"),
        "{markdown}"
    );
}

#[test]
fn code_without_disassembly_says_why() {
    // Code below 4 GiB is that of 32 bits.
    let made = Made::new(RISCV, LOOP, &[FIRST]);
    let text = made.printed(&["spin", "--instructions"]);
    assert!(
        text.contains("no instructions: no disassembly for riscv32, only for x86-64"),
        "{text}"
    );
    // Perf maps have no code.
    let text = of_capture(
        "mono-map",
        "--perf-map",
        &["Work/Node`1<int>:Insert (int)", "--instructions"],
    );
    assert!(
        text.contains("no instructions: no file here has its machine code\n"),
        "{text}"
    );
}

/// Runs `jitinject report` on a capture with the files beside it.
fn of_capture(name: &str, option: &str, more: &[&str]) -> String {
    let (folder, profile) = (capture::folder(name), capture::profile(name));
    let output = jitinject()
        .args([
            "report",
            "-i",
            tools::text(&profile),
            option,
            tools::text(&folder),
        ])
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn instructions_are_those_of_a_function() {
    let made = Made::new(
        AARCH64,
        b"\x1f\x20\x03\xd5\xff\xff\xff\x17\xff\xff\xff\xff",
        &[FIRST],
    );
    let found = instructions(&made.copies(&["--instructions"])[0]);
    let texts: Vec<&str> = found.iter().map(|(_, text, ..)| &**text).collect();
    assert_eq!(texts, ["nop", "b +0", ".inst 0xffffffff"]);
    let without = made.run(&["--instructions"]);
    assert_eq!(without.status.code(), Some(2), "{}", said(&without));
    let unknown = made.run(&["no_such_function", "--instructions"]);
    assert_eq!(unknown.status.code(), Some(1));
}

#[test]
fn long_code_is_shown_around_samples() {
    let made = Made::new(X86_64, &[0x90; 5000], &[FIRST + 100, FIRST + 4000]);
    let copies = made.copies(&["--instructions"]);
    let offsets: Vec<u64> = instructions(&copies[0]).iter().map(|it| it.0).collect();
    assert_eq!(offsets, (92..=108).chain(3992..=4008).collect::<Vec<u64>>());
    let text = made.printed(&["spin", "--instructions"]);
    assert_eq!(
        text.lines().filter(|line| line.trim() == "...").count(),
        3,
        "{text}"
    );
}

#[test]
fn copies_have_all_their_samples() {
    let printed = of_capture(
        "java17",
        "--jitdump",
        &["Work.round(int)", "--instructions=0", "--json"],
    );
    let report: Value = serde_json::from_str(&printed).unwrap();
    let function = &report["function"];
    let copies = array(&function["code"]["copies"]);
    assert_eq!(copies.len(), 2);
    for copy in copies {
        let instructions = array(&copy["instructions"]).iter();
        let sum: u64 = instructions
            .map(|it| it["self"]["samples"].as_u64().unwrap())
            .sum();
        assert_eq!(copy["self"]["samples"], sum, "{}", copy["symbol"]);
    }
}
