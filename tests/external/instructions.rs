//! `jitinject report FUNCTION --instructions` against perf annotate of the output, which runs objdump; for a native program
//! (`programs/native.c`) also against objdump and addr2line.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use jitdump::{Address, ByteOrder};
use jitinject::InjectOptions;
use jitinject::internals::elf::limited_reads::MemoryRoom;
use jitinject::internals::elf::symbols::FunctionSymbols;
use jitinject::internals::frames::ranking::counts::SamplesByStack;
use jitinject::internals::frames::stream::Tables;
use jitinject::internals::inject::inject_after;
use object::read::{Object, ObjectSection};
use serde_json::Value;

use crate::support::profile::ProfileWriter;
use crate::support::recording::PID;
use crate::support::{capture, elf, inject, jitinject, perf, said, scratch, tools};

/// Captures of several compilers.
const CAPTURES: [&str; 4] = ["node20", "java17", "php82", "lli14-mcjit"];

/// Start of a mapping of the native program.
const BASE: u64 = 0x5555_0000_0000;

/// Functions of each capture that are compared, the hottest ones.
const FUNCTIONS: usize = 5;

/// A copy of a function: samples and percentage of each instruction that has any, by offset.
type Copy = BTreeMap<u64, (u64, f64)>;

/// Runs `jitinject report` with files of a capture.
fn report(files: &[&str], more: &[&str]) -> Value {
    json_of(jitinject().args([&["report", "--json"], files, more].concat()))
}

