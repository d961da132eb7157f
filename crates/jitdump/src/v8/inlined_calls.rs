//! Inlined calls from the functions of each row: which function is inlined into which, and where.

use crate::collections::hash::HashMap;
use crate::debug_info::{DebugInfo, InlinedCall, MAX_DEPTH, SourceFile, SourceFunction};
use crate::v8::common_callers::common_callers;
use crate::v8::functions::FunctionCalls;
use crate::v8::text::TextPosition;
use crate::v8::v8_inlining::{InliningCandidate, InliningEvidence, Owners, simple_name};

/// Maximum number of callers of a name that are compared for each row. Only made-up files have more.
const MAX_CALLERS: usize = 64;

/// The inlined functions, and which of them is inlined into which.
pub(super) struct InlinedFunctions<'a> {
    /// The function itself, followed by the inlined ones.
    functions: Vec<InliningCandidate<'a>>,
    /// A call of each function, by its index, followed by calls from other callers.
    calls: Vec<Call>,
    /// The call that each row is in.
    of_rows: Vec<usize>,
}

/// A call that is inlined.
struct Call {
    /// Called function, as an index.
    function: usize,
    /// The call that it is in, as an index.
    caller: usize,
    /// Position of the call, if it is known.
    site: Option<TextPosition>,
}

impl<'a> InlinedFunctions<'a> {
    /// Finds the caller of each inlined function: the only one whose text calls it by its name, or the nearest one that
    /// all of several are inlined into, or else the outer function. The code before and after it may show which of
    /// several it is.
    pub(super) fn new(
        own: InliningCandidate<'a>,
        owners: &Owners<'a>,
        evidence: InliningEvidence<'_, 'a>,
    ) -> Self {
        let mut inlined: Vec<InliningCandidate<'a>> = owners.iter().flatten().copied().collect();
        inlined.sort_unstable();
        inlined.dedup();
        inlined.retain(|&function| function != own);
        let functions: Vec<InliningCandidate<'a>> = std::iter::once(own).chain(inlined).collect();
        let calls: Vec<Option<FunctionCalls<'a>>> =
            functions.iter().map(|&caller| evidence.calls(caller)).collect();
        let names = CalledNames::new(&functions, &calls);
        let callers = common_callers(&names.called, &names.named);
        let of_each = callers.into_iter().enumerate().map(|(function, caller)| Call {
            function,
            caller,
            site: None,
        });
        let mut all = Self {
            calls: of_each.collect(),
            functions,
            of_rows: Vec::new(),
        };
        all.cut_depth();
        for call in all.calls.iter_mut().skip(1) {
            if names.only_caller(call.function) == Some(call.caller) {
                call.site = site_of(&all.functions, &calls, call.caller, call.function);
            }
        }
        all.find_calls_of_rows(owners, &names, &calls);
        all
    }

    /// Makes functions that are inlined too deeply callees of the outer function.
    fn cut_depth(&mut self) {
        for at in 1..self.calls.len() {
            let depth = self.depth(at);
            if depth.is_none()
                && let Some(call) = self.calls.get_mut(at)
            {
                call.caller = 0;
            }
        }
    }

    /// Finds the call that each row is in. Where several functions call its function, that is from the one whose code
    /// is nearest both before and after it.
    fn find_calls_of_rows(&mut self, owners: &Owners<'a>, names: &CalledNames, calls: &KnownCalls<'a>) {
        let functions = owners.iter().map(|owner| Some(self.index_of(owner.as_ref()?)));
        let functions: Vec<Option<usize>> = functions.collect();
        let before = names.callers_passed_last(functions.iter().copied());
        let mut after = names.callers_passed_last(functions.iter().rev().copied());
        after.reverse();
        let mut known: HashMap<(usize, usize), Option<usize>> = HashMap::default();
        for ((function, before), after) in functions.into_iter().zip(before).zip(after) {
            let function = function.unwrap_or_default();
            let call = before.filter(|_| before == after).and_then(|caller| {
                let add = || self.add_call(function, caller, calls);
                *known.entry((function, caller)).or_insert_with(add)
            });
            self.of_rows.push(call.unwrap_or(function));
        }
    }

