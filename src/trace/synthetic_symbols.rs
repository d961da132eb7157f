//! Symbols for frames without code, at addresses where the process maps nothing: allocated types, garbage
//! collections, and methods whose address is not known.

use crate::hash::HashMap;
use crate::range_map::RangeMap;
use crate::units::{Address, AddressRange};

/// Number of addresses of a synthetic symbol: one for itself, the next for it as a caller, rounded up to be
/// readable.
const SIZE: u64 = 16;

/// Maximum number of synthetic symbols, which take 64 MiB of addresses. Further ones share the address of the
/// last one.
const MAX_SYMBOLS: u64 = 1 << 22;

/// A symbol for a frame without code.
#[derive(Clone, Debug)]
pub struct SyntheticSymbol {
    /// Name of the symbol.
    pub name: Vec<u8>,
    /// Address range of the symbol.
    pub range: AddressRange,
}

/// Synthetic symbols of a process.
#[derive(Clone, Debug)]
pub struct SyntheticSymbols {
    all: Vec<SyntheticSymbol>,
    by_name: HashMap<Vec<u8>, usize>,
    /// Addresses for further symbols.
    free: AddressRange,
    is_full: bool,
}

impl SyntheticSymbols {
    /// Creates an empty set for a 64-bit or 32-bit process that uses the addresses `taken` for something
    /// else.
    pub fn new(taken: impl Iterator<Item = AddressRange>, is_64: bool) -> Self {
        Self {
            all: Vec::new(),
            by_name: HashMap::default(),
            free: free_range(taken, is_64),
            is_full: false,
        }
    }

    /// Returns the address of the symbol `name`, which is added if it is new.
    pub fn address(&mut self, name: &[u8]) -> Address {
        let index = match self.by_name.get(name) {
            Some(&index) => index,
            None => self.add(name.to_vec()),
        };
        let function = self.all.get(index).or(self.all.last());
        function.map_or(self.free.start, |function| function.range.start)
    }

    fn add(&mut self, name: Vec<u8>) -> usize {
        let index = self.all.len();
        if let Some(range) = AddressRange::new(self.free.start, SIZE)
            && range.end <= self.free.end
        {
            self.free.start = range.end;
            let known = name.clone();
            self.all.push(SyntheticSymbol { name, range });
            self.by_name.insert(known, index);
        } else {
            self.is_full = true;
        }
        index
    }

    /// Whether there was not enough room for all symbols.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns all symbols.
    pub fn all(&self) -> &[SyntheticSymbol] {
        &self.all
    }
}

/// Finds unused addresses of a user process: the lowest ones above a limit that programs rarely cross.
fn free_range(taken: impl Iterator<Item = AddressRange>, is_64: bool) -> AddressRange {
    let mut all = RangeMap::default();
    for range in taken {
        all.insert(range, (), |_, ()| {});
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
        let mut functions = SyntheticSymbols::new(std::iter::empty(), true);
        assert_eq!(functions.free.size(), MAX_SYMBOLS * SIZE);
        functions.free.end = Address(functions.free.start.0 + 2 * SIZE);
        let [first, second] = ["first", "second"].map(|name| functions.address(name.as_bytes()));
        assert!(first != second && !functions.is_full());
        assert_eq!(functions.address(b"third"), second);
        assert_eq!(functions.address(b"fourth"), second);
        assert_eq!(functions.address(b"first"), first);
        assert!(functions.is_full() && functions.all().len() == 2);
    }
}
