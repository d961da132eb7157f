//! `jitinject record`: from a program to a named profile.

mod messages;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::mem;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jitdump::internals::bytes::printable_path;
use jitinject::internals::code::profile_index::IndexedProfile;
use jitinject::internals::frames::ranking::counts::SamplesByStack;
use jitinject::internals::frames::stream::Tables;
use jitinject::internals::inject::{SummaryOutput, inject_after};
use jitinject::internals::record::{
    Collected, Control, Manifest, Outcome, PerfOptions, Plan, ProgramStatus, ReceivedSignal, RecordOptions,
    Recorded, Session, Status, archive_path, create_folder, default_folder, launch, refuse_existing,
};
use jitinject::internals::results::summary::shell_word;
use jitinject::internals::runtimes::Runtime;
use jitinject::internals::tools::report::{Report, ReportOptions};
use jitinject::{Diagnostic, InjectOptions, Issue, NameStyle, Summary};

use crate::cli::commands::headings::{CI, MESSAGES, OUTPUT, RECORDING, RUNTIMES};
use crate::cli::commands::inject::{exit_code, label, percent};
use crate::cli::commands::record::messages::{listed, packed_text, running_text};
use crate::cli::commands::source_files::TrackArgument;
use crate::cli::inherited;
use crate::cli::interrupt::PassedSignals;
use crate::cli::progress::Bar;
use crate::cli::status_line::StatusLine;
use crate::cli::terminal::{print, print_message, report, report_all};

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  jitinject record -- node app.js
  jitinject record -o ci-run --fail-under 95 -- npm test
  jitinject record -p 4711 --duration 10

  # show what would be run
  jitinject record --print -- php app.php

  # look at a recording that was copied to another place
  perf --buildid-dir ci-run/debug report -i ci-run/perf.jit.data

Exit status: the program's, or 128 plus the number of the signal that ended it. Without a program, or if it succeeds or ends \
by the SIGTERM of --duration: 0 success; 1 error; 2 invalid usage; 3 fewer samples named than --fail-under requires; 127 the \
program cannot be started.";

/// Number of functions in the final message.
const HOTTEST: usize = 5;

/// Exit status if the program cannot be started, as in shells.
const NOT_STARTED: u8 = 127;

/// Arguments of `record`.
///
/// perf record runs with the clock of the runtimes, and the program with the variables and options that make its runtime log
/// its code. The profile, these logs and everything else go to one new directory.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    override_usage = "jitinject record [OPTIONS] -- COMMAND...\n       jitinject record [OPTIONS] -p PID"
)]
pub struct RecordArguments {
    /// Program to record, with its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,

    /// Directory to create [default: jitinject-record-DATE]
    ///
    /// It gets perf.data, the named profile perf.jit.data with its objects and sources, the files of the runtimes in dumps/, a
    /// build-id cache in debug/, summary.json, and manifest.json with the command, the environment that was set and the machine.
    #[arg(short, long, value_name = "DIR", help_heading = OUTPUT)]
    output: Option<PathBuf>,

