//! Choices at the start of an input: which machine, which byte order, which size.

use jitinject::bytes::ByteOrder;
use jitinject::machine::Machine;

/// ELF's numbers of machines of both classes, and of one that is not known.
const MACHINES: [u32; 8] = [62, 3, 183, 8, 21, 22, 43, 0xfffe];

/// Takes choices from the start of an input; where it ends, they are all 0.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Starts at the first byte.
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// A number of 16 bits.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A number of 64 bits.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A byte order.
    pub fn order(&mut self) -> ByteOrder {
        match self.flag() {
            false => ByteOrder::Little,
            true => ByteOrder::Big,
        }
    }

    /// A machine.
    pub fn machine(&mut self) -> Machine {
        let number = MACHINES[usize::from(self.byte()) % MACHINES.len()];
        Machine::new(number, self.order())
    }

    /// So many bytes, or what is left.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
