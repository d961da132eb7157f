//! Finds the clock offsets with which samples are in code that existed at the time.
//!
//! A sample at an address can be taken only while a function is there: not before its load, and not after other code
//! overwrote any part of it, even if the address itself was left alone. So each sample allows some offsets between
//! the runtime's clock and the profile's and excludes all others. In frequently replaced code, functions of all sizes
//! follow each other at one address, and only few offsets match most samples ([`Plateau`]): recordings of Node.js
//! with `--stress-flush-code` leave 50 to 90 ms, with an end within 0.03 ms of the truth.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use jitdump::history::{Builder, History};
use jitdump::{Address, AddressRange, RuntimeTime, Time};

use crate::code::process::{Processes, SpaceId};
use crate::code::samples::{Located, SampleRecord, Samples};
use crate::code::timeline::{FileIndex, Lookup, PlacedCode, Timeline};
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::units::Pid;

/// Maximum number of function intervals to check, for all samples together. A million samples at an address that held
/// thousands of functions would take too long.
const MAX_SCANNED: usize = 1 << 22;

/// A load or move of code, on the clock of its runtime.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeEvent {
    /// Runtime's file with the event.
    pub file: FileIndex,
    /// Process of the code.
    pub pid: Pid,
    /// Time on the runtime's clock.
    pub time: RuntimeTime,
    /// Addresses of the code from now on.
    pub range: AddressRange,
    /// Addresses of the code until now, if it was moved.
    pub left: Option<AddressRange>,
}

/// Code of all processes over time, on the clocks of their runtimes.
#[derive(Debug, Default)]
pub struct LiveCode {
    processes: BTreeMap<Pid, ProcessCode>,
}

table_index! {
    /// Index of a function of a process at one address.
    LoadIndex
}

#[derive(Debug)]
struct ProcessCode {
    /// Functions by address and time, on the runtime's clock.
    history: History<LoadIndex>,
    /// File of each, and times from its load until other code overwrites any part of it.
    functions: IndexedTable<LoadIndex, (FileIndex, Range<Time>)>,
}

/// Clock offsets with which a sample is in code that existed, from `from` to `to` (inclusive), in nanoseconds to be
/// added to the runtime's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OffsetWindow {
    file: FileIndex,
    from: i64,
    to: i64,
}

/// Clock offsets allowed by each sampled address of a profile.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// Sorted by file.
    all: Vec<OffsetWindow>,
    /// Number of sampled addresses in code that were left out, because `MAX_SCANNED` function intervals had been
    /// checked.
    pub unchecked: u64,
}

/// Clock offsets that match the most samples, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plateau {
    /// Least offset; `i64::MIN` if unbounded.
    pub low: i64,
    /// Greatest offset; `i64::MAX` if unbounded.
    pub high: i64,
    /// Number of sampled addresses that these offsets match.
    pub score: u32,
    /// Number of sampled addresses that the least offset considered matches.
    pub least_score: u32,
    /// Scores of all offsets from the least one considered on, sorted by offset.
    pub scores: Vec<OffsetScore>,
}

/// The offsets from one on, up to the next score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetScore {
    /// First offset.
    pub from: i64,
    /// Number of sampled addresses that they match.
    pub score: u32,
}

impl LiveCode {
    /// Builds the code history from `events`, in any order. Of events with the same time, the later one wins.
    pub fn new(mut events: Vec<RuntimeEvent>) -> Self {
        events.sort_by_key(|event| (event.pid, event.time));
        let of_processes = events.chunk_by(|one, other| one.pid == other.pid);
        let code = of_processes.filter_map(|events| Some((events.first()?.pid, ProcessCode::new(events))));
        Self {
            processes: code.collect(),
        }
    }

    /// Returns the offsets that each address in the samples allows.
    pub fn windows(&self, samples: Samples<'_>) -> Windows {
        let processes = samples.processes;
        let maps = Timeline::new(processes, PlacedCode::default());
        let mut windows = Windows::default();
        let mut room = MAX_SCANNED;
        samples.try_for_each(|located| {
            if let Some((code, space, time)) = self.code_of(located, processes) {
                for address in sampled_addresses(&located.content) {
                    if maps.at(space, address, time) != Lookup::File
                        && !code.add_windows(address, time, &mut room, &mut windows.all)
                    {
                        windows.unchecked = windows.unchecked.saturating_add(1);
                    }
                }
            }
            ControlFlow::Continue(())
        });
        windows.all.sort_by_key(|window| window.file);
        windows
    }

