//! Decides which groups of functions share an object although no single map can cover them.
//!
//! Each file costs readers more than its content, so there must not be one for each of very many groups: for code that
//! replaces other code, for a function that moves again and again, for functions with unknown frames between them. Where
//! groups would make too many objects, these contain several groups, in two ways:
//!
//! - Neighbours with nothing but unknown frames between them keep their distances, and each is mapped by itself. The object
//!   is still that of one stretch of memory.
//! - The others are put one after the other, and a function only once, however often it is moved. Each of its places has a
//!   map of its own. Such an object is at several addresses at once.
//!
//! Unwinders expect an object at one address, so stacks that readers unwind rule this out.
//!
//! Symbols of perf maps share objects in the same way. They have no content, so their distances are kept up
//! to some MiB, and symbols that follow each other share a mapping.

use std::cmp::Reverse;

use jitdump::{Address, AddressRange};

use crate::code::process::Processes;
use crate::code::timeline::{CodeMapping, FileIndex, FunctionId};
use crate::code::unknown_addresses::UnknownAddresses;
use crate::collections::hash::HashMap;
use crate::inject::objects::grouping::{
    CodeToWrite, FunctionGroups, GroupMembers, MAX_HOLE, MAX_SEPARATE, MAX_SPAN, RecordsSize, first_of,
    group_sizes, key,
};
use crate::inject::objects::neighbourhood::Neighbourhoods;

/// Number of objects that are not shared by groups from elsewhere: those with most functions.
const MAX_LARGE: usize = 64;

/// Maximum size of the records to read for an object of groups from anywhere, in bytes. Several are encoded at a time.
const MAX_BYTES: u64 = 2 << 20;

/// Alignment of groups from anywhere in their object, in bytes.
const ALIGN: u64 = 16;

/// A group in an object: functions that keep their distances.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    /// Functions by address; not empty.
    pub functions: &'a [CodeMapping],
    /// Address in the object, from that of the object's first function.
    pub offset: u64,
    /// Further mappings of the function, if it is a single one.
    pub repeats: Vec<CodeMapping>,
}

/// Functions of an object.
#[derive(Clone, Debug)]
pub struct ObjectMembers<'a> {
    /// The block at the lowest address.
    pub first: Block<'a>,
    /// All others, by their address in the object. Each has a map of its own.
    pub others: Vec<Block<'a>>,
    /// Whether the [`crate::elf::object::LEAD_IN`] addresses before the first function can be part of the object.
    pub has_lead_in: bool,
}

impl<'a> Block<'a> {
    fn new(functions: &'a [CodeMapping], offset: u64) -> Self {
        Self {
            functions,
            offset,
            repeats: Vec::new(),
        }
    }

    /// Addresses from the first function to the end of the last one, where they were loaded first.
    pub fn range(&self) -> AddressRange {
        range_of(self.functions)
    }
}

impl<'a> ObjectMembers<'a> {
    fn of_group(group: GroupMembers<'a>) -> Self {
        Self {
            first: Block::new(group.functions, 0),
            others: Vec::new(),
            has_lead_in: group.has_lead_in,
        }
    }

    /// Returns the blocks by their address in the object.
    pub fn blocks(&self) -> impl Iterator<Item = &Block<'a>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Whether all of the object is mapped at once, at one address.
    pub fn is_mapped_whole(&self) -> bool {
        self.others.is_empty() && self.first.repeats.is_empty()
    }

    /// Returns the earliest function.
    pub fn earliest(&self) -> Option<&'a CodeMapping> {
        let firsts = self.blocks().filter_map(|block| first_of(block.functions));
        firsts.min_by_key(|mapping| key(mapping))
    }
}

/// Returns an object for each group.
pub fn separate_objects(groups: &FunctionGroups) -> Vec<ObjectMembers<'_>> {
    groups.iter().map(ObjectMembers::of_group).collect()
}

