//! `jitinject inject` in the place of `perf inject --jit`, and standard input as the profile.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::build_id_cache::{Entry, tree};
use crate::support::processes::{send, wait_until, with_usual_signals};
use crate::support::{attempt, capture, codes, has_code, jitinject, said, scratch, shown, tools};

/// Samples in the profile `perf.data` of [`php`], and in the one that standard input has.
const IN_FILE: usize = 366;
const IN_STREAM: usize = 320;

/// Copies a recording of PHP, whose profile has the name that perf record gives it.
fn php() -> TempDir {
    let folder = scratch();
    for file in ["perf.data", "jit-26234.dump"] {
        fs::copy(capture::folder("php82").join(file), folder.path().join(file)).unwrap();
    }
    folder
}

/// Returns the other profile.
fn stream() -> PathBuf {
    capture::profile("node20-pipe")
}

/// Returns a command that runs jitinject for a user with the home directory `home` in a folder.
fn at_home(folder: &Path) -> Command {
    let mut command = jitinject();
    command.env("HOME", folder.join("home")).current_dir(folder);
    command.env_remove("PERF_BUILDID_DIR").env_remove("PERF_CONFIG");
    command
}

fn run(folder: &Path, arguments: &[&str], stdin: Stdio) -> Output {
    at_home(folder).args(arguments).stdin(stdin).output().unwrap()
}

/// Runs a script with the program as `$jitinject`, and [`stream`] as `$stream`.
fn run_script(folder: &Path, script: &str) -> Output {
    let mut shell = Command::new("sh");
    shell
        .env("jitinject", jitinject().get_program())
        .env("stream", stream())
        .env("HOME", folder.join("home"));
    shell.args(["-c", script]).current_dir(folder).output().unwrap()
}

/// Returns the number of samples in an output, without which there is no such file.
fn samples(folder: &Path, output: &str) -> Option<usize> {
    let output = folder.join(output);
    output.exists().then(|| shown::leaves(&output).len())
}

/// Command lines of projects that call perf inject, without that word: wasmtime, V8, crossbench, Skia, asmjit, GraalVM, CPython,
/// Erlang/OTP, gProfiler, XLA, ROOT, perf's tests, .NET, ART.
const IN_THE_WILD: [&str; 17] = [
    "--jit --input perf.data --output perf.jit.data",
    "--jit --input=perf.data --output=perf.data.jitted",
    "-j -i perf.data -o perf.data.jitted",
    "-j -i perf.data -o jit_output.dump",
    "--jit -o perf.data.inject -i perf.data",
    "-i perf.data -o perf.data.jit -j",
    "--input perf.data --jit --output jitted.data",
    "-i perf.data -o perf.data.art",
    "-v -j -i perf.data -o perf_inject.data",
    "-j -v -i perf.data -o jitted.data",
    "-j -vv -i perf.data -o jitted.data",
    "--verbose --jit -i perf.data -o jitted.data",
    "-f -j -i perf.data -o jitted.data",
    "--force --force -j --jit -i perf.data -o jitted.data",
    "-jvfiperf.data -ojitted.data",
    "-j -i missing.data -i perf.data -o jitted.data",
    "-j --convert-callchain -i perf.data -o jitted.data",
];

