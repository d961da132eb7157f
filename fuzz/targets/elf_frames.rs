//! Arbitrary executables: the entries of their unwinding tables are sorted, and their rules are those of known registers.

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
            let starts: Vec<_> = table.starts().collect();
            assert!(!starts.is_empty());
            assert!(starts.is_sorted());
            for start in starts {
                for address in [start, Address(start.0.saturating_add(16))] {
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
            let _ = sections.segments.address(offset);
        }
    }
}
