//! Merging of sources that are each sorted by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A source that is sorted by time.
pub trait Ahead {
    /// Type of the times.
    type Time: Ord + Copy;

    /// Returns the time of the next item, or `None` at the end.
    fn time(&mut self) -> Option<Self::Time>;
}

/// Sources merged by time. At the same time, the first one comes first.
#[derive(Debug)]
pub struct Merge<S: Ahead> {
    /// All sources, in their original order.
    pub sources: Vec<S>,
    /// Sources that are not at their end, except for the current one.
    waiting: BinaryHeap<Reverse<(S::Time, usize)>>,
    current: Option<usize>,
}

impl<S: Ahead> Merge<S> {
    /// Creates a merge of `sources`.
    pub fn new(mut sources: Vec<S>) -> Self {
        let times = sources.iter_mut().enumerate();
        let times = times.filter_map(|(index, source)| Some(Reverse((source.time()?, index))));
        Self {
            waiting: times.collect(),
            sources,
            current: None,
        }
    }

    /// Returns the source with the earliest item. The caller must advance that source before the next call.
    #[inline]
    pub fn next(&mut self) -> Option<&mut S> {
        if let Some(index) = self.current {
            let now = self.sources.get_mut(index)?.time().map(|time| (time, index));
            let first = self.waiting.peek().map(|&Reverse(first)| first);
            match (now, first) {
                // Usually the same source comes again.
                (Some(now), first) if first.is_none_or(|first| now < first) => {
                    return self.sources.get_mut(index);
                }
                (now, _) => self.waiting.extend(now.map(Reverse)),
            }
        }
        let Reverse((_, index)) = self.waiting.pop()?;
        self.current = Some(index);
        self.sources.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers(Vec<(u64, char)>);

    impl Ahead for Numbers {
        type Time = u64;

        fn time(&mut self) -> Option<u64> {
            self.0.first().map(|&(time, _)| time)
        }
    }

    #[test]
    fn all_go_on_in_the_order_of_time_and_then_of_their_places() {
        let mut merge = Merge::new(vec![
            Numbers(vec![(1, 'a'), (3, 'b'), (3, 'c'), (9, 'd')]),
            Numbers(vec![]),
            Numbers(vec![(2, 'e'), (3, 'f'), (4, 'g')]),
        ]);
        let mut seen = String::new();
        while let Some(numbers) = merge.next() {
            seen.push(numbers.0.remove(0).1);
        }
        assert_eq!(seen, "aebcfgd");
        assert_eq!(merge.sources.len(), 3);
    }
}
