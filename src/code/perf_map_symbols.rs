//! Names of code that are known without any time: what perf maps say.
//!
//! They stand in where nothing else is known. A symbol is there from the start of its process on, in all
//! memory that JIT compilers use, and nowhere else. Where a dump of the same process ever puts code, the dump
//! alone is asked: it knows when the code was there, and the map, which has only the last state, can at best
//! name the same code at the wrong time. Objects that an earlier run has put into the profile count as such code.

use std::collections::BTreeSet;

use crate::code::process::{MAX_GENERATIONS, Processes, SpaceId};
use crate::code::profile_index::EarlierMap;
use crate::code::timeline::{CodeMapping, JitRegion};
use crate::hash::HashMap;
use crate::range_map::RangeMap;
use crate::units::{Address, AddressRange, Pid, Time};

/// What one perf map says, without the names.
#[derive(Clone, Debug)]
pub struct SymbolTable {
    /// Its process.
    pub pid: Pid,
    /// Where its symbols lie; of several at one address, the last one counts.
    pub ranges: Vec<AddressRange>,
}

/// A symbol: which of which table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SymbolId {
    /// The table, by its place among all.
    pub table: u32,
    /// The symbol, by its place in the table.
    pub symbol: u32,
}

/// A symbol, or a part of it, for as long as the memory there is such as JIT compilers use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PlacedSymbol {
    /// Which.
    pub id: SymbolId,
    /// In which address space. Those that are copied from it later have it as well.
    pub space: SpaceId,
    /// Since when the memory is as it is.
    pub since: Time,
    /// Where.
    pub range: AddressRange,
}

impl SymbolTable {
    /// Which symbol counts where.
    fn newest(&self) -> RangeMap<u32> {
        let mut map = RangeMap::default();
        for (symbol, &range) in (0u32..).zip(&self.ranges) {
            map.insert(range, symbol, |_, _| {});
        }
        map
    }
}

/// Those of `mappings`, which are in the order of address spaces, that are in one of them, with their indices.
fn code_of(mappings: &[CodeMapping], space: SpaceId) -> impl Iterator<Item = (u32, &CodeMapping)> {
    let start = mappings.partition_point(|mapping| mapping.space < space);
    let own = mappings.iter().zip(0u32..).skip(start);
    let own = own.take_while(move |(mapping, _)| mapping.space == space);
    own.map(|(mapping, index)| (index, mapping))
}

/// The symbols of all processes.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    tables: Vec<Table>,
    spaces: Vec<SpaceSymbols>,
}

/// One table, in pieces apart from each other, from the lowest up.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Those that are asked, and their symbols.
    pieces: Vec<Piece>,
    /// Those that are not, since a dump knows better, and the mappings that do so.
    withheld: Vec<Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    range: AddressRange,
    /// A symbol or a mapping.
    index: u32,
}

