//! The values in pages of `jitinject timeline`: functions at their addresses during their lifetimes, with their samples.

use std::collections::HashMap;
use std::path::Path;

use jitdump::ByteOrder;

use crate::support::dump::{self, DumpWriter};
use crate::support::generator::{self, Plan, Runtimes};
use crate::support::profile::ProfileWriter;
use crate::support::timeline::{Placed, Values, page_of, page_of_capture};
use crate::support::tools::text;
use crate::support::{capture, has_code, jitinject, said, scratch};

/// Events of the recording `node20-multievent`, after the first one.
const OTHER_EVENTS: [&str; 2] = [
    "page-faults/period=7,call-graph=fp/",
    "context-switches/period=1,call-graph=no/",
];

/// Generates a profile, creates its page, and looks up each sample in the boxes.
fn check(plan: &Plan) {
    let folder = scratch();
    let mut samples = Vec::new();
    let profile = generator::write(folder.path(), plan, |taken| {
        samples.push((taken.place(), taken.leaf()));
    });
    let values = Values::of(&page_of(folder.path(), &profile, &[]).0);
    let boxes = values.boxes();
    let mut by_page: HashMap<(u64, u64), Vec<&Placed>> = HashMap::new();
    for placed in &boxes {
        for page in placed.start / 4096..=(placed.end - 1) / 4096 {
            by_page.entry((placed.pid, page)).or_default().push(placed);
        }
    }
    let mut taken: HashMap<(u64, String), u64> = HashMap::new();
    for &((pid, time, address), ref leaf) in &samples {
        let near = by_page.get(&(pid.into(), address / 4096));
        let holds = |placed: &&&Placed| {
            let is_then =
                placed.from.is_none_or(|from| from <= time) && placed.until.is_none_or(|until| time < until);
            is_then && (placed.start..placed.end).contains(&address)
        };
        let at: Vec<&str> = near
            .into_iter()
            .flatten()
            .filter(holds)
            .map(|placed| &*placed.name)
            .collect();
        let expected: Vec<&str> = leaf.iter().map(String::as_str).collect();
        assert_eq!(at, expected, "process {pid}, {time}, {address:#x}");
        if let Some(leaf) = leaf {
            *taken.entry((pid.into(), leaf.clone())).or_default() += 1;
        }
    }
    for (pid, name, _, samples) in values.functions() {
        let expected = taken.remove(&(pid, name.clone())).unwrap_or(0);
        assert_eq!(samples, expected, "process {pid}, {name}");
    }
    assert!(taken.is_empty(), "{taken:?}");
}

#[test]
fn each_sample_is_in_the_one_box_of_its_function() {
    check(&Plan::default());
    check(&Plan {
        places: 200,
        moves: true,
        ..Plan::default()
    });
    check(&Plan {
        places: 100,
        processes: 4,
        endian: ByteOrder::Big,
        ..Plan::default()
    });
    check(&Plan {
        processes: 6,
        places: 300,
        runtimes: Runtimes::Many,
        ..Plan::default()
    });
}

