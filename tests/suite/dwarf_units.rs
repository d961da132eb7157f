//! One file has room for many units, as an object for many functions needs it.

use jitinject::bytes::ByteOrder;
use jitinject::debug_info::{DebugInfo, InlinedCall, Row, SourceFile, SourceFunction};
use jitinject::elf::dwarf::{Buffers, FunctionUnit, Sections, Settings, Version};
use jitinject::elf::eh_frame::Tables;
use jitinject::elf::object::{self, Code, Content, Function, PlacedTables, TEXT_OFFSET};
use jitinject::machine::Machine;

use crate::dwarf::{encode, endian};
use crate::support::generator::Random;
use crate::support::symbolizers::{self, Site};
use crate::support::{dwarf_contents, scratch, tools};

/// Bytes of code of each function.
const SIZE: u32 = 200;
const UNITS: u32 = 1000;
/// What programs are asked for: few functions, since each of these programs reads all units for each.
const STEP: usize = 17;
/// Where the code of an inlined call is.
const INLINED: u64 = 89;

fn settings(version: Version) -> Settings<'static> {
    Settings {
        version,
        machine: Machine::new(62, ByteOrder::Little),
        directory: b".",
    }
}

fn name(number: u32) -> String {
    format!("fn_{number}")
}

fn address(number: u32) -> u64 {
    TEXT_OFFSET + u64::from(number) * u64::from(SIZE)
}

/// A function with a call of another one, in one piece or two.
fn info(number: u32) -> DebugInfo<'static> {
    let function = |name, file, line| SourceFunction {
        name,
        file: Some(file),
        line,
        column: 1,
    };
    let row = |offset, file, line| Row {
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

/// All numbers of functions in an order that is none.
fn shuffled() -> Vec<u32> {
    let mut random = Random::new(1);
    let mut numbers: Vec<u32> = (0..UNITS).collect();
    for at in 1..numbers.len() {
        numbers.swap(at, random.below(at as u64 + 1) as usize);
    }
    numbers
}

/// What addr2line says of all functions.
fn check_frames(sections: &Sections<'_>) {
    let dwarf = dwarf_contents::load(sections, endian(ByteOrder::Little));
    let context = addr2line::Context::from_dwarf(dwarf).unwrap();
    let frames_of = |address: u64| {
        let mut frames = context.find_frames(address).skip_all_loads().unwrap();
        let mut found = Vec::new();
        while let Some(frame) = frames.next().unwrap() {
            let name = frame.function.unwrap().raw_name().unwrap().into_owned();
            let place = frame.location.unwrap();
            let file = place.file.unwrap();
            let file = file.strip_prefix("./").unwrap();
            found.push(Site::new(&name, file, place.line.unwrap()));
        }
        found
    };
    for number in 0..UNITS {
        let outer = |line| Site::new(&name(number), "src/module.js", line);
        let inner = Site::new("inlined", "src/inlined.js", 7);
        assert_eq!(frames_of(address(number)), [outer(number + 1)]);
        let chain = [inner, outer(number + 5)];
        assert_eq!(frames_of(address(number) + INLINED), chain);
        let last = u64::from(SIZE) - 1;
        assert_eq!(frames_of(address(number) + last), [outer(number + 2)]);
    }
}

/// What programs say of an object with all functions.
fn check_object(sections: &Sections<'_>) {
    let code = vec![0; UNITS as usize * SIZE as usize];
    let tables = Tables::default();
    let object = Content {
        machine: settings(Version::Four).machine,
        functions: &[Function {
            name: b"all",
            code: Code::Known(&code),
            offset: 0,
        }],
        address: 0x7000_0000,
        time: 0,
        tables: PlacedTables {
            tables: &tables,
            address: 0x100_0000,
        },
        debug: sections,
    };
    let mut bytes = Vec::new();
    object::encode(&object, &mut bytes);
    let folder = scratch();
    let path = folder.path().join("object");
    std::fs::write(&path, bytes).unwrap();
    let said = tools::run("llvm-dwarfdump", &["--verify", tools::text(&path)]);
    assert!(said.contains("No errors."), "{said}");
    assert!(!said.contains("warning"), "{said}");

    let numbers: Vec<u32> = (0..UNITS).step_by(STEP).collect();
    let addresses: Vec<u64> = numbers.iter().map(|&number| address(number) + INLINED).collect();
    for (program, ask) in symbolizers::ALL {
        for (mut chain, &number) in ask(&path, &addresses).into_iter().zip(&numbers) {
            // LLVM's has the outermost name from the symbol, of which there is one for all.
            if program == "llvm-symbolizer" {
                chain[1].function = name(number);
            }
            let outer = Site::new(&name(number), "src/module.js", number + 5);
            let inner = Site::new("inlined", "src/inlined.js", 7);
            assert_eq!(chain, [inner, outer], "{program}");
        }
    }
}

#[test]
fn many_units_share_an_object() {
    let names: Vec<String> = (0..UNITS).map(name).collect();
    let infos: Vec<_> = (0..UNITS).map(info).collect();
    let unit = |number: u32| FunctionUnit {
        symbol: names[number as usize].as_bytes(),
        address: address(number),
        size: SIZE,
        info: &infos[number as usize],
    };
    let units: Vec<_> = shuffled().into_iter().map(unit).collect();
    for version in [Version::Four, Version::Five] {
        let mut buffers = Buffers::default();
        let sections = encode(&units, settings(version), &mut buffers);
        let inlined = memchr::memmem::Finder::new(b"\0inlined\0");
        let occurrences = sections.iter().map(|(_, bytes)| inlined.find_iter(bytes).count());
        assert_eq!(occurrences.sum::<usize>(), 1);
        check_frames(&sections);
        check_object(&sections);
    }
}

/// Buffers that were used before leave no trace.
#[test]
fn the_same_units_give_the_same_bytes() {
    let (one, other) = (info(1), info(2000));
    for version in [Version::Four, Version::Five] {
        let settings = settings(version);
        let unit = |symbol, info| FunctionUnit {
            symbol,
            address: TEXT_OFFSET,
            size: SIZE,
            info,
        };
        let bytes = |sections: Sections<'_>| sections.map(|(_, bytes)| bytes.to_vec());
        let mut buffers = Buffers::default();
        let first = bytes(encode(&[unit(b"one", &one)], settings, &mut buffers));
        encode(
            &[unit(b"another", &other), unit(b"one", &one)],
            settings,
            &mut buffers,
        );
        let again = bytes(encode(&[unit(b"one", &one)], settings, &mut buffers));
        assert_eq!(again, first);
        let nothing = encode(&[], settings, &mut buffers);
        assert!(nothing.iter().all(|(_, bytes)| bytes.is_empty()), "{nothing:?}");
    }
}