    /// Returns the code of a sample's process, and the address space and time of the sample; `None` if any is unknown.
    fn code_of(
        &self,
        located: &Located<SampleRecord<'_>>,
        processes: &Processes,
    ) -> Option<(&ProcessCode, SpaceId, Time)> {
        let (pid, time) = (located.pid?, located.time?);
        let code = self.processes.get(&pid)?;
        // Code inherited by a forked process is in the events of its parent, not in its own.
        let is_own = |&space: &SpaceId| processes.space(space).parent.is_none();
        Some((code, located.space.filter(is_own)?, time))
    }
}

/// Returns the address of a sample, if it is in user space, and those of the calls in its chain.
fn sampled_addresses(content: &SampleRecord<'_>) -> impl Iterator<Item = Address> {
    let ip = content.user_ip();
    // The kernel puts the sampled address before the callers, which are return addresses.
    let chain = content.sample.chain_addresses();
    let callers = chain.filter(move |&caller| Some(caller) != ip);
    let calls = callers.map(|caller| Address(caller.0.saturating_sub(1)));
    ip.into_iter().chain(calls)
}

impl ProcessCode {
    /// Builds the history from `events` in the order of time.
    fn new(events: &[RuntimeEvent]) -> Self {
        let mut builder = Builder::default();
        let mut functions = IndexedTable::default();
        for event in events {
            let time = Time(event.time.0);
            if let Some(left) = event.left {
                builder.clear(left, time);
            }
            let function = functions.push((event.file, time..Time::MAX));
            builder.put(event.range, time, function);
        }
        let history = builder.finish();
        for interval in history.intervals() {
            let (_, times): &mut (FileIndex, Range<Time>) = &mut functions[interval.value];
            times.end = times.end.min(interval.until);
        }
        Self { history, functions }
    }

    /// Adds the offsets that a sample at `address` allows. Returns whether `room` is enough for the intervals there, and
    /// subtracts their number from it.
    fn add_windows(
        &self,
        address: Address,
        sampled: Time,
        room: &mut usize,
        windows: &mut Vec<OffsetWindow>,
    ) -> bool {
        let mut found: Vec<OffsetWindow> = Vec::new();
        for interval in self.history.all_at(address) {
            let Some(left) = room.checked_sub(1) else {
                return false;
            };
            *room = left;
            let (file, times) = &self.functions[interval.value];
            let is_open = times.end == Time::MAX;
            found.push(OffsetWindow {
                file: *file,
                from: if is_open {
                    i64::MIN
                } else {
                    distance(times.end, sampled).saturating_add(1)
                },
                to: distance(times.start, sampled),
            });
        }
        found.sort_unstable_by_key(|window| (window.file, window.from, window.to));
        // A sample counts once for a file, however many of its functions match it.
        found.dedup_by(|next, last| {
            let touches = next.file == last.file && next.from <= last.to.saturating_add(1);
            if touches {
                last.to = last.to.max(next.to);
            }
            touches
        });
        windows.append(&mut found);
        true
    }
}

/// Returns the offset that must be added to `from` to get `to`.
fn distance(from: Time, to: Time) -> i64 {
    let distance = i128::from(to.0).saturating_sub(from.0.into());
    i64::try_from(distance).unwrap_or(if distance < 0 { i64::MIN } else { i64::MAX })
}

impl Windows {
    /// Returns the windows of samples in the code of a file.
    fn of_file(&self, file: FileIndex) -> &[OffsetWindow] {
        let start = self.all.partition_point(|window| window.file < file);
        let end = self.all.partition_point(|window| window.file <= file);
        self.all.get(start..end).unwrap_or_default()
    }

