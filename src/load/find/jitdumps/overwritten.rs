//! Jitdumps that several processes wrote, one after the other.

use std::collections::BTreeMap;

use jitdump::internals::format::first_time;
use jitdump::{Header, Time};

use super::JitdumpSearch;
use crate::code::clock::apply_offset;
use crate::collections::hash::HashSet;
use crate::files::PagedFile;
use crate::load::find::claims::{Choice, MarkerGroup};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

impl JitdumpSearch<'_> {
    /// Takes a file from the processes that had ended before another one wrote it anew, as process 1 of a container that is
    /// started again does. `groups` must be in the order of their first markers.
    pub(super) fn reject_overwritten(&self, groups: &mut [MarkerGroup<'_>]) {
        let mut by_file: BTreeMap<(u64, u64), Vec<&mut MarkerGroup<'_>>> = BTreeMap::new();
        for group in groups {
            if let Choice::File(file) = &group.choice {
                by_file.entry(file.file_id()).or_default().push(group);
            }
        }
        for mut sharing in by_file.into_values().filter(|sharing| sharing.len() > 1) {
            let began = self.beginning(&sharing);
            let is_ended = |group: &MarkerGroup<'_>| self.end(group).is_some_and(|end| end < began);
            let Some(writer) = sharing.iter().rfind(|group| !is_ended(group)) else {
                continue;
            };
            let writer = writer.first.pid;
            for group in &mut sharing {
                if let Choice::File(file) = &group.choice
                    && group.first.pid != writer
                    && is_ended(group)
                {
                    let other = Diagnostic::new(Issue::UsedForOtherProcess).with("pid", writer);
                    group.choice = Choice::Missing(self.reject(vec![(file.path().to_owned(), other)]));
                }
            }
        }
    }

    /// Returns when what is in the file of these groups was begun: at its first record. Without a known clock, at the
    /// latest first marker among processes that none of the others has started.
    fn beginning(&self, sharing: &[&mut MarkerGroup<'_>]) -> Time {
        let first_record = self.first_record_time(sharing);
        first_record.unwrap_or_else(|| self.last_own_marker(sharing))
    }

    /// Returns the time of the first record of the groups' file; `None` without a known clock.
    fn first_record_time(&self, sharing: &[&mut MarkerGroup<'_>]) -> Option<Time> {
        let offset = self.clock_offset?;
        let Choice::File(file) = &sharing.first()?.choice else {
            return None;
        };
        let file: &PagedFile = file;
        let header = Header::read(file).ok().filter(|header| !header.counts_cycles())?;
        Some(apply_offset(first_time(file, &header)?, offset.into()))
    }

    /// Returns the latest first marker among processes that none of the others has started.
    fn last_own_marker(&self, sharing: &[&mut MarkerGroup<'_>]) -> Time {
        let mut pids: HashSet<Pid> = HashSet::default();
        pids.extend(sharing.iter().map(|group| group.first.pid));
        let starters = |pid| self.profile_index.processes.starters(pid);
        let is_own = |pid| !starters(pid).any(|starter| pids.contains(&starter));
        let own = sharing.iter().filter(|group| is_own(group.first.pid));
        own.map(|group| group.first.time).max().unwrap_or_default()
    }

    /// Returns when the process of a group ended or executed another program.
    fn end(&self, group: &MarkerGroup<'_>) -> Option<Time> {
        let last = self.profile_index.markers.get(*group.markers.last()?)?;
        let processes = &self.profile_index.processes;
        let space = processes.space_at(last.pid, last.time)?;
        Some(processes.space(space).until)
    }
}