/// Runs a command that prints JSON.
fn json_of(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the copies of a function by symbol, and the offsets of all their instructions.
fn of_report(files: &[&str], function: &str) -> BTreeMap<String, (Vec<Copy>, BTreeSet<u64>)> {
    let report = report(files, &["--instructions=0", function]);
    let mut found: BTreeMap<String, (Vec<Copy>, BTreeSet<u64>)> = BTreeMap::new();
    for copy in report["function"]["code"]["copies"].as_array().unwrap() {
        let all = copy["self"]["period"].as_f64().unwrap();
        let (copies, starts) = found
            .entry(copy["symbol"].as_str().unwrap().to_owned())
            .or_default();
        let mut samples = Copy::new();
        for instruction in copy["instructions"].as_array().unwrap() {
            let (offset, own) = (instruction["offset"].as_u64().unwrap(), &instruction["self"]);
            starts.insert(offset);
            let percent = own["period"].as_f64().unwrap() * 100.0 / all;
            match own["samples"].as_u64().unwrap() {
                0 => {}
                count => _ = samples.insert(offset, (count, percent)),
            }
        }
        copies.push(samples);
    }
    found
}

/// Returns the values at addresses that perf annotate prints for each copy of a symbol.
fn annotated(
    program: &str,
    cache: &Path,
    profile: &Path,
    more: &[&str],
    symbol: &str,
) -> Vec<Vec<(u64, f64)>> {
    let arguments = [
        "annotate",
        "-f",
        "--stdio",
        "--no-demangle",
        "-i",
        tools::text(profile),
    ];
    let printed = perf::perf_with_cache(program, cache, &[&arguments[..], more, &[symbol]].concat());
    let mut copies: Vec<Vec<(u64, f64)>> = Vec::new();
    for line in printed.lines() {
        if line.contains("Source code & Disassembly") {
            copies.push(Vec::new());
            continue;
        }
        let mut fields = line.splitn(3, ':').map(str::trim);
        let value = fields.next().and_then(|value| value.parse().ok());
        let address = fields
            .next()
            .and_then(|address| u64::from_str_radix(address, 16).ok());
        if let (Some(value), Some(address), Some(copy)) = (value, address, copies.last_mut()) {
            copy.push((address, value));
        }
    }
    copies
}

/// Returns the copies of a symbol as perf annotate has them, and the offsets of all their instructions.
fn of_perf(program: &str, cache: &Path, profile: &Path, symbol: &str) -> (Vec<Copy>, BTreeSet<u64>) {
    let counts = annotated(program, cache, profile, &["-n"], symbol);
    let percents = annotated(program, cache, profile, &[], symbol);
    let mut starts = BTreeSet::new();
    let copies = counts.iter().zip(&percents).map(|(counts, percents)| {
        let start = counts[0].0;
        starts.extend(counts.iter().map(|(address, _)| address - start));
        let both = counts.iter().zip(percents);
        both.filter(|((_, count), _)| *count > 0.0)
            .map(|(&(address, count), &(_, percent))| (address - start, (count as u64, percent)))
            .collect()
    });
    (copies.collect(), starts)
}

/// Sorts copies by what both programs agree on.
fn sorted(mut copies: Vec<Copy>) -> Vec<Copy> {
    let counts = |copy: &Copy| -> Vec<(u64, u64)> {
        let samples = copy.iter();
        samples.map(|(&offset, &(count, _))| (offset, count)).collect()
    };
    copies.sort_by_key(counts);
    copies
}

#[test]
fn instructions_have_the_samples_of_perf_annotate() {
    let (folder, cache) = (scratch(), scratch());
    let mut checked = 0;
    // perf 6.12 of Debian prints nothing.
    let programs: Vec<String> = [Some("perf".to_owned()), perf::newest()]
        .into_iter()
        .flatten()
        .collect();
    for name in CAPTURES {
        let (dumps, profile) = (capture::folder(name), capture::profile(name));
        let output = folder.path().join(format!("{name}.data"));
        inject(&profile, &output, &["--jitdump", tools::text(&dumps)]);
        let files = ["--jitdump", tools::text(&dumps), "-i", tools::text(&profile)];
        let all = report(&files, &["-n", "0"]);
        let rows = all["rows"].as_array().unwrap().iter();
        let is_compiled = |row: &&Value| row["kind"] == "language" && row["self"]["samples"] != 0;
        for row in rows.filter(is_compiled).take(FUNCTIONS) {
            for (symbol, (copies, starts)) in of_report(&files, row["name"].as_str().unwrap()) {
                let copies = sorted(copies);
                for program in &programs {
                    let (expected, expected_starts) = of_perf(program, cache.path(), &output, &symbol);
                    let expected = sorted(expected);
                    assert_eq!(copies.len(), expected.len(), "{name}: {symbol}");
                    // Of long functions, not all instructions are shown.
                    assert!(starts.is_subset(&expected_starts), "{name}: {symbol}");
                    for (copy, expected) in copies.iter().zip(&expected) {
                        assert_eq!(
                            copy.len(),
                            expected.len(),
                            "{name}: {symbol}: {copy:?} {expected:?}"
                        );
                        for ((offset, (count, percent)), (expected_offset, expected)) in
                            copy.iter().zip(expected)
                        {
                            assert_eq!(
                                (offset, count),
                                (expected_offset, &expected.0),
                                "{name}: {symbol}"
                            );
                            assert!(
                                (percent - expected.1).abs() < 0.006,
                                "{name}: {symbol}: {percent} {expected:?}"
                            );
                            checked += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(checked > 400, "{checked}");
}

/// How the native program is linked: with stubs in `.plt` and in `.plt.sec`.
const LINKED: [(&str, &[&str]); 3] = [
    ("lazy", &["-Wl,-z,lazy"]),
    ("now", &["-Wl,-z,now"]),
    ("ibt", &["-fcf-protection=full", "-Wl,-z,ibtplt"]),
];

/// Compiles the native program.
fn native_program(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let options = ["-O2", "-g", "-fno-builtin"];
    tools::compile_to(&program, "native.c", &[&options[..], more].concat());
    program
}

/// Returns the stubs that objdump finds, by address.
fn stubs_of_objdump(program: &Path) -> BTreeMap<u64, String> {
    let printed = tools::run("objdump", &["-d", "--no-show-raw-insn", tools::text(program)]);
    let labels = printed.lines().filter_map(|line| {
        let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        name.ends_with("@plt").then(|| (address, name.to_owned()))
    });
    labels.collect()
}

/// Reads the symbols of a program.
fn symbols_of(program: &Path) -> FunctionSymbols {
    let file = std::fs::read(program).unwrap();
    FunctionSymbols::read_if(&file[..], &MemoryRoom::default().file(), |_| true).unwrap()
}

/// Returns the stubs of a program, by address.
fn stubs_of(symbols: &FunctionSymbols) -> BTreeMap<u64, String> {
    let found = (0..symbols.count()).filter_map(|index| {
        let (name, start) = (symbols.name(index)?.into_owned(), symbols.range(index)?.start.0);
        name.ends_with("@plt").then_some((start, name))
    });
    found.collect()
}

#[test]
fn stubs_have_the_names_of_objdump() {
    let folder = scratch();
    for (name, options) in LINKED {
        let program = native_program(folder.path(), name, options);
        let expected = stubs_of_objdump(&program);
        assert!(expected.len() > 3, "{name}: {expected:?}");
        assert_eq!(stubs_of(&symbols_of(&program)), expected, "{name}");
    }
}

/// objdump has no names for them.
#[test]
fn stubs_of_static_programs_have_the_names_of_functions_that_select_others() {
    let folder = scratch();
    let program = native_program(folder.path(), "static", &["-static"]);
    let symbols = symbols_of(&program);
    let selecting = tools::run("readelf", &["-rW", tools::text(&program)]);
    let selecting = selecting.lines().filter_map(|line| {
        let address = line.contains("IRELATIV").then(|| line.split_whitespace().last());
        u64::from_str_radix(address??, 16).ok()
    });
    let named =
        selecting.map(|address| symbols.name(symbols.at(Address(address)).unwrap()).unwrap() + "@plt");
    let mut expected: Vec<String> = named.map(Cow::into_owned).collect();
    let mut found: Vec<String> = stubs_of(&symbols).into_values().collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(found.iter().any(|name| name == "strlen@plt"), "{found:?}");
}

/// Returns functions and lines at addresses from the innermost inlined call, as addr2line prints them.
fn of_addr2line(program: &Path, addresses: &[String]) -> Vec<Vec<(String, u64)>> {
    let fixed = ["-a", "-f", "-i", "-e", tools::text(program)];
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let printed = tools::run("addr2line", &[&fixed[..], &addresses].concat());
    let mut found: Vec<Vec<(String, u64)>> = Vec::new();
    let mut lines = printed.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            found.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap().split(' ').next().unwrap();
        let number = place.rsplit(':').next().unwrap().parse().unwrap_or(0);
        found.last_mut().unwrap().push((line.to_owned(), number));
    }
    found
}

/// Returns the functions and lines beside an instruction.
fn lines_of(instruction: &Value) -> Vec<(String, u64)> {
    let lines = instruction["lines"].as_array().unwrap().iter();
    lines
        .map(|line| {
            let name = line["function"].as_str().unwrap();
            (name.to_owned(), line["line"].as_u64().unwrap())
        })
        .collect()
}

/// Returns the calls of a function by the offset of the instruction, as objdump prints them.
fn calls_of_objdump(program: &Path, start: u64) -> BTreeMap<u64, String> {
    let arguments = [
        "-d",
        "--no-show-raw-insn",
        "--disassemble=work",
        tools::text(program),
    ];
    let printed = tools::run("objdump", &arguments);
    let calls = printed.lines().filter_map(|line| {
        let (address, text) = line.trim().split_once(':')?;
        let offset = u64::from_str_radix(address, 16).ok()?.checked_sub(start)?;
        let (_, target) = text.trim().strip_prefix("call ")?.split_once('<')?;
        Some((offset, target.trim_end_matches('>').to_owned()))
    });
    calls.collect()
}

/// Records a program.
fn recorded(program: &Path) -> PathBuf {
    let profile = program.with_extension("data");
    let options = [
        "record",
        "-q",
        "-N",
        "--buildid-all",
        "-e",
        "cpu-clock:u",
        "-F",
        "2000",
    ];
    let files = ["-o", tools::text(&profile), tools::text(program)];
    tools::run("perf", &[&options[..], &files].concat());
    profile
}

#[test]
fn native_instructions_have_names_lines_and_samples_of_other_tools() {
    let (folder, cache) = (scratch(), scratch());
    let program = native_program(folder.path(), "native", &[]);
    let profile = recorded(&program);
    let files = ["-i", tools::text(&profile)];
    let found = report(&files, &["work", "--instructions"]);
    let copy = &found["function"]["code"]["copies"][0];
    let start = u64::from_str_radix(&copy["address"].as_str().unwrap()[2..], 16).unwrap();
    let instructions = copy["instructions"].as_array().unwrap();
    let offset = |instruction: &Value| instruction["offset"].as_u64().unwrap();
    let addresses = instructions.iter().map(|it| format!("{:#x}", start + offset(it)));
    let addresses: Vec<String> = addresses.collect();
    let lines: Vec<_> = instructions.iter().map(lines_of).collect();
    assert_eq!(lines, of_addr2line(&program, &addresses));
    assert!(lines.iter().any(|lines| lines.len() == 3), "{lines:?}");
    let calls = instructions.iter().filter_map(|instruction| {
        let target = instruction["text"].as_str()?.strip_prefix("call ")?;
        Some((offset(instruction), target.to_owned()))
    });
    let calls: BTreeMap<u64, String> = calls.collect();
    assert_eq!(calls, calls_of_objdump(&program, start));
    assert!(calls.values().any(|target| target == "labs@plt"), "{calls:?}");
    let (copies, starts) = of_report(&files, "work").remove("work").unwrap();
    let (expected, expected_starts) = of_perf("perf", cache.path(), &profile, "work");
    assert_eq!(starts, expected_starts);
    let counts = |copies: &[Copy]| -> Vec<(u64, u64)> {
        let samples = copies[0].iter();
        samples.map(|(&offset, &(count, _))| (offset, count)).collect()
    };
    assert_eq!(counts(&copies), counts(&expected));
}

/// perf annotate has the samples of each instruction, and addr2line its line.
#[test]
fn lines_of_native_functions_have_their_text_and_the_samples_of_other_tools() {
    let (folder, cache) = (scratch(), scratch());
    let program = native_program(folder.path(), "native", &[]);
    let profile = recorded(&program);
    let found = report(&["-i", tools::text(&profile)], &["work"]);
    let lines = found["function"]["lines"].as_array().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/external/programs/native.c");
    let source = std::fs::read_to_string(source).unwrap();
    let source: Vec<&str> = source.lines().collect();
    let mut own: BTreeMap<u64, u64> = BTreeMap::new();
    for line in lines {
        let number = line["line"].as_u64().unwrap();
        assert_eq!(line["text"], source[number as usize - 1], "{line}");
        let samples = line["self"]["samples"].as_u64().unwrap();
        own.extend((samples > 0).then_some((number, samples)));
    }
    let symbols = symbols_of(&program);
    let named = |&index: &u32| symbols.name(index).unwrap() == "work";
    let work = (0..symbols.count()).find(named).unwrap();
    let start = symbols.range(work).unwrap().start.0;
    let (copies, _) = of_perf("perf", cache.path(), &profile, "work");
    let sampled: Vec<(u64, u64)> = copies[0]
        .iter()
        .map(|(&at, &(count, _))| (start + at, count))
        .collect();
    let addresses: Vec<String> = sampled
        .iter()
        .map(|(address, _)| format!("{address:#x}"))
        .collect();
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    for ((_, count), calls) in sampled.iter().zip(of_addr2line(&program, &addresses)) {
        // Inlined functions are functions of their own.
        if let [(_, line)] = calls[..] {
            *expected.entry(line).or_default() += count;
        }
    }
    assert!(!own.is_empty());
    assert_eq!(own, expected);
    // A copy in perf's cache does not belong to the user who built the program.
    let text_of = |home: &Path| {
        let options = ["report", "--json", "-i", tools::text(&profile), "work"];
        let found = json_of(jitinject().args(options).env("HOME", home));
        let lines = found["function"]["lines"].as_array().unwrap().clone();
        assert!(!lines.is_empty());
        lines.iter().filter(|line| line["text"].is_string()).count()
    };
    assert!(text_of(folder.path()) > 0);
    tools::run(
        "perf",
        &[
            "--buildid-dir",
            tools::text(&folder.path().join(".debug")),
            "buildid-cache",
            "-a",
            tools::text(&program),
        ],
    );
    std::fs::remove_file(&program).unwrap();
    assert_eq!(text_of(folder.path()), 0);
}

/// Changes the debug information of a program; the change gets the flags and the content of the section.
fn change_debug_info(program: &Path, change: impl FnOnce(&mut u64, &mut [u8])) {
    let mut bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&bytes[..]).unwrap();
    let section = file.section_by_name(".debug_info").unwrap();
    let (index, (offset, size)) = (section.index().0, section.file_range().unwrap());
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let at = word(40) as usize + 64 * index + 8;
    let mut flags = word(at);
    change(&mut flags, &mut bytes[offset as usize..][..size as usize]);
    bytes[at..at + 8].copy_from_slice(&flags.to_le_bytes());
    std::fs::write(program, bytes).unwrap();
}

#[test]
fn lines_that_are_not_read_are_reported_by_a_report_and_after_a_recording() {
    // The section claims to have a terabyte, or has a damaged entry.
    let is_huge = |flags: &mut u64, content: &mut [u8]| {
        *flags |= 1 << 11;
        let header = elf::compressed(1, 1 << 40, &[]);
        content[..header.len()].copy_from_slice(&header);
    };
    let is_damaged = |_: &mut u64, content: &mut [u8]| {
        let middle = content.len() / 2;
        content[middle..middle + 8].fill(0xff);
    };
    type Change = fn(&mut u64, &mut [u8]);
    for (change, code) in [(is_huge as Change, "JI186"), (is_damaged, "JI190")] {
        let folder = scratch();
        let program = native_program(folder.path(), "native", &[]);
        change_debug_info(&program, change);
        let profile = sampled_in_work(folder.path(), &program);
        let arguments = ["report", "-i", tools::text(&profile)];
        let reported = said(&jitinject().args(arguments).output().unwrap());
        assert!(reported.contains(code), "{reported}");
        let mut options = InjectOptions::new(profile, folder.path().join("out.data"));
        options.summary = Some(folder.path().join("summary.json"));
        let mut observe = |_: Tables, _: &SamplesByStack| ();
        let summary = inject_after(|_| Ok(()), Some(&mut observe), &options, &mut ()).unwrap();
        let mut issues = summary.diagnostics.iter().map(|found| found.issue.id());
        assert!(issues.any(|issue| issue == code), "{:?}", summary.diagnostics);
    }
}

#[test]
fn stubs_have_names_if_the_symbols_are_in_a_separate_file() {
    let folder = scratch();
    let program = native_program(folder.path(), "native", &[]);
    let debug_files = folder.path().join("debuginfod");
    tools::separate_debug_file(&program, &debug_files);
    let profile = recorded(&program);
    let arguments = [
        "report",
        "--json",
        "-i",
        tools::text(&profile),
        "work",
        "--instructions",
    ];
    let found = json_of(
        jitinject()
            .args(arguments)
            .env("HOME", folder.path())
            .env("DEBUGINFOD_CACHE_PATH", &debug_files),
    );
    let instructions = found["function"]["code"]["copies"][0]["instructions"]
        .as_array()
        .unwrap();
    let has_call = |target: &str| {
        instructions
            .iter()
            .any(|it| it["text"] == format!("call {target}"))
    };
    assert!(
        ["abs@plt", "labs@plt", "strlen@plt"].into_iter().all(has_call),
        "{instructions:?}"
    );
    assert!(
        instructions.iter().any(|it| lines_of(it).len() == 3),
        "{instructions:?}"
    );
}

/// Writes a profile with a sample in the function `work` of a program, without its build ID.
fn sampled_in_work(folder: &Path, program: &Path) -> PathBuf {
    let symbols = symbols_of(program);
    let named = |&index: &u32| symbols.name(index).unwrap() == "work";
    let work = (0..symbols.count()).find(named).unwrap();
    let mut writer = ProfileWriter::new(ByteOrder::Little);
    writer.mmap2(PID, BASE, 0x4000, 0, tools::text(program), 500);
    writer.sample(PID, 1000, &[BASE + symbols.range(work).unwrap().start.0], None);
    let profile = folder.join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    profile
}

/// perf records no build IDs in pipes, compressed profiles and recordings that were killed.
#[test]
fn debug_files_are_those_of_the_file_if_no_build_id_was_recorded() {
    let folder = scratch();
    let program = native_program(folder.path(), "native", &[]);
    let profile = sampled_in_work(folder.path(), &program);
    let debug_files = folder.path().join("debuginfod");
    tools::separate_debug_file(&program, &debug_files);
    let names = |debug_files: &Path| {
        let found = json_of(
            jitinject()
                .args(["report", "--json", "--by", "symbol", "-i", tools::text(&profile)])
                .env("HOME", folder.path())
                .env("DEBUGINFOD_CACHE_PATH", debug_files),
        );
        found["rows"][0]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(names(folder.path()), "native");
    assert_eq!(names(&debug_files), "work");
}

#[test]
fn samples_in_stubs_have_the_names_of_objdump() {
    let folder = scratch();
    // The addresses of their code are its file offsets.
    for (name, options) in LINKED {
        let program = native_program(folder.path(), name, options);
        let stubs = stubs_of_objdump(&program);
        let mut writer = ProfileWriter::new(ByteOrder::Little);
        writer.mmap2(PID, BASE, 0x4000, 0, tools::text(&program), 500);
        for (time, address) in (1000..).zip(stubs.keys()) {
            writer.sample(PID, time, &[BASE + address], None);
        }
        let profile = folder.path().join("perf.data");
        std::fs::write(&profile, writer.finish()).unwrap();
        let found = report(&["-i", tools::text(&profile)], &["-n", "0", "--by", "symbol"]);
        assert_eq!(found["missing"]["without_symbol"], 0, "{name}");
        let rows = found["rows"].as_array().unwrap().iter();
        let found: BTreeSet<&str> = rows.map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(found, stubs.values().map(String::as_str).collect(), "{name}");
    }
}
