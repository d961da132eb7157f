//! What has to be known of logs before their events and calls mean anything to a profile: their clocks, the threads
//! that they tell of, and addresses.

use std::collections::BTreeSet;

use crate::code::clock::Alignment;
use crate::code::process::Processes;
use crate::code::profile_index::ProfileIndex;
use crate::code::threads;
use crate::hash::HashMap;
use crate::inject::mono::event_selection::MonoEvent;
use crate::inject::mono::frame_addresses::FrameAddresses;
use crate::inject::mono::threads::{Contents, Number, Threads, contents, invented_numbers};
use crate::inject::mono::{Logs, ReadLog};
use crate::inject::sources::Alignments;
use crate::perf::Profile;

/// It.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// What of the log can become events.
    pub events: BTreeSet<MonoEvent>,
    /// Its threads by the profile's numbers.
    pub threads: Threads<'a>,
    /// How its times become the profile's.
    pub alignment: Alignment,
    /// The addresses of what is in its stacks.
    pub places: FrameAddresses,
}

/// Prepares `logs` for what was `recorded`, if anything was; `aligned` tells how their times become those of it.
pub fn prepare(recorded: Option<(&Profile<'_>, &ProfileIndex)>, aligned: &Alignments, logs: &mut Logs<'_>) {
    let nobody = Processes::default();
    let pids = logs.all.iter().map(ReadLog::pid).collect();
    let known = recorded.map_or(HashMap::default(), |(profile, _)| {
        threads::threads(profile, &pids)
    });
    let mut invented = invented_numbers();
    for log in &mut logs.all {
        let alignment = aligned.get(log.found.file.path());
        let alignment = alignment.copied().unwrap_or(Alignment::Same);
        let Contents { lives, events } = contents(&log.log);
        let processes = recorded.map_or(&nobody, |(_, profile_index)| &profile_index.processes);
        let is_64 = log.log.header().pointer_size == 8;
        let known = known.get(&log.pid()).map_or(&[][..], Vec::as_slice);
        let threads = Threads::new(lives, known, log.pid(), &alignment, &mut invented);
        let ambiguous = threads
            .iter()
            .filter(|(_, number)| matches!(number, Number::Ambiguous(_)));
        logs.notes.extend(note_on_ambiguous(log, ambiguous.count()));
        log.prepared = Some(Prepared {
            events,
            threads,
            alignment,
            places: FrameAddresses::new(&log.index, processes, log.pid(), is_64),
        });
    }
}

fn note_on_ambiguous(log: &ReadLog<'_>, number: usize) -> Option<String> {
    let what = match number {
        0 => return None,
        1 => "1 thread can be any of several in the profile, so it is kept apart from those".into(),
        _ => format!(
            "{number} threads can be any of several in the profile, so they are kept apart from those"
        ),
    };
    Some(format!("{}: {what}", log.name()))
}
