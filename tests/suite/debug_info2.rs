//! Lines and inlined calls in DEBUG_INFO2 records, and in records that contradict each other.

use std::collections::BTreeSet;

use jitdump::ByteOrder;
use serde_json::Value;

use crate::support::code_sites;
use crate::support::debug_lists::{KIND, Lists};
use crate::support::dump::{DumpWriter, X86_64};
use crate::support::lines::{Site, positions};
use crate::support::profile::ProfileWriter;
use crate::support::reports::{inject_with_summary, only};
use crate::support::tools::text;
use crate::support::{diagnostics, objects_of, scratch};

const START: u64 = 0x7000_0000;
const NEXT: u64 = START + 64;
const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];
/// Type of a DEBUG_INFO2 record with positions.
const POSITIONS: u32 = 827_346_260;
/// Type of a JIT_TIER record in the older numbering.
const TIER: u32 = 827_346_260;

/// Name of a function with a declaration only.
const WITHOUT_LINES: &str = "[opt] outer";

/// What jitinject makes of a dump with functions of 48 bytes at [`START`] and [`NEXT`], one sample in each.
struct Made {
    /// Call chains of all code, such as `inner b.c:5 < outer a.c:7`.
    chains: BTreeSet<String>,
    symbols: BTreeSet<String>,
    summary: Value,
}

fn made(endian: ByteOrder, more: &[&str], write: impl FnOnce(&mut DumpWriter)) -> Made {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(endian, X86_64, 7);
    write(&mut dump);
    std::fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, text(&path), 500);
    for address in [START + 1, NEXT + 1] {
        profile.sample(7, 1_000_000, &[address], None);
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let (_, summary) = inject_with_summary(&input, &output, more);
    let mut objects = objects_of(&output);
    objects.retain(|path| path.is_file());
    // Functions without lines have no chains.
    let chains = code_sites::chains(&objects, |name| name != WITHOUT_LINES);
    let chains = chains.iter().filter(|chain| !chain.is_empty());
    Made {
        chains: chains.map(|chain| code_sites::shown(chain)).collect(),
        symbols: code_sites::symbols(&objects),
        summary,
    }
}

fn set(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|&one| one.to_owned()).collect()
}

fn load(dump: &mut DumpWriter, start: u64, name: &[u8]) {
    dump.load(1000, start, start, name, &[0x90; 48]);
}

#[test]
fn a_record_in_each_layout_is_not_given_to_the_next_function() {
    for endian in ORDERS {
        let made = made(endian, &[], |dump| {
            dump.record(KIND, 1000, &Lists::new().content(endian));
            let chain = [vec![Site::new("first", "/src/c.c", 7)]];
            dump.record(POSITIONS, 1000, &positions(endian, START, &chain));
            load(dump, START, b"first");
            dump.debug_info(1000, NEXT, b"/src/d.c", 8);
            load(dump, NEXT, b"second");
        });
        assert_eq!(made.chains, set(&["first c.c:7", "second d.c:8"]));
        assert_eq!(only(&made.summary, "JI035")["count"], 1);
    }
}

#[test]
fn sizes_of_strings_without_their_padding_are_rounded() {
    for endian in ORDERS {
        let mut lists = Lists::new();
        lists.files = vec![b"/src/a.c", b"/b.c"];
        let read = |content: Vec<u8>| {
            let made = made(endian, &[], |dump| {
                dump.record(KIND, 1000, &content);
                load(dump, START, b"first");
                dump.debug_info(1000, NEXT, b"/src/d.c", 8);
                load(dump, NEXT, b"second");
            });
            made.chains
        };
        let expected = set(&["outer a.c:10", "outer a.c:11", "second d.c:8"]);
        let renamed = |chains: BTreeSet<String>| -> BTreeSet<String> {
            chains
                .iter()
                .map(|chain| chain.replace("first", "outer"))
                .collect()
        };
        assert_eq!(renamed(read(lists.content(endian))), expected);
        assert_eq!(renamed(read(lists.with_sizes(endian, |size| size))), expected);
    }
}

