//! Symbols of perf maps, which have names and addresses but no times.
//!
//! They are used where nothing else is known. A symbol is valid from the start of its process, in all JIT memory and
//! nowhere else. Where a dump of the same process ever has code, the perf map is ignored: the dump has the times of
//! the code, while the map has only the last state and could at best give the same code a wrong time. Objects
//! injected into the profile by an earlier run count as such code.

use std::collections::BTreeSet;

use crate::code::mappings::{CodeMapping, JitRegion};
use crate::code::process::{MAX_GENERATIONS, Processes, SpaceId};
use crate::code::profile_index::EarlierMap;
use crate::hash::HashMap;
use crate::range_map::RangeMap;
use crate::units::{Address, AddressRange, Pid, Time};

/// Symbol addresses of one perf map.
#[derive(Clone, Debug)]
pub struct SymbolTable {
    /// Process that the perf map belongs to.
    pub pid: Pid,
    /// Addresses of the symbols, in file order. The last of several symbols at one address wins.
    pub ranges: Vec<AddressRange>,
}

/// ID of a symbol of a perf map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SymbolId {
    /// Index of the table.
    pub table: u32,
    /// Index of the symbol in the table.
    pub symbol: u32,
}

/// A symbol, or a part of it, in one region of JIT memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PlacedSymbol {
    /// ID of the symbol.
    pub id: SymbolId,
    /// Address space of the memory. Address spaces copied from it later have the symbol too.
    pub space: SpaceId,
    /// Time from which the symbol is valid.
    pub since: Time,
    /// Addresses of the symbol in this region.
    pub range: AddressRange,
}

impl SymbolTable {
    /// Returns the last symbol at each address.
    fn newest(&self) -> RangeMap<u32> {
        let mut map = RangeMap::default();
        for (symbol, &range) in (0u32..).zip(&self.ranges) {
            map.insert(range, symbol, |_, _| {});
        }
        map
    }
}

/// Returns the mappings of one address space, with their indices. `mappings` must be sorted by address space.
fn code_of(mappings: &[CodeMapping], space: SpaceId) -> impl Iterator<Item = (u32, &CodeMapping)> {
    let start = mappings.partition_point(|mapping| mapping.space < space);
    let own = mappings.iter().zip(0u32..).skip(start);
    let own = own.take_while(move |(mapping, _)| mapping.space == space);
    own.map(|(mapping, index)| (index, mapping))
}

/// Symbols of all processes.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    tables: Vec<Table>,
    spaces: Vec<SpaceSymbols>,
}

/// Symbols of one table, as disjoint ranges from the lowest address up.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Ranges in use, with symbol indices.
    pieces: Vec<Piece>,
    /// Ranges hidden by code of a dump, with the indices of the mappings that hide them.
    withheld: Vec<Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    range: AddressRange,
    /// Index of a symbol or a mapping.
    index: u32,
}

impl Piece {
    /// Returns the range that contains an address.
    fn at(pieces: &[Self], address: Address) -> Option<Self> {
        let after = pieces.partition_point(|piece| piece.range.start <= address);
        let piece = pieces.get(after.checked_sub(1)?)?;
        piece.range.contains(address).then_some(*piece)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SpaceSymbols {
    /// Start time of the address space.
    since: Time,
    /// Index of the table of its own process.
    own: Option<u32>,
    /// Nearest ancestor with a table of its own.
    inherited: Option<SpaceId>,
    /// Number of ancestors.
    generation: usize,
}

impl Symbols {
    /// Combines `tables`, except for addresses that ever hold code of a dump, according to `mappings` (sorted as in
    /// the timeline) or `injected` objects. Each process has at most one table.
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

    /// Finds the nearest ancestor with a table for each address space.
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

    /// Returns each table with each address space whose code its symbols can overlap: those that use the table, and
    /// the ancestors of the table's own.
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

    /// Whether any table applies to an address space.
    pub fn are_there(&self, space: SpaceId) -> bool {
        self.chain(space).next().is_some()
    }

    /// Returns the tables that apply to an address space, the nearest first, each with the address space that owns
    /// it.
    fn chain(&self, space: SpaceId) -> impl Iterator<Item = (SpaceId, u32)> {
        let inherited = |&space: &SpaceId| self.spaces.get(space.index())?.inherited;
        std::iter::successors(Some(space), inherited)
            .take(MAX_GENERATIONS)
            .filter_map(|space| Some((space, self.spaces.get(space.index())?.own?)))
    }

    /// Whether a table has a symbol at an address of an address space, hidden by a mapping or not. The symbol applies
    /// only in JIT memory.
    pub fn has(&self, space: SpaceId, address: Address) -> bool {
        self.find(space, address).is_some() || self.withheld_by(space, address).next().is_some()
    }

    /// Returns the symbol at an address of an address space, in the JIT memory of `region`.
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

    /// Returns the mappings that hide a symbol at an address of an address space.
    pub fn withheld_by(&self, space: SpaceId, address: Address) -> impl Iterator<Item = u32> {
        self.chain(space).filter_map(move |(_, table)| {
            let table = self.tables.get(table as usize)?;
            Piece::at(&table.withheld, address).map(|piece| piece.index)
        })
    }

    fn place(&self, home: SpaceId, table: u32, piece: Piece, region: JitRegion) -> Option<PlacedSymbol> {
        // In memory inherited from a process without this table, the symbol is valid from the fork on.
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

    /// Returns all symbols in a region of memory.
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
