//! Unwinding through JIT code with perf and libunwind (Debian's), perf and elfutils' libdw, and libdwfl itself.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jitdump::ByteOrder;

use crate::support::dump::DumpWriter;
use crate::support::generator::Random;
use crate::support::profile::{ProfileWriter, UserStack, field};
use crate::support::reports::inject_with_summary;
use crate::support::tools::text;
use crate::support::{
    OBJECT_LAYOUTS, capture, diagnostics, inject_into, model, object_maps, perf, scratch, tools,
};

/// Leaves copied stacks to readers; returns the output's path.
fn inject_copies(folder: &Path, input: &Path, more: &[&str]) -> PathBuf {
    inject_into(folder, input, &[more, &["--no-unwind"]].concat())
}

/// Returns the mappings of objects with code in an output: file, start of the object, start of the code.
fn code_maps(output: &Path) -> Vec<(String, u64, u64)> {
    let parts = model::parse(&std::fs::read(output).unwrap());
    let endian = parts.endian;
    let maps = parts.records.iter().filter_map(|record| {
        let name = model::map_name(record, endian).filter(|name| name.ends_with(".so"))?;
        let (start, _) = model::map_range(record, endian);
        let offset = model::word(record, endian, 32);
        // Code starts right after the ELF header; tables do not.
        (name.contains(".elf/jitted-") && offset == 0x40).then_some((name, start - offset, start))
    });
    maps.collect()
}

/// Returns what libdwfl finds for the first byte of each function.
fn ask_libdwfl(program: &Path, maps: &[(String, u64, u64)]) -> String {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for (file, base, address) in maps {
        writeln!(stdin, "{file} {base:x} {address:x}").unwrap();
    }
    drop(stdin);
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// The trampolines of CPython are 272 bytes apart, each with tables of its own.
#[test]
fn libdw_finds_each_function_and_its_tables_in_whatever_order_objects_are_reported() {
    let folder = scratch();
    let program = tools::compile(folder.path(), "modules.c", &["-ldw", "-lelf"]);
    let more = ["--all", "--layout", "function"];
    let output = inject_copies(folder.path(), &capture::profile("cpython313-dwarf"), &more);
    let mut maps = code_maps(&output);
    assert_eq!(maps.len(), 1447);
    for _ in 0..2 {
        let answers = ask_libdwfl(&program, &maps);
        let found = answers
            .lines()
            .filter(|line| line.starts_with("py::") && line.ends_with("\tcfi"));
        assert_eq!(found.count(), maps.len(), "{answers}");
        maps.reverse();
    }
}

/// Returns whether a file is the one that was recorded, by its build ID.
fn is_recorded(profile: &Path, file: &Path) -> bool {
    let list = perf::perf(&["buildid-list", "-f", "-i", tools::text(profile)]);
    let notes = tools::run("readelf", &["-nW", tools::text(file)]);
    let id = notes
        .split("Build ID: ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    id.is_some_and(|id| list.contains(id))
}

fn reaches_start(frames: &[String]) -> bool {
    frames.iter().any(|frame| {
        frame == "_start"
            || frame == "clone"
            || frame.starts_with("__libc_start")
            || frame.starts_with("clone3")
    })
}

/// Returns the folder of pyenv. scripts/isolated, which has another home directory, sets the variable.
fn pyenv() -> PathBuf {
    let folder = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    folder.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".pyenv"))
}

/// The recorded interpreter must be on this machine, at pyenv's path.
#[test]
#[ignore = "needs the very build of CPython 3.13.0 that was recorded"]
fn every_stack_of_cpython_shows_its_python_functions() {
    let pyenv = pyenv();
    let python = pyenv.join("versions/3.13.0");
    let files = [
        python.join("lib/libpython3.13.so.1.0"),
        python.join("bin/python3.13"),
    ];
    let profile = capture::profile("cpython313-dwarf");
    assert!(
        is_recorded(&profile, &files[0]),
        "the recorded CPython is not there"
    );
    for program in perf::programs() {
        let folder = scratch();
        let cache = folder.path().join("cache");
        for file in &files {
            perf::perf_with_cache(&program, &cache, &["buildid-cache", "-a", tools::text(file)]);
        }
        // libdw has special rules for objects under /tmp/jitted-*; these must work without.
        let elsewhere = folder.path().join("some where");
        std::fs::create_dir(&elsewhere).unwrap();
        for layout in OBJECT_LAYOUTS {
            let output = inject_copies(&elsewhere, &profile, layout);
            let stacks = perf::stacks_with_cache(&program, &cache, &output, &[]);
            let python = |frames: &[String]| frames.iter().filter(|frame| frame.starts_with("py::")).count();
            let with_python = stacks.iter().filter(|sample| python(&sample.frames) > 0).count();
            let frames: usize = stacks.iter().map(|sample| python(&sample.frames)).sum();
            let whole = stacks
                .iter()
                .filter(|sample| reaches_start(&sample.frames))
                .count();
            assert_eq!((stacks.len(), with_python), (150, 150), "{program} {layout:?}");
            assert!(frames >= 1279, "{program} {layout:?}: {frames} frames");
            assert!(
                whole >= 138,
                "{program} {layout:?}: {whole} stacks reach the start"
            );
        }
    }
}

