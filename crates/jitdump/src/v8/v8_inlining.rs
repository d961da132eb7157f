//! Which functions V8 has inlined into another, by the positions of its code.
//!
//! Quirk: for each address, V8 writes the line and the column of the innermost inlined function, but always the file
//! of the outer one (`LinuxPerfJitLogger::LogWriteDebugInfo`; captures node20, node22). So a position that the
//! function does not have belongs to another one. What a function has is known from its baseline code, and
//! otherwise from the text of its script, where it extends over a range and each position is the start of a token.
//!
//! Baseline code has no inlined calls, so its records have exactly the positions of a function: this
//! decides nearly always. In large programs, most positions are in several files. So a function counts as
//! inlined only if it is called by its name, if it is in the same file and alone has a position, or if it
//! alone has several. Rows next to each other decide among such functions. What is still ambiguous has no
//! line.

use std::borrow::Cow;
use std::cell::RefCell;

use crate::collections::hash::{HashMap, HashSet};
use crate::debug_info::DebugInfo;
use crate::v8::by_path::ByPath;
use crate::v8::functions::{FunctionCalls, Script};
use crate::v8::inlined_calls::InlinedFunctions;
use crate::v8::known_functions::KnownFunctions;
use crate::v8::text::TextPosition;

/// Maximum number of functions to compare for a position. Only made-up files have more.
const MAX_CANDIDATES: usize = 64;

/// The scripts whose text is available, by path.
pub type Scripts<'s> = ByPath<'s, Script<'s>>;

/// What is known of the functions of a process.
#[derive(Clone, Copy, Debug)]
pub struct InliningEvidence<'e, 'a> {
    /// Functions of its jitdump.
    pub functions: &'e KnownFunctions<'a>,
    /// Texts of its scripts.
    pub scripts: &'e Scripts<'a>,
}

/// A function that code may be from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InliningCandidate<'a> {
    /// Path of the script.
    pub path: &'a [u8],
    /// Start of the function.
    pub start: TextPosition,
    /// Name of the function; may be empty.
    pub name: &'a [u8],
}

/// Number of rows of a function whose file was found to be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InliningCorrections {
    /// Rows that are in an inlined function.
    pub rows: u64,
    /// Rows in functions of other files.
    pub in_other_files: u64,
    /// Rows without a line, because the function that they are in was not found.
    pub unknown: u64,
}

/// The function of each row: `None` if it is unknown.
pub(super) type Owners<'a> = Vec<Option<InliningCandidate<'a>>>;

/// Adds the inlined calls to the debug information of an optimized function, whose rows must be sorted. Rows of functions that
/// are not found lose their lines. Returns `None` if it is not affected: its position is unknown, or V8 names more than one
/// file.
pub fn add_calls<'a>(
    info: &mut DebugInfo<'a>,
    size: u32,
    evidence: InliningEvidence<'_, 'a>,
) -> Option<InliningCorrections> {
    let [file] = &info.files[..] else { return None };
    let declared = info.functions.first().filter(|_| info.calls.is_empty())?;
    let start = TextPosition {
        line: declared.line,
        column: declared.column,
    };
    if start.line == 0 || start.column == 0 {
        return None;
    }
    let Cow::Borrowed(path) = file.path else {
        return None;
    };
    let own = evidence.candidate(path, start);
    let owners = owners(info, own, evidence);
    let counts = count(&owners, own);
    if counts != InliningCorrections::default() {
        InlinedFunctions::new(own, &owners, evidence).write(info, size, &owners);
        // Merges ranges.
        info.normalise(size);
    }
    Some(counts)
}

/// Counts the rows that belong to other functions than V8 says.
fn count(owners: &Owners<'_>, own: InliningCandidate<'_>) -> InliningCorrections {
    let mut counts = InliningCorrections::default();
    for owner in owners {
        match owner {
            None => counts.unknown = counts.unknown.saturating_add(1),
            Some(owner) if *owner == own => {}
            Some(owner) => {
                counts.rows = counts.rows.saturating_add(1);
                let is_elsewhere = u64::from(owner.path != own.path);
                counts.in_other_files = counts.in_other_files.saturating_add(is_elsewhere);
            }
        }
    }
    counts
}

