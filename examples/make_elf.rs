//! Writes an ELF object of one function with a symbol and line table, from machine code in memory, for debuggers
//! and disassemblers:
//!
//!     cargo run --example make_elf -- function.so && objdump -d -l function.so

use jitdump::Machine;
use jitdump::debug_info::{DebugInfo, LineRow, SourceFile, SourceFunction};
use jitinject::internals::elf::dwarf::{Encoder, EncoderMemory, FunctionUnit, Settings, Version};
use jitinject::internals::elf::eh_frame::{TableLayout, UnwindTables};
use jitinject::internals::elf::object;
use jitinject::internals::elf::object::{
    CodeBytes, ObjectContent, ObjectFunction, PlacedTables, TEXT_OFFSET,
};
use jitinject::internals::files::objects::sparse::SparseBytes;
use jitinject::internals::files::staged::write_atomically;

/// x86-64: lea eax, [rdi + rsi]; ret
const CODE: [u8; 4] = [0x8d, 0x04, 0x37, 0xc3];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: make_elf OUTPUT")?;
    let machine = Machine::new(62, jitdump::ByteOrder::Little);
    let function = ObjectFunction {
        name: b"add",
        code: CodeBytes::Known(&CODE),
        address: TEXT_OFFSET,
    };

    let row = |offset, line| LineRow {
        offset,
        file: Some(0),
        line,
        column: 0,
        discriminator: 0,
    };
    let mut info = DebugInfo {
        files: vec![SourceFile::from(&b"add.toy"[..])],
        functions: vec![SourceFunction {
            name: b"add",
            file: Some(0),
            line: 1,
            column: 0,
        }],
        rows: vec![row(0, 2), row(3, 3)],
        calls: Vec::new(),
    };
    let size = u32::try_from(CODE.len())?;
    // The encoder requires normalised debug information.
    info.normalise(size);
    let mut memory = EncoderMemory::default();
    let settings = Settings {
        version: Version::Four,
        machine,
        directory: b"/src",
    };
    let mut encoder = Encoder::new(&mut memory, settings);
    encoder.add(&FunctionUnit {
        symbol: b"add",
        address: function.address,
        size,
        info: &info,
    })?;

    // Without entries, unwinders follow the frame pointer. The address of the tables is otherwise unused.
    let eh_frame = 0x1000;
    let layout = TableLayout {
        eh_frame,
        endian: machine.endian,
        address_size: machine.address_size(),
    };
    let tables = UnwindTables::build(std::iter::empty(), layout).ok_or("too far")?;
    let content = ObjectContent {
        machine,
        functions: &[function],
        address: 0x7f00_0000_1000,
        time: 1,
        tables: PlacedTables {
            tables: &tables,
            address: eh_frame,
        },
        debug: &encoder.finish(),
    };
    let mut bytes = SparseBytes::default();
    object::encode(&content, &mut bytes);
    write_atomically(path.as_ref(), &bytes.to_vec())?;
    Ok(())
}