#[test]
#[ignore = "needs the very build of Node.js 20.20.2 that was recorded"]
fn stacks_of_v8_reach_the_start() {
    let profile = capture::profile("node20-dwarf");
    assert!(
        is_recorded(&profile, Path::new("/usr/bin/node")),
        "the recorded node is not there"
    );
    for program in perf::programs() {
        let folder = scratch();
        // With libdw, 11 stacks end in node itself, before any JIT code: node is not a PIE, and V8 maps its
        // built-in code a second time, which libdw does not support. Without injection they end there, too. In perf
        // 7.0 and later, nearly all stacks end in that mapping, after their JIT code.
        let enough = match &*program {
            "perf" => 148,
            program if perf::newest().as_deref() == Some(program) => 0,
            _ => 137,
        };
        for layout in OBJECT_LAYOUTS {
            let output = inject_copies(folder.path(), &profile, layout);
            let stacks = perf::stacks_with_cache(&program, folder.path(), &output, &[]);
            let whole = stacks
                .iter()
                .filter(|sample| reaches_start(&sample.frames))
                .count();
            assert!(
                whole >= enough,
                "{program} {layout:?}: {whole} of {}",
                stacks.len()
            );
            let is_script = |frame: &&String| frame.starts_with("JS:");
            let scripts = stacks
                .iter()
                .flat_map(|sample| sample.frames.iter().filter(is_script));
            assert!(scripts.count() >= 745, "{program} {layout:?}");
        }
    }
}

/// The call chains of `--unwind` have each frame that libunwind finds, at the same address.
#[test]
#[ignore = "needs the very builds of CPython 3.13.0 and Node.js 20.20.2 that were recorded"]
fn unwound_call_chains_are_those_of_libunwind_or_longer() {
    let pyenv = pyenv();
    let python = pyenv.join("versions/3.13.0");
    let folder = scratch();
    let (cache, root) = (folder.path().join("cache"), folder.path().join("root"));
    for file in ["lib/libpython3.13.so.1.0", "bin/python3.13"] {
        let file = python.join(file);
        perf::perf_with_cache("perf", &cache, &["buildid-cache", "-a", tools::text(&file)]);
        // The recorded home was a link.
        let inside = Path::new("home/.pyenv").join(file.strip_prefix(&pyenv).unwrap());
        let copy = root.join(inside);
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(file, copy).unwrap();
    }
    let libraries = "usr/lib/x86_64-linux-gnu";
    std::fs::create_dir_all(root.join(libraries)).unwrap();
    for library in ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"] {
        let inside = Path::new(libraries).join(library);
        std::fs::copy(Path::new("/").join(&inside), root.join(&inside)).unwrap();
    }
    let symfs = ["--symfs", tools::text(&root)];
    for (name, more, start, python, frames) in [
        ("cpython313-dwarf", &symfs[..], 138, 1279, 6_787),
        ("node20-dwarf", &[], 149, 0, 4_003),
    ] {
        let profile = capture::profile(name);
        let copied = folder.path().join("copied.data");
        std::fs::rename(
            inject_copies(
                folder.path(),
                &profile,
                &["--elf-dir", tools::text(&folder.path().join("elf"))],
            ),
            &copied,
        )
        .unwrap();
        let output = folder.path().join("unwound.data");
        let (_, summary) = inject_with_summary(&profile, &output, &[&["--unwind"], more].concat());
        assert_eq!(summary["unwound"]["frames"], frames, "{name}");
        let addresses = |profile: &Path| -> Vec<Vec<u64>> {
            let arguments = [
                "script",
                "-F",
                "ip,sym",
                "--no-inline",
                "-i",
                tools::text(profile),
            ];
            let printed = perf::printed_with_cache("perf", &cache, &arguments);
            let stacks = printed.split("\n\n").filter(|stack| !stack.trim().is_empty());
            let address = |line: &str| u64::from_str_radix(line.split_whitespace().next()?, 16).ok();
            // libunwind ends stacks that are cut off with this.
            let is_frame = |address: &u64| *address != u64::MAX;
            stacks
                .map(|stack| stack.lines().filter_map(address).filter(is_frame).collect())
                .collect()
        };
        let (expected, found) = (addresses(&copied), addresses(&output));
        assert_eq!((expected.len(), found.len()), (150, 150));
        let longer = expected.iter().zip(&found).filter(|(expected, found)| {
            assert!(found.starts_with(expected), "{name}: {expected:x?} {found:x?}");
            found.len() > expected.len()
        });
        assert!(longer.count() <= 1, "{name}");
        for program in perf::programs() {
            let stacks = perf::stacks_with_cache(&program, &cache, &output, &[]);
            let whole = stacks.iter().filter(|sample| reaches_start(&sample.frames));
            assert_eq!(whole.count(), start, "{program} {name}");
            let frames = stacks.iter().flat_map(|sample| &sample.frames);
            assert_eq!(
                frames.filter(|frame| frame.starts_with("py::")).count(),
                python,
                "{program}"
            );
        }
    }
}

