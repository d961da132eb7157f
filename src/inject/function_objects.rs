//! From functions of dumps to objects: one for each function, or one for all that lie close to each other.

use std::borrow::Cow;
use std::path::Path;

use crate::code::grouping::{Groups, Members, first_of};
use crate::code::timeline::CodeMapping;
use crate::elf::dwarf::{Buffers, Encoder};
use crate::elf::eh_frame::{EhFrame, Entries, Entry, TableLayout, Tables};
use crate::elf::object::{self, Code, Content, Encoded, Function, LEAD_IN, PlacedTables};
use crate::elf::store::{self, FUNCTION_PREFIX, IMAGE_PREFIX, Store};
use crate::hash::{HashMap, HashSet};
use crate::inject::free_addresses::FreeAddresses;
use crate::inject::objects::{Fault, Input, Objects, PlacedObject, TABLE_ALIGN, path_for_readers};
use crate::inject::output::Output;
use crate::inject::source_paths::{SourceFolders, SourceToWrite};
use crate::inject::sources::function_of;
use crate::machine::Machine;
use crate::runtime::jitdump::unwinding::{Placement, Unwinding};
use crate::runtime::{FunctionView, jitdump};
use crate::sparse::SparseBytes;
use crate::tally::Tally;
use crate::threads;
use crate::units::{Address, AddressRange, Pid};

/// Writes the objects, in the order of the groups, and tells `progress` of each function.
pub fn write(
    input: &Input<'_>,
    groups: &Groups,
    output: &mut Output,
    mut progress: impl FnMut(u64),
) -> Result<Objects, store::Error> {
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
            writer.faults.add_many(Fault::TooMuch, left_out, 0);
            progress(left_out);
            continue;
        }
        let folder = store.folder().to_owned();
        let objects = threads::map_with(batch, Buffers::default, |buffers, job| {
            writer.encode(job, &folder, buffers)
        });
        for (job, object) in batch.iter().zip(objects) {
            for (member, faults) in job.members.iter().zip(&object.faults) {
                // A function that moves is in several objects, with the same faults in each.
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

/// Turns functions into objects.
struct ObjectWriter<'a> {
    input: &'a Input<'a>,
    /// Unwinding tables that serve many functions, by where they lie in memory here.
    shared_entries: HashMap<usize, Entries<'a>>,
    faults: Tally<Fault>,
    line_faults: Vec<Tally<jitdump::Fault>>,
    source_folders: SourceFolders,
    /// How many bytes of texts of sources an object may have, for each dump.
    source_bytes: Vec<u64>,
    /// How many more bytes of texts of sources objects may have.
    text_room: u64,
}

/// An object to be written.
#[derive(Clone, Copy)]
struct Job<'g> {
    /// Its functions, from the lowest address up; not empty.
    members: &'g [CodeMapping],
    /// The one that came first.
    first: &'g CodeMapping,
    machine: Machine,
    /// The code of one of them, which tells whether that of all is known.
    code: Code<'g>,
    /// Whether the object covers the [`LEAD_IN`] bytes before them.
    has_lead_in: bool,
    /// How many bytes their records have together, and the sources whose text may be in the object.
    record_bytes: u64,
    /// For how many of them the dump has tables.
    with_tables: u64,
    /// From where the first one starts to where the last one ends.
    range: AddressRange,
    /// Where its tables are to lie, if they hold anything.
    tables: Option<Address>,
}

/// An object as an ELF file.
struct Object<'a> {
    bytes: SparseBytes,
    encoded: Encoded,
    tables_size: u64,
    text_size: u64,
    /// The number that the runtime knows the first function under.
    index: u64,
    sources: Vec<SourceToWrite<'a>>,
    /// Those of each function.
    faults: Vec<MemberFaults>,
}

/// What was wrong with a function.
#[derive(Default)]
struct MemberFaults {
    lines: Tally<jitdump::Fault>,
    object: Tally<Fault>,
}

impl Job<'_> {
    /// The address of the first function in the object.
    fn start(&self) -> u64 {
        self.code.start(self.has_lead_in)
    }

    /// The address of a function in the object.
    fn address(&self, member: &CodeMapping) -> u64 {
        let offset = member.range.start.0.saturating_sub(self.range.start.0);
        self.start().wrapping_add(offset)
    }

    /// The addresses of the process that the object covers for readers, without its header.
    fn covered(&self) -> AddressRange {
        let lead_in = if self.has_lead_in { LEAD_IN } else { 0 };
        AddressRange {
            start: Address(self.range.start.0.saturating_sub(lead_in)),
            end: self.range.end,
        }
    }

    /// Where tables lie in the object if their first byte lies at `address` of the process.
    fn table_layout(&self, address: Address) -> TableLayout {
        let distance = address.0.wrapping_sub(self.range.start.0);
        TableLayout {
            eh_frame: self.start().wrapping_add(distance),
            order: self.machine.order,
            address_size: self.machine.address_size(),
        }
    }
}

