//! Selects the records of the functions that match a filter.

use jitdump::{Address, AddressRange, Change, Dump, Machine};

use crate::collections::hash::HashSet;
use crate::tools::dump::entry::DumpEntry;
use crate::tools::dump::filter::EntryFilter;

/// Records of the matching functions, associated with them in the same way as for a profile.
pub struct SelectedRecords<'f> {
    filter: &'f EntryFilter,
    /// Offsets of all records except moves, in bytes.
    offsets: HashSet<u64>,
    /// Moves, as time, old address and new address.
    moves: HashSet<(u64, u64, u64)>,
}

impl<'f> SelectedRecords<'f> {
    /// Finds the records of the matching functions.
    pub fn of(file: &[u8], filter: &'f EntryFilter) -> Self {
        let mut selection = Self {
            filter,
            offsets: HashSet::default(),
            moves: HashSet::default(),
        };
        // The machine affects only how line information is read.
        if let Ok(dump) = Dump::parse(file, Machine::host()) {
            selection.add(&dump);
        }
        selection
    }

    /// Selects the functions whose name and code match, wherever they were moved, with their records and moves.
    fn add(&mut self, dump: &Dump<'_>) {
        let filter = self.filter;
        let moves = || {
            dump.events().filter_map(|event| match event.change {
                Change::Move { from, to } => Some((event, from, to)),
                Change::Load => None,
            })
        };
        let moved_into_range = |function: u32, to: Address| {
            let size = dump.range(function).map_or(0, AddressRange::size);
            filter.matches_code(AddressRange::new(to, size))
        };
        let moved: HashSet<u32> = moves()
            .filter(|&(event, _, to)| moved_into_range(event.function, to))
            .map(|(event, ..)| event.function)
            .collect();
        let mut selected = HashSet::default();
        for function in 0.. {
            let Some(offsets) = dump.record_offsets(function) else {
                break;
            };
            let Some(found) = dump.function(function) else {
                continue;
            };
            let matches_code = filter.matches_code([found.range]) || moved.contains(&function);
            if matches_code && filter.matches_name(found.name) {
                selected.insert(function);
                self.offsets.extend(offsets);
            }
        }
        let selected_moves = moves().filter(|(event, ..)| selected.contains(&event.function));
        self.moves
            .extend(selected_moves.map(|(event, from, to)| (event.time.0, from.0, to.0)));
    }

    /// Returns whether a record is selected. An incomplete one is compared with the filter itself.
    pub fn selects(&self, entry: &DumpEntry<'_>) -> bool {
        if self.offsets.contains(&entry.offset) {
            return true;
        }
        let fields = &entry.fields;
        let number = |key| fields.get_number(key).unwrap_or_default();
        let range = |key| AddressRange::new(Address(number(key)), number("code_size"));
        match entry.kind {
            "LOAD" => {
                let name = fields.get_name("name");
                name.is_some_and(|name| self.filter.matches_name(name))
                    && self.filter.matches_code(range("code_addr"))
            }
            "MOVE" => {
                let places = [range("old_code_addr"), range("new_code_addr")];
                let key = (
                    entry.time.unwrap_or_default(),
                    number("old_code_addr"),
                    number("new_code_addr"),
                );
                self.moves.contains(&key)
                    || self.filter.name.is_none() && self.filter.matches_code(places.into_iter().flatten())
            }
            _ => false,
        }
    }
}
