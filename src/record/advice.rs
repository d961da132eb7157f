//! What to do about runtimes that have logged nothing, in a recording that has set variables for some of them.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

use jitdump::printable;

use super::environment::{has_variables, is_set_for};
use super::plan::Plan;
use super::recorded::Recorded;
use super::watch::Seen;
use crate::bytes::base_name;
use crate::load::advice::PYTHON_TOO_OLD;
use crate::results::diagnostics::issues::EMBEDDED_COMPILER;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::{SampleSummary, shell_word};
use crate::runtimes::{Description, Runtime};

/// What to do if the variables of a runtime were not set.
const NAME_RUNTIME: &str = "The variables of this runtime are set only for programs that are known to start it, because they could do \
     harm to others. With the option, only those of the runtimes in it are set, so name all that the program starts.";

/// Why a runtime may have logged nothing, or not all of its code, although its options were set.
const OPTIONS_WERE_SET: &str =
    "record set its options, but it ended too early, lost its variables, or cannot log this code";

/// A further reason for Node.js.
const OR_NOT_WRITABLE: &str =
    ", or could not write to its working directory (V8 then logs to its standard output)";

/// What to do if the process still writes its jitdump when the recording ends.
const READ_AGAIN: &str = "After it has exited, type jitinject report {folder}: this reads the whole jitdump.";

/// What to do if a signal has ended the process before it wrote the end of its jitdump.
const HANDLE_SIGNAL: &str = "A signal ended the program. V8 writes the last 4 KiB of its jitdump when it exits, so let \
     the program handle the signal, in Node.js with process.on('SIGTERM', () => process.exit()).";

/// What a jitdump ends with if a signal ends its process.
const CUT_OFF: [Issue; 3] = [
    Issue::JitdumpCutTail,
    Issue::JitdumpDebugInfoUnpaired,
    Issue::JitdumpUnwindingUnpaired,
];

/// Makes notes of the faults at the cut-off end of a jitdump where nothing needs to be done about it: if all code has names, as
/// when a program ends its workers by signals, or if its process still writes it, which is reported with its own advice.
fn with_cut_ends(diagnostics: Vec<Diagnostic>, samples: &SampleSummary) -> Vec<Diagnostic> {
    let stacks = &samples.in_stacks;
    let is_all_named = samples.named == samples.jit && stacks.named == stacks.frames;
    let written = still_written(&diagnostics);
    let is_harmless = |it: &Diagnostic| is_all_named || written.contains(&file_name(it));
    let cut: BTreeSet<Option<String>> = diagnostics
        .iter()
        .filter(|it| it.issue == Issue::JitdumpCutTail && is_harmless(it))
        .map(|it| it.file.clone())
        .collect();
    let as_needed = |diagnostic: Diagnostic| {
        if CUT_OFF.contains(&diagnostic.issue) && cut.contains(&diagnostic.file) {
            diagnostic.as_note()
        } else {
            diagnostic
        }
    };
    diagnostics.into_iter().map(as_needed).collect()
}

/// Returns the names of jitdumps that their processes still write. One that was read by way of its process is left out: what is
/// in the recording is a copy.
fn still_written(diagnostics: &[Diagnostic]) -> BTreeSet<Option<Vec<u8>>> {
    let written = diagnostics
        .iter()
        .filter(|it| it.issue == Issue::DumpStillWritten && it.field("copy").is_none());
    written.map(file_name).collect()
}

/// Returns the name of the file of a diagnostic. That a jitdump is still written is said of the file at its path, its faults are
/// those of the copy in the recording.
fn file_name(diagnostic: &Diagnostic) -> Option<Vec<u8>> {
    let file = diagnostic.file.as_deref()?;
    Some(base_name(file.as_bytes()).to_vec())
}

/// Returns the runtime that a diagnostic names.
fn runtime_of(diagnostic: &Diagnostic) -> Option<&'static Description> {
    let name = diagnostic.field("runtime")?;
    Description::all().find(|runtime| runtime.name == name)
}

/// Returns the runtime that a diagnostic advises to enable; `None` for other diagnostics.
fn runtime_to_enable(diagnostic: &Diagnostic) -> Option<&'static Description> {
    runtime_of(diagnostic).filter(|_| diagnostic.issue == Issue::EnableRuntime)
}

