//! `jitinject record -p`: processes that run already, and what is asked of them.

use std::process::Command;

use crate::record::{PERF, Scene, json};
use crate::support::reports::reports;
use crate::support::{has_code, said, tools};

/// A process whose program is a copy of `sleep` with the name of a runtime.
fn running(scene: &Scene, name: &str) -> std::process::Child {
    let program = scene.path("bin").join(name);
    tools::copy_program("/bin/sleep", &program);
    Command::new(program).arg("60").env_clear().spawn().unwrap()
}

#[test]
fn what_a_running_process_cannot_do_is_said() {
    let scene = Scene::new(PERF);
    scene.add("jcmd", "echo 'Could not attach'; exit 1");
    for (name, code, text) in [
        ("node", "JI447", "--perf-prof"),
        ("php8.2", "JI447", "opcache.jit_debug"),
        ("java", "JI448", "Could not attach"),
    ] {
        let mut child = running(&scene, name);
        let pid = child.id().to_string();
        let output = scene.run(&["record", "-o", name, "-p", &pid]);
        child.kill().unwrap();
        child.wait().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(reports(&said, code, text) && said.contains(&pid), "{said}");
    }
}

#[test]
fn a_runtime_without_an_option_is_not_started_again_for_one() {
    let scene = Scene::new(PERF);
    let mut child = running(&scene, "luajit");
    let output = scene.run(&["record", "-o", "r", "-p", &child.id().to_string()]);
    child.kill().unwrap();
    child.wait().unwrap();
    let said = said(&output);
    assert!(reports(&said, "JI447", "it has no option for this"), "{said}");
    assert!(
        !said.contains("must be started with") && !said.contains("Start it again"),
        "{said}"
    );
}

/// Its backends do that.
#[test]
fn a_server_of_postgresql_need_not_write_a_jitdump() {
    let scene = Scene::new(PERF);
    let mut child = running(&scene, "postgres");
    let output = scene.run(&["record", "-o", "r", "-p", &child.id().to_string()]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!has_code(&said(&output), "JI447"), "{}", said(&output));
}

/// Code that Java has discarded at the end is in the first map only.
#[test]
fn java_is_asked_for_a_map_before_and_after() {
    let scene = Scene::new(&format!("echo recorded >> calls\n{PERF}"));
    scene.add(
        "jcmd",
        "echo $2 >> calls; printf '7f00 10 %s\\n' \"$(wc -l < calls)\" > /tmp/perf-$1.map",
    );
    let mut child = running(&scene, "java");
    let pid = child.id();
    let output = scene.run(&["record", "-o", "r", "-p", &pid.to_string()]);
    let map = format!("/tmp/perf-{pid}.map");
    let removed = std::fs::remove_file(map);
    child.kill().unwrap();
    child.wait().unwrap();
    removed.unwrap();
    let read = |name: &str| std::fs::read_to_string(scene.path("work").join(name)).unwrap();
    let calls = read("calls");
    // The last one is that for the version of perf.
    assert_eq!(
        calls,
        "Compiler.perfmap\nrecorded\nCompiler.perfmap\nrecorded\n",
        "{}",
        said(&output)
    );
    // The later one is added to it if the process is in the profile.
    assert_eq!(read(&format!("r/dumps/perf-{pid}.map")), "7f00 10 1\n");
}

#[test]
fn code_is_run_in_cpython_on_request_only() {
    let scene = Scene::new(PERF);
    let mut child = running(&scene, "python3.14");
    let pid = child.id().to_string();
    let unasked = scene.run(&["record", "-o", "unasked", "-p", &pid]);
    // This program is no CPython.
    let asked = scene.run(&["record", "-o", "asked", "-p", &pid, "--remote-exec"]);
    let printed = scene.run(&["record", "--print", "-p", &pid, "--remote-exec"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let unasked = said(&unasked);
    assert!(
        has_code(&unasked, "JI447") && unasked.contains("--remote-exec"),
        "{unasked}"
    );
    assert!(reports(&said(&asked), "JI448", "CPython"), "{}", said(&asked));
    let manifest = json(&scene.path("work/asked/manifest.json"));
    let process = &manifest["processes"][0];
    assert_eq!(process["pid"].to_string(), pid);
    assert_eq!(process["runtime"], "CPython");
    assert!(process["program"].as_str().unwrap().ends_with("bin/python3.14"));
    // The program is a copy of sleep.
    assert!(
        process["version"].as_str().unwrap().starts_with("sleep "),
        "{process}"
    );
    assert_eq!(process["namespaces"].as_array().unwrap().len(), 2);
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("sys.remote_exec"), "{printed}");
    let misused = scene.run(&["record", "--remote-exec", "--", "true"]);
    assert_eq!(misused.status.code(), Some(2));
}
