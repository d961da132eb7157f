//! Removes code that runtimes log although it is in the executable mapping of a file.
//!
//! Quirk: V8 logs its built-in functions at their addresses in the text of `node`, unless it copied them next to the
//! JIT code (`--short-builtin-calls`, the default with enough memory). elfutils' libdw can't nest modules: with an
//! object in the text of a program, perf 7.0 and later can't unwind any stack through that program. The symbols of
//! the file name this code as well. Shown by `unwinding::no_object_is_inside_a_file_whose_stacks_are_unwound`.
//!
//! With objects for V8's built-in functions in the text of `node`, perf 7.3 got 3,142 frames from 240
//! stacks; without, 6,823. Samples in them count as native code. Profiles without copied stacks keep the
//! names of the jitdump.

use jitdump::history::{Builder, History};
use jitdump::{Address, AddressRange, Time};

use crate::code::process::{AddressSpace, Processes, SpaceId};
use crate::code::timeline::PlacedEvent;
use crate::collections::hash::HashMap;
use crate::perf::event::Backing;

/// File mappings of each address space over time, built on first use.
pub struct Files<'a> {
    processes: &'a Processes,
    histories: HashMap<SpaceId, History<bool>>,
    /// Number of loads and moves whose code was removed.
    pub removed: u64,
}

impl<'a> Files<'a> {
    /// Creates the file mappings of processes.
    pub fn new(processes: &'a Processes) -> Self {
        Self {
            processes,
            histories: HashMap::default(),
            removed: 0,
        }
    }

    /// Removes the code of an event if it is in a file mapping. Returns the event if anything is left of it. Memory that
    /// runtimes share with themselves through a file ([`Backing::Shared`]) does not count as a file.
    pub fn remove(&mut self, event: PlacedEvent) -> Option<PlacedEvent> {
        let is_in_file = |range: AddressRange| self.hold(event.space, range.start, event.time);
        if !event.range.is_some_and(is_in_file) {
            return Some(event);
        }
        self.removed += 1;
        // A move into a file still frees the old range.
        event
            .left
            .is_some()
            .then_some(PlacedEvent { range: None, ..event })
    }

    /// Whether an address is in a file mapping just before `time`; code precedes maps of the same time.
    fn hold(&mut self, space: SpaceId, address: Address, time: Time) -> bool {
        let processes = self.processes;
        let own = processes.space(space);
        let mut until = Time(time.0.saturating_sub(1));
        let mut child = own;
        if let Some(is_file) = self.at(space, own, address, until) {
            return is_file;
        }
        for (ancestor, space) in processes.ancestors(space) {
            until = child.parent.map_or(until, |(_, forked)| forked.min(until));
            if let Some(is_file) = self.at(ancestor, space, address, until) {
                return is_file;
            }
            child = space;
        }
        false
    }

    /// Whether an address is in a file of the address space itself; `None` if it maps nothing there.
    fn at(&mut self, id: SpaceId, space: &AddressSpace, address: Address, time: Time) -> Option<bool> {
        let history = self.histories.entry(id).or_insert_with(|| {
            let mut maps = Builder::default();
            for map in &space.maps {
                maps.put(map.range, map.time, map.backing == Backing::File);
            }
            maps.finish()
        });
        history.at(address, time).map(|interval| interval.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::{Map, ProcessEvent};
    use crate::code::timeline::{FileIndex, FunctionId};
    use crate::units::Pid;

    const FUNCTION: FunctionId = FunctionId {
        file: FileIndex(0),
        function: 0,
    };

    fn range(start: u64) -> AddressRange {
        AddressRange::new(Address(start), 0x100).unwrap()
    }

    fn map(pid: u32, time: u64, start: u64, backing: Backing) -> ProcessEvent {
        let map = Map {
            time: Time(time),
            range: AddressRange::new(Address(start), 0x1000).unwrap(),
            backing,
            record: 0,
        };
        ProcessEvent::Map(Pid(pid), map)
    }

    #[test]
    fn code_in_files_is_removed_wherever_they_were_mapped() {
        let processes = Processes::new(vec![
            map(1, 10, 0x1000, Backing::File),
            map(1, 10, 0x3000, Backing::Shared),
            map(1, 40, 0x1000, Backing::Anonymous),
            ProcessEvent::Fork {
                child: Pid(2),
                parent: Pid(1),
                time: Time(30),
            },
        ]);
        let space = |pid| processes.space_at(Pid(pid), Time(100)).unwrap();
        let is_kept = |pid, time, start| {
            let mut files = Files::new(&processes);
            let left = files.remove(PlacedEvent {
                time: Time(time),
                space: space(pid),
                function: FUNCTION,
                range: Some(range(start)),
                left: None,
            });
            assert_eq!(files.removed == 0, left.is_some());
            left.is_some()
        };
        assert!(is_kept(1, 5, 0x1100), "the file comes later");
        assert!(is_kept(1, 10, 0x1100), "code precedes a map of the same time");
        assert!(!is_kept(1, 20, 0x1100));
        assert!(is_kept(1, 20, 0x2000), "next to the file");
        assert!(is_kept(1, 20, 0x3100), "memory that is shared");
        assert!(is_kept(1, 50, 0x1100), "memory in the place of the file");
        assert!(!is_kept(2, 50, 0x1100), "the child still has the file");
    }

    #[test]
    fn code_that_moves_into_a_file_leaves_its_place() {
        let processes = Processes::new(vec![map(1, 10, 0x1000, Backing::File)]);
        let mut files = Files::new(&processes);
        let moved = files.remove(PlacedEvent {
            time: Time(20),
            space: processes.space_at(Pid(1), Time(20)).unwrap(),
            function: FUNCTION,
            range: Some(range(0x1000)),
            left: Some(range(0x5000)),
        });
        assert_eq!(files.removed, 1);
        let moved = moved.map(|event| (event.range, event.left));
        assert_eq!(moved, Some((None, Some(range(0x5000)))));
    }
}
