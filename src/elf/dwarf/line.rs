//! Writes files and rows of a unit (`.debug_line`).

use gimli::constants as dw;
use jitdump::debug_info::{DebugInfo, LineRow, SourceFile};

use crate::elf::dwarf::files::{FileTable, split};
use crate::elf::dwarf::strings::StringTable;
use crate::elf::dwarf::{EncoderMemory, FunctionUnit, Settings, Version, leb128, write_address};
use crate::elf::escape::write_path;

/// Smallest line increment of a special opcode, and number of increments.
const LINE_BASE: i8 = -5;
const LINE_RANGE: u8 = 14;
/// First special opcode.
const OPCODE_BASE: u8 = 13;
/// Address increment of `DW_LNS_const_add_pc`.
const CONST_ADD_PC: u32 = ((u8::MAX - OPCODE_BASE) / LINE_RANGE) as u32;
/// Number of operands of each standard opcode, from 1.
const OPERANDS: [u8; OPCODE_BASE as usize - 1] = [0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];

/// Maximum column in a line table. elfutils rejects the whole table if a column has more than 16 bits, and LLVM drops
/// the upper ones.
const MAX_COLUMN: u32 = u16::MAX as u32;
/// Maximum discriminator. elfutils rejects the whole table if one has more than 24 bits.
const MAX_DISCRIMINATOR: u32 = (1 << 24) - 1;

/// Returns the number of rows whose column or discriminator is left out, because readers have no room for it.
pub fn rows_beyond_limits(info: &DebugInfo<'_>) -> u64 {
    let is_beyond = |row: &&LineRow| row.column > MAX_COLUMN || row.discriminator > MAX_DISCRIMINATOR;
    info.rows.iter().filter(is_beyond).count() as u64
}

/// Appends the line program of a function, whose files are collected; returns its offset, or `None` if there are
/// no files.
pub fn write_program(
    function: &FunctionUnit<'_>,
    settings: &Settings<'_>,
    memory: &mut EncoderMemory,
) -> Option<u32> {
    let EncoderMemory {
        line,
        line_strings,
        files,
        ..
    } = memory;
    if files.count() == 0 {
        return None;
    }
    let endian = settings.machine.endian;
    let start = line.len();
    endian.write_u32(line, 0);
    endian.write_u16(line, settings.version.to_u16());
    if settings.version == Version::Five {
        const SEGMENT_SIZE: u8 = 0;
        line.extend_from_slice(&[settings.machine.address_size() as u8, SEGMENT_SIZE]);
    }
    let header = line.len();
    endian.write_u32(line, 0);
    write_parameters(line);
    match settings.version {
        Version::Four => write_file_table_v4(line, files, function.info),
        Version::Five => write_file_table_v5(line, line_strings, files, function.info, settings),
    }
    endian.set_length(line, header);
    write_rows(line, files, function, settings);
    endian.set_length(line, start);
    Some(start as u32)
}

/// Appends the opcode parameters.
fn write_parameters(out: &mut Vec<u8>) {
    const MINIMUM_INSTRUCTION_LENGTH: u8 = 1;
    const MAXIMUM_OPERATIONS_PER_INSTRUCTION: u8 = 1;
    const DEFAULT_IS_STATEMENT: u8 = 1;
    out.extend_from_slice(&[
        MINIMUM_INSTRUCTION_LENGTH,
        MAXIMUM_OPERATIONS_PER_INSTRUCTION,
        DEFAULT_IS_STATEMENT,
        LINE_BASE as u8,
        LINE_RANGE,
        OPCODE_BASE,
    ]);
    out.extend_from_slice(&OPERANDS);
}

/// Appends directories and files in DWARF 4 format. Relative paths are resolved against the unit's directory.
fn write_file_table_v4(out: &mut Vec<u8>, files: &FileTable, info: &DebugInfo<'_>) {
    for directory in files.directories(info) {
        write_path(out, directory);
        out.push(0);
    }
    out.push(0);
    for (file, directory) in files.iter(info) {
        const TIME: u8 = 0;
        const SIZE: u8 = 0;
        write_path(out, split(&file.path).1);
        out.push(0);
        leb128::write_unsigned(out, directory.into());
        out.extend_from_slice(&[TIME, SIZE]);
    }
    out.push(0);
}

/// Appends directories and files in DWARF 5 format.
fn write_file_table_v5(
    out: &mut Vec<u8>,
    strings: &mut StringTable,
    files: &FileTable,
    info: &DebugInfo<'_>,
    settings: &Settings<'_>,
) {
    let endian = settings.machine.endian;
    let write_formats = |out: &mut Vec<u8>, formats: &[(dw::DwLnct, dw::DwForm)]| {
        out.push(formats.len() as u8);
        for (content, form) in formats {
            leb128::write_unsigned(out, content.0.into());
            leb128::write_unsigned(out, form.0.into());
        }
    };
    let path = (dw::DW_LNCT_path, dw::DW_FORM_line_strp);
    write_formats(out, &[path]);
    leb128::write_unsigned(out, (files.directory_count() as u64).saturating_add(1));
    for directory in std::iter::once(settings.directory).chain(files.directories(info)) {
        endian.write_u32(out, strings.add(|out| write_path(out, directory)));
    }

    // Strings end at the first NUL, so text that contains one is left out.
    let text = |file: &SourceFile<'_>, strings: &mut StringTable| match file.text {
        Some(text) if strings.is_nul_free(text) => Some(strings.add_text(text)),
        _ => None,
    };
    let has_text = files
        .iter(info)
        .any(|(file, _)| file.text.is_some_and(|text| strings.is_nul_free(text)));
    let directory_index = (dw::DW_LNCT_directory_index, dw::DW_FORM_udata);
    if has_text {
        let source = (dw::DW_LNCT_LLVM_source, dw::DW_FORM_line_strp);
        write_formats(out, &[path, directory_index, source]);
    } else {
        write_formats(out, &[path, directory_index]);
    }
    leb128::write_unsigned(out, files.count() as u64);
    for (file, directory) in files.iter(info) {
        endian.write_u32(out, strings.add(|out| write_path(out, split(&file.path).1)));
        leb128::write_unsigned(out, directory.into());
        if has_text {
            // All files have the same fields, so one without a text has an empty one.
            let offset = text(file, strings).unwrap_or_else(|| strings.add(|_| {}));
            endian.write_u32(out, offset);
        }
    }
}

