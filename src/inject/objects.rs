//! Writing functions and symbols as ELF objects, and their places in the profile.
//!
//! Sets of functions have these names:
//!
//! - group (`grouping`): functions that one mapping can cover, because nothing else is ever between them
//! - neighbourhood: what decides that, the other code and unknown frames around functions
//! - stretch (`sharing`): groups with nothing but unknown frames between them
//! - object: one ELF file, with a block for each of its groups; an *image* of memory if it has a single one

mod free_addresses;
pub mod functions;
pub mod grouping;
mod job;
mod neighbourhood;
mod sharing;
pub mod source_paths;
pub mod symbols;

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::code::perf_map_symbols::SymbolTableIndex;
use crate::code::process::{Processes, SpaceId};
use crate::code::timeline::{CodeMapping, FileIndex, FreedRange, FunctionId};
use crate::collections::indexed_table::IndexedTable;
use crate::collections::range_map::RangeSet;
use crate::elf::object::TEXT_OFFSET;
use crate::frames::source_files::names_and_lines::NamesAndLines;
use crate::frames::unwind::made_tables;
use crate::inject::objects::grouping::{CodeToWrite, FunctionGroups, MAX_HOLE, RecordsSize};
use crate::inject::objects::sharing::ObjectMembers;
use crate::inject::objects::source_paths::LineOptions;
use crate::inject::options::{InjectOptions, Layout, Tiers};
use crate::load::{Recording, UsedFile, UsedPerfMap};
use crate::perf::synthetic;
use crate::perf::{Profile, feature};
use crate::results::diagnostics::Issue;
use crate::results::name_style::NameStyle;
use crate::units::{BuildId, Pid};
use jitdump::Machine;
use jitdump::Tally;
use jitdump::names::NameParts;
use jitdump::{AddressRange, Time};
use object::elf;

/// An object that was written, and its mapping.
#[derive(Clone, Debug)]
pub struct PlacedObject {
    /// Process of the mapping.
    pub pid: Pid,
    /// Address space of the mapping.
    pub space: SpaceId,
    /// Time of the mapping.
    pub time: Time,
    /// Position among the events of the address space.
    pub sequence: u32,
    /// Address range of its code, or of a part of it.
    pub range: AddressRange,
    /// File offset of the first byte of that range.
    pub file_offset: u64,
    /// Address range and file offset of its unwinding tables; `None` if they are empty.
    pub tables: Option<(AddressRange, u64)>,
    /// Build ID of the object.
    pub build_id: BuildId,
    /// Path of the object, as written to the profile.
    pub path: Arc<[u8]>,
}

/// All objects that were written.
#[derive(Debug, Default)]
pub struct Objects {
    /// Objects and their mappings: first those of functions, by address space and time, then those of perf
    /// map symbols, by symbol.
    pub placed: Vec<PlacedObject>,
    /// Number of functions in them.
    pub functions: u64,
    /// Number of objects for functions.
    pub function_objects: u64,
    /// Number of perf map symbols in them.
    pub symbols: u64,
    /// Number of objects for perf map symbols, each of which may be mapped several times.
    pub symbol_objects: u64,
    /// Faults in the line tables, for each dump.
    pub line_faults: IndexedTable<FileIndex, Tally<Issue>>,
    /// What objects lack, and why.
    pub faults: Tally<Issue>,
}

/// Input for writing objects.
pub struct ObjectInputs<'a> {
    /// Files that functions come from.
    pub files: &'a IndexedTable<FileIndex, UsedFile<'a>>,
    /// Perf maps that symbols come from.
    pub maps: &'a IndexedTable<SymbolTableIndex, UsedPerfMap<'a>>,
    /// Processes of the functions and symbols.
    pub processes: &'a Processes,
    /// Machine that was recorded, for files that do not specify their own.
    pub recorded: Machine,
    /// How functions are grouped.
    pub layout: Layout,
    /// How line tables are written.
    pub lines: &'a LineOptions,
    /// Names and lines of functions.
    pub names_and_lines: &'a NamesAndLines<'a>,
    /// Whether names of symbols include the compiler.
    pub has_tiers: bool,
    /// Form of the names.
    pub names: &'a NameStyle,
    /// Whether readers unwind stacks.
    pub has_copied_stacks: bool,
}

