//! Arguments of jitinject without a command.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use jitinject::internals::elf::dwarf::Version;
use jitinject::internals::files::stdio::is_standard;
use jitinject::internals::inject::DEFAULT_OUTPUT;
use jitinject::internals::record::Plan;
use jitinject::{
    Diagnostic, InjectOptions, InputKind, KeptStacks, Layout, LineOptions, LoadOptions, MonoEvent, NameStyle,
    SamplingOptions, Tiers, TraceOptions, UnwindOptions, XrayEvent,
};

use crate::cli::commands::headings::{CI, INPUT, LOGS, MESSAGES, OUTPUT, SYMBOLS};
use crate::cli::commands::runtime_files::{LogFiles, RuntimeFileArguments};
use crate::cli::commands::source_files::{SourceArguments, TrackArgument, check_named};

/// Arguments of jitinject without a command.
#[derive(Args, Debug)]
pub struct InjectArguments {
    /// Profile to read, as with --input
    #[arg(value_name = "PROFILE")]
    profile: Option<PathBuf>,

    /// Profile to read; - is standard input [default: perf.data]
    ///
    /// A file, a directory written by jitinject record, or by perf record --threads or --kcore, or the output of perf record
    /// -o -. A Mono log or an XRay trace is converted to a profile of its events; so is the first one of --mono-log or
    /// --xray-log if there is no --input.
    #[arg(short, long, value_name = "FILE", help_heading = INPUT)]
    input: Option<PathBuf>,

    #[command(flatten)]
    files: RuntimeFileArguments,

    /// Directory with the executables and libraries of the recorded machine, for --unwind and --summary
    ///
    /// Paths in the profile are looked up below DIR instead of /. Only files with the recorded build ID are used, here and
    /// elsewhere: from their paths, from ~/.debug, and debug files from /usr/lib/debug.
    #[arg(long, value_name = "DIR", help_heading = INPUT, hide_short_help = true)]
    symfs: Option<PathBuf>,

    /// Profile to write; - is standard output, in perf's pipe format
    ///
    /// Relative to the working directory, wherever the profile to read is.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_OUTPUT, help_heading = OUTPUT)]
    output: PathBuf,

    /// Directory for the ELF objects [default: OUTPUT.elf]
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    elf_dir: Option<PathBuf>,

    /// Build-id cache to add the objects to
    ///
    /// perf and debuginfod find objects there by build ID, wherever the profile is read: with perf --buildid-dir DIR, or
    /// without it if DIR is ~/.debug. Existing entries are kept.
    #[arg(long, value_name = "DIR", overrides_with = "no_build_id_cache", help_heading = OUTPUT, hide_short_help = true)]
    build_id_cache: Option<PathBuf>,

    /// Do not add the objects to a build-id cache
    #[arg(long, overrides_with = "build_id_cache", help_heading = OUTPUT, hide = true)]
    no_build_id_cache: bool,

