//! DEBUG_INFO2 records of random functions in both layouts and byte orders: llvm-symbolizer shows for their code what a reader of
//! the records finds that shares no code with jitinject.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use jitdump::ByteOrder;
use object::{Object as _, ObjectSymbol as _};

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::tools::text;
use crate::support::{inject_into, objects_of, scratch};

/// Number of functions for each layout and byte order.
const FUNCTIONS: u64 = 2500;
const START: u64 = 0x7000_0000;
/// Distance between functions, in bytes.
const DISTANCE: u64 = 0x400;
const MAX_DEPTH: usize = 8;
/// ELF machine of big-endian code: S/390.
const S390: u32 = 22;
/// Types of the records.
pub const LISTS: u32 = 827_346_259;
pub const POSITIONS: u32 = 827_346_260;

/// A frame: function, file, line and column.
type Frame = (String, String, u32, u32);

/// Pseudorandom numbers (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `limit`.
    fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }
}

/// An inlined call of the generator; the first one is the function itself.
struct Call {
    function: u32,
    line: u32,
    column: u32,
    children: Vec<usize>,
    segments: Vec<usize>,
}

/// A random function.
struct Function {
    size: u32,
    /// Start of each segment of the code.
    starts: Vec<u32>,
    calls: Vec<Call>,
    /// Calls of each segment, outermost first.
    stacks: Vec<Vec<usize>>,
    /// File, line and column of each segment.
    rows: Vec<(u32, u32, u32)>,
    /// File, line and column of each function.
    declared: Vec<(u32, u32, u32)>,
    names: Vec<String>,
    files: Vec<String>,
}

