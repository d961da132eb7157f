//! Writing the symbols of perf maps as objects without code.

use std::borrow::Cow;
use std::sync::Arc;

use jitdump::internals::perf_map::PerfMapSymbol;
use jitdump::{Tally, Time};

use crate::code::perf_map_symbols::PlacedSymbol;
use crate::elf::dwarf::{Encoder, EncoderMemory};
use crate::elf::eh_frame::{TableLayout, UnwindTables};
use crate::elf::object::{self, CodeBytes, ObjectContent, ObjectFunction, PlacedTables};
use crate::files::objects::sparse::SparseBytes;
use crate::files::objects::store::ObjectKind;
use crate::inject::objects::grouping::CodeToWrite;
use crate::inject::objects::source_paths::{SourceFolders, SourcePlaces, sources_to_keep};
use crate::inject::objects::{ObjectInputs, Objects, PlacedObject, TABLE_ALIGN, path_for_readers};
use crate::inject::output::Output;
use crate::inject::sources::KeptSources;
use crate::load::symbol_of;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::BuildId;

/// Maximum number of symbols in an object.
const MAX_SYMBOLS: usize = 1 << 14;

/// Maximum size of the names in an object with several symbols, in bytes.
const MAX_NAME_BYTES: usize = 2 << 20;

/// Maximum number of addresses in an object with several symbols, in bytes. They have no content, so only arithmetic limits it.
const MAX_SPAN: u64 = 1 << 30;

/// Longest distance between two symbols that is kept in their object, in bytes.
const MAX_HOLE: u64 = 4 << 20;

/// A symbol, with all places of its memory.
struct Member<'a, 'p> {
    symbol: PerfMapSymbol<'a>,
    places: &'p [PlacedSymbol],
    /// Address in the object, from that of the object's first symbol; 0 before `group_into_objects`.
    offset: u64,
}

/// A place of a symbol, or several that follow each other, and the offset in the object's file.
struct MappedPlace {
    place: PlacedSymbol,
    file_offset: u64,
}

/// Writes objects for the symbols of all that is `mapped`, and adds them to `objects`. Each has one symbol, unless they are
/// shared. Reports the number of finished entries to `progress`.
pub fn write_symbol_objects(
    input: &ObjectInputs<'_>,
    mapped: CodeToWrite<'_>,
    output: &mut Output,
    kept: &mut KeptSources,
    objects: &mut Objects,
    mut progress: impl FnMut(u64),
) -> Result<(), Diagnostic> {
    let mut memory = EncoderMemory::default();
    let (placed, are_shared) = (mapped.symbols, input.shares_symbols(mapped));
    for of_table in placed.chunk_by(|one, other| one.id.table == other.id.table) {
        let symbols = of_table.chunk_by(|one, other| one.id == other.id);
        let symbols = symbols.filter_map(|places| {
            Some(Member {
                symbol: symbol_of(input.maps, places.first()?.id)?,
                places,
                offset: 0,
            })
        });
        if are_shared {
            let mut symbols: Vec<Member<'_, '_>> = symbols.collect();
            symbols.sort_by_key(|member| member.symbol.range);
            for members in group_into_objects(symbols) {
                progress(input.write_symbols(&members, output, kept, objects, &mut memory)?);
            }
        } else {
            for member in symbols {
                progress(input.write_symbols(&[member], output, kept, objects, &mut memory)?);
            }
        }
    }
    Ok(())
}

/// Distributes symbols of one perf map, in the order of addresses, to objects, and sets their offsets there. They keep their
/// distances if these are small, so that most objects are that of one stretch of memory.
fn group_into_objects<'a, 'p>(symbols: Vec<Member<'a, 'p>>) -> Vec<Vec<Member<'a, 'p>>> {
    let mut objects: Vec<Vec<Member<'a, 'p>>> = Vec::new();
    // Of the last object: size of its names, and the end of its last symbol, in the object and in the process.
    let mut name_bytes = 0usize;
    let (mut end_in_object, mut end_in_process) = (0u64, 0u64);
    for member in symbols {
        let (range, name_size) = (member.symbol.range, member.symbol.name.len());
        let distance = range.start.0.checked_sub(end_in_process);
        let offset = match distance.filter(|&distance| distance <= MAX_HOLE) {
            Some(distance) => end_in_object.saturating_add(distance),
            // It is far away, or overlaps the last one.
            None => end_in_object.next_multiple_of(TABLE_ALIGN),
        };
        let span = offset.saturating_add(range.size());
        let names = name_bytes.saturating_add(name_size);
        match objects.last_mut() {
            Some(object) if object.len() < MAX_SYMBOLS && names <= MAX_NAME_BYTES && span <= MAX_SPAN => {
                object.push(Member { offset, ..member });
                (name_bytes, end_in_object) = (names, span);
            }
            _ => {
                objects.push(vec![member]);
                (name_bytes, end_in_object) = (name_size, range.size());
            }
        }
        end_in_process = range.end.0;
    }
    objects
}