#[test]
fn calls_inside_a_line_start_at_their_declaration() {
    let mut lists = Lists::new();
    lists.calls = vec![[0, 1, 1, 20, 2]];
    lists.ranges = vec![[4, 8]];
    let made = made(ByteOrder::Little, &[], |dump| {
        dump.record(KIND, 1000, &lists.content(dump.endian));
        load(dump, START, b"outer");
        load(dump, NEXT, b"second");
    });
    let expected = ["outer a.c:10", "inner b.c:50 < outer a.c:20", "outer a.c:11"];
    assert_eq!(made.chains, set(&expected));
    assert_eq!(only(&made.summary, "JI034")["count"], 2);
}

#[test]
fn ranges_that_are_clipped_missing_or_left_over_are_counted() {
    let mut lists = Lists::new();
    lists.lines = vec![[0, 0, 10, 0], [4, 1, 51, 0], [12, 0, 10, 0], [40, 1, 52, 0]];
    lists.calls = vec![[0, 1, 1, 20, 2], [0, 2, 1, 21, 2]];
    // The second one ends after the function, and the last one is of no call.
    lists.ranges = vec![[4, 8], [40, 100], [20, 0], [24, 4]];
    let made = made(ByteOrder::Little, &[], |dump| {
        dump.record(KIND, 1000, &lists.content(dump.endian));
        load(dump, START, b"outer");
        load(dump, NEXT, b"second");
    });
    assert_eq!(only(&made.summary, "JI033")["count"], 3);
    assert!(
        made.chains.contains("inner b.c:52 < outer a.c:21"),
        "{:?}",
        made.chains
    );
}

#[test]
fn names_come_from_the_fields_of_the_record() {
    const PATTERN: &str = "{name} {file}:{line} [{tier}]";
    for (style, first) in [
        ("full", "[opt] outer@a"),
        ("plain", "outer"),
        (PATTERN, "outer a.c:1 [Ion]"),
    ] {
        let made = made(ByteOrder::Little, &["--names", style], |dump| {
            dump.record(KIND, 1000, &Lists::new().content(dump.endian));
            dump.record(TIER, 1000, b"Ion\0");
            load(dump, START, b"[opt] outer@a");
            load(dump, NEXT, b"second");
        });
        assert!(made.symbols.contains(first), "{:?}", made.symbols);
        let functions = made.summary["profile"]["functions"].to_string();
        assert!(functions.contains(&format!("\"{first}\"")), "{functions}");
    }
}

#[test]
fn inlined_functions_without_a_name_are_named_after_their_line() {
    let mut lists = Lists::new();
    lists.functions[1][0] = u32::MAX;
    lists.lines = vec![[0, 0, 10, 0], [4, 1, 51, 0], [12, 0, 10, 0]];
    lists.calls = vec![[0, 1, 1, 20, 2]];
    lists.ranges = vec![[4, 8]];
    let made = made(ByteOrder::Little, &[], |dump| {
        dump.record(KIND, 1000, &lists.content(dump.endian));
        load(dump, START, b"outer");
        load(dump, NEXT, b"second");
    });
    let named = |chain: &String| chain.starts_with("(anonymous) b.c:51 <");
    assert!(made.chains.iter().any(named), "{:?}", made.chains);
}

#[test]
fn debug_info_is_used_if_the_other_record_has_no_line() {
    let mut lists = Lists::new();
    lists.lines = vec![[0, 9, 10, 0]];
    let made = made(ByteOrder::Little, &[], |dump| {
        dump.record(KIND, 1000, &lists.content(dump.endian));
        dump.debug_info(1000, START, b"/src/d.c", 99);
        load(dump, START, b"outer");
        load(dump, NEXT, b"second");
    });
    assert_eq!(made.chains, set(&["outer d.c:99"]));
}

