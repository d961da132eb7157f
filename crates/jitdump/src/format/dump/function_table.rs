//! Functions of a jitdump, in little memory: few of a million functions have samples.

use crate::event::{Change, CodeEvent, RuntimeTime};
use crate::format::record::RecordLocation;
use crate::format::record_association::Reassigned;
use crate::units::{Address, AddressRange};

/// Locations of a function's records, with what its LOAD record says of time and place.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRecords {
    /// Its LOAD record.
    pub load: RecordLocation,
    /// Time of that record.
    pub time: RuntimeTime,
    /// PID in that record.
    pub pid: u32,
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
    /// PIDs, each with the first function that has it. Mostly, all functions have the same.
    pids: Vec<(u32, u32)>,
    debug_info: OptionalRecords,
    debug_info2: OptionalRecords,
    unwinding: OptionalRecords,
    tier: OptionalRecords,
    /// SOURCE_TRACK records, sorted by function; a function may have several.
    tracks: Vec<(u32, RecordLocation)>,
}

/// What the LOAD record of a function says; the other records are optional.
#[derive(Clone, Copy, Debug)]
struct LoadedFunction {
    load: PackedLocation,
    size: u32,
    start: Address,
    time: RuntimeTime,
}

/// A million functions without debug information take 32 MB, which the limits in docs/performance.md are based on.
const _: () = assert!(size_of::<LoadedFunction>() == 32);

impl FunctionTable {
    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Adds a function. `function` is its index.
    pub fn push(&mut self, function: u32, records: &FunctionRecords) {
        self.functions.push(LoadedFunction {
            load: PackedLocation::of(records.load),
            size: records.size,
            start: records.start,
            time: records.time,
        });
        if self.pids.last().is_none_or(|&(_, pid)| pid != records.pid) {
            self.pids.push((function, records.pid));
        }
        self.debug_info.push(function, records.debug_info);
        self.debug_info2.push(function, records.debug_info2);
        self.unwinding.push(function, records.unwinding);
        self.tier.push(function, records.tier);
    }

    /// Adds the SOURCE_TRACK records of the last function.
    pub fn push_tracks(&mut self, function: u32, records: Vec<RecordLocation>) {
        self.tracks
            .extend(records.into_iter().map(|record| (function, record)));
    }

    /// Returns the locations of a function's SOURCE_TRACK records.
    pub fn tracks(&self, function: u32) -> impl Iterator<Item = RecordLocation> {
        let start = self.tracks.partition_point(|&(of, _)| of < function);
        let tracks = self.tracks.get(start..).unwrap_or_default().iter();
        let own = tracks.take_while(move |&&(of, _)| of == function);
        own.map(|&(_, location)| location)
    }

    /// Gives records to functions, unless they have one.
    pub fn add_debug_info(&mut self, records: Reassigned) {
        self.debug_info.add_missing(records.debug_info);
        self.debug_info2.add_missing(records.debug_info2);
    }

    /// Frees the memory that was reserved for more functions.
    pub fn shrink(&mut self) {
        self.functions.shrink_to_fit();
        self.tracks.shrink_to_fit();
        self.pids.shrink_to_fit();
        for records in [
            &mut self.debug_info,
            &mut self.debug_info2,
            &mut self.unwinding,
            &mut self.tier,
        ] {
            records.shrink();
        }
    }

    fn loaded(&self, function: u32) -> Option<&LoadedFunction> {
        self.functions.get(usize::try_from(function).ok()?)
    }

