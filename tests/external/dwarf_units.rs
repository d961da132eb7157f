//! Symbolizers find each of many units in one file.

use jitinject::internals::elf::dwarf::{Encoder, EncoderMemory, FunctionUnit, Sections, Version};
use jitinject::internals::elf::eh_frame::UnwindTables;
use jitinject::internals::elf::object;
use jitinject::internals::elf::object::{
    CodeBytes, ObjectContent, ObjectFunction, PlacedTables, TEXT_OFFSET,
};
use jitinject::internals::files::objects::sparse::SparseBytes;

use crate::support::dwarf_units::{INLINED, SIZE, UNITS, address, info, name, settings, shuffled};
use crate::support::symbolizers::{self, Site};
use crate::support::{scratch, tools};

/// Only every 17th function is looked up, because these programs read all units for each.
const STEP: usize = 17;

/// Checks the output of programs for an object with all functions.
fn check_object(sections: &Sections<'_>) {
    let code = vec![0; UNITS as usize * SIZE as usize];
    let tables = UnwindTables::default();
    let object = ObjectContent {
        machine: settings(Version::Four).machine,
        functions: &[ObjectFunction {
            name: b"all",
            code: CodeBytes::Known(&code),
            address: TEXT_OFFSET,
        }],
        address: 0x7000_0000,
        time: 0,
        tables: PlacedTables {
            tables: &tables,
            address: 0x100_0000,
        },
        debug: sections,
    };
    let mut bytes = SparseBytes::default();
    object::encode(&object, &mut bytes);
    let folder = scratch();
    let path = folder.path().join("object");
    std::fs::write(&path, bytes.to_vec()).unwrap();
    let said = tools::report("llvm-dwarfdump", &["--verify", tools::text(&path)]);
    assert!(said.contains("No errors."), "{said}");
    assert!(!said.contains("warning"), "{said}");

    let numbers: Vec<u32> = (0..UNITS).step_by(STEP).collect();
    let addresses: Vec<u64> = numbers.iter().map(|&number| address(number) + INLINED).collect();
    for (program, ask) in symbolizers::ALL {
        for (mut chain, &number) in ask(&path, &addresses).into_iter().zip(&numbers) {
            // llvm-symbolizer takes the outermost name from the symbol, which covers all functions.
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
fn every_symbolizer_finds_each_of_many_units() {
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
        let mut memory = EncoderMemory::default();
        let mut encoder = Encoder::new(&mut memory, settings(version));
        for unit in units.iter() {
            encoder.add(unit).unwrap();
        }
        check_object(&encoder.finish());
    }
}
