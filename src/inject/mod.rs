//! Injection: reads a profile and runtime files, writes ELF objects and a new profile that maps them.
//!
//! ```text
//! Recording ─► unwinding ─► selection ─► [objects]: functions in groups ─► [mmap_records] ─► [output]
//!                                           └─ [sources]                                       └─► [run_summary]
//! ```

mod cache;
mod mmap_records;
mod mmap_trim;
mod objects;
mod options;
mod output;
mod run_summary;
mod sources;
mod summary_file;

use crate::code::profile_index::IndexedProfile;
use crate::frames::attribution::{CountedSamples, NativeNames, SampleObserver};
use crate::frames::source_files::names_and_lines::V8Scripts;
use crate::frames::unwind::{Unwound, unwind};
use crate::inject::objects::grouping::CodeToWrite;
use crate::inject::objects::{ObjectInputs, Objects};
use crate::load::{LoadOptions, NeededFunctions, Progress, Recording, RecordingData, load};
use crate::perf::output::{Edits, Rewrite};
use crate::results::diagnostics::Diagnostic;
use crate::results::summary::Summary;

pub use crate::frames::source_files::{SourceMapOptions, SourceOptions};
pub use crate::frames::unwind::{KeptStacks, UnwindOptions};
pub use objects::source_paths::LineOptions;
pub use options::{InjectOptions, Layout, Tiers};
pub use output::DEFAULT_OUTPUT;
pub use summary_file::SummaryOutput;

pub(crate) use sources::KeptSources;

/// Reads a profile and runtime files, writes objects and a new profile, and returns a summary.
pub fn inject(options: &InjectOptions, progress: &mut dyn Progress) -> Result<Summary, Diagnostic> {
    inject_after(|_| Ok(()), None, options, progress)
}

