//! A profile with the code of its processes.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jitdump::internals::format::marker;
use jitdump::{AddressRange, Machine};

use crate::code::perf_map_symbols::SymbolTable;
use crate::code::perf_map_symbols::SymbolTableIndex;
use crate::code::profile_index::IndexedProfile;
use crate::code::recorded_addresses::RecordedAddresses;
use crate::code::selection::Selector;
use crate::code::timeline::{PlacedCode, Timeline};
use crate::collections::indexed_table::IndexedTable;
use crate::files::{FileOrigin, InputFile};
use crate::load::file_code::MappedFiles;
use crate::load::find::access::Access;
use crate::load::find::jitdumps::FoundDumps;
use crate::load::find::logs;
use crate::load::find::perf_maps::{FoundPerfMaps, UsedPerfMap};
use crate::load::find::{jitdumps, perf_maps};
use crate::load::input::{self, InputFiles};
use crate::load::options::{InputKind, LoadOptions, NeededFunctions};
use crate::load::profile;
use crate::load::progress::Progress;
use crate::load::recording_data::{RecordingData, keep};
use crate::load::runtime_files::{RuntimeFiles, machine_of};
use crate::load::shared_memory::SharedMemory;
use crate::perf::record::data::ProfileBytes;
use crate::results::diagnostics::Diagnostic;
use crate::traces::conversion::LogConversion;
use crate::traces::used_logs::UsedLogs;

/// A profile with the code of its processes over time.
#[derive(Debug)]
pub struct Recording<'a> {
    /// Files of the input.
    pub input: &'a InputFiles,
    /// Data that the recording borrows from.
    pub data: &'a RecordingData,
    /// The profile, with events and call chains from logs and traces.
    pub profile: IndexedProfile<'a>,
    /// Logs of Mono's profiler and XRay traces.
    pub logs: UsedLogs<'a>,
    /// Runtime files with code.
    pub runtime_files: RuntimeFiles<'a>,
    /// Jitdumps that were found.
    pub found_dumps: &'a FoundDumps,
    /// Perf maps that were found.
    pub found_maps: &'a FoundPerfMaps,
    /// Contents of the perf maps in use.
    pub maps: IndexedTable<SymbolTableIndex, UsedPerfMap<'a>>,
    /// Code of all processes over time.
    pub timeline: Timeline,
    /// Number of loads left to the symbols of the mapped files that contain them, so that stacks can be
    /// unwound.
    pub loads_in_files: u64,
}

/// Reads a profile, or makes one from logs and traces, and reads its runtime files. `data` must be empty. Functions
/// that are not `needed` may be missing from the timeline.
///
/// The records are walked once for the index, and again after each step that rewrites them: decompression, merging
/// and repair of damaged ones; call chains and events from logs and traces. Clocks without a fixed relation take one
/// more walk, over the samples, and so do many functions that are not all needed.
///
/// `prepare` gets a recorded profile before its runtime files are searched.
pub fn load<'a>(
    prepare: impl FnOnce(&IndexedProfile<'_>) -> Result<(), Diagnostic>,
    options: &LoadOptions,
    needed: NeededFunctions,
    data: &'a RecordingData,
    progress: &mut dyn Progress,
) -> Result<Recording<'a>, Diagnostic> {
    let input = keep(&data.input, input::open(options)?);
    progress.input_ended();
    let recorded = match input.kind {
        InputKind::Profile => Some(profile::read(input, data)?),
        InputKind::MonoLog | InputKind::XrayTrace => None,
    };
    if let Some(recorded) = &recorded {
        prepare(recorded)?;
    }
    let end = recorded.as_ref().and_then(end_of);
    let end = end.or_else(|| input.main.modified().ok());
    let access = Access::new(options, input.main.origin().owner, end);
    let processes = recorded.as_ref().map(|recorded| &recorded.index.processes);
    let opened = logs::open(&options.trace, input, processes, &access)?;
    let opened = keep(&data.logs, opened);
    let mut conversion =
        LogConversion::read(opened, &options.trace, options.clock_offset, recorded.as_ref())?;
    let ProfileWithFiles {
        profile,
        found_dumps,
        mut runtime_files,
    } = match recorded {
        Some(recorded) => add_logs(options, &access, recorded, &mut conversion, data)?,
        None => make_profile(options, &access, &mut conversion, data)?,
    };
    runtime_files.add_symbols(&profile, &conversion);
    let found_maps = perf_maps::find(&profile, &found_dumps.dumps, options, &access)?;
    let found_maps = keep(&data.maps, found_maps);
    let maps = perf_maps::read(found_maps);
    let tables = maps.map(UsedPerfMap::table);
    let copies_stacks = profile.profile.attrs.copies_stacks();
    let unwinds = needed.unwinding && copies_stacks;
    // AUX data have addresses that only a decoder can extract.
    let addresses = if needed.all || unwinds || profile.index.has_aux {
        None
    } else {
        recorded_addresses(&profile, &runtime_files, &tables)
    };
    let leaves_files = copies_stacks && !unwinds;
    let (timeline, loads_in_files) = place_code(
        &profile,
        &mut runtime_files,
        &tables,
        addresses.as_ref(),
        leaves_files,
    );
    Ok(Recording {
        input,
        data,
        profile,
        logs: conversion.finish(),
        runtime_files,
        found_dumps,
        found_maps,
        maps,
        timeline,
        loads_in_files,
    })
}

