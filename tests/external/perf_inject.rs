//! Tests of other projects that call perf inject, with a program named perf that runs jitinject in its place.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{perf, said, scratch, tools};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder with the program that `docs/perf-inject.md` describes, as `perf` in its folder `bin`.
struct Place {
    folder: tempfile::TempDir,
    /// Path of the perf program that it runs.
    perf: String,
}

impl Place {
    /// Uses a perf program for all other commands.
    fn new(program: &str) -> Self {
        let folder = scratch();
        let document = fs::read_to_string(root().join("docs/perf-inject.md")).unwrap();
        let script = document
            .split("```sh\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        let real = tools::run("sh", &["-c", "command -v \"$1\"", "sh", program]);
        let script = script.replace("/usr/bin/perf", real.trim());
        // perf built from a source package prints no version.
        let version = "[ \"${1:-}\" != --version ] || { echo perf version 7.3; exit; }\n";
        let has_version = tools::run(real.trim(), &["--version"]).contains('.');
        let (first, rest) = script.split_once('\n').unwrap();
        let script = format!("{first}\n{}{rest}", if has_version { "" } else { version });
        let wrapper = folder.path().join("bin/perf");
        fs::create_dir(folder.path().join("bin")).unwrap();
        tools::add_program(&wrapper, script.as_bytes());
        let perf = real.trim().to_owned();
        Self { folder, perf }
    }

    /// Runs a script in the folder, whatever its exit status. An empty folder is HOME.
    fn attempt(&self, script: &str) -> Output {
        let folder = self.folder.path();
        let jitinject = Path::new(env!("CARGO_BIN_EXE_jitinject")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}/bin:{}:{path}", folder.display(), jitinject.display());
        fs::create_dir_all(folder.join("home")).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-euc", script]).current_dir(folder);
        shell.env("PATH", path).env("HOME", folder.join("home"));
        shell.output().unwrap()
    }

    /// Runs a script, which must succeed; returns its standard output.
    fn run(&self, script: &str) -> String {
        let ran = self.attempt(script);
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{script}\n{printed}{}", said(&ran));
        printed
    }

    fn copy(&self, program: &str) {
        let source = root().join("tests/external/programs").join(program);
        fs::copy(source, self.folder.path().join(program)).unwrap();
    }
}

/// The pipelines of perf's pipe_test.sh, with JIT code; compressed records, as in its tests of Zstandard.
#[test]
fn pipelines_with_perf_inject_name_jit_code() {
    for program in perf::programs() {
        let place = Place::new(&program);
        place.copy("fib.js");
        let node = "node --perf-prof --interpreted-frames-native-stack fib.js";
        let to_pipe = format!("perf record -k mono -g -o - {node}");
        for script in [
            format!("{to_pipe} | perf inject -j | perf report -i - --stdio --no-inline"),
            format!(
                "{to_pipe} | perf inject -j -o named.data; perf report -i named.data --stdio --no-inline"
            ),
            format!(
                "{to_pipe} >pipe.data; perf inject -j -i pipe.data | perf report -i - --stdio --no-inline"
            ),
            format!(
                "{to_pipe} >pipe.data; perf inject -j -i pipe.data -o named.data; perf report -i named.data --stdio --no-inline"
            ),
            format!(
                "perf record -k mono -g -o perf.data {node}; perf inject --jit --input=perf.data | perf report -i - --stdio --no-inline"
            ),
            format!(
                "perf record -k mono -g -z -o perf.data {node}; perf inject -j -i perf.data -o named.data; perf report -i named.data --stdio --no-inline"
            ),
        ] {
            let shown = place.run(&script);
            assert!(shown.contains("JS:*fib"), "{program}: {script}\n{shown}");
        }
    }
}

/// perf archive packs what perf's build-id cache has of a profile's objects: those of sampled addresses. It takes long for a
/// program of the size of node.
#[test]
fn an_archive_of_perf_has_the_objects() {
    for program in perf::programs() {
        let place = Place::new(&program);
        place.copy("fib.php");
        place.run(
            "perf record -k mono -g -o perf.data php -d opcache.enable_cli=1 -d opcache.jit_buffer_size=32M \
                -d opcache.file_update_protection=0 -d opcache.jit=tracing -d opcache.jit_debug=32 fib.php
            perf inject -j -i perf.data -o named.data",
        );
        let report =
            "perf report -i named.data --stdio --no-children -g none -s sym --no-inline | grep 'TRACE-'";
        let expected = place.run(report);
        assert!(expected.contains("$fib$"), "{program}: {expected}");
        place.run("perf archive named.data; rm -r home/.debug named.data.elf; mkdir home/.debug");
        assert!(!place.attempt(report).status.success(), "{program}");
        place.run("tar -xf named.data.tar.bz2 -C home/.debug");
        assert_eq!(place.run(report), expected, "{program}");
    }
}

