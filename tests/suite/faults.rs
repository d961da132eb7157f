//! What goes wrong around the program: files that are cut off under it, signals, full disks, limits. The old
//! output stays, or the new one is whole.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use jitinject::inject::{Options, Progress, inject as inject_here};
use jitinject::summary::Summary;

use crate::support::generator::{Generated, Plan, Random, generate};
use crate::support::{attempt, capture, inject, jitinject, model, said, scratch, tools};

/// Does something when a part of the work starts.
struct When<F: FnMut()> {
    part: &'static str,
    then: F,
}

impl<F: FnMut()> Progress for When<F> {
    fn start(&mut self, what: &'static str, _total: u64) {
        if what == self.part {
            (self.then)();
        }
    }

    fn advance(&mut self, _steps: u64) {}
}

fn made(folder: &Path, functions: u64) -> Generated {
    let plan = Plan {
        functions,
        samples: 2000,
        ..Plan::default()
    };
    generate(folder, &plan)
}

/// Runs in this process, and does something when a part of the work starts.
fn run(
    input: &Path,
    output: &Path,
    part: &'static str,
    then: impl FnMut(),
) -> Result<Summary, jitinject::inject::Error> {
    let options = Options {
        input: input.to_owned(),
        output: output.to_owned(),
        all: true,
        ..Options::default()
    };
    inject_here(&options, &mut When { part, then })
}

fn cut(path: &Path, size: u64) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(size)
        .unwrap();
}

#[test]
fn a_dump_that_is_cut_off_while_it_is_read_costs_what_is_gone() {
    for (part, size) in [
        ("reading samples", 0),
        ("reading samples", 100_000),
        ("writing objects", 0),
        ("writing objects", 123_456),
    ] {
        let folder = scratch();
        let generated = made(folder.path(), 1000);
        let dump = folder.path().join("jit-5000.dump");
        let output = folder.path().join("out.data");
        let summary = run(&generated.profile, &output, part, || cut(&dump, size)).unwrap();
        let text = summary.text(false);
        assert!(
            text.contains("jit-5000.dump: was changed while it was read, and is shorter now"),
            "{text}"
        );
        let records = model::parse(&fs::read(&output).unwrap()).records;
        assert!(records.len() > 2000);
    }
}

#[test]
fn a_profile_that_is_cut_off_while_it_is_read_is_an_error() {
    for (part, size) in [
        ("reading samples", 0),
        ("reading samples", 100_000),
        ("writing objects", 300),
    ] {
        let folder = scratch();
        let generated = made(folder.path(), 1000);
        let output = folder.path().join("out.data");
        inject(&generated.profile, &output, &[]);
        let before = State::of(folder.path());
        let error = run(&generated.profile, &output, part, || {
            cut(&generated.profile, size);
        });
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("perf.data was changed while it was read, and is shorter now"),
            "{error}"
        );
        assert!(State::of(folder.path()) == before);
        assert!(left_over(folder.path()).is_empty());
    }
}

/// All that is called after an output: the profile and its objects, each with its content.
#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    profile: Option<Vec<u8>>,
    objects: Vec<(PathBuf, Vec<u8>)>,
}

impl State {
    fn of(folder: &Path) -> Self {
        let entries = fs::read_dir(folder.join("out.data.elf"));
        let paths = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
        let mut objects: Vec<_> = paths
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        objects.sort();
        Self {
            profile: fs::read(folder.join("out.data")).ok(),
            objects,
        }
    }
}

/// What is left of an output that was not finished.
fn left_over(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_hidden = |path: &PathBuf| tools::text(path).contains("/.jitinject-");
    entries.filter(is_hidden).collect()
}

