//! Objects that are to be written.

use crate::code::timeline::CodeMapping;
use crate::elf::eh_frame::{TableLayout, Tables};
use crate::elf::object::{Code, LEAD_IN};
use crate::inject::objects::TABLE_ALIGN;
use crate::machine::Machine;
use crate::units::{Address, AddressRange};

/// Maximum number of objects to encode at a time, and the size of records in bytes from which on no object is
/// added. Both limit memory.
const BATCH: usize = 1024;
const BATCH_BYTES: u64 = 8 << 20;

/// An object to write.
pub struct Job<'g> {
    /// Functions, from the lowest address up; not empty.
    pub members: &'g [CodeMapping],
    /// The earliest function.
    pub first: &'g CodeMapping,
    /// Machine of the code.
    pub machine: Machine,
    /// Code of the lowest function, which shows whether the code of all functions is known.
    pub code: Code<'g>,
    /// Whether the object covers the [`LEAD_IN`] bytes before the first function.
    pub has_lead_in: bool,
    /// Size of the records and of the source texts that the object may contain, in bytes.
    pub record_bytes: u64,
    /// Number of functions with unwinding tables in the dump.
    pub with_tables: u64,
    /// Range from the start of the first function to the end of the last one.
    pub range: AddressRange,
    /// Unwinding tables, and their address in the process; `None` if they are empty.
    pub tables: Option<(Tables, Address)>,
}

impl Job<'_> {
    /// Address of the first function in the object.
    pub fn start(&self) -> u64 {
        self.code.text_address(self.has_lead_in)
    }

    /// Address of a function in the object.
    pub fn address(&self, member: &CodeMapping) -> u64 {
        let offset = member.range.start.0.saturating_sub(self.range.start.0);
        self.start().wrapping_add(offset)
    }

    /// Addresses of the process that readers attribute to the object, without its header.
    pub fn covered(&self) -> AddressRange {
        let lead_in = if self.has_lead_in { LEAD_IN } else { 0 };
        AddressRange {
            start: Address(self.range.start.0.saturating_sub(lead_in)),
            end: self.range.end,
        }
    }

    /// Tables without entries, and their address in the process.
    pub fn empty_tables(&self) -> (Tables, Address) {
        // They are never read, so it does not matter what else is at their address.
        let distance = self.range.size().next_multiple_of(TABLE_ALIGN);
        let behind = Address(self.range.start.0.wrapping_add(distance));
        let tables = Tables::build(std::iter::empty(), self.table_layout(behind));
        (tables.unwrap_or_default(), behind)
    }

    /// Layout of the tables in the object if they are at `address` in the process.
    pub fn table_layout(&self, address: Address) -> TableLayout {
        let distance = address.0.wrapping_sub(self.range.start.0);
        TableLayout {
            eh_frame: self.start().wrapping_add(distance),
            endian: self.machine.endian,
            address_size: self.machine.address_size(),
        }
    }
}

/// Splits jobs into groups to encode together.
pub fn batches<'j, 'g>(mut jobs: &'j [Job<'g>]) -> impl Iterator<Item = &'j [Job<'g>]> {
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
