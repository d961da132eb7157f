//! Runtimes in a profile's processes, and the options that make them log their code.

use std::collections::BTreeMap;

use jitdump::Machine;

use crate::bytes::base_name;
use crate::code::process::{AddressSpace, Processes, SpaceId};
use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::{HashMap, HashSet};
use crate::perf::feature;
use crate::perf::process_records::Mmap;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::runtimes::{Description, Runtime};
use crate::units::Pid;

/// Why there is no option for old versions of CPython.
pub const PYTHON_TOO_OLD: &str = "its version logs no code; 3.12 and later do";

/// Second number of the first version of CPython 3 that logs code.
const FIRST_PYTHON: u32 = 12;

/// Whether one of some address spaces, or one that it was forked from, has mapped a file of a runtime.
pub fn has_runtime(
    profile: &IndexedProfile<'_>,
    spaces: impl Iterator<Item = SpaceId>,
    runtime: Runtime,
) -> bool {
    let names = file_names(profile, spaces);
    names.iter().any(|name| runtime.description().has_file(name))
}

/// Returns the names of the files that address spaces and those that they were forked from have mapped.
fn file_names<'a>(
    IndexedProfile { profile, index }: &'a IndexedProfile<'_>,
    spaces: impl Iterator<Item = SpaceId>,
) -> HashSet<&'a [u8]> {
    let processes = &index.processes;
    let mut all = HashSet::default();
    for space in spaces {
        all.insert(space);
        all.extend(processes.ancestors(space).map(|(ancestor, _)| ancestor));
    }
    let maps = all.into_iter().flat_map(|space| &processes.space(space).maps);
    let records = maps.filter_map(|map| index.kept.at(map.record, profile.endian));
    let maps = records.filter_map(|record| Mmap::parse(&record, profile.endian));
    let mut names = HashSet::default();
    names.extend(maps.map(|map| base_name(map.name)));
    names
}

/// Returns what finds something in an address space or one that it was forked from. Each is searched once: many may be
/// forked from one with many maps.
fn finder<T: Copy>(
    processes: &Processes,
    find: impl Fn(&AddressSpace) -> Option<T>,
) -> impl FnMut(SpaceId) -> Option<T> {
    let mut known: HashMap<SpaceId, Option<T>> = HashMap::default();
    let mut find_own = move |space: SpaceId| {
        let found = known.entry(space);
        *found.or_insert_with(|| find(processes.space(space)))
    };
    move |space: SpaceId| {
        let ancestors = processes.ancestors(space).map(|(ancestor, _)| ancestor);
        std::iter::once(space).chain(ancestors).find_map(&mut find_own)
    }
}

/// Returns those of some address spaces that have executable memory without a file, or were forked from one that has.
fn with_code(processes: &Processes, spaces: impl Iterator<Item = SpaceId>) -> impl Iterator<Item = SpaceId> {
    let mut code = finder(processes, |space| {
        let mut maps = space.maps.iter();
        maps.any(|map| map.backing.is_jit_memory() && !map.is_data)
            .then_some(())
    });
    spaces.filter(move |&space| code(space).is_some())
}

/// Returns how to make the runtimes in the processes `pids` log their code: one line for each runtime, in the
/// order of [`Description::all`].
///
/// The files of a process are those that it has mapped since its last exec, and those of processes that it was forked from since.
pub fn how_to_enable(indexed: &IndexedProfile<'_>, pids: &HashSet<Pid>) -> Vec<Diagnostic> {
    let IndexedProfile { profile, index } = indexed;
    let last = |&pid: &Pid| index.processes.spaces_of(pid).last();
    let spaces = pids.iter().filter_map(last).map(|(space, _)| space);
    let spaces: Vec<SpaceId> = spaces.collect();
    let names = file_names(indexed, spaces.iter().copied());
    // Many programs use LLVM, but not its JIT compilers.
    let names_with_code = file_names(indexed, with_code(&index.processes, spaces.into_iter()));
    let is_run = |runtime: &&Description| {
        let names = match runtime.runtime {
            Runtime::Lli => &names_with_code,
            _ => &names,
        };
        names.iter().any(|name| runtime.has_file(name))
    };
    let is_too_old = |runtime: &Description| {
        let files = names.iter().filter(|name| runtime.has_file(name));
        let newest = files.filter_map(|name| python_version(name)).max();
        newest.is_some_and(|newest| newest < FIRST_PYTHON)
    };
    let run = Description::all().filter(is_run);
    let machine = Machine::of_profile(profile.architecture(), profile.endian);
    let command = profile.feature(feature::COMMAND_LINE).unwrap_or_default();
    run.map(|runtime| {
        let enable = Diagnostic::new(Issue::EnableRuntime).with("runtime", runtime.name);
        let option = runtime.logging_option;
        match option.filter(|option| memchr::memmem::find(command, option.as_bytes()).is_some()) {
            Some(option) => enable.with(
                "how",
                format_args!(
                    "it had {option}; its file was not found, or it was ended before it had written any"
                ),
            ),
            None if is_too_old(runtime) => enable.with("how", PYTHON_TOO_OLD),
            None => enable.with("how", runtime.how_on(machine)),
        }
    })
    .collect()
}

