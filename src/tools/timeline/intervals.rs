//! Addresses and lifetimes of functions during the recording.

use std::collections::BTreeSet;

use jitdump::Time;

use crate::code::perf_map_symbols::PlacedSymbol;
use crate::code::timeline::Code;
use crate::load::Recording;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::tools::timeline::code_box::{CodeBox, CodeId, NamedCode};
use crate::tools::timeline::inherited_code::Inherited;
use crate::tools::timeline::samples::{BinnedSamples, Span};

/// Maximum number of rectangles to show, those with the most samples first. Browsers draw all of them many times a
/// second.
const MAX_BOXES: usize = 1 << 20;

/// Maximum number of perf map symbols to use, apart from those with samples. A symbol is repeated each time that its
/// memory is mapped again.
const MAX_SYMBOLS: usize = 1 << 20;

/// All code to show, and counts of what is not shown.
#[derive(Debug, Default)]
pub struct CodeBoxes {
    /// Code to show, by process and time.
    pub all: Vec<CodeBox>,
    /// Number of rectangles that end before the recording.
    early: u64,
    /// Number of rectangles that start after the recording.
    late: u64,
    /// Number of rectangles that start after the end of their process.
    gone: u64,
    /// Number of rectangles above the limit.
    too_many: u64,
    has_more_inherited: bool,
    has_more_symbols: bool,
}

impl CodeBoxes {
    /// Collects the code of a recording.
    pub fn of(recording: &Recording<'_>, span: Span, counts: &BinnedSamples) -> Self {
        let mut code_boxes = Self::default();
        code_boxes.add_functions(recording, span, counts);
        code_boxes.add_symbols(recording, span, counts);
        let inherited = Inherited::of(recording, counts);
        code_boxes.has_more_inherited = inherited.has_more;
        for code_box in inherited.code_boxes {
            code_boxes.add(code_box, span);
        }
        code_boxes.limit();
        code_boxes
            .all
            .sort_by_key(|code_box| (code_box.pid, code_box.from, code_box.range, code_box.until));
        code_boxes
    }

    /// Adds the functions of each address space, without inherited ones.
    fn add_functions(&mut self, recording: &Recording<'_>, span: Span, counts: &BinnedSamples) {
        let timeline = &recording.timeline;
        for (id, space) in recording.profile.index.processes.iter() {
            for interval in timeline.code_of(id) {
                let Code::Function(at) = interval.value else {
                    continue;
                };
                let code_box = CodeBox {
                    code: CodeId::Function(timeline.mappings[at].function),
                    pid: space.pid,
                    range: interval.range,
                    from: interval.from,
                    until: interval.until.min(space.until),
                    samples: counts.of(NamedCode::Function(at), id),
                };
                self.add(code_box, span);
            }
        }
    }

    /// Adds the symbols of perf maps: those with samples and, up to the limit, others.
    fn add_symbols(&mut self, recording: &Recording<'_>, span: Span, counts: &BinnedSamples) {
        let timeline = &recording.timeline;
        let mut symbols;
        (symbols, self.has_more_symbols) = first_symbols(timeline.all_symbols());
        symbols.extend(counts.code.keys().filter_map(|&(leaf, _)| match leaf {
            NamedCode::Symbol(symbol) => Some(symbol),
            NamedCode::Function(_) => None,
        }));
        for symbol in symbols {
            let space = recording.profile.index.processes.space(symbol.space);
            let code_box = CodeBox {
                code: CodeId::Symbol(symbol.id),
                pid: space.pid,
                range: symbol.range,
                from: symbol.since,
                until: timeline.end_of(symbol).min(space.until),
                samples: counts.of(NamedCode::Symbol(symbol), symbol.space),
            };
            self.add(code_box, span);
        }
    }

    /// Adds a box, or counts it if it is not visible. If records have no times, code is there until the end.
    fn add(&mut self, mut code_box: CodeBox, span: Span) {
        if !span.has_times() {
            code_box.until = Time::MAX;
        }
        if code_box.until <= span.start {
            self.early += 1;
        } else if code_box.from >= span.end {
            self.late += 1;
        } else if code_box.from >= code_box.until {
            self.gone += 1;
        } else {
            self.all.push(code_box);
        }
    }

