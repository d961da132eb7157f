//! Functions for what a frame of a stack can be and has no code: a type that was allocated, a collection, a method
//! whose place is not known. They get addresses where the process maps nothing.

use crate::hash::HashMap;
use crate::range_map::RangeMap;
use crate::units::{Address, AddressRange};

/// How many addresses a made-up function has: one for itself, one behind that for it as a caller, and no more than
/// look well.
const SIZE: u64 = 16;

/// How many made-up functions there may be: as many as have room in a third of a 32-bit process. What has no room
/// shares the last one.
const MOST: u64 = 1 << 22;

/// A function that was made up.
#[derive(Clone, Debug)]
pub struct SyntheticSymbol {
    /// What it stands for.
    pub name: Vec<u8>,
    /// Where it is.
    pub range: AddressRange,
}

/// Those of a process.
#[derive(Clone, Debug)]
pub struct SyntheticSymbols {
    all: Vec<SyntheticSymbol>,
    by_name: HashMap<Vec<u8>, usize>,
    /// Where the next one goes.
    free: AddressRange,
    is_full: bool,
}

impl SyntheticSymbols {
    /// For a process with addresses of 64 bits or 32, which has something else at those that are `taken`.
    pub fn new(taken: impl Iterator<Item = AddressRange>, is_64: bool) -> Self {
        Self {
            all: Vec::new(),
            by_name: HashMap::default(),
            free: free_range(taken, is_64),
            is_full: false,
        }
    }

    /// The address of what is called `name`.
    pub fn address(&mut self, name: &[u8]) -> Address {
        let place = match self.by_name.get(name) {
            Some(&place) => place,
            None => self.add(name.to_vec()),
        };
        let function = self.all.get(place).or(self.all.last());
        function.map_or(self.free.start, |function| function.range.start)
    }

    fn add(&mut self, name: Vec<u8>) -> usize {
        let place = self.all.len();
        if let Some(range) = AddressRange::new(self.free.start, SIZE)
            && range.end <= self.free.end
        {
            self.free.start = range.end;
            let known = name.clone();
            self.all.push(SyntheticSymbol { name, range });
            self.by_name.insert(known, place);
        } else {
            self.is_full = true;
        }
        place
    }

    /// Whether there was no room for all.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// All of them.
    pub fn all(&self) -> &[SyntheticSymbol] {
        &self.all
    }
}

/// Addresses of a user process at which there is nothing: the lowest ones above a line that programs rarely cross.
fn free_range(taken: impl Iterator<Item = AddressRange>, is_64: bool) -> AddressRange {
    let mut all = RangeMap::default();
    for range in taken {
        all.insert(range, (), |_, ()| {});
    }
    // Between programs and their heaps on one side, libraries and stacks on the other.
    let (mut start, end) = if is_64 {
        (Address(1 << 44), Address(1 << 46))
    } else {
        (Address(1 << 30), Address(3 << 30))
    };
    let size = MOST.saturating_mul(SIZE);
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
        assert_eq!(functions.free.size(), MOST * SIZE);
        functions.free.end = Address(functions.free.start.0 + 2 * SIZE);
        let [first, second] = ["first", "second"].map(|name| functions.address(name.as_bytes()));
        assert!(first != second && !functions.is_full());
        assert_eq!(functions.address(b"third"), second);
        assert_eq!(functions.address(b"fourth"), second);
        assert_eq!(functions.address(b"first"), first);
        assert!(functions.is_full() && functions.all().len() == 2);
    }
}
