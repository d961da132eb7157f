//! The unwinding tables of objects, and where they are.

use jitdump::internals::format::unwinding::Placement;
use jitdump::{Address, AddressRange, Machine, Tally};

use crate::code::timeline::{CodeMapping, FileIndex, FunctionId};
use crate::collections::hash::HashMap;
use crate::elf::eh_frame::{EhFrame, Fde, FdeIndex, UnwindTables};
use crate::frames::unwind::made_tables;
use crate::inject::objects::free_addresses::FreeAddresses;
use crate::inject::objects::job::{Job, ObjectTables, PlannedObject};
use crate::inject::objects::{ObjectInputs, TABLE_ALIGN};
use crate::load::function_of;
use crate::results::diagnostics::Issue;
use crate::threads;

/// Maximum size of the unwinding tables of all objects: this many times the size of the dumps, or this many bytes if that is
/// more. In real dumps they are smaller than the dump. But any number of functions, at any number of addresses, may share a
/// table. All are in memory until they are written. Functions without a table get one by their code.
const MAX_TABLE_GROWTH: u64 = 2;
const MIN_TABLE_ROOM: u64 = 16 << 20;

/// Returns the room for tables of dumps of `dump_bytes` in all, in bytes.
fn table_room(dump_bytes: u64) -> u64 {
    dump_bytes.saturating_mul(MAX_TABLE_GROWTH).max(MIN_TABLE_ROOM)
}

/// The unwinding tables of functions, each read once.
pub(super) struct UnwindingTables<'a> {
    input: &'a ObjectInputs<'a>,
    /// Tables shared by many functions, by their offset in the file.
    shared: HashMap<(FileIndex, u64), FdeIndex<'a>>,
}

/// The unwinding table of a function in an object.
struct UnwindingTable<'a> {
    /// Address of the function in the object.
    address: u64,
    /// Addresses at which it was first loaded.
    code: AddressRange,
    entries: Entries<'a>,
}

enum Entries<'a> {
    /// In a table that functions share.
    Shared((FileIndex, u64)),
    /// In a table of its own.
    Own(EhFrame<'a>),
    /// In a table that was made.
    Made(Vec<u8>),
}

/// Tables of an object as if they were right after its code.
struct BuiltTables {
    tables: UnwindTables,
    /// Number of functions with recorded entries in them.
    with_entry: u64,
}

/// An object whose tables have no address yet.
struct Unplaced<'j, 'g> {
    job: &'j Job<'g>,
    /// Number of its functions with recorded tables.
    with_tables: u64,
    /// `None` if they have no entries.
    built: Option<BuiltTables>,
    /// Receives the tables with their address.
    placed: &'j mut Option<ObjectTables>,
}

impl Unplaced<'_, '_> {
    /// Places the tables. Counts the functions whose recorded tables are left out in `faults`.
    fn place(self, free: &mut FreeAddresses, faults: &mut Tally<Issue>) {
        let Some(BuiltTables { tables, with_entry }) = self.built else {
            faults.add_many(Issue::NoUnwindingEntry, self.with_tables, 0);
            return;
        };
        let without_entry = self.with_tables.saturating_sub(with_entry);
        faults.add_many(Issue::NoUnwindingEntry, without_entry, 0);
        *self.placed = tables_behind(self.job, tables, free);
        if self.placed.is_none() {
            faults.add_many(Issue::NoPlaceForTables, with_entry, 0);
        }
    }
}

/// Moves tables of an object, which were built for the end of its code, to free addresses behind it. `None` if there are none
/// within reach.
fn tables_behind(job: &Job<'_>, tables: UnwindTables, free: &mut FreeAddresses) -> Option<ObjectTables> {
    let code = job.range();
    // Aligned in the object, like the code. In the process, code may be unaligned (capture erlang25).
    let skew = code.start.0 % TABLE_ALIGN;
    let size = (tables.bytes.len() as u64).next_multiple_of(TABLE_ALIGN);
    let room = size.saturating_add(if skew > 0 { TABLE_ALIGN } else { 0 });
    let aligned = free.take(job.first.space, code, room, !job.machine.is_64)?;
    let address = aligned.checked_add(skew)?;
    let distance = i64::try_from(address.0.checked_sub(code.end.0)?).ok()?;
    let tables = tables.moved(distance, job.machine.endian)?;
    Some(ObjectTables { tables, address })
}

