//! `jitinject record`, with a perf that copies a recording.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::support::processes::{wait_for_rounds, wait_until};
use crate::support::reports::reports;
use crate::support::{capture, codes, has_code, said, scratch, shown, tools};

/// A folder with programs, which is all of `PATH` except for the shell's.
pub struct Scene {
    folder: tempfile::TempDir,
}

/// Runs the program after `--` and exits with its status.
pub const PERF: &str = r#"
[ "$1" != --version ] || { echo "perf version 6.1.0"; exit; }
output=
while [ $# -gt 0 ] && [ "$1" != -- ]; do [ "$1" != -o ] || output=$2; shift; done
[ $# -eq 0 ] || shift
cp CAPTURE/perf.data "$output"
[ -z "$JITDUMPDIR" ] || cp CAPTURE/jit-26234.dump "$JITDUMPDIR"
"$@"
"#;

impl Scene {
    pub fn new(perf: &str) -> Self {
        let scene = Self { folder: scratch() };
        std::fs::create_dir(scene.path("bin")).unwrap();
        std::fs::create_dir(scene.path("work")).unwrap();
        let capture = capture::folder("php82");
        scene.add("perf", &perf.replace("CAPTURE", tools::text(&capture)));
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a script for the shell.
    pub fn add(&self, name: &str, script: &str) {
        self.add_file(name, &format!("#!/bin/sh\n{script}\n"));
    }

    pub fn add_file(&self, name: &str, content: &str) {
        tools::add_program(&self.path("bin").join(name), content.as_bytes());
    }

    /// Returns jitinject in the folder `work`, without variables of runtimes.
    pub fn command(&self, arguments: &[&str]) -> Command {
        // Programs in the background of a script inherit that SIGINT is ignored, and a shell cannot undo that.
        let mut command = Command::new("/usr/bin/env");
        command
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_jitinject")])
            .args(arguments)
            .current_dir(self.path("work"))
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Returns what `record --print` prints for a command.
    fn printed(&self, options: &[&str], command: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        let arguments = [&["record", "--print", "-o", "r"], options, &["--"], &words].concat();
        let output = self.run(&arguments);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(std::fs::read_dir(self.path("work")).unwrap().count(), 0);
        String::from_utf8(output.stdout).unwrap()
    }
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_style_of_names_is_printed() {
    let scene = Scene::new(PERF);
    let printed = scene.printed(&["--names", "{name} [{tier}]"], "node app.js");
    assert!(printed.contains(" --names '{name} [{tier}]'\n"), "{printed}");
    assert!(!scene.printed(&[], "node app.js").contains("--names"));
}

#[test]
fn the_plan_of_each_runtime_can_be_printed() {
    let scene = Scene::new(PERF);
    let dumps = scene.path("work/r/dumps");
    let dumps = tools::text(&dumps);
    scene.add_file("tool", "#!/usr/bin/env node\n");
    // Its build has no frame pointers.
    scene.add("python3", "exit 0");
    scene.add_file("task", "#!/usr/bin/env python3\n");
    scene.add("ruby", "echo 'ruby 4.0.0 +YJIT +ZJIT [x86_64-linux]'");
    let node = "export NODE_OPTIONS='--perf-prof --interpreted-frames-native-stack'".to_owned();
    let java = "-XX:+DumpPerfMapAtExit".to_owned();
    let erlang = "export ERL_FLAGS='+JPperf true'".to_owned();
    let dwarf = "--call-graph dwarf,32768".to_owned();
    for (command, expected) in [
        ("node app.js", &node),
        ("npm test", &node),
        ("npx jest", &node),
        ("tool", &node),
        ("make", &node),
        (
            "deno run a.ts",
            &format!(
                "export DENO_V8_FLAGS=--perf-prof,--interpreted-frames-native-stack,--perf-prof-path={dumps}"
            ),
        ),
        ("bun a.ts", &format!("export BUN_JSC_jitDumpDirectory={dumps}")),
        ("python3.13 a.py", &dwarf),
        ("pytest", &dwarf),
        ("task", &dwarf),
        ("python3 a.py", &"export PYTHON_PERF_JIT_SUPPORT=1".to_owned()),
        ("php a.php", &format!("export PHP_INI_SCAN_DIR=:{dumps}/php")),
        ("erl -noinput", &erlang),
        ("mix test", &erlang),
        ("java App", &java),
        ("gradle test", &java),
        ("javac App.java", &java),
        ("mono app.exe", &"export MONO_ENV_OPTIONS=--jitmap".to_owned()),
        ("mono app.exe", &"export MONO_DEBUG=disable_omit_fp".to_owned()),
        (
            "dotnet app.dll",
            &format!("export DOTNET_PerfMapJitDumpPath={dumps}"),
        ),
        ("ruby a.rb", &"export RUBYOPT='--yjit --yjit-perf'".to_owned()),
        (
            "ruby --zjit a.rb",
            &"export RUBYOPT='--zjit --zjit-perf'".to_owned(),
        ),
        ("raku a.raku", &"export MVM_JIT_PERF_DUMP=1".to_owned()),
        (
            "dart run a.dart",
            &"-- dart --generate_perf_jitdump run a.dart\n".to_owned(),
        ),
        (
            "wasmer run a.wasm",
            &"-- wasmer run --profiler=perfmap a.wasm\n".to_owned(),
        ),
        (
            "hhvm a.hack",
            &"-- hhvm -vEval.PerfJitDump=true a.hack\n".to_owned(),
        ),
        ("dotnet app.dll", &"export COMPlus_PerfMapEnabled=1".to_owned()),
        ("julia a.jl", &"export ENABLE_JITPROFILING=1".to_owned()),
        ("lli app.ll", &"-- lli -jit-kind=mcjit app.ll\n".to_owned()),
        (
            "wasmtime run a.wasm",
            &"-- wasmtime run --profile=jitdump a.wasm\n".to_owned(),
        ),
        ("app", &format!("export JITDUMPDIR={dumps}")),
    ] {
        let printed = scene.printed(&[], command);
        assert!(printed.contains(expected), "{command}: {expected}: {printed}");
        let is_dwarf = printed.contains(&dwarf);
        assert_eq!(is_dwarf, ["py", "ta"].contains(&&command[..2]), "{printed}");
        assert_eq!(is_dwarf, printed.contains(" --unwind\n"), "{printed}");
        assert_eq!(
            printed.contains("JAVA_TOOL_OPTIONS"),
            expected == &java,
            "{printed}"
        );
        assert_eq!(printed.contains("ERL_FLAGS"), expected == &erlang, "{printed}");
    }
}

#[test]
fn options_choose_what_is_set_and_recorded() {
    let scene = Scene::new(PERF);
    let plain = scene.printed(&["--no-env"], "lli app.ll");
    assert!(!plain.contains("export"), "{plain}");
    assert!(
        plain.contains("\nperf record -q -k mono -F 999 -g -N -o r/perf.data -- lli app.ll\n"),
        "{plain}"
    );
    std::fs::write(scene.path("agent.so"), "").unwrap();
    let with_agent = ["--runtime", "java", "--java-agent", "../agent.so"];
    let java = scene.printed(&with_agent, "make");
    let agent = format!("-agentpath:{}/../agent.so", scene.path("work").display());
    assert!(java.contains(&agent) && !java.contains("NODE_OPTIONS"), "{java}");
    let options = [
        "-e",
        "cpu-clock",
        "-F",
        "99",
        "--call-graph",
        "dwarf",
        "--perf-args",
        "-z --max-size 1G",
    ];
    let printed = scene.printed(&options, "node -e 1");
    let line = "perf record -q -k mono -e cpu-clock -F 99 --call-graph dwarf -N --buildid-all -z --max-size 1G -o r/perf.data -- node -e 1\n";
    assert!(printed.contains(line), "{printed}");
    assert!(printed.contains("--perf-prof-unwinding-info"), "{printed}");
    let attached = scene.run(&["record", "--print", "-o", "r", "-p", "1", "--duration", "2.5"]);
    let attached = String::from_utf8(attached.stdout).unwrap();
    assert!(
        attached.contains(" -p 1 -N -o r/perf.data -- sleep 2.5\n"),
        "{attached}"
    );
}

/// The printed commands do the same as the command itself.
#[test]
fn what_is_printed_can_be_run() {
    let scene = Scene::new(PERF);
    let program = format!("'{}'", env!("CARGO_BIN_EXE_jitinject"));
    scene.add("jitinject", &format!("exec {program} \"$@\""));
    scene.add("php", "echo \"$JITDUMPDIR $PHP_INI_SCAN_DIR\"");
    let printed = scene.printed(&[], "php app.php");
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &printed]).current_dir(scene.path("work"));
    let path = format!("{}:/usr/bin:/bin", scene.path("bin").display());
    let output = shell.env_clear().env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("198 of them named (100.0 %)"),
        "{}",
        said(&output)
    );
    assert!(scene.path("work/r/dumps/php/jitinject.ini").exists());
}

#[test]
fn variables_that_are_set_keep_their_values() {
    let scene = Scene::new(PERF);
    scene.add(
        "node",
        "echo \"$NODE_OPTIONS|$JITDUMPDIR|$DOTNET_PerfMapEnabled\"",
    );
    let output = scene
        .command(&["record", "-o", "r", "--", "node", "app.js"])
        .env("NODE_OPTIONS", "--max-old-space-size=512")
        .env("DOTNET_PerfMapEnabled", "3")
        .output()
        .unwrap();
    let expected = format!(
        "--max-old-space-size=512 --perf-prof --interpreted-frames-native-stack|{}|3\n",
        scene.path("work/r/dumps").display()
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn a_recording_is_one_folder() {
    let scene = Scene::new(PERF);
    scene.add("php", "exit 0");
    let output = scene.run(&["record", "-o", "r", "--label", "commit=1", "--", "php", "app.php"]);
    let said_text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said_text}");
    assert!(
        said_text.contains("366 samples, 198 in JIT code, 198 of them named (100.0 %)"),
        "{said_text}"
    );
    assert!(
        said_text.contains(" charged     self    total  function"),
        "{said_text}"
    );
    assert!(said_text.contains("  TRACE-"), "{said_text}");
    let next = "jitinject: next: jitinject report r\njitinject:   or: perf report --no-children -i r/perf.jit.data\n";
    assert!(said_text.ends_with(next), "{said_text}");
    let folder = scene.path("work/r");
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "debug",
        "dumps",
        "manifest.json",
        "perf.data",
        "perf.jit.data",
        "perf.jit.data.elf",
        "summary.json",
    ];
    assert_eq!(names, expected);
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(shown::leaves(&folder.join("perf.jit.data")).len(), 366);
    let manifest = json(&folder.join("manifest.json"));
    assert_eq!(manifest["command"], serde_json::json!(["php", "app.php"]));
    assert_eq!(manifest["runtimes"], serde_json::json!(["PHP"]));
    assert!(manifest["processes"].is_array());
    assert_eq!(manifest["exit_status"], 0);
    assert_eq!(manifest["perf_version"], "perf version 6.1.0");
    let dumps = folder.join("dumps");
    assert_eq!(manifest["environment"]["JITDUMPDIR"], tools::text(&dumps));
    assert_eq!(
        json(&folder.join("summary.json"))["profile"]["labels"]["commit"],
        "1"
    );
    // Nothing is overwritten.
    let again = scene.run(&["record", "-o", "r", "--", "php", "app.php"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        reports(&said(&again), "JI442", "r: already exists"),
        "{}",
        said(&again)
    );
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), expected.len());
}

#[test]
fn a_recording_without_a_name_has_a_folder_that_no_other_one_of_its_second_has() {
    let scene = Scene::new(PERF);
    let now = SystemTime::now();
    for seconds in 0..120 {
        let time = humantime::format_rfc3339_seconds(now + Duration::from_secs(seconds)).to_string();
        let time = time.replace([':', '-', 'Z'], "").replace('T', "-");
        std::fs::create_dir(scene.path(&format!("work/jitinject-record-{time}"))).unwrap();
    }
    let output = scene.run(&["record", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let recorded = std::fs::read_dir(scene.path("work")).unwrap();
    let recorded = recorded.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let recorded: Vec<String> = recorded.filter(|name| name.matches('-').count() > 3).collect();
    assert!(
        matches!(&recorded[..], [name] if name.ends_with("-2")),
        "{recorded:?}"
    );
}

#[test]
fn recordings_without_a_name_can_begin_at_the_same_time() {
    let scene = Scene::new(PERF);
    let commands = [
        &["record", "-q", "--", "true"][..],
        &["record", "-q", "--runs", "2", "--", "true"],
    ];
    let start = |at: usize| scene.command(commands[at % 2]).spawn().unwrap();
    let mut running: Vec<_> = (0..6).map(start).collect();
    for recording in &mut running {
        assert!(recording.wait().unwrap().success());
    }
    assert_eq!(std::fs::read_dir(scene.path("work")).unwrap().count(), 6);
}

/// As perf does with --threads and --kcore.
#[test]
fn the_profile_of_a_recording_may_be_a_folder() {
    let scene = Scene::new(
        &PERF
            .replace(" \"$output\"\n", " \"$output/data\"\n")
            .replace("cp CAPTURE", "mkdir \"$output\"; cp CAPTURE"),
    );
    let output = scene.run(&["record", "-o", "r", "--", "true"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(scene.path("work/r/perf.data/data").exists());
    let report = scene.run(&["report", "r"]);
    assert!(report.status.success(), "{}", said(&report));
}

#[test]
fn the_exit_status_is_that_of_the_program() {
    let scene = Scene::new(PERF);
    let status = |name: &str, more: &[&str], command: &[&str]| {
        let output = scene.run(&[&["record", "-q", "-o", name], more, &["--"], command].concat());
        output.status.code()
    };
    assert_eq!(status("a", &[], &["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(status("b", &[], &["sh", "-c", "kill -SEGV $$"]), Some(139));
    assert_eq!(status("c", &["--fail-under", "100"], &["true"]), Some(0));
    // Options of the program are its own.
    assert_eq!(status("d", &[], &["sh", "-c", "exit $1", "-o", "4"]), Some(4));
    let output = scene.run(&["record", "-q", "-o", "e", "sh", "-c", "exit $1", "-o", "5"]);
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    let without = Scene::new(&PERF.replace("jit-26234.dump", "absent 2>/dev/null"));
    let output = without.run(&["record", "-o", "r", "--fail-under", "90", "--", "true"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(has_code(&said(&output), "JI416"));
}

/// A program that counts its signals, and exits with the count after the first.
const COUNTER: &str = "n=0; trap 'n=$((n+1))' INT TERM USR1 USR2; : > ready; i=0
    while [ $i -lt 300 ]; do sleep 0.05; i=$((i+1)); [ $n = 0 ] || { sleep 0.3; exit $((n + 40)); }; done";

#[test]
fn a_signal_reaches_the_program_once_and_the_profile_is_whole() {
    for signal in ["-INT", "-TERM", "-USR1", "-USR2"] {
        let scene = Scene::new(PERF);
        scene.add("counter", COUNTER);
        let mut running = scene
            .command(&["record", "-q", "-o", "r", "--", "counter"])
            .spawn()
            .unwrap();
        wait_until("the program", || scene.path("work/ready").exists());
        tools::run("kill", &[signal, &running.id().to_string()]);
        assert_eq!(running.wait().unwrap().code(), Some(41), "{signal}");
        assert_eq!(json(&scene.path("work/r/summary.json"))["samples"]["named"], 198);
        assert_eq!(json(&scene.path("work/r/manifest.json"))["exit_status"], 41);
    }
}

#[test]
fn a_recording_ends_after_its_duration() {
    let scene = Scene::new(PERF);
    scene.add("server", "trap 'exit 3' TERM; while :; do sleep 0.1; done");
    let output = scene.run(&["record", "--duration", "0.5", "-o", "r", "--", "server"]);
    // The signal may come before the shell has read the first command.
    let code = output.status.code().unwrap();
    assert!([3, 0].contains(&code), "{code}: {}", said(&output));
}

#[test]
fn the_program_is_the_first_one_in_the_path_of_the_user() {
    // perf puts the folder of its own program in front.
    let scene = Scene::new(&format!("PATH=OTHER:$PATH{PERF}"));
    let other = scene.path("other");
    std::fs::create_dir(&other).unwrap();
    let perf = std::fs::read_to_string(scene.path("bin/perf")).unwrap();
    scene.add_file("perf", &perf.replace("OTHER", tools::text(&other)));
    scene.add("php", "echo mine; env | grep PATH");
    let wrong = other.join("php");
    tools::add_program(&wrong, b"#!/bin/sh\necho wrong\n");
    let output = scene.run(&["record", "-q", "-o", "r", "--", "php"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let path = format!("mine\nPATH={}:/usr/bin:/bin\n", scene.path("bin").display());
    assert_eq!(printed, path);
}

#[test]
fn a_recording_can_be_named_and_read_again() {
    let scene = Scene::new(PERF);
    let output = scene.run(&["record", "-q", "-o", "r", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    std::fs::rename(scene.path("work/r"), scene.path("work/moved")).unwrap();
    for input in ["moved", "moved/perf.data"] {
        let output = scene.run(&[input, "-o", "again"]);
        assert!(said(&output).contains("198 of them named"), "{}", said(&output));
        let output = scene.run(&["timeline", input, "-o", "page.html"]);
        assert!(said(&output).contains("in JIT code: 198"), "{}", said(&output));
    }
    let again = scene.run(&["moved/perf.jit.data", "-o", "third"]);
    let page = scene.run(&["timeline", "moved/perf.jit.data", "-o", "page.html"]);
    for output in [again, page] {
        let said = said(&output);
        assert!(reports(&said, "JI166", "already"), "{said}");
        assert!(said.contains("help: Read the original profile"), "{said}");
        assert!(!has_code(&said, "JI173"), "{said}");
    }
}

#[test]
fn failures_leave_nothing_and_say_what_to_do() {
    let refused = "echo 'Error:' >&2; echo 'Access to performance monitoring is limited.' >&2; exit 255";
    for (perf, command, status, code) in [
        (PERF, "absent", 127, "JI441"),
        (PERF, "broken", 127, "JI441"),
        ("echo 'unknown event' >&2; exit 129", "true", 1, "JI443"),
        (refused, "true", 1, "JI44"),
    ] {
        let scene = Scene::new(perf);
        scene.add_file("broken", "#!/absent/interpreter\n");
        let output = scene.run(&["record", "-o", "r", "--", command]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(&format!("error[{code}")), "{said}");
        assert!(said.contains("jitinject: help: "), "{said}");
        assert_eq!(
            std::fs::read_dir(scene.path("work")).unwrap().count(),
            0,
            "{said}"
        );
        // The level of this machine decides which of both it is.
        let is_refused = ["JI444", "JI445"].iter().any(|&code| has_code(&said, code));
        assert_eq!(is_refused, perf == refused, "{said}");
    }
    let scene = Scene::new(PERF);
    std::fs::remove_file(scene.path("bin/perf")).unwrap();
    let without = scene
        .command(&["record", "-o", "r", "--", "/bin/true"])
        .env("PATH", scene.path("bin"))
        .output()
        .unwrap();
    assert_eq!(without.status.code(), Some(1));
    assert_eq!(codes(&said(&without)), ["JI440"], "{}", said(&without));
    assert!(!scene.path("work/r").exists());
}

#[test]
fn what_cannot_be_started_is_explained() {
    let scene = Scene::new(PERF);
    std::fs::write(scene.path("work/app.js"), "").unwrap();
    for (command, cause) in [
        ("./app.js", "it is not executable"),
        ("app.js", "no program in PATH, but a file here"),
        ("..", "it is a directory"),
        ("absent", "no such program"),
    ] {
        let output = scene.run(&["record", "-o", "r", command]);
        assert_eq!(output.status.code(), Some(127), "{command}");
        let said = said(&output);
        assert!(
            said.contains(&format!("{command} cannot be started: {cause}")),
            "{said}"
        );
    }
}

#[test]
fn there_is_something_to_record() {
    let scene = Scene::new(PERF);
    for arguments in [
        &["record"][..],
        &["record", "-o", "r"],
        &["record", "-p", "1", "--", "true"],
        &["record", "--duration", "0", "--", "true"],
        &["record", "--runtime", "cobol", "--", "true"],
        &["record", "-p", "x"],
        &["record", "--perf-args", "--switch-output=1M", "--", "true"],
        &["record", "--perf-args", "-z --timestamp-filename", "--", "true"],
        &["record", "--nonsense", "--", "true"],
    ] {
        let output = scene.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
    }
    assert_eq!(std::fs::read_dir(scene.path("work")).unwrap().count(), 0);
}

/// perf has not started the program yet.
#[test]
fn an_early_signal_leaves_nothing() {
    let scene = Scene::new("trap 'exit 1' USR1; echo $$ > pid; mv pid ready; while :; do sleep 0.1; done");
    let mut running = scene
        .command(&["record", "-o", "r", "--", "true"])
        .spawn()
        .unwrap();
    wait_until("perf", || scene.path("work/ready").exists());
    let perf = std::fs::read_to_string(scene.path("work/ready")).unwrap();
    tools::run("kill", &["-TERM", &running.id().to_string()]);
    wait_for_rounds(&running, 5);
    tools::run("kill", &["-USR1", perf.trim()]);
    assert_eq!(running.wait().unwrap().code(), Some(143));
    assert!(!scene.path("work/r").exists());
}

#[test]
fn the_summary_can_also_be_written_elsewhere() {
    let scene = Scene::new(PERF);
    scene.add("php", "exit 0");
    let file = scene.path("work/ci.json");
    let output = scene.run(&["record", "-o", "r", "--summary", "ci.json", "--", "php"]);
    assert!(output.status.success(), "{}", said(&output));
    let summary = std::fs::read(scene.path("work/r/summary.json")).unwrap();
    assert_eq!(std::fs::read(file).unwrap(), summary);
    let output = scene.run(&["record", "-q", "-o", "r2", "--summary", "-", "--", "php"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["samples"]["total"], 366, "{printed}");
    // Nothing is recorded if it cannot be written.
    let output = scene.run(&["record", "-o", "r3", "--summary", "absent/ci.json", "--", "php"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(!scene.path("work/r3").exists());
}

/// The program is a shell with the name of a runtime, and ends when it has been reported.
#[test]
fn a_process_that_burns_time_and_logs_nothing_is_reported_meanwhile() {
    let scene = Scene::new(PERF);
    tools::copy_program("/bin/sh", &scene.path("bin/node"));
    let arguments = ["record", "-o", "r", "--duration", "120", "--", "node"];
    let mut running = scene
        .command(&arguments)
        .args(["-c", "while [ ! -e stop ]; do :; done"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let warning = lines.find(|line| has_code(line, "JI449")).unwrap_or_default();
    std::fs::write(scene.path("work/stop"), "").unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(
        warning.contains("Node.js") && warning.contains("--perf-prof"),
        "{warning}"
    );
    assert_eq!(running.wait().unwrap().code(), Some(0));
    // No status line without a terminal, and one warning.
    let is_clean = |line: &String| line.starts_with("jitinject: ") && !has_code(line, "JI449");
    assert!(rest.iter().all(is_clean) && !rest.is_empty(), "{rest:?}");
}