/// Whether a file is that of a CPython which logs no code.
fn is_python_too_old(name: &[u8]) -> bool {
    python_version(name).is_some_and(|version| version < FIRST_PYTHON)
}

/// Returns the second number of the version of CPython 3 in the name of its program or library.
fn python_version(name: &[u8]) -> Option<u32> {
    let version = name
        .strip_prefix(b"lib")
        .unwrap_or(name)
        .strip_prefix(b"python3.")?;
    let digits = version.split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Samples of an address space.
#[derive(Clone, Copy, Debug)]
pub struct SpaceSamples {
    /// The address space.
    pub space: SpaceId,
    /// Number of samples.
    pub all: u64,
    /// Number of those with JIT code in their stack.
    pub with_jit_code: u64,
}

/// Samples of a runtime, in all address spaces.
struct RuntimeSamples {
    all: u64,
    with_jit_code: u64,
    /// How to record its stacks.
    how: &'static str,
}

/// Returns advice for runtimes whose functions are missing from most recorded stacks.
pub fn missing_in_stacks(profile: &IndexedProfile<'_>, samples: &[SpaceSamples]) -> Vec<Diagnostic> {
    let mut by_runtime: BTreeMap<&'static str, RuntimeSamples> = BTreeMap::new();
    // Nothing makes old versions log code.
    let mut runtime_of = runtime_finder(profile, |runtime, name| {
        runtime.stacks.is_some() && !is_python_too_old(name)
    });
    for of_space in samples {
        let found = runtime_of(of_space.space).and_then(|runtime| Some((runtime.name, runtime.stacks?)));
        if let Some((name, how)) = found {
            let of_runtime = by_runtime.entry(name).or_insert(RuntimeSamples {
                all: 0,
                with_jit_code: 0,
                how,
            });
            of_runtime.all += of_space.all;
            of_runtime.with_jit_code += of_space.with_jit_code;
        }
    }
    let mut missing = Vec::new();
    for (name, samples) in by_runtime {
        if are_missing(samples.all, samples.with_jit_code) {
            let advice = Diagnostic::new(Issue::FramesNotRecorded).with("runtime", name);
            let advice = advice
                .with("found", samples.with_jit_code)
                .with("samples", samples.all);
            missing.push(advice.with("how", samples.how));
        }
    }
    missing
}

/// Whether most of `samples` stacks lack functions that should be in them: all but `with`.
fn are_missing(samples: u64, with: u64) -> bool {
    /// Fewer samples show nothing.
    const MIN_SAMPLES: u64 = 20;
    samples >= MIN_SAMPLES && with < samples / 2
}

/// Returns what finds the first runtime, among those for which `is_wanted` is true of it and the name of its file, of which an
/// address space or one that it was forked from has mapped a file.
pub fn runtime_finder(
    IndexedProfile { profile, index }: &IndexedProfile<'_>,
    is_wanted: impl Fn(&Description, &[u8]) -> bool,
) -> impl FnMut(SpaceId) -> Option<&'static Description> {
    finder(&index.processes, move |space| {
        space.maps.iter().find_map(|map| {
            let record = index.kept.at(map.record, profile.endian)?;
            let name = base_name(Mmap::parse(&record, profile.endian)?.name);
            Description::of_file(name).filter(|runtime| is_wanted(runtime, name))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_python_have_its_version() {
        for (name, version) in [
            ("python3.11", Some(11)),
            ("libpython3.9.so.1.0", Some(9)),
            ("python3.13-dbg", Some(13)),
            ("python3", None),
            ("libpython3.so", None),
        ] {
            assert_eq!(python_version(name.as_bytes()), version, "{name}");
        }
    }

    #[test]
    fn twenty_stacks_show_whether_most_lack_functions() {
        assert!(!are_missing(19, 0));
        assert!(are_missing(20, 9));
        assert!(!are_missing(20, 10));
    }
}
