//! The instrumented binary: addresses of functions by ID, and its load address in a process.

use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;

use jitdump::{Address, AddressRange, Time};

use crate::bytes::base_name;
use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::HashMap;
use crate::elf::executable::Executable;
use crate::files::InputFile;
use crate::files::search::without_links;
use crate::perf::process_records::Mmap;
use crate::perf::record;
use crate::perf::synthetic::SyntheticMapping;
use crate::results::diagnostics::issues::CHECK_PATH;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::xray::format::InstrumentationMap;
use crate::units::{BuildId, Pid};

/// Load bias assumed for a position-independent program: where Linux loads it without address space randomization.
const DEFAULT_BASE: u64 = 0x5555_5555_4000;
/// The same for programs with addresses of 32 bits.
const DEFAULT_BASE_32: u64 = 0x5655_5000;

/// An instrumented program or library.
#[derive(Debug)]
pub struct InstrumentedBinary {
    /// The file.
    pub file: Arc<InputFile>,
    /// Its instrumented functions.
    pub functions: InstrumentationMap,
    /// Its code segments and function symbols.
    pub code: Executable,
    /// Canonical path of the file, for mappings.
    pub path: Vec<u8>,
    /// Start addresses of the instrumented functions, sorted.
    starts: Vec<Address>,
}

/// Load bias of a binary: the difference between its addresses in memory and those in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadBias(u64);

impl LoadBias {
    /// Converts an address of the file to one in memory.
    pub fn loaded(self, linked: Address) -> Address {
        Address(linked.0.wrapping_add(self.0))
    }

    /// Converts an address in memory to one of the file.
    pub fn linked(self, loaded: Address) -> Address {
        Address(loaded.0.wrapping_sub(self.0))
    }
}

impl InstrumentedBinary {
    /// Opens a file. Fails if it has no instrumentation map.
    pub fn open(path: &Path) -> Result<Self, Diagnostic> {
        let file =
            InputFile::open(path).map_err(|cause| Diagnostic::cannot_read_named(path, &cause, CHECK_PATH))?;
        let functions = InstrumentationMap::read(&file).map_err(|error| error.in_file(path))?;
        let full = without_links(path).unwrap_or_else(|_| path.to_owned());
        let mut starts = functions.addresses().to_vec();
        starts.sort_unstable();
        Ok(Self {
            starts,
            code: Executable::read(&file),
            functions,
            file: Arc::new(file),
            path: full.into_os_string().into_encoded_bytes(),
        })
    }

    /// Returns the start of the function at an address. It is looked up in the symbols or, if there are none, among the
    /// instrumented functions.
    pub fn function_at(&self, linked: Address) -> Option<Address> {
        if !self.code.functions.is_empty() {
            return self.code.functions.get(linked);
        }
        let behind = self.starts.partition_point(|&start| start <= linked);
        self.starts.get(behind.checked_sub(1)?).copied()
    }

    /// Returns the load bias to assume without a profile.
    pub fn default_base(&self) -> LoadBias {
        match (
            self.functions.is_position_independent,
            self.functions.pointer_size,
        ) {
            (false, _) => LoadBias(0),
            (true, 4) => LoadBias(DEFAULT_BASE_32),
            (true, _) => LoadBias(DEFAULT_BASE),
        }
    }

    /// Returns the mappings of its code in a process.
    pub fn mappings(
        &self,
        pid: Pid,
        base: LoadBias,
        time: Time,
    ) -> impl Iterator<Item = SyntheticMapping<'_>> {
        let build_id = <[u8; BuildId::SIZE]>::try_from(&*self.functions.build_id).ok();
        let segments = self.code.segments.0.iter();
        segments.filter_map(move |segment| {
            // Mappings start at a page.
            let before = segment.file_offset % 0x1000;
            let start = Address(base.loaded(segment.range.start).0.checked_sub(before)?);
            Some(SyntheticMapping {
                pid,
                time,
                range: AddressRange::new(start, segment.range.size().saturating_add(before))?,
                file_offset: segment.file_offset.saturating_sub(before),
                name: &self.path,
                build_id: build_id.map(BuildId),
                is_code: true,
            })
        })
    }

    /// Where each process of a profile has it; reports if none does.
    pub fn bases(
        &self,
        IndexedProfile { profile, index }: &IndexedProfile<'_>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> HashMap<Pid, LoadBias> {
        let path = &*self.path;
        let name = base_name(path);
        let build_ids = profile.build_ids().map(|entry| (entry.name, entry.build_id));
        let build_ids: HashMap<&[u8], &[u8]> = build_ids.collect();
        let mut bases = HashMap::default();
        let mut others = 0u64;
        for record in index.kept.iter(profile.endian) {
            // Data mappings are recorded only on request.
            if record.misc & record::MISC_MMAP_DATA != 0 {
                continue;
            }
            let Some(map) = Mmap::parse(&record, profile.endian) else {
                continue;
            };
            let build_id = map.build_id.or_else(|| build_ids.get(map.name).copied());
            let own = &*self.functions.build_id;
            let is_it = match build_id {
                Some(build_id) if !own.is_empty() => same_build_id(build_id, own),
                _ => map.name == path || base_name(map.name) == name,
            };
            if !is_it {
                others = others.saturating_add(u64::from(map.name == path));
                continue;
            }
            if let Entry::Vacant(base) = bases.entry(map.pid)
                && let Some(linked) = self.code.segments.address(map.file_offset)
            {
                base.insert(LoadBias(map.range.start.0.wrapping_sub(linked.0)));
            }
        }
        if bases.is_empty() {
            let issue = match others {
                0 => Issue::XrayBinaryNotMapped,
                _ => Issue::XrayBinaryOtherBuild,
            };
            diagnostics.push(Diagnostic::new(issue).in_file(self.file.path()));
        }
        bases
    }
}

/// Compares build IDs. The kernel's are cut after 20 bytes, and perf's are padded with zeros to 20.
fn same_build_id(recorded: &[u8], own: &[u8]) -> bool {
    let size = own.len().min(BuildId::SIZE);
    let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    recorded.get(..size) == own.get(..size) && recorded.get(size..).is_none_or(is_zero)
}
