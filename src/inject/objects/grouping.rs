//! Decides which functions share one object.
//!
//! An object with several functions mirrors the memory of all of them and is mapped once, when the first of them is
//! loaded. The memory between them is a hole in the file, so even the few functions that samples hit share a few
//! objects. Readers let a later map replace a part of an earlier one, but elfutils' libdw, the unwinder of newer perf
//! versions and of hotspot, drops one of two overlapping objects. So functions share an object only if
//!
//! - nothing else with an object or a map is ever at their addresses or between them. Code that replaces other code,
//!   and the replaced code, get objects of their own. (V8 names built-in code in the file of its own program. There a
//!   gap may only be alignment padding, since the rest of the file is other code.)
//! - no sample has an unknown frame there. It may be other code that a perf map of the reader names, code from before
//!   the function was loaded, or code of a child process, which inherits an object completely or not at all.
//!
//! These rules cover the address space, its ancestors and its descendants.
//!
//! Words of copied stacks do not count as frames, because most are not. Successive images of one region
//! would overlap in libdw: perf 7.3 keeps the modules of replaced mappings. The apparent size of the holes
//! is limited for programs that copy files without holes; perf only changes symbols without a size
//! (`symbols__fixup_end`), so addresses in a hole do not get the name of a neighbour.

use jitdump::{Address, AddressRange, Time};

use crate::code::perf_map_symbols::PlacedSymbol;
use crate::code::process::{Processes, SpaceId};
use crate::code::timeline::{CodeMapping, FreedRange};
use crate::code::unknown_addresses::UnknownAddresses;
use crate::inject::objects::neighbourhood::{Neighbourhood, Neighbourhoods};

/// Maximum number of addresses in an object, in bytes. Readers map the object whole, and programs that copy files
/// without preserving holes write that much.
pub const MAX_SPAN: u64 = 32 << 20;

/// Longest hole between two functions, in bytes. It limits the apparent size of all objects to that much per
/// function, however far apart crafted input puts them.
pub const MAX_HOLE: u64 = 4 << 20;

/// Maximum number of functions and perf map symbols that get an object each by default. More groups of functions, and
/// symbols if these and functions are more, share objects where readers do not unwind stacks. If they do, functions that are
/// so close that the ELF header of one would overlap the other share an object: libdw can fail otherwise.
///
/// samply knows the language of each function only if it is the only one in its object. But readers keep file descriptors
/// for each object: at the usual limit of 1,024, perf 6.1 loses lines above some 300 objects.
pub const MAX_SEPARATE: usize = 256;

/// Upper bound of the padding that aligns functions, in bytes.
const ALIGNMENT: u64 = 64;

/// Maximum size of the records to read for one object, in bytes, so that several objects fit into memory at a time and are
/// encoded in parallel.
const MAX_BYTES: u64 = 4 << 20;

/// Size and kind of the records of a function.
#[derive(Clone, Copy, Debug)]
pub struct RecordsSize {
    /// Size of the records to read, in bytes.
    pub bytes: u64,
    /// Whether they have machine code. Either all functions of an object have it or none.
    pub has_code: bool,
}

/// Functions in groups, one for each object.
#[derive(Debug, Default)]
pub struct FunctionGroups {
    mappings: Vec<CodeMapping>,
    /// For each group, its end in `mappings` and whether it has a lead-in.
    ends: Vec<(usize, bool)>,
}

/// Functions of one object.
#[derive(Clone, Copy, Debug)]
pub struct GroupMembers<'a> {
    /// Functions by address; not empty.
    pub functions: &'a [CodeMapping],
    /// Whether the [`LEAD_IN`] addresses before the first function are free, so that the object can cover them.
    pub has_lead_in: bool,
}

/// Everything that gets an object or a map.
#[derive(Clone, Copy, Debug)]
pub struct CodeToWrite<'a> {
    /// Functions, by address space and time.
    pub mappings: &'a [CodeMapping],
    /// Ranges that code was moved from.
    pub freed_ranges: &'a [FreedRange],
    /// Symbols of perf maps, sorted.
    pub symbols: &'a [PlacedSymbol],
    /// Addresses of unknown frames.
    pub unknown: &'a UnknownAddresses,
}

impl CodeToWrite<'_> {
    /// Whether there are so few functions and symbols that each gets an object by default.
    pub fn are_few(&self) -> bool {
        self.mappings.len().saturating_add(self.symbols.len()) <= MAX_SEPARATE
    }
}