/// Appends the sequence of a function's rows.
fn write_rows(out: &mut Vec<u8>, files: &FileTable, function: &FunctionUnit<'_>, settings: &Settings<'_>) {
    let info = function.info;
    if info.rows.is_empty() {
        return;
    }
    let machine = settings.machine;
    write_extended(out, dw::DW_LNE_set_address, machine.address_size());
    write_address(out, function.address, machine);
    // Readers start with file 1. The first row sets its file anyway: with DWARF 5, binutils 2.40 show another one
    // until an opcode sets it (`lines::first_rows_have_the_right_file`).
    const NONE_YET: u32 = u32::MAX;
    let mut registers = LineRegisters {
        offset: 0,
        file: NONE_YET,
        line: 1,
        column: 0,
    };
    // A row without a file keeps the previous one.
    let mut file = settings.version.first_file();
    let mut write_row = |out: &mut Vec<u8>, row: &LineRow, ends_prologue: bool| {
        let index = files.index(row.file);
        file = index.unwrap_or(file);
        let (line, column) = index.map_or((0, 0), |_| (row.line, row.column));
        let column = if column > MAX_COLUMN { 0 } else { column };
        if (1..=MAX_DISCRIMINATOR).contains(&row.discriminator) {
            let length = leb128_length(row.discriminator);
            write_extended(out, dw::DW_LNE_set_discriminator, length);
            leb128::write_unsigned(out, row.discriminator.into());
        }
        if ends_prologue {
            out.push(dw::DW_LNS_set_prologue_end.0);
        }
        let next = LineRegisters {
            offset: row.offset,
            file,
            line,
            column,
        };
        registers.advance(next, out);
    };
    if let Some(row) = info.prologue_row() {
        write_row(out, &row, false);
    }
    for (at, row) in info.rows.iter().enumerate() {
        write_row(out, row, at == 0 && row.offset > 0);
    }
    let rest = function.size.wrapping_sub(registers.offset);
    if rest > 0 {
        write_advance_pc(out, rest);
    }
    write_extended(out, dw::DW_LNE_end_sequence, 0);
}

/// State of a reader of the line program.
#[derive(Clone, Copy, Debug)]
struct LineRegisters {
    offset: u32,
    file: u32,
    line: u32,
    column: u32,
}

impl LineRegisters {
    /// Appends opcodes that advance to the next row and emit it.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "lines have 32 bits, their difference 64; a step is less than LINE_RANGE"
    )]
    fn advance(&mut self, next: Self, out: &mut Vec<u8>) {
        if next.file != self.file {
            out.push(dw::DW_LNS_set_file.0);
            leb128::write_unsigned(out, next.file.into());
        }
        if next.column != self.column {
            out.push(dw::DW_LNS_set_column.0);
            leb128::write_unsigned(out, next.column.into());
        }
        let lines = i64::from(next.line) - i64::from(self.line);
        let step_of = |lines: i64| {
            let step = u8::try_from(lines - i64::from(LINE_BASE)).ok();
            step.filter(|&step| step < LINE_RANGE)
        };
        let step = step_of(lines).unwrap_or_else(|| {
            out.push(dw::DW_LNS_advance_line.0);
            leb128::write_signed(out, lines);
            LINE_BASE.unsigned_abs()
        });
        // Rows are sorted.
        let bytes = next.offset.wrapping_sub(self.offset);
        let (near, far) = (Some(bytes), bytes.checked_sub(CONST_ADD_PC));
        if let Some(opcode) = special_opcode(step, near) {
            out.push(opcode);
        } else if let Some(opcode) = special_opcode(step, far) {
            out.extend_from_slice(&[dw::DW_LNS_const_add_pc.0, opcode]);
        } else {
            write_advance_pc(out, bytes);
            out.push(OPCODE_BASE + step);
        }
        *self = next;
    }
}

/// Returns the opcode that advances the address and the line and emits a row, if there is one.
fn special_opcode(step: u8, bytes: Option<u32>) -> Option<u8> {
    let bytes = u8::try_from(bytes?).ok()?;
    let of_no_step = bytes.checked_mul(LINE_RANGE)?.checked_add(OPCODE_BASE)?;
    of_no_step.checked_add(step)
}

fn write_advance_pc(out: &mut Vec<u8>, bytes: u32) {
    out.push(dw::DW_LNS_advance_pc.0);
    leb128::write_unsigned(out, bytes.into());
}

/// Appends an extended opcode whose operand has `operand` bytes; the operand must follow.
fn write_extended(out: &mut Vec<u8>, opcode: dw::DwLne, operand: u64) {
    out.extend_from_slice(&[0, operand.saturating_add(1) as u8, opcode.0]);
}

/// Returns the length of an integer in LEB128, in bytes.
fn leb128_length(value: u32) -> u64 {
    u64::from((value | 1).ilog2() / 7).saturating_add(1)
}
