//! Matches the functions of several runs.

mod folders;
mod identity;
mod renames;
mod rows;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::IndexedTable;
use crate::collections::interner::Interner;
use crate::results::summary::profile::FunctionKind;
use crate::threads;
use crate::tools::compare::matching::folders::{Folders, MovedFolders};
use crate::tools::compare::matching::identity::Identity;
use crate::tools::compare::summary_file::ParsedSummary;

pub use self::rows::{Callers, FunctionCounts, MatchedFunction, RunTable};

/// Side of the comparison: index of the pair of values.
pub const BEFORE: usize = 0;
/// The other side.
pub const AFTER: usize = 1;

/// Identity without the position: kind, origin, name and file.
type Key<'k> = (FunctionKind, &'k str, &'k str, Option<&'k str>);

/// Line and column of a function.
type Position = (u32, u32);

/// Matches the functions of `before` with those of `after`.
pub fn match_functions<'s>(before: &'s [ParsedSummary], after: &'s [ParsedSummary]) -> RunTable<'s> {
    let runs: Vec<&ParsedSummary> = before.iter().chain(after).collect();
    let mut identities: Vec<Vec<Identity<'s>>> = threads::map(&runs, |run| {
        let functions = run.profile.functions.iter();
        functions.map(Identity::of).collect()
    });
    align_folders(&mut identities, before.len());
    let keys = Keys::of(&identities);
    let positions = Positions::of(&identities, &keys, before.len());
    let mut table = RunTable::new(&runs, before.len());
    let mut row_of: HashMap<(u32, u32), u32> = HashMap::default();
    for (run, functions) in identities.iter().enumerate() {
        let side = if run < before.len() { BEFORE } else { AFTER };
        for (index, identity) in functions.iter().enumerate() {
            let key = keys.get(run, index);
            let ordinal = positions.ordinal(key, side, identity.position);
            let row = *row_of
                .entry((key, ordinal))
                .or_insert_with(|| table.add_function());
            table.add_entry(run, index, row, identity);
        }
    }
    table.correct_totals();
    renames::find(&mut table);
    table
}