impl FunctionGroups {
    /// Creates one group for each function.
    pub fn of_one(mappings: &[CodeMapping]) -> Self {
        Self {
            mappings: mappings.to_vec(),
            ends: (1..=mappings.len()).map(|end| (end, false)).collect(),
        }
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Creates groups with as many functions as can share an object, with holes of at most `max_hole` bytes between
    /// them. `records_size` returns the size and kind of a function's records.
    pub fn as_large_as_can_be(
        processes: &Processes,
        mapped: CodeToWrite<'_>,
        max_hole: u64,
        records_size: impl Fn(&CodeMapping) -> RecordsSize,
    ) -> Self {
        let neighbourhoods = Neighbourhoods::new(processes, mapped, max_hole);
        let mut by_address = mapped.mappings.to_vec();
        by_address.sort_by_key(|mapping| (mapping.space, mapping.range, mapping.since, mapping.sequence));
        let mut groups: Vec<GroupMembers<'_>> = Vec::new();
        for of_space in by_address.chunk_by(|one, other| one.space == other.space) {
            let Some(first) = of_space.first() else {
                continue;
            };
            let neighbourhood = neighbourhoods.of(processes, first.space);
            groups.extend(groups_of(of_space, &neighbourhood, &records_size));
        }
        groups.sort_by_cached_key(|group| first_of(group.functions).map(key));
        let mut all = Self::default();
        for group in groups {
            all.mappings.extend_from_slice(group.functions);
            all.ends.push((all.mappings.len(), group.has_lead_in));
        }
        all
    }

    /// Returns the groups by address space and the time of their earliest function.
    pub fn iter(&self) -> impl Iterator<Item = GroupMembers<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|&(end, _)| end));
        starts.zip(&self.ends).filter_map(|(start, &(end, has_lead_in))| {
            Some(GroupMembers {
                functions: self.mappings.get(start..end)?,
                has_lead_in,
            })
        })
    }
}

/// Returns the earliest function of a group.
pub fn first_of(group: &[CodeMapping]) -> Option<&CodeMapping> {
    group.iter().min_by_key(|mapping| key(mapping))
}

/// Returns the key that orders mappings by address space and time.
pub fn key(mapping: &CodeMapping) -> (SpaceId, Time, u32) {
    (mapping.space, mapping.since, mapping.sequence)
}

/// Returns the groups of the functions of one address space, which are sorted by address.
fn groups_of<'m>(
    mappings: &'m [CodeMapping],
    neighbourhood: &Neighbourhood<'_>,
    records_size: impl FnMut(&CodeMapping) -> RecordsSize,
) -> Vec<GroupMembers<'m>> {
    let mut groups = Vec::new();
    let mut rest = mappings;
    // The highest end so far, which may be that of a group that starts before the last one.
    let mut end_before = Address(0);
    for size in group_sizes(mappings, neighbourhood, records_size) {
        // The sizes add up to the number of mappings.
        let Some((functions, others)) = rest.split_at_checked(size) else {
            break;
        };
        rest = others;
        groups.push(GroupMembers {
            functions,
            has_lead_in: neighbourhood.has_lead_in(functions, end_before),
        });
        let ends = functions.iter().map(|function| function.range.end);
        end_before = ends.fold(end_before, Address::max);
    }
    groups
}

/// Returns the number of functions in each group; together, these are all `mappings`, which must be those of one address space,
/// sorted by address. `records_size` is called for each of them, in this order.
pub fn group_sizes(
    mappings: &[CodeMapping],
    neighbourhood: &Neighbourhood<'_>,
    mut records_size: impl FnMut(&CodeMapping) -> RecordsSize,
) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut group: Option<GroupBuilder<'_>> = None;
    // The highest end of the functions before.
    let mut reach = Address(0);
    for (at, mapping) in (1usize..).zip(mappings) {
        let range = mapping.range;
        let next = mappings.get(at);
        let is_alone = reach <= range.start
            && next.is_none_or(|next| range.end <= next.range.start)
            && neighbourhood.is_free(range);
        reach = reach.max(range.end);
        let records = records_size(mapping);
        match &mut group {
            Some(group) if is_alone && group.can_take(mapping, records, neighbourhood) => {
                group.add(mapping, records.bytes);
            }
            _ => {
                sizes.extend(group.map(|group| group.functions));
                group = Some(GroupBuilder::new(mapping, records, is_alone));
            }
        }
    }
    sizes.extend(group.map(|group| group.functions));
    sizes
}

/// A group under construction.
struct GroupBuilder<'a> {
    first: &'a CodeMapping,
    /// Whether more functions can join it.
    is_open: bool,
    functions: usize,
    end: Address,
    /// Total size of the records, and whether they have machine code.
    records: RecordsSize,
}

