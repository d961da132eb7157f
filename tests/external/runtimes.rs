//! Runs the commands of the table in `docs/runtimes.md` under perf, as written there.
//!
//! `scripts/test` installs the runtimes that Debian has as small packages; the other tests are ignored unless
//! `scripts/test --all` installs theirs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{jitinject, perf, said, scratch, tools};

/// Minimum number of samples in JIT code; each program computes for about a second.
const MIN_SAMPLES: u64 = 50;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the first text between backquotes.
fn quoted(text: &str) -> &str {
    text.split('`')
        .nth(1)
        .unwrap_or_else(|| panic!("no command in {text}"))
}

/// A row of the table.
struct Row {
    /// Text before the command: `perf record` with its options.
    record: String,
    command: String,
}

impl Row {
    fn of(runtime: &str) -> Self {
        let document = std::fs::read_to_string(root().join("docs/runtimes.md")).unwrap();
        let intro = "These commands go after ";
        let record = document.split(intro).nth(1).map(quoted).unwrap();
        let mut rows = document.lines().filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
            (cells[0] == runtime).then_some(cells)
        });
        let row = rows.next().unwrap_or_else(|| panic!("no row of {runtime}"));
        assert!(rows.next().is_none(), "two rows of {runtime}");
        let stacks = row[2].split_once("` in place of `-g`");
        let record = match stacks.and_then(|(before, _)| before.rsplit('`').next()) {
            Some(stacks) => record.replace(" -g ", &format!(" {stacks} ")),
            None => record.to_owned(),
        };
        Self {
            record,
            command: quoted(row[1]).to_owned(),
        }
    }
}

/// A recording of one command, in a directory of its own.
struct Recording {
    folder: tempfile::TempDir,
    row: Row,
}

impl Recording {
    /// Copies programs, each to the name that it has in the command.
    fn of(runtime: &str, programs: &[(&str, &str)]) -> Self {
        let folder = scratch();
        for (program, name) in programs {
            let source = root().join("tests/external/programs").join(program);
            std::fs::copy(source, folder.path().join(name)).unwrap();
        }
        let row = Row::of(runtime);
        Self { folder, row }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a program that builds the one to record.
    fn prepare(&self, program: &str, arguments: &[&str]) {
        run(Command::new(program)
            .args(arguments)
            .current_dir(self.folder.path()));
    }

    /// Records the command as in the document. perf must print nothing, and takes few samples, since the machine may
    /// be busy.
    fn record(&self) {
        let row = &self.row;
        let record = row.record.replacen("perf record ", "perf record -q -F 999 ", 1);
        let line = format!("exec {record} {}", row.command);
        // LLVM's default directory is below /tmp/.debug, which belongs to the first user who ran it.
        run(Command::new("sh")
            .args(["-c", &line])
            .env("JITDUMPDIR", self.folder.path())
            .current_dir(self.folder.path()));
    }

    /// Injects the recording; returns the summary.
    fn inject(&self) -> Value {
        let output = jitinject()
            .args(["perf.data", "--summary", "-"])
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        remove_files(&summary);
        // A runtime may leave some of its code undescribed, which `check_recorded` limits.
        let of_undescribed_code = ["JI175", "JI176", "JI177"];
        let mut reported = summary["diagnostics"].as_array().unwrap().iter();
        let is_harmless = |it: &Value| {
            it["severity"] == "note" || of_undescribed_code.iter().any(|&code| it["code"] == code)
        };
        assert!(reported.all(is_harmless), "{summary:#}");
        summary
    }

    /// Records, and checks that samples in JIT code have names, half of which contain `function`.
    fn check(&self, function: &str) {
        self.record();
        self.check_recorded(function);
    }

    fn check_recorded(&self, function: &str) {
        let samples = &self.inject()["samples"];
        let jit = samples["jit"].as_u64().unwrap();
        assert!(jit >= MIN_SAMPLES, "{samples}");
        assert!(samples["named_percent"].as_f64().unwrap() >= 95.0, "{samples}");
        let leaves = perf::leaves(&self.path("perf.jit.data"));
        let of_function = leaves.iter().filter(|leaf| leaf.frames[0].contains(function));
        assert!(of_function.count() as u64 > jit / 2, "{function}: {samples}");
    }

    /// Records, and checks that `function` is in the unwound stacks of most samples.
    fn check_stacks(&self, function: &str) {
        self.record();
        self.inject();
        let stacks = perf::stacks(&self.path("perf.jit.data"), &[]);
        let has_function =
            |sample: &&perf::Sample| sample.frames.iter().any(|frame| frame.contains(function));
        let found = stacks.iter().filter(has_function).count();
        assert!(stacks.len() as u64 >= MIN_SAMPLES, "{}", stacks.len());
        assert!(
            found * 2 > stacks.len(),
            "{function}: {found} of {}",
            stacks.len()
        );
    }
}

fn run(command: &mut Command) {
    let ran = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/test installs it"));
    let printed = [ran.stdout, ran.stderr].concat();
    assert!(
        ran.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&printed)
    );
}

