//! The machine code of a function: each copy that was compiled, with its instructions and their samples.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::frames::ranking::counts::{SamplesByStack, StackSamples};
use crate::frames::stream::call_tree::Weight;
use crate::frames::stream::tables::{Line, NamedFunctionIndex, SymbolIndex, TierIndex};
use crate::frames::stream::{MachineCode, Namer, Tables};
use crate::tools::report::disassembly::{Disassembled, Disassembler, MACHINES};

/// Copies that are listed.
const MAX_COPIES: usize = 50;

/// Instructions of a copy that are shown. Of longer ones, those with most samples are, and then those around them.
const MAX_INSTRUCTIONS: usize = 2000;

/// Instructions without samples that are shown before and after one with samples, in long copies.
const CONTEXT: usize = 8;

/// Longest name in an instruction, in characters.
const MAX_NAME: usize = 120;

/// The machine code of a function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FunctionCode {
    /// Copies with samples in their code, the hottest first.
    pub copies: Vec<CodeCopy>,
    /// Number of copies that are not listed.
    pub copies_omitted: u64,
    /// Samples in the function's own code where it was inlined into others.
    pub inlined: Weight,
}

/// Code of a function that was compiled once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CodeCopy {
    /// Symbol, as readers of perf.data show it.
    pub symbol: String,
    /// Compiler tier, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Address of the first byte, in hexadecimal digits.
    pub address: String,
    /// Size in bytes, if known.
    pub size: Option<u64>,
    /// Samples in the code, inlined functions included.
    #[serde(rename = "self")]
    pub own: Weight,
    /// Instructions, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<Instruction>,
    /// Why there are no instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Instruction {
    /// Offset in the code.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Text, with names in place of addresses.
    pub text: String,
    /// Samples.
    #[serde(rename = "self")]
    pub own: Weight,
    /// Functions and lines that it is compiled from, the innermost inlined call first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<InstructionLine>,
}

/// A function and the line in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct InstructionLine {
    /// Name of the function.
    pub function: String,
    /// File, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line; 0 if it is unknown.
    pub line: u32,
}

/// Samples of a copy by the offset in its code.
type Offsets = BTreeMap<u64, Weight>;

/// Samples of a copy.
#[derive(Default)]
struct SampledCopy {
    tier: Option<TierIndex>,
    own: Weight,
    /// The same by offset.
    offsets: Offsets,
}

/// Returns the code of a function, whose instructions are those of its `wanted` hottest copies. As in perf annotate, a sample
/// counts for the instruction at its own address.
pub fn code_of(
    namer: &mut Namer<'_>,
    counts: &SamplesByStack,
    event: u32,
    functions: &BTreeSet<NamedFunctionIndex>,
    wanted: usize,
) -> FunctionCode {
    let tables = &namer.tables;
    let mut inlined = Weight::default();
    let mut copies: BTreeMap<SymbolIndex, SampledCopy> = BTreeMap::new();
    for StackSamples { stack, weight, .. } in counts.of_event(event) {
        let Some(frame) = tables.frames(stack).next() else {
            continue;
        };
        let is_it = |line: Option<&Line>| line.is_some_and(|line| functions.contains(&line.function));
        match frame.symbol {
            Some(symbol) if is_it(frame.lines.last()) => {
                let copy = copies.entry(symbol).or_insert_with(|| SampledCopy {
                    tier: frame.tier,
                    ..SampledCopy::default()
                });
                copy.own.add(weight);
                let offset = frame.address.saturating_sub(tables.symbols[symbol].address);
                copy.offsets.entry(offset).or_default().add(weight);
            }
            // The symbol is that of another function.
            _ if is_it(frame.lines.first()) => inlined.add(weight),
            _ => {}
        }
    }
    let (hottest_copies, copies_omitted) = hottest(copies);
    let mut copies = Vec::with_capacity(hottest_copies.len());
    for (symbol, sampled) in hottest_copies {
        let of_symbol = &namer.tables.symbols[symbol];
        let mut copy = CodeCopy {
            symbol: of_symbol.name.clone(),
            tier: sampled.tier.map(|tier| namer.tables.tiers[tier].clone()),
            address: format!("{:#x}", of_symbol.address),
            size: of_symbol.size,
            own: sampled.own,
            instructions: Vec::new(),
            missing: None,
        };
        if copies.len() < wanted {
            match instructions(namer, symbol, &sampled.offsets) {
                Ok(instructions) => copy.instructions = instructions,
                Err(missing) => copy.missing = Some(missing),
            }
        }
        copies.push(copy);
    }
    FunctionCode {
        copies,
        copies_omitted,
        inlined,
    }
}

