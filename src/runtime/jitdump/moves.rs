//! Putting LOAD and MOVE records into the order of time, and finding out which function a MOVE is about.

use crate::bytes::{ByteOrder, Reader};
use crate::hash::HashMap;
use crate::runtime::jitdump::dump::Fault;
use crate::runtime::jitdump::record::Record;
use crate::runtime::{Change, CodeEvent, RuntimeTime};
use crate::tally::Tally;
use crate::units::{Address, AddressRange};

/// A LOAD record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    /// The event that it is.
    pub event: CodeEvent,
    /// Its `code_index`.
    pub index: u64,
    /// Where it stands in the file, which tells those of one time apart.
    pub offset: u64,
}

/// A MOVE record.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Where it stands in the file.
    pub offset: u64,
    /// When.
    pub time: RuntimeTime,
    /// In which process.
    pub pid: u32,
    /// Where the code was.
    pub from: Address,
    /// Where it is from now on.
    pub to: Address,
    /// How many bytes it has. It is not used: a function keeps the size that it has.
    pub size: u64,
    /// The `code_index` of the LOAD record.
    pub index: u64,
}

impl Moved {
    /// All that it says beside the time.
    pub(super) fn content(&self) -> (u32, Address, Address, u64, u64) {
        (self.pid, self.from, self.to, self.size, self.index)
    }

    /// Reads a MOVE record.
    pub fn parse(record: &Record<'_>, order: ByteOrder) -> Option<Self> {
        let mut content = Reader::new(record.content, order);
        let pid = content.u32()?;
        let _tid = content.u32()?;
        let _vma = content.u64()?;
        let from = Address(content.u64()?);
        let to = Address(content.u64()?);
        let size = content.u64()?;
        Some(Self {
            offset: record.offset,
            time: RuntimeTime(record.time),
            pid,
            from,
            to,
            size,
            index: content.u64()?,
        })
    }
}

/// All loads and moves in the order of time. `range` tells where a function was loaded.
///
/// Quirk: JavaScriptCore's compiler threads write records out of order by a microsecond (capture multi).
pub(super) fn in_order(
    mut loads: Vec<Loaded>,
    mut moves: Vec<Moved>,
    range: impl Fn(u32) -> Option<AddressRange>,
    faults: &mut Tally<Fault>,
) -> Vec<CodeEvent> {
    loads.sort_by_key(|load| (load.event.time, load.offset));
    moves.sort_by_key(|moved| (moved.time, moved.offset));
    if moves.is_empty() {
        return loads.into_iter().map(|load| load.event).collect();
    }
    let mut events = Vec::with_capacity(loads.len());
    let mut whereabouts = CodeAddresses::default();
    let mut loads = loads.into_iter().peekable();
    for moved in &moves {
        let is_before = |load: &Loaded| (load.event.time, load.offset) < (moved.time, moved.offset);
        while let Some(load) = loads.next_if(is_before) {
            whereabouts.load(&load, &range);
            events.push(load.event);
        }
        match whereabouts.moved(moved, &range) {
            Some(event) => events.push(event),
            None => faults.add(Fault::BadMove, moved.offset),
        }
    }
    events.extend(loads.map(|load| load.event));
    events
}

/// The last function for each key, in each process and in any.
#[derive(Default)]
struct Latest<K> {
    own: HashMap<(u32, K), u32>,
    any: HashMap<K, u32>,
}

impl<K: std::hash::Hash + Eq + Copy> Latest<K> {
    fn insert(&mut self, pid: u32, key: K, function: u32) {
        self.own.insert((pid, key), function);
        self.any.insert(key, function);
    }

    /// The process' own, or any, which it may have inherited. Which one it has inherited only its ancestors can tell.
    fn get(&self, pid: u32, key: K) -> Option<u32> {
        self.own.get(&(pid, key)).or(self.any.get(&key)).copied()
    }
}

/// Where each function is.
#[derive(Default)]
struct CodeAddresses {
    by_address: Latest<Address>,
    by_index: Latest<u64>,
}

impl CodeAddresses {
    fn load(&mut self, load: &Loaded, range: impl Fn(u32) -> Option<AddressRange>) {
        let CodeEvent { pid, function, .. } = load.event;
        self.by_index.insert(pid, load.index, function);
        if let Some(range) = range(function) {
            self.by_address.insert(pid, range.start, function);
        }
    }

    fn moved(&mut self, moved: &Moved, range: impl Fn(u32) -> Option<AddressRange>) -> Option<CodeEvent> {
        // The index says which function it is, but some writers give all the same one. What was put at the
        // address last is sure.
        let pid = moved.pid;
        let at_address = self.by_address.get(pid, moved.from);
        let function = at_address.or(self.by_index.get(pid, moved.index))?;
        moved.to.checked_add(range(function)?.size())?;
        self.by_address.own.remove(&(pid, moved.from));
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