    /// Returns the offsets from `least` up that match the most samples in the code of some files; `None` without such
    /// samples.
    pub fn plateau(&self, files: &[FileIndex], least: i64) -> Option<Plateau> {
        let scores = self.scores(files, least)?;
        let least_score = scores.first()?.score;
        let best = scores.iter().map(|offsets| offsets.score).max()?;
        let first = scores.iter().find(|offsets| offsets.score == best)?;
        let last = scores.iter().rposition(|offsets| offsets.score == best)?;
        let after = scores.get(last.saturating_add(1));
        Some(Plateau {
            low: first.from,
            high: after.map_or(i64::MAX, |after| after.from.saturating_sub(1)),
            score: best,
            least_score,
            scores,
        })
    }

    /// Returns the scores of the offsets from `least` up, of samples in the code of some files; `None` without such samples.
    fn scores(&self, files: &[FileIndex], least: i64) -> Option<Vec<OffsetScore>> {
        let windows = files.iter().flat_map(|&file| self.of_file(file));
        let mut score: u32 = 0;
        // Offsets from which a window matches (1), or no longer does (-1).
        let mut changes: Vec<(i64, i32)> = Vec::new();
        for window in windows.filter(|window| window.to >= least) {
            if window.from <= least {
                score = score.saturating_add(1)
            } else {
                changes.push((window.from, 1))
            }
            changes.extend(window.to.checked_add(1).map(|end| (end, -1)));
        }
        if changes.is_empty() {
            return None;
        }
        changes.sort_unstable();
        let mut scores = vec![OffsetScore { from: least, score }];
        for (from, change) in changes {
            score = score.saturating_add_signed(change);
            match scores.last_mut() {
                Some(last) if last.from == from => last.score = score,
                _ => scores.push(OffsetScore { from, score }),
            }
        }
        Some(scores)
    }
}

impl Plateau {
    /// Whether an offset is within the plateau's limits.
    pub fn holds(&self, distance: i128) -> bool {
        i128::from(self.low) <= distance && distance <= i128::from(self.high)
    }

