//! Functions that have another name or file on the second side.
//!
//! Conservative: a function that was renamed and rewritten in one commit counts as two.

use std::collections::BTreeSet;

use crate::collections::hash::{HashMap, HashSet};
use crate::results::name_style::ANONYMOUS;
use crate::results::summary::profile::CodeOrigin;
use crate::tools::compare::matching::identity::base_name;
use crate::tools::compare::matching::rows::{Callers, MatchedFunction, RunTable, Sizes};
use crate::tools::compare::matching::{AFTER, BEFORE};

/// Least share of the samples of its side. Smaller functions change no verdict, and chance makes them alike.
const MIN_SHARE: f64 = 0.001;

/// Largest ratio of the shares of a function under both names.
const MAX_RATIO: f64 = 1.5;

/// Largest difference of the sizes of code in one tier, as a part of the larger one.
const MAX_SIZE_DIFFERENCE: f64 = 0.1;

/// Functions that are compared by size for each caller and file.
const MAX_GROUP: usize = 64;

/// A function that only one side has.
struct Leftover<'t, 's> {
    row: u32,
    function: &'t MatchedFunction,
    share: f64,
    sizes: Sizes<'s>,
    callers: Callers,
}

/// A function under its names on both sides.
struct Rename<'l, 't, 's> {
    from: &'l Leftover<'t, 's>,
    to: &'l Leftover<'t, 's>,
}

/// Merges the rows of functions that were renamed or moved: those of the first side go into those of the second.
pub(super) fn merge_renamed(table: &mut RunTable<'_>) {
    let [before, after] = [BEFORE, AFTER].map(|side| leftovers(table, side));
    let mut renamed: HashMap<u32, u32> = HashMap::default();
    let mut taken: HashSet<u32> = HashSet::default();
    // The same name is better evidence than similar code, so it comes first.
    let by_name = same_name(&before, &after).into_iter();
    for Rename { from, to } in by_name.chain(same_body(&before, &after)) {
        if !renamed.contains_key(&from.row) && taken.insert(to.row) {
            renamed.insert(from.row, to.row);
        }
    }
    table.merge(&renamed);
}

/// Returns the functions of a side that the other one lacks.
fn leftovers<'t, 's>(table: &'t RunTable<'s>, side: usize) -> Vec<Leftover<'t, 's>> {
    let samples = table.runs_of(side).map(|run| table.samples(run));
    let all = samples.fold(0_u64, u64::saturating_add);
    let other = if side == BEFORE { AFTER } else { BEFORE };
    let has_other = !table.runs_of(other).is_empty();
    let share = |row| match all {
        0 => 0.0,
        all => table.side_counts(row, side).1 as f64 / all as f64,
    };
    let rows: Vec<(u32, &MatchedFunction, f64)> = table
        .live_rows()
        .filter(|&(row, function)| {
            let can_change = matches!(function.kind, CodeOrigin::Jit | CodeOrigin::Native);
            can_change && has_other && table.is_on(row, side) && !table.is_on(row, other)
        })
        .map(|(row, function)| (row, function, share(row)))
        .filter(|&(_, _, share)| share >= MIN_SHARE)
        .collect();
    let wanted: HashSet<u32> = rows.iter().map(|&(row, ..)| row).collect();
    let mut sizes = table.sizes(side, |row| wanted.contains(&row));
    let mut callers = table.callers(side, |row| wanted.contains(&row));
    rows.into_iter()
        .map(|(row, function, share)| Leftover {
            row,
            function,
            share,
            sizes: sizes.remove(&row).unwrap_or_default(),
            callers: callers.remove(&row).unwrap_or_default(),
        })
        .collect()
}

