//! The unwinding tables of objects, and where they are.

use jitdump::internals::format::unwinding::{Placement, Unwinding};
use jitdump::{Address, AddressRange, Machine};

use crate::code::timeline::{CodeMapping, FileIndex, FunctionId};
use crate::elf::eh_frame::{EhFrame, Fde, FdeIndex, Tables};
use crate::frames::unwind::made_tables;
use crate::inject::objects::TABLE_ALIGN;
use crate::inject::objects::free_addresses::FreeAddresses;
use crate::inject::objects::functions::ObjectWriter;
use crate::inject::objects::job::Job;
use crate::results::diagnostics::Issue;
use crate::threads;

/// Maximum size of the unwinding tables of all objects: this many times the size of the dumps, or this many bytes if that is
/// more. In real dumps they are smaller than the dump. But any number of functions, at any number of addresses, may share a
/// table. All are in memory until they are written. Functions without a table get one by their code.
const MAX_TABLE_GROWTH: u64 = 2;
const MIN_TABLE_ROOM: u64 = 16 << 20;

impl<'a> ObjectWriter<'a> {
    /// Returns the addresses at which a function was first loaded.
    fn recorded_range(&self, member: &CodeMapping) -> Option<AddressRange> {
        let FunctionId { file, function } = member.function;
        self.input.files[file].code.range(function)
    }

    /// Returns the unwinding table of a function, and where it is.
    fn unwinding(&self, member: &CodeMapping) -> Option<((FileIndex, u64), Unwinding<'a>)> {
        let FunctionId { file, function } = member.function;
        let (offset, unwinding) = self.input.files[file].code.unwinding(function)?;
        Some(((file, offset), unwinding))
    }