fn wait_for_start(folder: &Path, running: &mut Child) {
    while left_over(folder).is_empty() {
        assert!(
            running.try_wait().unwrap().is_none(),
            "it ended before it wrote anything"
        );
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn signals_that_end_the_program_leave_nothing_behind() {
    const SIGHUP: i32 = 1;
    const SIGINT: i32 = 2;
    const SIGTERM: i32 = 15;
    let folder = scratch();
    let generated = made(folder.path(), 40_000);
    let output = folder.path().join("out.data");
    fs::write(&output, "the old one").unwrap();
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let mut running = jitinject()
            .args(["-q", "--all", "--layout=function"])
            .args(["-i", tools::text(&generated.profile)])
            .args(["-o", tools::text(&output)])
            .spawn()
            .unwrap();
        wait_for_start(folder.path(), &mut running);
        kill(&running, signal);
        let status = running.wait().unwrap();
        assert_eq!(status.signal(), Some(signal), "{status}");
        assert_eq!(left_over(folder.path()), Vec::<PathBuf>::new());
        assert_eq!(fs::read(&output).unwrap(), b"the old one");
        assert!(!folder.path().join("out.data.elf").exists());
    }
}

#[test]
fn signals_that_are_ignored_stay_so() {
    let folder = scratch();
    let generated = made(folder.path(), 10_000);
    let output = folder.path().join("out.data");
    let mut running = Command::new("nohup")
        .arg(env!("CARGO_BIN_EXE_jitinject"))
        .args(["-q", "--all", "--layout=function"])
        .args(["-i", tools::text(&generated.profile)])
        .args(["-o", tools::text(&output)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_start(folder.path(), &mut running);
    kill(&running, 1);
    assert!(running.wait().unwrap().success());
    assert_eq!(State::of(folder.path()).objects.len(), 10_000);
}

fn kill(running: &Child, signal: i32) {
    let number = format!("-{signal}");
    tools::run("kill", &[&number, &running.id().to_string()]);
}

/// Kills the program at `count` random moments, while it replaces an output by another one. `signals` take turns.
fn kill_at_any_moment(count: usize, signals: &[i32]) {
    const SIGKILL: i32 = 9;
    let folder = scratch();
    let output = folder.path().join("out.data");
    // The same processes and functions, so that the objects have the same names.
    let inputs: Vec<PathBuf> = ["one", "other"]
        .iter()
        .zip([100, 101])
        .map(|(name, functions)| {
            let below = folder.path().join(name);
            fs::create_dir(&below).unwrap();
            made(&below, functions).profile
        })
        .collect();
    let start = |input: &Path| {
        let mut command = jitinject();
        command.args([
            "-q",
            "--all",
            "-i",
            tools::text(input),
            "-o",
            tools::text(&output),
        ]);
        command
    };
    let mut longest = Duration::ZERO;
    let states: Vec<State> = inputs
        .iter()
        .map(|input| {
            let began = Instant::now();
            assert!(start(input).status().unwrap().success());
            longest = longest.max(began.elapsed());
            State::of(folder.path())
        })
        .collect();
    let mut random = Random::new(count as u64);
    let (mut now, mut between, mut ended) = (1, 0, 0);
    for round in 0..count {
        let signal = signals[round % signals.len()];
        let mut running = start(&inputs[1 - now]).spawn().unwrap();
        sleep(Duration::from_micros(
            random.below(1 + longest.as_micros() as u64),
        ));
        kill(&running, signal);
        let status = running.wait().unwrap();
        ended += usize::from(status.success());
        assert!(status.success() || status.signal() == Some(signal), "{status}");
        let found = State::of(folder.path());
        let profile = states.iter().position(|state| state.profile == found.profile);
        let objects = states.iter().position(|state| state.objects == found.objects);
        let (Some(profile), Some(objects)) = (profile, objects) else {
            panic!("after signal {signal}: profile {profile:?}, objects {objects:?}");
        };
        let left = left_over(folder.path());
        if signal == SIGKILL {
            // Two names can't change at once.
            between += usize::from(profile != objects);
            for path in left {
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        } else {
            assert_eq!(profile, objects, "after signal {signal}");
            assert_eq!(left, Vec::<PathBuf>::new(), "after signal {signal}");
        }
        if profile != objects || round % 10 == 9 {
            assert!(start(&inputs[profile]).status().unwrap().success());
        }
        now = profile;
    }
    assert!(
        between <= 1 + count / 100,
        "{between} of {count} between two names"
    );
    assert!(ended < count, "all of them were through before");
}

#[test]
fn killed_at_any_of_200_moments_there_is_one_output_and_it_is_whole() {
    kill_at_any_moment(200, &[9]);
}

#[test]
fn ended_by_any_signal_at_any_moment_there_is_one_output_and_it_is_whole() {
    kill_at_any_moment(50, &[15, 2, 1]);
}

#[test]
#[ignore = "takes a minute"]
fn killed_at_any_of_many_moments_there_is_one_output_and_it_is_whole() {
    kill_at_any_moment(1000, &[9, 15, 2, 1]);
}

/// An input, and an output of an earlier run.
struct Scene {
    folder: tempfile::TempDir,
    input: PathBuf,
    output: PathBuf,
    before: State,
}

impl Scene {
    fn new() -> Self {
        let folder = scratch();
        let output = folder.path().join("out.data");
        inject(&capture::profile("wasmtime"), &output, &[]);
        Self {
            input: capture::profile("php82"),
            output,
            before: State::of(folder.path()),
            folder,
        }
    }

    /// Runs the program from a shell that does `first`.
    fn run_after(&self, first: &str, more: &[&str]) -> Output {
        Command::new("sh")
            .args(["-c", &format!("{first}; exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_jitinject"))
            .args(["--all", "-i", tools::text(&self.input)])
            .args(["-o", tools::text(&self.output)])
            .args(more)
            .output()
            .unwrap()
    }

    fn assert_unchanged(&self, what: &str) {
        assert!(State::of(self.folder.path()) == self.before, "{what}");
        assert_eq!(left_over(self.folder.path()), Vec::<PathBuf>::new(), "{what}");
    }
}

#[test]
fn a_limit_for_the_size_of_files_is_an_error_like_others() {
    let scene = Scene::new();
    // in blocks of 512 bytes: too small for an object, too small for the profile
    for blocks in [1, 20] {
        let ran = scene.run_after(&format!("ulimit -f {blocks}"), &[]);
        let said = said(&ran);
        assert_eq!(ran.status.code(), Some(1), "{said}");
        assert!(
            said.contains("ulimit -f") && said.contains("cannot write"),
            "{said}"
        );
        scene.assert_unchanged(&said);
    }
}

#[test]
fn a_full_disk_is_an_error_and_the_old_output_stays() {
    let scene = Scene::new();
    // A file system that has room for so many KiB, the old output among them, and one for the profile alone.
    const SCRIPT: &str = "
        set -e
        mount -t tmpfs -o size=$1k none \"$2\"
        cp \"$3\" \"$2/out.data\"
        \"$4\" --all -i \"$5\" -o \"$2/out.data\" || status=$?
        test \"${status:-0}\" != 0 || exit 0
        cmp \"$3\" \"$2/out.data\"
        test \"$(ls -A \"$2\")\" = out.data
        exit $status";
    let mounted = scene.folder.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let old = fs::metadata(&scene.output).unwrap().len() / 1024;
    let mut failures = 0;
    for room in (old + 12..).step_by(60) {
        let ran = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"])
            .args([
                &room.to_string(),
                tools::text(&mounted),
                tools::text(&scene.output),
            ])
            .args([env!("CARGO_BIN_EXE_jitinject"), tools::text(&scene.input)])
            .output()
            .unwrap();
        let said = said(&ran);
        if said.contains("next: perf report") {
            break;
        }
        assert_eq!(ran.status.code(), Some(1), "{room} KiB: {said}");
        assert!(said.contains("No space left on device"), "{said}");
        assert!(said.contains("note: make room there"), "{said}");
        failures += 1;
    }
    assert!(failures > 3, "{failures}");
}

#[test]
fn what_cannot_be_written_to_is_told() {
    let scene = Scene::new();
    let full = Path::new("/dev/full");
    let ran = attempt(
        &scene.input,
        full,
        &["--elf-dir", tools::text(&scene.folder.path().join("new"))],
    );
    assert_eq!(ran.status.code(), Some(1));
    assert!(
        said(&ran).contains("cannot write /dev/full: No space left"),
        "{}",
        said(&ran)
    );
    let left = fs::read_dir(scene.folder.path().join("new")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "objects without a profile");
    scene.assert_unchanged("/dev/full");

    let ran = attempt(
        &scene.input,
        &scene.folder.path().join("second"),
        &["--summary", "/dev/full"],
    );
    assert_eq!(ran.status.code(), Some(1));
    assert!(
        said(&ran).contains("cannot write the summary /dev/full: No space left"),
        "{}",
        said(&ran)
    );

    for folder in ["/proc", "/sys"] {
        let ran = attempt(&scene.input, &Path::new(folder).join("out.data"), &[]);
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        assert!(said(&ran).contains("cannot write"), "{}", said(&ran));
    }
    let missing = scene.folder.path().join("missing/out.data");
    let ran = attempt(&scene.input, &missing, &[]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(said(&ran).contains("No such file or directory"), "{}", said(&ran));
}

#[test]
fn a_read_only_folder_stays_as_it_is() {
    const SCRIPT: &str = "
        mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && exec \"$2\" --all -i \"$3\" -o \"$1/out.data\"";
    let scene = Scene::new();
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"])
        .args([tools::text(scene.folder.path()), env!("CARGO_BIN_EXE_jitinject")])
        .arg(&scene.input)
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(said(&ran).contains("Read-only file system"), "{}", said(&ran));
    scene.assert_unchanged("read only");
}

#[test]
fn a_folder_that_vanishes_is_an_error() {
    let folder = scratch();
    let generated = made(folder.path(), 100);
    let below = folder.path().join("below");
    for part in ["reading samples", "writing objects"] {
        fs::create_dir(&below).unwrap();
        let output = below.join("out.data");
        let result = run(&generated.profile, &output, part, || {
            fs::remove_dir_all(&below).unwrap();
        });
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("No such file or directory")
        );
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
                assert!(said.contains("Too many open files"), "{limit}: {said}");
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
    let generated = made(folder.path(), 20_000);
    let mut seen = Vec::new();
    // from less than the program itself takes to enough, in KiB
    for limit in (8..128).map(|step| step * 1024).step_by(3) {
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
        // The program that loads programs has a status of its own, and so has the shell.
        let is_started = said.lines().any(|line| line.starts_with("jitinject: "));
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
        assert!(said(&ran).contains("standard output is closed"), "{}", said(&ran));
    }
    // Who wants nothing of it may say so.
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
    let generated = made(folder.path(), 5000);
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
    assert!(
        said(&ran).contains("cannot write standard output: Broken pipe"),
        "{}",
        said(&ran)
    );
    assert_eq!(fs::read_dir(&objects).unwrap().count(), 0, "objects of nothing");
}
