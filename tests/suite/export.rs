//! Exports of captures: what is in each format. `tests/external` reads them with other programs.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use flate2::read::GzDecoder;
use jitdump::ByteOrder;
use jitinject::LoadOptions;
use jitinject::internals::frames::stream::{SampleFilter, StreamOptions};
use jitinject::internals::tools::export::{ExportOptions, Format, export};
use jitinject::internals::tools::report::{ReportOptions, report};
use serde_json::Value;

use crate::report::{address, recorded};
use crate::support::profile::ProfileWriter;
use crate::support::recording::PID;
use crate::support::{capture, inject_into, jitinject, said, scratch};

fn options(name: &str, format: Format) -> ExportOptions {
    let load = LoadOptions {
        input: capture::profile(name),
        jitdumps: vec![capture::folder(name)],
        ..LoadOptions::default()
    };
    ExportOptions {
        stream: StreamOptions {
            load,
            ..StreamOptions::default()
        },
        format,
        filter: None,
        has_sources: false,
        marks_all_functions: false,
    }
}

fn written(options: &ExportOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    export(options, &mut ()).unwrap().write(&mut bytes).unwrap();
    bytes
}

fn json(name: &str, format: Format) -> Value {
    let bytes = written(&options(name, format));
    match format {
        Format::Firefox => serde_json::from_reader(GzDecoder::new(&bytes[..])).unwrap(),
        _ => serde_json::from_slice(&bytes).unwrap(),
    }
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_u64().unwrap())
        .collect()
}

/// Samples of each event with any.
fn samples(name: &str) -> Vec<u64> {
    let read = |sample: &jitinject::internals::frames::stream::Sample| sample.event;
    let mut events = Vec::new();
    let stream = options(name, Format::Folded).stream;
    jitinject::internals::frames::stream::read(&stream, &mut |sample| events.push(read(sample)), &mut ())
        .unwrap();
    let distinct: BTreeSet<u32> = events.iter().copied().collect();
    let count = |event: u32| events.iter().filter(|other| **other == event).count() as u64;
    distinct.into_iter().map(count).collect()
}

/// Returns the counts of lines of collapsed stacks, and their frames.
fn folded(options: &ExportOptions) -> Vec<(Vec<String>, u64)> {
    let text = String::from_utf8(written(options)).unwrap();
    text.lines()
        .map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            let frames = stack.split(';').map(str::to_owned).collect();
            (frames, count.parse().unwrap())
        })
        .collect()
}

const CAPTURES: [&str; 5] = ["node20", "node20-inlined", "node20-multievent", "php82", "multi"];

#[test]
fn collapsed_stacks_have_the_samples_of_one_event() {
    for name in CAPTURES {
        let lines = folded(&options(name, Format::Folded));
        let sum: u64 = lines.iter().map(|(_, count)| count).sum();
        assert_eq!(sum, samples(name)[0], "{name}");
    }
    let inlined = folded(&options("node20-inlined", Format::Folded));
    assert!(
        inlined
            .iter()
            .flat_map(|(frames, _)| frames)
            .any(|frame| frame.ends_with("_[i]"))
    );
    assert!(
        inlined
            .iter()
            .any(|(frames, _)| frames.iter().any(|frame| frame.ends_with("_[j]")))
    );
}

