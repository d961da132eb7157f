//! Lines, columns and discriminators that are larger than what readers of DWARF have room for: no row disappears.

use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use crate::support::debug_lists::{KIND, Lists};
use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::symbolizers;
use crate::support::tools::{report, run, text};
use crate::support::{inject_into, objects_of, perf, scratch};

const START: u64 = 0x7000_0000;
/// Offset of the code in an object.
const TEXT: u64 = 0x40;
/// Distance between two lines in the code, in bytes.
const STEP: u32 = 8;

/// Numbers around each limit: 16, 24, 31 and 32 bits.
const LIMITS: [u32; 11] = [
    (1 << 16) - 1,
    1 << 16,
    (1 << 16) + 1,
    (1 << 24) - 1,
    1 << 24,
    (1 << 24) + 1,
    (1 << 31) - 1,
    1 << 31,
    (1 << 31) + 1,
    u32::MAX - 1,
    u32::MAX,
];

/// Maximum line.
const MAX_LINE: u32 = 1 << 24;

/// Runs jitinject on a dump with a function of 96 bytes, whose debug information `write` writes. Returns the folder, the
/// profile and the object.
fn object(dwarf: &str, write: impl FnOnce(&mut DumpWriter)) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 7);
    write(&mut dump);
    dump.load(1000, START, 0, b"f", &[0x90; 96]);
    std::fs::write(&path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, text(&path), 500);
    for at in 0..=LIMITS.len() as u64 {
        profile.sample(7, 2000, &[START + at * u64::from(STEP)], None);
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder.path(), &input, &["--dwarf", dwarf]);
    let mut objects = objects_of(&output);
    objects.retain(|path| path.is_file());
    assert_eq!(objects.len(), 1);
    (folder, output, objects.remove(0))
}

/// Checks that each reader shows these lines, one every [`STEP`] bytes; 0 is none.
fn assert_lines(object: &Path, expected: &[u32], what: &str) {
    let addresses = (0..expected.len() as u64).map(|at| TEXT + at * u64::from(STEP));
    let addresses: Vec<u64> = addresses.collect();
    for (name, ask) in symbolizers::ALL {
        let chains = ask(object, &addresses);
        let lines: Vec<u32> = chains.iter().map(|chain| chain[0].line).collect();
        assert_eq!(lines, expected, "{what}, {name}");
    }
    let said = report("llvm-dwarfdump", &["--verify", text(object)]);
    assert!(said.contains("No errors."), "{what}: {said}");
}

/// Returns the columns that llvm-symbolizer shows, one every [`STEP`] bytes.
fn columns(object: &Path, count: usize) -> Vec<u32> {
    let shown = (0..count as u64).map(|at| {
        let address = format!("{:#x}", TEXT + at * u64::from(STEP));
        let object = format!("--obj={}", text(object));
        let said = run("llvm-symbolizer", &["--output-style=LLVM", &object, &address]);
        let place = said.lines().nth(1).unwrap();
        place.rsplit(':').next().unwrap().parse().unwrap()
    });
    shown.collect()
}

/// Checks that each perf shows a line for each sample.
fn assert_perf_shows_lines(profile: &Path, expected: usize) {
    for program in perf::programs() {
        let arguments = ["script", "-i", text(profile), "-F", "ip,sym,srcline"];
        let shown = perf::perf_with_cache(&program, scratch().path(), &arguments);
        let lines = shown.lines().filter(|line| line.contains("a.c:")).count();
        assert_eq!(lines, expected, "{program}: {shown}");
    }
}

#[test]
fn large_columns_cost_no_line() {
    for dwarf in ["4", "5"] {
        let mut lists = Lists::new();
        lists.lines = (0..)
            .zip(LIMITS)
            .map(|(at, limit)| [at * STEP, 0, at + 1, limit])
            .collect();
        let (_folder, profile, object) = object(dwarf, |dump| {
            dump.record(KIND, 1000, &lists.content(dump.endian));
        });
        let expected: Vec<u32> = (1..=LIMITS.len() as u32).collect();
        assert_lines(&object, &expected, &format!("columns, DWARF {dwarf}"));
        // Columns of records are counted from 0, those of DWARF from 1.
        assert!(columns(&object, LIMITS.len()).iter().all(|&column| column == 0));
        assert_perf_shows_lines(&profile, LIMITS.len() + 1);
    }
}

#[test]
fn the_largest_columns_that_readers_have_room_for_are_shown() {
    for dwarf in ["4", "5"] {
        let mut lists = Lists::new();
        lists.lines = vec![[0, 0, 1, 65_533], [STEP, 0, 2, 65_534], [2 * STEP, 0, 3, 65_535]];
        let (_folder, _profile, object) = object(dwarf, |dump| {
            dump.record(KIND, 1000, &lists.content(dump.endian));
        });
        assert_eq!(columns(&object, 3), [65_534, 65_535, 0]);
    }
}

#[test]
fn large_lines_cost_no_other_line() {
    let shown = |line: u32| if line > MAX_LINE { 0 } else { line };
    for dwarf in ["4", "5"] {
        let mut lists = Lists::new();
        lists.lines = (0..)
            .zip(LIMITS)
            .map(|(at, limit)| [at * STEP, 0, limit, 0])
            .collect();
        lists.lines.push([LIMITS.len() as u32 * STEP, 0, 7, 0]);
        let (_folder, _profile, object) = object(dwarf, |dump| {
            dump.record(KIND, 1000, &lists.content(dump.endian));
        });
        let expected: Vec<u32> = LIMITS.iter().map(|&line| shown(line)).chain([7]).collect();
        assert_lines(
            &object,
            &expected,
            &format!("lines of DEBUG_INFO2, DWARF {dwarf}"),
        );
        let (_folder, _profile, object) = self::object(dwarf, |dump| {
            let lines: Vec<(u64, u32)> = (0..)
                .zip(LIMITS.iter().chain([&7]))
                .map(|(at, &line)| (START + at * u64::from(STEP), line))
                .collect();
            dump.lines(1000, START, b"/src/a.c", &lines);
        });
        assert_lines(&object, &expected, &format!("lines of DEBUG_INFO, DWARF {dwarf}"));
    }
}

/// A dump like LLVM's, whose addresses are too high by 0x40 and whose second number is a discriminator.
#[test]
fn large_discriminators_cost_no_line() {
    const BIAS: u64 = 0x40;
    for dwarf in ["4", "5"] {
        let (_folder, profile, object) = object(dwarf, |dump| {
            let endian = dump.endian;
            let mut content = Vec::new();
            endian.write_u64(&mut content, START);
            endian.write_u64(&mut content, LIMITS.len() as u64 + 1);
            for (at, limit) in (0u64..).zip(LIMITS.into_iter().chain([0])) {
                let end = if at as usize == LIMITS.len() { 24 } else { 0 };
                endian.write_u64(&mut content, START + BIAS + at * u64::from(STEP) + end);
                endian.write_u32(&mut content, at as u32 + 1);
                endian.write_u32(&mut content, limit);
                content.extend_from_slice(b"/src/a.c\0");
            }
            dump.record(2, 1000, &content);
        });
        let expected: Vec<u32> = (1..=LIMITS.len() as u32).collect();
        assert_lines(&object, &expected, &format!("discriminators, DWARF {dwarf}"));
        let shown = run("llvm-dwarfdump", &["--debug-line", text(&object)]);
        assert!(shown.contains("16777215"), "{shown}");
        assert!(!shown.contains("16777216"), "{shown}");
        assert_perf_shows_lines(&profile, LIMITS.len() + 1);
    }
}