/// Replaces folders by those of the earlier runs of a side, and then those of the second side by those of the first.
fn align_folders(identities: &mut [Vec<Identity<'_>>], runs_before: usize) {
    let (before, after) = identities.split_at_mut(runs_before);
    for side in [&mut *before, &mut *after] {
        let files: Vec<HashSet<&str>> = side.iter().map(|run| files_of(run.iter())).collect();
        let mut folders = Folders::of_program(&files);
        let moved: Vec<MovedFolders> = files.iter().map(|files| folders.align(files)).collect();
        for (run, moved) in side.iter_mut().zip(&moved) {
            replace_folders(run, moved);
        }
    }
    let mut folders = Folders::default();
    folders.align(&files_of(before.iter().flatten()));
    let moved = folders.align(&files_of(after.iter().flatten()));
    for run in after {
        replace_folders(run, &moved);
    }
}

fn files_of<'i, 's: 'i>(functions: impl Iterator<Item = &'i Identity<'s>>) -> HashSet<&'i str> {
    functions.filter_map(|it| it.file.as_deref()).collect()
}

fn replace_folders(functions: &mut [Identity<'_>], moved: &MovedFolders) {
    for function in functions {
        let aligned = match function.file.as_deref().map(|file| moved.apply(file)) {
            Some(Cow::Owned(file)) => file,
            _ => continue,
        };
        function.file = Some(Cow::Owned(aligned));
    }
}

/// Numbers of the different keys.
struct Keys<'k> {
    /// By run and function.
    numbers: Vec<Vec<u32>>,
    /// By number.
    keys: IndexedTable<u32, Key<'k>>,
}

impl<'k> Keys<'k> {
    fn of(identities: &'k [Vec<Identity<'_>>]) -> Self {
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

    fn get(&self, run: usize, function: usize) -> u32 {
        let run = self.numbers.get(run);
        run.and_then(|run| run.get(function)).copied().unwrap_or_default()
    }
}

/// Which of several functions with the same key is which.
struct Positions {
    /// Numbers within their key. Other functions have number 0.
    ordinals: HashMap<(u32, usize, Position), u32>,
}

impl Positions {
    fn of(identities: &[Vec<Identity<'_>>], keys: &Keys<'_>, runs_before: usize) -> Self {
        let mut first: [Vec<Option<Position>>; 2] =
            [vec![None; keys.keys.len()], vec![None; keys.keys.len()]];
        let mut several: HashMap<u32, [BTreeSet<Position>; 2]> = HashMap::default();
        let entries = |identities: &[Vec<Identity<'_>>]| {
            let mut entries = Vec::new();
            for (run, functions) in identities.iter().enumerate() {
                let side = if run < runs_before { BEFORE } else { AFTER };
                let positions = functions.iter().map(|identity| identity.position).enumerate();
                let positions = positions.filter(|&(_, position)| position != (0, 0));
                entries.extend(positions.map(|(index, position)| (keys.get(run, index), side, position)));
            }
            entries
        };
        let entries = entries(identities);
        for &(key, side, position) in &entries {
            let Some(known) = first.get_mut(side).and_then(|side| side.get_mut(key as usize)) else {
                continue;
            };
            if *known.get_or_insert(position) != position {
                several.entry(key).or_default();
            }
        }
        for &(key, side, position) in &entries {
            if let Some(set) = several.get_mut(&key).and_then(|sides| sides.get_mut(side)) {
                set.insert(position);
            }
        }
        let shifted = shifted_files(keys, &first, &several);
        let mut ordinals = HashMap::default();
        for (key, [before, after]) in several {
            let file = keys.keys.row(key).and_then(|key| key.3);
            let has_shifted = file.is_some_and(|file| shifted.contains(file));
            let is_same = !has_shifted && (before.is_subset(&after) || after.is_subset(&before));
            let numbered: [Vec<Position>; 2] = match is_same {
                true => {
                    let all: Vec<Position> = before.union(&after).copied().collect();
                    [all.clone(), all]
                }
                false if before.len() == after.len() => [before, after].map(|set| set.into_iter().collect()),
                // Which of them is which cannot be decided, so they count as one function.
                false => continue,
            };
            for (side, positions) in numbered.into_iter().enumerate() {
                let numbers = positions.into_iter().zip(0..);
                ordinals.extend(numbers.map(|(position, number)| ((key, side, position), number)));
            }
        }
        Self { ordinals }
    }

    fn ordinal(&self, key: u32, side: usize, position: Position) -> u32 {
        let ordinal = self.ordinals.get(&(key, side, position));
        ordinal.copied().unwrap_or_default()
    }
}

/// Returns the files in which a function that is the only one of its name has another position.
fn shifted_files<'k>(
    keys: &Keys<'k>,
    first: &[Vec<Option<Position>>; 2],
    several: &HashMap<u32, [BTreeSet<Position>; 2]>,
) -> HashSet<&'k str> {
    let [before, after] = first;
    let pairs = before.iter().zip(after).zip(&keys.keys).zip(0..);
    let moved = pairs.filter_map(|(((before, after), key), number)| match (before, after) {
        (Some(before), Some(after)) if before != after && !several.contains_key(&number) => key.3,
        _ => None,
    });
    moved.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::compare::testing::{Profile, names};

    fn rows(before: &[Profile], after: &[Profile]) -> Vec<(String, u64, u64)> {
        let [before, after] = [before, after].map(|side| side.iter().map(Profile::parse).collect::<Vec<_>>());
        names(&match_functions(&before, &after))
    }

    fn row(name: &str, before: u64, after: u64) -> (String, u64, u64) {
        (name.to_owned(), before, after)
    }

    #[test]
    fn tiers_lines_and_folders_make_no_difference() {
        let before = Profile::new(100)
            .jit("JS:*main /home/a/app.js:2:10", 40)
            .jit("JS:~main /home/a/app.js:2:10", 5)
            .jit("JS:*eat /home/a/lib/eat.js:8:1", 30);
        let after = Profile::new(100)
            .jit("JS:^main /ci/build/app.js:3:10", 44)
            .jit("JS:*eat /ci/build/lib/eat.js:9:1", 31);
        assert_eq!(
            rows(&[before], &[after]),
            [row("main", 45, 44), row("eat", 30, 31)]
        );
    }

    /// `left/index.js` is so rare that some runs have no samples in it.
    #[test]
    fn packages_stay_apart_if_one_of_them_has_no_samples() {
        let main = || Profile::new(100).jit("JS:*main /app/main.js:1:1", 60);
        let left = |run: Profile| run.jit("JS:*init /app/left/index.js:1:1", 1);
        let right = |run: Profile| run.jit("JS:*parse /app/right/index.js:1:1", 12);
        assert_eq!(
            rows(&[left(main()), main()], &[right(main()), right(left(main()))]),
            [row("main", 120, 120), row("init", 1, 1), row("parse", 0, 24)]
        );
    }

    #[test]
    fn functions_of_one_name_are_told_apart_by_their_order() {
        let anonymous = |first: u64, second: u64, shift: u32| {
            Profile::new(100)
                .jit(&format!("JS:* /a.js:{}:1", 1 + shift), first)
                .jit(&format!("JS:* /a.js:{}:1", 9 + shift), second)
        };
        let expected = [row("(anonymous)", 60, 20), row("(anonymous)", 30, 50)];
        assert_eq!(rows(&[anonymous(60, 30, 0)], &[anonymous(20, 50, 0)]), expected);
        assert_eq!(rows(&[anonymous(60, 30, 0)], &[anonymous(20, 50, 5)]), expected);
        // One of them has no samples: by its position, it is the second.
        let second = Profile::new(100).jit("JS:* /a.js:9:1", 50);
        let expected = [row("(anonymous)", 60, 0), row("(anonymous)", 30, 50)];
        assert_eq!(rows(&[anonymous(60, 30, 0)], &[second]), expected);
        // Other lines of the file have moved, so positions say nothing.
        let shifted = Profile::new(100)
            .jit("JS:* /a.js:9:1", 50)
            .jit("JS:*f /a.js:6:1", 1);
        let known = anonymous(60, 30, 0).jit("JS:*f /a.js:5:1", 1);
        let expected = [row("(anonymous)", 90, 50), row("f", 1, 1)];
        assert_eq!(rows(&[known], &[shifted]), expected);
    }

    #[test]
    fn kinds_and_modules_are_told_apart() {
        let profile = |scale: u64| {
            Profile::new(1000)
                .native("memcpy", "/lib/libc.so.6", 10 * scale)
                .native("memcpy", "/lib/ld.so", 3 * scale)
                .jit("memcpy", 2 * scale)
        };
        let expected = [row("memcpy", 10, 20), row("memcpy", 3, 6), row("memcpy", 2, 4)];
        assert_eq!(rows(&[profile(1)], &[profile(2)]), expected);
    }

    #[test]
    fn totals_of_tiers_on_one_stack_count_once() {
        let profile = Profile::new(100)
            .jit("JS:~f /a.js:1:1", 0)
            .jit("JS:*f /a.js:1:1", 90)
            .total(0, 95)
            .total(1, 90)
            .stacks(&[(-1, 0, 5), (0, 1, 90)]);
        let before = [profile.parse()];
        let table = match_functions(&before, &[]);
        assert_eq!(table.counts(0, 0), FunctionCounts { own: 90, total: 95 });
        // Stacks are in the order of their first samples, so that another one may be between callers and callees.
        let interleaved = profile
            .jit("JS:*g /a.js:9:1", 3)
            .stacks(&[(-1, 0, 5), (-1, 2, 3), (0, 1, 90)]);
        let before = [interleaved.parse()];
        let table = match_functions(&before, &[]);
        assert_eq!(table.counts(0, 0), FunctionCounts { own: 90, total: 95 });
        assert_eq!(table.counts(1, 0), FunctionCounts { own: 3, total: 3 });
    }
}
