//! Records a program (`programs/stacks.cs`) that Mono runs with its profiler, with perf.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use jitinject::internals::traces::mono::format::event::{Metadata, Stage};
use jitinject::internals::traces::mono::format::{Log, LogEventKind, Method, ThreadId};

use crate::support::mono_report::{Amounts, Report, UNRESOLVED};
use crate::support::mono_sums::{alone, assert_calls, by_leaf, of, sum};
use crate::support::perf::{Event, assert_reports_are_silent, events, programs};
use crate::support::reports::line_of;
use crate::support::{has_code, inject, scratch, tools};

/// Number of bytes of a thread's name that the kernel keeps.
const NAME_SIZE: usize = 15;

fn succeeds(mut command: Command) {
    let program = command.get_program().to_owned();
    let ran = command
        .output()
        .unwrap_or_else(|error| panic!("{program:?}: {error}; scripts/test installs it"));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Runs the program with Mono's profiler for some time; returns the log.
fn logged(folder: &Path, options: &str, milliseconds: &str) -> PathBuf {
    logged_by("stacks.cs", folder, options, milliseconds)
}

/// Does the same with any program.
fn logged_by(source: &str, folder: &Path, options: &str, milliseconds: &str) -> PathBuf {
    let program = tools::compile_for_mono(folder, source);
    let log = folder.join("trace.mlpd");
    let mut command = Command::new("mono");
    command
        .arg(format!("--profile=log:{options},output={}", log.display()))
        .arg(program)
        .arg(milliseconds);
    succeeds(command);
    log
}

/// Does the same under perf; returns the profile as well.
fn recorded(folder: &Path, options: &str, milliseconds: &str, call_graph: &[&str]) -> (PathBuf, PathBuf) {
    let program = tools::compile_for_mono(folder, "stacks.cs");
    let (log, profile) = (folder.join("trace.mlpd"), folder.join("perf.data"));
    let mut command = Command::new("perf");
    command
        .args(["record", "-q", "-k", "mono", "-e", "cpu-clock"])
        .args(call_graph)
        .args(["-o", tools::text(&profile), "mono"])
        .arg(format!("--profile=log:{options},output={}", log.display()))
        .arg(program)
        .arg(milliseconds);
    succeeds(command);
    (profile, log)
}

/// A step of a thread in a log: it entered or left a method.
struct Step {
    time: u64,
    method: Method,
    is_entry: bool,
}

/// Instances of a generic type whose arguments are classes share code, which then has several names.
fn shared(name: &str) -> String {
    name.replace("<T_REF>", "<Stacks.IShape>")
}

/// The calls in a log, parsed independently: for each thread, by its name in the kernel.
struct Calls {
    steps: HashMap<Vec<u8>, Vec<Step>>,
    names: HashMap<Method, String>,
}

impl Calls {
    fn of(log: &[u8]) -> Self {
        let log = Log::parse(log).unwrap();
        let mut steps: HashMap<ThreadId, Vec<Step>> = HashMap::new();
        let mut thread_names: HashMap<ThreadId, Vec<u8>> = HashMap::new();
        let mut names = HashMap::new();
        for event in log.events() {
            let (method, is_entry) = match event.kind {
                LogEventKind::Enter(method) => (method, true),
                LogEventKind::Leave(method) | LogEventKind::ExceptionLeave(method) => (method, false),
                LogEventKind::Jit { method, name, .. } => {
                    names.insert(method, shared(&String::from_utf8_lossy(name)));
                    continue;
                }
                LogEventKind::Metadata {
                    stage: Stage::Name,
                    subject: Metadata::Thread { thread, name },
                } => {
                    let comm = match name {
                        b"Main" => b"mono",
                        _ => &name[..name.len().min(NAME_SIZE)],
                    };
                    thread_names.insert(thread, comm.to_vec());
                    continue;
                }
                _ => continue,
            };
            steps.entry(event.thread).or_default().push(Step {
                time: event.time.0,
                method,
                is_entry,
            });
        }
        let named = steps.into_iter().map(|(thread, steps)| {
            assert!(steps.is_sorted_by_key(|step| step.time));
            (thread_names[&thread].clone(), steps)
        });
        Self {
            steps: named.collect(),
            names,
        }
    }

    /// Returns the stack of a thread at each of the sorted `times`, innermost first.
    fn stacks(&self, thread: &str, times: impl Iterator<Item = u64>) -> Vec<Vec<&str>> {
        let mut steps = self.steps[thread.as_bytes()].iter().peekable();
        let mut stack: Vec<Method> = Vec::new();
        let stacks = times.map(|time| {
            while let Some(step) = steps.next_if(|step| step.time <= time) {
                if step.is_entry {
                    stack.push(step.method);
                } else if let Some(place) = stack.iter().rposition(|&method| method == step.method) {
                    stack.truncate(place);
                }
            }
            stack
                .iter()
                .rev()
                .map(|method| self.names[method].as_str())
                .collect()
        });
        stacks.collect()
    }
}

/// Returns the frames of a sample from the first one in user space on, if that is in Mono's code.
fn in_code(event: &Event) -> Option<Vec<String>> {
    let user = event.frames.iter().position(|frame| frame.address < 1 << 63)?;
    let is_code = event.frames[user].file.contains(".elf/jit");
    is_code.then(|| event.symbols().into_iter().skip(user).map(shared).collect())
}

/// Checks that samples in code have the stack that the log has at their time.
fn assert_stacks(shown: &[Event], calls: &Calls) {
    let mut by_thread: HashMap<&str, Vec<(&Event, Vec<String>)>> = HashMap::new();
    for event in shown {
        if let Some(stack) = in_code(event) {
            by_thread.entry(&event.comm).or_default().push((event, stack));
        }
    }
    let (mut total, mut equal, mut inside) = (0, 0, 0);
    let mut wrong = Vec::new();
    let mut different = std::collections::BTreeSet::new();
    for (thread, samples) in &mut by_thread {
        samples.sort_by_key(|(event, _)| event.time);
        let stacks = calls.stacks(thread, samples.iter().map(|(event, _)| event.time));
        for ((event, shown), logged) in samples.iter().zip(stacks) {
            total += 1;
            // The method's entry has not been logged yet, or its exit has been already, or it is not a logged
            // method.
            let is_outside = shown[1..] == logged;
            inside += usize::from(*shown == logged);
            equal += usize::from(*shown == logged || is_outside);
            if *shown != logged && !is_outside {
                wrong.push((event.comm.clone(), event.time, shown.clone(), logged.clone()));
            }
            different.insert(logged);
        }
    }
    println!(
        "{equal} of {total} stacks, {inside} of them inside of the innermost call; {} different ones",
        different.len()
    );
    assert!(total > 100, "{total} samples in code");
    assert!(by_thread.len() >= 4, "{:?}", by_thread.keys());
    assert!(different.len() > 20);
    assert!(equal * 100 > total * 95, "{equal} of {total}: {:?}", wrong[0]);
    assert!(inside * 2 > total, "{inside} of {total}");
}

fn check_splicing(call_graph: &[&str]) {
    let folder = scratch();
    let (profile, log) = recorded(
        folder.path(),
        "nodefaults,jit,calls,exception",
        "1500",
        call_graph,
    );
    let calls = Calls::of(&std::fs::read(&log).unwrap());
    let output = folder.path().join("out.data");
    let with_log = [
        "--mono-log",
        tools::text(&log),
        "--splice-stacks",
        "--fail-under",
        "95",
        "-v",
    ];
    let said = inject(&profile, &output, &with_log);
    assert!(has_code(&said, "JI292"), "{said}");
    assert_reports_are_silent(&programs(), &output);
    for program in programs() {
        assert_stacks(&events(&program, &output), &calls);
    }
    // The stacks are the same with events. If calls are logged, Mono logs no stacks for the events.
    let with_events = [&with_log[..3], &["--events", "exception"]].concat();
    inject(&profile, &output, &with_events);
    let mut shown = events("perf", &output);
    let thrown: Vec<Event> = shown
        .extract_if(.., |event| event.name == "mono/exception/")
        .collect();
    assert!(thrown.len() > 10);
    let mut by_thread: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in &thrown {
        by_thread.entry(&event.comm).or_default().push(event);
    }
    for (thread, mut events) in by_thread {
        events.sort_by_key(|event| event.time);
        let stacks = calls.stacks(thread, events.iter().map(|event| event.time));
        for (event, logged) in events.iter().zip(stacks) {
            let shown: Vec<String> = event.symbols().into_iter().map(shared).collect();
            assert_eq!(shown, logged, "{event:?}");
        }
    }
    assert_stacks(&shown, &calls);
}

#[test]
fn spliced_stacks_are_those_that_the_log_has_at_the_time_of_the_sample() {
    check_splicing(&["-F", "1999", "-g"]);
}

#[test]
fn copies_of_the_stack_give_way_to_the_calls_of_the_log() {
    check_splicing(&["-F", "999", "--call-graph", "dwarf,4096"]);
}

#[test]
fn calls_of_a_program_with_exceptions_are_those_of_mprof_report() {
    let folder = scratch();
    let log = logged(folder.path(), "nodefaults,jit,calls", "100");
    let shown = alone(&log, &["--events", "calls"]);
    assert_calls(&shown, &Report::of(&log));
}

#[test]
fn shots_of_the_heap_have_the_bytes_and_objects_that_mprof_report_has() {
    let folder = scratch();
    let options = "nodefaults,jit,heapshot=ondemand,heapshot-on-shutdown";
    let log = logged(folder.path(), options, "50");
    let (types, all) = Report::of(&log).heap();
    assert!(types.len() > 10);
    let shown = alone(&log, &["--events", "heap"]);
    let objects = of(&shown, "heap-bytes");
    assert_eq!(sum(&objects), all);
    let ours = by_leaf(&objects);
    for (name, amount) in types {
        assert_eq!(ours[&format!("[{name}]")], amount, "{name}");
    }
}

/// Compares amounts by type with those of mprof-report, which reads a log once: objects whose type is described only later are
/// unresolved there.
fn assert_amounts(mut ours: Amounts, mut theirs: Amounts) {
    let unresolved = theirs.remove(UNRESOLVED).unwrap_or_default();
    for (name, (bytes, count)) in theirs {
        let own = ours.get_mut(&name).unwrap_or_else(|| panic!("{name}"));
        *own = (own.0 - bytes, own.1 - count);
    }
    let rest = ours
        .values()
        .fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
    assert_eq!(rest, unresolved);
}

#[test]
fn a_program_with_all_of_it_has_the_amounts_that_mprof_report_has() {
    let folder = scratch();
    let options = "nodefaults,jit,gc,alloc,monitor,heapshot=1gc,sample-real";
    let log = logged_by("locks.cs", folder.path(), options, "0");
    let report = Report::of(&log);
    let shown = alone(&log, &["--events", "alloc,contention,heap-shots,sample"]);

    let allocations = of(&shown, "alloc-bytes");
    assert_eq!(sum(&allocations), report.allocated());
    let named = by_leaf(&allocations).into_iter();
    let named = named.map(|(name, sum)| (name.strip_prefix("new ").unwrap().to_owned(), sum));
    assert_amounts(named.collect(), report.allocations());

    let shots = report.heap_shots();
    assert!(shots.len() > 2, "{}", shots.len());
    for (number, (types, all)) in (1..).zip(shots) {
        let name = format!("[heap shot {number}]");
        let objects = of(&shown, "heap-bytes");
        let objects: Vec<&Event> = objects
            .into_iter()
            .filter(|event| event.symbols().last() == Some(&name.as_str()))
            .collect();
        assert_eq!(sum(&objects), all, "{name}");
        let named = by_leaf(&objects).into_iter();
        let named = named.map(|(name, sum)| (name.trim_matches(['[', ']']).to_owned(), sum));
        // Arrays end with a bracket of their own.
        let types = types
            .into_iter()
            .map(|(name, sum)| (name.trim_matches(['[', ']']).to_owned(), sum));
        let mut by_name = Amounts::new();
        for (name, (bytes, count)) in named {
            let sum = by_name.entry(name).or_default();
            *sum = (sum.0 + bytes, sum.1 + count);
        }
        let mut theirs = Amounts::new();
        for (name, (bytes, count)) in types {
            let sum = theirs.entry(name).or_default();
            *sum = (sum.0 + bytes, sum.1 + count);
        }
        assert_amounts(by_name, theirs);
    }

    let mut locks: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut failed = 0;
    for event in of(&shown, "contention-ns") {
        let lock = event
            .symbols()
            .into_iter()
            .find(|name| name.starts_with("[lock "));
        let lock = lock.unwrap().trim_start_matches("[lock ").trim_end_matches(']');
        locks.entry(lock.to_owned()).or_default().push(event.period);
        failed += u64::from(event.leaf() == "[failed]");
    }
    assert_eq!(failed, report.number("Lock failures:"));
    let locks = locks.into_iter().map(|(lock, waits)| {
        // mprof-report prints seconds with six digits, which rounds 500 ns up or down.
        let micros = |nanoseconds: u64| -> u64 {
            let seconds = format!("{:.6}", nanoseconds as f64 / 1e9);
            seconds.replace('.', "").parse().unwrap()
        };
        let amounts = [
            waits.len() as u64,
            micros(waits.iter().sum()),
            micros(*waits.iter().max().unwrap()),
        ];
        (lock, amounts)
    });
    let locks: BTreeMap<String, [u64; 3]> = locks.collect();
    assert!(locks.len() > 1);
    assert_eq!(locks, report.locks());

    let samples = by_leaf(&of(&shown, "sample"));
    let hits = report.hits();
    assert!(hits.values().sum::<u64>() > 20, "{hits:?}");
    for (name, count) in hits {
        assert_eq!(
            samples.get(&name).map(|own| own.1),
            Some(count),
            "{name}: {samples:?}"
        );
    }
}

#[test]
fn a_log_without_the_places_of_code_asks_for_them() {
    let folder = scratch();
    let (profile, log) = recorded(folder.path(), "calls", "100", &["-g"]);
    let output = folder.path().join("out.data");
    for more in [&[][..], &["--splice-stacks"]] {
        let said = inject(
            &profile,
            &output,
            &[&["--mono-log", tools::text(&log)], more].concat(),
        );
        let without_addresses = line_of(&said, "JI080");
        assert!(without_addresses.contains(tools::text(&log)), "{said}");
        assert!(without_addresses.contains("--profile=log:jit"), "{said}");
    }
}