impl Piece {
    /// The one of `pieces` that holds an address.
    fn at(pieces: &[Self], address: Address) -> Option<Self> {
        let after = pieces.partition_point(|piece| piece.range.start <= address);
        let piece = pieces.get(after.checked_sub(1)?)?;
        piece.range.contains(address).then_some(*piece)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SpaceSymbols {
    /// When the address space came to be.
    since: Time,
    /// The table of its own process.
    own: Option<u32>,
    /// The nearest one, with a table of its own, of those that it is a copy of.
    inherited: Option<SpaceId>,
    /// How many there are that it is a copy of.
    generation: usize,
}

impl Symbols {
    /// Puts together what is in `tables`, but for the addresses at which `mappings`, in the order of the
    /// timeline, or `injected` objects say that there was code of a dump. Each process has at most one table.
    pub fn new(
        processes: &Processes,
        mappings: &[CodeMapping],
        injected: &[EarlierMap],
        tables: &[SymbolTable],
    ) -> Self {
        if tables.is_empty() {
            return Self::default();
        }
        let by_pid: HashMap<Pid, u32> = tables.iter().map(|table| table.pid).zip(0..).collect();
        let mut symbols = Self::default();
        for (id, space) in processes.iter() {
            symbols.spaces.push(SpaceSymbols {
                since: space.since,
                own: by_pid.get(&space.pid).copied(),
                inherited: None,
                generation: processes.all_ancestors(id).count(),
            });
        }
        symbols.find_inherited(processes);
        let mut maps: Vec<RangeMap<u32>> = tables.iter().map(SymbolTable::newest).collect();
        symbols.tables = vec![Table::default(); tables.len()];
        let mut injected_by_space: HashMap<SpaceId, Vec<AddressRange>> = HashMap::default();
        for map in injected {
            if let Some(space) = processes.space_at(map.pid, map.time) {
                injected_by_space.entry(space).or_default().push(map.range);
            }
        }
        for (table, space) in symbols.meetings(processes) {
            let at = table as usize;
            let (Some(map), Some(table)) = (maps.get_mut(at), symbols.tables.get_mut(at)) else {
                continue;
            };
            for (index, mapping) in code_of(mappings, space) {
                map.remove(mapping.range, |range, _| {
                    table.withheld.push(Piece { range, index })
                });
            }
            for &range in injected_by_space.get(&space).into_iter().flatten() {
                map.remove(range, |_, _| {});
            }
        }
        for (map, table) in maps.iter().zip(&mut symbols.tables) {
            let pieces = map.iter().map(|(range, index)| Piece { range, index });
            table.pieces = pieces.collect();
            table.withheld.sort_unstable_by_key(|piece| piece.range);
        }
        symbols
    }

    /// Finds the tables of what address spaces are copies of.
    fn find_inherited(&mut self, processes: &Processes) {
        let with_table = |space: SpaceId| self.spaces.get(space.index())?.own.map(|_| space);
        let inherited = processes.iter().map(|(id, _)| {
            let mut ancestors = processes.all_ancestors(id);
            ancestors.find_map(|(ancestor, _)| with_table(ancestor))
        });
        let inherited: Vec<Option<SpaceId>> = inherited.collect();
        for (space, inherited) in self.spaces.iter_mut().zip(inherited) {
            space.inherited = inherited;
        }
    }

    /// Each table with each address space whose code its symbols can meet: all that it is asked about, and all
    /// that its own is a copy of.
    fn meetings(&self, processes: &Processes) -> BTreeSet<(u32, SpaceId)> {
        let mut meetings = BTreeSet::new();
        for (id, _) in processes.iter() {
            meetings.extend(self.chain(id).map(|(_, table)| (table, id)));
            if let Some(table) = self.spaces.get(id.index()).and_then(|space| space.own) {
                let ancestors = processes.all_ancestors(id);
                meetings.extend(ancestors.map(|(ancestor, _)| (table, ancestor)));
            }
        }
        meetings
    }

    /// Whether there are any for an address space.
    pub fn are_there(&self, space: SpaceId) -> bool {
        self.chain(space).next().is_some()
    }

    /// The tables that are asked about an address space, the nearest first, and whose they are.
    fn chain(&self, space: SpaceId) -> impl Iterator<Item = (SpaceId, u32)> {
        let inherited = |&space: &SpaceId| self.spaces.get(space.index())?.inherited;
        std::iter::successors(Some(space), inherited)
            .take(MAX_GENERATIONS)
            .filter_map(|space| Some((space, self.spaces.get(space.index())?.own?)))
    }

    /// Whether a table has a symbol at an address of an address space, if the memory there allows for one, or would have it if
    /// no dump knew better.
    pub fn has(&self, space: SpaceId, address: Address) -> bool {
        self.find(space, address).is_some() || self.withheld_by(space, address).next().is_some()
    }

    /// The symbol at an address of an address space, in memory that became such as JIT compilers use in
    /// `region`.
    pub fn at(&self, space: SpaceId, address: Address, region: JitRegion) -> Option<PlacedSymbol> {
        let (home, table, piece) = self.find(space, address)?;
        self.place(home, table, piece, region)
    }

    fn find(&self, space: SpaceId, address: Address) -> Option<(SpaceId, u32, Piece)> {
        self.chain(space).find_map(|(home, table)| {
            let piece = Piece::at(&self.tables.get(table as usize)?.pieces, address)?;
            Some((home, table, piece))
        })
    }

    /// The mappings because of which no table is asked about an address of an address space.
    pub fn withheld_by(&self, space: SpaceId, address: Address) -> impl Iterator<Item = u32> {
        self.chain(space).filter_map(move |(_, table)| {
            let table = self.tables.get(table as usize)?;
            Piece::at(&table.withheld, address).map(|piece| piece.index)
        })
    }

    fn place(&self, home: SpaceId, table: u32, piece: Piece, region: JitRegion) -> Option<PlacedSymbol> {
        // Memory that was inherited from a process which the symbol is not one of has it from the copy on.
        let own = self.spaces.get(home.index())?;
        let (space, since) = if own.generation > self.spaces.get(region.space.index())?.generation {
            (home, own.since)
        } else {
            (region.space, region.since)
        };
        Some(PlacedSymbol {
            id: SymbolId {
                table,
                symbol: piece.index,
            },
            space,
            since,
            range: piece.range.intersection(region.range)?,
        })
    }

    /// All symbols in a region of memory.
    pub fn in_region(&self, region: JitRegion) -> impl Iterator<Item = PlacedSymbol> {
        let nearest = self.chain(region.space).next();
        nearest.into_iter().flat_map(move |(home, table)| {
            let table_of = self.tables.get(table as usize);
            let pieces = table_of.map_or(&[][..], |table| table.pieces.as_slice());
            let before = pieces.partition_point(|piece| piece.range.end <= region.range.start);
            let pieces = pieces.iter().skip(before);
            pieces
                .take_while(move |piece| piece.range.start < region.range.end)
                .filter_map(move |&piece| self.place(home, table, piece, region))
        })
    }
}