#[test]
fn tables_of_the_firefox_profiler_are_complete() {
    for name in CAPTURES {
        let profile = json(name, Format::Firefox);
        let shared = &profile["shared"];
        let length = |table: &str| shared[table]["length"].as_u64().unwrap();
        for table in [
            "stackTable",
            "frameTable",
            "funcTable",
            "resourceTable",
            "nativeSymbols",
            "sources",
            "sourceLocationTable",
        ] {
            for (column, values) in shared[table].as_object().unwrap() {
                if column != "length" {
                    let values = values.as_array().unwrap().len() as u64;
                    assert_eq!(values, length(table), "{name}: {table}.{column}");
                }
            }
        }
        let strings = shared["stringArray"].as_array().unwrap().len() as u64;
        let libraries = profile["libs"].as_array().unwrap().len() as u64;
        for (table, column, limit) in [
            ("stackTable", "frame", length("frameTable")),
            ("frameTable", "func", length("funcTable")),
            ("frameTable", "lib", libraries),
            ("frameTable", "address", 1 << 31),
            ("frameTable", "category", 7),
            ("funcTable", "name", strings),
            ("resourceTable", "name", strings),
            ("sources", "filename", strings),
        ] {
            let of_column = numbers(&shared[table][column]);
            assert!(
                of_column.iter().all(|&index| index < limit),
                "{name}: {table}.{column}"
            );
        }
        let offsets = numbers(&shared["stackTable"]["prefixOffset"]);
        assert!(
            offsets.iter().zip(0..).all(|(&offset, stack)| offset <= stack),
            "{name}"
        );
        let threads = profile["threads"].as_array().unwrap();
        let lengths = threads
            .iter()
            .map(|thread| thread["samples"]["length"].as_u64().unwrap());
        assert_eq!(lengths.sum::<u64>(), samples(name).iter().sum::<u64>(), "{name}");
        for thread in threads {
            let times = thread["samples"]["time"].as_array().unwrap();
            assert!(times.is_sorted_by_key(|time| time.as_f64().unwrap()), "{name}");
            // Time between samples is known of clocks only.
            let deltas = thread["samples"]["threadCPUDelta"].as_array();
            assert!(deltas.is_none_or(|deltas| deltas.len() == times.len()), "{name}");
        }
        let selected = numbers(&profile["meta"]["initialSelectedThreads"])[0] as usize;
        assert!(
            threads[selected]["markers"]["data"][0]["text"].is_string(),
            "{name}"
        );
    }
}

/// The samples of XRay's calls stand for the time of each.
#[test]
fn samples_of_different_times_have_weights_in_the_firefox_profiler() {
    let folder = scratch();
    let trace = capture::folder("xray-basic19").join("trace.xray");
    let output = inject_into(folder.path(), &trace, &[]);
    let mut options = options("node20", Format::Firefox);
    options.stream.load.input = output;
    options.stream.filter.event = Some("xray/self-ns/".into());
    let profile: Value = serde_json::from_reader(GzDecoder::new(&written(&options)[..])).unwrap();
    let thread = &profile["threads"][0]["samples"];
    let weights = thread["weight"].as_array().unwrap();
    assert_eq!(thread["weightType"], "tracing-ms");
    assert_eq!(weights.len() as u64, thread["length"].as_u64().unwrap());
    assert!(thread["threadCPUDelta"].is_null());
    let folded = folded(&ExportOptions {
        format: Format::Folded,
        ..options
    });
    let threads = profile["threads"].as_array().unwrap().iter();
    let all = threads.flat_map(|thread| thread["samples"]["weight"].as_array().unwrap());
    let all: Vec<f64> = all.map(|weight| weight.as_f64().unwrap()).collect();
    assert_eq!(
        all.len() as u64,
        folded.iter().map(|(_, samples)| samples).sum::<u64>()
    );
    // Nanoseconds, in milliseconds.
    assert!(all.iter().all(|weight| (0.0..1.0).contains(weight)));
    assert!(all.iter().any(|&weight| weight != all[0]));
}

