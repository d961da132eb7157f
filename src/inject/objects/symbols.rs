//! Writing the symbols of perf maps as objects without code.

use std::borrow::Cow;
use std::sync::Arc;

use jitdump::internals::perf_map::PerfMapSymbol;
use jitdump::{AddressRange, Machine, Tally, Time};

use crate::code::perf_map_symbols::PlacedSymbol;
use crate::code::process::SpaceId;
use crate::elf::dwarf::{Encoder, EncoderMemory};
use crate::elf::eh_frame::{TableLayout, UnwindTables};
use crate::elf::object::{self, CodeBytes, ObjectContent, ObjectFunction, PlacedTables};
use crate::files::objects::sparse::SparseBytes;
use crate::files::objects::store::ObjectKind;
use crate::inject::objects::source_paths::{SourceFolders, SourcePlaces};
use crate::inject::objects::{ObjectInputs, Objects, PlacedObject, TABLE_ALIGN, path_for_readers};
use crate::inject::output::Output;
use crate::inject::sources::KeptSources;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::{BuildId, Pid};

/// Writer of objects for symbols.
struct SymbolWriter<'a> {
    input: &'a ObjectInputs<'a>,
    machine: Machine,
}

/// Maximum number of symbols in an object, and of the bytes of their names.
const MAX_SHARED: usize = 1 << 14;
const MAX_NAMES: usize = 2 << 20;

/// Maximum number of addresses in an object with several symbols, in bytes. They have no content, so only arithmetic limits it.
const MAX_SPAN: u64 = 1 << 30;

/// Longest distance between two symbols that is kept in their object, in bytes.
const MAX_HOLE: u64 = 4 << 20;

/// A symbol, with all places of its memory.
struct Member<'a, 'p> {
    symbol: PerfMapSymbol<'a>,
    places: &'p [PlacedSymbol],
    /// Address in the object, from that of the object's first symbol.
    offset: u64,
}

/// Symbols of one perf map that share an object.
struct SymbolsOfMap<'a, 'p> {
    pid: Pid,
    /// Owner of the perf map.
    owner: u32,
    /// By their addresses in the object; not empty.
    members: Vec<Member<'a, 'p>>,
}

/// Writes objects for the symbols in `placed`, which must be sorted, and adds them to `objects`. Each has one symbol, unless
/// they `are_shared`. Reports the number of finished entries to `progress`.
pub fn write(
    input: &ObjectInputs<'_>,
    placed: &[PlacedSymbol],
    are_shared: bool,
    output: &mut Output,
    kept: &mut KeptSources,
    objects: &mut Objects,
    mut progress: impl FnMut(u64),
) -> Result<(), Diagnostic> {
    let writer = SymbolWriter {
        input,
        machine: input.recorded,
    };
    let of_one = |one: &PlacedSymbol, other: &PlacedSymbol| one.id == other.id;
    let mut memory = EncoderMemory::default();
    for of_table in placed.chunk_by(|one, other| one.id.table == other.id.table) {
        let mut symbols = of_table
            .chunk_by(of_one)
            .filter_map(|places| Some((writer.symbol(places.first()?)?, places)));
        if are_shared {
            let mut symbols: Vec<_> = symbols.collect();
            symbols.sort_by_key(|((_, symbol, _), _)| symbol.range);
            for members in shared(symbols) {
                writer.write(&members, output, kept, objects, &mut memory)?;
                progress(members.place_count());
            }
        } else {
            symbols.try_for_each(|((pid, symbol, owner), places)| {
                let members = SymbolsOfMap::of_one(pid, owner, symbol, places);
                writer.write(&members, output, kept, objects, &mut memory)?;
                progress(members.place_count());
                Ok::<_, Diagnostic>(())
            })?;
        }
    }
    Ok(())
}

impl<'a, 'p> SymbolsOfMap<'a, 'p> {
    fn of_one(pid: Pid, owner: u32, symbol: PerfMapSymbol<'a>, places: &'p [PlacedSymbol]) -> Self {
        Self {
            pid,
            owner,
            members: vec![Member {
                symbol,
                places,
                offset: 0,
            }],
        }
    }

