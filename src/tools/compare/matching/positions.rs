//! Which of several functions of one name and file is which.
//!
//! Functions move with their neighbors: one that is the only one of its name tells how far those next to it have moved.
//! Between functions that are found in this way, the others match in their order if both sides have as many of them,
//! and count as one function if not.

use std::collections::BTreeMap;
use std::iter::Peekable;

use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::IndexedTable;
use crate::collections::interner::Interner;
use crate::results::summary::profile::CodeOrigin;
use crate::tools::compare::matching::identity::Identity;
use crate::tools::compare::summary_file::ParsedSummary;

/// Least share of the samples of its side with which a function is among those whose order matters.
const MIN_SHARE: f64 = 0.001;

/// Position of the code of a script outside its functions.
const SCRIPT: Position = (1, 1);

/// Position of functions without one.
const UNKNOWN: Position = (0, 0);

/// Identity without the position: kind, origin, name and file.
type Key<'k> = (CodeOrigin, &'k str, &'k str, Option<&'k str>);

/// Line and column of a function.
type Position = (u32, u32);

/// Numbers of the different keys.
pub struct Keys<'k> {
    /// By run and function.
    numbers: Vec<Vec<u32>>,
    /// By number.
    keys: IndexedTable<u32, Key<'k>>,
}

impl<'k> Keys<'k> {
    /// Numbers the keys of the functions of all runs.
    pub fn of(identities: &'k [Vec<Identity<'_>>]) -> Self {
        let mut keys: Interner<Key<'k>> = Interner::default();
        let mut number = |identity: &'k Identity<'_>| {
            let file = identity.file.as_deref();
            keys.of((identity.kind, &*identity.origin, &*identity.name, file))
        };
        let runs = identities.iter();
        let numbers = runs
            .map(|functions| functions.iter().map(&mut number).collect())
            .collect();
        Self {
            numbers,
            keys: keys.all,
        }
    }

    /// Returns the number of a function's key.
    pub fn get(&self, run: usize, function: usize) -> u32 {
        let run = self.numbers.get(run);
        run.and_then(|run| run.get(function)).copied().unwrap_or_default()
    }

    fn file(&self, key: u32) -> Option<&'k str> {
        self.keys.row(key)?.3
    }
}

/// Numbers of functions with the same key.
#[derive(Default)]
pub struct Positions {
    /// By key, side and position. Functions whose key has one position have number 0.
    ordinals: HashMap<(u32, usize, Position), u32>,
    /// Keys and numbers of functions that count as one, because they cannot be told apart.
    merged: HashSet<(u32, u32)>,
}

/// A function of a run whose position is known.
struct PlacedFunction {
    key: u32,
    /// 0 or 1, the index of its side.
    side: usize,
    position: Position,
    /// Samples with it in their stack.
    samples: u64,
}

/// Samples of the functions of one key on one side.
type Samples = BTreeMap<Position, u64>;

/// Positions on both sides of a function that is the only one of its name and file.
type Anchor = [Position; 2];

