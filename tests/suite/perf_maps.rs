//! Perf maps name the code that no dump describes, and no other code.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jitdump::ByteOrder;
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::perf_map_case::{CAPTURES, Case, REGION, SECOND, UNKNOWN, lines};
use crate::support::processes;
use crate::support::shown::assert_named;
use crate::support::{
    attempt, capture, codes, diagnostics, inject, model, objects_of, scratch, shown, stems_of, tools,
};

/// PHP wrote both files. Without the dump of a process, the map names the same functions.
#[test]
fn a_map_replaces_a_dump_that_is_lost() {
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
    for sample in shown::leaves(&output) {
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
        let parts = model::parse(&std::fs::read(&output).unwrap());
        let names = parts
            .records
            .iter()
            .filter_map(|record| model::map_name(record, parts.endian));
        let mapped = names.filter(|name| name.contains("/jitted-"));
        let objects = objects_of(&output);
        assert!(objects.len() >= 140, "{said}");
        assert_eq!(mapped.count(), objects.len(), "{said}");
        assert_eq!(json["symbols"]["written"], objects.len(), "{said}");
        if name == "cpython312-map" {
            assert_eq!(json["symbols"]["known"], objects.len());
        }
    }
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
        said.contains("3 not named: the process has no jitdump, and no perf map has a symbol at the address"),
        "{said}"
    );
}

/// A map has no times, so it is not used for addresses where a dump has code at any time.
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
    // New mappings of the memory change nothing.
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
        said.contains("1 not named: sampled before a function was loaded at the address"),
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
    // Memory that a child maps over its parent's file belongs to the child.
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
    // Another program inherits no symbols.
    case.exec(12);
    case.anonymous(12, REGION, 0x1000);
    case.sample(12, 0x104, UNKNOWN);
    case.check(&[]);
}

/// In a container, a process has another ID than in the profile. The name of its dump contains it.
#[test]
fn numbers_of_containers_are_those_of_the_dump() {
    let mut case = Case::with_process(10);
    case.write("perf-1.map", &lines(&[(0x100, 0x40, "of one")]));
    // Process 1 of the host writes no perf map.
    case.exec(1);
    case.map(10, 0x6000_0000, 0x1000, "/app/jit-1.dump");
    case.sample(10, 0x104, "of one");
    case.check(&[]);
    // A second process with that ID makes the map ambiguous.
    case.anonymous(20, REGION, 0x1000);
    case.map(20, 0x6000_0000, 0x1000, "/app/jit-1.dump");
    case.expected.last_mut().unwrap().frames = vec![UNKNOWN.into()];
    let map = case.path("perf-1.map");
    let said = case.check(&["--perf-map", tools::text(&map)]);
    let ambiguous = format!("warning[JI055]: {}: ", map.display());
    assert!(said.contains(&ambiguous), "{said}");
    std::fs::rename(&map, case.path("perf-10.map")).unwrap();
    case.expected.last_mut().unwrap().frames = vec!["of one".into()];
    case.check(&[]);
}

/// Process IDs of the host and of containers may be equal.
#[test]
fn numbers_that_meet_are_kept_apart() {
    // A server and its child, both older than the profile, which mapped the dump of the server.
    let mut case = Case::with_process(10);
    case.write("perf-10.map", &lines(&[(0x100, 0x40, "of ten")]));
    case.map(10, 0x6000_0000, 0x1000, "/app/jit-10.dump");
    case.map(11, 0x6000_0000, 0x1000, "/app/jit-10.dump");
    case.sample(10, 0x104, "of ten");
    case.check(&[]);
    // Two containers, both with a process 3. One wrote a dump, and the map beside the dump belongs to it.
    let mut case = Case::with_process(20);
    case.anonymous(10, REGION, 0x1000);
    let dump = DumpWriter::new(ByteOrder::Little, 62, 3);
    let other = case.write("saved/a/perf-3.map", &lines(&[(0x100, 0x40, "of a")]));
    let map = case.write("saved/b/perf-3.map", &lines(&[(0x100, 0x40, "of b")]));
    std::fs::write(case.path("saved/b/jit-3.dump"), dump.bytes).unwrap();
    case.map(20, 0x6000_0000, 0x1000, "/app/jit-3.dump");
    case.sample(20, 0x104, "of b");
    let saved = case.path("saved");
    let summary = check_with_summary(
        &case,
        &[
            "--jitdump",
            tools::text(&saved),
            "--perf-map",
            tools::text(&saved),
        ],
    );
    let [superseded] = diagnostics(&summary, "JI051")[..] else {
        panic!("{summary:#}");
    };
    assert_eq!(superseded["file"], tools::text(&other));
    assert_eq!(summary["perf_maps"].as_array().unwrap().len(), 1);
    assert_eq!(summary["perf_maps"][0]["path"], tools::text(&map));
    assert_eq!(summary["perf_maps"][0]["pid"], 20);
}