impl<'a> InliningEvidence<'_, 'a> {
    /// Returns the function that starts at a position.
    fn candidate(&self, path: &'a [u8], start: TextPosition) -> InliningCandidate<'a> {
        let known = self.functions.starting_at(path, start);
        let in_script = || {
            let script = self.scripts.get(path)?;
            Some(script.name(script.function_that_starts_at(start)?))
        };
        let name = known.map(|known| known.name).filter(|name| !name.is_empty());
        InliningCandidate {
            path,
            start,
            name: name.or_else(in_script).unwrap_or_default(),
        }
    }

    /// Returns the functions that have a position, sorted. If nothing is known of the function itself, it has all
    /// positions after its start.
    fn candidates(&self, position: TextPosition, own: InliningCandidate<'a>) -> Vec<InliningCandidate<'a>> {
        let known = self.functions.with_position(position, own.path);
        let mut all: Vec<_> = known
            .take(MAX_CANDIDATES)
            .map(|known| self.candidate(known.path, known.start))
            .collect();
        // A text that is evaluated under several names has the same functions in each.
        if self.scripts.get(own.path).is_none() {
            let near = all.iter().filter(|function| function.path == own.path);
            let near: HashSet<TextPosition> = near.map(|function| function.start).collect();
            all.retain(|function| function.path == own.path || !near.contains(&function.start));
        }
        all.extend(self.candidate_at(own.path, position));
        if position == own.start || (position > own.start && !self.has_extent(own)) {
            all.push(own);
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether it is known which positions a function has.
    fn has_extent(&self, function: InliningCandidate<'a>) -> bool {
        let known = self.functions.starting_at(function.path, function.start);
        let script = self.scripts.get(function.path);
        let in_script = |script: &Script<'_>| script.function_that_starts_at(function.start).is_some();
        known.is_some_and(|known| known.has_positions()) || script.is_some_and(in_script)
    }

    /// Returns the function of a script at a position, unless its baseline code lacks the position.
    fn candidate_at(&self, path: &'a [u8], position: TextPosition) -> Option<InliningCandidate<'a>> {
        let script = self.scripts.get(path)?;
        let offset = script.text().offset(position)?;
        if !script.is_token_start(offset) {
            return None;
        }
        let index = script.function_at(offset);
        let start = match index {
            // The script itself.
            0 => TextPosition { line: 1, column: 1 },
            _ => script
                .text()
                .position(script.functions().get(index as usize)?.range.start),
        };
        let known = self.functions.starting_at(path, start);
        let is_possible = known.is_none_or(|known| !known.has_positions() || known.has(position));
        (is_possible || position == start).then(|| self.candidate(path, start))
    }

    /// Returns the calls in the text of a function, if it is available.
    pub(super) fn calls(&self, caller: InliningCandidate<'a>) -> Option<FunctionCalls<'a>> {
        let script = self.scripts.get(caller.path)?;
        Some(script.calls_of(script.function_that_starts_at(caller.start)?))
    }
}

/// Name of a function in a call: `small` for `exports.small` or `get small`.
pub(super) fn simple_name(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| b". ".contains(byte))
        .next()
        .unwrap_or_default()
}

/// Maximum number of rounds in which functions are accepted because others call them.
const MAX_ROUNDS: usize = 8;

/// Maximum number of positions to look up in the texts of all scripts.
const MAX_LOOKUPS: usize = 1 << 12;

/// Number of functions with these positions after which no further position is looked up.
const MAX_ELSEWHERE: usize = 1 << 16;

/// The search for the functions that were inlined into one.
struct InliningSearch<'e, 'a> {
    own: InliningCandidate<'a>,
    evidence: InliningEvidence<'e, 'a>,
    candidates: HashMap<TextPosition, Vec<InliningCandidate<'a>>>,
    /// Functions that were inlined; and the function itself.
    accepted: HashSet<InliningCandidate<'a>>,
    /// What the texts of accepted functions call.
    called: RefCell<CallerTexts<'a>>,
    /// Number of positions that each candidate has.
    coverage: HashMap<InliningCandidate<'a>, usize>,
}

/// Names that functions call. Texts may have any number of calls, of which few names are needed, or few calls and many
/// functions whose names are looked up.
#[derive(Default)]
struct CallerTexts<'a> {
    /// Functions in which names are looked up, and how many were.
    callers: Vec<(FunctionCalls<'a>, usize)>,
    /// Names that the other functions call: those in which as many names were looked up as they have calls.
    names: HashSet<&'a [u8]>,
}

impl CallerTexts<'_> {
    /// Whether one of the functions calls a name.
    fn has(&mut self, name: &[u8]) -> bool {
        if self.names.contains(name) {
            return true;
        }
        let mut is_called = false;
        self.callers.retain_mut(|(calls, lookups)| {
            is_called = is_called || calls.has(name);
            *lookups = lookups.saturating_add(1);
            let is_left = *lookups < calls.count();
            if !is_left {
                self.names.extend(calls.names());
            }
            is_left
        });
        is_called
    }
}

impl<'a> InliningSearch<'_, 'a> {
    /// Whether the text of an accepted function calls a function by its name.
    fn is_called(&self, function: &InliningCandidate<'a>) -> bool {
        let name = simple_name(function.name);
        !name.is_empty() && self.called.borrow_mut().has(name)
    }

    /// Whether a function was inlined that alone, or with others, has a position. It must be in the same file or called by
    /// its name, or have several positions that no other function has: some position of any large program is in many files.
    fn is_acceptable(&self, function: &InliningCandidate<'a>, is_alone: bool) -> bool {
        let is_near = || {
            let has_calls = self.evidence.scripts.get(self.own.path).is_some();
            function.path == self.own.path
                || !has_calls
                || self.coverage.get(function).is_some_and(|&count| count > 1)
        };
        self.is_called(function) || (is_alone && is_near())
    }

    /// Accepts a function.
    fn add(&mut self, function: InliningCandidate<'a>) {
        if self.accepted.insert(function) {
            let calls = self.evidence.calls(function);
            self.called
                .get_mut()
                .callers
                .extend(calls.map(|calls| (calls, 0)));
        }
    }

    /// Accepts candidates that fit those accepted before, in rounds, until a round adds none.
    fn accept(&mut self) {
        let mut elsewhere = FoundElsewhere {
            functions: HashMap::default(),
            room: MAX_ELSEWHERE,
        };
        for round in 0..MAX_ROUNDS {
            let new = self.newly_acceptable();
            // Even if the first round adds none, the function itself may call some elsewhere.
            if new.is_empty() && round > 0 {
                break;
            }
            for function in new {
                self.add(function);
            }
            self.look_elsewhere(&mut elsewhere);
        }
    }

    /// Returns the candidates that fit those accepted so far, and are not among them.
    fn newly_acceptable(&self) -> Vec<InliningCandidate<'a>> {
        let of_each = self.candidates.values().flat_map(|candidates| {
            let is_alone = candidates.len() == 1;
            candidates.iter().map(move |candidate| (candidate, is_alone))
        });
        let unknown = of_each.filter(|(candidate, _)| !self.accepted.contains(candidate));
        unknown
            .filter(|&(candidate, is_alone)| self.is_acceptable(candidate, is_alone))
            .map(|(candidate, _)| *candidate)
            .collect()
    }

    /// Looks for the positions that no known function has in other scripts. Functions there become candidates if they are called.
    fn look_elsewhere(&mut self, elsewhere: &mut FoundElsewhere<'a>) {
        let unknown = self.candidates.iter().filter(|(_, found)| found.is_empty());
        let mut unknown: Vec<TextPosition> = unknown.map(|(&position, _)| position).collect();
        // The order of a hash table is random, and there may not be room for all.
        unknown.sort_unstable();
        for position in unknown {
            let found = match elsewhere.functions.get(&position) {
                Some(found) => found,
                None if elsewhere.functions.len() >= MAX_LOOKUPS || elsewhere.room == 0 => continue,
                None => {
                    let found = self.in_other_scripts(position);
                    elsewhere.room = elsewhere.room.saturating_sub(found.len());
                    elsewhere.functions.entry(position).or_insert(found)
                }
            };
            let called = found.iter().filter(|found| self.is_called(found));
            self.candidates.insert(position, called.copied().collect());
        }
    }

    /// Returns the functions in other scripts that have a position.
    fn in_other_scripts(&self, position: TextPosition) -> Vec<InliningCandidate<'a>> {
        let paths = self.evidence.scripts.paths();
        let others = paths.filter(|&path| path != self.own.path);
        let found = others.filter_map(|path| self.evidence.candidate_at(path, position));
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        found
    }

    /// Leaves those of several candidates that fit best; more than one only if they fit equally well.
    fn best(&self, candidates: &[InliningCandidate<'a>]) -> Vec<InliningCandidate<'a>> {
        let accepted = candidates
            .iter()
            .filter(|candidate| self.accepted.contains(candidate));
        let accepted: Vec<InliningCandidate<'a>> = accepted.copied().collect();
        if accepted.len() < 2 || accepted.contains(&self.own) {
            return accepted;
        }
        let called: Vec<_> = accepted
            .iter()
            .filter(|candidate| self.is_called(candidate))
            .copied()
            .collect();
        let left = if called.is_empty() { accepted } else { called };
        let coverage =
            |candidate: &InliningCandidate<'a>| self.coverage.get(candidate).copied().unwrap_or_default();
        let most = left.iter().map(coverage).max();
        left.into_iter()
            .filter(|candidate| Some(coverage(candidate)) == most)
            .collect()
    }
}

/// What was found in other scripts than those of known functions.
struct FoundElsewhere<'a> {
    /// Functions with a position, whoever calls them.
    functions: HashMap<TextPosition, Vec<InliningCandidate<'a>>>,
    /// How many more are looked for.
    room: usize,
}

/// Returns the function of each row.
fn owners<'a>(
    info: &DebugInfo<'a>,
    own: InliningCandidate<'a>,
    evidence: InliningEvidence<'_, 'a>,
) -> Owners<'a> {
    let rows = info.rows.iter();
    let positions = rows.map(|row| TextPosition {
        line: row.line,
        column: row.column,
    });
    let positions: Vec<TextPosition> = positions.collect();
    let mut search = InliningSearch {
        own,
        evidence,
        candidates: HashMap::default(),
        accepted: HashSet::default(),
        called: RefCell::default(),
        coverage: HashMap::default(),
    };
    for &position in &positions {
        let candidates = || evidence.candidates(position, own);
        search.candidates.entry(position).or_insert_with(candidates);
    }
    for candidate in search.candidates.values().flatten() {
        let count = search.coverage.entry(*candidate).or_default();
        *count = count.saturating_add(1);
    }
    search.add(own);
    search.accept();
    let best = search
        .candidates
        .iter()
        .map(|(&position, found)| (position, search.best(found)));
    let best: HashMap<TextPosition, Vec<InliningCandidate<'a>>> = best.collect();
    let candidates = positions.iter().map(|position| best.get(position));
    let candidates: Vec<&[InliningCandidate<'a>]> = candidates
        .map(|found| found.map_or(&[][..], Vec::as_slice))
        .collect();
    let mut owners = by_neighbours(&candidates);
    drop_accidental(&mut owners, &candidates, own, evidence);
    owners
}

