//! Which functions can share one object.
//!
//! An object that holds several functions mirrors the memory that they lie in, and is mapped once, when the
//! first of them comes. That is right as long as nothing else is ever seen where it lies: readers let a later
//! map take the place of a part of an earlier one, but elfutils' libdw, which unwinds for newer perf and for
//! hotspot, drops one of two objects that overlap. So a function shares an object only if
//!
//! - the place that it lies at holds nothing else that gets an object or a map, ever: code that replaces
//!   other code, and what it replaces, have objects of their own;
//! - neither does the gap between it and its neighbour, which is no larger than the code before it or a page. (V8
//!   names built-in code that lies in the file of its own program. There a gap may only be what aligns functions,
//!   since the rest of the file has other code.)
//! - the same children have been forked from the process when both came, since a child has all of an object
//!   or nothing.
//!
//! All this is asked of the address space, of those that it is a copy of, and of those that are copies of it.

use crate::code::process::{Processes, SpaceId};
use crate::code::symbols::PlacedSymbol;
use crate::code::timeline::{Residence, Vacancy};
use crate::perf::event::Backing;
use crate::units::{Address, AddressRange, Time};

/// How many addresses the functions of one object may span: the gaps between them take memory here and space
/// on the disk of a reader that copies the file.
const MAX_SPAN: u64 = 32 << 20;

/// How many addresses there may be between functions however little code there is: a file of its own would take
/// as much on the disk.
const PAGE: u64 = 0x1000;

/// How many addresses lie between functions at most for no other reason than to align them.
const ALIGNMENT: u64 = 64;

/// How much there may be to read for the functions of one object, in bytes, so that a few objects at a time
/// fit into memory whatever there is to write.
const MAX_BYTES: u64 = 8 << 20;

/// What there is to read for a function.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// How many bytes.
    pub bytes: u64,
    /// Whether its machine code is there. An object has that of all its functions, or of none.
    pub has_code: bool,
}

/// Functions in groups, one for each object.
#[derive(Debug, Default)]
pub struct Groups {
    residences: Vec<Residence>,
    /// Where each group ends among them.
    ends: Vec<usize>,
}

/// All that gets an object or a map.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    /// The functions, by address space and time.
    pub residences: &'a [Residence],
    /// The places that code has left.
    pub vacancies: &'a [Vacancy],
    /// The symbols of perf maps.
    pub symbols: &'a [PlacedSymbol],
}

impl Groups {
    /// Each function by itself.
    pub fn of_one(residences: Vec<Residence>) -> Self {
        let ends = (1..=residences.len()).collect();
        Self { residences, ends }
    }

    /// As many functions in each group as can share an object. `source` tells what there is to read for a
    /// function.
    pub fn as_large_as_can_be(
        processes: &Processes,
        mapped: Mapped<'_>,
        source: impl Fn(&Residence) -> Source,
    ) -> Self {
        let neighbourhoods = Neighbourhoods::new(processes, mapped);
        let mut ordered = Vec::with_capacity(mapped.residences.len());
        let mut groups = Vec::new();
        for residences in mapped.residences.chunk_by(|one, other| one.space == other.space) {
            let Some(space) = residences.first().map(|residence| residence.space) else {
                continue;
            };
            let first = ordered.len();
            ordered.extend_from_slice(residences);
            let residences = ordered.get_mut(first..).unwrap_or_default();
            residences.sort_by_key(|residence| (residence.range, residence.since, residence.sequence));
            let neighbourhood = neighbourhoods.of(processes, space);
            let sizes = sizes(residences, &neighbourhood, &source);
            let mut start = first;
            groups.extend(sizes.into_iter().map(|size| {
                let group = start..start.saturating_add(size);
                start = group.end;
                group
            }));
        }
        let functions = |group: &std::ops::Range<usize>| ordered.get(group.clone()).unwrap_or_default();
        groups.sort_by_cached_key(|group| first_of(functions(group)).map(key));
        let mut all = Self::default();
        for group in &groups {
            all.residences.extend_from_slice(functions(group));
            all.ends.push(all.residences.len());
        }
        all
    }