/// Samples of page faults, which perf takes at a frequency, stand for different numbers of them.
#[test]
fn samples_of_different_periods_have_weights_in_the_firefox_profiler() {
    const PAGE_FAULTS: u64 = 2;
    /// Offset of the period in a sample.
    const PERIOD: usize = 40;
    let folder = scratch();
    let mut writer = ProfileWriter::new(ByteOrder::Little);
    writer.config = PAGE_FAULTS;
    for (time, period) in [(1000, 3_u64), (1001, 70)] {
        let period_at = writer.records.len() + PERIOD;
        writer.sample(10, time, &[0x4000], None);
        writer.records[period_at..period_at + 8].copy_from_slice(&period.to_le_bytes());
    }
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    let mut options = options("node20", Format::Firefox);
    options.stream.load.input = profile;
    let profile: Value = serde_json::from_reader(GzDecoder::new(&written(&options)[..])).unwrap();
    let samples = &profile["threads"][0]["samples"];
    assert_eq!(samples["weight"], serde_json::json!([3.0, 70.0]));
    assert_eq!(samples["weightType"], "samples");
    // Nothing has a name in this profile.
    for name in ["name", "processName"] {
        assert_eq!(profile["threads"][0][name], "?");
    }
}

#[test]
fn the_firefox_profiler_gets_generated_and_original_positions_with_text() {
    let folder = capture::folder("node20-typescript");
    let mut options = options("node20-typescript", Format::Firefox);
    let script = b"/tmp/typescript/bundle".to_vec();
    options.stream.sources.path_map = vec![(script, folder.as_os_str().as_bytes().to_vec())];
    let profile: Value = serde_json::from_reader(GzDecoder::new(&written(&options)[..])).unwrap();
    let shared = &profile["shared"];
    let strings = shared["stringArray"].as_array().unwrap();
    let sources = &shared["sources"];
    let path = |source: &Value| {
        let name = &sources["filename"][source.as_u64().unwrap() as usize];
        strings[name.as_u64().unwrap() as usize].as_str().unwrap()
    };
    let locations = &shared["sourceLocationTable"];
    for (table, line) in [("funcTable", "lineNumber"), ("frameTable", "line")] {
        let originals = shared[table]["originalLocation"].as_array().unwrap();
        let mapped: Vec<usize> = (0..originals.len())
            .filter(|&row| !originals[row].is_null())
            .collect();
        assert!(mapped.len() > 2, "{table}");
        for row in mapped {
            let function = match table {
                "funcTable" => row,
                _ => shared["frameTable"]["func"][row].as_u64().unwrap() as usize,
            };
            assert!(
                path(&shared["funcTable"]["source"][function]).ends_with("/app.js"),
                "{table} {row}"
            );
            assert_eq!(shared[table][line][row], 1, "the script has one line");
            let original = originals[row].as_u64().unwrap() as usize;
            assert!(
                path(&locations["source"][original]).ends_with(".ts"),
                "{table} {row}"
            );
            assert!(locations["line"][original].as_u64().unwrap() > 1, "{table} {row}");
        }
    }
    let texts = sources["content"].as_array().unwrap();
    let with_text: BTreeSet<&str> = (0..texts.len() as u64)
        .filter(|&source| texts[source as usize].is_string())
        .map(|source| path(&source.into()))
        .collect();
    assert!(
        !with_text.is_empty() && with_text.iter().all(|path| path.ends_with(".ts")),
        "{with_text:?}"
    );
    // The script itself is only read if that is asked for.
    options.has_sources = true;
    let more: Value = serde_json::from_reader(GzDecoder::new(&written(&options)[..])).unwrap();
    let count = |profile: &Value| {
        let texts = profile["shared"]["sources"]["content"].as_array().unwrap();
        texts.iter().filter(|text| text.is_string()).count()
    };
    assert_eq!(count(&more), with_text.len() + 1);
}

#[test]
fn profiles_of_speedscope_have_the_weights_of_all_events() {
    for name in CAPTURES {
        let file = json(name, Format::Speedscope);
        let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
        let mut count = 0;
        for profile in file["profiles"].as_array().unwrap() {
            let weights = numbers(&profile["weights"]);
            let stacks = profile["samples"].as_array().unwrap();
            assert_eq!(weights.len(), stacks.len(), "{name}");
            assert_eq!(weights.iter().sum::<u64>(), profile["endValue"].as_u64().unwrap());
            assert!(
                stacks
                    .iter()
                    .all(|stack| numbers(stack).iter().all(|&frame| frame < frames))
            );
            count += stacks.len() as u64;
        }
        assert_eq!(count, samples(name).iter().sum::<u64>(), "{name}");
        assert!(file["name"].as_str().unwrap().contains("missing: "), "{name}");
    }
}

