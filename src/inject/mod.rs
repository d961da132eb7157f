//! Injection: reads a profile and runtime files, writes ELF objects and a new profile that maps them.

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

use std::path::{Path, PathBuf};

use crate::code::selection::Selector;
use crate::diagnostics::Diagnostic;
use crate::inject::recording::Recording;
use crate::inject::source_paths::LineOptions;
use crate::inject::summary_file::SummaryOutput;
use crate::perf::output::Rewrite;
use crate::summary::Summary;

pub use mono::event_selection::MonoEvent;
pub use output::DEFAULT_OUTPUT;
pub use xray::event_selection::XrayEvent;
pub use xray::events::SamplingOptions;

/// Options of [`inject`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Path of the profile, or of a log or trace to convert to a profile; `-` is standard input.
    pub input: PathBuf,
    /// Type of the input; `None` detects it by content.
    pub input_kind: Option<InputKind>,
    /// Path of the profile to write; `-` is standard output, which gets the pipe format.
    pub output: PathBuf,
    /// Compression level of the records in the output (1 to 22); `None` leaves them uncompressed.
    pub compression: Option<i32>,
    /// Files and folders with jitdumps, in addition to those that are found automatically.
    pub jitdumps: Vec<PathBuf>,
    /// Files and folders with perf maps, in addition to those that are found automatically.
    pub perf_maps: Vec<PathBuf>,
    /// Files and folders with logs of Mono's profiler.
    pub mono_logs: Vec<PathBuf>,
    /// Log events to convert to profile events. `None` converts all without a profile, and none beside one.
    pub mono_events: Option<Vec<MonoEvent>>,
    /// Files and folders with XRay traces.
    pub xray_logs: Vec<PathBuf>,
    /// Instrumented binary used to resolve XRay function IDs.
    pub xray_binary: Option<PathBuf>,
    /// Trace records to convert to profile events. `None` converts all, or none if the traces only replace
    /// the call chains of a profile.
    pub xray_events: Option<Vec<XrayEvent>>,
    /// Options that reduce the number of samples made from XRay traces.
    pub shape: SamplingOptions,
    /// Core file to read machine code from, for functions in Mono logs, which contain only names.
    pub code_from: Option<PathBuf>,
    /// Whether samples in code of logs and traces get call chains made from the recorded calls.
    pub splice_stacks: bool,
    /// Process ID for logs and traces that carry none, or one from another PID namespace.
    pub pid: Option<u32>,
    /// Nanoseconds to add to runtime times to get profile times, if known. Cycle counts are always converted
    /// as the profile specifies.
    pub clock_offset: Option<i64>,
    /// Folder for the objects. `None` is `OUTPUT.elf`, or `perf.jit.data.elf` if the output is not a file.
    pub elf_dir: Option<PathBuf>,
    /// Build-ID cache to add the objects to.
    pub build_id_cache: Option<PathBuf>,
    /// Path of the JSON summary, which must differ from all inputs and other outputs; `-` is standard output.
    pub summary: Option<PathBuf>,
    /// Whether to write all functions, not only those that samples reference.
    pub all: bool,
    /// Whether to read a profile and runtime files that belong to other users.
    pub force: bool,
    /// Whether to open files only in the folder of the profile and below, and to follow no symbolic links to
    /// runtime files. Running processes and `/tmp` are not searched then.
    pub confine: bool,
    /// How functions are grouped into objects.
    pub layout: Layout,
    /// How line tables are written.
    pub lines: LineOptions,
    /// Where to record the compiler that made a function.
    pub tiers: Tiers,
}

/// Type of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// Profile.
    Profile,
    /// Log of Mono's profiler, which is converted to a profile.
    MonoLog,
    /// XRay trace, which is converted to a profile.
    XrayTrace,
}

/// How functions are grouped into objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// As many functions per object as possible.
    #[default]
    Image,
    /// One function per object.
    Function,
}

/// Where to record the compiler that made a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tiers {
    /// Nowhere.
    #[default]
    Off,
    /// In the summary.
    Summary,
    /// In the summary, and after the name in each symbol.
    Symbols,
}

/// Receiver of progress reports.
pub trait Progress {
    /// Reports that all input from a pipe has been read.
    fn input_ended(&mut self) {}
    /// Reports the start of a step with `total` units of work.
    fn start(&mut self, what: &'static str, total: u64);
    /// Reports that `steps` more units are done.
    fn advance(&mut self, steps: u64);
}

/// Ignores all reports.
impl Progress for () {
    fn start(&mut self, _what: &'static str, _total: u64) {}
    fn advance(&mut self, _steps: u64) {}
}

/// Whether a path is `-`, which means standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Reads a profile and runtime files, writes objects and a new profile, and returns a summary.
pub fn inject(options: &Options, progress: &mut dyn Progress) -> Result<Summary, Diagnostic> {
    recording::read(options, progress, inject_recording)
}

/// Writes the objects and the new profile of a recording.
fn inject_recording(recording: &Recording<'_>, progress: &mut dyn Progress) -> Result<Summary, Diagnostic> {
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
        aux_logs: recording.aux_logs,
        objects: &objects,
        cover_faults: &changes.faults,
        has_lost_kernel_copy: !input.kernel_copies.is_empty() && output::is_stream(&options.output),
        left_out: &[],
        cached: None,
    };
    finish(run, written, summary_output, rewrite, input, progress)
}

/// Commits all outputs, fills the build-ID cache and makes the summary.
fn finish(
    run: report::Run<'_>,
    written: output::Output,
    mut summary_output: SummaryOutput,
    rewrite: Rewrite<'_>,
    input: &input::Input,
    progress: &mut dyn Progress,
) -> Result<Summary, Diagnostic> {
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
