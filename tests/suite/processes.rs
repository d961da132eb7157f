//! The code of a process: what it loads, moves and inherits, what hides that code, and which files describe it. The output,
//! as a plain reader reads it, is compared with a search through all events.

use std::path::{Path, PathBuf};

use jitdump::ByteOrder;
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::lives::{self, REGION};
use crate::support::profile::{ProfileWriter, architecture};
use crate::support::reader::{self, Sample};
use crate::support::reports::inject_with_summary;
use crate::support::{attempt, diagnostics, inject, model, said, scratch, tools};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1000 * SECOND;
const CODE: [u8; 0x40] = [0x90; 0x40];

/// Returns the first error in the output of a generated profile.
fn check_lives(number: u64, layout: &str) -> Result<(), String> {
    let folder = scratch();
    let made = lives::make(folder.path(), number);
    let output = folder.path().join("out.data");
    let dump = tools::text(&made.dump);
    let all = ["--layout", layout, "--jitdump", dump];
    // The dump is found without the option as well.
    let arguments = &all[..if number.is_multiple_of(2) { 4 } else { 2 }];
    let (_, summary) = inject_with_summary(&made.profile, &output, arguments);
    let samples = reader::samples(&output);
    if samples.len() != made.expected.len() {
        return Err("samples are lost".into());
    }
    for (sample, expected) in samples.iter().zip(&made.expected) {
        let is_right = sample.frames.iter().zip(&expected.frames).all(|(found, frame)| {
            let is_later = layout == "image" && frame.later.is_some() && *found == frame.later;
            let symbol = found.as_ref().filter(|name| name.starts_with("symbol_"));
            let is_symbol = symbol.is_some() && frame.may_be_symbol;
            *found == frame.name || frame.name.is_none() && (is_later || is_symbol)
        });
        if !is_right || (sample.pid, sample.time) != (expected.pid, expected.time) {
            return Err(format!("{sample:?}, not {:?}", expected.frames));
        }
    }
    let named = samples.iter().filter(|sample| sample.frames[0].is_some());
    let (named, counted) = (named.count() as u64, &summary["samples"]["named"]);
    if counted.as_u64() != Some(named) {
        return Err(format!("{named} samples have names, and {counted} are counted"));
    }
    let second = folder.path().join("second.data");
    inject(&output, &second, arguments);
    let parts = |path: &Path| model::parse(&std::fs::read(path).unwrap());
    if parts(&output) == parts(&second) {
        Ok(())
    } else {
        Err("a second run changes the profile".into())
    }
}

