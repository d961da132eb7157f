//! Perf maps: they name what no dump knows, and nothing else.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use jitinject::bytes::ByteOrder;
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::generator::Expected;
use crate::support::profile::ProfileWriter;
use crate::support::{attempt, capture, inject, inject_into, objects_of, perf, scratch, tools};
use crate::synthetic::assert_named;

const REGION: u64 = 0x7000_0000;
const SECOND: u64 = 1_000_000_000;
const UNKNOWN: &str = "[unknown]";

/// The recordings with perf maps that do something, and how many samples of theirs only the map names.
const CAPTURES: [(&str, u32, u64); 3] = [
    ("cpython312-map", 12859, 0),
    ("mono-map", 12879, 64),
    ("node20-headeronly", 14184, 43),
];

/// One frame as perf shows it: address, symbol, file.
fn frames(profile: &Path, more: &[&str]) -> Vec<(u64, String, String)> {
    let mut arguments = vec![
        "script",
        "-f",
        "--no-inline",
        "--no-demangle",
        "-i",
        tools::text(profile),
    ];
    arguments.extend_from_slice(&["-F", "ip,sym,dso"]);
    arguments.extend_from_slice(more);
    let shown = perf::perf(&arguments);
    let frames = shown.lines().filter_map(|line| {
        let (address, rest) = line.trim().split_once(' ')?;
        let (symbol, file) = rest.trim_end().strip_suffix(')')?.rsplit_once(" (")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        Some((address, symbol.to_owned(), file.to_owned()))
    });
    frames.collect()
}

/// The last name that a map has for an address.
fn name_in(map: &str, address: u64) -> Option<&str> {
    map.lines().rev().find_map(|line| {
        let mut parts = line.splitn(3, ' ');
        let start = u64::from_str_radix(parts.next()?, 16).ok()?;
        let size = u64::from_str_radix(parts.next()?, 16).ok()?;
        (start..start + size).contains(&address).then(|| parts.next())?
    })
}

#[test]
fn every_frame_has_the_name_that_the_map_has() {
    for (name, pid, leaves) in CAPTURES {
        let folder = scratch();
        let output = folder.path().join("out.data");
        let said = inject(&capture::profile(name), &output, &[]);
        assert!(!said.contains("not named"), "{said}");
        let map = std::fs::read_to_string(capture::folder(name).join(format!("perf-{pid}.map"))).unwrap();
        // Where perf looks for names, whether or not it finds any.
        let anonymous = format!("/tmp/perf-{pid}.map");
        for (more, expected) in [(&[][..], None), (&["-G"], Some(leaves))] {
            let before = frames(&capture::profile(name), more);
            let after = frames(&output, more);
            assert_eq!(before.len(), after.len(), "{name}");
            let mut named = 0;
            for ((address, symbol, file), (_, after, object)) in before.into_iter().zip(after) {
                if file != anonymous {
                    assert_eq!(symbol, after, "{name}: {address:#x} in {file}");
                } else {
                    assert_eq!(
                        name_in(&map, address).unwrap_or(UNKNOWN),
                        after,
                        "{name}: {address:#x}"
                    );
                    let is_ours = object.contains(&format!("/jitted-{pid}-map-"));
                    assert_eq!(after != UNKNOWN, is_ours, "{name}: {address:#x} in {object}");
                    named += u64::from(is_ours);
                }
            }
            assert!(
                expected.is_none_or(|expected| named == expected),
                "{name}: {named}"
            );
        }
    }
}

