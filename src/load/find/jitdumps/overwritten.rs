//! Jitdumps that several processes wrote, one after the other.

use std::collections::BTreeMap;

use jitdump::internals::format::first_time;
use jitdump::{Header, Time};

use super::JitdumpSearch;
use crate::code::clock::apply_offset;
use crate::collections::hash::HashSet;
use crate::files::PagedFile;
use crate::load::find::claims::MarkerGroup;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

impl JitdumpSearch<'_> {
    /// Takes a file from the processes that had ended before another one wrote it anew, as process 1 of a container that is
    /// started again does. `groups` must be in the order of their first markers.
    pub(super) fn reject_overwritten(&self, groups: &mut [MarkerGroup<'_>]) {
        let mut by_file: BTreeMap<(u64, u64), Vec<&mut MarkerGroup<'_>>> = BTreeMap::new();
        for group in groups {
            if let Some(Ok(file)) = &group.chosen {
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
                if let Some(Ok(file)) = &group.chosen
                    && group.first.pid != writer
                    && is_ended(group)
                {
                    let other = Diagnostic::new(Issue::UsedForOtherProcess).with("pid", writer);
                    group.chosen = Some(Err(self.reject(vec![(file.path().to_owned(), other)])));
                }
            }
        }
    }

    /// Returns when what is in a file was begun: at its first record. If the clock is unknown, at the last marker of a process
    /// that none of the others has started.
    fn beginning(&self, sharing: &[&mut MarkerGroup<'_>]) -> Time {
        let file = sharing
            .first()
            .and_then(|group| group.chosen.as_ref()?.as_ref().ok());
        let first = file.and_then(|file| {
            let file: &PagedFile = file;
            let header = Header::read(file).ok().filter(|header| !header.counts_cycles())?;
            first_time(file, &header)
        });
        if let Some((first, offset)) = first.zip(self.clock_offset) {
            return apply_offset(first, offset.into());
        }
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
