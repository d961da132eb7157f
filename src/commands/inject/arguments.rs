//! What can be typed for it, and then what it means.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use jitinject::elf::dwarf::Version;
use jitinject::inject::source_paths::LineOptions;
use jitinject::inject::{
    DEFAULT_OUTPUT, InputKind, Layout, MonoEvent, Options, SamplingOptions, Tiers, XrayEvent, is_standard,
};

use crate::commands::runtime_files::RuntimeFiles;

/// What can be typed.
#[derive(Args, Debug)]
pub struct InjectArguments {
    /// The profile to read; `-` is standard input [default: perf.data]
    ///
    /// A file, a folder as perf record --threads makes it, or what perf record -o - writes; compressed or
    /// not. A log of Mono's profiler or a trace of XRay is made into a profile of its events; so is the first one of
    /// --mono-log or --xray-log if there is no --input.
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// The profile to read, as with --input
    #[arg(value_name = "PROFILE")]
    profile: Option<PathBuf>,

    /// The profile to write; `-` is standard output, in perf's format for pipes
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_OUTPUT)]
    output: PathBuf,

    /// Compress the records of the output, as perf record -z does; LEVEL is 1 to 22, 1 if left out
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = clap::value_parser!(i32).range(1..=22))]
    compress: Option<i32>,

    #[command(flatten)]
    files: RuntimeFiles,

    /// A trace of LLVM's XRay, or a folder to search for them; may be given more than once
    ///
    /// Its calls and what the program logged become events: beside those of a profile, or of a profile of their own.
    #[arg(long, value_name = "PATH")]
    xray_log: Vec<PathBuf>,

    /// The binary that wrote the traces, which has the functions that they have numbers for
    #[arg(long, value_name = "FILE")]
    xray_binary: Option<PathBuf>,

    /// Of traces, one sample of each thread for so much time in calls, such as 100us, in place of one for each time
    /// between two calls or returns; calls for themselves are then told only if --events names them
    #[arg(long, value_name = "TIME", value_parser = duration)]
    resample: Option<Duration>,

    /// Of traces, one sample for each stack of each thread, with all the time that was spent in it
    #[arg(long, conflicts_with = "resample")]
    aggregate: bool,

    /// Of traces, leave out calls that are shorter, such as 1us: their time is that of their callers
    #[arg(long, value_name = "TIME", value_parser = duration)]
    min_duration: Option<Duration>,

    /// Which events of logs and traces become events of the profile [default: all of what stands alone, and of traces
    /// beside a profile; none of logs beside a profile]
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    events: Vec<EventArgument>,

    /// A core file of the process that a log is of, which has the machine code that the log only names
    ///
    /// perf annotate then shows it. gcore PID makes one of a process that runs.
    #[arg(long, value_name = "FILE")]
    code_from: Option<PathBuf>,

    /// Replace the callers of samples by the calls that a log (--profile=log:calls) or a trace tells of
    ///
    /// Mono's code keeps no frame pointer, and compiled code often none, so that what perf takes for its callers is not
    /// worth much.
    #[arg(long)]
    splice_stacks: bool,

    /// The folder for the ELF files [default: OUTPUT.elf]
    #[arg(long, value_name = "DIR")]
    elf_dir: Option<PathBuf>,

    /// A build-id cache to add the ELF files to, as perf and debuginfod read it
    ///
    /// perf then finds them by their build-ids, wherever the profile is read: with `perf --buildid-dir DIR`, or
    /// without if DIR is ~/.debug. What is in the cache stays.
    #[arg(long, value_name = "DIR")]
    build_id_cache: Option<PathBuf>,

    /// Write all functions, not only those that samples touch
    #[arg(long)]
    all: bool,

    /// How functions are laid out in ELF files
    #[arg(long, value_name = "LAYOUT", default_value = "image")]
    layout: LayoutArgument,

    /// The version of DWARF for lines and inlined calls
    ///
    /// 4 is read by everything. 5 also holds the text of source files, where the dump has it, which LLVM's
    /// tools read; GNU binutils 2.40, and with them perf, then read no lines at all.
    #[arg(long, value_name = "VERSION", value_parser = dwarf_version, default_value = "4")]
    dwarf: Version,

    /// The folder that relative paths of source files start from
    #[arg(long, value_name = "DIR")]
    source_dir: Option<PathBuf>,

    /// Folders that paths of source files start with, and what to put in their place; may be given more than
    /// once
    ///
    /// For programs that ran in a container or on another machine. Of several that fit, the last one counts.
    #[arg(long, value_name = "OLD=NEW", value_parser = OsStringValueParser::new().try_map(path_mapping))]
    path_map: Vec<(Vec<u8>, Vec<u8>)>,

    /// Tell how many samples were taken in the code of each compiler of a runtime
    ///
    /// With `--tiers=symbols`, symbols tell it too, in brackets behind the name.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "summary")]
    tiers: Option<TiersArgument>,

    /// Write what happened to a file as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,

    /// Exit with status 3 if fewer of the samples in JIT code get a name
    ///
    /// A profile without samples in JIT code passes.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_under: Option<f64>,

    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Print each jitdump and its clock alignment, and what was repaired without a loss
    #[arg(short, long)]
    pub verbose: bool,
}

/// What `--layout` can be.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum LayoutArgument {
    /// One file for the functions of a code region, with holes between them; functions at reused addresses get separate
    /// files
    Image,
    /// One file for each function
    Function,
}

