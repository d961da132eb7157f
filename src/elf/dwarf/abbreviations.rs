//! Abbreviations of `.debug_info` entries (`.debug_abbrev`).
//!
//! An entry has one of four kinds; flags select its optional attributes. The abbreviation code consists of kind
//! and flags, so that all units share one table and unknown attributes take no space.

use gimli::constants as dw;

use crate::elf::dwarf::leb128;

/// Kind of an entry, in the upper bits of its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// Compile unit.
    Unit = 0,
    /// Function with code.
    Function = 1,
    /// Function that was inlined.
    Inlined = 2,
    /// Inlined call.
    Call = 3,
}

/// The entry has children, which a zero terminates.
pub const CHILDREN: u8 = 1;
/// The unit has a language.
pub const LANGUAGE: u8 = 2;
/// The unit has a line program.
pub const LINES: u8 = 4;
/// The inlined function has a name.
pub const NAME: u8 = 1;
/// The function has a linkage name.
pub const LINKAGE_NAME: u8 = 2;
/// The call's code has several ranges.
pub const RANGES: u8 = 2;
/// The declaration or call has a file.
pub const FILE: u8 = 4;
/// The declaration or call has a line.
pub const LINE: u8 = 8;
/// The declaration or call has a column.
pub const COLUMN: u8 = 16;

/// Number of bits for flags.
const FLAG_BITS: u32 = 5;

/// Condition for an attribute.
#[derive(Clone, Copy)]
enum Presence {
    Always,
    With(u8),
    Without(u8),
}

use Presence::{Always, With, Without};

/// Attributes of a kind of entry, in order.
type Attributes = &'static [(Presence, dw::DwAt, dw::DwForm)];

const UNIT: Attributes = &[
    (Always, dw::DW_AT_producer, dw::DW_FORM_strp),
    (Always, dw::DW_AT_name, dw::DW_FORM_strp),
    (With(LANGUAGE), dw::DW_AT_language, dw::DW_FORM_udata),
    (Always, dw::DW_AT_comp_dir, dw::DW_FORM_strp),
    (Always, dw::DW_AT_low_pc, dw::DW_FORM_addr),
    (Always, dw::DW_AT_high_pc, dw::DW_FORM_udata),
    (With(LINES), dw::DW_AT_stmt_list, dw::DW_FORM_sec_offset),
];

const FUNCTION: Attributes = &[
    (With(LINKAGE_NAME), dw::DW_AT_linkage_name, dw::DW_FORM_strp),
    (Always, dw::DW_AT_name, dw::DW_FORM_strp),
    (With(FILE), dw::DW_AT_decl_file, dw::DW_FORM_udata),
    (With(LINE), dw::DW_AT_decl_line, dw::DW_FORM_udata),
    (With(COLUMN), dw::DW_AT_decl_column, dw::DW_FORM_udata),
    (Always, dw::DW_AT_low_pc, dw::DW_FORM_addr),
    (Always, dw::DW_AT_high_pc, dw::DW_FORM_udata),
];

const INLINED: Attributes = &[
    (With(LINKAGE_NAME), dw::DW_AT_linkage_name, dw::DW_FORM_strp),
    (With(NAME), dw::DW_AT_name, dw::DW_FORM_strp),
    (With(FILE), dw::DW_AT_decl_file, dw::DW_FORM_udata),
    (With(LINE), dw::DW_AT_decl_line, dw::DW_FORM_udata),
    (With(COLUMN), dw::DW_AT_decl_column, dw::DW_FORM_udata),
    (Always, dw::DW_AT_inline, dw::DW_FORM_data1),
];

const CALL: Attributes = &[
    (Always, dw::DW_AT_abstract_origin, dw::DW_FORM_ref4),
    (With(RANGES), dw::DW_AT_ranges, dw::DW_FORM_sec_offset),
    (With(RANGES), dw::DW_AT_entry_pc, dw::DW_FORM_addr),
    (Without(RANGES), dw::DW_AT_low_pc, dw::DW_FORM_addr),
    (Without(RANGES), dw::DW_AT_high_pc, dw::DW_FORM_udata),
    (With(FILE), dw::DW_AT_call_file, dw::DW_FORM_udata),
    (With(LINE), dw::DW_AT_call_line, dw::DW_FORM_udata),
    (With(COLUMN), dw::DW_AT_call_column, dw::DW_FORM_udata),
];

impl EntryKind {
    const ALL: [Self; 4] = [Self::Unit, Self::Function, Self::Inlined, Self::Call];

    /// Returns the abbreviation code: below 128 to fit into one byte, and not 0, because units always have
    /// children.
    fn code(self, flags: u8) -> u8 {
        ((self as u8) << FLAG_BITS) | flags
    }

    /// Returns the tag and the attributes.
    fn tag_and_attributes(self) -> (dw::DwTag, Attributes) {
        match self {
            Self::Unit => (dw::DW_TAG_compile_unit, UNIT),
            Self::Function => (dw::DW_TAG_subprogram, FUNCTION),
            Self::Inlined => (dw::DW_TAG_subprogram, INLINED),
            Self::Call => (dw::DW_TAG_inlined_subroutine, CALL),
        }
    }

    /// Appends the abbreviation for these flags.
    fn write_abbreviation(self, flags: u8, out: &mut Vec<u8>) {
        let (tag, attributes) = self.tag_and_attributes();
        let has_children = self != Self::Inlined && flags & CHILDREN != 0;
        leb128::write_unsigned(out, self.code(flags).into());
        leb128::write_unsigned(out, tag.0.into());
        out.push(has_children.into());
        for &(presence, name, form) in attributes {
            let is_present = match presence {
                Always => true,
                With(flag) => flags & flag != 0,
                Without(flag) => flags & flag == 0,
            };
            if is_present {
                leb128::write_unsigned(out, name.0.into());
                leb128::write_unsigned(out, form.0.into());
            }
        }
        out.extend_from_slice(&[0, 0]);
    }
}

/// Set of abbreviation codes in use, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AbbreviationCodes(u128);

impl AbbreviationCodes {
    /// Returns the code of an entry and adds it to the set.
    pub fn of(&mut self, kind: EntryKind, flags: u8) -> u8 {
        let code = kind.code(flags);
        self.0 |= 1 << code;
        code
    }

    /// Appends the table of the codes in use, if there are any.
    pub fn write_table(self, out: &mut Vec<u8>) {
        if self.0 == 0 {
            return;
        }
        for kind in EntryKind::ALL {
            let is_used = |&flags: &u8| self.0 >> kind.code(flags) & 1 != 0;
            for flags in (0..1 << FLAG_BITS).filter(is_used) {
                kind.write_abbreviation(flags, out);
            }
        }
        out.push(0);
    }
}