    /// Returns the number of sampled addresses that an offset matches.
    pub fn score_of(&self, distance: i128) -> u32 {
        let after = self
            .scores
            .partition_point(|offsets| i128::from(offsets.from) <= distance);
        let offsets = after.checked_sub(1).and_then(|at| self.scores.get(at));
        offsets.map_or(0, |offsets| offsets.score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Profile;
    use crate::perf::record;
    use crate::perf::testing;
    use proptest::prelude::*;

    const PID: Pid = Pid(7);

    fn load((time, start, size): (u64, u64, u64)) -> RuntimeEvent {
        RuntimeEvent {
            file: FileIndex(0),
            pid: PID,
            time: RuntimeTime(time),
            range: AddressRange::new(Address(start), size).unwrap(),
            left: None,
        }
    }

    /// Whether a sample is possible, by linear search: the address is in a function that was loaded by then and not
    /// overwritten since.
    fn is_live(events: &[RuntimeEvent], address: u64, time: i64) -> bool {
        let past = |event: &&RuntimeEvent| i64::try_from(event.time.0).unwrap() <= time;
        let past: Vec<AddressRange> = events.iter().filter(past).map(|event| event.range).collect();
        past.iter().enumerate().any(|(at, range)| {
            let mut later = past[at + 1..].iter();
            range.contains(Address(address))
                && !later.any(|over| over.start < range.end && range.start < over.end)
        })
    }

    proptest! {
        #[test]
        fn a_plateau_suits_as_many_samples_as_a_search_through_everything_finds(
            mut loads in prop::collection::vec((0u64..60, 0u64..40, 1u64..12), 1..20),
            samples in prop::collection::vec((0u64..45, 100u64..160), 1..20),
            least in prop::option::of(30i64..130),
        ) {
            loads.sort_by_key(|&(time, _, _)| time);
            // A function replaced at its own load time never existed.
            loads.dedup_by_key(|&mut (time, _, _)| time);
            let events: Vec<RuntimeEvent> = loads.into_iter().map(load).collect();
            let code = LiveCode::new(events.clone());
            let mut windows = Windows::default();
            for &(address, time) in &samples {
                let code = &code.processes[&PID];
                prop_assert!(code.add_windows(Address(address), Time(time), &mut 1000, &mut windows.all));
            }
            let score = |distance: i64| {
                let live = |&&(address, time): &&(u64, u64)| is_live(&events, address, time as i64 - distance);
                samples.iter().filter(live).count() as u32
            };
            let from = least.unwrap_or(-10);
            let found = windows.plateau(&[FileIndex(0)], least.unwrap_or(i64::MIN));
            let best = (from..200).map(score).max().unwrap();
            let Some(found) = found else {
                prop_assert_eq!(best, 0);
                return Ok(());
            };
            for distance in from..200 {
                prop_assert_eq!(found.score_of(distance.into()), score(distance), "at {}", distance);
            }
            prop_assert_eq!(found.score, best);
            let suits = |distance: &i64| score(*distance) == best;
            prop_assert_eq!(found.low.max(from), (from..200).find(suits).unwrap());
            if best > 0 {
                prop_assert_eq!(found.high, (from..200).rev().find(suits).unwrap());
            }
            prop_assert!(windows.plateau(&[FileIndex(1)], i64::MIN).is_none());
        }
    }

    #[test]
    fn code_that_is_gone_or_moved_away_is_not_there() {
        let gone = RuntimeEvent {
            left: AddressRange::new(Address(0), 10),
            range: AddressRange::new(Address(100), 10).unwrap(),
            ..load((50, 0, 10))
        };
        let code = LiveCode::new(vec![gone, load((20, 0, 10))]);
        let window = |address| {
            let mut windows = Vec::new();
            assert!(code.processes[&PID].add_windows(Address(address), Time(1000), &mut 100, &mut windows));
            windows
                .iter()
                .map(|window| (window.from, window.to))
                .collect::<Vec<_>>()
        };
        assert_eq!(window(5), [(951, 980)]);
        assert_eq!(window(105), [(i64::MIN, 950)]);
        assert_eq!(window(50), []);
    }

    #[test]
    fn each_file_has_its_own_windows() {
        let other = |time| RuntimeEvent {
            file: FileIndex(1),
            ..load((time, 0, 10))
        };
        let code = LiveCode::new(vec![load((20, 0, 10)), load((50, 0, 10)), other(90)]);
        let mut windows = Vec::new();
        let code = &code.processes[&PID];
        assert!(code.add_windows(Address(5), Time(1000), &mut 100, &mut windows));
        let window = |file, from, to| OffsetWindow {
            file: FileIndex(file),
            from,
            to,
        };
        assert_eq!(windows, [window(0, 911, 980), window(1, i64::MIN, 910)]);
    }

    #[test]
    fn a_million_samples_at_an_address_of_many_functions_are_not_all_looked_at() {
        let code = LiveCode::new((0..100).map(|time| load((time, 0, 10))).collect());
        let code = &code.processes[&PID];
        let (mut windows, mut room) = (Vec::new(), 150);
        assert!(code.add_windows(Address(5), Time(1000), &mut room, &mut windows));
        assert_eq!(room, 50);
        assert!(!code.add_windows(Address(5), Time(1000), &mut room, &mut windows));
        assert_eq!(room, 0);
        assert_eq!(windows.len(), 1, "one after the other");
    }

    /// Returns a profile in pipe format, with samples of the process at address 5.
    fn profile(samples: usize) -> Vec<u8> {
        // PERF_SAMPLE_IP, TID, TIME.
        let attr = testing::attr(128, 1 | 2 | 4, testing::SAMPLE_ID_ALL);
        let mut bytes = testing::pipe(&attr);
        let sample = testing::record(record::SAMPLE, record::MISC_USER, &[5, PID.0.into(), 10_000]);
        bytes.extend(sample.repeat(samples));
        bytes
    }

    #[test]
    fn intervals_of_functions_are_looked_at_4_194_304_times() {
        let code = LiveCode::new((0..2048).map(|time| load((time, 0, 10))).collect());
        let mut processes = Processes::default();
        processes.add([PID]);
        let bytes = profile(2051);
        let profile = Profile::parse(&bytes).unwrap();
        let windows = code.windows(Samples {
            profile: &profile,
            processes: &processes,
        });
        // Each sample takes 2048 looks: one for each function that its address has held.
        let plateau = windows.plateau(&[FileIndex(0)], i64::MIN).unwrap();
        assert_eq!(plateau.score, 2048);
        assert_eq!(windows.unchecked, 3);
    }
}
