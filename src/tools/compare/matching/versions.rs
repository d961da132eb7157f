//! Files whose paths differ in a version or hash only, such as two chunks of a bundle, or a package in two versions.
//!
//! Runs that have one of them have the same file, whatever its hash. If a run has several, those with the same hash on
//! both sides are the same file, and so are the others if each side has one.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::collections::hash::HashMap;
use crate::tools::compare::matching::identity::Identity;

/// Versions of one file.
#[derive(Default)]
struct Versions<'i> {
    /// Those of each side.
    sides: [BTreeSet<&'i str>; 2],
    /// The last run, and its version.
    last: Option<(usize, &'i str)>,
    /// Whether a run has several, so that they are different files.
    are_files: bool,
}

impl<'i> Versions<'i> {
    /// Adds the version of a function in a run of a side.
    fn add_version(&mut self, run: usize, side: usize, version: &'i str) {
        let last = self.last.replace((run, version));
        self.are_files |= last.is_some_and(|(last, known)| last == run && known != version);
        if let Some(side) = self.sides.get_mut(side) {
            side.insert(version);
        }
    }

    /// Returns the versions that only one side has, if each has one.
    fn changed(&self) -> Option<[String; 2]> {
        let [before, after] = &self.sides;
        let (mut old, mut new) = (before.difference(after), after.difference(before));
        match [old.next(), old.next(), new.next(), new.next()] {
            [Some(&old), None, Some(&new), None] => Some([old, new].map(str::to_owned)),
            _ => None,
        }
    }
}

/// Gives other files to functions whose file a run has in several versions. `runs_before` runs are of the first side.
pub fn tell_apart(identities: &mut [Vec<Identity<'_>>], runs_before: usize) {
    let mut known: HashMap<&str, Versions<'_>> = HashMap::default();
    for (run, functions) in identities.iter().enumerate() {
        let side = usize::from(run >= runs_before);
        for function in functions.iter().filter(|it| !it.version.is_empty()) {
            if let Some(file) = function.file.as_deref() {
                let versions = known.entry(file).or_default();
                versions.add_version(run, side, &function.version);
            }
        }
    }
    let several = known.into_iter().filter(|(_, versions)| versions.are_files);
    let changes: HashMap<String, Option<[String; 2]>> = several
        .map(|(file, versions)| (file.to_owned(), versions.changed()))
        .collect();
    for function in identities.iter_mut().flatten() {
        let file = function.file.as_deref().unwrap_or_default();
        let version = match changes.get(file) {
            Some(Some([old, new])) if *new == function.version => old,
            Some(_) => &function.version,
            None => continue,
        };
        // No path has a line break.
        function.file = Some(Cow::Owned(format!("{file}\n{version}")));
    }
}

#[cfg(test)]
mod tests {
    use crate::tools::compare::matching::match_functions;
    use crate::tools::compare::testing::{Profile, names};

    /// Returns a profile with functions `step` in these files.
    fn steps(functions: &[(&str, u64)]) -> Profile {
        let profile = Profile::new(100);
        functions.iter().fold(profile, |profile, (place, samples)| {
            profile.jit(&format!("JS:*step {place}"), *samples)
        })
    }

    fn rows(before: &[Profile], after: &[Profile]) -> Vec<(u64, u64)> {
        let [before, after] = [before, after].map(|side| side.iter().map(Profile::parse).collect::<Vec<_>>());
        let table = match_functions(&before, &after);
        names(&table)
            .into_iter()
            .map(|(_, before, after)| (before, after))
            .collect()
    }

    #[test]
    fn chunks_of_a_bundle_match_by_their_hash() {
        let before = steps(&[("/d/chunk-IGCOI4K7.js:3:7", 58), ("/d/chunk-OXDCOXDG.js:7:7", 13)]);
        let after = steps(&[
            ("/d/chunk-OLJDAQAM.js:13:7", 59),
            ("/d/chunk-OXDCOXDG.js:7:7", 12),
        ]);
        assert_eq!(
            rows(std::slice::from_ref(&before), &[after]),
            [(58, 59), (13, 12)]
        );
        // Also in another directory, and in runs that have one of them.
        let one = steps(&[("/ci/chunk-OXDCOXDG.js:7:7", 14)]);
        let both = steps(&[
            ("/ci/chunk-OXDCOXDG.js:7:7", 15),
            ("/ci/chunk-OLJDAQAM.js:13:7", 60),
        ]);
        assert_eq!(
            rows(std::slice::from_ref(&before), &[one, both]),
            [(58, 60), (13, 29)]
        );
        // Which of two other chunks is which is unknown.
        let others = steps(&[
            ("/d/chunk-OLJDAQAM.js:13:7", 20),
            ("/d/chunk-ABCDEFGH.js:7:7", 30),
        ]);
        assert_eq!(rows(&[before], &[others]), [(58, 0), (13, 0), (0, 20), (0, 30)]);
    }

    #[test]
    fn a_package_in_two_versions_is_two() {
        let run = |versions: [&str; 2], more: u64| {
            let [one, other] = versions.map(|version| format!("/m/x@{version}/a.js:1:9"));
            steps(&[(one.as_str(), 10 + more), (other.as_str(), 30 + more)])
        };
        let before = run(["1.0.0", "2.0.0"], 0);
        assert_eq!(
            rows(std::slice::from_ref(&before), &[run(["1.0.0", "2.0.0"], 1)]),
            [(10, 11), (30, 31)]
        );
        assert_eq!(
            rows(&[before], &[run(["1.0.0", "2.1.0"], 1)]),
            [(10, 11), (30, 31)]
        );
    }

    #[test]
    fn builds_with_other_hashes_match() {
        let build = |hash: &str, samples: u64| steps(&[(format!("/d/lib-{hash}.js:2:92").as_str(), samples)]);
        let before = [build("DqZAxPXr", 10), build("B4-K8KWk", 11)];
        assert_eq!(rows(&before, &[build("CLOBlI_A", 12)]), [(21, 12)]);
    }
}
