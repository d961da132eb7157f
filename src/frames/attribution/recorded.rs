//! What the records other than samples say about threads and the kernel.

use crate::code::profile_index::IndexedProfile;
use crate::collections::hash::HashMap;
use crate::perf::event::{KernelMap, ThreadChange, thread_change};
use crate::perf::record;
use crate::units::Tid;

/// Facts from the records of a profile.
#[derive(Debug, Default)]
pub struct Recorded<'a> {
    /// Last name of each thread.
    pub names: HashMap<Tid, &'a [u8]>,
    /// Maps of the kernel and its modules.
    pub kernel_maps: Vec<KernelMap<'a>>,
}

impl<'a> Recorded<'a> {
    /// Reads the records of a profile.
    pub fn of(IndexedProfile { profile, index }: &'a IndexedProfile<'_>) -> Self {
        let mut found = Self::default();
        for record in index.kept.iter(profile.endian) {
            match record.kind {
                record::COMM => {
                    if let Some((_, tid, ThreadChange::Name(name))) = thread_change(&record, profile.endian) {
                        found.names.insert(Tid(tid), name);
                    }
                }
                record::MMAP | record::MMAP2 => {
                    found
                        .kernel_maps
                        .extend(KernelMap::parse(&record, profile.endian));
                }
                _ => {}
            }
        }
        found
    }
}