/// Returns the objects of `groups`: one for each of up to [`MAX_SEPARATE`]. Of more, those with nothing but unknown frames
/// between them share one; if these are still too many, only the largest do, and all other groups are packed. `records_size`
/// returns the size and kind of a function's records.
pub fn shared_objects<'g>(
    processes: &Processes,
    mapped: CodeToWrite<'_>,
    groups: &'g FunctionGroups,
    records_size: impl Fn(&CodeMapping) -> RecordsSize,
) -> Vec<ObjectMembers<'g>> {
    if groups.len() <= MAX_SEPARATE {
        return separate_objects(groups);
    }
    let sized: Vec<SizedGroup<'g>> = groups
        .iter()
        .map(|members| SizedGroup {
            members,
            records: records_size_of(&members, &records_size),
        })
        .collect();
    let stretches = stretches(processes, mapped, &sized);
    let SplitStretches { large, loose } = split_largest(stretches, &sized);
    let mut objects: Vec<ObjectMembers<'g>> = large
        .iter()
        .filter_map(|stretch| object_of(stretch, &sized))
        .collect();
    let mut packer = Packer::default();
    for group in loose.iter().filter_map(|&index| sized.get(index)) {
        packer.add(group.members, group.records);
    }
    objects.extend(packer.objects.into_iter().map(Packed::into_object));
    objects.sort_by_cached_key(|object| object.earliest().map(key));
    objects
}

/// A group with the size of the records of all its functions.
struct SizedGroup<'a> {
    members: GroupMembers<'a>,
    records: RecordsSize,
}

/// Returns the size and kind of the records of a group.
fn records_size_of(
    group: &GroupMembers<'_>,
    records_size: impl Fn(&CodeMapping) -> RecordsSize,
) -> RecordsSize {
    let mut all = RecordsSize {
        bytes: 0,
        has_code: group
            .functions
            .first()
            .is_some_and(|first| records_size(first).has_code),
    };
    for function in group.functions {
        all.bytes = all.bytes.saturating_add(records_size(function).bytes);
    }
    all
}

/// Returns the addresses from the first function of a group to the end of the last one.
fn range_of(functions: &[CodeMapping]) -> AddressRange {
    let (first, last) = (functions.first(), functions.last());
    AddressRange {
        start: first.map_or(Address(0), |first| first.range.start),
        end: last.map_or(Address(0), |last| last.range.end),
    }
}

/// A group as if it were a single function.
struct WholeGroup {
    mapping: CodeMapping,
    records: RecordsSize,
    /// Its index among all groups.
    index: usize,
}

/// Returns groups that have nothing but unknown frames between them, by their indices and in the order of addresses.
fn stretches(processes: &Processes, mapped: CodeToWrite<'_>, groups: &[SizedGroup<'_>]) -> Vec<Vec<usize>> {
    let whole = groups.iter().enumerate().filter_map(|(index, group)| {
        let functions = group.members.functions;
        let mapping = CodeMapping {
            range: range_of(functions),
            ..*first_of(functions)?
        };
        Some(WholeGroup {
            mapping,
            records: group.records,
            index,
        })
    });
    let mut whole: Vec<WholeGroup> = whole.collect();
    whole.sort_by_key(|WholeGroup { mapping, .. }| {
        (mapping.space, mapping.range, mapping.since, mapping.sequence)
    });
    // Groups are apart because of unknown frames: without these, more functions are neighbours.
    let nothing = UnknownAddresses::default();
    let known = CodeToWrite {
        unknown: &nothing,
        ..mapped
    };
    let neighbourhoods = Neighbourhoods::new(processes, known, MAX_HOLE);
    let mut stretches: Vec<Vec<usize>> = Vec::new();
    for of_space in whole.chunk_by(|one, other| one.mapping.space == other.mapping.space) {
        let mappings: Vec<CodeMapping> = of_space.iter().map(|group| group.mapping).collect();
        let Some(space) = mappings.first().map(|mapping| mapping.space) else {
            continue;
        };
        let mut records_sizes = of_space.iter().map(|group| group.records);
        let none = RecordsSize {
            bytes: 0,
            has_code: false,
        };
        let neighbourhood = neighbourhoods.of(processes, space);
        let sizes = group_sizes(&mappings, &neighbourhood, |_| {
            // It is asked for each of them, in their order, so there is a next one.
            records_sizes.next().unwrap_or(none)
        });
        let mut indices = of_space.iter().map(|group| group.index);
        for size in sizes {
            stretches.push(indices.by_ref().take(size).collect());
        }
    }
    stretches
}

