//! The instrumented program: which function a number means, and where its code is in a process.

use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;

use crate::bytes::base_name;
use crate::elf::segments::Code;
use crate::files::MappedFile;
use crate::files::search::shown;
use crate::hash::HashMap;
use crate::inject::Error;
use crate::inject::input::read_error;
use crate::perf::event::Mmap;
use crate::perf::synthesis::Mapping;
use crate::perf::{Profile, feature, record};
use crate::runtime::xray::Functions;
use crate::units::{Address, AddressRange, BuildId, Pid, Time};

/// Where a program that can be loaded anywhere is where nobody knows: as Linux does it without randomness.
const USUAL_BASE: u64 = 0x5555_5555_4000;
/// The same of one with addresses of 32 bits.
const USUAL_BASE_32: u64 = 0x5655_5000;

/// An instrumented program or library.
#[derive(Debug)]
pub struct Binary {
    /// The file.
    pub file: Arc<MappedFile>,
    /// Its instrumented functions.
    pub functions: Functions,
    /// Its code.
    pub code: Code,
    /// Its path, as maps name it.
    pub path: Vec<u8>,
    /// Where its instrumented functions start, in the order of addresses.
    starts: Vec<Address>,
}

/// How far from where it is linked for a binary is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Base(u64);

impl Base {
    /// Where an address of the file is in memory.
    pub fn loaded(self, linked: Address) -> Address {
        Address(linked.0.wrapping_add(self.0))
    }

    /// Where an address in memory is in the file.
    pub fn linked(self, loaded: Address) -> Address {
        Address(loaded.0.wrapping_sub(self.0))
    }
}

impl Binary {
    /// Opens a file, which must have an instrumentation map.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = MappedFile::open(path).map_err(|cause| read_error(path, cause))?;
        let functions = Functions::read(&file).map_err(|cause| Error::Binary {
            path: path.to_owned(),
            cause,
        })?;
        let full = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut starts = functions.addresses().to_vec();
        starts.sort_unstable();
        Ok(Self {
            starts,
            code: Code::read(&file),
            functions,
            file: Arc::new(file),
            path: full.into_os_string().into_encoded_bytes(),
        })
    }

    /// Where the function starts that has an address: by its symbols, or without any by its instrumented functions.
    pub fn function_at(&self, linked: Address) -> Option<Address> {
        if !self.code.functions.is_empty() {
            return self.code.functions.get(linked);
        }
        let behind = self.starts.partition_point(|&start| start <= linked);
        self.starts.get(behind.checked_sub(1)?).copied()
    }

    /// Where it is loaded if there is no profile that tells.
    pub fn usual_base(&self) -> Base {
        match (
            self.functions.is_position_independent,
            self.functions.pointer_size,
        ) {
            (false, _) => Base(0),
            (true, 4) => Base(USUAL_BASE_32),
            (true, _) => Base(USUAL_BASE),
        }
    }

    /// The maps of its code in a process that has it at `base`.
    pub fn mappings(&self, pid: Pid, base: Base, time: Time) -> impl Iterator<Item = Mapping<'_>> {
        let build_id = <[u8; BuildId::SIZE]>::try_from(&*self.functions.build_id).ok();
        let segments = self.code.segments.iter();
        segments.filter_map(move |segment| {
            // Maps start with a page.
            let before = segment.file_offset % 0x1000;
            let start = Address(base.loaded(segment.range.start).0.checked_sub(before)?);
            Some(Mapping {
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

    /// Where each process of a profile has it; notes if none does.
    pub fn bases(&self, profile: &Profile<'_>, notes: &mut Vec<String>) -> HashMap<Pid, Base> {
        let path = &*self.path;
        let name = base_name(path);
        let build_ids = build_ids(profile);
        let mut bases = HashMap::default();
        let mut others = 0u64;
        for record in profile.records() {
            // Maps that are no code are told only if somebody asked for them.
            if record.misc & record::MISC_MMAP_DATA != 0 {
                continue;
            }
            let Some(map) = Mmap::parse(&record, profile.order) else {
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
                && let Some(linked) = self.code.address(map.file_offset)
            {
                base.insert(Base(map.range.start.0.wrapping_sub(linked.0)));
            }
        }
        if bases.is_empty() {
            let what = match others {
                0 => "is not mapped by any process of the profile",
                _ => "is another build than the one that was recorded",
            };
            notes.push(format!(
                "{} {what}: functions have numbers for names",
                shown(self.file.path())
            ));
        }
        bases
    }
}

/// Whether two build-ids are the same. The kernel's are cut after 20 bytes, and perf's filled up with zeros to as many.
fn same_build_id(recorded: &[u8], own: &[u8]) -> bool {
    let size = own.len().min(BuildId::SIZE);
    let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    recorded.get(..size) == own.get(..size) && recorded.get(size..).is_none_or(is_zero)
}

/// The build-ids that the profile has of files, by their paths.
fn build_ids<'a>(profile: &'a Profile<'_>) -> HashMap<&'a [u8], &'a [u8]> {
    let table = profile.feature(feature::BUILD_ID).unwrap_or_default();
    feature::build_ids(table, profile.order)
        .map(|entry| (entry.name, entry.build_id))
        .collect()
}
