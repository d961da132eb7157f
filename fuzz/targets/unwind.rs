//! Stacks, registers and unwinding tables with arbitrary content: each stack ends, and its call chain replaces it.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use jitdump::{Address, ByteOrder};
use jitinject::inject;
use jitinject::internals::perf::sample::{ChainEntry, Sample};
use jitinject::internals::perf::{Profile, record};
use jitinject::{InjectOptions, KeptStacks, UnwindOptions};
use jitinject_fuzz::choices::Choices;
use jitinject_fuzz::dump::{DumpWriter, X86_64};
use jitinject_fuzz::profile::{ProfileWriter, UserStack, field};

const PID: u32 = 10;
const CODE: u64 = 0x7f00_1000_0000;
const SIZE: u64 = 0x100;
const STACK: u64 = 0x7ff0_0000_0000;
/// Offset of the frame pointer in a sample.
const BP: usize = 112;

/// Directory for files, in memory. It is not removed, because the process may be killed at any time;
/// `scripts/fuzz` creates and removes it.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    // Threads would only wait for each other.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1);
    pool.use_current_thread().build_global().unwrap();
    tempfile::Builder::new()
        .prefix("unwind-")
        .tempdir()
        .unwrap()
        .keep()
});

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let kept = if choices.flag() {
        KeptStacks::Stacks
    } else {
        KeptStacks::Nothing
    };
    let fold_interpreter = choices.flag();
    let ip = CODE + u64::from(choices.byte());
    let bp = STACK + u64::from(choices.u16());
    let words = usize::from(choices.u16()) % 0x1fe0;
    // Few words of the input make a stack of any size. Half of them are addresses of code or of the stack.
    let pattern = choices.bytes(64);
    let stack: Vec<u8> = (0..words)
        .flat_map(|at| {
            let byte = pattern.get(at % pattern.len().max(1)).copied().unwrap_or(0);
            let near = match byte % 4 {
                0 => CODE + u64::from(byte),
                1 => STACK + 8 * (at as u64).wrapping_add(u64::from(byte)),
                2 => u64::from(byte).wrapping_mul(0x0101_0101_0101_0101),
                _ => CODE + SIZE + u64::from(byte),
            };
            near.to_le_bytes()
        })
        .collect();
    let folder = FOLDER.as_path();
    let path = folder.join("jit-10.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    let tables = choices.rest();
    let header = [1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    dump.unwinding(1000, tables.get(..0xf000).unwrap_or(tables), &header);
    dump.load(1000, CODE, 0, b"framed", &[0x55; SIZE as usize]);
    dump.load(1000, CODE + SIZE, 1, b"bare", &[0x90; SIZE as usize]);
    fs::write(&path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type |= field::REGS_USER | field::STACK_USER;
    profile.comm(PID, "work", true, 100);
    profile.mmap2(PID, CODE, 0x10_0000, 0, "//anon", 200);
    profile.mmap2(PID, CODE + 0x20_0000, 0x1000, 0, path.to_str().unwrap(), 300);
    let copy = UserStack {
        sp: STACK,
        bytes: &stack,
    };
    for (time, address) in [(2000, ip), (2001, CODE + SIZE)] {
        let at = profile.records.len() + BP;
        profile.sample(PID, time, &[address], Some(&copy));
        profile.records[at..at + 8].copy_from_slice(&bp.to_le_bytes());
    }
    let mut options = InjectOptions::new(folder.join("perf.data"), folder.join("out.data"));
    options.unwind = Some(UnwindOptions {
        is_optional: false,
        kept,
        fold_interpreter,
    });
    fs::write(&options.load.input, profile.finish()).unwrap();
    let summary = inject(&options, &mut ()).expect("the profile is intact");
    assert_eq!(summary.unwound.unwrap().stacks, 2);
    let written = fs::read(&options.output).unwrap();
    let written = Profile::parse(&written).expect("the output is a profile");
    let samples = written
        .records_in_memory()
        .unwrap()
        .filter(|record| record.kind == record::SAMPLE);
    for (record, address) in samples.zip([ip, CODE + SIZE]) {
        let attr = written.attrs.event_of(&record, written.endian).unwrap();
        let sample = Sample::parse(&record, attr, written.endian);
        assert!(!sample.is_truncated);
        let mut entries = sample.chain_entries();
        assert!(matches!(entries.next(), Some(ChainEntry::Marker(_))));
        assert_eq!(entries.next(), Some(ChainEntry::Address(Address(address))));
        assert!(sample.callchain.count() <= words + 4);
        match kept {
            KeptStacks::Stacks => assert!(sample.stack.count() <= words && sample.registers.count() > 0),
            _ => assert_eq!(sample.stack.count() + sample.registers.count(), 0),
        }
    }
    let _ = fs::remove_dir_all(folder.join("out.data.elf"));
}
