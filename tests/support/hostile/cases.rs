//! Pairs of a jitdump and a profile that are designed to be slow, and ordinary ones to compare with.

use super::keys::{self, COLLIDING};
use crate::support::dump::DumpWriter;
use crate::support::profile::{ProfileWriter, field};

pub const PID: u32 = 7;
pub const CODE: u64 = 0x4000_0000;
/// End of the profile, in nanoseconds.
pub const LAST: u64 = 1 << 62;

/// Fills the files of a case, with about 150 times `count` bytes. `path` is that of the jitdump.
type Make = fn(count: u64, &mut DumpWriter, &mut ProfileWriter, path: &str);

/// A case: a jitdump and a profile.
pub struct Case {
    pub name: &'static str,
    /// Additional options.
    pub options: &'static [&'static str],
    /// Whether small files make more work for each byte, up to a limit.
    pub has_limit: bool,
    pub make: Make,
}

const fn case(name: &'static str, make: Make) -> Case {
    Case {
        name,
        options: &[],
        has_limit: false,
        make,
    }
}

impl Case {
    const fn with(mut self, options: &'static [&'static str]) -> Self {
        self.options = options;
        self
    }

    const fn with_limit(mut self) -> Self {
        self.has_limit = true;
        self
    }
}

const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const EMBEDDED_SOURCE_FILE: u32 = 827_346_261;
const CLOSE: u32 = 3;
const UNKNOWN: u32 = 77;

