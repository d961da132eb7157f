//! Matches the functions of several runs.

mod folders;
mod generated_names;
mod identity;
mod positions;
mod renames;
mod rows;
mod versions;

use std::borrow::Cow;

use crate::collections::hash::{HashMap, HashSet};
use crate::threads;
use crate::tools::compare::matching::folders::{Folders, MovedFolders};
use crate::tools::compare::matching::identity::Identity;
use crate::tools::compare::matching::positions::{Keys, Positions};
use crate::tools::compare::summary_file::ParsedSummary;

pub use self::rows::{Callers, MatchedFunction, RunTable};

/// Side of the comparison: index of the pair of values.
pub const BEFORE: usize = 0;
/// The other side.
pub const AFTER: usize = 1;

/// Matches the functions of `before` with those of `after`.
pub fn match_functions<'s>(before: &'s [ParsedSummary], after: &'s [ParsedSummary]) -> RunTable<'s> {
    let runs: Vec<&ParsedSummary> = before.iter().chain(after).collect();
    let mut identities: Vec<Vec<Identity<'s>>> = threads::map(&runs, |run| {
        let functions = run.profile.functions.iter();
        functions.map(Identity::of).collect()
    });
    align_folders(&mut identities, before.len());
    versions::tell_apart(&mut identities, before.len());
    let keys = Keys::of(&identities);
    let positions = Positions::of(&runs, &identities, &keys, before.len());
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
    for (&(key, ordinal), &row) in &row_of {
        if positions.is_merged(key, ordinal) {
            table.remove_line(row);
        }
    }
    table.correct_totals();
    renames::merge_renamed(&mut table);
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

    /// Returns a profile with functions `run` at these lines, and others.
    fn runs_at(functions: &[(u32, u64)], others: &[(&str, u32)]) -> Profile {
        let profile = Profile::new(10_000);
        let profile = functions.iter().fold(profile, |profile, (line, samples)| {
            profile.jit(&format!("JS:*run /a.js:{line}:6"), *samples)
        });
        others.iter().fold(profile, |profile, (name, line)| {
            profile.jit(&format!("JS:*{name} /a.js:{line}:6"), 1000)
        })
    }

    #[test]
    fn functions_of_one_name_move_with_their_neighbors() {
        let before = runs_at(&[(10, 4000), (30, 2000), (50, 300), (70, 1000)], &[("main", 90)]);
        let after = [(30, 4000), (50, 2000), (70, 600), (90, 1000), (25, 500)];
        let after = runs_at(&after, &[("main", 110)]);
        assert_eq!(
            rows(&[before], &[after]),
            [
                row("run", 4000, 4000),
                row("run", 2000, 2000),
                row("run", 300, 600),
                row("run", 1000, 1000),
                row("main", 1000, 1000),
                row("run", 0, 500),
            ]
        );
        // Lines were added below the first one, or above it.
        let before = runs_at(&[(10, 3000), (30, 1000), (50, 500)], &[("main", 70)]);
        let after = runs_at(&[(10, 3000), (20, 300), (40, 1000), (60, 500)], &[("main", 80)]);
        assert_eq!(
            rows(&[before], &[after]),
            [
                row("run", 3000, 3300),
                row("run", 1000, 1000),
                row("run", 500, 500),
                row("main", 1000, 1000),
            ]
        );
    }

    #[test]
    fn columns_of_a_minified_file_move_as_well() {
        let profile = |shift: u32, more: u64| {
            let at = |column: u32| format!("/a.js:1:{}", column + shift);
            let profile = Profile::new(100).jit("JS:~ /a.js:1:1", 5);
            let profile = profile.jit(&format!("JS:*f {}", at(90)), 10);
            let profile = profile.jit(&format!("JS:* {}", at(200)), 20 + more);
            profile.jit(&format!("JS:* {}", at(300)), 30)
        };
        let after = profile(7, 1).jit("JS:* /a.js:1:250", 9);
        assert_eq!(
            rows(&[profile(0, 0)], &[after]),
            [
                row("(anonymous)", 5, 5),
                row("f", 10, 10),
                row("(anonymous)", 20, 21),
                row("(anonymous)", 30, 30),
                row("(anonymous)", 0, 9),
            ]
        );
    }

    #[test]
    fn functions_below_a_thousandth_do_not_change_the_order_of_others() {
        let before = [runs_at(&[(10, 500), (30, 300)], &[]).parse()];
        for (samples, expected) in [
            (
                9,
                vec![row("run", 500, 510), row("run", 300, 310), row("run", 0, 9)],
            ),
            (10, vec![row("run", 800, 830)]),
        ] {
            let after = [runs_at(&[(12, 510), (20, samples), (32, 310)], &[]).parse()];
            let table = match_functions(&before, &after);
            assert_eq!(names(&table), expected);
            // A row of several functions has no line.
            let line = table.function(0).unwrap().line;
            assert_eq!(line, Some(12).filter(|_| samples == 9));
        }
    }

    #[test]
    fn closures_of_php_are_told_apart() {
        let profile = |functions: [(u32, u64); 2]| {
            functions
                .iter()
                .fold(Profile::new(100), |profile, (line, samples)| {
                    profile.jit(&format!("TRACE-{line}$App\\{{closure}}${line}"), *samples)
                })
        };
        let before = [profile([(6, 20), (7, 30)]).parse()];
        let after = [profile([(11, 25), (12, 31)]).parse()];
        let table = match_functions(&before, &after);
        let name = "App\\{closure}";
        assert_eq!(names(&table), [row(name, 20, 25), row(name, 30, 31)]);
        let text = table.function(1).unwrap().text();
        assert_eq!(text, format!("{name}:12"));
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
        assert_eq!(table.side_counts(0, BEFORE), (90, 95));
        // Stacks are in the order of their first samples, so that another one may be between callers and callees.
        let interleaved = profile
            .jit("JS:*g /a.js:9:1", 3)
            .stacks(&[(-1, 0, 5), (-1, 2, 3), (0, 1, 90)]);
        let before = [interleaved.parse()];
        let table = match_functions(&before, &[]);
        assert_eq!(table.side_counts(0, BEFORE), (90, 95));
        assert_eq!(table.side_counts(1, BEFORE), (3, 3));
    }
}
