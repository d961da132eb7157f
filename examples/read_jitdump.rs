//! Prints what a jitdump says happened to its functions, in the order of time:
//!
//!     cargo run --example read_jitdump -- testdata/node20/jit-11682.dump

use std::path::Path;

use jitinject::bytes::printable;
use jitinject::files::MappedFile;
use jitinject::machine::Machine;
use jitinject::runtime::Change;
use jitinject::runtime::jitdump::Dump;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: read_jitdump JITDUMP")?;
    // A map of the file: dumps have hundreds of megabytes, and little of them is looked at.
    let file = MappedFile::open(Path::new(&path))?;
    // The machine is asked for, since not all runtimes tell theirs.
    let dump = Dump::parse(&file, Machine::host())?;
    for event in dump.events() {
        let Some(function) = dump.function(event.function) else {
            continue;
        };
        let what = match event.change {
            Change::Load => format!("{:#x} load", function.range.start.0),
            Change::Move { from, to } => format!("{:#x} move from {:#x}", to.0, from.0),
            Change::Unload => format!("{:#x} unload", function.range.start.0),
        };
        let lines = dump.sources(&function).info.map_or(0, |info| info.rows.len());
        let tier = function.tier().map_or("unknown tier".into(), printable);
        let (time, size, name) = (event.time.0, function.range.size(), printable(function.name));
        println!("{time} {what}, {size} bytes, {lines} lines, {tier}: {name}");
    }
    // What could not be used, by kind.
    for (fault, seen) in dump.faults().iter() {
        println!("{fault} ({}, the first at {:#x})", seen.count, seen.first_offset);
    }
    Ok(())
}
