//! From functions to objects in a folder, and what the profile must say about them.

use std::borrow::Cow;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::process::{Processes, SpaceId};
use crate::code::symbols::PlacedSymbol;
use crate::code::timeline::Residence;
use crate::elf::dwarf::Buffers;
use crate::elf::eh_frame::{EhFrame, Entries, Entry, TableLayout, Tables};
use crate::elf::object::{self, Encoded, FunctionObject, PlacedTables};
use crate::elf::store::{self, Store};
use crate::inject::free_addresses::FreeAddresses;
use crate::inject::lines::{DescribedCode, EncodedLines, LineOptions, SourceFolders, SourceToWrite};
use crate::inject::output::Output;
use crate::inject::perf_maps::UsedMap;
use crate::inject::sources::UsedDump;
use crate::inject::symbol_objects;
use crate::machine::Machine;
use crate::runtime::jitdump::unwinding::{Placement, Unwinding};
use crate::runtime::jitdump::{self, FunctionView};
use crate::tally::Tally;
use crate::units::{Address, AddressRange, BuildId, Pid, Time};

/// An object that was written, and where it is to be mapped.
#[derive(Clone, Debug)]
pub struct PlacedObject {
    /// The process.
    pub pid: Pid,
    /// Its address space.
    pub space: SpaceId,
    /// From when on.
    pub time: Time,
    /// Its place among all that happened to the address space.
    pub sequence: u32,
    /// Where its code lies, or a part of it.
    pub range: AddressRange,
    /// The offset in the file that the first byte of that part has.
    pub file_offset: u64,
    /// Where its tables for unwinding are to lie, and where they start in the file, if they hold anything.
    pub tables: Option<(AddressRange, u64)>,
    /// Its build-id.
    pub build_id: BuildId,
    /// Its path.
    pub path: Vec<u8>,
}

/// What an object had to do without.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// The unwinding information has no entry for the function.
    NoEntry,
    /// There is no place for tables within 2 GiB behind the function.
    NoPlace,
    /// Its lines can't be written as DWARF.
    LinesTooLarge,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoEntry => "functions whose unwinding information has no usable entry for them, written without",
            Self::NoPlace => {
                "functions without unused addresses within 2 GiB behind them, written without their unwinding tables"
            }
            Self::LinesTooLarge => "functions whose lines are too large for DWARF, written without",
        })
    }
}

/// The objects of a run.
#[derive(Debug, Default)]
pub struct Objects {
    /// All that were written, wherever they are to be mapped: first those of dumps, by address space and
    /// time, then those of perf maps, by symbol.
    pub placed: Vec<PlacedObject>,
    /// How many there are for functions of dumps.
    pub functions: u64,
    /// How many there are for symbols of perf maps; each may be mapped at several times.
    pub symbols: u64,
    /// What was wrong with their lines, for each dump.
    pub line_faults: Vec<Tally<jitdump::Fault>>,
    /// What they had to do without.
    pub faults: Tally<Fault>,
}

/// What objects are made from.
pub struct Input<'a> {
    /// The dumps that functions come from.
    pub dumps: &'a [UsedDump<'a>],
    /// The perf maps that symbols come from.
    pub maps: &'a [UsedMap<'a>],
    /// The processes that they lie in.
    pub processes: &'a Processes,
    /// The machine that was recorded, for what does not say its own.
    pub recorded: Machine,
    /// How lines are written.
    pub lines: &'a LineOptions,
    /// Whether symbols tell which compiler made a function.
    pub has_tiers: bool,
}