/// Returns when a profile ended, if its clock is known.
fn end_of(IndexedProfile { profile, index }: &IndexedProfile<'_>) -> Option<SystemTime> {
    let (_, end) = index.times?;
    profile.clock_data()?.wall_clock_at(end)
}

/// A profile with the events and call chains of logs and traces, and the runtime files of its processes.
struct ProfileWithFiles<'a> {
    profile: IndexedProfile<'a>,
    found_dumps: &'a FoundDumps,
    runtime_files: RuntimeFiles<'a>,
}

/// Reads the runtime files of a recorded profile, and adds the events and call chains of logs and traces to it.
fn add_logs<'a>(
    options: &LoadOptions,
    access: &Access,
    recorded: IndexedProfile<'a>,
    conversion: &mut LogConversion<'a>,
    data: &'a RecordingData,
) -> Result<ProfileWithFiles<'a>, Diagnostic> {
    let found_dumps = keep(&data.dumps, jitdumps::find(&recorded, options, access)?);
    let has_events = conversion.has_events(&options.trace);
    let has_stacks = conversion.has_stacks(&options.trace);
    let is_complete = !has_events && !has_stacks;
    let mut runtime_files = RuntimeFiles::read(
        &recorded,
        found_dumps,
        conversion,
        is_complete,
        options.clock_offset,
    );
    if is_complete {
        return Ok(ProfileWithFiles {
            profile: recorded,
            found_dumps,
            runtime_files,
        });
    }
    conversion.prepare(Some(&recorded), &runtime_files.log_alignments());
    let mut profile = recorded.profile;
    if has_stacks {
        let spliced = keep(&data.spliced, conversion.splice_stacks(&options.trace, &profile)?);
        profile = profile.with_records(ProfileBytes::of_file(spliced));
    }
    if has_events {
        let made = conversion.make_events(&options.trace, Some(&profile))?;
        profile = keep(&data.synthesized, made).profile();
    }
    let profile = IndexedProfile::new(profile, marker::dump_path);
    runtime_files.update_logs(&profile, conversion);
    Ok(ProfileWithFiles {
        profile,
        found_dumps,
        runtime_files,
    })
}

/// Makes a profile of logs and traces alone, and reads the runtime files of its processes.
fn make_profile<'a>(
    options: &LoadOptions,
    access: &Access,
    conversion: &mut LogConversion<'a>,
    data: &'a RecordingData,
) -> Result<ProfileWithFiles<'a>, Diagnostic> {
    conversion.prepare(None, &[]);
    let made = conversion.make_events(&options.trace, None)?;
    let made = keep(&data.synthesized, made);
    let profile = IndexedProfile::new(made.profile(), marker::dump_path);
    let found_dumps = keep(&data.dumps, jitdumps::find(&profile, options, access)?);
    let runtime_files = RuntimeFiles::read(&profile, found_dumps, conversion, true, options.clock_offset);
    Ok(ProfileWithFiles {
        profile,
        found_dumps,
        runtime_files,
    })
}

