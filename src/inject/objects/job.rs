//! Objects that are to be written.

use std::borrow::Cow;

use jitdump::{Address, AddressRange, Function, Machine};

use crate::code::timeline::{CodeMapping, FileIndex};
use crate::collections::indexed_table::IndexedTable;
use crate::elf::eh_frame::{TableLayout, UnwindTables};
use crate::elf::object::{LEAD_IN, text_address};
use crate::frames::source_files::SourceName;
use crate::frames::source_files::names_and_lines::Lines;
use crate::inject::objects::sharing::{Block, ObjectMembers};
use crate::inject::objects::{ObjectInputs, TABLE_ALIGN};

/// Maximum number of objects to encode at a time, and the size of records in bytes from which on no object is
/// added. Both limit memory.
const BATCH: usize = 1024;
const BATCH_BYTES: u64 = 8 << 20;

/// An object to write.
pub struct Job<'g> {
    /// Functions in it.
    pub members: ObjectMembers<'g>,
    /// The earliest function.
    pub first: &'g CodeMapping,
    /// Machine of the code.
    pub machine: Machine,
    /// Whether the code of the functions is known.
    pub has_code: bool,
    /// Size of the records and of the source texts that the object may contain, in bytes.
    pub record_bytes: u64,
}

/// An object to write, with its unwinding tables.
pub struct PlannedObject<'g> {
    /// The object.
    pub job: Job<'g>,
    /// Its tables; `None` if they have no entries.
    pub tables: Option<ObjectTables>,
}

/// Unwinding tables of an object.
pub struct ObjectTables {
    /// The tables.
    pub tables: UnwindTables,
    /// Their address in the process.
    pub address: Address,
}

/// The functions of an object: read once, and in memory while their batch is written.
pub struct LoadedObject<'p, 'a> {
    /// The object.
    pub planned: &'p PlannedObject<'p>,
    /// Its functions, except those whose part of the file is gone.
    pub functions: Vec<DecodedFunction<'p, 'a>>,
    /// Names of the symbols of the functions.
    pub names: Vec<Cow<'a, [u8]>>,
    /// Source files to copy.
    pub sources: Vec<SourceName>,
}

/// A function of an object, with the content of its records.
pub struct DecodedFunction<'g, 'a> {
    pub member: &'g CodeMapping,
    /// Address in the object.
    pub address: u64,
    pub function: Function<'a>,
    /// Lines and inlined calls, if the object needed them before it is encoded.
    pub lines: Option<Lines<'a>>,
}

impl LoadedObject<'_, '_> {
    /// Size of the names of the functions, in bytes.
    pub fn size_of_names(&self) -> u64 {
        self.names.iter().map(|name| name.len() as u64).sum()
    }
}

impl<'g> Job<'g> {
    /// Makes a job of an object. `text_bytes` are the sizes of the source texts that an object of each file may contain.
    pub fn new(
        input: &ObjectInputs<'_>,
        members: ObjectMembers<'g>,
        text_bytes: &IndexedTable<FileIndex, u64>,
    ) -> Option<Self> {
        let lowest = members.first.functions.first()?.function;
        let functions = members.blocks().flat_map(|block| block.functions);
        let bytes = functions.map(|member| input.record_bytes(member.function));
        Some(Self {
            first: members.earliest()?,
            machine: input.files[lowest.file].code.machine(),
            has_code: input.has_code(lowest),
            record_bytes: bytes.fold(text_bytes[lowest.file], u64::saturating_add),
            members,
        })
    }

    /// Address of the first function in the object.
    pub fn start(&self) -> u64 {
        text_address(self.has_code, self.members.has_lead_in)
    }

    /// Addresses of the first block in the process.
    pub fn range(&self) -> AddressRange {
        self.members.first.range()
    }

    /// All functions with their addresses in the object, in the order of these.
    pub fn functions(&self) -> impl Iterator<Item = (&'g CodeMapping, u64)> {
        self.members.blocks().flat_map(|block| self.functions_of(block))
    }