impl<'a> ObjectInputs<'a> {
    /// Takes the input from a recording.
    pub fn new(
        options: &'a InjectOptions,
        recording: &'a Recording<'a>,
        names_and_lines: &'a NamesAndLines<'a>,
    ) -> Self {
        Self {
            files: &recording.runtime_files.used,
            maps: &recording.maps,
            processes: &recording.profile.index.processes,
            recorded: recording.machine(),
            layout: options.layout,
            lines: &options.lines,
            names_and_lines,
            has_tiers: options.tiers == Tiers::Symbols,
            names: &options.names,
            has_copied_stacks: recording.profile.profile.attrs.copies_stacks(),
        }
    }
}

impl ObjectInputs<'_> {
    /// Returns the name of a symbol for code: in the requested style, followed by its compiler if requested. `declared`
    /// returns the function's name and location beside the name of the code.
    fn symbol_name<'n, 'p>(
        &self,
        name: Cow<'n, [u8]>,
        declared: impl FnOnce() -> Option<NameParts<'p>>,
        tier: Option<&[u8]>,
    ) -> Cow<'n, [u8]> {
        let name = self.names.apply_declared(name, declared, tier);
        match tier.filter(|_| self.has_tiers) {
            Some(tier) => [&name, &b" ["[..], tier, b"]"].concat().into(),
            None => name,
        }
    }

    /// Returns the size of a function's records in bytes.
    pub fn record_bytes(&self, function: FunctionId) -> u64 {
        self.files[function.file].code.record_bytes(function.function)
    }

    /// Whether the machine code of a function is known.
    fn has_code(&self, function: FunctionId) -> bool {
        self.files[function.file].code.has_code(function.function)
    }

    /// Groups functions that a single map can cover. `mapped` must be from one selection.
    pub fn groups(&self, mapped: CodeToWrite<'_>) -> FunctionGroups {
        let are_few = mapped.are_few();
        let max_hole = match self.layout {
            Layout::Function => return FunctionGroups::of_one(mapped.mappings),
            Layout::Auto if are_few && !self.has_copied_stacks => {
                return FunctionGroups::of_one(mapped.mappings);
            }
            Layout::Auto if are_few => TEXT_OFFSET.saturating_sub(1),
            Layout::Auto | Layout::Image => MAX_HOLE,
        };
        FunctionGroups::as_large_as_can_be(self.processes, mapped, max_hole, |mapping| {
            self.records_size(mapping)
        })
    }

    /// Returns the objects for groups of `mapped`.
    pub fn objects<'g>(&self, mapped: CodeToWrite<'_>, groups: &'g FunctionGroups) -> Vec<ObjectMembers<'g>> {
        if self.can_share() {
            sharing::shared_objects(self.processes, mapped, groups, |mapping| {
                self.records_size(mapping)
            })
        } else {
            sharing::separate_objects(groups)
        }
    }

    /// Whether perf map symbols share objects.
    fn shares_symbols(&self, mapped: CodeToWrite<'_>) -> bool {
        self.can_share() && (self.layout == Layout::Image || !mapped.are_few())
    }

    /// Whether an object may be at several addresses: readers do not unwind stacks, and the user has not asked for an object
    /// for each function.
    fn can_share(&self) -> bool {
        self.layout != Layout::Function && !self.has_copied_stacks
    }

    /// Whether functions of a machine that have no unwinding tables get some. Readers use them where they unwind stacks; perf
    /// on AArch64 does so by the sampled link register, too.
    fn makes_tables(&self, machine: Machine) -> bool {
        made_tables::is_supported(machine) && (self.has_copied_stacks || machine.id == elf::EM_AARCH64)
    }

    fn records_size(&self, mapping: &CodeMapping) -> RecordsSize {
        RecordsSize {
            bytes: self.record_bytes(mapping.function),
            has_code: self.has_code(mapping.function),
        }
    }
}

/// Alignment of unwinding tables, in bytes.
pub const TABLE_ALIGN: u64 = 16;

/// Returns the path of an object as written to the profile.
///
/// Quirk: perf with libdw assumes that perf inject wrote a file whose path starts with `/tmp/jitted-`, and
/// looks for code at offsets that these objects do not use (unwind-libdw.c, since Linux 6.8).
pub fn path_for_readers(path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    match path.strip_prefix(b"/tmp/jitted-") {
        Some(rest) => [b"/tmp/./jitted-", rest].concat(),
        None => path.to_vec(),
    }
}

