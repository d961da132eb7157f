//! Failures outside the program: truncated input files, signals, full disks, limits. Either the old output stays, or
//! the new one is complete.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use jitdump::ByteOrder;
use jitinject::inject as inject_here;
use jitinject::{Diagnostic, InjectOptions, Issue, Progress, Summary};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::support::dump::DumpWriter;
use crate::support::generator::{Generated, Plan, Random, generate};
use crate::support::processes::{is_stopped, send, wait_until, with_usual_signals};
use crate::support::profile::ProfileWriter;
use crate::support::recording::set_mapped_file;
use crate::support::reports::reports;
use crate::support::scene::{Scene, State, left_over};
use crate::support::{attempt, capture, has_code, inject, jitinject, said, scratch, tools};

/// Calls a function when a stage of the work starts.
struct When<F: FnMut()> {
    stage: &'static str,
    then: F,
}

impl<F: FnMut()> Progress for When<F> {
    fn start(&mut self, what: &'static str, _total: u64) {
        if what == self.stage {
            (self.then)();
        }
    }

    fn advance(&mut self, _steps: u64) {}
}

/// Writes a profile of one process, and its dump.
fn generated(folder: &Path, functions: u64) -> Generated {
    let plan = Plan {
        functions,
        samples: 2000,
        ..Plan::default()
    };
    generate(folder, &plan)
}

/// Runs jitinject in this process, and calls `then` when a stage of the work starts.
fn run(input: &Path, output: &Path, stage: &'static str, then: impl FnMut()) -> Result<Summary, Diagnostic> {
    let options = InjectOptions {
        all: true,
        ..InjectOptions::new(input, output)
    };
    inject_here(&options, &mut When { stage, then })
}

/// Returns the text of the error for a file that cannot be written.
fn cannot_write(path: &Path, cause: Errno) -> String {
    Diagnostic::cannot_write(path, &cause.into()).to_string()
}

/// Truncates a file.
fn cut(path: &Path, size: u64) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(size)
        .unwrap();
}

/// The files are read before the first stage starts.
#[test]
fn files_that_are_cut_off_once_they_are_read_cost_nothing() {
    for (stage, size) in [
        ("reading samples", 0),
        ("reading samples", 100_000),
        ("writing objects", 0),
        ("writing objects", 123_456),
    ] {
        let folder = scratch();
        let generated = generated(folder.path(), 1000);
        let dump = folder.path().join("jit-5000.dump");
        let output = folder.path().join("out.data");
        inject(&generated.profile, &output, &["--all", "--layout", "image"]);
        let before = State::of(folder.path());
        let summary = run(&generated.profile, &output, stage, || {
            cut(&dump, size);
            cut(&generated.profile, size);
        });
        let text = summary.unwrap().text(false);
        assert!(text.contains("2000 of them named"), "{text}");
        assert!(State::of(folder.path()) == before);
        assert!(left_over(folder.path()).is_empty());
    }
}

/// A large jitdump is read page by page, functions last.
#[test]
fn a_large_dump_that_is_cut_off_loses_functions_with_a_warning() {
    let folder = scratch();
    let generated = generated(folder.path(), 10_000);
    let dump = folder.path().join("jit-5000.dump");
    assert!(fs::metadata(&dump).unwrap().len() > 2_000_000);
    let output = folder.path().join("out.data");
    let summary = run(&generated.profile, &output, "writing objects", || {
        cut(&dump, 1_000_000);
    });
    let summary = summary.unwrap();
    let shrunk = summary
        .diagnostics
        .iter()
        .filter(|it| it.issue == Issue::FileShrunk);
    assert_eq!(shrunk.count(), 1, "{}", summary.text(false));
    assert!(
        (100..9900).contains(&summary.functions.written),
        "{:?}",
        summary.functions
    );
}

/// The process of the profile is this one. It has the dump open and may write more to it.
#[test]
fn a_dump_that_grows_is_read_as_it_was_when_it_was_opened() {
    const CODE: u64 = 0x4000_0000;
    let folder = scratch();
    let pid = std::process::id();
    let path = folder.path().join(format!("jit-{pid}.dump"));
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, pid);
    dump.load(1000, CODE, 0, b"there", &[0x90; 64]);
    fs::write(&path, &dump.bytes).unwrap();
    let before = dump.bytes.len();
    dump.load(1001, CODE + 64, 1, b"later", &[0x90; 64]);
    let mut file = File::options().append(true).open(&path).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(pid, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    set_mapped_file(&mut profile, 0, &fs::metadata(&path).unwrap());
    profile.mmap2(pid, CODE, 4096, 0, "//anon", 501);
    profile.sample(pid, 2000, &[CODE + 4], None);
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let grow = || file.write_all(&dump.bytes[before..]).unwrap();
    let summary = run(&input, &output, "reading samples", grow).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), dump.bytes.len() as u64);
    assert_eq!((summary.functions.loaded, summary.samples.named), (1, 1));
    let incomplete = Diagnostic::new(Issue::DumpStillWritten).in_file(&path);
    let incomplete = incomplete.with("pid", pid);
    assert_eq!(incomplete.issue.id(), "JI217");
    assert!(
        summary.diagnostics.contains(&incomplete),
        "{:?}",
        summary.diagnostics
    );
}

