//! Addresses for what the frames of a log's stacks are: methods, and things that have none.
//!
//! A method lies where its code does. A type that was allocated, a collection, and a method without code are functions
//! that are made up.

use crate::code::process::Processes;
use crate::hash::HashMap;
use crate::inject::events::synthetic_symbols::SyntheticSymbol;
use crate::inject::events::{Chain, SyntheticSymbols};
use crate::runtime::RuntimeTime;
use crate::runtime::mono::{Index, Method};
use crate::units::{Address, AddressRange, Pid};

/// A method's code.
#[derive(Clone, Copy, Debug)]
struct Code {
    since: RuntimeTime,
    /// Its number among the log's functions.
    function: u32,
    range: AddressRange,
}

/// What is where.
#[derive(Debug)]
pub struct FrameAddresses {
    /// The code of each method, in the order of time.
    methods: HashMap<Method, Vec<Code>>,
    /// For each function of the log, when something was seen in it first.
    first_uses: Vec<Option<RuntimeTime>>,
    synthetic_symbols: SyntheticSymbols,
    /// Those of methods, so that their names need not be looked up again.
    by_method: HashMap<Method, Address>,
}

impl FrameAddresses {
    /// For a log of process `pid`, and of programs with addresses of 64 bits or 32.
    pub fn new(index: &Index<'_>, processes: &Processes, pid: Pid, is_64: bool) -> Self {
        let functions = index.code.functions();
        let mut methods: HashMap<Method, Vec<Code>> = HashMap::default();
        for (function, it) in (0u32..).zip(functions) {
            for &(method, _) in &it.methods {
                methods.entry(method).or_default().push(Code {
                    since: it.time,
                    function,
                    range: it.range,
                });
            }
        }
        let spaces = processes.spaces_of(pid);
        let maps = spaces.flat_map(|(_, space)| space.maps.iter().map(|map| map.range));
        let taken = maps.chain(functions.iter().map(|function| function.range));
        Self {
            methods,
            first_uses: vec![None; functions.len()],
            synthetic_symbols: SyntheticSymbols::new(taken, is_64),
            by_method: HashMap::default(),
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
    fn method(&mut self, index: &Index<'_>, method: Method, time: RuntimeTime) -> Address {
        if let Some(code) = self.find(method, time) {
            if let Some(first_use) = self.first_uses.get_mut(code.function as usize) {
                *first_use = Some(first_use.map_or(time, |earlier| earlier.min(time)));
            }
            return code.range.start;
        }
        if let Some(&address) = self.by_method.get(&method) {
            return address;
        }
        let unnamed = || format!("[mono method {:#x}]", method.0).into_bytes();
        let name = index.names.method(method, time);
        let address = self
            .synthetic_symbols
            .address(&name.map_or_else(unnamed, <[u8]>::to_vec));
        self.by_method.insert(method, address);
        address
    }

    /// Adds methods as they are at a time to a call chain, from the innermost one out; `false` if not all have room.
    #[must_use]
    pub fn add_to(
        &mut self,
        chain: &mut Chain,
        index: &Index<'_>,
        methods: impl Iterator<Item = Method>,
        time: RuntimeTime,
    ) -> bool {
        chain.add(methods.map(|method| self.method(index, method, time)))
    }

    /// The address of what is called `name` and has no code.
    pub fn named(&mut self, name: &[u8]) -> Address {
        self.synthetic_symbols.address(name)
    }

    /// Whether there was no room for all functions.
    pub fn is_full(&self) -> bool {
        self.synthetic_symbols.is_full()
    }

    /// The functions that were made up.
    pub fn synthetic_symbols(&self) -> &[SyntheticSymbol] {
        self.synthetic_symbols.all()
    }

    /// When something was seen first in a function of the log.
    pub fn first_use(&self, function: u32) -> Option<RuntimeTime> {
        self.first_uses.get(function as usize).copied().flatten()
    }
}
