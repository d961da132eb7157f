//! What must be named, from a reading of dumps of its own that knows only sound records.

use std::collections::HashMap;

use jitinject::bytes::{ByteOrder, Reader, until_nul};

use crate::pieces::Pieces;
use crate::profile::Frame;

/// Code that came to an address.
struct Arrival {
    /// Which file and record say so, and which say what it is.
    records: [(usize, usize); 2],
    pid: u32,
    time: u64,
    start: u64,
    size: u64,
    name: Vec<u8>,
}

/// A sampled address that lies in a function.
#[derive(Clone, Debug)]
pub struct Expected {
    pub frame: Frame,
    pub name: Vec<u8>,
    /// The records that say so, as numbers of file and record.
    pub records: [(usize, usize); 2],
}

/// What a record of a dump says, as far as it is a LOAD or a MOVE.
struct Said {
    pid: u32,
    time: u64,
    start: u64,
    size: u64,
    index: u64,
    name: Option<Vec<u8>>,
}

fn read(record: &[u8], order: ByteOrder) -> Option<Said> {
    let mut reader = Reader::new(record, order);
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

/// The addresses that a record would cover as it stands; none where it is of another type.
pub fn claims(record: &[u8], order: ByteOrder) -> Option<(u64, u64)> {
    let said = read(record, order)?;
    Some((said.start, said.size))
}

/// The frames that lie in functions of sound dumps.
pub fn expected(dumps: &[Pieces], frames: &[Frame]) -> Vec<Expected> {
    let mut arrivals: HashMap<u32, Vec<Arrival>> = HashMap::new();
    for (file, dump) in dumps.iter().enumerate() {
        let mut by_index = HashMap::new();
        for piece in &dump.pieces {
            let (Some(record), Some(said)) = (piece.record, read(&piece.bytes, dump.order)) else {
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
