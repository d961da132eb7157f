//! Functions of which a log tells names and places, and no more.

use std::borrow::Cow;

use crate::machine::Machine;
use crate::runtime::{Change, CodeEvent, FileKind, FunctionView, RuntimeTime};
use crate::units::AddressRange;

/// A function.
#[derive(Clone, Debug)]
pub struct NamedFunction<'a> {
    /// Its name.
    pub name: Cow<'a, [u8]>,
    /// Where its code lies.
    pub range: AddressRange,
    /// Its machine code, as many bytes as `range` has, if somebody kept it.
    pub code: Option<Vec<u8>>,
}

/// The functions of one process.
#[derive(Clone, Debug)]
pub struct SymbolOnlyCode<'a> {
    /// The number of the process, as the log has it.
    pub pid: u32,
    /// The machine that the code is for.
    pub machine: Machine,
    /// What kind of file tells of them.
    pub told_by: FileKind,
    functions: Vec<NamedFunction<'a>>,
    events: Vec<CodeEvent>,
}

impl<'a> SymbolOnlyCode<'a> {
    /// No function yet.
    pub fn new(pid: u32, machine: Machine, told_by: FileKind) -> Self {
        Self {
            pid,
            machine,
            told_by,
            functions: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Adds a function whose code was put in place at `time`. Returns its number; `None` if there is none
    /// left.
    pub fn load(&mut self, function: NamedFunction<'a>, time: RuntimeTime) -> Option<u32> {
        let number = u32::try_from(self.functions.len()).ok()?;
        self.functions.push(function);
        self.push(number, time, Change::Load);
        Some(number)
    }

    /// Notes that the code of a function is gone since `time`.
    pub fn unload(&mut self, function: u32, time: RuntimeTime) {
        self.push(function, time, Change::Unload);
    }

    fn push(&mut self, function: u32, time: RuntimeTime, change: Change) {
        self.events.push(CodeEvent {
            time,
            pid: self.pid,
            function,
            change,
        });
    }

    /// Puts what happened into the order of time. What happened at the same time stays as it was added.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| event.time);
    }

    /// What happened to the functions, in the order of time after [`Self::sort`].
    pub fn events(&self) -> &[CodeEvent] {
        &self.events
    }

    /// Whether there is no function.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Whether the machine code of any function is known.
    pub fn has_code(&self) -> bool {
        self.functions.iter().any(|function| function.code.is_some())
    }

    /// One function.
    pub fn function(&self, number: u32) -> Option<&NamedFunction<'a>> {
        self.functions.get(usize::try_from(number).ok()?)
    }

    /// All about one function.
    pub fn view(&self, number: u32) -> Option<FunctionView<'_>> {
        let function = self.function(number)?;
        Some(FunctionView {
            number,
            name: &function.name,
            code: function.code.as_deref(),
            range: function.range,
            index: number.into(),
            unwinding: None,
            recorded_tier: None,
        })
    }

    /// How many bytes there are for a function: its name, and its code if that is known.
    pub fn record_bytes(&self, number: u32) -> u64 {
        let bytes = |function: &NamedFunction<'_>| {
            let code = function.code.as_ref().map_or(0, Vec::len);
            (function.name.len() as u64).saturating_add(code as u64)
        };
        self.function(number).map_or(0, bytes)
    }
}
