//! `jitinject compare`: what it finds in pairs of profiles that people meet.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::summaries::{Profile, Program};
use crate::support::{jitinject, said, scratch};

/// Writes summaries; returns their paths.
pub fn write(folder: &Path, side: &str, runs: &[Profile]) -> Vec<PathBuf> {
    let folder = folder.join(side);
    std::fs::create_dir_all(&folder).unwrap();
    let paths = (0..runs.len()).map(|number| folder.join(format!("{number}.json")));
    let paths: Vec<PathBuf> = paths.collect();
    for (path, run) in paths.iter().zip(runs) {
        std::fs::write(path, run.json()).unwrap();
    }
    paths
}

/// Compares runs of two sides; returns the JSON.
fn compared_runs(before: &[Profile], after: &[Profile], more: &[&str]) -> Value {
    let folder = scratch();
    let output = jitinject()
        .args(["compare", "--json"])
        .args(more)
        .args(write(folder.path(), "before", before))
        .arg("--")
        .args(write(folder.path(), "after", after))
        .output()
        .unwrap();
    assert!(
        [Some(0), Some(4)].contains(&output.status.code()),
        "{}",
        said(&output)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Records five runs of each program, and compares them.
fn compared(before: &Program, after: &Program, more: &[&str]) -> Value {
    let runs = |program: &Program, first: u64| -> Vec<Profile> {
        (first..first + 5).map(|number| program.run(number)).collect()
    };
    compared_runs(&runs(before, 0), &runs(after, 5), more)
}

fn function<'j>(comparison: &'j Value, name: &str) -> &'j Value {
    let functions = comparison["functions"].as_array().unwrap();
    let mut found = functions.iter().filter(|function| function["name"] == name);
    let function = found.next().unwrap_or_else(|| panic!("{name}: {comparison:#}"));
    assert!(found.next().is_none(), "{name} twice: {comparison:#}");
    function
}

/// Returns the names of functions whose own time changed.
fn changed(comparison: &Value) -> Vec<&str> {
    let functions = comparison["functions"].as_array().unwrap().iter();
    let significant = functions.filter(|function| function["self"]["is_significant"] == true);
    significant
        .map(|function| function["name"].as_str().unwrap())
        .collect()
}

#[track_caller]
fn expect_unchanged(comparison: &Value) {
    assert_eq!(comparison["verdict"], "unchanged", "{comparison:#}");
    assert!(changed(comparison).is_empty(), "{comparison:#}");
    assert_eq!(
        comparison["functions"].as_array().unwrap().len(),
        5,
        "{comparison:#}"
    );
}

const RULES: [&str; 6] = [
    "--fail-on",
    "self > 2%",
    "--fail-on",
    "total > 5%",
    "--fail-on",
    "cpu > 3%",
];

fn broken_rules(comparison: &Value) -> Vec<&str> {
    let rules = comparison["rules"].as_array().unwrap().iter();
    let broken = rules.filter(|rule| rule["is_broken"] == true);
    broken.map(|rule| rule["rule"].as_str().unwrap()).collect()
}

#[test]
fn identical_programs_in_two_folders_are_unchanged() {
    let moved = Program {
        folder: "/ci/build-17".into(),
        ..Program::default()
    };
    expect_unchanged(&compared(&Program::default(), &moved, &RULES));
}

#[test]
fn a_comment_on_top_changes_nothing() {
    let moved = Program {
        line: 2,
        ..Program::default()
    };
    expect_unchanged(&compared(&Program::default(), &moved, &RULES));
}

#[test]
fn a_renamed_function_is_recognized() {
    let renamed = Program {
        eat: "consume".into(),
        ..Program::default()
    };
    let comparison = compared(&Program::default(), &renamed, &RULES);
    expect_unchanged(&comparison);
    let previous = &function(&comparison, "consume")["previous"];
    assert_eq!(previous, "eat src/app.js");
}

#[test]
fn a_slow_function_is_found_alone() {
    let slow = Program {
        samples: [1000, 2000, 3600, 2500, 1500],
        ..Program::default()
    };
    let comparison = compared(&Program::default(), &slow, &RULES);
    assert_eq!(comparison["verdict"], "slower");
    assert_eq!(changed(&comparison), ["parse"], "{comparison:#}");
    let change = function(&comparison, "parse")["self"]["change"].as_f64().unwrap();
    assert!((change - 6.0).abs() < 0.5, "{change}");
    assert_eq!(broken_rules(&comparison), ["self > 2%", "total > 5%", "cpu > 3%"]);
}

