//! The command line of `perf record`.

use std::ffi::OsString;
use std::path::Path;

use rustix::process::geteuid;

use crate::files::kernel;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::profile::is_user_only;

/// Samples per second. Unlike 1000, it does not stay in step with timers.
const FREQUENCY: &str = "999";

/// Options for perf.
#[derive(Clone, Debug, Default)]
pub struct PerfOptions {
    /// Events; perf chooses without one: `cycles`, and `cpu-clock` where the machine has no such counter.
    pub events: Vec<String>,
    /// Samples per second, or `max`.
    pub frequency: Option<String>,
    /// How stacks are recorded: `fp`, `dwarf`, `lbr`, with perf's additions.
    pub call_graph: Option<String>,
    /// Whether to record all CPUs.
    pub all_cpus: bool,
    /// CPUs to record.
    pub cpus: Option<String>,
    /// Processes to record.
    pub pids: Vec<u32>,
    /// Whether to record where threads wait.
    pub off_cpu: bool,
    /// More arguments.
    pub arguments: Vec<OsString>,
}

impl PerfOptions {
    /// Returns whether whole CPUs are recorded, and not processes only.
    pub fn has_cpus(&self) -> bool {
        let is_option = |word: &OsString| {
            let word = word.to_str().unwrap_or_default();
            ["-a", "--all-cpus", "--cpu"].contains(&word)
                || word.starts_with("-C")
                || word.starts_with("--cpu=")
        };
        self.all_cpus || self.cpus.is_some() || self.arguments.iter().any(is_option)
    }

    /// Returns the same options, but for stacks.
    pub fn without_stacks(&self) -> Self {
        Self {
            call_graph: Some("none".to_owned()),
            ..self.clone()
        }
    }

    /// Returns whether events are requested without the kernel.
    fn excludes_kernel(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|event| is_user_only(event)) || self.arguments.iter().any(|word| word == "--all-user")
    }

    /// Returns a warning about a recording in which perf left out the kernel without being asked to.
    pub fn without_kernel(&self) -> Option<Diagnostic> {
        let level = Permissions::current()
            .paranoid
            .filter(|_| !self.excludes_kernel())?;
        Some(Diagnostic::new(Issue::KernelNotRecorded).with("level", level))
    }

    /// Returns how stacks are recorded, if an option or an argument for perf says so. perf uses the last one.
    pub fn stacks(&self) -> Option<&str> {
        const NAME: &str = "--call-graph";
        let words = self
            .arguments
            .iter()
            .map(|word| word.to_str().unwrap_or_default());
        let pairs = words.clone().zip(words.skip(1).chain([""]));
        let values = pairs.filter_map(|(word, next)| match word.strip_prefix(NAME)? {
            "" => Some(next),
            value => value.strip_prefix('='),
        });
        values.last().or(self.call_graph.as_deref())
    }

    /// Returns whether stacks are copied and unwound with tables.
    pub fn has_stack_copies(&self) -> bool {
        self.stacks().is_some_and(|kind| kind.starts_with("dwarf"))
    }

    /// Returns the arguments of perf, without the program to record. `-q` is left out if `is_verbose`.
    pub fn command_line(&self, output: &Path, is_verbose: bool) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["record".into()];
        let mut add = |words: &[&str]| line.extend(words.iter().map(OsString::from));
        if !is_verbose {
            add(&["-q"]);
        }
        // The clock of the runtimes.
        add(&["-k", "mono"]);
        for event in &self.events {
            add(&["-e", event]);
        }
        // perf accepts a period or a frequency.
        let is_period = |word: &OsString| {
            word.to_str()
                .is_some_and(|word| word.starts_with("-c") || word.starts_with("--count"))
        };
        match &self.frequency {
            Some(frequency) => add(&["-F", frequency]),
            None if self.arguments.iter().any(is_period) => {}
            None => add(&["-F", FREQUENCY]),
        }
        match self.call_graph.as_deref() {
            None | Some("fp") => add(&["-g"]),
            Some("none") => {}
            Some(kind) => add(&["--call-graph", kind]),
        }
        if self.all_cpus {
            add(&["-a"]);
        }
        if let Some(cpus) = &self.cpus {
            add(&["-C", cpus]);
        }
        if !self.pids.is_empty() {
            let pids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
            add(&["-p", &pids.join(",")]);
        }
        if self.off_cpu {
            add(&["--off-cpu"]);
        }
        // Copies of all programs and libraries in ~/.debug take longer than the rest.
        add(&["-N"]);
        if self.has_stack_copies() {
            // By default, perf lists the build IDs of files that were sampled, not of those further up in stacks.
            add(&["--buildid-all"]);
        }
        line.extend_from_slice(&self.arguments);
        line.extend(["-o".into(), output.as_os_str().to_owned()]);
        line
    }
}