fn assert_lives_are_right(numbers: impl Iterator<Item = u64>) {
    let mut wrong = Vec::new();
    for number in numbers {
        for layout in ["function", "image"] {
            let found = check_lives(number, layout);
            wrong.extend(found.err().map(|found| format!("{number} {layout}: {found}")));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_address_has_what_was_put_there_last() {
    assert_lives_are_right(0..150);
}

/// The same for other profiles: `JITINJECT_LIVES=1000..4000`.
#[test]
#[ignore = "takes as long as the range requires"]
fn every_address_of_many_lives_has_what_was_put_there_last() {
    let lives = std::env::var("JITINJECT_LIVES").unwrap_or("1000..4000".into());
    let (start, end) = lives.split_once("..").unwrap();
    assert_lives_are_right(start.parse().unwrap()..end.parse().unwrap());
}

/// A profile from second 1000 on, and the expected name of each sample.
struct Case {
    folder: tempfile::TempDir,
    profile: ProfileWriter,
    dump: DumpWriter,
    time: u64,
    expected: Vec<Option<&'static str>>,
}

impl Case {
    /// Creates a profile in which process 100 maps its memory and its dump.
    fn new() -> Self {
        let mut case = Self::empty();
        case.profile.comm(100, "runtime", true, START);
        case.memory(100);
        let path = case.path("jit-100.dump");
        let time = case.tick();
        case.profile
            .mmap2(100, 0x6000_0000, 0x1000, 0, tools::text(&path), time);
        case
    }

    /// Creates a profile without processes.
    fn empty() -> Self {
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.features.push(architecture("x86_64"));
        Self {
            folder: scratch(),
            profile,
            dump: DumpWriter::new(ByteOrder::Little, X86_64, 100),
            time: START,
            expected: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    fn tick(&mut self) -> u64 {
        self.time += 1000;
        self.time
    }

    fn memory(&mut self, pid: u32) {
        let time = self.tick();
        self.profile.mmap2(pid, REGION, 0x2000, REGION, "//anon", time);
    }

    fn fork(&mut self, child: u32, parent: u32) {
        let time = self.tick();
        self.profile.fork(child, parent, time);
    }

    fn load(&mut self, pid: u32, offset: u64, index: u64, name: &str) {
        let time = self.tick();
        self.dump.pid = pid;
        self.dump
            .load(time, REGION + offset, index, name.as_bytes(), &CODE);
    }

    fn moved(&mut self, pid: u32, from: u64, to: u64, index: u64) {
        let time = self.tick();
        self.dump.pid = pid;
        let size = CODE.len() as u64;
        self.dump.moved(time, REGION + from, REGION + to, size, index);
    }

    fn sample(&mut self, pid: u32, offset: u64, name: Option<&'static str>) {
        let time = self.tick();
        self.profile.sample(pid, time, &[REGION + offset], None);
        self.expected.push(name);
    }

    fn write_input(&self) -> PathBuf {
        const HEADER: usize = 40;
        if self.dump.bytes.len() > HEADER {
            self.write("jit-100.dump", &self.dump.bytes);
        }
        self.write("perf.data", self.profile.finish())
    }

    fn expected(&self) -> Vec<Option<String>> {
        self.expected.iter().map(|name| name.map(str::to_owned)).collect()
    }

    /// Injects with each layout, checks the names and their number, and returns the last summary.
    fn check(&self, more: &[&str]) -> Value {
        self.check_layout("image", more);
        self.check_layout("function", more)
    }

    fn check_layout(&self, layout: &str, more: &[&str]) -> Value {
        let (input, output) = (self.write_input(), self.path("out.data"));
        let (_, summary) = inject_with_summary(&input, &output, &[&["--layout", layout], more].concat());
        assert_eq!(leaves(&output), self.expected(), "{layout}: {summary:#}");
        let named = self.expected.iter().flatten().count();
        assert_eq!(summary["samples"]["named"], named, "{layout}: {summary:#}");
        summary
    }

    /// Injects the output again, which must not change it; returns the summary.
    fn check_second_run(&self, more: &[&str]) -> Value {
        let second = self.path("second.data");
        let (_, summary) = inject_with_summary(&self.path("out.data"), &second, more);
        let parts = |path: &Path| model::parse(&std::fs::read(path).unwrap());
        assert!(parts(&self.path("out.data")) == parts(&second), "{summary:#}");
        summary
    }
}

/// Returns the name of each sample's address.
fn leaves(output: &Path) -> Vec<Option<String>> {
    let first = |sample: Sample| sample.frames[0].clone();
    reader::samples(output).into_iter().map(first).collect()
}

#[test]
fn a_function_whose_record_was_written_twice_can_move() {
    let mut case = Case::new();
    case.load(100, 0, 1, "moved");
    let record = case.dump.bytes[40..].to_vec();
    case.dump.bytes.extend(record);
    case.sample(100, 4, Some("moved"));
    let before = case.dump.bytes.len();
    case.moved(100, 0, 0x100, 1);
    let record = case.dump.bytes[before..].to_vec();
    case.dump.bytes.extend(record);
    case.sample(100, 4, None);
    case.sample(100, 0x104, Some("moved"));
    let summary = case.check(&[]);
    assert_eq!(summary["functions"]["loaded"], 1);
    assert_eq!(summary["functions"]["moved"], 1);
}

/// Both children write to the dump of their parent. The sibling's function has the same address, and in the second case
/// the same index.
#[test]
fn a_child_moves_what_it_inherited_and_not_what_its_sibling_loaded() {
    for index in [2, 1] {
        let mut case = Case::new();
        case.load(100, 0, 1, "of parent");
        case.fork(101, 100);
        case.fork(102, 100);
        case.load(101, 0, index, "of sibling");
        case.moved(102, 0, 0x100, 1);
        case.sample(101, 4, Some("of sibling"));
        case.sample(102, 4, None);
        case.sample(102, 0x104, Some("of parent"));
        case.sample(100, 4, Some("of parent"));
        case.check(&[]);
    }
}

/// As the workers of a PHP server do.
#[test]
fn processes_run_what_one_of_them_compiles_into_memory_that_they_share() {
    const PRIVATE: u64 = 0x10_0000;
    let mut case = Case::new();
    let time = case.tick();
    case.profile.shared_memory(100, REGION, 0x2000, time);
    let time = case.tick();
    case.profile
        .mmap2(100, REGION + PRIVATE, 0x1000, 0, "//anon", time);
    case.load(100, 0, 1, "before");
    case.fork(101, 100);
    case.fork(102, 100);
    case.load(101, 0x100, 2, "of 101");
    case.load(101, PRIVATE, 3, "private");
    // A PID of another namespace.
    case.load(7, 0x200, 4, "of a worker");
    case.fork(103, 100);
    for pid in 100..=103 {
        case.sample(pid, 4, Some("before"));
        case.sample(pid, 0x104, Some("of 101"));
        case.sample(pid, 0x204, Some("of a worker"));
        case.sample(pid, PRIVATE + 4, Some("private").filter(|_| pid == 101));
    }
    case.load(102, 0x100, 5, "over it");
    case.sample(103, 0x104, Some("over it"));
    let summary = case.check(&[]);
    assert_eq!(summary["functions"]["loaded"], 5);
    assert_eq!(summary["diagnostics"].as_array().unwrap().len(), 0, "{summary:#}");
}

#[test]
fn a_child_that_moves_inherited_code_keeps_code_that_overlaps_it() {
    let mut case = Case::new();
    case.load(100, 0, 1, "moved");
    case.load(100, 0x20, 2, "over it");
    case.fork(101, 100);
    case.moved(101, 0, 0x100, 1);
    case.sample(101, 4, None);
    case.sample(101, 0x24, Some("over it"));
    case.sample(101, 0x124, Some("moved"));
    case.check(&[]);
}

/// Code may replace a part of a mapped file. The child still has the file there.
#[test]
fn a_child_has_no_name_where_its_parent_loads_code_into_a_file_after_the_fork() {
    let mut case = Case::new();
    let time = case.tick();
    case.profile
        .mmap2(100, REGION, 0x1000, 0, "/usr/lib/library", time);
    case.load(100, 0, 1, "before");
    case.fork(101, 100);
    case.load(100, CODE.len() as u64, 2, "after");
    case.sample(101, 4, Some("before"));
    case.sample(101, CODE.len() as u64 + 4, None);
    case.sample(100, CODE.len() as u64 + 4, Some("after"));
    case.check(&[]);
}

#[test]
fn a_frame_at_the_end_of_a_function_is_not_in_the_one_that_is_loaded_there_later() {
    let mut case = Case::new();
    let end = CODE.len() as u64;
    case.load(100, 0, 1, "first");
    let time = case.tick();
    case.profile.sample(100, time, &[REGION + 4, REGION + end], None);
    case.expected.push(Some("first"));
    case.load(100, end, 2, "second");
    case.sample(100, end + 4, Some("second"));
    for layout in ["image", "function"] {
        case.check_layout(layout, &[]);
        let samples = reader::samples(&case.path("out.data"));
        assert_eq!(samples[0].frames, [Some("first".into()), None], "{layout}");
    }
}

#[test]
fn a_file_over_inherited_code_ends_it_though_memory_comes_over_the_file() {
    let mut case = Case::new();
    case.load(100, 0, 1, "of parent");
    case.load(100, 0x1000, 2, "of both");
    case.fork(101, 100);
    let time = case.tick();
    case.profile
        .mmap2(101, REGION, 0x1000, 0, "/usr/lib/library", time);
    case.memory(101);
    case.fork(102, 101);
    for pid in [101, 102] {
        case.sample(pid, 4, None);
        case.sample(pid, 0x1004, Some("of both"));
    }
    case.sample(100, 4, Some("of parent"));
    let summary = case.check(&[]);
    assert_eq!(summary["samples"]["unnamed"]["not_in_dump"], 2);
}

/// It compiles regular expressions, and logs nothing.
#[test]
fn pcre_is_a_reason_only_where_php_runs() {
    for (program, is_reason) in [("/usr/sbin/php-fpm8.2", true), ("/usr/bin/dotnet", false)] {
        let mut case = Case::new();
        let time = case.tick();
        case.profile.mmap2(100, 0x40_0000, 0x1000, 0, program, time);
        case.load(100, 0, 1, "function");
        // A worker.
        case.fork(101, 100);
        case.sample(101, 4, Some("function"));
        case.sample(101, 0x1004, None);
        let (said, summary) = inject_with_summary(&case.write_input(), &case.path("out.data"), &[]);
        assert_eq!(summary["samples"]["unnamed"]["not_in_dump"], 1);
        assert_eq!(said.contains("PCRE"), is_reason, "{said}");
    }
}

/// perf writes a FORK record for each process that exists at the start. The process may have executed another program since
/// it was forked.
#[test]
fn processes_that_were_there_before_inherit_nothing() {
    let mut case = Case::empty();
    for (pid, parent, program) in [(100, 1, "/usr/bin/node"), (101, 100, "/usr/bin/other")] {
        case.profile.present(pid, parent);
        case.profile.comm(pid, "program", false, 0);
        case.profile.mmap2(pid, 0x40_0000, 0x1000, 0, program, 0);
        case.profile.mmap2(pid, REGION, 0x2000, REGION, "//anon", 0);
    }
    case.write("perf-100.map", format!("{REGION:x} 40 symbol\n"));
    case.sample(100, 4, Some("symbol"));
    case.sample(101, 4, None);
    let summary = case.check(&[]);
    assert_eq!(summary["samples"]["unnamed"]["no_dump"], 1);
}

/// A server and its workers, all of them older than the recording.
#[test]
fn processes_that_were_forked_before_have_what_the_parent_had() {
    let mut case = Case::empty();
    for (pid, parent) in [(100, 1), (101, 100)] {
        case.profile.present(pid, parent);
        case.profile.comm(pid, "program", false, 0);
        case.profile
            .mmap2(pid, 0x5555_0000, 0x1000, 0, "/usr/bin/node", 0);
        case.profile.mmap2(pid, REGION, 0x2000, REGION, "//anon", 0);
    }
    case.write("perf-100.map", format!("{REGION:x} 40 symbol\n"));
    case.sample(100, 4, Some("symbol"));
    case.sample(101, 4, Some("symbol"));
    case.check(&[]);
}

/// As in the last file of `perf record --overwrite`: a name and samples, but no mappings.
#[test]
fn a_process_without_maps_is_known_by_its_samples() {
    for has_name in [false, true] {
        let mut case = Case::empty();
        if has_name {
            case.profile.comm(100, "runtime", false, START);
        }
        case.load(100, 0, 1, "function");
        case.sample(100, 4, Some("function"));
        case.sample(100, 0x1004, None);
        let path = case.path("jit-100.dump");
        let summary = case.check(&["--jitdump", tools::text(&path)]);
        let [by_header] = diagnostics(&summary, "JI222")[..] else {
            panic!("{summary:#}");
        };
        assert_eq!(by_header["file"], tools::text(&path));
        let [without_mappings] = diagnostics(&summary, "JI223")[..] else {
            panic!("{summary:#}");
        };
        let message = without_mappings["message"].as_str().unwrap();
        assert!(message.contains("process 100"), "{message}");
        assert_eq!(summary["dumps"][0]["pids"], serde_json::json!([100]));
    }
}

/// Returns a dump of process 100 with one function.
fn dump_of(machine: u32, time: u64, offset: u64, name: &str) -> Vec<u8> {
    let mut dump = DumpWriter::new(ByteOrder::Little, machine, 100);
    dump.load(time, REGION + offset, 1, name.as_bytes(), &CODE);
    dump.bytes
}

/// Returns the files of the warnings about dumps that are not used for their markers.
fn missing_dumps(summary: &Value) -> Vec<&str> {
    let all = ["JI213", "JI215"].map(|code| diagnostics(summary, code)).concat();
    assert!(all.iter().all(|it| it["severity"] == "warning"), "{summary:#}");
    all.into_iter().map(|it| it["file"].as_str().unwrap()).collect()
}

/// V8 inside CPython: both name their dumps after the process, in different folders.
#[test]
fn the_dump_of_one_runtime_does_not_stand_in_for_that_of_another() {
    let python = |case: &Case| case.write("python/jit-100.dump", dump_of(0, START + 10, 0, "py"));
    let v8 = |case: &Case| case.write("v8/jit-100.dump", dump_of(X86_64, START + 500, 0x100, "js"));
    let start = |with_v8: bool| {
        let mut case = Case::empty();
        case.profile.comm(100, "python", true, START);
        case.memory(100);
        let time = case.tick();
        let first = python(&case);
        case.profile
            .mmap2(100, 0x6000_0000, 0x1000, 0, tools::text(&first), START + 1);
        let second = v8(&case);
        case.profile
            .mmap2(100, 0x6000_1000, 0x1000, 0, tools::text(&second), START + 499);
        case.time = time + 5000;
        case.sample(100, 4, Some("py"));
        case.sample(100, 0x104, with_v8.then_some("js"));
        case
    };
    let case = start(true);
    let summary = case.check(&[]);
    let mut reported = summary["diagnostics"].as_array().unwrap().iter();
    assert!(reported.all(|it| it["severity"] == "note"), "{summary:#}");
    // V8's dump is lost. A copy of the other dump, or that dump itself, has its name.
    for candidate in ["saved/jit-100.dump", "python/jit-100.dump"] {
        let case = start(false);
        let lost = case.path("v8/jit-100.dump");
        std::fs::remove_file(&lost).unwrap();
        let copy = case.write(
            candidate,
            std::fs::read(case.path("python/jit-100.dump")).unwrap(),
        );
        let summary = case.check(&["--jitdump", tools::text(&copy)]);
        assert_eq!(missing_dumps(&summary), [tools::text(&lost)], "{summary:#}");
        let unusable = diagnostics(&summary, "JI215")[0]["message"].as_str().unwrap();
        let rejected = format!("{}: JI224: ", copy.display());
        assert!(unusable.contains(&rejected), "{unusable}");
        assert_eq!(summary["dumps"].as_array().unwrap().len(), 1);
    }
    // Both are in other folders. A dump that fits both markers is assigned to the marker closer in time.
    for folders in [&["python", "v8"][..], &["v8"]] {
        let mut case = start(true);
        for folder in folders {
            let saved = format!("saved/{folder}/jit-100.dump");
            case.write(
                &saved,
                std::fs::read(case.path(&format!("{folder}/jit-100.dump"))).unwrap(),
            );
        }
        std::fs::remove_dir_all(case.path("python")).unwrap();
        std::fs::remove_dir_all(case.path("v8")).unwrap();
        if folders.len() == 1 {
            case.expected[0] = None;
        }
        let saved = case.path("saved");
        let summary = case.check(&["--jitdump", tools::text(&saved)]);
        let lost = case.path("python/jit-100.dump");
        let missing = match folders {
            ["v8"] => vec![tools::text(&lost)],
            _ => Vec::new(),
        };
        assert_eq!(missing_dumps(&summary), missing, "{summary:#}");
    }
}

/// Samples before a load. An image of several functions is mapped when the first of them is loaded.
#[test]
fn a_sample_before_its_load_has_no_name_whatever_the_layout() {
    let mut case = Case::new();
    case.sample(100, 0x44, None);
    case.load(100, 0, 1, "first");
    case.sample(100, 4, Some("first"));
    // An image that covers this address would name it.
    case.sample(100, 0x44, None);
    case.sample(100, 0x84, None);
    case.load(100, 0x40, 2, "second");
    case.load(100, 0x80, 3, "third");
    case.load(100, 0x80, 4, "fourth");
    case.sample(100, 0x44, Some("second"));
    case.sample(100, 0x84, Some("fourth"));
    let summary = case.check(&[]);
    assert_eq!(summary["samples"]["unnamed"]["before_load"], 3, "{summary:#}");
}

#[test]
fn a_second_run_with_a_perf_map_changes_nothing() {
    let mut case = Case::new();
    let symbols = (0..0x40).map(|at| format!("{:x} 40 symbol_{at}\n", REGION + at * 0x40));
    case.write("perf-100.map", symbols.collect::<String>());
    case.sample(100, 0x204, Some("symbol_8"));
    case.sample(100, 4, None);
    case.sample(100, 0x84, None);
    case.load(100, 0, 1, "function");
    case.sample(100, 4, Some("function"));
    // The only samples in the one are earlier than its load, and the only samples in the other later than its move.
    case.load(100, 0x80, 2, "too late");
    case.load(100, 0x100, 3, "moved");
    case.moved(100, 0x100, 0x180, 3);
    case.sample(100, 0x104, None);
    for layout in ["function", "image"] {
        case.check_layout(layout, &[]);
        case.check_second_run(&["--layout", layout]);
        let dump = case.path("jit-100.dump");
        let summary = case.check_second_run(&["--layout", layout, "--jitdump", tools::text(&dump)]);
        let [unused] = diagnostics(&summary, "JI220")[..] else {
            panic!("{summary:#}");
        };
        assert_eq!(unused["file"], tools::text(&dump));
    }
}

/// A later run adds what an earlier run did not find.
#[test]
fn a_second_run_takes_what_the_first_one_could_not_have() {
    let mut case = Case::new();
    case.load(100, 0, 1, "function");
    case.sample(100, 4, Some("function"));
    let input = case.write_input();
    let dump = case.path("jit-100.dump");
    let aside = case.path("aside");
    std::fs::rename(&dump, &aside).unwrap();
    let first = case.path("first.data");
    let ran = attempt(&input, &first, &[]);
    let missing = format!("warning[JI213]: {}: ", dump.display());
    assert!(said(&ran).contains(&missing), "{}", said(&ran));
    std::fs::rename(&aside, &dump).unwrap();
    let output = case.path("out.data");
    inject(&first, &output, &[]);
    assert_eq!(leaves(&output), case.expected());
}
