//! Functions of a jitdump, in little memory: few of a million functions have samples.

use crate::runtime::jitdump::record::RecordLocation;
use crate::units::{Address, AddressRange};

/// Locations of a function's records, with its addresses.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRecords {
    /// Its LOAD record.
    pub load: RecordLocation,
    /// Address at which it was first loaded.
    pub start: Address,
    /// Size of its code, in bytes.
    pub size: u32,
    /// Its DEBUG_INFO record, if any.
    pub debug_info: Option<RecordLocation>,
    /// Its DEBUG_INFO2 record, if any.
    pub debug_info2: Option<RecordLocation>,
    /// Its UNWINDING_INFO record, if any. Several functions may share one.
    pub unwinding: Option<RecordLocation>,
    /// Its JIT_TIER record, if any.
    pub tier: Option<RecordLocation>,
}

/// All functions, in file order.
#[derive(Clone, Debug, Default)]
pub struct FunctionTable {
    functions: Vec<LoadedFunction>,
    debug_info: OptionalRecords,
    debug_info2: OptionalRecords,
    unwinding: OptionalRecords,
    tier: OptionalRecords,
    /// SOURCE_TRACK records, sorted by function; a function may have several.
    tracks: Vec<Entry>,
}

/// What all functions have. The location of the record is not in a field of its own, because that would be padded.
#[derive(Clone, Copy, Debug)]
struct LoadedFunction {
    load_offset: u64,
    load_size: u32,
    size: u32,
    start: Address,
}

impl LoadedFunction {
    fn load(&self) -> RecordLocation {
        RecordLocation {
            offset: self.load_offset,
            size: self.load_size,
        }
    }
}

impl FunctionTable {
    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Adds a function. `function` is its index.
    pub fn push(&mut self, function: u32, records: &FunctionRecords) {
        self.functions.push(LoadedFunction {
            load_offset: records.load.offset,
            load_size: records.load.size,
            size: records.size,
            start: records.start,
        });
        self.debug_info.push(function, records.debug_info);
        self.debug_info2.push(function, records.debug_info2);
        self.unwinding.push(function, records.unwinding);
        self.tier.push(function, records.tier);
    }

    /// Adds the SOURCE_TRACK records of the last function.
    pub fn push_tracks(&mut self, function: u32, records: Vec<RecordLocation>) {
        let entries = records.into_iter().map(|record| Entry::new(function, record));
        self.tracks.extend(entries);
    }

    /// Returns the locations of a function's SOURCE_TRACK records.
    pub fn tracks(&self, function: u32) -> impl Iterator<Item = RecordLocation> {
        let start = self.tracks.partition_point(|entry| entry.function < function);
        let entries = self.tracks.get(start..).unwrap_or_default();
        let own = entries.iter().take_while(move |entry| entry.function == function);
        own.map(Entry::location)
    }

    /// Gives DEBUG_INFO records to functions, by index, unless they have one.
    pub fn add_debug_info(&mut self, records: Vec<(u32, RecordLocation)>) {
        self.debug_info.add_missing(records);
    }

    /// Frees memory for functions that do not come.
    pub fn shrink(&mut self) {
        self.functions.shrink_to_fit();
        self.tracks.shrink_to_fit();
        for records in [
            &mut self.debug_info,
            &mut self.debug_info2,
            &mut self.unwinding,
            &mut self.tier,
        ] {
            records.entries.shrink_to_fit();
        }
    }

    fn loaded(&self, function: u32) -> Option<&LoadedFunction> {
        self.functions.get(usize::try_from(function).ok()?)
    }

    /// Returns the locations of a function's records.
    pub fn get(&self, function: u32) -> Option<FunctionRecords> {
        let loaded = self.loaded(function)?;
        Some(FunctionRecords {
            load: loaded.load(),
            start: loaded.start,
            size: loaded.size,
            debug_info: self.debug_info.get(function),
            debug_info2: self.debug_info2.get(function),
            unwinding: self.unwinding(function),
            tier: self.tier.get(function),
        })
    }

