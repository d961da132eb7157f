//! perf commands, options of `perf inject` and commands of other profilers, passed to jitinject by mistake.

use std::ffi::OsString;
use std::path::Path;

use jitinject::internals::files::stdio::is_standard;

/// perf commands that read a profile.
const READERS: [&str; 5] = ["annotate", "diff", "mem", "script", "top"];

/// Options of perf inject that do not concern JIT code, each with how perf inject takes it.
const OTHER_OPTIONS: [(&str, &str); 15] = [
    ("-b", "-b"),
    ("--build-ids", "--build-ids"),
    ("--buildid-all", "--buildid-all"),
    ("--mmap2-buildid-all", "--mmap2-buildid-all"),
    ("--known-build-ids", "-b --known-build-ids PATHS"),
    ("-s", "-s"),
    ("--sched-stat", "--sched-stat"),
    ("--itrace", "--itrace"),
    ("--strip", "--itrace --strip"),
    ("-k", "-b -k FILE"),
    ("--vmlinux", "-b --vmlinux FILE"),
    ("--ignore-vmlinux", "-b --ignore-vmlinux"),
    ("--kallsyms", "-b --kallsyms FILE"),
    ("--guestmount", "-b --guestmount DIR"),
    ("--guest-data", "--guest-data=FILE,PID"),
];

/// Adds the command `inject` if the program was started by the name `perf-inject-jit`, which perf runs as
/// `perf inject-jit`.
pub fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments
        .first()
        .and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == "perf-inject-jit") {
        arguments.insert(1, "inject".into());
    }
    arguments
}

/// Returns the command to type instead of one of perf or another profiler.
pub fn advice(arguments: &[OsString]) -> Option<String> {
    let command = arguments.get(1)?.to_str()?;
    match command {
        "version" => Some("type jitinject --version\n".into()),
        "flame" | "flamegraph" => Some("type jitinject export DIR -o flame.svg\n".into()),
        "open" | "show" | "view" => Some("type jitinject report DIR\n".into()),
        _ if READERS.contains(&command) => Some(format!(
            "{command} is a command of perf: type jitinject perf.data, then perf {command} -i perf.jit.data\n"
        )),
        _ => None,
    }
}

/// Returns the commands to type instead of an option of perf inject; `None` for other options.
pub fn option_advice(option: &str) -> Option<String> {
    let commands = match option {
        // perf drops the mappings of jitdumps, or replaces the addresses that jitdumps have.
        "-B" | "--mmap2-buildids" | "--aslr" => {
            format!("jitinject inject --jit -i perf.data | perf inject {option} -o perf.jit.data")
        }
        // perf inject updates the profile itself.
        "--vm-time-correlation" => "perf inject --force --vm-time-correlation -i perf.data, then \
             jitinject inject --jit -i perf.data -o perf.jit.data"
            .to_owned(),
        "--unwind-style" => "jitinject inject --jit --unwind -i perf.data -o perf.jit.data".to_owned(),
        _ => {
            let (_, options) = OTHER_OPTIONS.iter().find(|(name, _)| *name == option)?;
            format!("perf inject {options} -i perf.data | jitinject inject --jit -o perf.jit.data")
        }
    };
    Some(format!(
        "{option} is not an option for JIT code: type {commands}\n"
    ))
}

/// Returns whether a word looks like the name of a command rather than a profile.
pub fn is_mistyped_command(word: &Path) -> bool {
    let bytes = word.as_os_str().as_encoded_bytes();
    !is_standard(word) && !bytes.contains(&b'.') && !bytes.contains(&b'/') && !word.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_perf_are_answered_with_what_to_type() {
        let advice = |line: &str| advice(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let script = advice("jitinject script").unwrap();
        assert!(script.contains("perf script -i perf.jit.data"), "{script}");
        assert!(advice("jitinject flamegraph run").unwrap().contains("export DIR"));
        for line in [
            "jitinject",
            "jitinject timeline",
            "jitinject report",
            "jitinject inject -j",
            "jitinject record -- node app.js",
            "jitinject -i report",
            "jitinject ./report",
        ] {
            assert_eq!(advice(line), None, "{line}");
        }
    }
}
