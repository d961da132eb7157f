//! Arbitrary executables with debug information: lines and inlined calls are those of the wanted functions, and refer to
//! what is there.

use std::sync::Arc;

use jitdump::debug_info::DebugInfo;
use jitdump::{Address, AddressRange};
use jitinject::internals::elf::limited_reads::MemoryRoom;
use jitinject::internals::elf::line_info::{Companions, LineInfo};

/// Size of a wanted function in bytes.
const SIZE: u32 = 64;

pub fn run(input: &[u8]) {
    let room = MemoryRoom::default();
    let Some(info) = LineInfo::read_if(input, &room.file(), |_| true) else {
        return;
    };
    // The code of the files that the seeds are made of.
    let function = |index| AddressRange::new(Address(0x1000 + index * u64::from(SIZE)), SIZE.into());
    let wanted: Vec<AddressRange> = (0..16).filter_map(function).collect();
    // The same file is all that it refers to.
    let info = Arc::new(info);
    let split = info.split_units(&wanted).into_iter();
    let companions = Companions {
        supplementary: Some(info.clone()),
        split: split.map(|unit| (unit.id, info.clone())).collect(),
    };
    for companions in [Companions::default(), companions] {
        if let Some((found, _)) = info.functions(&companions, &wanted) {
            assert_eq!(found.len(), wanted.len());
            check(found);
        }
    }
}

fn check(found: Vec<DebugInfo<'_>>) {
    for info in found {
        let has_file = |file: Option<u32>| file.is_none_or(|file| info.files.get(file as usize).is_some());
        assert!(info.rows.is_sorted_by(|row, next| row.offset < next.offset));
        assert!(
            info.rows
                .iter()
                .all(|row| row.offset < SIZE && has_file(row.file))
        );
        assert!(info.functions.iter().all(|function| has_file(function.file)));
        let mut depth = 0;
        for call in &info.calls {
            assert!(call.depth <= depth, "each call is inside one that precedes it");
            depth = call.depth + 1;
            assert!(info.functions.get(call.function as usize).is_some());
            assert!(!call.ranges.is_empty());
            assert!(
                call.ranges
                    .iter()
                    .all(|range| range.start < range.end && range.end <= SIZE)
            );
        }
    }
}
