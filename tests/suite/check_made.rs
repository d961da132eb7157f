//! Dumps with one fault each, and the rules that they break.

use jitdump::{ByteOrder, Tally};
use jitinject::Issue;

use crate::check_made_extensions::{NUMBER_OF_POSITIONS, extensions, lists, positions};
use crate::support::dump::{DumpWriter, X86_64, tables};

/// A file, and the rules that it breaks.
pub struct TestFile {
    pub rules: Vec<&'static str>,
    /// Base name.
    pub name: &'static str,
    pub file: Vec<u8>,
    /// Faults of decompression.
    pub unpacking: Tally<Issue>,
}

/// Returns an uncompressed file.
pub fn test_file(rules: &[&'static str], name: &'static str, file: Vec<u8>) -> TestFile {
    TestFile {
        rules: rules.to_vec(),
        name,
        file,
        unpacking: Tally::default(),
    }
}

/// Writer of a dump that breaks no rule: whole names, aligned records, an entry for the end of the lines, CLOSE.
pub struct CleanDump {
    pub dump: DumpWriter,
    time: u64,
    index: u64,
}

/// An entry of DEBUG_INFO: distance from the start of the function in bytes, line, and file.
pub type Line = (i64, u32, &'static [u8]);

const FILE: &[u8] = b"/src/a.c";

/// A file that is there, for the checks of [`source`].
pub const KNOWN_FILE: &[u8] = b"/here/a.js";

/// Returns the text of a source file.
pub fn source(name: &[u8]) -> Option<Vec<u8>> {
    (name == KNOWN_FILE).then(|| b"a (b)\nc;\n".to_vec())
}

pub const SIZE: u64 = 64;
/// The lines of a function of [`SIZE`] bytes.
const LINES: [Line; 3] = [(0, 1, FILE), (16, 2, FILE), (SIZE as i64, 0, b"")];
/// Time before the first record, in nanoseconds.
const START: u64 = 100_000_000_000_000;
const DAY: u64 = 86_400_000_000_000;
const CLOSE: u32 = 3;

impl CleanDump {
    fn new(endian: ByteOrder) -> Self {
        Self {
            dump: DumpWriter::new(endian, X86_64, 77),
            time: START,
            index: 0,
        }
    }

    fn next_time(&mut self) -> u64 {
        self.time += 1000;
        self.time
    }

    /// Writes a record, with padding.
    pub fn record(&mut self, kind: u32, content: &[u8]) {
        let mut content = content.to_vec();
        content.resize(content.len().next_multiple_of(8), 0);
        let time = self.next_time();
        self.dump.record(kind, time, &content);
    }

    fn lines(&mut self, of: u64, start: u64, lines: &[Line]) {
        self.lines_counted(of, start, lines, lines.len() as u64);
    }

    fn lines_counted(&mut self, of: u64, start: u64, lines: &[Line], count: u64) {
        let endian = self.dump.endian;
        let mut content = Vec::new();
        endian.write_u64(&mut content, of);
        endian.write_u64(&mut content, count);
        for (offset, line, file) in lines {
            endian.write_u64(&mut content, start.wrapping_add_signed(*offset));
            endian.write_u32(&mut content, *line);
            endian.write_u32(&mut content, 0);
            content.extend_from_slice(file);
            content.push(0);
        }
        self.record(2, &content);
    }

    pub fn load(&mut self, start: u64, name: &[u8], size: u64) {
        let (time, index) = (self.next_time(), self.index);
        self.index += 1;
        self.dump
            .load(time, start, index, name, &vec![0x90; size as usize]);
    }

    /// Writes a function with its lines.
    pub fn function(&mut self, start: u64) {
        self.function_with(start, &LINES);
    }

    /// Writes a function of a script, declared at 1:3 of the known file, with the lines and columns of its code.
    fn script_function(&mut self, positions: &[(u32, u32)]) {
        let endian = self.dump.endian;
        let mut content = Vec::new();
        endian.write_u64(&mut content, 0x3000);
        endian.write_u64(&mut content, positions.len() as u64 + 1);
        let end = (SIZE, 0, 0, &b""[..]);
        let lines = positions.iter().zip(0..);
        let lines = lines.map(|(&(line, column), number)| (number, line, column, KNOWN_FILE));
        for (offset, line, column, file) in lines.chain([end]) {
            endian.write_u64(&mut content, 0x3000 + offset);
            endian.write_u32(&mut content, line);
            endian.write_u32(&mut content, column);
            content.extend_from_slice(file);
            content.push(0);
        }
        self.record(2, &content);
        let name = [b"JS:*warm ", KNOWN_FILE, b":1:3"].concat();
        self.load(0x3000, &name, SIZE);
    }

    pub fn track(&mut self, start: u64) {
        let time = self.next_time();
        self.dump
            .track(time, start, b"opcodes", b"/src/a.bytecode", &[(0, 1), (16, 2)]);
        let padding = self.dump.bytes.len().next_multiple_of(8);
        assert_eq!(padding, self.dump.bytes.len());
    }

    pub fn function_with(&mut self, start: u64, lines: &[Line]) {
        self.lines(start, start, lines);
        self.load(start, b"fn_0001", SIZE);
    }

    pub fn moved(&mut self, from: u64, to: u64, size: u64, index: u64) {
        let time = self.next_time();
        self.dump.moved(time, from, to, size, index);
    }

    fn unwinding(&mut self, tables: &[u8], header: &[u8], mapped: u64) {
        let endian = self.dump.endian;
        let mut content = Vec::new();
        for word in [(tables.len() + header.len()) as u64, header.len() as u64, mapped] {
            endian.write_u64(&mut content, word);
        }
        content.extend_from_slice(tables);
        content.extend_from_slice(header);
        self.record(4, &content);
    }

    /// Writes some functions and CLOSE; returns the file.
    pub fn finish(mut self) -> Vec<u8> {
        for at in 1..4 {
            self.function(0x9_0000 + at * 0x1000);
        }
        self.record(CLOSE, &[]);
        self.dump.bytes
    }
}

/// Returns a dump of two functions, to which a test may add records.
pub fn clean_dump(endian: ByteOrder) -> CleanDump {
    let mut clean = CleanDump::new(endian);
    clean.function(0x1000);
    clean.function(0x2000);
    clean
}

pub const ORDER: ByteOrder = ByteOrder::Little;
const NAME: &str = "jit-77.dump";

/// Returns a dump to which `add` adds records.
pub fn with(rules: &[&'static str], add: impl FnOnce(&mut CleanDump)) -> TestFile {
    let mut clean = clean_dump(ORDER);
    add(&mut clean);
    test_file(rules, NAME, clean.finish())
}

/// Returns a dump with bytes changed by `change`.
fn changed(rules: &[&'static str], change: impl FnOnce(&mut Vec<u8>)) -> TestFile {
    let mut file = clean_dump(ORDER).finish();
    change(&mut file);
    test_file(rules, NAME, file)
}

/// Returns the same for records that start at a time.
fn changed_from(rules: &[&'static str], start: u64, change: impl FnOnce(&mut Vec<u8>)) -> TestFile {
    let mut clean = CleanDump::new(ORDER);
    clean.time = start;
    let mut file = clean.finish();
    change(&mut file);
    test_file(rules, NAME, file)
}

pub fn set_u64(file: &mut [u8], at: usize, value: u64) {
    file[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Returns a dump with all types of records.
pub fn rich_dump() -> Vec<u8> {
    let mut clean = clean_dump(ORDER);
    let (frame, header) = tables(SIZE, 48);
    clean.unwinding(&frame, &header, 0);
    clean.record(NUMBER_OF_POSITIONS, &positions(3));
    clean.track(0x3000);
    clean.function(0x3000);
    clean.moved(0x3000, 0x4000, SIZE, 2);
    clean.record(NUMBER_OF_POSITIONS, b"Baseline\0");
    clean.load(0x5000, "grÃ¶\x1b".as_bytes(), 7);
    clean.finish()
}

/// Returns a dump for each rule that no recording breaks, and others.
pub fn dumps() -> Vec<TestFile> {
    let mut all = vec![
        test_file(&["JD001"], NAME, Vec::new()),
        test_file(&["JD002"], NAME, clean_dump(ORDER).finish()[..39].to_vec()),
        test_file(&["JD002"], NAME, b"DT".to_vec()),
        test_file(&["JD013"], "jit-1-77.dump", clean_dump(ORDER).finish()),
        test_file(&["JD013"], "jit-.dump", clean_dump(ORDER).finish()),
        test_file(&[], "artifact-12", clean_dump(ORDER).finish()),
        test_file(&["JD014"], "jit-78.dump", clean_dump(ORDER).finish()),
    ];
    all.extend(headers());
    all.extend(records());
    all.extend(loads());
    all.extend(lines());
    all.extend(extensions());
    all.extend(lists());
    all.extend(unwinding());
    all.extend(unwinding_tables());
    all
}

fn headers() -> Vec<TestFile> {
    let set_u32 = |at: usize, value: u32| {
        move |file: &mut Vec<u8>| file[at..at + 4].copy_from_slice(&value.to_le_bytes())
    };
    vec![
        changed(&["JD003"], set_u32(4, 2)),
        changed(&["JD004"], set_u32(4, 0)),
        changed(&["JD005"], |file| {
            set_u32(8, 48)(file);
            file.splice(40..40, [0; 8]);
        }),
        changed(&["JD005"], set_u32(8, 39)),
        changed(&["JD006"], |file| set_u64(file, 32, 0x101)),
        changed(&["JD007"], |file| set_u64(file, 32, 1)),
        changed(&["JD008"], set_u32(16, 1)),
        changed(&["JD009"], set_u32(12, 0)),
        changed(&["JD054"], set_u32(12, 0x1_003e)),
        // A second and more after the first record; in microseconds, milliseconds and seconds; wall-clock seconds.
        changed(&["JD010"], |file| set_u64(file, 24, START + 2_000_000_000)),
        changed(&["JD010"], |file| {
            set_u64(file, 24, (START - 1_000_000_000) / 1000)
        }),
        changed(&["JD010"], |file| set_u64(file, 24, START / 1_000_000)),
        changed(&["JD010"], |file| set_u64(file, 24, START / 1_000_000_000)),
        changed(&["JD010"], |file| set_u64(file, 24, 1_760_000_000)),
        changed_from(&["JD010"], 25 * DAY, |file| {
            set_u64(file, 24, 1_760_000_000_000_000)
        }),
        // The first function was compiled soon, after two hours, or after most of the time since the machine started.
        changed(&[], |file| set_u64(file, 24, START - 2_000_000_000)),
        changed(&[], |file| set_u64(file, 24, START - 7_200_000_000_000)),
        changed(&[], |file| set_u64(file, 24, START / 50)),
        changed_from(&[], 25 * DAY, |file| {
            set_u64(file, 24, 25 * DAY - 7_200_000_000_000)
        }),
        changed(&["JD011"], set_u32(20, 0)),
        test_file(&["JD015"], NAME, {
            let mut clean = CleanDump::new(ORDER);
            clean.record(CLOSE, &[]);
            clean.dump.bytes
        }),
    ]
}

fn records() -> Vec<TestFile> {
    vec![
        changed(&["JD020"], |file| {
            let at = file.len() - 16;
            file.splice(at..at, [0xee; 64]);
        }),
        // The size of the first LOAD record includes the next records.
        changed(&["JD021"], |file| {
            let load = 40 + 16 + 16 + 25 + 25 + 17 + 5;
            assert_eq!(file[load..load + 4], [0; 4]);
            file[load + 4] += 64;
            let more = u32::from_le_bytes(file[load + 4..load + 8].try_into().unwrap());
            let whole = more - 64 + 104 + 128;
            file[load + 4..load + 8].copy_from_slice(&whole.to_le_bytes());
        }),
        // Its size is smaller than its prefix.
        changed(&["JD021"], |file| {
            let load = 40 + 16 + 16 + 25 + 25 + 17 + 5;
            file[load + 4..load + 8].copy_from_slice(&7_u32.to_le_bytes());
        }),
        // Its lines lose their function.
        changed(&["JD022", "JD028", "JD071"], |file| {
            file.truncate(file.len() - 17)
        }),
        with(&["JD023"], |clean| {
            let before = clean.dump.bytes.len();
            clean.load(0x3000, b"fn_0001", SIZE);
            let record = clean.dump.bytes[before..].to_vec();
            clean.dump.bytes.extend(record);
        }),
        changed(&["JD024"], |file| file.extend([0; 64])),
        with(&["JD026", "JD027"], |clean| clean.record(CLOSE, &[])),
        with(&["JD027"], |clean| clean.record(CLOSE, &[0; 8])),
        changed(&["JD028"], |file| file.truncate(file.len() - 16)),
        with(&["JD029"], |clean| {
            clean.time -= 2000;
            clean.load(0x3000, b"fn_0001", SIZE);
        }),
        with(&["JD030"], |clean| {
            clean.dump.load(0, 0x3000, 70, b"fn_0001", &[0x90; 64]);
        }),
        with(&["JD031"], |clean| clean.record(9, b"unknown")),
        with(&["JD052"], |clean| {
            clean.time += 40 * DAY;
            clean.function(0x3000);
        }),
        // Records are at most, and more than, 2^50 nanoseconds apart; the next one is 1000 later by itself.
        with(&[], |clean| {
            clean.time += (1_u64 << 50) - 1000;
            clean.function(0x3000);
        }),
        with(&["JD052"], |clean| {
            clean.time += (1_u64 << 50) - 999;
            clean.function(0x3000);
        }),
        // Process and thread, vma, addresses before and after, size, index.
        with(&["JD053"], |clean| {
            let words = [77 << 32 | 77, 0, 0x2000, 0x3000, SIZE, 1];
            let content: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
            clean.record(1, &content);
        }),
        with(&["JD060"], |clean| clean.moved(0x7000, 0x8000, SIZE, 70)),
        with(&["JD061"], |clean| {
            clean.moved(0x2000, 0x3000, SIZE + 1, 1);
            clean.moved(0x3000, 0x4000, SIZE, 70);
        }),
        // The index of another function; an address without code, from the start or after a move.
        with(&["JD061"], |clean| clean.moved(0x1000, 0x3000, SIZE, 1)),
        with(&["JD061"], |clean| clean.moved(0x7000, 0x3000, SIZE, 1)),
        with(&["JD061"], |clean| {
            clean.moved(0x2000, 0x3000, SIZE, 1);
            clean.moved(0x2000, 0x4000, SIZE, 1);
        }),
        // Index and address of another process.
        with(&["JD061"], |clean| {
            clean.dump.pid = 78;
            clean.moved(0x2000, 0x3000, SIZE, 1);
            clean.dump.pid = 77;
        }),
        with(&["JD029", "JD055"], |clean| {
            let later = clean.next_time() + 1_000_000;
            clean.dump.moved(later, 0x3000, 0x5000, SIZE, 2);
            clean.function(0x3000);
        }),
        // The same move twice.
        with(&[], |clean| {
            clean.moved(0x2000, 0x3000, SIZE, 1);
            clean.moved(0x2000, 0x3000, SIZE, 1);
        }),
        with(&[], |clean| {
            clean.moved(0x2000, 0x3000, SIZE, 1);
            clean.moved(0x3000, 0x4000, SIZE, 1);
            clean.function(0x2000);
            clean.moved(0x1000, 0x3000, SIZE, 0);
            clean.moved(0x2000, 0x1000, SIZE, 2);
        }),
    ]
}

fn loads() -> Vec<TestFile> {
    let named = |rules: &[&'static str], name: &[u8]| {
        with(rules, |clean| {
            let size = 64 - (name.len() as u64 + 1) % 8;
            clean.load(0x3000, name, size);
        })
    };
    // Sets a field of a LOAD record; `offset` is that of the field after the record header.
    let field = |clean: &mut CleanDump, offset: usize, value: u64| {
        clean.load(0x3000, b"fn_0001", SIZE);
        let at = clean.dump.bytes.len() - 128 + 16 + offset;
        set_u64(&mut clean.dump.bytes, at, value);
    };
    vec![
        with(&["JD040"], |clean| field(clean, 24, 1000)),
        with(&["JD041"], |clean| clean.load(0x3000, b"fn_0001", 0)),
        with(&["JD042"], |clean| field(clean, 8, 0)),
        with(&["JD043"], |clean| field(clean, 24, 56)),
        with(&["JD044"], |clean| field(clean, 32, 0)),
        with(&["JD045"], |clean| {
            clean.dump.pid = 78;
            clean.function(0x3000);
            clean.dump.pid = 77;
        }),
        with(&["JD046"], |clean| clean.function(0x2010)),
        with(&["JD046"], |clean| clean.moved(0x2000, 0x1010, SIZE, 1)),
        named(&["JD047"], b""),
        named(&["JD048"], b"fn_\xff"),
        named(&["JD049"], "grÃ¶".as_bytes()),
        named(&[], "größe".as_bytes()),
        named(&["JD050"], b"fn\x1b[2J"),
        named(&["JD051"], &[b'n'; 70_000]),
    ]
}

fn lines() -> Vec<TestFile> {
    const END: Line = LINES[2];
    let of = |rules: &[&'static str], lines: &[Line]| with(rules, |clean| clean.function_with(0x3000, lines));
    vec![
        // The test's files have a file of two lines.
        of(&["JD069"], &[(0, 1, KNOWN_FILE), (8, 4, KNOWN_FILE), END]),
        of(&[], &[(0, 1, KNOWN_FILE), (8, 2, KNOWN_FILE), END]),
        with(&["JD069"], |clean| clean.script_function(&[(1, 1), (2, 9)])),
        with(&[], |clean| clean.script_function(&[(1, 1), (2, 3)])),
        with(&["JD070"], |clean| {
            clean.lines_counted(0x3000, 0x3000, &LINES, 1);
            clean.load(0x3000, b"fn_0001", SIZE);
        }),
        with(&["JD071"], |clean| clean.lines(0x7000, 0x7000, &LINES)),
        with(&["JD072"], |clean| {
            clean.lines(0x3000, 0x3000, &LINES);
            clean.lines(0x4000, 0x4000, &LINES);
            clean.load(0x3000, b"fn_0001", SIZE);
            clean.load(0x4000, b"fn_0001", SIZE);
        }),
        of(&["JD075"], &[(0, 1, FILE), (8, 1 << 25, FILE), END]),
        of(&["JD075"], &[(0, 1, FILE), (8, 1, b"/src/\n"), END]),
        of(&["JD076"], &[(-4, 1, FILE), (8, 2, FILE), END]),
        of(&["JD077"], &[(0, 1, FILE), (72, 2, FILE), (80, 0, b"")]),
        of(&["JD078"], &[(0, 1, FILE), (16, 2, FILE), (8, 3, FILE), END]),
        of(&["JD079"], &[END]),
        of(&["JD080"], &[(0, 1, FILE)]),
        of(&["JD081"], &[(0, 1, b"src/a.c"), END]),
        of(&["JD082"], &[(0, 1, FILE), (8, 2, b"\xff"), END]),
        of(&["JD083"], &[(0, 1, b""), END]),
        with(&["JD085"], |clean| {
            clean.lines(0x7000, 0x3000, &LINES);
            clean.load(0x3000, b"fn_0001", SIZE);
        }),
    ]
}

fn unwinding() -> Vec<TestFile> {
    let (frame, header) = tables(SIZE, 48);
    let size = (frame.len() + header.len()) as u64;
    vec![
        with(&["JD090"], |clean| {
            clean.unwinding(&[9; 40], &[9; 24], 0);
            clean.function(0x3000);
        }),
        with(&["JD091", "JD093"], |clean| {
            clean.unwinding(&frame, &header, 0);
            clean.unwinding(&frame, &header, 0);
            clean.function(0x3000);
        }),
        with(&["JD092"], |clean| {
            // Distances from the tables behind the header.
            let header = [&header[..], &[0; 4]].concat();
            let (frame, _) = tables(SIZE + header.len() as u64, 48);
            clean.unwinding(&header, &frame, 0);
            // The first part is the header.
            let at = clean.dump.bytes.len() - (frame.len() + header.len()).next_multiple_of(8) - 16;
            set_u64(&mut clean.dump.bytes, at, header.len() as u64);
            clean.function(0x3000);
        }),
        with(&["JD092", "JD094", "JD095"], |clean| {
            // The entry is for both functions.
            let absolute = [&[1, 0x0c, 0xff, 0xff][..], &0x4040_u64.to_le_bytes()].concat();
            let (frame, _) = tables(0x1040, 48);
            clean.unwinding(&absolute, &frame, 0);
            let at = clean.dump.bytes.len() - (frame.len() + absolute.len()).next_multiple_of(8) - 16;
            set_u64(&mut clean.dump.bytes, at, absolute.len() as u64);
            clean.load(0x3000, b"fn_0001", SIZE);
            clean.load(0x4000, b"fn_0001", SIZE);
            // All functions after it have it, up to the next such record.
            clean.unwinding(&[], &header, 0);
        }),
        with(&["JD095"], |clean| {
            clean.unwinding(&[], &header, 0);
            clean.function(0x3000);
        }),
        with(&["JD093", "JD096"], |clean| {
            clean.function(0x4000);
            clean.unwinding(&frame, &header, 0x1000);
            clean.function(0x3000);
        }),
        // A moved function has a mapping without the tables.
        with(&["JD093"], |clean| {
            clean.function(0x4000);
            clean.unwinding(&frame, &header, 0x1000);
            clean.function(0x7000);
            clean.moved(0x7000, 0x3000, SIZE, 3);
        }),
        with(&["JD097"], |clean| {
            clean.unwinding(&frame, &[], 0);
            clean.function(0x3000);
        }),
        with(&["JD093", "JD098"], |clean| {
            clean.unwinding(&frame, &header, 8);
            clean.function(0x3000);
        }),
        with(&["JD093", "JD098"], |clean| {
            clean.unwinding(&frame, &header, 256 << 20);
            clean.function(0x7000_0000);
        }),
        // Sizes that are rounded up to pages.
        with(&["JD093"], |clean| {
            clean.unwinding(&frame, &header, size + 4095);
            clean.function(0x7000_0000);
        }),
        with(&["JD093", "JD098"], |clean| {
            clean.unwinding(&frame, &header, size + 4096);
            clean.function(0x7000_0000);
        }),
        with(&["JD093", "JD099"], |clean| {
            let mut other = header;
            other[0] = 2;
            clean.unwinding(&frame, &other, 0);
            clean.function(0x3000);
        }),
    ]
}

/// Returns functions whose tables do not describe them, or do so at the limit.
fn unwinding_tables() -> Vec<TestFile> {
    let (frame, header) = tables(SIZE, 48);
    let with_tables = |rules: &[&'static str], frame: &[u8], header: &[u8]| {
        with(rules, |clean| {
            clean.unwinding(frame, header, 0);
            clean.function(0x3000);
        })
    };
    // The entry is after its CIE: its size, the distance to the CIE, the start and size of the code, instructions.
    const ENTRY: usize = 24;
    let with_byte = |rules: &[&'static str], at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[ENTRY + at] = byte;
        with_tables(rules, &frame, &header)
    };
    let start = frame[ENTRY + 8];
    let with_row = |rules: &[&'static str], start: i32, entry: i32, size: usize| {
        let behind = frame.len() as i32;
        let mut header = header;
        header[8] = 1;
        header[12..16].copy_from_slice(&(start - SIZE as i32 - behind).to_le_bytes());
        header[16..].copy_from_slice(&(entry - behind).to_le_bytes());
        with_tables(rules, &frame, &header[..size])
    };
    vec![
        with_tables(&["JD093", "JD100"], &frame[..ENTRY], &header),
        // Another CIE, 4 KiB before the function, an unknown instruction.
        with_byte(&["JD093", "JD100"], 4, 5),
        with_byte(&["JD093", "JD100"], 9, 0xef),
        with_byte(&["JD093", "JD100"], 17, 0x3f),
        // It starts after the function, or ends before it.
        with_byte(&["JD093", "JD101"], 8, start + 4),
        with_byte(&["JD093"], 8, start - 4),
        with_byte(&["JD093", "JD101"], 12, SIZE as u8 - 16),
        with_byte(&["JD093"], 12, SIZE as u8 - 15),
        with_row(&["JD093"], 0, ENTRY as i32, 20),
        with_row(&["JD093", "JD099"], 4096, ENTRY as i32, 20),
        with_row(&["JD093", "JD099"], 0, 0, 20),
        with_row(&["JD093", "JD099"], 0, ENTRY as i32, 16),
    ]
}
