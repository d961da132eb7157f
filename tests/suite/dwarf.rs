//! gimli and addr2line read the same lines and inlined calls from written sections as were encoded, and as gimli's
//! writer produces.

use std::borrow::Cow;

use gimli::{DwLang, RunTimeEndian};
use jitdump::debug_info::{DebugInfo, InlinedCall, LineRow, SourceFile, SourceFunction};
use jitdump::{ByteOrder, Machine};
use jitinject::internals::elf::dwarf::{Encoder, EncoderMemory, FunctionUnit, Sections, Settings, Version};
use proptest::prelude::*;

use crate::support::generator::Random;
use crate::support::{dwarf_contents, gimli_writer};

/// Source files with their languages; `None` if readers need no language for the file.
const SOURCES: [(&str, Option<DwLang>); 12] = [
    ("src/main.c", Some(gimli::DW_LANG_C99)),
    ("/usr/include/c++/12/vector.cc", Some(gimli::DW_LANG_C_plus_plus)),
    ("Work.java", Some(gimli::DW_LANG_Java)),
    ("/home/you/work.py", Some(gimli::DW_LANG_Python)),
    ("src/lib.rs", Some(gimli::DW_LANG_Rust)),
    ("fib.jl", Some(gimli::DW_LANG_Julia)),
    ("a.out/solve.f90", Some(gimli::DW_LANG_Fortran90)),
    ("work.c/README", None),
    ("work.ts", None),
    ("py", None),
    ("trailing.c.", None),
    ("UPPER.C", None),
];

/// Returns the language of a source file in [`SOURCES`].
fn language(path: &[u8]) -> Option<DwLang> {
    let source = SOURCES.iter().find(|(source, _)| source.as_bytes() == path)?;
    source.1
}

const SIZE: u32 = 200;
const FILES: u32 = 4;
const FUNCTIONS: u32 = 5;

/// A frame at an address: function, file, line, column.
type Frame = (Option<String>, Option<String>, u32, u32);

fn file_name(file: u32) -> String {
    ["main.js", "src/a.js", "/abs/lib/b.js", "weird dir/ü.js"][file as usize].to_owned()
}

/// Returns the name of a function. Function 0 has the name of the symbol.
fn function_name(function: u32) -> String {
    if function == 0 {
        "symbol".into()
    } else {
        format!("inlined_{function}")
    }
}

/// Generates debug information that a runtime could write, valid or not.
fn any_info() -> impl Strategy<Value = DebugInfo<'static>> {
    let row = (0..SIZE + 20, 0..FILES + 1, 0..1000u32, 0..100u32, 0..3u32);
    let row = row.prop_map(|(offset, file, line, column, discriminator)| LineRow {
        offset,
        file: (file < FILES).then_some(file),
        line,
        column,
        discriminator,
    });
    let range = (0..SIZE + 20, 0..80u32).prop_map(|(start, size)| start..start + size);
    let ranges = prop::collection::vec(range, 0..4);
    let call = (0..6u32, 0..FUNCTIONS + 1, ranges, 0..1000u32, 0..100u32);
    let call = call.prop_map(|(depth, function, ranges, line, column)| InlinedCall {
        depth,
        function,
        ranges,
        line,
        column,
    });
    let (rows, calls) = (
        prop::collection::vec(row, 0..20),
        prop::collection::vec(call, 0..20),
    );
    (rows, calls).prop_map(|(rows, calls)| {
        let file = |file| SourceFile {
            path: Cow::Owned(file_name(file).into_bytes()),
            text: None,
            script: None,
        };
        let function = |function: u32| SourceFunction {
            name: if function == 0 {
                b""
            } else {
                function_name(function).leak().as_bytes()
            },
            file: Some(function % FILES),
            line: 1 + function,
            column: function,
        };
        DebugInfo {
            files: (0..FILES).map(file).collect(),
            functions: (0..FUNCTIONS).map(function).collect(),
            rows,
            calls,
        }
    })
}

