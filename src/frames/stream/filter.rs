//! Which samples of a stream a command reads.

use std::time::Duration;

use jitdump::Time;

use crate::frames::events;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::profile::EventSummary;
use crate::units::{Pid, Tid};

/// Which samples to read. Without values, all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SampleFilter {
    /// Name of their event.
    pub event: Option<String>,
    /// IDs of their processes.
    pub pids: Vec<u32>,
    /// IDs of their threads.
    pub tids: Vec<u32>,
    /// Time from which they are, since the first record.
    pub from: Option<Duration>,
    /// Time up to which they are, since the first record.
    pub to: Option<Duration>,
}

/// A filter for one profile.
pub(super) struct ProfileFilter<'f> {
    event: Option<u32>,
    filter: &'f SampleFilter,
    from: Time,
    to: Time,
}

impl SampleFilter {
    /// Returns the filter for a profile with these events, whose records have these times. Fails if it has no such event, and
    /// for times if its records have none.
    pub(super) fn of_profile(
        &self,
        events: &[EventSummary],
        times: Option<(Time, Time)>,
        has_times: bool,
    ) -> Result<ProfileFilter<'_>, Diagnostic> {
        if !has_times && (self.from.is_some() || self.to.is_some()) {
            return Err(Diagnostic::new(Issue::TimesNotRecorded));
        }
        let event = self.event.as_ref().map(|name| events::position(events, name));
        let (from, to) = self.times(times);
        Ok(ProfileFilter {
            event: event.transpose()?,
            filter: self,
            from,
            to,
        })
    }

    /// Whether a process is one to read.
    pub fn has_process(&self, pid: Option<Pid>) -> bool {
        self.pids.is_empty() || pid.is_some_and(|Pid(pid)| self.pids.contains(&pid))
    }

    /// Whether a thread is one to read.
    pub fn has_thread(&self, tid: Option<Tid>) -> bool {
        self.tids.is_empty() || tid.is_some_and(|Tid(tid)| self.tids.contains(&tid))
    }

    /// Returns the first and the last time to read of a profile whose records have these times.
    pub fn times(&self, recorded: Option<(Time, Time)>) -> (Time, Time) {
        let (start, _) = recorded.unwrap_or_default();
        let after = |passed: Duration| {
            let nanoseconds = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
            Time(start.0.saturating_add(nanoseconds))
        };
        (self.from.map_or(Time(0), after), self.to.map_or(Time::MAX, after))
    }

    /// Returns the nanoseconds to read of a profile whose records have these times.
    pub fn duration(&self, recorded: Option<(Time, Time)>) -> Option<u64> {
        let (from, to) = self.times(recorded);
        recorded.map(|(start, end)| end.min(to).0.saturating_sub(start.max(from).0))
    }
}

impl ProfileFilter<'_> {
    /// Whether a sample of an event, thread and time is to be read. Samples without a time are.
    pub(super) fn has(&self, event: u32, (pid, tid): (Option<Pid>, Option<Tid>), time: Option<Time>) -> bool {
        self.event.is_none_or(|wanted| wanted == event)
            && self.filter.has_process(pid)
            && self.filter.has_thread(tid)
            && time.is_none_or(|time| self.from <= time && time <= self.to)
    }
}
