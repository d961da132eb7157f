//! What is mapped around the functions of an address space, and of those that share code with it.

use jitdump::{Address, AddressRange, Time};

use crate::code::process::{Processes, SpaceId};
use crate::code::timeline::CodeMapping;
use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::IndexedTable;
use crate::collections::range_map::merged;
use crate::elf::object::LEAD_IN;
use crate::inject::objects::grouping::CodeToWrite;

/// Distance below an object within which no file may be mapped, in bytes. The profile has only the executable part of
/// a library; libdw's module also covers the data after it.
const FILE_MARGIN: u64 = 256 << 20;

/// Addresses in use, as sorted ranges that don't touch each other.
#[derive(Clone, Debug, Default)]
struct Taken(Vec<AddressRange>);

impl Taken {
    fn new(ranges: Vec<AddressRange>) -> Self {
        Self(merged(ranges, |end, start| start <= end))
    }

    fn is_free(&self, range: AddressRange) -> bool {
        let behind = self.0.partition_point(|taken| taken.end <= range.start);
        self.0.get(behind).is_none_or(|taken| range.end <= taken.start)
    }
}

const NOTHING: &Taken = &Taken(Vec::new());

/// Addresses in use in all address spaces of families with functions. Others take no memory: a profile may have a million
/// of them.
pub struct Neighbourhoods {
    /// For each address space, its own ranges, including its functions.
    all: HashMap<SpaceId, Taken>,
    /// For each address space with functions, its own other ranges and all those of its copies.
    others: HashMap<SpaceId, Taken>,
    /// For each address space, the files mapped before its first function.
    ground: HashMap<SpaceId, Taken>,
    /// For each address space, the first one of its family.
    families: IndexedTable<SpaceId, SpaceId>,
    /// For each family, all files that it ever maps.
    files: HashMap<SpaceId, Taken>,
    /// Longest hole between two functions of an object, in bytes.
    max_hole: u64,
}

/// Addresses in use in one address space, except by its own functions, and in those that share code with it.
pub struct Neighbourhood<'a> {
    others: &'a Taken,
    ground: &'a Taken,
    ancestors: Vec<&'a Taken>,
    files: &'a Taken,
    /// Longest hole between two functions of an object, in bytes.
    pub max_hole: u64,
}

/// Addresses of one address space, in any order.
#[derive(Default)]
struct Ranges {
    functions: Vec<AddressRange>,
    /// Time of the earliest of its own functions; `None` without one.
    first_load: Option<Time>,
    others: Vec<AddressRange>,
    /// Files mapped before `first_load`.
    ground: Vec<AddressRange>,
}

impl Ranges {
    /// Returns all of them.
    fn all(&self) -> Taken {
        Taken::new([&self.functions[..], &self.others, &self.ground].concat())
    }
}

/// Returns the addresses of all that is `mapped`, by address space. Spaces without functions in their family, by
/// `has_functions`, are left out.
fn mapped_ranges(
    mapped: CodeToWrite<'_>,
    has_functions: impl Fn(SpaceId) -> bool,
) -> HashMap<SpaceId, Ranges> {
    let mut ranges: HashMap<SpaceId, Ranges> = HashMap::default();
    for mapping in mapped.mappings {
        let own = ranges.entry(mapping.space).or_default();
        own.functions.push(mapping.range);
        let first_load = own.first_load.unwrap_or(mapping.since);
        own.first_load = Some(mapping.since.min(first_load));
    }
    let freed_ranges = mapped.freed_ranges.iter().map(|freed| (freed.space, freed.range));
    let symbols = mapped.symbols.iter().map(|symbol| (symbol.space, symbol.range));
    // Of unknown code, only the address of the frame is certain.
    let unknown = mapped.unknown.iter();
    let unknown = unknown.filter_map(|(space, at)| Some((space, AddressRange::new(at, 1)?)));
    let others = freed_ranges.chain(symbols).chain(unknown);
    for (space, range) in others.filter(|&(space, _)| has_functions(space)) {
        ranges.entry(space).or_default().others.push(range);
    }
    ranges
}

/// Adds the files that processes map, as far as `has_functions` is true of their address space. Returns those of each
/// family.
fn add_files(
    ranges: &mut HashMap<SpaceId, Ranges>,
    processes: &Processes,
    families: &IndexedTable<SpaceId, SpaceId>,
    has_functions: impl Fn(SpaceId) -> bool,
) -> HashMap<SpaceId, Taken> {
    let mut files: HashMap<SpaceId, Vec<AddressRange>> = HashMap::default();
    for (id, space) in processes.iter().filter(|&(id, _)| has_functions(id)) {
        for map in space.maps.iter().filter(|map| map.backing.is_file()) {
            let own = ranges.entry(id).or_default();
            // Without functions of its own, it has no code that a file could have taken the place of.
            if map.time < own.first_load.unwrap_or(Time::MAX) {
                own.ground.push(map.range)
            } else {
                own.others.push(map.range)
            }
            files.entry(families[id]).or_default().push(map.range);
        }
    }
    let files = files.into_iter();
    files
        .map(|(family, ranges)| (family, Taken::new(ranges)))
        .collect()
}