/// Whether a diagnostic says that a version is too old to log its code.
fn is_too_old(diagnostic: &Diagnostic) -> bool {
    diagnostic.field("how") == Some(PYTHON_TOO_OLD)
}

impl Plan {
    /// Returns the option that makes the recording set the variables of a runtime, too, if it does not.
    fn missing_option(&self, runtime: &Description) -> Option<String> {
        let is_set = is_set_for(runtime.runtime, &self.runtimes, self.has_others());
        let id = runtime.id.filter(|_| !self.environment.is_empty() && !is_set)?;
        let known = self.runtimes.iter().filter_map(|known| known.description().id);
        let ids: Vec<&str> = known.chain([id]).collect();
        Some(format!("record it again with --runtime {}", ids.join(",")))
    }

    /// Whether the recording has set the variables that make a runtime log its code.
    fn has_set_options(&self, runtime: &Description) -> bool {
        has_variables(runtime.runtime, &self.environment)
    }

    /// Whether the recording may have started processes of a runtime. With whole CPUs, it has others, too.
    fn may_have_started(&self, runtime: &Description, seen: &Seen) -> bool {
        let mut processes = seen.processes.iter();
        !self.perf.has_cpus()
            || self.runtimes.contains(&runtime.runtime)
            || processes.any(|process| process.runtime == runtime.name)
    }

    /// Adds to a diagnostic how a runtime would log its code.
    pub(super) fn with_advice(&self, diagnostic: Diagnostic, runtime: &Description) -> Diagnostic {
        match self.missing_option(runtime) {
            Some(option) => diagnostic.with("how", option).with_remedy(NAME_RUNTIME),
            None => diagnostic.with("how", runtime.how),
        }
    }

    /// Returns the diagnostics of the named profile, with advice that helps here. What was printed during the
    /// recording or before it is left out, and so is that on compilers that stayed off.
    pub fn advised(
        &self,
        diagnostics: &[Diagnostic],
        samples: &SampleSummary,
        seen: &Seen,
    ) -> Vec<Diagnostic> {
        let told = self.told_runtimes(samples, seen);
        let is_told =
            |it: &Diagnostic| runtime_to_enable(it).is_some_and(|runtime| told.contains(&runtime.runtime));
        let left: Vec<&Diagnostic> = diagnostics.iter().filter(|it| !is_told(it)).collect();
        let helps = |it: &Diagnostic| {
            runtime_to_enable(it).is_some_and(|runtime| !self.is_set(runtime, seen)) && !is_too_old(it)
        };
        let is_advised = diagnostics.iter().any(|it| runtime_to_enable(it).is_some());
        let is_helpful = left.iter().any(|it| helps(it));
        // They announce options to record with.
        let announces = |issue| matches!(issue, Issue::NoCodeFiles | Issue::UndescribedCode);
        let useful = left
            .into_iter()
            .filter(|it| !(is_advised && !is_helpful && announces(it.issue)));
        let renamed = useful.map(|diagnostic| self.with_advice_here(diagnostic, seen));
        with_cut_ends(renamed.collect(), samples)
    }

    /// Returns the runtimes of which nothing more is to be said: what there is was printed during the recording or before it,
    /// or their compilers stayed off.
    fn told_runtimes(&self, samples: &SampleSummary, seen: &Seen) -> BTreeSet<Runtime> {
        let mut told = seen.warned.clone();
        let attached = self.diagnostics.iter();
        let attached = attached.filter(|diagnostic| diagnostic.issue == Issue::StartedWithoutLog);
        told.extend(attached.filter_map(runtime_of).map(|runtime| runtime.runtime));
        if samples.jit == 0 {
            told.extend([Runtime::Php, Runtime::Ruby]);
        }
        told
    }

    /// Whether the options of a runtime were set, and it may have been started.
    fn is_set(&self, runtime: &Description, seen: &Seen) -> bool {
        self.has_set_options(runtime) && self.may_have_started(runtime, seen)
    }

