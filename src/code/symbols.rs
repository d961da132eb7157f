//! Names of code that are known without any time: what perf maps say.
//!
//! They stand in where nothing else is known. A symbol is there from the start of its process on, in all
//! memory that JIT compilers use, and nowhere else. Where a dump of the same process ever puts code, the dump
//! alone is asked: it knows when the code was there, and the map, which has only the last state, can at best
//! name the same code at the wrong time.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::process::{MAX_GENERATIONS, Processes, SpaceId};
use crate::code::timeline::{Residence, Stretch};
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

/// Those of `residences`, which are in the order of address spaces, that are in one of them.
fn code_of(residences: &[Residence], space: SpaceId) -> &[Residence] {
    let start = residences.partition_point(|residence| residence.space < space);
    let end = residences.partition_point(|residence| residence.space <= space);
    residences.get(start..end).unwrap_or_default()
}

/// The symbols of all processes.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// What is left of each table: pieces apart from each other, from the lowest up.
    tables: Vec<Vec<Piece>>,
    spaces: Vec<SpaceSymbols>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    range: AddressRange,
    symbol: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct SpaceSymbols {
    /// When the address space came to be.
    since: Time,
    /// The table of its own process.
    own: Option<u32>,
    /// The nearest one, with a table of its own, of those that it is a copy of.
    inherited: Option<SpaceId>,
}

impl Symbols {
    /// Puts together what is in `tables`, but for the addresses at which `residences`, in the order of the
    /// timeline, say that there was code of a dump. Each process has at most one table.
    pub fn new(processes: &Processes, residences: &[Residence], tables: &[SymbolTable]) -> Self {
        if tables.is_empty() {
            return Self::default();
        }
        let by_pid: FxHashMap<Pid, u32> = tables.iter().map(|table| table.pid).zip(0..).collect();
        let mut symbols = Self::default();
        for space in processes.spaces() {
            let inherited = space.parent.and_then(|(parent, _)| {
                let of_parent = symbols.spaces.get(parent.index())?;
                of_parent.own.map(|_| parent).or(of_parent.inherited)
            });
            symbols.spaces.push(SpaceSymbols {
                since: space.since,
                own: by_pid.get(&space.pid).copied(),
                inherited,
            });
        }
        let mut maps: Vec<RangeMap<u32>> = tables.iter().map(SymbolTable::newest).collect();
        for (table, space) in symbols.meetings(processes) {
            if let Some(map) = maps.get_mut(table as usize) {
                for residence in code_of(residences, space) {
                    map.remove(residence.range, |_, _| {});
                }
            }
        }
        let pieces = |map: &RangeMap<u32>| {
            map.iter()
                .map(|(range, symbol)| Piece { range, symbol })
                .collect()
        };
        symbols.tables = maps.iter().map(pieces).collect();
        symbols
    }

    /// Each table with each address space whose code its symbols can meet: all that it is asked about, and all
    /// that its own is a copy of.
    fn meetings(&self, processes: &Processes) -> FxHashSet<(u32, SpaceId)> {
        let mut meetings = FxHashSet::default();
        for (id, _) in processes.iter() {
            meetings.extend(self.chain(id).map(|(_, table)| (table, id)));
            if let Some(table) = self.spaces.get(id.index()).and_then(|space| space.own) {
                meetings.extend(processes.ancestors(id).map(|(ancestor, _)| (table, ancestor)));
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

    /// Whether there is a symbol at an address of an address space, if the memory there allows for one.
    pub fn has(&self, space: SpaceId, address: Address) -> bool {
        self.find(space, address).is_some()
    }

    /// The symbol at an address of an address space, in memory that became such as JIT compilers use in
    /// `stretch`.
    pub fn at(&self, space: SpaceId, address: Address, stretch: Stretch) -> Option<PlacedSymbol> {
        let (home, table, piece) = self.find(space, address)?;
        self.place(home, table, piece, stretch)
    }

    fn find(&self, space: SpaceId, address: Address) -> Option<(SpaceId, u32, Piece)> {
        self.chain(space).find_map(|(home, table)| {
            let pieces = self.tables.get(table as usize)?;
            let after = pieces.partition_point(|piece| piece.range.start <= address);
            let piece = pieces.get(after.checked_sub(1)?)?;
            piece.range.contains(address).then_some((home, table, *piece))
        })
    }

    fn place(&self, home: SpaceId, table: u32, piece: Piece, stretch: Stretch) -> Option<PlacedSymbol> {
        // Memory that was inherited from a process which the symbol is not one of has it from the copy on.
        let (space, since) = if home > stretch.space {
            (home, self.spaces.get(home.index())?.since)
        } else {
            (stretch.space, stretch.since)
        };
        Some(PlacedSymbol {
            id: SymbolId {
                table,
                symbol: piece.symbol,
            },
            space,
            since,
            range: piece.range.intersection(stretch.range)?,
        })
    }

    /// All symbols in a stretch of memory.
    pub fn in_stretch(&self, stretch: Stretch) -> impl Iterator<Item = PlacedSymbol> {
        let nearest = self.chain(stretch.space).next();
        nearest.into_iter().flat_map(move |(home, table)| {
            let pieces = self.tables.get(table as usize).map_or(&[][..], Vec::as_slice);
            let before = pieces.partition_point(|piece| piece.range.end <= stretch.range.start);
            let pieces = pieces.iter().skip(before);
            pieces
                .take_while(move |piece| piece.range.start < stretch.range.end)
                .filter_map(move |&piece| self.place(home, table, piece, stretch))
        })
    }
}
