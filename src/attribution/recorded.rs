//! What the records other than samples say about threads, the kernel and runtimes.

use crate::bytes::base_name;
use crate::hash::HashMap;
use crate::load::runtime_of_file;
use crate::perf::Profile;
use crate::perf::event::{KernelMap, Mmap, ThreadChange, thread_change};
use crate::perf::record;
use crate::units::{Pid, Tid};

/// Facts from the records of a profile.
#[derive(Debug, Default)]
pub struct Recorded<'a> {
    /// Last name of each thread.
    pub names: HashMap<Tid, &'a [u8]>,
    /// Maps of the kernel and its modules.
    pub kernel_maps: Vec<KernelMap<'a>>,
    /// Runtime of each process that has mapped files of one.
    pub runtimes: HashMap<Pid, &'static str>,
}

impl<'a> Recorded<'a> {
    /// Reads the records of a profile.
    pub fn of(profile: &Profile<'a>) -> Self {
        let mut found = Self::default();
        for record in profile.records() {
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
                    if let Some(map) = Mmap::parse(&record, profile.endian)
                        && let Some(runtime) = runtime_of_file(base_name(map.name))
                    {
                        found.runtimes.entry(map.pid).or_insert(runtime);
                    }
                }
                _ => {}
            }
        }
        found
    }
}
