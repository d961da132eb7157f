//! What kind of machine the code is for.

use object::elf;

use crate::bytes::ByteOrder;

/// A machine, as an ELF header describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// ELF's number of it.
    pub number: elf::Machine,
    /// Whether addresses have 64 bits.
    pub is_64: bool,
    /// Its byte order.
    pub order: ByteOrder,
}

impl Machine {
    /// A machine by ELF's number of it. Its class follows from the number, but for the few that have both:
    /// those are taken to be of 64 bits, which runtimes on them are.
    pub fn new(number: u32, order: ByteOrder) -> Self {
        let number = elf::Machine(u16::try_from(number).unwrap_or(0));
        let is_32 = matches!(
            number,
            elf::EM_386
                | elf::EM_ARM
                | elf::EM_PPC
                | elf::EM_SPARC
                | elf::EM_SPARC32PLUS
                | elf::EM_68K
                | elf::EM_SH
        );
        Self {
            number,
            is_64: !is_32,
            order,
        }
    }

    /// A machine by what `uname -m` says on it, as profiles note it.
    pub fn of_architecture(name: &[u8], order: ByteOrder) -> Option<Self> {
        let (number, is_64) = match name {
            b"x86_64" => (elf::EM_X86_64, true),
            b"i386" | b"i486" | b"i586" | b"i686" => (elf::EM_386, false),
            b"aarch64" | b"aarch64_be" => (elf::EM_AARCH64, true),
            b"riscv64" => (elf::EM_RISCV, true),
            b"riscv32" => (elf::EM_RISCV, false),
            b"ppc64le" | b"ppc64" => (elf::EM_PPC64, true),
            b"ppc" | b"ppcle" => (elf::EM_PPC, false),
            b"s390x" => (elf::EM_S390, true),
            b"s390" => (elf::EM_S390, false),
            b"mips64" => (elf::EM_MIPS, true),
            b"mips" => (elf::EM_MIPS, false),
            b"loongarch64" => (elf::EM_LOONGARCH, true),
            b"sparc64" => (elf::EM_SPARCV9, true),
            name if name.starts_with(b"arm") => (elf::EM_ARM, false),
            _ => return None,
        };
        Some(Self { number, is_64, order })
    }

    /// The machine that this program runs on.
    pub fn host() -> Self {
        Self::of_architecture(std::env::consts::ARCH.as_bytes(), ByteOrder::NATIVE)
            .unwrap_or_else(|| Self::new(elf::EM_X86_64.0.into(), ByteOrder::NATIVE))
    }

    /// Whether the number says nothing (`EM_NONE`).
    pub fn is_unknown(&self) -> bool {
        self.number == elf::EM_NONE
    }

    /// The size of an address, in bytes.
    pub fn address_size(&self) -> u64 {
        if self.is_64 { 8 } else { 4 }
    }
}