#[test]
fn cpu_profiles_are_trees_of_one_thread() {
    for name in CAPTURES {
        let file = json(name, Format::CpuProfile);
        let nodes = file["nodes"].as_array().unwrap();
        let id = |node: &Value| node["id"].as_u64().unwrap();
        let ids: BTreeSet<u64> = nodes.iter().map(id).collect();
        let children: Vec<u64> = nodes.iter().flat_map(|node| numbers(&node["children"])).collect();
        assert_eq!(children.len() + 1, nodes.len(), "{name}");
        assert_eq!(ids.len(), nodes.len(), "{name}");
        let samples = numbers(&file["samples"]);
        assert!(
            !samples.is_empty() && samples.iter().all(|sample| ids.contains(sample)),
            "{name}"
        );
        let hits: u64 = nodes.iter().map(|node| node["hitCount"].as_u64().unwrap()).sum();
        assert_eq!(hits, samples.len() as u64, "{name}");
        let passed: u64 = numbers(&file["timeDeltas"]).iter().sum();
        let [start, end] = ["startTime", "endTime"].map(|key| file[key].as_u64().unwrap());
        assert_eq!(passed, end - start, "{name}");
    }
}

/// Each function has the path of its file.
#[test]
fn of_a_path_these_formats_have_the_first_1000_characters() {
    let folder = scratch();
    let path = |size: usize| format!("/{}", "a".repeat(size - 1));
    let name = |size: usize| format!("JS:*f{size} {}:1:1", path(size));
    let mut writer = recorded(folder.path(), &[&*name(1000), &*name(1001)]);
    writer.sample(PID, 1000, &[address(0)], None);
    writer.sample(PID, 1001, &[address(1)], None);
    let mut options = options("node20", Format::Speedscope);
    options.stream.load.jitdumps.clear();
    options.stream.load.input = folder.path().join("perf.data");
    std::fs::write(&options.stream.load.input, writer.finish()).unwrap();
    let mut json = |format| -> Value {
        options.format = format;
        serde_json::from_slice(&written(&options)).unwrap()
    };
    let speedscope = json(Format::Speedscope);
    let frames = speedscope["shared"]["frames"].as_array().unwrap().iter();
    let files: Vec<&str> = frames.filter_map(|frame| frame["file"].as_str()).collect();
    assert_eq!(files, [path(1000), path(1000)]);
    let cpuprofile = json(Format::CpuProfile);
    let nodes = cpuprofile["nodes"].as_array().unwrap().iter();
    let urls = nodes.filter_map(|node| node["callFrame"]["url"].as_str());
    let urls: Vec<&str> = urls.filter(|url| !url.is_empty()).collect();
    assert_eq!(urls, [(); 2].map(|()| format!("file://{}", path(1000))));
}

#[test]
fn the_same_samples_are_the_same_bytes_and_filters_leave_some_out() {
    for format in Format::ALL {
        let name = format.name();
        let all = options("node20-inlined", format);
        let bytes = written(&all);
        assert_eq!(bytes, written(&all), "{name}");
        let mut some = all.clone();
        some.stream.filter = SampleFilter {
            pids: vec![1],
            ..SampleFilter::default()
        };
        let empty = written(&some);
        assert!(!bytes.is_empty() && empty.len() < bytes.len(), "{name}");
    }
    let all = options("node20-inlined", Format::Folded);
    let (frames, _) = &folded(&all)[0];
    let wanted = frames.last().unwrap();
    let plain = wanted.split([' ', '_']).next().unwrap();
    let some = ExportOptions {
        filter: Some(regex_lite::Regex::new(&regex_lite::escape(plain)).unwrap()),
        ..all
    };
    let found = folded(&some);
    assert!(!found.is_empty());
    assert!(
        found
            .iter()
            .all(|(frames, _)| frames.iter().any(|frame| frame.contains(plain)))
    );
}