/// Returns the copies with most samples, the hottest first, and how many are left out.
fn hottest(copies: BTreeMap<SymbolIndex, SampledCopy>) -> (Vec<(SymbolIndex, SampledCopy)>, u64) {
    let mut copies: Vec<_> = copies.into_iter().collect();
    copies.sort_by_key(|(_, copy)| Reverse(copy.own.period));
    let omitted = copies.len().saturating_sub(MAX_COPIES);
    copies.truncate(MAX_COPIES);
    (copies, omitted as u64)
}

/// Disassembles a copy, or returns why that cannot be done.
fn instructions(
    namer: &mut Namer<'_>,
    symbol: SymbolIndex,
    samples: &Offsets,
) -> Result<Vec<Instruction>, String> {
    let Some(MachineCode { machine, bytes }) = namer.machine_code(symbol) else {
        return Err("no file here has its machine code".to_owned());
    };
    let Some(mut disassembler) = Disassembler::of(machine) else {
        let machine = machine.architecture().unwrap_or("this machine");
        return Err(format!("no disassembly for {machine}, only for {MACHINES}"));
    };
    let start = namer.tables.symbols[symbol].address;
    let starts = disassembler.starts(&bytes);
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let ranges: Vec<(usize, usize)> = starts.iter().copied().zip(ends).collect();
    let shown = instructions_to_show(&ranges, samples);
    let offsets: Vec<u64> = shown.iter().map(|&(start, _)| start as u64).collect();
    let texts: Vec<Disassembled> = shown
        .iter()
        .zip(&offsets)
        .map(|(&(from, _), &offset)| {
            let code = bytes.get(from..).unwrap_or_default();
            disassembler.instruction(code, start.wrapping_add(offset))
        })
        .collect();
    let targets: Vec<u64> = texts.iter().filter_map(|text| text.target).collect();
    // One for each target, and for each offset.
    let mut names = namer.referred(symbol, &targets).into_iter();
    let mut lines = namer.lines_at(symbol, &offsets).into_iter();
    let instructions = texts.into_iter().zip(shown).map(|(disassembled, (from, to))| {
        let mut text = disassembled.text;
        if let Some(target) = disassembled.target {
            let name = names.next().flatten();
            let inside = target.wrapping_sub(start);
            let name = match name {
                _ if inside < bytes.len() as u64 => Some(format!("+{inside:x}")),
                Some((name, 0)) => Some(short(&name)),
                Some((name, offset)) => Some(format!("{}+{offset:x}", short(&name))),
                None => None,
            };
            if let Some(name) = name {
                text = with_name(text, target, &name);
            }
        }
        Instruction {
            offset: from as u64,
            size: to.saturating_sub(from) as u64,
            text,
            own: samples_in(samples, from, to),
            lines: named_lines(&namer.tables, &lines.next().unwrap_or_default()),
        }
    });
    Ok(instructions.collect())
}

/// Adds the name of the address that an instruction refers to: in its place, or as a comment if the text does not have it.
fn with_name(text: String, target: u64, name: &str) -> String {
    let address = format!("{target:#x}");
    if text.contains(&address) {
        text.replacen(&address, name, 1)
    } else {
        format!("{text}  # {name}")
    }
}

/// Returns the samples from one offset to another.
fn samples_in(samples: &Offsets, from: usize, to: usize) -> Weight {
    let mut found = Weight::default();
    let in_range = samples.range(from as u64..to as u64);
    in_range.for_each(|(_, &weight)| found.add(weight));
    found
}