impl Function {
    fn new(number: u64, random: &mut Random) -> Self {
        let files = (0..=random.below(4)).map(|file| format!("/src/{number}/file{file}.js"));
        let files: Vec<String> = files.collect();
        let functions = 1 + random.below(5);
        let names = (0..functions).map(|function| match function {
            0 => format!("fn_{number}"),
            _ => format!("inlined_{function}_of_{number}"),
        });
        let place = |random: &mut Random| {
            let file = random.below(files.len() as u32);
            (file, 1 + random.below(1 << 24), 1 + random.below(60_000))
        };
        let declared: Vec<_> = (0..functions).map(|_| place(random)).collect();
        let mut calls = vec![Call {
            function: 0,
            line: 0,
            column: 0,
            children: Vec::new(),
            segments: Vec::new(),
        }];
        let (mut starts, mut stacks, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        let (mut stack, mut size) = (vec![0], 0);
        for segment in 0..1 + random.below(14) as usize {
            starts.push(size);
            size += 1 + random.below(40);
            stack.truncate(1 + random.below(stack.len() as u32) as usize);
            while stack.len() <= MAX_DEPTH && random.below(3) > 0 {
                let caller = *stack.last().unwrap();
                // A call that is there already gets another range.
                let known = calls[caller].children.len() as u32;
                let chosen = random.below(known + 1);
                let call = if chosen < known {
                    calls[caller].children[chosen as usize]
                } else {
                    let (_, line, column) = place(random);
                    calls.push(Call {
                        function: random.below(functions),
                        line,
                        column,
                        children: Vec::new(),
                        segments: Vec::new(),
                    });
                    let call = calls.len() - 1;
                    calls[caller].children.push(call);
                    call
                };
                stack.push(call);
            }
            stack.iter().for_each(|&call| calls[call].segments.push(segment));
            let function = calls[*stack.last().unwrap()].function;
            let (_, line, column) = place(random);
            rows.push((declared[function as usize].0, line, column));
            stacks.push(stack[1..].to_vec());
        }
        Self {
            size,
            starts,
            calls,
            stacks,
            rows,
            declared,
            names: names.collect(),
            files,
        }
    }

    /// Returns the first byte and the end of a segment.
    fn segment(&self, segment: usize) -> (u32, u32) {
        let end = self.starts.get(segment + 1).copied().unwrap_or(self.size);
        (self.starts[segment], end)
    }

    /// Writes the calls inside a call in depth-first order, and their ranges.
    fn write_calls(&self, call: usize, depth: u32, calls: &mut Vec<u32>, ranges: &mut Vec<u32>) {
        for &child in &self.calls[call].children {
            let Call {
                function,
                line,
                column,
                segments,
                ..
            } = &self.calls[child];
            calls.extend([depth, segments.len() as u32, *function, *line, column - 1]);
            for &segment in segments {
                let (start, end) = self.segment(segment);
                ranges.extend([start, end - start]);
            }
            self.write_calls(child, depth + 1, calls, ranges);
        }
    }

    fn lists(&self, endian: ByteOrder) -> Vec<u8> {
        let strings = |strings: &[String]| {
            let mut list: Vec<u8> = strings
                .iter()
                .flat_map(|name| [name, "\0"].concat().into_bytes())
                .collect();
            list.resize(list.len().next_multiple_of(4), 0);
            list
        };
        let (files, names) = (strings(&self.files), strings(&self.names));
        let functions = self.declared.iter().zip(0..);
        let functions: Vec<u32> = functions
            .flat_map(|(&(file, line, column), name)| [name, file, line, column - 1, 0])
            .collect();
        let (mut calls, mut ranges) = (Vec::new(), Vec::new());
        self.write_calls(0, 0, &mut calls, &mut ranges);
        let rows = self.rows.iter().zip(&self.starts);
        let rows: Vec<u32> = rows
            .flat_map(|(&(file, line, column), &start)| [start, file, line, column - 1])
            .collect();
        let mut out = Vec::new();
        let write = |numbers: &[u32], out: &mut Vec<u8>| {
            numbers.iter().for_each(|&number| endian.write_u32(out, number));
        };
        let counts = [
            self.files.len(),
            files.len(),
            self.names.len(),
            names.len(),
            functions.len() / 5,
            calls.len() / 5,
            ranges.len() / 2,
            rows.len() / 4,
        ];
        write(&counts.map(|count| count as u32), &mut out);
        out.extend(files);
        out.extend(names);
        for list in [functions, calls, ranges, rows] {
            write(&list, &mut out);
        }
        out
    }

    fn positions(&self, endian: ByteOrder, start: u64) -> Vec<u8> {
        let mut positions: Vec<[u32; 7]> = Vec::new();
        let mut offsets = Vec::new();
        // Names come after the files.
        let name = |function: u32| self.files.len() as u32 + function;
        for (segment, stack) in self.stacks.iter().enumerate() {
            let mut caller = u32::MAX;
            let mut function = 0;
            let (_, line, column) = self.rows[segment];
            let inner = stack.iter().map(|&call| &self.calls[call]);
            let places = inner
                .clone()
                .map(|call| (call.line, call.column))
                .chain([(line, column)]);
            let next = inner.map(|call| call.function).chain([0]);
            for ((line, column), next) in places.zip(next) {
                let (file, declared_line, declared_column) = self.declared[function as usize];
                let position = [
                    caller,
                    name(function),
                    file,
                    declared_line,
                    declared_column,
                    line,
                    column,
                ];
                let known = positions.iter().position(|known| *known == position);
                let at = known.unwrap_or(positions.len());
                if known.is_none() {
                    positions.push(position);
                }
                (caller, function) = (at as u32, next);
            }
            offsets.push([self.starts[segment], caller]);
        }
        let mut out = Vec::new();
        let strings = self.files.iter().chain(&self.names);
        for number in [
            start,
            offsets.len() as u64,
            positions.len() as u64,
            strings.clone().count() as u64,
        ] {
            endian.write_u64(&mut out, number);
        }
        offsets
            .iter()
            .flatten()
            .for_each(|&number| endian.write_u32(&mut out, number));
        positions
            .iter()
            .flatten()
            .for_each(|&number| endian.write_u32(&mut out, number));
        strings.for_each(|string| out.extend([string, "\0"].concat().into_bytes()));
        out
    }
}

/// Reads the numbers and strings of a record.
struct RecordReader<'a> {
    bytes: &'a [u8],
    is_big: bool,
}