    /// Returns the locations of a function's records.
    pub fn get(&self, function: u32) -> Option<FunctionRecords> {
        let loaded = self.loaded(function)?;
        Some(FunctionRecords {
            load: loaded.load.unpacked(),
            time: loaded.time,
            pid: self.pid(function)?,
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
        self.loaded(function).map(|loaded| loaded.load.unpacked())
    }

    /// Returns the time of a function's LOAD record.
    pub fn time(&self, function: u32) -> Option<RuntimeTime> {
        self.loaded(function).map(|function| function.time)
    }

    fn pid(&self, function: u32) -> Option<u32> {
        let after = self.pids.partition_point(|&(first, _)| first <= function);
        let &(_, pid) = self.pids.get(after.checked_sub(1)?)?;
        Some(pid)
    }

    /// Returns the load of a function; `None` if it has no code. The format allows that, but such a function can't
    /// have samples.
    pub fn load_event(&self, function: u32) -> Option<CodeEvent> {
        self.range(function)?;
        Some(CodeEvent {
            time: self.time(function)?,
            pid: self.pid(function)?,
            function,
            change: Change::Load,
        })
    }

    /// Returns the functions with code, in file order.
    pub fn with_code(&self) -> impl Iterator<Item = u32> {
        let functions = (0u32..).zip(&self.functions);
        functions.filter_map(|(function, loaded)| (loaded.size > 0).then_some(function))
    }

    /// Returns the location of a function's UNWINDING_INFO record.
    pub fn unwinding(&self, function: u32) -> Option<RecordLocation> {
        self.unwinding.get(function)
    }

    /// Returns the number of functions with a DEBUG_INFO record.
    pub fn debug_info_count(&self) -> usize {
        self.debug_info.locations.len()
    }

    /// Returns the functions with a DEBUG_INFO record.
    pub fn with_debug_info(&self) -> impl Iterator<Item = (u32, RecordLocation)> {
        self.debug_info.iter()
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
    locations: Vec<PackedLocation>,
    /// The function of each record; empty if they are the first functions, without gaps. Often, all functions have such a
    /// record.
    functions: Vec<u32>,
}

/// A location without padding.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct PackedLocation {
    offset: u64,
    size: u32,
}

impl OptionalRecords {
    /// Adds the record of the last function.
    fn push(&mut self, function: u32, record: Option<RecordLocation>) {
        let Some(record) = record else {
            return;
        };
        if self.functions.is_empty() && function as usize != self.locations.len() {
            self.functions = (0..).take(self.locations.len()).collect();
            self.functions.push(function);
        } else if !self.functions.is_empty() {
            self.functions.push(function);
        }
        self.locations.push(PackedLocation::of(record));
    }

    /// Adds records of functions that have none. Of several for one function, the first stays.
    fn add_missing(&mut self, records: Vec<(u32, RecordLocation)>) {
        if records.is_empty() {
            return;
        }
        let mut all: Vec<(u32, RecordLocation)> = self.iter().chain(records).collect();
        // Stable, so the first record of a function stays.
        all.sort_by_key(|&(function, _)| function);
        all.dedup_by_key(|&mut (function, _)| function);
        *self = Self::default();
        for (function, record) in all {
            self.push(function, Some(record));
        }
    }

    fn shrink(&mut self) {
        self.locations.shrink_to_fit();
        self.functions.shrink_to_fit();
    }

    fn get(&self, function: u32) -> Option<RecordLocation> {
        let at = if self.functions.is_empty() {
            usize::try_from(function).ok()?
        } else {
            self.functions.binary_search(&function).ok()?
        };
        self.locations.get(at).map(PackedLocation::unpacked)
    }

    fn iter(&self) -> impl Iterator<Item = (u32, RecordLocation)> {
        let first = if self.functions.is_empty() {
            self.locations.len()
        } else {
            0
        };
        let functions = (0u32..).take(first).chain(self.functions.iter().copied());
        functions.zip(self.locations.iter().map(PackedLocation::unpacked))
    }
}

impl PackedLocation {
    fn of(RecordLocation { offset, size }: RecordLocation) -> Self {
        Self { offset, size }
    }

    fn unpacked(&self) -> RecordLocation {
        RecordLocation {
            offset: self.offset,
            size: self.size,
        }
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
                    time: RuntimeTime(function.into()),
                    pid: function / 2,
                    start: Address(0x100),
                    size: function,
                    debug_info,
                    debug_info2: None,
                    unwinding: Some(location(20)),
                    tier: None,
                },
            );
        }
        table.add_debug_info(Reassigned {
            debug_info: vec![(4, location(90)), (1, location(91)), (4, location(92))],
            debug_info2: Vec::new(),
        });
        let expected = [None, Some(40), None, Some(80), Some(90)];
        for (function, expected) in (0u32..).zip(expected) {
            let records = table.get(function).unwrap();
            assert_eq!(records.debug_info, expected.map(location));
            assert_eq!(records.unwinding, Some(location(20)));
            assert_eq!((records.debug_info2, records.tier), (None, None));
            assert_eq!(
                (records.time, records.pid),
                (RuntimeTime(function.into()), function / 2)
            );
        }
        assert_eq!(table.with_code().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(table.load_event(0).is_none(), "no code");
        assert_eq!(
            table.load_event(3).map(|load| (load.function, load.pid)),
            Some((3, 1))
        );
        assert_eq!(table.with_debug_info().count(), 3);
        assert_eq!((table.range(0), table.code_end()), (None, 0x104));
        assert!(table.get(5).is_none() && table.range(5).is_none());
    }
}
