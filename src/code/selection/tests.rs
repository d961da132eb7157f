use jitdump::AddressRange;
use linux_perf_event_reader::constants::{PERF_CONTEXT_KERNEL as KERNEL, PERF_CONTEXT_USER as USER};

use super::*;
use crate::code::perf_map_symbols::SymbolTable;
use crate::code::process::{Map, ProcessEvent};
use crate::code::profile_index::ProfileIndex;
use crate::code::timeline::{FunctionId, PlacedEvent};
use crate::collections::indexed_table::IndexedTable;
use crate::perf::process_records::Backing;
use crate::perf::record;
use crate::perf::testing;
use crate::threads;
use crate::units::Pid;

const DEFERRED: u64 = -640i64 as u64;

/// Start of the memory that code is loaded to, and that of a file.
const CODE: u64 = 0x10_0000;
const FILE: u64 = 0x20_0000;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// A sample: process, thread, time and call chain.
type Taken = (u32, u32, u64, Vec<u64>);

/// Returns a profile in pipe format.
fn profile(samples: &[Taken]) -> Vec<u8> {
    // PERF_SAMPLE_IP, TID, TIME, CALLCHAIN.
    let attr = testing::attr(128, 1 | 2 | 4 | 32, testing::SAMPLE_ID_ALL);
    let mut bytes = testing::pipe(&attr);
    for (pid, tid, time, chain) in samples {
        let is_address = |&&word: &&u64| word < u64::MAX - 4095;
        let ip = chain.iter().find(is_address).copied().unwrap_or_default();
        let ids = u64::from(*pid) | u64::from(*tid) << 32;
        let fields = [ip, ids, *time, chain.len() as u64];
        bytes.extend(testing::record(
            record::SAMPLE,
            record::MISC_USER,
            &[&fields[..], chain].concat(),
        ));
    }
    bytes
}

/// A parent with code, symbols and a file, and its child.
fn processes() -> Processes {
    let map = |pid, time, start, backing| {
        ProcessEvent::Map(
            Pid(pid),
            Map::private(time, AddressRange::new(Address(start), 0x1000).unwrap(), backing),
        )
    };
    Processes::new(vec![
        map(1, 0, CODE, Backing::Anonymous),
        map(1, 0, FILE, Backing::File),
        ProcessEvent::Fork {
            child: Pid(2),
            parent: Pid(1),
            time: Time(400),
        },
        map(2, 500, CODE + 0x800, Backing::Anonymous),
        map(1, 700, CODE, Backing::File),
        map(1, 750, CODE, Backing::Anonymous),
    ])
}

/// Loads and moves of functions of up to 128 bytes.
fn timeline(processes: &Processes, random: &mut Random) -> Timeline {
    let mut events = Vec::new();
    let mut at = Vec::new();
    for function in 0..60 {
        let time = Time(random.below(900));
        let space = processes.space_at(Pid(1 + random.below(2) as u32), time).unwrap();
        let start = CODE + random.below(40) * 64;
        let range = AddressRange::new(Address(start), 1 + random.below(128)).unwrap();
        let id = FunctionId {
            file: FileIndex(0),
            function,
        };
        let event = PlacedEvent {
            time,
            space,
            function: id,
            range: Some(range),
            left: None,
        };
        events.push(event);
        at.push(event);
    }
    for event in at.into_iter().step_by(5) {
        let to = Address(CODE + 0xc00 + random.below(8) * 64);
        events.push(PlacedEvent {
            time: Time(event.time.0 + 30),
            range: AddressRange::new(to, event.range.unwrap().size()),
            left: event.range,
            ..event
        });
    }
    events.sort_by_key(|event| event.time);
    let mut timeline = Timeline::new(processes, events.into_iter().collect());
    let ranges = (0..10).map(|symbol| AddressRange::new(Address(CODE + 0xe00 + symbol * 48), 32).unwrap());
    let table = SymbolTable {
        pid: Pid(1),
        ranges: ranges.collect(),
    };
    let mut tables = IndexedTable::default();
    let _: crate::code::perf_map_symbols::SymbolTableIndex = tables.push(table);
    timeline.add_symbols(processes, &[], &tables);
    timeline
}

fn address(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => FILE + random.below(16) * 0x100,
        1 => 0xffff_ffff_8000_0000 + random.below(16),
        2 => 0x5000 + random.below(4),
        _ => CODE + random.below(0x1000),
    }
}

/// Samples of two threads of each process, most of which repeat the outer part of a chain.
fn samples(random: &mut Random) -> Vec<Taken> {
    let mut chains = vec![Vec::new(); 4];
    let mut samples = Vec::new();
    for time in 0..1000 {
        let thread = random.below(4) as usize;
        let chain: &mut Vec<u64> = &mut chains[thread];
        chain.drain(..(random.below(5) as usize).min(chain.len()));
        for _ in 0..random.below(5) {
            let word = match random.below(12) {
                0 => USER,
                1 => KERNEL,
                2 => DEFERRED,
                _ => address(random),
            };
            chain.insert(0, word);
        }
        if random.below(10) == 0 {
            *chain = (0..random.below(12)).map(|_| address(random)).collect();
        }
        // A child that did not exist yet has an address space nevertheless.
        let (pid, time) = (1 + thread as u32 % 2, time - random.below(20).min(time));
        samples.push((pid, 10 + thread as u32, time, chain.clone()));
    }
    samples
}

