//! Inputs in which one dimension grows: moves, addresses that are used again, executed programs, and so on.

use std::fs;
use std::path::Path;

use jitdump::ByteOrder;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::{ProfileWriter, field};
use crate::support::{run, tools};

const PID: u32 = 10;
const CODE: u64 = 0x7f00_0000_0000;

/// The files of an input.
struct Files {
    dump: DumpWriter,
    profile: ProfileWriter,
    /// Perf map.
    map: String,
}

/// An input with a dimension of any size.
struct Dimension {
    name: &'static str,
    /// Writes the files for a size.
    write: fn(&mut Files, u64),
    /// Size to start with.
    size: u64,
    options: &'static [&'static str],
    /// Maximum number of files of ten times that size.
    max_files: usize,
}

const DIMENSIONS: &[Dimension] = &[
    Dimension {
        name: "a function that moves to and fro",
        write: |files, size| moves(files, size, |at| at % 2 * 64),
        size: 2000,
        options: &[],
        max_files: 20,
    },
    Dimension {
        name: "a function that creeps",
        write: |files, size| moves(files, size, |at| at * 8),
        size: 2000,
        options: &[],
        max_files: 20,
    },
    Dimension {
        name: "a function with lines that moves",
        write: |files, size| {
            let lines: Vec<(u64, u32)> = (1..16).map(|line| (CODE + line * 4, line as u32)).collect();
            files.dump.lines(900, CODE, b"a.js", &lines);
            moves(files, size, |at| at * 64);
        },
        size: 2000,
        options: &[],
        max_files: 20,
    },
    Dimension {
        name: "an address that is used again",
        write: |files, size| {
            for at in 0..size {
                files.load(1000 + 10 * at, CODE, at);
                files.sample(1005 + 10 * at, CODE + 1);
            }
        },
        size: 2000,
        options: &[],
        max_files: 20,
    },
    Dimension {
        name: "functions with unknown frames between them",
        write: |files, size| {
            files.profile.mmap2(PID, CODE, 128 * size, 0, "//anon", 100);
            (0..size).for_each(|at| files.load(1000, CODE + 128 * at, at));
            (0..2 * size).for_each(|at| files.sample(2000 + at, CODE + 64 * at + 1));
        },
        size: 2000,
        options: &[],
        max_files: 20,
    },
    Dimension {
        name: "symbols of a perf map",
        write: |files, size| {
            files.profile.mmap2(PID, CODE, 64 * size, 0, "//anon", 100);
            for at in 0..size {
                files
                    .map
                    .push_str(&format!("{:x} 30 symbol_{at}\n", CODE + 64 * at));
                files.sample(2000 + at, CODE + 64 * at + 1);
            }
        },
        size: 2000,
        options: &[],
        max_files: 20,
    },
    Dimension {
        name: "programs that are executed",
        write: |files, size| {
            files.load(1000, CODE, 1);
            for at in 0..size {
                files.profile.comm(PID, "program", true, 2000 + 10 * at);
                let time = 2001 + 10 * at;
                files
                    .profile
                    .mmap2(PID, 0x40_0000, 0x1000, 0, "/bin/program", time);
                files.sample(2002 + 10 * at, 0x40_0100);
            }
        },
        size: 5000,
        options: &[],
        max_files: 0,
    },
    Dimension {
        name: "forks of a process with shared memory",
        write: |files, size| {
            files.load(1000, CODE, 1);
            (0..size).for_each(|at| {
                files
                    .profile
                    .shared_memory(PID, 2 * CODE + 0x2000 * at, 0x1000, 600)
            });
            (0..size).for_each(|at| files.profile.fork(1000 + at as u32, PID, 1001 + at));
            files.sample(1002 + size, CODE + 1);
        },
        // There are more copies of the memory than are made.
        size: 2000,
        options: &[],
        max_files: 20,
    },
    Dimension {
        name: "inlined calls that alternate",
        write: |files, size| {
            for at in 0..size {
                let start = CODE + 256 * at;
                files.dump.alternating_calls(900, start, 200);
                files.dump.load(1000, start, at, b"outer", &[0x90; 256]);
                files.sample(2000 + at, start + 1);
            }
        },
        // With fewer, buffers that are used again have not reached their size.
        size: 300,
        options: &[],
        max_files: 20,
    },
    Dimension {
        name: "stacks that all differ, with a summary",
        write: |files, size| {
            (0..500).for_each(|at| files.load(1000, CODE + 64 * at, at));
            let mut state = 1u64;
            for at in 0..size {
                let chain: Vec<u64> = (0..100)
                    .map(|_| {
                        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        CODE + 64 * ((state >> 33) % 500) + 1
                    })
                    .collect();
                files.profile.sample(PID, 2000 + at, &chain, None);
            }
        },
        size: 500,
        options: &["--summary", "summary.json"],
        max_files: 20,
    },
    Dimension {
        name: "events and threads, with a summary",
        write: |files, size| {
            files.profile.sample_type |= field::IDENTIFIER;
            for at in 0..size {
                files.profile.ids = vec![at + 1];
                files.profile.sample(4000 + at as u32, 2000 + at, &[CODE], None);
            }
            files.profile.ids = (1..=size).collect();
        },
        size: 500,
        options: &["--summary", "summary.json"],
        max_files: 0,
    },
    Dimension {
        name: "functions, all of them",
        write: |files, size| {
            (0..size).for_each(|at| files.load(1000, CODE + 64 * at, at));
            files.sample(2000, CODE + 1);
        },
        size: 2000,
        options: &["--all"],
        max_files: 20,
    },
    Dimension {
        name: "functions in images",
        write: |files, size| {
            for at in 0..size {
                files.load(1000, CODE + 4096 * at, at);
                files.sample(2000 + at, CODE + 4096 * at + 1);
            }
        },
        size: 2000,
        options: &["--layout", "image"],
        max_files: 20,
    },
];

