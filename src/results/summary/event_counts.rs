//! Numbers for each event of a profile.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};

/// Maximum number of events whose numbers are written as a list. Recordings have a few; those of many cgroups have an event
/// for each of them, most of which a function never has.
const MAX_LISTED: u32 = 64;

/// A number for each event of a profile. Only numbers other than 0 take memory.
///
/// In JSON, it is a list with an element for each event, or, if there are more than 64 events, an object with the numbers
/// other than 0 by the index of their event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventCounts {
    /// Number of events.
    events: u32,
    /// Indices of events, ascending, with their numbers.
    counts: Vec<(u32, u64)>,
}

impl EventCounts {
    /// Returns 0 for each of `events` events.
    pub fn zero(events: usize) -> Self {
        Self {
            events: u32::try_from(events).unwrap_or(u32::MAX),
            counts: Vec::new(),
        }
    }

    /// Adds to the number of an event, unless the profile has no such event. Events should be in ascending order.
    pub fn add(&mut self, event: u32, count: u64) {
        if count == 0 || event >= self.events {
            return;
        }
        match self.counts.binary_search_by_key(&event, |&(event, _)| event) {
            Ok(at) => {
                if let Some((_, own)) = self.counts.get_mut(at) {
                    *own = own.saturating_add(count);
                }
            }
            Err(at) => self.counts.insert(at, (event, count)),
        }
    }

    /// Whether the summary had the numbers; earlier versions did not write all of them.
    pub fn is_known(&self) -> bool {
        self.events > 0
    }

    /// Returns the number of the first event.
    pub fn first(&self) -> u64 {
        let first = self.counts.first().filter(|&&(event, _)| event == 0);
        first.map_or(0, |&(_, count)| count)
    }

    /// Returns the numbers of all events.
    fn all(&self) -> impl Iterator<Item = u64> {
        let mut counts = self.counts.iter().peekable();
        (0..self.events).map(move |event| {
            let found = counts.next_if(|&&(other, _)| other == event);
            found.map_or(0, |&(_, count)| count)
        })
    }
}

impl Ord for EventCounts {
    /// Compares the first numbers that differ.
    fn cmp(&self, other: &Self) -> Ordering {
        fn numbers(counts: &EventCounts) -> impl Iterator<Item = (Reverse<u32>, u64)> {
            counts
                .counts
                .iter()
                .map(|&(event, count)| (Reverse(event), count))
        }
        numbers(self)
            .cmp(numbers(other))
            .then(self.events.cmp(&other.events))
    }
}

impl PartialOrd for EventCounts {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for EventCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.events > MAX_LISTED {
            return serializer.collect_map(self.counts.iter().copied());
        }
        let mut list = serializer.serialize_seq(Some(self.events as usize))?;
        self.all().try_for_each(|count| list.serialize_element(&count))?;
        list.end()
    }
}

impl<'de> Deserialize<'de> for EventCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EventCountsVisitor)
    }
}

struct EventCountsVisitor;

impl<'de> Visitor<'de> for EventCountsVisitor {
    type Value = EventCounts;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of numbers or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EventCounts, A::Error> {
        let mut read = EventCounts::default();
        while let Some(count) = list.next_element()? {
            if count > 0 {
                read.counts.push((read.events, count));
            }
            read.events = read.events.saturating_add(1);
        }
        Ok(read)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<EventCounts, A::Error> {
        let mut read = EventCounts::zero(usize::MAX);
        while let Some((event, count)) = object.next_entry()? {
            if count > 0 {
                read.counts.push((event, count));
            }
        }
        read.counts.sort_by_key(|&(event, _)| event);
        read.counts.dedup_by_key(|&mut (event, _)| event);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(events: usize, numbers: &[(u32, u64)]) -> EventCounts {
        let mut counts = EventCounts::zero(events);
        numbers
            .iter()
            .for_each(|&(event, count)| counts.add(event, count));
        counts
    }

    #[test]
    fn few_events_are_a_list_and_many_an_object() {
        let json = |counts: EventCounts| serde_json::to_string(&counts).unwrap();
        assert_eq!(
            json(counts(4, &[(2, 5), (0, 1), (2, 2), (9, 1), (3, 0)])),
            "[1,0,7,0]"
        );
        assert_eq!(json(counts(65, &[(64, 5), (0, 1), (65, 1)])), r#"{"0":1,"64":5}"#);
        assert_eq!(json(counts(65, &[])), "{}");
        let list = format!("[{}5]", "0,".repeat(63));
        assert_eq!(json(counts(64, &[(63, 5)])), list);
    }

    #[test]
    fn lists_and_objects_are_read() {
        let read = |json| serde_json::from_str::<EventCounts>(json).unwrap();
        assert_eq!(read("[1,0,7,0]"), counts(4, &[(0, 1), (2, 7)]));
        assert_eq!(read("[]"), counts(0, &[]));
        assert!(read("[0]").is_known() && read("{}").is_known() && !EventCounts::default().is_known());
        let object = read(r#"{"70": 2, "0": 7, "3": 0}"#);
        assert_eq!(object.counts, [(0, 7), (70, 2)]);
        assert!(serde_json::from_str::<EventCounts>("7").is_err());
    }

    #[test]
    fn they_are_ordered_like_lists() {
        let all: Vec<EventCounts> = (0..27u64)
            .map(|number| counts(3, &[(0, number % 3), (1, number / 3 % 3), (2, number / 9)]))
            .collect();
        for (one, other) in all
            .iter()
            .flat_map(|one| all.iter().map(move |other| (one, other)))
        {
            let lists = [one, other].map(|counts| counts.all().collect::<Vec<u64>>());
            assert_eq!(one.cmp(other), lists[0].cmp(&lists[1]), "{lists:?}");
            assert_eq!(one.first(), lists[0][0]);
        }
    }
}
