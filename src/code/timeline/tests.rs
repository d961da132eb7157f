use super::*;
use crate::code::process::{Map, ProcessEvent};
use crate::perf::process_records::Backing;
use crate::units::Pid;

fn range(start: u64, size: u64) -> AddressRange {
    AddressRange::new(Address(start), size).unwrap()
}

fn map(pid: u32, time: u64, start: u64, backing: Backing) -> ProcessEvent {
    ProcessEvent::Map(Pid(pid), Map::private(time, range(start, 0x1000), backing))
}

/// Loads function 1 at 0x1000, and function 2 over its end at time 30.
fn two_loads(processes: &Processes) -> [PlacedEvent; 2] {
    let event = |time, function, start| PlacedEvent {
        time: Time(time),
        space: processes.space_at(Pid(1), Time(time)).unwrap(),
        function: FunctionId {
            file: FileIndex(0),
            function,
        },
        range: Some(range(start, 0x100)),
        left: None,
    };
    [event(10, 1, 0x1000), event(30, 2, 0x1080)]
}

fn function_at(timeline: &Timeline, processes: &Processes, pid: u32, address: u64, time: u64) -> Option<u32> {
    let space = processes.space_at(Pid(pid), Time(time))?;
    match timeline.at(space, Address(address), Time(time)) {
        Lookup::Function(at) => Some(timeline.mappings[at].function.function),
        _ => None,
    }
}

#[test]
fn the_newest_load_holds_and_the_rest_of_the_older_one_stays() {
    let processes = Processes::new(vec![
        map(1, 5, 0x1000, Backing::Anonymous),
        map(1, 40, 0x1000, Backing::Anonymous),
    ]);
    let timeline = Timeline::new(&processes, two_loads(&processes).into_iter().collect());
    let at = |address, time| function_at(&timeline, &processes, 1, address, time);
    assert_eq!(at(0x1090, 9), None);
    assert_eq!(at(0x1090, 10), Some(1));
    assert_eq!(at(0x1090, 30), Some(2));
    assert_eq!(at(0x1090, 50), Some(2), "an anonymous map hides nothing");
    assert_eq!(at(0x107f, 50), Some(1));
    let space = processes.space_at(Pid(1), Time(0)).unwrap();
    assert_eq!(timeline.at(space, Address(0x1fff), Time(50)), Lookup::Anonymous);
    assert_eq!(timeline.at(space, Address(0x2000), Time(50)), Lookup::Unmapped);
    assert!(timeline.has_later_code(space, Address(0x1090), Time(9)));
}

#[test]
fn memory_without_a_map_may_be_jit_memory_within_a_page_of_code() {
    let processes = Processes::new(vec![map(1, 5, 0x1000, Backing::Anonymous)]);
    let timeline = Timeline::new(&processes, two_loads(&processes).into_iter().collect());
    let space = processes.space_at(Pid(1), Time(50)).unwrap();
    let may_be = |address| timeline.may_be_jit(space, Address(address));
    assert!(may_be(0x1180 + (256 << 10)));
    assert!(!may_be(0x1181 + (256 << 10)));
}

#[test]
fn a_file_mapped_over_code_ends_it() {
    let processes = Processes::new(vec![map(1, 20, 0x1000, Backing::File)]);
    let timeline = Timeline::new(&processes, two_loads(&processes).into_iter().collect());
    let at = |address, time| function_at(&timeline, &processes, 1, address, time);
    assert_eq!(at(0x1010, 19), Some(1));
    assert_eq!(at(0x1010, 20), None);
    assert_eq!(at(0x1090, 30), Some(2), "code may lie inside a file's map");
}

#[test]
fn children_see_what_the_parent_had_when_they_were_forked() {
    let fork = |child, parent, time| ProcessEvent::Fork {
        child: Pid(child),
        parent: Pid(parent),
        time: Time(time),
    };
    let processes = Processes::new(vec![
        map(1, 5, 0x1000, Backing::Anonymous),
        fork(2, 1, 20),
        fork(3, 2, 25),
        map(3, 26, 0x1000, Backing::Anonymous),
        fork(4, 1, 35),
        ProcessEvent::Exec(Pid(4), Time(60)),
    ]);
    let timeline = Timeline::new(&processes, two_loads(&processes).into_iter().collect());
    let at = |pid, address, time| function_at(&timeline, &processes, pid, address, time);
    assert_eq!(at(2, 0x1090, 50), Some(1));
    assert_eq!(at(3, 0x1090, 50), Some(1));
    assert_eq!(at(4, 0x1090, 50), Some(2));
    assert_eq!(at(4, 0x1090, 60), None, "another program has other memory");
    for (pid, address, time) in (1..5).flat_map(|pid| {
        let addresses = [0xfff, 0x1000, 0x1090, 0x1900, 0x2000];
        addresses
            .into_iter()
            .flat_map(move |address| (0..70).map(move |time| (pid, Address(address), Time(time))))
    }) {
        let space = processes.space_at(Pid(pid), time).unwrap();
        let times = timeline.times_at(space, address, time);
        assert!(times.contains(&time));
        for end in [times.start, Time(times.end.0 - 1)] {
            let lookups = [time, end].map(|time| timeline.at(space, address, time));
            assert_eq!(lookups[0], lookups[1], "{pid} {address} {time} {end}");
        }
    }
}