/// Writes a profile of process 10, which maps memory for code and its dump, and what `more` adds.
pub fn profile(
    folder: &Path,
    dump: &DumpWriter,
    more: impl FnOnce(&mut ProfileWriter),
) -> std::path::PathBuf {
    let path = folder.join("jit-10.dump");
    std::fs::write(&path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(10, 0x7000_0000, 0x10_0000, 0x7000_0000, "//anon", 1000);
    profile.mmap2(10, 0x6000_0000, 0x1000, 0, text(&path), 1001);
    more(&mut profile);
    let input = folder.join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    input
}

/// Returns a box of process 10.
fn placed(name: &str, range: (u64, u64), from: u64, until: Option<u64>, samples: u64) -> Placed {
    Placed {
        name: name.to_owned(),
        pid: 10,
        start: range.0,
        end: range.1,
        from: Some(from),
        until,
        samples,
    }
}

#[test]
fn boxes_end_where_something_else_comes_or_the_code_goes() {
    let code = [0x90; 0x100];
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, 10);
    dump.load(2000, 0x7000_0000, 1, b"JS:^moved a.js:1:1", &code);
    dump.load(3000, 0x7000_1000, 2, b"cut", &code);
    dump.load(4000, 0x7000_1080, 3, b"JS:*over a.js:2:1", &code);
    dump.moved(5000, 0x7000_0000, 0x7fff_0000_0000, 0x100, 1);
    dump.load(9001, 0x7000_5000, 4, b"too late", &code);
    let folder = scratch();
    let input = profile(folder.path(), &dump, |profile| {
        profile.sample(10, 2500, &[0x7000_0010], None);
        profile.sample(10, 4500, &[0x7000_1090], None);
        profile.sample(10, 6000, &[0x7fff_0000_0010], None);
        profile.sample(10, 6001, &[0x7fff_0000_0011], None);
        profile.sample(10, 9000, &[0x7000_2000], None);
    });
    let (page, said) = page_of(folder.path(), &input, &["-v"]);
    let values = Values::of(&page);
    let (one, two) = (0x7000_0000, 0x7000_1000);
    let far = 0x7fff_0000_0000;
    let mut boxes = values.boxes();
    boxes.sort_by_key(|placed| (placed.from, placed.start));
    assert_eq!(
        boxes,
        [
            placed("JS:^moved a.js:1:1", (one, one + 0x100), 2000, Some(5000), 1),
            placed("cut", (two, two + 0x80), 3000, None, 0),
            placed("cut", (two + 0x80, two + 0x100), 3000, Some(4000), 0),
            placed("JS:*over a.js:2:1", (two + 0x80, two + 0x180), 4000, None, 1),
            placed("JS:^moved a.js:1:1", (far, far + 0x100), 5000, None, 2),
        ]
    );
    let function =
        |name: &str, tier: Option<&str>, samples| (10, name.to_owned(), tier.map(str::to_owned), samples);
    assert_eq!(
        values.functions(),
        [
            function("JS:^moved a.js:1:1", Some("Sparkplug"), 3),
            function("cut", None, 0),
            function("JS:*over a.js:2:1", Some("TurboFan"), 1),
        ]
    );
    assert_eq!(values.0["tiers"], serde_json::json!(["Sparkplug", "TurboFan"]));
    assert_eq!(values.0["regions"].as_array().unwrap().len(), 2);
    // One function was loaded after the recording ended.
    assert!(said.contains("note[JI301]: 1 "), "{said}");
    // All samples, those without a name, of an unknown compiler, and of each compiler.
    let mut sums = [0; 5];
    for (_, series, _, samples) in values.share() {
        sums[series as usize] += samples;
    }
    assert_eq!(sums, [5, 1, 0, 3, 1]);
}

#[test]
fn a_child_has_its_own_samples_and_boxes_in_code_that_it_inherited() {
    let code = [0x90; 0x100];
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, 10);
    let (one, two) = (0x7000_0000, 0x7000_2000);
    dump.load(2000, one, 1, b"both", &code);
    dump.load(2001, two, 2, b"hidden", &code);
    dump.load(2002, 0x7000_4000, 3, b"of the parent", &code);
    let folder = scratch();
    let input = profile(folder.path(), &dump, |profile| {
        profile.sample(10, 2500, &[one + 1], None);
        profile.fork(11, 10, 3000);
        for time in 0..30 {
            profile.sample(11, 3100 + time, &[one + time], None);
        }
        profile.sample(11, 3200, &[two + 1], None);
        profile.mmap2(11, two + 0x80, 0x1000, 0, "/usr/lib/over.so", 4000);
        profile.exit(11, 11, 5000);
        profile.sample(10, 6000, &[0x40_0000], None);
    });
    let values = Values::of(&page_of(folder.path(), &input, &[]).0);
    let mut functions = values.functions();
    functions.sort();
    let function = |pid, name: &str, samples| (pid, name.to_owned(), None, samples);
    assert_eq!(
        functions,
        [
            function(10, "both", 1),
            function(10, "hidden", 0),
            function(10, "of the parent", 0),
            function(11, "both", 30),
            function(11, "hidden", 1),
        ]
    );
    let mut boxes = values.boxes();
    boxes.retain(|placed| placed.pid == 11);
    boxes.sort_by_key(|placed| placed.start);
    let inherited = |name: &str, range, until, samples| Placed {
        pid: 11,
        ..placed(name, range, 3000, Some(until), samples)
    };
    assert_eq!(
        boxes,
        [
            inherited("both", (one, one + 0x100), 5000, 30),
            inherited("hidden", (two, two + 0x80), 5000, 1),
            inherited("hidden", (two + 0x80, two + 0x100), 4000, 1),
        ]
    );
    for process in values.0["processes"].as_array().unwrap() {
        let samples = process["samples"].as_u64().unwrap();
        let pid = process["pid"].as_u64().unwrap();
        let of_functions = functions.iter().filter(|function| function.0 == pid);
        assert!(of_functions.map(|function| function.3).sum::<u64>() <= samples);
    }
}

