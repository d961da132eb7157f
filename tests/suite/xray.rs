//! Compares real XRay traces with the output of llvm-xray, LLVM's own reader.

use jitdump::ByteOrder;
use jitinject::Issue;
use jitinject::internals::traces::xray::format::{Trace, TraceMode, is_trace};

use crate::support::capture;
use crate::support::xray_lines::{SHORT, SOUND, assert_same, buffer, llvm_output, ours, real, theirs};
use crate::support::xray_trace::{VERSIONS, Writer};

#[test]
fn a_trace_has_the_records_that_llvm_xray_finds() {
    let mut records = 0;
    let mut with_stored = 0;
    for name in SOUND {
        let (lines, faults) = ours(&real(name));
        assert!(faults.is_empty(), "{name}: {faults:?}");
        if let Some(stored) = llvm_output(name) {
            assert_same(name, &lines, &theirs(&stored));
            with_stored += 1;
        }
        records += lines.values().map(Vec::len).sum::<usize>();
    }
    assert_eq!(with_stored, 7);
    assert!(records > 50_000, "{records}");
}

#[test]
fn a_trace_that_is_short_of_bytes_has_all_that_llvm_xray_finds_and_tells_what_is_lost() {
    let (lines, faults) = ours(&real(SHORT));
    let theirs = theirs(&llvm_output(SHORT).unwrap());
    assert_same(SHORT, &lines, &theirs);
    let all = || lines.values().flatten();
    let typed = all().filter(|line| line.kind == "typed-event").count() as u64;
    assert!(typed > 4 && all().any(|line| line.data == "typed-event #4"));
    // Each typed event costs 16 bytes at the end of its buffer. Lost typed events are not counted.
    assert_eq!(faults.count(Issue::XrayLostByWriter), 16 * typed);
    assert_eq!(faults.iter().count(), 1, "{faults:?}");
}

#[test]
fn threads_have_their_buffers_in_the_order_of_time() {
    let file = real("xray-fdr-tsc14");
    let trace = Trace::parse(&file).unwrap();
    let index = trace.index();
    let mut several = 0;
    for thread in index.threads() {
        let of_buffers = |buffer| {
            trace
                .records(buffer)
                .map(|record| record.tick)
                .collect::<Vec<_>>()
        };
        let ticks: Vec<u64> = thread.buffers.iter().flat_map(of_buffers).collect();
        assert!(ticks.is_sorted());
        let walls = || thread.buffers.iter().map(|it| it.anchor().unwrap().wall);
        assert!(walls().is_sorted() && thread.buffers.iter().all(|it| it.thread == thread.thread));
        several += usize::from(thread.buffers.len() > 1);
    }
    assert!(several > 0);
    let anchors: Vec<_> = index.buffers().iter().filter_map(|it| it.anchor()).collect();
    assert_eq!(anchors.len(), index.buffers().len());
    let header = trace.header();
    // Both clocks advance alike, except for interruptions between reading one and the other.
    let frequency = u128::from(header.frequency);
    let wall_of = |tick: u64| i128::try_from(u128::from(tick) * 1_000_000_000 / frequency).unwrap();
    let offsets = anchors.iter().map(|it| i128::from(it.wall.0) - wall_of(it.tick));
    let (least, most) = (offsets.clone().min().unwrap(), offsets.max().unwrap());
    assert!(most - least < 1_000_000, "{} ns", most - least);
}

#[test]
fn headers_tell_what_is_known_and_no_more() {
    let header = |name| *Trace::parse(&real(name)).unwrap().header();
    let fdr = header("xray-fdr-tsc14");
    assert_eq!(
        (fdr.mode, fdr.version, fdr.endian),
        (TraceMode::Fdr, 5, ByteOrder::Little)
    );
    assert_eq!((fdr.frequency, fdr.buffer_size), (2_596_126_000, Some(4096)));
    assert!(fdr.constant_tsc && fdr.nonstop_tsc);
    let basic = header("xray-basic19");
    assert_eq!((basic.mode, basic.version), (TraceMode::Basic, 3));
    assert_eq!((basic.frequency, basic.buffer_size), (1_000_000_000, None));
    assert!(basic.constant_tsc && basic.nonstop_tsc);
}

#[test]
fn traces_are_known_by_their_content_and_nothing_else_is() {
    let mut traces = 0;
    let mut others = 0;
    let folders = std::fs::read_dir(capture::folder("xray-bad").parent().unwrap()).unwrap();
    for folder in folders.flatten().filter(|it| it.path().is_dir()) {
        for file in std::fs::read_dir(folder.path()).unwrap().flatten() {
            let path = file.path();
            if path.is_dir() {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let name = path.to_string_lossy();
            let is_expected =
                name.ends_with(".xray") && !["ver6", "type2", "bad-hdr."].iter().any(|it| name.contains(it));
            assert_eq!(is_trace(&bytes), is_expected, "{name}");
            *if is_expected { &mut traces } else { &mut others } += 1;
        }
    }
    assert!(traces > 20 && others > 100, "{traces}, {others}");
    for (mode, version) in VERSIONS {
        for endian in [ByteOrder::Little, ByteOrder::Big] {
            let mut writer = Writer::new(mode, version, endian, 400);
            writer.buffer(&buffer());
            assert!(is_trace(&writer.finish()), "{mode:?} {version} {endian:?}");
        }
    }
    for made in [
        &[][..],
        &[0; 100],
        &[1; 100],
        b"5\0\0\0",
        &[5, 0, 1, 0, 3, 0, 0, 0],
    ] {
        assert!(!is_trace(made), "{made:?}");
    }
}