pub const CASES: &[Case] = &[
    case("ordinary", |count, dump, profile, _| {
        for at in 0..count {
            dump.load(
                1000 + at,
                CODE + at * 64,
                at,
                format!("fn_{at}").as_bytes(),
                &[0x90; 48],
            );
            profile.sample(PID, 1000 + at, &[CODE + at % 16 * 64 + 4], None);
        }
    }),
    case("ordinary, far apart", |count, dump, profile, _| {
        for at in 0..count {
            dump.load(1000 + at, CODE + at * 0x4000, at, b"f", &[0x90; 48]);
            if at % 64 == 0 {
                profile.sample(PID, 1000 + at, &[CODE + at * 0x4000 + 4], None);
            }
        }
    }),
    case("functions at one address", |count, dump, profile, _| {
        for at in 0..count {
            dump.load(1000 + at, CODE, at, b"f", &[0x90; 48]);
            if at % 64 == 0 {
                profile.sample(PID, 1000 + at, &[CODE + 4], None);
            }
        }
    }),
    case(
        "functions that overlap the next ones",
        |count, dump, profile, _| {
            for at in 0..count {
                dump.load(1000 + at, CODE + at, at, b"f", &[0x90; 48]);
            }
            profile.sample(PID, 1000 + count, &[CODE + count], None);
        },
    ),
    case("smallest records", |count, dump, _, _| {
        for at in 0..4 * count {
            dump.record(if at % 2 == 0 { UNKNOWN } else { CLOSE }, 1000 + at, b"");
        }
    }),
    case("functions without code", |count, dump, _, _| {
        for at in 0..count {
            dump.load(1000 + at, CODE + at, at, b"", b"");
        }
    }),
    case("lines that wait for ever", |count, dump, _, _| {
        for at in 0..2 * count {
            dump.record(DEBUG_INFO, 1000, &[at.to_le_bytes(), [0; 8]].concat());
        }
        for at in 0..count {
            dump.load(1000 + at, CODE + at * 8, at, b"", &[0x90]);
            dump.record(DEBUG_INFO, 1000, &[(1 << 40 | at).to_le_bytes(), [0; 8]].concat());
        }
    }),
    case("names that are all the same", |count, dump, _, _| {
        let name = [b'n'; 1000];
        for at in 0..count / 8 {
            dump.load(1000 + at, CODE + at * 64, 0, &name, &[0x90; 48]);
        }
    }),
    case("zeros", |count, dump, _, _| {
        dump.bytes.resize(100 * count as usize, 0)
    }),
    case("zeros and then something", |count, dump, _, _| {
        dump.bytes.resize(100 * count as usize, 0);
        dump.bytes.extend_from_slice(b"junk");
    }),
    case("ones", |count, dump, _, _| {
        dump.bytes.resize(100 * count as usize, 0xff)
    }),
    case("a record that may start at every byte", |count, dump, _, _| {
        for _ in 0..50 * count {
            dump.bytes.extend_from_slice(&[16, 0]);
        }
    }),
    case("records that are cut short", |count, dump, _, _| {
        for at in 0..2 * count {
            let start = dump.bytes.len();
            dump.record(MOVE, 1000 + at, &[0; 48]);
            dump.bytes.truncate(start + 30);
        }
    }),
    case("records that all reach to the end", |count, dump, _, _| {
        let start = dump.bytes.len();
        for at in 0..count {
            dump.load(1000 + at, CODE, at, b"", &[0x90; 7]);
        }
        let end = dump.bytes.len();
        for at in (start..end).step_by((end - start) / count as usize) {
            dump.bytes[at + 4..at + 8].copy_from_slice(&((end - at) as u32 - 5).to_le_bytes());
        }
    }),
    case("one function moved again and again", |count, dump, profile, _| {
        dump.load(900, CODE, 1, b"f", &[0x90; 64]);
        for at in 0..count {
            dump.moved(1000 + at, CODE + at % 2 * 4096, CODE + (at + 1) % 2 * 4096, 64, 1);
        }
        profile.sample(PID, 1000 + count, &[CODE + 4], None);
    }),
    case("forks, each of the one before", |count, dump, profile, _| {
        dump.load(900, CODE, 1, b"f", &[0x90; 64]);
        for at in 0..count as u32 {
            profile.fork(PID + at + 1, PID + at, 1000 + u64::from(at));
        }
        profile.sample(PID + count as u32, 1000 + count, &[CODE + 4], None);
    }),
    case("forks, all of one", |count, dump, profile, _| {
        dump.load(900, CODE, 1, b"f", &[0x90; 64]);
        for at in 0..count as u32 {
            profile.fork(PID + at + 1, PID, 1000 + u64::from(at));
            profile.mmap2(PID + at + 1, CODE, 4096, 0, "//anon", 1000 + u64::from(at));
        }
        profile.sample(PID + count as u32, 1000 + count, &[CODE + 4], None);
    }),
    case("maps over code", |count, dump, profile, _| {
        for at in 0..64 {
            dump.load(900 + at, CODE + at * 128, at, b"f", &[0x90; 64]);
        }
        for at in 0..count {
            profile.mmap2(PID, CODE, 64 * 128, 0, "//anon", 1000 + at);
            profile.sample(PID, 1000 + at, &[CODE + at % 64 * 128], None);
        }
    }),
    case("functions of a byte", |count, dump, profile, _| {
        for at in 0..2 * count {
            dump.load(1000 + at, CODE + at, at, b"", &[0x90]);
            if at % 16 == 0 {
                profile.sample(PID, 1000 + at, &[CODE + at], None);
            }
        }
    }),
    case("records that say they have a byte", |count, dump, _, _| {
        for at in 0..4 * count {
            let start = dump.bytes.len();
            dump.record((at % 5) as u32, 1000 + at, &[0; 16]);
            dump.bytes[start + 4] = 1;
        }
    }),
    case("one name that all share, written", |count, dump, profile, _| {
        let name = [b'n'; 1000];
        for at in 0..count / 8 {
            dump.load(1000 + at, CODE + at * 64, 0, &name, &[0x90; 48]);
            profile.sample(PID, 1000 + at, &[CODE + at * 64], None);
        }
    }),
    case("functions moved in a circle", |count, dump, profile, _| {
        for at in 0..1000 {
            dump.load(900, CODE + at * 64, at, b"f", &[0x90; 64]);
        }
        for at in 0..count {
            let (from, to) = (at % 1000, (at + 1) % 1000);
            dump.moved(1000 + at, CODE + from * 64, CODE + to * 64, 64, from);
        }
        profile.sample(PID, 1000 + count, &[CODE + 4], None);
    }),
    case("lines of one function", |count, dump, profile, _| {
        let lines: Vec<(u64, u32)> = (0..6 * count).map(|at| (CODE + at, at as u32 + 1)).collect();
        dump.lines(900, CODE, b"a.js", &lines);
        dump.load(1000, CODE, 1, b"f", &vec![0x90; 6 * count as usize]);
        profile.sample(PID, 2000, &[CODE + 4], None);
    }),
    case("lines of one function, from behind", |count, dump, profile, _| {
        let lines = (0..6 * count).rev().map(|at| (CODE + at, at as u32 % 7 + 1));
        dump.lines(900, CODE, b"a.js", &lines.collect::<Vec<_>>());
        dump.load(1000, CODE, 1, b"f", &vec![0x90; 6 * count as usize]);
        profile.sample(PID, 2000, &[CODE + 4], None);
    }),
    case("lines that all are of one byte", |count, dump, profile, _| {
        let lines: Vec<(u64, u32)> = (0..6 * count).map(|at| (CODE, at as u32)).collect();
        dump.lines(900, CODE, b"a.js", &lines);
        dump.load(1000, CODE, 1, b"f", &[0x90; 48]);
        profile.sample(PID, 2000, &[CODE + 4], None);
    }),
    case("lines of a new file each", |count, dump, profile, _| {
        let mut content = [CODE.to_le_bytes(), (3 * count).to_le_bytes()].concat();
        for at in 0..3 * count {
            content.extend_from_slice(&(CODE + at).to_le_bytes());
            content.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            content.extend_from_slice(format!("/{at}/{at}\0").as_bytes());
        }
        dump.record(DEBUG_INFO, 900, &content);
        dump.load(1000, CODE, 1, b"f", &vec![0x90; 3 * count as usize]);
        profile.sample(PID, 2000, &[CODE + 4], None);
    }),
    case("lines that share a long name", |count, dump, profile, _| {
        let mut content = [CODE.to_le_bytes(), (3 * count).to_le_bytes()].concat();
        for at in 0..3 * count {
            content.extend_from_slice(&(CODE + at).to_le_bytes());
            content.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            match at {
                0 => content.extend(vec![b'n'; 50 * count as usize]),
                // As the entry before.
                _ => content.push(0xff),
            }
            content.push(0);
        }
        dump.record(DEBUG_INFO, 900, &content);
        dump.load(1000, CODE, 1, b"f", &vec![0x90; 3 * count as usize]);
        profile.sample(PID, 2000, &[CODE + 4], None);
    }),
    case(
        "a source of zeros that all functions name",
        |count, dump, profile, _| {
            let content = [&b"/zeros\0"[..], &vec![0; 50 * count as usize]].concat();
            dump.record(EMBEDDED_SOURCE_FILE, 900, &content);
            for at in 0..count {
                let address = CODE + at * 16;
                dump.debug_info(900, address, b"/zeros", 1);
                dump.load(1000, address, at, b"f", &[0x90; 16]);
                profile.sample(PID, LAST, &[address + 4], None);
            }
        },
    ),
    case("calls as deep as they can be", |count, dump, profile, _| {
        inlined(dump, (count * 5) as u32, |at| at % 70, |at| (at / 70 * 4, 4));
        profile.sample(PID, 2000, &[CODE + 4], None);
    }),
    case("calls in pieces of their callers", |count, dump, profile, _| {
        // Each call splits the range of its caller.
        let size = (count * 5) as u32;
        inlined(
            dump,
            size,
            |at| u32::from(at > 0),
            move |at| match at {
                0 => (0, 4 * size),
                at => (at * 4, 2),
            },
        );
        profile.sample(PID, 2000, &[CODE + 4], None);
    }),
    case("one source file of all functions", |count, dump, profile, _| {
        sources(count, count as usize * 50, dump, profile);
    })
    .with(&["--dwarf", "5"]),
    case(
        "one source file of all functions, apart",
        |count, dump, profile, _| {
            sources(count, count as usize * 50, dump, profile);
        },
    )
    .with(&["--dwarf", "5", "--layout", "function"]),
    case("one huge entry for unwinding", |count, dump, profile, _| {
        let mut table = common(12);
        entry(&mut table, 0, count as usize * 50, CODE, 1 << 30);
        shared_table(dump, &table);
        for at in 0..count {
            dump.load(1000 + at, CODE + at * 8, at, b"f", &[0x90; 8]);
            profile.sample(PID, 1000 + at, &[CODE + at * 8], None);
        }
    }),
    case(
        "entries for unwinding under a function that moves",
        |count, dump, profile, _| {
            let entries = count;
            let mut table = common(12);
            for at in 0..entries {
                entry(&mut table, 0, 3, CODE + at, 1);
            }
            shared_table(dump, &table);
            dump.load(900, CODE, 1, b"f", &vec![0x90; entries as usize]);
            let mut from = CODE;
            for at in 0..count {
                let to = CODE + (1 + at % 16) * (64 << 20);
                dump.moved(1000 + at, from, to, entries, 1);
                profile.sample(PID, 1000 + at, &[to], None);
                from = to;
            }
        },
    ),
    case(
        "common parts for unwinding read again and again",
        |count, dump, profile, _| {
            let mut table = common(500);
            let second = table.len();
            table.extend(common(500));
            for at in 0..4 * count {
                entry(&mut table, (at % 2) as usize * second, 3, CODE + at * 8, 8);
            }
            shared_table(dump, &table);
            for at in 0..count / 2 {
                dump.load(1000 + at, CODE + at * 8, at, b"f", &[0x90; 8]);
                profile.sample(PID, 1000 + at, &[CODE + at * 8], None);
            }
        },
    ),
    case("no place for tables", |count, dump, profile, _| {
        let pages = (count / 2).min((4 << 30) / 0x2000);
        for at in 0..pages {
            profile.mmap2(PID, CODE + (1 << 28) + at * 0x2000, 0x1000, 0, "/lib/x.so", 600);
        }
        let mut table = common(12);
        entry(&mut table, 0, 3, CODE, 1 << 28);
        shared_table(dump, &table);
        for at in 0..count / 2 {
            dump.load(1000 + at, CODE + at % 16 * 64, at, b"f", &[0x90; 8]);
            if at % 32 == 0 {
                profile.sample(PID, 1000 + at, &[CODE + at % 16 * 64], None);
            }
        }
    }),
    case(
        "maps of one place, files and memory",
        |count, dump, profile, _| {
            dump.load(900, CODE, 1, b"f", &[0x90; 64]);
            for at in 0..count {
                let name = if at % 2 == 0 { "/usr/lib/x.so" } else { "//anon" };
                profile.mmap2(PID, CODE, 4096, 0, name, 1000 + at);
            }
        },
    ),
    case(
        "maps that change their kind over code",
        |count, dump, profile, _| {
            let functions = count / 2;
            for at in 0..functions {
                dump.load(900 + at, CODE + at * 0x4000, at, b"f", &[0x90; 64]);
                if at % 32 == 0 {
                    profile.sample(PID, 1000 + count, &[CODE + at * 0x4000], None);
                }
            }
            for at in 0..count / 2 {
                let name = if at % 2 == 0 {
                    "//anon"
                } else {
                    "/dev/zero (deleted)"
                };
                profile.mmap2(PID, CODE, functions * 0x4000, 0, name, 1000 + count + at);
            }
        },
    ),
    case("programs started again and again", |count, dump, profile, _| {
        dump.load(900, CODE, 1, b"f", &[0x90; 64]);
        for at in 0..2 * count {
            profile.comm(PID, "f", true, 1000 + at);
        }
    }),
    case(
        "programs and maps, by another clock",
        |count, dump, profile, _| {
            profile.clock = None;
            for at in 0..count / 2 {
                dump.load(1000 + at, CODE + at * 64, at, b"f", &[0x90; 48]);
                profile.comm(PID, "f", true, 1000 + at);
                profile.mmap2(PID, CODE, 1 << 30, 0, "//anon", 1000 + at);
            }
        },
    ),
    case(
        "processes that share a dump from the start",
        |count, dump, profile, path| {
            profile.sample(PID, 400, &[CODE], None);
            for at in 0..count / 2 {
                profile.mmap2(PID + at as u32, 0x6000_0000, 4096, 0, path, 0);
                dump.load(100 + at % 300, CODE + at * 64, at, b"f", &[0x90; 48]);
            }
        },
    )
    // The maximum number of loads is copied to the processes.
    .with_limit(),
    case(
        "processes that write to one dump",
        |count, dump, profile, path| {
            for at in 0..count / 2 {
                profile.mmap2(PID + at as u32, 0x6000_0000, 4096, 0, path, 600);
                dump.pid = PID + at as u32;
                dump.load(1000 + at, CODE + at * 64, at, b"f", &[0x90; 48]);
            }
        },
    ),
    case("ids of events that collide", |count, _, profile, path| {
        profile.records.clear();
        profile.sample_type |= field::IDENTIFIER;
        profile.ids = COLLIDING.numbers(10 * count).collect();
        profile.is_one_event = true;
        profile.mmap2(PID, 0x6000_0000, 4096, 0, path, 500);
    }),
    case("addresses of lines that collide", |count, dump, _, _| {
        keys::lines_that_wait(dump, 3 * count, &COLLIDING);
    }),
    case(
        "addresses of functions that collide, and a move",
        |count, dump, _, _| {
            keys::functions_and_a_move(dump, 2 * count, &COLLIDING);
        },
    ),
    case(
        "one function of V8 inlines those of other files",
        |count, dump, profile, _| {
            functions_of_v8(count, dump);
            profile.sample(PID, LAST, &[CODE + 4], None);
        },
    ),
];