/// Why perf recorded nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// This process belongs to another user.
    OtherUser(u32),
    /// `perf_event_paranoid` has this level, which is too high for whole CPUs.
    Cpus(i32),
    /// `perf_event_paranoid` has this level, which is too high.
    Paranoid(i32),
    /// The container does not permit it.
    Container,
    /// Something else.
    Other,
}

/// What decides whether a process may record.
#[derive(Clone, Copy, Debug)]
pub struct Permissions {
    /// Value of `kernel.perf_event_paranoid`, if the kernel has performance events.
    pub paranoid: Option<i32>,
    /// User ID.
    pub user: u32,
    /// Whether the process has CAP_SYS_ADMIN.
    pub is_admin: bool,
    /// Whether the process has CAP_PERFMON or CAP_SYS_ADMIN.
    pub is_capable: bool,
}

impl Permissions {
    /// Returns those of this process.
    pub fn current() -> Self {
        const CAP_SYS_ADMIN: u64 = 1 << 21;
        const CAP_PERFMON: u64 = 1 << 38;
        let paranoid = kernel::read_text("/proc/sys/kernel/perf_event_paranoid");
        let effective = kernel::own_bits("CapEff");
        Self {
            paranoid: paranoid.ok().and_then(|text| text.trim().parse().ok()),
            user: geteuid().as_raw(),
            is_admin: effective & CAP_SYS_ADMIN != 0,
            is_capable: effective & (CAP_SYS_ADMIN | CAP_PERFMON) != 0,
        }
    }

    /// Returns why perf failed with a message. `owner` returns the user of a process, and `is_free_without_stacks` whether perf
    /// records if it does not record stacks.
    pub fn refusal(
        self,
        message: &str,
        options: &PerfOptions,
        owner: impl Fn(u32) -> Option<u32>,
        is_free_without_stacks: impl FnOnce() -> bool,
    ) -> Refusal {
        const REFUSED: [&str; 5] = [
            "perf_event_paranoid",
            "Access to performance",
            "permission",
            "Permission denied",
            "Operation not permitted",
        ];
        if !REFUSED.iter().any(|text| message.contains(text)) {
            return Refusal::Other;
        }
        // Root is only refused in a container.
        let is_user = !self.is_capable && self.user != 0;
        let is_other = |pid: &u32| owner(*pid).is_some_and(|owner| owner != self.user);
        let other = options.pids.iter().copied().find(is_other);
        if let Some(pid) = other.filter(|_| is_user) {
            return Refusal::OtherUser(pid);
        }
        match self.paranoid {
            Some(level) if level > 0 && options.has_cpus() && is_user => Refusal::Cpus(level),
            // Debian and Ubuntu have such levels. For Debian, CAP_PERFMON is not enough.
            Some(level) if level > 2 && !self.is_admin => Refusal::Paranoid(level),
            // Debian's kernel 6.12 forbids stacks at level 2. Only here is perf run to find out.
            Some(level) if level > 1 && is_user && is_free_without_stacks() => Refusal::Paranoid(level),
            // With level 2, processes may record themselves, unless a container forbids the system call.
            _ => Refusal::Container,
        }
    }
}