/// Removes the files that a runtime wrote to /tmp.
fn remove_files(summary: &Value) {
    for kind in ["dumps", "perf_maps"] {
        for file in summary[kind].as_array().unwrap() {
            let path = Path::new(file["path"].as_str().unwrap());
            if path.starts_with("/tmp") {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// The README shows one command in full, which is the one in the table.
#[test]
fn the_example_is_the_first_row() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let row = Row::of("Node.js");
    let example = format!("    {} {}\n", row.record, row.command);
    assert!(readme.contains(&example), "{example}");
}

#[test]
fn node() {
    Recording::of("Node.js", &[("fib.js", "app.js")]).check("JS:*fib ");
}

#[test]
fn php() {
    Recording::of("PHP", &[("fib.php", "app.php")]).check("$fib$");
}

#[test]
fn erlang() {
    let recording = Recording::of("Erlang/OTP 25 and later", &[("app.erl", "app.erl")]);
    recording.prepare("erlc", &["app.erl"]);
    recording.check("app:fib/1");
}

#[test]
fn mono() {
    let recording = Recording::of("Mono", &[("fib.cs", "app.cs")]);
    recording.prepare("mcs", &["-out:app.exe", "app.cs"]);
    recording.check("App:Fib");
}

#[test]
fn llvm() {
    Recording::of("LLVM", &[("fib.ll", "app.ll")]).check("fib");
}

#[test]
#[ignore = "scripts/test --all installs Deno"]
fn deno() {
    Recording::of("Deno", &[("fib.js", "app.js")]).check("fib ");
}

#[test]
#[ignore = "scripts/test --all installs Bun"]
fn bun() {
    Recording::of("Bun", &[("fib.js", "app.js")]).check("fib#");
}

#[test]
#[ignore = "scripts/test --all installs JavaScriptCore"]
fn javascriptcore() {
    Recording::of("JavaScriptCore", &[("fib.js", "app.js")]).check("fib#");
}

#[test]
#[ignore = "scripts/test --all runs it where there is a CPython 3.13"]
fn cpython_with_a_jitdump() {
    Recording::of("CPython 3.13 and later", &[("fib.py", "app.py")]).check_stacks("py::fib:");
}

#[test]
#[ignore = "scripts/test --all runs it where there is a CPython 3.12"]
fn cpython_with_a_perf_map() {
    Recording::of("CPython 3.12", &[("fib.py", "app.py")]).check_stacks("py::fib:");
}

/// Builds the agent as described in `docs/java.md`, without the first step, which installs packages.
#[test]
#[ignore = "scripts/test --all installs Java and the kernel's sources"]
fn java_with_the_agent() {
    let mut recording = Recording::of("Java", &[("App.java", "App.java")]);
    recording.prepare("javac", &["App.java"]);
    let document = std::fs::read_to_string(root().join("docs/java.md")).unwrap();
    let steps = document
        .split("```")
        .nth(1)
        .and_then(|block| block.split_once("\n"))
        .unwrap()
        .1;
    let (install, build) = steps.split_once('\n').unwrap();
    assert!(install.starts_with("apt-get install"), "{install}");
    recording.prepare("sh", &["-e", "-c", build]);
    let command = &mut recording.row.command;
    assert!(command.contains("/path/to/"), "{command}");
    *command = command.replace("/path/to", tools::text(recording.folder.path()));
    *command = format!("env JITDUMPDIR={} {command}", recording.folder.path().display());
    recording.check("fib(I)I");
}

#[test]
#[ignore = "scripts/test --all installs Java"]
fn java_with_a_perf_map() {
    let recording = Recording::of("Java 17 and later, without an agent", &[("App.java", "App.java")]);
    recording.prepare("javac", &["App.java"]);
    recording.check("App.fib(int)");
}

#[test]
#[ignore = "scripts/test --all installs Wasmtime"]
fn wasmtime() {
    Recording::of("Wasmtime", &[("fib.wat", "app.wasm")]).check("fib");
}

#[test]
#[ignore = "scripts/test --all installs .NET"]
fn dotnet() {
    let recording = Recording::of(".NET", &[("fib.cs", "app.cs")]);
    recording.prepare("mcs", &["-optimize+", "-out:app.dll", "app.cs"]);
    let configuration =
        r#"{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "8.0.0"}}}"#;
    std::fs::write(recording.path("app.runtimeconfig.json"), configuration).unwrap();
    recording.check("App::Fib(int32)");
}

/// QEMU names the blocks that it translates after the guest's addresses.
#[test]
#[ignore = "scripts/test --all runs it where there is a QEMU 8.1"]
fn qemu() {
    let recording = Recording::of("QEMU 8.1 and later, user mode", &[("fib.c", "fib.c")]);
    recording.prepare("cc", &["-O1", "-static", "-o", "app", "fib.c"]);
    recording.check("guest-0x");
}

/// Runs a server of its own, as `postgres` if the test is run by root, because PostgreSQL refuses to run as root.
#[test]
#[ignore = "scripts/test --all installs PostgreSQL"]
fn postgresql() {
    let mut recording = Recording::of("PostgreSQL", &[]);
    let folder = recording.folder.path().to_owned();
    let setting = std::mem::take(&mut recording.row.command);
    let script = format!(
        "set -e; cd '{folder}'
         PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH
         server() {{ if [ \"$(id -u)\" = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups \"$@\"; else \"$@\"; fi; }}
         if [ \"$(id -u)\" = 0 ]; then chown postgres .; chmod 755 .; fi
         export HOME='{folder}' JITDUMPDIR='{folder}'
         server initdb -D data -A trust >/dev/null
         printf \"%s\\nlisten_addresses = ''\\nunix_socket_directories = '{folder}'\\njit_above_cost = 0\\n\" '{setting}' >> data/postgresql.conf
         server pg_ctl -D data -l log -w start >/dev/null
         trap 'server pg_ctl -D data -m fast -w stop >/dev/null' EXIT
         {record} -p \"$(head -n 1 data/postmaster.pid)\" -- \\
             psql -q -h '{folder}' -d postgres -U \"$(stat -c %U data)\" -c \\
             'select sum(i * 2 + case when i % 3 = 0 then 1 else i end) from generate_series(1, 4000000) as t(i)' >/dev/null
        ",
        folder = folder.display(),
        record = recording.row.record.replacen("perf record ", "perf record -q -F 999 ", 1),
    );
    run(Command::new("sh").args(["-c", &script]).current_dir(&folder));
    recording.check_recorded("evalexpr_");
}
