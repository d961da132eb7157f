//! The values in pages of `jitinject timeline`: functions are where they were when they were there, with the samples that
//! were taken in them.

use std::collections::HashMap;
use std::path::Path;

use jitinject::bytes::ByteOrder;

use crate::support::dump::{self, DumpWriter};
use crate::support::generator::{self, Plan, Runtimes};
use crate::support::profile::ProfileWriter;
use crate::support::timeline::{Placed, Values, page_of, page_of_capture};
use crate::support::tools::text;
use crate::support::{capture, jitinject, said, scratch};

/// Makes a profile and its page, and looks each sample up among the boxes.
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
        order: ByteOrder::Big,
        ..Plan::default()
    });
    check(&Plan {
        processes: 6,
        places: 300,
        runtimes: Runtimes::Many,
        ..Plan::default()
    });
}

/// A profile of process 10, which has memory for code, and of what else `more` puts into it.
fn profile(folder: &Path, dump: &DumpWriter, more: impl FnOnce(&mut ProfileWriter)) -> std::path::PathBuf {
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
    let (page, said) = page_of(folder.path(), &input, &[]);
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
    assert!(
        said.contains("1 boxes of functions are not shown: they came after the recording had ended"),
        "{said}"
    );
    // Any, without a name, of an unknown compiler, and of each compiler.
    let mut sums = [0; 5];
    for (_, series, _, samples) in values.share() {
        sums[series as usize] += samples;
    }
    assert_eq!(sums, [5, 1, 0, 3, 1]);
}

#[test]
fn recordings_have_the_samples_that_the_truth_has() {
    let mut wrong = Vec::new();
    for name in capture::WITH_TRUTH.iter().chain(&capture::OTHER_FORMATS) {
        let folder = scratch();
        let values = Values::of(&page_of_capture(folder.path(), name));
        let mut found: HashMap<String, u64> = HashMap::new();
        for (_, function, _, samples) in values.functions() {
            *found.entry(function).or_default() += samples;
        }
        // What a child was doing in code that it inherited counts for its parent.
        let mut expected: HashMap<String, u64> = HashMap::new();
        for ((_, symbol), (leaf, _)) in capture::truth(name) {
            *expected.entry(symbol).or_default() += leaf;
        }
        for (symbol, leaf) in expected {
            let samples = found.get(&symbol).copied().unwrap_or(0);
            if samples != leaf {
                wrong.push(format!("{name}: {symbol}: {samples} of {leaf}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where no dump but a perf map names the code, it is there as long as its memory.
#[test]
fn symbols_of_perf_maps_are_there_to_the_end() {
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
        assert!(boxes.len() > 100 && boxes.iter().all(|placed| placed.until.is_none()));
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
        assert!(
            said(&ran).contains("is the same file as the input"),
            "{}",
            said(&ran)
        );
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
    let values = Values::of(&page);
    assert_eq!((values.boxes(), values.share()), (vec![], vec![]));
}

#[test]
fn damage_and_clocks_are_told_as_ever() {
    let folder = scratch();
    let dumps = capture::folder("node20-nomono");
    let input = capture::profile("node20-nomono");
    let (page, said) = page_of(folder.path(), &input, &["--jitdump", text(&dumps)]);
    let clock = "clock: another than the profile's, moved by -0.0000";
    assert!(said.contains(clock), "{said}");
    assert!(Values::of(&page).0["notes"].to_string().contains(clock));

    let dumps = capture::folder("cpython313-fork");
    let (_, said) = page_of(
        folder.path(),
        &capture::profile("cpython313-fork"),
        &["--jitdump", text(&dumps)],
    );
    assert!(
        said.contains("bytes that are no records, passed over (78, the first at 0x10963)"),
        "{said}"
    );
}
