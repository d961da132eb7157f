//! Arbitrary executables: symbols have names that can be printed, and are found at their own addresses.

use jitdump::Address;
use jitinject::internals::elf::limited_reads::MemoryRoom;
use jitinject::internals::elf::symbols::FunctionSymbols;

pub fn run(input: &[u8]) {
    let Some(symbols) = FunctionSymbols::read_if(input, &MemoryRoom::default().file(), |_| true) else {
        return;
    };
    let mut last = Address(0);
    for offset in (0..input.len() as u64).step_by(64) {
        let Some(address) = symbols.segments.address(offset) else {
            continue;
        };
        if let Some(symbol) = symbols.at(address) {
            assert!(
                symbols.name(symbol).is_some()
                    && symbols.range(symbol).is_some_and(|range| range.contains(address))
            );
        }
        last = last.max(address);
    }
    let _ = symbols.at(last);
}
