//! What a reader sees in a record, and what ours does.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher};

use crate::bytes::{Reader, until_nul};
use crate::collections::hash::RandomState;
use crate::perf::record::{self, HEADER_SIZE, Record, Role};
use crate::perf::sample::Sample;
use crate::perf::{Container, Profile};

/// A record as a reader sees it.
pub(super) struct Seen<'s> {
    /// Type of the record.
    pub kind: u32,
    /// Hash of the type, the flags, and the bytes after the header.
    pub content: u64,
    /// The values in the record; `None` if the reader cannot parse it.
    pub values: Option<SeenValues<'s>>,
}

/// The values in a record that tell what was sampled, and what was in memory.
#[derive(Hash, Default)]
pub(super) struct SeenValues<'s> {
    /// Index of the event of a sample.
    pub event: Option<usize>,
    pub time: Option<u64>,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub parent: Option<u32>,
    /// Sampled address, or start of a mapping.
    pub address: Option<u64>,
    pub size: Option<u64>,
    pub file_offset: Option<u64>,
    pub build_id: Option<Cow<'s, [u8]>>,
    /// Path of a mapping, or name of a thread.
    pub name: Option<Cow<'s, [u8]>>,
    pub period: Option<u64>,
    pub chain: Option<SeenChain>,
}

/// A call chain.
#[derive(Hash)]
pub(super) struct SeenChain {
    count: u64,
    last: u64,
    /// Hash of the addresses.
    addresses: u64,
}

impl SeenChain {
    /// Summarizes the addresses of a call chain.
    pub fn of(addresses: impl Iterator<Item = u64>, hash: &RandomState) -> Self {
        let (mut count, mut last) = (0_u64, 0);
        let mut hasher = hash.build_hasher();
        for address in addresses {
            hasher.write_u64(address);
            count = count.saturating_add(1);
            last = address;
        }
        let addresses = hasher.finish();
        Self {
            count,
            last,
            addresses,
        }
    }
}

impl SeenValues<'_> {
    /// Returns each value by its name.
    pub fn fields(&self) -> [(&'static str, String); 12] {
        fn number<N: std::fmt::LowerHex>(number: Option<N>) -> String {
            number.map_or("none".into(), |number| format!("{number:#x}"))
        }
        fn decimal<N: std::fmt::Display>(number: Option<N>) -> String {
            number.map_or("none".into(), |number| number.to_string())
        }
        let build_id = self.build_id.as_deref();
        let build_id = build_id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect());
        let name = self.name.as_deref();
        let chain = self.chain.as_ref();
        [
            ("event", decimal(self.event)),
            ("time", decimal(self.time)),
            ("PID", decimal(self.pid)),
            ("TID", decimal(self.tid)),
            ("parent", decimal(self.parent)),
            ("address", number(self.address)),
            ("size", number(self.size)),
            ("file offset", number(self.file_offset)),
            ("build ID", decimal::<String>(build_id)),
            ("name", decimal(name.map(String::from_utf8_lossy))),
            ("period", decimal(self.period)),
            (
                "call chain",
                decimal(chain.map(|chain| format!("{} addresses to {:#x}", chain.count, chain.last))),
            ),
        ]
    }
}

/// Returns the name of a record type in findings; empty for types that are seldom checked.
pub(super) fn kind_name(kind: u32) -> &'static str {
    match kind {
        record::SAMPLE => "SAMPLE",
        record::MMAP => "MMAP",
        record::MMAP2 => "MMAP2",
        record::COMM => "COMM",
        record::FORK => "FORK",
        record::EXIT => "EXIT",
        record::HEADER_TRACING_DATA => "HEADER_TRACING_DATA",
        _ => "",
    }
}

/// Returns the number of records at the start of a pipe that hold attributes and features.
pub(super) fn leading_header_records(profile: &Profile<'_>) -> u64 {
    let mut count = 0_u64;
    let mut records = profile.records();
    while profile.container == Container::Pipe
        && let Some(record) = records.next()
        && matches!(record.kind, record::HEADER_ATTR | record::HEADER_FEATURE)
    {
        count = count.saturating_add(1);
    }
    count
}

