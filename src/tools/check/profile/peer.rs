//! linux-perf-data, the reader of samply and other programs.

use std::any::Any;
use std::cell::Cell;
use std::hash::BuildHasher;
use std::io::{Cursor, Read};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use linux_perf_data::linux_perf_event_reader::{EventRecord, Mmap2FileId, RawData, RawEventRecord};
use linux_perf_data::{Error, PerfFileReader, PerfFileRecord};

use crate::collections::hash::RandomState;
use crate::tools::check::profile::seen::{Seen, SeenChain, SeenValues};

/// Why the library did not read a file.
pub(super) enum Refusal {
    /// It returns an error.
    Rejected {
        /// Number of records before.
        records: u64,
        /// The error.
        error: String,
    },
    /// It panics, with this message.
    Crashed(String),
}

/// A file for linux-perf-data, with the sizes that it can read ([`super::limits`]).
pub(super) struct Peer<'f> {
    /// Bytes of the file.
    pub file: &'f [u8],
    /// Whether it is in pipe format.
    pub is_pipe: bool,
    /// The hash of both readers.
    pub hash: &'f RandomState,
}

impl Peer<'_> {
    /// Passes all records to `see`, in the order of their times. Fails if the library does.
    pub fn each(&self, see: &mut dyn FnMut(&Seen<'_>)) -> Result<(), Refusal> {
        let mut records = 0_u64;
        let mut see = |seen: &Seen<'_>| {
            records = records.saturating_add(1);
            see(seen);
        };
        let file = Cursor::new(self.file);
        let result = catch(|| -> Result<(), Error> {
            if self.is_pipe {
                self.pass_records(PerfFileReader::parse_pipe(file)?, &mut see)
            } else {
                self.pass_records(PerfFileReader::parse_file(file)?, &mut see)
            }
        });
        result
            .map_err(Refusal::Crashed)?
            .map_err(|error| Refusal::Rejected {
                records,
                error: error.to_string(),
            })
    }

    /// Passes the records of a profile to `see`, up to the first error.
    fn pass_records<R: Read>(
        &self,
        mut reader: PerfFileReader<R>,
        see: &mut dyn FnMut(&Seen<'_>),
    ) -> Result<(), Error> {
        // As in `Ours::seen`: other hashes mean other records.
        let content = |kind: u32, misc: u16, data: RawData<'_>| {
            let body = data.as_slice();
            self.hash.hash_one((kind, misc, body))
        };
        while let Some(record) = reader.record_iter.next_record(&mut reader.perf_file)? {
            match record {
                PerfFileRecord::EventRecord { attr_index, record } => {
                    let kind = record.record_type.0;
                    see(&Seen {
                        kind,
                        content: content(kind, record.misc, record.data),
                        values: values_of_record(attr_index, &record, self.hash),
                    });
                }
                PerfFileRecord::UserRecord(record) => {
                    let kind = record.record_type.record_type().0;
                    see(&Seen {
                        kind,
                        content: content(kind, record.misc, record.data),
                        values: Some(SeenValues::default()),
                    });
                }
            }
        }
        Ok(())
    }
}

/// Returns the values that the library reads in a record of an event; `None` if it cannot parse it.
fn values_of_record<'r>(
    event: usize,
    record: &RawEventRecord<'r>,
    hash: &RandomState,
) -> Option<SeenValues<'r>> {
    let values = SeenValues {
        time: record.timestamp(),
        ..SeenValues::default()
    };
    // The library has the kernel's unsigned IDs as signed numbers.
    let id = |id: i32| Some(id as u32);
    Some(match record.parse().ok()? {
        EventRecord::Sample(sample) => SeenValues {
            event: Some(event),
            pid: sample.pid.map(|pid| pid as u32),
            tid: sample.tid.map(|tid| tid as u32),
            address: sample.ip,
            period: sample.period,
            chain: sample.callchain.map(|chain| {
                let addresses = (0..chain.len()).filter_map(|at| chain.get(at));
                SeenChain::of(addresses, hash)
            }),
            ..values
        },
        EventRecord::Mmap(map) => SeenValues {
            pid: id(map.pid),
            tid: id(map.tid),
            address: Some(map.address),
            size: Some(map.length),
            file_offset: Some(map.page_offset),
            name: Some(map.path.as_slice()),
            ..values
        },
        EventRecord::Mmap2(map) => SeenValues {
            pid: id(map.pid),
            tid: id(map.tid),
            address: Some(map.address),
            size: Some(map.length),
            file_offset: Some(map.page_offset),
            build_id: match map.file_id {
                Mmap2FileId::BuildId(build_id) => Some(build_id.into()),
                Mmap2FileId::InodeAndVersion(_) => None,
            },
            name: Some(map.path.as_slice()),
            ..values
        },
        EventRecord::Comm(comm) => SeenValues {
            pid: id(comm.pid),
            tid: id(comm.tid),
            name: Some(comm.name.as_slice()),
            ..values
        },
        EventRecord::Fork(change) | EventRecord::Exit(change) => SeenValues {
            pid: id(change.pid),
            parent: id(change.ppid),
            tid: id(change.tid),
            ..values
        },
        _ => values,
    })
}

/// Runs a reader of others. Returns the message of its panic, if it does, which is not printed.
fn catch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    thread_local! {
        static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                print(panic);
            }
        }));
    });
    IS_CAUGHT.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    IS_CAUGHT.set(false);
    result.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panic without a message").to_owned()
}
