//! What `jitinject record` chooses by the program and the machine, with a perf that copies a recording.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use jitdump::ByteOrder;
use rustix::process::Signal;

use crate::record::{PERF, Scene, json};
use crate::support::processes::{send, wait_for_rounds, wait_until};
use crate::support::profile::ProfileWriter;
use crate::support::reports::reports;
use crate::support::{capture, codes, has_code, said, tools};

/// Returns what `record --print` prints for a command.
fn printed(scene: &Scene, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let output = scene.run(&[&["record", "--print", "-o", "r", "--"], &words[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes the recording that the stand-in copies, as perf records it without the kernel.
fn write_without_kernel(path: &Path) {
    /// Where the header has the offset of the attributes, and an attribute its flags.
    const ATTRS: usize = 24;
    const FLAGS: usize = 40;
    const EXCLUDE_KERNEL: u8 = 1 << 5;
    let mut bytes = std::fs::read(capture::profile("php82")).unwrap();
    let attrs = u64::from_le_bytes(bytes[ATTRS..ATTRS + 8].try_into().unwrap()) as usize;
    assert_eq!(bytes[attrs + FLAGS] & EXCLUDE_KERNEL, 0);
    bytes[attrs + FLAGS] |= EXCLUDE_KERNEL;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn kernel_time_that_is_not_recorded_is_said() {
    let scene = Scene::new(PERF);
    let record = |arguments: &[&str]| {
        let output = scene.run(&[&["record", "-o"], arguments, &["--", "true"]].concat());
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    assert!(!has_code(&record(&["with"]), "JI452"));
    let profile = scene.path("user.data");
    write_without_kernel(&profile);
    let copied = format!("cp {}/perf.data", tools::text(&capture::folder("php82")));
    let perf = std::fs::read_to_string(scene.path("bin/perf")).unwrap();
    scene.add_file(
        "perf",
        &perf.replace(&copied, &format!("cp {}", tools::text(&profile))),
    );
    let without = record(&["without"]);
    assert!(
        reports(&without, "JI452", "kernel time was not recorded"),
        "{without}"
    );
    assert!(
        without.contains("sysctl kernel.perf_event_paranoid=1"),
        "{without}"
    );
    // Who asks for user time gets it.
    assert!(!has_code(&record(&["asked", "-e", "cycles:u"]), "JI452"));
    for (folder, is_recorded) in [("with", true), ("without", false)] {
        let file = |name: &str| json(&scene.path("work").join(folder).join(name));
        assert_eq!(file("manifest.json")["kernel_time"], is_recorded);
        let event = &file("summary.json")["profile"]["events"][0];
        assert_eq!(event["excludes_kernel"] == true, !is_recorded, "{event}");
    }
    // perf's names of both events differ, too.
    let named = |folder: &str, name: &str| {
        let path = scene.path("work").join(folder).join("summary.json");
        let mut summary = json(&path);
        summary["profile"]["events"][0]["name"] = name.into();
        std::fs::write(path, serde_json::to_vec(&summary).unwrap()).unwrap();
    };
    named("with", "cpu-clock:ppp");
    named("without", "cpu-clock:uhppp");
    named("asked", "cpu-clock:uhppp");
    let compared = scene.run(&["compare", "without", "with"]);
    let text = said(&compared);
    assert!(
        reports(
            &text,
            "JI437",
            "recorded with kernel time, and the first summary without"
        ),
        "{text}"
    );
    assert!(!has_code(&text, "JI430"), "{text}");
    let gate = scene.run(&["compare", "-q", "--fail-on", "cpu > 3%", "without", "with"]);
    assert_eq!(gate.status.code(), Some(1));
    let text = said(&gate);
    assert!(
        reports(&text, "JI429", "with kernel time and others without") && codes(&text) == ["JI429"],
        "{text}"
    );
    let alike = scene.run(&["compare", "without", "asked"]);
    let text = String::from_utf8(alike.stdout).unwrap();
    assert!(text.contains("\nKernel time was not recorded.\n"), "{text}");
    assert!(
        !text.contains("CPU time per run, in") || text.contains(" of user time per run"),
        "{text}"
    );
}

#[test]
fn stacks_of_cpython_are_copied_unless_it_has_frame_pointers() {
    let scene = Scene::new(PERF);
    scene.add("python3.14", "exit 0");
    scene.add("python3.15", "exit 0");
    scene.add_file("tool", "#!/usr/bin/env python3.15\n");
    let copies = " --call-graph dwarf,32768 -N --buildid-all ";
    for command in ["python3.14 a.py", "python3.15 a.py", "tool", "pytest"] {
        let printed = printed(&scene, command);
        assert!(printed.contains(copies), "{command}: {printed}");
    }
    let settings = scene.path("lib/python3.15/_sysconfigdata__linux_x86_64-linux-gnu.py");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let flags = " 'CFLAGS': '-O3 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer',\n";
    std::fs::write(settings, flags).unwrap();
    for command in ["python3.15 a.py", "tool"] {
        let printed = printed(&scene, command);
        assert!(printed.contains(" -g -N -o "), "{command}: {printed}");
        assert!(printed.contains("PYTHON_PERF_JIT_SUPPORT=1"), "{printed}");
    }
    assert!(printed(&scene, "python3.14 a.py").contains(copies));
}

#[test]
fn php_is_compiled_only_if_its_configuration_permits_it() {
    let scene = Scene::new(PERF);
    // The status with which it answers.
    for (status, is_set, note) in [
        (
            0,
            true,
            "is switched on for the recording; --no-env leaves it off",
        ),
        (10, true, ""),
        (11, false, "stays off"),
    ] {
        scene.add("php", &format!("[ \"$1\" != -r ] || exit {status}"));
        let variables = printed(&scene, "php app.php");
        assert_eq!(
            variables.contains("PHP_INI_SCAN_DIR"),
            is_set,
            "{status}: {variables}"
        );
        let folder = format!("r{status}");
        let output = scene.run(&["record", "-o", &folder, "--", "php", "app.php"]);
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("PHP: "), !note.is_empty(), "{said}");
        assert!(said.contains(note), "{said}");
    }
    let plain = scene.run(&["record", "--no-env", "-o", "plain", "--", "php", "app.php"]);
    assert!(!said(&plain).contains("PHP: "), "{}", said(&plain));
}

/// V8 would log to standard output.
#[test]
fn node_logs_nothing_in_a_directory_that_was_removed() {
    let scene = Scene::new(PERF);
    for (removal, has_options) in [("true", true), ("rmdir ../gone", false)] {
        let script = format!(
            "mkdir gone; cd gone; {removal}; exec '{}' record --print -o '{}' -- node app.js",
            env!("CARGO_BIN_EXE_jitinject"),
            scene.path("r").display()
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(scene.path("work"));
        shell.env_clear().env("PATH", "/usr/bin:/bin");
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.contains("NODE_OPTIONS"), has_options, "{printed}");
        let _ = std::fs::remove_dir(scene.path("work/gone"));
    }
}

#[test]
fn cpython_whose_compiler_stays_off_is_noted() {
    let scene = Scene::new(PERF);
    scene.add("python3.14", "exit 0");
    for (folder, value, option, is_noted) in [
        ("on", "1", "--runtime=python", true),
        ("off", "0", "--runtime=python", false),
        ("as it is", "1", "--no-env", false),
    ] {
        let arguments = ["record", option, "-o", folder, "--", "python3.14", "app.py"];
        let mut command = scene.command(&arguments);
        let output = command.env("PYTHON_JIT", value).output().unwrap();
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(
            said.contains("CPython: its JIT compiler stays off"),
            is_noted,
            "{said}"
        );
    }
}

/// Ruby 3.1 has the compiler without the option, and Debian's 3.3 only a warning.
#[test]
fn ruby_gets_only_options_that_it_takes() {
    let scene = Scene::new(PERF);
    scene.add_file("bundle", "#!/usr/bin/env ruby\n");
    for (at, (answer, is_set, note)) in [
        (
            "echo 'ruby 3.4.1 +YJIT [x86_64-linux]'",
            true,
            "is switched on for the recording; --no-env leaves it as it is",
        ),
        (
            "echo 'ruby: invalid yjit option' >&2; exit 1",
            false,
            "are left out: ruby: invalid yjit option",
        ),
        (
            "echo 'warning: without YJIT' >&2; echo 'ruby 3.3.8 [x86_64-linux]'",
            false,
            "are left out: warning: without YJIT",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let asked = "[ \"$*\" != '--yjit --yjit-perf --version' ]";
        scene.add("ruby", &format!("{asked} || {{ {answer}; exit; }}"));
        for command in ["ruby app.rb", "bundle exec app"] {
            let variables = printed(&scene, command);
            assert_eq!(variables.contains("RUBYOPT"), is_set, "{answer}: {variables}");
        }
        let output = scene.run(&["record", "-o", &format!("r{at}"), "--", "ruby", "app.rb"]);
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(note), "{said}");
    }
}

#[test]
fn several_runs_are_one_folder_for_compare() {
    let scene = Scene::new(PERF);
    for side in ["before", "after"] {
        let output = scene.run(&["record", "--runs", "3", "-o", side, "--", "true"]);
        assert!(output.status.success(), "{}", said(&output));
        assert!(
            said(&output).contains("jitinject: run 3 of 3\n"),
            "{}",
            said(&output)
        );
    }
    let compared = scene.run(&["compare", "before", "after"]);
    let text = String::from_utf8(compared.stdout).unwrap();
    assert!(text.starts_with("before  3 runs: 1098 samples"), "{text}");
    assert!(text.contains("\nafter   3 runs: "), "{text}");
    let single = scene.run(&["compare", "before/run-1", "after/run-1"]);
    let text = String::from_utf8(single.stdout).unwrap();
    assert!(text.contains(": 366 samples"), "{text}");
    let quiet = scene.run(&["compare", "-q", "before", "after"]);
    assert!(quiet.status.success() && quiet.stdout.is_empty() && said(&quiet).is_empty());
    // A run that fails ends them.
    let failed = scene.run(&["record", "-q", "--runs", "3", "-o", "failed", "--", "false"]);
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert_eq!(std::fs::read_dir(scene.path("work/failed")).unwrap().count(), 1);
    let absent = scene.run(&["record", "--runs", "3", "-o", "absent", "--", "no-such-program"]);
    assert_eq!(absent.status.code(), Some(127), "{}", said(&absent));
    assert!(!scene.path("work/absent").exists());
    let again = scene.run(&["record", "--runs", "3", "-o", "before", "--", "true"]);
    assert!(reports(&said(&again), "JI442", "before"), "{}", said(&again));
}

/// The program handles the signal, and exits with 0.
#[test]
fn a_signal_in_a_later_run_reaches_its_program_and_ends_the_runs() {
    let scene = Scene::new(PERF);
    scene.add(
        "server",
        "[ -e first ] || { : > first; exit 0; }\n\
         trap 'exit 0' TERM; : > ready; while :; do sleep 0.05; done",
    );
    let arguments = ["record", "-q", "--runs", "3", "-o", "r", "--", "server"];
    let mut running = scene.command(&arguments).spawn().unwrap();
    wait_until("the second run", || scene.path("work/ready").exists());
    tools::run("kill", &["-TERM", &running.id().to_string()]);
    let status = running.wait().unwrap();
    // Runs are missing.
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    assert!(scene.path("work/r/run-2/summary.json").exists());
    assert!(!scene.path("work/r/run-3").exists());
}

#[test]
fn a_recording_that_was_moved_meanwhile_is_kept() {
    let scene = Scene::new(PERF);
    let output = scene.run(&["record", "-o", "r", "--", "mv", "r", "moved"]);
    assert!(
        reports(&said(&output), "JI401", "it was moved"),
        "{}",
        said(&output)
    );
    assert!(scene.path("work/moved/perf.data").exists());
}

/// Records as in the background of a script, where shells ignore a signal. A script that exits with 0 on the signal is perf, or the
/// program of a `perf` that runs it.
fn end_by(signal: &str, perf: &str, arguments: &[&str]) {
    let waits = format!(
        "exec /usr/bin/env --default-signal={signal} \
         sh -c \"trap 'exit 0' {signal}; : > ready; while :; do sleep 0.05; done\"\n"
    );
    let scene = Scene::new(&perf.replace("WAIT", &waits));
    scene.add("waits", &waits);
    let mut running = Command::new("/usr/bin/env");
    running
        .arg(format!("--ignore-signal={signal}"))
        .args([env!("CARGO_BIN_EXE_jitinject"), "record", "-q", "-o", "r"])
        .args(arguments)
        .current_dir(scene.path("work"))
        .env("PATH", format!("{}:/usr/bin:/bin", scene.path("bin").display()));
    let mut running = running.spawn().unwrap();
    wait_until("perf", || scene.path("work/ready").exists());
    tools::run("kill", &[&format!("-{signal}"), &running.id().to_string()]);
    let status = running.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    assert!(scene.path("work/r/summary.json").exists());
}

/// perf does not keep that SIGINT is ignored.
#[test]
fn a_recording_of_a_process_in_the_background_ends_by_sigint() {
    let perf = format!("{}\nWAIT", PERF.trim_end().trim_end_matches("\"$@\""));
    end_by("INT", &perf, &["-p", &std::process::id().to_string()]);
}

/// A server may handle them.
#[test]
fn a_program_that_is_recorded_in_the_background_gets_sigint_and_sigquit() {
    end_by("INT", PERF, &["--", "waits"]);
    end_by("QUIT", PERF, &["--", "waits"]);
}

/// As if jitinject were not between them and the program that sends signals to their group, such as `timeout`.
#[test]
fn processes_of_a_server_end_with_it() {
    // The server passes no signal on. It waits for its worker on SIGINT, and ends at once on SIGTERM.
    let server = "/usr/bin/env --default-signal=INT \
                  sh -c 'trap \"exit 0\" INT; echo $$ > new; mv new ready; while :; do sleep 0.05; done' &\n\
                  trap 'wait $!; exit 0' INT\nwait $!\n";
    let scene = Scene::new(PERF);
    scene.add("server", server);
    for signal in ["INT", "TERM"] {
        let mut running = Command::new(env!("CARGO_BIN_EXE_jitinject"));
        running
            .args(["record", "-q", "-o", signal, "--", "server"])
            .current_dir(scene.path("work"))
            .env("PATH", format!("{}:/usr/bin:/bin", scene.path("bin").display()));
        let mut running = running.spawn().unwrap();
        let ready = scene.path("work/ready");
        wait_until("the worker", || ready.exists());
        let worker = std::fs::read_to_string(&ready).unwrap();
        std::fs::remove_file(&ready).unwrap();
        tools::run("kill", &[&format!("-{signal}"), &running.id().to_string()]);
        wait_until("the recording", || running.try_wait().unwrap().is_some());
        let stat = format!("/proc/{}/stat", worker.trim());
        wait_until("the end of the worker", || {
            std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
        });
        assert!(scene.path("work").join(signal).join("summary.json").exists());
    }
}

/// As with npm, which ends at once on SIGTERM, while the server below it finishes its work.
#[test]
fn files_of_processes_that_end_after_the_program_are_complete() {
    // perf reads its buffers when the program has ended.
    let perf = PERF.replace("cp CAPTURE/perf.data \"$output\"\n", "");
    let scene = Scene::new(&format!("{perf}cp recorded \"$output\"\n"));
    scene.add(
        "worker",
        "echo first > jit-$$.dump\n\
         trap 'sleep 0.2; echo second >> jit-$$.dump; exit 0' TERM\n\
         echo $$ > new; mv new pid; while :; do sleep 0.05; done",
    );
    scene.add("start", "worker &\nwait");
    let mut command = scene.command(&["record", "-o", "r", "--", "start"]);
    let running = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let file = scene.path("work/pid");
    wait_until("the worker", || file.exists());
    let text = std::fs::read_to_string(file).unwrap();
    let pid: u32 = text.trim().parse().unwrap();
    let name = format!("jit-{pid}.dump");
    let dump = scene.path("work").join(&name);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(pid, 0x6000_0000, 4096, 0, tools::text(&dump), 500);
    profile.sample(pid, 2000, &[0x4000_0004], None);
    std::fs::write(scene.path("work/recorded"), profile.finish()).unwrap();
    // It looks at the worker meanwhile.
    wait_for_rounds(&running, 4);
    send(&running, Signal::TERM);
    let output = running.wait_with_output().unwrap();
    let said = said(&output);
    let moved = std::fs::read_to_string(scene.path("work/r/dumps").join(name));
    assert_eq!(moved.unwrap_or_default(), "first\nsecond\n", "{said}");
    assert!(!dump.exists() && !said.contains("left where they are"), "{said}");
}

/// As a script that starts a service does.
#[test]
fn runtimes_that_a_program_leaves_running_are_named() {
    // perf reads its buffers when the program has ended.
    let perf = PERF.replace("cp CAPTURE/perf.data \"$output\"\n", "");
    let wait = "\"$@\"\nwhile [ ! -e recorded ]; do sleep 0.05; done\ncp recorded \"$output\"\n";
    let scene = Scene::new(&perf.replace("\"$@\"\n", wait));
    tools::copy_program("/bin/sleep", &scene.path("bin/node"));
    scene.add("start", "node 1000 > node.log 2>&1 &\necho $! > new; mv new pid");
    let mut command = scene.command(&["record", "-o", "r", "--", "start"]);
    let running = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let file = scene.path("work/pid");
    wait_until("the program", || file.exists());
    let text = std::fs::read_to_string(file).unwrap();
    let pid: u32 = text.trim().parse().unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(pid, "node", true, 1000);
    profile.sample(pid, 2000, &[0x4000_0004], None);
    std::fs::write(scene.path("work/new"), profile.finish()).unwrap();
    std::fs::rename(scene.path("work/new"), scene.path("work/recorded")).unwrap();
    let output = running.wait_with_output().unwrap();
    tools::run("kill", &["-TERM", &pid.to_string()]);
    let named = format!("left running: Node.js (process {pid}); to record it: jitinject record -p {pid}\n");
    assert!(said(&output).contains(&named), "{}", said(&output));
}

/// perf reads a file in place of a directory, so an object needs no directories of its own.
#[test]
fn the_cache_of_a_recording_has_links_to_its_objects() {
    let scene = Scene::new(PERF);
    let output = scene.run(&["record", "-o", "r", "--", "true"]);
    assert!(output.status.success(), "{}", said(&output));
    std::fs::rename(scene.path("work/r"), scene.path("moved")).unwrap();
    let links = scene.path("moved/debug/.build-id");
    let below = |folder: &Path| -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    assert_eq!(below(&scene.path("moved/debug")), std::slice::from_ref(&links));
    let entries: Vec<_> = below(&links).iter().flat_map(|folder| below(folder)).collect();
    assert_eq!(entries.len(), 19);
    let objects = std::fs::canonicalize(scene.path("moved/perf.jit.data.elf")).unwrap();
    for entry in entries {
        let object = std::fs::canonicalize(&entry).unwrap();
        assert_eq!(object.parent(), Some(&*objects));
        let names = [entry.parent().unwrap(), &entry].map(|path| path.file_name().unwrap().to_str().unwrap());
        let id = names.concat();
        let bytes: Vec<u8> = (0..id.len() / 2)
            .map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        let content = std::fs::read(&object).unwrap();
        assert!(content.windows(bytes.len()).any(|part| part == bytes), "{id}");
    }
}

#[test]
fn a_folder_that_cannot_be_named_in_a_list_is_reported_for_its_runtime() {
    let scene = Scene::new(PERF);
    scene.add("php", "exit 0");
    for (folder, program, is_reported) in [
        ("a:b", "php", true),
        ("a:b2", "true", false),
        ("a,b", "php", false),
    ] {
        let output = scene.run(&["record", "-o", folder, "--", program]);
        let said = said(&output);
        let wanted = "PHP cannot log its code in a directory whose path has ':'";
        assert_eq!(reports(&said, "JI453", wanted), is_reported, "{folder}: {said}");
        assert_eq!(has_code(&said, "JI453"), is_reported);
    }
}
