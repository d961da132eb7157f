//! `jitinject record` with perf and real runtimes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use jitinject::Issue;
use jitinject::internals::files::walk::Scope;
use jitinject::internals::files::{Folder, NameInFolder};
use jitinject::internals::record::pack;
use serde_json::Value;

use crate::support::processes::wait_until;
use crate::support::{perf, said, scratch, tools};

/// Minimum number of samples in JIT code; each program computes for about a second.
pub const MIN_SAMPLES: u64 = 50;

/// A folder with the program to record.
pub struct Scene {
    pub folder: tempfile::TempDir,
}

impl Scene {
    /// Copies programs, each to another name.
    pub fn new(programs: &[(&str, &str)]) -> Self {
        let folder = scratch();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/external/programs");
        for (program, name) in programs {
            std::fs::copy(source.join(program), folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a program that builds the one to record.
    pub fn prepare(&self, program: &str, arguments: &[&str]) {
        let built = Command::new(program)
            .args(arguments)
            .current_dir(self.folder.path())
            .status()
            .unwrap_or_else(|error| panic!("{program}: {error}; scripts/test installs it"));
        assert!(built.success());
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        // Programs in the background of a script inherit that SIGINT is ignored.
        let mut command = Command::new("/usr/bin/env");
        command
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_jitinject")])
            .args(["record", "-o", "r"])
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    pub fn record(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("r").join(name)).unwrap()).unwrap()
    }

    /// Returns the names of all files beside the recording.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| name != "r");
        names.sort();
        names
    }

    /// Records a command, and checks that its samples in JIT code have names, most of which contain `function`. Nothing else
    /// is left in the working directory.
    pub fn check(&self, command: &[&str], function: &str) {
        let before = self.files();
        let output = self.record(&[&["--"], command].concat());
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        let summary = self.json("summary.json");
        let samples = &summary["samples"];
        let jit = samples["jit"].as_u64().unwrap();
        assert!(jit >= MIN_SAMPLES, "{samples}");
        assert!(samples["named_percent"].as_f64().unwrap() >= 95.0, "{samples}");
        let of_function = self.count(function, "r/perf.jit.data", None);
        assert!(of_function * 2 > jit, "{function}: {samples}");
        assert_eq!(self.files(), before);
        for kind in ["dumps", "perf_maps"] {
            for file in summary[kind].as_array().unwrap() {
                let path = file["path"].as_str().unwrap();
                assert!(path.contains("r/dumps/"), "{summary:#}");
            }
        }
        self.assert_no_maps();
    }

    /// Records a command again, which does not request a jitdump, and checks what is said about it.
    pub fn check_advice(&self, command: &[&str], advice: &str) {
        std::fs::remove_dir_all(self.path("r")).unwrap();
        let output = self.record(&[&["--"], command].concat());
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(advice), "{said}");
    }

    /// Returns the number of samples in functions whose name contains a text, as perf prints them.
    pub fn count(&self, function: &str, profile: &str, cache: Option<&str>) -> u64 {
        let profile = self.path(profile);
        let empty = scratch();
        let cache = cache.map_or(empty.path().to_owned(), |cache| self.path(cache));
        let arguments = ["script", "-i", tools::text(&profile), "-F", "ip,sym", "-G"];
        let printed = perf::perf_with_cache("perf", &cache, &arguments);
        printed.lines().filter(|line| line.contains(function)).count() as u64
    }