    /// Each group, by address space and the time of the function that comes first; its functions from the
    /// lowest address up.
    pub fn iter(&self) -> impl Iterator<Item = &[Residence]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .filter_map(|(&start, &end)| self.residences.get(start..end))
    }
}

/// The function of a group that comes first.
pub fn first_of(group: &[Residence]) -> Option<&Residence> {
    group.iter().min_by_key(|residence| key(residence))
}

fn key(residence: &Residence) -> (SpaceId, Time, u32) {
    (residence.space, residence.since, residence.sequence)
}

/// How many of the functions of one address space, from the lowest up, are in each group.
fn sizes(
    residences: &[Residence],
    neighbourhood: &Neighbourhood<'_>,
    source: impl Fn(&Residence) -> Source,
) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut group: Option<Group<'_>> = None;
    let mut reach = Address(0);
    for (at, residence) in (1usize..).zip(residences) {
        let range = residence.range;
        let next = residences.get(at);
        let is_alone = reach <= range.start
            && next.is_none_or(|next| range.end <= next.range.start)
            && neighbourhood.is_free(range);
        reach = reach.max(range.end);
        let source = source(residence);
        match &mut group {
            Some(group) if is_alone && group.can_take(residence, source, neighbourhood) => {
                group.take(residence, source.bytes);
            }
            _ => {
                sizes.extend(group.map(|group| group.functions));
                group = Some(Group::new(residence, source, is_alone));
            }
        }
    }
    sizes.extend(group.map(|group| group.functions));
    sizes
}

/// A group in the making.
struct Group<'a> {
    first: &'a Residence,
    /// Whether there can be others in it.
    is_open: bool,
    functions: usize,
    end: Address,
    /// How many bytes of code it has.
    code: u64,
    /// What there is to read for it.
    source: Source,
}

impl<'a> Group<'a> {
    fn new(first: &'a Residence, source: Source, is_open: bool) -> Self {
        Self {
            first,
            is_open,
            functions: 1,
            end: first.range.end,
            code: first.range.size(),
            source,
        }
    }

    fn can_take(&self, residence: &Residence, source: Source, neighbourhood: &Neighbourhood<'_>) -> bool {
        let gap = AddressRange {
            start: self.end,
            end: residence.range.start,
        };
        let span = residence.range.end.0.saturating_sub(self.first.range.start.0);
        self.is_open
            && gap.size() <= self.code.max(PAGE)
            && span <= MAX_SPAN
            && self.source.bytes.saturating_add(source.bytes) <= MAX_BYTES
            && self.source.has_code == source.has_code
            && residence.function.file == self.first.function.file
            && neighbourhood.forks_before(residence.since) == neighbourhood.forks_before(self.first.since)
            && neighbourhood.is_free(gap)
            && (gap.size() < ALIGNMENT || neighbourhood.ground.is_free(gap))
    }

    fn take(&mut self, residence: &Residence, bytes: u64) {
        self.functions += 1;
        self.end = residence.range.end;
        self.code = self.code.saturating_add(residence.range.size());
        self.source.bytes = self.source.bytes.saturating_add(bytes);
    }
}

/// Addresses that are taken, as ranges that don't touch each other, from the lowest up.
#[derive(Clone, Debug, Default)]
struct Taken(Vec<AddressRange>);

impl Taken {
    fn new(mut ranges: Vec<AddressRange>) -> Self {
        ranges.sort_unstable();
        ranges.dedup_by(|range, before| {
            let is_joined = range.start <= before.end;
            if is_joined {
                before.end = before.end.max(range.end);
            }
            is_joined
        });
        Self(ranges)
    }