impl Member<'_, '_> {
    /// Offset of a part of the symbol in a file that contained the code of all.
    fn file_offset(&self, place: &PlacedSymbol) -> u64 {
        let into_symbol = place.range.start.0.saturating_sub(self.symbol.range.start.0);
        let address = object::text_address(false, false).saturating_add(self.offset);
        object::file_offset(false, address.saturating_add(into_symbol))
    }
}

impl<'a> ObjectInputs<'a> {
    /// Writes an object for symbols of one perf map, by their addresses in the object. Returns the number of their places.
    fn write_symbols(
        &self,
        members: &[Member<'a, '_>],
        output: &mut Output,
        kept: &mut KeptSources,
        objects: &mut Objects,
        memory: &mut EncoderMemory,
    ) -> Result<u64, Diagnostic> {
        let Some(first) = members.first() else {
            return Ok(0);
        };
        let Some(first_place) = first.places.first() else {
            return Ok(0);
        };
        let found = &self.maps[first_place.id.table];
        let owner = found.file.owner();
        let store = output.store()?;
        if self.lines.keep_sources {
            let infos = members.iter();
            let infos = infos.filter_map(|member| self.names_and_lines.declaration(member.symbol.name));
            let names = infos.flat_map(|mut info| sources_to_keep(&mut info, owner));
            kept.keep(names.collect(), store, &mut objects.faults)?;
        }
        let places = SourcePlaces {
            store: store.folder(),
            folders: &SourceFolders::default(),
            kept,
            owner,
        };
        let (bytes, build_id) = self.encode_symbols(members, places, &mut objects.faults, memory);
        let kind = ObjectKind::Symbol(first.symbol.range.start);
        let file = store.write_object(found.pid, kind, &bytes, &build_id)?;
        objects.symbols += members.len() as u64;
        objects.symbol_objects += 1;
        let path: Arc<[u8]> = path_for_readers(&store.folder().join(file)).into();
        let mapped = members.iter().flat_map(|member| {
            let places = member.places.iter();
            places.map(|place| MappedPlace {
                place: *place,
                file_offset: member.file_offset(place),
            })
        });
        let mut mapped: Vec<MappedPlace> = mapped.collect();
        let place_count = mapped.len() as u64;
        mapped.sort_by_key(|mapped| (mapped.place.space, mapped.place.since, mapped.place.range));
        // In an object of one symbol, each place keeps a map of its own.
        if members.len() > 1 {
            join(&mut mapped);
        }
        for MappedPlace { place, file_offset } in mapped {
            objects.placed.push(PlacedObject {
                pid: self.processes.space(place.space).pid,
                space: place.space,
                // After the record that maps the memory.
                time: Time(place.since.0.saturating_add(1)),
                sequence: 0,
                range: place.range,
                file_offset,
                tables: None,
                build_id,
                path: path.clone(),
            });
        }
        Ok(place_count)
    }

    /// Name of a symbol.
    fn name_of(&self, symbol: PerfMapSymbol<'a>) -> Cow<'a, [u8]> {
        let name = self.names_and_lines.name(symbol.name);
        self.symbol_name(name, || None, symbol.tier())
    }

    /// Names of the symbols of an object.
    fn names_in_object(&self, members: &[Member<'a, '_>]) -> Vec<Cow<'a, [u8]>> {
        let name_in_object = |member: &Member<'a, '_>| match self.name_of(member.symbol) {
            // Its default name would be an address relative to that of the first one, which is not its own.
            name if name.is_empty() && members.len() > 1 => {
                Cow::Owned(object::unnamed(member.symbol.range.start.0))
            }
            name => name,
        };
        members.iter().map(name_in_object).collect()
    }

