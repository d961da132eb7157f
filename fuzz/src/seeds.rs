//! Creates the initial inputs of the targets from the recordings in `testdata/` and from generated files.
//! `seeds FOLDER [COPIES]` writes a directory for each target, with a number of damaged copies of each input.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use jitdump::debug_info::DebugInfo;
use jitdump::{ByteOrder, Dump, Machine};
use jitinject::internals::elf::dwarf::{Encoder, EncoderMemory, FunctionUnit, Settings, Version};
use jitinject::internals::perf::Profile;
use jitinject::internals::perf::compression::Compressor;
use jitinject::internals::traces::detect::is_packed;
use jitinject::internals::traces::mono::format::Log;
use jitinject::internals::traces::xray::format::{RecordKind, Trace, TraceMode};
use jitinject_fuzz::damage::damage;
use jitinject_fuzz::elf::{self, Section};
use jitinject_fuzz::generator::{self, Lines, Plan, Random, Runtimes, Stacks};
use jitinject_fuzz::lines::LAYOUTS;
use jitinject_fuzz::mono_log::{Bases, Writer};
use jitinject_fuzz::summaries::Program;
use jitinject_fuzz::xray_map::{Map, Relocations};
use jitinject_fuzz::xray_trace;

/// Maximum sizes of inputs in bytes; longer ones only take more time.
const PROFILE: usize = 8 << 10;
const DUMP: usize = 4 << 10;
const MAP: usize = 2 << 10;
const LOG: usize = 6 << 10;
const TRACE: usize = 4 << 10;
/// One in this many events of a log is used, because most are of the same kinds.
const EVERY: usize = 20;
/// Number of records that are used from each buffer of a trace.
const RECORDS: usize = 30;
/// Number of functions that are used from a dump.
const FUNCTIONS: usize = 12;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds = Seeds {
        folder: arguments.next().expect("seeds FOLDER [COPIES]").into(),
        copies: arguments
            .next()
            .map_or(0, |copies| copies.parse().expect("a number of copies")),
    };
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata");
    let mut files = Vec::new();
    collect(&recordings, &mut files);
    files.sort();
    for path in &files {
        seeds.of_file(path);
    }
    for (number, plan) in plans().iter().enumerate() {
        seeds.of_plan(number, plan);
    }
    seeds.of_maps();
    seeds.of_replies();
    seeds.of_elf_files();
    for run in 0..3 {
        let summary = Program::default().run(run).json();
        seeds.write("summary", &format!("run-{run}"), &summary);
    }
    let program = fs::read(recordings.join("xray-basic19/work")).unwrap();
    seeds.write("symbols", "program", &program);
    seeds.write("object", "all", &[0; 64]);
    seeds.write("object", "text", &[b'a'; 300]);
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files)
        } else {
            files.push(path)
        }
    }
}

/// Returns the parameters of small files with all features.
fn plans() -> Vec<Plan> {
    let small = Plan {
        functions: 5,
        samples: 8,
        places: 3,
        ..Plan::default()
    };
    let mut plans = vec![
        Plan {
            moves: true,
            has_trailer: false,
            ..small.clone()
        },
        Plan {
            stacks: Stacks::Unwound,
            samples: 6,
            two_events: true,
            ..small.clone()
        },
        Plan {
            endian: ByteOrder::Big,
            machine: 22,
            has_tables: true,
            features: vec![(2, Vec::new()), (6, b"\0\0\0\x08s390x\0\0\0".to_vec())],
            ..small.clone()
        },
        Plan {
            runtimes: Runtimes::Many,
            processes: 4,
            functions: 3,
            ..small.clone()
        },
    ];
    plans.extend(LAYOUTS.map(|layout| Plan {
        lines: Lines::Model(layout),
        has_tables: true,
        functions: 3,
        ..small.clone()
    }));
    plans
}

/// The output directory, with a subdirectory for each target.
struct Seeds {
    folder: PathBuf,
    /// Number of damaged copies of each input.
    copies: u64,
}

