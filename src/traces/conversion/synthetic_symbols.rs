//! Symbols for frames without code, at addresses where the process maps nothing: allocated types, garbage
//! collections, and methods whose address is not known.

use std::hash::Hash;

use jitdump::{Address, AddressRange, RuntimeTime};

use crate::code::process::Processes;
use crate::code::symbol_only_code::{SymbolOnlyCode, SymbolOnlyFunction};
use crate::collections::hash::HashMap;
use crate::collections::range_map::RangeMap;
use crate::units::Pid;

/// Number of addresses of a synthetic symbol: one for itself, the next for it as a caller, rounded up to be
/// readable.
const SIZE: u64 = 16;

/// Maximum number of synthetic symbols, which take 64 MiB of addresses. Further ones share the address of the
/// last one.
const MAX_SYMBOLS: u64 = 1 << 22;

/// Synthetic symbols of a process, some of them for functions `F`.
#[derive(Clone, Debug)]
pub struct SyntheticSymbols<F> {
    /// Name and address range of each symbol.
    all: Vec<(Vec<u8>, AddressRange)>,
    by_name: HashMap<Vec<u8>, usize>,
    /// Symbols of functions, which saves looking up their names again.
    by_function: HashMap<F, Address>,
    /// Addresses for further symbols.
    pub free: AddressRange,
    /// Whether there was not enough room for all symbols.
    pub is_full: bool,
}

impl<F: Eq + Hash> SyntheticSymbols<F> {
    /// Creates an empty set for process `pid` of 64 or 32 bits, which uses its mappings and the addresses `taken` for
    /// something else.
    pub fn new(
        processes: &Processes,
        pid: Pid,
        taken: impl Iterator<Item = AddressRange>,
        is_64: bool,
    ) -> Self {
        let maps = processes.spaces_of(pid).flat_map(|(_, space)| &space.maps);
        let taken = maps.map(|map| map.range).chain(taken);
        Self {
            all: Vec::new(),
            by_name: HashMap::default(),
            by_function: HashMap::default(),
            free: free_range(taken, is_64),
            is_full: false,
        }
    }

    /// Returns the address of the symbol `name`, which is added if it is new.
    pub fn address(&mut self, name: &[u8]) -> Address {
        let index = match self.by_name.get(name) {
            Some(&index) => index,
            None => self.add_symbol(name.to_vec()),
        };
        let symbol = self.all.get(index).or(self.all.last());
        symbol.map_or(self.free.start, |(_, range)| range.start)
    }

    /// Returns the address of the symbol of a function, which is added with the name from `name` if it is new.
    #[cold]
    pub fn address_of(&mut self, function: F, name: impl FnOnce() -> Vec<u8>) -> Address {
        if let Some(&address) = self.by_function.get(&function) {
            return address;
        }
        let address = self.address(&name());
        self.by_function.insert(function, address);
        address
    }

    /// Adds a symbol at addresses of its own, while there are any. Returns its index.
    fn add_symbol(&mut self, name: Vec<u8>) -> usize {
        let index = self.all.len();
        if let Some(range) = AddressRange::new(self.free.start, SIZE)
            && range.end <= self.free.end
        {
            self.free.start = range.end;
            self.all.push((name.clone(), range));
            self.by_name.insert(name, index);
        } else {
            self.is_full = true;
        }
        index
    }

    /// Leaves room for so many further symbols.
    #[cfg(test)]
    pub fn leave_room_for(&mut self, symbols: u64) {
        self.free.end = Address(self.free.start.0 + symbols * SIZE);
    }

    /// Adds all symbols to `code`, from `since` on.
    pub fn load(&self, code: &mut SymbolOnlyCode<'_>, since: RuntimeTime) {
        for (name, range) in &self.all {
            let function = SymbolOnlyFunction {
                name: name.clone().into(),
                range: *range,
                code: None,
            };
            code.load(function, since);
        }
    }
}

/// Finds unused addresses of a user process: the lowest ones above a limit that programs rarely cross.
fn free_range(taken: impl Iterator<Item = AddressRange>, is_64: bool) -> AddressRange {
    let mut all = RangeMap::default();
    for range in taken {
        all.insert(range, ());
    }
    // Programs and their heaps are below, libraries and stacks are above.
    let (mut start, end) = if is_64 {
        (Address(1 << 44), Address(1 << 46))
    } else {
        (Address(1 << 30), Address(3 << 30))
    };
    let size = MAX_SYMBOLS.saturating_mul(SIZE);
    loop {
        let range = AddressRange {
            start,
            end: Address(start.0.saturating_add(size)),
        };
        match all.overlapping(range).last() {
            Some((obstacle, ())) if obstacle.end.0.saturating_add(size) <= end.0 => {
                start = Address(obstacle.end.0.next_multiple_of(0x1000));
            }
            _ => return range,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_shares_the_last_address() {
        let mut functions =
            SyntheticSymbols::<u32>::new(&Processes::default(), Pid(1), std::iter::empty(), true);
        assert_eq!(functions.free.size(), (1 << 22) * SIZE);
        functions.leave_room_for(2);
        let [first, second] = ["first", "second"].map(|name| functions.address(name.as_bytes()));
        assert!(first != second && !functions.is_full);
        assert_eq!(functions.address(b"third"), second);
        assert_eq!(functions.address(b"fourth"), second);
        assert_eq!(functions.address(b"first"), first);
        assert!(functions.is_full && functions.all.len() == 2);
    }
}
