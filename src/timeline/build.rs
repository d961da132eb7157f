//! From a recording to what the page shows of it.

use std::collections::BTreeMap;

use crate::bytes::printable;
use crate::code::selection::{Leaf, Selector};
use crate::code::timeline::Timeline;
use crate::hash::HashMap;
use crate::inject::Progress;
use crate::inject::perf_maps::symbol_of;
use crate::inject::recording::Recording;
use crate::inject::sources::function_of;
use crate::timeline::intervals::{Item, Life, Lives};
use crate::timeline::regions;
use crate::timeline::samples::{BINS, Counter, Counts, Series, Span};
use crate::timeline::tiers::{Ranks, Tiers};
use crate::timeline::values::{FORMAT, Process, Region, Values};
use crate::units::{AddressRange, Pid, Time};

/// What a recording has to show; `input` is what to call it.
pub fn values(recording: &Recording<'_>, input: String, progress: &mut dyn Progress) -> Values {
    let profile_index = recording.profile_index;
    progress.start("reading samples", profile_index.data_end);
    let tiers = Tiers::of(recording);
    let states = recording.sources.states(&profile_index.processes);
    let timeline = &recording.timeline;
    let doubts = recording.sources.doubts(profile_index.times);
    let counter = Counter {
        selector: Selector {
            profile: recording.profile,
            processes: &profile_index.processes,
            timeline,
            dumps: &states,
            doubts: &doubts,
        },
        span: Span::of(profile_index),
        tier: |leaf| tiers.maker(item_of(timeline, leaf)?),
    };
    let counts = counter.walk(profile_index, progress);
    let lives = Lives::of(recording, counter.span, &counts);
    let mut notes = recording.notes(&counts.silent_processes());
    notes.extend(lives.notes());
    if profile_index.times.is_none() {
        notes.push(
            "the profile has no times, so all code is shown as if it had been there all the time".into(),
        );
    }
    let mut columns = Columns {
        recording,
        ranks: tiers.ranks(&counts),
        tiers: &tiers,
        span: counter.span,
        processes: HashMap::default(),
        functions: HashMap::default(),
        values: Values {
            format: FORMAT,
            input,
            start: counter.span.start.0.to_string(),
            span: counter.span.length(),
            notes,
            ..Values::default()
        },
    };
    columns.put_processes(&lives.all, &counts);
    columns.put_share(&counts);
    let mut names = HashMap::default();
    columns.put_boxes(&lives.all, &mut names);
    columns.put_samples(&counts, &mut names);
    columns.values
}

/// What a sample was taken in.
pub(super) fn item_of(timeline: &Timeline, leaf: Leaf) -> Option<Item> {
    match leaf {
        Leaf::Function(at) => {
            let mapping = timeline.mappings().get(at as usize)?;
            Some(Item::Function(mapping.function))
        }
        Leaf::Symbol(symbol) => Some(Item::Symbol(symbol.id)),
        Leaf::Doubtful(_) | Leaf::BeforeLoad | Leaf::NotInDump | Leaf::DumpUnusable | Leaf::NoDump => None,
    }
}

/// The name of code, as its runtime wrote it.
fn name_of<'a>(recording: &'a Recording<'_>, item: Item) -> &'a [u8] {
    let name = match item {
        Item::Function(id) => function_of(&recording.sources.used, id).map(|function| function.name),
        Item::Symbol(id) => symbol_of(&recording.maps, id).map(|symbol| symbol.name),
    };
    name.unwrap_or_default()
}

/// The columns in the making.
struct Columns<'a> {
    recording: &'a Recording<'a>,
    tiers: &'a Tiers,
    ranks: Ranks,
    span: Span,
    /// The index of each process.
    processes: HashMap<Pid, u32>,
    /// The index of each function. Code that several processes have is a function of each.
    functions: HashMap<(Item, u32), u32>,
    values: Values,
}

