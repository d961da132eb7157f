//! Code of the jitdumps that processes mapped, which shows that another jitdump is not theirs.

use jitdump::RuntimeTime;

use crate::code::timeline::FileIndex;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::collections::range_map::RangeSet;
use crate::load::runtime_files::UsedFile;
use crate::units::Pid;

/// Code in the jitdumps that each process was the first to map.
#[derive(Debug, Default)]
pub struct MappedCode {
    of_processes: HashMap<Pid, (RangeSet, (RuntimeTime, RuntimeTime))>,
}

impl MappedCode {
    /// Collects the code of the `files` that have a marker.
    pub fn of(files: &IndexedTable<FileIndex, UsedFile<'_>>) -> Self {
        let mut of_processes = HashMap::default();
        for file in files.iter().filter(|file| !file.found.markers.is_empty()) {
            let (Some(&pid), Some(times)) = (file.found.pids.first(), times(file)) else {
                continue;
            };
            let (code, (since, until)) = of_processes
                .entry(pid)
                .or_insert_with(|| (RangeSet::with_gap(0), times));
            (*since, *until) = (times.0.min(*since), times.1.max(*until));
            file.loads().for_each(|range| code.insert(range));
        }
        Self { of_processes }
    }

    /// Returns the process of a jitdump without a marker, if some of its code is where a mapped jitdump of that process
    /// has code, and both were written during the same time. Not even two runtimes in one process share addresses.
    pub fn contradicts(&self, file: &UsedFile<'_>) -> Option<Pid> {
        let &pid = file.found.pids.first()?;
        let (code, (since, until)) = self.of_processes.get(&pid)?;
        let (first, last) = times(file)?;
        let is_at_once = first <= *until && *since <= last;
        (is_at_once && file.loads().any(|range| code.overlaps(range))).then_some(pid)
    }
}

/// Times of the first and the last event of a file.
fn times(file: &UsedFile<'_>) -> Option<(RuntimeTime, RuntimeTime)> {
    let first = file.code.events().next()?;
    let last = file.code.events().last()?;
    Some((first.time, last.time))
}
