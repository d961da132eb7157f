//! Symbols of perf maps, which have names and addresses but no times.
//!
//! They are used where nothing else is known. A symbol is valid from the start of its process, in all JIT memory and
//! nowhere else. Where a dump of the same process ever has code, the perf map is ignored: the dump has the times of
//! the code, while the map has only the last state and could at best give the same code a wrong time. Objects
//! injected into the profile by an earlier run count as such code.
//!
//! The last of several symbols for one address wins. To cover all addresses at which a symbol was left out,
//! functions also get an object if samples have their address only before they are loaded or after they are
//! gone.

use std::collections::BTreeSet;

use jitdump::{Address, AddressRange, Time};

use crate::code::mappings::{CodeMapping, JitRegion, MappingIndex};
use crate::code::process::{MAX_GENERATIONS, Processes, SpaceId};
use crate::code::profile_index::EarlierMap;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::collections::range_map::RangeMap;
use crate::units::Pid;

/// Symbol addresses of one perf map.
#[derive(Clone, Debug)]
pub struct SymbolTable {
    /// Process that the perf map belongs to.
    pub pid: Pid,
    /// Addresses of the symbols, in file order. The last of several symbols at one address wins.
    pub ranges: Vec<AddressRange>,
}

table_index! {
    /// Index of a perf map's table.
    SymbolTableIndex
}

/// ID of a symbol of a perf map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SymbolId {
    /// The table.
    pub table: SymbolTableIndex,
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
            map.insert(range, symbol);
        }
        map
    }
}

/// Returns the mappings of one address space, with their indices. `mappings` must be sorted by address space.
fn code_of(
    mappings: &IndexedTable<MappingIndex, CodeMapping>,
    space: SpaceId,
) -> impl Iterator<Item = (MappingIndex, &CodeMapping)> {
    let start = mappings.rows().partition_point(|mapping| mapping.space < space);
    let own = mappings.enumerate().skip(start);
    own.take_while(move |(_, mapping)| mapping.space == space)
}

/// Symbols of all processes.
#[derive(Clone, Debug, Default)]
pub struct PerfMapSymbols {
    tables: IndexedTable<SymbolTableIndex, Table>,
    /// Symbols of each address space; empty without tables.
    spaces: IndexedTable<SpaceId, SpaceSymbols>,
}

/// Symbols of one table, as disjoint ranges from the lowest address up.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Ranges in use, with symbol indices.
    pieces: Vec<Piece<u32>>,
    /// Ranges hidden by code of a dump, with the mappings that hide them.
    withheld: Vec<Piece<MappingIndex>>,
}

#[derive(Clone, Copy, Debug)]
struct Piece<I> {
    range: AddressRange,
    /// Index of a symbol or a mapping.
    index: I,
}

impl<I: Copy> Piece<I> {
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
    own: Option<SymbolTableIndex>,
    /// Nearest ancestor with a table of its own.
    inherited: Option<SpaceId>,
    /// Number of ancestors.
    generation: usize,
}

impl PerfMapSymbols {
    /// Combines `tables`, except for addresses that ever hold code of a dump, according to `mappings` (sorted as in
    /// the timeline) or `injected` objects. Each process has at most one table.
    pub fn new(
        processes: &Processes,
        mappings: &IndexedTable<MappingIndex, CodeMapping>,
        injected: &[EarlierMap],
        tables: &IndexedTable<SymbolTableIndex, SymbolTable>,
    ) -> Self {
        if tables.is_empty() {
            return Self::default();
        }
        let mut symbols = Self::of_spaces(processes, tables);
        symbols.find_inherited(processes);
        let mut left = tables.map(SymbolTable::newest);
        symbols.withhold(&mut left, processes, mappings, injected);
        for (left, table) in left.iter().zip(&mut symbols.tables) {
            let pieces = left.iter().map(|(range, index)| Piece { range, index });
            table.pieces = pieces.collect();
            table.withheld.sort_unstable_by_key(|piece| piece.range);
        }
        symbols
    }

    /// Finds the table of each address space's own process. The tables are still empty.
    fn of_spaces(processes: &Processes, tables: &IndexedTable<SymbolTableIndex, SymbolTable>) -> Self {
        let of_tables = tables.enumerate().map(|(index, table)| (table.pid, index));
        let by_pid: HashMap<Pid, SymbolTableIndex> = of_tables.collect();
        let spaces = processes.iter().map(|(id, space)| SpaceSymbols {
            since: space.since,
            own: by_pid.get(&space.pid).copied(),
            inherited: None,
            generation: processes.all_ancestors(id).count(),
        });
        Self {
            tables: tables.map(|_| Table::default()),
            spaces: spaces.collect(),
        }
    }

