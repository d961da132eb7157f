//! What has to be known of logs before their events and calls mean anything to a profile: their clocks, the threads
//! that they tell of, and addresses.

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;

use crate::code::clock::Alignment;
use crate::code::process::Processes;
use crate::code::survey::Survey;
use crate::code::threads;
use crate::inject::mono::places::Places;
use crate::inject::mono::threads::{Contents, Number, Threads, contents, invented_numbers};
use crate::inject::mono::{Logs, ReadLog};
use crate::inject::{Options, sources};
use crate::perf::Profile;

/// It.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    /// What the log tells of.
    pub contents: Contents<'a>,
    /// Its threads by the profile's numbers.
    pub threads: Threads<'a>,
    /// How its times become the profile's.
    pub alignment: Alignment,
}

/// Prepares `logs` for what was `recorded`, if anything was.
pub fn prepare(options: &Options, recorded: Option<(&Profile<'_>, &Survey)>, logs: &mut Logs<'_>) {
    let mut alignments = vec![Alignment::Same; logs.all.len()];
    if let Some((profile, survey)) = recorded {
        alignments = sources::align(profile, survey, logs, options.clock_offset);
    }
    let nobody = Processes::default();
    let pids = logs.all.iter().map(ReadLog::pid).collect();
    let known = recorded.map_or(FxHashMap::default(), |(profile, _)| {
        threads::threads(profile, &pids)
    });
    let mut invented = invented_numbers();
    for (log, alignment) in logs.all.iter_mut().zip(alignments) {
        let processes = recorded.map_or(&nobody, |(_, survey)| &survey.processes);
        let is_64 = log.log.header().pointer_size == 8;
        log.places = Some(Places::new(&log.index, processes, log.pid(), is_64));
        let threads = known.get(&log.pid()).map_or(&[][..], Vec::as_slice);
        log.prepared = Some(Prepared::of(
            log,
            threads,
            alignment,
            &mut invented,
            &mut logs.notes,
        ));
    }
}

impl<'a> Prepared<'a> {
    fn of(
        log: &ReadLog<'a>,
        known: &[threads::Thread],
        alignment: Alignment,
        invented: &mut RangeInclusive<u32>,
        notes: &mut Vec<String>,
    ) -> Self {
        let contents = contents(&log.log);
        let pid = log.pid();
        let threads = Threads::new(contents.lives.clone(), known, pid, &alignment, invented);
        let is_ambiguous = |number| matches!(number, Number::Ambiguous(_));
        let ambiguous = threads.iter().filter(|&(_, number)| is_ambiguous(number)).count();
        if ambiguous > 0 {
            notes.push(format!(
                "{}: {ambiguous} threads can be any of several in the profile, so they are kept apart from those",
                log.name()
            ));
        }
        Self {
            contents,
            threads,
            alignment,
        }
    }
}