/// Numbers of rows of a function that seems to be inlined.
#[derive(Clone, Copy, Debug, Default)]
struct RowCounts {
    own: usize,
    /// Rows of unknown functions that are beside its own.
    unknown: usize,
}

/// Drops functions that only seem to be inlined, because their text has a token at a position of another function: one whose text is
/// missing, such as evaluated code. The text of an inlined function has all its positions. So where a function without baseline
/// code has no more rows than there are rows of unknown functions beside them, it is not inlined.
fn drop_accidental<'a>(
    owners: &mut Owners<'a>,
    candidates: &[&[InliningCandidate<'a>]],
    own: InliningCandidate<'a>,
    evidence: InliningEvidence<'_, 'a>,
) {
    let is_unknown = |row: Option<usize>| {
        let found = row.and_then(|row| candidates.get(row));
        found.is_some_and(|found| found.is_empty())
    };
    let mut counts: HashMap<InliningCandidate<'a>, RowCounts> = HashMap::default();
    for (row, owner) in owners.iter().enumerate() {
        let Some(owner) = owner.filter(|&owner| owner != own) else {
            continue;
        };
        let counts = counts.entry(owner).or_default();
        counts.own = counts.own.saturating_add(1);
        for beside in [row.checked_sub(1), row.checked_add(1)] {
            counts.unknown = counts.unknown.saturating_add(is_unknown(beside).into());
        }
    }
    counts.retain(|function, counts| {
        let known = evidence.functions.starting_at(function.path, function.start);
        counts.own <= counts.unknown && !known.is_some_and(|known| known.has_positions())
    });
    for owner in owners {
        owner.take_if(|owner| counts.contains_key(owner));
    }
}

/// Chooses among several functions of a row by the rows before and after it, which are mostly in the same function. A row that
/// may belong to the function before it or another one after it belongs to none.
fn by_neighbours<'a>(candidates: &[&[InliningCandidate<'a>]]) -> Owners<'a> {
    let forward = by_runs(candidates.iter());
    let mut backward = by_runs(candidates.iter().rev());
    backward.reverse();
    let both = forward.into_iter().zip(backward);
    both.map(|(forward, backward)| match (forward, backward) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => one.or(other),
    })
    .collect()
}

/// Splits rows into the longest runs whose rows have a function in common. Returns it for each row if there is only one.
fn by_runs<'r, 'a: 'r>(rows: impl Iterator<Item = &'r &'r [InliningCandidate<'a>]>) -> Owners<'a> {
    let mut owners = Vec::new();
    let mut common: Vec<InliningCandidate<'a>> = Vec::new();
    let mut length = 0usize;
    let end = |common: &[InliningCandidate<'a>], length: usize, owners: &mut Owners<'a>| {
        let owner = match common {
            [owner] => Some(*owner),
            _ => None,
        };
        owners.extend(std::iter::repeat_n(owner, length));
    };
    for row in rows {
        let left: Vec<InliningCandidate<'a>> = common
            .iter()
            .filter(|common| row.contains(common))
            .copied()
            .collect();
        if left.is_empty() {
            end(&common, length, &mut owners);
            (common, length) = (row.to_vec(), 0);
        } else {
            common = left;
        }
        length = length.saturating_add(1);
    }
    end(&common, length, &mut owners);
    owners
}

#[cfg(test)]
mod tests;