/// A function at an offset for each time, with a sample each time.
fn moves(files: &mut Files, size: u64, offset: impl Fn(u64) -> u64) {
    files.load(1000, CODE, 1);
    for at in 0..size {
        let (from, to) = (CODE + offset(at), CODE + offset(at + 1));
        files.dump.moved(1010 + 10 * at, from, to, 64, 1);
        files.sample(1015 + 10 * at, to + 1);
    }
}

impl Files {
    fn new() -> Self {
        Self {
            dump: DumpWriter::new(ByteOrder::Little, X86_64, PID),
            profile: ProfileWriter::new(ByteOrder::Little),
            map: String::new(),
        }
    }

    fn load(&mut self, time: u64, address: u64, index: u64) {
        let name = format!("function_{index}");
        self.dump.load(time, address, index, name.as_bytes(), &[0x90; 64]);
    }

    fn sample(&mut self, time: u64, address: u64) {
        self.profile.sample(PID, time, &[address], None);
    }

    /// Writes the files to a folder. Returns their size in bytes.
    fn write(mut self, folder: &Path) -> u64 {
        let dump = folder.join(format!("jit-{PID}.dump"));
        if self.map.is_empty() {
            self.profile
                .mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&dump), 500);
            fs::write(&dump, &self.dump.bytes).unwrap();
        } else {
            fs::write(folder.join(format!("perf-{PID}.map")), &self.map).unwrap();
        }
        let profile = self.profile.finish();
        fs::write(folder.join("perf.data"), &profile).unwrap();
        (self.dump.bytes.len() + self.map.len() + profile.len()) as u64
    }
}

/// What a run made of an input.
struct Made {
    input: u64,
    /// Blocks passed, bytes of memory, bytes written.
    costs: [u64; 3],
    files: usize,
}

impl Dimension {
    fn run(&self, size: u64) -> Made {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new();
        (self.write)(&mut files, size);
        let input = files.write(folder.path());
        let output = folder.path().join("out");
        fs::create_dir(&output).unwrap();
        let options = self.options.iter().map(|&option| match option {
            "summary.json" => tools::text(&output.join(option)).to_owned(),
            option => option.to_owned(),
        });
        let (profile, written) = (folder.path().join("perf.data"), output.join("out.data"));
        let files = ["-i", tools::text(&profile), "-o", tools::text(&written)];
        let work = run(files.into_iter().map(str::to_owned).chain(options));
        assert!(work.output.status.success(), "{}: {}", self.name, work.said());
        let (bytes, count) = written_to(&output);
        Made {
            input,
            costs: [work.blocks, work.most_bytes, bytes],
            files: count,
        }
    }
}

/// Returns the number of bytes of all files in a folder without those in holes, and the number of objects.
fn written_to(folder: &Path) -> (u64, usize) {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut objects) = (0, 0);
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            let (inside, more) = written_to(&path);
            bytes += inside;
            objects += more;
        } else {
            bytes += metadata.len().min(metadata.blocks() * 512);
            objects += usize::from(path.extension().is_some_and(|extension| extension == "so"));
        }
    }
    (bytes, objects)
}

#[test]
fn work_memory_and_output_grow_as_the_input_does() {
    for dimension in DIMENSIONS {
        let [few, many] = [dimension.size, 10 * dimension.size].map(|size| dimension.run(size));
        let growth = many.input as f64 / few.input as f64;
        for (what, few, many) in ["blocks", "bytes of memory", "bytes written"]
            .into_iter()
            .zip(few.costs)
            .zip(many.costs)
            .map(|((what, few), many)| (what, few, many))
        {
            let exponent = (many as f64 / few as f64).log(growth);
            println!(
                "{}: {few} and {many} {what}, exponent {exponent:.2}",
                dimension.name
            );
            assert!(exponent <= 1.1, "{}: {what}, {exponent:.2}", dimension.name);
        }
        println!("{}: {} and {} files", dimension.name, few.files, many.files);
        assert!(
            many.files <= dimension.max_files,
            "{}: {} files",
            dimension.name,
            many.files
        );
    }
}
