//! Prints the events of a jitdump's functions by time:
//!
//!     cargo run --example read_jitdump -- testdata/node20/jit-11682.dump

// An example reads files of its user.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use jitdump::{Change, Dump, Machine, printable};
use jitinject::internals::files::InputFile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: read_jitdump JITDUMP")?;
    // Mapped, because dumps have hundreds of megabytes, little of which is read.
    let file = InputFile::open(Path::new(&path))?;
    // The machine is a fallback: some runtimes do not write theirs.
    let dump = Dump::parse(&file, Machine::host())?;
    for event in dump.events() {
        let Some(function) = dump.function(event.function) else {
            continue;
        };
        let what = match event.change {
            Change::Load => format!("{:#x} load", function.range.start.0),
            Change::Move { from, to } => format!("{:#x} move from {:#x}", to.0, from.0),
        };
        let lines = function.sources().info.map_or(0, |info| info.rows.len());
        let tier = function.tier().map_or("unknown tier".into(), printable);
        let (time, size, name) = (event.time.0, function.range.size(), printable(function.name));
        println!("{time} {what}, {size} bytes, {lines} lines, {tier}: {name}");
    }
    // Faults by kind.
    for (fault, seen) in dump.faults().iter() {
        println!("{fault} ({}, the first at {:#x})", seen.count, seen.first_offset);
    }
    Ok(())
}