/// Returns the addresses where functions are needed; `None` if all functions are needed.
fn recorded_addresses(
    profile: &IndexedProfile<'_>,
    runtime_files: &RuntimeFiles<'_>,
    tables: &IndexedTable<SymbolTableIndex, SymbolTable>,
) -> Option<RecordedAddresses> {
    let symbols = || tables.iter().flat_map(|table| &table.ranges).copied();
    let mut recorded = runtime_files.recorded_addresses(profile, symbols())?;
    // Symbols end where functions begin, so all functions in the symbols of samples are needed.
    let of_samples: Vec<AddressRange> = symbols().filter(|&range| recorded.may_be_in(range)).collect();
    of_samples.into_iter().for_each(|range| recorded.insert(range));
    Some(recorded)
}

/// Returns the code of all files on the profile's clock, as far as it is at `recorded` addresses. If code is left to the
/// symbols of the mapped files that contain it, it is not there, and the number of its loads is returned, too.
fn place_code(
    profile: &IndexedProfile<'_>,
    runtime_files: &mut RuntimeFiles<'_>,
    tables: &IndexedTable<SymbolTableIndex, SymbolTable>,
    recorded: Option<&RecordedAddresses>,
    leaves_files: bool,
) -> (Timeline, u64) {
    let IndexedProfile { profile, index } = profile;
    let mut files = leaves_files.then(|| MappedFiles::new(index, profile.endian));
    let mut code = PlacedCode::default();
    if recorded.is_none() {
        // Nearly all are placed once.
        code.reserve_exact(runtime_files.loads().count());
    }
    let shared = SharedMemory::of(index, profile.endian);
    runtime_files.place_events(index, &shared, |event| {
        let left = match &mut files {
            Some(files) => {
                let removed = files.removed;
                let left = files.remove(event);
                if files.removed > removed {
                    files.again(event).for_each(|again| code.add(again));
                }
                left
            }
            None => Some(event),
        };
        let Some(event) = left else { return };
        let is_needed =
            |recorded: &RecordedAddresses| event.range.is_some_and(|range| recorded.may_be_in(range));
        if recorded.is_none_or(is_needed) {
            code.add(event)
        } else {
            code.add_addresses(&event)
        }
    });
    let mut timeline = Timeline::new(&index.processes, code);
    timeline.add_symbols(&index.processes, &index.injected, tables);
    (timeline, files.map_or(0, |files| files.removed))
}

impl Recording<'_> {
    /// Leaves code in the executable mapping of a file to the symbols of that file, after it was needed for unwinding: readers
    /// of the profile unwind stacks, too.
    pub(crate) fn leave_code_to_files(&mut self) {
        let tables = self.maps.map(UsedPerfMap::table);
        (self.timeline, self.loads_in_files) =
            place_code(&self.profile, &mut self.runtime_files, &tables, None, true);
    }

    /// Returns all files that were read.
    pub fn files(&self) -> impl Iterator<Item = &FileOrigin> {
        let dumps = self.found_dumps.dumps.iter().map(|dump| dump.file.origin());
        let maps = self.found_maps.maps.iter().map(|(_, file)| file);
        let whole = maps.chain(self.logs.files()).map(InputFile::origin);
        self.input.origins().chain(whole).chain(dumps)
    }

    /// Returns the jitdumps and perf maps that the user named, used or not, including those in folders.
    pub fn named_paths(&self) -> impl Iterator<Item = &Path> {
        let given = self.found_dumps.given.iter().chain(&self.found_maps.given);
        given.map(PathBuf::as_path)
    }

    /// Returns the machine that the profile was recorded on.
    pub fn machine(&self) -> Machine {
        machine_of(&self.profile)
    }

    /// Returns the selector of code in samples, with the state of the jitdumps of each address space.
    pub fn selector(&self) -> Selector<'_> {
        let IndexedProfile { profile, index } = &self.profile;
        Selector {
            profile,
            processes: &index.processes,
            timeline: &self.timeline,
            dumps: self.runtime_files.states(&index.processes),
            doubts: self.runtime_files.doubts(index.times),
        }
    }
}