#[test]
fn command_lines_of_perf_inject_write_the_same_profile() {
    let folder = php();
    for line in IN_THE_WILD {
        let words: Vec<&str> = line.split(' ').collect();
        let outputs = words.windows(2).find_map(|pair| match pair {
            ["-o" | "--output", output] => Some(*output),
            _ => None,
        });
        let glued = words
            .iter()
            .find_map(|word| word.strip_prefix("--output=").or(word.strip_prefix("-o")));
        let output = outputs.or(glued.filter(|output| !output.is_empty())).unwrap();
        let written = |arguments: &[&str]| {
            let ran = run(folder.path(), arguments, Stdio::null());
            assert!(ran.status.success(), "{arguments:?}: {}", said(&ran));
            assert!(ran.stdout.is_empty(), "{arguments:?}");
            let bytes = fs::read(folder.path().join(output)).unwrap();
            fs::remove_file(folder.path().join(output)).unwrap();
            (said(&ran), bytes)
        };
        let unwound = line.contains("--convert-callchain").then_some("--unwind");
        let usual: Vec<&str> = ["-q", "-i", "perf.data", "-o", output]
            .into_iter()
            .chain(unwound)
            .collect();
        let (_, expected) = written(&usual);
        let (said, bytes) = written(&[&["inject"], &words[..]].concat());
        assert!(bytes == expected, "{line}");
        let is_verbose = ["-v", "-vv", "--verbose"]
            .iter()
            .any(|option| words.contains(option));
        if is_verbose || line.starts_with("-jv") {
            // Scripts take the path after the first colon.
            assert!(
                said.starts_with("jit marker found: ./jit-26234.dump\n"),
                "{line}: {said}"
            );
        } else if unwound.is_some() {
            // There are no stacks to unwind.
            assert_eq!(codes(&said), ["JI183"], "{line}");
        } else {
            assert_eq!(said, "", "{line}");
        }
        // The main command takes the options, too, but not one twice.
        if !line.contains("missing") && !line.contains("--force") {
            let (_, bytes) = written(&words);
            assert!(bytes == expected, "{line}");
        }
    }
}

#[test]
fn inject_reads_and_writes_streams_unless_told_otherwise() {
    let folder = php();
    let open = || Stdio::from(File::open(folder.path().join("perf.data")).unwrap());
    let expected = run(folder.path(), &["-q", "-i", "-", "-o", "-"], open());
    assert!(expected.stdout.starts_with(b"PERFILE2"));
    let is_expected = |ran: Output, case: &str| {
        assert!(ran.status.success(), "{case}: {}", said(&ran));
        assert_eq!(said(&ran), "", "{case}");
        assert!(ran.stdout == expected.stdout, "{case}");
    };
    is_expected(run(folder.path(), &["inject", "-j"], open()), "file to pipe");
    is_expected(
        run_script(folder.path(), "cat perf.data | \"$jitinject\" inject -j"),
        "pipe to pipe",
    );
    is_expected(
        run_script(folder.path(), "cat perf.data | \"$jitinject\" inject -j | cat"),
        "pipeline",
    );
    let ran = run(folder.path(), &["inject", "-j", "-o", "x.data"], open());
    assert_eq!(
        (said(&ran), samples(folder.path(), "x.data")),
        (String::new(), Some(IN_FILE))
    );
    // The file of the usual name is not read.
    let ran = run(folder.path(), &["inject", "-j"], Stdio::null());
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(codes(&said(&ran)), ["JI435"]);
}

#[test]
fn the_name_perf_inject_jit_is_the_command_inject() {
    let folder = php();
    let link = folder.path().join("perf-inject-jit");
    std::os::unix::fs::symlink(jitinject().get_program(), &link).unwrap();
    let ran = Command::new(link)
        .args(["-j", "-i", "perf.data", "-o", "x.data"])
        .current_dir(folder.path())
        .env("HOME", folder.path().join("home"))
        .output()
        .unwrap();
    assert_eq!(
        (said(&ran), samples(folder.path(), "x.data")),
        (String::new(), Some(IN_FILE))
    );
}

