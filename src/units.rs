//! Kinds of numbers as types, so that an address can't be taken for a time.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt;

/// A virtual address in a profiled process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` further up, or `None` past the end of the address space.
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The addresses from `start` up to, but not including, `end`. Never empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AddressRange {
    /// The first address.
    pub start: Address,
    /// The address behind the last one.
    pub end: Address,
}

impl AddressRange {
    /// `size` bytes from `start`; `None` where that is nothing or leaves the address space.
    pub fn new(start: Address, size: u64) -> Option<Self> {
        let end = start.checked_add(size)?;
        (size > 0).then_some(Self { start, end })
    }

    /// How many bytes the range covers.
    pub fn size(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether `address` lies in the range.
    pub fn contains(self, address: Address) -> bool {
        self.start <= address && address < self.end
    }

    /// Whether the two ranges share an address.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// What the two ranges share.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Self { start, end })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// Nanoseconds on the clock of the profile's records, whichever that is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// Behind all time: when what never ends ends.
    pub const MAX: Self = Self(u64::MAX);

    /// The last moment there is: that of a sample which carries no time.
    pub const LAST: Self = Self(u64::MAX - 1);
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A process, by the number that the profile knows it under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A thread, by the number that the profile knows it under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tid(pub u32);

/// The identity of an object: 20 bytes, as `ld --build-id` makes them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BuildId(pub [u8; BuildId::SIZE]);

impl BuildId {
    /// Its length in bytes.
    pub const SIZE: usize = 20;
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