/// Everything that is found, in a fixed order.
fn found(selection: Selection) -> String {
    let mut unknown: Vec<_> = selection.unknown.iter().collect();
    unknown.sort_unstable();
    let mut hits: Vec<_> = selection.symbol_hits.iter().collect();
    hits.sort_unstable();
    let of_code = (&selection.mappings, &selection.hits, &selection.freed_ranges);
    let symbols = selection.sorted_symbols();
    format!(
        "{:?}",
        (
            of_code,
            &selection.spaces,
            unknown,
            symbols,
            hits,
            selection.samples
        )
    )
}

fn select(samples: &[Taken], processes: &Processes, timeline: &Timeline) -> Selection {
    select_in(&profile(samples), processes, timeline)
}

fn select_in(profile: &[u8], processes: &Processes, timeline: &Timeline) -> Selection {
    let profile = Profile::parse(profile).unwrap();
    let index = ProfileIndex::of(&profile, |_| None);
    let selector = Selector {
        profile: &profile,
        processes,
        timeline,
        dumps: processes.spaces.map(|_| DumpState::Read),
        doubts: Doubts::default(),
    };
    selector.walk(&index.marks, |_| ())
}

#[test]
fn earlier_samples_change_no_lookup() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let processes = processes();
        let timeline = timeline(&processes, &mut random);
        let samples = samples(&mut random);
        let whole = select(&samples, &processes, &timeline);
        let mut one_by_one = select(&[], &processes, &timeline);
        for sample in &samples {
            one_by_one.merge(select(std::slice::from_ref(sample), &processes, &timeline));
        }
        assert!(whole.lookups < one_by_one.lookups, "{seed}");
        assert!(whole.samples.with_named_frame > 0 && whole.samples.stacks.frames > 0);
        assert_eq!(found(whole), found(one_by_one), "{seed}");
    }
}

#[test]
fn repeated_stacks_are_looked_up_once() {
    let mut random = Random(1);
    let processes = processes();
    let timeline = timeline(&processes, &mut random);
    let outer = [0; 60].map(|_| address(&mut random));
    let chains: Vec<Vec<u64>> = (0..4)
        .map(|_| [&[USER][..], &[0; 3].map(|_| address(&mut random)), &outer].concat())
        .collect();
    // Nothing changes after time 930.
    let lookups = |times: usize| {
        let chains = chains.iter().cycle().take(times);
        let samples = (1_000..).zip(chains);
        let samples: Vec<Taken> = samples.map(|(time, chain)| (1, 1, time, chain.clone())).collect();
        select(&samples, &processes, &timeline).lookups
    };
    // Each leaf is also a frame.
    let few = lookups(4);
    assert!(few <= 60 + 4 * (3 + 1), "{few}");
    assert_eq!(lookups(40), few);
    // Each thread starts anew.
    assert!(lookups(4_000) <= few * (threads::count() as u64 + 1));
}

#[test]
fn a_sample_with_deferred_callers_is_one_stack() {
    let processes = processes();
    let timeline = timeline(&processes, &mut Random(1));
    let sample = |chain: &[u64]| (1, 1, 1_000, chain.to_vec());
    // Symbols are here.
    let [leaf, caller] = [CODE + 0xef0, CODE + 0xf20 + 8];
    let mut bytes = profile(&[sample(&[DEFERRED, 99])]);
    let sampled = bytes.len() - size_of::<u64>() * 6;
    bytes[sampled..][..8].copy_from_slice(&leaf.to_le_bytes());
    let chain = [99, 3, USER, leaf, caller, 1 | 1 << 32, 1_000];
    bytes.extend(testing::record(
        record::CALLCHAIN_DEFERRED,
        record::MISC_USER,
        &chain,
    ));
    let deferred = select_in(&bytes, &processes, &timeline);
    let whole = select(&[sample(&[USER, leaf, caller])], &processes, &timeline);
    assert_eq!(
        (
            whole.samples.named,
            whole.samples.stacks.samples,
            whole.samples.stacks.frames
        ),
        (1, 1, 2)
    );
    assert_eq!(deferred.samples.named, 1);
    assert_eq!(deferred.samples.stacks, whole.samples.stacks);
    let counts = |selection: &Selection| format!("{:?}", selection.spaces);
    assert_eq!(counts(&deferred), counts(&whole));
}

#[test]
fn symbols_without_samples_are_added_up_to_1_048_576_or_sixteen_times() {
    let take = |count: u32, different: usize| {
        let mut added = 0;
        let are_all = take_symbols(0..count, different, |_| added += 1);
        (added, are_all)
    };
    assert_eq!(take(1_048_576, 1), (1_048_576, true));
    assert_eq!(take(1_048_577, 1), (1_048_576, false));
    assert_eq!(take(1_120_000, 70_000), (1_120_000, true));
    assert_eq!(take(1_120_001, 70_000), (1_120_000, false));
}