/// What `--events` can be.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum EventArgument {
    /// Allocated bytes, by type (mono/alloc-bytes/)
    Alloc,
    /// Thrown exceptions (mono/exception/)
    Exception,
    /// Time spent waiting for locks (mono/contention-ns/)
    Contention,
    /// Garbage collections, and how long the program stood (mono/gc-ns/, mono/gc-pause-ns/)
    Gc,
    /// Bytes in shots of the heap, by type (mono/heap-bytes/)
    Heap,
    /// The profiler's own samples (mono/sample/)
    Sample,
    /// Calls, and the time that each method spent by itself (mono/calls/, mono/self-ns/; xray/calls/, xray/self-ns/)
    Calls,
    /// What a program logs in its traces (xray/custom/)
    Custom,
}

impl EventArgument {
    /// Of logs of Mono's profiler.
    fn of_mono(self) -> Option<MonoEvent> {
        Some(match self {
            Self::Alloc => MonoEvent::Allocations,
            Self::Exception => MonoEvent::Exceptions,
            Self::Contention => MonoEvent::Contention,
            Self::Gc => MonoEvent::Collections,
            Self::Heap => MonoEvent::Heap,
            Self::Sample => MonoEvent::Samples,
            Self::Calls => MonoEvent::Calls,
            Self::Custom => return None,
        })
    }

    /// Of traces of XRay.
    fn of_xray(self) -> Option<XrayEvent> {
        match self {
            Self::Calls => Some(XrayEvent::Calls),
            Self::Custom => Some(XrayEvent::Custom),
            _ => None,
        }
    }
}

/// Where `--tiers` tells what it does.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum TiersArgument {
    /// In the summary
    Summary,
    /// There, and in symbols
    Symbols,
}

/// A number with a unit of time behind it; nanoseconds if there is none.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "not a number with ns, us, ms or s")?;
    match unit {
        "" | "ns" => Ok(Duration::from_nanos(number)),
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err("not a number with ns, us, ms or s".into()),
    }
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

fn path_mapping(text: OsString) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut parts = text.as_bytes().splitn(2, |&byte| byte == b'=');
    match (parts.next(), parts.next()) {
        (Some(old), Some(new)) if !old.is_empty() => Ok((old.to_vec(), new.to_vec())),
        _ => Err("not of the form OLD=NEW".into()),
    }
}

/// Reads a percentage, with or without its sign.
pub fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err("not a number from 0 to 100".into()),
    }
}

impl InjectArguments {
    /// What can't be done of what was typed.
    pub fn conflict(&self) -> Option<&'static str> {
        if self.input.is_some() && self.profile.is_some() && self.input != self.profile {
            return Some("two different profiles are given; name one, with or without --input");
        }
        let takes_both = is_standard(&self.output) && self.summary.as_deref().is_some_and(is_standard);
        takes_both.then_some("standard output can't take both the profile and the summary")
    }

    /// The profile that was typed without `--input`.
    pub fn profile(&self) -> Option<&Path> {
        self.profile.as_deref()
    }

    /// What was typed, as the library understands it.
    pub fn options(&self) -> Options {
        // The one that is the input is not read again.
        let (input, input_kind) = match (
            self.input.as_ref().or(self.profile.as_ref()),
            &*self.files.mono_log,
            &*self.xray_log,
        ) {
            (Some(input), ..) => (input.clone(), None),
            (None, [log, ..], _) => (log.clone(), Some(InputKind::MonoLog)),
            (None, [], [trace, ..]) => (trace.clone(), Some(InputKind::XrayTrace)),
            (None, [], []) => (PathBuf::from("perf.data"), None),
        };
        let xray_logs = self.xray_log.clone();
        fn chosen<E>(all: &[EventArgument], of: impl Fn(EventArgument) -> Option<E>) -> Option<Vec<E>> {
            (!all.is_empty()).then(|| all.iter().copied().filter_map(of).collect())
        }
        Options {
            input,
            input_kind,
            output: self.output.clone(),
            compression: self.compress,
            mono_events: chosen(&self.events, EventArgument::of_mono),
            xray_logs,
            xray_binary: self.xray_binary.clone(),
            xray_events: chosen(&self.events, EventArgument::of_xray),
            shape: SamplingOptions {
                resample: self.resample.map(nanoseconds),
                aggregate: self.aggregate,
                min_duration: self.min_duration.map_or(0, nanoseconds),
            },
            code_from: self.code_from.clone(),
            splice_stacks: self.splice_stacks,
            elf_dir: self.elf_dir.clone(),
            build_id_cache: self.build_id_cache.clone(),
            summary: self.summary.clone(),
            all: self.all,
            lines: LineOptions {
                version: self.dwarf,
                // Readers take a relative folder for one of theirs.
                source_dir: self
                    .source_dir
                    .as_ref()
                    .map(|dir| absolute(dir).unwrap_or_else(|_| dir.clone())),
                path_map: self.path_map.clone(),
            },
            layout: match self.layout {
                LayoutArgument::Image => Layout::Image,
                LayoutArgument::Function => Layout::Function,
            },
            tiers: match self.tiers {
                None => Tiers::Off,
                Some(TiersArgument::Summary) => Tiers::Summary,
                Some(TiersArgument::Symbols) => Tiers::Symbols,
            },
            ..self.files.options()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_checked() {
        assert_eq!(percent("95"), Ok(95.0));
        assert_eq!(percent("99.5%"), Ok(99.5));
        assert!(percent("101").is_err());
        assert!(percent("many").is_err());
        assert!(percent("NaN").is_err());
    }
}