/// Writes the objects of `residences`, in their order, and of `symbols`, which are sorted, and tells
/// `progress` of each.
pub fn write(
    input: &Input<'_>,
    residences: &[Residence],
    symbols: &[PlacedSymbol],
    output: &mut Output,
    mut progress: impl FnMut(u64),
) -> Result<Objects, store::Error> {
    let mut writer = ObjectWriter::new(input);
    let jobs = residences.iter();
    let mut jobs: Vec<Job<'_>> = jobs.filter_map(|residence| writer.job(residence)).collect();
    writer.place_tables(&mut jobs);
    let mut placed = Vec::with_capacity(jobs.len());
    let mut seen = FxHashSet::default();
    for batch in batches(&jobs) {
        let store = output.store()?;
        let folder = store.folder().to_owned();
        let objects: Vec<Object<'_>> = batch
            .par_iter()
            .map_init(Buffers::default, |buffers, job| {
                writer.encode(job, &folder, buffers)
            })
            .collect();
        for (job, object) in batch.iter().zip(objects) {
            // A function that moves has several objects, and the same faults in each.
            if seen.insert(job.residence.function) {
                writer.note(job, &object);
            }
            placed.push(writer.store(job, &object, store)?);
            progress(1);
        }
    }
    let mut objects = Objects {
        functions: placed.len() as u64,
        symbols: 0,
        placed,
        line_faults: writer.line_faults,
        faults: writer.faults,
    };
    symbol_objects::write(input, symbols, output, &mut objects, progress)?;
    Ok(objects)
}

/// Turns functions into objects.
struct ObjectWriter<'a> {
    input: &'a Input<'a>,
    /// Unwinding tables that serve many functions, by where they lie in memory here.
    shared_entries: FxHashMap<usize, Entries<'a>>,
    faults: Tally<Fault>,
    line_faults: Vec<Tally<jitdump::Fault>>,
    source_folders: SourceFolders,
}

/// A function to be written.
#[derive(Clone, Copy)]
struct Job<'a> {
    residence: &'a Residence,
    view: FunctionView<'a>,
    machine: Machine,
    /// Where its tables are to lie, if they hold anything.
    tables: Option<Address>,
}

/// A function as an ELF file.
struct Object<'a> {
    bytes: Vec<u8>,
    encoded: Encoded,
    tables_size: u64,
    sources: Vec<SourceToWrite<'a>>,
    line_faults: Tally<jitdump::Fault>,
    faults: Tally<Fault>,
}

/// The lines of a function as sections.
#[derive(Default)]
struct Lines<'a, 'b> {
    encoded: EncodedLines<'a, 'b>,
    line_faults: Tally<jitdump::Fault>,
    faults: Tally<Fault>,
}

/// How many functions are encoded at a time at most, and how many bytes their records have together before
/// the last one is added, to keep the memory for them small.
const BATCH: usize = 1024;
const BATCH_BYTES: u64 = 8 << 20;

/// The jobs in groups to be encoded together.
fn batches<'j, 'a>(mut jobs: &'j [Job<'a>]) -> impl Iterator<Item = &'j [Job<'a>]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let is_in = |job: &&Job<'_>| {
            let has_room = bytes < BATCH_BYTES;
            bytes = bytes.saturating_add(job.view.record_bytes);
            has_room
        };
        let count = jobs.iter().take(BATCH).take_while(is_in).count();
        let (batch, rest) = jobs.split_at_checked(count)?;
        jobs = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Tables start at multiples of this.
pub const TABLE_ALIGN: u64 = 16;

