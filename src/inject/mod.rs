//! The main job, top to bottom: what to look for, what to write, what to say.

mod aux_logs;
mod cache;
mod candidates;
mod claims;
mod dedup;
mod dumps;
mod events;
mod folders;
mod free_addresses;
mod function_objects;
pub mod hints;
mod hot_functions;
mod input;
mod mmap_records;
mod mono;
mod objects;
mod output;
mod ownership;
pub(crate) mod perf_maps;
mod pid_resolver;
mod reach;
pub(crate) mod recording;
pub(crate) mod report;
mod running;
mod runtimes;
pub mod source_paths;
pub(crate) mod sources;
mod summary_file;
mod symbol_objects;
mod xray;

use std::io;
use std::path::{Path, PathBuf};

use crate::code::selection::Selector;
use crate::elf::{build_id_cache, core_file, store};
use crate::files::search::shown;
use crate::files::{Packing, Spool};
use crate::inject::recording::Recording;
use crate::inject::source_paths::LineOptions;
use crate::inject::summary_file::SummaryOutput;
use crate::perf;
use crate::perf::output::Rewrite;
use crate::summary::Summary;

pub use crate::runtime::mono::Error as LogError;
pub use crate::runtime::xray::Error as TraceError;
pub use crate::runtime::xray::functions::Error as BinaryError;
pub use mono::event_selection::MonoEvent;
pub use output::DEFAULT_OUTPUT;
pub use xray::event_selection::XrayEvent;
pub use xray::events::SamplingOptions;

/// What to do.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The profile to read, or a log to make one of; `-` is standard input.
    pub input: PathBuf,
    /// What the input is; if nobody says so, its content does.
    pub input_kind: Option<InputKind>,
    /// The profile to write; `-` is standard output, and there as for a pipe.
    pub output: PathBuf,
    /// How hard to compress the records of the output (1 to 22), if at all.
    pub compression: Option<i32>,
    /// Files and folders with jitdumps, beside those that are found without help.
    pub jitdumps: Vec<PathBuf>,
    /// Files and folders with perf maps, beside those that are found without help.
    pub perf_maps: Vec<PathBuf>,
    /// Files and folders with logs of Mono's profiler.
    pub mono_logs: Vec<PathBuf>,
    /// Which of their events become events of the profile; if nobody says, all of logs without a profile, and none
    /// beside one.
    pub mono_events: Option<Vec<MonoEvent>>,
    /// Files and folders with traces of XRay.
    pub xray_logs: Vec<PathBuf>,
    /// The instrumented binary that has their functions.
    pub xray_binary: Option<PathBuf>,
    /// Which of their records become events of the profile; if nobody says, all, unless they are there for the call
    /// chains of a profile.
    pub xray_events: Option<Vec<XrayEvent>>,
    /// How their events are made fewer.
    pub shape: SamplingOptions,
    /// A core file that has the machine code which logs only name.
    pub code_from: Option<PathBuf>,
    /// Whether the call chains of samples in the code of logs are replaced by the calls that the logs tell of.
    pub splice_stacks: bool,
    /// The process that logs are of, if they don't tell or tell another.
    pub pid: Option<u32>,
    /// Nanoseconds to add to the times of jitdumps to get the profile's, if they are known. Cycle counts are
    /// converted as the profile says all the same.
    pub clock_offset: Option<i64>,
    /// The folder for the objects; `OUTPUT.elf` if there is none here, or `perf.jit.data.elf` where the output
    /// is no file.
    pub elf_dir: Option<PathBuf>,
    /// A build-id cache to add the objects to.
    pub build_id_cache: Option<PathBuf>,
    /// Where to write the summary as JSON, which must not be where anything else is; `-` is standard output.
    pub summary: Option<PathBuf>,
    /// Whether to write all functions, not only those that samples touch.
    pub all: bool,
    /// Whether to read a profile that belongs to another user, and files of runtimes that do.
    pub force: bool,
    /// Whether a profile has files opened only in its own folder and below, and no symbolic link is followed to any file
    /// of a runtime. Processes that still run and `/tmp` are not searched.
    pub confine: bool,
    /// How many functions share an object.
    pub layout: Layout,
    /// How lines are written.
    pub lines: LineOptions,
    /// Whether and where to tell which compiler made a function.
    pub tiers: Tiers,
}