    /// Returns the location of a function's LOAD record.
    pub fn load(&self, function: u32) -> Option<RecordLocation> {
        self.loaded(function).map(LoadedFunction::load)
    }

    /// Returns the location of a function's UNWINDING_INFO record.
    pub fn unwinding(&self, function: u32) -> Option<RecordLocation> {
        self.unwinding.get(function)
    }

    /// Returns the functions with a DEBUG_INFO record.
    pub fn with_debug_info(&self) -> impl ExactSizeIterator<Item = (u32, RecordLocation)> {
        let entries = self.debug_info.entries.iter();
        entries.map(|entry| (entry.function, entry.location()))
    }

    /// Returns the addresses at which a function was first loaded; `None` if it has no code.
    pub fn range(&self, function: u32) -> Option<AddressRange> {
        let loaded = self.loaded(function)?;
        AddressRange::new(loaded.start, loaded.size.into())
    }

    /// Returns the end of the code at the highest addresses.
    pub fn code_end(&self) -> u64 {
        let functions = self.functions.iter();
        let ends = functions.map(|function| function.start.0.saturating_add(function.size.into()));
        ends.max().unwrap_or(0)
    }
}

/// Records of a type that not every function has.
#[derive(Clone, Debug, Default)]
struct OptionalRecords {
    /// Sorted by function, at most one for each.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: u64,
    size: u32,
    function: u32,
}

impl Entry {
    fn new(function: u32, RecordLocation { offset, size }: RecordLocation) -> Self {
        Self {
            offset,
            size,
            function,
        }
    }

    fn location(&self) -> RecordLocation {
        RecordLocation {
            offset: self.offset,
            size: self.size,
        }
    }
}

impl OptionalRecords {
    /// Adds the record of the last function.
    fn push(&mut self, function: u32, record: Option<RecordLocation>) {
        self.entries
            .extend(record.map(|record| Entry::new(function, record)));
    }

    fn add_missing(&mut self, records: Vec<(u32, RecordLocation)>) {
        if records.is_empty() {
            return;
        }
        let entries = records
            .into_iter()
            .map(|(function, record)| Entry::new(function, record));
        self.entries.extend(entries);
        // Stable, so the first record of a function stays.
        self.entries.sort_by_key(|entry| entry.function);
        self.entries.dedup_by_key(|entry| entry.function);
    }

    fn get(&self, function: u32) -> Option<RecordLocation> {
        let is_it = |entry: &&Entry| entry.function == function;
        // Often, all functions have such a record.
        let expected = usize::try_from(function).ok().and_then(|at| self.entries.get(at));
        let entry = expected.filter(is_it).or_else(|| {
            let at = self.entries.partition_point(|entry| entry.function < function);
            self.entries.get(at).filter(is_it)
        });
        entry.map(Entry::location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_only_their_own_records() {
        let location = |offset| RecordLocation { offset, size: 8 };
        let mut table = FunctionTable::default();
        let functions = [None, Some(location(40)), None, Some(location(80)), None];
        for (function, debug_info) in (0u32..).zip(functions) {
            table.push(
                function,
                &FunctionRecords {
                    load: location(1000),
                    start: Address(0x100),
                    size: function,
                    debug_info,
                    debug_info2: None,
                    unwinding: Some(location(20)),
                    tier: None,
                },
            );
        }
        table.add_debug_info(vec![(4, location(90)), (1, location(91)), (4, location(92))]);
        let expected = [None, Some(40), None, Some(80), Some(90)];
        for (function, expected) in (0u32..).zip(expected) {
            let records = table.get(function).unwrap();
            assert_eq!(records.debug_info, expected.map(location));
            assert_eq!(records.unwinding, Some(location(20)));
            assert_eq!((records.debug_info2, records.tier), (None, None));
        }
        assert_eq!(table.with_debug_info().count(), 3);
        assert_eq!((table.range(0), table.code_end()), (None, 0x104));
        assert!(table.get(5).is_none() && table.range(5).is_none());
    }
}