/// Erlang/OTP expects no output of perf inject, and the code of a function in its profile.
#[test]
fn the_check_of_erlang_finds_the_code_of_a_function() {
    for program in perf::programs() {
        let place = Place::new(&program);
        place.copy("app.erl");
        place.run("erlc app.erl; perf record -k mono -g -o perf.data erl +JPperf true -noinput -s app main");
        let printed = place.run("perf inject -j -i perf.data -o perf.data.jit.data 2>&1");
        assert_eq!(printed, "", "{program}");
        let samples = place.run("perf script -i perf.data.jit.data -F ip,sym");
        let mut words = samples.split_whitespace();
        let symbol = words.find(|word| word.contains("app:fib/1"));
        let symbol = symbol.unwrap_or_else(|| panic!("{samples}"));
        let annotate = |profile: &str| format!("perf annotate --stdio -i {profile} '{symbol}'");
        let annotated = place.attempt(&annotate("perf.data.jit.data"));
        if annotated.status.success() {
            let annotated = String::from_utf8_lossy(&annotated.stdout);
            assert!(
                annotated.contains("Disassembly of section .text:"),
                "{program}: {annotated}"
            );
            continue;
        }
        // perf 6.12 of Debian crashes here, with its own output as well.
        let own = "inject --jit -i perf.data -o own.data";
        let own = format!(
            "{} --buildid-dir /dev/null {own}; {}",
            place.perf,
            annotate("own.data")
        );
        assert!(
            !place.attempt(&own).status.success(),
            "{program}: {}",
            said(&annotated)
        );
    }
}

/// ROOT looks for the path of the jitdump in the messages, and for its function there.
#[test]
fn the_check_of_root_finds_the_jitdump() {
    for program in perf::programs() {
        let place = Place::new(&program);
        place.copy("fib.js");
        let found = place.run(
            "perf record -k mono -o perf.data node --perf-prof fib.js
            line=$(perf inject -v -j -i perf.data -o perf_inject.data 2>&1 | grep 'jit marker found')
            grep -c 'JS:\\*fib' \"${line#*: }\"",
        );
        assert_ne!(found.trim(), "0", "{program}");
    }
}

/// The other commands that messages name do what they say.
#[test]
fn commands_for_other_options_of_perf_inject_work() {
    for program in perf::programs() {
        let place = Place::new(&program);
        place.copy("fib.js");
        place.run("perf record -k mono -g -o perf.data node --perf-prof fib.js");
        let known = tools::report(&program, &["inject", "-h"]);
        let mut tried = 0;
        for (option, value) in [
            ("-b", ""),
            ("--buildid-all", ""),
            ("-B", ""),
            ("--mmap2-buildid-all", ""),
            ("--known-build-ids", "/bin/none:00"),
            ("-s", ""),
            ("--itrace", ""),
            ("--ignore-vmlinux", ""),
            ("--kallsyms", "/proc/kallsyms"),
            ("--guestmount", "/tmp"),
            ("--aslr", ""),
        ] {
            if !known.contains(&format!(" {option}")) {
                continue;
            }
            let refused = place.attempt(&format!("jitinject inject {option}"));
            let message = said(&refused);
            let (_, commands) = message
                .split_once(": type ")
                .unwrap_or_else(|| panic!("{option}: {message}"));
            let commands = ["PATHS", "FILE", "DIR"]
                .iter()
                .fold(commands.to_owned(), |text, word| text.replace(word, value));
            let commands = commands.replace("perf inject", &format!("'{}' inject", place.perf));
            place.run(&format!("rm -f perf.jit.data; {commands}"));
            let shown = place.run("perf report -i perf.jit.data --stdio --no-inline");
            assert!(shown.contains("JS:*fib"), "{program}: {commands}\n{shown}");
            tried += 1;
        }
        assert!(tried >= 8, "{program}: {tried}");
    }
}

#[test]
#[ignore = "needs CPython 3.13 with its tests"]
fn cpython_with_a_jitdump_passes_its_own_test() {
    for program in perf::programs() {
        let place = Place::new(&program);
        let ran = place.attempt("python3.13 -m test -v test_perf_profiler");
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{program}: {printed}{}", said(&ran));
        assert!(
            printed.contains("Ran ") && printed.contains("Result: SUCCESS"),
            "{program}: {printed}"
        );
    }
}