    /// Returns a diagnostic with advice that helps here.
    fn with_advice_here(&self, diagnostic: &Diagnostic, seen: &Seen) -> Diagnostic {
        let named =
            |runtime: &Description| Diagnostic::new(Issue::EnableRuntime).with("runtime", runtime.name);
        match runtime_to_enable(diagnostic) {
            Some(_) if is_too_old(diagnostic) => diagnostic.clone(),
            Some(runtime)
                if self.may_have_started(runtime, seen) && self.missing_option(runtime).is_some() =>
            {
                self.with_advice(named(runtime), runtime)
            }
            Some(runtime) if self.is_set(runtime, seen) => {
                let also = match runtime.runtime {
                    Runtime::Node => OR_NOT_WRITABLE,
                    _ => "",
                };
                let named =
                    named(runtime).with("how", format_args!("{OPTIONS_WERE_SET}{also}: {}", runtime.how));
                if diagnostic.help() == EMBEDDED_COMPILER {
                    named.with_remedy(EMBEDDED_COMPILER)
                } else {
                    named
                }
            }
            _ if diagnostic.issue == Issue::DumpStillWritten => match diagnostic.field("copy") {
                // It is not at its path, so the recording has a copy, or a message says why not.
                Some(_) => diagnostic.clone().with_remedy(""),
                None => {
                    let folder = shell_word(&printable(self.folder().as_os_str().as_bytes()));
                    diagnostic.clone().with("folder", folder).with_remedy(READ_AGAIN)
                }
            },
            _ => diagnostic.clone(),
        }
    }

