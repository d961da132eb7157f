//! Modules: executables and libraries that processes have mapped, and parts of the kernel.

use std::ops::Range;

use jitdump::history::{Builder, History, as_inherited, intersection};
use jitdump::{Address, AddressRange, Time, printable};

use crate::bytes::base_name;
use crate::code::process::{MAX_GENERATIONS, Processes, SpaceId};
use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::files::objects::store;
use crate::perf::process_records::{KernelMap, Mmap};

table_index! {
    /// Index of a module.
    ModuleIndex
}

/// An executable, a library, the kernel or a module of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Module {
    /// Path of the file in the mount namespace of the process, or a name such as `[vdso]` or `[kernel.kallsyms]`.
    pub path: Vec<u8>,
    /// Build ID, if recorded.
    pub build_id: Option<Vec<u8>>,
}

/// Part of a module that a process has mapped.
#[derive(Clone, Copy, Debug)]
pub struct MappedModule {
    /// Index of the module.
    pub module: ModuleIndex,
    /// Number to add to an address to get the offset in the file; wraps around.
    to_offset: u64,
    /// Whether the memory may hold code.
    pub is_executable: bool,
}

/// What a process has mapped somewhere.
#[derive(Clone, Copy, Debug)]
enum Mapped {
    Module(MappedModule),
    /// The stack or the heap, which are not executable.
    Data,
    /// Memory in which runtimes may put code.
    Other,
}

impl MappedModule {
    /// Returns the offset in the module's file of an address.
    pub fn file_offset(&self, address: Address) -> u64 {
        address.0.wrapping_add(self.to_offset)
    }
}

/// Mapped modules of all processes over time.
#[derive(Debug, Default)]
pub struct Modules {
    /// All modules.
    pub all: IndexedTable<ModuleIndex, Module>,
    /// Whether each is an object of jitinject or perf inject.
    are_objects: IndexedTable<ModuleIndex, bool>,
    spaces: IndexedTable<SpaceId, SpaceModules>,
    /// Maps of the kernel and its modules, by start address.
    kernel: Vec<(AddressRange, ModuleIndex)>,
}

#[derive(Debug)]
struct SpaceModules {
    /// Mapped memory by address and time.
    maps: Option<History<Mapped>>,
    parent: Option<(SpaceId, Time)>,
}

/// Numbers modules, each once.
#[derive(Default)]
struct Numbers<'a> {
    all: IndexedTable<ModuleIndex, Module>,
    known: HashMap<(&'a [u8], Option<&'a [u8]>), ModuleIndex>,
    /// Build IDs that the profile lists by path.
    build_ids: HashMap<&'a [u8], &'a [u8]>,
}

impl<'a> Numbers<'a> {
    /// Returns the number of the module with a path, and with the recorded build ID or else the listed one.
    fn number_of(&mut self, path: &'a [u8], recorded: Option<&'a [u8]>) -> ModuleIndex {
        let build_id = recorded.or_else(|| self.build_ids.get(path).copied());
        *self.known.entry((path, build_id)).or_insert_with(|| {
            self.all.push(Module {
                path: path.to_vec(),
                build_id: build_id.map(<[u8]>::to_vec),
            })
        })
    }
}

/// Returns which address spaces are sampled, or have a copy that is.
fn needed_spaces(processes: &Processes, is_sampled: impl Fn(SpaceId) -> bool) -> IndexedTable<SpaceId, bool> {
    let mut is_needed: IndexedTable<SpaceId, bool> = processes.iter().map(|(id, _)| is_sampled(id)).collect();
    let copies: Vec<(SpaceId, SpaceId)> = processes
        .iter()
        .filter_map(|(id, space)| Some((id, space.parent?.0)))
        .collect();
    // A process comes after the one that it was copied from.
    for (copy, original) in copies.into_iter().rev() {
        is_needed[original] |= is_needed[copy];
    }
    is_needed
}

