//! Writing functions as objects: one per function, or one per group of functions close to each other.

mod unwinding_tables;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use jitdump::{Address, AddressRange, RandomAccess, Tally};

use crate::code::timeline::{CodeMapping, FileIndex, FunctionId};
use crate::collections::hash::HashSet;
use crate::collections::indexed_table::IndexedTable;
use crate::elf::dwarf::{self, Encoder, EncoderMemory};
use crate::elf::object::{self, CodeBytes, Encoded, ObjectContent, ObjectFunction, PlacedTables};
use crate::files::objects::sparse::SparseBytes;
use crate::files::objects::store::{ObjectKind, Store};
use crate::files::objects::stored_source::StoredSource;
use crate::frames::source_files::names_and_lines::Lines;
use crate::inject::objects::grouping::{first_of, key};
use crate::inject::objects::job::{DecodedFunction, Job, LoadedObject, ObjectTables, PlannedObject, batches};
use crate::inject::objects::sharing::ObjectMembers;
use crate::inject::objects::source_paths::{SourceFolders, SourcePlaces, sources_to_keep};
use crate::inject::objects::{ObjectInputs, Objects, PlacedObject, path_for_readers};
use crate::inject::output::Output;
use crate::inject::sources::KeptSources;
use crate::load::function_of;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::threads;
use crate::units::Pid;

/// Writes the objects in their order, with the source files that they need, in batches that limit memory. Counts in
/// [`Objects::faults`] what is left out for lack of room. What is no longer in its file is left out, too. Reports the number of
/// finished functions to `progress`. Fails if the output cannot be written.
pub fn write_function_objects(
    input: &ObjectInputs<'_>,
    objects: Vec<ObjectMembers<'_>>,
    output: &mut Output,
    kept: &mut KeptSources,
    mut progress: impl FnMut(u64),
) -> Result<Objects, Diagnostic> {
    let dump_bytes: u64 = input.files.iter().map(|used| used.found.file.size()).sum();
    let mut writer = ObjectWriter::new(input, dump_bytes);
    let planned = writer.plan(objects, dump_bytes);
    let mut written = Objects {
        placed: Vec::with_capacity(planned.len()),
        ..Objects::default()
    };
    for batch in batches(planned) {
        let store = output.store()?;
        let loaded = writer.load_batch(&batch, kept, store, &mut progress)?;
        for object in writer.encode_batch(loaded, store.folder(), kept) {
            progress(object.planned.job.mapping_count());
            writer.count_faults_and_take_room(&object);
            writer.store(&object, store, &mut written)?;
        }
    }
    Ok(Objects {
        line_faults: writer.line_faults,
        faults: writer.faults,
        ..written
    })
}

/// Writer of objects for functions.
struct ObjectWriter<'a> {
    input: &'a ObjectInputs<'a>,
    faults: Tally<Issue>,
    line_faults: IndexedTable<FileIndex, Tally<Issue>>,
    source_folders: SourceFolders,
    room: Room,
    /// Functions whose faults were counted.
    seen: HashSet<FunctionId>,
}

/// What objects may contain.
struct Room {
    /// Size of all objects, in bytes.
    objects: u64,
    /// Size of the source texts in further objects, in bytes.
    texts: u64,
    /// Number of ranges of inlined calls in further objects.
    ranges: u64,
}

/// An object in ELF format.
struct Object<'p, 'a> {
    planned: &'p PlannedObject<'p>,
    bytes: SparseBytes,
    encoded: Encoded,
    tables_size: u64,
    text_size: u64,
    sources: Vec<StoredSource<'a>>,
    /// Functions in it, with the faults of each.
    functions: Vec<(CodeMapping, MemberFaults)>,
}

impl Object<'_, '_> {
    /// Returns the addresses that the unwinding tables are mapped at, and their offset in the file; `None` if they have no
    /// entries.
    ///
    /// Quirk: libunwind (perf 6.1, 6.12) reads aligned words. The first one must be in the mapping, or the
    /// stack ends here. Tables have the alignment of the code, which is any multiple of 4 on AArch64
    /// (capture erlang25), so the mapping starts at the word before them.
    fn mapped_tables(&self) -> Option<(AddressRange, u64)> {
        let address = self.planned.tables.as_ref()?.address;
        let skew = address.0 % WORD;
        let start = Address(address.0.saturating_sub(skew));
        let range = AddressRange::new(start, self.tables_size.saturating_add(skew))?;
        Some((range, self.encoded.tables_offset.saturating_sub(skew)))
    }
}

/// Faults of a function, and the number of ranges of its inlined calls.
#[derive(Default)]
struct MemberFaults {
    ranges: u64,
    lines: Tally<Issue>,
    object: Tally<Issue>,
}

