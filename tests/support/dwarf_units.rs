//! Many functions with line tables and an inlined call each, for one file.

use jitdump::debug_info::{DebugInfo, InlinedCall, LineRow, SourceFile, SourceFunction};
use jitdump::{ByteOrder, Machine};
use jitinject::internals::elf::dwarf::{Settings, Version};
use jitinject::internals::elf::object::TEXT_OFFSET;

use super::generator::Random;

/// Size of each function in bytes.
pub const SIZE: u32 = 200;

pub const UNITS: u32 = 1000;

/// Offset of an inlined call's code in a function.
pub const INLINED: u64 = 89;

pub fn settings(version: Version) -> Settings<'static> {
    Settings {
        version,
        machine: Machine::new(62, ByteOrder::Little),
        directory: b".",
    }
}

pub fn name(number: u32) -> String {
    format!("fn_{number}")
}

pub fn address(number: u32) -> u64 {
    TEXT_OFFSET + u64::from(number) * u64::from(SIZE)
}

/// Returns a function that calls another one, in one range or two.
pub fn info(number: u32) -> DebugInfo<'static> {
    let function = |name, file, line| SourceFunction {
        name,
        file: Some(file),
        line,
        column: 1,
    };
    let row = |offset, file, line| LineRow {
        offset,
        file: Some(file),
        line,
        column: 2,
        discriminator: 0,
    };
    let whole = 50..150;
    let call = InlinedCall {
        depth: 0,
        function: 1,
        ranges: match number % 2 {
            0 => vec![50..90, 100..150],
            _ => std::iter::once(whole).collect(),
        },
        line: number + 5,
        column: 9,
    };
    let mut info = DebugInfo {
        files: vec![
            SourceFile::from(&b"src/module.js"[..]),
            SourceFile::from(&b"src/inlined.js"[..]),
        ],
        functions: vec![function(b"", 0, number + 1), function(b"inlined", 1, 7)],
        rows: vec![row(0, 0, number + 1), row(50, 1, 7), row(150, 0, number + 2)],
        calls: vec![call],
    };
    info.normalise(SIZE);
    info
}

/// Returns the indices of all functions in a random order.
pub fn shuffled() -> Vec<u32> {
    let mut random = Random::new(1);
    let mut numbers: Vec<u32> = (0..UNITS).collect();
    for at in 1..numbers.len() {
        numbers.swap(at, random.below(at as u64 + 1) as usize);
    }
    numbers
}