    /// Replace copied stacks (perf record --call-graph dwarf) by call chains [default: if this machine has the files]
    ///
    /// Readers then have whole stacks, also through JIT code, without unwinding, and the profile shrinks to a fraction of its
    /// size. --unwind=keep adds the call chains, but leaves registers and stacks in the samples; --unwind=replace is
    /// --unwind. Without this option, stacks stay as they are if this machine lacks executables or libraries of the recorded one;
    /// jitinject inject never unwinds them.
    #[arg(long, alias = "convert-callchain", value_name = "KEEP", num_args = 0..=1, require_equals = true,
        default_missing_value = "replace", hide_possible_values = true, overrides_with = "no_unwind", help_heading = OUTPUT)]
    unwind: Option<UnwindArgument>,

    /// Leave copied stacks to the readers of the profile
    #[arg(long, overrides_with = "unwind", help_heading = OUTPUT, hide_short_help = true)]
    no_unwind: bool,

    /// Omit the interpreter's own frames next to the functions that it runs from unwound stacks
    ///
    /// For CPython with trampolines (-X perf_jit, -X perf) and Node.js. A flame graph then has the stacks of the language. The
    /// sampled frame always stays.
    #[arg(long, conflicts_with = "no_unwind", help_heading = OUTPUT, hide_short_help = true)]
    fold_interpreter: bool,

    /// Compress the output's records, as perf record -z does; LEVEL is 1 to 22 [default: 1]
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = clap::value_parser!(i32).range(1..=22), help_heading = OUTPUT, hide_short_help = true)]
    compress: Option<i32>,

    /// Check the output as jitinject check does; exit with status 1 if it has errors
    ///
    /// It is read as jitinject reads profiles, and with linux-perf-data, the reader of samply: both must see the same records,
    /// samples and mappings.
    #[arg(long, help_heading = OUTPUT, hide_short_help = true)]
    verify: bool,

    /// Write all functions, not only sampled ones
    #[arg(long, help_heading = OUTPUT)]
    all: bool,

    /// Layout of functions in ELF objects
    #[arg(long, value_name = "LAYOUT", default_value = "auto", help_heading = OUTPUT, hide_short_help = true)]
    layout: LayoutArgument,

    /// Add the runtime's compiler (tier) to the summary, or also to symbols
    ///
    /// With --tiers=symbols, it follows the name of each symbol in brackets.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "summary",
        help_heading = SYMBOLS)]
    tiers: Option<TiersArgument>,

    /// Names of functions: full, plain, or a pattern
    ///
    /// full: as the runtime wrote them, with its compiler and the position (JS:*run app.js:3:1). plain: the function's own name
    /// (run), so that viewers add up all compilers. A pattern has placeholders: {name}, {file}, {path}, {line}, {column}, {tier};
    /// words with one that has no value are left out.
    #[arg(long, value_name = "STYLE", default_value = "full", help_heading = SYMBOLS)]
    names: NameStyle,

    #[command(flatten)]
    sources: SourceArguments,

    #[command(flatten)]
    track: TrackArgument,

    /// Copy the source files that lines name into OUTPUT.elf/sources, and refer to the copies
    #[arg(long, help_heading = SYMBOLS)]
    keep_sources: bool,

    /// DWARF version of lines and inlined calls
    ///
    /// All readers support 4. Version 5 also holds source text that the jitdump has, for LLVM's tools; GNU binutils 2.40,
    /// and perf with it, then read no lines at all.
    #[arg(long, value_name = "VERSION", value_parser = dwarf_version, default_value = "4", help_heading = SYMBOLS,
        hide_short_help = true)]
    dwarf: Version,

    #[command(flatten)]
    logs: LogFiles,

    /// XRay trace, or directory to search; may be repeated
    ///
    /// Its calls and logged events are added to the profile. Without --input, they become a profile.
    #[arg(long, value_name = "PATH", help_heading = LOGS)]
    xray_log: Vec<PathBuf>,

    /// Events to take from Mono logs and XRay traces
    ///
    /// The default is all events of a log without a profile, none of a log beside a profile, and calls and custom of a trace.
    #[arg(long, value_name = "EVENT", value_delimiter = ',', help_heading = LOGS, hide_short_help = true)]
    events: Vec<EventArgument>,

    /// Replace call chains of samples by the calls that a log or trace recorded
    ///
    /// For Mono, start it with --profile=log:calls. Its code has no frame pointers, so the call chains of perf record -g are
    /// incomplete.
    #[arg(long, help_heading = LOGS, hide_short_help = true)]
    splice_stacks: bool,

    /// Core file of the logged Mono process, to read machine code from
    ///
    /// perf annotate needs the code, which logs do not have. gcore PID writes a core file of a running process.
    #[arg(long, value_name = "FILE", help_heading = LOGS, hide_short_help = true)]
    code_from: Option<PathBuf>,

    /// Resample XRay traces at a fixed interval per thread, such as 100us
    ///
    /// By default, each interval between two calls or returns is a sample. With this option, calls are only counted if --events
    /// names calls.
    #[arg(long, value_name = "TIME", value_parser = interval, help_heading = LOGS, hide_short_help = true)]
    resample: Option<Duration>,

    /// Merge XRay calls with the same stack into one sample per thread
    #[arg(long, conflicts_with = "resample", help_heading = LOGS, hide_short_help = true)]
    aggregate: bool,

    /// Write counts, all sampled functions and diagnostics to a JSON file; - is standard output
    #[arg(long, value_name = "FILE", help_heading = CI)]
    summary: Option<PathBuf>,

    /// Store a label in the summary, such as commit=3f2a90c; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, requires = "summary", help_heading = CI)]
    label: Vec<(String, String)>,

    /// Exit with status 3 if less than PERCENT of the samples in JIT code get a name
    ///
    /// The same share of the JIT frames in the recorded stacks must have a name. A profile without JIT code passes.
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = CI)]
    pub fail_under: Option<f64>,

    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose", help_heading = MESSAGES)]
    pub quiet: bool,

    /// Print notes, and each jitdump with its clock alignment
    #[arg(short, long, overrides_with = "verbose", help_heading = MESSAGES)]
    pub verbose: bool,

    /// Accepted as an option of perf inject; JIT code is always named
    #[arg(short, long, overrides_with = "jit", help_heading = MESSAGES, hide_short_help = true)]
    jit: bool,
}

