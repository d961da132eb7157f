//! Arbitrary objects: `object` reads back the same content.

use jitinject::internals::elf::eh_frame::{TableLayout, UnwindTables};
use jitinject::internals::elf::object;
use jitinject::internals::elf::object::{CodeBytes, ObjectContent, ObjectFunction, PlacedTables};
use jitinject::internals::files::objects::sparse::SparseBytes;
use jitinject_fuzz::choices::Choices;
use jitinject_fuzz::read_back;

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let machine = choices.machine();
    let (address, time, tables_address) = (choices.u64(), choices.u64(), choices.u64());
    let name_size = choices.byte().into();
    let name = choices.bytes(name_size);
    let code_size = choices.u16().into();
    let code = if choices.flag() {
        CodeBytes::Known(choices.bytes(code_size))
    } else {
        CodeBytes::Unknown(1 + code_size as u64)
    };
    let has_lead_in = choices.flag();
    let info_size = choices.u16().into();
    let info = choices.bytes(info_size);
    let line = choices.rest();
    let layout = TableLayout {
        eh_frame: tables_address,
        endian: machine.endian,
        address_size: machine.address_size(),
    };
    let tables = UnwindTables::build(std::iter::empty(), layout).unwrap();
    let debug = [(".debug_info", info), (".debug_line", line)];
    let text_address = object::text_address(matches!(code, CodeBytes::Known(_)), has_lead_in);
    let content = ObjectContent {
        machine,
        functions: &[ObjectFunction {
            name,
            code,
            address: text_address,
        }],
        address,
        time,
        tables: PlacedTables {
            tables: &tables,
            address: tables_address,
        },
        debug: &debug,
    };
    let (mut bytes, mut again) = (SparseBytes::default(), vec![1, 2, 3].into());
    let encoded = object::encode(&content, &mut bytes);
    object::encode(&content, &mut again);
    assert_eq!(bytes, again, "the same content gives the same bytes");

    let bytes = bytes.to_vec();
    let found = read_back::object(&bytes);
    assert_eq!(found.build_id, encoded.build_id.0);
    assert_eq!(found.place, (text_address, code.size()));
    if let CodeBytes::Known(code) = code {
        assert_eq!(found.text, code);
    }
    assert!(!found.name.is_empty());
    if !name.is_empty() && name.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        assert_eq!(found.name, name);
    }
    assert!(std::str::from_utf8(&found.name).is_ok_and(|name| !name.contains(char::is_control)));
    for (name, content) in debug {
        assert_eq!(found.sections.get(name).map_or(&[][..], Vec::as_slice), content);
    }
    assert!(bytes[encoded.tables_offset as usize..].starts_with(&tables.bytes));
}