impl<'a> RecordReader<'a> {
    fn take(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(size);
        self.bytes = rest;
        taken
    }

    fn word(&mut self) -> u32 {
        let bytes = self.take(4).try_into().unwrap();
        if self.is_big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    fn long(&mut self) -> u64 {
        let bytes = self.take(8).try_into().unwrap();
        if self.is_big {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        }
    }

    fn words(&mut self, count: u32, each: u32) -> Vec<Vec<u32>> {
        (0..count)
            .map(|_| (0..each).map(|_| self.word()).collect())
            .collect()
    }
}

fn strings(bytes: &[u8]) -> Vec<String> {
    let all = bytes.split(|&byte| byte == 0);
    all.map(|one| String::from_utf8(one.to_vec()).unwrap()).collect()
}

/// Reads the call chain at an offset from a record with lists, innermost first.
fn chain_of_lists(record: &[u8], is_big: bool, offset: u32) -> Vec<Frame> {
    let mut reader = RecordReader {
        bytes: record,
        is_big,
    };
    let counts: Vec<u32> = (0..8).map(|_| reader.word()).collect();
    let files = strings(reader.take(counts[1] as usize));
    let names = strings(reader.take(counts[3] as usize));
    let functions = reader.words(counts[4], 5);
    let calls = reader.words(counts[5], 5);
    let ranges = reader.words(counts[6], 2);
    let rows = reader.words(counts[7], 4);
    let row = rows.iter().rfind(|row| row[0] <= offset).unwrap();
    // From the outermost call to the innermost: who calls whom, and where.
    let mut function = &functions[0];
    let mut frames = Vec::new();
    let (mut used, mut depth) = (0, 0);
    for call in &calls {
        let own = &ranges[used..used + call[1] as usize];
        used += call[1] as usize;
        let is_there = own
            .iter()
            .any(|range| (range[0]..range[0] + range[1]).contains(&offset));
        if is_there && call[0] == depth {
            let (name, file) = (&names[function[0] as usize], &files[function[1] as usize]);
            frames.push((name.clone(), file.clone(), call[3], call[4] + 1));
            function = &functions[call[2] as usize];
            depth += 1;
        }
    }
    let name = &names[function[0] as usize];
    frames.push((name.clone(), files[row[1] as usize].clone(), row[2], row[3] + 1));
    frames.reverse();
    frames
}

/// Reads the call chain at an offset from a record with positions, innermost first.
fn chain_of_positions(record: &[u8], is_big: bool, offset: u32) -> Vec<Frame> {
    let mut reader = RecordReader {
        bytes: record,
        is_big,
    };
    let _address = reader.long();
    let counts: Vec<u32> = (0..3).map(|_| reader.long() as u32).collect();
    let offsets = reader.words(counts[0], 2);
    let positions = reader.words(counts[1], 7);
    let strings = strings(reader.bytes);
    let mut at = offsets.iter().rfind(|entry| entry[0] <= offset).unwrap()[1];
    let mut frames = Vec::new();
    while at != u32::MAX {
        let position = &positions[at as usize];
        let text = |index: usize| strings[position[index] as usize].clone();
        frames.push((text(1), text(2), position[5], position[6]));
        at = position[0];
    }
    frames
}

/// Returns the call chain of each address in an object, innermost first, as llvm-symbolizer shows them.
fn symbolized(addresses: &[(PathBuf, u64)]) -> Vec<Vec<Frame>> {
    let mut child = Command::new("llvm-symbolizer")
        .args(["--inlines", "--no-demangle", "--output-style=LLVM"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = addresses.iter();
    let lines: String = lines
        .map(|(object, address)| format!("{} {address:#x}\n", text(object)))
        .collect();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let blocks = shown.trim_end().split("\n\n").map(|block| {
        let lines: Vec<&str> = block.lines().collect();
        let frames = lines.chunks_exact(2).map(|pair| {
            let mut place = pair[1].rsplitn(3, ':');
            let mut number = || place.next().unwrap().parse().unwrap();
            let (column, line) = (number(), number());
            (pair[0].to_owned(), place.next().unwrap().to_owned(), line, column)
        });
        frames.collect()
    });
    blocks.collect()
}

/// Writes random functions with records of this type; returns them with their records, by name.
fn write(dump: &mut DumpWriter, kind: u32, count: u64, dwarf: &str) -> BTreeMap<String, (Vec<u8>, Function)> {
    let endian = dump.endian;
    let mut random = Random(0x1234_5678_9abc_def1 ^ u64::from(kind) << 8 ^ dwarf.len() as u64);
    let mut records = BTreeMap::new();
    for number in 0..count {
        let function = Function::new(number, &mut random);
        let start = START + number * DISTANCE;
        let record = match kind {
            LISTS => function.lists(endian),
            _ => function.positions(endian, start),
        };
        dump.record(kind, 1000, &record);
        let name = &function.names[0];
        dump.load(
            1000,
            start,
            number,
            name.as_bytes(),
            &vec![0x90; function.size as usize],
        );
        records.insert(name.clone(), (record, function));
    }
    records
}

/// Writes random functions with records of this type; returns the first address of each segment of their code.
pub fn write_functions(dump: &mut DumpWriter, kind: u32, count: u64) -> Vec<u64> {
    let functions = write(dump, kind, count, "");
    let mut addresses: Vec<u64> = Vec::new();
    for (_, function) in functions.values() {
        let number: u64 = function.names[0].strip_prefix("fn_").unwrap().parse().unwrap();
        let start = START + number * DISTANCE;
        addresses.extend(function.starts.iter().map(|&offset| start + u64::from(offset)));
    }
    addresses
}

fn compare(endian: ByteOrder, kind: u32, dwarf: &str) -> (usize, usize) {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let (machine, is_big) = match endian {
        ByteOrder::Little => (X86_64, false),
        ByteOrder::Big => (S390, true),
    };
    let mut dump = DumpWriter::new(endian, machine, 7);
    let mut records = write(&mut dump, kind, FUNCTIONS, dwarf);
    std::fs::write(&path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, text(&path), 500);
    profile.sample(7, 2000, &[START], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder.path(), &input, &["--all", "--dwarf", dwarf]);
    let (mut addresses, mut expected) = (Vec::new(), Vec::new());
    for object in objects_of(&output).into_iter().filter(|path| path.is_file()) {
        let bytes = std::fs::read(&object).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        for symbol in file.symbols() {
            let Some((record, function)) = records.remove(symbol.name().unwrap()) else {
                continue;
            };
            for segment in 0..function.starts.len() {
                let (first, end) = function.segment(segment);
                for offset in [first, end - 1] {
                    addresses.push((object.clone(), symbol.address() + u64::from(offset)));
                    expected.push(match kind {
                        LISTS => chain_of_lists(&record, is_big, offset),
                        _ => chain_of_positions(&record, is_big, offset),
                    });
                }
            }
        }
    }
    assert!(records.is_empty(), "{} functions without a symbol", records.len());
    let shown = symbolized(&addresses);
    assert_eq!(shown.len(), expected.len());
    for ((shown, expected), (_, address)) in shown.iter().zip(&expected).zip(&addresses) {
        assert_eq!(shown, expected, "{address:#x}, {endian:?}, type {kind}");
    }
    let deepest = expected.iter().map(Vec::len).max();
    (expected.len(), deepest.unwrap_or_default())
}

#[test]
fn random_functions_have_the_chains_that_another_reader_of_their_records_finds() {
    let cases = [
        (ByteOrder::Little, LISTS, "4"),
        (ByteOrder::Big, LISTS, "5"),
        (ByteOrder::Little, POSITIONS, "5"),
        (ByteOrder::Big, POSITIONS, "4"),
    ];
    for (endian, kind, dwarf) in cases {
        let (compared, deepest) = compare(endian, kind, dwarf);
        println!("{endian:?}, type {kind}: {compared} addresses, up to {deepest} functions");
        assert!(
            compared > 20_000 && deepest == MAX_DEPTH + 1,
            "{compared}, {deepest}"
        );
    }
}