impl UnwindingTable<'_> {
    /// Whether the runtime recorded it.
    fn is_recorded(&self) -> bool {
        !matches!(self.entries, Entries::Made(_))
    }
}

/// Number of tables that runtimes recorded.
fn recorded_count(tables: &[UnwindingTable<'_>]) -> u64 {
    tables.iter().filter(|table| table.is_recorded()).count() as u64
}

/// Reads the unwinding tables of objects, and finds a place for them. Counts what is left out in `faults`.
pub(super) fn with_tables<'g>(
    input: &ObjectInputs<'_>,
    jobs: Vec<Job<'g>>,
    dump_bytes: u64,
    faults: &mut Tally<Issue>,
) -> Vec<PlannedObject<'g>> {
    let mut tables = UnwindingTables {
        input,
        shared: HashMap::default(),
    };
    let read = tables.read(&jobs, dump_bytes, faults);
    let placed = tables.place(&jobs, read, faults);
    let objects = jobs.into_iter().zip(placed);
    objects
        .map(|(job, tables)| PlannedObject { job, tables })
        .collect()
}

impl<'a> UnwindingTables<'a> {
    /// Reads the tables of all functions. Objects have none as soon as all of them together would exceed the limit.
    fn read(
        &mut self,
        jobs: &[Job<'_>],
        dump_bytes: u64,
        faults: &mut Tally<Issue>,
    ) -> Vec<Vec<UnwindingTable<'a>>> {
        let mut room = table_room(dump_bytes);
        let of_job = |job: &Job<'_>| {
            // Readers do not unwind stacks if an object may be at several addresses.
            if !job.members.is_mapped_whole() {
                return Vec::new();
            }
            let functions = job.functions();
            let tables = functions.filter_map(|(member, address)| self.table(member, address, job.machine));
            let mut tables: Vec<UnwindingTable<'a>> = tables.collect();
            let sizes = tables.iter().map(|table| self.max_size(table));
            room = room
                .checked_sub(sizes.fold(0, u64::saturating_add))
                .unwrap_or_else(|| {
                    faults.add_many(Issue::TablesTooLarge, recorded_count(&tables), 0);
                    tables.clear();
                    0
                });
            tables
        };
        jobs.iter().map(of_job).collect()
    }

    /// Reads the table of a function at `address` of an object; `None` if it has none, and none can be made.
    fn table(&mut self, member: &CodeMapping, address: u64, machine: Machine) -> Option<UnwindingTable<'a>> {
        let FunctionId { file, function } = member.function;
        let recorded = &self.input.files[file].code;
        let Some((offset, unwinding)) = recorded.unwinding(function) else {
            return self.made_table(member, address, machine);
        };
        let code = recorded.range(function)?;
        let frame = EhFrame {
            section: unwinding.eh_frame,
            address: unwinding.address(code),
            endian: machine.endian,
            address_size: machine.address_size(),
        };
        let entries = match unwinding.placement {
            Placement::AfterCode(_) => Entries::Own(frame),
            Placement::At(_) => {
                let key = (file, offset);
                self.shared.entry(key).or_insert_with(|| FdeIndex::read(frame));
                Entries::Shared(key)
            }
        };
        Some(UnwindingTable {
            address,
            code,
            entries,
        })
    }

    /// Makes a table for a function without one.
    fn made_table(&self, member: &CodeMapping, address: u64, machine: Machine) -> Option<UnwindingTable<'a>> {
        if !self.input.makes_tables(machine) {
            return None;
        }
        let function = function_of(self.input.files, member.function)?;
        let made = made_tables::eh_frame(machine, member.range, function.code?)?;
        Some(UnwindingTable {
            address,
            code: member.range,
            entries: Entries::Made(made),
        })
    }

    /// Upper bound for the size of a function's table, in bytes. A table of its own counts for each of its
    /// addresses.
    fn max_size(&self, table: &UnwindingTable<'_>) -> u64 {
        match &table.entries {
            Entries::Shared(key) => {
                let shared = self.shared.get(key);
                shared.map_or(0, |entries| entries.max_size_of(table.code))
            }
            Entries::Own(frame) => frame.section.len() as u64,
            Entries::Made(section) => section.len() as u64,
        }
    }

    /// Adds the unwinding entries of a function to `all`, each with its address in the object.
    fn add_entries<'t>(
        &'t self,
        table: &'t UnwindingTable<'a>,
        machine: Machine,
        all: &mut Vec<(Fde<'t>, u64)>,
    ) {
        let code = table.code;
        let placed = |entry: Fde<'t>| {
            let into_code = entry.range.start.0.wrapping_sub(code.start.0);
            (entry, table.address.wrapping_add(into_code))
        };
        let own = match &table.entries {
            Entries::Shared(key) => {
                let shared = self.shared.get(key).into_iter();
                all.extend(shared.flat_map(|entries| entries.overlapping(code)).map(placed));
                None
            }
            Entries::Own(frame) => Some(*frame),
            Entries::Made(section) => Some(EhFrame {
                section,
                address: Address(0),
                endian: machine.endian,
                address_size: machine.address_size(),
            }),
        };
        if let Some(frame) = own {
            // It belongs to this function alone, so it does not apply to the code after it.
            let entries = FdeIndex::read(frame);
            let clipped = entries
                .overlapping(code)
                .map(|entry| entry.truncated_at(code.end));
            all.extend(clipped.map(placed));
        }
    }

    /// Builds the tables of an object; `None` if there are no entries.
    fn build(&self, job: &Job<'_>, of_functions: &[UnwindingTable<'a>]) -> Option<BuiltTables> {
        let mut entries = Vec::new();
        let mut with_entry = 0;
        for table in of_functions {
            let before = entries.len();
            self.add_entries(table, job.machine, &mut entries);
            with_entry += u64::from(table.is_recorded() && entries.len() > before);
        }
        // Several functions may share an entry.
        entries.sort_by_key(|&(_, address)| address);
        entries.dedup_by_key(|&mut (_, address)| address);
        let is_empty = entries.is_empty();
        let tables = UnwindTables::build(entries.into_iter(), job.table_layout(job.range().end))?;
        (!is_empty).then_some(BuiltTables { tables, with_entry })
    }

    /// Builds the tables of all objects, and assigns addresses to them near the code, where the process never maps anything.
    /// Returns them in the order of `jobs`.
    fn place(
        &self,
        jobs: &[Job<'_>],
        of_functions: Vec<Vec<UnwindingTable<'a>>>,
        faults: &mut Tally<Issue>,
    ) -> Vec<Option<ObjectTables>> {
        let mut placed: Vec<Option<ObjectTables>> = jobs.iter().map(|_| None).collect();
        if of_functions.iter().all(Vec::is_empty) {
            return placed;
        }
        let pairs: Vec<_> = jobs.iter().zip(of_functions).collect();
        let built = threads::map(&pairs, |(job, tables)| self.build(job, tables));
        let code = jobs
            .iter()
            .flat_map(|job| job.covered().map(|range| (job.first.space, range)));
        let mut free = FreeAddresses::new(self.input.processes, code);
        let results = built.into_iter().zip(&mut placed);
        let unplaced = pairs.into_iter().zip(results);
        let unplaced = unplaced.map(|((job, of_functions), (built, placed))| Unplaced {
            job,
            with_tables: recorded_count(&of_functions),
            built,
            placed,
        });
        let mut unplaced: Vec<Unplaced<'_, '_>> = unplaced.collect();
        // In this order, tables of neighbours get addresses next to each other.
        unplaced.sort_by_key(|object| (free.family(object.job.first.space), object.job.range()));
        for object in unplaced {
            object.place(&mut free, faults);
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_may_have_twice_the_size_of_the_dumps_or_16_mebibytes() {
        assert_eq!(table_room(0), 16 << 20);
        assert_eq!(table_room(8 << 20), 16 << 20);
        assert_eq!(table_room((8 << 20) + 1), (16 << 20) + 2);
    }
}
