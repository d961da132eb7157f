//! Several things that are each in the order of time, as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that goes on in the order of time.
pub trait Ahead {
    /// The clock.
    type Time: Ord + Copy;

    /// When it goes on; `None` if it has come to its end.
    fn time(&mut self) -> Option<Self::Time>;
}

/// Several of them. Of those of one time, the first goes on first.
#[derive(Debug)]
pub struct Merge<S: Ahead> {
    sources: Vec<S>,
    /// All that have not come to their end, but for the current one.
    waiting: BinaryHeap<Reverse<(S::Time, usize)>>,
    current: Option<usize>,
}

impl<S: Ahead> Merge<S> {
    /// Those.
    pub fn new(mut sources: Vec<S>) -> Self {
        let times = sources.iter_mut().enumerate();
        let times = times.filter_map(|(place, source)| Some(Reverse((source.time()?, place))));
        Self {
            waiting: times.collect(),
            sources,
            current: None,
        }
    }

    /// The one that is to go on now. It must do so, or come to its end, before this is called again.
    #[inline]
    pub fn next(&mut self) -> Option<&mut S> {
        if let Some(place) = self.current {
            let now = self.sources.get_mut(place)?.time().map(|time| (time, place));
            let first = self.waiting.peek().map(|&Reverse(first)| first);
            match (now, first) {
                // Mostly it is the same one again.
                (Some(now), first) if first.is_none_or(|first| now < first) => {
                    return self.sources.get_mut(place);
                }
                (now, _) => self.waiting.extend(now.map(Reverse)),
            }
        }
        let Reverse((_, place)) = self.waiting.pop()?;
        self.current = Some(place);
        self.sources.get_mut(place)
    }

    /// All of them, in their first order.
    pub fn sources(&self) -> &[S] {
        &self.sources
    }

    /// The same, to keep.
    pub fn into_sources(self) -> Vec<S> {
        self.sources
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
        assert_eq!(merge.into_sources().len(), 3);
    }
}