/// Maximum size of all objects: this many times the size of the dumps, or this many bytes if that is more. A
/// function has an object for each address that it is moved to, and functions may share sources and tables,
/// so a crafted dump could fill any disk. Objects of real dumps are up to 15 times as large, mostly due to
/// the ELF tables of small functions.
const MAX_GROWTH: u64 = 64;
const MIN_ROOM: u64 = 64 << 20;

/// Maximum size of a function's debug information to keep until its object is encoded: this many times the size of its
/// records. Larger ones, which crafted dumps can have, are read again. Rows and calls take up to 4 times their size in a dump.
const MAX_LINE_GROWTH: u64 = 16;

/// Maximum size of the source texts in all objects, in the same way. With DWARF 5, each object contains those
/// of its functions.
const MAX_TEXT_GROWTH: u64 = 4;
const MIN_TEXT_ROOM: u64 = 64 << 20;

/// Maximum number of ranges of inlined calls in all objects: one for this many bytes of the dumps, or this many if that is more.
/// Each takes 8 bytes in a dump. But small records can have large numbers of them ([`jitdump::debug_info::MAX_RANGES`]).
const BYTES_OF_RANGE: u64 = 8;
const MIN_RANGE_ROOM: u64 = 1 << 20;

impl Room {
    /// Returns the room for objects of dumps of `dump_bytes` in all.
    fn new(dump_bytes: u64) -> Self {
        Self {
            objects: dump_bytes.saturating_mul(MAX_GROWTH).max(MIN_ROOM),
            texts: dump_bytes.saturating_mul(MAX_TEXT_GROWTH).max(MIN_TEXT_ROOM),
            ranges: (dump_bytes / BYTES_OF_RANGE).max(MIN_RANGE_ROOM),
        }
    }

    /// Whether there is room for an object with names of `names` bytes after objects of `written` bytes.
    fn fits(&self, written: u64, names: u64) -> bool {
        written < self.objects && written.saturating_add(names) <= self.objects
    }
}

/// Whether debug information that takes `memory_size` bytes is kept until the object is encoded.
fn is_kept(memory_size: u64, record_bytes: u64) -> bool {
    memory_size <= record_bytes.saturating_mul(MAX_LINE_GROWTH)
}

impl<'a> ObjectWriter<'a> {
    fn new(input: &'a ObjectInputs<'a>, dump_bytes: u64) -> Self {
        Self {
            input,
            faults: Tally::default(),
            line_faults: input.files.map(|_| Tally::default()),
            source_folders: SourceFolders::default(),
            room: Room::new(dump_bytes),
            seen: HashSet::default(),
        }
    }

    fn pid(&self, mapping: &CodeMapping) -> Pid {
        self.input.processes.space(mapping.space).pid
    }

