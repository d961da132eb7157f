//! The instrumentation map of a binary: the functions that the numbers of a trace mean.

use std::collections::BTreeMap;

use jitinject::bytes::ByteOrder;
use jitinject::runtime::xray::functions::{Error, Functions};
use jitinject::units::Address;

use crate::support::xray_map::{IndexForm, Map, Relocations};
use crate::support::{capture, scratch, tools};

fn binary(name: &str) -> Vec<u8> {
    std::fs::read(capture::folder(name).join("work")).unwrap()
}

/// Addresses by number, as `llvm-xray extract` prints them.
fn extracted(yaml: &str) -> BTreeMap<u32, Address> {
    let lines = yaml.lines().filter(|line| line.starts_with("- {"));
    let field = |line: &str, name: &str| {
        let (_, behind) = line.split_once(name).unwrap();
        behind.split_once(',').unwrap().0.to_owned()
    };
    let parsed = lines.map(|line| {
        let address = field(line, " function: 0x");
        let address = u64::from_str_radix(&address, 16).unwrap();
        (field(line, " id: ").parse().unwrap(), Address(address))
    });
    parsed.collect()
}

fn ours(functions: &Functions) -> BTreeMap<u32, Address> {
    let numbered = (1..).zip(functions.addresses().iter().copied());
    numbered
        .inspect(|&(id, address)| assert_eq!(functions.address(id), Some(address)))
        .collect()
}

#[test]
fn numbers_mean_what_llvm_xray_says() {
    for name in ["xray-fdr-pie14", "xray-basic19"] {
        let functions = Functions::read(&binary(name)).unwrap();
        let folder = capture::folder(name);
        let stored = std::fs::read_to_string(folder.join("extract.yaml")).unwrap();
        assert_eq!(ours(&functions), extracted(&stored), "{name}");
        let live = tools::checked("llvm-xray", &["extract", tools::text(&folder.join("work"))]);
        assert_eq!(ours(&functions), extracted(&live), "{name}");
        assert_eq!(
            (functions.pointer_size, functions.is_position_independent),
            (8, true)
        );
        assert_eq!(functions.address(0), None);
        assert_eq!(functions.address(functions.addresses().len() as u32 + 1), None);
        let notes = tools::checked("readelf", &["-n", tools::text(&folder.join("work"))]);
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
    let functions = Functions::read(&binary(name)).unwrap();
    assert_eq!(functions.agrees_with_index, Some(true));
    let path = capture::folder(name).join("work");
    // llvm-xray refuses it.
    assert!(tools::errors("llvm-xray", &["extract", tools::text(&path)]).contains("Cannot extract"));
    let symbols = tools::checked("readelf", &["-sWC", tools::text(&path)]);
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
    // As its source has them; the last two tell the events of the trace.
    for (id, name) in [(2, "fib(unsigned int)"), (10, "typed("), (11, "events(int)")] {
        assert!(named(id).contains(name), "{}", named(id));
    }
}

fn map() -> Map {
    Map {
        is_64: true,
        order: ByteOrder::Little,
        machine: 62,
        version: 2,
        relocations: Relocations::Inside,
        index: None,
        functions: vec![
            (0x1000, vec![0, 1]),
            (0x1100, vec![3, 1, 2]),
            // a version of a function in another section
            (0x800, vec![0, 4, 5, 1]),
            (0x7000_0000, vec![0]),
        ],
        build_id: (0..20).collect(),
    }
}

#[test]
fn maps_of_all_versions_classes_and_byte_orders_mean_the_same() {
    let addresses = [0x1000, 0x1100, 0x800, 0x7000_0000].map(Address);
    let mut read = 0;
    for (is_64, order, machine) in [
        (true, ByteOrder::Little, 62),
        (true, ByteOrder::Little, 183),
        (true, ByteOrder::Big, 22),
        (false, ByteOrder::Little, 40),
        (false, ByteOrder::Big, 8),
        (false, ByteOrder::Little, 243),
    ] {
        for version in 0..=2 {
            for relocations in [Relocations::None, Relocations::Beside, Relocations::Inside] {
                if relocations == Relocations::Beside && [40, 8].contains(&machine) {
                    // They have no such.
                    continue;
                }
                for index in [None, Some(IndexForm::Absolute), Some(IndexForm::Relative)] {
                    let made = Map {
                        is_64,
                        order,
                        machine,
                        version,
                        relocations,
                        index,
                        ..map()
                    };
                    let functions = Functions::read(&made.write()).unwrap();
                    assert_eq!(functions.addresses(), addresses, "{made:?}");
                    assert_eq!(functions.agrees_with_index, index.map(|_| true), "{made:?}");
                    assert_eq!(functions.build_id, made.build_id);
                    assert_eq!(functions.pointer_size, if is_64 { 8 } else { 4 });
                    assert_eq!(
                        functions.is_position_independent,
                        relocations != Relocations::None
                    );
                    read += 1;
                }
            }
        }
    }
    assert!(read > 100);
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
            // It knows no typed events, and takes no addresses out of the places.
            made.functions[2].1 = vec![0, 4, 1];
            if version < 2 && relocations == Relocations::Inside {
                continue;
            }
            std::fs::write(&path, made.write()).unwrap();
            let functions = Functions::read(&made.write()).unwrap();
            let live = tools::checked("llvm-xray", &["extract", tools::text(&path)]);
            assert_eq!(ours(&functions), extracted(&live), "{made:?}");
        }
    }
}