#[test]
fn boxes_end_with_their_program_and_their_process() {
    let code = [0x90; 0x100];
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, 10);
    dump.load(2000, 0x7000_0000, 1, b"before exec", &code);
    dump.load(4500, 0x7000_1000, 2, b"before exit", &code);
    let folder = scratch();
    let mark = folder.path().join("jit-10.dump");
    let input = profile(folder.path(), &dump, |profile| {
        profile.sample(10, 2500, &[0x7000_0010], None);
        profile.comm(10, "another", true, 4000);
        profile.mmap2(10, 0x7000_0000, 0x10_0000, 0x7000_0000, "//anon", 4001);
        profile.mmap2(10, 0x6000_0000, 0x1000, 0, text(&mark), 4002);
        profile.exit(10, 12, 5000);
        profile.exit(10, 10, 6000);
        profile.sample(20, 9000, &[0x40_0000], None);
    });
    let mut boxes = Values::of(&page_of(folder.path(), &input, &[]).0).boxes();
    boxes.sort_by_key(|placed| placed.from);
    assert_eq!(
        boxes,
        [
            placed("before exec", (0x7000_0000, 0x7000_0100), 2000, Some(4000), 1),
            placed("before exit", (0x7000_1000, 0x7000_1100), 4500, Some(6000), 0),
        ]
    );
}

