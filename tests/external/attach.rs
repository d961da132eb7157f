//! `jitinject record -p` with running runtimes.

use std::process::{Command, Stdio};

use crate::record::{MIN_SAMPLES, SERVER, Scene, compile_for_dotnet};
use crate::support::processes::wait_until;
use crate::support::{perf, said, tools};

#[test]
fn a_running_process_can_be_recorded() {
    let scene = Scene::new(&[]);
    std::fs::write(scene.path("server.js"), SERVER).unwrap();
    let mut server = Command::new("node")
        .args(["--perf-prof", "server.js"])
        .current_dir(scene.folder.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the server", || scene.path("ready").exists());
    let pid = server.id().to_string();
    let output = scene.record(&["-p", &pid, "--duration", "3"]);
    let is_running = server.try_wait().unwrap().is_none();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(output.status.success() && is_running, "{}", said(&output));
    let samples = &scene.json("summary.json")["samples"];
    assert!(samples["named"].as_u64().unwrap() >= MIN_SAMPLES, "{samples}");
    // The file of a process that still runs stays.
    let dump = format!("jit-{pid}.dump");
    assert!(scene.path(&dump).exists() && scene.path("r/dumps").join(dump).exists());
}

/// jcmd waits for a process that never replies.
#[test]
fn a_signal_ends_the_requests_and_leaves_no_folder() {
    let scene = Scene::new(&[]);
    tools::copy_program("/bin/sleep", &scene.path("java"));
    let jcmd = b"#!/bin/sh\ntrap '' TERM\n: > asked\nexec sleep 100\n";
    tools::add_program(&scene.path("jcmd"), jcmd);
    let java = Command::new(scene.path("java"))
        .arg("100")
        .spawn()
        .map(Running)
        .unwrap();
    let path = format!("{}:/usr/bin:/bin", scene.folder.path().display());
    let mut recording = scene
        .command(&["-p", &java.0.id().to_string()])
        .env("PATH", path)
        .spawn()
        .unwrap();
    wait_until("jcmd", || scene.path("asked").exists());
    tools::run("kill", &["-TERM", &recording.id().to_string()]);
    assert_eq!(recording.wait().unwrap().code(), Some(143));
    assert_eq!(scene.files(), ["asked", "java", "jcmd"]);
    assert!(!scene.path("r").exists());
}

#[test]
#[ignore = "scripts/test --all installs Java"]
fn java_with_jcmd() {
    let scene = Scene::new(&[]);
    let source = "public class Loop {
        static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
        public static void main(String[] words) throws Exception {
            // It is compiled by then.
            for (int i = 0; i < 1000; i++) fib(25);
            new java.io.File(\"ready\").createNewFile();
            while (fib(25) > 0);
        }
    }";
    std::fs::write(scene.path("Loop.java"), source).unwrap();
    scene.prepare("javac", &["Loop.java"]);
    let mut java = Command::new("java")
        .args(["-XX:+PreserveFramePointer", "Loop"])
        .current_dir(scene.folder.path())
        .spawn()
        .unwrap();
    wait_until("Java", || scene.path("ready").exists());
    let output = scene.record(&["-p", &java.id().to_string(), "--duration", "1"]);
    java.kill().unwrap();
    java.wait().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let samples = &scene.json("summary.json")["samples"];
    assert!(samples["named"].as_u64().unwrap() >= MIN_SAMPLES, "{samples}");
    assert!(samples["named_percent"].as_f64().unwrap() >= 95.0, "{samples}");
    scene.remove_maps();
}

/// The process goes on, and can be recorded again.
#[test]
#[ignore = "scripts/test --all runs it where there is a CPython 3.14"]
fn cpython_with_remote_exec() {
    let scene = Scene::new(&[]);
    let program = "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n\
        open('ready', 'w').close()\nwhile True:\n    fib(15)\n";
    std::fs::write(scene.path("loop.py"), program).unwrap();
    let mut python = Command::new("python3.14")
        .arg("loop.py")
        .current_dir(scene.folder.path())
        .spawn()
        .unwrap();
    wait_until("Python", || scene.path("ready").exists());
    let pid = python.id().to_string();
    let mut outputs = Vec::new();
    for folder in ["r", "again"] {
        let arguments = ["-o", folder, "-p", &pid, "--duration", "1", "--remote-exec"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_jitinject"));
        command
            .arg("record")
            .args(arguments)
            .current_dir(scene.folder.path());
        outputs.push(command.output().unwrap());
    }
    let is_running = python.try_wait().unwrap().is_none();
    python.kill().unwrap();
    python.wait().unwrap();
    assert!(is_running);
    for (folder, output) in ["r", "again"].iter().zip(&outputs) {
        assert!(output.status.success(), "{}", said(output));
        let stacks = perf::stacks(&scene.path(folder).join("perf.jit.data"), &[]);
        let has_function =
            |sample: &&perf::Sample| sample.frames.iter().any(|frame| frame.contains("py::fib:"));
        let found = stacks.iter().filter(has_function).count();
        assert!(stacks.len() as u64 >= MIN_SAMPLES, "{}", stacks.len());
        assert!(found * 100 >= stacks.len() * 95, "{found} of {}", stacks.len());
    }
    scene.remove_maps();
}

/// A process that is killed when the test ends.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process goes on as before, and can be recorded again.
#[test]
#[ignore = "scripts/test --all installs .NET"]
fn dotnet_with_its_diagnostic_socket() {
    let scene = Scene::new(&[]);
    let source = "public static class App {
        static int Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }
        public static void Main() {
            // It is compiled by then.
            for (int i = 0; i < 1000; i++) Fib(25);
            System.IO.File.WriteAllText(\"ready\", \"\");
            while (Fib(25) > 0);
        }
    }";
    std::fs::write(scene.path("app.cs"), source).unwrap();
    compile_for_dotnet(&scene, "");
    let folder = scene.path("tmp");
    std::fs::create_dir(&folder).unwrap();
    let mut dotnet = Command::new("dotnet")
        .arg("app.dll")
        .envs([("TMPDIR", &folder), ("DOTNET_PerfMapJitDumpPath", &folder)])
        .current_dir(scene.folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(Running)
        .unwrap();
    let pid = dotnet.0.id();
    let map = format!("perf-{pid}.map");
    wait_until(".NET", || scene.path("ready").exists());
    for _ in 0..2 {
        let output = scene.record(&["-p", &pid.to_string(), "--duration", "1"]);
        let is_running = dotnet.0.try_wait().unwrap().is_none();
        assert!(output.status.success() && is_running, "{}", said(&output));
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut files = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        assert!(!files.any(|file| file.ends_with(&map)), "it still logs its code");
        let samples = &scene.json("summary.json")["samples"];
        assert!(samples["named"].as_u64().unwrap() >= MIN_SAMPLES, "{samples}");
        assert!(samples["named_percent"].as_f64().unwrap() >= 95.0, "{samples}");
        assert!(scene.count("App::Fib(int32)", "r/perf.jit.data", None) >= MIN_SAMPLES);
        for name in [&map, &format!("jit-{pid}.dump")] {
            assert!(scene.path("r/dumps").join(name).exists(), "{name}");
        }
        std::fs::remove_dir_all(scene.path("r")).unwrap();
    }
}