/// Returns the ranges of the instructions to show, at most [`MAX_INSTRUCTIONS`]: all, or those with most samples and then
/// those around them.
fn instructions_to_show(ranges: &[(usize, usize)], samples: &Offsets) -> Vec<(usize, usize)> {
    if ranges.len() <= MAX_INSTRUCTIONS {
        return ranges.to_vec();
    }
    let mut sampled: Vec<(Reverse<u64>, usize)> = Vec::new();
    for (at, &(from, to)) in ranges.iter().enumerate() {
        let own = samples_in(samples, from, to);
        if own.samples > 0 {
            sampled.push((Reverse(own.period), at));
        }
    }
    sampled.sort_unstable();
    let sampled = sampled.into_iter().map(|(_, at)| at);
    let around = |at: usize| at.saturating_sub(CONTEXT)..=at.saturating_add(CONTEXT);
    let mut kept = BTreeSet::new();
    // First all of those, and only then what is around them, the hottest first.
    for at in sampled.clone().chain(sampled.flat_map(around)) {
        if kept.len() == MAX_INSTRUCTIONS {
            break;
        }
        kept.extend((at < ranges.len()).then_some(at));
    }
    kept.into_iter()
        .filter_map(|at| ranges.get(at).copied())
        .collect()
}

/// Returns the beginning of a name.
fn short(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}

/// Returns lines with names; nothing if they are only the function itself.
fn named_lines(tables: &Tables, lines: &[Line]) -> Vec<InstructionLine> {
    let has_lines = lines.len() > 1 || lines.iter().any(|line| line.line > 0);
    let lines = lines.iter().filter(|_| has_lines).map(|line| InstructionLine {
        function: tables.functions[line.function].name.clone(),
        file: line.file.map(|file| tables.files[file].path.clone()),
        line: line.line,
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Weight = Weight {
        samples: 1,
        period: 1,
    };

    /// Returns instructions of four bytes.
    fn ranges(count: usize) -> Vec<(usize, usize)> {
        (0..count).map(|at| (4 * at, 4 * at + 4)).collect()
    }

    #[test]
    fn the_50_hottest_copies_are_listed() {
        let listed = |count: u32| {
            let sampled = |symbol: u32| {
                let period = u64::from(symbol);
                let own = Weight { samples: 1, period };
                let copy = SampledCopy {
                    own,
                    ..SampledCopy::default()
                };
                (SymbolIndex(symbol), copy)
            };
            let (copies, omitted) = hottest((0..count).map(sampled).collect());
            let symbols: Vec<u32> = copies.iter().map(|(symbol, _)| symbol.0).collect();
            (symbols, omitted)
        };
        assert_eq!(listed(50), ((0..50).rev().collect(), 0));
        assert_eq!(listed(52), ((2..52).rev().collect(), 2));
    }

    #[test]
    fn copies_of_up_to_2000_instructions_are_shown_whole() {
        let none = Offsets::new();
        assert_eq!(instructions_to_show(&ranges(2000), &none), ranges(2000));
        assert_eq!(instructions_to_show(&ranges(2001), &none), []);
    }

    #[test]
    fn of_too_many_instructions_those_with_most_samples_are_shown() {
        // The last ones have most samples.
        let samples = |at: u64| {
            let weight = Weight {
                samples: 1,
                period: 1 + at,
            };
            (4 * at, weight)
        };
        let all: Offsets = (0..3000).map(samples).collect();
        assert_eq!(instructions_to_show(&ranges(3000), &all), ranges(3000)[1000..]);
        // Every tenth one has samples, so there is room for those around the hottest.
        let some: Offsets = (0..300).map(|at| samples(10 * at)).collect();
        let (all, shown) = (ranges(3000), instructions_to_show(&ranges(3000), &some));
        assert!(shown.len() == 2000 && shown.is_sorted());
        assert!(all.iter().step_by(10).all(|range| shown.contains(range)));
        assert!(all[1200..2999].iter().all(|range| shown.contains(range)));
    }

    #[test]
    fn of_long_copies_8_instructions_before_and_after_samples_are_shown() {
        let samples = Offsets::from([(4 * 3 + 1, ONE), (4 * 1000, ONE), (4 * 1010, ONE)]);
        let expected: Vec<(usize, usize)> = (0..=11)
            .chain(992..=1018)
            .map(|at| (4 * at, 4 * at + 4))
            .collect();
        assert_eq!(instructions_to_show(&ranges(9000), &samples), expected);
    }

    #[test]
    fn names_have_up_to_120_characters() {
        for (count, expected) in [(120, 120), (121, 120)] {
            assert_eq!(short(&"ä".repeat(count)), "ä".repeat(expected));
        }
    }
}
