//! Lines and inlined calls of executables, against another reader of debug information, and of crafted ones.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use addr2line::Context;
use addr2line::gimli::{self, EndianSlice, NativeEndian};
use jitdump::{Address, AddressRange};
use jitinject::internals::elf::limited_reads::MemoryRoom;
use jitinject::internals::elf::line_info::{Companions, LineInfo};
use object::SymbolKind;
use object::read::{Object, ObjectSection, ObjectSymbol};

/// No other files.
static ALONE: LazyLock<Companions> = LazyLock::new(Companions::default);

/// A call: its function as compilers encode it, file, line and column.
type Call = (String, String, u32, u32);

fn read(file: &[u8]) -> LineInfo {
    LineInfo::read_if(file, &MemoryRoom::default().file(), |_| true).unwrap()
}

/// Returns what another reader finds at an address, the innermost call first.
fn expected(context: &Context<EndianSlice<'_, NativeEndian>>, address: u64) -> Vec<Call> {
    let mut found = Vec::new();
    let mut frames = context.find_frames(address).skip_all_loads().unwrap();
    while let Some(frame) = frames.next().unwrap() {
        let Some(function) = frame.function else { continue };
        let location = frame.location.unwrap();
        found.push((
            function.raw_name().unwrap().into_owned(),
            location.file.unwrap_or_default().to_owned(),
            location.line.unwrap_or(0),
            location.column.unwrap_or(0),
        ));
    }
    found
}

#[test]
fn lines_and_calls_of_this_program_are_those_of_another_reader() {
    const FUNCTIONS: usize = 3000;
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let file = object::File::parse(&bytes[..]).unwrap();
    let section = |id: gimli::SectionId| {
        let section = file.section_by_name(id.name());
        let data = section.map_or(Cow::Borrowed(&[][..]), |section| {
            section.uncompressed_data().unwrap()
        });
        Ok::<_, ()>(data)
    };
    let sections = gimli::DwarfSections::load(section).unwrap();
    let dwarf = sections.borrow(|section| EndianSlice::new(section, NativeEndian));
    let context = Context::from_dwarf(dwarf).unwrap();
    let symbols = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
    let wanted: BTreeSet<(u64, u64)> = symbols.map(|symbol| (symbol.address(), symbol.size())).collect();
    let mut wanted: Vec<AddressRange> = wanted
        .into_iter()
        .map(|(start, size)| AddressRange::new(Address(start), size).unwrap())
        .collect();
    wanted.dedup_by_key(|range| range.start);
    let step = (wanted.len() / FUNCTIONS).max(1);
    let wanted: Vec<AddressRange> = wanted.into_iter().step_by(step).collect();
    let lines = read(&bytes);
    let (infos, damaged) = lines.functions(&ALONE, &wanted).unwrap();
    assert_eq!(damaged, 0);
    let (mut compared, mut inlined, mut others, mut differ) = (0, 0, 0, Vec::new());
    for (range, info) in wanted.iter().zip(&infos) {
        for address in (range.start.0..range.end.0).step_by(7) {
            let expected = expected(&context, address);
            let frames = info.frames_at((address - range.start.0) as u32);
            let found: Vec<Call> = frames
                .iter()
                .map(|frame| {
                    let name = info.functions[frame.function as usize].name;
                    let file = frame.file.map(|file| &info.files[file as usize].path);
                    (
                        String::from_utf8_lossy(name).into_owned(),
                        file.map_or_else(String::new, |path| String::from_utf8_lossy(path).into_owned()),
                        frame.line,
                        frame.column,
                    )
                })
                .collect();
            if expected.is_empty() {
                continue;
            }
            compared += 1;
            inlined += u64::from(expected.len() > 1);
            let is_same = |(found, expected): (&Call, &Call)| {
                // Macros of other files call, too. Their lines are not in the caller's file, and left out.
                let is_elsewhere = found.1 != expected.1 && (found.2, found.3) == (0, 0);
                found == expected || is_elsewhere && found.0 == expected.0
            };
            others += found
                .iter()
                .zip(&expected)
                .filter(|(found, expected)| found.1 != expected.1)
                .count();
            if found.len() != expected.len() || !found.iter().zip(&expected).all(is_same) {
                differ.push((address, found, expected));
            }
        }
    }
    let shown = differ.iter().take(5).collect::<Vec<_>>();
    assert!(compared > 10_000 && inlined > 1000, "{compared} {inlined}");
    assert!(others < compared / 100, "{others}");
    assert!(differ.is_empty(), "{} of {compared}: {shown:#?}", differ.len());
}

