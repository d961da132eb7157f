//! Writes debug information of a generated function, in each layout that dumps use.

use jitdump::ByteOrder;

use super::dump::DumpWriter;

/// A function in a chain of inlined calls, with its source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub function: String,
    pub file: String,
    pub line: u32,
}

impl Site {
    pub fn new(function: &str, file: &str, line: u32) -> Self {
        Self {
            function: function.into(),
            file: file.into(),
            line,
        }
    }
}

/// Layout of debug information in a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// DEBUG_INFO: innermost lines only.
    Lines,
    /// DEBUG_INFO2 with six lists.
    Lists,
    /// DEBUG_INFO2 with positions that refer to their callers.
    Positions,
}

pub const LAYOUTS: [Layout; 3] = [Layout::Lines, Layout::Lists, Layout::Positions];

/// Code size of one line, in bytes.
pub const STRETCH: u32 = 20;

/// Returns a function: for each [`STRETCH`] of its code the source locations, the innermost function first. One
/// inlined call has two ranges, and there is another call in the first one.
pub fn model(number: u32) -> Vec<Vec<Site>> {
    let outer = |line| Site::new(&format!("fn_{number}"), &format!("src/module_{number}.js"), line);
    let a = |line| Site::new("inlined_a", "src/a.js", line);
    let b = |line| Site::new("inlined_b", "/lib/b.js", line);
    vec![
        vec![outer(10)],
        vec![outer(11)],
        vec![a(100), outer(20)],
        vec![b(200), a(30), outer(20)],
        vec![a(101), outer(20)],
        vec![outer(12)],
        vec![a(102), outer(20)],
        vec![a(102), outer(21)],
        vec![outer(10)],
    ]
}

/// Appends the DEBUG_INFO or DEBUG_INFO2 record of a function.
pub fn write_lines(dump: &mut DumpWriter, layout: Layout, time: u64, address: u64, model: &[Vec<Site>]) {
    let endian = dump.endian;
    let mut out = Vec::new();
    match layout {
        Layout::Lines => {
            endian.write_u64(&mut out, address);
            endian.write_u64(&mut out, model.len() as u64);
            for (at, chain) in (0u64..).zip(model) {
                endian.write_u64(&mut out, address + at * u64::from(STRETCH));
                endian.write_u32(&mut out, chain[0].line);
                endian.write_u32(&mut out, 7);
                let repeats = at > 0 && model[at as usize - 1][0].file == chain[0].file;
                out.extend_from_slice(if repeats {
                    b"\xff"
                } else {
                    chain[0].file.as_bytes()
                });
                out.push(0);
            }
            dump.record(2, time, &out);
        }
        Layout::Lists => dump.record(827_346_259, time, &lists(endian, model)),
        Layout::Positions => dump.record(827_346_260, time, &positions(endian, address, model)),
    }
}

/// Assigns indices to strings.
#[derive(Default)]
struct Strings(Vec<String>);

impl Strings {
    fn number(&mut self, string: &str) -> u32 {
        let known = self.0.iter().position(|known| known == string);
        known.unwrap_or_else(|| {
            self.0.push(string.into());
            self.0.len() - 1
        }) as u32
    }

    fn bytes(&self, align: usize) -> Vec<u8> {
        let mut out: Vec<u8> = self
            .0
            .iter()
            .flat_map(|string| string.bytes().chain([0]))
            .collect();
        out.resize(out.len().next_multiple_of(align), 0);
        out
    }
}

pub fn lists(endian: ByteOrder, model: &[Vec<Site>]) -> Vec<u8> {
    let (mut files, mut names) = (Strings::default(), Strings::default());
    let mut functions = Vec::new();
    let (mut calls, mut ranges, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    let outer = model[0].last().unwrap();
    for site in [outer, &model[2][0], &model[3][0]] {
        let (name, file) = (names.number(&site.function), files.number(&site.file));
        functions.extend([name, file, 5, 1, 0]);
    }
    // depth, ranges, function, line, column; the first has two ranges, the nested one has one, the third one
    calls.extend([0, 2, 1, 20, 3, 1, 1, 2, 30, 4, 0, 1, 1, 21, 3]);
    for (start, count) in [(2, 3), (6, 1), (3, 1), (7, 1)] {
        ranges.extend([start * STRETCH, count * STRETCH]);
    }
    for (at, chain) in (0..).zip(model) {
        lines.extend([at * STRETCH, files.number(&chain[0].file), chain[0].line, 6]);
    }
    let mut out = Vec::new();
    let (files, names, counts) = (files.bytes(4), names.bytes(4), (files.0.len(), names.0.len()));
    for number in [counts.0, files.len(), counts.1, names.len()] {
        endian.write_u32(&mut out, number as u32);
    }
    for number in [
        functions.len() / 5,
        calls.len() / 5,
        ranges.len() / 2,
        lines.len() / 4,
    ] {
        endian.write_u32(&mut out, number as u32);
    }
    out.extend(files);
    out.extend(names);
    for number in [functions, calls, ranges, lines].concat() {
        endian.write_u32(&mut out, number);
    }
    out
}

pub fn positions(endian: ByteOrder, address: u64, model: &[Vec<Site>]) -> Vec<u8> {
    let mut strings = Strings::default();
    let mut known: Vec<[u32; 7]> = Vec::new();
    let mut offsets = Vec::new();
    for (at, chain) in (0..).zip(model) {
        let mut caller = u32::MAX;
        for site in chain.iter().rev() {
            let (name, file) = (strings.number(&site.function), strings.number(&site.file));
            let position = [caller, name, file, 5, 1, site.line, 7];
            let number = known.iter().position(|known| *known == position);
            caller = number.unwrap_or_else(|| {
                known.push(position);
                known.len() - 1
            }) as u32;
        }
        offsets.extend([at * STRETCH, caller]);
    }
    let mut out = Vec::new();
    for number in [
        address,
        offsets.len() as u64 / 2,
        known.len() as u64,
        strings.0.len() as u64,
    ] {
        endian.write_u64(&mut out, number);
    }
    for number in [offsets, known.concat()].concat() {
        endian.write_u32(&mut out, number);
    }
    out.extend(strings.bytes(1));
    out
}