    /// Encodes the object of symbols, with the source locations that their names contain.
    fn encode_symbols(
        &self,
        members: &[Member<'a, '_>],
        places: SourcePlaces<'_>,
        faults: &mut Tally<Issue>,
        memory: &mut EncoderMemory,
    ) -> (SparseBytes, BuildId) {
        let names = self.names_in_object(members);
        let functions = members.iter().zip(&names).map(|(member, name)| ObjectFunction {
            name,
            code: CodeBytes::Unknown(member.symbol.range.size()),
            address: object::text_address(false, false).saturating_add(member.offset),
        });
        let functions: Vec<ObjectFunction<'_>> = functions.collect();
        let lines = &self.lines;
        let mut encoder = Encoder::new(memory, lines.settings(self.recorded));
        for (member, function) in members.iter().zip(&functions) {
            if let Some(info) = self.names_and_lines.declaration(member.symbol.name) {
                // There is an object for few symbols, so texts of source maps would be in many.
                let added = lines.add_table(info, function, self.names, places, false, &mut encoder);
                if added.is_err() {
                    faults.add(Issue::LinesTooLarge, 0);
                }
            }
        }
        // With an empty index, libunwind follows the frame pointer, and its address does not matter.
        let end = functions
            .last()
            .map_or(0, |last| last.address.saturating_add(last.code.size()));
        let eh_frame = end.next_multiple_of(TABLE_ALIGN);
        let layout = TableLayout {
            eh_frame,
            endian: self.recorded.endian,
            address_size: self.recorded.address_size(),
        };
        let tables = UnwindTables::build(std::iter::empty(), layout).unwrap_or_default();
        let content = ObjectContent {
            machine: self.recorded,
            functions: &functions,
            address: members.first().map_or(0, |first| first.symbol.range.start.0),
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

/// Joins places that follow each other in memory and in their object, so that one map covers them. They must be sorted by
/// address space and time, and then by address.
fn join(mapped: &mut Vec<MappedPlace>) {
    mapped.dedup_by(|next, last| {
        let end_of_last = last.file_offset.saturating_add(last.place.range.size());
        let follows = (last.place.space, last.place.since) == (next.place.space, next.place.since)
            && last.place.range.end == next.place.range.start
            && end_of_last == next.file_offset;
        if follows {
            last.place.range.end = next.place.range.end;
        }
        follows
    });
}

#[cfg(test)]
mod tests {
    use jitdump::{Address, AddressRange};

    use super::*;

    /// Returns the offsets of symbols in each object. `symbols` have an address, a size and the size of their name.
    fn offsets(symbols: &[(u64, u64, usize)]) -> Vec<Vec<u64>> {
        let name = vec![b'n'; 2 << 20];
        let symbol = |&(start, size, name_size): &(u64, u64, usize)| {
            let range = AddressRange::new(Address(start), size).unwrap();
            let name = &name[..name_size];
            Member {
                symbol: PerfMapSymbol { range, name },
                places: &[],
                offset: 0,
            }
        };
        let objects = group_into_objects(symbols.iter().map(symbol).collect());
        let offsets = |object: &Vec<Member<'_, '_>>| object.iter().map(|member| member.offset).collect();
        objects.iter().map(offsets).collect()
    }

    #[test]
    fn an_object_has_up_to_16_384_symbols() {
        let sizes = |count: u64| -> Vec<usize> {
            let symbols: Vec<_> = (0..count).map(|at| (at * 16, 16, 1)).collect();
            offsets(&symbols).iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(16_384), [16_384]);
        assert_eq!(sizes(16_385), [16_384, 1]);
    }

    #[test]
    fn the_names_in_an_object_have_up_to_two_mebibytes() {
        let count = |size| offsets(&[(0, 16, 1), (16, 16, size)]).len();
        assert_eq!(count((2 << 20) - 1), 1);
        assert_eq!(count(2 << 20), 2);
    }

    #[test]
    fn an_object_has_up_to_a_gibibyte_of_addresses() {
        let count = |size| offsets(&[(0, 16, 1), (16, size, 1)]).len();
        assert_eq!(count((1 << 30) - 16), 1);
        assert_eq!(count((1 << 30) - 15), 2);
    }

    #[test]
    fn symbols_keep_distances_of_up_to_four_mebibytes() {
        let second = |start| offsets(&[(0, 8, 1), (start, 16, 1)])[0][1];
        assert_eq!(second((4 << 20) + 8), (4 << 20) + 8);
        assert_eq!(second((4 << 20) + 9), 16);
    }
}