/// Adds a valid tree of calls: nested ranges that do not touch each other.
fn tree(start: u32, end: u32, depth: u32, random: &mut Random, calls: &mut Vec<InlinedCall>) {
    let mut below = |limit: u32| random.below(limit.into()) as u32;
    let mut at = start + below(4);
    let mut siblings = Vec::new();
    while at + 2 < end {
        let size = 1 + below(end - at - 1);
        siblings.push(InlinedCall {
            depth,
            function: 1 + below(FUNCTIONS - 1),
            ranges: std::iter::once(at..at + size).collect(),
            line: 1 + below(500),
            column: below(50),
        });
        at += size + 1 + below(20);
    }
    for call in siblings {
        let inside = call.ranges[0].clone();
        calls.push(call);
        if depth < 5 {
            tree(inside.start, inside.end, depth + 1, random, calls);
        }
    }
}

/// Returns the frames at an offset according to the debug information, the innermost one first.
fn expected(info: &DebugInfo<'_>, offset: u32) -> Vec<Frame> {
    let first = info.rows.first();
    let row = info.rows.iter().rfind(|row| row.offset <= offset);
    // Before the first row, the line is that of the function's declaration.
    let start = first.map(|_| {
        (
            info.functions[0].file,
            info.functions[0].line,
            info.functions[0].column,
        )
    });
    let place = row.map(|row| (row.file, row.line, row.column)).or(start);
    let mut frames = Vec::new();
    let (mut function, mut depth) = (0, 0);
    for call in &info.calls {
        if call.depth == depth && call.ranges.iter().any(|range| range.contains(&offset)) {
            frames.push((
                function,
                info.functions[function as usize].file,
                call.line,
                call.column,
            ));
            (function, depth) = (call.function, depth + 1);
        }
    }
    let (file, line, column) = place.unwrap_or((None, 0, 0));
    frames.push((function, file, line, column));
    let frame = |(function, file, line, column): (u32, Option<u32>, u32, u32)| {
        (Some(function_name(function)), file.map(file_name), line, column)
    };
    frames.into_iter().rev().map(frame).collect()
}

/// Encodes units in the given order.
pub fn encode<'b>(
    units: &[FunctionUnit<'_>],
    settings: Settings<'_>,
    memory: &'b mut EncoderMemory,
) -> Sections<'b> {
    let mut encoder = Encoder::new(memory, settings);
    for unit in units {
        encoder.add(unit).unwrap();
    }
    encoder.finish()
}

pub fn gimli_endian(endian: ByteOrder) -> RunTimeEndian {
    match endian {
        ByteOrder::Little => RunTimeEndian::Little,
        ByteOrder::Big => RunTimeEndian::Big,
    }
}