impl<'a> GroupBuilder<'a> {
    /// Begins a group with a function; others can join it if it `is_open`.
    fn new(first: &'a CodeMapping, records: RecordsSize, is_open: bool) -> Self {
        Self {
            first,
            is_open,
            functions: 1,
            end: first.range.end,
            records,
        }
    }

    /// Whether a function that follows those of the group can be in it.
    fn can_take(
        &self,
        mapping: &CodeMapping,
        records: RecordsSize,
        neighbourhood: &Neighbourhood<'_>,
    ) -> bool {
        let gap = AddressRange {
            start: self.end,
            end: mapping.range.start,
        };
        let span = mapping.range.end.0.saturating_sub(self.first.range.start.0);
        self.is_open
            && gap.size() <= neighbourhood.max_hole
            && span <= MAX_SPAN
            && self.records.bytes.saturating_add(records.bytes) <= MAX_BYTES
            && self.records.has_code == records.has_code
            && mapping.function.file == self.first.function.file
            && neighbourhood.is_free(gap)
            && (gap.size() < ALIGNMENT || neighbourhood.is_without_ground(gap))
    }

    /// Adds a function that has records of so many bytes.
    fn add(&mut self, mapping: &CodeMapping, bytes: u64) {
        self.functions += 1;
        self.end = mapping.range.end;
        self.records.bytes = self.records.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::{Map, ProcessEvent};
    use crate::code::timeline::{FileIndex, FunctionId};
    use crate::perf::process_records::Backing;
    use crate::units::Pid;

    fn range(start: u64, size: u64) -> AddressRange {
        AddressRange::new(Address(start), size).unwrap()
    }

    /// Process 1 maps a file at 0x9000; process 2 is forked from it at time 50.
    fn processes() -> Processes {
        let map = |pid, time, start| {
            ProcessEvent::Map(Pid(pid), Map::private(time, range(start, 0x100), Backing::File))
        };
        Processes::new(vec![
            map(1, 1, 0x9000),
            ProcessEvent::Fork {
                child: Pid(2),
                parent: Pid(1),
                time: Time(50),
            },
            map(2, 60, 0xa000),
        ])
    }

    const RECORDS: RecordsSize = RecordsSize {
        bytes: 100,
        has_code: true,
    };

    /// Returns the start addresses of the functions in each group. `functions` has process, time, start and size of
    /// each.
    fn groups(functions: &[(u32, u64, u64, u64)], freed_ranges: &[(u64, u64)]) -> Vec<Vec<u64>> {
        let starts = |group: GroupMembers<'_>| {
            let functions = group.functions.iter();
            functions.map(|function| function.range.start.0).collect()
        };
        make(functions, freed_ranges, &[]).iter().map(starts).collect()
    }

    fn make(
        functions: &[(u32, u64, u64, u64)],
        freed_ranges: &[(u64, u64)],
        unknown: &[(u32, u64)],
    ) -> FunctionGroups {
        let processes = processes();
        let space = |pid| processes.space_at(Pid(pid), Time(100)).unwrap();
        let mut mappings: Vec<CodeMapping> = (0u32..)
            .zip(functions)
            .map(|(function, &(pid, since, start, size))| CodeMapping {
                function: FunctionId {
                    file: FileIndex(0),
                    function,
                },
                space: space(pid),
                range: range(start, size),
                since: Time(since),
                sequence: function,
            })
            .collect();
        mappings.sort_by_key(key);
        let freed_ranges: Vec<FreedRange> = freed_ranges
            .iter()
            .map(|&(start, size)| FreedRange {
                space: space(1),
                range: range(start, size),
                since: Time(40),
                sequence: 0,
            })
            .collect();
        let mut addresses = UnknownAddresses::default();
        for &(pid, address) in unknown {
            addresses.insert(space(pid), Address(address));
        }
        let mapped = CodeToWrite {
            mappings: &mappings,
            freed_ranges: &freed_ranges,
            symbols: &[],
            unknown: &addresses,
        };
        FunctionGroups::as_large_as_can_be(&processes, mapped, MAX_HOLE, |_| RECORDS)
    }

    #[test]
    fn functions_share_an_object_across_holes() {
        let functions = |hole: u64| {
            let second = 0x1_1100 + hole;
            [
                (1, 20, second, 0x100),
                (1, 10, 0x1_1000, 0x100),
                (1, 5, second + 0x100, 0x1000),
            ]
        };
        assert_eq!(groups(&functions(4 << 20), &[]).len(), 1);
        assert_eq!(groups(&functions((4 << 20) + 1), &[]).len(), 2);
    }