#[test]
fn other_options_of_perf_inject_are_answered_with_commands() {
    let folder = php();
    for (options, expected) in [
        (
            "-b",
            "perf inject -b -i perf.data | jitinject inject --jit -o perf.jit.data",
        ),
        (
            "--buildid-all",
            "perf inject --buildid-all -i perf.data | jitinject inject --jit -o",
        ),
        (
            "--known-build-ids=/bin/x:12",
            "perf inject -b --known-build-ids PATHS -i perf.data |",
        ),
        ("-s", "perf inject -s -i perf.data | jitinject inject --jit -o"),
        (
            "--strip",
            "perf inject --itrace --strip -i perf.data | jitinject inject --jit -o",
        ),
        (
            "--itrace=i100us",
            "perf inject --itrace -i perf.data | jitinject inject --jit -o",
        ),
        ("-k vmlinux", "perf inject -b -k FILE -i perf.data |"),
        ("--kallsyms x", "perf inject -b --kallsyms FILE -i perf.data |"),
        ("--guestmount x", "perf inject -b --guestmount DIR -i perf.data |"),
        (
            "--vm-time-correlation",
            "perf inject --force --vm-time-correlation -i perf.data, then jitinject inject",
        ),
        (
            "-B",
            "jitinject inject --jit -i perf.data | perf inject -B -o perf.jit.data",
        ),
        (
            "--aslr",
            "jitinject inject --jit -i perf.data | perf inject --aslr -o perf.jit.data",
        ),
    ] {
        for command in [&["inject", "-j"][..], &["-j"]] {
            let typed: Vec<&str> = command.iter().copied().chain(options.split(' ')).collect();
            let ran = run(folder.path(), &typed, Stdio::null());
            assert_eq!(ran.status.code(), Some(2), "{typed:?}");
            let said = said(&ran);
            assert!(said.contains(expected), "{typed:?}: {said}");
            assert_eq!(said.trim_end().lines().count(), 1, "{typed:?}: {said}");
        }
    }
    // Other commands have options of their own.
    let ran = run(folder.path(), &["check", "-b"], Stdio::null());
    assert!(said(&ran).contains("unexpected argument '-b'"), "{}", said(&ran));
}

/// perf archive looks for objects in the cache that perf inject fills: that of perf's environment or configuration, or
/// `~/.debug`.
#[test]
fn objects_are_also_in_the_build_id_cache_of_perf() {
    let folder = php();
    let (home, cache) = (folder.path().join("home"), folder.path().join("cache"));
    fs::create_dir(&home).unwrap();
    // Returns the numbers of build IDs in ~/.debug and in the other cache, which are removed.
    let cached = |arguments: &[&str], variables: &[(&str, &Path)]| {
        let caches = [home.join(".debug"), cache.clone()];
        caches.iter().for_each(|cache| fs::create_dir(cache).unwrap());
        let mut command = at_home(folder.path());
        command.args(arguments).args(["-i", "perf.data", "-o", "x.data"]);
        let ran = command.envs(variables.iter().copied()).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", said(&ran));
        assert!(
            arguments[0] != "inject" || said(&ran).is_empty(),
            "{}",
            said(&ran)
        );
        caches.map(|cache| {
            let links = tree(&cache)
                .into_values()
                .filter(|entry| matches!(entry, Entry::Link(_)));
            let found = links.count();
            fs::remove_dir_all(cache).unwrap();
            found
        })
    };
    assert_eq!(cached(&["inject", "-j"], &[]), [19, 0]);
    assert_eq!(
        cached(&["inject", "-j"], &[("PERF_BUILDID_DIR", &cache)]),
        [0, 19]
    );
    assert_eq!(
        cached(&["inject", "-j", "--build-id-cache", "cache"], &[]),
        [0, 19]
    );
    assert_eq!(cached(&["inject", "-j", "--no-build-id-cache"], &[]), [0, 0]);
    assert_eq!(cached(&["-j"], &[]), [0, 0]);
    let configuration = folder.path().join("perfconfig");
    fs::write(
        &configuration,
        format!("[buildid]\n\tdir = {}\n", tools::text(&cache)),
    )
    .unwrap();
    assert_eq!(
        cached(&["inject", "-j"], &[("PERF_CONFIG", &configuration)]),
        [0, 19]
    );
    fs::rename(&configuration, home.join(".perfconfig")).unwrap();
    assert_eq!(cached(&["inject", "-j"], &[]), [0, 19]);
}

/// As perf inject does.
#[test]
fn a_cache_of_perf_that_cannot_be_filled_is_a_note() {
    let folder = php();
    fs::create_dir(folder.path().join("home")).unwrap();
    File::create(folder.path().join("home/.debug")).unwrap();
    let line = ["inject", "-j", "-i", "perf.data", "-o", "x.data"];
    let ran = run(folder.path(), &line, Stdio::null());
    assert!(ran.status.success());
    assert_eq!(said(&ran), "");
    assert_eq!(samples(folder.path(), "x.data"), Some(IN_FILE));
    let ran = run(folder.path(), &[&line[..], &["-v"]].concat(), Stdio::null());
    assert!(ran.status.success());
    assert!(said(&ran).contains("note[JI401]"), "{}", said(&ran));
    assert!(
        !said(&ran).contains("objects in the build-id cache"),
        "{}",
        said(&ran)
    );
    let named = [&line[..], &["--build-id-cache", "home/.debug"]].concat();
    let ran = run(folder.path(), &named, Stdio::null());
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
}

