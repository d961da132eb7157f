//! Addresses for what the frames of a log's stacks are: methods, and things that have none.
//!
//! A method lies where its code does. A type that was allocated, a collection, and a method without code get made-up
//! addresses, where the process maps nothing, and a function each that has their name.

use rustc_hash::FxHashMap;

use crate::code::process::Processes;
use crate::range_map::RangeMap;
use crate::runtime::RuntimeTime;
use crate::runtime::mono::{Index, Method};
use crate::units::{Address, AddressRange, Pid};

/// How many addresses a made-up function has: one for itself, one behind that for it as a caller, and no more than
/// look well.
const SIZE: u64 = 16;

/// How many made-up functions there may be: as many as have room in a third of a 32-bit process. What has no room
/// shares the last one.
const MOST: u64 = 1 << 22;

/// A method's code.
#[derive(Clone, Copy, Debug)]
struct Code {
    since: RuntimeTime,
    /// Its number among the log's functions.
    function: u32,
    range: AddressRange,
}

/// A function that was made up.
#[derive(Clone, Debug)]
pub struct MadeUp {
    /// What it stands for.
    pub name: Vec<u8>,
    /// Where it is.
    pub range: AddressRange,
}

/// What is where.
#[derive(Debug)]
pub struct Places {
    /// The code of each method, in the order of time.
    methods: FxHashMap<Method, Vec<Code>>,
    /// For each function of the log, when something was seen in it first.
    first_uses: Vec<Option<RuntimeTime>>,
    made_up: Vec<MadeUp>,
    by_name: FxHashMap<Vec<u8>, usize>,
    /// Those of methods, so that their names need not be looked up again.
    by_method: FxHashMap<Method, usize>,
    /// Where the next one goes.
    free: AddressRange,
}

impl Places {
    /// For a log of process `pid`, and of programs with addresses of 64 bits or 32.
    pub fn new(index: &Index<'_>, processes: &Processes, pid: Pid, is_64: bool) -> Self {
        let functions = index.code.functions();
        let mut methods: FxHashMap<Method, Vec<Code>> = FxHashMap::default();
        for (function, it) in (0u32..).zip(functions) {
            for &(method, _) in &it.methods {
                methods.entry(method).or_default().push(Code {
                    since: it.time,
                    function,
                    range: it.range,
                });
            }
        }
        let spaces = processes.spaces().iter().filter(|space| space.pid == pid);
        let maps = spaces.flat_map(|space| space.maps.iter().map(|map| map.range));
        let taken = maps.chain(functions.iter().map(|function| function.range));
        Self {
            methods,
            first_uses: vec![None; functions.len()],
            made_up: Vec::new(),
            by_name: FxHashMap::default(),
            by_method: FxHashMap::default(),
            free: free_range(taken, is_64),
        }
    }

    fn find(&self, method: Method, time: RuntimeTime) -> Option<Code> {
        let codes = self.methods.get(&method)?;
        let after = codes.partition_point(|code| code.since <= time);
        codes.get(after.saturating_sub(1)).copied()
    }

    /// Where the code of a method is at a time, if it has any.
    pub fn code(&self, method: Method, time: RuntimeTime) -> Option<AddressRange> {
        self.find(method, time).map(|code| code.range)
    }

    /// The address of a method at a time.
    pub fn method(&mut self, index: &Index<'_>, method: Method, time: RuntimeTime) -> Address {
        if let Some(code) = self.find(method, time) {
            if let Some(first_use) = self.first_uses.get_mut(code.function as usize) {
                *first_use = Some(first_use.map_or(time, |earlier| earlier.min(time)));
            }
            return code.range.start;
        }
        let known = self.by_method.get(&method).copied();
        let place = known.unwrap_or_else(|| {
            let name = index.names.method(method, time);
            let name = name.map_or_else(
                || format!("[mono method {:#x}]", method.0).into_bytes(),
                <[u8]>::to_vec,
            );
            let place = self.make_up(name);
            self.by_method.insert(method, place);
            place
        });
        self.start(place)
    }

    /// The address of what is called `name`.
    pub fn named(&mut self, name: &[u8]) -> Address {
        let place = match self.by_name.get(name) {
            Some(&place) => place,
            None => self.make_up(name.to_vec()),
        };
        self.start(place)
    }

    fn start(&self, place: usize) -> Address {
        let made_up = self.made_up.get(place).or(self.made_up.last());
        made_up.map_or(Address(0), |made_up| made_up.range.start)
    }

    fn make_up(&mut self, name: Vec<u8>) -> usize {
        let place = *self.by_name.entry(name.clone()).or_insert(self.made_up.len());
        if place == self.made_up.len()
            && let Some(range) = AddressRange::new(self.free.start, SIZE)
            && range.end <= self.free.end
        {
            self.free.start = range.end;
            self.made_up.push(MadeUp { name, range });
        }
        place
    }

    /// Whether there was no room for all functions.
    pub fn is_full(&self) -> bool {
        self.by_name.len() > self.made_up.len()
    }

    /// The functions that were made up.
    pub fn made_up(&self) -> &[MadeUp] {
        &self.made_up
    }

    /// When something was seen first in a function of the log.
    pub fn first_use(&self, function: u32) -> Option<RuntimeTime> {
        self.first_uses.get(function as usize).copied().flatten()
    }
}

/// Addresses of a user process at which there is nothing: the lowest ones above a line that programs rarely cross.
fn free_range(taken: impl Iterator<Item = AddressRange>, is_64: bool) -> AddressRange {
    let mut all = RangeMap::default();
    for range in taken {
        all.insert(range, (), |_, ()| {});
    }
    // Between programs and their heaps on one side, libraries and stacks on the other.
    let (mut start, end) = if is_64 {
        (Address(1 << 44), Address(1 << 46))
    } else {
        (Address(1 << 30), Address(3 << 30))
    };
    let size = MOST.saturating_mul(SIZE);
    loop {
        let range = AddressRange {
            start,
            end: Address(start.0.saturating_add(size)),
        };
        match all.overlapping(range).last() {
            Some((obstacle, ())) if obstacle.end.0.saturating_add(size) <= end.0 => {
                start = Address(obstacle.end.0.next_multiple_of(0x1000));
            }
            _ => return range,
        }
    }
}