/// Its share cannot rise as much as its time.
#[test]
fn a_slow_function_that_has_most_of_the_time_is_found() {
    let program = |hash: u64| Program {
        samples: [50, 50, 50, hash, 50],
        ..Program::default()
    };
    for (before, after, verdict, broken) in [
        (9800, 12_740, "slower", &["self > 20%"][..]),
        (12_740, 9800, "faster", &[][..]),
    ] {
        let comparison = compared(&program(before), &program(after), &["--fail-on", "self > 20%"]);
        assert_eq!(comparison["verdict"], verdict, "{comparison:#}");
        assert_eq!(changed(&comparison), ["hash"], "{comparison:#}");
        assert_eq!(broken_rules(&comparison), broken);
    }
}

#[test]
fn code_that_moves_to_native_code_is_explained() {
    let moved = Program {
        samples: [1000, 200, 3000, 2500, 3300],
        ..Program::default()
    };
    let comparison = compared(&Program::default(), &moved, &RULES);
    assert_eq!(comparison["verdict"], "unchanged", "{comparison:#}");
    let explanation = &function(&comparison, "eat")["explanation"];
    assert_eq!(explanation["kind"], "moved_to", "{comparison:#}");
    assert_eq!(explanation["functions"][0], "memcpy");
    assert_eq!(
        function(&comparison, "memcpy")["explanation"]["kind"],
        "moved_from"
    );
    assert!(broken_rules(&comparison).is_empty(), "{comparison:#}");
}

#[test]
fn faster_native_code_in_place_of_jit_code_breaks_no_rule() {
    let moved = Program {
        samples: [1000, 200, 3000, 2500, 2400],
        ..Program::default()
    };
    let comparison = compared(&Program::default(), &moved, &RULES);
    assert_eq!(comparison["verdict"], "faster", "{comparison:#}");
    assert_eq!(function(&comparison, "eat")["explanation"]["kind"], "moved_to");
    assert!(broken_rules(&comparison).is_empty(), "{comparison:#}");
    // More than what was saved is more.
    let slower = Program {
        samples: [1000, 200, 3000, 2500, 5000],
        ..Program::default()
    };
    let comparison = compared(&Program::default(), &slower, &RULES);
    assert_eq!(comparison["verdict"], "slower", "{comparison:#}");
    assert!(
        broken_rules(&comparison).contains(&"total > 5%"),
        "{comparison:#}"
    );
}

/// The time of the kernel depends on the whole machine; one run does not show how much.
#[test]
fn the_kernel_is_compared_with_several_runs_only() {
    let run = |samples: u64| {
        let profile = Profile::new(10_000).jit("JS:*main /app.js:1:1", 10_000 - samples);
        let profile = profile.native("clear_page_erms", "kernel", samples);
        profile.set("/profile/functions/1/kind", "kernel")
    };
    let one = compared_runs(&[run(50)], &[run(800)], &["--shares"]);
    assert_eq!(one["verdict"], "unchanged", "{one:#}");
    let runs = |samples: u64| -> Vec<Profile> { (0..5).map(|more| run(samples + more)).collect() };
    let several = compared_runs(&runs(50), &runs(800), &["--shares"]);
    assert!(changed(&several).contains(&"clear_page_erms"), "{several:#}");
}

#[test]
fn an_inlined_function_is_explained() {
    let inlined = Program {
        samples: [3500, 2000, 3000, 0, 1500],
        ..Program::default()
    };
    for (before, after, kind) in [
        (&Program::default(), &inlined, "inlined_into"),
        (&inlined, &Program::default(), "moved_from"),
    ] {
        let comparison = compared(before, after, &RULES);
        assert_eq!(comparison["verdict"], "unchanged", "{comparison:#}");
        assert_eq!(
            function(&comparison, "hash")["explanation"]["kind"],
            kind,
            "{comparison:#}"
        );
        assert!(function(&comparison, "main")["explanation"].is_object());
        assert!(broken_rules(&comparison).is_empty(), "{comparison:#}");
    }
}

#[test]
fn uniform_slowness_is_seen_by_cpu_time() {
    let slow = Program {
        speed: 105,
        ..Program::default()
    };
    let comparison = compared(&Program::default(), &slow, &RULES);
    assert_eq!(comparison["verdict"], "slower");
    assert!(changed(&comparison).is_empty(), "{comparison:#}");
    assert_eq!(broken_rules(&comparison), ["cpu > 3%"]);
}

