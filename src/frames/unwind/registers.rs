//! Registers of a frame.

use jitdump::Machine;
use object::elf;

use crate::elf::call_frames::MAX_REGISTER;
use crate::perf::sample::Sample;

/// Machines whose stacks can be unwound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// x86-64.
    X86_64,
    /// AArch64, little-endian.
    Aarch64,
}

impl Target {
    /// Returns the target of a machine.
    pub fn of(machine: Machine) -> Option<Self> {
        use jitdump::ByteOrder::Little;
        match (machine.id, machine.endian) {
            (elf::EM_X86_64, Little) => Some(Self::X86_64),
            (elf::EM_AARCH64, Little) => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Returns the ELF machine ID.
    pub fn machine(self) -> elf::Machine {
        match self {
            Self::X86_64 => elf::EM_X86_64,
            Self::Aarch64 => elf::EM_AARCH64,
        }
    }

    /// DWARF number of the stack pointer.
    pub fn stack_pointer(self) -> u16 {
        match self {
            Self::X86_64 => 7,
            Self::Aarch64 => 31,
        }
    }

    /// DWARF number of the frame pointer.
    pub fn frame_pointer(self) -> u16 {
        match self {
            Self::X86_64 => 6,
            Self::Aarch64 => 29,
        }
    }

    /// DWARF number of the register that a call writes the return address to.
    pub fn link_register(self) -> Option<u16> {
        match self {
            Self::X86_64 => None,
            Self::Aarch64 => Some(30),
        }
    }

    /// Returns a code address without the signature that AArch64 code puts into the upper bits of return addresses.
    pub fn code_address(self, value: u64) -> u64 {
        match self {
            Self::X86_64 => value,
            Self::Aarch64 => value & 0xffff_ffff_ffff,
        }
    }

    /// Numbers of registers in samples (arch/*/include/uapi/asm/perf_regs.h) and in DWARF.
    fn numbers(self) -> &'static [(u32, u16)] {
        const X86_64: [(u32, u16); 16] = [
            (0, 0),
            (1, 3),
            (2, 2),
            (3, 1),
            (4, 4),
            (5, 5),
            (6, 6),
            (7, 7),
            (16, 8),
            (17, 9),
            (18, 10),
            (19, 11),
            (20, 12),
            (21, 13),
            (22, 14),
            (23, 15),
        ];
        // The same numbers in both.
        const AARCH64: [(u32, u16); 32] = {
            let mut numbers = [(0, 0); 32];
            let mut at = 0;
            while at < 32 {
                #[expect(clippy::indexing_slicing, reason = "a constant")]
                {
                    numbers[at] = (at as u32, at as u16);
                }
                at += 1;
            }
            numbers
        };
        match self {
            Self::X86_64 => &X86_64,
            Self::Aarch64 => &AARCH64,
        }
    }

    /// Number of the instruction pointer in samples.
    fn sampled_address(self) -> u32 {
        match self {
            Self::X86_64 => 8,
            Self::Aarch64 => 32,
        }
    }
}

/// Number of registers.
const COUNT: usize = MAX_REGISTER as usize + 1;

/// Values of the registers of a frame, by DWARF number, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    values: [u64; COUNT],
    /// Bit mask of the registers that are known.
    known: u64,
}

impl Registers {
    /// No registers.
    pub const NONE: Self = Self {
        values: [0; COUNT],
        known: 0,
    };

    /// Reads the registers of a sample, and the address of its instruction; `mask` says which it has. `None` if there
    /// is no address or stack pointer.
    pub fn of_sample(sample: &Sample<'_>, mask: u64, target: Target) -> Option<(Self, u64)> {
        let bytes = sample.registers.bytes();
        // Those of the mask are there, one after the other.
        let word = |number: u32| {
            let is_there = mask >> number & 1 == 1;
            let before = (mask & ((1 << number) - 1)).count_ones() as usize;
            let word = bytes.get(before.saturating_mul(8)..)?.first_chunk();
            word.map(|word| u64::from_le_bytes(*word)).filter(|_| is_there)
        };
        let mut found = Self::NONE;
        for &(sampled, number) in target.numbers() {
            if let Some(value) = word(sampled) {
                found.set(number, value);
            }
        }
        found.get(target.stack_pointer())?;
        Some((found, target.code_address(word(target.sampled_address())?)))
    }

    /// Returns the value of a register, if it is known.
    pub fn get(&self, register: u16) -> Option<u64> {
        let value = self.values.get(usize::from(register))?;
        (self.known >> register & 1 == 1).then_some(*value)
    }

    /// Sets the value of a register.
    pub fn set(&mut self, register: u16, value: u64) {
        if let Some(place) = self.values.get_mut(usize::from(register)) {
            *place = value;
            self.known |= 1 << register;
        }
    }

    /// Forgets the values of all registers except those of a bit mask.
    pub fn retain(&mut self, mask: u64) {
        self.known &= mask;
    }

    /// Forgets the value of a register.
    pub fn forget(&mut self, register: u16) {
        if usize::from(register) < COUNT {
            self.known &= !(1 << register);
        }
    }
}