    /// Leaves the boxes with most samples, and counts the others.
    fn limit(&mut self) {
        let too_many = self.all.len().saturating_sub(MAX_BOXES);
        if too_many > 0 {
            self.all
                .sort_by_key(|code_box| std::cmp::Reverse(code_box.samples));
            self.all.truncate(MAX_BOXES);
            self.too_many = too_many as u64;
        }
    }

    /// Returns notes on what is not shown, and why.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let hidden = [
            (Issue::BoxesBefore, self.early),
            (Issue::BoxesAfter, self.late),
            (Issue::BoxesGone, self.gone),
            (Issue::BoxesTooMany, self.too_many),
            (Issue::InheritedNotShown, self.has_more_inherited.into()),
            (Issue::SymbolsNotShown, self.has_more_symbols.into()),
        ];
        let hidden = hidden.into_iter().filter(|&(_, count)| count > 0);
        hidden
            .map(|(issue, count)| Diagnostic::new(issue).times(count))
            .collect()
    }
}

/// Returns the symbols to use, and whether there are more.
fn first_symbols(mut all: impl Iterator<Item = PlacedSymbol>) -> (BTreeSet<PlacedSymbol>, bool) {
    let first = all.by_ref().take(MAX_SYMBOLS).collect();
    (first, all.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::perf_map_symbols::{SymbolId, SymbolTableIndex};
    use crate::code::process::SpaceId;
    use crate::units::Pid;
    use jitdump::{Address, AddressRange};

    #[test]
    fn those_with_most_samples_are_kept_and_the_others_counted() {
        let code_box = |samples: u32| CodeBox {
            code: CodeId::Symbol(SymbolId {
                table: SymbolTableIndex(0),
                symbol: 0,
            }),
            pid: Pid(1),
            range: AddressRange {
                start: Address(0),
                end: Address(1),
            },
            from: Time(0),
            until: Time(1),
            samples,
        };
        let mut code_boxes = CodeBoxes {
            all: vec![code_box(0); (1 << 20) + 3],
            ..CodeBoxes::default()
        };
        code_boxes.all.push(code_box(7));
        code_boxes.limit();
        assert_eq!(
            (
                code_boxes.all.len(),
                code_boxes.all[0].samples,
                code_boxes.too_many
            ),
            ((1 << 20), 7, 4)
        );
        code_boxes.add(
            code_box(1),
            Span {
                start: Time(5),
                end: Time(9),
            },
        );
        let gone = CodeBox {
            from: Time(7),
            until: Time(6),
            ..code_box(1)
        };
        code_boxes.add(
            gone,
            Span {
                start: Time(5),
                end: Time(9),
            },
        );
        let diagnostics = code_boxes.diagnostics();
        let hidden: Vec<(Issue, u64)> = diagnostics.iter().map(|it| (it.issue, it.count)).collect();
        let expected = [
            (Issue::BoxesBefore, 1),
            (Issue::BoxesGone, 1),
            (Issue::BoxesTooMany, 4),
        ];
        assert_eq!(hidden, expected);
    }

    #[test]
    fn symbols_over_a_million_are_left_out_and_that_is_noted() {
        let found = |count| {
            let symbols = (0..count).map(|symbol| PlacedSymbol {
                id: SymbolId {
                    table: SymbolTableIndex(0),
                    symbol,
                },
                space: SpaceId(0),
                since: Time(0),
                range: AddressRange {
                    start: Address(0),
                    end: Address(1),
                },
            });
            let (symbols, has_more_symbols) = first_symbols(symbols);
            let code_boxes = CodeBoxes {
                has_more_symbols,
                ..CodeBoxes::default()
            };
            let issues = code_boxes.diagnostics().iter().map(|it| it.issue).collect();
            (symbols.len(), issues)
        };
        assert_eq!(found(1), (1, vec![]));
        assert_eq!(found((1 << 20) + 1), (1 << 20, vec![Issue::SymbolsNotShown]));
    }
}