    fn place_count(&self) -> u64 {
        let places = self.members.iter().map(|member| member.places.len() as u64);
        places.sum()
    }
}

/// A symbol with the process and the owner of its perf map, and its places.
type Found<'a, 'p> = ((Pid, PerfMapSymbol<'a>, u32), &'p [PlacedSymbol]);

/// Distributes symbols of one perf map, in the order of addresses, to objects. They keep their distances if these are small, so
/// that most objects are that of one stretch of memory.
fn shared<'a, 'p>(symbols: Vec<Found<'a, 'p>>) -> Vec<SymbolsOfMap<'a, 'p>> {
    let mut all: Vec<SymbolsOfMap<'a, 'p>> = Vec::new();
    let mut names = 0usize;
    // End of the last symbol: its address in the object and in the process.
    let mut end = (0u64, 0u64);
    for ((pid, symbol, owner), places) in symbols {
        let start = symbol.range.start.0;
        names = names.saturating_add(symbol.name.len());
        let distance = start.checked_sub(end.1).filter(|&distance| distance <= MAX_HOLE);
        let offset = match distance {
            Some(distance) => end.0.saturating_add(distance),
            None => end.0.next_multiple_of(TABLE_ALIGN),
        };
        let last = all.last_mut().filter(|last| {
            let span = offset.saturating_add(symbol.range.size());
            last.members.len() < MAX_SHARED && names <= MAX_NAMES && span <= MAX_SPAN
        });
        let offset = match last {
            Some(last) => {
                last.members.push(Member {
                    symbol,
                    places,
                    offset,
                });
                offset
            }
            None => {
                names = symbol.name.len();
                all.push(SymbolsOfMap::of_one(pid, owner, symbol, places));
                0
            }
        };
        end = (offset.saturating_add(symbol.range.size()), symbol.range.end.0);
    }
    all
}

impl<'a> SymbolWriter<'a> {
    /// Returns a symbol, and the process and the owner of its perf map.
    fn symbol(&self, place: &PlacedSymbol) -> Option<(Pid, PerfMapSymbol<'a>, u32)> {
        let used = &self.input.maps[place.id.table];
        let symbol = used.map.symbols.get(place.id.symbol as usize)?;
        Some((used.found.pid, *symbol, used.found.file.owner()))
    }

    /// Writes an object.
    fn write(
        &self,
        members: &SymbolsOfMap<'a, '_>,
        output: &mut Output,
        kept: &mut KeptSources,
        objects: &mut Objects,
        memory: &mut EncoderMemory,
    ) -> Result<(), Diagnostic> {
        let Some(first) = members.members.first() else {
            return Ok(());
        };
        let store = output.store()?;
        let lines = &self.input.lines;
        if lines.keep_sources {
            let infos = members.members.iter();
            let infos = infos.filter_map(|member| self.input.v8_functions.declaration(member.symbol.name));
            let names = infos.flat_map(|mut info| lines.sources_to_keep(&mut info, members.owner));
            kept.keep(names.collect(), store, &mut objects.faults)?;
        }
        let places = SourcePlaces {
            store: store.folder(),
            folders: &SourceFolders::default(),
            kept,
            owner: members.owner,
        };
        let (bytes, build_id) = self.encode(&members.members, places, &mut objects.faults, memory);
        let kind = ObjectKind::Symbol(first.symbol.range.start);
        let file = store.write(members.pid, kind, &bytes, &build_id)?;
        objects.symbols += members.members.len() as u64;
        objects.symbol_objects += 1;
        let path: Arc<[u8]> = path_for_readers(&store.folder().join(file)).into();
        let placed = members.members.iter().flat_map(|member| {
            let places = member.places.iter();
            places.map(|place| (place, self.file_offset(member, place)))
        });
        for place in joined(placed.collect(), members.members.len() > 1) {
            objects.placed.push(PlacedObject {
                pid: self.input.processes.space(place.space).pid,
                space: place.space,
                // After the record that maps the memory.
                time: Time(place.since.0.saturating_add(1)),
                sequence: 0,
                range: place.range,
                file_offset: place.file_offset,
                tables: None,
                build_id,
                path: path.clone(),
            });
        }
        Ok(())
    }

    /// Offset of a part of a symbol in a file that contained the code of all.
    fn file_offset(&self, member: &Member<'_, '_>, place: &PlacedSymbol) -> u64 {
        let symbol = member.symbol;
        let into_symbol = place.range.start.0.saturating_sub(symbol.range.start.0);
        let address = object::text_address(false, false).saturating_add(member.offset);
        object::file_offset(false, address.saturating_add(into_symbol))
    }

    /// Name of a symbol.
    fn name(&self, symbol: PerfMapSymbol<'a>) -> Cow<'a, [u8]> {
        let name = self.input.v8_functions.name(symbol.name);
        self.input.symbol_name(name, || None, symbol.tier())
    }

    /// Encodes the object of symbols, with the source locations that their names contain.
    fn encode(
        &self,
        members: &[Member<'a, '_>],
        places: SourcePlaces<'_>,
        faults: &mut Tally<Issue>,
        memory: &mut EncoderMemory,
    ) -> (SparseBytes, BuildId) {
        let names: Vec<Cow<'_, [u8]>> = members
            .iter()
            .map(|member| match self.name(member.symbol) {
                // Relative to the first one, this would not be its address.
                name if name.is_empty() && members.len() > 1 => {
                    Cow::Owned(object::unnamed(member.symbol.range.start.0))
                }
                name => name,
            })
            .collect();
        let functions = members.iter().zip(&names).map(|(member, name)| ObjectFunction {
            name,
            code: CodeBytes::Unknown(member.symbol.range.size()),
            address: object::text_address(false, false).saturating_add(member.offset),
        });
        let functions: Vec<ObjectFunction<'_>> = functions.collect();
        let lines = &self.input.lines;
        let mut encoder = Encoder::new(memory, lines.settings(self.machine));
        for (member, function) in members.iter().zip(&functions) {
            if let Some(info) = self.input.v8_functions.declaration(member.symbol.name) {
                // There is an object for few symbols, so texts of source maps would be in many.
                let added = lines.add(info, function, self.input.names, places, false, &mut encoder);
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
            endian: self.machine.endian,
            address_size: self.machine.address_size(),
        };
        let tables = UnwindTables::build(std::iter::empty(), layout).unwrap_or_default();
        let content = ObjectContent {
            machine: self.machine,
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

/// A part of an object in memory.
struct MappedPart {
    space: SpaceId,
    since: Time,
    range: AddressRange,
    file_offset: u64,
}

/// Joins places that follow each other in memory and in their object, if it has several symbols, so that one map covers them.
/// They are sorted by address space and time.
fn joined(mut places: Vec<(&PlacedSymbol, u64)>, are_several: bool) -> Vec<MappedPart> {
    places.sort_by_key(|(place, _)| (place.space, place.since, place.range));
    let mut joined: Vec<MappedPart> = Vec::new();
    for (place, file_offset) in places {
        let last = joined.last_mut().filter(|last| {
            let end = last.file_offset.saturating_add(last.range.size());
            are_several
                && (last.space, last.since) == (place.space, place.since)
                && last.range.end == place.range.start
                && end == file_offset
        });
        match last {
            Some(last) => last.range.end = place.range.end,
            None => joined.push(MappedPart {
                space: place.space,
                since: place.since,
                range: place.range,
                file_offset,
            }),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use jitdump::Address;

    use super::*;

    /// Returns the offsets of symbols in each object. `symbols` have an address, a size and the size of their name.
    fn offsets(symbols: &[(u64, u64, usize)]) -> Vec<Vec<u64>> {
        let name = vec![b'n'; 2 << 20];
        let symbol = |&(start, size, name_size): &(u64, u64, usize)| {
            let range = AddressRange::new(Address(start), size).unwrap();
            let name = &name[..name_size];
            ((Pid(1), PerfMapSymbol { range, name }, 0), &[][..])
        };
        let objects = shared(symbols.iter().map(symbol).collect());
        let offsets =
            |object: &SymbolsOfMap<'_, '_>| object.members.iter().map(|member| member.offset).collect();
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
