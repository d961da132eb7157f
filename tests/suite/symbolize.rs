//! `jitdump::symbolize`: jitdumps that are read while they grow have the functions of the finished file.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use jitdump::symbolize::{Function, Jitdump, Process};
use jitdump::{Address, AddressRange, ByteOrder, Change, Dump, Fault, Machine, RuntimeTime, Time};

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::{capture, scratch};

const CODE: u64 = 0x4000_0000;

/// Returns jitdumps of several runtimes.
fn recorded() -> Vec<PathBuf> {
    let folders = [
        "node20",
        "java17",
        "llvm19-jitlink",
        "cpython313-fork",
        "erlang25",
    ];
    let folders = folders.map(capture::folder);
    let mut dumps: Vec<PathBuf> = folders.iter().flat_map(|folder| dumps_below(folder)).collect();
    dumps.sort();
    assert!(dumps.len() > 4, "{dumps:?}");
    dumps
}

fn dumps_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                dumps_below(&path)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "dump"))
        .collect()
}

/// Writes `bytes` piece by piece to a file that is read meanwhile, and counts the functions.
fn grow(bytes: &[u8], pieces: impl Fn(usize) -> usize) -> (Jitdump, usize, tempfile::TempDir) {
    let folder = scratch();
    let path = folder.path().join("jit-1.dump");
    let mut file = File::create(&path).unwrap();
    let mut dump = Jitdump::open(&path).unwrap();
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        let end = bytes.len().min(at + pieces(at).max(1));
        file.write_all(&bytes[at..end]).unwrap();
        at = end;
        count += dump.update().unwrap();
        assert!(dump.position() <= at as u64);
    }
    count += dump.finish().unwrap();
    (dump, count, folder)
}

/// A load or move, as the finished file has it.
struct Placed {
    time: u64,
    range: AddressRange,
    left: Option<AddressRange>,
    number: u32,
}

fn placed(dump: &Dump<'_>) -> Vec<Placed> {
    let events = dump.events();
    let placed = events.map(|event| {
        let loaded = dump.range(event.function).unwrap();
        let (start, left) = match event.change {
            Change::Load => (loaded.start, None),
            Change::Move { from, to } => (to, AddressRange::new(from, loaded.size())),
        };
        let RuntimeTime(time) = event.time;
        Placed {
            time,
            range: AddressRange::new(start, loaded.size()).unwrap(),
            left,
            number: event.function,
        }
    });
    placed.collect()
}

/// Returns the function at an address at a time, by looking at all events.
fn expected(events: &[Placed], address: Address, time: u64) -> Option<u32> {
    let before = events.iter().take_while(|event| event.time <= time);
    before.fold(None, |found, event| {
        if event.range.contains(address) {
            Some(event.number)
        } else if event.left.is_some_and(|left| left.contains(address)) && found == Some(event.number) {
            None
        } else {
            found
        }
    })
}

#[test]
fn a_growing_file_has_the_functions_of_the_finished_one() {
    for path in recorded() {
        let bytes = std::fs::read(&path).unwrap();
        let bytes = &bytes[..bytes.len().min(1 << 20)];
        let whole = Dump::parse(bytes, Machine::host()).unwrap();
        let events = placed(&whole);
        for step in [701, 4096, 1 << 19] {
            let (grown, _, _folder) = grow(bytes, |at| step + at % 97);
            let index = grown.index().unwrap();
            assert_eq!(index.function_count(), whole.function_count(), "{path:?}, {step}");
            assert_eq!(index.machine(), whole.machine());
            assert_eq!(grown.position(), bytes.len() as u64, "{path:?}, {step}");
            for event in events.iter().step_by(events.len() / 40 + 1) {
                let address = Address(event.range.start.0 + event.range.size() / 2);
                for time in [event.time.saturating_sub(1), event.time, u64::MAX - 1] {
                    let name = |number| whole.function(number).unwrap().name;
                    let expected = expected(&events, address, time).map(name);
                    let found = grown.function_at(address, Time(time));
                    let found = found.map(|function| grown.symbol(function).unwrap().name);
                    assert_eq!(
                        found.as_deref(),
                        expected,
                        "{path:?}, {step}, {address} at {time}"
                    );
                }
            }
        }
    }
}

/// As in the finished file.
#[test]
fn moves_of_unknown_functions_are_faults() {
    let folder = scratch();
    let path = folder.path().join("jit-1.dump");
    for (time, from) in [(1001, CODE + 0x1000), (999, CODE)] {
        let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 1);
        dump.load(1000, CODE, 7, b"f", &[0x90; 16]);
        dump.moved(time, from, CODE + 0x2000, 16, 9);
        dump.moved(1002, CODE, CODE + 0x3000, 16, 7);
        std::fs::write(&path, &dump.bytes).unwrap();
        let whole = Dump::parse(&dump.bytes, Machine::host()).unwrap();
        assert_eq!(whole.events().count(), 2);
        let mut growing = Jitdump::open(&path).unwrap();
        assert_eq!(growing.update().unwrap(), 2);
        let faults = growing.index().unwrap().faults();
        assert_eq!(faults.count(Fault::BadMove), 1);
        assert_eq!(
            faults.offsets(Fault::BadMove),
            whole.faults().offsets(Fault::BadMove)
        );
        let found = growing.function_at(Address(CODE + 0x3000), Time::LAST);
        assert_eq!(found.map(|function| function.number), Some(0));
    }
}

