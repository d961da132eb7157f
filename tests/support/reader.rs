//! A simple profile reader, which finds the names of samples with the mappings and objects of the profile. It
//! works like perf: records are processed by time, a mapping replaces those that it overlaps, and a fork copies
//! all of them.

use std::collections::HashMap;
use std::path::Path;

use jitdump::ByteOrder;
use object::{Object, ObjectSection, ObjectSymbol};

use super::model::{self, word};

/// A sample and the names of its addresses, the sampled one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub pid: u32,
    pub time: u64,
    pub frames: Vec<Option<String>>,
}

#[derive(Clone)]
struct Map {
    start: u64,
    end: u64,
    file_offset: u64,
    path: String,
}

/// Functions of an object: start and end offset in the file, and name.
type Symbols = Vec<(u64, u64, String)>;

const ORDER: ByteOrder = ByteOrder::Little;

/// Returns the samples of a little-endian profile in the format of [`super::profile::ProfileWriter`], by time.
pub fn samples(profile: &Path) -> Vec<Sample> {
    let parts = model::parse(&std::fs::read(profile).unwrap());
    let mut records: Vec<(u64, &Vec<u8>)> = parts
        .records
        .iter()
        .map(|record| (time_of(record), record))
        .collect();
    // Records of the same time stay in file order.
    records.sort_by_key(|&(time, _)| time);
    let mut spaces: HashMap<u32, Vec<Map>> = HashMap::new();
    let mut objects: HashMap<String, Symbols> = HashMap::new();
    let mut samples = Vec::new();
    for (time, record) in records {
        let number = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        let misc = u16::from_le_bytes([record[4], record[5]]);
        match model::kind(record, ORDER) {
            1 | 10 => {
                let (start, end) = model::map_range(record, ORDER);
                spaces.entry(number(8)).or_default().push(Map {
                    start,
                    end,
                    file_offset: word(record, ORDER, 32),
                    path: model::map_name(record, ORDER).unwrap(),
                });
            }
            3 if misc >> 13 & 1 != 0 => drop(spaces.remove(&number(8))),
            // perf's synthesized records for processes that exist at the start copy nothing.
            7 if misc >> 13 & 1 == 0 => {
                let parents = spaces.get(&number(12)).cloned();
                spaces.insert(number(8), parents.unwrap_or_default());
            }
            9 => {
                let pid = number(16);
                let maps = spaces.get(&pid).map_or(&[][..], Vec::as_slice);
                let count = word(record, ORDER, 48) as usize;
                let chain = (0..count).map(|at| word(record, ORDER, 56 + at * 8));
                // without context markers
                let chain = chain.filter(|&address| address < u64::MAX - 4096);
                let frames = chain.map(|address| name_of(maps, address, &mut objects));
                samples.push(Sample {
                    pid,
                    time,
                    frames: frames.collect(),
                });
            }
            _ => {}
        }
    }
    samples
}

/// Returns the time of a record; 0 for perf's own records.
fn time_of(record: &[u8]) -> u64 {
    match model::kind(record, ORDER) {
        9 => word(record, ORDER, 24),
        kind if kind < 64 => word(record, ORDER, record.len() - 16),
        _ => 0,
    }
}

fn name_of(maps: &[Map], address: u64, objects: &mut HashMap<String, Symbols>) -> Option<String> {
    let mut newest = maps.iter().rev();
    let map = newest.find(|map| map.start <= address && address < map.end)?;
    if !map.path.ends_with(".so") {
        return None;
    }
    let at = address - map.start + map.file_offset;
    let symbols = objects
        .entry(map.path.clone())
        .or_insert_with(|| symbols_of(&map.path));
    let symbol = symbols
        .iter()
        .find(|(start, end, _)| (*start..*end).contains(&at));
    symbol.map(|(_, _, name)| name.clone())
}

/// Returns the functions of an object; none if the path does not exist. Like perf, uses file offsets even if the
/// section has no content.
fn symbols_of(path: &str) -> Symbols {
    let Ok(file) = std::fs::read(path) else {
        return Vec::new();
    };
    let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(&*file).unwrap();
    let functions = elf
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.is_definition());
    functions
        .map(|symbol| {
            let section = elf.section_by_index(symbol.section_index().unwrap()).unwrap();
            let header = section.elf_section_header();
            let offset = header.sh_offset.get(elf.endian());
            let start = symbol.address() - section.address() + offset;
            (start, start + symbol.size(), symbol.name().unwrap().to_owned())
        })
        .collect()
}