/// Stretches that have an object each, and the indices of all other groups, in order.
struct SplitStretches {
    large: Vec<Vec<usize>>,
    loose: Vec<usize>,
}

/// Splits off the [`MAX_LARGE`] stretches with most functions; of up to [`MAX_SEPARATE`], all. Those of a single function are
/// never among the former.
fn split_largest(stretches: Vec<Vec<usize>>, groups: &[SizedGroup<'_>]) -> SplitStretches {
    if stretches.len() <= MAX_SEPARATE {
        return SplitStretches {
            large: stretches,
            loose: Vec::new(),
        };
    }
    let functions = |stretch: &Vec<usize>| -> usize {
        let groups = stretch.iter().filter_map(|&index| groups.get(index));
        groups.map(|group| group.members.functions.len()).sum()
    };
    let mut large: Vec<(Reverse<usize>, Vec<usize>)> = stretches
        .into_iter()
        .map(|stretch| (Reverse(functions(&stretch)), stretch))
        .collect();
    large.sort();
    let many = large.partition_point(|(functions, _)| functions.0 > 1);
    let rest = large.split_off(many.min(MAX_LARGE));
    let mut loose: Vec<usize> = rest.into_iter().flat_map(|(_, stretch)| stretch).collect();
    loose.sort_unstable();
    SplitStretches {
        large: large.into_iter().map(|(_, stretch)| stretch).collect(),
        loose,
    }
}

/// Returns the object of a stretch.
fn object_of<'g>(stretch: &[usize], groups: &[SizedGroup<'g>]) -> Option<ObjectMembers<'g>> {
    let mut members = stretch
        .iter()
        .filter_map(|&index| groups.get(index))
        .map(|group| group.members);
    let mut object = ObjectMembers::of_group(members.next()?);
    let start = object.first.range().start;
    object.others.extend(members.map(|group| {
        let offset = range_of(group.functions).start.0.saturating_sub(start.0);
        Block::new(group.functions, offset)
    }));
    Some(object)
}

/// Puts groups from anywhere one after the other into objects.
#[derive(Default)]
struct Packer<'a> {
    objects: Vec<Packed<'a>>,
    /// The object that more groups can join, by file and by whether machine code is known.
    open: HashMap<(FileIndex, bool), usize>,
    /// The block of each function that is a group.
    known: HashMap<FunctionId, BlockPlace>,
}

/// Where a block is.
#[derive(Clone, Copy)]
struct BlockPlace {
    /// Index among all objects.
    object: usize,
    /// Index among the object's blocks, of which 0 is the first one.
    block: usize,
}

/// An object that more groups may join.
struct Packed<'a> {
    object: ObjectMembers<'a>,
    /// Size of the records of its functions.
    bytes: u64,
    /// End of the last block, from the address of the first function.
    end: u64,
}