/// Functions whose file is another one: the only ones of their name on each side, which anonymous ones cannot be.
fn same_name<'l, 't, 's>(
    before: &'l [Leftover<'t, 's>],
    after: &'l [Leftover<'t, 's>],
) -> Vec<Rename<'l, 't, 's>> {
    let by_name = |side: &'l [Leftover<'t, 's>]| {
        // `None` for a name that several functions have.
        let mut found: HashMap<_, Option<&'l Leftover<'t, 's>>> = HashMap::default();
        for leftover in side.iter().filter(|it| it.function.name != ANONYMOUS) {
            let function = leftover.function;
            let key = (function.kind, &function.runtime, &*function.name);
            found
                .entry(key)
                .and_modify(|only| *only = None)
                .or_insert(Some(leftover));
        }
        found
    };
    let others = by_name(after);
    let mut renames = Vec::new();
    for (key, from) in by_name(before) {
        let Some((from, to)) = from.zip(others.get(&key).copied().flatten()) else {
            continue;
        };
        // Of the same name, an unknown size is enough.
        if sizes_fit(from, to) != Some(false) && shares_fit(from, to) {
            renames.push(Rename { from, to });
        }
    }
    // A hash table has no order, and the result must not depend on it.
    renames.sort_by_key(|rename| rename.from.row);
    renames
}

/// Functions of one file, with code of one size and the same most frequent caller. Each must be the only one that fits
/// the other.
fn same_body<'l, 't, 's>(
    before: &'l [Leftover<'t, 's>],
    after: &'l [Leftover<'t, 's>],
) -> Vec<Rename<'l, 't, 's>> {
    let group = |leftover: &Leftover<'t, 's>| {
        let caller = leftover.callers.first().map(|&(caller, _)| caller);
        let function = leftover.function;
        let place = function.module.clone().or_else(|| function.file.clone());
        let place = place.map(|path| base_name(&path).to_owned());
        (function.kind, function.runtime.clone(), place, caller)
    };
    let mut groups: HashMap<_, [Vec<&'l Leftover<'t, 's>>; 2]> = HashMap::default();
    for (side, leftovers) in [before, after].into_iter().enumerate() {
        for leftover in leftovers {
            let sides = groups.entry(group(leftover)).or_default();
            if let Some(side) = sides.get_mut(side).filter(|side| side.len() < MAX_GROUP) {
                side.push(leftover);
            }
        }
    }
    let mut renames = Vec::new();
    for [before, after] in groups.into_values() {
        let fits = |from: &Leftover<'_, '_>, to: &Leftover<'_, '_>| {
            sizes_fit(from, to) == Some(true) && shares_fit(from, to)
        };
        for &from in &before {
            let fitting: Vec<_> = after.iter().filter(|to| fits(from, to)).collect();
            let [&to] = fitting[..] else { continue };
            if before.iter().filter(|other| fits(other, to)).count() == 1 {
                renames.push(Rename { from, to });
            }
        }
    }
    renames.sort_by_key(|rename| rename.from.row);
    renames
}

/// Whether the code has similar sizes in the same tier in any two runs; `None` if no size is known.
fn sizes_fit(from: &Leftover<'_, '_>, to: &Leftover<'_, '_>) -> Option<bool> {
    let same_tier = from
        .sizes
        .iter()
        .filter_map(|(&tier, sizes)| Some(any_fit(sizes, to.sizes.get(tier)?)));
    same_tier.reduce(|one, other| one && other)
}

/// Whether a size and one of the others differ by so little that they may be those of one function.
fn any_fit(sizes: &BTreeSet<u64>, others: &BTreeSet<u64>) -> bool {
    let fits = |size: u64, other: u64| {
        let difference = size.abs_diff(other) as f64;
        difference <= size.max(other) as f64 * MAX_SIZE_DIFFERENCE
    };
    sizes.iter().any(|&size| {
        let next = [others.range(..size).next_back(), others.range(size..).next()];
        next.into_iter().flatten().any(|&other| fits(size, other))
    })
}

fn shares_fit(from: &Leftover<'_, '_>, to: &Leftover<'_, '_>) -> bool {
    from.share.max(to.share) <= from.share.min(to.share) * MAX_RATIO
}

#[cfg(test)]
mod tests {
    use crate::tools::compare::matching::match_functions;
    use crate::tools::compare::testing::{Profile, names};

    fn rows(before: Profile, after: Profile) -> Vec<(String, u64, u64)> {
        names(&match_functions(&[before.parse()], &[after.parse()]))
    }

    fn row(name: &str, before: u64, after: u64) -> (String, u64, u64) {
        (name.to_owned(), before, after)
    }

    /// A profile of `main` and a function that it calls.
    fn with_callee(name: &str, size: u64, samples: u64) -> Profile {
        let profile = Profile::new(1000).jit("JS:*main /a.js:1:1", 500);
        profile
            .jit(name, samples)
            .size(1, size)
            .callers(1, &[(0, samples)])
    }