#[test]
fn an_index_of_something_else_is_told() {
    let made = Map {
        index: Some(IndexForm::Relative),
        ..map()
    };
    let mut other = made.clone();
    // Two functions that have come to lie at one address are one for the map.
    other.functions[1].0 = 0x1000;
    let functions = Functions::read(&other.write()).unwrap();
    assert_eq!(functions.addresses(), [0x1000, 0x800, 0x7000_0000].map(Address));
    assert_eq!(functions.agrees_with_index, Some(false));
}

#[test]
fn files_without_a_map_say_why() {
    let error = |file: &[u8]| Functions::read(file).unwrap_err();
    assert!(matches!(error(b""), Error::NotElf(_)));
    assert!(matches!(error(b"\x7fELF\x02\x01\x01"), Error::NotElf(_)));
    let file = map().write();
    let mut without = file.clone();
    let name = without.windows(8).position(|it| it == b"xray_ins").unwrap();
    without[name] = b'y';
    assert_eq!(error(&without), Error::NoMap);
    let mut unlinked = file.clone();
    unlinked[16] = 1;
    assert_eq!(error(&unlinked), Error::NotLinked);
    let mut version = file.clone();
    version[64 + 18] = 3;
    assert_eq!(error(&version), Error::Version(3));
    // Offset and size of the map.
    let sections = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    let mut odd = file.clone();
    odd[sections + 64 + 32] -= 1;
    assert_eq!(error(&odd), Error::OddSize(10 * 32 - 1, 32));
    let mut cut = file;
    cut[sections + 64 + 39] = 1;
    assert!(matches!(error(&cut), Error::CutMap(_)));
}

/// Sections that lie over each other must not cost more than the file is large.
#[test]
fn a_file_of_sections_over_each_other_is_read_in_no_time() {
    let mut made = map();
    (made.version, made.relocations) = (1, Relocations::Beside);
    made.functions = (0..20_000).map(|at| (0x1000 + 64 * at, vec![0, 1])).collect();
    let mut file = made.write();
    let sections = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    // Ever more headers of the relocations, which are section 2.
    let headers: Vec<_> = file[sections..].chunks(64).map(<[u8]>::to_vec).collect();
    for _ in 0..60_000 {
        file.extend(&headers[2]);
    }
    let count = (headers.len() + 60_000) as u16;
    file[60..62].copy_from_slice(&count.to_le_bytes());
    let start = std::time::Instant::now();
    assert_eq!(Functions::read(&file).unwrap().addresses().len(), 20_000);
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}
