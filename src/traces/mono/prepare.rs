//! Preparation of logs before their events are converted: clock alignment, threads of the profile, and frame addresses.

use std::collections::BTreeSet;

use jitdump::AddressRange;

use crate::code::clock::Alignment;
use crate::code::process::Processes;
use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::HashMap;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::source::FIRST_SYNTHETIC_TID;
use crate::traces::mono::frame_addresses::FrameAddresses;
use crate::traces::mono::heap_shots::HeapShots;
use crate::traces::mono::logs::Logs;
use crate::traces::mono::thread_matching;
use crate::traces::mono::threads::{Threads, threads_and_events};
use crate::traces::options::MonoEvent;
use crate::units::Pid;

/// What [`prepare`] found for a log.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// Kinds of events in the log that can be converted.
    pub events: BTreeSet<MonoEvent>,
    /// Its heap shots.
    pub heap_shots: HeapShots,
    /// The log's threads, by the profile's thread IDs.
    pub threads: Threads<'a>,
    /// Conversion of the log's times to the profile's clock.
    pub alignment: Alignment,
    /// Addresses for the frames of its stacks.
    pub frame_addresses: FrameAddresses,
    /// Whether an earlier log has the same process ID.
    pub is_process_known: bool,
}

/// Prepares `logs` for the profile in `recorded`, if there is one. `alignments` has the clock alignment of each log that
/// differs from the profile's.
pub fn prepare(recorded: Option<&IndexedProfile<'_>>, alignments: &[Option<Alignment>], logs: &mut Logs<'_>) {
    let nobody = Processes::default();
    let pids = logs.all.iter().map(|log| log.pid).collect();
    let known = recorded.map_or(HashMap::default(), |recorded| {
        thread_matching::threads(recorded, &pids)
    });
    let mut synthetic_tids = FIRST_SYNTHETIC_TID..=u32::MAX;
    // Logs of two containers may name the same process, and overlap in time.
    let mut reserved: HashMap<Pid, Vec<AddressRange>> = HashMap::default();
    for (index, log) in logs.all.iter_mut().enumerate() {
        let alignment = alignments.get(index).copied().flatten();
        let alignment = alignment.unwrap_or(Alignment::Same);
        let (logged, events, heap_shots) = threads_and_events(&log.log);
        let processes = recorded.map_or(&nobody, |recorded| &recorded.index.processes);
        let is_64 = log.log.header().pointer_size == 8;
        let known = known.get(&log.pid).map_or(&[][..], Vec::as_slice);
        let threads = Threads::new(&logged, known, log.pid, &alignment, &mut synthetic_tids);
        if threads.ambiguous > 0 {
            let ambiguous = Diagnostic::new(Issue::MonoAmbiguousThreads).in_file_called(log.name());
            logs.diagnostics.push(ambiguous.times(threads.ambiguous));
        }
        let others = reserved.entry(log.pid).or_default();
        let is_process_known = !others.is_empty();
        let frame_addresses = FrameAddresses::new(&log.index, processes, log.pid, is_64, others);
        others.push(frame_addresses.synthetic_symbols.free);
        log.prepared = Some(Prepared {
            events,
            heap_shots,
            threads,
            alignment,
            frame_addresses,
            is_process_known,
        });
    }
}
