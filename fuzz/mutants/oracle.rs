//! Computes the expected names with an independent parser of jitdumps, which only supports valid records.

use std::collections::HashMap;

use jitdump::ByteOrder;
use jitdump::internals::bytes::{Reader, until_nul};

use crate::pieces::Pieces;
use crate::profile::Frame;

/// Code that was loaded at an address or moved to it.
struct Arrival {
    /// File and record of the load or move, and of the load with the name.
    records: [(usize, usize); 2],
    pid: u32,
    time: u64,
    start: u64,
    size: u64,
    name: Vec<u8>,
}

/// A sampled address in a function.
#[derive(Clone, Debug)]
pub struct Expected {
    pub frame: Frame,
    pub name: Vec<u8>,
    /// The records with this information, as file and record indices.
    pub records: [(usize, usize); 2],
}

/// Content of a LOAD or MOVE record.
struct Said {
    pid: u32,
    time: u64,
    start: u64,
    size: u64,
    index: u64,
    name: Option<Vec<u8>>,
}

fn read(record: &[u8], endian: ByteOrder) -> Option<Said> {
    let mut reader = Reader::new(record, endian);
    let kind = reader.u32()?;
    let _size = reader.u32()?;
    let time = reader.u64()?;
    let pid = reader.u32()?;
    let _tid = reader.u32()?;
    let _vma = reader.u64()?;
    let old = reader.u64()?;
    match kind {
        0 => {
            let (size, index) = (reader.u64()?, reader.u64()?);
            let name = Some(until_nul(reader.rest()).to_vec());
            Some(Said {
                pid,
                time,
                start: old,
                size,
                index,
                name,
            })
        }
        1 => {
            let (start, size, index) = (reader.u64()?, reader.u64()?, reader.u64()?);
            Some(Said {
                pid,
                time,
                start,
                size,
                index,
                name: None,
            })
        }
        _ => None,
    }
}

/// Returns the addresses in a record, which may be damaged; `None` for other types.
pub fn claims(record: &[u8], endian: ByteOrder) -> Option<(u64, u64)> {
    let said = read(record, endian)?;
    Some((said.start, said.size))
}

/// Returns the frames in functions of valid dumps.
pub fn expected(dumps: &[Pieces], frames: &[Frame]) -> Vec<Expected> {
    let mut arrivals: HashMap<u32, Vec<Arrival>> = HashMap::new();
    for (file, dump) in dumps.iter().enumerate() {
        let mut by_index = HashMap::new();
        for piece in &dump.pieces {
            let (Some(record), Some(said)) = (piece.record, read(&piece.bytes, dump.endian)) else {
                continue;
            };
            let place = (file, record);
            if let Some(name) = &said.name {
                by_index.insert(said.index, (place, name.clone()));
            }
            let Some((load, name)) = by_index.get(&said.index) else {
                continue;
            };
            arrivals.entry(said.pid).or_default().push(Arrival {
                records: [place, *load],
                pid: said.pid,
                time: said.time,
                start: said.start,
                size: said.size,
                name: name.clone(),
            });
        }
    }
    for arrivals in arrivals.values_mut() {
        arrivals.sort_by_key(|arrival| arrival.time);
    }
    let lookup = |frame: &Frame| {
        let arrivals = arrivals.get(&frame.pid)?;
        let before = arrivals.partition_point(|arrival| arrival.time <= frame.time);
        let covers = |it: &&Arrival| frame.address.wrapping_sub(it.start) < it.size;
        let arrival = arrivals[..before].iter().rev().find(covers)?;
        debug_assert_eq!(arrival.pid, frame.pid);
        Some(Expected {
            frame: *frame,
            name: arrival.name.clone(),
            records: arrival.records,
        })
    };
    frames.iter().filter_map(lookup).collect()
}
