//! Distinct types for addresses, times and IDs, so that they cannot be confused.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt;

/// A virtual address in a profiled process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Address(pub u64);

impl Address {
    /// Returns the address `bytes` higher, or `None` past the end of the address space.
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }
}

impl fmt::LowerHex for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl fmt::UpperHex for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::UpperHex::fmt(&self.0, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A half-open range of addresses, from `start` up to but not including `end`; never empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AddressRange {
    /// First address.
    pub start: Address,
    /// Address after the last one.
    pub end: Address,
}

impl AddressRange {
    /// Creates a range of `size` bytes from `start`; `None` if it is empty or exceeds the address space.
    pub fn new(start: Address, size: u64) -> Option<Self> {
        let end = start.checked_add(size)?;
        (size > 0).then_some(Self { start, end })
    }

    /// Returns the size in bytes.
    pub fn size(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Returns whether the range contains `address`.
    pub fn contains(self, address: Address) -> bool {
        self.start <= address && address < self.end
    }

    /// Returns whether the two ranges have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns the addresses that are in both ranges; `None` if there are none.
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

/// Time of a profile's records, in nanoseconds of the clock that the profile uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// Later than any real time; the end of an interval that never ends.
    pub const MAX: Self = Self(u64::MAX);

    /// Latest possible time; the time of samples that have none.
    pub const LAST: Self = Self(u64::MAX - 1);
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Process ID, as recorded in the profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Thread ID, as recorded in the profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tid(pub u32);

/// Build ID of an object: 20 bytes, the size that `ld --build-id` generates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BuildId(pub [u8; BuildId::SIZE]);

impl BuildId {
    /// Size in bytes.
    pub const SIZE: usize = 20;
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
