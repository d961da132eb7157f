//! Reads parameters such as machine, endianness and sizes from the start of a fuzzing input.

use jitdump::{ByteOrder, Machine};

/// ELF machine IDs of both classes, and an unknown one.
const MACHINES: [u32; 8] = [62, 3, 183, 8, 21, 22, 43, 0xfffe];

/// Reads choices from the start of an input; after its end, all are 0.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Starts at the first byte.
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Reads a byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// Reads a Boolean.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// Reads a 16-bit integer.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Reads a 64-bit integer.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Reads an endianness.
    pub fn endian(&mut self) -> ByteOrder {
        if self.flag() {
            ByteOrder::Big
        } else {
            ByteOrder::Little
        }
    }

    /// Reads a machine.
    pub fn machine(&mut self) -> Machine {
        let number = MACHINES[usize::from(self.byte()) % MACHINES.len()];
        Machine::new(number, self.endian())
    }

    /// Reads up to `count` bytes.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns the rest of the input.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
