//! DEBUG_INFO and both layouts of DEBUG_INFO2, converted to DWARF: for arbitrary records, gimli reads back the
//! same rows and calls.

use std::ops::Range;

use jitdump::debug_info::{DebugInfo, LineRow};
use jitdump::{ByteOrder, Dump, Machine};
use jitinject::internals::elf::dwarf::{Encoder, EncoderMemory, FunctionUnit, Settings, Version};
use jitinject::internals::elf::object::TEXT_OFFSET;
use jitinject_fuzz::choices::Choices;
use jitinject_fuzz::dump::DumpWriter;
use jitinject_fuzz::read_back::{self, Contents};

/// DEBUG_INFO and samply's extensions.
const KINDS: [u32; 4] = [2, 827_346_259, 827_346_260, 827_346_261];
const NAMES: [&[u8]; 4] = [
    b"name",
    b"JS:*f /src/a.js:3:7",
    b"py::f:/src/a.py",
    b"\x1b[31m\xff",
];
const ADDRESS: u64 = 0x4000_0000;

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let kind = KINDS[usize::from(choices.byte()) % KINDS.len()];
    let name = NAMES[usize::from(choices.byte()) % NAMES.len()];
    let machine = choices.machine();
    let code = vec![0x90; 1 + usize::from(choices.u16() % 0x1000)];
    let content = choices.rest();
    let mut writer = DumpWriter::new(machine.endian, machine.id.0.into(), 1);
    writer.record(kind, 1, &with_address(content, machine.endian));
    writer.load(1, ADDRESS, 0, name, &code);
    let dump = Dump::parse(&writer.bytes, machine).unwrap();
    let Some(event) = dump.events().next() else {
        return;
    };
    let view = dump.function(event.function).unwrap();
    let size = view.range.size() as u32;
    let Some(info) = view.sources().info else {
        return;
    };
    let mut memory = EncoderMemory::default();
    for version in [Version::Four, Version::Five] {
        let unit = FunctionUnit {
            symbol: view.name,
            address: TEXT_OFFSET,
            size,
            info: &info,
        };
        let settings = Settings {
            version,
            machine: Machine {
                is_64: dump.machine().is_64,
                ..machine
            },
            directory: b".",
        };
        let mut encoder = Encoder::new(&mut memory, settings);
        encoder.add(&unit).unwrap();
        let found = read_back::contents(&encoder.finish(), machine.endian);
        check(&info, size, &found);
    }
}

/// Returns a record's content with the function's address, if it contains one.
fn with_address(content: &[u8], endian: ByteOrder) -> Vec<u8> {
    let mut out = Vec::new();
    endian.write_u64(&mut out, ADDRESS);
    out.extend_from_slice(content);
    out
}

fn check(info: &DebugInfo<'_>, size: u32, found: &Contents) {
    let address = |offset: u32| TEXT_OFFSET + u64::from(offset);
    assert_eq!(found.code, [address(0)..address(size)]);
    assert_eq!(found.calls.len(), info.calls.len());
    for (call, found) in info.calls.iter().zip(&found.calls) {
        let shifted = |range: &Range<u32>| address(range.start)..address(range.end);
        let ranges: Vec<Range<u64>> = call.ranges.iter().map(shifted).collect();
        assert_eq!(found.ranges, ranges);
        assert_eq!(found.depth, call.depth as usize);
        assert_eq!(found.line, u64::from(call.line));
    }
    let has_name = |file: Option<u32>| file.is_some_and(|file| !info.files[file as usize].path.is_empty());
    if !found.rows.is_empty() {
        assert_eq!(found.end, Some(address(size)));
        assert_eq!(found.rows[0].address, address(0), "all code is covered");
    }
    assert!(found.rows.is_sorted_by_key(|row| row.address));
    for row in &info.rows {
        let behind = found.rows.partition_point(|it| it.address <= address(row.offset));
        let at = behind.checked_sub(1).map(|at| &found.rows[at]);
        let expected = if has_name(row.file) {
            *row
        } else {
            LineRow {
                line: 0,
                column: 0,
                ..*row
            }
        };
        // Readers have no room for larger columns.
        let column = u16::try_from(expected.column).unwrap_or(0);
        let (line_found, column_found) = at.map_or((0, 0), |row| (row.line, row.column));
        assert_eq!(
            (line_found, column_found),
            (expected.line.into(), column.into()),
            "{row:?}"
        );
        assert!(line_found == 0 || at.is_some_and(|row| row.has_file));
    }
}
