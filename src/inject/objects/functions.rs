//! Writing functions as objects: one per function, or one per group of functions close to each other.

use std::borrow::Cow;
use std::path::Path;

use crate::code::timeline::{CodeMapping, FileIndex};
use crate::diagnostics::{Diagnostic, Issue};
use crate::elf::dwarf::{Buffers, Encoder};
use crate::elf::eh_frame::{EhFrame, Fde, FdeIndex, TableLayout, Tables};
use crate::elf::object::{self, Code, Encoded, Function, LEAD_IN, ObjectContent, PlacedTables};
use crate::elf::store::{FUNCTION_PREFIX, IMAGE_PREFIX, Store};
use crate::hash::{HashMap, HashSet};
use crate::indexed_table::IndexedTable;
use crate::inject::objects::free_addresses::FreeAddresses;
use crate::inject::objects::grouping::{Groups, Members, first_of};
use crate::inject::objects::source_paths::{SourceFolders, SourceToWrite};
use crate::inject::objects::{Input, Objects, PlacedObject, TABLE_ALIGN, path_for_readers};
use crate::inject::output::Output;
use crate::load::function_of;
use crate::machine::Machine;
use crate::runtime::FunctionView;
use crate::runtime::jitdump::unwinding::{Placement, Unwinding};
use crate::sparse::SparseBytes;
use crate::tally::Tally;
use crate::threads;
use crate::units::{Address, AddressRange, Pid};

/// Writes the objects in the order of the groups. Reports the number of finished functions to `progress`.
pub fn write(
    input: &Input<'_>,
    groups: &Groups,
    output: &mut Output,
    mut progress: impl FnMut(u64),
) -> Result<Objects, Diagnostic> {
    let mut writer = ObjectWriter::new(input);
    let files = input.files.iter().map(|used| used.found.file.len() as u64);
    let dump_bytes = files.sum::<u64>();
    let mut jobs: Vec<Job<'_>> = groups.iter().filter_map(|members| writer.job(members)).collect();
    writer.text_room = dump_bytes.saturating_mul(MAX_TEXT_GROWTH).max(MIN_TEXT_ROOM);
    writer.limit_tables(&mut jobs, dump_bytes);
    writer.place_tables(&mut jobs);
    let mut placed = Vec::with_capacity(jobs.len());
    let mut seen = HashSet::default();
    let mut functions = 0;
    let room = dump_bytes.saturating_mul(MAX_GROWTH).max(MIN_ROOM);
    for batch in batches(&jobs) {
        let store = output.store()?;
        if store.bytes_written() >= room {
            let left_out = batch.iter().map(|job| job.members.len() as u64).sum();
            writer.faults.add_many(Issue::ObjectsTooLarge, left_out, 0);
            progress(left_out);
            continue;
        }
        let folder = store.folder().to_owned();
        let objects = threads::map_with(batch, Buffers::default, |buffers, job| {
            writer.encode(job, &folder, buffers)
        });
        for (job, object) in batch.iter().zip(objects) {
            for (member, faults) in job.members.iter().zip(&object.faults) {
                // A function that was moved is in several objects, with the same faults in each.
                if seen.insert(member.function) {
                    writer.note(member, faults);
                }
            }
            writer.text_room = writer.text_room.saturating_sub(object.text_size);
            placed.push(writer.store(job, &object, store)?);
            functions += job.members.len() as u64;
            progress(job.members.len() as u64);
        }
    }
    Ok(Objects {
        functions,
        function_objects: placed.len() as u64,
        symbols: 0,
        placed,
        line_faults: writer.line_faults,
        faults: writer.faults,
    })
}

/// Writer of objects for functions.
struct ObjectWriter<'a> {
    input: &'a Input<'a>,
    /// Unwinding tables shared by many functions, by the address of the bytes in the mapped file.
    shared_entries: HashMap<usize, FdeIndex<'a>>,
    faults: Tally<Issue>,
    line_faults: IndexedTable<FileIndex, Tally<Issue>>,
    source_folders: SourceFolders,
    /// Maximum size of the source texts in an object, for each dump, in bytes.
    source_bytes: IndexedTable<FileIndex, u64>,
    /// Number of bytes of source text that further objects may contain.
    text_room: u64,
}

