//! Fixed fields of jitdump records, named as in the specification, and a reader that stops at the first
//! missing one.

use object::elf;

use crate::bytes::Reader;
use crate::tools::dump::entry::{CUT, Fields, Value};

/// Width of a field and how it is printed.
#[derive(Clone, Copy)]
pub enum FieldFormat {
    /// 32-bit number.
    Number32,
    /// 32 bits, printed as hexadecimal digits.
    Hex32,
    /// 64-bit number.
    Number64,
    /// 64-bit address or bits, printed as hexadecimal digits.
    Hex64,
}

use FieldFormat::{Hex32, Hex64, Number32, Number64};

/// Consecutive fields.
pub type FieldLayout = &'static [(&'static str, FieldFormat)];

/// Fields of the file header.
pub const HEADER: FieldLayout = &[
    ("magic", Hex32),
    ("version", Number32),
    ("total_size", Number32),
    ("elf_mach", Number32),
    ("pad1", Hex32),
    ("pid", Number32),
    ("timestamp", Number64),
    ("flags", Hex64),
];

/// Fields of the record prefix.
pub const PREFIX: FieldLayout = &[
    ("id", Number32),
    ("total_size", Number32),
    ("timestamp", Number64),
];

/// Fixed fields of LOAD records.
pub const LOAD: FieldLayout = &[
    ("pid", Number32),
    ("tid", Number32),
    ("vma", Hex64),
    ("code_addr", Hex64),
    ("code_size", Number64),
    ("code_index", Number64),
];

/// Fixed fields of MOVE records.
pub const MOVE: FieldLayout = &[
    ("pid", Number32),
    ("tid", Number32),
    ("vma", Hex64),
    ("old_code_addr", Hex64),
    ("new_code_addr", Hex64),
    ("code_size", Number64),
    ("code_index", Number64),
];

/// Fixed fields of DEBUG_INFO records.
pub const DEBUG_INFO: FieldLayout = &[("code_addr", Hex64), ("nr_entry", Number64)];

/// Fixed fields of UNWINDING_INFO records.
pub const UNWINDING_INFO: FieldLayout = &[
    ("unwind_data_size", Number64),
    ("eh_frame_hdr_size", Number64),
    ("mapped_size", Number64),
];

/// Reads fields until one is missing. In that case, adds a field that names it and returns `false`.
pub fn read(reader: &mut Reader<'_>, layout: FieldLayout, fields: &mut Fields<'_>) -> bool {
    for &(key, format) in layout {
        let value = match format {
            Number32 => reader.u32().map(|number| Value::Number(number.into())),
            Hex32 => reader.u32().map(|number| Value::Hex(number.into())),
            Number64 => reader.u64().map(Value::Number),
            Hex64 => reader.u64().map(Value::Hex),
        };
        let Some(value) = value else {
            fields.push(CUT, Value::Word(key));
            return false;
        };
        fields.push(key, value);
    }
    true
}

/// Returns the name of the ELF constant for a machine ID.
pub fn machine_name(number: u64) -> Option<&'static str> {
    let names = [
        (elf::EM_NONE, "EM_NONE"),
        (elf::EM_SPARC, "EM_SPARC"),
        (elf::EM_386, "EM_386"),
        (elf::EM_68K, "EM_68K"),
        (elf::EM_MIPS, "EM_MIPS"),
        (elf::EM_SPARC32PLUS, "EM_SPARC32PLUS"),
        (elf::EM_PPC, "EM_PPC"),
        (elf::EM_PPC64, "EM_PPC64"),
        (elf::EM_S390, "EM_S390"),
        (elf::EM_ARM, "EM_ARM"),
        (elf::EM_SH, "EM_SH"),
        (elf::EM_SPARCV9, "EM_SPARCV9"),
        (elf::EM_X86_64, "EM_X86_64"),
        (elf::EM_AARCH64, "EM_AARCH64"),
        (elf::EM_RISCV, "EM_RISCV"),
        (elf::EM_LOONGARCH, "EM_LOONGARCH"),
    ];
    let found = names
        .into_iter()
        .find(|(machine, _)| u64::from(machine.0) == number)?;
    Some(found.1)
}