#[test]
fn processes_hosts_and_versions_make_no_difference() {
    let run = |number: u64, version: &str, pid: u64| {
        let file = format!("/opt/node-v{version}-linux-x64/lib/tool.js");
        Program::default()
            .run(number)
            .set("/profile/host", format!("host-{pid}"))
            .set("/profile/threads/0/pid", pid)
            .set("/profile/events/0/samples", 11_500)
            .jit(&format!("JS:*tool {file}:1:1"), 500)
            .native("v8::Run", &format!("/opt/node-v{version}/libnode.so.{pid}"), 500)
    };
    let runs = |version: &str, pid: u64| -> Vec<Profile> {
        (0..5).map(|number| run(number, version, pid)).collect()
    };
    let comparison = compared_runs(&runs("20.11.1", 115), &runs("20.19.0", 4711), &RULES);
    assert_eq!(comparison["verdict"], "unchanged", "{comparison:#}");
    assert_eq!(
        comparison["functions"].as_array().unwrap().len(),
        7,
        "{comparison:#}"
    );
}

#[test]
fn noisy_baselines_make_no_alarm() {
    let noisy = Program {
        noise: 60,
        ..Program::default()
    };
    let baselines: Vec<Profile> = (0..3).map(|number| noisy.run(number)).collect();
    expect_unchanged(&compared_runs(&baselines, &[noisy.run(7)], &RULES));
}

#[test]
fn more_threads_are_no_change_of_functions() {
    let runs = |first: u64, threads: u64| -> Vec<Profile> {
        let numbers = first..first + 5;
        numbers
            .map(|number| Program::default().run(number).threads(threads))
            .collect()
    };
    let comparison = compared_runs(&runs(0, 2), &runs(5, 4), &RULES);
    expect_unchanged(&comparison);
    assert_eq!(comparison["before"]["threads"], 2.0);
    assert_eq!(comparison["after"]["threads"], 4.0);
}

#[test]
fn single_runs_show_enormous_changes_only() {
    let run = |parse: u64, more: &[&str]| {
        let program = |parse| Program {
            samples: [1000, 2000, parse, 2500, 1500],
            ..Program::default()
        };
        compared_runs(&[program(3000).run(0)], &[program(parse).run(1)], more)
    };
    let comparison = run(3600, &[]);
    assert_eq!(comparison["is_variation_assumed"], true);
    expect_unchanged(&comparison);
    let comparison = run(3600, &["--assume-variation", "1"]);
    assert_eq!(changed(&comparison), ["parse"], "{comparison:#}");
}

#[test]
fn shares_and_samples_replace_unknown_times() {
    let runs = |first: u64, parse: u64| -> Vec<Profile> {
        let program = Program {
            samples: [1000, 2000, parse, 2500, 1500],
            ..Program::default()
        };
        let numbers = first..first + 5;
        numbers
            .map(|number| program.run(number).set("/profile/cpu_time_ns", Value::Null))
            .collect()
    };
    let (before, after) = (runs(0, 3000), runs(5, 4500));
    let shares = compared_runs(&before, &after, &[]);
    assert_eq!(
        (&shares["measure"], &shares["cpu"]),
        (&"share".into(), &Value::Null)
    );
    assert_eq!(shares["verdict"], "shifted", "{shares:#}");
    let samples = compared_runs(&before, &after, &["--per-run"]);
    assert_eq!(
        (&samples["measure"], &samples["verdict"]),
        (&"samples".into(), &"slower".into())
    );
    assert_eq!(changed(&samples), ["parse"], "{samples:#}");
    let nanoseconds = |runs: Vec<Profile>| -> Vec<Profile> {
        let unit = |run: Profile| run.set("/profile/events/0/unit", "ns");
        runs.into_iter().map(unit).collect()
    };
    let time = compared_runs(&nanoseconds(before), &nanoseconds(after), &[]);
    assert_eq!(
        (&time["measure"], &time["verdict"]),
        (&"cpu_time".into(), &"slower".into())
    );
}