#[test]
fn frames_are_those_of_the_finished_file() {
    let mut with_lines = 0;
    for path in recorded() {
        let bytes = std::fs::read(&path).unwrap();
        let whole = Dump::parse(&bytes, Machine::host()).unwrap();
        let mut grown = Jitdump::open(&path).unwrap();
        grown.finish().unwrap();
        let functions: Vec<(AddressRange, Function)> = grown.functions().collect();
        for &(_, function) in functions.iter().step_by(functions.len() / 60 + 1) {
            let view = whole.function(function.number).unwrap();
            let info = view.sources().info.unwrap_or_default();
            let size = function.range.size();
            for offset in [0, size / 3, size - 1] {
                let expected = info.frames_at(offset as u32);
                let frames = grown.frames(function, Address(function.range.start.0 + offset));
                assert_eq!(frames.len(), expected.len());
                with_lines += usize::from(expected[0].line > 0);
                for (found, expected) in frames.zip(&expected) {
                    assert_eq!(found.line.unwrap_or(0), expected.line);
                    let file = expected.file.map(|file| info.files[file as usize].path.to_vec());
                    assert_eq!(found.file, file);
                }
            }
            let outside = grown.frames(function, function.range.end);
            assert_eq!(outside.len(), 0);
        }
    }
    assert!(with_lines > 50, "{with_lines}");
}

/// Damage costs what it costs in a finished file, or some records around it, and never an endless wait.
#[test]
fn damage_in_a_growing_file_is_passed_over() {
    let folder = capture::folder("node20");
    let bytes = std::fs::read(folder.join("jit-11682.dump")).unwrap();
    for (at, size, byte) in [
        (300_000, 900, 0xab),
        (300_000, 40_000, 0),
        (300_000, 40_000, 0xff),
        (40, 100_000, 7),
    ] {
        let mut damaged = bytes.clone();
        damaged[at..at + size].fill(byte);
        let whole = Dump::parse(&damaged, Machine::host()).unwrap();
        for step in [3000, 1 << 20] {
            let (grown, count, _folder) = grow(&damaged, |_| step);
            let found = grown.index().unwrap().function_count();
            assert!(
                found.abs_diff(whole.function_count()) < 4,
                "{found}, {}",
                whole.function_count()
            );
            assert!(count >= found);
            assert!(!grown.index().unwrap().faults().is_empty());
        }
    }
}

/// No record starts with them, so they are no unfinished one.
#[test]
fn few_damaged_bytes_are_passed_over_without_waiting_for_the_end() {
    let folder = scratch();
    let path = folder.path().join("jit-1.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 1);
    for function in 0..200 {
        if function == 10 {
            dump.bytes.extend([0xab; 40]);
        }
        dump.load(1000 + function, CODE + function * 16, function, b"f", &[0x90; 16]);
    }
    std::fs::write(&path, &dump.bytes).unwrap();
    let mut growing = Jitdump::open(&path).unwrap();
    assert_eq!(growing.update().unwrap(), 200);
    // A recorded one: a process that CPython forked writes to the file of its parent.
    let recorded = capture::folder("cpython313-fork").join("jit-23220.dump");
    let bytes = std::fs::read(&recorded).unwrap();
    let whole = Dump::parse(&bytes, Machine::host()).unwrap().function_count();
    assert_eq!(Jitdump::open(&recorded).unwrap().update().unwrap(), whole);
}

#[test]
fn the_last_functions_of_a_finished_file_have_their_lines() {
    let folder = scratch();
    let path = folder.path().join("jit-1.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 1);
    for function in 0..3 {
        let address = CODE + function * 16;
        dump.load(1000 + function, address, function, b"f", &[0x90; 16]);
        // After the function, as some runtimes write it.
        dump.debug_info(1000 + function, address, b"/s.py", 5);
    }
    std::fs::write(&path, &dump.bytes).unwrap();
    let mut growing = Jitdump::open(&path).unwrap();
    assert_eq!(growing.finish().unwrap(), 3);
    let lines = growing.functions().map(|(_, function)| {
        let frames = growing.frames(function, function.range.start);
        frames.map(|frame| frame.line).collect::<Vec<_>>()
    });
    assert_eq!(lines.collect::<Vec<_>>(), [[Some(5)], [Some(5)], [Some(5)]]);
}

#[test]
fn other_files_are_refused_and_early_ones_are_waited_for() {
    let folder = scratch();
    let path = folder.path().join("jit-1.dump");
    let mut file = File::create(&path).unwrap();
    let mut dump = Jitdump::open(&path).unwrap();
    assert_eq!(dump.update().unwrap(), 0);
    assert!(dump.index().is_none() && dump.functions().next().is_none());
    file.write_all(b"not a jitdump").unwrap();
    assert!(dump.update().is_err());
    let bytes = std::fs::read(capture::folder("node20").join("jit-11682.dump")).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    assert!(dump.update().unwrap() > 2000);
    file.set_len(100).unwrap();
    assert!(dump.update().is_err(), "it has become shorter");
    let function = dump.functions().next().unwrap().1;
    assert_eq!(dump.symbol(function), None);
    assert_eq!(dump.frames(function, function.range.start).len(), 0);
    assert!(Jitdump::open(folder.path()).is_err());
}

/// One test, because all tests are one process.
#[test]
fn jitdumps_that_a_process_has_mapped_are_read() {
    an_error_hides_neither_other_errors_nor_functions();
    a_process_has_a_limited_number_of_open_jitdumps();
    what_is_mapped_no_longer_is_forgotten();
    a_jitdump_that_was_started_again_is_opened_again();
}

#[expect(unsafe_code, reason = "nothing writes to the files that are mapped")]
fn map(path: &Path, content: &[u8]) -> memmap2::Mmap {
    std::fs::write(path, content).unwrap();
    // SAFETY: Nothing writes to the file any more.
    unsafe { memmap2::Mmap::map(&File::open(path).unwrap()) }.unwrap()
}

/// A process can map any number of files, each of which takes a file descriptor of the one that reads them.
fn a_process_has_a_limited_number_of_open_jitdumps() {
    // One call opens 1,024.
    const COUNT: usize = 1025;
    const MOST: usize = 64;
    let folder = scratch();
    let header = std::fs::read(&recorded()[0]).unwrap()[..40].to_vec();
    let mut maps = Vec::new();
    for number in 0..COUNT {
        let path = folder.path().join(format!("jit-{number}.dump"));
        maps.push(map(&path, &header));
    }
    let open = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.starts_with(folder.path())).count()
    };
    let mut process = Process::new(std::process::id());
    for _ in 0..2 {
        let closed = process.update().unwrap_err().to_string();
        assert!(closed.contains("more than 64 jitdumps"), "{closed}");
        assert_eq!((process.dumps().len(), open()), (MOST, MOST));
    }
    assert_eq!(process.update().unwrap(), 0);
    drop(process);
    assert_eq!((open(), maps.len()), (0, COUNT));
}