    /// Returns the objects with their unwinding tables.
    fn plan<'g>(&mut self, objects: Vec<ObjectMembers<'g>>, dump_bytes: u64) -> Vec<PlannedObject<'g>> {
        let input = self.input;
        let text_bytes = input.files.map(|used| {
            if input.lines.holds_texts() {
                used.code.source_bytes()
            } else {
                0
            }
        });
        let jobs = objects
            .into_iter()
            .filter_map(|members| Job::new(input, members, &text_bytes));
        unwinding_tables::with_tables(input, jobs.collect(), dump_bytes, &mut self.faults)
    }

    /// Reads the functions of a batch, and copies their source files into the store. Returns the objects that have functions and
    /// for which there is room; reports the others to `progress`.
    fn load_batch<'p>(
        &mut self,
        batch: &'p [PlannedObject<'p>],
        kept: &mut KeptSources,
        store: &mut Store,
        progress: &mut impl FnMut(u64),
    ) -> Result<Vec<LoadedObject<'p, 'a>>, Diagnostic> {
        let mut size = store.bytes_written;
        let mut loaded = Vec::new();
        if self.room.fits(size, 0) {
            let objects: Vec<&'p PlannedObject<'p>> = batch.iter().collect();
            loaded = threads::map(&objects, |&planned| self.load(planned));
        } else {
            for planned in batch {
                self.leave_out(planned, progress);
            }
        }
        loaded.retain(|object| {
            // A name may be that of any number of functions and addresses.
            let names = object.size_of_names();
            if !self.room.fits(size, names) {
                self.leave_out(object.planned, progress);
                return false;
            }
            size = size.saturating_add(names);
            let is_in_file = !object.functions.is_empty();
            if !is_in_file {
                progress(object.planned.job.mapping_count());
            }
            is_in_file
        });
        if self.input.lines.keep_sources {
            let names = loaded.iter_mut().flat_map(|object| object.sources.drain(..));
            kept.keep(names.collect(), store, &mut self.faults)?;
        }
        Ok(loaded)
    }

    /// Counts the functions of an object for which there is no room.
    fn leave_out(&mut self, planned: &PlannedObject<'_>, progress: &mut impl FnMut(u64)) {
        let left_out = planned.job.mapping_count();
        self.faults.add_many(Issue::ObjectsTooLarge, left_out, 0);
        progress(left_out);
    }

    /// Takes the room of an object, and counts the faults of its functions.
    fn count_faults_and_take_room(&mut self, object: &Object<'_, '_>) {
        let room = &mut self.room;
        room.texts = room.texts.saturating_sub(object.text_size);
        for (member, faults) in &object.functions {
            room.ranges = room.ranges.saturating_sub(faults.ranges);
            // A function that was moved is in several objects, with the same faults in each.
            if self.seen.insert(member.function) {
                self.faults.merge(&faults.object);
                self.line_faults[member.function.file].merge(&faults.lines);
            }
        }
    }

    /// Name of a function's symbol in an object.
    fn symbol_name(&self, loaded: &DecodedFunction<'_, 'a>, job: &Job<'_>) -> Cow<'a, [u8]> {
        let function = &loaded.function;
        let name = self.input.names_and_lines.name(function.name);
        let name = self
            .input
            .symbol_name(name, || function.declaration(), function.tier());
        if name.is_empty() && !job.members.is_mapped_whole() {
            Cow::Owned(object::unnamed(loaded.member.range.start.0))
        } else {
            name
        }
    }

    /// Reads the functions of an object with their names, and their lines if these decide which source files to copy.
    fn load<'p>(&self, planned: &'p PlannedObject<'p>) -> LoadedObject<'p, 'a> {
        let job = &planned.job;
        let file = job.first.function.file;
        let owner = self.input.files[file].found.file.origin().owner;
        let keeps_sources = self.input.lines.keep_sources;
        let mut sources = Vec::new();
        let mut functions: Vec<DecodedFunction<'p, 'a>> = Vec::new();
        for (member, address) in job.functions() {
            // Otherwise, its part of the file is gone.
            let Some(function) = function_of(self.input.files, member.function) else {
                continue;
            };
            let mut lines = keeps_sources.then(|| self.lines_of(member.function, &function));
            if let Some((Some(info), _)) = &mut lines {
                sources.extend(sources_to_keep(info, owner));
                // Large ones are read again when the object is encoded.
                if !is_kept(info.memory_size(), self.input.record_bytes(member.function)) {
                    lines = None;
                }
            }
            functions.push(DecodedFunction {
                member,
                address,
                function,
                lines,
            });
        }
        let names = functions.iter().map(|loaded| self.symbol_name(loaded, job));
        let names = names.collect();
        sources.sort_unstable();
        sources.dedup();
        LoadedObject {
            planned,
            functions,
            names,
            sources,
        }
    }

    /// Returns the lines and inlined calls of a function, and the faults found in them.
    fn lines_of(&self, id: FunctionId, function: &jitdump::Function<'a>) -> Lines<'a> {
        let track = self.input.lines.track.as_deref();
        self.input.names_and_lines.lines_of(id, function, track)
    }

    /// Adds the line table of a function to its object. Returns the source files that it references.
    fn add_lines(
        &self,
        lines: Lines<'a>,
        function: &ObjectFunction<'_>,
        places: SourcePlaces<'_>,
        encoder: &mut Encoder<'_, '_>,
        faults: &mut MemberFaults,
    ) -> Vec<StoredSource<'a>> {
        let (info, line_faults) = lines;
        faults.lines = line_faults;
        let Some(mut info) = info else {
            return Vec::new();
        };
        if self.room.ranges == 0 && !info.calls.is_empty() {
            info.calls.clear();
            faults.object.add(Issue::CallsTooMany, 0);
        }
        faults.ranges = info.range_count();
        let beyond = dwarf::rows_beyond_limits(&info);
        faults.object.add_many(Issue::ColumnsTooLarge, beyond, 0);
        let lines = &self.input.lines;
        let has_texts = self.room.texts > 0;
        if !has_texts && lines.holds_texts() && info.files.iter().any(|file| file.text.is_some()) {
            faults.object.add(Issue::TextsTooLarge, 0);
        }
        let added = lines.add_table(info, function, self.input.names, places, has_texts, encoder);
        added.unwrap_or_else(|_| {
            faults.object.add(Issue::LinesTooLarge, 0);
            Vec::new()
        })
    }

    /// Encodes the objects of a batch. Frees what was read for them.
    fn encode_batch<'p>(
        &self,
        mut loaded: Vec<LoadedObject<'p, 'a>>,
        store: &Path,
        kept: &KeptSources,
    ) -> Vec<Object<'p, 'a>> {
        threads::map_mut_with(&mut loaded, EncoderMemory::default, |memory, object| {
            self.encode(object, store, kept, memory)
        })
    }

    /// Encodes an object. Source texts go below `store` and are counted in `kept`; the buffers are in `memory`.
    fn encode<'p>(
        &self,
        loaded: &mut LoadedObject<'p, 'a>,
        store: &Path,
        kept: &KeptSources,
        memory: &mut EncoderMemory,
    ) -> Object<'p, 'a> {
        let planned = loaded.planned;
        let job = &planned.job;
        let without_entries;
        let ObjectTables { tables, address } = match &planned.tables {
            Some(tables) => tables,
            None => {
                without_entries = job.empty_tables();
                &without_entries
            }
        };
        let named = loaded.functions.iter().zip(&loaded.names);
        let functions: Vec<ObjectFunction<'_>> = named
            .map(|(loaded, name)| ObjectFunction {
                name,
                code: code(&loaded.function),
                address: loaded.address,
            })
            .collect();
        let mut encoder = Encoder::new(memory, self.input.lines.settings(job.machine));
        let mut sources = Vec::new();
        let file = job.first.function.file;
        let places = SourcePlaces {
            store,
            folders: &self.source_folders,
            kept,
            owner: self.input.files[file].found.file.origin().owner,
        };
        let mut written = Vec::with_capacity(functions.len());
        for (loaded, function) in loaded.functions.iter_mut().zip(&functions) {
            let mut faults = MemberFaults::default();
            let lines = loaded.lines.take();
            let lines = lines.unwrap_or_else(|| self.lines_of(loaded.member.function, &loaded.function));
            sources.extend(self.add_lines(lines, function, places, &mut encoder, &mut faults));
            written.push((*loaded.member, faults));
        }
        let text_size = encoder.text_size();
        let content = ObjectContent {
            machine: job.machine,
            functions: &functions,
            address: job.range().start.0,
            time: job.first.since.0,
            tables: PlacedTables {
                tables,
                address: job.table_layout(*address).eh_frame,
            },
            debug: &encoder.finish(),
        };
        let mut bytes = SparseBytes::default();
        let encoded = object::encode(&content, &mut bytes);
        Object {
            planned,
            bytes,
            encoded,
            tables_size: tables.bytes.len() as u64,
            text_size,
            sources,
            functions: written,
        }
    }

    /// Writes an object and the source files of its lines into the store, and adds its mappings to `written`.
    fn store(
        &self,
        object: &Object<'_, '_>,
        store: &mut Store,
        written: &mut Objects,
    ) -> Result<(), Diagnostic> {
        let (job, encoded) = (&object.planned.job, &object.encoded);
        let name = store.write_object(
            self.pid(job.first),
            ObjectKind::Functions,
            &object.bytes,
            &encoded.build_id,
        )?;
        for source in &object.sources {
            store.write_source(source)?;
        }
        let path: Arc<[u8]> = path_for_readers(&store.folder().join(name)).into();
        let tables = object.mapped_tables();
        let place = |mapping: &CodeMapping, range, address| PlacedObject {
            pid: self.pid(mapping),
            space: mapping.space,
            time: mapping.since,
            sequence: mapping.sequence,
            range,
            file_offset: object::file_offset(job.has_code, address),
            tables,
            build_id: encoded.build_id,
            path: path.clone(),
        };
        // They have the order of the blocks, but some may be missing: those whose part of the file is gone.
        let mut members = object.functions.iter().map(|(member, _)| member).peekable();
        for block in job.members.blocks() {
            let own = block.functions.iter();
            let functions = own
                .filter(|own| members.next_if(|member| key(member) == key(own)).is_some())
                .count() as u64;
            let Some(first) = first_of(block.functions).filter(|_| functions > 0) else {
                continue;
            };
            let address = job.address(block);
            let repeats = block.repeats.iter();
            written.functions += functions + block.repeats.len() as u64;
            written.placed.push(place(first, block.range(), address));
            written
                .placed
                .extend(repeats.map(|repeat| place(repeat, repeat.range, address)));
        }
        written.function_objects += 1;
        Ok(())
    }
}

/// Size of the words that libunwind reads, in bytes.
const WORD: u64 = 8;

/// Code of a function, or only its size if the code is not known.
fn code<'a>(function: &jitdump::Function<'a>) -> CodeBytes<'a> {
    let unknown = CodeBytes::Unknown(function.range.size());
    function.code.map_or(unknown, CodeBytes::Known)
}

#[cfg(test)]
mod tests;