    /// Adds a call from one of several callers. Returns its index; `None` if the caller is itself inlined into the
    /// function, or too deeply.
    fn add_call(&mut self, function: usize, caller: usize, calls: &KnownCalls<'a>) -> Option<usize> {
        let (mut at, mut depth) = (caller, 0u32);
        while at > 0 {
            depth = depth.saturating_add(1);
            if at == function || depth >= MAX_DEPTH {
                return None;
            }
            at = self.calls.get(at)?.caller;
        }
        self.calls.push(Call {
            function,
            caller,
            site: site_of(&self.functions, calls, caller, function),
        });
        self.calls.len().checked_sub(1)
    }

    /// Number of inlined functions around a function; `None` if there are too many.
    fn depth(&self, mut at: usize) -> Option<u32> {
        let mut depth = 0u32;
        loop {
            at = self.calls.get(at)?.caller;
            if at == 0 {
                return Some(depth);
            }
            depth = depth.saturating_add(1);
            if depth >= MAX_DEPTH {
                return None;
            }
        }
    }

    /// Adds the calls, their functions and files to `info`.
    pub(super) fn write(&self, info: &mut DebugInfo<'a>, size: u32, owners: &Owners<'a>) {
        let mut files: HashMap<&[u8], u32> = HashMap::default();
        let own_path = self.functions.first().map_or(&b""[..], |own| own.path);
        files.insert(own_path, 0);
        for function in self.functions.iter().skip(1) {
            let next = info.files.len() as u32;
            let file = *files.entry(function.path).or_insert(next);
            if file == next {
                info.files.push(SourceFile::from(function.path));
            }
            info.functions.push(SourceFunction {
                name: function.name,
                file: Some(file),
                line: function.start.line,
                column: function.start.column,
            });
        }
        let ends: Vec<u32> = info
            .rows
            .iter()
            .skip(1)
            .map(|row| row.offset)
            .chain([size])
            .collect();
        let mut ranges = vec![Vec::new(); self.calls.len()];
        let rows = info.rows.iter_mut().zip(ends).zip(owners);
        for (((row, end), owner), &at) in rows.zip(&self.of_rows) {
            let Some(call) = self.calls.get(at).filter(|_| owner.is_some()) else {
                (row.file, row.line, row.column) = (None, 0, 0);
                continue;
            };
            let function = info.functions.get(call.function);
            row.file = function.and_then(|function| function.file);
            // The code is that of the callers, too.
            let mut inner = at;
            while let Some(ranges) = ranges.get_mut(inner).filter(|_| inner > 0) {
                ranges.push(row.offset..end);
                inner = self.calls.get(inner).map_or(0, |call| call.caller);
            }
        }
        self.write_calls(info, ranges);
    }

    /// Returns the index of a function; 0, that of the function itself, for an unknown one.
    fn index_of(&self, function: &InliningCandidate<'a>) -> usize {
        let rest = self.functions.get(1..).unwrap_or_default();
        rest.binary_search(function).map_or(0, |at| at.saturating_add(1))
    }

    /// Adds calls, each followed by those inside it.
    fn write_calls(&self, info: &mut DebugInfo<'a>, mut ranges: Vec<Vec<std::ops::Range<u32>>>) {
        let mut callees = vec![Vec::new(); self.calls.len()];
        for (at, call) in self.calls.iter().enumerate().skip(1).rev() {
            if let Some(callees) = callees.get_mut(call.caller) {
                callees.push(at);
            }
        }
        let mut next: Vec<(usize, u32)> = callees.first().into_iter().flatten().map(|&at| (at, 0)).collect();
        while let Some((at, depth)) = next.pop() {
            let Some(call) = self.calls.get(at) else { continue };
            let site = call.site.unwrap_or_default();
            info.calls.push(InlinedCall {
                depth,
                function: call.function as u32,
                ranges: ranges.get_mut(at).map(std::mem::take).unwrap_or_default(),
                line: site.line,
                column: site.column,
            });
            let inner = callees.get(at).into_iter().flatten();
            next.extend(inner.map(|&at| (at, depth.saturating_add(1))));
        }
    }
}

/// The names of inlined functions.
struct CalledNames {
    /// Functions with each name.
    named: Vec<Vec<usize>>,
    /// Functions that call each name.
    callers: Vec<Vec<usize>>,
    /// Names that each function calls.
    called: Vec<Vec<usize>>,
    /// Number of each function's name; the outer one has none here.
    names_of_functions: Vec<Option<usize>>,
}