impl<'a> Packed<'a> {
    /// Returns the object. If its blocks are mapped one by one, it can have a lead-in, whatever is before them in memory.
    fn into_object(mut self) -> ObjectMembers<'a> {
        if !self.object.is_mapped_whole() {
            self.object.has_lead_in = true;
        }
        self.object
    }

    /// Whether it can take one more group, whose addresses and records have these sizes.
    fn has_room(&self, size: u64, records_bytes: u64) -> bool {
        self.bytes.saturating_add(records_bytes) <= MAX_BYTES && self.end.saturating_add(size) <= MAX_SPAN
    }

    /// Adds a group after the last one. Returns the index of its block.
    fn add(&mut self, group: GroupMembers<'a>, size: u64, records_bytes: u64) -> usize {
        let offset = self.end.next_multiple_of(ALIGN);
        self.object.others.push(Block::new(group.functions, offset));
        self.bytes = self.bytes.saturating_add(records_bytes);
        self.end = offset.saturating_add(size);
        self.object.others.len()
    }
}

impl<'a> Packer<'a> {
    /// Adds a group, with the size of its records: as one more place of the block with the same function, to an object
    /// with room, or to a new one.
    fn add(&mut self, group: GroupMembers<'a>, records: RecordsSize) {
        let Some(first) = group.functions.first() else {
            return;
        };
        let is_single = group.functions.len() == 1;
        if is_single && self.add_repeat(first) {
            return;
        }
        let place = self.add_block(group, first.function.file, records);
        if is_single {
            self.known.insert(first.function, place);
        }
    }

    /// Adds a function to its block as one more place. Returns false if it has none, or one of another size.
    fn add_repeat(&mut self, function: &CodeMapping) -> bool {
        let Some(block) = self.block_of(function.function) else {
            return false;
        };
        let has_same_size = block.range().size() == function.range.size();
        if has_same_size {
            block.repeats.push(*function);
        }
        has_same_size
    }

    /// Adds a group of functions of `file` as a block of its own.
    fn add_block(&mut self, group: GroupMembers<'a>, file: FileIndex, records: RecordsSize) -> BlockPlace {
        let size = range_of(group.functions).size();
        let kind = (file, records.has_code);
        if let Some(&object) = self.open.get(&kind)
            && let Some(packed) = self.objects.get_mut(object)
            && packed.has_room(size, records.bytes)
        {
            let block = packed.add(group, size, records.bytes);
            return BlockPlace { object, block };
        }
        let object = self.objects.len();
        self.objects.push(Packed {
            object: ObjectMembers::of_group(group),
            bytes: records.bytes,
            end: size,
        });
        self.open.insert(kind, object);
        BlockPlace { object, block: 0 }
    }