#[test]
fn a_record_with_only_a_declaration_gives_the_place_of_the_function() {
    let mut lists = Lists::new();
    lists.lines.clear();
    let made = made(ByteOrder::Little, &[], |dump| {
        dump.record(KIND, 1000, &lists.content(dump.endian));
        load(dump, START, WITHOUT_LINES.as_bytes());
        load(dump, NEXT, b"second");
    });
    let functions = made.summary["profile"]["functions"].as_array().unwrap();
    let function = functions
        .iter()
        .find(|function| function["name"] == WITHOUT_LINES);
    assert_eq!(function.unwrap()["file"], "/src/a.c", "{functions:?}");
    assert_eq!(function.unwrap()["line"], 1);
}

/// The number of entries is one too large or too small; the entries are used, and the record is reported.
#[test]
fn a_wrong_number_of_entries_loses_no_lines() {
    for count in [1u64, 3] {
        let made = made(ByteOrder::Little, &[], |dump| {
            let before = dump.bytes.len();
            dump.lines(1000, START, b"/src/a.c", &[(START, 5), (START + 8, 6)]);
            dump.bytes[before + 24..before + 32].copy_from_slice(&count.to_le_bytes());
            load(dump, START, b"first");
            load(dump, NEXT, b"second");
        });
        assert_eq!(made.chains, set(&["first a.c:5", "first a.c:6"]), "{count}");
        assert_eq!(only(&made.summary, "JI023")["count"], 1);
    }
}

#[test]
fn an_invalid_entry_does_not_get_the_line_before() {
    let made = made(ByteOrder::Little, &[], |dump| {
        let lines = [(START, 5), (START + 8, u32::MAX), (START + 16, 6)];
        dump.lines(1000, START, b"/src/a.c", &lines);
        load(dump, START, b"first");
        load(dump, NEXT, b"second");
    });
    assert_eq!(made.chains, set(&["first a.c:5", "first a.c:0", "first a.c:6"]));
    assert_eq!(only(&made.summary, "JI026")["count"], 1);
}

#[test]
fn records_after_their_function_or_with_another_address_are_used() {
    let made = made(ByteOrder::Little, &[], |dump| {
        load(dump, START, b"first");
        dump.debug_info(1000, START, b"/src/d.c", 99);
        let chain = [vec![Site::new("second", "/src/c.c", 7)]];
        dump.record(POSITIONS, 1000, &positions(dump.endian, 0x5000, &chain));
        load(dump, NEXT, b"second");
    });
    assert_eq!(made.chains, set(&["first d.c:99", "second c.c:7"]));
    assert!(diagnostics(&made.summary, "JI017").is_empty(), "{}", made.summary);
}

#[test]
fn columns_beyond_the_room_of_readers_are_left_out() {
    let mut lists = Lists::new();
    lists.lines = vec![[0, 0, 10, 65_534], [8, 0, 11, 65_535], [16, 0, 12, 1 << 31]];
    for version in ["4", "5"] {
        let made = made(ByteOrder::Little, &["--dwarf", version], |dump| {
            dump.record(KIND, 1000, &lists.content(dump.endian));
            load(dump, START, b"outer");
            load(dump, NEXT, b"second");
        });
        assert_eq!(
            made.chains,
            set(&["outer a.c:10", "outer a.c:11", "outer a.c:12"])
        );
        assert_eq!(only(&made.summary, "JI275")["count"], 2);
    }
}

/// Tiers at the start of a file describe them, and not the first function.
#[test]
fn several_tiers_before_a_function_are_not_its_own() {
    for endian in ORDERS {
        let made = made(endian, &["--tiers=symbols"], |dump| {
            for tier in [&b"Interpreter\0"[..], b"Baseline\0", b"Ion\0"] {
                dump.record(TIER, 1000, tier);
            }
            load(dump, START, b"first");
            dump.record(TIER, 1000, b"Ion\0");
            load(dump, NEXT, b"second");
        });
        assert_eq!(made.symbols, set(&["first", "second [Ion]"]));
        assert_eq!(only(&made.summary, "JI021")["count"], 3);
    }
}