    /// Removes the perf maps that processes which went on left in /tmp.
    pub fn remove_maps(&self) {
        for file in self.json("manifest.json")["files"].as_array().unwrap() {
            let path = file["written_to"].as_str().unwrap();
            if path.starts_with("/tmp/perf-") {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Checks that no perf map of the runtimes is left in /tmp.
    pub fn assert_no_maps(&self) {
        for file in self.json("manifest.json")["files"].as_array().unwrap() {
            let path = file["written_to"].as_str().unwrap();
            assert!(
                !path.starts_with("/tmp/perf-") || !Path::new(path).exists(),
                "{path}"
            );
        }
    }
}

#[test]
fn node() {
    Scene::new(&[("fib.js", "app.js")]).check(&["node", "app.js"], "JS:*fib ");
}

/// A launcher like `npm test`, which starts the runtime in another folder.
#[test]
fn a_script_that_starts_node() {
    let scene = Scene::new(&[("fib.js", "app.js")]);
    std::fs::create_dir(scene.path("inner")).unwrap();
    scene.check(&["sh", "-c", "cd inner && node ../app.js; exit"], "JS:*fib ");
    assert_eq!(std::fs::read_dir(scene.path("inner")).unwrap().count(), 0);
}

#[test]
fn php() {
    Scene::new(&[("fib.php", "app.php")]).check(&["php", "app.php"], "$fib$");
}

#[test]
fn erlang() {
    let scene = Scene::new(&[("app.erl", "app.erl")]);
    scene.prepare("erlc", &["app.erl"]);
    scene.check(&["erl", "-noinput", "-s", "app", "main"], "app:fib/1");
}

#[test]
fn mono() {
    let scene = Scene::new(&[("fib.cs", "app.cs")]);
    scene.prepare("mcs", &["-out:app.exe", "app.cs"]);
    scene.check(&["mono", "app.exe"], "App:Fib");
}

#[test]
fn llvm() {
    Scene::new(&[("fib.ll", "app.ll")]).check(&["lli", "app.ll"], "fib");
}

/// A program of one's own, which must request the jitdump.
#[test]
#[ignore = "scripts/test --all installs LLVM's headers"]
fn llvm_in_a_program() {
    let scene = Scene::new(&[("mcjit.cpp", "app.cpp"), ("fib.ll", "app.ll")]);
    let flags = "llvm-config --cxxflags --ldflags --libs";
    scene.prepare(
        "sh",
        &["-c", &format!("clang++ app.cpp -o app -fno-rtti $({flags})")],
    );
    scene.check(&["./app", "app.ll"], "fib");
    let advice = "a program of your own registers createPerfJITEventListener()";
    scene.check_advice(&["./app", "app.ll", "without"], advice);
}

/// A program of one's own, with the Python package of Wasmtime.
#[test]
#[ignore = "scripts/test --all installs Wasmtime"]
fn wasmtime_in_a_program() {
    const PROGRAM: &str = "import sys, wasmtime
config = wasmtime.Config()
if len(sys.argv) == 1:
    config.profiler = 'jitdump'
store = wasmtime.Store(wasmtime.Engine(config))
module = wasmtime.Module(store.engine, open('app.wasm').read())
run = wasmtime.Instance(store, module, []).exports(store)['_start']
run(store)
";
    let scene = Scene::new(&[("fib.wat", "app.wasm")]);
    std::fs::write(scene.path("app.py"), PROGRAM).unwrap();
    scene.check(&["wasmtime-python", "app.py"], "fib");
    let advice = "Config::profiler(ProfilingStrategy::JitDump)";
    scene.check_advice(&["wasmtime-python", "app.py", "without"], advice);
}

#[test]
#[ignore = "scripts/test --all installs Deno"]
fn deno() {
    Scene::new(&[("fib.js", "app.js")]).check(&["deno", "run", "app.js"], "fib ");
}

#[test]
#[ignore = "scripts/test --all installs Bun"]
fn bun() {
    Scene::new(&[("fib.js", "app.js")]).check(&["bun", "app.js"], "fib#");
}

#[test]
#[ignore = "scripts/test --all installs Wasmtime"]
fn wasmtime() {
    Scene::new(&[("fib.wat", "app.wasm")]).check(&["wasmtime", "run", "app.wasm"], "fib");
}

#[test]
#[ignore = "scripts/test --all installs Java"]
fn java_with_a_perf_map() {
    let scene = Scene::new(&[("App.java", "App.java")]);
    scene.prepare("javac", &["App.java"]);
    scene.check(&["java", "App"], "App.fib(int)");
}

/// Compiles `app.cs` for .NET.
pub fn compile_for_dotnet(scene: &Scene, properties: &str) {
    scene.prepare("mcs", &["-optimize+", "-out:app.dll", "app.cs"]);
    let framework = r#"{"name": "Microsoft.NETCore.App", "version": "8.0.0"}"#;
    let options = format!(r#"{{"framework": {framework}, "configProperties": {{{properties}}}}}"#);
    let configuration = format!(r#"{{"runtimeOptions": {options}}}"#);
    std::fs::write(scene.path("app.runtimeconfig.json"), configuration).unwrap();
}

#[test]
#[ignore = "scripts/test --all installs .NET"]
fn dotnet() {
    let scene = Scene::new(&[("shapes.cs", "app.cs")]);
    // Otherwise, the compiler replaces most calls through stubs.
    compile_for_dotnet(&scene, r#""System.Runtime.TieredPGO": false"#);
    scene.check(&["dotnet", "app.dll"], "");
    let stubs = scene.count("GenerateResolveStub", "r/perf.jit.data", None);
    assert!(stubs >= MIN_SAMPLES, "{stubs}");
    let summary = scene.json("summary.json");
    let count = |kind: &str| summary[kind].as_array().unwrap().len();
    assert_eq!((count("dumps"), count("perf_maps")), (1, 1));
}

/// The interpreter calls the code of each function, so it is in the stacks rather than on top of them.
fn check_python(program: &str) {
    let scene = Scene::new(&[("fib.py", "app.py")]);
    let output = scene.record(&["--", program, "app.py"]);
    assert!(output.status.success(), "{}", said(&output));
    let stacks = perf::stacks(&scene.path("r/perf.jit.data"), &[]);
    let has_function = |sample: &&perf::Sample| sample.frames.iter().any(|frame| frame.contains("py::fib:"));
    let found = stacks.iter().filter(has_function).count();
    assert!(stacks.len() as u64 >= MIN_SAMPLES, "{}", stacks.len());
    assert!(found * 2 > stacks.len(), "{found} of {}", stacks.len());
    scene.assert_no_maps();
}

#[test]
#[ignore = "scripts/test --all runs it where there is a CPython 3.13"]
fn cpython_with_a_jitdump() {
    check_python("python3.13");
}

#[test]
#[ignore = "scripts/test --all runs it where there is a CPython 3.12"]
fn cpython_with_a_perf_map() {
    check_python("python3.12");
}

#[test]
fn a_recording_can_be_moved() {
    let scene = Scene::new(&[("fib.js", "app.js")]);
    let output = scene.record(&["-q", "--", "node", "app.js"]);
    assert!(output.status.success(), "{}", said(&output));
    let named = scene.count("JS:*fib ", "r/perf.jit.data", None);
    assert!(named >= MIN_SAMPLES, "{named}");
    std::fs::rename(scene.path("r"), scene.path("moved")).unwrap();
    let moved = scene.count("JS:*fib ", "moved/perf.jit.data", Some("moved/debug"));
    assert_eq!(moved, named);
    // The sources have moved, too.
    std::fs::remove_file(scene.path("app.js")).unwrap();
    let (old, new) = (scene.path("r"), scene.path("moved"));
    let symbol = format!("JS:*fib {}:1:13", scene.path("app.js").display());
    let depth = (old.components().count() - 1).to_string();
    let annotated = |prefix: &[&str]| {
        let profile = new.join("perf.jit.data");
        let arguments = ["annotate", "--stdio", "-i", tools::text(&profile), "-s", &symbol];
        perf::perf_with_cache("perf", &new.join("debug"), &[&arguments, prefix].concat())
    };
    let source = "fib(n - 1) + fib(n - 2)";
    let shown = annotated(&["--prefix", tools::text(&new), "--prefix-strip", &depth]);
    assert!(shown.contains(source), "{shown}");
    assert!(!annotated(&[]).contains(source));
}

/// Stacks go through libraries that no sample is in. By default, perf 6.1 lists no build IDs of these.
#[test]
fn with_copied_stacks_the_build_ids_of_all_libraries_are_recorded() {
    let scene = Scene::new(&[]);
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
    // Nothing calls this library.
    let program = ["env", "LD_PRELOAD=libdl.so.2", "sh", "-c", script];
    let output = scene.record(&[&["-q", "--call-graph", "dwarf", "--"][..], &program].concat());
    assert!(output.status.success(), "{}", said(&output));
    let profile = scene.path("r/perf.data");
    let listed = tools::run("perf", &["buildid-list", "-i", tools::text(&profile)]);
    let maps = tools::run(
        "perf",
        &["script", "--show-mmap-events", "-i", tools::text(&profile)],
    );
    // Newer versions record the build ID with each map: <ID> in place of the inode.
    let is_recorded = |line: &str| line.contains("libdl.so.2") && line.contains('<');
    assert!(
        listed.contains("libdl.so.2") || maps.lines().any(is_recorded),
        "{listed}"
    );
}

#[test]
fn the_exit_status_is_that_of_the_program() {
    for (script, expected) in [("exit 7", 7), ("kill -SEGV $$", 139), ("exit 0", 0)] {
        let scene = Scene::new(&[]);
        let output = scene.record(&["--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(expected), "{}", said(&output));
    }
    let scene = Scene::new(&[]);
    let output = scene.record(&["--", "./absent"]);
    assert_eq!(output.status.code(), Some(127), "{}", said(&output));
    assert!(scene.files().is_empty() && !scene.path("r").exists());
}

/// A program that ends itself on a signal, with a status of how many it got. It writes a file once it has worked for a second.
pub const SERVER: &str = "let got = 0;
    for (const signal of ['SIGINT', 'SIGTERM'])
        process.on(signal, () => { got++; setTimeout(() => process.exit(40 + got), 300); });
    const fib = n => n < 2 ? n : fib(n - 1) + fib(n - 2);
    let isReady = false;
    setInterval(() => {
        fib(25);
        if (!isReady && process.cpuUsage().user > 1e6) {
            isReady = true;
            require('fs').writeFileSync('ready', '');
        }
    }, 1);";

#[test]
fn after_a_signal_the_profile_is_whole() {
    for signal in ["-INT", "-TERM"] {
        let scene = Scene::new(&[]);
        std::fs::write(scene.path("server.js"), SERVER).unwrap();
        let mut running = scene.command(&["-q", "--", "node", "server.js"]).spawn().unwrap();
        wait_until("the server", || scene.path("ready").exists());
        tools::run("kill", &[signal, &running.id().to_string()]);
        assert_eq!(running.wait().unwrap().code(), Some(41), "{signal}");
        let samples = &scene.json("summary.json")["samples"];
        assert!(samples["jit"].as_u64().unwrap() >= MIN_SAMPLES, "{samples}");
        assert!(samples["named_percent"].as_f64().unwrap() >= 95.0, "{samples}");
        assert_eq!(scene.json("manifest.json")["exit_status"], 41);
        assert_eq!(scene.files(), ["ready", "server.js"]);
    }
}

/// A recording on a terminal, which `script` has. Its shell (the user's, which may be any) is replaced by jitinject, so that
/// Ctrl-C finds no shell that ends early.
fn on_terminal(scene: &Scene, arguments: &str) -> std::process::Child {
    let line = format!(
        "echo $$ > shell; exec /usr/bin/env --default-signal=INT {} record -o r {arguments}",
        env!("CARGO_BIN_EXE_jitinject")
    );
    Command::new("script")
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .current_dir(scene.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ctrl-C reaches all processes of the terminal: the program once, and not perf. A signal for jitinject alone is passed on.
#[test]
fn control_c_and_other_signals_reach_the_program_once() {
    for is_key in [true, false] {
        let scene = Scene::new(&[]);
        std::fs::write(scene.path("server.js"), SERVER).unwrap();
        let mut terminal = on_terminal(&scene, "-q -- node server.js");
        wait_until("the server", || scene.path("ready").exists());
        let mut keyboard = terminal.stdin.take().unwrap();
        if is_key {
            std::io::Write::write_all(&mut keyboard, b"\x03").unwrap();
        } else {
            let pid = std::fs::read_to_string(scene.path("shell")).unwrap();
            tools::run("kill", &["-INT", pid.trim()]);
        }
        assert_eq!(terminal.wait().unwrap().code(), Some(41), "{is_key}");
        let samples = &scene.json("summary.json")["samples"];
        assert!(samples["named"].as_u64().unwrap() >= MIN_SAMPLES, "{samples}");
    }
}

/// What the program has started would run on.
#[test]
fn the_end_of_the_duration_ends_all_processes_of_the_program() {
    let scene = Scene::new(&[]);
    let mut terminal = on_terminal(
        &scene,
        "-q --duration 1 -- sh -c 'sh -c \"echo \\$\\$ > new; mv new started; exec sleep 300\"; true'",
    );
    wait_until("the process", || scene.path("started").exists());
    let started = std::fs::read_to_string(scene.path("started")).unwrap();
    terminal.wait().unwrap();
    let stat = format!("/proc/{}/stat", started.trim());
    wait_until("the end of the process", || {
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

/// perf cannot write the profile, or, if the program got few samples, jitinject cannot write an object.
#[test]
fn a_full_disk_is_an_error() {
    const SCRIPT: &str = "
        mount -t tmpfs -o size=64k none \"$1\" && cd \"$1\" || exit 99
        \"$2\" record -o r -- node \"$3\"
        status=$?
        ls -A r
        exit $status";
    let scene = Scene::new(&[("fib.js", "app.js")]);
    let mounted = scene.path("mounted");
    std::fs::create_dir(&mounted).unwrap();
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"])
        .args([tools::text(&mounted), env!("CARGO_BIN_EXE_jitinject")])
        .arg(scene.path("app.js"))
        .output()
        .unwrap();
    let said = said(&ran);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    for part in [
        "error[JI401]: ",
        "No space left on device",
        "jitinject: help: Free some space",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // Neither a profile with names nor parts of one.
    let left = String::from_utf8_lossy(&ran.stdout);
    let known = ["dumps", "manifest.json", "perf.data"];
    assert!(left.lines().all(|name| known.contains(&name)), "{left}");
}

/// Appends functions of 64 MiB to a jitdump. Their code is only allocated.
const EXTEND: &str = "import glob, os, struct
file = open(glob.glob('jit-*.dump')[0], 'r+b')
end = file.seek(0, 2)
for number in range(36):
    (name, size) = (b'big\\0', 64 << 20)
    head = struct.pack('<IIQ', 0, 56 + len(name) + size, 1)
    address = (1 << 40) + number * size
    head += struct.pack('<IIQQQQ', 1, 1, address, address, size, 100000 + number) + name
    file.seek(end)
    file.write(head)
    file.flush()
    os.posix_fallocate(file.fileno(), end + len(head), size)
    end += len(head) + size
";

#[test]
#[ignore = "writes a file of 2.4 GB"]
fn a_dump_of_more_than_2_gb() {
    let scene = Scene::new(&[("fib.js", "app.js")]);
    std::fs::write(scene.path("extend.py"), EXTEND).unwrap();
    let script = "node app.js; python3 extend.py";
    let output = scene.record(&["--no-sources", "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", said(&output));
    let dumps = std::fs::read_dir(scene.path("r/dumps")).unwrap();
    let sizes = dumps.map(|dump| dump.unwrap().metadata().unwrap().len());
    assert!(sizes.max().unwrap() > 2 << 30);
    let samples = &scene.json("summary.json")["samples"];
    assert!(samples["jit"].as_u64().unwrap() >= MIN_SAMPLES, "{samples}");
    assert!(samples["named_percent"].as_f64().unwrap() >= 95.0, "{samples}");
}

/// Whoever opens it is kept waiting for 45 seconds.
#[test]
fn a_file_with_a_lease_is_not_packed() {
    const LEASE: &str = "$SIG{IO} = 'IGNORE'; open(F, '+<', 'r/held') && fcntl(F, 1024, 1) or die $!;
        open(R, '>', 'ready'); sleep 1000";
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("r")).unwrap();
    std::fs::write(path("r/held"), "held").unwrap();
    let mut perl = Command::new("perl")
        .args(["-e", LEASE])
        .current_dir(folder.path())
        .spawn()
        .unwrap();
    wait_until("the lease", || path("ready").exists());
    let opened = Folder::open(&path("r"), Scope::Named).unwrap();
    let packed = pack(&opened, NameInFolder::of(&path("r.tar.zst")).unwrap());
    perl.kill().unwrap();
    perl.wait().unwrap();
    let (_, left_out) = packed.unwrap();
    let left_out: Vec<_> = left_out
        .iter()
        .map(|found| (found.issue, found.file.as_deref()))
        .collect();
    assert_eq!(left_out, [(Issue::NotCollected, Some("r/held"))]);
}

#[test]
fn a_terminal_shows_the_state_of_the_recording() {
    let scene = Scene::new(&[]);
    // Runs for 3.5 seconds, and until it has enough samples, however busy the machine is.
    let program = "const end = Date.now() + 3500; while (Date.now() < end || process.cpuUsage().user < 3e6);";
    std::fs::write(scene.path("app.js"), program).unwrap();
    for (options, is_shown) in [("", true), ("-q", false)] {
        let terminal = on_terminal(&scene, &format!("{options} -- node app.js"));
        let output = terminal.wait_with_output().unwrap();
        assert!(output.status.success());
        let shown = String::from_utf8_lossy(&output.stdout);
        let has_state =
            shown.contains("jitinject: recording, 2 s") && shown.contains(", 1 dump of the JIT code");
        // perf writes them within a second.
        let counts = shown
            .split(" samples (")
            .filter_map(|text| text.rsplit(' ').next()?.parse().ok());
        assert_eq!(
            counts.max().is_some_and(|samples: u64| samples >= 1000),
            is_shown,
            "{shown}"
        );
        assert_eq!(has_state, is_shown, "{shown}");
        std::fs::remove_dir_all(scene.path("r")).unwrap();
    }
}

/// Other versions of perf may change more.
#[test]
fn a_program_inherits_what_it_does_without_perf() {
    for program in [
        &["env"][..],
        &["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"],
        &["ls", "/proc/self/fd"],
    ] {
        let lines = |output: &Output| {
            assert!(output.status.success(), "{}", said(output));
            let text = String::from_utf8(output.stdout.clone()).unwrap();
            // Without the signals of the C library, which one way of starting processes ignores. SIGINT and SIGQUIT are always
            // passed on, also where this test runs in the background.
            let of_programs = |line: &str| {
                let (set, bits) = line.split_once(":\t")?;
                let bits = u64::from_str_radix(bits, 16).ok()?;
                Some(format!("{set}: {:x}", bits & 0x7fff_ffff))
            };
            let lines = text.lines();
            let lines = lines.map(|line| of_programs(line).unwrap_or_else(|| line.to_owned()));
            let mut lines: Vec<String> = lines.collect();
            lines.sort();
            lines
        };
        let scene = Scene::new(&[]);
        let mut alone = Command::new("/usr/bin/env");
        alone.arg("--default-signal=INT,QUIT").args(program);
        alone.current_dir(scene.folder.path()).stdin(Stdio::null());
        let recorded = scene.record(&[&["-q", "--no-env", "--"], program].concat());
        assert_eq!(lines(&recorded), lines(&alone.output().unwrap()));
    }
}
