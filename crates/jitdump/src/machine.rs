//! The machine architecture that code is compiled for.
//!
//! A jitdump has an ELF machine number; its first four bytes give the byte order. A jitdump without a
//! machine number is for the machine of the profile. The machine number determines the class, except for
//! MIPS, RISC-V, S/390 and LoongArch, where both classes share a number. There, code above 4 GiB is 64-bit.
//! Below, the profile's machine decides if it has the same number; otherwise MIPS and RISC-V are 32-bit.
//! The class affects more than the layout of an object: V8's lines are off by the size of an ELF header.
//!
//! `e_flags` are those of the usual ABI. With 0, GNU's objdump decodes no MIPS instruction newer than 1985,
//! and LLVM's no compressed instruction of RISC-V. The disadvantage: eu-elflint 0.188 does not support
//! flags of MIPS and reports them.

use object::elf;

use crate::bytes::ByteOrder;

/// A machine architecture, as described by an ELF header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// ELF machine ID (`e_machine`), for the crate `object` as used here.
    #[doc(hidden)]
    pub id: elf::Machine,
    /// Whether addresses have 64 bits.
    pub is_64: bool,
    /// Endianness.
    pub endian: ByteOrder,
}

/// ELF machine ID, whether addresses have 64 bits, and the names used by `uname -m` and Rust. An ID that is
/// listed for both classes leaves the class open.
const MACHINES: &[(elf::Machine, bool, &[&str])] = &[
    (elf::EM_X86_64, true, &["x86_64"]),
    (elf::EM_386, false, &["i386", "i486", "i586", "i686", "x86"]),
    (elf::EM_AARCH64, true, &["aarch64", "aarch64_be"]),
    (elf::EM_ARM, false, &["arm"]),
    (elf::EM_RISCV, true, &["riscv64"]),
    (elf::EM_RISCV, false, &["riscv32"]),
    (elf::EM_PPC64, true, &["ppc64le", "ppc64", "powerpc64"]),
    (elf::EM_PPC, false, &["ppc", "ppcle", "powerpc"]),
    (elf::EM_S390, true, &["s390x"]),
    (elf::EM_S390, false, &["s390"]),
    (elf::EM_MIPS, true, &["mips64", "mips64r6"]),
    (elf::EM_MIPS, false, &["mips", "mips32r6"]),
    (elf::EM_LOONGARCH, true, &["loongarch64"]),
    (elf::EM_LOONGARCH, false, &["loongarch32"]),
    (elf::EM_SPARCV9, true, &["sparc64"]),
    (elf::EM_SPARC, false, &["sparc"]),
    (elf::EM_SPARC32PLUS, false, &[]),
    (elf::EM_68K, false, &["m68k"]),
    (elf::EM_SH, false, &["sh4", "sh4a"]),
];

/// Size of a 32-bit address space, in bytes.
const END_OF_32_BITS: u64 = 1 << 32;

impl Machine {
    /// x86-64.
    pub const X86_64: Self = Self::little(elf::EM_X86_64, true);
    /// 32-bit x86.
    pub const X86: Self = Self::little(elf::EM_386, false);
    /// 64-bit Arm, little-endian.
    pub const AARCH64: Self = Self::little(elf::EM_AARCH64, true);
    /// 32-bit Arm, little-endian.
    pub const ARM: Self = Self::little(elf::EM_ARM, false);
    /// 64-bit RISC-V.
    pub const RISCV64: Self = Self::little(elf::EM_RISCV, true);
    /// 64-bit LoongArch.
    pub const LOONGARCH64: Self = Self::little(elf::EM_LOONGARCH, true);
    /// 64-bit POWER, little-endian.
    pub const POWERPC64LE: Self = Self::little(elf::EM_PPC64, true);
    /// 64-bit IBM Z.
    pub const S390X: Self = Self {
        id: elf::EM_S390,
        is_64: true,
        endian: ByteOrder::Big,
    };

    const fn little(id: elf::Machine, is_64: bool) -> Self {
        Self {
            id,
            is_64,
            endian: ByteOrder::Little,
        }
    }

    /// Returns the ELF machine ID (`e_machine`).
    pub fn id(&self) -> u16 {
        self.id.0
    }

