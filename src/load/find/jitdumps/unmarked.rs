//! Jitdumps of processes without a marker.

use std::collections::BTreeSet;
use std::ffi::OsString;

use jitdump::Time;

use super::{FoundDumps, JitdumpSearch};
use crate::collections::hash::HashSet;
use crate::load::find::candidates::CandidateDump;
use crate::load::find::dedup::{ContentId, ContentIds};
use crate::load::find::found_file::FoundFile;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::Pid;

impl JitdumpSearch<'_> {
    /// Adds given files without a marker, for the process in their header. Files in folders are added only if
    /// that process has no other dump.
    pub(super) fn add_unmarked(&self, found: &mut FoundDumps) {
        let mut contents = ContentIds::default();
        let mut used: HashSet<ContentId> = HashSet::default();
        for dump in &found.dumps {
            used.insert(contents.of(&dump.file));
        }
        let injected = self.pids_of_earlier_run();
        let mut with_dump: HashSet<Pid> = found.dumps.iter().flat_map(|dump| &dump.pids).copied().collect();
        for given in &self.given.all {
            let candidate = match &given.opened {
                Ok(candidate) => candidate,
                Err(rejected) => {
                    if given.is_named && !self.rejected.borrow().contains(&given.path) {
                        found.diagnostics.push(rejected.clone().in_file(&given.path));
                    }
                    continue;
                }
            };
            let content = contents.of(&candidate.file);
            if used.contains(&content) {
                continue;
            }
            let pid = Pid(candidate.header.pid);
            let has_dump = with_dump.contains(&pid);
            match self.check_unmarked(candidate, pid, &injected) {
                Ok(()) if given.is_named || !has_dump => {
                    add_by_header(found, candidate, pid);
                    let mut spaces = self.profile_index.processes.spaces_of(pid);
                    if spaces.all(|(_, space)| space.maps.is_empty()) {
                        let unmapped = Diagnostic::new(Issue::ProcessWithoutMappings);
                        found.diagnostics.push(unmapped.with("pid", pid));
                    }
                    used.insert(content);
                    with_dump.insert(pid);
                }
                Ok(()) => {
                    let another = Diagnostic::new(Issue::ProcessHasDump).in_file(candidate.file.path());
                    found.diagnostics.push(another.with("pid", pid));
                }
                Err(rejected) if given.is_named => {
                    found.diagnostics.push(rejected.in_file(candidate.file.path()));
                }
                Err(_) => {}
            }
        }
        let missing = found.missing.iter().map(|&(pid, _)| pid);
        with_dump.extend(missing.chain(injected));
        self.add_beside(found, &mut contents, &mut used, &with_dump);
    }

    /// Rejects a file for a process that has none of the profile's records, or code of an earlier run (`injected`), or that
    /// cannot have written it.
    fn check_unmarked(
        &self,
        candidate: &CandidateDump,
        pid: Pid,
        injected: &HashSet<Pid>,
    ) -> Result<(), Diagnostic> {
        if injected.contains(&pid) {
            return Err(Diagnostic::new(Issue::ProcessAlreadyInjected).with("pid", pid));
        }
        if !self.profile_index.processes.knows(pid) {
            return Err(Diagnostic::new(Issue::UnknownProcess).with("pid", pid));
        }
        self.check_times(candidate, Time(0))?;
        self.check_owner(candidate, pid)
    }

    /// Adds the dumps beside the profile of processes that have samples but are not in `done`. Their markers were not recorded, as
    /// with `perf record -p` and `--synth=no`, or are lost.
    fn add_beside(
        &self,
        found: &mut FoundDumps,
        contents: &mut ContentIds,
        used: &mut HashSet<ContentId>,
        done: &HashSet<Pid>,
    ) {
        let processes = &self.profile_index.processes;
        let sampled = processes
            .iter()
            .filter(|&(id, _)| self.profile_index.has_samples(id));
        let pids: BTreeSet<Pid> = sampled.map(|(_, space)| space.pid).collect();
        let root = &self.profile_folders.own;
        for pid in pids.into_iter().filter(|pid| !done.contains(pid)) {
            let name = OsString::from(format!("jit-{pid}.dump"));
            let opened = self.profile_folders.paths(&name).filter_map(|path| {
                let open = || self.access.reach.open_named(root, &path);
                self.open_once(&path, open).ok()
            });
            let mut own = opened.filter(|candidate| {
                let is_in_time = || self.check_times(candidate, Time(0)).is_ok();
                let is_trusted = || self.check_owner(candidate, pid).is_ok();
                candidate.header.pid == pid.0 && is_in_time() && is_trusted()
            });
            if let Some(candidate) = own.next()
                && used.insert(contents.of(&candidate.file))
            {
                add_by_header(found, &candidate, pid);
            }
        }
    }

    /// Returns the processes whose dump an earlier run used: those with its objects, and those that started
    /// them. These have no objects themselves if no sample references their code.
    fn pids_of_earlier_run(&self) -> HashSet<Pid> {
        let processes = &self.profile_index.processes;
        let maps = self.profile_index.injected.iter().filter(|map| map.is_dumped);
        let own: HashSet<Pid> = maps.map(|map| map.pid).collect();
        let starters = own.iter().flat_map(|&pid| processes.starters(pid));
        starters.chain(own.iter().copied()).collect()
    }
}

/// Adds a dump for the process in its header.
fn add_by_header(found: &mut FoundDumps, candidate: &CandidateDump, pid: Pid) {
    let by_header = Diagnostic::new(Issue::DumpByHeader).in_file(candidate.file.path());
    found.diagnostics.push(by_header.with("pid", pid));
    found
        .dumps
        .push(FoundFile::of_process(candidate.file.clone(), pid));
}
