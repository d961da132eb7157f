//! Files with colliding keys, for each hash table whose keys come from a file.
//!
//! The keys collide in rustc-hash: in a table of any size, all have the same slot. For any hash without a random
//! seed, a file can contain such keys.

use std::fs;
use std::path::Path;

use jitinject::bytes::ByteOrder;
use jitinject::runtime::mono::event::{Kind, Method};
use jitinject::units::Address;

use super::cases::{CODE, LAST, PID};
use crate::support::dump::DumpWriter;
use crate::support::mono_log::{self, Bases};
use crate::support::profile::{ProfileWriter, field};
use crate::support::{effort, said, scratch, tools};

const DEBUG_INFO: u32 = 2;

/// Number of keys in a file. Quadratic code would take seconds.
const COUNT: u64 = 40_000;

/// A generator of distinct keys.
pub struct Keys {
    /// Numbers are multiples of this factor, modulo 2^64.
    factor: u64,
    /// The last 8 bytes of names.
    ending: [u8; 8],
}

/// Keys that do not collide.
const SCATTERED: Keys = Keys {
    factor: 0x9e37_79b9_7f4a_7c15,
    ending: *b"ordinary",
};

/// Keys that collide in rustc-hash. It multiplies numbers by 0xf135_7aea_2e62_a9c5, the inverse of `factor`, so that
/// the products are 1, 2, 3 and so on, and uses only their upper bits. In names, it combines the last 8 bytes with a
/// constant by exclusive or, and multiplies the first 8 bytes by the result, which is 0 for this `ending`.
pub const COLLIDING: Keys = Keys {
    factor: 0x7814_94a5_5daa_ed0d,
    ending: 0x1319_8a2e_0370_7344u64.to_le_bytes(),
};

impl Keys {
    /// Returns numbers of 64 bits.
    pub fn numbers(&self, count: u64) -> impl Iterator<Item = u64> {
        (1..=count).map(|at| self.factor.wrapping_mul(at))
    }

    /// Returns names of 16 bytes.
    pub fn names(&self, count: u64) -> impl Iterator<Item = Vec<u8>> {
        let digits = |at: u64| (0..8).map(move |digit| b'a' + (at >> (4 * digit) & 15) as u8);
        (0..count).map(move |at| digits(at).chain(self.ending).collect())
    }
}

/// A kind of file with keys.
struct Flood {
    name: &'static str,
    content: Content,
}

enum Content {
    /// A jitdump, and a profile that maps it.
    Dump(fn(&mut DumpWriter, &mut ProfileWriter, &Keys)),
    MonoLog(fn(&mut mono_log::Writer, &Keys)),
}

const FLOODS: &[Flood] = &[
    Flood {
        name: "ids of events",
        content: Content::Dump(|_, profile, keys| {
            profile.sample_type |= field::IDENTIFIER;
            profile.ids = keys.numbers(COUNT).collect();
            profile.is_one_event = true;
        }),
    },
    Flood {
        name: "addresses of lines that wait",
        content: Content::Dump(|dump, _, keys| lines_that_wait(dump, COUNT, keys)),
    },
    Flood {
        name: "addresses and indexes of functions, one of which is moved",
        content: Content::Dump(|dump, _, keys| functions_and_a_move(dump, COUNT, keys)),
    },
    Flood {
        name: "moves",
        content: Content::Dump(|dump, _, keys| {
            dump.load(900, CODE, 1, b"f", &[0x90; 8]);
            let mut from = CODE;
            for to in keys.numbers(COUNT) {
                dump.moved(1000, from, to, 8, 1);
                from = to;
            }
        }),
    },
    Flood {
        name: "names of functions",
        content: Content::Dump(|dump, profile, keys| {
            for (at, name) in (0..).zip(keys.names(COUNT)) {
                dump.load(1000, CODE + at * 8, at, &name, &[0x90; 8]);
                profile.sample(PID, LAST, &[CODE + at * 8], None);
            }
        }),
    },
    Flood {
        name: "methods of Mono",
        content: Content::MonoLog(|log, keys| {
            log.buffer(BASES);
            for (at, method) in (0..).zip(keys.numbers(COUNT)) {
                let (method, code) = (Method(method), Address(CODE + at * 8));
                let jit = Kind::Jit {
                    method,
                    code,
                    size: 8,
                    name: b"A:f ()",
                };
                for kind in [jit, Kind::Enter(method), Kind::Leave(method)] {
                    assert!(log.kind(1000 + at, &kind));
                }
            }
        }),
    },
    Flood {
        name: "threads of Mono",
        content: Content::MonoLog(|log, keys| {
            for (at, thread) in (0..).zip(keys.numbers(COUNT)) {
                log.buffer(Bases { thread, ..BASES });
                assert!(log.kind(1000 + at, &Kind::Enter(Method(1))));
            }
        }),
    },
];