/// Returns an ELF file with debug information: `abbreviations`, and a compile unit with `entries` and the range `0x1000..0x2000`.
fn crafted(abbreviations: &[u8], entries: &[u8], ranges: &[u8]) -> Vec<u8> {
    crafted_with(abbreviations, entries, &[(b".debug_ranges", ranges)])
}

/// As [`crafted`], with more sections.
fn crafted_with(abbreviations: &[u8], entries: &[u8], more: &[(&[u8], &[u8])]) -> Vec<u8> {
    crafted_units(abbreviations, &[(0, entries)], more)
}

/// As [`crafted_with`], with several units: the offset of the abbreviations of each, and its entries.
fn crafted_units(abbreviations: &[u8], units: &[(u32, &[u8])], more: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut file = object::write::Object::new(
        object::BinaryFormat::Elf,
        object::Architecture::X86_64,
        object::Endianness::Little,
    );
    let mut info = Vec::new();
    for (abbreviations, entries) in units {
        let mut unit = Vec::new();
        unit.extend_from_slice(&4_u16.to_le_bytes());
        unit.extend_from_slice(&abbreviations.to_le_bytes());
        unit.push(8);
        unit.extend_from_slice(entries);
        info.extend_from_slice(&(unit.len() as u32).to_le_bytes());
        info.extend_from_slice(&unit);
    }
    let own = [(&b".debug_abbrev"[..], abbreviations), (b".debug_info", &info)];
    for (name, content) in own.into_iter().chain(more.iter().copied()) {
        let id = file.add_section(Vec::new(), name.to_vec(), object::SectionKind::Debug);
        file.append_section_data(id, content, 1);
    }
    file.write().unwrap()
}

/// An abbreviation: code, tag, whether it has children, attributes with their forms.
fn abbreviation(code: u8, tag: gimli::DwTag, attributes: &[(gimli::DwAt, gimli::DwForm)]) -> Vec<u8> {
    let mut bytes = vec![code, tag.0 as u8, 1];
    for (attribute, form) in attributes {
        bytes.extend([attribute.0 as u8, form.0 as u8]);
    }
    bytes.extend([0, 0]);
    bytes
}

/// An entry with the range `0x1000..0x2000`.
fn with_range(code: u8) -> Vec<u8> {
    let mut bytes = vec![code];
    bytes.extend(0x1000_u64.to_le_bytes());
    bytes.extend(0x1000_u32.to_le_bytes());
    bytes
}

const RANGE: [(gimli::DwAt, gimli::DwForm); 2] = [
    (gimli::DW_AT_low_pc, gimli::DW_FORM_addr),
    (gimli::DW_AT_high_pc, gimli::DW_FORM_data4),
];

fn wanted() -> AddressRange {
    AddressRange::new(Address(0x1000), 0x1000).unwrap()
}

#[test]
fn calls_nested_to_any_depth_are_read_without_recursion() {
    let origin = (gimli::DW_AT_abstract_origin, gimli::DW_FORM_ref4);
    let abbreviations = [
        abbreviation(1, gimli::DW_TAG_compile_unit, &RANGE),
        abbreviation(2, gimli::DW_TAG_subprogram, &RANGE),
        abbreviation(3, gimli::DW_TAG_inlined_subroutine, &[RANGE[0], RANGE[1], origin]),
        vec![0],
    ];
    // The second entry is after the header, and the first one.
    let call = [with_range(3), (11_u32 + 13).to_le_bytes().to_vec()].concat();
    let entries = [with_range(1), with_range(2), call.repeat(100_000)].concat();
    let file = crafted(&abbreviations.concat(), &entries, &[]);
    let lines = read(&file);
    let (infos, _) = lines.functions(&ALONE, &[wanted()]).unwrap();
    assert_eq!(infos[0].calls.len(), 64, "more are not kept");
}