    fn is_free(&self, range: AddressRange) -> bool {
        let behind = self.0.partition_point(|taken| taken.end <= range.start);
        self.0.get(behind).is_none_or(|taken| range.end <= taken.start)
    }
}

/// What is mapped in all address spaces.
struct Neighbourhoods {
    /// Of each, all that it maps itself: its own functions too.
    all: Vec<Taken>,
    /// Of each that has functions, what it maps itself but for these, and what its copies map.
    others: Vec<Taken>,
    /// Of each, the files that it had mapped before the first function came.
    ground: Vec<Taken>,
    /// When copies were made of each, in the order of time.
    forks: Vec<Vec<Time>>,
}

/// What is mapped in one address space, but for its own functions, and in those that share code with it.
struct Neighbourhood<'a> {
    others: &'a Taken,
    ground: &'a Taken,
    ancestors: Vec<&'a Taken>,
    forks: &'a [Time],
}

impl Neighbourhoods {
    fn new(processes: &Processes, mapped: Mapped<'_>) -> Self {
        let count = processes.spaces().len();
        let mut functions: Vec<Vec<AddressRange>> = vec![Vec::new(); count];
        let mut others = functions.clone();
        let mut ground = functions.clone();
        let mut starts = vec![Time::MAX; count];
        let put = |lists: &mut Vec<Vec<AddressRange>>, space: SpaceId, range: AddressRange| {
            if let Some(list) = lists.get_mut(space.index()) {
                list.push(range);
            }
        };
        for residence in mapped.residences {
            put(&mut functions, residence.space, residence.range);
            if let Some(start) = starts.get_mut(residence.space.index()) {
                *start = residence.since.min(*start);
            }
        }
        for vacancy in mapped.vacancies {
            put(&mut others, vacancy.space, vacancy.range);
        }
        for symbol in mapped.symbols {
            put(&mut others, symbol.space, symbol.range);
        }
        let mut forks = vec![Vec::new(); count];
        for (id, space) in processes.iter() {
            let start = starts.get(id.index()).copied().unwrap_or(Time::MAX);
            for map in space.maps.iter().filter(|map| map.backing == Backing::File) {
                let is_ground = map.time < start;
                put(if is_ground { &mut ground } else { &mut others }, id, map.range);
            }
            if let Some((parent, time)) = space.parent
                && let Some(forks) = forks.get_mut(parent.index())
            {
                forks.push(time);
            }
        }
        forks.iter_mut().for_each(|forks| forks.sort_unstable());
        let all = functions.iter().zip(&others).zip(&ground);
        let all: Vec<Taken> = all
            .map(|((functions, others), ground)| Taken::new([&functions[..], others, ground].concat()))
            .collect();
        for (id, _) in processes.iter() {
            for (ancestor, _) in processes.ancestors(id) {
                let has_functions = functions
                    .get(ancestor.index())
                    .is_some_and(|functions| !functions.is_empty());
                if has_functions
                    && let (Some(list), Some(mapped)) =
                        (others.get_mut(ancestor.index()), all.get(id.index()))
                {
                    list.extend_from_slice(&mapped.0);
                }
            }
        }
        Self {
            all,
            others: others.into_iter().map(Taken::new).collect(),
            ground: ground.into_iter().map(Taken::new).collect(),
            forks,
        }
    }

    fn of(&self, processes: &Processes, space: SpaceId) -> Neighbourhood<'_> {
        const NOTHING: &Taken = &Taken(Vec::new());
        let ancestors = processes.ancestors(space);
        let ancestors = ancestors.filter_map(|(ancestor, _)| self.all.get(ancestor.index()));
        Neighbourhood {
            others: self.others.get(space.index()).unwrap_or(NOTHING),
            ground: self.ground.get(space.index()).unwrap_or(NOTHING),
            ancestors: ancestors.filter(|taken| !taken.0.is_empty()).collect(),
            forks: self.forks.get(space.index()).map_or(&[], Vec::as_slice),
        }
    }
}