/// As [`inject`]. `prepare` gets a recorded profile before its runtime files are searched, and may move them to where
/// `options` say that they are. `observe` gets all samples if a summary is written.
pub fn inject_after(
    prepare: impl FnOnce(&IndexedProfile<'_>) -> Result<(), Diagnostic>,
    observe: SampleObserver<'_>,
    options: &InjectOptions,
    progress: &mut dyn Progress,
) -> Result<Summary, Diagnostic> {
    let data = RecordingData::default();
    let needed = NeededFunctions {
        all: options.all,
        unwinding: options.unwind.is_some(),
    };
    let loaded = load(prepare, &options.load, needed, &data, progress);
    let result = loaded.and_then(|recording| {
        let (recording, unwound) = match options.unwind {
            Some(how) => {
                let (mut recording, unwound) = unwind(&options.load, how, recording, progress)?;
                if recording.profile.profile.attrs.copies_stacks() {
                    recording.leave_code_to_files();
                }
                (recording, unwound)
            }
            None => (recording, Unwound::default()),
        };
        inject_recording(options, &recording, &unwound, observe, progress)
    });
    // The error may only be a consequence of an input that was truncated.
    result.or_else(|error| data.check_input().and(Err(error)))
}

/// Writes the objects and the new profile of a recording.
fn inject_recording(
    options: &InjectOptions,
    recording: &Recording<'_>,
    unwound: &Unwound,
    observe: SampleObserver<'_>,
    progress: &mut dyn Progress,
) -> Result<Summary, Diagnostic> {
    output::refuse_conflicts(options, recording)?;
    let index = &recording.profile.index;
    let (timeline, kernel_copies) = (&recording.timeline, &recording.input.kernel_copies);
    let selector = recording.selector();
    let has_summary = options.summary.is_some();
    let native = has_summary.then(|| NativeNames::of(&options.load, recording));
    let (counted, mut selection) = match &native {
        Some(native) => {
            let (counted, selection) =
                CountedSamples::count(recording, native, &selector, observe, progress)?;
            (Some(counted), selection)
        }
        None => {
            progress.start("reading samples", index.data_end);
            let advance = |bytes| progress.advance(bytes);
            (None, selector.walk(&index.marks, advance))
        }
    };
    let touched = selection.touched_counts();
    // Only a decoder of AUX data finds out what else was executed.
    if options.all || index.has_aux {
        selection.add_all(timeline);
    }
    let functions = timeline.selected(&selection.mappings);
    let freed_ranges = timeline.selected_freed_ranges(&selection.freed_ranges);
    let symbols = selection.sorted_symbols();

    progress.start("writing objects", (functions.len() + symbols.len()) as u64);
    let mut written = output::Output::create(options, kernel_copies)?;
    let summary_output = SummaryOutput::create(options.summary.as_deref(), options.folder.as_ref())?;
    let scripts = V8Scripts::read(
        recording,
        functions.iter().map(|mapping| mapping.function),
        symbols.iter().map(|symbol| symbol.id),
        &options.lines.sources,
        &options.load,
    );
    let mut names_and_lines = scripts.functions();
    // Objects and tables have them.
    names_and_lines.keep_lines(recording, counted.iter().flat_map(CountedSamples::functions));
    let inputs = ObjectInputs::new(options, recording, &names_and_lines);
    let mapped = CodeToWrite {
        mappings: &functions,
        freed_ranges: &freed_ranges,
        symbols: &symbols,
        unknown: &selection.unknown,
    };
    let objects = write_objects(&inputs, mapped, &options.load, &mut written, progress)?;
    let changes = mmap_records::changes(
        &recording.profile,
        &freed_ranges,
        &recording.runtime_files,
        &objects.placed,
    )?;
    let profile_summary = counted.map(|counted| {
        progress.start("counting samples", 1);
        let track = options.lines.track.as_deref();
        let mut summary = counted.summary(&names_and_lines, track, &options.names, unwound);
        summary.labels.clone_from(&options.labels);
        summary
    });
    let output_diagnostic = written.diagnostic();
    let run = run_summary::SummaryInput {
        options,
        recording,
        unwound,
        selection: &selection,
        touched,
        objects: &objects,
        trim_faults: &changes.faults,
        source_maps: scripts.diagnostics(),
        output: output_diagnostic.as_ref(),
        has_lost_kernel_copy: !kernel_copies.is_empty() && output::is_stream(&options.output),
        left_out: &[],
        profile: profile_summary.as_ref(),
        cached: None,
    };
    finish(run, written, summary_output, changes.edits, progress)
}

/// Writes the objects of all that is `mapped`.
fn write_objects(
    inputs: &ObjectInputs<'_>,
    mapped: CodeToWrite<'_>,
    load: &LoadOptions,
    written: &mut output::Output,
    progress: &mut dyn Progress,
) -> Result<Objects, Diagnostic> {
    let groups = inputs.groups(mapped);
    let planned = inputs.objects(mapped, &groups);
    let mut advance = |done| progress.advance(done);
    let mut kept = KeptSources::new(&inputs.lines.sources, load);
    let mut objects =
        objects::functions::write_function_objects(inputs, planned, written, &mut kept, &mut advance)?;
    objects::symbols::write_symbol_objects(inputs, mapped, written, &mut kept, &mut objects, advance)?;
    if inputs.has_copied_stacks {
        objects::include_ends(&mut objects.placed, mapped.freed_ranges);
    }
    Ok(objects)
}

/// Commits all outputs, the profile with `edits` among them, fills the build-ID cache and makes the summary.
fn finish(
    run: run_summary::SummaryInput<'_>,
    written: output::Output,
    mut summary_output: SummaryOutput,
    edits: Edits,
    progress: &mut dyn Progress,
) -> Result<Summary, Diagnostic> {
    let (profile, index) = (&run.recording.profile.profile, &run.recording.profile.index);
    let rewrite = Rewrite {
        profile,
        data_end: index.data_end,
        auxtrace: &index.auxtrace,
        edits,
        build_ids: objects::build_id_entries(profile, &run.objects.placed),
        compression: run.options.compression,
    };
    let mut summary = None;
    let (left_out, folder) = written.finish(rewrite, run.recording.data, |left_out| {
        let run = run_summary::SummaryInput { left_out, ..run };
        summary_output.stage(summary.insert(run.summary()))
    })?;
    let cached = cache::fill(run.options, folder.as_ref(), &run.objects.placed, progress)?;
    let run = run_summary::SummaryInput {
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