#[test]
fn symbols_of_perf_maps_end_with_their_memory() {
    let folder = scratch();
    std::fs::write(
        folder.path().join("perf-10.map"),
        "70000000 100 under\n70008000 100 beside\n",
    )
    .unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(10, 0x7000_0000, 0x10_0000, 0x7000_0000, "//anon", 1000);
    profile.sample(10, 2000, &[0x7000_0010], None);
    profile.mmap2(10, 0x7000_0000, 0x1000, 0, "/usr/lib/over.so", 3000);
    profile.sample(10, 9000, &[0x40_0000], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let (page, _) = page_of(folder.path(), &input, &["--perf-map", text(folder.path())]);
    let boxes = Values::of(&page).boxes();
    let ends: Vec<_> = boxes.iter().map(|placed| (&*placed.name, placed.until)).collect();
    assert_eq!(ends, [("under", Some(3000)), ("beside", None)]);
}

#[test]
fn recordings_have_the_samples_that_the_truth_has() {
    let mut wrong = Vec::new();
    for name in capture::WITH_TRUTH.iter().chain(&capture::OTHER_FORMATS) {
        let folder = scratch();
        let mut pages = vec![Values::of(&page_of_capture(folder.path(), name))];
        // The truth has the samples of all events.
        if *name == "node20-multievent" {
            pages.extend(OTHER_EVENTS.map(|event| {
                let dumps = capture::folder(name);
                let more = ["--jitdump", text(&dumps), "--event", event];
                Values::of(&page_of(folder.path(), &capture::profile(name), &more).0)
            }));
        }
        let mut found: HashMap<(u64, String), u64> = HashMap::new();
        for (pid, function, _, samples) in pages.iter().flat_map(Values::functions) {
            *found.entry((pid, function)).or_default() += samples;
        }
        for ((pid, symbol), (leaf, _)) in capture::truth(name) {
            let function = (pid.into(), symbol);
            let samples = found.get(&function).copied().unwrap_or(0);
            // In one recording, most names depend on a guessed clock offset, so these samples count as unnamed.
            let is_right = match *name {
                "node20-attached" => samples <= leaf,
                _ => samples == leaf,
            };
            if !is_right {
                wrong.push(format!("{name}: {function:?}: {samples} of {leaf}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// As in `jitinject report`.
#[test]
fn only_samples_of_the_first_event_count() {
    let folder = scratch();
    let dumps = capture::folder("node20-multievent");
    let input = capture::profile("node20-multievent");
    let page = |event: &[&str]| {
        let more = [&["--jitdump", text(&dumps)], event].concat();
        let values = Values::of(&page_of(folder.path(), &input, &more).0).0;
        let samples = values["processes"][0]["samples"].as_u64().unwrap();
        (values["event"].as_str().unwrap().to_owned(), samples)
    };
    assert_eq!(page(&[]), ("cpu-clock/freq=199/".to_owned(), 157));
    for event in OTHER_EVENTS {
        let (name, samples) = page(&["--event", event]);
        assert!(name == event && samples > 157, "{name}: {samples}");
    }
    let unknown = jitinject()
        .args(["timeline", "-i", text(&input), "--event", "none", "-o"])
        .arg(folder.path().join("timeline.html"))
        .output()
        .unwrap();
    assert!(has_code(&said(&unknown), "JI460"), "{}", said(&unknown));
}

/// Code that only a perf map names exists as long as its memory. Both recordings end after their processes.
#[test]
fn symbols_of_perf_maps_are_there_to_the_end_of_their_process() {
    let folder = scratch();
    let values = |name: &str| {
        let maps = capture::folder(name);
        let (page, _) = page_of(
            folder.path(),
            &capture::profile(name),
            &["--perf-map", text(&maps)],
        );
        let values = Values::of(&page);
        let boxes = values.boxes();
        let start: u64 = values.0["start"].as_str().unwrap().parse().unwrap();
        let last = Some(start + values.0["span"].as_u64().unwrap() - 1);
        assert!(boxes.len() > 100 && boxes.iter().all(|placed| placed.until == last));
        values
    };
    let python = values("cpython312-map");
    assert_eq!(python.0["tiers"], serde_json::json!(["Python"]));
    let mono = values("mono-map");
    let samples: u64 = mono.functions().iter().map(|(.., samples)| samples).sum();
    let named = mono.share().into_iter().filter(|&(_, series, ..)| series >= 2);
    let named: u64 = named.map(|(.., samples)| samples).sum();
    assert!(samples > 0 && samples == named, "{samples}, {named}");
}

#[test]
fn the_same_input_gives_the_same_page() {
    let folder = scratch();
    let plan = Plan {
        processes: 3,
        places: 200,
        moves: true,
        ..Plan::default()
    };
    let profile = generator::generate(folder.path(), &plan).profile;
    let page = |threads: &str| {
        let mut command = jitinject();
        command.env("RAYON_NUM_THREADS", threads);
        let ran = command
            .args(["timeline", "-q", "-i", text(&profile), "-o", "-"])
            .output()
            .unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{}", said(&ran));
        ran.stdout
    };
    let one = page("1");
    assert!(one.starts_with(b"<!DOCTYPE html>"));
    assert!(one == page("4"));
    let (file, _) = page_of(folder.path(), &profile, &[]);
    assert!(one == std::fs::read(file).unwrap());
}

#[test]
fn what_is_read_is_not_overwritten() {
    let folder = scratch();
    let profile = generator::generate(folder.path(), &Plan::default()).profile;
    for name in ["perf.data", "jit-5000.dump"] {
        let file = folder.path().join(name);
        let before = std::fs::read(&file).unwrap();
        let ran = jitinject()
            .args(["timeline", "-i", text(&profile), "-o", text(&file)])
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(1));
        let same = format!("error[JI403]: {}: ", file.display());
        assert!(said(&ran).contains(&same), "{}", said(&ran));
        assert!(before == std::fs::read(&file).unwrap());
    }
}

#[test]
fn a_profile_without_code_is_said_to_have_none() {
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(10, "program", true, 1000);
    profile.sample(10, 2000, &[0x40_0000], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let (page, said) = page_of(folder.path(), &input, &[]);
    assert!(said.contains("no JIT code in the profile"), "{said}");
    assert!(has_code(&said, "JI174"), "{said}");
    assert!(!said.contains("next: "), "{said}");
    let values = Values::of(&page);
    assert_eq!((values.boxes(), values.share()), (vec![], vec![]));
}

#[test]
fn clocks_that_differ_from_the_profiles_are_reported() {
    let folder = scratch();
    let dumps = capture::folder("node20-nomono");
    let input = capture::profile("node20-nomono");
    let (page, said) = page_of(folder.path(), &input, &["--jitdump", text(&dumps)]);
    let clock = "clock: another than the profile's, moved by -0.0";
    assert!(Values::of(&page).0["notes"].to_string().contains(clock));
    assert!(said.contains(clock), "{said}");
}

#[test]
fn damaged_dumps_are_reported() {
    let folder = scratch();
    let dumps = capture::folder("cpython313-fork");
    let (_, said) = page_of(
        folder.path(),
        &capture::profile("cpython313-fork"),
        &["--jitdump", text(&dumps)],
    );
    let skipped = format!("warning[JI012]: {}: 78 ", dumps.join("jit-23220.dump").display());
    let line = said.lines().find(|line| line.contains(&skipped));
    assert!(
        line.is_some_and(|line| line.ends_with(" (first at 0x10963)")),
        "{said}"
    );
}