    #[test]
    fn functions_of_the_same_size_and_caller_are_renamed() {
        let before = || with_callee("JS:*parse /a.js:9:1", 1000, 200);
        assert_eq!(
            rows(before(), with_callee("JS:*read /a.js:9:1", 1050, 210)),
            [row("main", 500, 500), row("read", 200, 210)]
        );
        for after in [
            // Another size, another share, another file.
            with_callee("JS:*read /a.js:9:1", 1200, 210),
            with_callee("JS:*read /a.js:9:1", 1050, 90),
            with_callee("JS:*read /b.js:9:1", 1050, 210),
        ] {
            assert_eq!(rows(before(), after).len(), 3);
        }
    }

    #[test]
    fn sizes_and_shares_of_a_renamed_function_may_differ_a_little() {
        for (size, samples, count) in [(1111, 200, 2), (1112, 200, 3), (1000, 299, 2), (1000, 301, 3)] {
            let before = with_callee("JS:*parse /a.js:9:1", 1000, 200);
            let after = with_callee("JS:*read /a.js:9:1", size, samples);
            assert_eq!(rows(before, after).len(), count, "{size} {samples}");
        }
    }

    /// A compiler adds code for what it has seen, so the sizes of two runs may differ.
    #[test]
    fn sizes_of_one_tier_are_those_of_all_runs() {
        let side = |name: &str, sizes: [u64; 2]| sizes.map(|size| with_callee(name, size, 200).parse());
        let after = side("JS:*read /a.js:9:1", [1360, 1000]);
        for (sizes, count) in [([1000, 1200], 2), ([1200, 1000], 2), ([1150, 1200], 3)] {
            let before = side("JS:*parse /a.js:9:1", sizes);
            assert_eq!(names(&match_functions(&before, &after)).len(), count, "{sizes:?}");
        }
    }

    #[test]
    fn functions_move_to_other_files() {
        let before = with_callee("JS:*parse /lib/a.js:9:1", 1000, 200);
        let after = with_callee("JS:*parse /lib/b.js:1:1", 1000, 210);
        let expected = [row("main", 500, 500), row("parse", 200, 210)];
        assert_eq!(rows(before, after), expected);
    }

    #[test]
    fn ambiguous_functions_stay_apart() {
        let two = |one: &str, other: &str| {
            with_callee(one, 1000, 200)
                .jit(other, 200)
                .size(2, 1000)
                .callers(2, &[(0, 200)])
        };
        let before = two("JS:*a /a.js:1:2", "JS:*b /a.js:2:2");
        let after = two("JS:*c /a.js:1:2", "JS:*d /a.js:2:2");
        assert_eq!(rows(before, after).len(), 5);
    }

    #[test]
    fn functions_with_a_thousandth_of_the_samples_are_renamed() {
        let profile = |name: &str, samples: u64| {
            let main = Profile::new(10_000).jit("JS:*main /a.js:1:1", 500);
            let profile = main.jit(name, samples).size(1, 1000);
            profile.callers(1, &[(0, samples)])
        };
        for (samples, count) in [(10, 2), (9, 3)] {
            let before = profile("JS:*parse /a.js:9:1", samples);
            let after = profile("JS:*read /a.js:9:1", samples);
            assert_eq!(rows(before, after).len(), count, "{samples}");
        }
    }

    #[test]
    fn of_the_functions_with_one_caller_64_are_compared_by_size() {
        let profile = |letter: char, count: usize| {
            let main = Profile::new(10_000).jit("JS:*main /a.js:1:1", 500);
            let sizes = std::iter::successors(Some(1000_u64), |size| Some(size * 5 / 4));
            (1..=count).zip(sizes).fold(main, |profile, (number, size)| {
                let profile = profile.jit(&format!("JS:*{letter}{number} /a.js:9:1"), 100);
                profile.size(number, size).callers(number, &[(0, 100)])
            })
        };
        // The last of 65 functions counts as two.
        for (count, expected) in [(64, 65), (65, 67)] {
            let found = rows(profile('a', count), profile('b', count));
            assert_eq!(found.len(), expected, "{count}");
        }
    }
}