/// PHP wrote both. What the map says of a process is what the dump would have said, had it not been lost.
#[test]
fn a_map_stands_in_for_a_dump_that_is_lost() {
    let folder = scratch();
    for entry in std::fs::read_dir(capture::folder("multi")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "jit-4834.dump" {
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    let output = folder.path().join("out.data");
    let said = inject(&folder.path().join("perf.data"), &output, &[]);
    assert!(
        said.contains("133 of them named (99.3 %), 36 by a perf map"),
        "{said}"
    );
    let mut shown: HashMap<(u32, String), u64> = HashMap::new();
    for sample in perf::leaves(&output) {
        *shown.entry((sample.pid, sample.frames[0].clone())).or_default() += 1;
    }
    for (function, (leaf, _)) in capture::truth("multi")
        .into_iter()
        .filter(|(_, (leaf, _))| *leaf > 0)
    {
        assert_eq!(shown.get(&function), Some(&leaf), "{function:?}");
    }
}

#[test]
fn all_symbols_can_be_written() {
    for (name, _, _) in CAPTURES {
        let folder = scratch();
        let output = folder.path().join("out.data");
        let summary = folder.path().join("summary.json");
        let said = inject(
            &capture::profile(name),
            &output,
            &["--all", "--summary", tools::text(&summary)],
        );
        let json: Value = serde_json::from_slice(&std::fs::read(summary).unwrap()).unwrap();
        let maps = perf::perf(&["script", "-f", "-i", tools::text(&output), "--show-mmap-events"]);
        let mapped = maps
            .lines()
            .filter(|line| line.contains("MMAP2") && line.contains("/jitted-"));
        let objects = objects_of(&output);
        assert!(objects.len() >= 140, "{said}");
        assert_eq!(mapped.count(), objects.len(), "{said}");
        assert_eq!(json["symbols"]["written"], objects.len(), "{said}");
        if name == "cpython312-map" {
            assert_eq!(json["symbols"]["known"], objects.len());
        }
    }
}

/// Made-up processes with perf maps, from second 10 on, and what is expected of them.
struct Case {
    folder: tempfile::TempDir,
    profile: ProfileWriter,
    expected: Vec<Expected>,
    time: u64,
}

impl Case {
    fn new() -> Self {
        Self {
            folder: scratch(),
            profile: ProfileWriter::new(ByteOrder::Little),
            expected: Vec::new(),
            time: 10 * SECOND,
        }
    }

    /// A process that executed a program and has memory for code from [`REGION`] on.
    fn with_process(pid: u32) -> Self {
        let mut case = Self::new();
        case.exec(pid);
        case.anonymous(pid, REGION, 0x1_0000);
        case
    }

    fn tick(&mut self) -> u64 {
        self.time += SECOND;
        self.time
    }

    fn exec(&mut self, pid: u32) {
        let time = self.tick();
        self.profile.comm(pid, "program", true, time);
    }

    fn fork(&mut self, child: u32, parent: u32) {
        let time = self.tick();
        self.profile.fork(child, parent, time);
    }

    fn map(&mut self, pid: u32, address: u64, size: u64, name: &str) {
        let time = self.tick();
        self.profile.mmap2(pid, address, size, address, name, time);
    }

    fn anonymous(&mut self, pid: u32, address: u64, size: u64) {
        self.map(pid, address, size, "//anon");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A sample at an offset in the region, which must show a name.
    fn sample(&mut self, pid: u32, offset: u64, name: &str) {
        let time = self.tick();
        self.profile.sample(pid, time, &[REGION + offset], None);
        self.expected.push(Expected {
            pid,
            time,
            frames: vec![name.to_owned()],
        });
    }

    fn input(&self) -> PathBuf {
        let input = self.path("perf.data");
        std::fs::write(&input, self.profile.finish()).unwrap();
        input
    }

    /// Injects and compares with what was expected; returns what was said.
    fn check(&self, more: &[&str]) -> String {
        let input = self.input();
        let output = self.path("out.data");
        let said = inject(&input, &output, more);
        for program in perf::programs() {
            assert_named(&program, &output, &self.expected);
        }
        let all = [more, &["--all"]].concat();
        inject(&input, &output, &all);
        assert_named("perf", &output, &self.expected);
        said
    }
}

/// Lines of a map: offsets in the region, sizes and names.
fn lines(symbols: &[(u64, u64, &str)]) -> String {
    let line = |&(offset, size, name): &(u64, u64, &str)| format!("{:x} {size:x} {name}\n", REGION + offset);
    symbols.iter().map(line).collect()
}

#[test]
fn of_symbols_that_overlap_the_later_one_counts() {
    let mut case = Case::with_process(10);
    case.write(
        "perf-10.map",
        &lines(&[
            (0x100, 0x100, "old"),
            (0x140, 0x40, "new in the middle"),
            (0x1f0, 0x20, "new at the end"),
            (0x300, 0x10, "first of a name"),
            (0x300, 0x10, "second of a name"),
            (0x110, 0, "label in a function"),
            (0x400, 0, "label"),
        ]),
    );
    for (offset, name) in [
        (0xff, UNKNOWN),
        (0x100, "old"),
        (0x110, "old"),
        (0x13f, "old"),
        (0x140, "new in the middle"),
        (0x17f, "new in the middle"),
        (0x180, "old"),
        (0x1ef, "old"),
        (0x1f0, "new at the end"),
        (0x20f, "new at the end"),
        (0x210, UNKNOWN),
        (0x304, "second of a name"),
        (0x400, "label"),
        (0x401, UNKNOWN),
    ] {
        case.sample(10, offset, name);
    }
    let said = case.check(&[]);
    assert!(
        said.contains("14 samples, 14 in JIT code, 11 of them named (78.6 %), 11 by a perf map"),
        "{said}"
    );
    assert!(
        said.contains("3 not named: the process wrote no jitdump, and no perf map has a symbol there"),
        "{said}"
    );
}

/// A map has no times, so where a dump ever has code, it alone is asked.
#[test]
fn the_dump_wins_where_both_know_an_address() {
    let mut case = Case::with_process(10);
    let path = case.path("jit-10.dump");
    case.map(10, 0x6000_0000, 0x1000, tools::text(&path));
    case.write(
        "perf-10.map",
        &lines(&[
            (0x100, 0x40, "of the map"),
            (0x1f0, 0x60, "around"),
            (0x300, 0x40, "stub"),
        ]),
    );
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 10);
    case.sample(10, 0x104, UNKNOWN);
    case.sample(10, 0x304, "stub");
    case.sample(10, 0x1f4, "around");
    dump.load(case.tick(), REGION + 0x100, 1, b"of the dump", &[0x90; 0x40]);
    dump.load(case.tick(), REGION + 0x200, 2, b"inside", &[0x90; 0x20]);
    case.sample(10, 0x104, "of the dump");
    case.sample(10, 0x204, "inside");
    case.sample(10, 0x1f4, "around");
    case.sample(10, 0x224, "around");
    // Both survive that the memory is mapped anew.
    case.anonymous(10, REGION, 0x2_0000);
    case.sample(10, 0x104, "of the dump");
    case.sample(10, 0x304, "stub");
    dump.moved(case.tick(), REGION + 0x100, REGION + 0x500, 0x40, 1);
    case.sample(10, 0x104, UNKNOWN);
    case.sample(10, 0x504, "of the dump");
    std::fs::write(path, dump.bytes).unwrap();
    let said = case.check(&[]);
    assert!(
        said.contains("9 of them named (81.8 %), 5 by a perf map"),
        "{said}"
    );
    assert!(
        said.contains("1 not named: taken before a function was loaded at that address"),
        "{said}"
    );
}

#[test]
fn symbols_are_there_as_long_as_the_memory_is_not_a_files() {
    let mut case = Case::new();
    case.write(
        "perf-10.map",
        &lines(&[(0x100, 0x40, "code"), (0x1ff0, 0x20, "across two maps")]),
    );
    case.exec(10);
    case.sample(10, 0x104, UNKNOWN);
    case.map(10, REGION, 0x1000, "/usr/lib/other.so");
    case.sample(10, 0x104, UNKNOWN);
    case.anonymous(10, REGION, 0x2000);
    case.sample(10, 0x104, "code");
    case.sample(10, 0x1ff4, "across two maps");
    case.map(10, REGION + 0x2000, 0x1000, "/usr/lib/library.so");
    case.sample(10, 0x2004, UNKNOWN);
    case.map(10, REGION, 0x1000, "/usr/lib/library.so");
    case.sample(10, 0x104, UNKNOWN);
    case.sample(10, 0x1ff4, "across two maps");
    case.map(10, REGION, 0x3000, "/memfd:doublemapper (deleted)");
    case.sample(10, 0x104, "code");
    case.sample(10, 0x2004, "across two maps");
    case.anonymous(10, REGION, 0x3000);
    case.sample(10, 0x104, "code");
    // What a child maps over its parent's file is its own.
    case.map(10, REGION, 0x1000, "/usr/lib/library.so");
    case.fork(11, 10);
    case.anonymous(11, REGION, 0x1000);
    case.sample(10, 0x104, UNKNOWN);
    case.sample(11, 0x104, "code");
    let said = case.check(&[]);
    assert!(
        said.contains("12 samples, 7 in JIT code, 7 of them named"),
        "{said}"
    );
}

#[test]
fn children_have_their_own_symbols_and_their_parents() {
    let mut case = Case::with_process(10);
    case.write(
        "perf-10.map",
        &lines(&[
            (0x100, 0x40, "of parent"),
            (0x200, 0x40, "of both"),
            (0x300, 0x40, "parent's"),
        ]),
    );
    case.write(
        "perf-11.map",
        &lines(&[
            (0x200, 0x40, "of both"),
            (0x300, 0x40, "child's"),
            (0x400, 0x40, "of child"),
        ]),
    );
    case.sample(10, 0x104, "of parent");
    case.fork(11, 10);
    case.fork(12, 10);
    for (offset, parents, childs, others) in [
        (0x104, "of parent", "of parent", "of parent"),
        (0x204, "of both", "of both", "of both"),
        (0x304, "parent's", "child's", "parent's"),
        (0x404, UNKNOWN, "of child", UNKNOWN),
    ] {
        case.sample(10, offset, parents);
        case.sample(11, offset, childs);
        case.sample(12, offset, others);
    }
    case.anonymous(11, REGION, 0x2_0000);
    case.sample(11, 0x304, "child's");
    case.sample(11, 0x104, "of parent");
    // Another program starts with nothing.
    case.exec(12);
    case.anonymous(12, REGION, 0x1000);
    case.sample(12, 0x104, UNKNOWN);
    case.check(&[]);
}

/// In a container, a process has another number than in the profile. The name of its dump tells it.
#[test]
fn numbers_of_containers_are_those_of_the_dump() {
    let mut case = Case::with_process(10);
    case.write("perf-1.map", &lines(&[(0x100, 0x40, "of one")]));
    // Process 1 of the machine itself writes no perf map.
    case.exec(1);
    case.map(10, 0x6000_0000, 0x1000, "/app/jit-1.dump");
    case.sample(10, 0x104, "of one");
    case.check(&[]);
    // Which of the two?
    case.anonymous(20, REGION, 0x1000);
    case.map(20, 0x6000_0000, 0x1000, "/app/jit-1.dump");
    case.expected.last_mut().unwrap().frames = vec![UNKNOWN.into()];
    let map = case.path("perf-1.map");
    let said = case.check(&["--perf-map", tools::text(&map)]);
    assert!(
        said.contains("perf-1.map may be that of several processes: not used"),
        "{said}"
    );
    std::fs::rename(&map, case.path("perf-10.map")).unwrap();
    case.expected.last_mut().unwrap().frames = vec!["of one".into()];
    case.check(&[]);
}

/// Whose a map is when numbers of the machine and of containers meet.
#[test]
fn numbers_that_meet_are_kept_apart() {
    // A server and its child, both there before the profile, with the dump of the server mapped.
    let mut case = Case::with_process(10);
    case.write("perf-10.map", &lines(&[(0x100, 0x40, "of ten")]));
    case.map(10, 0x6000_0000, 0x1000, "/app/jit-10.dump");
    case.map(11, 0x6000_0000, 0x1000, "/app/jit-10.dump");
    case.sample(10, 0x104, "of ten");
    case.check(&[]);
    // Two containers, both with a process 3, of which one wrote a dump: the map beside that is its.
    let mut case = Case::with_process(20);
    case.anonymous(10, REGION, 0x1000);
    let dump = DumpWriter::new(ByteOrder::Little, 62, 3);
    case.write("saved/a/perf-3.map", &lines(&[(0x100, 0x40, "of a")]));
    case.write("saved/b/perf-3.map", &lines(&[(0x100, 0x40, "of b")]));
    std::fs::write(case.path("saved/b/jit-3.dump"), dump.bytes).unwrap();
    case.map(20, 0x6000_0000, 0x1000, "/app/jit-3.dump");
    case.sample(20, 0x104, "of b");
    let saved = case.path("saved");
    let said = case.check(&[
        "--jitdump",
        tools::text(&saved),
        "--perf-map",
        tools::text(&saved),
    ]);
    assert!(
        said.contains("a/perf-3.map is not used: process 20 has "),
        "{said}"
    );
}

#[test]
fn maps_are_found_where_the_user_says() {
    let mut case = Case::with_process(10);
    let map = case.write("deep/folder/perf-10.map", &lines(&[(0x100, 0x40, "of ten")]));
    let other = case.write("deep/perf-77.map", &lines(&[(0x100, 0x40, "of 77")]));
    let nameless = case.write("deep/map.txt", "");
    case.sample(10, 0x104, "of ten");
    for path in [&map, &case.path("deep")] {
        let said = case.check(&["--perf-map", tools::text(path)]);
        assert!(!said.contains("note"), "{said}");
        assert!(
            said.contains("1 perf map, 1 symbol, 1 touched by samples"),
            "{said}"
        );
        assert!(
            said.contains("0 functions loaded, 0 touched by samples, 1 object written"),
            "{said}"
        );
    }
    // What the user names comes before what lies beside the profile.
    case.write("perf-10.map", &lines(&[(0x100, 0x40, "stale")]));
    let mut more = vec!["-v"];
    for path in [&map, &other, &nameless] {
        more.extend_from_slice(&["--perf-map", tools::text(path)]);
    }
    let said = case.check(&more);
    assert!(
        said.contains("perf-77.map is of process 77, which is not in the profile: not used"),
        "{said}"
    );
    assert!(
        said.contains("map.txt is not used: its name does not tell its process"),
        "{said}"
    );
    assert!(
        said.contains("folder/perf-10.map: process 10, 1 symbol\n"),
        "{said}"
    );
    let ran = attempt(
        &case.input(),
        &case.path("out.data"),
        &["--perf-map", "/no/such/folder"],
    );
    assert_eq!(ran.status.code(), Some(1));
    assert!(
        crate::support::said(&ran).contains("cannot read /no/such/folder"),
        "{}",
        crate::support::said(&ran)
    );
    for output in [&map, &case.path("perf-10.map"), &nameless] {
        let more = [
            "--perf-map",
            tools::text(&map),
            "--perf-map",
            tools::text(&nameless),
        ];
        if output.ends_with("deep/folder/perf-10.map") || output.ends_with("deep/map.txt") {
            let ran = attempt(&case.input(), output, &more);
            assert!(
                crate::support::said(&ran).contains("is the same file as the input"),
                "{}",
                crate::support::said(&ran)
            );
        }
    }
}

#[test]
fn damage_is_counted_and_costs_nothing_else() {
    let mut case = Case::with_process(10);
    let good = lines(&[(0x100, 0x40, "good one"), (0x200, 0x40, "good two")]).replace('\n', "\r\n");
    let long = "n".repeat(5000);
    let content = format!(
        "{good}no line\n\n{:x} 20\n{:x} ffffffffffffffff endless\n\0\0\0\n{:x} 40 \u{1b}[2Jcolour\n{:x} 40 {long}",
        REGION + 0x100,
        REGION,
        REGION + 0x300,
        REGION + 0x400,
    );
    case.write("perf-10.map", &content);
    case.sample(10, 0x104, "good one");
    case.sample(10, 0x204, "good two");
    case.sample(10, 0x304, "\\x1b[2Jcolour");
    case.sample(10, 0x404, &long);
    let said = case.check(&[]);
    let place = good.len();
    assert!(
        said.contains(&format!(
            "perf-10.map: lines that don't name code, passed over (4, the first at {place:#x})"
        )),
        "{said}"
    );
    // whatever stands in it
    case.write("perf-10.map", &"7000000 ".repeat(10_000));
    case.expected.clear();
    inject(&case.input(), &case.path("out.data"), &[]);
}

/// Process numbers come round, and nobody tidies up /tmp.
#[test]
fn maps_that_are_older_than_their_process_are_not_its_own() {
    const CLOCK_DATA: u32 = 29;
    let wall_clock = 1_790_000_000 * SECOND;
    let mut case = Case::with_process(10);
    let order = ByteOrder::Little;
    let mut clocks = Vec::new();
    order.put_u32(&mut clocks, 1);
    order.put_u32(&mut clocks, 1);
    order.put_u64(&mut clocks, wall_clock);
    order.put_u64(&mut clocks, 20 * SECOND);
    case.profile.features.push((CLOCK_DATA, clocks));
    // The process was born at second 11, nine seconds before that moment.
    let born = UNIX_EPOCH + Duration::from_nanos(wall_clock) - Duration::from_secs(9);
    case.sample(10, 0x104, "code");
    let map = case.write("perf-10.map", &lines(&[(0x100, 0x40, "code")]));
    let hour = Duration::from_secs(3600);
    let set_time = |time| {
        File::options()
            .append(true)
            .open(&map)
            .unwrap()
            .set_modified(time)
            .unwrap()
    };
    for time in [born, born + hour] {
        set_time(time);
        case.check(&[]);
    }
    set_time(born - hour);
    case.check(&["--perf-map", tools::text(&map)]);
    case.expected[0].frames = vec![UNKNOWN.into()];
    let said = case.check(&[]);
    assert!(said.contains("perf-10.map: is older than process 10"), "{said}");
}

#[test]
fn a_living_process_is_asked_for_its_own_temporary_folder() {
    let mut case = Case::new();
    let mut process = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let pid = process.id();
    let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    std::fs::write(&map, lines(&[(0x100, 0x40, "alive")])).unwrap();
    case.exec(pid);
    case.anonymous(pid, REGION, 0x1000);
    case.sample(pid, 0x104, "alive");
    let more = ["-v"];
    let alive = inject(&case.input(), &case.path("out.data"), &more);
    process.kill().unwrap();
    process.wait().unwrap();
    let dead = inject(&case.input(), &case.path("out.data"), &more);
    std::fs::remove_file(&map).unwrap();
    assert!(
        alive.contains(&format!(
            "/proc/{pid}/root/tmp/perf-{pid}.map: process {pid}, 1 symbol"
        )),
        "{alive}"
    );
    assert!(
        dead.starts_with(&format!(
            "jitinject: /tmp/perf-{pid}.map: process {pid}, 1 symbol"
        )),
        "{dead}"
    );
    assert_named("perf", &case.path("out.data"), &case.expected);
}

#[test]
fn figures_are_in_the_summary() {
    let mut case = Case::with_process(10);
    case.write(
        "perf-10.map",
        &lines(&[
            (0x100, 0x40, "JS:^f /tmp/a.js:3:4"),
            (0x200, 0x40, "JS:*g /tmp/a.js:7:1"),
            (0x300, 0x40, "untouched"),
        ]),
    );
    for offset in [0x104, 0x108, 0x204] {
        case.profile
            .sample(10, 100 * SECOND + offset, &[REGION + offset], None);
    }
    case.profile
        .sample(10, 200 * SECOND, &[REGION + 0x800, REGION + 0x208], None);
    let output = case.path("out.data");
    let run = |more: &[&str]| attempt(&case.input(), &output, more);
    let ran = run(&["-q", "--summary", "-", "--tiers=symbols"]);
    let json: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let symbols = &json["symbols"];
    assert_eq!(
        (&symbols["known"], &symbols["touched"], &symbols["written"]),
        (&3.into(), &2.into(), &2.into())
    );
    let samples = &json["samples"];
    assert_eq!(
        (&samples["named"], &samples["named_by_map"]),
        (&3.into(), &3.into())
    );
    assert_eq!(
        (&samples["with_named_frame"], &samples["unnamed"]["no_dump"]),
        (&4.into(), &1.into())
    );
    assert_eq!(json["perf_maps"][0]["pid"], 10);
    assert_eq!(json["functions"]["written"], 0);
    assert_eq!(
        (&json["tiers"][0]["tier"], &json["tiers"][0]["samples"]),
        (&"Sparkplug".into(), &2.into())
    );
    let names: HashMap<String, usize> =
        perf::leaves(&output)
            .into_iter()
            .fold(HashMap::new(), |mut all, leaf| {
                *all.entry(leaf.frames[0].clone()).or_default() += 1;
                all
            });
    assert_eq!(names["JS:^f /tmp/a.js:3:4 [Sparkplug]"], 2);
    assert_eq!(names["JS:*g /tmp/a.js:7:1 [TurboFan]"], 1);
    for (percent, status) in [("75", 0), ("76", 3)] {
        assert_eq!(run(&["--fail-under", percent]).status.code(), Some(status));
    }
    let objects = objects_of(&output);
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let names: Vec<String> = objects.iter().map(name).collect();
    assert_eq!(names, ["jitted-10-map-70000100.so", "jitted-10-map-70000200.so"]);
}

/// The object tells what it is, and that nobody knows its code.
#[test]
fn objects_without_code_are_what_all_readers_understand() {
    let mut case = Case::with_process(10);
    case.write("perf-10.map", &lines(&[(0x100, 0x40, "JS:^f /tmp/a.js:3:4")]));
    case.sample(10, 0x104, "JS:^f /tmp/a.js:3:4");
    let output = inject_into(case.folder.path(), &case.input(), &[]);
    let object = objects_of(&output).remove(0);
    let object = tools::text(&object);
    let sections = tools::run("readelf", &["-SW", object]);
    let text = sections.lines().find(|line| line.contains(" .text ")).unwrap();
    let fields: Vec<&str> = text.split(']').nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        &fields[..5],
        [".text", "NOBITS", "0000000000001000", "000000", "000040"]
    );
    let symbols = tools::run("readelf", &["-sW", object]);
    assert!(
        symbols.contains("    64 FUNC    LOCAL  DEFAULT    1 JS:^f /tmp/a.js:3:4"),
        "{symbols}"
    );
    for (program, arguments) in [
        ("llvm-symbolizer", &["--no-demangle", "--obj"][..]),
        ("addr2line", &["-f", "-e"]),
        ("eu-addr2line", &["-f", "-e"]),
    ] {
        let arguments = match program {
            "llvm-symbolizer" => vec![
                arguments[0].to_owned(),
                format!("--obj={object}"),
                "0x103f".into(),
            ],
            _ => vec!["-f".into(), "-e".into(), object.to_owned(), "0x103f".into()],
        };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let shown = tools::run(program, &arguments);
        assert_eq!(shown.lines().next(), Some("JS:^f /tmp/a.js:3:4"), "{program}");
    }
    let declared = tools::run("llvm-dwarfdump", &[object]);
    assert!(declared.contains("DW_AT_decl_line\t(3)"), "{declared}");
}