/// Adds `all` addresses of each space to those of its ancestors that have functions.
fn add_to_ancestors(
    ranges: &mut HashMap<SpaceId, Ranges>,
    all: &HashMap<SpaceId, Taken>,
    processes: &Processes,
) {
    for (id, _) in processes.iter().filter(|(id, _)| all.contains_key(id)) {
        for (ancestor, _) in processes.ancestors(id) {
            if let (Some(ancestor), Some(taken)) = (ranges.get_mut(&ancestor), all.get(&id))
                && !ancestor.functions.is_empty()
            {
                ancestor.others.extend_from_slice(&taken.0);
            }
        }
    }
}

impl Neighbourhoods {
    /// Collects the addresses of all that is `mapped`, and of the maps of `processes`.
    pub fn new(processes: &Processes, mapped: CodeToWrite<'_>, max_hole: u64) -> Self {
        let families = processes.families();
        let with_functions: HashSet<SpaceId> = mapped
            .mappings
            .iter()
            .map(|mapping| families[mapping.space])
            .collect();
        let has_functions = |space: SpaceId| with_functions.contains(&families[space]);
        let mut ranges = mapped_ranges(mapped, has_functions);
        let files = add_files(&mut ranges, processes, &families, has_functions);
        // Of each space alone: `add_to_ancestors` goes up to the last ancestor itself.
        let all: HashMap<SpaceId, Taken> = ranges.iter().map(|(&id, ranges)| (id, ranges.all())).collect();
        add_to_ancestors(&mut ranges, &all, processes);
        let mut ground = HashMap::default();
        let mut others = HashMap::default();
        for (id, ranges) in ranges {
            ground.insert(id, Taken::new(ranges.ground));
            others.insert(id, Taken::new(ranges.others));
        }
        Self {
            all,
            others,
            ground,
            families,
            // Of unknown frames that are not listed, any could be in a hole.
            max_hole: if mapped.unknown.is_full { 0 } else { max_hole },
            files,
        }
    }

    /// Returns what is around the functions of one address space.
    pub fn of(&self, processes: &Processes, space: SpaceId) -> Neighbourhood<'_> {
        let ancestors = processes.ancestors(space);
        Neighbourhood {
            others: self.others.get(&space).unwrap_or(NOTHING),
            ground: self.ground.get(&space).unwrap_or(NOTHING),
            ancestors: ancestors
                .filter_map(|(ancestor, _)| self.all.get(&ancestor))
                .collect(),
            files: self.files.get(&self.families[space]).unwrap_or(NOTHING),
            max_hole: self.max_hole,
        }
    }
}

impl Neighbourhood<'_> {
    /// Whether the object of a group can start [`LEAD_IN`] bytes before its first function. `end_before` is the end
    /// of the address space's code before it.
    pub fn has_lead_in(&self, functions: &[CodeMapping], end_before: Address) -> bool {
        let Some(first) = functions.first() else {
            return false;
        };
        if self.max_hole == 0 {
            return false;
        }
        let end = first.range.start;
        let before = |size: u64| {
            let start = Address(end.0.saturating_sub(size));
            AddressRange { start, end }
        };
        let lead_in = before(LEAD_IN);
        lead_in.size() == LEAD_IN
            && end_before <= lead_in.start
            && self.is_free(lead_in)
            && self.files.is_free(before(LEAD_IN.saturating_add(FILE_MARGIN)))
    }

    /// Whether a range is never used, except by functions of the address space itself and files mapped before them.
    pub fn is_free(&self, range: AddressRange) -> bool {
        let mut all = std::iter::once(self.others).chain(self.ancestors.iter().copied());
        range.size() == 0 || all.all(|taken| taken.is_free(range))
    }

    /// Whether no file was mapped in a range before the first function of the address space.
    pub fn is_without_ground(&self, range: AddressRange) -> bool {
        self.ground.is_free(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::{Map, ProcessEvent};
    use crate::code::timeline::{FileIndex, FunctionId};
    use crate::code::unknown_addresses::UnknownAddresses;
    use crate::perf::process_records::Backing;
    use crate::units::Pid;

    #[test]
    fn an_object_starts_before_its_code_if_no_file_is_less_than_256_mebibytes_below() {
        let file = Map::private(
            1,
            AddressRange::new(Address(0x9000), 0x1000).unwrap(),
            Backing::File,
        );
        let processes = Processes::new(vec![ProcessEvent::Map(Pid(1), file)]);
        let space = processes.space_at(Pid(1), Time(2)).unwrap();
        let has_lead_in = |start: u64| {
            let mappings = [CodeMapping {
                function: FunctionId {
                    file: FileIndex(0),
                    function: 0,
                },
                space,
                range: AddressRange::new(Address(start), 0x100).unwrap(),
                since: Time(2),
                sequence: 0,
            }];
            let mapped = CodeToWrite {
                mappings: &mappings,
                freed_ranges: &[],
                symbols: &[],
                unknown: &UnknownAddresses::default(),
            };
            let neighbourhoods = Neighbourhoods::new(&processes, mapped, 0x1000);
            let neighbourhood = neighbourhoods.of(&processes, space);
            neighbourhood.has_lead_in(&mappings, Address(0))
        };
        // The lead-in has 64 KiB.
        let nearest = 0xa000 + 0x1000_0000 + 0x1_0000;
        assert!(has_lead_in(nearest));
        assert!(!has_lead_in(nearest - 1));
    }
}