impl<'a> ObjectWriter<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        Self {
            input,
            shared_entries: FxHashMap::default(),
            faults: Tally::default(),
            line_faults: vec![Tally::default(); input.dumps.len()],
            source_folders: SourceFolders::default(),
        }
    }

    fn pid(&self, residence: &Residence) -> Pid {
        let space = self.input.processes.space(residence.space);
        space.map_or(Pid(0), |space| space.pid)
    }

    fn job(&mut self, residence: &'a Residence) -> Option<Job<'a>> {
        let file = residence.function.file as usize;
        let dump = &self.input.dumps.get(file)?.dump;
        let view = dump.function(residence.function.function)?;
        let machine = dump.machine();
        if let Some(unwinding) = view.unwinding
            && let Placement::At(address) = unwinding.placement
        {
            let key = unwinding.eh_frame.as_ptr() as usize;
            let frame = eh_frame(&unwinding, address, machine);
            self.shared_entries
                .entry(key)
                .or_insert_with(|| Entries::read(frame));
        }
        Some(Job {
            residence,
            view,
            machine,
            tables: None,
        })
    }

    /// The entries for unwinding a function.
    fn entries(&self, job: &Job<'a>) -> Vec<Entry<'a>> {
        let Some(unwinding) = job.view.unwinding else {
            return Vec::new();
        };
        let code = job.view.range;
        match unwinding.placement {
            Placement::At(_) => {
                let entries = self.shared_entries.get(&(unwinding.eh_frame.as_ptr() as usize));
                entries.map_or(Vec::new(), |entries| entries.of(code).collect())
            }
            Placement::BehindCode(distance) => {
                let behind = code.size().next_multiple_of(8).saturating_add(distance);
                let address = Address(code.start.0.wrapping_add(behind));
                let entries = Entries::read(eh_frame(&unwinding, address, job.machine));
                entries.of(code).collect()
            }
        }
    }

    /// The tables of a function if their first byte lies at `address` of its process.
    fn tables(&self, job: &Job<'a>, address: Address) -> Option<Tables> {
        let code = job.view.range;
        let entries = self.entries(job).into_iter().map(|entry| {
            let into_code = entry.range.start.0.wrapping_sub(code.start.0);
            (entry, object::TEXT_OFFSET.wrapping_add(into_code))
        });
        Tables::lay_out(entries, table_layout(job, address))
    }

    /// Gives the tables of all functions that have any addresses near the code, where their process never
    /// maps anything.
    fn place_tables(&mut self, jobs: &mut [Job<'a>]) {
        if jobs.iter().all(|job| job.view.unwinding.is_none()) {
            return;
        }
        // The size of tables does not depend on where they lie, as long as it is near.
        let sizes: Vec<Option<u64>> = jobs
            .par_iter()
            .map(|job| {
                job.view.unwinding?;
                let tables = self.tables(job, job.residence.range.end)?;
                let size = (tables.bytes.len() as u64).next_multiple_of(TABLE_ALIGN);
                (tables.entries > 0).then_some(size)
            })
            .collect();
        let mut free = FreeAddresses::new(self.input.processes, jobs.iter().map(|job| job.residence));
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        let key = |at: &usize| {
            let job = jobs.get(*at)?;
            Some((free.family(job.residence.space), job.residence.range))
        };
        order.sort_by_key(key);
        for at in order {
            let (Some(job), Some(&size)) = (jobs.get_mut(at), sizes.get(at)) else {
                continue;
            };
            if let Some(size) = size {
                // Aligned in the object, in which the code is: in the process it need not be (capture erlang25).
                let skew = job.residence.range.start.0 % TABLE_ALIGN;
                let room = size.saturating_add(if skew > 0 { TABLE_ALIGN } else { 0 });
                let free = free.take(job.residence, room, !job.machine.is_64);
                job.tables = free.and_then(|address| address.checked_add(skew));
                if job.tables.is_none() {
                    self.faults.add(Fault::NoPlace, 0);
                }
            } else if job.view.unwinding.is_some() {
                self.faults.add(Fault::NoEntry, 0);
            }
        }
    }

    /// Adds up what was wrong with an object.
    fn note(&mut self, job: &Job<'_>, object: &Object<'_>) {
        self.faults.merge(&object.faults);
        if let Some(faults) = self.line_faults.get_mut(job.residence.function.file as usize) {
            faults.merge(&object.line_faults);
        }
    }

    /// The name of a function's symbol: the one that the runtime wrote, and behind it which compiler made it,
    /// if that was asked for.
    fn symbol(&self, job: &Job<'a>) -> Cow<'a, [u8]> {
        let name = job.view.name;
        match job.view.tier().filter(|_| self.input.has_tiers) {
            Some(tier) => [name, b" [", tier, b"]"].concat().into(),
            None => name.into(),
        }
    }

    fn lines<'b>(
        &self,
        job: &Job<'a>,
        symbol: &[u8],
        store: &Path,
        buffers: &'b mut Buffers,
    ) -> Lines<'a, 'b> {
        let mut lines = Lines::default();
        let file = job.residence.function.file as usize;
        let Some(used) = self.input.dumps.get(file) else {
            return lines;
        };
        let found = used.dump.sources(&job.view);
        lines.line_faults = found.faults;
        let Some(info) = found.info else { return lines };
        let function = DescribedCode {
            symbol,
            code: object::Code::Known(job.view.code),
            machine: job.machine,
        };
        let encoded = self
            .input
            .lines
            .encode(info, &function, store, &self.source_folders, buffers);
        match encoded {
            Ok(encoded) => lines.encoded = encoded,
            Err(_) => lines.faults.add(Fault::LinesTooLarge, 0),
        }
        lines
    }

    fn encode(&self, job: &Job<'a>, store: &Path, buffers: &mut Buffers) -> Object<'a> {
        let placed = job
            .tables
            .and_then(|address| Some((self.tables(job, address)?, address)));
        let (tables, address) = placed.unwrap_or_else(|| {
            // Tables that hold nothing are never looked into, so it does not matter what else is at their
            // address.
            let code = job.residence.range;
            let distance = code.size().next_multiple_of(TABLE_ALIGN);
            let behind = Address(code.start.0.wrapping_add(distance));
            let layout = table_layout(job, behind);
            let tables = Tables::lay_out(std::iter::empty(), layout);
            (tables.unwrap_or_default(), behind)
        });
        let mut bytes = Vec::new();
        let symbol = self.symbol(job);
        let lines = self.lines(job, &symbol, store, buffers);
        let function = FunctionObject {
            machine: job.machine,
            name: &symbol,
            code: object::Code::Known(job.view.code),
            address: job.residence.range.start.0,
            time: job.residence.since.0,
            tables: PlacedTables {
                tables: &tables,
                address: table_layout(job, address).eh_frame,
            },
            debug: &lines.encoded.sections,
        };
        let encoded = object::encode(&function, &mut bytes);
        Object {
            bytes,
            encoded,
            tables_size: tables.bytes.len() as u64,
            sources: lines.encoded.sources,
            line_faults: lines.line_faults,
            faults: lines.faults,
        }
    }

    /// Writes an object into the folder.
    fn store(
        &self,
        job: &Job<'_>,
        object: &Object<'_>,
        store: &mut Store,
    ) -> Result<PlacedObject, store::Error> {
        let residence = job.residence;
        let pid = self.pid(residence);
        let encoded = &object.encoded;
        let stem = format!("jitted-{pid}-{}", job.view.index);
        let name = store.name(&stem, &object.bytes, &encoded.build_id);
        store.write(&name, &object.bytes)?;
        for source in &object.sources {
            store.write_source(&source.folder, &source.name, source.text)?;
        }
        let tables = job
            .tables
            .and_then(|address| AddressRange::new(address, object.tables_size));
        Ok(PlacedObject {
            pid,
            space: residence.space,
            time: residence.since,
            sequence: residence.sequence,
            range: residence.range,
            file_offset: object::TEXT_OFFSET,
            tables: tables.map(|range| (range, encoded.tables_offset)),
            build_id: encoded.build_id,
            path: path_for_readers(&store.folder().join(name)),
        })
    }
}

/// The path as the profile has it.
///
/// perf with libdw takes a file whose path starts with `/tmp/jitted-` for one that perf inject made, and
/// looks for its code where ours don't have it (unwind-libdw.c, since Linux 6.8).
pub fn path_for_readers(path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    match path.strip_prefix(b"/tmp/jitted-") {
        Some(rest) => [b"/tmp/./jitted-", rest].concat(),
        None => path.to_vec(),
    }
}

/// Where the tables of a function lie in its object if their first byte lies at `address` of its process.
fn table_layout(job: &Job<'_>, address: Address) -> TableLayout {
    let distance = address.0.wrapping_sub(job.residence.range.start.0);
    TableLayout {
        eh_frame: object::TEXT_OFFSET.wrapping_add(distance),
        order: job.machine.order,
        address_size: job.machine.address_size(),
    }
}

fn eh_frame<'a>(unwinding: &Unwinding<'a>, address: Address, machine: Machine) -> EhFrame<'a> {
    EhFrame {
        section: unwinding.eh_frame,
        address,
        order: machine.order,
        address_size: machine.address_size(),
    }
}