/// An object to write.
struct Job<'g> {
    /// Functions, from the lowest address up; not empty.
    members: &'g [CodeMapping],
    /// The earliest function.
    first: &'g CodeMapping,
    machine: Machine,
    /// Code of the lowest function, which shows whether the code of all functions is known.
    code: Code<'g>,
    /// Whether the object covers the [`LEAD_IN`] bytes before the first function.
    has_lead_in: bool,
    /// Size of the records and of the source texts that the object may contain, in bytes.
    record_bytes: u64,
    /// Number of functions with unwinding tables in the dump.
    with_tables: u64,
    /// Range from the start of the first function to the end of the last one.
    range: AddressRange,
    /// Unwinding tables, and their address in the process; `None` if they are empty.
    tables: Option<(Tables, Address)>,
}

/// An object in ELF format.
struct Object<'a> {
    bytes: SparseBytes,
    encoded: Encoded,
    tables_size: u64,
    text_size: u64,
    /// ID that the runtime gave to the first function.
    index: u64,
    sources: Vec<SourceToWrite<'a>>,
    /// Faults of each function.
    faults: Vec<MemberFaults>,
}

/// Faults of a function.
#[derive(Default)]
struct MemberFaults {
    lines: Tally<Issue>,
    object: Tally<Issue>,
}

impl Job<'_> {
    /// Address of the first function in the object.
    fn start(&self) -> u64 {
        self.code.text_address(self.has_lead_in)
    }

    /// Address of a function in the object.
    fn address(&self, member: &CodeMapping) -> u64 {
        let offset = member.range.start.0.saturating_sub(self.range.start.0);
        self.start().wrapping_add(offset)
    }

    /// Addresses of the process that readers attribute to the object, without its header.
    fn covered(&self) -> AddressRange {
        let lead_in = if self.has_lead_in { LEAD_IN } else { 0 };
        AddressRange {
            start: Address(self.range.start.0.saturating_sub(lead_in)),
            end: self.range.end,
        }
    }

    /// Tables without entries, and their address in the process.
    fn empty_tables(&self) -> (Tables, Address) {
        // They are never read, so it does not matter what else is at their address.
        let distance = self.range.size().next_multiple_of(TABLE_ALIGN);
        let behind = Address(self.range.start.0.wrapping_add(distance));
        let tables = Tables::build(std::iter::empty(), self.table_layout(behind));
        (tables.unwrap_or_default(), behind)
    }

    /// Layout of the tables in the object if they are at `address` in the process.
    fn table_layout(&self, address: Address) -> TableLayout {
        let distance = address.0.wrapping_sub(self.range.start.0);
        TableLayout {
            eh_frame: self.start().wrapping_add(distance),
            endian: self.machine.endian,
            address_size: self.machine.address_size(),
        }
    }
}

/// Maximum size of all objects: this many times the size of the dumps, or this many bytes if that is more. A
/// function has an object for each address that it is moved to, and functions may share sources and tables,
/// so a crafted dump could fill any disk. Objects of real dumps are up to 15 times as large, mostly due to
/// the ELF tables of small functions.
const MAX_GROWTH: u64 = 64;
const MIN_ROOM: u64 = 64 << 20;

/// Maximum size of the unwinding tables of all objects, in the same way. In real dumps they are smaller than
/// the dump. But any number of functions, at any number of addresses, may share a table. All are in memory until they
/// are written.
const MAX_TABLE_GROWTH: u64 = 2;
const MIN_TABLE_ROOM: u64 = 16 << 20;

/// Maximum size of the source texts in all objects, in the same way. With DWARF 5, each object contains those
/// of its functions.
const MAX_TEXT_GROWTH: u64 = 4;
const MIN_TEXT_ROOM: u64 = 64 << 20;

/// Maximum number of objects to encode at a time, and the size of records in bytes from which on no object is
/// added. Both limit memory.
const BATCH: usize = 1024;
const BATCH_BYTES: u64 = 8 << 20;