/// Returns the part of perf's messages that has the reason: its first sentence after `Error:`.
pub fn reason(messages: &str) -> String {
    let lines = messages.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && *line != "Error:");
    let Some(first) = lines.next() else {
        return "perf prints no reason".to_owned();
    };
    first.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(options: &PerfOptions) -> String {
        let line = options.command_line(Path::new("r/perf.data"), false);
        let words: Vec<&str> = line.iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn options_become_those_of_perf() {
        let mut options = PerfOptions::default();
        assert_eq!(line(&options), "record -q -k mono -F 999 -g -N -o r/perf.data");
        options.events = vec!["cycles:u".into(), "faults".into()];
        options.frequency = Some("max".into());
        options.call_graph = Some("dwarf,4096".into());
        options.pids = vec![7, 8];
        options.off_cpu = true;
        options.arguments = vec!["-z".into()];
        assert!(options.has_stack_copies());
        assert_eq!(
            line(&options),
            "record -q -k mono -e cycles:u -e faults -F max --call-graph dwarf,4096 -p 7,8 --off-cpu -N --buildid-all -z -o r/perf.data"
        );
        let period = PerfOptions {
            arguments: vec!["-c".into(), "1000".into()],
            call_graph: Some("none".into()),
            all_cpus: true,
            cpus: Some("0".into()),
            ..PerfOptions::default()
        };
        assert_eq!(
            line(&period),
            "record -q -k mono -a -C 0 -N -c 1000 -o r/perf.data"
        );
    }

    #[test]
    fn arguments_say_how_stacks_are_recorded_as_options_do() {
        let has_copies = |arguments: &[&str]| {
            let options = PerfOptions {
                call_graph: Some("fp".into()),
                arguments: arguments.iter().map(OsString::from).collect(),
                ..PerfOptions::default()
            };
            options.has_stack_copies()
        };
        assert!(has_copies(&["--call-graph", "dwarf"]) && has_copies(&["--call-graph=dwarf,4096"]));
        assert!(has_copies(&["--call-graph=fp", "-a", "--call-graph=dwarf"]));
        assert!(!has_copies(&["-a", "dwarf"]) && !has_copies(&["--call-graph=dwarf", "--call-graph", "fp"]));
    }

    #[test]
    fn events_may_be_requested_without_the_kernel() {
        let excludes = |event: &str| {
            let events = vec!["cycles:k".to_owned(), event.to_owned()];
            let options = PerfOptions {
                events,
                ..PerfOptions::default()
            };
            options.excludes_kernel()
        };
        assert!(excludes("cpu-clock:u") && excludes("cycles:upp") && excludes("cpu/event=0x3c/u"));
        assert!(!excludes("cycles") && !excludes("cycles:uk") && !excludes("syscalls:sys_enter_futex"));
    }

    #[test]
    fn refusals_have_reasons() {
        let limited = "Error:\nAccess to performance monitoring and observability operations is limited.\n";
        let refusal = |paranoid, user, is_capable, options: &PerfOptions| {
            let permissions = Permissions {
                paranoid: Some(paranoid),
                user,
                is_admin: false,
                is_capable,
            };
            permissions.refusal(limited, options, |pid| (pid < 100).then_some(1000), || false)
        };
        let program = PerfOptions::default();
        assert_eq!(refusal(4, 1000, false, &program), Refusal::Paranoid(4));
        assert_eq!(refusal(3, 1000, true, &program), Refusal::Paranoid(3));
        assert_eq!(refusal(2, 1000, false, &program), Refusal::Container);
        assert_eq!(refusal(2, 0, false, &program), Refusal::Container);
        let process = PerfOptions {
            pids: vec![100, 7],
            ..PerfOptions::default()
        };
        assert_eq!(refusal(4, 1000, false, &process), Refusal::Paranoid(4));
        assert_eq!(refusal(4, 1001, false, &process), Refusal::OtherUser(7));
        assert_eq!(refusal(1, 1001, false, &process), Refusal::OtherUser(7));
        assert_eq!(refusal(1, 0, false, &process), Refusal::Container);
        let cpus = PerfOptions {
            cpus: Some("0".into()),
            ..PerfOptions::default()
        };
        assert_eq!(refusal(4, 1000, false, &cpus), Refusal::Cpus(4));
        assert_eq!(refusal(1, 1000, false, &cpus), Refusal::Cpus(1));
        assert_eq!(refusal(0, 1000, false, &cpus), Refusal::Container);
        let user = |paranoid| Permissions {
            paranoid: Some(paranoid),
            user: 1000,
            is_admin: false,
            is_capable: false,
        };
        let without_stacks = |level| user(level).refusal(limited, &program, |_| None, || true);
        assert_eq!(without_stacks(2), Refusal::Paranoid(2));
        assert_eq!(without_stacks(1), Refusal::Container);
        let admin = Permissions {
            paranoid: Some(4),
            user: 0,
            is_admin: true,
            is_capable: true,
        };
        assert_eq!(
            admin.refusal(limited, &program, |_| None, || true),
            Refusal::Container
        );
        let other = admin.refusal("event syntax error: 'x'", &program, |_| None, || true);
        assert_eq!(other, Refusal::Other);
        assert_eq!(
            reason(limited),
            "Access to performance monitoring and observability operations is limited"
        );
        assert_eq!(reason("\n"), "perf prints no reason");
    }
}