/// Code at any address, as on AArch64: consecutive functions, each with a frame of its own.
struct UnalignedCode {
    /// Start and frame size of each function.
    functions: Vec<(u64, u8)>,
}

impl UnalignedCode {
    const SIZE: u64 = 61;

    /// Creates functions whose addresses have a given remainder modulo 8.
    fn new(random: &mut Random, remainder: u64) -> Self {
        let mut address = 0x7f00_1000_0000 + remainder;
        let functions = (0..24).map(|_| {
            // If they get files of their own, the headers take 64 bytes before them.
            address += Self::SIZE.next_multiple_of(8) + 64 + 8 * random.below(40);
            (address, 8 * (1 + random.below(9)) as u8)
        });
        Self {
            functions: functions.collect(),
        }
    }

    /// Generates some calls, innermost first; returns the address in the innermost function, the names of the
    /// functions, and the stack.
    fn stack(&self, random: &mut Random) -> (u64, Vec<String>, Vec<u8>) {
        let calls: Vec<usize> = (0..1 + random.below(6))
            .map(|_| random.below(self.functions.len() as u64) as usize)
            .collect();
        let addresses: Vec<u64> = calls
            .iter()
            .map(|&call| self.functions[call].0 + 1 + random.below(Self::SIZE - 2))
            .collect();
        let mut stack = Vec::new();
        for (at, &call) in calls.iter().enumerate() {
            stack.resize(stack.len() + usize::from(self.functions[call].1) - 8, 0);
            let caller = addresses.get(at + 1).copied().unwrap_or(0);
            stack.extend_from_slice(&caller.to_le_bytes());
        }
        let names = calls.iter().map(|call| format!("function_{call}"));
        (addresses[0], names.collect(), stack)
    }
}

#[test]
fn stacks_are_whole_wherever_the_code_is_aligned() {
    let mut random = Random::new(17);
    for remainder in [0, 1, 2, 3, 4, 4, 5, 6, 7] {
        let folder = scratch();
        let code = UnalignedCode::new(&mut random, remainder);
        let mut dump = DumpWriter::new(ByteOrder::Little, 62, 10);
        dump.functions_with_tables(&code.functions, UnalignedCode::SIZE);
        let dump_path = folder.path().join("jit-10.dump");
        std::fs::write(&dump_path, &dump.bytes).unwrap();
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.sample_type |= field::REGS_USER | field::STACK_USER;
        profile.comm(10, "work", true, 100);
        profile.mmap2(10, 0x7f00_1000_0000, 0x10_0000, 0, "//anon", 200);
        profile.mmap2(10, 0x7f00_2000_0000, 0x1000, 0, text(&dump_path), 300);
        let mut expected = Vec::new();
        for time in 0..40 {
            let (ip, names, bytes) = code.stack(&mut random);
            let stack = UserStack {
                sp: 0x7ff0_0000_0000,
                bytes: &bytes,
            };
            profile.sample(10, 2000 + time, &[ip], Some(&stack));
            expected.push(names);
        }
        let input = folder.path().join("perf.data");
        std::fs::write(&input, profile.finish()).unwrap();
        for layout in OBJECT_LAYOUTS {
            let output = inject_copies(folder.path(), &input, layout);
            for program in perf::programs() {
                let stacks = perf::stacks_with_cache(&program, folder.path(), &output, &[]);
                let found: Vec<Vec<String>> = stacks.into_iter().map(|sample| sample.frames).collect();
                assert_eq!(found, expected, "{program} {layout:?} {remainder}");
            }
        }
    }
}

