//! Reads objects, lines and unwinding tables back with `object` and gimli.

use std::collections::HashMap;
use std::ops::Range;

use gimli::constants as dw;
use gimli::{EndianSlice, RunTimeEndian, SectionId, UnwindSection};
use jitdump::ByteOrder;
use jitinject::internals::elf::dwarf;
use object::{Object, ObjectSection, ObjectSymbol};

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// Converts an endianness to gimli's type.
pub fn gimli_endian(endian: ByteOrder) -> RunTimeEndian {
    match endian {
        ByteOrder::Little => RunTimeEndian::Little,
        ByteOrder::Big => RunTimeEndian::Big,
    }
}

/// A row of a line program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineRow {
    /// First address of the row.
    pub address: u64,
    /// Whether its file index is in the file table.
    pub has_file: bool,
    /// Line; 0 if there is none.
    pub line: u64,
    /// Column; 0 if there is none.
    pub column: u64,
}

/// An inlined call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Number of enclosing calls.
    pub depth: usize,
    /// Address ranges of its code.
    pub ranges: Vec<Range<u64>>,
    /// Line of the call; 0 if there is none.
    pub line: u64,
}

/// Content of the sections of one function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Rows, without the one that ends the sequence.
    pub rows: Vec<LineRow>,
    /// End address of the sequence.
    pub end: Option<u64>,
    /// Inlined calls, each followed by those inside it.
    pub calls: Vec<Call>,
    /// Address ranges in `.debug_aranges`.
    pub code: Vec<Range<u64>>,
}

/// Reads the sections of one function; panics if anything in them is invalid.
pub fn contents(sections: &dwarf::Sections<'_>, endian: ByteOrder) -> Contents {
    let by_name: HashMap<&str, &[u8]> = sections.iter().copied().collect();
    let section = |name: &str| {
        EndianSlice::new(
            by_name.get(name).copied().unwrap_or_default(),
            gimli_endian(endian),
        )
    };
    let load = |id: SectionId| Ok::<_, gimli::Error>(section(id.name()));
    let dwarf = gimli::Dwarf::load(load).unwrap();
    let mut found = Contents::default();
    let mut units = dwarf.units();
    let header = units.next().unwrap().expect("a unit");
    assert!(units.next().unwrap().is_none(), "one unit");
    let unit = dwarf.unit(header).unwrap();
    let unit = gimli::UnitRef::new(&dwarf, &unit);
    read_entries(unit, &mut found);
    read_rows(unit, &mut found);
    let aranges = gimli::DebugAranges::from(section(".debug_aranges"));
    let mut headers = aranges.headers();
    while let Some(header) = headers.next().unwrap() {
        assert_eq!(Some(header.debug_info_offset()), unit.header.debug_info_offset());
        let mut entries = header.entries();
        while let Some(entry) = entries.next().unwrap() {
            found.code.push(entry.range().begin..entry.range().end);
        }
    }
    found
}

fn read_entries(unit: gimli::UnitRef<'_, Slice<'_>>, found: &mut Contents) {
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs().unwrap() {
        for attribute in entry.attrs() {
            match attribute.value() {
                gimli::AttributeValue::UnitRef(origin) => drop(unit.entry(origin).unwrap()),
                value @ (gimli::AttributeValue::DebugStrRef(_) | gimli::AttributeValue::String(_)) => {
                    unit.attr_string(value).unwrap();
                }
                gimli::AttributeValue::FileIndex(file) => {
                    let program = unit.line_program.as_ref().expect("a line program for a file");
                    assert!(
                        program.header().file(file).is_some(),
                        "file {file} is in the table"
                    );
                }
                _ => {}
            }
        }
        let mut ranges = Vec::new();
        let mut found_ranges = unit.die_ranges(entry).unwrap();
        while let Some(range) = found_ranges.next().unwrap() {
            ranges.push(range.begin..range.end);
        }
        if entry.tag() == dw::DW_TAG_inlined_subroutine {
            let line = entry.attr_value(dw::DW_AT_call_line);
            found.calls.push(Call {
                // without the unit and the function
                depth: usize::try_from(entry.depth()).unwrap() - 2,
                ranges,
                line: line.and_then(|line| line.udata_value()).unwrap_or(0),
            });
        }
    }
}

fn read_rows(unit: gimli::UnitRef<'_, Slice<'_>>, found: &mut Contents) {
    let Some(program) = unit.line_program.clone() else {
        return;
    };
    for file in program.header().file_names() {
        unit.attr_string(file.path_name()).unwrap();
        let directory = file.directory(program.header()).expect("a folder");
        unit.attr_string(directory).unwrap();
    }
    let mut rows = program.rows();
    while let Some((header, row)) = rows.next_row().unwrap() {
        if row.end_sequence() {
            assert_eq!(found.end.replace(row.address()), None, "one sequence");
            continue;
        }
        found.rows.push(LineRow {
            address: row.address(),
            has_file: row.file(header).is_some(),
            line: row.line().map_or(0, std::num::NonZeroU64::get),
            column: match row.column() {
                gimli::ColumnType::LeftEdge => 0,
                gimli::ColumnType::Column(column) => column.get(),
            },
        });
    }
}

/// Address and encoding of unwinding tables.
#[derive(Clone, Copy)]
pub struct TablePlace {
    /// Address of `.eh_frame`.
    pub eh_frame: u64,
    /// Endianness.
    pub endian: ByteOrder,
    /// Size of an address in bytes.
    pub address_size: u8,
}