/// Starts a command and stops it during its work, when it has temporary files and has not replaced the old output yet.
/// Repeats this if a run ends too early.
fn stopped_at_work(folder: &Path, command: impl Fn() -> Command) -> Child {
    const OLD: &[u8] = b"the old one";
    let output = folder.join("out.data");
    loop {
        let _ = fs::remove_dir_all(folder.join("out.data.elf"));
        fs::write(&output, OLD).unwrap();
        let mut running = command().spawn().unwrap();
        wait_until("temporary files", || {
            !left_over(folder).is_empty() || running.try_wait().unwrap().is_some()
        });
        // The ID of a process that has been waited for is invalid.
        if running.try_wait().unwrap().is_some() {
            continue;
        }
        send(&running, Signal::STOP);
        wait_until("a stopped process", || {
            is_stopped(&running) || running.try_wait().unwrap().is_some()
        });
        if fs::read(&output).unwrap() == OLD && !left_over(folder).is_empty() {
            return running;
        }
        let _ = running.kill();
        running.wait().unwrap();
    }
}

/// Adds the arguments of a run that takes seconds, because it writes a file for each of many functions.
fn long_run(program: &mut Command, input: &Path, folder: &Path) {
    program
        .args(["-q", "--all", "--layout=function"])
        .args(["-i", tools::text(input)])
        .args(["-o", tools::text(&folder.join("out.data"))]);
}

#[test]
fn signals_that_end_the_program_leave_nothing_behind() {
    let folder = scratch();
    let generated = generated(folder.path(), 40_000);
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let mut running = stopped_at_work(folder.path(), || {
            let mut command = jitinject();
            long_run(&mut command, &generated.profile, folder.path());
            with_usual_signals(&mut command);
            command
        });
        send(&running, signal);
        send(&running, Signal::CONT);
        let status = running.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
        assert_eq!(left_over(folder.path()), Vec::<PathBuf>::new());
        assert_eq!(fs::read(folder.path().join("out.data")).unwrap(), b"the old one");
        assert!(!folder.path().join("out.data.elf").exists());
    }
}

#[test]
fn signals_that_are_ignored_stay_so() {
    let folder = scratch();
    let generated = generated(folder.path(), 10_000);
    let mut running = stopped_at_work(folder.path(), || {
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_jitinject"));
        long_run(&mut command, &generated.profile, folder.path());
        command
    });
    send(&running, Signal::HUP);
    send(&running, Signal::CONT);
    assert!(running.wait().unwrap().success());
    assert_eq!(State::of(folder.path()).objects.len(), 10_000);
}