    /// Functions of a block with their addresses in the object.
    pub fn functions_of(&self, block: &Block<'g>) -> impl Iterator<Item = (&'g CodeMapping, u64)> + use<'g> {
        let (address, start) = (self.address(block), block.range().start);
        block.functions.iter().map(move |function| {
            let offset = function.range.start.0.saturating_sub(start.0);
            (function, address.wrapping_add(offset))
        })
    }

    /// Address of a block in the object.
    pub fn address(&self, block: &Block<'_>) -> u64 {
        self.start().wrapping_add(block.offset)
    }

    /// Number of functions, counting each for every address that it is mapped at.
    pub fn mapping_count(&self) -> u64 {
        let counts = self.members.blocks();
        counts
            .map(|block| block.functions.len().saturating_add(block.repeats.len()) as u64)
            .sum()
    }

    /// Addresses of the process that readers attribute to the object, without its header.
    pub fn covered(&self) -> impl Iterator<Item = AddressRange> {
        let lead_in = if self.members.has_lead_in { LEAD_IN } else { 0 };
        let range = self.range();
        let first = AddressRange {
            start: Address(range.start.0.saturating_sub(lead_in)),
            end: range.end,
        };
        let whole = self.members.is_mapped_whole().then_some(first);
        let blocks = self.members.blocks().filter(|_| !self.members.is_mapped_whole());
        let ranges = blocks.flat_map(|block| {
            let repeats = block.repeats.iter().map(|repeat| repeat.range);
            std::iter::once(block.range()).chain(repeats)
        });
        whole.into_iter().chain(ranges)
    }

    /// Tables without entries, and their address in the process.
    pub fn empty_tables(&self) -> ObjectTables {
        // They are never read, so it does not matter what else is at their address.
        let last = self.members.others.last().unwrap_or(&self.members.first);
        let end = last.offset.saturating_add(last.range().size());
        let distance = end.next_multiple_of(TABLE_ALIGN);
        let address = Address(self.range().start.0.wrapping_add(distance));
        let tables = UnwindTables::build(std::iter::empty(), self.table_layout(address));
        ObjectTables {
            tables: tables.unwrap_or_default(),
            address,
        }
    }

    /// Layout of the tables in the object if they are at `address` in the process.
    pub fn table_layout(&self, address: Address) -> TableLayout {
        let distance = address.0.wrapping_sub(self.range().start.0);
        TableLayout {
            eh_frame: self.start().wrapping_add(distance),
            endian: self.machine.endian,
            address_size: self.machine.address_size(),
        }
    }
}

/// Splits objects into groups to encode together.
pub fn batches(objects: Vec<PlannedObject<'_>>) -> impl Iterator<Item = Vec<PlannedObject<'_>>> {
    let mut objects = objects.into_iter();
    std::iter::from_fn(move || {
        let (mut batch, mut bytes) = (Vec::new(), 0u64);
        while batch.len() < BATCH
            && bytes < BATCH_BYTES
            && let Some(object) = objects.next()
        {
            bytes = bytes.saturating_add(object.job.record_bytes);
            batch.push(object);
        }
        (!batch.is_empty()).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use jitdump::Time;

    use super::*;
    use crate::code::process::SpaceId;
    use crate::code::timeline::FunctionId;

    /// Returns the number of objects in each batch. `sizes` are those of the objects' records.
    fn batch_sizes(sizes: &[u64]) -> Vec<usize> {
        let function = CodeMapping {
            function: FunctionId {
                file: FileIndex(0),
                function: 0,
            },
            space: SpaceId(0),
            range: AddressRange::new(Address(0x1000), 0x100).unwrap(),
            since: Time(1),
            sequence: 0,
        };
        let functions = std::slice::from_ref(&function);
        let job = |&record_bytes: &u64| Job {
            members: ObjectMembers {
                first: Block {
                    functions,
                    offset: 0,
                    repeats: Vec::new(),
                },
                others: Vec::new(),
                has_lead_in: false,
            },
            first: &function,
            machine: Machine::host(),
            has_code: true,
            record_bytes,
        };
        let planned = sizes.iter().map(|size| PlannedObject {
            job: job(size),
            tables: None,
        });
        batches(planned.collect()).map(|batch| batch.len()).collect()
    }

    #[test]
    fn a_batch_with_8_mebibytes_of_records_is_full() {
        assert_eq!(batch_sizes(&[8_388_607, 100, 100]), [2, 1]);
        assert_eq!(batch_sizes(&[8_388_608, 100, 100]), [1, 2]);
    }
}
