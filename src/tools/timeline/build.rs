//! Builds the content of the page from a recording.

use std::collections::BTreeMap;

use jitdump::{AddressRange, Time, names, printable};

use crate::code::timeline::FunctionId;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::index_of;
use crate::frames::source_files::names_and_lines::{NamesAndLines, V8Scripts};
use crate::load::Progress;
use crate::load::Recording;
use crate::load::function_of;
use crate::load::symbol_of;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::{count, percent};
use crate::tools::timeline::code_box::{CodeBox, CodeId, NamedCode};
use crate::tools::timeline::colors::color;
use crate::tools::timeline::event::CountedEvent;
use crate::tools::timeline::intervals::CodeBoxes;
use crate::tools::timeline::regions;
use crate::tools::timeline::samples::{BINS, BinnedSamples, Counter, Series, Span};
use crate::tools::timeline::source_lines::SourceLines;
use crate::tools::timeline::tiers::{Ranks, TimelineTiers};
use crate::tools::timeline::values::{FORMAT, Locations, PageValues, ProcessValues, Region};
use crate::tools::timeline::{TimelineOptions, TimelinePage};
use crate::units::Pid;

/// Returns the content of the page.
pub fn timeline(
    recording: &Recording<'_>,
    scripts: &V8Scripts<'_>,
    options: &TimelineOptions,
    progress: &mut dyn Progress,
) -> Result<TimelinePage, Diagnostic> {
    let event = CountedEvent::of(&recording.profile.profile, options.event.as_deref())?;
    let profile_index = &recording.profile.index;
    progress.start("reading samples", profile_index.data_end);
    let tiers = TimelineTiers::of(recording);
    let timeline = &recording.timeline;
    let counter = Counter {
        selector: recording.selector(),
        event,
        span: Span::of(profile_index),
        tier: |code: NamedCode| tiers.compiler_of(code.id(timeline)),
    };
    let counts = counter.walk(profile_index, progress);
    let names_and_lines = scripts.functions();
    let mut lines = SourceLines::of(recording, &names_and_lines, options, &counts);
    let code_boxes = CodeBoxes::of(recording, counter.span, &counts);
    let mut diagnostics = recording.diagnostics();
    diagnostics.extend(recording.hints(&counts.silent_processes()));
    diagnostics.extend(code_boxes.diagnostics());
    diagnostics.extend(scripts.diagnostics().iter().cloned());
    diagnostics.extend(
        lines
            .faults
            .iter()
            .map(|(issue, count)| Diagnostic::new(issue).times(count.count)),
    );
    if profile_index.times.is_none() {
        diagnostics.push(Diagnostic::new(Issue::PageWithoutTimes));
    }
    let clocks = recording.clocks();
    let mut columns = Columns {
        recording,
        names_and_lines,
        ranks: tiers.ranks(&counts),
        tiers: &tiers,
        span: counter.span,
        processes: HashMap::default(),
        functions: HashMap::default(),
        values: PageValues {
            format: FORMAT,
            input: recording.input.name.clone(),
            start: counter.span.start.0.to_string(),
            span: counter.span.length(),
            event: counter.event.name.clone(),
            notes: notes(&diagnostics, &clocks, &counts),
            ..PageValues::default()
        },
    };
    columns.write_processes(&code_boxes.all, &counts);
    columns.write_share(&counts);
    let mut names = HashMap::default();
    columns.write_boxes(&code_boxes.all, &mut names);
    columns.write_samples(&counts, &mut names);
    columns.write_inlined(std::mem::take(&mut lines.inlined), &mut names);
    columns.write_lines(lines);
    Ok(TimelinePage {
        values: columns.values,
        diagnostics,
        clocks,
    })
}

/// What the page has beside its charts: what is not as it should be, how clocks were aligned, and what is not counted.
fn notes(diagnostics: &[Diagnostic], clocks: &[String], counts: &BinnedSamples) -> Vec<String> {
    let BinnedSamples { stacks, others, .. } = counts;
    let notes = diagnostics.iter().map(Diagnostic::to_string);
    let others = (*others > 0).then(|| {
        let samples = count(*others, "sample");
        format!("{samples} of other events not counted; --event selects one")
    });
    let stacks = (stacks.frames > stacks.samples).then(|| {
        let named = percent(stacks.named_percent());
        let samples = count(stacks.samples, "sample");
        format!("{samples} with JIT code in the stack, {named} % of its frames named")
    });
    let clocks = clocks.iter().cloned();
    notes.chain(clocks).chain(others).chain(stacks).collect()
}

