//! Instrumentation maps of binaries, which map the function IDs in a trace to addresses.

use jitdump::{Address, ByteOrder};
use jitinject::Issue;
use jitinject::internals::traces::xray::format::instrumentation_map::InstrumentationMap;

use crate::support::capture;
use crate::support::xray_functions::{binary, extracted, map, ours};
use crate::support::xray_map::{Map, Relocations};

#[test]
fn numbers_mean_what_llvm_xray_says() {
    for name in ["xray-fdr-pie14", "xray-basic19"] {
        let functions = InstrumentationMap::read(&binary(name)).unwrap();
        let folder = capture::folder(name);
        let stored = std::fs::read_to_string(folder.join("extract.yaml")).unwrap();
        assert_eq!(ours(&functions), extracted(&stored), "{name}");
        assert_eq!(
            (functions.pointer_size, functions.is_position_independent),
            (8, true)
        );
        assert_eq!(functions.address(0), None);
        assert_eq!(functions.address(functions.addresses().len() as u32 + 1), None);
    }
}

#[test]
fn maps_of_all_versions_classes_and_byte_orders_mean_the_same() {
    let addresses = [0x1000, 0x1100, 0x800, 0x7000_0000].map(Address);
    let mut read = 0;
    for (is_64, endian, machine) in [
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
                    // These machines have no such relocations.
                    continue;
                }
                let made = Map {
                    is_64,
                    endian,
                    machine,
                    version,
                    relocations,
                    ..map()
                };
                let functions = InstrumentationMap::read(&made.write()).unwrap();
                assert_eq!(functions.addresses(), addresses, "{made:?}");
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
    assert_eq!(read, 48);
}

#[test]
fn consecutive_entries_with_the_same_address_are_one_function() {
    let mut made = map();
    made.functions[1].0 = 0x1000;
    let functions = InstrumentationMap::read(&made.write()).unwrap();
    assert_eq!(functions.addresses(), [0x1000, 0x800, 0x7000_0000].map(Address));
}

#[test]
fn files_without_a_map_say_why() {
    let error = |file: &[u8]| InstrumentationMap::read(file).unwrap_err().issue;
    assert_eq!(error(b""), Issue::XrayNotElf);
    assert_eq!(error(b"\x7fELF\x02\x01\x01"), Issue::XrayNotElf);
    let file = map().write();
    let mut without = file.clone();
    let name = without.windows(8).position(|it| it == b"xray_ins").unwrap();
    without[name] = b'y';
    assert_eq!(error(&without), Issue::XrayNoMap);
    let mut unlinked = file.clone();
    unlinked[16] = 1;
    assert_eq!(error(&unlinked), Issue::XrayNotLinked);
    let mut version = file.clone();
    version[64 + 18] = 3;
    assert_eq!(error(&version), Issue::XrayEntryVersion);
    // Offset and size of the map.
    let sections = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    let mut odd = file.clone();
    odd[sections + 64 + 32] -= 1;
    assert_eq!(error(&odd), Issue::XrayOddSize);
    let mut cut = file;
    cut[sections + 64 + 39] = 1;
    assert_eq!(error(&cut), Issue::XrayCutMap);
}