/// Whether so many functions with a list of so many ranges are read, in a file with so many other bytes.
fn are_read(functions: usize, ranges: u64, others: usize) -> bool {
    let ranges_of_entry = (gimli::DW_AT_ranges, gimli::DW_FORM_sec_offset);
    let abbreviations = [
        abbreviation(1, gimli::DW_TAG_compile_unit, &RANGE),
        abbreviation(2, gimli::DW_TAG_subprogram, &[ranges_of_entry]),
        vec![0],
    ];
    // Addresses, and not offsets from the start of the unit.
    let mut list: Vec<u64> = vec![u64::MAX, 0];
    list.extend((0..ranges).flat_map(|start| [0x1000 + start, 0x1001 + start]));
    list.extend([0, 0]);
    let list: Vec<u8> = list.into_iter().flat_map(u64::to_le_bytes).collect();
    let entries = [with_range(1), [2, 0, 0, 0, 0].repeat(functions)].concat();
    let others = vec![0; others];
    let sections = [(&b".debug_ranges"[..], &list[..]), (b".debug_str", &others)];
    let file = crafted_with(&abbreviations.concat(), &entries, &sections);
    read(&file).functions(&ALONE, &[wanted()]).is_some()
}

/// Each range takes two reads, and counts for 32 more.
#[test]
fn a_small_file_takes_up_to_a_million_reads() {
    assert!(are_read(280, 100, 0));
    assert!(!are_read(350, 100, 0));
}

#[test]
fn a_list_counts_for_each_entry_that_shares_it() {
    assert!(are_read(7, 4000, 0));
    assert!(!are_read(16, 4000, 0));
}

#[test]
fn a_large_file_takes_up_to_eight_more_reads_for_each_byte() {
    assert!(are_read(80, 1000, 250_000));
    assert!(!are_read(120, 1000, 250_000));
}

#[test]
fn a_name_is_found_through_up_to_16_origins() {
    let origin = (gimli::DW_AT_abstract_origin, gimli::DW_FORM_ref4);
    let abbreviations = [
        abbreviation(1, gimli::DW_TAG_compile_unit, &RANGE),
        abbreviation(2, gimli::DW_TAG_subprogram, &[RANGE[0], RANGE[1], origin]),
        abbreviation(3, gimli::DW_TAG_subprogram, &[origin]),
        abbreviation(
            4,
            gimli::DW_TAG_subprogram,
            &[(gimli::DW_AT_name, gimli::DW_FORM_string)],
        ),
        vec![0],
    ];
    for (origins, name) in [(16, &b"found"[..]), (17, b"")] {
        // After the header, the entry of the unit and that of the function, each entry refers to the next one.
        let mut next = 11 + 13 + 17_u32;
        let mut entries = [with_range(1), with_range(2)].concat();
        entries.extend(next.to_le_bytes());
        for _ in 1..origins {
            next += 5;
            entries.push(3);
            entries.extend(next.to_le_bytes());
        }
        entries.extend(b"\x04found\0");
        let lines = read(&crafted(&abbreviations.concat(), &entries, &[]));
        let (infos, _) = lines.functions(&ALONE, &[wanted()]).unwrap();
        assert_eq!(infos[0].functions[0].name, name, "{origins}");
    }
}

/// dwz -m moves what several files have in common to another file, which is not read.
#[test]
fn calls_of_functions_in_a_supplementary_file_have_no_name() {
    // Forms of GNU take two bytes: 0x1f20 for entries, 0x1f21 for strings.
    let with_other = |code, tag, attribute: gimli::DwAt, form: u8| {
        let mut bytes = abbreviation(code, tag, &RANGE);
        bytes.truncate(bytes.len() - 2);
        bytes.extend([attribute.0 as u8, form, 0x3e, 0, 0]);
        bytes
    };
    let abbreviations = [
        abbreviation(1, gimli::DW_TAG_compile_unit, &RANGE),
        with_other(2, gimli::DW_TAG_subprogram, gimli::DW_AT_name, 0xa1),
        with_other(
            3,
            gimli::DW_TAG_inlined_subroutine,
            gimli::DW_AT_abstract_origin,
            0xa0,
        ),
        vec![0],
    ];
    let other = 7_u32.to_le_bytes().to_vec();
    let entries = [with_range(1), with_range(2), other.clone(), with_range(3), other].concat();
    let lines = read(&crafted(&abbreviations.concat(), &entries, &[]));
    let (infos, damaged) = lines.functions(&ALONE, &[wanted()]).unwrap();
    let names: Vec<&[u8]> = infos[0].functions.iter().map(|function| function.name).collect();
    assert_eq!((infos[0].calls.len(), names, damaged), (1, vec![&b""[..]; 2], 0));
}

