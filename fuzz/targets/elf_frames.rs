//! Arbitrary executables: the entries of their unwinding tables do not overlap, and rules are found only inside them.

use jitdump::Address;
use jitinject::internals::elf::call_frames::RuleRoom;
use jitinject::internals::elf::limited_reads::MemoryRoom;
use jitinject::internals::elf::unwind_sections::UnwindSections;
use object::elf::{EM_AARCH64, EM_X86_64};

pub fn run(input: &[u8]) {
    for machine in [EM_X86_64, EM_AARCH64] {
        let room = MemoryRoom::default();
        let memory = room.file();
        let Some(sections) = UnwindSections::read_if(input, &memory, machine, |_| true) else {
            continue;
        };
        let rules = RuleRoom::default();
        for table in &sections.tables {
            let ranges: Vec<_> = table.ranges().collect();
            assert!(!ranges.is_empty());
            assert!(ranges.is_sorted_by(|one, next| one.end <= next.start));
            for range in ranges {
                let last = Address(range.end.0 - 1);
                for address in [range.start, last] {
                    let Some(found) = table.at(address, &rules) else {
                        continue;
                    };
                    for (register, _) in found.registers {
                        assert!(*register <= jitinject::internals::elf::call_frames::MAX_REGISTER);
                    }
                }
            }
        }
        let size = sections.size();
        memory.keep(size);
        assert!(
            room.file().take((1 << 30) - size).is_some(),
            "more is kept than was taken"
        );
        for offset in (0..input.len() as u64).step_by(64) {
            let _ = sections.address(offset);
        }
    }
}
