//! Files in which nearly everything is damaged.

use std::fs;
use std::path::Path;

use jitdump::ByteOrder;
use jitinject::internals::traces::xray::format::{RecordKind, TraceMode};

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::xray_map::{Map, Relocations};
use crate::support::xray_trace::{Buffer, Record, Writer};
use crate::support::{assert_linear, inject, run};

/// Writes a dump of at least `size` bytes in which every record breaks rules.
fn write_dump(path: &Path, size: usize) {
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 7);
    let code = [0x90; 60];
    let mut at = 0;
    while dump.bytes.len() < size {
        at += 1;
        let (time, start) = (1_000_000_000_000 + at, 0x1000 + at % 50_000 * 48);
        let lines = [(start + 8, 2), (start, 1), (start + 4096, 9), (start - 4, 3)];
        dump.lines(time, start, b"a.c", &lines);
        dump.unwinding(time, &[9; 24], &[1; 8]);
        dump.load(time - 2, start, at % 1000, b"name\xff", &code);
        dump.moved(time, start, start + 16, 3, at);
        dump.record(3, time, &[]);
    }
    fs::write(path, &dump.bytes).unwrap();
}

#[test]
fn a_dump_that_breaks_rules_is_checked_in_one_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jit-7.dump");
    assert_linear("check", 200 << 10, |size| {
        write_dump(&path, size as usize);
        let work = run(["check", "--json", path.to_str().unwrap()]);
        assert_eq!(work.output.status.code(), Some(1));
        let printed = work.output.stdout.len();
        assert!(printed < 50_000, "{printed} bytes for any size");
        work.blocks
    });
}

/// Zeros, records that start at every byte, records that all reach far, records of the maximum size with damage after
/// each.
#[test]
fn records_are_found_again_in_one_pass() {
    let round = [68, 0, 0, 0, 0, 0, 8, 0];
    let chain: Vec<u8> = round.repeat(3).into_iter().chain([0; 8]).collect();
    let jump = [81, 0, 0, 0, 0, 0, 0xf8, 0xff];
    let torn = [&jump[..], &[0; 0xfff8]].concat();
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("perf.data"), folder.path().join("out.data"));
    for (name, piece) in [
        ("zeros", vec![0; 8]),
        ("chain", chain),
        ("jumps", jump.to_vec()),
        ("torn", torn),
    ] {
        assert_linear(name, 200 << 10, |size| {
            let mut profile = ProfileWriter::new(ByteOrder::Little);
            profile.sample(7, 1000, &[0x1000], None);
            profile.records.extend(piece.repeat(size as usize / piece.len()));
            profile.sample(7, 2000, &[0x1000], None);
            fs::write(&input, profile.finish()).unwrap();
            inject(&input, &output, &[], "")
        });
    }
}

#[test]
fn a_sparse_dump_is_read_in_one_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jit-7.dump");
    let header = DumpWriter::new(ByteOrder::Little, X86_64, 7).bytes;
    let input = folder.path().join("perf.data");
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, path.to_str().unwrap(), 500);
    profile.sample(7, 1 << 62, &[0x4000_0000], None);
    fs::write(&input, profile.finish()).unwrap();
    // Zeros, and a single record.
    for start in [&[][..], &[77, 0, 0, 0, 0, 0, 0, 0x40]] {
        assert_linear("holes", 512 << 10, |size| {
            fs::write(&path, [&header, start].concat()).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(size + header.len() as u64).unwrap();
            inject(&input, &folder.path().join("out.data"), &[], "1 jitdump, ")
        });
    }
}

/// Returns an XRay trace with one buffer, which is 80 bytes long.
fn trace() -> Vec<u8> {
    let mut writer = Writer::new(TraceMode::Fdr, 5, ByteOrder::Little, 1 << 20);
    let record = |tick, kind| Record { tick, cpu: 0, kind };
    writer.buffer(&Buffer {
        process: 1,
        thread: 2,
        wall: (1000, 0),
        records: vec![
            record(7, RecordKind::Enter { function: 5 }),
            record(9, RecordKind::Exit { function: 5 }),
        ],
    });
    writer.finish()
}

#[test]
fn damaged_traces_are_read_in_one_pass() {
    let made = trace();
    let header = &made[..32];
    let with_size = |end: usize, size: u64| {
        let mut piece = made[32..end].to_vec();
        piece[1..9].copy_from_slice(&size.to_le_bytes());
        piece
    };
    let mut v1_header = header.to_vec();
    v1_header[0] = 1;
    v1_header[16..24].fill(0);
    let mut small = header.to_vec();
    small[16..24].fill(0);
    let kinds: [(&str, &[u8], Vec<u8>); 7] = [
        ("buffers larger than they can be", &small, with_size(64, 16)),
        ("marks of sizes", header, vec![0x0f]),
        ("buffers without an end", header, with_size(64, 1 << 60)),
        ("starts without an end", header, with_size(80, 1 << 60)),
        ("marks of buffers", &v1_header, vec![0x01]),
        ("empty buffers", header, [&[0x0f][..], &[0; 15]].concat()),
        ("small functions", header, [&made[32..112], &[0; 8]].concat()),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.xray");
    for (name, header, piece) in kinds {
        assert_linear(name, 100 << 10, |size| {
            fs::write(
                &path,
                [header, &piece.repeat(size as usize / piece.len())].concat(),
            )
            .unwrap();
            run(["check", path.to_str().unwrap()]).blocks
        });
    }
}

/// Sections over each other cost no more than the size of the file.
#[test]
fn overlapping_sections_of_a_binary_are_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("trace.xray"), trace()).unwrap();
    assert_linear("sections", 2000, |functions| {
        let made = Map {
            is_64: true,
            endian: ByteOrder::Little,
            machine: 62,
            version: 1,
            relocations: Relocations::Beside,
            functions: (0..functions).map(|at| (0x1000 + 64 * at, vec![0, 1])).collect(),
            build_id: (0..20).collect(),
        };
        let mut file = made.write();
        let sections = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
        // Many copies of the header of section 2, the relocations.
        let headers: Vec<_> = file[sections..].chunks(64).map(<[u8]>::to_vec).collect();
        for _ in 0..3 * functions {
            file.extend(&headers[2]);
        }
        let count = headers.len() as u16 + 3 * functions as u16;
        file[60..62].copy_from_slice(&count.to_le_bytes());
        fs::write(path("binary"), file).unwrap();
        let options = ["--xray-binary", &path("binary")];
        inject(
            path("trace.xray").as_ref(),
            path("out.data").as_ref(),
            &options,
            "XRay trace, ",
        )
    });
}