/// An unwinding entry: its addresses and its instructions, preceded by those of its CIE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableEntry {
    /// First address.
    pub start: u64,
    /// Size of the code in bytes.
    pub size: u64,
    /// Instructions as text.
    pub instructions: Vec<String>,
}

/// Reads the entries of an `.eh_frame`; an error if gimli does not support one.
pub fn entries(section: &[u8], place: TablePlace) -> Vec<Result<TableEntry, gimli::Error>> {
    let mut frame = gimli::EhFrame::new(section, gimli_endian(place.endian));
    frame.set_address_size(place.address_size);
    frame.set_vendor(gimli::Vendor::AArch64);
    let bases = gimli::BaseAddresses::default().set_eh_frame(place.eh_frame);
    let mut entries = frame.entries(&bases);
    let mut found = Vec::new();
    loop {
        match entries.next() {
            Ok(None) => return found,
            Ok(Some(gimli::CieOrFde::Cie(_))) => {}
            Ok(Some(gimli::CieOrFde::Fde(partial))) => found.push(read_entry(&frame, &bases, &partial)),
            Err(error) => {
                found.push(Err(error));
                return found;
            }
        }
    }
}

fn read_entry<'a>(
    frame: &gimli::EhFrame<Slice<'a>>,
    bases: &gimli::BaseAddresses,
    partial: &gimli::PartialFrameDescriptionEntry<'_, gimli::EhFrame<Slice<'a>>, Slice<'a>>,
) -> Result<TableEntry, gimli::Error> {
    let entry = partial.parse(gimli::EhFrame::cie_from_offset)?;
    let cie = entry.cie();
    let mut instructions = Vec::new();
    let parts = [cie.instructions(frame, bases), entry.instructions(frame, bases)];
    for (part, mut iterator) in parts.into_iter().enumerate() {
        while let Some(instruction) = iterator.next()? {
            // Skips padding.
            if !matches!(instruction, gimli::CallFrameInstruction::Nop) {
                instructions.push(format!("{part} {}", text(&instruction, frame)?));
            }
        }
    }
    let factors = (
        cie.code_alignment_factor(),
        cie.data_alignment_factor(),
        cie.return_address_register(),
    );
    instructions.push(format!("{factors:?}"));
    Ok(TableEntry {
        start: entry.initial_address(),
        size: entry.len(),
        instructions,
    })
}

/// Returns an instruction as text, independent of its address.
fn text(
    instruction: &gimli::CallFrameInstruction<usize>,
    frame: &gimli::EhFrame<Slice<'_>>,
) -> Result<String, gimli::Error> {
    use gimli::CallFrameInstruction::{DefCfaExpression, Expression, ValExpression};
    Ok(match instruction {
        DefCfaExpression { expression } => format!("CFA {:?}", expression.get(frame)?.0.slice()),
        Expression { register, expression } => {
            format!("at {register:?} {:?}", expression.get(frame)?.0.slice())
        }
        ValExpression { register, expression } => {
            format!("in {register:?} {:?}", expression.get(frame)?.0.slice())
        }
        other => format!("{other:?}"),
    })
}

/// Checks that each entry is found with the index in `.eh_frame_hdr`, which directly follows `.eh_frame`.
pub fn check_index(
    tables: &jitinject::internals::elf::eh_frame::UnwindTables,
    place: TablePlace,
    entries: &[TableEntry],
) {
    let (section, header) = tables.bytes.split_at(tables.eh_frame_size);
    let mut frame = gimli::EhFrame::new(section, gimli_endian(place.endian));
    frame.set_address_size(place.address_size);
    frame.set_vendor(gimli::Vendor::AArch64);
    let header_address = place.eh_frame.wrapping_add(tables.eh_frame_size as u64);
    let bases = gimli::BaseAddresses::default()
        .set_eh_frame(place.eh_frame)
        .set_eh_frame_hdr(header_address);
    let header = gimli::EhFrameHdr::new(header, gimli_endian(place.endian));
    let header = header.parse(&bases, place.address_size).unwrap();
    let table = header.table().expect("a table");
    for entry in entries {
        for address in [entry.start, entry.start + (entry.size - 1)] {
            let found = table
                .fde_for_address(&frame, &bases, address, gimli::EhFrame::cie_from_offset)
                .unwrap();
            assert_eq!((found.initial_address(), found.len()), (entry.start, entry.size));
        }
    }
}

/// Content of an object as read by `object`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectContents {
    /// Name of its only symbol.
    pub name: Vec<u8>,
    /// Address and size of the symbol.
    pub place: (u64, u64),
    /// Content of `.text`.
    pub text: Vec<u8>,
    /// Build ID.
    pub build_id: Vec<u8>,
    /// Content of the other sections by name.
    pub sections: HashMap<String, Vec<u8>>,
}

/// Reads an object; panics if anything in it is invalid.
pub fn object(bytes: &[u8]) -> ObjectContents {
    let file = object::File::parse(bytes).unwrap();
    let mut sections = HashMap::new();
    for section in file.sections() {
        let name = section.name().unwrap().to_owned();
        let before = sections.insert(name, section.data().unwrap().to_vec());
        assert!(before.is_none(), "a section of each name");
    }
    let mut symbols = file
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text);
    let symbol = symbols.next().expect("a symbol");
    assert!(symbols.next().is_none(), "one symbol");
    let text = sections.remove(".text").expect("code");
    ObjectContents {
        name: symbol.name_bytes().unwrap().to_vec(),
        place: (symbol.address(), symbol.size()),
        text,
        build_id: file.build_id().unwrap().expect("a build-id").to_vec(),
        sections,
    }
}