    /// Returns diagnostics with what to do about jitdumps without an end if a signal has ended the program.
    pub fn after_signal(&self, mut diagnostics: Vec<Diagnostic>, recorded: &Recorded) -> Vec<Diagnostic> {
        if self.command.is_empty() || !recorded.has_signal() {
            return diagnostics;
        }
        let of_running = |it: &&Diagnostic| it.issue == Issue::DumpStillWritten;
        let running: BTreeSet<_> = diagnostics.iter().filter(of_running).map(file_name).collect();
        for diagnostic in &mut diagnostics {
            if diagnostic.issue == Issue::JitdumpCutTail && !running.contains(&file_name(diagnostic)) {
                *diagnostic = diagnostic.clone().with_remedy(HANDLE_SIGNAL);
            }
        }
        diagnostics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    use crate::record::recorded_process::RecordedProcess;
    use crate::record::{ProgramStatus, RecordOptions};
    use crate::results::diagnostics::Severity;

    fn plan(command: &str, runtimes: &[Runtime]) -> Plan {
        let options = RecordOptions {
            command: vec![command.into()],
            output: "r".into(),
            runtimes: runtimes.to_vec(),
            ..RecordOptions::default()
        };
        Plan::new(options).unwrap()
    }

    fn enable(runtime: Runtime) -> Diagnostic {
        let runtime = runtime.description();
        let enable = Diagnostic::new(Issue::EnableRuntime).with("runtime", runtime.name);
        enable.with("how", runtime.how)
    }

    #[test]
    fn a_compiler_that_stayed_off_is_not_advised() {
        let plan = plan("./absent-script", &[]);
        let advised = |runtime, jit| {
            let samples = SampleSummary {
                jit,
                ..SampleSummary::default()
            };
            let diagnostics = [Diagnostic::new(Issue::NoCodeFiles), enable(runtime)];
            plan.advised(&diagnostics, &samples, &Seen::default()).len()
        };
        assert_eq!(advised(Runtime::Php, 0), 0);
        assert_eq!(advised(Runtime::Php, 1), 1);
        assert_eq!(advised(Runtime::Node, 0), 1);
        // No option of record makes it log its code.
        assert_eq!(advised(Runtime::LuaJit, 0), 2);
    }

    /// Record has not set their options.
    #[test]
    fn processes_that_others_started_get_the_advice_of_their_runtime() {
        let mut plan = plan("./absent-script", &[]);
        plan.perf.all_cpus = true;
        let maps = b"7f00-7f01 r-xp 00000000 08:01 7  /usr/lib/libpython3.13.so.1.0\n";
        let mut seen = Seen::default();
        let advised = |seen: &Seen| {
            let enable = [enable(Runtime::Python), enable(Runtime::Java)];
            let advised = plan.advised(&enable, &SampleSummary::default(), seen);
            let is_unchanged = advised
                .iter()
                .zip(&enable)
                .map(|(advice, enable)| advice == enable);
            is_unchanged.collect::<Vec<_>>()
        };
        assert_eq!(advised(&seen), [true, true]);
        seen.processes
            .extend(RecordedProcess::of(std::process::id(), maps));
        assert_eq!(advised(&seen), [false, true]);
    }

    #[test]
    fn advice_on_an_attached_process_is_given_once() {
        let mut plan = plan("./absent-script", &[]);
        let warning = Diagnostic::new(Issue::StartedWithoutLog);
        plan.diagnostics.push(warning.with("runtime", "Node.js"));
        let diagnostics = [Diagnostic::new(Issue::NoCodeFiles), enable(Runtime::Node)];
        let samples = SampleSummary {
            jit: 9,
            ..SampleSummary::default()
        };
        assert_eq!(plan.advised(&diagnostics, &samples, &Seen::default()), []);
    }

    /// To record again would not help.
    #[test]
    fn a_jitdump_that_is_still_written_is_read_again_from_the_folder_of_the_recording() {
        let mut plan = plan("./absent-script", &[]);
        plan.options.output = "my recording".into();
        let written = [Diagnostic::new(Issue::DumpStillWritten)];
        let advised = plan.advised(&written, &SampleSummary::default(), &Seen::default());
        let help = advised[0].help();
        assert!(help.contains("jitinject report 'my recording'"), "{help}");
        // It may be gone.
        let written = written.map(|written| written.with("copy", "/proc/7/fd/17"));
        let advised = plan.advised(&written, &SampleSummary::default(), &Seen::default());
        assert_eq!(advised[0].help(), "");
    }

    #[test]
    fn cut_ends_of_jitdumps_are_notes_if_all_code_has_names() {
        let plan = plan("./absent-script", &[]);
        let in_file = |issue, file: &str| Diagnostic::new(issue).in_file(file.as_ref());
        let diagnostics = [
            in_file(Issue::JitdumpDebugInfoUnpaired, "jit-1.dump"),
            in_file(Issue::JitdumpCutTail, "jit-1.dump"),
            in_file(Issue::JitdumpDebugInfoUnpaired, "jit-2.dump"),
            in_file(Issue::JitdumpBadLoad, "jit-1.dump"),
        ];
        let severities = |named| {
            let samples = SampleSummary {
                jit: 7,
                named,
                ..SampleSummary::default()
            };
            let advised = plan.advised(&diagnostics, &samples, &Seen::default());
            advised.iter().map(|it| it.severity).collect::<Vec<_>>()
        };
        let (warning, note) = (Severity::Warning, Severity::Note);
        assert_eq!(severities(7), [note, note, warning, warning]);
        assert_eq!(severities(6), [warning; 4]);
    }

    #[test]
    fn the_signal_that_ended_a_program_explains_jitdumps_without_an_end() {
        let mut plan = plan("./absent-script", &[]);
        let in_file = |issue, file: &str| Diagnostic::new(issue).in_file(file.as_ref());
        let diagnostics = [
            in_file(Issue::JitdumpCutTail, "r/dumps/jit-1.dump"),
            in_file(Issue::JitdumpCutTail, "r/dumps/jit-2.dump"),
            in_file(Issue::DumpStillWritten, "/tmp/jit-2.dump"),
        ];
        let explained = |plan: &Plan, status, interrupt| {
            let recorded = Recorded {
                status,
                interrupt,
                started: SystemTime::UNIX_EPOCH,
                duration: Duration::ZERO,
                seen: Seen::default(),
                diagnostics: Vec::new(),
            };
            let advised = plan.after_signal(diagnostics.to_vec(), &recorded);
            let is_explained =
                |it: &Diagnostic| it.help().contains("process.on('SIGTERM', () => process.exit())");
            advised.iter().map(is_explained).collect::<Vec<_>>()
        };
        for (status, interrupt, is_explained) in [
            (ProgramStatus::Killed(15), None, true),
            (ProgramStatus::Exited(143), None, true),
            (ProgramStatus::Stopped, None, true),
            (ProgramStatus::Exited(0), Some(15), true),
            (ProgramStatus::Exited(255), None, false),
        ] {
            let expected = [is_explained, false, false];
            assert_eq!(explained(&plan, status, interrupt), expected, "{status:?}");
        }
        // The processes of -p continue.
        plan.command.clear();
        assert_eq!(explained(&plan, ProgramStatus::Stopped, Some(15)), [false; 3]);
    }

    #[test]
    fn the_end_of_a_jitdump_that_is_still_written_has_one_message() {
        let plan = plan("./absent-script", &[]);
        let in_file = |issue, file: &str| Diagnostic::new(issue).in_file(file.as_ref());
        let severities = |written: Diagnostic| {
            let diagnostics = [
                written,
                in_file(Issue::JitdumpCutTail, "r/dumps/jit-1.dump"),
                in_file(Issue::JitdumpUnwindingUnpaired, "r/dumps/jit-1.dump"),
                in_file(Issue::JitdumpCutTail, "r/dumps/jit-2.dump"),
            ];
            let samples = SampleSummary {
                jit: 7,
                ..SampleSummary::default()
            };
            let advised = plan.advised(&diagnostics, &samples, &Seen::default());
            advised.iter().map(|it| it.severity).collect::<Vec<_>>()
        };
        let (warning, note) = (Severity::Warning, Severity::Note);
        let written = in_file(Issue::DumpStillWritten, "/srv/jit-1.dump");
        assert_eq!(severities(written.clone()), [warning, note, note, warning]);
        // Nothing else says what to do.
        let written = written.with("copy", "/proc/7/fd/17");
        assert_eq!(severities(written), [warning; 4]);
    }

    #[test]
    fn advice_names_the_option_of_record_once() {
        let unknown = plan("./absent-script", &[]);
        let diagnostics = [Diagnostic::new(Issue::NoCodeFiles), enable(Runtime::Java)];
        let advised = |plan: &Plan, warned: &[Runtime]| -> Vec<String> {
            let seen = Seen {
                warned: warned.iter().copied().collect(),
                ..Seen::default()
            };
            let advised = plan.advised(&diagnostics, &SampleSummary::default(), &seen);
            advised.iter().map(Diagnostic::message).collect()
        };
        let java = advised(&unknown, &[]);
        assert_eq!(java[1], "Java: record it again with --runtime java");
        assert_eq!(advised(&unknown, &[Runtime::Java]), [""; 0]);
        // Node.js has another problem.
        assert_eq!(advised(&unknown, &[Runtime::Node]).len(), 2);
        // To record again with the same options does not help, so it is not announced.
        let known = advised(&plan("./absent-script", &[Runtime::Java]), &[]);
        assert_eq!(known.len(), 1, "{known:?}");
        assert!(
            known[0].starts_with("Java: record set its options, but"),
            "{known:?}"
        );
        assert!(known[0].contains("-XX:+DumpPerfMapAtExit"), "{known:?}");
        let node = plan("./absent-script", &[Runtime::Node]);
        let advised_node = node.advised(
            &[enable(Runtime::Node)],
            &SampleSummary::default(),
            &Seen::default(),
        );
        let in_output = "logs to its standard output";
        assert!(advised_node[0].message().contains(in_output), "{advised_node:?}");
        assert!(!known[0].contains(in_output), "{known:?}");
        let warning = Diagnostic::new(Issue::NoDumpYet)
            .with("pid", 1)
            .with("runtime", "Java");
        let java = Runtime::Java.description();
        let warning = unknown.with_advice(warning.with("seconds", 2), java);
        assert!(
            warning
                .message()
                .ends_with(": record it again with --runtime java")
        );
        assert_eq!(warning.help(), NAME_RUNTIME);
        let embedding = enable(Runtime::Python).with_remedy(EMBEDDED_COMPILER);
        let python = plan("./absent-script", &[Runtime::Python]);
        let advised_python = python.advised(&[embedding], &SampleSummary::default(), &Seen::default());
        assert_eq!(advised_python[0].help(), EMBEDDED_COMPILER);
        // No option helps.
        let old = Diagnostic::new(Issue::EnableRuntime).with("runtime", Runtime::Python.name());
        let old = [
            Diagnostic::new(Issue::UndescribedCode),
            old.with("how", PYTHON_TOO_OLD),
        ];
        for runtime in [Runtime::Python, Runtime::Numba] {
            let plan = plan("./absent-script", &[runtime]);
            let advised = plan.advised(&old, &SampleSummary::default(), &Seen::default());
            assert_eq!(advised, old[1..]);
        }
        // A program of Python starts Java.
        let python = advised(&plan("./absent-script", &[Runtime::Python]), &[]);
        assert_eq!(python[1], "Java: record it again with --runtime python,java");
    }
}
