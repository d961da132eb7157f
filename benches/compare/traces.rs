//! Compares the processing of XRay traces with LLVM's own reader.

use std::fs;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;
use jitinject::internals::traces::xray::format::{RecordKind, TraceMode};

use crate::cases::{Bench, number, ratio, section};
use crate::contest::{self, Contestant};
use crate::programs;
use crate::table::Section;
use crate::xray_trace::{Buffer, Record, Writer};

/// An instrumented binary with at least [`FUNCTIONS`] functions.
const BINARY: &str = "testdata/xray-fdr-pie14/work";
const FUNCTIONS: u32 = 8;

/// Returns a trace of one thread: calls of two functions in a loop, each of which calls others. llvm-xray rejects
/// records of a thread that are not sorted by time, and misorders more than sixteen buffers.
fn trace(records: u64) -> Vec<u8> {
    const BUFFERS: u64 = 10;
    const NANOSECONDS: u64 = 50;
    /// A tick is one nanosecond.
    const START: u64 = 1_790_000_000_000_000_000;
    let mut steps = Vec::new();
    for outer in [1, 2] {
        steps.push((outer, true));
        for inner in 3..=FUNCTIONS {
            steps.extend([(inner, true), (inner, false)]);
        }
        steps.push((outer, false));
    }
    let mut steps = steps.into_iter().cycle();
    let mut writer = Writer::new(TraceMode::Fdr, 5, ByteOrder::Little, 1 << 20);
    for buffer in 0..BUFFERS {
        let first = buffer * (records / BUFFERS) * NANOSECONDS;
        let records = (0..records / BUFFERS)
            .zip(&mut steps)
            .map(|(at, (function, is_entry))| Record {
                tick: START + first + at * NANOSECONDS,
                cpu: 0,
                kind: if is_entry {
                    RecordKind::Enter { function }
                } else {
                    RecordKind::Exit { function }
                },
            });
        writer.buffer(&Buffer {
            process: 1000,
            thread: 1000,
            wall: (
                1000 + first / 1_000_000_000,
                (first % 1_000_000_000 / 1000) as u32,
            ),
            records: records.collect(),
        });
    }
    writer.finish()
}

pub fn traces(bench: &Bench<'_>) -> Vec<Section> {
    const LLVM: &str = "llvm-xray account";
    let records = bench.scaled(10_000_000);
    let path = bench.path("trace.xray");
    fs::write(&path, trace(records)).unwrap();
    contest::warm(&[&path]);
    let binary = PathBuf::from(BINARY);
    let options = [&[][..], &["--resample", "10us"], &["--aggregate"]];
    let ours = options.map(|options: &[&str]| {
        let name = ["jitinject"]
            .iter()
            .chain(options)
            .copied()
            .collect::<Vec<_>>()
            .join(" ");
        let folder = bench.path(&name.replace([' ', '-'], ""));
        let (path, binary) = (&path, &binary);
        let output = folder.join("out.data");
        Contestant::new(&name, bench.runs(), &[&folder], move || {
            let binary = ["--xray-binary", binary.to_str().unwrap()];
            programs::jitinject(path, &output, &[&binary[..], options].concat())
        })
    });
    let names = ["jitinject", "jitinject --resample 10us", "jitinject --aggregate"];
    let llvm = Contestant::new(LLVM, bench.runs().min(3), &[], || {
        programs::account(&path, Path::new(BINARY))
    });
    let rows = bench.run(ours.into_iter().chain([llvm]).collect());
    let speeds = names.map(|name| {
        let row = rows.iter().find(|row| row.program == name)?;
        let minute = |seconds: f64| number((records as f64 / seconds * 60.0 / 1e6) as u64);
        Some(format!(
            "{name}: {} million records a minute (at best {})",
            minute(row.wall()),
            minute(row.least())
        ))
    });
    let ratios = names.map(|name| ratio(&rows, LLVM, name, true));
    let title = format!("A trace of XRay with {} records", number(records));
    vec![section(title, rows, ratios.into_iter().chain(speeds))]
}
