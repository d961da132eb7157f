//! Addresses in call chains, among code, that match no known code.

use jitdump::Address;

use crate::code::process::SpaceId;
use crate::collections::hash::HashSet;

/// Maximum number of addresses. Real profiles have a few thousand.
const MAX: usize = 1 << 20;

/// A set of addresses with a size limit.
#[derive(Clone, Debug, Default)]
pub struct UnknownAddresses {
    found: HashSet<(SpaceId, Address)>,
    /// Whether addresses were left out because the set was full.
    pub is_full: bool,
}

impl UnknownAddresses {
    /// Adds an address, unless the set is full.
    pub fn insert(&mut self, space: SpaceId, address: Address) {
        let key = (space, address);
        if self.found.len() < MAX {
            self.found.insert(key);
        } else if !self.is_full {
            self.is_full = !self.found.contains(&key);
        }
    }

    /// Adds all addresses of another set.
    pub fn merge(&mut self, other: Self) {
        self.is_full |= other.is_full;
        for (space, address) in other.found {
            self.insert(space, address);
        }
    }

    /// Returns the addresses, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (SpaceId, Address)> {
        self.found.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_once_an_address_was_not_kept() {
        let space = SpaceId(0);
        let mut all = UnknownAddresses::default();
        for address in 0..1 << 20 {
            all.insert(space, Address(address));
        }
        all.insert(space, Address(5));
        assert!(!all.is_full);
        let mut more = UnknownAddresses::default();
        more.insert(space, Address(u64::MAX));
        more.merge(all);
        assert!(more.is_full);
        assert_eq!(more.iter().count(), 1 << 20);
    }
}
