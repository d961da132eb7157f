//! A common interface to jitdumps and to logs that contain only symbols.

use jitdump::internals::format::unwinding::Unwinding;
use jitdump::{AddressRange, CodeEvent, Dump, Function, Machine};

use crate::code::symbol_only_code::SymbolOnlyCode;

/// A file that describes JIT-compiled code.
#[derive(Clone, Debug)]
pub enum CodeFile<'a> {
    /// A jitdump, with machine code, line tables and unwinding tables.
    Jitdump(Box<Dump<'a>>),
    /// A log or trace, with names and addresses of functions.
    SymbolOnly(SymbolOnlyCode<'a>),
}

impl<'a> CodeFile<'a> {
    /// Returns the PID of the process that wrote the file, as that process saw it.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Jitdump(dump) => dump.header().pid,
            Self::SymbolOnly(named) => named.pid,
        }
    }

    /// Returns the machine that the code was compiled for.
    pub fn machine(&self) -> Machine {
        match self {
            Self::Jitdump(dump) => dump.machine(),
            Self::SymbolOnly(named) => named.machine,
        }
    }

    /// Returns the loads and moves, sorted by time.
    pub fn events(&self) -> impl Iterator<Item = CodeEvent> {
        let (of_dump, of_log) = match self {
            Self::Jitdump(dump) => (Some(dump.events()), &[][..]),
            Self::SymbolOnly(named) => (None, named.events()),
        };
        of_dump.into_iter().flatten().chain(of_log.iter().copied())
    }

    /// Whether any code was moved.
    pub fn has_moves(&self) -> bool {
        match self {
            Self::Jitdump(dump) => dump.has_moves(),
            Self::SymbolOnly(_) => false,
        }
    }

    /// Returns the addresses at which a function was first loaded; `None` if it has no code.
    pub fn range(&self, function: u32) -> Option<AddressRange> {
        match self {
            Self::Jitdump(dump) => dump.range(function),
            Self::SymbolOnly(named) => named.function(function).map(|function| function.range),
        }
    }

    /// Returns the function with index `number`.
    pub fn function(&self, number: u32) -> Option<Function<'_>> {
        match self {
            Self::Jitdump(dump) => {
                let function = dump.function(number)?;
                #[cfg(test)]
                reads::note("function", function.range.start);
                Some(function)
            }
            Self::SymbolOnly(named) => {
                let function = named.function(number)?;
                Some(Function::named(
                    &function.name,
                    function.code.as_deref(),
                    function.range,
                ))
            }
        }
    }

    /// Returns whether the runtime compiled a function at the time of its load: logs also have symbols of native code.
    pub fn is_compiled(&self, function: u32) -> bool {
        match self {
            Self::Jitdump(_) => true,
            Self::SymbolOnly(named) => function < named.compiled,
        }
    }

    /// Returns whether the file has the machine code of a function.
    pub fn has_code(&self, function: u32) -> bool {
        match self {
            Self::Jitdump(_) => true,
            Self::SymbolOnly(named) => named
                .function(function)
                .is_some_and(|function| function.code.is_some()),
        }
    }

    /// Returns the unwinding table of a function, and the offset in the file of its record, which functions may share.
    pub fn unwinding(&self, function: u32) -> Option<(u64, Unwinding<'a>)> {
        match self {
            Self::Jitdump(dump) => {
                let record = dump.function_records(function)?.unwinding?;
                #[cfg(test)]
                reads::note("unwinding", dump.range(function)?.start);
                Some((record.offset, dump.unwinding(function)?))
            }
            Self::SymbolOnly(_) => None,
        }
    }

    /// Returns the total size of a function's data in the file, in bytes.
    pub fn record_bytes(&self, function: u32) -> u64 {
        match self {
            Self::Jitdump(dump) => dump.record_bytes(function),
            Self::SymbolOnly(named) => named.record_bytes(function),
        }
    }

    /// Returns the total size of the source texts embedded in the file, in bytes.
    pub fn source_bytes(&self) -> u64 {
        match self {
            Self::Jitdump(dump) => dump.source_bytes(),
            Self::SymbolOnly(_) => 0,
        }
    }
}

/// Counts how often functions and their unwinding tables are read, by address: tests with other addresses can run at
/// the same time.
#[cfg(test)]
pub mod reads {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use jitdump::Address;

    static COUNTS: Mutex<BTreeMap<(&str, u64), u32>> = Mutex::new(BTreeMap::new());

    /// Counts a read of a function that starts at `start`, or of its unwinding table.
    pub(super) fn note(what: &'static str, start: Address) {
        *COUNTS.lock().unwrap().entry((what, start.0)).or_default() += 1;
    }

    /// Returns how often the functions that start at an address, and their tables, were read.
    pub fn all() -> BTreeMap<(&'static str, u64), u32> {
        COUNTS.lock().unwrap().clone()
    }
}