/// Returns the name of code, as written by its runtime.
fn recorded_name<'a>(recording: &'a Recording<'_>, code: CodeId) -> &'a [u8] {
    let name = match code {
        CodeId::Function(id) => function_of(&recording.runtime_files.used, id).map(|function| function.name),
        CodeId::Symbol(id) => symbol_of(&recording.maps, id).map(|symbol| symbol.name),
    };
    name.unwrap_or_default()
}

/// Columns under construction.
struct Columns<'a> {
    recording: &'a Recording<'a>,
    names_and_lines: NamesAndLines<'a>,
    tiers: &'a TimelineTiers,
    ranks: Ranks,
    span: Span,
    /// Index of each process.
    processes: HashMap<Pid, u32>,
    /// Index of each function. Code in several processes is a separate function in each.
    functions: HashMap<(CodeId, u32), u32>,
    values: PageValues,
}

impl Columns<'_> {
    /// Writes the processes with code or samples.
    fn write_processes(&mut self, code_boxes: &[CodeBox], counts: &BinnedSamples) {
        let mut processes: BTreeMap<Pid, ProcessValues> = BTreeMap::new();
        for code_box in code_boxes {
            processes.entry(code_box.pid).or_default();
        }
        for (&(pid, series, _), &count) in &counts.bins {
            if series != Series::All {
                processes.entry(pid).or_default().jit += u64::from(count);
            }
        }
        // Processes without code are not shown.
        for (&(pid, series, _), &count) in &counts.bins {
            if series == Series::All
                && let Some(process) = processes.get_mut(&pid)
            {
                process.samples += u64::from(count);
            }
        }
        for (index, (pid, process)) in (0u32..).zip(processes) {
            self.processes.insert(pid, index);
            self.values.processes.push(ProcessValues {
                pid: pid.0,
                ..process
            });
        }
        self.values.tiers = std::mem::take(&mut self.ranks.names);
        self.values.colors = self.values.tiers.iter().map(|tier| color(tier)).collect();
    }

    /// Returns the value of a series in [`crate::tools::timeline::Share`].
    fn series(&self, series: Series) -> u32 {
        match series {
            Series::All => 0,
            Series::Unnamed => 1,
            Series::Tier(tier) => match tier.map(|tier| self.ranks.of(tier)) {
                None => 2,
                Some(rank) => rank.saturating_add(3),
            },
        }
    }

    /// Adds the samples of each process, compiler and part of the time.
    fn write_share(&mut self, counts: &BinnedSamples) {
        // Several compilers can share a series.
        let mut rows: BTreeMap<(u32, u32, u32), u32> = BTreeMap::new();
        for (&(pid, series, bin), &count) in &counts.bins {
            if let Some(&process) = self.processes.get(&pid) {
                let row = rows.entry((process, self.series(series), bin)).or_default();
                *row = row.saturating_add(count);
            }
        }
        let share = &mut self.values.share;
        share.bins = BINS;
        for ((process, series, bin), samples) in rows {
            share.process.push(process);
            share.series.push(series);
            share.bin.push(bin);
            share.samples.push(samples);
        }
    }

    /// Adds boxes, which are sorted by process.
    fn write_boxes(&mut self, code_boxes: &[CodeBox], known_names: &mut HashMap<String, u32>) {
        for of_process in code_boxes.chunk_by(|one, next| one.pid == next.pid) {
            let pid = of_process.first().map(|code_box| code_box.pid);
            let Some(&process) = pid.and_then(|pid| self.processes.get(&pid)) else {
                continue;
            };
            let regions = regions::regions(of_process.iter().map(|code_box| code_box.range).collect());
            let first = self.values.regions.len();
            self.values.regions.extend(regions.iter().map(|region| Region {
                process,
                base: format!("{:x}", region.start.0),
                size: region.size(),
            }));
            for code_box in of_process {
                let function = self.function(code_box.code, process, known_names);
                self.write_box(code_box, function, &regions, first);
            }
        }
    }

    /// Returns the index of a function, and adds it if it is new.
    fn function(&mut self, code: CodeId, process: u32, known_names: &mut HashMap<String, u32>) -> u32 {
        if let Some(&known) = self.functions.get(&(code, process)) {
            return known;
        }
        let recorded = recorded_name(self.recording, code);
        let is_built_in = names::is_built_in(recorded);
        let name = self.name(printable(&self.names_and_lines.name(recorded)), known_names);
        let functions = &mut self.values.functions;
        let function = index_of(functions.name.len());
        self.values.built_ins.extend(is_built_in.then_some(function));
        functions.name.push(name);
        let tier = self.tiers.compiler_of(code);
        functions.tier.push(tier.map(|tier| self.ranks.of(tier)));
        functions.process.push(process);
        functions.samples.push(0);
        self.functions.insert((code, process), function);
        function
    }

    /// Returns the index of a name, and adds it if it is new.
    fn name(&mut self, name: String, known_names: &mut HashMap<String, u32>) -> u32 {
        let all = &mut self.values.names;
        let next = index_of(all.len());
        *known_names.entry(name).or_insert_with_key(|name| {
            self.values.locations.add(next, name);
            all.push(name.clone());
            next
        })
    }

    /// Writes a box of a function. `regions` are those of its process, numbered from `first` on.
    fn write_box(&mut self, code_box: &CodeBox, function: u32, regions: &[AddressRange], first: usize) {
        let Some((at, region)) = regions::find(regions, code_box.range.start) else {
            return;
        };
        let since_start = |time: Time| time.0.saturating_sub(self.span.start.0);
        let boxes = &mut self.values.boxes;
        boxes.function.push(function);
        boxes.region.push(index_of(first.saturating_add(at)));
        boxes
            .offset
            .push(code_box.range.start.0.saturating_sub(region.start.0));
        boxes.size.push(code_box.range.size());
        boxes
            .from
            .push((code_box.from > self.span.start).then(|| since_start(code_box.from)));
        boxes
            .until
            .push((code_box.until < self.span.end).then(|| since_start(code_box.until)));
        boxes.samples.push(code_box.samples);
    }

    /// Counts the samples of each function, including those without a rectangle.
    fn write_samples(&mut self, counts: &BinnedSamples, names: &mut HashMap<String, u32>) {
        let (timeline, processes) = (&self.recording.timeline, &self.recording.profile.index.processes);
        let sorted: BTreeMap<_, _> = counts.code.iter().collect();
        for (&(leaf, space), &count) in sorted {
            let process = self.processes.get(&processes.space(space).pid).copied();
            let Some(process) = process else { continue };
            let function = self.function(leaf.id(timeline), process, names);
            if let Some(samples) = self.values.functions.samples.get_mut(function as usize) {
                *samples += u64::from(count);
            }
        }
    }

    /// Returns the index of a function of a process that has been added.
    fn added(&self, function: FunctionId, pid: Pid) -> Option<u32> {
        let process = *self.processes.get(&pid)?;
        self.functions
            .get(&(CodeId::Function(function), process))
            .copied()
    }

    /// Writes the samples in inlined functions.
    fn write_inlined(
        &mut self,
        inlined: BTreeMap<(FunctionId, Pid, String), u32>,
        names: &mut HashMap<String, u32>,
    ) {
        let mut rows = BTreeMap::new();
        for ((function, pid, name), samples) in inlined {
            if let Some(function) = self.added(function, pid) {
                rows.insert((function, self.name(name, names)), samples);
            }
        }
        let columns = &mut self.values.inlined;
        for ((function, name), samples) in rows {
            columns.function.push(function);
            columns.name.push(name);
            columns.samples.push(samples);
        }
    }

    /// Writes the samples by source line.
    fn write_lines(&mut self, lines: SourceLines) {
        let mut rows = BTreeMap::new();
        for ((function, pid, file, line), samples) in lines.samples {
            if let Some(function) = self.added(function, pid) {
                rows.insert((function, file, line), samples);
            }
        }
        let columns = &mut self.values.lines;
        for ((function, file, line), samples) in rows {
            columns.function.push(function);
            columns.file.push(file);
            columns.line.push(line);
            columns.samples.push(samples);
        }
        self.values.files = lines.files;
        self.values.excerpts = lines.excerpts;
    }
}

impl Locations {
    /// Adds the location in a name, if it has one.
    fn add(&mut self, index: u32, name: &str) {
        let parts = names::parts(name.as_bytes());
        let Some(location) = parts.location else {
            return;
        };
        let position = |part: &[u8]| {
            let start = part.as_ptr().addr().checked_sub(name.as_ptr().addr())?;
            let end = start.checked_add(part.len())?;
            let units = |end: usize| Some(index_of(name.get(..end)?.encode_utf16().count()));
            Some((units(start)?, units(end)?))
        };
        let (Some(function), Some(path)) = (position(parts.function), position(location.path)) else {
            return;
        };
        self.name.push(index);
        self.function_start.push(function.0);
        self.function_end.push(function.1);
        self.path_start.push(path.0);
        self.path_end.push(path.1);
        self.line.push(location.line);
    }
}