/// Writes a function of `4 * count` bytes, and a DEBUG_INFO2 record in lists with `count` inlined calls. `depth` and
/// `range` return the depth and the only range of a call: offset and size.
fn inlined(dump: &mut DumpWriter, count: u32, depth: impl Fn(u32) -> u32, range: impl Fn(u32) -> (u32, u32)) {
    let mut words = vec![1, 4, 1, 4, 2, count, count + 1, 1];
    let name = u32::from_le_bytes(*b"f\0\0\0");
    words.extend([name, name]);
    words.extend([0, 0, 1, 1, 0].repeat(2));
    words.extend((0..count).flat_map(|at| [depth(at), 1, 1, 1, 1]));
    words.extend([0, 4 * count]);
    for at in 0..count {
        let (start, size) = range(at);
        words.extend([start, size]);
    }
    words.extend([0, 0, 1, 1]);
    let content: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    dump.record(827_346_259, 900, &content);
    dump.load(1000, CODE, 1, b"f", &vec![0x90; 4 * count as usize]);
}

/// Writes functions that share a source file, and its text of `size` bytes.
fn sources(count: u64, size: usize, dump: &mut DumpWriter, profile: &mut ProfileWriter) {
    dump.record(
        EMBEDDED_SOURCE_FILE,
        800,
        &[&b"a.js\0"[..], &vec![b'x'; size]].concat(),
    );
    for at in 0..count / 2 {
        dump.debug_info(1000 + at, CODE + at * 64, b"a.js", 1);
        dump.load(1000 + at, CODE + at * 64, at, b"f", &[0x90; 8]);
        if at % 32 == 0 {
            profile.sample(PID, 1000 + at, &[CODE + at * 64], None);
        }
    }
}