/// Smallest size of a page, in bytes.
const PAGE: u64 = 4096;

/// Lets the mapping of each object include the address after its code, unless something else is there.
///
/// Quirk: a call that never returns may be the last instruction of a function. perf with libdw (6.12, 7.3) looks up its return
/// address, and loses the stack if no object is there, or the wrong one.
///
/// The address is on the page of the last instruction, so no other memory is there.
pub fn include_ends(placed: &mut [PlacedObject], freed: &[FreedRange]) {
    let mut used = RangeSet::with_gap(0);
    let ranges = placed.iter().flat_map(|object| {
        let tables = object.tables.map(|(range, _)| range);
        std::iter::once(object.range).chain(tables)
    });
    let freed = freed.iter().map(|freed| freed.range);
    ranges.chain(freed).for_each(|range| used.insert(range));
    for object in placed {
        let end = AddressRange::new(object.range.end, 1);
        let is_free = |end: &AddressRange| !end.start.0.is_multiple_of(PAGE) && !used.overlaps(*end);
        if let Some(end) = end.filter(is_free) {
            object.range.end = end.end;
        }
    }
}

/// Returns each object once. Those that are mapped more than once are adjacent.
pub fn distinct(objects: &[PlacedObject]) -> impl Iterator<Item = &PlacedObject> {
    let same = objects.chunk_by(|one, other| one.path == other.path);
    same.filter_map(<[_]>::first)
}

/// Returns entries for the objects in the profile's build-ID table, or nothing if it has no such table.
///
/// perf, including `perf archive`, only needs the build IDs in mmap records. A new table with nothing but the
/// objects would hide all other files from `perf buildid-list`, which then ignores mmap records.
///
/// Quirk: perf 6.12 sorts its whole list again for each entry: with 10,000 of them, perf report takes four
/// times as long, and with 100,000 it does not end. So there are none for more than [`MAX_LISTED`] objects.
pub fn build_id_entries(profile: &Profile<'_>, objects: &[PlacedObject]) -> Vec<u8> {
    let mut entries = Vec::new();
    let is_short = distinct(objects).nth(MAX_LISTED).is_none();
    if is_short && profile.feature(feature::BUILD_ID).is_some() {
        for object in distinct(objects) {
            synthetic::write_build_id_entry(&mut entries, profile.endian, &object.build_id, &object.path);
        }
    }
    entries
}

/// Maximum number of objects to list in the profile's build-ID table. With more objects, none is listed.
const MAX_LISTED: usize = 1000;

#[cfg(test)]
pub(super) mod tests {
    use jitdump::Address;

    use super::*;
    use crate::perf::Container;
    use crate::perf::attr::Attrs;
    use crate::perf::feature::Feature;
    use crate::perf::record::data::ProfileBytes;
    use crate::perf::testing::ORDER;

    /// Returns an object that was written to a path.
    pub fn object_at(path: &[u8]) -> PlacedObject {
        PlacedObject {
            pid: Pid(1),
            space: SpaceId(0),
            time: Time(1),
            sequence: 0,
            range: AddressRange::new(Address(0x1000), 0x100).unwrap(),
            file_offset: 0,
            tables: None,
            build_id: BuildId([7; 20]),
            path: path.into(),
        }
    }

    #[test]
    fn up_to_1000_objects_are_listed_and_of_more_none() {
        let table = Feature::new(feature::BUILD_ID, &[][..]);
        let profile = Profile {
            container: Container::File,
            endian: ORDER,
            attr_entries: Vec::new(),
            attrs: Attrs::default(),
            data: ProfileBytes::from(&[][..]),
            data_offset: 0,
            features: vec![table],
            header_records: Vec::new(),
            faults: Tally::default(),
        };
        let listed = |count: u32| {
            // Each is mapped twice.
            let objects = (0..2 * count).map(|at| object_at(format!("/objects/{}", at / 2).as_bytes()));
            let entries = build_id_entries(&profile, &objects.collect::<Vec<_>>());
            feature::build_ids(&entries, ORDER).count()
        };
        assert_eq!(listed(1000), 1000);
        assert_eq!(listed(1001), 0);
    }
}