impl Modules {
    /// Reads the maps of a profile's processes, as far as `is_sampled` or a process copied from them is. `kernel_maps` are
    /// those of the kernel.
    pub fn new(
        IndexedProfile { profile, index }: &IndexedProfile<'_>,
        kernel_maps: &[KernelMap<'_>],
        is_sampled: impl Fn(SpaceId) -> bool,
    ) -> Self {
        let processes = &index.processes;
        let mut numbers = Numbers::default();
        let listed = profile.build_ids();
        numbers.build_ids = listed.map(|entry| (entry.name, entry.build_id)).collect();
        let is_needed = needed_spaces(processes, is_sampled);
        let mut spaces = IndexedTable::default();
        for (id, space) in processes.iter() {
            let mut maps = Builder::default();
            for map in space.maps.iter().filter(|_| is_needed[id]) {
                let record = index.kept.at(map.record, profile.endian);
                let mmap = record.and_then(|record| Mmap::parse(&record, profile.endian));
                let mapped = match mmap {
                    Some(mmap) if map.backing.is_file() => Mapped::Module(MappedModule {
                        module: numbers.number_of(mmap.name, mmap.build_id),
                        to_offset: mmap.file_offset.wrapping_sub(mmap.range.start.0),
                        is_executable: !mmap.is_data,
                    }),
                    Some(mmap) if mmap.is_data && mmap.is_stack_or_heap() => Mapped::Data,
                    _ => Mapped::Other,
                };
                maps.put(map.range, map.time, mapped);
            }
            // Of those that are not needed, it is known that they have maps, but not which.
            spaces.push(SpaceModules {
                maps: (!space.maps.is_empty()).then(|| maps.finish()),
                parent: space.parent,
            });
        }
        let mut kernel: Vec<(AddressRange, ModuleIndex)> = kernel_maps
            .iter()
            .map(|map| (map.range, numbers.number_of(map.name, map.build_id)))
            .collect();
        kernel.sort_unstable_by_key(|&(range, _)| range.start);
        let is_object = |module: &Module| store::has_functions(base_name(&module.path)).is_some();
        Self {
            are_objects: numbers.all.map(is_object),
            all: numbers.all,
            spaces,
            kernel,
        }
    }

    /// Whether a module is an object of jitinject or perf inject, in a profile that was injected before.
    pub fn has_jit_code(&self, module: ModuleIndex) -> bool {
        self.are_objects[module]
    }

    /// Returns the module that is mapped at an address, if any, and an interval around `time` during which that stays so. It may
    /// stay so for longer.
    pub fn module_at(
        &self,
        space: SpaceId,
        address: Address,
        time: Time,
    ) -> (Option<MappedModule>, Range<Time>) {
        match self.mapping_at(space, address, time) {
            (Some(Mapped::Module(module)), times) => (Some(module), times),
            (Some(Mapped::Data | Mapped::Other) | None, times) => (None, times),
        }
    }

    /// Whether an address is in the stack or the heap of a process, and these are not executable.
    pub fn has_data(&self, space: SpaceId, address: Address, time: Time) -> bool {
        matches!(self.mapping_at(space, address, time).0, Some(Mapped::Data))
    }

    /// Returns what is mapped at an address of an address space or its ancestors, and an interval around `time` during which that
    /// stays so.
    fn mapping_at(&self, space: SpaceId, address: Address, time: Time) -> (Option<Mapped>, Range<Time>) {
        let mut times = Time(0)..Time::MAX;
        let (mut space, mut seen) = (space, time);
        for _ in 0..MAX_GENERATIONS {
            let here = &self.spaces[space];
            if let Some(maps) = &here.maps {
                times = intersection(times, as_inherited(maps.times_at(address, seen), seen < time));
                if let Some(found) = maps.at(address, seen) {
                    return (Some(found.value), times);
                }
            }
            let Some((parent, forked)) = here.parent else {
                break;
            };
            (space, seen) = (parent, seen.min(forked));
        }
        (None, times)
    }

    /// Returns the part of the kernel at an address.
    pub fn in_kernel(&self, address: Address) -> Option<ModuleIndex> {
        let after = self.kernel.partition_point(|(range, _)| range.start <= address);
        let &(range, module) = self.kernel.get(after.checked_sub(1)?)?;
        range.contains(address).then_some(module)
    }

    /// Returns the name of a module without its folder.
    pub fn name(&self, module: ModuleIndex) -> String {
        printable(base_name(&self.all[module].path))
    }

    /// Returns the path of a module.
    pub fn path(&self, module: ModuleIndex) -> String {
        printable(&self.all[module].path)
    }
}