/// Encodes two functions in one file, and compares the frames that addr2line finds for each of their bytes.
fn check(infos: &[DebugInfo<'_>; 2], version: Version, endian: ByteOrder, machine: u32) {
    let machine = Machine::new(machine, endian);
    let addresses = [0x40u64, 0x4000];
    let unit = |(info, address)| FunctionUnit {
        symbol: b"symbol",
        address,
        size: SIZE,
        info,
    };
    let units: Vec<_> = infos.iter().zip(addresses).map(unit).collect();
    let settings = Settings {
        version,
        machine,
        directory: b".",
    };
    let mut memory = EncoderMemory::default();
    let sections = encode(&units, settings, &mut memory);
    let dwarf = dwarf_contents::load(&sections, gimli_endian(endian));
    let context = addr2line::Context::from_dwarf(dwarf).unwrap();
    for (info, address) in infos.iter().zip(addresses) {
        for offset in 0..SIZE {
            let mut frames = context
                .find_frames(address + u64::from(offset))
                .skip_all_loads()
                .unwrap();
            let mut found = Vec::new();
            while let Some(frame) = frames.next().unwrap() {
                let name = frame
                    .function
                    .map(|function| function.raw_name().unwrap().into_owned());
                // Without rows, there is no location.
                let Some(place) = frame.location else {
                    found.push((name, None, 0, 0));
                    continue;
                };
                let file = place
                    .file
                    .map(|file| file.strip_prefix("./").unwrap_or(file).to_owned());
                found.push((name, file, place.line.unwrap_or(0), place.column.unwrap_or(0)));
            }
            let mut wanted = expected(info, offset);
            // addr2line has no column for line 0, and a row without a file keeps the last file.
            for (frame, wanted) in found.iter_mut().zip(&mut wanted) {
                if wanted.1.is_none() || wanted.2 == 0 {
                    (frame.1, wanted.1) = (None, None);
                }
                if wanted.2 == 0 {
                    (frame.3, wanted.3) = (0, 0);
                }
            }
            assert_eq!(found, wanted, "{offset}");
        }
    }
}

/// Scales debug information, and removes or changes some optional parts.
fn vary(info: &mut DebugInfo<'_>, scale: u32, random: &mut Random) {
    for row in &mut info.rows {
        row.offset *= scale;
        row.discriminator *= 100 * scale;
    }
    for call in &mut info.calls {
        for range in &mut call.ranges {
            *range = range.start * scale..range.end * scale;
        }
        call.line *= random.below(2) as u32;
        call.column *= random.below(2) as u32;
    }
    for function in &mut info.functions {
        match random.below(6) {
            0 => function.file = None,
            1 => function.line = 0,
            2 => function.column = 0,
            3 => function.name = b"",
            4 => function.name = b"symbol",
            _ => {}
        }
    }
    for file in &mut info.files {
        match random.below(8) {
            0 => {
                file.path = SOURCES[random.below(SOURCES.len() as u64) as usize]
                    .0
                    .as_bytes()
                    .into()
            }
            1 => file.path = Cow::Borrowed(b""),
            2 => file.path = Cow::Borrowed(b"/"),
            3 => file.path = Cow::Borrowed(b"a/b/c/"),
            4 => file.text = Some(b"one\ntwo\n"),
            5 => file.text = Some(b"with a\0NUL"),
            _ => {}
        }
    }
    if random.below(8) == 0 {
        info.rows.iter_mut().for_each(|row| row.file = None);
    }
    // Each path has one text.
    if info.files[0].path == info.files[1].path {
        info.files[1].text = info.files[0].text;
    }
}

fn versions() -> impl Strategy<Value = (Version, ByteOrder, u32)> {
    let (x86_64, i386, s390x) = (62, 3, 22);
    prop_oneof![
        Just((Version::Four, ByteOrder::Little, x86_64)),
        Just((Version::Five, ByteOrder::Little, x86_64)),
        Just((Version::Four, ByteOrder::Little, i386)),
        Just((Version::Five, ByteOrder::Big, s390x)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(one in any_info(), other in any_info(), settings in versions()) {
        let mut infos = [one, other];
        for info in &mut infos {
            info.normalise(SIZE);
        }
        let (version, endian, machine) = settings;
        check(&infos, version, endian, machine);
    }

    #[test]
    fn trees_that_fit_stay_as_they_are(seed in any::<u64>(), settings in versions(), mut info in any_info()) {
        info.calls.clear();
        tree(0, SIZE, 0, &mut Random::new(seed), &mut info.calls);
        let calls = info.calls.clone();
        prop_assert_eq!(info.normalise(SIZE).calls, 0);
        prop_assert_eq!(&info.calls, &calls);
        let (version, endian, machine) = settings;
        check(&[info.clone(), info], version, endian, machine);
    }

    #[test]
    fn gimli_writes_the_same(
        mut infos in prop::collection::vec(any_info(), 0..5),
        scale in prop_oneof![Just(1u32), Just(7), Just(1000), Just(10_000_000)],
        seed in any::<u64>(),
        (version, endian, machine) in versions(),
    ) {
        let mut random = Random::new(seed);
        let size = SIZE * scale;
        let mut address = 0x40;
        let mut units = Vec::new();
        for info in &mut infos {
            vary(info, scale, &mut random);
            info.normalise(size);
        }
        for info in &infos {
            units.push(FunctionUnit { symbol: b"symbol", address, size, info });
            address += u64::from(size) % 0x1000_0000 + random.below(100);
        }
        let settings = Settings {
            version,
            machine: Machine::new(machine, endian),
            directory: b"/home/me",
        };
        let mut memory = EncoderMemory::default();
        let sections = encode(&units, settings, &mut memory);
        let found = dwarf_contents::describe(&sections, gimli_endian(endian));
        let reference = gimli_writer::encode(&units, settings, language);
        let reference: Vec<_> = reference.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
        prop_assert_eq!(found, dwarf_contents::describe(&reference, gimli_endian(endian)));
    }
}
