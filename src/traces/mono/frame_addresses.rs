//! Addresses for the frames of a log's stacks.
//!
//! A method's frame gets the address of its code. Allocated types, locks, collections, methods without code, and those whose
//! code has the name of another method get synthetic symbols.

use jitdump::{Address, AddressRange, RuntimeTime};

use crate::code::process::Processes;
use crate::collections::hash::HashMap;
use crate::traces::conversion::synthetic_symbols::SyntheticSymbols;
use crate::traces::mono::format::{LogIndex, Method};
use crate::units::Pid;

/// Code of a method.
#[derive(Clone, Copy, Debug)]
struct MethodCode {
    since: RuntimeTime,
    /// Index among the log's functions.
    function: u32,
    range: AddressRange,
    /// Whether readers name the code after the method. Methods that share code have one name there.
    has_its_name: bool,
}

/// Addresses for the frames of a log.
#[derive(Debug)]
pub struct FrameAddresses {
    /// Code of each method, in time order.
    methods: HashMap<Method, Vec<MethodCode>>,
    /// Time of the first use of each function in a stack, by the function's index in the log.
    first_uses: Vec<Option<RuntimeTime>>,
    /// Symbols of methods without code of their name, and of types, locks and collections.
    pub synthetic_symbols: SyntheticSymbols<Method>,
}

impl FrameAddresses {
    /// Creates the addresses for a log of process `pid`, whose programs have addresses of 64 bits or 32.
    /// `reserved` are the addresses of the synthetic symbols of other logs of that process.
    pub fn new(
        index: &LogIndex<'_>,
        processes: &Processes,
        pid: Pid,
        is_64: bool,
        reserved: &[AddressRange],
    ) -> Self {
        let functions = &index.code.functions;
        let mut methods: HashMap<Method, Vec<MethodCode>> = HashMap::default();
        for (function, it) in (0u32..).zip(functions) {
            let first = it.methods.first().map(|&(_, name)| name);
            for &(method, name) in &it.methods {
                methods.entry(method).or_default().push(MethodCode {
                    since: it.time,
                    function,
                    range: it.range,
                    has_its_name: Some(name) == first,
                });
            }
        }
        let taken = functions.iter().map(|function| function.range);
        let taken = taken.chain(reserved.iter().copied());
        Self {
            methods,
            first_uses: vec![None; functions.len()],
            synthetic_symbols: SyntheticSymbols::new(processes, pid, taken, is_64),
        }
    }

    /// Returns the code that a method got last before a time, or else first; `None` if it has none.
    fn code_at(&self, method: Method, time: RuntimeTime) -> Option<MethodCode> {
        let codes = self.methods.get(&method)?;
        let after = codes.partition_point(|code| code.since <= time);
        codes.get(after.saturating_sub(1)).copied()
    }

    /// Returns the addresses of a method's code at a time; `None` if it has no code.
    pub fn code(&self, method: Method, time: RuntimeTime) -> Option<AddressRange> {
        self.code_at(method, time).map(|code| code.range)
    }

    /// Returns the address of a method at a time: its code, or else its synthetic symbol. Of methods with the same code, only
    /// those with its name get its address.
    pub fn method(&mut self, index: &LogIndex<'_>, method: Method, time: RuntimeTime) -> Address {
        if let Some(code) = self.code_at(method, time).filter(|code| code.has_its_name) {
            if let Some(first_use) = self.first_uses.get_mut(code.function as usize) {
                *first_use = Some(first_use.map_or(time, |earlier| earlier.min(time)));
            }
            return code.range.start;
        }
        self.synthetic_symbols.address_of(method, || {
            let unnamed = || format!("[mono method {:#x}]", method.0).into_bytes();
            index
                .names
                .method(method, time)
                .map_or_else(unnamed, <[u8]>::to_vec)
        })
    }

    /// Returns the time of the first use of a function of the log in a stack.
    pub fn first_use(&self, function: u32) -> Option<RuntimeTime> {
        self.first_uses.get(function as usize).copied().flatten()
    }
}