/// How large all objects may be together: so many times as large as the dumps, or so many bytes. A function has an
/// object for each place that it is moved to, and functions may share sources and tables: what is made so could fill
/// any disk. Of real dumps, the objects are up to 15 times as large: of small functions, most is the tables of an ELF
/// file.
const MAX_GROWTH: u64 = 64;
const MIN_ROOM: u64 = 64 << 20;

/// How large the tables for unwinding of all objects may be together, in the same way. Of real dumps they are smaller
/// than the dump. But one table may serve any number of functions, and each place that a function is moved to.
const MAX_TABLE_GROWTH: u64 = 2;
const MIN_TABLE_ROOM: u64 = 16 << 20;

/// How large the texts of sources in all objects may be together, in the same way: with DWARF 5, each object has those of
/// its functions.
const MAX_TEXT_GROWTH: u64 = 4;
const MIN_TEXT_ROOM: u64 = 64 << 20;

/// The most objects that are encoded at a time, and the bytes of their records before the last one is added, to limit
/// memory.
const BATCH: usize = 1024;
const BATCH_BYTES: u64 = 8 << 20;

/// The jobs in groups to be encoded together.
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
            line_faults: vec![Tally::default(); input.files.len()],
            source_folders: SourceFolders::default(),
            source_bytes: if input.lines.holds_texts() {
                let files = input.files.iter();
                files.map(|used| used.code.source_bytes()).collect()
            } else {
                Vec::new()
            },
            text_room: 0,
        }
    }

    fn pid(&self, mapping: &CodeMapping) -> Pid {
        let space = self.input.processes.space(mapping.space);
        space.map_or(Pid(0), |space| space.pid)
    }

    /// What the dump says of a function.
    fn view(&self, mapping: &CodeMapping) -> Option<FunctionView<'a>> {
        function_of(self.input.files, mapping.function)
    }

    /// The object of a group, with its tables not placed yet.
    fn job<'g>(&mut self, group: Members<'g>) -> Option<Job<'g>>
    where
        'a: 'g,
    {
        let members = group.functions;
        let (lowest, highest) = (members.first()?, members.last()?);
        let file = &self.input.files.get(lowest.function.file as usize)?.code;
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
                    .or_insert_with(|| Entries::read(frame));
            }
        }
        let bytes = members
            .iter()
            .map(|member| self.input.record_bytes(member.function));
        let sources = self.source_bytes.get(lowest.function.file as usize).copied();
        Some(Job {
            members,
            first: first_of(members)?,
            machine,
            code: code(&self.view(lowest)?),
            has_lead_in: group.has_lead_in,
            record_bytes: bytes.fold(sources.unwrap_or(0), u64::saturating_add),
            with_tables,
            range: AddressRange {
                start: lowest.range.start,
                end: highest.range.end,
            },
            tables: None,
        })
    }

    /// Leaves out the tables of the objects from which on all of them together would be too large.
    fn limit_tables(&mut self, jobs: &mut [Job<'_>], dump_bytes: u64) {
        let mut room = dump_bytes.saturating_mul(MAX_TABLE_GROWTH).max(MIN_TABLE_ROOM);
        for job in jobs.iter_mut().filter(|job| job.with_tables > 0) {
            let sizes = job.members.iter().map(|member| self.max_table_size(member));
            let size = sizes.fold(0, u64::saturating_add);
            room = room.checked_sub(size).unwrap_or_else(|| {
                self.faults.add_many(Fault::TablesTooLarge, job.with_tables, 0);
                job.with_tables = 0;
                0
            });
        }
    }

    /// How large the tables of a function can be; what it has for itself is read for each place that it was at.
    fn max_table_size(&self, member: &CodeMapping) -> u64 {
        let file = self.input.files.get(member.function.file as usize);
        let Some(unwinding) = file.and_then(|used| used.code.unwinding(member.function.function)) else {
            return 0;
        };
        let range = file.and_then(|used| used.code.range(member.function.function));
        let shared = self.shared_entries.get(&(unwinding.eh_frame.as_ptr() as usize));
        match (unwinding.placement, shared, range) {
            (Placement::At(_), Some(entries), Some(range)) => entries.max_size_of(range),
            _ => unwinding.eh_frame.len() as u64,
        }
    }

    /// The entries for unwinding a function, each with how many bytes behind the start of its code it starts.
    fn entries(&self, member: &CodeMapping, machine: Machine) -> Vec<(Entry<'a>, u64)> {
        let view = self.view(member);
        let Some((code, unwinding)) = view.and_then(|view| Some((view.range, view.unwinding?))) else {
            return Vec::new();
        };
        let with_offset = |entry: Entry<'a>| (entry, entry.range.start.0.wrapping_sub(code.start.0));
        match unwinding.placement {
            Placement::At(_) => {
                let entries = self.shared_entries.get(&(unwinding.eh_frame.as_ptr() as usize));
                entries.map_or(Vec::new(), |entries| entries.of(code).map(with_offset).collect())
            }
            Placement::BehindCode(distance) => {
                let behind = code.size().next_multiple_of(8).saturating_add(distance);
                let address = Address(code.start.0.wrapping_add(behind));
                let entries = Entries::read(eh_frame(&unwinding, address, machine));
                // The function's own, so nothing that it says holds for what follows.
                let clipped = entries.of(code).map(|entry| entry.until(code.end));
                clipped.map(with_offset).collect()
            }
        }
    }

    /// The entries of an object with the addresses in it that their first ones become, and how many of its
    /// functions have any.
    fn object_entries(&self, job: &Job<'_>) -> (Vec<(Entry<'a>, u64)>, u64) {
        let mut entries = Vec::new();
        let mut with_entry = 0;
        for member in job.members {
            let before = entries.len();
            let start = job.address(member);
            let own = self.entries(member, job.machine).into_iter();
            entries.extend(own.map(|(entry, into_code)| (entry, start.wrapping_add(into_code))));
            with_entry += u64::from(entries.len() > before);
        }
        // One entry may be for several functions.
        entries.sort_by_key(|&(_, start)| start);
        entries.dedup_by_key(|&mut (_, start)| start);
        (entries, with_entry)
    }

    /// The tables of an object if their first byte lies at `address` of its process.
    fn tables(&self, job: &Job<'_>, address: Address) -> Option<Tables> {
        let (entries, _) = self.object_entries(job);
        Tables::lay_out(entries.into_iter(), job.table_layout(address))
    }

    /// How large the tables of an object are, and how many of its functions have entries in them; `None` if
    /// none has.
    fn tables_size(&self, job: &Job<'_>) -> Option<(u64, u64)> {
        let (entries, with_entry) = self.object_entries(job);
        // It does not depend on where they lie, as long as it is near.
        let tables = Tables::lay_out(entries.into_iter(), job.table_layout(job.range.end))?;
        let size = (tables.bytes.len() as u64).next_multiple_of(TABLE_ALIGN);
        (with_entry > 0).then_some((size, with_entry))
    }

    /// Gives the tables of all objects that have any addresses near the code, where their process never maps
    /// anything.
    fn place_tables(&mut self, jobs: &mut [Job<'_>]) {
        if jobs.iter().all(|job| job.with_tables == 0) {
            return;
        }
        let size = |job: &Job<'_>| (job.with_tables > 0).then(|| self.tables_size(job)).flatten();
        let sizes = threads::map(jobs, size);
        let code = jobs.iter().map(|job| (job.first.space, job.covered()));
        let mut free = FreeAddresses::new(self.input.processes, code);
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        let key = |at: &usize| {
            let job = jobs.get(*at)?;
            Some((free.family(job.first.space), job.range))
        };
        order.sort_by_key(key);
        for at in order {
            let (Some(job), Some(&size)) = (jobs.get_mut(at), sizes.get(at)) else {
                continue;
            };
            if let Some((size, with_entry)) = size {
                let without_entry = job.with_tables.saturating_sub(with_entry);
                self.faults.add_many(Fault::NoEntry, without_entry, 0);
                // Aligned in the object, in which the code is: in the process it need not be (capture erlang25).
                let skew = job.range.start.0 % TABLE_ALIGN;
                let room = size.saturating_add(if skew > 0 { TABLE_ALIGN } else { 0 });
                let space = job.first.space;
                let free = free.take(space, job.range, room, !job.machine.is_64);
                job.tables = free.and_then(|address| address.checked_add(skew));
                if job.tables.is_none() {
                    self.faults.add_many(Fault::NoPlace, with_entry, 0);
                }
            } else {
                self.faults.add_many(Fault::NoEntry, job.with_tables, 0);
            }
        }
    }

    /// Adds up what was wrong with a function.
    fn note(&mut self, member: &CodeMapping, faults: &MemberFaults) {
        self.faults.merge(&faults.object);
        if let Some(of_dump) = self.line_faults.get_mut(member.function.file as usize) {
            of_dump.merge(&faults.lines);
        }
    }

    /// The name of a function's symbol: the one that the runtime wrote, and behind it which compiler made it,
    /// if that was asked for.
    fn symbol(&self, view: &FunctionView<'a>) -> Cow<'a, [u8]> {
        let name = view.name;
        match view.tier().filter(|_| self.input.has_tiers) {
            Some(tier) => [name, b" [", tier, b"]"].concat().into(),
            None => name.into(),
        }
    }

    /// Adds the lines of a function to those of its object; returns the source files that they lead to.
    fn add_lines(
        &self,
        file: u32,
        view: &FunctionView<'a>,
        function: &Function<'_>,
        store: &Path,
        encoder: &mut Encoder<'_, '_>,
        faults: &mut MemberFaults,
    ) -> Vec<SourceToWrite<'a>> {
        let Some(used) = self.input.files.get(file as usize) else {
            return Vec::new();
        };
        let found = used.code.sources(view);
        faults.lines = found.faults;
        let Some(info) = found.info else {
            return Vec::new();
        };
        let lines = &self.input.lines;
        let has_texts = self.text_room > 0;
        if !has_texts && lines.holds_texts() && info.files.iter().any(|file| file.text.is_some()) {
            faults.object.add(Fault::TextsTooLarge, 0);
        }
        let added = lines.add(info, function, store, &self.source_folders, has_texts, encoder);
        added.unwrap_or_else(|_| {
            faults.object.add(Fault::LinesTooLarge, 0);
            Vec::new()
        })
    }

    /// The tables of an object, and where they lie in its process.
    fn placed_tables(&self, job: &Job<'_>) -> (Tables, Address) {
        let placed = job
            .tables
            .and_then(|address| Some((self.tables(job, address)?, address)));
        placed.unwrap_or_else(|| {
            // Tables that hold nothing are never looked into, so it does not matter what else is at their
            // address.
            let distance = job.range.size().next_multiple_of(TABLE_ALIGN);
            let behind = Address(job.range.start.0.wrapping_add(distance));
            let tables = Tables::lay_out(std::iter::empty(), job.table_layout(behind));
            (tables.unwrap_or_default(), behind)
        })
    }

    fn encode(&self, job: &Job<'_>, store: &Path, buffers: &mut Buffers) -> Object<'a> {
        let (tables, address) = self.placed_tables(job);
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
        let content = Content {
            machine: job.machine,
            functions: &functions,
            address: job.range.start.0,
            time: job.first.since.0,
            tables: PlacedTables {
                tables: &tables,
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
            index: views.first().map_or(0, |(view, _)| view.index),
            sources,
            faults,
        }
    }

    /// Writes an object into the folder.
    fn store(
        &self,
        job: &Job<'_>,
        object: &Object<'_>,
        store: &mut Store,
    ) -> Result<PlacedObject, store::Error> {
        let mapping = job.first;
        let pid = self.pid(mapping);
        let encoded = &object.encoded;
        let stem = match job.members {
            [_] => format!("{FUNCTION_PREFIX}{pid}-{}", object.index),
            _ => format!("{IMAGE_PREFIX}{pid}-{:x}", job.range.start.0),
        };
        let name = store.name(&stem, &object.bytes, &encoded.build_id);
        store.write(&name, &object.bytes)?;
        for source in &object.sources {
            store.write_source(&source.folder, &source.name, source.text)?;
        }
        // Quirk: libunwind (perf 6.1, 6.12) reads aligned words, of which the first must be in the map, or the stack ends
        // here. So the map starts at a multiple of the word where the tables do not, which lie in the process as the code
        // does: on AArch64 at any multiple of 4 (capture erlang25).
        let skew = job.tables.map_or(0, |address| address.0 % WORD);
        let tables = job.tables.and_then(|address| {
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

/// The size of the words that libunwind reads, in bytes.
const WORD: u64 = 8;

/// The code of a function, as far as it is known.
fn code<'a>(view: &FunctionView<'a>) -> Code<'a> {
    view.code.map_or(Code::Unknown(view.range.size()), Code::Known)
}

fn eh_frame<'a>(unwinding: &Unwinding<'a>, address: Address, machine: Machine) -> EhFrame<'a> {
    EhFrame {
        section: unwinding.eh_frame,
        address,
        order: machine.order,
        address_size: machine.address_size(),
    }
}