#[test]
fn paths_have_up_to_4096_bytes() {
    let lines = (gimli::DW_AT_stmt_list, gimli::DW_FORM_sec_offset);
    let file = (gimli::DW_AT_decl_file, gimli::DW_FORM_data1);
    let abbreviations = [
        abbreviation(1, gimli::DW_TAG_compile_unit, &[RANGE[0], RANGE[1], lines]),
        abbreviation(2, gimli::DW_TAG_subprogram, &[RANGE[0], RANGE[1], file]),
        vec![0],
    ];
    let entries = [with_range(1), vec![0; 4], with_range(2), vec![1]].concat();
    for (size, is_kept) in [(4096, true), (4097, false)] {
        let path = format!("/{}", "x".repeat(size - 1));
        // Sizes of instructions, first values, no other opcodes and no folders; then the only file.
        let header = [&[1, 1, 1, 0xfb, 14, 1, 0][..], path.as_bytes(), &[0; 5]].concat();
        let mut program = 4_u16.to_le_bytes().to_vec();
        program.extend((header.len() as u32).to_le_bytes());
        program.extend(header);
        let length = (program.len() as u32).to_le_bytes();
        let program = [&length[..], &program].concat();
        let file = crafted_with(&abbreviations.concat(), &entries, &[(b".debug_line", &program)]);
        let lines = read(&file);
        let (infos, _) = lines.functions(&ALONE, &[wanted()]).unwrap();
        let file = infos[0].functions[0].file;
        let size_of = |file: u32| infos[0].files[file as usize].path.len();
        assert_eq!(file.map(size_of), is_kept.then_some(size));
    }
}

/// Whether so many lines are read, each in a file of its own, of a unit with so many attributes that take no bytes. The files
/// are named as in the units that jitinject writes, which are told apart by an attribute.
fn are_read_with_schemes(files: u32, attributes: usize) -> bool {
    let lines = (gimli::DW_AT_stmt_list, gimli::DW_FORM_sec_offset);
    let empty = (gimli::DW_AT_declaration, gimli::DW_FORM_flag_present);
    let root = [vec![RANGE[0], RANGE[1], lines], vec![empty; attributes]].concat();
    let abbreviations = [
        abbreviation(1, gimli::DW_TAG_compile_unit, &root),
        abbreviation(2, gimli::DW_TAG_subprogram, &RANGE),
        vec![0],
    ];
    let entries = [with_range(1), vec![0; 4], with_range(2)].concat();
    // Sizes of instructions, first values, lengths of nine opcodes and no folders; then the files.
    let mut header = vec![1, 1, 1, 0xfb, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0];
    for file in 0..files {
        header.extend_from_slice(format!("node/{file}\0\0\0\0").as_bytes());
    }
    header.push(0);
    let mut program = 4_u16.to_le_bytes().to_vec();
    program.extend((header.len() as u32).to_le_bytes());
    program.extend(header);
    program.extend([0, 9, gimli::DW_LNE_set_address.0]);
    program.extend(0x1000_u64.to_le_bytes());
    for file in 1..=files {
        // The file, in two bytes, and a row one byte after the last.
        program.extend([gimli::DW_LNS_set_file.0, file as u8 | 0x80, (file >> 7) as u8, 29]);
    }
    program.extend([gimli::DW_LNS_advance_pc.0, 1, 0, 1, gimli::DW_LNE_end_sequence.0]);
    let length = (program.len() as u32).to_le_bytes();
    let program = [&length[..], &program].concat();
    let file = crafted_with(&abbreviations.concat(), &entries, &[(b".debug_line", &program)]);
    let lines = read(&file);
    let found = lines.functions(&ALONE, &[wanted()]);
    assert!(
        found
            .iter()
            .all(|(infos, _)| infos[0].files.len() == files as usize)
    );
    found.is_some()
}

#[test]
fn attributes_without_bytes_count_for_each_file_with_a_scheme() {
    assert!(are_read_with_schemes(2000, 0));
    assert!(!are_read_with_schemes(2000, 2000));
}

