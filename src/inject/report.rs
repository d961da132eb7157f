//! Telling what happened.

use std::fmt::Display;
use std::path::Path;

use crate::bytes::printable;
use crate::code::clock::Alignment;
use crate::code::selection::Selection;
use crate::code::survey::Survey;
use crate::code::timeline::Timeline;
use crate::inject::objects::Objects;
use crate::inject::sources::{Sources, UsedDump};
use crate::inject::{Options, output};
use crate::perf::Profile;
use crate::runtime::Change;
use crate::summary::{DumpSummary, FORMAT, FunctionSummary, SampleSummary, Summary, Unnamed, Warning};
use crate::tally::Tally;

/// Puts together what a run has to tell.
pub fn summary(
    options: &Options,
    profile: &Profile<'_>,
    survey: &Survey,
    timeline: &Timeline,
    selection: &Selection,
    sources: &Sources<'_>,
    objects: &Objects,
) -> Summary {
    let touched = selection.residences.iter().filter(|&&touched| touched);
    let events = sources.used.iter().flat_map(|used| used.dump.events());
    let loaded = events.clone().filter(|event| event.change == Change::Load);
    let has_objects = !objects.placed.is_empty();
    Summary {
        format: FORMAT,
        input: shown(&options.input),
        output: shown(&options.output),
        elf_dir: has_objects.then(|| shown(&output::elf_dir(options))),
        dumps: sources.used.iter().map(dump_summary).collect(),
        functions: FunctionSummary {
            loaded: loaded.clone().count() as u64,
            moved: (events.count() - loaded.count()) as u64,
            touched: touched.count() as u64,
            written: objects.placed.len() as u64,
        },
        samples: sample_summary(selection),
        warnings: warnings(options, profile, survey, selection, sources, objects),
        notes: notes(survey, timeline, sources),
    }
}

fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

fn dump_summary(used: &UsedDump<'_>) -> DumpSummary {
    let loads = used.dump.events().iter();
    let loads = loads.filter(|event| event.change == Change::Load);
    DumpSummary {
        path: shown(used.found.file.path()),
        pids: used.found.pids.iter().map(|pid| pid.0).collect(),
        functions: loads.count() as u64,
        same_clock: used.alignment == Alignment::Same,
        clock: used.alignment.to_string(),
    }
}

fn sample_summary(selection: &Selection) -> SampleSummary {
    let samples = &selection.samples;
    SampleSummary {
        total: samples.total,
        jit: samples.jit(),
        named: samples.named,
        named_percent: samples.named_percent(),
        unnamed: Unnamed {
            before_load: samples.before_load,
            not_in_dump: samples.not_in_dump,
            dump_unusable: samples.dump_unusable,
            no_dump: samples.no_dump,
        },
        with_named_frame: samples.with_named_frame,
    }
}

fn warnings(
    options: &Options,
    profile: &Profile<'_>,
    survey: &Survey,
    selection: &Selection,
    sources: &Sources<'_>,
    objects: &Objects,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    add_all(&mut warnings, &profile.faults, Some(&options.input), true);
    let lost = (profile.data.len() as u64).saturating_sub(survey.data_end);
    if lost > 0 {
        warnings.push(Warning {
            what: format!("the last {lost} bytes of its records are cut off or damaged, and left out"),
            count: 1,
            file: Some(shown(&options.input)),
            first_offset: Some(profile.data_offset.saturating_add(survey.data_end)),
        });
    }
    if selection.samples.cut > 0 {
        warnings.push(Warning {
            what: "samples that end before their fields do, kept as they are".into(),
            count: selection.samples.cut,
            file: Some(shown(&options.input)),
            first_offset: None,
        });
    }
    warnings.extend(sources.warnings.iter().cloned());
    for used in &sources.used {
        add_all(
            &mut warnings,
            used.dump.faults(),
            Some(used.found.file.path()),
            true,
        );
    }
    add_all(&mut warnings, &objects.faults, None, false);
    warnings
}

/// Adds a warning for each kind of fault. Where an offset means nothing, `has_offsets` is false.
fn add_all<K: Ord + Copy + Display>(
    warnings: &mut Vec<Warning>,
    faults: &Tally<K>,
    file: Option<&Path>,
    has_offsets: bool,
) {
    warnings.extend(faults.iter().map(|(kind, seen)| Warning {
        what: kind.to_string(),
        count: seen.count,
        file: file.map(shown),
        first_offset: has_offsets.then_some(seen.first_offset),
    }));
}

fn notes(survey: &Survey, timeline: &Timeline, sources: &Sources<'_>) -> Vec<String> {
    let mut notes = sources.notes.to_vec();
    if survey.markers.is_empty() && sources.used.is_empty() {
        notes.push(
            "no process in the profile mapped a jitdump, so there is nothing to inject; start the runtime with its option for perf \
             (node --perf-prof, python -X perf_jit), or name the jitdump with --jitdump"
                .into(),
        );
    }
    if survey.has_aux && !timeline.residences().is_empty() {
        notes.push("the profile has AUX data, so all functions are written".into());
    }
    notes
}