impl Positions {
    /// Numbers the functions of all runs, the first `runs_before` of which are of the first side.
    pub fn of(
        runs: &[&ParsedSummary],
        identities: &[Vec<Identity<'_>>],
        keys: &Keys<'_>,
        runs_before: usize,
    ) -> Self {
        let placed = placed_functions(runs, identities, keys, runs_before);
        let mut first: [Vec<Option<Position>>; 2] =
            [vec![None; keys.keys.len()], vec![None; keys.keys.len()]];
        let mut several: HashMap<u32, [Samples; 2]> = HashMap::default();
        for function in &placed {
            let of_side = first.get_mut(function.side);
            let Some(known) = of_side.and_then(|positions| positions.get_mut(function.key as usize)) else {
                continue;
            };
            if *known.get_or_insert(function.position) != function.position {
                several.entry(function.key).or_default();
            }
        }
        // Now that these keys are known, so that the many others take no memory.
        for function in &placed {
            let sides = several.get_mut(&function.key);
            if let Some(side) = sides.and_then(|sides| sides.get_mut(function.side)) {
                let sum = side.entry(function.position).or_default();
                *sum = sum.saturating_add(function.samples);
            }
        }
        let anchors = anchors(keys, &first, &several);
        let all = samples_of_sides(runs, runs_before);
        let mut positions = Self::default();
        for (key, sides) in several {
            let anchors = keys.file(key).and_then(|file| anchors.get(file));
            let numbers = Numbers {
                positions: &mut positions,
                key,
                next: 0,
            };
            numbers.match_sides(&sides, anchors.map(Vec::as_slice).unwrap_or_default(), all);
        }
        positions
    }

    /// Returns the number of a function within its key.
    pub fn ordinal(&self, key: u32, side: usize, position: Position) -> u32 {
        let ordinal = self.ordinals.get(&(key, side, position));
        ordinal.copied().unwrap_or_default()
    }

    /// Whether several functions have a number, whose positions differ.
    pub fn is_merged(&self, key: u32, ordinal: u32) -> bool {
        self.merged.contains(&(key, ordinal))
    }
}

/// Returns the functions of all runs whose position is known.
fn placed_functions(
    runs: &[&ParsedSummary],
    identities: &[Vec<Identity<'_>>],
    keys: &Keys<'_>,
    runs_before: usize,
) -> Vec<PlacedFunction> {
    let mut placed = Vec::new();
    for (number, (run, identities)) in runs.iter().zip(identities).enumerate() {
        let functions = run.profile.functions.iter().zip(identities).enumerate();
        let known = functions.filter(|(_, (_, identity))| identity.position != UNKNOWN);
        placed.extend(known.map(|(index, (function, identity))| {
            let (own, total) = function.counts();
            PlacedFunction {
                key: keys.get(number, index),
                side: usize::from(number >= runs_before),
                position: identity.position,
                // A summary that was edited may have a smaller total.
                samples: own.max(total),
            }
        }));
    }
    placed
}

/// Returns the samples of the first event of all runs of each side.
fn samples_of_sides(runs: &[&ParsedSummary], runs_before: usize) -> [u64; 2] {
    let mut sides = [0_u64; 2];
    for (number, run) in runs.iter().enumerate() {
        let [before, after] = &mut sides;
        let side = if number < runs_before { before } else { after };
        let samples = run.profile.events.first().map_or(0, |event| event.samples);
        *side = side.saturating_add(samples);
    }
    sides
}

/// Returns the anchors of each file in which a name occurs several times, in the order of the first side.
fn anchors<'k>(
    keys: &Keys<'k>,
    first: &[Vec<Option<Position>>; 2],
    several: &HashMap<u32, [Samples; 2]>,
) -> HashMap<&'k str, Vec<Anchor>> {
    let files = several.keys().filter_map(|&key| keys.file(key));
    let mut anchors: HashMap<&str, Vec<Anchor>> = files.map(|file| (file, Vec::new())).collect();
    let [before, after] = first;
    for ((before, after), key) in before.iter().zip(after).zip(0..) {
        let known = keys.file(key).and_then(|file| anchors.get_mut(file));
        if let (Some(known), Some(before), Some(after)) = (known, before, after)
            && !several.contains_key(&key)
        {
            known.push([*before, *after]);
        }
    }
    for anchors in anchors.values_mut() {
        anchors.sort_unstable();
    }
    anchors
}

/// Returns the places on the second side where a function may be: it has moved as the anchor above it, or as the one
/// below. The beginning of a file does not move.
fn places(position: Position, anchors: &[Anchor]) -> [Option<Position>; 2] {
    if position == SCRIPT {
        return [Some(SCRIPT), None];
    }
    let next = anchors.partition_point(|[before, _]| *before <= position);
    let above = next.checked_sub(1).and_then(|above| anchors.get(above));
    let above = above.copied().unwrap_or_default();
    let below = anchors.get(next).copied().unwrap_or(above);
    let (line, column) = position;
    let moved = |value: u32, before: u32, after: u32| value.checked_add(after)?.checked_sub(before);
    [above, below].map(|[(line_before, column_before), (line_after, column_after)]| {
        // What is inserted into a line moves only the rest of it.
        let column = if line_before == line {
            moved(column, column_before, column_after)?
        } else {
            column
        };
        Some((moved(line, line_before, line_after)?, column))
    })
}

/// Returns functions that are certainly the same: only one is where each of them may be, and their order is kept.
fn certain_pairs([before, after]: &[Samples; 2], anchors: &[Anchor]) -> Vec<Anchor> {
    let mut pairs = Vec::new();
    let mut last: Option<Position> = None;
    for &position in before.keys() {
        let is_free = |place: &Position| after.contains_key(place) && last.is_none_or(|last| last < *place);
        let place = match places(position, anchors).map(|place| place.filter(&is_free)) {
            [Some(one), Some(other)] if one != other => None,
            [one, other] => one.or(other),
        };
        if let Some(place) = place {
            pairs.push([position, place]);
            last = Some(place);
        }
    }
    pairs
}

