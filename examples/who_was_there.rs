//! Prints the function of a jitdump that contains an address at a time, with inlined calls and lines:
//!
//!     cargo run --example who_was_there -- testdata/llvm19-jitlink/.debug/jit/*/jit-*.dump 0x7f128f00106e
//!
//! The time defaults to the end of the dump.

use std::path::Path;

use jitinject::bytes::printable;
use jitinject::code::process::{ProcessEvent, Processes};
use jitinject::code::timeline::{FileIndex, FunctionId, Lookup, PlacedEvent, Timeline};
use jitinject::files::InputFile;
use jitinject::machine::Machine;
use jitinject::runtime::jitdump::Dump;
use jitinject::units::{Address, Pid, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: who_was_there JITDUMP ADDRESS [TIME]";
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or(usage)?;
    let address = arguments.next().ok_or(usage)?;
    let address = Address(u64::from_str_radix(address.trim_start_matches("0x"), 16)?);
    let time = arguments
        .next()
        .map_or(Ok(Time::LAST), |time| time.parse().map(Time))?;

    let file = InputFile::open(Path::new(&path))?;
    let dump = Dump::parse(&file, Machine::host())?;
    // Without a profile's process events, assume one process that exists all the time.
    let pid = Pid(dump.header().pid);
    let processes = Processes::new(vec![ProcessEvent::Exec(pid, Time(0))]);
    let space = processes.space_at(pid, time).ok_or("no such time")?;
    let events = dump.events().filter_map(|event| {
        let function = FunctionId {
            file: FileIndex(0),
            function: event.function,
        };
        // The dump's own times are used as the profile's.
        PlacedEvent::new(
            &event,
            function,
            dump.range(event.function)?,
            space,
            Time(event.time.0),
        )
    });
    let timeline = Timeline::new(&processes, events.collect());

    let Lookup::Function(mapping) = timeline.at(space, address, time) else {
        println!("no function held {:#x} then", address.0);
        return Ok(());
    };
    let mapping = timeline.mappings()[mapping];
    let function = dump
        .function(mapping.function.function)
        .ok_or("no such function")?;
    let offset = u32::try_from(address.0 - mapping.range.start.0)?;
    println!(
        "{}+{offset:#x}, there since {}",
        printable(function.name),
        mapping.since.0
    );
    // Source locations: inlined calls first, the function itself last.
    let info = dump.sources(&function).info.unwrap_or_default();
    for frame in info.frames_at(offset) {
        let called = info.functions.get(frame.function as usize);
        let name = called.map(|called| called.name).filter(|name| !name.is_empty());
        let file = frame.file.and_then(|file| info.files.get(file as usize));
        let file = file.map_or("unknown file".into(), |file| printable(&file.path));
        println!(
            "  {} at {file}:{}:{}",
            printable(name.unwrap_or(function.name)),
            frame.line,
            frame.column
        );
    }
    Ok(())
}
