//! An independent, minimal parser of profiles: reads samples, and finds the symbol of an address at a time. Only
//! supports files with events of one format.

use std::collections::HashMap;
use std::path::Path;

use jitdump::ByteOrder;
use jitdump::internals::bytes::{Reader, until_nul};
use object::{Object, ObjectSymbol};

/// Sample fields before the callers, in order, and the callers. Samples with other fields there are skipped.
const IDENTIFIER: u64 = 1 << 16;
const IP: u64 = 1 << 0;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const AFTER_TIME: [u64; 5] = [1 << 3, 1 << 6, 1 << 9, 1 << 7, 1 << 8];
/// Fields of a trailer after the time: ID, stream ID, CPU, identifier.
const TRAILER: [u64; 4] = [1 << 6, 1 << 9, 1 << 7, 1 << 16];

/// An address in a sample.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    pub pid: u32,
    pub time: u64,
    pub address: u64,
}

/// A mapping, of a file or anonymous.
#[derive(Clone, Debug)]
struct Map {
    pid: u32,
    time: u64,
    start: u64,
    size: u64,
    /// File offset of the first byte.
    offset: u64,
    path: Vec<u8>,
}

/// The relevant content of a profile.
#[derive(Default)]
pub struct Profile {
    pub frames: Vec<Frame>,
    /// Whether a record has a type that perf neither writes nor skips as a future one.
    pub stops_perf: bool,
    /// Mappings by ascending time.
    maps: Vec<Map>,
}

/// Returns endianness and range of the records; `None` if it is not a profile in file format.
pub fn data(file: &[u8]) -> Option<(ByteOrder, std::ops::Range<usize>)> {
    let endian = match file.get(..8)? {
        b"PERFILE2" => ByteOrder::Little,
        b"2ELIFREP" => ByteOrder::Big,
        _ => return None,
    };
    let word = |at| endian.u64_at(file, at);
    if word(8)? != 104 {
        return None;
    }
    let start = usize::try_from(word(40)?).ok()?;
    let end = start.checked_add(usize::try_from(word(48)?).ok()?)?;
    (end <= file.len()).then_some((endian, start..end))
}

impl Profile {
    /// Parses a file.
    pub fn read(file: &[u8]) -> Option<Self> {
        let (endian, data) = data(file)?;
        let attrs = usize::try_from(endian.u64_at(file, 24)?).ok()?;
        let shape = endian.u64_at(file, attrs.checked_add(24)?)?;
        let mut profile = Self::default();
        let mut rest = file.get(data)?;
        while !rest.is_empty() {
            let size = usize::from(Reader::new(rest.get(6..)?, endian).u16()?);
            let (record, behind) = rest.split_at_checked(size)?;
            profile.add(record, endian, shape);
            // Data of tracepoint formats and AUX data follow their records.
            let payload = match endian.u32_at(record, 0)? {
                66 => u64::from(endian.u32_at(record, 8)?),
                71 => endian.u64_at(record, 8)?,
                _ => 0,
            };
            rest = behind.get(usize::try_from(payload).ok()?..)?;
        }
        profile.maps.sort_by_key(|map| map.time);
        Some(profile)
    }

    fn add(&mut self, record: &[u8], endian: ByteOrder, shape: u64) -> Option<()> {
        let body = Reader::new(record.get(8..)?, endian);
        let kind = endian.u32_at(record, 0)?;
        self.stops_perf |= !matches!(kind, 1..=31 | 64..=95);
        match kind {
            9 if shape & READ == 0 => self.add_sample(body, shape),
            kind @ (1 | 10) => {
                let back = TRAILER.iter().filter(|&&field| shape & field != 0).count() * 8 + 8;
                let time = endian.u64_at(record, record.len().checked_sub(back)?)?;
                self.add_map(body, kind == 10, time)
            }
            _ => None,
        }
    }

    fn add_sample(&mut self, mut body: Reader<'_>, shape: u64) -> Option<()> {
        let has = |field: u64| shape & field != 0;
        if has(IDENTIFIER) {
            body.u64()?;
        }
        let ip = if has(IP) { body.u64()? } else { 0 };
        let pid = if has(TID) { body.u32()? } else { 0 };
        if has(TID) {
            body.u32()?;
        }
        let time = if has(TIME) { body.u64()? } else { 0 };
        let mut add = |address| self.frames.push(Frame { pid, time, address });
        add(ip);
        for field in AFTER_TIME {
            if has(field) {
                body.u64()?;
            }
        }
        if has(CALLCHAIN) {
            for at in 0..body.u64()? {
                let address = body.u64()?;
                // After the context marker, the first address is the sampled address again.
                if at > 1 && address < u64::MAX - 4095 {
                    add(address.wrapping_sub(1));
                }
            }
        }
        Some(())
    }

    fn add_map(&mut self, mut body: Reader<'_>, is_long: bool, time: u64) -> Option<()> {
        let pid = body.u32()?;
        body.u32()?;
        let (start, size) = (body.u64()?, body.u64()?);
        let offset = body.u64()?;
        body.skip(if is_long { 32 } else { 0 })?;
        self.maps.push(Map {
            pid,
            time,
            start,
            size,
            offset,
            path: until_nul(body.rest()).to_vec(),
        });
        Some(())
    }

    /// Returns the symbol for each of some frames, if a file that was written for JIT code (`is_object`) is mapped
    /// there.
    pub fn names(&self, frames: &[Frame], is_object: impl Fn(&[u8]) -> bool) -> Vec<Option<Vec<u8>>> {
        let mut symbols = HashMap::new();
        let mut by_pid: HashMap<u32, Vec<&Map>> = HashMap::new();
        for map in &self.maps {
            by_pid.entry(map.pid).or_default().push(map);
        }
        let mut name = |frame: &Frame| {
            let maps = by_pid.get(&frame.pid)?;
            let before = maps.partition_point(|map| map.time <= frame.time);
            let covers = |map: &&&Map| frame.address.wrapping_sub(map.start) < map.size;
            let map = maps[..before].iter().rev().find(covers)?;
            if !is_object(&map.path) {
                return None;
            }
            let symbols: &mut Vec<Symbol> = symbols
                .entry(map.path.clone())
                .or_insert_with(|| symbols_of(&map.path).unwrap_or_default());
            // In objects of several functions, file offsets equal addresses.
            let address = frame.address.wrapping_sub(map.start).wrapping_add(map.offset);
            let holds = |symbol: &&Symbol| address.wrapping_sub(symbol.start) < symbol.size;
            let symbol = match &symbols[..] {
                [only] => Some(only),
                several => several.iter().find(holds),
            };
            Some(symbol?.name.clone())
        };
        frames.iter().map(&mut name).collect()
    }
}

/// A function in an object.
struct Symbol {
    start: u64,
    size: u64,
    name: Vec<u8>,
}

/// Reads the functions of an object.
fn symbols_of(path: &[u8]) -> Option<Vec<Symbol>> {
    let bytes = std::fs::read(Path::new(std::str::from_utf8(path).ok()?)).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let functions = file
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text);
    let symbols = functions.map(|symbol| {
        Some(Symbol {
            start: symbol.address(),
            size: symbol.size(),
            name: symbol.name_bytes().ok()?.to_vec(),
        })
    });
    symbols.collect()
}
