//! The command line of `perf record`.

use std::ffi::OsString;
use std::path::Path;

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
    /// More arguments.
    pub arguments: Vec<OsString>,
}

impl PerfOptions {
    /// Returns whether stacks are copied and unwound with tables.
    pub fn has_stack_copies(&self) -> bool {
        self.call_graph
            .as_ref()
            .is_some_and(|kind| kind.starts_with("dwarf"))
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
    /// `perf_event_paranoid` is too high.
    Paranoid,
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
    /// Whether the process has CAP_PERFMON or CAP_SYS_ADMIN.
    pub is_capable: bool,
}

impl Permissions {
    /// Returns those of this process.
    pub fn current() -> Self {
        const CAP_SYS_ADMIN: u64 = 1 << 21;
        const CAP_PERFMON: u64 = 1 << 38;
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        Self {
            paranoid: paranoid.ok().and_then(|text| text.trim().parse().ok()),
            is_capable: effective.unwrap_or(0) & (CAP_SYS_ADMIN | CAP_PERFMON) != 0,
        }
    }

    /// Returns why perf failed with a message.
    pub fn refusal(self, message: &str) -> Refusal {
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
        // With level 2, processes may record themselves, unless a container forbids the system call.
        match self.paranoid {
            Some(level) if level > 2 && !self.is_capable => Refusal::Paranoid,
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
        options.arguments = vec!["-z".into()];
        assert!(options.has_stack_copies());
        assert_eq!(
            line(&options),
            "record -q -k mono -e cycles:u -e faults -F max --call-graph dwarf,4096 -p 7,8 -N --buildid-all -z -o r/perf.data"
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
    fn refusals_have_reasons() {
        let may = |paranoid, is_capable| Permissions {
            paranoid: Some(paranoid),
            is_capable,
        };
        let limited = "Error:\nAccess to performance monitoring and observability operations is limited.\n";
        assert_eq!(may(4, false).refusal(limited), Refusal::Paranoid);
        assert_eq!(may(2, false).refusal(limited), Refusal::Container);
        assert_eq!(may(4, true).refusal(limited), Refusal::Container);
        assert_eq!(may(4, false).refusal("event syntax error: 'x'"), Refusal::Other);
        assert_eq!(
            reason(limited),
            "Access to performance monitoring and observability operations is limited"
        );
        assert_eq!(reason("\n"), "perf prints no reason");
    }
}