#[test]
fn a_move_takes_the_code_away() {
    let processes = Processes::new(vec![map(1, 5, 0x1000, Backing::Anonymous)]);
    let loads = two_loads(&processes);
    let moved = PlacedEvent {
        time: Time(40),
        range: Some(range(0x5000, 0x100)),
        left: AddressRange::new(Address(0x1000), 0x100),
        ..loads[0]
    };
    let timeline = Timeline::new(&processes, loads.into_iter().chain([moved]).collect());
    let at = |address, time| function_at(&timeline, &processes, 1, address, time);
    assert_eq!(at(0x1000, 39), Some(1));
    assert_eq!(at(0x1000, 40), None);
    assert_eq!(at(0x5010, 40), Some(1));
    assert_eq!(
        at(0x1090, 40),
        Some(2),
        "what took its place before the move stays"
    );
    let freed_range = timeline.freed_ranges[FreedRangeIndex(0)];
    assert_eq!(
        (freed_range.range, freed_range.since),
        (range(0x1000, 0x80), Time(40))
    );
}

#[test]
fn data_is_jit_memory_only_with_code_of_a_dump_or_a_perf_map() {
    let data = |pid, time, start| {
        let map = Map {
            is_data: true,
            ..Map::private(time, range(start, 0x1000), Backing::Anonymous)
        };
        ProcessEvent::Map(Pid(pid), map)
    };
    let processes = Processes::new(vec![
        data(1, 5, 0x1000),
        data(1, 5, 0x3000),
        data(1, 5, 0x5000),
        data(1, 5, 0x7000),
        map(1, 20, 0x7000, Backing::Anonymous),
        data(1, 30, 0x7000),
        map(1, 5, 0x9000, Backing::File),
        data(1, 30, 0x9000),
        ProcessEvent::Fork {
            child: Pid(2),
            parent: Pid(1),
            time: Time(40),
        },
        data(2, 45, 0x7000),
        map(2, 45, 0xb000, Backing::File),
        data(2, 50, 0xb000),
        map(2, 60, 0xb000, Backing::Anonymous),
    ]);
    let mut timeline = Timeline::new(&processes, two_loads(&processes).into_iter().collect());
    let tables = IndexedTable::from(vec![SymbolTable {
        pid: Pid(1),
        ranges: vec![range(0x5000, 0x10)],
    }]);
    timeline.add_symbols(&processes, &[], &tables);
    let at = |pid, address, time| {
        let space = processes.space_at(Pid(pid), Time(time)).unwrap();
        timeline.at(space, Address(address), Time(time))
    };
    assert!(matches!(at(1, 0x1010, 10), Lookup::Function(_)));
    assert_eq!(at(1, 0x1f00, 10), Lookup::Anonymous, "code is in it");
    assert_eq!(at(1, 0x3000, 10), Lookup::Unmapped);
    assert!(matches!(at(1, 0x500f, 10), Lookup::Symbol(_)));
    assert_eq!(at(1, 0x5010, 10), Lookup::Anonymous);
    assert_eq!(at(1, 0x7000, 19), Lookup::Unmapped);
    assert_eq!(at(1, 0x7000, 20), Lookup::Anonymous, "executable from now on");
    assert_eq!(at(1, 0x7000, 30), Lookup::Anonymous, "writable for a moment");
    assert_eq!(at(1, 0x9000, 29), Lookup::File);
    assert_eq!(at(1, 0x9000, 30), Lookup::Unmapped);
    assert_eq!(at(2, 0x3000, 45), Lookup::Unmapped);
    assert_eq!(at(2, 0x7000, 45), Lookup::Anonymous, "executable before the fork");
    assert_eq!(at(2, 0xb000, 50), Lookup::Unmapped);
    assert_eq!(at(2, 0xb000, 60), Lookup::Anonymous);
}

#[test]
fn symbols_of_memory_that_can_be_executed_later_are_there_once() {
    let data = Map {
        is_data: true,
        ..Map::private(5, range(0x1000, 0x2000), Backing::Anonymous)
    };
    let processes = Processes::new(vec![
        ProcessEvent::Map(Pid(1), data),
        map(1, 20, 0x1000, Backing::Anonymous),
    ]);
    let mut timeline = Timeline::new(&processes, PlacedCode::default());
    let tables = IndexedTable::from(vec![SymbolTable {
        pid: Pid(1),
        ranges: vec![range(0x1000, 0x10), range(0x2000, 0x10)],
    }]);
    timeline.add_symbols(&processes, &[], &tables);
    let symbols = timeline.all_symbols();
    let mut placed: Vec<_> = symbols.map(|it| (it.range.start.0, it.since.0)).collect();
    placed.sort_unstable();
    assert_eq!(placed, [(0x1000, 20), (0x2000, 5)]);
}