/// A process can map other files again and again.
fn what_is_mapped_no_longer_is_forgotten() {
    let folder = scratch();
    let [unusable, used] = ["jit-1.dump", "jit-2.dump"].map(|name| folder.path().join(name));
    let recorded = std::fs::read(&recorded()[0]).unwrap();
    let mut process = Process::new(std::process::id());
    for is_first in [true, false] {
        let maps = [map(&unusable, b"not a jitdump"), map(&used, &recorded)];
        assert!(process.update().is_err(), "a file is mapped again");
        let count = process.update().unwrap();
        // An open one stays, and is not opened twice.
        assert_eq!((count > 0, process.dumps().len()), (is_first, 1));
        drop(maps);
        assert_eq!(process.update().unwrap(), 0);
    }
}

fn an_error_hides_neither_other_errors_nor_functions() {
    let folder = scratch();
    let recorded = std::fs::read(&recorded()[0]).unwrap();
    let files: [(&str, &[u8]); 4] = [
        ("jit-1.dump", b"not a jitdump"),
        ("jit-2.dump", &recorded),
        ("jit-3.dump", b"not one either"),
        ("jit-4.dump", &recorded),
    ];
    let maps = files.map(|(name, content)| map(&folder.path().join(name), content));
    let mut process = Process::new(std::process::id());
    let mut errors = Vec::new();
    let count = loop {
        match process.update() {
            Ok(count) => break count,
            Err(error) => errors.push(error.to_string()),
        }
        assert!(errors.len() <= maps.len(), "{errors:?}");
    };
    errors.sort();
    assert!(
        matches!(&errors[..], [one, other] if one.contains("jit-1.dump") && other.contains("jit-3.dump")),
        "{errors:?}"
    );
    assert_eq!(process.dumps().len(), 2);
    let mut alone = Jitdump::open(&folder.path().join("jit-2.dump")).unwrap();
    assert_eq!(count, 2 * alone.update().unwrap());
}

/// A runtime that switches its log off and on truncates the file, and a process with the same ID does.
fn a_jitdump_that_was_started_again_is_opened_again() {
    let dump = |pid, functions| {
        let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, pid);
        for function in 0..functions {
            dump.load(1000, CODE + function * 16, function, b"f", &[0x90; 16]);
        }
        dump.bytes
    };
    for (pid, functions) in [(1, 3), (2, 20)] {
        let folder = scratch();
        let path = folder.path().join("jit-1.dump");
        let _mapped = map(&path, &dump(1, 10));
        let mut process = Process::new(std::process::id());
        assert_eq!(process.update().unwrap(), 10);
        std::fs::write(&path, dump(pid, functions)).unwrap();
        assert!(process.update().is_err());
        assert_eq!(process.update().unwrap(), functions as usize);
    }
}