/// A profile on standard input is read, however late it comes.
#[test]
fn a_profile_on_standard_input_is_read_instead_of_an_older_file() {
    let folder = php();
    for script in [
        "cat \"$stream\" | \"$jitinject\" -q -o x.data",
        // Programs of a pipeline may start with a password prompt.
        "(sleep 2; cat \"$stream\") | \"$jitinject\" -q -o x.data",
        "\"$jitinject\" -q -o x.data <\"$stream\"",
    ] {
        let ran = run_script(folder.path(), script);
        assert_eq!(said(&ran), "", "{script}");
        assert_eq!(samples(folder.path(), "x.data"), Some(IN_STREAM), "{script}");
        fs::remove_file(folder.path().join("x.data")).unwrap();
    }
    // The program that has started jitinject writes to a pipe or a socket.
    let (socket, mut other_end) = std::os::unix::net::UnixStream::pair().unwrap();
    let writer = std::thread::spawn(move || other_end.write_all(&fs::read(stream()).unwrap()).unwrap());
    let ran = run(
        folder.path(),
        &["-o", "x.data"],
        Stdio::from(std::os::fd::OwnedFd::from(socket)),
    );
    assert!(!has_code(&said(&ran), "JI434"), "{}", said(&ran));
    writer.join().unwrap();
    assert_eq!(samples(folder.path(), "x.data"), Some(IN_STREAM));
    let ran = run_script(
        folder.path(),
        "cat \"$stream\" | \"$jitinject\" timeline -o - | wc -c; test ! -e timeline.html",
    );
    assert!(
        ran.status.success() && !has_code(&said(&ran), "JI434"),
        "{}",
        said(&ran)
    );
}

/// Scripts and servers that test programs have all kinds of standard input.
#[test]
fn without_a_profile_on_standard_input_the_usual_file_is_read() {
    let folder = php();
    let is_read = |ran: &Output, output: &str, expected: &[&str], case: &str| {
        assert!(ran.status.success(), "{case}: {}", said(ran));
        assert_eq!(codes(&said(ran)), expected, "{case}");
        assert_eq!(samples(folder.path(), output), Some(IN_FILE), "{case}");
        fs::remove_file(folder.path().join(output)).unwrap();
    };
    is_read(
        &run(folder.path(), &[], Stdio::null()),
        "perf.jit.data",
        &[],
        "/dev/null",
    );
    let script = |script: &str, expected: &[&str]| {
        is_read(&run_script(folder.path(), script), "x.data", expected, script);
    };
    script("\"$jitinject\" -o x.data <&-", &[]);
    script(": >empty; \"$jitinject\" -o x.data <empty", &[]);
    script("printf 'x\\ny\\n' >names; \"$jitinject\" -o x.data <names", &[]);
    // Nobody writes any more: the shell has ended the program before.
    script(
        "mkfifo fifo; : >fifo & exec 3<fifo; wait; \"$jitinject\" -o x.data <&3",
        &["JI434"],
    );
    // What the script itself reads is left in the pipe.
    let ran = run_script(
        folder.path(),
        "printf 'x\\ny\\n' | (while read name; do \"$jitinject\" -q -o $name.data || exit; done)",
    );
    is_read(&ran, "x.data", &[], "names in a pipe");
    assert_eq!(samples(folder.path(), "y.data"), Some(IN_FILE), "{}", said(&ran));
    // A pipe that stays open.
    let mut command = jitinject();
    command.args(["-o", "x.data"]).current_dir(folder.path());
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pipe = child.stdin.take();
    let ran = child.wait_with_output().unwrap();
    drop(pipe);
    is_read(&ran, "x.data", &["JI434"], "open pipe");
}