/// Values of `--unwind`.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum UnwindArgument {
    /// Call chains replace registers and stacks
    Replace,
    /// Registers and stacks stay
    Keep,
}

/// Values of `--layout`.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum LayoutArgument {
    /// One object per function if there are few, otherwise images
    Auto,
    /// One object per code region; functions at reused addresses get separate objects if they are few
    Image,
    /// One object per function
    Function,
}

/// Values of `--events`.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum EventArgument {
    /// Allocated bytes, by type (mono/alloc-bytes/)
    Alloc,
    /// Thrown exceptions (mono/exception/)
    Exception,
    /// Time spent waiting for locks (mono/contention-ns/)
    Contention,
    /// Garbage collections and their pauses (mono/gc-ns/, mono/gc-pause-ns/)
    Gc,
    /// Bytes in the last heap snapshot, by type (mono/heap-bytes/)
    Heap,
    /// Bytes in each heap snapshot, by type (mono/heap-bytes/)
    HeapShots,
    /// Samples of Mono's profiler (mono/sample/)
    Sample,
    /// Calls and their self time (mono/calls/, mono/self-ns/; xray/calls/, xray/self-ns/)
    Calls,
    /// Custom and typed events of XRay traces (xray/custom/)
    Custom,
    /// Logged arguments of calls in XRay traces (xray/arguments/)
    Arguments,
    /// Durations of calls in XRay traces, one sample each (xray/call-ns/)
    Durations,
}

impl EventArgument {
    /// Returns the event of Mono logs.
    fn mono_event(self) -> Option<MonoEvent> {
        Some(match self {
            Self::Alloc => MonoEvent::Allocations,
            Self::Exception => MonoEvent::Exceptions,
            Self::Contention => MonoEvent::Contention,
            Self::Gc => MonoEvent::Collections,
            Self::Heap => MonoEvent::Heap,
            Self::HeapShots => MonoEvent::HeapShots,
            Self::Sample => MonoEvent::Samples,
            Self::Calls => MonoEvent::Calls,
            Self::Custom | Self::Arguments | Self::Durations => return None,
        })
    }

    /// Returns the event of XRay traces.
    fn xray_event(self) -> Option<XrayEvent> {
        match self {
            Self::Calls => Some(XrayEvent::Calls),
            Self::Custom => Some(XrayEvent::Custom),
            Self::Arguments => Some(XrayEvent::Arguments),
            Self::Durations => Some(XrayEvent::Durations),
            Self::Alloc
            | Self::Exception
            | Self::Contention
            | Self::Gc
            | Self::Heap
            | Self::HeapShots
            | Self::Sample => None,
        }
    }
}

/// Values of `--tiers`.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum TiersArgument {
    /// In the summary
    Summary,
    /// In the summary and in symbols
    Symbols,
}

/// Parses a time above 0: numbers with units.
fn interval(text: &str) -> Result<Duration, &'static str> {
    let interval = humantime::parse_duration(text).ok();
    interval
        .filter(|interval| !interval.is_zero())
        .ok_or("not a number above 0 with ns, us, ms or s")
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn dwarf_version(text: &str) -> Result<Version, String> {
    match text {
        "4" => Ok(Version::Four),
        "5" => Ok(Version::Five),
        _ => Err("not 4 or 5".into()),
    }
}

/// Parses a label of the form KEY=VALUE.
pub fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// Parses a percentage, with or without `%`.
pub fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err("not a number from 0 to 100".into()),
    }
}

impl InjectArguments {
    /// Returns why the arguments contradict each other, if they do.
    pub fn conflict(&self) -> Option<String> {
        let conflict = self.conflict_of_files().or_else(|| self.sources.conflict());
        conflict.map(str::to_owned).or_else(|| self.conflict_of_logs())
    }

    /// Returns which option for logs and traces has none.
    fn conflict_of_logs(&self) -> Option<String> {
        let options = [
            ("--events", !self.events.is_empty()),
            ("--splice-stacks", self.splice_stacks),
            ("--resample", self.resample.is_some()),
            ("--aggregate", self.aggregate),
            ("--pid", self.logs.pid.is_some()),
        ];
        let profile = self.input.as_deref().or(self.profile());
        let conflict = || self.logs.conflict(&options, profile);
        self.xray_log.is_empty().then(conflict).flatten()
    }