/// Our reader.
pub(super) struct Ours<'p> {
    /// The profile, decompressed.
    pub profile: &'p Profile<'p>,
    /// The hash of both readers.
    pub hash: &'p RandomState,
}

impl Ours<'_> {
    /// Reads all records that linux-perf-data should return. `see` gets them with their offsets in bytes from the first
    /// one.
    pub fn each(&self, see: &mut dyn FnMut(&Seen<'_>, u64)) {
        let mut skipped = leading_header_records(self.profile);
        let mut records = self.profile.intact_records();
        while let Some(record) = records.next() {
            if skipped > 0 {
                skipped = skipped.saturating_sub(1);
            } else if record.kind != record::FINISHED_ROUND {
                see(&self.seen(&record), record.offset);
            }
        }
    }

    fn seen<'r>(&self, record: &Record<'r>) -> Seen<'r> {
        let mut body = Cow::from(record.bytes.get(HEADER_SIZE..).unwrap_or_default());
        if !record.payload.is_empty() {
            body.to_mut().extend_from_slice(record.payload);
        }
        Seen {
            kind: record.kind,
            content: self.hash.hash_one((record.kind, record.misc, body)),
            values: self.values(record),
        }
    }

    /// Returns the values that our reader reads in a record; `None` if it cannot parse it.
    fn values<'r>(&self, record: &Record<'r>) -> Option<SeenValues<'r>> {
        let endian = self.profile.endian;
        if record.kind >= record::USER_TYPE_START {
            return Some(SeenValues::default());
        }
        let event = self.profile.attrs.index_of(record, endian);
        let attr = self.profile.attrs.all().get(event)?;
        let values = SeenValues {
            time: attr.time_of(record, endian).map(|time| time.0),
            ..SeenValues::default()
        };
        let mut body = record.body(endian);
        Some(match Role::of(record.kind) {
            Role::Sample => {
                let sample = Sample::parse(record, attr, endian);
                if sample.is_truncated {
                    return None;
                }
                let chain = sample.callchain.iter().map(|address| address.0);
                SeenValues {
                    event: Some(event),
                    pid: sample.pid.map(|pid| pid.0),
                    tid: sample.tid.map(|tid| tid.0),
                    address: sample.ip.map(|ip| ip.0),
                    period: sample.period,
                    chain: sample.callchain_offset.map(|_| SeenChain::of(chain, self.hash)),
                    ..values
                }
            }
            Role::Mapping => SeenValues {
                pid: Some(body.u32()?),
                tid: Some(body.u32()?),
                address: Some(body.u64()?),
                size: Some(body.u64()?),
                file_offset: Some(body.u64()?),
                build_id: match record.kind {
                    record::MMAP2 => build_id(record, &mut body)?,
                    _ => None,
                },
                name: Some(until_nul(body.rest()).into()),
                ..values
            },
            Role::Thread if record.kind == record::COMM => SeenValues {
                pid: Some(body.u32()?),
                tid: Some(body.u32()?),
                name: Some(until_nul(body.rest()).into()),
                ..values
            },
            Role::Thread => SeenValues {
                pid: Some(body.u32()?),
                parent: Some(body.u32()?),
                tid: Some(body.u32()?),
                ..values
            },
            Role::Other => values,
        })
    }
}

/// Reads the identity, protection and flags of a mapping. Returns the build ID, if it has one.
fn build_id<'r>(record: &Record<'r>, body: &mut Reader<'r>) -> Option<Option<Cow<'r, [u8]>>> {
    let identity = body.bytes(24)?;
    body.skip(8)?;
    if record.misc & record::MISC_MMAP_BUILD_ID == 0 {
        return Some(None);
    }
    let (&size, rest) = identity.split_first()?;
    Some(Some(rest.get(3..)?.get(..size.into())?.into()))
}