#[test]
fn a_pipeline_that_writes_nothing_is_an_error() {
    let folder = php();
    let ran = run_script(folder.path(), "sleep 2 | \"$jitinject\" -o x.data");
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_eq!(codes(&said(&ran)), ["JI435"]);
    assert_eq!(samples(folder.path(), "x.data"), None);
    // Its programs have ended before: only an option shows that it is one.
    let ran = run_script(
        folder.path(),
        "mkfifo fifo; : >fifo & exec 3<fifo; wait; \"$jitinject\" -i - -o x.data <&3",
    );
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_eq!(codes(&said(&ran)), ["JI435"]);
    assert_eq!(samples(folder.path(), "x.data"), None);
}

/// While a file is read, the first Ctrl-C ends the program, as any other.
#[test]
fn an_interrupt_ends_the_reading_of_a_file() {
    let folder = scratch();
    let profile = folder.path().join("perf.data");
    fs::copy(capture::profile("node20"), &profile).unwrap();
    // Reading takes longer than starting.
    File::options()
        .append(true)
        .open(&profile)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    // An output that nobody reads, so that the program does not end by itself.
    let output = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&output).status().unwrap().success());
    let _reader = rustix::fs::open(&output, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    let mut command = jitinject();
    command.args(["-q", "-i", tools::text(&profile), "-o", tools::text(&output)]);
    let mut child = with_usual_signals(&mut command).spawn().unwrap();
    interrupt(&child);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
}

/// Sends SIGINT as soon as the program handles signals.
fn interrupt(child: &std::process::Child) {
    let status = format!("/proc/{}/task", child.id());
    wait_until("a thread for signals", || {
        let tasks = fs::read_dir(&status).into_iter().flatten().flatten();
        let mut names = tasks.map(|task| fs::read_to_string(task.path().join("comm")).unwrap_or_default());
        names.any(|name| name.trim() == "signals")
    });
    send(child, Signal::INT);
}

#[test]
fn a_closed_pipe_is_no_error_for_the_summary() {
    let folder = php();
    let mut command = jitinject();
    command
        .args(["-q", "-o", "x.data", "--summary", "-"])
        .current_dir(folder.path());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = child.wait_with_output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(said(&ran), "");
    assert_eq!(samples(folder.path(), "x.data"), Some(IN_FILE));
}

#[test]
fn what_cannot_be_a_profile_is_said_to_be_none() {
    let folder = scratch();
    let output = folder.path().join("x.data");
    let ran = attempt(folder.path(), &output, &[]);
    assert_eq!(codes(&said(&ran)), ["JI436"]);
    assert!(
        said(&ran).contains("is a directory, without a profile in it"),
        "{}",
        said(&ran)
    );
    // As record --runs leaves them.
    let run_1 = folder.path().join("run-1");
    fs::create_dir(&run_1).unwrap();
    File::create(run_1.join("perf.data")).unwrap();
    let ran = attempt(folder.path(), &output, &[]);
    assert_eq!(codes(&said(&ran)), ["JI436"]);
    assert!(said(&ran).contains("run-1"), "{}", said(&ran));
    let empty = folder.path().join("perf.data");
    File::create(&empty).unwrap();
    let ran = attempt(&empty, &output, &[]);
    assert_eq!(codes(&said(&ran)), ["JI424"]);
    assert!(said(&ran).contains("interrupted"), "{}", said(&ran));
    let ran = run(folder.path(), &["-i", "-"], Stdio::null());
    assert_eq!(codes(&said(&ran)), ["JI435"]);
}

/// The runtime did log its code, so there is no advice to make it do so.
#[test]
fn a_truncated_jitdump_is_the_only_cause_that_is_reported() -> io::Result<()> {
    for (name, dump, size) in [
        ("php82", "jit-26234.dump", 3000),
        ("node20", "jit-11682.dump", 500_000),
    ] {
        let folder = scratch();
        let profile = folder.path().join("perf.data");
        fs::copy(capture::profile(name), &profile)?;
        let content = fs::read(capture::folder(name).join(dump))?;
        fs::write(folder.path().join(dump), &content[..size])?;
        let ran = attempt(&profile, &folder.path().join("x.data"), &[]);
        assert_eq!(codes(&said(&ran)), ["JI013", "JI172"], "{}", said(&ran));
        assert!(said(&ran).contains("with the whole file"), "{}", said(&ran));
    }
    Ok(())
}