    /// Returns why the files contradict each other.
    fn conflict_of_files(&self) -> Option<&'static str> {
        if self.input.is_some() && self.profile.is_some() && self.input != self.profile {
            return Some("two different profiles; name one, with or without --input");
        }
        let is_pipe = || fs::metadata(&self.output).is_ok_and(|output| output.file_type().is_fifo());
        if self.verify && (is_standard(&self.output) || is_pipe()) {
            return Some("--verify reads the output, which cannot be standard output or a pipe");
        }
        let takes_both = is_standard(&self.output) && self.summary.as_deref().is_some_and(is_standard);
        takes_both.then_some("the profile and the summary cannot both go to standard output")
    }

    /// Returns whether the arguments say nothing about a build-id cache.
    pub fn has_default_cache(&self) -> bool {
        self.build_id_cache.is_none() && !self.no_build_id_cache
    }

    /// Returns whether and how stacks are unwound.
    fn unwinding(&self) -> Option<UnwindOptions> {
        let kept = match self.unwind {
            _ if self.no_unwind => return None,
            Some(UnwindArgument::Keep) => KeptStacks::Stacks,
            Some(UnwindArgument::Replace) | None => KeptStacks::Nothing,
        };
        Some(UnwindOptions {
            kept,
            fold_interpreter: self.fold_interpreter,
            is_optional: self.has_default_unwinding(),
        })
    }

    /// Returns whether the arguments say nothing about unwinding.
    pub fn has_default_unwinding(&self) -> bool {
        self.unwind.is_none() && !self.no_unwind && !self.fold_interpreter
    }

    /// Returns the output if it is to be checked.
    pub fn verified(&self) -> Option<&Path> {
        self.verify.then_some(&*self.output)
    }

    /// Returns the profile given without `--input`.
    pub fn profile(&self) -> Option<&Path> {
        self.profile.as_deref()
    }

    /// Returns the options of the library. `default_profile` is the profile to read if the arguments name none.
    pub fn options(
        &self,
        default_profile: impl FnOnce() -> Result<PathBuf, Diagnostic>,
    ) -> Result<InjectOptions, Diagnostic> {
        // A log that is the input is not read again.
        let (input, input_kind) = match (
            self.input.as_ref().or(self.profile.as_ref()),
            &*self.logs.mono_log,
            &*self.xray_log,
        ) {
            (Some(input), ..) => (Plan::profile_at(input.clone()), None),
            (None, [log, ..], _) => (log.clone(), Some(InputKind::MonoLog)),
            (None, [], [trace, ..]) => (trace.clone(), Some(InputKind::XrayTrace)),
            (None, [], []) => (default_profile()?, None),
        };
        fn selected<E>(all: &[EventArgument], of: impl Fn(EventArgument) -> Option<E>) -> Option<Vec<E>> {
            (!all.is_empty()).then(|| all.iter().copied().filter_map(of).collect())
        }
        let load = self.files.options(&self.logs);
        check_named(&self.symfs)?;
        let mut sources = self.sources.options()?;
        self.track.apply(&mut sources);
        Ok(InjectOptions {
            load: LoadOptions {
                input,
                input_kind,
                trace: TraceOptions {
                    mono_events: selected(&self.events, EventArgument::mono_event),
                    core_file: self.code_from.clone(),
                    xray_logs: self.xray_log.clone(),
                    xray_events: selected(&self.events, EventArgument::xray_event),
                    sampling: SamplingOptions {
                        resample: self.resample.map(nanoseconds),
                        aggregate: self.aggregate,
                    },
                    splice_stacks: self.splice_stacks,
                    ..load.trace
                },
                symfs: self.symfs.clone(),
                ..load
            },
            folder: None,
            output: self.output.clone(),
            compression: self.compress,
            elf_dir: self.elf_dir.clone(),
            build_id_cache: self.build_id_cache.clone(),
            is_cache_optional: false,
            is_cache_linked: false,
            summary: self.summary.clone(),
            labels: self.label.iter().cloned().collect(),
            all: self.all,
            unwind: self.unwinding(),
            lines: LineOptions {
                version: self.dwarf,
                sources,
                track: self.track.name(),
                keep_sources: self.keep_sources,
            },
            layout: match self.layout {
                LayoutArgument::Auto => Layout::Auto,
                LayoutArgument::Image => Layout::Image,
                LayoutArgument::Function => Layout::Function,
            },
            tiers: match self.tiers {
                None => Tiers::Off,
                Some(TiersArgument::Summary) => Tiers::Summary,
                Some(TiersArgument::Symbols) => Tiers::Symbols,
            },
            names: self.names.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_a_unit_and_is_not_0() {
        assert_eq!(interval("10us"), Ok(Duration::from_micros(10)));
        for invalid in ["0", "0us", "5", "-1us", "us", ""] {
            assert!(interval(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn percentages_are_checked() {
        assert_eq!(percent("95"), Ok(95.0));
        assert_eq!(percent("99.5%"), Ok(99.5));
        assert!(percent("101").is_err());
        assert!(percent("many").is_err());
        assert!(percent("NaN").is_err());
    }
}