/// Kills jitinject at `count` random moments while it replaces an output with another one, with `signals` in turn.
fn kill_at_any_moment(count: usize, signals: &[Signal]) {
    let folder = scratch();
    let output = folder.path().join("out.data");
    // They have the same processes and functions, so the objects have the same names.
    let inputs: Vec<PathBuf> = ["one", "other"]
        .iter()
        .zip([100, 101])
        .map(|(name, functions)| {
            let below = folder.path().join(name);
            fs::create_dir(&below).unwrap();
            generated(&below, functions).profile
        })
        .collect();
    let start = |input: &Path| {
        let mut command = jitinject();
        with_usual_signals(&mut command).args([
            "-q",
            "--all",
            "-i",
            tools::text(input),
            "-o",
            tools::text(&output),
        ]);
        command
    };
    // A run that the system has delayed would leave hardly any signals for the others.
    let mut shortest = Duration::MAX;
    let states: Vec<State> = inputs
        .iter()
        .map(|input| {
            let began = Instant::now();
            assert!(start(input).status().unwrap().success());
            shortest = shortest.min(began.elapsed());
            State::of(folder.path())
        })
        .collect();
    let mut random = Random::new(count as u64);
    let (mut now, mut ended) = (1, 0);
    for round in 0..count {
        let signal = signals[round % signals.len()];
        let mut running = start(&inputs[1 - now]).spawn().unwrap();
        sleep(Duration::from_micros(
            random.below(1 + shortest.as_micros() as u64),
        ));
        send(&running, signal);
        let status = running.wait().unwrap();
        ended += usize::from(status.success());
        assert!(
            status.success() || status.signal() == Some(signal.as_raw()),
            "{status}"
        );
        let found = State::of(folder.path());
        let profile = states.iter().position(|state| state.profile == found.profile);
        let Some(profile) = profile else {
            panic!("after {signal:?}: the profile is none of the two");
        };
        let own = &states[profile].objects;
        assert!(
            own.iter().all(|object| found.objects.contains(object)),
            "after {signal:?}: an object is missing"
        );
        let left = left_over(folder.path());
        if signal == Signal::KILL {
            for path in left {
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        } else {
            assert_eq!(own, &found.objects, "after {signal:?}");
            assert_eq!(left, Vec::<PathBuf>::new(), "after {signal:?}");
        }
        if round % 10 == 9 {
            assert!(start(&inputs[profile]).status().unwrap().success());
        }
        now = profile;
    }
    assert!(ended < count, "all runs ended before the signal");
}

#[test]
fn a_later_run_removes_what_a_killed_one_has_left() {
    let folder = scratch();
    let generated = generated(folder.path(), 10_000);
    let mut running = stopped_at_work(folder.path(), || {
        let mut command = jitinject();
        long_run(&mut command, &generated.profile, folder.path());
        command
    });
    send(&running, Signal::KILL);
    running.wait().unwrap();
    assert_ne!(left_over(folder.path()), Vec::<PathBuf>::new());
    let mut command = jitinject();
    long_run(&mut command, &generated.profile, folder.path());
    assert!(command.status().unwrap().success());
    assert_eq!(left_over(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn killed_at_any_of_200_moments_there_is_one_output_and_it_is_whole() {
    kill_at_any_moment(200, &[Signal::KILL]);
}

#[test]
fn ended_by_any_signal_at_any_moment_there_is_one_output_and_it_is_whole() {
    kill_at_any_moment(50, &[Signal::TERM, Signal::INT, Signal::HUP]);
}

#[test]
#[ignore = "takes a minute"]
fn killed_at_any_of_many_moments_there_is_one_output_and_it_is_whole() {
    kill_at_any_moment(1000, &[Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP]);
}

#[test]
fn a_limit_for_the_size_of_files_is_an_error_like_others() {
    let scene = Scene::new();
    // In blocks of 512 bytes: too few for an object, and too few for the profile.
    for blocks in [1, 20] {
        let ran = scene.run_after(&format!("ulimit -f {blocks}"), &[]);
        let said = said(&ran);
        assert_eq!(ran.status.code(), Some(1), "{said}");
        let too_large = io::Error::from(Errno::FBIG).to_string();
        assert!(reports(&said, "JI401", &too_large), "{said}");
        assert!(reports(&said, "JI401", tools::text(&scene.output)), "{said}");
        assert!(said.contains("ulimit -f"), "{said}");
        scene.assert_unchanged(&said);
    }
}

#[test]
fn failed_writes_are_errors() {
    let scene = Scene::new();
    let full = Path::new("/dev/full");
    let ran = attempt(
        &scene.input,
        full,
        &["--elf-dir", tools::text(&scene.folder.path().join("new"))],
    );
    assert_eq!(ran.status.code(), Some(1));
    let no_space = cannot_write(full, Errno::NOSPC);
    assert!(reports(&said(&ran), "JI401", &no_space), "{}", said(&ran));
    let left = fs::read_dir(scene.folder.path().join("new")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "objects left without a profile");
    scene.assert_unchanged("/dev/full");

    let ran = attempt(
        &scene.input,
        &scene.folder.path().join("second"),
        &["--summary", "/dev/full"],
    );
    assert_eq!(ran.status.code(), Some(1));
    assert!(reports(&said(&ran), "JI401", &no_space), "{}", said(&ran));

    for path in ["/proc/out.data", "/sys/out.data"] {
        let ran = attempt(&scene.input, Path::new(path), &[]);
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        assert!(reports(&said(&ran), "JI401", path), "{}", said(&ran));
    }
    let missing = scene.folder.path().join("missing/out.data");
    let ran = attempt(&scene.input, &missing, &[]);
    assert_eq!(ran.status.code(), Some(1));
    let no_folder = cannot_write(&missing, Errno::NOENT);
    assert!(reports(&said(&ran), "JI401", &no_folder), "{}", said(&ran));
}

#[test]
fn a_folder_that_vanishes_is_an_error() {
    let folder = scratch();
    let generated = generated(folder.path(), 100);
    let below = folder.path().join("below");
    for stage in ["reading samples", "writing objects"] {
        fs::create_dir(&below).unwrap();
        let output = below.join("out.data");
        let result = run(&generated.profile, &output, stage, || {
            fs::remove_dir_all(&below).unwrap();
        });
        let error = result.unwrap_err();
        assert_eq!(error.issue.id(), "JI401");
        assert_eq!(error.to_string(), cannot_write(&output, Errno::NOENT));
        assert!(!below.exists());
    }
}

#[test]
fn few_open_files_are_enough_or_too_few() {
    let scene = Scene::new();
    let mut succeeded = false;
    for limit in (6..20).rev() {
        let ran = scene.run_after(&format!("ulimit -n {limit}"), &[]);
        match ran.status.code() {
            Some(0) => succeeded = true,
            Some(1) => {
                let said = said(&ran);
                let cause = io::Error::from(Errno::MFILE).to_string();
                assert!(
                    said.contains("error[JI4") && said.contains(&cause),
                    "{limit}: {said}"
                );
            }
            status => panic!("{limit}: {status:?}: {}", said(&ran)),
        }
        let state = State::of(scene.folder.path());
        assert!(
            state == scene.before || succeeded && state.objects.len() == 78,
            "{limit}"
        );
        assert_eq!(left_over(scene.folder.path()), Vec::<PathBuf>::new());
    }
    assert!(succeeded);
}

#[test]
fn where_memory_ends_the_old_output_stays() {
    let scene = Scene::new();
    let folder = scratch();
    let generated = generated(folder.path(), 5_000);
    let mut seen = Vec::new();
    // In KiB, from less than the program itself takes to enough. Threads are the first to fail.
    for limit in (8..128).map(|step| step * 1024) {
        let ran = Command::new("sh")
            .args(["-c", &format!("ulimit -v {limit}; exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_jitinject"))
            .args([
                "-i",
                tools::text(&generated.profile),
                "-o",
                tools::text(&scene.output),
            ])
            .output()
            .unwrap();
        let said = said(&ran);
        // Before `main`, the standard library may find no memory for a stack of its signal handler.
        let reaches_main = !said.contains("failed to allocate an alternative stack");
        assert!(!reaches_main || !said.contains("panicked"), "{limit} KiB: {said}");
        // If jitinject cannot be loaded, the status is that of the dynamic linker or of the shell.
        let is_started = reaches_main && said.lines().any(|line| line.starts_with("jitinject: "));
        match ran.status.code() {
            Some(0) => break,
            Some(1) if is_started => scene.assert_unchanged(&said),
            _ if !is_started => scene.assert_unchanged(&said),
            status => panic!("{limit} KiB: {status:?}: {said}"),
        }
        if is_started {
            seen.push(said);
        }
    }
    assert!(!seen.is_empty());
}

#[test]
fn a_closed_standard_output_loses_nothing_silently() {
    let folder = scratch();
    let summary = folder.path().join("out.data");
    for arguments in [
        &["-o", "-"][..],
        &["-o", "/dev/stdout"],
        &["-o", tools::text(&summary), "--summary", "-"],
    ] {
        let ran = Command::new("sh")
            .args(["-c", "exec \"$@\" >&-", "sh"])
            .arg(env!("CARGO_BIN_EXE_jitinject"))
            .args(["-i", tools::text(&capture::profile("php82"))])
            .args(["--elf-dir", tools::text(&folder.path().join("objects"))])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        assert!(has_code(&said(&ran), "JI411"), "{}", said(&ran));
    }
    // Output to /dev/null is not an error.
    let ran = jitinject()
        .args(["-i", tools::text(&capture::profile("php82")), "-o", "-"])
        .args(["--elf-dir", tools::text(&folder.path().join("objects"))])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
}

#[test]
fn a_reader_that_goes_away_is_an_error() {
    let folder = scratch();
    let plan = Plan {
        functions: 1000,
        samples: 50_000,
        ..Plan::default()
    };
    let generated = generate(folder.path(), &plan);
    let size = fs::metadata(&generated.profile).unwrap().len();
    assert!(size > 2 << 20, "a pipe could hold all {size} bytes");
    let objects = folder.path().join("objects");
    let mut running = jitinject()
        .args(["-i", tools::text(&generated.profile), "-o", "-"])
        .args(["--elf-dir", tools::text(&objects)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut start = [0; 16];
    let mut stdout = running.stdout.take().unwrap();
    stdout.read_exact(&mut start).unwrap();
    drop(stdout);
    let ran = running.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    let closed = cannot_write(Path::new("standard output"), Errno::PIPE);
    assert!(reports(&said(&ran), "JI401", &closed), "{}", said(&ran));
    let left = fs::read_dir(&objects).unwrap().count();
    assert_eq!(left, 0, "objects left without a profile");
}