/// What the input can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// A profile.
    Profile,
    /// A log of Mono's profiler, to make a profile of.
    MonoLog,
    /// A trace of XRay, to make a profile of.
    XrayTrace,
}

/// How many functions share an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// As many as can.
    #[default]
    Image,
    /// One each.
    Function,
}

/// Where it is told which compiler of a runtime made a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tiers {
    /// Nowhere.
    #[default]
    Off,
    /// In the summary.
    Summary,
    /// There, and behind the name in each symbol.
    Symbols,
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input can't be opened.
    #[error("cannot read {}: {cause}", shown(path))]
    Input {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// Another file that an option names can't be opened.
    #[error("cannot read {}: {cause}", shown(path))]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// The profile can't be understood.
    #[error("cannot read {}: {cause}", shown(path))]
    Profile {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: perf::Error,
    },
    /// The profile is packed.
    #[error(
        "cannot read {}: it is compressed with {program}; unpack it first: {program} -dc FILE > perf.data",
        shown(path),
        program = packing.program()
    )]
    Packed {
        /// Which.
        path: PathBuf,
        /// What packed it.
        packing: Packing,
    },
    /// The log can't be understood.
    #[error("{} {cause}", shown(path))]
    Log {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: LogError,
    },
    /// The trace can't be understood.
    #[error("{} {cause}", shown(path))]
    Trace {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: TraceError,
    },
    /// The binary is not one that XRay has instrumented.
    #[error("{} {cause}", shown(path))]
    Binary {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: BinaryError,
    },
    /// The file that code is to be taken from is none.
    #[error("{} {cause}", shown(path))]
    Core {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: core_file::Error,
    },
    /// Temporary files can't be written.
    #[error("cannot keep temporary files in {}: {cause}; set TMPDIR to another folder", shown(&Spool::folder()))]
    Spool {
        /// Why not.
        cause: io::Error,
    },
    /// The profile belongs to somebody else.
    #[error("cannot read {}: it is owned neither by you nor by root (use -f to read it all the same)", shown(.0))]
    Owner(PathBuf),
    /// Its addresses are not those of the processes, so that no file of a runtime matches it.
    #[error(
        "the addresses in {} were replaced by perf inject --aslr, so no jitdump or perf map matches them; run jitinject on the \
         original recording, then perf inject --aslr on its output",
        shown(.0)
    )]
    Remapped(PathBuf),
    /// The profile was cut off while it was read.
    #[error("{} was changed while it was read, and is shorter now; run this again when nobody writes to it", shown(.0))]
    Shrunk(PathBuf),
    /// The output would destroy an input.
    #[error(
        "the output {} is the same file as the input {}; choose another with -o",
        shown(output),
        shown(input)
    )]
    SameFile {
        /// The output.
        output: PathBuf,
        /// The input.
        input: PathBuf,
    },
    /// The summary would destroy the output.
    #[error("the summary {} would overwrite what else is written; choose another name for it", shown(.0))]
    SummaryInTheWay(PathBuf),
    /// The summary can't be written.
    #[error("cannot write the summary {}: {cause}", called(path, "to standard output"))]
    Summary {
        /// Where.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// The objects would be lost with the output.
    #[error("the folder {} for objects lies in the output, which replaces it; choose another with --elf-dir", shown(.0))]
    ObjectsInTheWay(PathBuf),
    /// The build-id cache would lie in the output.
    #[error("the build-id cache {} lies where the output is written; choose another folder for it", shown(.0))]
    CacheInTheWay(PathBuf),
    /// The objects can't be added to the build-id cache.
    #[error("the output is written, but not all of it could be added to the build-id cache")]
    Cache(#[from] build_id_cache::Error),
    /// The objects can't be written.
    #[error(transparent)]
    Objects(#[from] store::Error),
    /// An object's path does not fit into a record.
    #[error("the path of an object is too long for a profile: {0}; choose another folder with --elf-dir")]
    PathTooLong(String),
    /// Nothing is at the other end of standard output.
    #[error("standard output is closed; redirect it, or choose a file with -o")]
    Closed,
    /// Standard output is a terminal.
    #[error("a profile is nothing for a terminal; redirect standard output, or choose a file with -o")]
    Terminal,
    /// The output can't be written.
    #[error("cannot write {}: {cause}", called(path, "standard output"))]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

/// Somebody who watches.
pub trait Progress {
    /// All input that comes through a pipe has come.
    fn input_ended(&mut self) {}
    /// A part of the work starts, of `total` steps.
    fn start(&mut self, what: &'static str, total: u64);
    /// So many more steps are done.
    fn advance(&mut self, steps: u64);
}

/// Nobody does.
impl Progress for () {
    fn start(&mut self, _what: &'static str, _total: u64) {}
    fn advance(&mut self, _steps: u64) {}
}

/// What to call a path in a message.
fn called(path: &Path, standard: &'static str) -> String {
    if is_standard(path) {
        return standard.into();
    }
    shown(path)
}

/// Whether a path stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Reads a profile and the files of its runtimes, writes objects and a new profile, and tells what happened.
pub fn inject(options: &Options, progress: &mut dyn Progress) -> Result<Summary, Error> {
    recording::read(options, progress, inject_recording)
}

/// Puts names into a profile.
fn inject_recording(recording: &Recording<'_>, progress: &mut dyn Progress) -> Result<Summary, Error> {
    let &Recording {
        options,
        input,
        profile,
        profile_index,
        machine,
        ref sources,
        ref maps,
        ref timeline,
        ..
    } = recording;
    progress.start("reading samples", profile_index.data_end);
    let states = sources.states(&profile_index.processes);
    let selector = Selector {
        profile,
        processes: &profile_index.processes,
        timeline,
        dumps: &states,
        doubts: &sources.doubts(profile_index.times),
    };
    let mut selection = selector.walk(&profile_index.marks, profile_index.data_end, |bytes| {
        progress.advance(bytes)
    });
    let touched = selection.marked();
    if options.all || profile_index.has_aux {
        selection.add_all(&profile_index.processes, timeline);
    }
    let chosen = timeline.selected(&selection.mappings);
    let freed_ranges = timeline.selected_freed_ranges(&selection.freed_ranges);
    let symbols = selection.sorted_symbols();

    progress.start("writing objects", (chosen.len() + symbols.len()) as u64);
    let mut written = output::Output::create(options, &input.kernel_copies)?;
    let summary_output = SummaryOutput::create(options)?;
    let objects_input = objects::Input {
        files: &sources.used,
        maps,
        processes: &profile_index.processes,
        recorded: machine,
        lines: &options.lines,
        has_tiers: options.tiers == Tiers::Symbols,
    };
    let unknown = &selection.unknown;
    let groups = objects_input.groups(options.layout, chosen, &freed_ranges, &symbols, unknown);
    let objects = objects::write(&objects_input, &groups, &symbols, &mut written, |done| {
        progress.advance(done)
    })?;

    let changes = mmap_records::changes(profile, profile_index, &freed_ranges, sources, &objects.placed)?;
    let rewrite = Rewrite {
        profile,
        data_end: profile_index.data_end,
        auxtrace: &profile_index.auxtrace,
        edits: changes.edits,
        build_ids: output::build_id_entries(profile, &objects.placed),
        compression: options.compression,
    };
    let run = report::Run {
        options,
        input_kind: input.kind(options),
        profile,
        expanded: recording.expanded,
        profile_index,
        timeline,
        loads_in_files: recording.loads_in_files,
        selection: &selection,
        touched,
        sources,
        found_maps: recording.found_maps,
        maps,
        told: recording.told,
        objects: &objects,
        cover_faults: &changes.faults,
        has_lost_kernel_copy: !input.kernel_copies.is_empty() && output::is_stream(&options.output),
        left_out: &[],
        cached: None,
    };
    finish(run, written, summary_output, rewrite, input, progress)
}

/// Puts all that is written in place, adds it to the build-id cache, and tells what happened.
fn finish(
    run: report::Run<'_>,
    written: output::Output,
    mut summary_output: SummaryOutput,
    rewrite: Rewrite<'_>,
    input: &input::Input,
    progress: &mut dyn Progress,
) -> Result<Summary, Error> {
    let mut summary = None;
    let left_out = written.finish(rewrite, input, |left_out| {
        let run = report::Run { left_out, ..run };
        summary_output.stage(summary.insert(run.summary()))
    })?;
    let cached = cache::fill(run.options, &run.objects.placed, progress)?;
    let run = report::Run {
        left_out: &left_out,
        cached: cached.as_ref(),
        ..run
    };
    let summary = summary
        .filter(|_| cached.is_none())
        .unwrap_or_else(|| run.summary());
    summary_output.finish(&summary, cached.is_some())?;
    Ok(summary)
}