/// Whether inlined functions are read, each in a unit of its own that has so many other abbreviations. The tables of these units
/// overlap, and begin at different abbreviations, or are one.
fn are_read_from_units(units: u16, others: u16, overlap: bool) -> bool {
    let origin = (gimli::DW_AT_abstract_origin, gimli::DW_FORM_ref_addr);
    let own = [
        abbreviation(1, gimli::DW_TAG_compile_unit, &RANGE),
        abbreviation(2, gimli::DW_TAG_subprogram, &RANGE),
        abbreviation(3, gimli::DW_TAG_inlined_subroutine, &[RANGE[0], RANGE[1], origin]),
        vec![0],
    ]
    .concat();
    let code = |number: u16| [(number & 0x7f) as u8 | 0x80, (number >> 7) as u8];
    let [root, function] = [code(others + 1), code(others + 2)];
    let tag = gimli::DW_TAG_subprogram.0 as u8;
    let mut abbreviations = own.clone();
    for number in 1..=others {
        abbreviations.extend([&code(number)[..], &[tag, 0, 0, 0]].concat());
    }
    abbreviations.extend([&root[..], &[gimli::DW_TAG_partial_unit.0 as u8, 1, 0, 0]].concat());
    let name = [gimli::DW_AT_name.0 as u8, gimli::DW_FORM_string.0 as u8];
    abbreviations.extend([&function[..], &[tag, 0], &name, &[0, 0, 0]].concat());

    let other = [&root[..], &function, b"f\0"].concat();
    let (header, call) = (11, 18);
    let mut entries = [with_range(1), with_range(2)].concat();
    let end = header + entries.len() + call * usize::from(units);
    for unit in 0..usize::from(units) {
        let start = end + unit * (header + other.len());
        let function = (start + header + root.len()) as u32;
        entries.extend([&with_range(3)[..], &function.to_le_bytes(), &[0]].concat());
    }
    let tables = (0..u32::from(units)).map(|unit| own.len() as u32 + if overlap { 6 * unit } else { 0 });
    let all: Vec<(u32, &[u8])> = std::iter::once((0, &entries[..]))
        .chain(tables.map(|table| (table, &other[..])))
        .collect();
    let lines = read(&crafted_units(&abbreviations, &all, &[]));
    let found = lines.functions(&ALONE, &[wanted()]);
    found.is_some_and(|(_, damaged)| damaged == 0)
}

#[test]
fn abbreviations_are_kept_once_and_count() {
    assert!(are_read_from_units(200, 600, false));
    assert!(!are_read_from_units(200, 300, true));
}

/// Any number of them could name a long list.
#[test]
fn the_last_ranges_of_an_entry_count() {
    let ranges = (gimli::DW_AT_ranges, gimli::DW_FORM_sec_offset);
    let name = (gimli::DW_AT_name, gimli::DW_FORM_string);
    let abbreviations = [
        abbreviation(1, gimli::DW_TAG_compile_unit, &RANGE),
        abbreviation(2, gimli::DW_TAG_subprogram, &[name, ranges, ranges]),
        vec![0],
    ];
    // Addresses, and not offsets from the start of the unit.
    let list = |start: u64| [u64::MAX, 0, start, start + 0x100, 0, 0].map(u64::to_le_bytes);
    let lists = [list(0x1000), list(0x1800)].concat().concat();
    let entries = [&with_range(1)[..], b"\x02f\0", &[0; 4], &[48, 0, 0, 0]].concat();
    let file = crafted(&abbreviations.concat(), &entries, &lists);
    let wanted = [0x1000, 0x1800].map(|start| AddressRange::new(Address(start), 0x100).unwrap());
    let lines = read(&file);
    let (infos, damaged) = lines.functions(&ALONE, &wanted).unwrap();
    let names: Vec<&[u8]> = infos.iter().map(|info| info.functions[0].name).collect();
    assert_eq!((names, damaged), (vec![&b""[..], b"f"], 0));
}

#[test]
fn any_other_content_has_no_lines() {
    let memory = MemoryRoom::default();
    assert!(LineInfo::read_if(&b"\x7fELF"[..], &memory.file(), |_| true).is_none());
    for entries in [&[][..], &[1], &[0xff; 100]] {
        let file = crafted(&abbreviation(1, gimli::DW_TAG_compile_unit, &RANGE), entries, &[]);
        let file = read(&file);
        let found = file.functions(&ALONE, &[wanted()]).unwrap();
        assert_eq!((found.0.len(), found.1), (1, 1), "{entries:?}");
    }
    let room = MemoryRoom::new(10);
    let memory = room.file();
    let file = crafted(&[0; 100], &[], &[]);
    assert!(LineInfo::read_if(&file[..], &memory, |_| true).is_none() && memory.is_exceeded());
}