    /// Record the program N times, into directories run-1 to run-N of DIR, for compare
    ///
    /// Stops after the first run that fails, or that a signal ends: the status is then 128 plus its number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = CI,
        conflicts_with_all = ["pid", "print", "pack", "report", "summary"])]
    runs: Option<u32>,

    /// Print the whole command and environment as text for a shell, and run nothing
    #[arg(long, help_heading = OUTPUT)]
    print: bool,

    /// Leave out the source files that lines name
    #[arg(long, help_heading = OUTPUT)]
    no_sources: bool,

    /// Names of functions: full, plain, or a pattern, as for jitinject without a command
    #[arg(long, value_name = "STYLE", default_value = "full", help_heading = OUTPUT)]
    names: NameStyle,

    #[command(flatten)]
    track: TrackArgument,

    /// Also pack the directory as DIR.tar.zst, to send it
    #[arg(long, help_heading = OUTPUT)]
    pack: bool,

    /// Open the profile with perf report at the end
    #[arg(long, alias = "open", help_heading = OUTPUT, conflicts_with = "print")]
    report: bool,

    /// Record running processes, as perf record -p does
    #[arg(short, long, value_name = "PID", value_delimiter = ',', help_heading = RECORDING)]
    pid: Vec<u32>,

    /// Record where threads wait, as perf record --off-cpu does
    ///
    /// It needs root, and a perf that was built with BPF.
    #[arg(long, help_heading = RECORDING)]
    off_cpu: bool,

    /// Record all CPUs, as perf record -a does
    #[arg(short, long, help_heading = RECORDING)]
    all_cpus: bool,

    /// CPUs to record, such as 0-3,7
    #[arg(short = 'C', long, value_name = "CPUS", help_heading = RECORDING)]
    cpu: Option<String>,

    /// End the recording after SECONDS; a program that still runs gets SIGTERM
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true, help_heading = RECORDING)]
    duration: Option<Duration>,

    /// Event to record, as perf list prints it; may be repeated [default: perf's: cycles, or a clock]
    #[arg(short, long, value_name = "EVENT", help_heading = RECORDING)]
    event: Vec<String>,

    /// Samples per second [default: 999]
    #[arg(short = 'F', long, value_name = "HZ", help_heading = RECORDING)]
    freq: Option<String>,

    /// Record stacks by frame pointers
    ///
    /// This is the default, except for CPython before 3.15, whose interpreter has none: dwarf,32768, unless sysconfig has
    /// -fno-omit-frame-pointer.
    #[arg(short, help_heading = RECORDING, conflicts_with = "call_graph")]
    g: bool,

    /// How to record stacks: fp, dwarf[,SIZE], lbr, or none; with perf 7, also fp,defer
    ///
    /// perf report shows the callers that lbr and fp,defer record; jitinject report and export leave them out.
    #[arg(long, value_name = "MODE", help_heading = RECORDING)]
    call_graph: Option<String>,

    /// More arguments for perf record, separated by spaces; may be repeated
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, help_heading = RECORDING)]
    perf_args: Vec<String>,

    /// Runtime of the program; may be repeated
    ///
    /// By default, the program's name and first line show its runtime. The variables of all other runtimes are set as well,
    /// for programs that it starts, except for Java, Erlang, Ruby and Numba, where they may do harm. With this option, only the
    /// variables of the named runtimes are set.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = RUNTIMES,
        value_parser = PossibleValuesParser::new(Runtime::ids()).map(|id| Runtime::from_id(&id)))]
    runtime: Vec<Option<Runtime>>,

    /// Leave the environment and the command as they are
    #[arg(long, help_heading = RUNTIMES, conflicts_with = "runtime")]
    no_env: bool,

    /// perf's agent for Java, libperf-jvmti.so
    #[arg(long, value_name = "FILE", help_heading = RUNTIMES, conflicts_with = "no_env")]
    java_agent: Option<PathBuf>,

    /// Make a running CPython 3.14 or later log its functions until it exits, by running code in it
    ///
    /// With -p only. The process runs a script that switches on its perf map (sys.remote_exec). The perf map stays on after the
    /// recording, because CPython crashes when it is switched on again.
    #[arg(long, help_heading = RUNTIMES, requires = "pid", conflicts_with = "no_env")]
    remote_exec: bool,

    /// Also write summary.json to FILE, or to standard output if FILE is -
    #[arg(long, value_name = "FILE", help_heading = CI)]
    summary: Option<PathBuf>,

    /// Store a label in the summary, such as commit=3f2a90c; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, help_heading = CI)]
    label: Vec<(String, String)>,

    /// Exit with status 3 if less than PERCENT of the samples in JIT code get a name
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = CI)]
    fail_under: Option<f64>,

    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose", help_heading = MESSAGES)]
    quiet: bool,

    /// Print notes, and each jitdump with its clock alignment
    #[arg(short, long, help_heading = MESSAGES)]
    verbose: bool,
}

/// Parses a number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    match Duration::try_from_secs_f64(number) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("not a number of seconds above 0".into()),
    }
}

/// Passes signals to the session, and shows its state.
struct Terminal {
    signals: PassedSignals,
    line: StatusLine,
    is_quiet: bool,
}

impl Control for Terminal {
    fn signals(&mut self) -> Vec<ReceivedSignal> {
        self.signals.take()
    }

    fn arrivals(&self) -> BorrowedFd<'_> {
        self.signals.arrivals()
    }

    fn show(&mut self, status: &Status, warnings: &[Diagnostic]) {
        if !warnings.is_empty() && !self.is_quiet {
            self.line.print(|| report_all(warnings, false));
        }
        self.line.show(status);
    }
}