impl CalledNames {
    /// Collects the names that functions call.
    fn new(functions: &[InliningCandidate<'_>], calls: &KnownCalls<'_>) -> Self {
        let mut numbers: HashMap<&[u8], usize> = HashMap::default();
        let mut named: Vec<Vec<usize>> = Vec::new();
        let mut names_of_functions = vec![None; functions.len()];
        let with_names = functions.iter().zip(&mut names_of_functions).enumerate();
        for (at, (function, name_of_function)) in with_names.skip(1) {
            let name = simple_name(function.name);
            if name.is_empty() {
                continue;
            }
            let number = *numbers.entry(name).or_insert(named.len());
            *name_of_function = Some(number);
            match named.get_mut(number) {
                Some(named) => named.push(at),
                None => named.push(vec![at]),
            }
        }
        let mut callers = vec![Vec::new(); named.len()];
        let mut called = Vec::with_capacity(calls.len());
        for (caller, calls) in calls.iter().enumerate() {
            let names = calls.as_ref().map(|calls| called_names(calls, &numbers));
            let names = names.unwrap_or_default();
            for &name in &names {
                if let Some(callers) = callers.get_mut(name) {
                    callers.push(caller);
                }
            }
            called.push(names);
        }
        Self {
            named,
            callers,
            called,
            names_of_functions,
        }
    }

    /// Returns the functions that call a function by its name. It may be one of them.
    fn callers_of(&self, function: usize) -> &[usize] {
        let name = self.names_of_functions.get(function).copied().flatten();
        let callers = name.and_then(|name| self.callers.get(name));
        callers.map_or(&[][..], Vec::as_slice)
    }

    /// Returns the only function that calls another one, apart from that one itself.
    fn only_caller(&self, function: usize) -> Option<usize> {
        match *self.callers_of(function) {
            [only] => Some(only),
            [one, other] if one == function => Some(other),
            [one, other] if other == function => Some(one),
            _ => None,
        }
    }

    /// Returns for each row the caller of its function that had a row last, in the order of `functions_of_rows`; `None` if
    /// none had one yet, or if the function has only one caller or too many.
    fn callers_passed_last(
        &self,
        functions_of_rows: impl Iterator<Item = Option<usize>>,
    ) -> Vec<Option<usize>> {
        // Last row so far of each function.
        let mut last_rows: Vec<Option<usize>> = vec![None; self.names_of_functions.len()];
        let callers_of_rows = functions_of_rows.enumerate().map(|(row, function)| {
            let function = function?;
            if let Some(last_row) = last_rows.get_mut(function) {
                *last_row = Some(row);
            }
            let callers = self.callers_of(function);
            if callers.len() > MAX_CALLERS || self.only_caller(function).is_some() {
                return None;
            }
            // A row of the function itself says nothing about its caller.
            let others = callers.iter().copied().filter(|&caller| caller != function);
            let passed = others.filter_map(|caller| {
                let last_row = last_rows.get(caller).copied().flatten()?;
                Some((last_row, caller))
            });
            passed.max().map(|(_, caller)| caller)
        });
        callers_of_rows.collect()
    }
}

/// The calls from each function, as far as its text is available.
type KnownCalls<'a> = [Option<FunctionCalls<'a>>];

/// Returns the numbers of the names that a function calls, sorted. A text may have any number of calls, of which few names
/// are inlined.
fn called_names(calls: &FunctionCalls<'_>, numbers: &HashMap<&[u8], usize>) -> Vec<usize> {
    let mut called: Vec<usize> = if calls.count() <= numbers.len() {
        calls
            .names()
            .filter_map(|name| numbers.get(name).copied())
            .collect()
    } else {
        let called = numbers.iter().filter(|(name, _)| calls.has(name));
        called.map(|(_, &number)| number).collect()
    };
    called.sort_unstable();
    called.dedup();
    called
}

/// Returns the position of the calls of a function in the text of another one, if it is known.
fn site_of(
    functions: &[InliningCandidate<'_>],
    calls: &KnownCalls<'_>,
    caller: usize,
    function: usize,
) -> Option<TextPosition> {
    let name = simple_name(functions.get(function)?.name);
    calls.get(caller)?.as_ref()?.site(name)
}
