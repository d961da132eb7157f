//! Dumps with something wrong in them, one thing each.

use jitinject::bytes::ByteOrder;
use jitinject::runtime::mono::Fault;
use jitinject::tally::Tally;

use crate::support::dump::{DumpWriter, X86_64, tables};

/// A file, and the rules that it breaks.
pub struct Made {
    pub rules: Vec<&'static str>,
    pub name: &'static str,
    pub file: Vec<u8>,
    pub unpacking: Tally<Fault>,
}

/// A file of this base name.
pub fn made(rules: &[&'static str], name: &'static str, file: Vec<u8>) -> Made {
    Made {
        rules: rules.to_vec(),
        name,
        file,
        unpacking: Tally::default(),
    }
}

/// A dump without a flaw: whole names, aligned records, an end of the lines, CLOSE.
pub struct CleanDump {
    pub dump: DumpWriter,
    time: u64,
    index: u64,
}

/// What an entry of DEBUG_INFO says: how far behind the start of the function, which line, of which file.
type Line = (i64, u32, &'static [u8]);

const FILE: &[u8] = b"/src/a.c";
const SIZE: u64 = 64;
/// The lines of a function of [`SIZE`] bytes.
const LINES: [Line; 3] = [(0, 1, FILE), (16, 2, FILE), (SIZE as i64, 0, b"")];
/// A time.
const START: u64 = 100_000_000_000_000;
const DAY: u64 = 86_400_000_000_000;
const CLOSE: u32 = 3;
/// samply's.
const NUMBER_OF_LISTS: u32 = 827_346_259;
const NUMBER_OF_POSITIONS: u32 = 827_346_260;

impl CleanDump {
    fn new(order: ByteOrder) -> Self {
        Self {
            dump: DumpWriter::new(order, X86_64, 77),
            time: START,
            index: 0,
        }
    }

    fn next_time(&mut self) -> u64 {
        self.time += 1000;
        self.time
    }

    /// A record, with padding.
    fn record(&mut self, kind: u32, content: &[u8]) {
        let mut content = content.to_vec();
        content.resize(content.len().next_multiple_of(8), 0);
        let time = self.next_time();
        self.dump.record(kind, time, &content);
    }

    fn lines(&mut self, of: u64, start: u64, lines: &[Line]) {
        self.lines_counted(of, start, lines, lines.len() as u64);
    }

    fn lines_counted(&mut self, of: u64, start: u64, lines: &[Line], count: u64) {
        let order = self.dump.order;
        let mut content = Vec::new();
        order.put_u64(&mut content, of);
        order.put_u64(&mut content, count);
        for (offset, line, file) in lines {
            order.put_u64(&mut content, start.wrapping_add_signed(*offset));
            order.put_u32(&mut content, *line);
            order.put_u32(&mut content, 0);
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

    /// A function with its lines.
    pub fn function(&mut self, start: u64) {
        self.function_with(start, &LINES);
    }

    fn function_with(&mut self, start: u64, lines: &[Line]) {
        self.lines(start, start, lines);
        self.load(start, b"fn_0001", SIZE);
    }

    pub fn moved(&mut self, from: u64, to: u64, size: u64, index: u64) {
        let time = self.next_time();
        self.dump.moved(time, from, to, size, index);
    }

    fn unwinding(&mut self, tables: &[u8], header: &[u8], mapped: u64) {
        let order = self.dump.order;
        let mut content = Vec::new();
        for word in [(tables.len() + header.len()) as u64, header.len() as u64, mapped] {
            order.put_u64(&mut content, word);
        }
        content.extend_from_slice(tables);
        content.extend_from_slice(header);
        self.record(4, &content);
    }

    /// Some functions, and the end.
    pub fn finish(mut self) -> Vec<u8> {
        for at in 1..4 {
            self.function(0x9_0000 + at * 0x1000);
        }
        self.record(CLOSE, &[]);
        self.dump.bytes
    }
}

/// Two functions and what may follow.
pub fn clean_dump(order: ByteOrder) -> CleanDump {
    let mut clean = CleanDump::new(order);
    clean.function(0x1000);
    clean.function(0x2000);
    clean
}

const ORDER: ByteOrder = ByteOrder::Little;
const NAME: &str = "jit-77.dump";

/// A dump that something is added to.
fn with(rules: &[&'static str], add: impl FnOnce(&mut CleanDump)) -> Made {
    let mut clean = clean_dump(ORDER);
    add(&mut clean);
    made(rules, NAME, clean.finish())
}

/// A dump in whose bytes something is changed.
fn changed(rules: &[&'static str], change: impl FnOnce(&mut Vec<u8>)) -> Made {
    let mut file = clean_dump(ORDER).finish();
    change(&mut file);
    made(rules, NAME, file)
}

/// The same of one whose records begin at this time.
fn with_start(rules: &[&'static str], start: u64, change: impl FnOnce(&mut Vec<u8>)) -> Made {
    let mut clean = CleanDump::new(ORDER);
    clean.time = start;
    let mut file = clean.finish();
    change(&mut file);
    made(rules, NAME, file)
}

pub fn set_u64(file: &mut [u8], at: usize, value: u64) {
    file[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// A dump with all kinds of records.
pub fn rich_dump() -> Vec<u8> {
    let mut clean = clean_dump(ORDER);
    let (frame, header) = tables(SIZE, 48);
    clean.unwinding(&frame, &header, 0);
    clean.record(NUMBER_OF_POSITIONS, &positions(3));
    clean.function(0x3000);
    clean.moved(0x3000, 0x4000, SIZE, 2);
    clean.record(NUMBER_OF_POSITIONS, b"Baseline\0");
    clean.load(0x5000, "grÃ¶\x1b".as_bytes(), 7);
    clean.finish()
}

/// All that can be wrong with dumps and is not wrong with any recording, and more.
pub fn dumps() -> Vec<Made> {
    let mut all = vec![
        made(&["JD001"], NAME, Vec::new()),
        made(&["JD002"], NAME, clean_dump(ORDER).finish()[..39].to_vec()),
        made(&["JD002"], NAME, b"DT".to_vec()),
        made(&["JD013"], "jit-1-77.dump", clean_dump(ORDER).finish()),
        made(&["JD013"], "jit-.dump", clean_dump(ORDER).finish()),
        made(&[], "artifact-12", clean_dump(ORDER).finish()),
        made(&["JD014"], "jit-78.dump", clean_dump(ORDER).finish()),
    ];
    all.extend(headers());
    all.extend(records());
    all.extend(loads());
    all.extend(lines());
    all.extend(extensions());
    all.extend(unwinding());
    all
}

fn headers() -> Vec<Made> {
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
        // A second and more behind; in microseconds, milliseconds and seconds; on the calendar, in seconds.
        changed(&["JD010"], |file| set_u64(file, 24, START + 2_000_000_000)),
        changed(&["JD010"], |file| {
            set_u64(file, 24, (START - 1_000_000_000) / 1000)
        }),
        changed(&["JD010"], |file| set_u64(file, 24, START / 1_000_000)),
        changed(&["JD010"], |file| set_u64(file, 24, START / 1_000_000_000)),
        changed(&["JD010"], |file| set_u64(file, 24, 1_760_000_000)),
        with_start(&["JD010"], 25 * DAY, |file| {
            set_u64(file, 24, 1_760_000_000_000_000)
        }),
        // The first function was compiled a little later, two hours, or nearly all the time that the machine runs.
        changed(&[], |file| set_u64(file, 24, START - 2_000_000_000)),
        changed(&[], |file| set_u64(file, 24, START - 7_200_000_000_000)),
        changed(&[], |file| set_u64(file, 24, START / 50)),
        with_start(&[], 25 * DAY, |file| {
            set_u64(file, 24, 25 * DAY - 7_200_000_000_000)
        }),
        changed(&["JD011"], set_u32(20, 0)),
        made(&["JD015"], NAME, {
            let mut clean = CleanDump::new(ORDER);
            clean.record(CLOSE, &[]);
            clean.dump.bytes
        }),
    ]
}

fn records() -> Vec<Made> {
    vec![
        changed(&["JD020"], |file| {
            let at = file.len() - 16;
            file.splice(at..at, [0xee; 64]);
        }),
        // The first LOAD record takes in the records behind it.
        changed(&["JD021"], |file| {
            let load = 40 + 16 + 16 + 25 + 25 + 17 + 5;
            assert_eq!(file[load..load + 4], [0; 4]);
            file[load + 4] += 64;
            let more = u32::from_le_bytes(file[load + 4..load + 8].try_into().unwrap());
            let whole = more - 64 + 104 + 128;
            file[load + 4..load + 8].copy_from_slice(&whole.to_le_bytes());
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
        with(&["JD060"], |clean| clean.moved(0x7000, 0x8000, SIZE, 70)),
        with(&["JD061"], |clean| {
            clean.moved(0x2000, 0x3000, SIZE + 1, 1);
            clean.moved(0x3000, 0x4000, SIZE, 70);
        }),
        // The number of another function; a place where nothing is, at first or any more.
        with(&["JD061"], |clean| clean.moved(0x1000, 0x3000, SIZE, 1)),
        with(&["JD061"], |clean| clean.moved(0x7000, 0x3000, SIZE, 1)),
        with(&["JD061"], |clean| {
            clean.moved(0x2000, 0x3000, SIZE, 1);
            clean.moved(0x2000, 0x4000, SIZE, 1);
        }),
        // Number and place of another process.
        with(&["JD061"], |clean| {
            clean.dump.pid = 78;
            clean.moved(0x2000, 0x3000, SIZE, 1);
            clean.dump.pid = 77;
        }),
        // Told twice.
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

fn loads() -> Vec<Made> {
    let named = |rules: &[&'static str], name: &[u8]| {
        with(rules, |clean| {
            let size = 64 - (name.len() as u64 + 1) % 8;
            clean.load(0x3000, name, size);
        })
    };
    // Where the fields of the last record stand, a LOAD record of a name of 7 bytes.
    let field = |clean: &mut CleanDump, behind: usize, value: u64| {
        clean.load(0x3000, b"fn_0001", SIZE);
        let at = clean.dump.bytes.len() - 128 + 16 + behind;
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

fn lines() -> Vec<Made> {
    const END: Line = LINES[2];
    let of = |rules: &[&'static str], lines: &[Line]| with(rules, |clean| clean.function_with(0x3000, lines));
    vec![
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

/// The content of a DEBUG_INFO2 record of the function at 0x3000, whose one position is inlined so often.
fn positions(depth: u32) -> Vec<u8> {
    let mut content = Vec::new();
    for word in [0x3000, 1, u64::from(depth) + 1, 2] {
        ORDER.put_u64(&mut content, word);
    }
    for word in [0, depth] {
        ORDER.put_u32(&mut content, word);
    }
    for position in 0..=depth {
        let caller = position.wrapping_sub(1);
        for word in [caller, 0, 1, 1, 1, position + 1, 1] {
            ORDER.put_u32(&mut content, word);
        }
    }
    content.extend(b"f\0/src/a.c\0");
    content
}

fn extensions() -> Vec<Made> {
    let record = |rules: &[&'static str], kind: u32, content: &[u8]| {
        with(rules, |clean| {
            clean.record(kind, content);
            clean.function(0x3000);
        })
    };
    vec![
        record(&["JD084", "JD086"], NUMBER_OF_POSITIONS, &positions(100)),
        record(&["JD086"], NUMBER_OF_POSITIONS, &positions(3)),
        record(&["JD086", "JD087"], NUMBER_OF_POSITIONS, &[0xff; 16]),
        record(&["JD086", "JD088"], NUMBER_OF_LISTS, &positions(3)),
        with(&["JD086", "JD089"], |clean| {
            clean.record(NUMBER_OF_POSITIONS, b"Baseline\0");
            clean.record(NUMBER_OF_POSITIONS, b"Optimizing\0");
            clean.function(0x3000);
        }),
    ]
}

fn unwinding() -> Vec<Made> {
    let (frame, header) = tables(SIZE, 48);
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
            clean.unwinding(&header, &frame, 0);
            // What was given first is the header.
            let at = clean.dump.bytes.len() - (frame.len() + header.len()).next_multiple_of(8) - 16;
            set_u64(&mut clean.dump.bytes, at, header.len() as u64);
            clean.function(0x3000);
        }),
        with(&["JD092", "JD094", "JD095"], |clean| {
            let absolute = [&[1, 0x0c, 0xff, 0xff][..], &0x7000_u64.to_le_bytes()].concat();
            clean.unwinding(&absolute, &frame, 0);
            let at = clean.dump.bytes.len() - (frame.len() + absolute.len()).next_multiple_of(8) - 16;
            set_u64(&mut clean.dump.bytes, at, absolute.len() as u64);
            clean.load(0x3000, b"fn_0001", SIZE);
            clean.load(0x4000, b"fn_0001", SIZE);
            // All functions behind it have it, unless there is another.
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
        // What was moved has a map without them.
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
    ]
}
