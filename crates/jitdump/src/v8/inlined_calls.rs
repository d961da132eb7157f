//! Inlined calls from the functions of each row: which function is inlined into which, and where.

use crate::collections::hash::HashMap;
use crate::debug_info::{DebugInfo, InlinedCall, MAX_DEPTH, SourceFile, SourceFunction};
use crate::v8::common_callers::common_callers;
use crate::v8::text::TextPosition;
use crate::v8::v8_inlining::{CallSites, InliningCandidate, InliningEvidence, Owners, simple_name};

/// The inlined functions, and which of them is inlined into which.
pub(super) struct InlinedFunctions<'a> {
    /// The function itself, followed by the inlined ones.
    functions: Vec<InliningCandidate<'a>>,
    /// Caller of each function as an index, and the position of the call if it is known.
    callers: Vec<(usize, Option<TextPosition>)>,
}

impl<'a> InlinedFunctions<'a> {
    /// Finds the caller of each inlined function: the only one whose text calls it by its name, or the nearest one that all of
    /// several are inlined into, or else the outer function.
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
        let sites: Vec<CallSites<'a>> = functions.iter().map(|&caller| evidence.calls(caller)).collect();
        let names = CalledNames::new(&functions, &sites);
        let callers = common_callers(&names.called, &names.named);
        let mut calls = Self {
            callers: callers.into_iter().map(|caller| (caller, None)).collect(),
            functions,
        };
        calls.cut_depth();
        for ((at, callee), (caller, site)) in
            calls.functions.iter().enumerate().zip(&mut calls.callers).skip(1)
        {
            if names.only_caller(callee, at) == Some(*caller) {
                let sites = sites
                    .get(*caller)
                    .and_then(|sites| sites.get(simple_name(callee.name)));
                *site = sites.and_then(|sites| call_site(sites));
            }
        }
        calls
    }

    /// Makes functions that are inlined too deeply callees of the outer function.
    fn cut_depth(&mut self) {
        for at in 1..self.callers.len() {
            let depth = self.depth(at);
            if depth.is_none()
                && let Some(caller) = self.callers.get_mut(at)
            {
                *caller = (0, None);
            }
        }
    }

    /// Number of inlined functions around a function; `None` if there are too many.
    fn depth(&self, mut at: usize) -> Option<u32> {
        let mut depth = 0u32;
        loop {
            at = self.callers.get(at)?.0;
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
        let mut ranges = vec![Vec::new(); self.functions.len()];
        for ((row, end), owner) in info.rows.iter_mut().zip(ends).zip(owners) {
            let Some(owner) = owner else {
                (row.file, row.line, row.column) = (None, 0, 0);
                continue;
            };
            let at = self.index(owner);
            let function = info.functions.get(at);
            row.file = function.and_then(|function| function.file);
            // The code is that of the callers, too.
            let mut inner = at;
            while let Some(ranges) = ranges.get_mut(inner).filter(|_| inner > 0) {
                ranges.push(row.offset..end);
                inner = self.callers.get(inner).map_or(0, |caller| caller.0);
            }
        }
        self.write_calls(info, ranges);
    }

    fn index(&self, function: &InliningCandidate<'a>) -> usize {
        let rest = self.functions.get(1..).unwrap_or_default();
        rest.binary_search(function).map_or(0, |at| at.saturating_add(1))
    }

    /// Adds calls, each followed by those inside it.
    fn write_calls(&self, info: &mut DebugInfo<'a>, mut ranges: Vec<Vec<std::ops::Range<u32>>>) {
        let mut callees = vec![Vec::new(); self.functions.len()];
        for (at, (caller, _)) in self.callers.iter().enumerate().skip(1).rev() {
            if let Some(callees) = callees.get_mut(*caller) {
                callees.push(at);
            }
        }
        let mut next: Vec<(usize, u32)> = callees.first().into_iter().flatten().map(|&at| (at, 0)).collect();
        while let Some((at, depth)) = next.pop() {
            let site = self
                .callers
                .get(at)
                .and_then(|caller| caller.1)
                .unwrap_or_default();
            info.calls.push(InlinedCall {
                depth,
                function: at as u32,
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
struct CalledNames<'a> {
    /// Number of each name.
    numbers: HashMap<&'a [u8], usize>,
    /// Functions with each name.
    named: Vec<Vec<usize>>,
    /// Functions that call each name.
    callers: Vec<Vec<usize>>,
    /// Names that each function calls.
    called: Vec<Vec<usize>>,
}

impl<'a> CalledNames<'a> {
    fn new(functions: &[InliningCandidate<'a>], sites: &[CallSites<'a>]) -> Self {
        let mut numbers: HashMap<&'a [u8], usize> = HashMap::default();
        let mut named: Vec<Vec<usize>> = Vec::new();
        for (at, function) in functions.iter().enumerate().skip(1) {
            let name = simple_name(function.name);
            if name.is_empty() {
                continue;
            }
            let number = *numbers.entry(name).or_insert(named.len());
            match named.get_mut(number) {
                Some(named) => named.push(at),
                None => named.push(vec![at]),
            }
        }
        let mut callers = vec![Vec::new(); named.len()];
        let mut called = Vec::with_capacity(sites.len());
        for (caller, sites) in sites.iter().enumerate() {
            let names = sites.keys().filter_map(|name| numbers.get(name).copied());
            let mut names: Vec<usize> = names.collect();
            names.sort_unstable();
            for &name in &names {
                if let Some(callers) = callers.get_mut(name) {
                    callers.push(caller);
                }
            }
            called.push(names);
        }
        Self {
            numbers,
            named,
            callers,
            called,
        }
    }

    /// Returns the function that calls another one, apart from that one itself, if there is only one.
    fn only_caller(&self, callee: &InliningCandidate<'a>, at: usize) -> Option<usize> {
        let number = *self.numbers.get(simple_name(callee.name))?;
        match self.callers.get(number)?[..] {
            [only] => Some(only),
            [one, other] if one == at => Some(other),
            [one, other] if other == at => Some(one),
            _ => None,
        }
    }
}

/// The position of a call, or only its line if there are several on one line.
fn call_site(sites: &[TextPosition]) -> Option<TextPosition> {
    let (first, rest) = sites.split_first()?;
    match rest {
        [] => Some(*first),
        _ => rest
            .iter()
            .all(|site| site.line == first.line)
            .then_some(TextPosition {
                line: first.line,
                column: 0,
            }),
    }
}