impl Seeds {
    fn write(&self, target: &str, name: &str, bytes: &[u8]) {
        let folder = self.folder.join(target);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), bytes).unwrap();
        for copy in 0..self.copies {
            let mut damaged = bytes.to_vec();
            damage(&mut damaged, &mut Random::new(copy));
            fs::write(folder.join(format!("{name}-damaged-{copy}")), damaged).unwrap();
        }
    }

    /// Writes inputs for the commands that print whole files, by file kind: without a filter, and with one.
    fn of_commands(&self, kind: u8, name: &str, bytes: &[u8]) {
        self.write("commands", name, &[&[kind, 4], bytes].concat());
        self.write("commands", &format!("{name}-name"), &[&[kind, 1], bytes].concat());
    }

    fn of_file(&self, path: &Path) {
        let bytes = fs::read(path).unwrap();
        let folder = path.parent().and_then(Path::file_name).unwrap();
        let file = path.file_name().unwrap();
        let name = format!("{}-{}", folder.to_string_lossy(), file.to_string_lossy());
        match path.extension().and_then(|extension| extension.to_str()) {
            // A script with its map.
            Some("js") => {
                let map = fs::read(path.with_extension("js.map")).unwrap_or_default();
                self.write("script", &name, &[&bytes, &[0][..], &map].concat());
            }
            Some("map") if file.to_string_lossy().ends_with(".js.map") => {}
            Some("map") => self.write("perf_map", &name, cut(&bytes, MAP)),
            Some("dump") => self.of_dump(&name, &bytes),
            Some("mlpd") => self.of_mono_log(&name, &bytes),
            Some("xray") => self.of_trace(&name, &bytes),
            _ if name.contains("perf.") => self.of_profile(&name, &bytes),
            _ => {}
        }
    }

    /// Writes a log in each version of the format; packed logs are written unchanged.
    fn of_mono_log(&self, name: &str, bytes: &[u8]) {
        if is_packed(bytes) {
            self.write("mono", name, &[&[1], cut(bytes, LOG)].concat());
            return;
        }
        let log = Log::parse(bytes).unwrap();
        self.of_commands(1, name, cut(bytes, LOG));
        self.write("mono", name, &[&[0], cut(bytes, LOG)].concat());
        for version in 1..=17 {
            let mut writer = Writer::new(version);
            for buffer in log.buffers() {
                writer.buffer(Bases {
                    time: buffer.time_base.0,
                    pointer: buffer.pointer_base(),
                    object: buffer.object_base(),
                    thread: buffer.thread.0,
                    method: buffer.method_base(),
                });
                for event in buffer.events().step_by(EVERY) {
                    writer.event(&event);
                }
            }
            let written = [&[0], cut(&writer.finish(), LOG)].concat();
            self.write("mono", &format!("{name}-{version}"), &written);
        }
    }

    /// Writes a trace in each version of the format, in both endiannesses.
    fn of_trace(&self, name: &str, bytes: &[u8]) {
        self.write("xray", name, &[&[0], cut(bytes, TRACE)].concat());
        self.of_commands(2, name, cut(bytes, TRACE));
        self.write(
            "xray",
            &format!("{name}-choices"),
            &[&[1], cut(bytes, TRACE)].concat(),
        );
        let Ok(trace) = Trace::parse(bytes) else {
            return;
        };
        let index = trace.index();
        for (mode, version) in xray_trace::VERSIONS {
            for endian in [ByteOrder::Little, ByteOrder::Big] {
                let mut writer = xray_trace::Writer::new(mode, version, endian, 1 << 11);
                for buffer in index.buffers() {
                    let all = trace.records(buffer).map(|it| xray_trace::Record {
                        tick: it.tick,
                        cpu: it.cpu,
                        kind: it.kind,
                    });
                    let is_event =
                        |kind| matches!(kind, RecordKind::Custom { .. } | RecordKind::Typed { .. });
                    let records = all.filter(|it| mode == TraceMode::Fdr || !is_event(it.kind));
                    let wall = buffer.wall.map_or(0, |wall| wall.0 / 1_000);
                    writer.buffer(&xray_trace::Buffer {
                        process: buffer.process.unwrap_or(1),
                        thread: buffer.thread,
                        wall: (wall / 1_000_000, (wall % 1_000_000) as u32),
                        records: records.take(RECORDS).collect(),
                    });
                }
                let written = [&[0], cut(&writer.finish(), TRACE)].concat();
                let name = format!("{name}-{mode:?}-{version}-{endian:?}");
                self.write("xray", &name, &written);
            }
        }
    }

    /// Writes XRay instrumentation maps.
    fn of_maps(&self) {
        for (machine, is_64, endian) in [
            (62, true, ByteOrder::Little),
            (22, true, ByteOrder::Big),
            (40, false, ByteOrder::Little),
        ] {
            for version in 0..=2 {
                let map = Map {
                    is_64,
                    endian,
                    machine,
                    version,
                    relocations: Relocations::Beside,
                    functions: vec![(0x1000, vec![0, 1]), (0x1100, vec![3, 4, 5, 2])],
                    build_id: vec![7; 20],
                };
                let name = format!("map-{machine}-{version}");
                self.write("xray", &name, &[vec![2], map.write()].concat());
            }
        }
    }

    /// Writes what processes show and answer, and a list of sources.
    fn of_replies(&self) {
        let maps = "7f00-7f01 r-xp 00000000 08:01 77   /tmp/with space/jit-5.dump\n\
            7f02-7f03 r-xp 00000000 08:01 78  /tmp/jit-6.dump (deleted)\n7f04-7f05 rw-p 00000000 00:00 0 \n";
        self.write("replies", "maps", maps.as_bytes());
        let header = |size: u16, kind: u8| {
            [&b"DOTNET_IPC_V1\0"[..], &size.to_le_bytes(), &[0xff, kind, 0, 0]].concat()
        };
        self.write("replies", "accepted", &[header(24, 0), vec![0; 4]].concat());
        self.write(
            "replies",
            "refused",
            &[header(24, 0xff), vec![0x85, 0x13, 0x13, 0x80]].concat(),
        );
        let list = "# sha256sum -c\n# /home/me/a.js\n0123abcd  0011223344556677/a.js\n\
            # ../b.js\n0123abcd  ../b.js\n";
        self.write("source_list", "list", list.as_bytes());
        self.write("source_list", "sources", b"\x05\0/a.jsfunction f() {}");
    }

    /// Writes executables with unwinding tables, and core files.
    fn of_elf_files(&self) {
        // A common part and an entry for 0x100 bytes at 0x1000: the stack grows by 8 after 4 bytes.
        let mut tables = vec![20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        tables.extend([4, 0, 8, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0, 0, 0]);
        tables.extend([28, 0, 0, 0, 0, 0, 0, 0]);
        tables.extend([0x1000u64, 0x100].iter().flat_map(|word| word.to_le_bytes()));
        tables.extend([0x44, 0x0e, 16, 0, 0, 0, 0, 0]);
        self.write("elf_frames", "debug", &elf_of(".debug_frame", false, &tables));
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&tables).unwrap();
        let zstd = zstd::bulk::compress(&tables, 1).unwrap();
        for (format, bytes) in [(1, zlib.finish().unwrap()), (2, zstd)] {
            let compressed = elf::compressed(format, tables.len() as u64, &bytes);
            let file = elf_of(".debug_frame", true, &compressed);
            self.write("elf_frames", &format!("compressed-{format}"), &file);
        }
        let core = elf::file(elf::CORE, &[]);
        let wanted = [&0x1010u64.to_le_bytes()[..], &[16, 0]].concat();
        self.write("core_file", "core", &[wanted, core].concat());
    }

    fn of_plan(&self, number: usize, plan: &Plan) {
        let folder = tempfile::tempdir().unwrap();
        let path = generator::write(folder.path(), plan, |_| {});
        let profile = fs::read(path).unwrap();
        let dump = fs::read(folder.path().join("jit-5000.dump")).unwrap();
        let name = format!("made-up-{number}");
        self.of_profile(&name, &profile);
        self.of_dump(&name, &dump);
        self.write("run", &name, &[profile, dump].concat());
    }

    fn of_profile(&self, name: &str, bytes: &[u8]) {
        self.write("profile", name, cut(bytes, PROFILE));
        let Ok(profile) = Profile::parse(bytes) else {
            return;
        };
        let endian = order_choice(profile.endian);
        let data = cut(profile.data.in_memory().unwrap_or_default(), PROFILE);
        self.write("compression", name, &[&[endian], data].concat());
        let mut packed = vec![endian];
        let mut compressor = Compressor::new(1, profile.endian).unwrap();
        compressor.write(data, &mut packed).unwrap();
        compressor.flush(&mut packed).unwrap();
        self.write("compression", &format!("{name}-packed"), &packed);
    }

    fn of_dump(&self, name: &str, bytes: &[u8]) {
        let Ok(dump) = Dump::parse(bytes, Machine::host()) else {
            return;
        };
        let machine = [machine_choice(dump.machine()), order_choice(dump.header().endian)];
        self.of_commands(0, name, cut(bytes, DUMP));
        self.write("jitdump", name, &[&machine, cut(bytes, DUMP)].concat());
        let steps = [0, 0xbc, 2].repeat(6);
        self.write("growing_dump", name, &[&steps, cut(bytes, DUMP)].concat());
        let mut debug_info = 0;
        for (offset, kind) in records(bytes, dump.header().endian) {
            let Some(choice) = [2, 827_346_259, 827_346_260, 827_346_261]
                .iter()
                .position(|it| *it == kind)
            else {
                continue;
            };
            let size = dump.header().endian.u32_at(bytes, offset + 4).unwrap_or(0) as usize;
            let Some(content) = bytes.get(offset + 24..offset + size.min(DUMP)) else {
                continue;
            };
            let start = [choice as u8, debug_info as u8, machine[0], machine[1], 0, 2];
            self.write(
                "debug_info",
                &format!("{name}-{offset}"),
                &[&start, content].concat(),
            );
            debug_info += 1;
            if debug_info == FUNCTIONS {
                break;
            }
        }
        let with_lines = dump.events().filter_map(|event| {
            let function = dump.function(event.function)?;
            Some((function, function.sources().info?))
        });
        for (number, (function, info)) in with_lines.take(FUNCTIONS).enumerate() {
            let version = if number % 2 == 0 {
                Version::Four
            } else {
                Version::Five
            };
            if let Some(file) = elf_with_lines(function.name, function.range.size(), &info, version) {
                self.write("line_info", &format!("{name}-{number}"), &file);
            }
        }
        let with_tables = dump.events().filter_map(|event| {
            let size = dump.range(event.function)?.size() as usize;
            Some((size, dump.unwinding(event.function)?))
        });
        for (number, (size, unwinding)) in with_tables.take(FUNCTIONS).enumerate() {
            let [low, high] = (size.min(0xffff) as u16).wrapping_sub(1).to_le_bytes();
            let start = [machine[1], u8::from(!dump.machine().is_64), low, high];
            let section = cut(unwinding.eh_frame, DUMP);
            self.write(
                "unwinding",
                &format!("{name}-{number}"),
                &[&start, section].concat(),
            );
            let file = elf_of(".eh_frame", false, section);
            self.write("elf_frames", &format!("{name}-{number}"), &file);
            // Half of the code, the frame pointer, words of the stack, and what they are.
            let start = [0, 1, 0x80, 0x40, 0, 100, 0];
            let words: Vec<u8> = (0..64).collect();
            let parts = [&start, &words[..], section].concat();
            self.write("unwind", &format!("{name}-{number}"), &parts);
        }
    }
}