    /// Creates a machine from an ELF machine ID. If the ID leaves the class open, the machine is 64-bit.
    pub fn new(id: u32, endian: ByteOrder) -> Self {
        let id = elf::Machine(u16::try_from(id).unwrap_or(0));
        let is_64 = is_64_bit(id).unwrap_or(true);
        Self { id, is_64, endian }
    }

    /// Returns the machine of a file written by a runtime, which has only the ELF machine ID and the
    /// endianness. `recorded` is the machine that the profile was recorded on, `code_end` the end address of
    /// all code in the file.
    ///
    /// If the ID is `EM_NONE`, the recorded machine's ID is used.
    ///
    /// Quirk: Erlang/OTP 27 writes `EM_X86_64` on AArch64, as other writers that know only one machine do (capture
    /// erlang27-arm64-fp). Code that was sampled ran on the recorded machine, so that ID gives way to the one of any other 64-bit
    /// machine. Other IDs do not: under QEMU's user emulation, the jitdump is for the emulated machine (captures node20-arm64-dump
    /// and others).
    ///
    /// If the ID leaves the class open, code above
    /// 4 GiB is 64-bit, and code below 4 GiB has the class of the recorded machine if the two IDs are equal.
    /// If they differ, MIPS and RISC-V code below 4 GiB is 32-bit, because 64-bit programs have their
    /// mappings far above it (captures node18-mipsle-dump, node18-mips64le-dump). 31-bit S/390 and 32-bit
    /// LoongArch have no JIT compilers that are still in use.
    ///
    /// As a consequence, 32-bit code on a 64-bit MIPS kernel is treated as 64-bit code, whose instruction set
    /// includes the 32-bit one. x32 and N32 share the machine IDs of the 64-bit ABIs and are not
    /// distinguished from them.
    #[doc(hidden)]
    pub fn of_file(id: u32, endian: ByteOrder, recorded: Self, code_end: u64) -> Self {
        let declared = Self::new(id, endian);
        let id = match declared.id {
            elf::EM_NONE => recorded.id,
            elf::EM_X86_64 if recorded.is_64 && recorded.endian == endian => recorded.id,
            id => id,
        };
        let is_64_by_evidence = || match id {
            _ if code_end > END_OF_32_BITS => true,
            _ if id == recorded.id => recorded.is_64,
            _ => !matches!(id, elf::EM_MIPS | elf::EM_RISCV),
        };
        Self {
            id,
            is_64: is_64_bit(id).unwrap_or_else(is_64_by_evidence),
            endian,
        }
    }

    /// Whether a file that declares the ELF machine ID `id` means this machine: with its own ID, or with none.
    pub(crate) fn is_declared(&self, id: u32) -> bool {
        id == u32::from(elf::EM_NONE.0) || id == u32::from(self.id.0)
    }

    /// Returns the machine with this `uname -m` name, as recorded in profiles; `None` if the name is unknown.
    #[doc(hidden)]
    pub fn of_architecture(name: &[u8], endian: ByteOrder) -> Option<Self> {
        // armv7l, armv8b and many more
        let name = if name.starts_with(b"arm") { b"arm" } else { name };
        let is_named = |names: &[&str]| names.iter().any(|known| known.as_bytes() == name);
        let &(id, is_64, _) = MACHINES.iter().find(|(_, _, names)| is_named(names))?;
        Some(Self { id, is_64, endian })
    }