/// What was found when the files of runtimes were collected, before the code is named.
#[derive(Default)]
struct Found {
    /// Processes that still run, with their runtimes.
    running: BTreeMap<u32, &'static str>,
    /// Paths of files that were copied, and are still there.
    copied: Vec<String>,
    /// What could not be copied, and what is not known to be of these processes.
    collected: Collected,
    /// A message of a profile that lacks the kernel against the user's wish.
    without_kernel: Option<Diagnostic>,
}

/// A recording whose code has names.
struct Named {
    summary: Summary,
    /// The functions with most samples, if they could be ranked.
    hottest: Option<Report>,
    /// Whether all files of runtimes are in the folder.
    is_whole: bool,
}

/// The end of one recording.
struct Run {
    status: ExitCode,
    /// The signal that ended it.
    interrupt: Option<i32>,
}

impl Found {
    /// Prints which files and processes are left.
    fn print_left(self) {
        if !self.copied.is_empty() {
            let paths = self.copied.join(", ");
            print_message(&format!("copied, and left where they are: {paths}"));
        }
        if !self.collected.untouched.is_empty() {
            let paths = listed(self.collected.untouched.into_iter());
            print_message(&format!("not copied, and left where they are: {paths}"));
        }
        if !self.running.is_empty() {
            print_message(&running_text(&self.running));
        }
    }
}

