//! Ordering of LOAD and MOVE records by time, and matching of moves with their functions.

use crate::bytes::{ByteOrder, Reader};
use crate::collections::hash::HashMap;
use crate::collections::tally::Tally;
use crate::event::{Change, CodeEvent, RuntimeTime};
use crate::fault::Fault;
use crate::format::record::Record;
use crate::units::{Address, AddressRange};

/// A MOVE record.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// Offset of the record in the file, in bytes.
    pub offset: u64,
    /// Time of the move.
    pub time: RuntimeTime,
    /// PID of the process that moved the code.
    pub pid: u32,
    /// Start address after the move, in a field that readers ignore.
    pub vma: u64,
    /// Start address before the move.
    pub from: Address,
    /// Start address after the move.
    pub to: Address,
    /// Size of the code, in bytes. A moved function keeps that of its LOAD record.
    pub size: u64,
    /// The `code_index` of the function's LOAD record.
    pub code_index: u64,
}

impl Move {
    /// What must be the same in a copy of the record.
    pub(super) fn content(&self) -> (u32, Address, Address, u64, u64) {
        (self.pid, self.from, self.to, self.size, self.code_index)
    }

    /// Parses a MOVE record; `None` if it is too short.
    pub fn parse(record: &Record<'_>, endian: ByteOrder) -> Option<Self> {
        let mut content = Reader::new(record.content, endian);
        let pid = content.u32()?;
        let _tid = content.u32()?;
        let vma = content.u64()?;
        let from = Address(content.u64()?);
        let to = Address(content.u64()?);
        let size = content.u64()?;
        Some(Self {
            offset: record.offset,
            time: RuntimeTime(record.time),
            pid,
            vma,
            from,
            to,
            size,
            code_index: content.u64()?,
        })
    }
}

/// A LOAD record, as an event.
pub(super) struct LoadEvent {
    /// Offset of the record in the file, in bytes.
    pub offset: u64,
    /// The load.
    pub event: CodeEvent,
    /// The `code_index` in the record.
    pub code_index: u64,
}

/// Merges loads, which must be sorted by time and offset, with moves. `range` returns the addresses at which a function was
/// loaded.
pub(super) fn merge_events(
    loads: impl Iterator<Item = LoadEvent>,
    mut moves: Vec<Move>,
    range: impl Fn(u32) -> Option<AddressRange>,
    faults: &mut Tally<Fault>,
) -> Vec<CodeEvent> {
    moves.sort_by_key(|moved| (moved.time, moved.offset));
    let mut events = Vec::new();
    let mut addresses = CodeAddresses::default();
    let mut loads = loads.peekable();
    for moved in &moves {
        let is_before = |load: &LoadEvent| (load.event.time, load.offset) < (moved.time, moved.offset);
        while let Some(load) = loads.next_if(is_before) {
            addresses.add_load(&load.event, load.code_index, &range);
            events.push(load.event);
        }
        match addresses.apply_move(moved, &range) {
            Some(event) => events.push(event),
            None => faults.add(Fault::BadMove, moved.offset),
        }
    }
    events.extend(loads.map(|load| load.event));
    events
}

/// The last function for each key, both per process and over all processes.
#[derive(Default)]
struct LatestFunctions<K> {
    by_process: HashMap<(u32, K), u32>,
    in_any_process: HashMap<K, u32>,
}

impl<K: std::hash::Hash + Eq + Copy> LatestFunctions<K> {
    fn insert(&mut self, pid: u32, key: K, function: u32) {
        self.by_process.insert((pid, key), function);
        self.in_any_process.insert(key, function);
    }

    /// The function in this process, or else in any process, since a forked process inherits code. The file
    /// does not record which process is the parent.
    fn get(&self, pid: u32, key: K) -> Option<u32> {
        self.by_process
            .get(&(pid, key))
            .or(self.in_any_process.get(&key))
            .copied()
    }
}

/// The current address of each function.
#[derive(Default)]
struct CodeAddresses {
    by_address: LatestFunctions<Address>,
    by_index: LatestFunctions<u64>,
}

impl CodeAddresses {
    /// Adds a function that is loaded, at the address that `range` has for it.
    fn add_load(&mut self, load: &CodeEvent, code_index: u64, range: impl Fn(u32) -> Option<AddressRange>) {
        let CodeEvent { pid, function, .. } = *load;
        self.by_index.insert(pid, code_index, function);
        if let Some(range) = range(function) {
            self.by_address.insert(pid, range.start, function);
        }
    }

    /// Moves the function that a record means. Returns the event; `None` if no function is known.
    fn apply_move(&mut self, moved: &Move, range: impl Fn(u32) -> Option<AddressRange>) -> Option<CodeEvent> {
        // Some writers give all functions the same index, so the last function at the address takes
        // precedence.
        let pid = moved.pid;
        let at_address = self.by_address.get(pid, moved.from);
        let function = at_address.or(self.by_index.get(pid, moved.code_index))?;
        moved.to.checked_add(range(function)?.size())?;
        self.by_address.by_process.remove(&(pid, moved.from));
        self.by_address.insert(pid, moved.to, function);
        Some(CodeEvent {
            time: moved.time,
            pid,
            function,
            change: Change::Move {
                from: moved.from,
                to: moved.to,
            },
        })
    }
}