/// Gives numbers to the functions of one key.
struct Numbers<'p> {
    positions: &'p mut Positions,
    key: u32,
    next: u32,
}

impl Numbers<'_> {
    /// Gives the same numbers to the same functions of both sides, which have `all` samples.
    fn match_sides(mut self, sides: &[Samples; 2], anchors: &[Anchor], all: [u64; 2]) {
        let [before, after] = sides;
        let is_moved = anchors.iter().any(|[before, after]| before != after);
        let is_in = |one: &Samples, other: &Samples| one.keys().all(|position| other.contains_key(position));
        // Without moves, functions have their old positions, and one side lacks some that have no samples there.
        if !is_moved && (is_in(before, after) || is_in(after, before)) {
            let longer = if before.len() > after.len() { before } else { after };
            let same: Vec<Position> = longer.keys().copied().collect();
            self.number([same.clone(), same]);
            return;
        }
        let pairs = if anchors.is_empty() {
            Vec::new()
        } else {
            certain_pairs(sides, anchors)
        };
        let [samples_before, samples_after] = all.map(|all| all as f64 * MIN_SHARE);
        let mut before = with_size(before, samples_before).peekable();
        let mut after = with_size(after, samples_after).peekable();
        for pair in pairs {
            let [end_before, end_after] = pair.map(Some);
            self.number_gap([until(&mut before, end_before), until(&mut after, end_after)]);
            // The pair itself.
            let found = [before.next(), after.next()];
            self.number(found.map(|found| found.into_iter().map(|it| it.position).collect()));
        }
        self.number_gap([until(&mut before, None), until(&mut after, None)]);
    }

    /// Numbers functions between two that are known. If not all have a counterpart, but all large ones may have, the small
    /// ones are numbered by themselves: a run may lack any of them by chance.
    fn number_gap(&mut self, sides: [Vec<Candidate>; 2]) {
        let of_size = |is_large: bool| {
            sides.each_ref().map(|side| -> Vec<Position> {
                let fitting = side.iter().filter(|candidate| candidate.is_large == is_large);
                fitting.map(|candidate| candidate.position).collect()
            })
        };
        let [before, after] = sides.each_ref().map(Vec::len);
        let large = of_size(true);
        let [large_before, large_after] = large.each_ref().map(Vec::len);
        if before != after && large_before == large_after {
            self.number(large);
            self.number(of_size(false));
        } else {
            self.number(sides.map(|side| side.into_iter().map(|it| it.position).collect()));
        }
    }

    /// Numbers functions in their order if both sides have as many, or one has none. Otherwise, they get one number.
    fn number(&mut self, sides: [Vec<Position>; 2]) {
        let [before, after] = sides.each_ref().map(Vec::len);
        let is_merged = before != after && before > 0 && after > 0;
        let first = self.next;
        if is_merged {
            self.positions.merged.insert((self.key, first));
        }
        let count = if is_merged { 1 } else { before.max(after) as u32 };
        self.next = first.saturating_add(count);
        for (side, positions) in sides.into_iter().enumerate() {
            for (position, number) in positions.into_iter().zip(first..) {
                let number = if is_merged { first } else { number };
                self.positions.ordinals.insert((self.key, side, position), number);
            }
        }
    }
}

/// A function that gets a number.
struct Candidate {
    position: Position,
    /// Whether it has so many samples that each run should have some.
    is_large: bool,
}

/// Returns functions in the order of their positions. Large ones have at least `least` samples.
fn with_size(samples: &Samples, least: f64) -> impl Iterator<Item = Candidate> {
    samples.iter().map(move |(&position, &samples)| Candidate {
        position,
        is_large: samples as f64 >= least,
    })
}

/// Takes what is before `end`; all if there is none.
fn until(rest: &mut Peekable<impl Iterator<Item = Candidate>>, end: Option<Position>) -> Vec<Candidate> {
    let is_before = |candidate: &Candidate| end.is_none_or(|end| candidate.position < end);
    std::iter::from_fn(|| rest.next_if(is_before)).collect()
}