/// The names of its functions have no path.
#[test]
fn samples_are_found_by_the_files_of_lines() {
    let some = |filter: &str| ExportOptions {
        filter: Some(regex_lite::Regex::new(filter).unwrap()),
        ..options("java17", Format::Folded)
    };
    let sum = |options: &ExportOptions| folded(options).iter().map(|(_, count)| count).sum::<u64>();
    let found = sum(&some(r"Work\.java$"));
    assert!(found > 0 && found < sum(&some("")), "{found}");
}

#[test]
fn graphs_and_protocol_buffers_have_what_is_missing() {
    let svg = String::from_utf8(written(&options("node20", Format::Svg))).unwrap();
    assert!(
        svg.contains("missing: ") && svg.contains("language (green)"),
        "{svg}"
    );
    let pprof = pprof(&options("node20", Format::Pprof));
    let contains = |text: &[u8]| pprof.windows(text.len()).any(|window| window == text);
    assert!(contains(b"missing: ") && contains(b"[JIT"));
}

/// Returns the fields of a message: number, and the value or the bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let number = |message: &mut &[u8]| {
        let mut value = 0_u64;
        for shift in (0_u32..).step_by(7) {
            let (&byte, rest) = message.split_first().unwrap();
            *message = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    };
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = number(&mut message);
        let value = number(&mut message);
        let (bytes, rest) = match tag & 7 {
            2 => message.split_at(value as usize),
            _ => (&[][..], message),
        };
        message = rest;
        fields.push((tag >> 3, value, bytes));
    }
    fields
}

/// Returns the texts and messages of a field.
fn bytes_of(message: &[u8], field: u64) -> Vec<&[u8]> {
    let all = fields(message).into_iter();
    all.filter(|&(of, ..)| of == field)
        .map(|(.., bytes)| bytes)
        .collect()
}

/// Returns the number of a field; 0 without one.
fn number_of(message: &[u8], field: u64) -> u64 {
    let all = fields(message);
    let found = all.iter().find(|&&(of, ..)| of == field);
    found.map_or(0, |&(_, value, _)| value)
}

fn pprof(options: &ExportOptions) -> Vec<u8> {
    let mut profile = Vec::new();
    let bytes = written(options);
    GzDecoder::new(&bytes[..]).read_to_end(&mut profile).unwrap();
    profile
}

/// Returns function, file and number of all lines.
fn lines_of_pprof(profile: &[u8]) -> BTreeSet<(String, String, u64)> {
    let strings = bytes_of(profile, 6);
    let functions = bytes_of(profile, 5);
    let string = |message: &[u8], field: u64| {
        let text = strings[number_of(message, field) as usize];
        String::from_utf8(text.to_vec()).unwrap()
    };
    let locations = bytes_of(profile, 4).into_iter();
    let lines = locations.flat_map(|location| bytes_of(location, 4));
    let numbered = lines.filter(|line| number_of(line, 2) > 0);
    numbered
        .map(|line| {
            let function = functions[number_of(line, 1) as usize - 1];
            (string(function, 2), string(function, 4), number_of(line, 2))
        })
        .collect()
}

