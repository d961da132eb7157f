//! Prints the function of a jitdump that contains an address at a time, with inlined calls and lines:
//!
//!     cargo run --example who_was_there -- testdata/llvm19-jitlink/.debug/jit/*/jit-*.dump 0x7f128f00106e
//!
//! The time defaults to the end of the dump.

use std::path::Path;

use jitdump::symbolize::Jitdump;
use jitdump::{Address, Time, printable};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: who_was_there JITDUMP ADDRESS [TIME]";
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or(usage)?;
    let address = arguments.next().ok_or(usage)?;
    let address = Address(u64::from_str_radix(address.trim_start_matches("0x"), 16)?);
    let time = arguments
        .next()
        .map_or(Ok(Time::LAST), |time| time.parse().map(Time))?;

    let mut dump = Jitdump::open(Path::new(&path))?;
    // `update` is for a file that still grows.
    dump.finish()?;
    let Some(function) = dump.function_at(address, time) else {
        println!("no function held {address:#x} then");
        return Ok(());
    };
    let symbol = dump.symbol(function).ok_or("the file has changed")?;
    let offset = address.0 - function.range.start.0;
    let (name, since) = (printable(&symbol.name), function.since.0);
    println!("{name}+{offset:#x}, there since {since}");
    // Inlined calls first, the function itself last.
    for frame in dump.frames(function, address) {
        let file = frame.file.map_or("unknown file".into(), |file| printable(&file));
        let (line, column) = (frame.line.unwrap_or(0), frame.column.unwrap_or(0));
        println!("  {} at {file}:{line}:{column}", printable(&frame.function));
    }
    Ok(())
}
