//! XRay function IDs, as `llvm-xray extract` prints them.

use std::collections::BTreeMap;

use jitdump::{Address, ByteOrder};
use jitinject::internals::traces::xray::format::instrumentation_map::InstrumentationMap;

use super::capture;
use super::xray_map::{Map, Relocations};

pub fn binary(name: &str) -> Vec<u8> {
    std::fs::read(capture::folder(name).join("work")).unwrap()
}

/// Parses the function addresses by ID in the output of `llvm-xray extract`.
pub fn extracted(yaml: &str) -> BTreeMap<u32, Address> {
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

pub fn ours(functions: &InstrumentationMap) -> BTreeMap<u32, Address> {
    let numbered = (1..).zip(functions.addresses().iter().copied());
    numbered
        .inspect(|&(id, address)| assert_eq!(functions.address(id), Some(address)))
        .collect()
}

pub fn map() -> Map {
    Map {
        is_64: true,
        endian: ByteOrder::Little,
        machine: 62,
        version: 2,
        relocations: Relocations::Inside,
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
