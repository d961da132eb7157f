//! Logs as events: a profile of them alone, or of them and what was recorded.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::Path;

use crate::files::{MappedFile, Spool};
use crate::inject::mono::events::{Asked, Maker, MonoEvent};
use crate::inject::mono::{Logs, ReadLog};
use crate::inject::{Error, Options};
use crate::perf::Profile;
use crate::perf::synthesis::{Origin, Synthesis, Synthesized};
use crate::units::Time;

/// A profile that was made.
#[derive(Debug)]
pub struct Made<'p> {
    /// All but the records.
    pub synthesized: Synthesized<'p>,
    /// The records.
    pub records: MappedFile,
}

impl Made<'_> {
    /// The profile.
    pub fn profile(&self) -> Profile<'_> {
        self.synthesized.profile(&self.records)
    }
}

/// Makes a profile of `logs`, which are prepared for it, and of what was recorded, if anything was.
pub fn synthesize<'p>(
    options: &Options,
    recorded: Option<&'p Profile<'p>>,
    logs: &mut Logs<'_>,
) -> Result<Made<'p>, Error> {
    let asked = Asked::new(&asked_kinds(options, &logs.all, &mut logs.notes));
    let spool = |cause| Error::Spool { cause };
    let out = Spool::create().map_err(spool)?;
    let definitions = asked.definitions();
    let architecture = architecture(&logs.all);
    let command = [&b"jitinject"[..]];
    let origin = Origin {
        order: crate::bytes::ByteOrder::Little,
        clock_id: Some(crate::code::clock::CLOCK_MONOTONIC),
        host: b"",
        os_release: b"",
        version: env!("CARGO_PKG_VERSION").as_bytes(),
        architecture,
        command_line: &command,
    };
    let mut synthesis = match recorded {
        Some(profile) => Synthesis::beside(profile, &definitions, out).map_err(spool)?,
        None => Synthesis::stand_alone(&origin, &definitions, out),
    };
    let makers = logs.all.iter_mut().filter_map(|log| Maker::new(log, &asked));
    let mut makers: Vec<Maker<'_, '_>> = makers.collect();
    write_all(&mut makers, &mut synthesis, recorded.is_none()).map_err(spool)?;
    makers.into_iter().for_each(Maker::finish);
    let (synthesized, out) = synthesis.finish().map_err(spool)?;
    let records = out.map(Path::new("records")).map_err(spool)?;
    logs.losses = synthesized.losses.clone();
    Ok(Made { synthesized, records })
}

/// What was asked for: without a word, all that there is. Notes what there is not.
fn asked_kinds(options: &Options, logs: &[ReadLog<'_>], notes: &mut Vec<String>) -> Vec<MonoEvent> {
    let prepared = || logs.iter().filter_map(|log| log.prepared.as_ref());
    let has = |kind: &MonoEvent| prepared().any(|log| log.contents.events.contains(kind));
    if options.mono_events.is_empty() {
        let all: Vec<MonoEvent> = MonoEvent::ALL.into_iter().filter(has).collect();
        if all.is_empty() {
            let options = MonoEvent::ALL.map(MonoEvent::profiler_option).join(", ");
            notes.push(format!(
                "no log has events that can become samples; start Mono with --profile=log: and some of {options}"
            ));
        }
        return all;
    }
    for kind in options.mono_events.iter().filter(|kind| !has(kind)) {
        let (name, option) = (kind.name(), kind.profiler_option());
        notes.push(format!(
            "no log has events for {name}; start Mono with --profile=log:{option}"
        ));
    }
    options.mono_events.iter().copied().filter(has).collect()
}

/// The architecture of the first log, as `uname -m` has it.
fn architecture<'a>(logs: &[ReadLog<'a>]) -> &'a [u8] {
    match logs.first().map(|log| log.log.header().architecture) {
        Some(b"x86-64" | b"amd64") => b"x86_64",
        Some(b"arm64") => b"aarch64",
        Some(b"x86") => b"i686",
        Some(other) => other,
        None => b"",
    }
}

/// Adds the events of all logs in the order of time.
fn write_all<W: io::Write>(
    makers: &mut [Maker<'_, '_>],
    out: &mut Synthesis<'_, W>,
    is_alone: bool,
) -> io::Result<()> {
    let start = makers.iter_mut().filter_map(Maker::next_time).min();
    for maker in makers.iter() {
        maker.write_threads(out, start.unwrap_or_default(), is_alone)?;
    }
    let mut next = BinaryHeap::new();
    for (place, maker) in makers.iter_mut().enumerate() {
        next.extend(maker.next_time().map(|time| Reverse((time, place))));
    }
    while let Some(Reverse((_, place))) = next.pop() {
        // Those of other logs come no earlier than this.
        let until = next.peek().map_or(Time::MAX, |&Reverse((time, _))| time);
        let Some(maker) = makers.get_mut(place) else {
            continue;
        };
        while maker.next_time().is_some_and(|time| time <= until) {
            maker.write_next(out)?;
        }
        next.extend(maker.next_time().map(|time| Reverse((time, place))));
    }
    Ok(())
}