/// The samples of Python functions are in the interpreter.
#[test]
fn functions_of_interpreters_change_by_their_totals() {
    let runs = |first: u64, second: u64| -> Vec<Profile> {
        let run = |number: u64| {
            let (first, second) = (first + number * 3, second + number * 2);
            Profile::new(10_000)
                .cpu_time(10_000_000_000 + number)
                .native("_PyEval_EvalFrameDefault", "/usr/bin/python3", 10_000)
                .jit("py::main:/app.py", 0)
                .total(1, 10_000)
                .jit("py::A.step:/app.py", 0)
                .total(2, first)
                .jit("py::B.step:/app.py", 0)
                .total(3, second)
        };
        (0..5).map(run).collect()
    };
    let comparison = compared_runs(&runs(4000, 3000), &runs(2500, 4500), &["--fail-on", "total > 5%"]);
    assert_eq!(comparison["verdict"], "shifted", "{comparison:#}");
    assert!(changed(&comparison).is_empty(), "{comparison:#}");
    assert_eq!(broken_rules(&comparison), ["total > 5%"]);
    expect_verdict(&runs(4000, 3000), &runs(2500, 3000), "faster");
    expect_verdict(&runs(4000, 3000), &runs(4000, 3000), "unchanged");
}

#[track_caller]
fn expect_verdict(before: &[Profile], after: &[Profile], verdict: &str) {
    let comparison = compared_runs(before, after, &[]);
    assert_eq!(comparison["verdict"], verdict, "{comparison:#}");
}

/// perf changes the period, so that few samples stand for most of the events.
#[test]
fn samples_count_by_their_periods_unless_they_are_of_a_time() {
    let run = |scale: u64| {
        Profile::new(100)
            .jit("JS:*setup /a.js:1:1", 60)
            .jit("JS:*load /a.js:9:1", 40)
            .total(0, 100)
            .stacks(&[(-1, 0, 60), (0, 1, 40)])
            .periods(
                "page-faults",
                &[(60 * scale, 4060 * scale), (4000 * scale, 4000 * scale)],
            )
    };
    let value = |comparison: &Value, name: &str, part: &str, side: &str| -> f64 {
        let value = function(comparison, name)[part][side].as_f64().unwrap();
        (value * 100.0).round() / 100.0
    };
    let (before, after) = ([run(1)], [run(2)]);
    let shares = compared_runs(&before, &after, &[]);
    assert_eq!(shares["measure"], "share", "{shares:#}");
    assert_eq!(value(&shares, "setup", "self", "before"), 1.48);
    assert_eq!(value(&shares, "setup", "total", "before"), 100.0);
    assert_eq!(value(&shares, "load", "self", "after"), 98.52);
    let tier = &function(&shares, "load")["tiers"][0];
    assert!((tier["before"].as_f64().unwrap() - 98.52).abs() < 0.01, "{tier}");
    let events = compared_runs(&before, &after, &["--per-run"]);
    assert_eq!(events["measure"], "events", "{events:#}");
    assert_eq!(value(&events, "load", "self", "after"), 197.04);
    assert!((events["cpu"]["change_percent"].as_f64().unwrap() - 100.0).abs() < 0.01);
    // Samples of a clock count alike, and earlier versions did not write the periods of totals.
    let time = |run: Profile| run.set("/profile/events/0/unit", "ns");
    let earlier = |run: Profile| run.set("/profile/functions/0/total_period", serde_json::json!([]));
    for changed in [time(run(1)), earlier(run(1))] {
        let shares = compared_runs(
            std::slice::from_ref(&changed),
            std::slice::from_ref(&changed),
            &["--shares"],
        );
        assert_eq!(value(&shares, "setup", "self", "before"), 60.0);
    }
}

#[test]
fn shares_alone_say_nothing_about_cpu_time() {
    let slow = Program {
        speed: 200,
        ..Program::default()
    };
    let comparison = compared(&Program::default(), &slow, &["--shares"]);
    assert_eq!(comparison["cpu"], Value::Null, "{comparison:#}");
    expect_unchanged(&comparison);
    let time = &comparison["after"]["cpu_time_ns"];
    assert!(time.is_number(), "{comparison:#}");
}

#[test]
fn twenty_thousand_functions_are_compared() {
    let profile = |root: &str, line: usize| {
        let functions = (0..20_000).map(|number| {
            let (module, file) = (number % 100, number % 2000);
            let name = format!("JS:*f{number} {root}/{module}/{file}.js:{}:1", number + line);
            serde_json::json!({"name": name, "kind": "jit", "runtime": "V8", "tier": "TurboFan", "size": 100 + number % 999,
                "self": [10], "total": [20], "callers": [[number / 2, 5], [number / 3, 5]]})
        });
        Profile::new(1_000_000).set("/profile/functions", functions.collect::<Vec<_>>())
    };
    let comparison = compared_runs(&[profile("/home/me", 1)], &[profile("/ci", 3)], &[]);
    assert_eq!(comparison["functions"].as_array().unwrap().len(), 20_000);
    assert_eq!(comparison["verdict"], "unchanged");
}
