//! Examples of the library.

use std::path::Path;
use std::process::Command;

use jitdump::ByteOrder;
use object::{Object, ObjectSymbol};

use crate::support::dump::DumpWriter;
use crate::support::lines::{Layout, STRETCH, Site, model, write_lines};
use crate::support::{capture, said, scratch, shown, symbolizer, tools};

/// Runs an example, which `cargo test` has built. Returns its standard output.
fn example(name: &str, arguments: &[&str]) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_jitinject")).parent().unwrap();
    let path = programs.join("examples").join(name);
    let output = Command::new(&path).args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("{}: {error}; run cargo build --examples", path.display()));
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_jitdump_is_read() {
    let text = example(
        "read_jitdump",
        &[tools::text(&capture::folder("node20").join("jit-11682.dump"))],
    );
    assert_eq!(text.lines().filter(|line| line.contains(" load, ")).count(), 2251);
    assert!(text.contains("TurboFan: JS:*"), "{text}");
}

/// A function with inlined calls moves. Each range of its code is looked up at both addresses.
#[test]
fn lookups_by_address_and_time_have_lines_and_inlined_calls() {
    const ADDRESSES: [u64; 2] = [0x7000_0000, 0x7100_0000];
    let folder = scratch();
    let model = model(0);
    let size = model.len() as u64 * u64::from(STRETCH);
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 77);
    write_lines(&mut dump, Layout::Positions, 1000, ADDRESSES[0], &model);
    dump.load(1000, ADDRESSES[0], 0, b"fn_0", &vec![0x90; size as usize]);
    dump.moved(2000, ADDRESSES[0], ADDRESSES[1], size, 0);
    let path = folder.path().join("jit-77.dump");
    std::fs::write(&path, &dump.bytes).unwrap();
    let lookup = |address: u64, time: &str| {
        example(
            "who_was_there",
            &[tools::text(&path), &format!("{address:#x}"), time],
        )
    };
    for (start, time, since) in [(ADDRESSES[0], "1500", 1000), (ADDRESSES[1], "2000", 2000)] {
        for (index, chain) in (0u64..).zip(&model) {
            let offset = index * u64::from(STRETCH) + 3;
            let mut expected = format!("fn_0+{offset:#x}, there since {since}\n");
            for site in chain {
                expected += &format!("  {} at {}:{}:", site.function, site.file, site.line);
                expected += "\n";
            }
            let found = lookup(start + offset, time);
            let without_columns = found.lines().map(|line| {
                if line.starts_with("  ") {
                    line.trim_end_matches(|character: char| character.is_ascii_digit())
                } else {
                    line
                }
            });
            assert_eq!(
                without_columns.collect::<Vec<_>>(),
                expected.lines().collect::<Vec<_>>()
            );
        }
    }
    assert!(lookup(ADDRESSES[0], "2000").starts_with("no function"));
    assert!(lookup(ADDRESSES[0], "999").starts_with("no function"));
}

#[test]
fn an_object_is_made_with_a_symbol_and_lines() {
    let folder = scratch();
    let path = folder.path().join("add.so");
    example("make_elf", &[tools::text(&path)]);
    let bytes = std::fs::read(&path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok("add")).unwrap();
    let sites = symbolizer::sites(&path, &[symbol.address()]);
    assert_eq!(sites, [[Site::new("add", "/src/add.toy", 2)]]);
}

#[test]
fn a_profile_is_rewritten_with_the_samples_of_one_process() {
    let folder = scratch();
    let output = folder.path().join("one.data");
    let input = capture::profile("multi");
    let expected = shown::leaves(&input)
        .into_iter()
        .filter(|sample| sample.pid == 4832)
        .count();
    example(
        "rewrite_profile",
        &[tools::text(&input), tools::text(&output), "4832"],
    );
    let samples = shown::leaves(&output);
    assert!(expected > 0 && samples.len() == expected);
    assert!(samples.iter().all(|sample| sample.pid == 4832));
}
