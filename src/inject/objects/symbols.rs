//! Writing the symbols of perf maps as objects without code.

use std::borrow::Cow;

use crate::code::perf_map_symbols::PlacedSymbol;
use crate::collections::sparse::SparseBytes;
use crate::collections::tally::Tally;
use crate::diagnostics::{Diagnostic, Issue};
use crate::elf::dwarf::{Buffers, Encoder};
use crate::elf::eh_frame::{TableLayout, Tables};
use crate::elf::object::{self, Code, Function, ObjectContent, PlacedTables};
use crate::elf::store::ObjectKind;
use crate::inject::objects::source_paths::{SourceFolders, SourcePlaces};
use crate::inject::objects::{Input, Objects, PlacedObject, TABLE_ALIGN, path_for_readers};
use crate::inject::output::Output;
use crate::inject::sources::KeptSources;
use crate::machine::Machine;
use crate::runtime::perf_map::Symbol;
use crate::units::{BuildId, Pid, Time};

/// Writer of objects for symbols.
struct SymbolWriter<'a> {
    input: &'a Input<'a>,
    machine: Machine,
}

/// Writes one object per symbol in `placed`, which must be sorted, and adds it to `objects`. Reports the
/// number of finished entries to `progress`.
pub fn write(
    input: &Input<'_>,
    placed: &[PlacedSymbol],
    output: &mut Output,
    kept: &mut KeptSources,
    objects: &mut Objects,
    mut progress: impl FnMut(u64),
) -> Result<(), Diagnostic> {
    let writer = SymbolWriter {
        input,
        machine: input.recorded,
    };
    let mut buffers = Buffers::default();
    for symbol_places in placed.chunk_by(|one, other| one.id == other.id) {
        let Some((pid, symbol, owner)) = symbol_places.first().and_then(|place| writer.symbol(place)) else {
            continue;
        };
        let store = output.store()?;
        let name = writer.name(symbol);
        if input.lines.keep_sources {
            let info = input.v8_functions.declaration(symbol.name);
            kept.keep(
                input.lines.sources_to_keep(info, owner).into_iter().collect(),
                store,
                &mut objects.faults,
            )?;
        }
        let places = SourcePlaces {
            store: store.folder(),
            folders: &SourceFolders::default(),
            kept,
            owner,
        };
        let (bytes, build_id) = writer.encode(symbol, &name, places, &mut objects.faults, &mut buffers);
        let kind = ObjectKind::Symbol(symbol.range.start);
        let file = store.write(pid, kind, &bytes, &build_id)?;
        objects.symbols += 1;
        let path = path_for_readers(&store.folder().join(file));
        for place in symbol_places {
            objects.placed.push(PlacedObject {
                pid: input.processes.space(place.space).pid,
                space: place.space,
                // After the record that maps the memory.
                time: Time(place.since.0.saturating_add(1)),
                sequence: 0,
                range: place.range,
                file_offset: writer.file_offset(symbol, place),
                tables: None,
                build_id,
                path: path.clone(),
            });
        }
        progress(symbol_places.len() as u64);
    }
    Ok(())
}

impl<'a> SymbolWriter<'a> {
    /// Returns a symbol, and the process and the owner of its perf map.
    fn symbol(&self, place: &PlacedSymbol) -> Option<(Pid, Symbol<'a>, u32)> {
        let used = &self.input.maps[place.id.table];
        let symbol = used.map.symbols.get(place.id.symbol as usize)?;
        Some((used.found.pid, *symbol, used.found.file.owner()))
    }

    /// Offset of a part of a symbol in a file that contained its code.
    fn file_offset(&self, symbol: Symbol<'a>, place: &PlacedSymbol) -> u64 {
        let into_symbol = place.range.start.0.saturating_sub(symbol.range.start.0);
        let code = Code::Unknown(symbol.range.size());
        code.file_offset(code.text_address(false).saturating_add(into_symbol))
    }

    /// Name of a symbol.
    fn name(&self, symbol: Symbol<'a>) -> Cow<'a, [u8]> {
        let name = self.input.v8_functions.name(symbol.name);
        self.input.symbol_name(name, || None, symbol.tier())
    }

    /// Encodes the object of a symbol, with the source location that its name contains.
    fn encode(
        &self,
        symbol: Symbol<'a>,
        name: &[u8],
        places: SourcePlaces<'_>,
        faults: &mut Tally<Issue>,
        buffers: &mut Buffers,
    ) -> (SparseBytes, BuildId) {
        let code = Code::Unknown(symbol.range.size());
        let function = Function {
            name,
            code,
            address: code.text_address(false),
        };
        let lines = &self.input.lines;
        let mut encoder = Encoder::new(buffers, lines.settings(self.machine));
        if let Some(info) = self.input.v8_functions.declaration(symbol.name) {
            // Each symbol is an object of its own, so texts of source maps would be in many.
            let added = lines.add(info, &function, self.input.names, places, false, &mut encoder);
            if added.is_err() {
                faults.add(Issue::LinesTooLarge, 0);
            }
        }
        // With an empty index, libunwind follows the frame pointer, and its address does not matter.
        let end = function.address.saturating_add(code.size());
        let eh_frame = end.next_multiple_of(TABLE_ALIGN);
        let layout = TableLayout {
            eh_frame,
            endian: self.machine.endian,
            address_size: self.machine.address_size(),
        };
        let tables = Tables::build(std::iter::empty(), layout).unwrap_or_default();
        let content = ObjectContent {
            machine: self.machine,
            functions: &[function],
            address: symbol.range.start.0,
            time: 0,
            tables: PlacedTables {
                tables: &tables,
                address: eh_frame,
            },
            debug: &encoder.finish(),
        };
        let mut bytes = SparseBytes::default();
        let build_id = object::encode(&content, &mut bytes).build_id;
        (bytes, build_id)
    }
}