impl Neighbourhood<'_> {
    /// Whether nothing is ever mapped at a range, but for functions of the address space itself.
    fn is_free(&self, range: AddressRange) -> bool {
        let mut all = std::iter::once(self.others).chain(self.ancestors.iter().copied());
        range.size() == 0 || all.all(|taken| taken.is_free(range))
    }

    /// How many copies were made before what happens at `time`, which comes before a copy of the same time.
    fn forks_before(&self, time: Time) -> usize {
        self.forks.partition_point(|&fork| fork < time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::{Map, ProcessEvent};
    use crate::code::timeline::FunctionId;
    use crate::units::Pid;

    fn range(start: u64, size: u64) -> AddressRange {
        AddressRange::new(Address(start), size).unwrap()
    }

    /// Process 1 maps a file at 0x9000, and process 2 is forked from it at time 50.
    fn processes() -> Processes {
        let map = |pid, time, start| {
            let map = Map {
                time: Time(time),
                range: range(start, 0x100),
                backing: Backing::File,
                record: 0,
            };
            ProcessEvent::Map(Pid(pid), map)
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

    const SOURCE: Source = Source {
        bytes: 100,
        has_code: true,
    };

    /// The starts of the functions in each group, of functions with process, time, start and size.
    fn groups(functions: &[(u32, u64, u64, u64)], vacancies: &[(u64, u64)]) -> Vec<Vec<u64>> {
        let processes = processes();
        let space = |pid| processes.space_at(Pid(pid), Time(100)).unwrap();
        let mut residences: Vec<Residence> = (0u32..)
            .zip(functions)
            .map(|(function, &(pid, since, start, size))| Residence {
                function: FunctionId { file: 0, function },
                space: space(pid),
                range: range(start, size),
                since: Time(since),
                sequence: function,
            })
            .collect();
        residences.sort_by_key(key);
        let vacancies: Vec<Vacancy> = vacancies
            .iter()
            .map(|&(start, size)| Vacancy {
                space: space(1),
                range: range(start, size),
                since: Time(40),
                sequence: 0,
            })
            .collect();
        let mapped = Mapped {
            residences: &residences,
            vacancies: &vacancies,
            symbols: &[],
        };
        let groups = Groups::as_large_as_can_be(&processes, mapped, |_| SOURCE);
        let starts = |group: &[Residence]| group.iter().map(|function| function.range.start.0).collect();
        groups.iter().map(starts).collect()
    }

    #[test]
    fn neighbours_share_an_object_up_to_a_gap_of_a_page_or_as_large_as_the_code_before() {
        let groups_with = |last| {
            let functions = [
                (1, 20, 0x1_2000, 0x100),
                (1, 10, 0x1_1000, 0x100),
                (1, 5, 0x1_3100, 0x1000),
                (1, 30, last, 0x100),
            ];
            groups(&functions, &[])
        };
        let first = [0x1_1000, 0x1_2000, 0x1_3100];
        assert_eq!(groups_with(0x1_5300), [[&first[..], &[0x1_5300]].concat()]);
        assert_eq!(groups_with(0x1_5301), [first.to_vec(), vec![0x1_5301]]);
        let apart = [(1, 10, 0x1000, 0x100), (1, 20, 0x2101, 0x100)];
        assert_eq!(groups(&apart, &[]).len(), 2);
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
    fn a_child_has_all_of_an_object_or_nothing() {
        let functions = |time| [(1, 10, 0x1000, 0x100), (1, time, 0x1100, 0x100)];
        assert_eq!(groups(&functions(50), &[]).len(), 1);
        assert_eq!(groups(&functions(51), &[]).len(), 2);
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
        // by what there is to read, and by what they span
        assert_eq!(sizes(0x100), [83_886, 16_114]);
        assert_eq!(sizes(0x400), [32_768, 32_768, 32_768, 1_696]);
    }
}
