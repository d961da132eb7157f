//! Compares the records of traces, real and generated ones, with those of LLVM's own reader, llvm-xray.

use jitdump::ByteOrder;
use jitinject::Issue;
use jitinject::internals::traces::xray::format::{RecordKind, TraceMode};

use crate::support::xray_lines::{SOUND, assert_same, buffer, converted, ours, real, theirs};
use crate::support::xray_trace::{self, VERSIONS, Writer};
use crate::support::{capture, scratch};

#[test]
fn llvm_xray_finds_the_same_records_in_real_traces() {
    for name in SOUND {
        let (lines, _) = ours(&real(name));
        let live = converted(&capture::folder(name).join("trace.xray"));
        assert_same(name, &lines, &theirs(&live));
    }
}

#[test]
fn llvm_xray_reads_what_the_tests_write() {
    let folder = scratch();
    for (mode, version) in VERSIONS {
        // It parses stale data after a buffer as records, and can't read traces of other machines.
        if (mode, version) == (TraceMode::Fdr, 1) {
            continue;
        }
        let mut writer = Writer::new(mode, version, ByteOrder::Little, 4096);
        let mut made = buffer();
        writer.buffer(&made);
        made.thread += 1;
        if mode == TraceMode::Fdr {
            let payload = b"text";
            let kind = RecordKind::Custom { payload };
            let (tick, cpu) = (5_000_000_000_009, if version == 4 { 9 } else { 3 });
            made.records.push(xray_trace::Record { tick, cpu, kind });
        }
        if version == 5 {
            let kind = RecordKind::Typed {
                kind: 6,
                payload: b"of a type",
            };
            made.records.push(xray_trace::Record {
                kind,
                ..made.records[0]
            });
        }
        writer.buffer(&made);
        let file = writer.finish();
        let path = folder.path().join("trace.xray");
        std::fs::write(&path, &file).unwrap();
        let (lines, faults) = ours(&file);
        let known = [Issue::XrayLostByWriter, Issue::XrayTickBack];
        assert!(
            faults.iter().all(|(fault, _)| known.contains(&fault)),
            "{faults:?}"
        );
        let mut theirs = theirs(&converted(&path));
        // It parses an unused field as the CPU of a custom event.
        let events = theirs.values_mut().flatten().filter(|_| version < 4);
        events
            .filter(|line| line.kind == "custom-event")
            .for_each(|line| line.cpu = 3);
        // Without a process, llvm-xray uses the thread, or 0.
        if version < 3 {
            theirs = theirs
                .into_iter()
                .map(|((_, thread), lines)| ((None, thread), lines))
                .collect();
        }
        assert_same(&format!("{mode:?} {version}"), &lines, &theirs);
    }
}
