//! Content of DWARF sections as gimli reads it, independent of its encoding.

use std::collections::HashMap;
use std::fmt::Write;

use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, RunTimeEndian, SectionId};
use gimli::{UnitOffset, constants as dw};

pub type Reader<'a> = EndianSlice<'a, RunTimeEndian>;
type Unit<'u, 'a> = gimli::UnitRef<'u, Reader<'a>>;

/// Loads sections for reading.
pub fn load<'a>(sections: &[(&str, &'a [u8])], endian: RunTimeEndian) -> gimli::Dwarf<Reader<'a>> {
    let by_name: HashMap<&str, &[u8]> = sections.iter().copied().collect();
    let load = |id: SectionId| {
        let bytes = by_name.get(id.name()).copied().unwrap_or_default();
        Ok::<_, gimli::Error>(EndianSlice::new(bytes, endian))
    };
    gimli::Dwarf::load(load).unwrap()
}

/// Returns the units as lines of text: entries with code, entries without, and rows.
pub fn describe(sections: &[(&str, &[u8])], endian: RunTimeEndian) -> Vec<Vec<String>> {
    let dwarf = load(sections, endian);
    let mut all = Vec::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next().unwrap() {
        let unit = dwarf.unit(header).unwrap();
        let unit = gimli::UnitRef::new(&dwarf, &unit);
        let mut lines = entries(unit);
        lines.extend(rows(unit));
        all.push(lines);
    }
    all
}

/// Returns all entries; those without code come last, because their position does not matter.
fn entries(unit: Unit<'_, '_>) -> Vec<String> {
    let (mut with_code, mut without_code) = (Vec::new(), Vec::new());
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs().unwrap() {
        let line = format!("{} {}", entry.depth(), entry_text(unit, entry));
        match entry.attr(dw::DW_AT_inline) {
            Some(_) => without_code.push(line),
            None => with_code.push(line),
        }
    }
    with_code.extend(without_code);
    with_code
}

fn entry_text<'a>(unit: Unit<'_, 'a>, entry: &DebuggingInformationEntry<Reader<'a>>) -> String {
    let mut attributes: Vec<String> = Vec::new();
    for attribute in entry.attrs() {
        let value = match (attribute.name(), attribute.value()) {
            // encodings of addresses and offsets
            (dw::DW_AT_stmt_list | dw::DW_AT_low_pc | dw::DW_AT_high_pc | dw::DW_AT_ranges, _) => continue,
            (_, AttributeValue::UnitRef(origin)) => entry_at(unit, origin),
            (_, AttributeValue::FileIndex(file)) => file_text(unit, file),
            (_, AttributeValue::DebugStrRef(_) | AttributeValue::String(_)) => {
                text(&unit.attr_string(attribute.value()).unwrap())
            }
            (_, AttributeValue::Language(language)) => language.to_string(),
            (_, AttributeValue::Inline(inline)) => inline.to_string(),
            (_, value) => format!("{:?}", value.udata_value().unwrap_or(u64::MAX)),
        };
        attributes.push(format!("{}={value}", attribute.name()));
    }
    let mut ranges = unit.die_ranges(entry).unwrap();
    let mut code = String::new();
    while let Some(range) = ranges.next().unwrap() {
        write!(code, " {:#x}..{:#x}", range.begin, range.end).unwrap();
    }
    attributes.sort();
    format!("{}{code} {}", entry.tag(), attributes.join(" "))
}

fn entry_at(unit: Unit<'_, '_>, offset: UnitOffset) -> String {
    let entry = unit.entry(offset).unwrap();
    format!("[{}]", entry_text(unit, &entry))
}

fn file_text(unit: Unit<'_, '_>, number: u64) -> String {
    let header = unit.line_program.as_ref().unwrap().header();
    let Some(file) = header.file(number) else {
        return "none".into();
    };
    let string = |value| text(&unit.attr_string(value).unwrap());
    let directory = match file.directory_index() {
        0 => String::new(),
        _ => string(file.directory(header).unwrap()) + "/",
    };
    let source = file.source().map(string).unwrap_or_default();
    format!("{directory}{}({source})", string(file.path_name()))
}

fn rows(unit: Unit<'_, '_>) -> Vec<String> {
    let Some(program) = unit.line_program.clone() else {
        return vec!["no lines".into()];
    };
    let mut lines = Vec::new();
    let mut rows = program.rows();
    while let Some((_, row)) = rows.next_row().unwrap() {
        if row.end_sequence() {
            lines.push(format!("{:#x} end", row.address()));
            continue;
        }
        let mut line = format!(
            "{:#x} {} {:?} {:?}",
            row.address(),
            file_text(unit, row.file_index()),
            row.line(),
            row.column()
        );
        write!(
            line,
            " {} {} {}",
            row.discriminator(),
            row.is_stmt(),
            row.prologue_end()
        )
        .unwrap();
        lines.push(line);
    }
    lines
}

fn text(string: &Reader<'_>) -> String {
    String::from_utf8_lossy(string.slice()).into_owned()
}
