//! Filter that removes the records of short calls.
//!
//! Whether a call is short is known only when it ends or has lasted long enough. Until then, all records from its entry
//! on are queued.

use std::collections::VecDeque;

use jitdump::RuntimeTime;

use crate::traces::call_tree::{ScanBudget, Step};
use crate::traces::source::{EventKind, TraceEvent};

/// Maximum number of queued records. A call with more records inside counts as long.
const MAX_WAITING: usize = 1 << 16;

/// Maximum number of nested calls. Calls nested deeper count as long.
const MAX_OPEN: usize = 1 << 20;

/// Iterator over the records of a thread, without the entries and exits of calls shorter than `least` nanoseconds.
#[derive(Debug)]
pub struct LongCalls<I: Iterator> {
    records: I,
    least: u64,
    waiting: VecDeque<Waiting<I::Item>>,
    /// Number of records that have left the queue.
    passed: usize,
    /// Calls that the thread is in, outermost first.
    open: Vec<Call>,
    /// Number of them, from the outermost in, that are known to be long.
    long: usize,
    scan_budget: ScanBudget,
}

#[derive(Debug)]
struct Waiting<T> {
    record: T,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Unknown,
    Stays,
    Goes,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    function: u32,
    since: RuntimeTime,
    /// Index of its entry among all records.
    entry: usize,
}

impl<I: Iterator> LongCalls<I> {
    /// Filters `records`: calls shorter than `least` nanoseconds are removed.
    pub fn new(records: I, least: u64) -> Self {
        Self {
            records,
            least,
            waiting: VecDeque::new(),
            passed: 0,
            open: Vec::new(),
            long: 0,
            scan_budget: ScanBudget::default(),
        }
    }

    /// Returns the unfiltered records.
    pub fn records(&self) -> &I {
        &self.records
    }
}

impl<O, I: Iterator<Item = TraceEvent<u32, O>>> LongCalls<I> {
    fn settle(&mut self, record: usize, fate: Fate) {
        let index = record.checked_sub(self.passed);
        let waiting = index.and_then(|index| self.waiting.get_mut(index));
        if let Some(waiting) = waiting
            && waiting.fate == Fate::Unknown
        {
            waiting.fate = fate;
        }
    }

    /// Queues one more record. Returns `false` at the end.
    fn take(&mut self) -> bool {
        let Some(record) = self.records.next() else {
            self.waiting.iter_mut().for_each(|waiting| {
                if waiting.fate == Fate::Unknown {
                    waiting.fate = Fate::Stays;
                }
            });
            return false;
        };
        let time = record.context.time;
        while let Some(call) = self.open.get(self.long).copied()
            && time.0.saturating_sub(call.since.0) >= self.least
        {
            self.settle(call.entry, Fate::Stays);
            self.long = self.long.saturating_add(1);
        }
        let number = self.passed.saturating_add(self.waiting.len());
        let fate = match record.kind {
            // Deeper calls count as long.
            EventKind::Call(Step::Enter(_)) if self.open.len() >= MAX_OPEN => Fate::Stays,
            EventKind::Call(Step::Enter(function)) => {
                self.open.push(Call {
                    function,
                    since: time,
                    entry: number,
                });
                Fate::Unknown
            }
            EventKind::Call(Step::Exit(function)) => self.leave(function),
            EventKind::Other(_) => Fate::Stays,
        };
        self.waiting.push_back(Waiting { record, fate });
        if self.waiting.len() > MAX_WAITING {
            self.settle(self.passed, Fate::Stays);
        }
        true
    }

    /// Ends the innermost call of `function`, and all calls inside it, whose exits are lost. Returns the fate of its
    /// exit.
    fn leave(&mut self, function: u32) -> Fate {
        let calls = self.open.iter().rev();
        let Some(inside) = self.scan_budget.find(calls, |call| call.function == function) else {
            return Fate::Stays;
        };
        let index = self.open.len().saturating_sub(inside).saturating_sub(1);
        let mut fate = Fate::Stays;
        while self.open.len() > index {
            let is_long = self.open.len() <= self.long;
            let Some(call) = self.open.pop() else { break };
            fate = match is_long || self.has_gone_on(call.entry) {
                true => Fate::Stays,
                false => Fate::Goes,
            };
            self.settle(call.entry, fate);
        }
        self.long = self.long.min(index);
        fate
    }

    /// Returns whether a record has left the queue or will stay.
    fn has_gone_on(&self, record: usize) -> bool {
        let index = record.checked_sub(self.passed);
        let waiting = index.and_then(|index| self.waiting.get(index));
        waiting.is_none_or(|waiting| waiting.fate == Fate::Stays)
    }
}

impl<O, I: Iterator<Item = TraceEvent<u32, O>>> Iterator for LongCalls<I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        if self.least == 0 {
            return self.records.next();
        }
        loop {
            match self.waiting.front().map(|first| first.fate) {
                None | Some(Fate::Unknown) => {
                    if !self.take() && self.waiting.is_empty() {
                        return None;
                    }
                }
                Some(fate) => {
                    let first = self.waiting.pop_front()?;
                    self.passed = self.passed.saturating_add(1);
                    if fate == Fate::Stays {
                        return Some(first.record);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::source::EventContext;

    type Event = TraceEvent<u32, ()>;

    fn event(time: u64, kind: EventKind<u32, ()>) -> Event {
        let context = EventContext {
            thread: 0,
            time: RuntimeTime(time),
            cpu: 0,
            offset: 0,
        };
        Event { context, kind }
    }

    fn times(records: &[Event], least: u64) -> Vec<u64> {
        let long = LongCalls::new(records.iter().copied(), least);
        long.map(|event| event.context.time.0).collect()
    }

    fn enter(time: u64, function: u32) -> Event {
        event(time, EventKind::Call(Step::Enter(function)))
    }

    fn exit(time: u64, function: u32) -> Event {
        event(time, EventKind::Call(Step::Exit(function)))
    }

    fn other(time: u64) -> Event {
        event(time, EventKind::Other(()))
    }

    #[test]
    fn short_calls_are_left_out_with_their_exits() {
        let records = [
            enter(0, 1),
            enter(10, 2),
            other(12),
            exit(15, 2),
            enter(20, 3),
            enter(21, 4),
            exit(29, 4),
            exit(40, 3),
            exit(50, 1),
        ];
        assert_eq!(times(&records, 10), [0, 12, 20, 40, 50]);
        assert_eq!(times(&records, 0).len(), 9);
        assert_eq!(times(&records, 6), [0, 12, 20, 21, 29, 40, 50]);
        assert_eq!(times(&records, 51), [12]);
    }

    #[test]
    fn lost_exits_end_with_the_call_around_them() {
        let records = [
            enter(0, 1),
            enter(1, 2),
            enter(90, 3),
            exit(100, 1),
            exit(101, 9),
            enter(102, 5),
        ];
        assert_eq!(times(&records, 50), [0, 1, 100, 101, 102]);
    }

    #[test]
    fn a_call_with_very_many_records_inside_is_long() {
        let mut records = vec![enter(0, 1)];
        records.extend((0..MAX_WAITING as u64).map(|_| other(1)));
        records.push(exit(2, 1));
        assert_eq!(times(&records, 10).len(), records.len());
    }
}
