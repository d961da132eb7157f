//! The frames of interpreters between the functions that they run.

use jitdump::Address;

use crate::code::timeline::{FileIndex, FunctionId};
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::frames::native::modules::{MappedModule, ModuleIndex};
use crate::frames::native::symbols::NativeSymbols;
use crate::load::{UsedFile, function_of};

/// Functions through which CPython runs a function that has a trampoline (`-X perf`, `-X perf_jit`): its evaluator, and those
/// that call it.
const CPYTHON: [&str; 8] = [
    "_PyEval_EvalFrameDefault",
    "_PyEval_EvalFrame",
    "_PyEval_Vector",
    "_PyFunction_Vectorcall",
    "_PyObject_VectorcallTstate",
    "PyObject_Vectorcall",
    "_PyObject_Vectorcall",
    "py_trampoline_evaluator",
];

/// Built-in functions through which V8 enters its interpreter and compiled functions.
const V8: [&str; 7] = [
    "Builtins_InterpreterEntryTrampoline",
    "Builtins_InterpreterEnterAtBytecode",
    "Builtins_InterpreterEnterAtNextBytecode",
    "Builtins_BaselineOrInterpreterEnterAtBytecode",
    "Builtins_BaselineOrInterpreterEnterAtNextBytecode",
    "Builtins_JSEntryTrampoline",
    "Builtins_JSEntry",
];

/// Prefix that V8's jitdump has in place of that of the symbols.
const V8_DUMPED: &str = "Builtin:";

/// Recognizes frames of interpreters.
#[derive(Debug)]
pub struct Interpreters<'a> {
    /// Functions of runtimes.
    pub files: &'a IndexedTable<FileIndex, UsedFile<'a>>,
    /// Symbols of executables and libraries.
    pub symbols: NativeSymbols<'a>,
}

/// Answers for the symbols of modules that were asked for.
pub type KnownSymbols = HashMap<(ModuleIndex, u32), bool>;

impl Interpreters<'_> {
    /// Whether an address in a file is in an interpreter.
    pub fn is_native(&self, mapped: MappedModule, address: Address, known: &mut KnownSymbols) -> bool {
        let Some(symbol) = self.symbols.at(mapped.module, mapped.file_offset(address)) else {
            return false;
        };
        *known.entry((mapped.module, symbol)).or_insert_with(|| {
            let found = self.symbols.symbol(mapped.module, symbol);
            found.is_some_and(|(name, _)| is_interpreter(&name))
        })
    }

    /// Whether a function of a runtime is part of its interpreter.
    pub fn is_function(&self, id: FunctionId) -> bool {
        let name =
            function_of(self.files, id).and_then(|function| function.name.strip_prefix(V8_DUMPED.as_bytes()));
        let is_entry = |name: &[u8]| {
            let entries = V8.iter().filter_map(|entry| entry.strip_prefix("Builtins_"));
            entries.into_iter().any(|entry| entry.as_bytes() == name)
        };
        name.is_some_and(is_entry)
    }
}

/// Whether a symbol is that of an interpreter. Compilers add suffixes to parts of a function, such as `.cold`.
fn is_interpreter(name: &str) -> bool {
    let name = name.split('.').next().unwrap_or(name);
    CPYTHON.contains(&name) || V8.contains(&name)
}

/// Removes the frames of interpreters next to functions that they run; without these, nothing says what is run. The
/// first frame stays if it `is_sampled`, not below the kernel's. `kinds` has what each frame is.
pub fn fold(frames: &mut Vec<u64>, kinds: &[FrameKind], is_sampled: bool) {
    let is_function = |at: Option<usize>| at.and_then(|at| kinds.get(at)) == Some(&FrameKind::Function);
    let mut at = 0;
    let mut kept = Vec::with_capacity(frames.len());
    while let Some(&kind) = kinds.get(at) {
        let run = kinds.get(at..).unwrap_or_default();
        let run = run.iter().take_while(|&&other| other == kind).count();
        let is_joined = is_function(at.checked_sub(1)) || is_function(Some(at + run));
        let is_folded = kind == FrameKind::Interpreter && is_joined;
        kept.extend((at..at + run).map(|frame| !is_folded || is_sampled && frame == 0));
        at += run;
    }
    let mut kept = kept.into_iter();
    frames.retain(|_| kept.next().unwrap_or(true));
}

/// What a frame is, for [`fold`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// A function of a runtime.
    Function,
    /// Part of an interpreter.
    Interpreter,
    /// Anything else.
    Other,
}

#[cfg(test)]
mod tests {
    use super::FrameKind::{Function, Interpreter, Other};
    use super::*;

    #[test]
    fn interpreters_are_folded_next_to_functions() {
        let folded_below = |is_sampled: bool, kinds: &[FrameKind]| {
            let mut frames = (0..kinds.len() as u64).collect();
            fold(&mut frames, kinds, is_sampled);
            frames
        };
        let folded = |kinds: &[FrameKind]| folded_below(true, kinds);
        let stack = [
            Other,
            Interpreter,
            Function,
            Interpreter,
            Interpreter,
            Other,
            Interpreter,
            Other,
            Interpreter,
            Function,
        ];
        assert_eq!(folded(&stack), [0, 2, 5, 6, 7, 9]);
        assert_eq!(
            folded(&[Interpreter, Interpreter, Function]),
            [0, 2],
            "the sampled frame stays"
        );
        assert_eq!(folded_below(false, &[Interpreter, Interpreter, Function]), [2]);
        assert_eq!(folded(&[Interpreter, Other]), [0, 1]);
    }

    #[test]
    fn parts_of_the_evaluator_count_as_the_evaluator() {
        assert!(is_interpreter("_PyEval_EvalFrameDefault.cold") && is_interpreter("Builtins_JSEntry"));
        assert!(!is_interpreter("PyObject_Call"));
    }
}
