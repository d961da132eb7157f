//! Functions from logs that have only their names and addresses.

use std::borrow::Cow;

use jitdump::{AddressRange, Change, CodeEvent, Machine, RuntimeTime};

use crate::results::FileKind;

/// A function with a name and an address range.
#[derive(Clone, Debug)]
pub struct SymbolOnlyFunction<'a> {
    /// Name of the function.
    pub name: Cow<'a, [u8]>,
    /// Addresses of the code.
    pub range: AddressRange,
    /// Machine code, exactly as long as `range`; `None` if no input has it.
    pub code: Option<Vec<u8>>,
}

/// The functions of one process.
#[derive(Clone, Debug)]
pub struct SymbolOnlyCode<'a> {
    /// PID from the log.
    pub pid: u32,
    /// The machine that the code was compiled for.
    pub machine: Machine,
    /// Format of the log.
    pub source: FileKind,
    /// Number of functions that the runtime compiled. They are the first ones.
    pub compiled: u32,
    functions: Vec<SymbolOnlyFunction<'a>>,
    events: Vec<CodeEvent>,
}

impl<'a> SymbolOnlyCode<'a> {
    /// Creates an empty list of functions.
    pub fn new(pid: u32, machine: Machine, source: FileKind) -> Self {
        Self {
            pid,
            machine,
            source,
            compiled: 0,
            functions: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Adds a function that was loaded at `time`. Returns its index, or `None` if the list is full.
    pub fn load(&mut self, function: SymbolOnlyFunction<'a>, time: RuntimeTime) -> Option<u32> {
        let number = u32::try_from(self.functions.len()).ok()?;
        self.functions.push(function);
        self.events.push(CodeEvent {
            time,
            pid: self.pid,
            function: number,
            change: Change::Load,
        });
        Some(number)
    }

    /// Sorts the events by time. Events of the same time keep their order.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| event.time);
    }

    /// Returns the loads, sorted by time once [`Self::sort`] has been called.
    pub fn events(&self) -> &[CodeEvent] {
        &self.events
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns whether the machine code of any function is available.
    pub fn has_code(&self) -> bool {
        self.functions.iter().any(|function| function.code.is_some())
    }

    /// Returns the function with index `number`.
    pub fn function(&self, number: u32) -> Option<&SymbolOnlyFunction<'a>> {
        self.functions.get(usize::try_from(number).ok()?)
    }

    /// Returns the size of a function's name and machine code, in bytes.
    pub fn record_bytes(&self, number: u32) -> u64 {
        let bytes = |function: &SymbolOnlyFunction<'_>| {
            let code = function.code.as_ref().map_or(0, Vec::len);
            (function.name.len() as u64).saturating_add(code as u64)
        };
        self.function(number).map_or(0, bytes)
    }
}