    /// Returns the block of a function that is a group.
    fn block_of(&mut self, function: FunctionId) -> Option<&mut Block<'a>> {
        let &BlockPlace { object, block } = self.known.get(&function)?;
        let object = &mut self.objects.get_mut(object)?.object;
        match block.checked_sub(1) {
            Some(other) => object.others.get_mut(other),
            None => Some(&mut object.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::ProcessEvent;
    use crate::units::Pid;
    use jitdump::Time;

    const RECORDS: RecordsSize = RecordsSize {
        bytes: 1000,
        has_code: true,
    };
    const SIZE: u64 = 0x40;

    /// Makes objects of functions, each with its number and address, in the order of time, and with unknown frames. Returns the
    /// blocks of each object: the offset, the functions and the number of repeats.
    fn objects(functions: &[(u32, u64)], unknown: &[u64]) -> Vec<Vec<(u64, Vec<u32>, usize)>> {
        let processes = Processes::new(vec![ProcessEvent::Exec(Pid(1), Time(1))]);
        let space = processes.space_at(Pid(1), Time(100)).unwrap();
        let mapping = |(sequence, &(function, start)): (u32, &(u32, u64))| CodeMapping {
            function: FunctionId {
                file: FileIndex(0),
                function,
            },
            space,
            range: AddressRange::new(Address(start), SIZE).unwrap(),
            since: Time(100 + u64::from(sequence)),
            sequence,
        };
        let mappings: Vec<CodeMapping> = (0..).zip(functions).map(mapping).collect();
        let mut addresses = UnknownAddresses::default();
        for &address in unknown {
            addresses.insert(space, Address(address));
        }
        let mapped = CodeToWrite {
            mappings: &mappings,
            freed_ranges: &[],
            symbols: &[],
            unknown: &addresses,
        };
        let groups = FunctionGroups::as_large_as_can_be(&processes, mapped, MAX_HOLE, |_| RECORDS);
        let objects = shared_objects(&processes, mapped, &groups, |_| RECORDS);
        let block = |block: &Block<'_>| {
            let functions = block.functions.iter().map(|mapping| mapping.function.function);
            (block.offset, functions.collect(), block.repeats.len())
        };
        let blocks = |object: &ObjectMembers<'_>| object.blocks().map(block).collect();
        objects.iter().map(blocks).collect()
    }

    #[test]
    fn few_groups_are_objects_of_their_own() {
        let again: Vec<(u32, u64)> = (0..256).map(|number| (number, 0x1_0000)).collect();
        let alone = objects(&again, &[]);
        assert_eq!(alone.len(), 256);
        assert!(alone.iter().all(|blocks| blocks.len() == 1));
    }

    #[test]
    fn a_function_that_moves_is_in_one_object() {
        let moves: Vec<(u32, u64)> = (0..300u64).map(|at| (7, 0x1_0000 + at % 2 * 0x20)).collect();
        assert_eq!(objects(&moves, &[]), [[(0, vec![7], 299)]]);
    }

    #[test]
    fn functions_at_one_address_follow_each_other() {
        let again: Vec<(u32, u64)> = (0..300).map(|number| (number, 0x1_0000)).collect();
        let expected: Vec<_> = (0..300u32)
            .map(|number| (SIZE * u64::from(number), vec![number], 0))
            .collect();
        assert_eq!(objects(&again, &[]), [expected]);
    }

    #[test]
    fn neighbours_of_unknown_frames_keep_their_distances() {
        let start = |number: u32| 0x1_0000 + 0x80 * u64::from(number);
        let apart: Vec<(u32, u64)> = (0..300).rev().map(|number| (number, start(number))).collect();
        let unknown: Vec<u64> = (0..300).map(|number| start(number) + SIZE).collect();
        let expected: Vec<_> = (0..300u32)
            .map(|number| (0x80 * u64::from(number), vec![number], 0))
            .collect();
        assert_eq!(objects(&apart, &unknown), [expected]);
    }

    #[test]
    fn large_images_are_not_shared_by_code_from_elsewhere() {
        let image = (1000..1010u32).map(|number| (number, 0x100_0000 + 0x40 * u64::from(number)));
        let again = (0..300).map(|number| (number, 0x1_0000));
        let found = objects(&image.chain(again).collect::<Vec<_>>(), &[]);
        let counts: Vec<usize> = found.iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 300]);
        assert_eq!(found[0][0].1.len(), 10);
    }

    #[test]
    fn objects_of_code_from_anywhere_have_a_largest_size() {
        let many: Vec<(u32, u64)> = (0..5000).map(|number| (number, 0x1_0000)).collect();
        let counts: Vec<usize> = objects(&many, &[]).iter().map(Vec::len).collect();
        assert_eq!(counts, [2097, 2097, 806]);
    }

    #[test]
    fn the_64_largest_images_have_objects_of_their_own() {
        let counts = |images: u32| -> Vec<usize> {
            // Each image has two functions.
            let images = (0..2 * images).map(|number| {
                let start = 0x100_0000 * u64::from(1 + number / 2) + 0x40 * u64::from(number % 2);
                (1000 + number, start)
            });
            let again = (0..300).map(|number| (number, 0x1_0000));
            let found = objects(&images.chain(again).collect::<Vec<_>>(), &[]);
            found.iter().map(Vec::len).collect()
        };
        let (own, shared) = (vec![1; 64], |blocks| vec![blocks]);
        assert_eq!(counts(64), [own.clone(), shared(300)].concat());
        assert_eq!(counts(65), [own, shared(301)].concat());
    }
}