impl Columns<'_> {
    fn put_processes(&mut self, lives: &[Life], counts: &Counts) {
        let mut processes: BTreeMap<Pid, Process> = BTreeMap::new();
        for life in lives {
            processes.entry(life.pid).or_default();
        }
        for (&(pid, series, _), &count) in &counts.bins {
            if series != Series::All {
                processes.entry(pid).or_default().jit += u64::from(count);
            }
        }
        for (&(pid, series, _), &count) in &counts.bins {
            if series == Series::All
                && let Some(process) = processes.get_mut(&pid)
            {
                process.samples += u64::from(count);
            }
        }
        for (index, (pid, process)) in (0u32..).zip(processes) {
            self.processes.insert(pid, index);
            self.values.processes.push(Process {
                pid: pid.0,
                ..process
            });
        }
        self.values.tiers = std::mem::take(&mut self.ranks.names);
    }

    /// The number of a series in [`crate::timeline::Share`].
    fn series(&self, series: Series) -> u32 {
        match series {
            Series::All => 0,
            Series::Unnamed => 1,
            Series::Tier(tier) => match tier.and_then(|tier| self.ranks.of(tier)) {
                None => 2,
                Some(rank) => rank.saturating_add(3),
            },
        }
    }

    fn put_share(&mut self, counts: &Counts) {
        // Several compilers may share a number.
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

    fn put_boxes(&mut self, lives: &[Life], names: &mut HashMap<String, u32>) {
        for of_process in lives.chunk_by(|one, next| one.pid == next.pid) {
            let Some(&process) = of_process.first().and_then(|life| self.processes.get(&life.pid)) else {
                continue;
            };
            let regions = regions::regions(of_process.iter().map(|life| life.range).collect());
            let first = self.values.regions.len();
            self.values.regions.extend(regions.iter().map(|region| Region {
                process,
                base: format!("{:x}", region.start.0),
                size: region.size(),
            }));
            for life in of_process {
                let function = self.function(life.item, process, names);
                self.put_box(life, function, &regions, first);
            }
        }
    }

    /// The index of a function, put in place if it is new.
    fn function(&mut self, item: Item, process: u32, names: &mut HashMap<String, u32>) -> u32 {
        if let Some(&known) = self.functions.get(&(item, process)) {
            return known;
        }
        let all = &mut self.values.names;
        let next = number(all.len());
        let name = printable(name_of(self.recording, item));
        let name = *names.entry(name).or_insert_with_key(|name| {
            all.push(name.clone());
            next
        });
        let functions = &mut self.values.functions;
        let function = number(functions.name.len());
        functions.name.push(name);
        let tier = self.tiers.maker(item);
        functions.tier.push(tier.and_then(|tier| self.ranks.of(tier)));
        functions.process.push(process);
        functions.samples.push(0);
        self.functions.insert((item, process), function);
        function
    }

    fn put_box(&mut self, life: &Life, function: u32, regions: &[AddressRange], first: usize) {
        let Some((at, region)) = regions::find(regions, life.range.start) else {
            return;
        };
        let since_start = |time: Time| time.0.saturating_sub(self.span.start.0);
        let boxes = &mut self.values.boxes;
        boxes.function.push(function);
        boxes.region.push(number(first.saturating_add(at)));
        boxes
            .offset
            .push(life.range.start.0.saturating_sub(region.start.0));
        boxes.size.push(life.range.size());
        boxes
            .from
            .push((life.from > self.span.start).then(|| since_start(life.from)));
        boxes
            .until
            .push((life.until < self.span.end).then(|| since_start(life.until)));
        boxes.samples.push(life.samples);
    }

    /// Counts the samples of each function, also of those that have no box.
    fn put_samples(&mut self, counts: &Counts, names: &mut HashMap<String, u32>) {
        let (timeline, processes) = (&self.recording.timeline, &self.recording.profile_index.processes);
        let sorted: BTreeMap<_, _> = counts.code.iter().collect();
        for (&(leaf, space), &count) in sorted {
            let pid = processes.space(space).map(|space| space.pid);
            let process = pid.and_then(|pid| self.processes.get(&pid).copied());
            let (Some(item), Some(process)) = (item_of(timeline, leaf), process) else {
                continue;
            };
            let function = self.function(item, process, names);
            if let Some(samples) = self.values.functions.samples.get_mut(function as usize) {
                *samples += u64::from(count);
            }
        }
    }
}

/// An index as it stands in a column. There are fewer than 2^32 of anything.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
