//! llvm-xray and readelf find the same functions in instrumented binaries.

use jitinject::internals::traces::xray::format::instrumentation_map::InstrumentationMap;

use crate::support::xray_functions::{binary, extracted, map, ours};
use crate::support::xray_map::{Map, Relocations};
use crate::support::{capture, scratch, tools};

#[test]
fn llvm_xray_finds_the_same_functions_in_real_binaries() {
    for name in ["xray-fdr-pie14", "xray-basic19"] {
        let functions = InstrumentationMap::read(&binary(name)).unwrap();
        let path = capture::folder(name).join("work");
        let live = tools::run("llvm-xray", &["extract", tools::text(&path)]);
        assert_eq!(ours(&functions), extracted(&live), "{name}");
        let notes = tools::run("readelf", &["-n", tools::text(&path)]);
        let build_id: String = functions
            .build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert!(build_id.len() == 40 && notes.contains(&format!("Build ID: {build_id}")));
    }
}

#[test]
fn a_binary_with_typed_events_has_its_functions_as_well() {
    let name = "xray-fdr-typed19";
    let functions = InstrumentationMap::read(&binary(name)).unwrap();
    let path = capture::folder(name).join("work");
    // llvm-xray refuses it.
    assert!(tools::errors("llvm-xray", &["extract", tools::text(&path)]).contains("Cannot extract"));
    let symbols = tools::run("readelf", &["-sWC", tools::text(&path)]);
    let named = |id: u32| {
        let address = format!("{:016x}", functions.address(id).unwrap().0);
        let line = symbols
            .lines()
            .find(|line| line.contains(&address) && line.contains(" FUNC "));
        line.unwrap_or_else(|| panic!("{id}: nothing at {address}"))
            .to_owned()
    };
    for id in 1..=functions.addresses().len() as u32 {
        named(id);
    }
    // As in its source; the last two write the events of the trace.
    for (id, name) in [(2, "fib(unsigned int)"), (10, "typed("), (11, "events(int)")] {
        assert!(named(id).contains(name), "{}", named(id));
    }
}

#[test]
fn llvm_xray_reads_the_maps_that_the_tests_write() {
    let folder = scratch();
    let path = folder.path().join("work");
    for version in 0..=2 {
        for relocations in [Relocations::None, Relocations::Beside, Relocations::Inside] {
            let mut made = Map {
                version,
                relocations,
                ..map()
            };
            // It does not support typed events, and reads no addends at relocated addresses.
            made.functions[2].1 = vec![0, 4, 1];
            if version < 2 && relocations == Relocations::Inside {
                continue;
            }
            std::fs::write(&path, made.write()).unwrap();
            let functions = InstrumentationMap::read(&made.write()).unwrap();
            let live = tools::run("llvm-xray", &["extract", tools::text(&path)]);
            assert_eq!(ours(&functions), extracted(&live), "{made:?}");
        }
    }
}
