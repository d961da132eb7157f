//! Where each function was, and from when to when, as far as that was while the recording ran.

use std::collections::BTreeSet;

use crate::code::perf_map_symbols::{PlacedSymbol, SymbolId};
use crate::code::selection::Leaf;
use crate::code::timeline::{Code, FunctionId};
use crate::inject::recording::Recording;
use crate::timeline::inherited_code::Inherited;
use crate::timeline::samples::{Counts, Span};
use crate::units::{AddressRange, Pid, Time};

/// How many lives are shown at most, those with samples first. Browsers draw all of them many times a second.
const MAX_LIVES: usize = 1 << 20;

/// How many symbols of perf maps that no sample touches are looked at: each is there as often as memory was mapped anew.
const MAX_SYMBOLS: usize = 1 << 20;

/// Code with a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    /// A function of a dump or a log.
    Function(FunctionId),
    /// A symbol of a perf map.
    Symbol(SymbolId),
}

/// Code at its place.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Which.
    pub item: Item,
    /// In which process.
    pub pid: Pid,
    /// Where.
    pub range: AddressRange,
    /// Since when.
    pub from: Time,
    /// Until when.
    pub until: Time,
    /// The samples of its process taken in it at this place; the pieces of what was partly overwritten have the same ones.
    pub samples: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Lives {
    /// They, by process and time.
    pub all: Vec<Life>,
    /// How many were over before the recording began.
    early: u64,
    /// How many began when it had ended.
    late: u64,
    /// How many began when their process had ended.
    gone: u64,
    /// How many were too many.
    too_many: u64,
    has_more_inherited: bool,
    has_more_symbols: bool,
}

impl Lives {
    /// Those of a recording.
    pub fn of(recording: &Recording<'_>, span: Span, counts: &Counts) -> Self {
        let mut lives = Self::default();
        let (processes, timeline) = (&recording.profile_index.processes, &recording.timeline);
        for (id, space) in processes.iter() {
            for interval in timeline.code_of(id) {
                let Code::Function(at) = interval.value else {
                    continue;
                };
                let Some(mapping) = timeline.mappings().get(at as usize) else {
                    continue;
                };
                let life = Life {
                    item: Item::Function(mapping.function),
                    pid: space.pid,
                    range: interval.range,
                    from: interval.from,
                    until: interval.until.min(space.until),
                    samples: counts.of(Leaf::Function(at), id),
                };
                lives.add(life, span);
            }
        }
        let mut untouched = timeline.all_symbols(processes);
        let mut symbols: BTreeSet<PlacedSymbol> = untouched.by_ref().take(MAX_SYMBOLS).collect();
        lives.has_more_symbols = untouched.next().is_some();
        symbols.extend(counts.code.keys().filter_map(|&(leaf, _)| match leaf {
            Leaf::Symbol(symbol) => Some(symbol),
            _ => None,
        }));
        for symbol in symbols {
            let Some(space) = processes.space(symbol.space) else {
                continue;
            };
            let life = Life {
                item: Item::Symbol(symbol.id),
                pid: space.pid,
                range: symbol.range,
                from: symbol.since,
                until: timeline.end_of(symbol).min(space.until),
                samples: counts.of(Leaf::Symbol(symbol), symbol.space),
            };
            lives.add(life, span);
        }
        let inherited = Inherited::of(recording, counts);
        lives.has_more_inherited = inherited.has_more;
        for life in inherited.lives {
            lives.add(life, span);
        }
        lives.limit();
        lives
            .all
            .sort_by_key(|life| (life.pid, life.from, life.range, life.until));
        lives
    }

    fn add(&mut self, life: Life, span: Span) {
        if life.until <= span.start {
            self.early += 1;
        } else if life.from >= span.end {
            self.late += 1;
        } else if life.from >= life.until {
            self.gone += 1;
        } else {
            self.all.push(life);
        }
    }

    fn limit(&mut self) {
        let too_many = self.all.len().saturating_sub(MAX_LIVES);
        if too_many > 0 {
            self.all.sort_by_key(|life| std::cmp::Reverse(life.samples));
            self.all.truncate(MAX_LIVES);
            self.too_many = too_many as u64;
        }
    }

    /// What is not among them, and why.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count, why: &str| {
            if count > 0 {
                notes.push(format!(
                    "boxes of functions that are not shown, since {why}: {count}"
                ));
            }
        };
        note(self.early, "they were over before the recording began");
        note(self.late, "they came after the recording had ended");
        note(self.gone, "they came after their process had ended");
        note(
            self.too_many,
            "there are too many and these have the fewest samples",
        );
        if self.has_more_inherited {
            notes.push("not all code that processes inherited is shown: there are too many".into());
        }
        if self.has_more_symbols {
            notes.push("not all symbols of perf maps are shown: memory is mapped anew too often".into());
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Address;

    #[test]
    fn those_with_most_samples_are_kept_and_the_others_counted() {
        let life = |samples: u32| Life {
            item: Item::Symbol(SymbolId { table: 0, symbol: 0 }),
            pid: Pid(1),
            range: AddressRange {
                start: Address(0),
                end: Address(1),
            },
            from: Time(0),
            until: Time(1),
            samples,
        };
        let mut lives = Lives {
            all: vec![life(0); MAX_LIVES + 3],
            ..Lives::default()
        };
        lives.all.push(life(7));
        lives.limit();
        assert_eq!(
            (lives.all.len(), lives.all[0].samples, lives.too_many),
            (MAX_LIVES, 7, 4)
        );
    }
}