    /// Removes what code hides from the symbols of each table. Code of dumps is noted in the tables, that of objects is not.
    fn withhold(
        &mut self,
        symbols: &mut IndexedTable<SymbolTableIndex, RangeMap<u32>>,
        processes: &Processes,
        mappings: &IndexedTable<MappingIndex, CodeMapping>,
        injected: &[EarlierMap],
    ) {
        let mut injected_by_space: HashMap<SpaceId, Vec<AddressRange>> = HashMap::default();
        for map in injected {
            if let Some(space) = processes.space_at(map.pid, map.time) {
                injected_by_space.entry(space).or_default().push(map.range);
            }
        }
        for (table, space) in self.meetings(processes) {
            let (symbols, table) = (&mut symbols[table], &mut self.tables[table]);
            for (index, mapping) in code_of(mappings, space) {
                symbols.remove_with(mapping.range, |range, _| {
                    table.withheld.push(Piece { range, index })
                });
            }
            for &range in injected_by_space.get(&space).into_iter().flatten() {
                symbols.remove(range);
            }
        }
    }

    /// Finds the nearest ancestor with a table for each address space.
    fn find_inherited(&mut self, processes: &Processes) {
        let has_table = |&(space, _): &(SpaceId, _)| self.spaces[space].own.is_some();
        let inherited = processes.iter().map(|(id, _)| {
            let mut ancestors = processes.all_ancestors(id);
            (id, ancestors.find(has_table).map(|(ancestor, _)| ancestor))
        });
        let inherited: Vec<(SpaceId, Option<SpaceId>)> = inherited.collect();
        for (id, inherited) in inherited {
            self.spaces[id].inherited = inherited;
        }
    }

    /// Returns each table with each address space whose code its symbols can overlap: those that use the table, and
    /// the ancestors of the table's own.
    fn meetings(&self, processes: &Processes) -> BTreeSet<(SymbolTableIndex, SpaceId)> {
        let mut meetings = BTreeSet::new();
        for (id, _) in processes.iter() {
            meetings.extend(self.chain(id).map(|(_, table)| (table, id)));
            if let Some(table) = self.spaces[id].own {
                let ancestors = processes.all_ancestors(id);
                meetings.extend(ancestors.map(|(ancestor, _)| (table, ancestor)));
            }
        }
        meetings
    }

    /// Returns the number of symbols in use, or of their parts that code of dumps does not hide.
    pub fn count(&self) -> usize {
        self.tables.iter().map(|table| table.pieces.len()).sum()
    }

    /// Whether any table applies to an address space.
    pub fn are_there(&self, space: SpaceId) -> bool {
        self.chain(space).next().is_some()
    }

    /// Returns the tables that apply to an address space, the nearest first, each with the address space that owns
    /// it.
    fn chain(&self, space: SpaceId) -> impl Iterator<Item = (SpaceId, SymbolTableIndex)> {
        let inherited = |&space: &SpaceId| self.spaces.row(space)?.inherited;
        std::iter::successors(Some(space), inherited)
            .take(MAX_GENERATIONS)
            .filter_map(|space| Some((space, self.spaces.row(space)?.own?)))
    }

    /// Whether a table has a symbol at an address of an address space, hidden by a mapping or not. The symbol applies
    /// only in JIT memory.
    pub fn has(&self, space: SpaceId, address: Address) -> bool {
        self.find_piece(space, address).is_some() || self.withheld_by(space, address).next().is_some()
    }

    /// Returns the symbol at an address of an address space, in the JIT memory of `region`.
    pub fn at(&self, space: SpaceId, address: Address, region: JitRegion) -> Option<PlacedSymbol> {
        let (home, table, piece) = self.find_piece(space, address)?;
        self.place(home, table, piece, region)
    }

    fn find_piece(
        &self,
        space: SpaceId,
        address: Address,
    ) -> Option<(SpaceId, SymbolTableIndex, Piece<u32>)> {
        self.chain(space).find_map(|(home, table)| {
            let piece = Piece::at(&self.tables[table].pieces, address)?;
            Some((home, table, piece))
        })
    }

    /// Returns the mappings that hide a symbol at an address of an address space.
    pub fn withheld_by(&self, space: SpaceId, address: Address) -> impl Iterator<Item = MappingIndex> {
        self.chain(space).filter_map(move |(_, table)| {
            let piece = Piece::at(&self.tables[table].withheld, address);
            piece.map(|piece| piece.index)
        })
    }

    /// Places the part of a symbol's piece that is in a region; `home` is the address space with the table.
    fn place(
        &self,
        home: SpaceId,
        table: SymbolTableIndex,
        piece: Piece<u32>,
        region: JitRegion,
    ) -> Option<PlacedSymbol> {
        // In memory inherited from a process without this table, the symbol is valid from the fork on.
        let own = &self.spaces[home];
        let (space, since) = if own.generation > self.spaces[region.space].generation {
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
            let pieces = &self.tables[table].pieces;
            let before = pieces.partition_point(|piece| piece.range.end <= region.range.start);
            let pieces = pieces.iter().skip(before);
            pieces
                .take_while(move |piece| piece.range.start < region.range.end)
                .filter_map(move |&piece| self.place(home, table, piece, region))
        })
    }
}