impl RecordArguments {
    /// Returns why the arguments contradict each other, if they do.
    pub fn conflict(&self) -> Option<&'static str> {
        if self.command.is_empty() && self.pid.is_empty() && !self.all_cpus && self.cpu.is_none() {
            return Some("nothing to record: add -- and a command, or -p PID for a running process");
        }
        // perf also takes the start of an option.
        let renames = |word: &str| word.starts_with("--switch-o") || word.starts_with("--timestamp-f");
        if self.perf_words().any(renames) {
            return Some("record reads one perf.data: leave out --switch-output and --timestamp-filename");
        }
        let is_both = !self.command.is_empty() && !self.pid.is_empty();
        is_both.then_some("-p records running processes; for a time, add --duration in place of a command")
    }

    /// Returns further arguments for perf.
    fn perf_words(&self) -> impl Iterator<Item = &str> {
        self.perf_args.iter().flat_map(|text| text.split_whitespace())
    }

    /// Returns the folder to create.
    fn folder(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(default_folder)
    }

    /// Returns the options of a recording into a folder.
    fn options(&self, output: PathBuf) -> RecordOptions {
        let call_graph = self.g.then(|| "fp".to_owned());
        RecordOptions {
            command: self.command.clone(),
            output,
            runtimes: self.runtime.iter().copied().flatten().collect(),
            without_environment: self.no_env,
            java_agent: self.java_agent.clone(),
            has_remote_exec: self.remote_exec,
            perf: PerfOptions {
                events: self.event.clone(),
                frequency: self.freq.clone(),
                call_graph: call_graph.or_else(|| self.call_graph.clone()),
                all_cpus: self.all_cpus,
                cpus: self.cpu.clone(),
                pids: self.pid.clone(),
                off_cpu: self.off_cpu,
                arguments: self.perf_words().map(OsString::from).collect(),
            },
            duration: self.duration,
            without_sources: self.no_sources,
            track: self.track.argument(),
            names: self.names.clone(),
        }
    }

    /// Records, and names the profile.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        let recorded = self.in_new_folder(|folder| match self.runs {
            Some(runs) => self.record_runs(runs, &folder),
            None => self.record_once(folder).map(|run| run.status),
        });
        match recorded {
            Err(error) if error.issue == Issue::ProgramNotFound => {
                report(&error.as_error());
                Ok(ExitCode::from(NOT_STARTED))
            }
            done => done,
        }
    }

    /// Records in a new folder. Another recording of the same second may create one without a name first.
    fn in_new_folder(
        &self,
        record: impl Fn(PathBuf) -> Result<ExitCode, Diagnostic>,
    ) -> Result<ExitCode, Diagnostic> {
        const ATTEMPTS: usize = 100;
        let is_taken = |error: &Diagnostic| self.output.is_none() && error.issue == Issue::RecordingExists;
        for _ in 1..ATTEMPTS {
            let recorded = record(self.folder());
            if !recorded.as_ref().is_err_and(is_taken) {
                return recorded;
            }
        }
        record(self.folder())
    }

    /// Records each run in a folder of its own.
    fn record_runs(&self, runs: u32, folder: &Path) -> Result<ExitCode, Diagnostic> {
        let created = create_folder(folder)?;
        for run in 1..=runs {
            if !self.quiet {
                print_message(&format!("run {run} of {runs}"));
            }
            let recorded = self.record_once(folder.join(format!("run-{run}")));
            let is_success = |run: &Run| run.status == ExitCode::SUCCESS;
            let is_complete = |run: &Run| is_success(run) && run.interrupt.is_none();
            if !recorded.as_ref().is_ok_and(is_complete) {
                // It stays if it has a recording.
                let _ = created.remove_folder();
                return recorded.map(|last| match last.interrupt.filter(|_| is_success(&last)) {
                    // A script must not go on without the others.
                    Some(signal) if run < runs => ExitCode::from(ProgramStatus::Killed(signal).exit_code()),
                    _ => last.status,
                });
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn record_once(&self, folder: PathBuf) -> Result<Run, Diagnostic> {
        let plan = Plan::new(self.options(folder))?;
        if self.print {
            print(|output| output.write_all(plan.shell_text().as_bytes()))?;
            return Ok(Run {
                status: ExitCode::SUCCESS,
                interrupt: None,
            });
        }
        self.record(&plan)
    }

    /// Records once, names the code, and prints and checks what the options ask for.
    fn record(&self, plan: &Plan) -> Result<Run, Diagnostic> {
        let failed = |cause| Diagnostic::new(Issue::Signals).caused_by(&cause);
        let archive = archive_path(plan.folder());
        if self.pack {
            refuse_existing(&archive)?;
        }
        // Whether it can be written is known before a long recording.
        let other_summary = SummaryOutput::create(self.summary.as_deref(), None)?;
        let mut session = Session::create(plan, launcher()?)?;
        if !self.quiet {
            plan.notes.iter().for_each(|note| print_message(note));
        }
        self.warn(&plan.diagnostics);
        let mut terminal = Terminal {
            signals: PassedSignals::new().map_err(failed)?,
            line: StatusLine::new(self.quiet),
            is_quiet: self.quiet,
        };
        self.warn(&session.attach(&mut terminal));
        let recorded = match session.run(&mut terminal)? {
            Outcome::Recorded(recorded) => recorded,
            Outcome::Interrupted(signal) => {
                return Ok(Run {
                    status: ProgramStatus::Killed(signal).exit_code().into(),
                    interrupt: Some(signal),
                });
            }
        };
        let bar = Bar::begin(self.quiet, self.verbose, true)?;
        // Not before, as it takes signals until the bar does.
        drop(terminal);
        self.warn(&recorded.diagnostics);
        let mut options = session.inject_options(&recorded);
        options.labels = self.label.iter().cloned().collect();
        options.lines.track = self.track.name();
        self.track.apply(&mut options.lines.sources);
        let named = self.name_code(plan, &session, &recorded, &options, bar)?;
        if self.pack {
            let (size, unpacked) = session.pack(&archive)?;
            self.warn(&unpacked);
            let is_whole = named.is_whole && unpacked.is_empty();
            if !self.quiet {
                print_message(&packed_text(plan, &archive, size, is_whole));
            }
        }
        if !self.quiet {
            print_message(&self.text(plan, &named, recorded.status));
        }
        other_summary.write(&named.summary)?;
        let checked = exit_code(self.fail_under, &named.summary);
        if self.report {
            show(&options.output)?;
        }
        Ok(Run {
            // What is wrong with the program matters more than its profile.
            status: match recorded.status.exit_code() {
                0 => checked,
                code => ExitCode::from(code),
            },
            interrupt: recorded.interrupt,
        })
    }

    /// Prints warnings and notes.
    fn warn(&self, diagnostics: &[Diagnostic]) {
        if !self.quiet {
            report_all(diagnostics, self.verbose);
        }
    }

    /// Names the code of a finished recording, and prints what is missing.
    fn name_code(
        &self,
        plan: &Plan,
        session: &Session<'_>,
        recorded: &Recorded,
        options: &InjectOptions,
        mut bar: Bar,
    ) -> Result<Named, Diagnostic> {
        let mut found = Found::default();
        let collect = |profile: &IndexedProfile<'_>| {
            let index = &profile.index;
            found.running = session.left_running(recorded, index);
            found.collected = session.collect(recorded, profile);
            let files = mem::take(&mut found.collected.files);
            let copied = files.iter().filter(|file| file.is_left);
            found.copied = copied.map(|file| file.written_to.clone()).collect();
            found.without_kernel = plan.perf.without_kernel().filter(|_| index.excludes_kernel);
            session.write_manifest(&Manifest::new(plan, recorded, index, files))
        };
        let mut hottest = None;
        let report_options = ReportOptions {
            rows: Some(HOTTEST),
            ..ReportOptions::default()
        };
        let mut observe = |tables: Tables, counts: &SamplesByStack| {
            hottest = Report::of(&tables, counts, &report_options).ok();
        };
        let summary = inject_after(collect, Some(&mut observe), options, &mut bar);
        // Messages follow where the bar was.
        drop(bar);
        let summary = summary?;
        self.warn(found.without_kernel.as_slice());
        self.warn(&found.collected.left_out);
        if let Some(Report { missing, .. }) = &mut hottest {
            // There are messages of these.
            missing.without_kernel &= found.without_kernel.is_none();
            missing.unnamed = 0;
            if summary.unwound.is_some() {
                missing.cut = 0;
            }
        }
        let advised = plan.advised(&summary.diagnostics, &summary.samples, &recorded.seen);
        self.warn(&plan.after_signal(advised, recorded));
        let is_whole = found.collected.left_out.is_empty();
        if !self.quiet {
            found.print_left();
        }
        Ok(Named {
            summary,
            hottest,
            is_whole,
        })
    }

    /// Returns the final message: the share named, the hottest functions, and how to look at the profile.
    fn text(&self, plan: &Plan, named: &Named, status: ProgramStatus) -> String {
        let summary = &named.summary;
        let mut lines: Vec<String> = Vec::new();
        match status {
            ProgramStatus::Exited(0) | ProgramStatus::Stopped => {}
            ProgramStatus::Exited(code) => lines.push(format!("the program exited with status {code}")),
            ProgramStatus::Killed(signal) => lines.push(format!("the program was ended by signal {signal}")),
        }
        lines.extend(summary.counts_text(self.verbose).lines().map(str::to_owned));
        lines.extend(named.hottest.iter().flat_map(Report::first_lines));
        let archive = archive_path(plan.folder());
        if let Some(chown) = plan.chown_command(self.pack.then_some(&*archive)) {
            let folder = printable_path(plan.folder());
            lines.push(format!("{folder} belongs to root; to make it yours: {chown}"));
        }
        if !self.report {
            let folder = shell_word(&printable_path(plan.folder()));
            let profile = shell_word(&summary.output);
            lines.push(format!("next: jitinject report {folder}"));
            lines.push(format!("  or: perf report --no-children -i {profile}"));
        }
        lines.join("\n")
    }
}

/// Runs perf report.
fn show(profile: &Path) -> Result<(), Diagnostic> {
    let shown = Command::new("perf")
        .args(["report", "--no-children", "-i"])
        .arg(profile)
        .status();
    let failed = |cause: std::io::Error| Diagnostic::new(Issue::PerfFailed).with("cause", cause);
    shown.map(drop).map_err(failed)
}

/// First argument of the command with which perf starts the program to record. It is not one of clap's, which would take
/// time that is recorded.
const LAUNCH: &str = "launch-recorded-program";

/// Returns the command that starts the recorded program: this program itself.
fn launcher() -> Result<Vec<OsString>, Diagnostic> {
    let program = std::env::current_exe();
    let program = program.map_err(|cause| Diagnostic::new(Issue::PerfFailed).with("cause", cause))?;
    Ok(vec![
        program.into_os_string(),
        LAUNCH.into(),
        inherited::describe().into(),
    ])
}

/// Replaces this program by the one to record if [`launcher`] has started it. Returns the exit status if that fails.
pub fn launch_recorded() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|argument| argument == LAUNCH)?;
    inherited::restore(arguments.next()?.to_str()?)?;
    let pid_file = PathBuf::from(arguments.next()?);
    let group: i32 = arguments.next()?.to_str()?.parse().ok()?;
    let command: Vec<OsString> = arguments.collect();
    // The session reads the reason from the file.
    let _ = launch(&pid_file, group, &command);
    Some(ExitCode::from(NOT_STARTED))
}