    #[test]
    fn an_object_starts_before_its_code_where_nothing_else_is() {
        let has_lead_in = |functions: &[(u32, u64, u64, u64)], freed_ranges: &[(u64, u64)]| {
            let groups = make(functions, freed_ranges, &[]);
            groups.iter().map(|group| group.has_lead_in).collect::<Vec<_>>()
        };
        let far = 0x2_0000_0000;
        let one = [(1, 10, far, 0x100)];
        assert_eq!(has_lead_in(&one, &[]), [true]);
        assert_eq!(has_lead_in(&one, &[(far - 0x1_0000 - 0x10, 0x10)]), [true]);
        assert_eq!(has_lead_in(&one, &[(far - 0x1_0000, 0x10)]), [false]);
        assert_eq!(
            has_lead_in(&[(1, 10, 0x1_2000, 0x100)], &[]),
            [false],
            "near a file"
        );
        assert_eq!(
            has_lead_in(&[(1, 10, 0x8000, 0x100)], &[]),
            [false],
            "near address 0"
        );
        let replaced = [(1, 10, far, 0x100), (1, 11, far + 0x40, 0x100)];
        assert_eq!(has_lead_in(&replaced, &[]), [true, false]);
        let child = [(1, 10, far, 0x100), (2, 60, far - 0x100, 0x40)];
        assert_eq!(has_lead_in(&child, &[]), [false, true]);
    }

    #[test]
    fn code_that_replaces_other_code_is_by_itself() {
        let functions = [
            (1, 10, 0x1000, 0x100),
            (1, 11, 0x1100, 0x100),
            (1, 12, 0x1200, 0x100),
            (1, 13, 0x1300, 0x100),
            (1, 20, 0x1280, 0x40),
        ];
        let expected = [vec![0x1000, 0x1100], vec![0x1200], vec![0x1300], vec![0x1280]];
        assert_eq!(groups(&functions, &[]), expected);
    }

    #[test]
    fn nothing_else_lies_in_an_object() {
        let both = [(1, 10, 0x1000, 0x100), (1, 11, 0x1180, 0x100)];
        assert_eq!(groups(&both, &[]).len(), 1);
        assert_eq!(groups(&both, &[(0x1100, 0x10)]).len(), 2, "left by other code");
        let around = |file: u64| [(1, 10, file - 0x100, 0x100), (1, 11, file + 0x100, 0x100)];
        assert_eq!(groups(&around(0x8000), &[]).len(), 1);
        assert_eq!(groups(&around(0x9000), &[]).len(), 2, "a file");
        assert_eq!(groups(&around(0xa000), &[]).len(), 2, "a file of a child");
        let in_file = |gap: u64| [(1, 10, 0x9000, 0x10), (1, 11, 0x9010 + gap, 0x10)];
        assert_eq!(groups(&in_file(63), &[]).len(), 1);
        assert_eq!(groups(&in_file(64), &[]).len(), 2, "the file's own code");
        let before_file = in_file(1).map(|(pid, _, start, size)| (pid, 0, start, size));
        assert_eq!(
            groups(&before_file, &[]).len(),
            2,
            "a file that took the place of code"
        );
        let of_child = [&both[..], &[(2, 70, 0x1120, 0x10)]].concat();
        assert_eq!(
            groups(&of_child, &[]).len(),
            3,
            "code of a child, and of its parent"
        );
        let in_child = around(0x9000).map(|(_, time, start, size)| (2, time + 50, start, size));
        assert_eq!(groups(&in_child, &[]).len(), 2, "a file of the parent");
    }

    #[test]
    fn frames_of_unknown_code_are_in_no_object() {
        let functions = [(1, 10, 0x1000, 0x100), (1, 60, 0x1200, 0x100)];
        let count = |unknown: &[(u32, u64)]| make(&functions, &[], unknown).iter().count();
        assert_eq!(count(&[]), 1);
        assert_eq!(count(&[(1, 0x1180)]), 2, "between functions");
        assert_eq!(count(&[(1, 0x1210)]), 2, "before the load");
        assert_eq!(
            count(&[(2, 0x1210)]),
            2,
            "in a child that was forked before the load"
        );
        assert_eq!(count(&[(2, 0x1400)]), 1);
    }

    #[test]
    fn objects_have_a_largest_size() {
        let sizes = |distance: u64| {
            let functions: Vec<_> = (0..100_000)
                .map(|at| (1, 100 + at, 0x10_0000 + at * distance, 0x100))
                .collect();
            let groups = groups(&functions, &[]);
            groups.iter().map(Vec::len).collect::<Vec<_>>()
        };
        // Limited first by the size of the records, then by the address range.
        assert_eq!(sizes(0x100), [41_943, 41_943, 16_114]);
        assert_eq!(sizes(0x400), [32_768, 32_768, 32_768, 1_696]);
    }
}
