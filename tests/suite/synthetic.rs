//! Generated profiles: every frame of every sample has the name that it was generated with.

use jitdump::ByteOrder;

use crate::support::dump::DumpWriter;
use crate::support::generator::{Expected, Generated, Lines, Plan, Runtimes, generate};
use crate::support::lines::LAYOUTS;
use crate::support::profile::{ProfileWriter, field};
use crate::support::shown::assert_named;
use crate::support::{OBJECT_LAYOUTS, inject_into, scratch, shown};

/// Generates a profile, injects it with each layout, and checks the names.
fn check(plan: &Plan) {
    let folder = scratch();
    let Generated { profile, expected } = generate(folder.path(), plan);
    for layout in OBJECT_LAYOUTS {
        let output = inject_into(folder.path(), &profile, layout);
        assert_named(&output, &expected);
    }
}

#[test]
fn functions_that_stay() {
    check(&Plan::default());
}

#[test]
fn addresses_used_again_and_again() {
    check(&Plan {
        places: 200,
        ..Plan::default()
    });
}

/// Few functions have samples, and call chains are deep.
#[test]
fn functions_with_and_without_lines() {
    for lines in LAYOUTS.map(Lines::Model).into_iter().chain([Lines::Nothing]) {
        check(&Plan {
            lines,
            places: 400,
            sampled: 10,
            depth: 32,
            has_tables: true,
            ..Plan::default()
        });
    }
}

#[test]
fn moved_functions() {
    check(&Plan {
        places: 200,
        moves: true,
        ..Plan::default()
    });
}

#[test]
fn several_processes() {
    check(&Plan {
        processes: 4,
        places: 100,
        ..Plan::default()
    });
}

/// A child starts with its parent's code. Later changes apply to one of them, although both write to one dump.
#[test]
fn forks_and_programs_that_are_executed() {
    const REGION: u64 = 0x7000_0000;
    const CODE: [u8; 64] = [0x90; 64];
    let folder = scratch();
    let path = folder.path().join("jit-10.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 10);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    let mut expected = Vec::new();
    let mut sample = |profile: &mut ProfileWriter, pid, time, frame: &str| {
        profile.sample(pid, time, &[REGION + 4], None);
        expected.push(Expected {
            pid,
            time,
            frames: vec![frame.to_owned()],
        });
    };
    profile.comm(10, "parent", true, 1000);
    profile.mmap2(10, REGION, 0x1000, REGION, "//anon", 1001);
    profile.mmap2(10, 0x6000_0000, 0x1000, 0, path.to_str().unwrap(), 1002);
    dump.load(2000, REGION, 1, b"of_both", &CODE);
    sample(&mut profile, 10, 2500, "of_both");
    profile.fork(11, 10, 3000);
    dump.load(4000, REGION, 2, b"of_parent", &CODE);
    sample(&mut profile, 11, 5000, "of_both");
    sample(&mut profile, 10, 5001, "of_parent");
    // A new mapping of the child's memory must not hide the inherited code.
    profile.mmap2(11, REGION, 0x2000, REGION, "//anon", 6000);
    sample(&mut profile, 11, 6500, "of_both");
    dump.pid = 11;
    dump.load(7000, REGION, 3, b"of_child", &CODE);
    sample(&mut profile, 11, 7500, "of_child");
    sample(&mut profile, 10, 7501, "of_parent");
    // Another program has other memory and the same process ID.
    profile.comm(11, "program", true, 8000);
    profile.mmap2(11, REGION, 0x1000, REGION, "//anon", 8001);
    sample(&mut profile, 11, 8500, "[unknown]");
    std::fs::write(path, dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder.path(), &input, &[]);
    assert_named(&output, &expected);
}

/// Injects a profile with one sample per second from second 10 on, and checks the name of each.
fn check_names(dump: &DumpWriter, samples: &[(u64, &str)], has_times: bool) {
    let folder = scratch();
    let path = folder.path().join("jit-10.dump");
    std::fs::write(&path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    if !has_times {
        profile.sample_type &= !field::TIME;
    }
    profile.mmap2(10, 0x7000_0000, 0x10_0000, 0x7000_0000, "//anon", 1);
    profile.mmap2(10, 0x6000_0000, 0x1000, 0, path.to_str().unwrap(), 2);
    let times = (10..).map(|second| second * 1_000_000_000);
    for (time, (address, _)) in times.zip(samples) {
        profile.sample(10, time, &[*address], None);
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let expected: Vec<&str> = samples.iter().map(|(_, name)| *name).collect();
    for all in [&[][..], &["--all"]] {
        let output = inject_into(folder.path(), &input, all);
        let shown = shown::symbols(&output);
        assert_eq!(shown, expected);
    }
}

#[test]
fn without_times_all_code_is_there_from_the_start() {
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 10);
    dump.load(5_000_000_000, 0x7000_0100, 1, b"early", &[0x90; 64]);
    dump.load(12_500_000_000, 0x7000_0200, 2, b"late", &[0x90; 64]);
    let samples = [
        (0x7000_0110, "early"),
        (0x7000_0210, "late"),
        (0x7000_0310, "[unknown]"),
    ];
    check_names(&dump, &samples, false);
}

#[test]
fn moves_are_followed_in_the_order_of_time() {
    const SECOND: u64 = 1_000_000_000;
    let code = [0x90; 0x100];
    let (one, two, three) = (0x7000_0000, 0x7000_1000, 0x7000_2000);
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 10);
    dump.load(5 * SECOND, one, 1, b"first", &code);
    // The record of the second move, written by another thread, precedes that of the first.
    dump.moved(14 * SECOND + 500, two, three, 0x100, 1);
    dump.moved(11 * SECOND + 500, one, two, 0x100, 1);
    // At the time of the first move, another function is loaded at the old address.
    dump.load(11 * SECOND + 500, one, 2, b"second", &code);
    // The last move is shorter than the function.
    dump.moved(17 * SECOND + 500, one, one + 0x80, 0x100, 2);
    let samples = [
        (one, "first"),
        (two, "[unknown]"),
        (two, "first"),
        (one, "second"),
        (two, "first"),
        (three, "first"),
        (two, "[unknown]"),
        (one + 0xff, "second"),
        (one, "[unknown]"),
        (one + 0x80, "second"),
        (one + 0x17f, "second"),
    ];
    check_names(&dump, &samples, true);
}

#[test]
fn two_events_with_identifiers() {
    check(&Plan {
        two_events: true,
        places: 200,
        ..Plan::default()
    });
}

#[test]
fn records_without_a_trailer() {
    // perf then uses records in file order, so times cannot distinguish functions at reused addresses.
    check(&Plan {
        has_trailer: false,
        functions: 300,
        samples: 1000,
        ..Plan::default()
    });
}

/// A recording of a whole machine: processes of several runtimes, with the habits of each, and processes without one.
#[test]
fn fifty_processes_of_many_runtimes() {
    check(&Plan {
        processes: 50,
        functions: 120,
        samples: 10_000,
        places: 60,
        moves: true,
        runtimes: Runtimes::Many,
        ..Plan::default()
    });
}
