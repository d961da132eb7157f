//! Files with colliding keys, for each hash table whose keys come from a file.
//!
//! The keys collide in rustc-hash: in a table of any size, all have the same slot. For any hash without a random
//! seed, a file can contain such keys.

use std::fs;
use std::path::Path;

use jitdump::{Address, ByteOrder};
use jitinject::internals::traces::mono::format::event::{LogEventKind, Method};

use crate::support::dump::DumpWriter;
use crate::support::hostile::cases::{CODE, LAST, PID};
use crate::support::hostile::keys::{COLLIDING, Keys, SCATTERED, functions_and_a_move, lines_that_wait};
use crate::support::mono_log::{self, Bases};
use crate::support::profile::{ProfileWriter, field};
use crate::support::{run, tools};

/// Number of keys in a file.
const COUNT: u64 = 4000;

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
                let jit = LogEventKind::Jit {
                    method,
                    code,
                    size: 8,
                    name: b"A:f ()",
                };
                for kind in [jit, LogEventKind::Enter(method), LogEventKind::Leave(method)] {
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
                assert!(log.kind(1000 + at, &LogEventKind::Enter(Method(1))));
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

    /// Runs the commands; returns them with the blocks that they passed.
    fn work(&self, keys: &Keys) -> Vec<(Vec<String>, u64)> {
        let folder = tempfile::tempdir().unwrap();
        let commands = self.write(folder.path(), keys).into_iter();
        let work = commands.map(|command| {
            let work = run(&command);
            let has_errors = command.first().is_some_and(|first| first == "check");
            match work.output.status.code() {
                Some(0) => (command, work.blocks),
                Some(1) if has_errors => (command, work.blocks),
                _ => panic!("{}: {command:?}: {}", self.name, work.said()),
            }
        });
        work.collect()
    }
}

#[test]
fn keys_that_collide_make_no_more_work_than_others() {
    let mut slow = Vec::new();
    for flood in FLOODS {
        let work = flood.work(&COLLIDING).into_iter().zip(flood.work(&SCATTERED));
        for ((command, blocks), (_, usual)) in work {
            println!("{}: {blocks} blocks, otherwise {usual}: {command:?}", flood.name);
            if blocks > 2 * usual {
                slow.push((flood.name, command, blocks, usual));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}