/// Writes `count` functions in files of their own, `2 * count` in pairs at equal lines, and an optimized function at `CODE` with
/// the lines of all.
fn functions_of_v8(count: u64, dump: &mut DumpWriter) {
    let line = |line: u64| (1000 + line) as u32;
    let path = |kind: char, at: u64| format!("/x/{kind}{at}.js").into_bytes();
    let other = CODE + 0x1000_0000;
    let mut number = 0;
    let mut baseline = |kind: char, at: u64, line: u32| {
        number += 1;
        let (address, file) = (other + 16 * number, path(kind, at));
        dump.positions(900, address, &file, &[(address, line)]);
        let name = [format!("JS:^{kind}{at} ").as_bytes(), &file, b":1:5"].concat();
        dump.load(900, address, number, &name, &[0x90; 16]);
    };
    baseline('a', 0, 1);
    for at in 0..count {
        baseline('g', at, line(at));
        baseline('h', at, line(count + at));
        baseline('k', at, line(count + at));
    }
    let rows: Vec<(u64, u32)> = (0..2 * count).map(|at| (CODE + at, line(at))).collect();
    dump.positions(1000, CODE, b"/x/a0.js", &rows);
    let code = vec![0x90; 2 * count as usize + 64];
    dump.load(1000, CODE, 0, b"JS:*a0 /x/a0.js:1:5", &code);
}