/// Lines of pprof's format have no file: it is that of the function.
#[test]
fn lines_have_the_same_files_in_all_formats() {
    for name in ["java17", "lli14-mcjit", "node20-inlined"] {
        let profile = json(name, Format::Firefox);
        let shared = &profile["shared"];
        let text = |index: &Value| {
            let text = &shared["stringArray"][index.as_u64().unwrap() as usize];
            text.as_str().unwrap().to_owned()
        };
        let numbers = shared["frameTable"]["line"].as_array().unwrap().iter();
        let of_lines = numbers.zip(shared["frameTable"]["func"].as_array().unwrap());
        let expected: BTreeSet<(String, String, u64)> = of_lines
            .filter_map(|(number, function)| {
                let number = number.as_u64()?;
                let function = function.as_u64().unwrap() as usize;
                let table = &shared["funcTable"];
                let file = table["source"][function].as_u64().unwrap() as usize;
                let file = text(&shared["sources"]["filename"][file]);
                Some((text(&table["name"][function]), file, number))
            })
            .collect();
        assert!(expected.len() > 2, "{name}");
        let found = lines_of_pprof(&pprof(&options(name, Format::Pprof)));
        assert_eq!(found, expected, "{name}");
    }
    // Ticks of `.cpuprofile` have no file either.
    let java = json("java17", Format::CpuProfile);
    let nodes = java["nodes"].as_array().unwrap().iter();
    let mut with_ticks = nodes.filter(|node| !node["positionTicks"].is_null());
    assert!(with_ticks.all(|node| node["callFrame"]["scriptId"] != "0"));
}

/// Samples of a third of a second are not those of the whole recording.
#[test]
fn durations_are_those_of_the_selected_time() {
    const DURATION_NANOS: u64 = 10;
    let mut options = options("node20", Format::Pprof);
    let whole = number_of(&pprof(&options), DURATION_NANOS);
    let filter = &mut options.stream.filter;
    (filter.from, filter.to) = (Some(Duration::from_millis(300)), Some(Duration::from_millis(600)));
    assert_eq!(number_of(&pprof(&options), DURATION_NANOS), 300_000_000);
    let filter = &mut options.stream.filter;
    filter.to = Some(Duration::from_secs(3600));
    assert_eq!(number_of(&pprof(&options), DURATION_NANOS), whole - 300_000_000);
    let reported = report(
        &ReportOptions {
            stream: options.stream,
            ..ReportOptions::default()
        },
        &mut (),
    );
    assert_eq!(reported.unwrap().duration_ns, Some(whole - 300_000_000));
}

/// A mistyped selection is not followed by the advice to look at the result.
#[test]
fn an_export_without_samples_is_said_to_be_one() {
    let folder = scratch();
    let export = |more: &[&str]| {
        let mut command = jitinject();
        command.current_dir(folder.path()).args(["export", "-o", "a.svg"]);
        command
            .args(more)
            .arg(capture::profile("node20"))
            .output()
            .unwrap()
    };
    for selection in [["--pid", "1"], ["--tid", "1"], ["--filter", "no such function"]] {
        let ran = export(&selection);
        let said = said(&ran);
        assert!(ran.status.success(), "{said}");
        assert!(
            said.contains("no samples match") && !said.contains("next: "),
            "{said}"
        );
    }
    assert!(said(&export(&["--time", "0.3,0.6"])).contains("next: "));
    assert_eq!(export(&["--time", "0.6,0.3"]).status.code(), Some(2));
}

#[test]
fn the_name_of_the_output_decides_the_format() {
    let folder = scratch();
    let export = |output: &str, more: &[&str]| {
        let mut command = jitinject();
        command
            .current_dir(folder.path())
            .args(["export", "-o", output])
            .args(more);
        command.arg(capture::profile("node20")).output().unwrap()
    };
    for (output, more) in [("a.txt", &[][..]), ("-", &[]), ("a.svg", &["--format", "png"])] {
        let ran = export(output, more);
        assert_eq!(ran.status.code(), Some(2), "{output}: {}", said(&ran));
    }
    let ran = export("-", &["--format", "folded"]);
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(
        ran.stdout.ends_with(b"\n") && said(&ran).contains("missing: "),
        "{}",
        said(&ran)
    );
    let ran = export("a.folded", &["-q"]);
    assert!(ran.status.success() && ran.stderr.is_empty(), "{}", said(&ran));
    let ran = export("missing/a.folded", &[]);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    // Nothing but the file is left.
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a.folded"]);
}