    /// Returns the `uname -m` name; `None` if the machine is unknown.
    #[doc(hidden)]
    pub fn architecture(&self) -> Option<&'static str> {
        let known = |(id, is_64, _): &&(elf::Machine, bool, &[&str])| (*id, *is_64) == (self.id, self.is_64);
        MACHINES.iter().find(known)?.2.first().copied()
    }

    /// Returns the machine that a profile was recorded on. If its architecture is missing or unknown, returns
    /// the host.
    #[doc(hidden)]
    pub fn of_profile(architecture: Option<&[u8]>, endian: ByteOrder) -> Self {
        let recorded = architecture.and_then(|name| Self::of_architecture(name, endian));
        recorded.unwrap_or_else(Self::host)
    }

    /// Returns the machine that this program runs on.
    pub fn host() -> Self {
        let endian = ByteOrder::NATIVE;
        Self::of_architecture(std::env::consts::ARCH.as_bytes(), endian)
            .unwrap_or_else(|| Self::new(elf::EM_X86_64.0.into(), endian))
    }

    /// Returns the size of an address, in bytes.
    pub fn address_size(&self) -> u64 {
        if self.is_64 { 8 } else { 4 }
    }

    /// Returns the flags of the ELF header (`e_flags`). The objects are never executed, but disassemblers
    /// derive the available instructions from the flags, so these name the largest instruction set in common
    /// use.
    #[doc(hidden)]
    pub fn flags(&self) -> elf::FileFlags {
        let none = elf::FileFlags(0);
        match (self.id, self.endian) {
            (elf::EM_ARM, ByteOrder::Little) => elf::EF_ARM_EABI_VER5,
            // Since ARMv6, only data is big-endian; instructions are not.
            (elf::EM_ARM, ByteOrder::Big) => elf::EF_ARM_EABI_VER5 | elf::EF_ARM_BE8,
            (elf::EM_RISCV, _) => elf::EF_RISCV_RVC | elf::EF_RISCV_FLOAT_ABI_DOUBLE,
            (elf::EM_LOONGARCH, _) => elf::EF_LARCH_ABI_DOUBLE_FLOAT | elf::EF_LARCH_OBJABI_V1,
            // GNU objdump takes flags of zero for MIPS I, the instruction set of 1985.
            (elf::EM_MIPS, _) if self.is_64 => elf::EF_MIPS_ARCH_64R2,
            (elf::EM_MIPS, _) => elf::EF_MIPS_ARCH_32R2 | elf::EF_MIPS_ABI_O32,
            // ABI version 2. Big-endian machines use 1 or 2, which differ in whether function symbols refer
            // to code. Here they do, which matches 0.
            (elf::EM_PPC64, ByteOrder::Little) => none.with_ppc64_abi(2),
            _ => none,
        }
    }
}

/// Returns whether a machine ID implies 64-bit addresses; `None` if it leaves that open. Unknown machines are
/// 64-bit.
fn is_64_bit(id: elf::Machine) -> Option<bool> {
    let mut classes = MACHINES.iter().filter(|row| row.0 == id).map(|row| row.1);
    let first = classes.next().unwrap_or(true);
    classes.all(|other| other == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: ByteOrder = ByteOrder::Big;

    fn recorded(name: &str) -> Machine {
        Machine::of_architecture(name.as_bytes(), ORDER).unwrap()
    }

    #[test]
    fn the_class_of_an_ambiguous_machine_id_depends_on_addresses_and_the_profile() {
        let (low, high) = (0x7000_0000, 0x7f_0000_0000);
        for (id, profile, code_end, is_64) in [
            (62, "x86_64", low, true),
            (3, "x86_64", low, false),
            (8, "x86_64", low, false),
            (8, "x86_64", 1 << 32, false),
            (8, "x86_64", (1 << 32) + 1, true),
            (8, "x86_64", high, true),
            (8, "mips", low, false),
            (8, "mips", high, true),
            (8, "mips64", low, true),
            (243, "riscv32", low, false),
            (243, "riscv64", low, true),
            (243, "x86_64", low, false),
            (243, "x86_64", high, true),
            (22, "x86_64", low, true),
            (22, "s390", low, false),
            (22, "s390x", low, true),
            // CPython 3.13.0 writes no machine ID.
            (0, "i686", low, false),
            (0, "ppc64", low, true),
            (0, "s390", low, false),
            // Erlang writes x86-64's on all machines.
            (62, "aarch64", high, true),
            (62, "i686", high, true),
            // unknown machine ID
            (54321, "i686", low, true),
        ] {
            let machine = Machine::of_file(id, ORDER, recorded(profile), code_end);
            assert_eq!(machine.is_64, is_64, "{id}, {profile}, {code_end:#x}");
            let expected = match (id, profile) {
                (0, _) | (62, "aarch64") => recorded(profile).id.0.into(),
                (id, _) => id,
            };
            assert_eq!(u32::from(machine.id.0), expected);
        }
    }

    #[test]
    fn this_machine_is_known() {
        let host = Machine::host();
        assert_eq!(Machine::new(host.id().into(), host.endian), host);
        assert_eq!(host.is_64, cfg!(target_pointer_width = "64"));
        assert_eq!(host.id == elf::EM_X86_64, cfg!(target_arch = "x86_64"));
    }
}