/// Returns a CIE for absolute addresses of 8 bytes, with `instructions` bytes of no-ops.
fn common(instructions: usize) -> Vec<u8> {
    let fields = [0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0];
    let mut out = ((fields.len() + instructions) as u32).to_le_bytes().to_vec();
    out.extend_from_slice(&fields);
    out.resize(out.len() + instructions, 0);
    out
}

/// Appends an FDE for the CIE at offset `common`, with `instructions` bytes of no-ops.
fn entry(table: &mut Vec<u8>, common: usize, instructions: usize, address: u64, size: u64) {
    let back = table.len() + 4 - common;
    table.extend_from_slice(&(4 + 16 + 1 + instructions as u32).to_le_bytes());
    table.extend_from_slice(&(back as u32).to_le_bytes());
    table.extend_from_slice(&address.to_le_bytes());
    table.extend_from_slice(&size.to_le_bytes());
    table.resize(table.len() + 1 + instructions, 0);
}

/// Appends an UNWINDING_INFO record for all later functions, as LLVM's ORC writes it.
fn shared_table(dump: &mut DumpWriter, table: &[u8]) {
    // version 1, an absolute address of 8 bytes, no index
    let mut header = vec![1, 0x04, 0xff, 0xff];
    header.extend_from_slice(&0x7000_0000_0000u64.to_le_bytes());
    let mut content = Vec::new();
    for word in [header.len() + table.len(), header.len(), 0] {
        content.extend_from_slice(&(word as u64).to_le_bytes());
    }
    content.extend_from_slice(&header);
    content.extend_from_slice(table);
    dump.record(4, 800, &content);
}