/// Splits jobs into groups to encode together.
fn batches<'j, 'g>(mut jobs: &'j [Job<'g>]) -> impl Iterator<Item = &'j [Job<'g>]> {
    std::iter::from_fn(move || {
        let mut bytes = 0u64;
        let is_in = |job: &&Job<'_>| {
            let has_room = bytes < BATCH_BYTES;
            bytes = bytes.saturating_add(job.record_bytes);
            has_room
        };
        let count = jobs.iter().take(BATCH).take_while(is_in).count();
        let (batch, rest) = jobs.split_at_checked(count)?;
        jobs = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

impl<'a> ObjectWriter<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        Self {
            input,
            shared_entries: HashMap::default(),
            faults: Tally::default(),
            line_faults: input.files.map(|_| Tally::default()),
            source_folders: SourceFolders::default(),
            source_bytes: input.files.map(|used| match input.lines.holds_texts() {
                true => used.code.source_bytes(),
                false => 0,
            }),
            text_room: 0,
        }
    }

    fn pid(&self, mapping: &CodeMapping) -> Pid {
        self.input.processes.space(mapping.space).pid
    }

    /// Returns what the dump contains about a function.
    fn view(&self, mapping: &CodeMapping) -> Option<FunctionView<'a>> {
        function_of(self.input.files, mapping.function)
    }

    /// Makes a job of a group, without an address for its tables yet.
    fn job<'g>(&mut self, group: Members<'g>) -> Option<Job<'g>>
    where
        'a: 'g,
    {
        let members = group.functions;
        let (lowest, highest) = (members.first()?, members.last()?);
        let file = &self.input.files[lowest.function.file].code;
        let machine = file.machine();
        let mut with_tables = 0;
        for unwinding in members
            .iter()
            .filter_map(|member| file.unwinding(member.function.function))
        {
            with_tables += 1;
            if let Placement::At(address) = unwinding.placement {
                let key = unwinding.eh_frame.as_ptr() as usize;
                let frame = eh_frame(&unwinding, address, machine);
                self.shared_entries
                    .entry(key)
                    .or_insert_with(|| FdeIndex::read(frame));
            }
        }
        let bytes = members
            .iter()
            .map(|member| self.input.record_bytes(member.function));
        let sources = self.source_bytes[lowest.function.file];
        Some(Job {
            members,
            first: first_of(members)?,
            machine,
            code: code(&self.view(lowest)?),
            has_lead_in: group.has_lead_in,
            record_bytes: bytes.fold(sources, u64::saturating_add),
            with_tables,
            range: AddressRange {
                start: lowest.range.start,
                end: highest.range.end,
            },
            tables: None,
        })
    }

    /// Drops unwinding tables as soon as all of them together would exceed the limit.
    fn limit_tables(&mut self, jobs: &mut [Job<'_>], dump_bytes: u64) {
        let mut room = dump_bytes.saturating_mul(MAX_TABLE_GROWTH).max(MIN_TABLE_ROOM);
        for job in jobs.iter_mut().filter(|job| job.with_tables > 0) {
            let sizes = job.members.iter().map(|member| self.max_table_size(member));
            let size = sizes.fold(0, u64::saturating_add);
            room = room.checked_sub(size).unwrap_or_else(|| {
                self.faults.add_many(Issue::TablesTooLarge, job.with_tables, 0);
                job.with_tables = 0;
                0
            });
        }
    }

    /// Upper bound for the size of a function's tables, in bytes. A table of its own counts for each of its
    /// addresses.
    fn max_table_size(&self, member: &CodeMapping) -> u64 {
        let file = &self.input.files[member.function.file].code;
        let Some(unwinding) = file.unwinding(member.function.function) else {
            return 0;
        };
        let range = file.range(member.function.function);
        let shared = self.shared_entries.get(&(unwinding.eh_frame.as_ptr() as usize));
        match (unwinding.placement, shared, range) {
            (Placement::At(_), Some(entries), Some(range)) => entries.max_size_of(range),
            _ => unwinding.eh_frame.len() as u64,
        }
    }

    /// Returns the unwinding entries of a function, each with its offset from the start of the code in bytes.
    fn entries(&self, member: &CodeMapping, machine: Machine) -> Vec<(Fde<'a>, u64)> {
        let view = self.view(member);
        let Some((code, unwinding)) = view.and_then(|view| Some((view.range, view.unwinding?))) else {
            return Vec::new();
        };
        let with_offset = |entry: Fde<'a>| (entry, entry.range.start.0.wrapping_sub(code.start.0));
        match unwinding.placement {
            Placement::At(_) => {
                let entries = self.shared_entries.get(&(unwinding.eh_frame.as_ptr() as usize));
                entries.map_or(Vec::new(), |entries| {
                    entries.overlapping(code).map(with_offset).collect()
                })
            }
            Placement::AfterCode(distance) => {
                let behind = code.size().next_multiple_of(8).saturating_add(distance);
                let address = Address(code.start.0.wrapping_add(behind));
                let entries = FdeIndex::read(eh_frame(&unwinding, address, machine));
                // The table belongs to this function alone, so it does not apply to the code after it.
                let clipped = entries
                    .overlapping(code)
                    .map(|entry| entry.truncated_at(code.end));
                clipped.map(with_offset).collect()
            }
        }
    }

    /// Returns the unwinding entries of an object with their addresses in it, and the number of functions
    /// that have entries.
    fn object_entries(&self, job: &Job<'_>) -> (Vec<(Fde<'a>, u64)>, u64) {
        let mut entries = Vec::new();
        let mut with_entry = 0;
        for member in job.members {
            let before = entries.len();
            let start = job.address(member);
            let own = self.entries(member, job.machine).into_iter();
            entries.extend(own.map(|(entry, into_code)| (entry, start.wrapping_add(into_code))));
            with_entry += u64::from(entries.len() > before);
        }
        // Several functions may share an entry.
        entries.sort_by_key(|&(_, start)| start);
        entries.dedup_by_key(|&mut (_, start)| start);
        (entries, with_entry)
    }

    /// Tables of an object if they are right after its code, and number of functions with entries in them; `None` if
    /// there are no entries.
    fn tables(&self, job: &Job<'_>) -> Option<(Tables, u64)> {
        let (entries, with_entry) = self.object_entries(job);
        let tables = Tables::build(entries.into_iter(), job.table_layout(job.range.end))?;
        (with_entry > 0).then_some((tables, with_entry))
    }

    /// Assigns addresses to the tables of all objects: near the code, where the process never maps anything.
    fn place_tables(&mut self, jobs: &mut [Job<'_>]) {
        if jobs.iter().all(|job| job.with_tables == 0) {
            return;
        }
        let tables = |job: &Job<'_>| (job.with_tables > 0).then(|| self.tables(job)).flatten();
        let mut all_tables = threads::map(jobs, tables);
        let code = jobs.iter().map(|job| (job.first.space, job.covered()));
        let mut free = FreeAddresses::new(self.input.processes, code);
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        let key = |at: &usize| {
            let job = jobs.get(*at)?;
            Some((free.family(job.first.space), job.range))
        };
        order.sort_by_key(key);
        for at in order {
            let (Some(job), Some(tables)) = (jobs.get_mut(at), all_tables.get_mut(at)) else {
                continue;
            };
            if let Some((tables, with_entry)) = tables.take() {
                let without_entry = job.with_tables.saturating_sub(with_entry);
                self.faults.add_many(Issue::NoUnwindingEntry, without_entry, 0);
                // Aligned in the object, like the code. In the process, code may be unaligned (capture
                // erlang25).
                let skew = job.range.start.0 % TABLE_ALIGN;
                let size = (tables.bytes.len() as u64).next_multiple_of(TABLE_ALIGN);
                let room = size.saturating_add(if skew > 0 { TABLE_ALIGN } else { 0 });
                let space = job.first.space;
                let free = free.take(space, job.range, room, !job.machine.is_64);
                job.tables = free.and_then(|address| {
                    let address = address.checked_add(skew)?;
                    let distance = i64::try_from(address.0.checked_sub(job.range.end.0)?).ok()?;
                    Some((tables.moved(distance, job.machine.endian)?, address))
                });
                if job.tables.is_none() {
                    self.faults.add_many(Issue::NoPlaceForTables, with_entry, 0);
                }
            } else {
                self.faults.add_many(Issue::NoUnwindingEntry, job.with_tables, 0);
            }
        }
    }

    /// Adds the faults of a function to the totals.
    fn note(&mut self, member: &CodeMapping, faults: &MemberFaults) {
        self.faults.merge(&faults.object);
        self.line_faults[member.function.file].merge(&faults.lines);
    }

    /// Name of a function's symbol: the name in the dump, followed by the compiler if requested.
    fn symbol(&self, view: &FunctionView<'a>) -> Cow<'a, [u8]> {
        let original = self.input.v8_functions.original_name(view.name);
        let name = original.map_or(Cow::Borrowed(view.name), Cow::Owned);
        match view.tier().filter(|_| self.input.has_tiers) {
            Some(tier) => [&name, &b" ["[..], tier, b"]"].concat().into(),
            None => name,
        }
    }

    /// Adds the line table of a function to its object. Returns the source files that it references.
    fn add_lines(
        &self,
        file: FileIndex,
        view: &FunctionView<'a>,
        function: &Function<'_>,
        store: &Path,
        encoder: &mut Encoder<'_, '_>,
        faults: &mut MemberFaults,
    ) -> Vec<SourceToWrite<'a>> {
        let found = self.input.files[file].code.sources(view);
        faults.lines = found.faults;
        let Some(mut info) = found.info else {
            return Vec::new();
        };
        let inlined = self.input.v8_functions.add_calls(file, view, &mut info);
        faults
            .lines
            .add_many(Issue::InlinedLineUnknown, inlined.unknown, 0);
        self.input.v8_functions.use_source_maps(&mut info);
        let lines = &self.input.lines;
        let has_texts = self.text_room > 0;
        if !has_texts && lines.holds_texts() && info.files.iter().any(|file| file.text.is_some()) {
            faults.object.add(Issue::TextsTooLarge, 0);
        }
        let added = lines.add(info, function, store, &self.source_folders, has_texts, encoder);
        added.unwrap_or_else(|_| {
            faults.object.add(Issue::LinesTooLarge, 0);
            Vec::new()
        })
    }

    fn encode(&self, job: &Job<'_>, store: &Path, buffers: &mut Buffers) -> Object<'a> {
        let without_entries;
        let &(ref tables, address) = match &job.tables {
            Some(tables) => tables,
            None => {
                without_entries = job.empty_tables();
                &without_entries
            }
        };
        let members = job.members.iter();
        let views: Vec<_> = members
            .filter_map(|member| Some((self.view(member)?, job.address(member))))
            .collect();
        let symbols: Vec<_> = views.iter().map(|(view, _)| self.symbol(view)).collect();
        let functions = views
            .iter()
            .zip(&symbols)
            .map(|(&(view, address), symbol)| Function {
                name: symbol,
                code: code(&view),
                address,
            });
        let functions: Vec<Function<'_>> = functions.collect();
        let mut encoder = Encoder::new(buffers, self.input.lines.settings(job.machine));
        let mut sources = Vec::new();
        let file = job.first.function.file;
        let faults = views.iter().zip(&functions).map(|((view, _), function)| {
            let mut faults = MemberFaults::default();
            sources.extend(self.add_lines(file, view, function, store, &mut encoder, &mut faults));
            faults
        });
        let faults = faults.collect();
        let text_size = encoder.text_size();
        let content = ObjectContent {
            machine: job.machine,
            functions: &functions,
            address: job.range.start.0,
            time: job.first.since.0,
            tables: PlacedTables {
                tables,
                address: job.table_layout(address).eh_frame,
            },
            debug: &encoder.finish(),
        };
        let mut bytes = SparseBytes::default();
        let encoded = object::encode(&content, &mut bytes);
        Object {
            bytes,
            encoded,
            tables_size: tables.bytes.len() as u64,
            text_size,
            index: views.first().map_or(0, |(view, _)| view.code_index),
            sources,
            faults,
        }
    }

    /// Writes an object and its source files into the folder.
    fn store(
        &self,
        job: &Job<'_>,
        object: &Object<'_>,
        store: &mut Store,
    ) -> Result<PlacedObject, Diagnostic> {
        let mapping = job.first;
        let pid = self.pid(mapping);
        let encoded = &object.encoded;
        let stem = match job.members {
            [_] => format!("{FUNCTION_PREFIX}{pid}-{}", object.index),
            _ => format!("{IMAGE_PREFIX}{pid}-{:x}", job.range.start.0),
        };
        let name = store.write(&stem, &object.bytes, &encoded.build_id)?;
        for source in &object.sources {
            store.write_source(&source.folder, &source.name, source.text)?;
        }
        // Quirk: libunwind (perf 6.1, 6.12) reads aligned words. The first one must be in the mapping, or the
        // stack ends here. Tables have the alignment of the code, which is any multiple of 4 on AArch64
        // (capture erlang25), so the mapping starts at the word before them.
        let address = job.tables.as_ref().map(|&(_, address)| address);
        let skew = address.map_or(0, |address| address.0 % WORD);
        let tables = address.and_then(|address| {
            let start = Address(address.0.saturating_sub(skew));
            AddressRange::new(start, object.tables_size.saturating_add(skew))
        });
        let tables_offset = encoded.tables_offset.saturating_sub(skew);
        Ok(PlacedObject {
            pid,
            space: mapping.space,
            time: mapping.since,
            sequence: mapping.sequence,
            range: job.range,
            file_offset: job.code.file_offset(job.start()),
            tables: tables.map(|range| (range, tables_offset)),
            build_id: encoded.build_id,
            path: path_for_readers(&store.folder().join(name)),
        })
    }
}

/// Size of the words that libunwind reads, in bytes.
const WORD: u64 = 8;

/// Code of a function, or only its size if the code is not known.
fn code<'a>(view: &FunctionView<'a>) -> Code<'a> {
    view.code.map_or(Code::Unknown(view.range.size()), Code::Known)
}

fn eh_frame<'a>(unwinding: &Unwinding<'a>, address: Address, machine: Machine) -> EhFrame<'a> {
    EhFrame {
        section: unwinding.eh_frame,
        address,
        endian: machine.endian,
        address_size: machine.address_size(),
    }
}