    /// Reads the tables that functions of an object share with others. Returns the number of functions that have a table.
    pub(super) fn find_tables<'g>(
        &mut self,
        functions: impl Iterator<Item = &'g CodeMapping>,
        machine: Machine,
    ) -> u64 {
        let mut with_tables = 0;
        for member in functions {
            let Some((key, unwinding)) = self.unwinding(member) else {
                continue;
            };
            with_tables += 1;
            if let Placement::At(address) = unwinding.placement {
                let frame = eh_frame(&unwinding, address, machine);
                self.shared_entries
                    .entry(key)
                    .or_insert_with(|| FdeIndex::read(frame));
            }
        }
        with_tables
    }

    /// Drops unwinding tables as soon as all of them together would exceed the limit.
    pub(super) fn limit_tables(&mut self, jobs: &mut [Job<'_>], dump_bytes: u64) {
        let mut room = dump_bytes.saturating_mul(MAX_TABLE_GROWTH).max(MIN_TABLE_ROOM);
        for job in jobs.iter_mut().filter(|job| job.has_tables()) {
            let sizes = job.functions().map(|(member, _)| self.max_table_size(member));
            let size = sizes.fold(0, u64::saturating_add);
            room = room.checked_sub(size).unwrap_or_else(|| {
                self.faults.add_many(Issue::TablesTooLarge, job.with_tables, 0);
                job.with_tables = 0;
                job.makes_tables = false;
                0
            });
        }
    }

    /// Upper bound for the size of a function's tables, in bytes. A table of its own counts for each of its
    /// addresses.
    fn max_table_size(&self, member: &CodeMapping) -> u64 {
        let Some((key, unwinding)) = self.unwinding(member) else {
            return made_tables::max_size(member.range.size());
        };
        let range = self.recorded_range(member);
        let shared = self.shared_entries.get(&key);
        match (unwinding.placement, shared, range) {
            (Placement::At(_), Some(entries), Some(range)) => entries.max_size_of(range),
            _ => unwinding.eh_frame.len() as u64,
        }
    }

    /// Returns the unwinding entries of a function, each with its offset from the start of the code in bytes.
    fn entries(&self, member: &CodeMapping, machine: Machine) -> Vec<(Fde<'a>, u64)> {
        let Some((code, (key, unwinding))) = self.recorded_range(member).zip(self.unwinding(member)) else {
            return Vec::new();
        };
        let with_offset = |entry: Fde<'a>| (entry, entry.range.start.0.wrapping_sub(code.start.0));
        match unwinding.placement {
            Placement::At(_) => {
                let entries = self.shared_entries.get(&key);
                entries.map_or(Vec::new(), |entries| {
                    entries.overlapping(code).map(with_offset).collect()
                })
            }
            Placement::AfterCode(_) => {
                let entries = FdeIndex::read(eh_frame(&unwinding, unwinding.address(code), machine));
                // The table belongs to this function alone, so it does not apply to the code after it.
                let clipped = entries
                    .overlapping(code)
                    .map(|entry| entry.truncated_at(code.end));
                clipped.map(with_offset).collect()
            }
        }
    }

    /// Tables of an object if they are right after its code, and number of functions with recorded entries in them; `None` if
    /// there are no entries.
    fn tables(&self, job: &Job<'_>) -> Option<(Tables, u64)> {
        let mut entries = Vec::new();
        let (mut with_entry, mut without) = (0, Vec::new());
        for (member, start) in job.functions() {
            let own = self.entries(member, job.machine);
            match own.is_empty() {
                true => without.push((member, start)),
                false => with_entry += 1,
            }
            let own = own.into_iter();
            entries.extend(own.map(|(entry, into_code)| (entry, start.wrapping_add(into_code))));
        }
        let made = |(member, start): (&CodeMapping, u64)| {
            let section = made_tables::eh_frame(job.machine, member.range, self.view(member)?.code?)?;
            Some((section, start))
        };
        let without = without.into_iter().filter(|_| job.makes_tables);
        let made: Vec<(Vec<u8>, u64)> = without.filter_map(made).collect();
        let mut entries: Vec<(Fde<'_>, u64)> = entries;
        for (section, start) in &made {
            let index = FdeIndex::read(EhFrame {
                section,
                address: Address(0),
                endian: job.machine.endian,
                address_size: job.machine.address_size(),
            });
            let all = AddressRange {
                start: Address(0),
                end: Address(u64::MAX),
            };
            entries.extend(index.overlapping(all).map(|entry| (entry, *start)));
        }
        // Several functions may share an entry.
        entries.sort_by_key(|&(_, start)| start);
        entries.dedup_by_key(|&mut (_, start)| start);
        let is_empty = entries.is_empty();
        let tables = Tables::build(entries.into_iter(), job.table_layout(job.range().end))?;
        (!is_empty).then_some((tables, with_entry))
    }

    /// Assigns addresses to the tables of all objects: near the code, where the process never maps anything.
    pub(super) fn place_tables(&mut self, jobs: &mut [Job<'_>]) {
        if !jobs.iter().any(Job::has_tables) {
            return;
        }
        let tables = |job: &Job<'_>| job.has_tables().then(|| self.tables(job)).flatten();
        let mut all_tables = threads::map(jobs, tables);
        let code = jobs
            .iter()
            .flat_map(|job| job.covered().map(|range| (job.first.space, range)));
        let mut free = FreeAddresses::new(self.input.processes, code);
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        let key = |at: &usize| {
            let job = jobs.get(*at)?;
            Some((free.family(job.first.space), job.range()))
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
                let skew = job.range().start.0 % TABLE_ALIGN;
                let size = (tables.bytes.len() as u64).next_multiple_of(TABLE_ALIGN);
                let room = size.saturating_add(if skew > 0 { TABLE_ALIGN } else { 0 });
                let space = job.first.space;
                let free = free.take(space, job.range(), room, !job.machine.is_64);
                job.tables = free.and_then(|address| {
                    let address = address.checked_add(skew)?;
                    let distance = i64::try_from(address.0.checked_sub(job.range().end.0)?).ok()?;
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
}

fn eh_frame<'a>(unwinding: &Unwinding<'a>, address: Address, machine: Machine) -> EhFrame<'a> {
    EhFrame {
        section: unwinding.eh_frame,
        address,
        endian: machine.endian,
        address_size: machine.address_size(),
    }
}