/// Checks the names in the output, and returns the summary.
fn check_with_summary(case: &Case, more: &[&str]) -> Value {
    let path = case.path("summary.json");
    case.check(&[&["--summary", tools::text(&path)], more].concat());
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn maps_are_found_where_the_user_says() {
    let mut case = Case::with_process(10);
    let map = case.write("deep/folder/perf-10.map", &lines(&[(0x100, 0x40, "of ten")]));
    let other = case.write("deep/perf-77.map", &lines(&[(0x100, 0x40, "of 77")]));
    let nameless = case.write("deep/map.txt", "");
    case.sample(10, 0x104, "of ten");
    for path in [&map, &case.path("deep")] {
        let said = case.check(&["-v", "--perf-map", tools::text(path)]);
        assert!(codes(&said).is_empty(), "{said}");
        assert!(
            said.contains("1 perf map, 1 symbol, 1 touched by samples"),
            "{said}"
        );
        assert!(
            said.contains("jitinject: 1 object written") && !said.contains("0 functions"),
            "{said}"
        );
    }
    // A file that the user names takes precedence over one beside the profile.
    case.write("perf-10.map", &lines(&[(0x100, 0x40, "stale")]));
    let mut more = vec!["-v"];
    for path in [&map, &other, &nameless] {
        more.extend_from_slice(&["--perf-map", tools::text(path)]);
    }
    let said = case.check(&more);
    for (code, file) in [("JI054", &other), ("JI052", &nameless)] {
        let unused = format!("warning[{code}]: {}: ", file.display());
        assert!(said.contains(&unused), "{code}: {said}");
    }
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
    let said = crate::support::said(&ran);
    assert!(said.contains("error[JI400]: /no/such/folder: "), "{said}");
    for output in [&map, &case.path("perf-10.map"), &nameless] {
        let more = [
            "--perf-map",
            tools::text(&map),
            "--perf-map",
            tools::text(&nameless),
        ];
        if output.ends_with("deep/folder/perf-10.map") || output.ends_with("deep/map.txt") {
            let ran = attempt(&case.input(), output, &more);
            let said = crate::support::said(&ran);
            let same = format!("error[JI403]: {}: ", output.display());
            assert!(said.contains(&same), "{said}");
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
    let map = case.write("perf-10.map", &content);
    case.sample(10, 0x104, "good one");
    case.sample(10, 0x204, "good two");
    case.sample(10, 0x304, "\\x1b[2Jcolour");
    case.sample(10, 0x404, &long);
    let summary = check_with_summary(&case, &[]);
    let [skipped] = diagnostics(&summary, "JI050")[..] else {
        panic!("{summary:#}");
    };
    assert_eq!(skipped["severity"], "warning");
    assert_eq!(skipped["file"], tools::text(&map));
    assert_eq!(
        (&skipped["count"], &skipped["offset"]),
        (&4.into(), &good.len().into())
    );
    // A file without valid lines does not fail the run.
    case.write("perf-10.map", &"7000000 ".repeat(10_000));
    case.expected.clear();
    inject(&case.input(), &case.path("out.data"), &[]);
}

/// Returns a section that says what the wall clock was at second 20 of the profile.
fn clock_data(wall_clock: u64) -> (u32, Vec<u8>) {
    const CLOCK_DATA: u32 = 29;
    let endian = ByteOrder::Little;
    let mut clocks = Vec::new();
    endian.write_u32(&mut clocks, 1);
    endian.write_u32(&mut clocks, 1);
    endian.write_u64(&mut clocks, wall_clock);
    endian.write_u64(&mut clocks, 20 * SECOND);
    (CLOCK_DATA, clocks)
}

/// Process IDs are reused, and old files stay in /tmp.
#[test]
fn maps_that_are_older_than_their_process_are_not_its_own() {
    let wall_clock = 1_790_000_000 * SECOND;
    let mut case = Case::with_process(10);
    case.profile.features.push(clock_data(wall_clock));
    // The process started at second 11, nine seconds before that time.
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
    let older = format!("warning[JI057]: {}: ", map.display());
    assert!(said.contains(&older), "{said}");
    // What a link leads to is named, too.
    let elsewhere = scratch();
    let target = elsewhere.path().canonicalize().unwrap().join("map");
    std::fs::copy(&map, &target).unwrap();
    let file = File::options().append(true).open(&target).unwrap();
    file.set_modified(born - hour).unwrap();
    std::fs::remove_file(&map).unwrap();
    symlink(&target, &map).unwrap();
    let said = case.check(&[]);
    let older = format!("warning[JI057]: {} -> {}: ", map.display(), target.display());
    assert!(said.contains(&older), "{said}");
}

/// Small process IDs, as in containers, are used again soon.
#[test]
fn a_process_that_was_there_before_the_profile_has_no_map_of_an_earlier_one() {
    let mut process = processes::start_without_perf_map();
    let pid = process.0.id();
    let now = SystemTime::now() + Duration::from_secs(10);
    let wall_clock = now.duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut case = Case::new();
    case.profile.features.push(clock_data(wall_clock));
    case.profile.present(pid, 1);
    case.anonymous(pid, REGION, 0x1_0000);
    case.sample(pid, 0x104, "code");
    let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    std::fs::write(&map, lines(&[(0x100, 0x40, "code")])).unwrap();
    case.check(&[]);
    let file = File::options().append(true).open(&map).unwrap();
    file.set_modified(now - Duration::from_secs(3600)).unwrap();
    case.expected[0].frames = vec![UNKNOWN.into()];
    let said = case.check(&[]);
    process.0.kill().unwrap();
    std::fs::remove_file(&map).unwrap();
    assert!(said.contains("warning[JI057]: "), "{said}");
}

#[test]
fn a_living_process_is_asked_for_its_own_temporary_folder() {
    let mut case = Case::new();
    let mut process = processes::start_without_perf_map();
    let pid = process.0.id();
    let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    std::fs::write(&map, lines(&[(0x100, 0x40, "alive")])).unwrap();
    case.exec(pid);
    case.anonymous(pid, REGION, 0x1000);
    case.sample(pid, 0x104, "alive");
    let more = ["-v"];
    let alive = inject(&case.input(), &case.path("out.data"), &more);
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    let dead = inject(&case.input(), &case.path("out.data"), &more);
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
    assert_named(&case.path("out.data"), &case.expected);
}

/// As images of functions do, symbols that share an object show the same names.
#[test]
fn symbols_share_an_object_in_an_image() {
    let folder = scratch();
    let [separate, image] = ["function", "image"].map(|layout| {
        let output = folder.path().join(layout);
        inject(&capture::profile("mono-map"), &output, &["--layout", layout]);
        let names = shown::leaves(&output)
            .into_iter()
            .map(|sample| (sample.time, sample.frames));
        (objects_of(&output).len(), names.collect::<Vec<_>>())
    });
    assert_eq!((separate.0, image.0), (8, 1));
    assert_eq!(separate.1, image.1);
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
        shown::leaves(&output)
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
    assert_eq!(
        stems_of(&objects),
        ["jitted-10-map-70000100", "jitted-10-map-70000200"]
    );
}
