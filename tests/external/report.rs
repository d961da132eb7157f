//! `jitinject report` against perf report of the output.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use jitdump::ByteOrder;
use serde_json::Value;

use crate::support::profile::ProfileWriter;
use crate::support::recording::PID;
use crate::support::{capture, inject, jitinject, perf, said, scratch, tools};

/// Runs the program.
fn run(arguments: &[&str]) -> Output {
    jitinject().args(arguments).output().unwrap()
}

/// Captures of several runtimes, with one event each.
const CAPTURES: [&str; 8] = [
    "node20",
    "node22",
    "node20-inlined",
    "php82",
    "multi",
    "mono-map",
    "cpython312-map",
    "erlang25",
];

/// Share in percent and number of samples of each row of perf report that has a name.
type Rows = BTreeMap<String, Vec<(f64, u64)>>;

/// Returns the rows of perf report for functions in objects of jitinject: by their own samples or, with callers, by all.
fn of_perf(program: &str, cache: &Path, profile: &Path, has_callers: bool) -> Rows {
    let (children, fields) = if has_callers {
        ("--children", "overhead_children,sample,dso,sym")
    } else {
        ("--no-children", "overhead,sample,dso,sym")
    };
    let arguments = [
        "report",
        "-f",
        "-i",
        tools::text(profile),
        "--stdio",
        children,
        "-F",
        fields,
        "-t",
        "\t",
        "-g",
        "none",
        "--no-inline",
        "--no-demangle",
    ];
    let printed = perf::perf_with_cache(program, cache, &arguments);
    let mut rows = Rows::new();
    for line in printed.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
        let [share, samples, module, symbol] = fields[..] else {
            continue;
        };
        // perf 6.1 prints no share of some rows.
        if perf::is_object(module) && share != "N/A" {
            let name = symbol.trim_start_matches("[.]").trim().to_owned();
            let share = share.trim_end_matches('%').parse().unwrap();
            rows.entry(name)
                .or_default()
                .push((share, samples.parse().unwrap()));
        }
    }
    rows
}

#[test]
fn symbols_have_the_shares_of_perf_report() {
    let (folder, cache) = (scratch(), scratch());
    let mut checked = 0;
    for name in CAPTURES {
        let (dumps, profile) = (capture::folder(name), capture::profile(name));
        let files = [
            "--jitdump",
            tools::text(&dumps),
            "--perf-map",
            tools::text(&dumps),
        ];
        let output = folder.path().join(format!("{name}.data"));
        inject(&profile, &output, &files);
        let report = [
            "report",
            "--json",
            "-n",
            "0",
            "--by",
            "symbol",
            "-i",
            tools::text(&profile),
        ];
        let reported = run(&[&report[..], &files].concat());
        assert!(reported.status.success(), "{}", said(&reported));
        let report: Value = serde_json::from_slice(&reported.stdout).unwrap();
        let all = report["event"]["samples"]["period"].as_f64().unwrap();
        let rows = report["rows"].as_array().unwrap().iter();
        let ours: BTreeMap<&str, &Value> = rows.map(|row| (row["name"].as_str().unwrap(), row)).collect();
        let share = |row: &Value, column: &str| row[column]["period"].as_f64().unwrap() * 100.0 / all;
        for program in perf::programs() {
            let own = of_perf(&program, cache.path(), &output, false);
            checked += own.len();
            for (function, rows) in &own {
                let found = ours.get(function.as_str());
                let found = found.unwrap_or_else(|| panic!("{name}: {function}"));
                let samples: u64 = rows.iter().map(|(_, samples)| samples).sum();
                assert_eq!(found["self"]["samples"], samples, "{name}: {function}");
                let expected: f64 = rows.iter().map(|(share, _)| share).sum();
                // perf rounds each row.
                let rounding = 0.006 * rows.len() as f64;
                let found = share(found, "self");
                assert!(
                    (found - expected).abs() < rounding,
                    "{name}: {function}: {found} {expected}"
                );
            }
            let total = of_perf(&program, cache.path(), &output, true);
            // Rows of one name add up only if they are never in one stack.
            for (function, rows) in total.iter().filter(|(_, rows)| rows.len() == 1) {
                let found = share(ours[function.as_str()], "total");
                let (expected, _) = rows[0];
                assert!(
                    (found - expected).abs() < 0.006,
                    "{name}: {function}: {found} {expected}"
                );
            }
        }
    }
    assert!(checked > 50, "{checked}");
}

/// With `--gc-sections`, functions that are left out get the address 0, and reach over others if they are long.
#[test]
fn functions_that_the_linker_left_out_name_no_code() {
    const BASE: u64 = 0x4000_0000;
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let statements: String = (0..3000)
        .map(|number| format!("value += x * {number};\n"))
        .collect();
    let left_out = format!(
        "volatile int value;\nstatic inline int helper(int x) {{ return value + x; }}\nint left_out(int x) {{\n{statements}return helper(x);\n}}\n"
    );
    std::fs::write(path("a.c"), left_out).unwrap();
    let hot = "__attribute__((visibility(\"default\"))) int hot(int x) { return x * 3; }\n";
    std::fs::write(path("b.c"), hot).unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let compiled = Command::new("cc")
            .current_dir(folder.path())
            .args([
                version,
                "-O1",
                "-shared",
                "-fPIC",
                "-ffunction-sections",
                "-fvisibility=hidden",
            ])
            .arg(format!("-ffile-prefix-map={}=project", folder.path().display()))
            .args(["-Wl,--gc-sections", "-o", "libhot.so", "a.c", "b.c"])
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", said(&compiled));
        let library = path("libhot.so");
        let symbols = tools::run("nm", &["-D", tools::text(&library)]);
        let line = symbols.lines().find(|line| line.ends_with(" T hot")).unwrap();
        let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.mmap2(PID, BASE, 1 << 20, 0, tools::text(&library), 500);
        profile.sample(PID, 1000, &[BASE + address], None);
        std::fs::write(path("perf.data"), profile.finish()).unwrap();
        let printed = run(&["report", "--json", tools::text(&path("perf.data"))]);
        let report: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let rows = report["rows"].as_array().unwrap();
        let [row] = &rows[..] else { panic!("{report:#}") };
        let place = (row["name"].as_str(), row["file"].as_str(), row["line"].as_u64());
        assert_eq!(
            place,
            (Some("hot"), Some("project/b.c"), Some(1)),
            "{version}: {report:#}"
        );
    }
}