const BASES: Bases = Bases {
    time: 1000,
    pointer: CODE,
    object: 0,
    thread: 7,
    method: 0,
};

/// Writes DEBUG_INFO records without LOAD records, and one function.
pub fn lines_that_wait(dump: &mut DumpWriter, count: u64, keys: &Keys) {
    for address in keys.numbers(count) {
        dump.record(DEBUG_INFO, 1000, &[address.to_le_bytes(), [0; 8]].concat());
    }
    dump.load(1000, CODE, 0, b"f", &[0x90; 8]);
}

/// Writes functions at the keys, and one that moves.
pub fn functions_and_a_move(dump: &mut DumpWriter, count: u64, keys: &Keys) {
    for address in keys.numbers(count) {
        dump.load(1000, address, address, b"f", &[0x90; 8]);
    }
    dump.load(1001, CODE, 0, b"f", &[0x90; 8]);
    dump.moved(1002, CODE, CODE + 8, 8, 0);
}

impl Flood {
    /// Writes the files into a folder; returns the commands to run on them.
    fn write(&self, folder: &Path, keys: &Keys) -> Vec<Vec<String>> {
        let path = |name: &str| tools::text(&folder.join(name)).to_owned();
        let (input, file) = match self.content {
            Content::Dump(make) => {
                let dump_path = path(&format!("jit-{PID}.dump"));
                let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
                let mut profile = ProfileWriter::new(ByteOrder::Little);
                make(&mut dump, &mut profile, keys);
                profile.mmap2(PID, 0x6000_0000, 4096, 0, &dump_path, 500);
                profile.sample(PID, LAST, &[CODE], None);
                fs::write(&dump_path, &dump.bytes).unwrap();
                fs::write(path("perf.data"), profile.finish()).unwrap();
                (path("perf.data"), dump_path)
            }
            Content::MonoLog(make) => {
                let mut log = mono_log::Writer::new(17);
                make(&mut log, keys);
                fs::write(path("log.mlpd"), log.finish()).unwrap();
                (path("log.mlpd"), path("log.mlpd"))
            }
        };
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        vec![
            texts(&[
                "-i",
                &input,
                "-o",
                &path("out.data"),
                "--summary",
                &path("summary.json"),
            ]),
            texts(&["timeline", "-i", &input, "-o", &path("page.html")]),
            texts(&["check", &file]),
            texts(&["dump", &file]),
        ]
    }

    /// Runs the commands; returns them with their CPU times in seconds.
    fn costs(&self, keys: &Keys) -> Vec<(Vec<String>, f64)> {
        const LIMITS: &str = "ulimit -t 20; ulimit -v 12000000";
        const SIGKILL_OF_A_CHILD: i32 = 137;
        let folder = scratch();
        let commands = self.write(folder.path(), keys).into_iter();
        let costs = commands.map(|command| {
            let (ran, seconds) = effort::of_jitinject(LIMITS, &command);
            let has_errors = command.first().is_some_and(|first| first == "check");
            match ran.status.code() {
                Some(0) => (command, seconds),
                Some(1) if has_errors => (command, seconds),
                Some(SIGKILL_OF_A_CHILD) => (command, f64::INFINITY),
                _ => panic!("{}: {command:?}: {}", self.name, said(&ran)),
            }
        });
        costs.collect()
    }
}

#[test]
fn keys_that_collide_cost_no_more_than_others() {
    /// 3, and 0.5 for errors of measurement.
    const AT_MOST: f64 = 3.5;
    /// Shorter times cannot be measured.
    const LEAST: f64 = 0.1;
    let mut slow = Vec::new();
    for flood in FLOODS {
        let costs = flood.costs(&COLLIDING).into_iter().zip(flood.costs(&SCATTERED));
        for ((command, seconds), (_, usual)) in costs {
            println!(
                "{}: {seconds:.2} s, otherwise {usual:.2} s: {command:?}",
                flood.name
            );
            if seconds > usual.max(LEAST) * AT_MOST {
                slow.push((flood.name, command, seconds, usual));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}