/// V8 logs its built-in functions, which are within the text of its program. elfutils' libdw does not support
/// nested modules.
#[test]
fn no_object_is_inside_a_file_whose_stacks_are_unwound() {
    const PROGRAM: u64 = 0x40_0000;
    const JIT: u64 = 0x7f00_1000_0000;
    const SHARED: u64 = 0x7f00_3000_0000;
    for (has_stacks, in_files) in [(true, 0), (false, 1)] {
        let folder = scratch();
        let mut dump = DumpWriter::new(ByteOrder::Little, 62, 10);
        dump.load(1000, PROGRAM + 0x500, 0, b"Builtin:Add", &[0x90; 64]);
        dump.load(1000, JIT, 1, b"JS:*work", &[0x90; 64]);
        dump.load(1000, SHARED, 2, b"work_in_shared_memory", &[0x90; 64]);
        let dump_path = folder.path().join("jit-10.dump");
        std::fs::write(&dump_path, &dump.bytes).unwrap();
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        if has_stacks {
            profile.sample_type |= field::REGS_USER | field::STACK_USER;
        }
        profile.comm(10, "work", true, 100);
        profile.mmap2(10, PROGRAM, 0x1000, 0, "/usr/bin/work", 200);
        profile.mmap2(10, JIT, 0x1000, 0, "//anon", 200);
        profile.mmap2(10, SHARED, 0x1000, 0, "/memfd:doublemapper (deleted)", 200);
        profile.mmap2(10, 0x7f00_2000_0000, 0x1000, 0, text(&dump_path), 300);
        for (time, ip) in (2000..).zip([PROGRAM + 0x510, JIT + 0x10, SHARED + 0x10]) {
            let stack = UserStack {
                sp: 0x7ff0_0000_0000,
                bytes: &[0; 8],
            };
            profile.sample(10, time, &[ip], has_stacks.then_some(&stack));
        }
        let input = folder.path().join("perf.data");
        std::fs::write(&input, profile.finish()).unwrap();
        for layout in OBJECT_LAYOUTS {
            let output = folder.path().join("out.data");
            let more = [layout, &["--no-unwind"]].concat();
            let (said, summary) = inject_with_summary(&input, &output, &more);
            let starts: Vec<u64> = object_maps(&output).into_iter().map(|(start, _)| start).collect();
            let count =
                |range: std::ops::Range<u64>| starts.iter().filter(|start| range.contains(start)).count();
            assert_eq!(
                count(PROGRAM..PROGRAM + 0x1000),
                in_files,
                "{layout:?} {has_stacks}"
            );
            assert_eq!(count(JIT..JIT + 0x1000), 1, "{layout:?} {has_stacks}");
            assert_eq!(count(SHARED..SHARED + 0x1000), 1, "{layout:?} {has_stacks}");
            let expected = format!("3 samples, {} in JIT code", 2 + in_files);
            assert!(said.contains(&expected), "{layout:?} {has_stacks}: {said}");
            let left_to_files = diagnostics(&summary, "JI170");
            assert_eq!(left_to_files.len(), usize::from(has_stacks), "{summary:#}");
            assert!(left_to_files.iter().all(|it| it["count"] == 1), "{summary:#}");
        }
    }
}

/// V8 also maps that part of its program next to the code that it compiles, and calls the functions there.
#[test]
fn functions_in_a_file_have_objects_where_it_is_mapped_again() {
    const PROGRAM: u64 = 0x40_0000;
    const AGAIN: u64 = 0x7f00_4000_0000;
    let folder = scratch();
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 10);
    dump.load(1000, PROGRAM + 0x1500, 0, b"Builtin:Add", &[0x90; 64]);
    let dump_path = folder.path().join("jit-10.dump");
    std::fs::write(&dump_path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type |= field::REGS_USER | field::STACK_USER;
    profile.comm(10, "work", true, 100);
    profile.mmap2(10, PROGRAM, 0x4000, 0, "/usr/bin/work", 200);
    profile.mmap2(10, AGAIN, 0x2000, 0x1000, "/usr/bin/work", 500);
    profile.mmap2(10, 0x7f00_2000_0000, 0x1000, 0, text(&dump_path), 300);
    let stack = UserStack {
        sp: 0x7ff0_0000_0000,
        bytes: &[0; 8],
    };
    for (time, ip) in (2000..).zip([PROGRAM + 0x1510, AGAIN + 0x510]) {
        profile.sample(10, time, &[ip], Some(&stack));
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_copies(folder.path(), &input, &[]);
    assert_eq!(object_maps(&output), [(AGAIN + 0x500, AGAIN + 0x541)]);
}