/// Returns a library with one section.
fn elf_of(name: &str, is_compressed: bool, content: &[u8]) -> Vec<u8> {
    elf::file(elf::LIBRARY, &[section(name, is_compressed, content)])
}

fn section<'a>(name: &'a str, is_compressed: bool, content: &'a [u8]) -> Section<'a> {
    Section {
        name,
        is_compressed,
        size: content.len() as u64,
        content,
    }
}

/// Returns a library with a function at its start.
fn elf_with_lines(name: &[u8], size: u64, info: &DebugInfo<'_>, version: Version) -> Option<Vec<u8>> {
    let unit = FunctionUnit {
        symbol: name,
        address: elf::ADDRESS,
        size: u32::try_from(size).ok()?,
        info,
    };
    let settings = Settings {
        version,
        machine: Machine::new(62, ByteOrder::Little),
        directory: b"/",
    };
    let mut memory = EncoderMemory::default();
    let mut encoder = Encoder::new(&mut memory, settings);
    encoder.add(&unit).ok()?;
    let sections = encoder.finish();
    let sections: Vec<Section<'_>> = sections
        .iter()
        .map(|&(name, content)| section(name, false, content))
        .collect();
    Some(elf::file(elf::LIBRARY, &sections))
}

fn cut(bytes: &[u8], size: usize) -> &[u8] {
    &bytes[..size.min(bytes.len())]
}

fn order_choice(endian: ByteOrder) -> u8 {
    u8::from(endian == ByteOrder::Big)
}

/// Returns the targets' index of a machine.
fn machine_choice(machine: Machine) -> u8 {
    (0..8)
        .find(|&at| jitinject_fuzz::choices::Choices::new(&[at, 0]).machine().id == machine.id)
        .unwrap_or(0)
}

/// Returns offsets and types of the records of a valid dump.
fn records(bytes: &[u8], endian: ByteOrder) -> impl Iterator<Item = (usize, u32)> {
    let mut at = 40;
    std::iter::from_fn(move || {
        let (kind, size) = (endian.u32_at(bytes, at)?, endian.u32_at(bytes, at + 4)?);
        let found = (at, kind);
        at += (size as usize).max(16);
        Some(found)
    })
}
