//! Differences between what two readers see.
//!
//! The readers return records in other orders, and only ours with offsets, so their sums are compared. Single records are
//! looked for only if sums differ.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use crate::collections::hash::{HashMap, RandomState};
use crate::perf::record::Role;
use crate::tools::check::profile::peer::{Peer, Refusal};
use crate::tools::check::profile::seen::{Ours, Seen, SeenValues, kind_name};

/// Number of records of a group in which single ones are looked for. Each takes 48 bytes.
const MAX_RECORDS: usize = 1 << 20;

/// Records that differ in the same way.
pub(super) struct Difference {
    /// Whether the peer does not see the records, rather than other values in them.
    pub is_lost: bool,
    /// Number of records.
    pub count: u64,
    /// Offset of the first one, in bytes from the first record.
    pub offset: u64,
    /// Its type, or an empty string.
    pub record: &'static str,
    /// Its values, or an empty string.
    pub message: String,
}

/// Groups of records that are compared.
const GROUPS: usize = 4;

fn group_of(kind: u32) -> usize {
    match Role::of(kind) {
        Role::Sample => 0,
        Role::Mapping => 1,
        Role::Thread => 2,
        Role::Other => 3,
    }
}

/// What a reader sees of a group.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Sums {
    count: u64,
    /// Sum of the hashes of the records.
    contents: u64,
    /// Sum of the hashes of the records with their values.
    values: u64,
}

/// Adds a record to the sums of its group.
fn add_record(sums: &mut [Sums; GROUPS], seen: &Seen<'_>, hash: &RandomState) {
    if let Some(sums) = sums.get_mut(group_of(seen.kind)) {
        sums.count = sums.count.wrapping_add(1);
        sums.contents = sums.contents.wrapping_add(seen.content);
        sums.values = sums.values.wrapping_add(hash_of(seen, hash));
    }
}

fn hash_of(seen: &Seen<'_>, hash: &RandomState) -> u64 {
    hash.hash_one((seen.content, &seen.values))
}

/// Compares what both readers see.
pub(super) fn find(ours: &Ours<'_>, peer: &Peer<'_>) -> Result<Vec<Difference>, Refusal> {
    let mut sums = [[Sums::default(); GROUPS]; 2];
    let [own, others] = &mut sums;
    peer.each(&mut |seen| add_record(others, seen, peer.hash))?;
    ours.each(&mut |seen, _| add_record(own, seen, ours.hash));
    let mut found = Vec::new();
    for (group, (own, others)) in own.iter().zip(others).enumerate() {
        if own == others {
            continue;
        }
        let before = found.len();
        find_in_group(group, ours, peer, &mut found)?;
        if found.len() == before {
            found.push(Difference {
                is_lost: own.contents != others.contents,
                count: own.count.abs_diff(others.count).max(1),
                offset: 0,
                record: "",
                message: format!("{} records, not {}", others.count, own.count),
            });
        }
    }
    Ok(found)
}

/// A record of ours.
struct Own {
    kind: u32,
    offset: u64,
    /// How many more there are than the peer sees.
    missing: i64,
    /// Sum of the hashes with values, minus those of the peer.
    values: u64,
}

/// Finds the single records of a group that both readers see differently.
fn find_in_group(
    group: usize,
    ours: &Ours<'_>,
    peer: &Peer<'_>,
    found: &mut Vec<Difference>,
) -> Result<(), Refusal> {
    let mut all: HashMap<u64, Own> = HashMap::default();
    ours.each(&mut |seen, offset| {
        if group_of(seen.kind) != group {
            return;
        }
        let is_full = all.len() >= MAX_RECORDS;
        let own = match all.entry(seen.content) {
            // If a record that differs is among those left out, `find` reports the sums of the group.
            Entry::Vacant(_) if is_full => return,
            entry => entry.or_insert(Own {
                kind: seen.kind,
                offset,
                missing: 0,
                values: 0,
            }),
        };
        own.missing = own.missing.saturating_add(1);
        own.values = own.values.wrapping_add(hash_of(seen, ours.hash));
    });
    peer.each(&mut |seen| {
        if let Some(own) = all.get_mut(&seen.content) {
            own.missing = own.missing.saturating_sub(1);
            own.values = own.values.wrapping_sub(hash_of(seen, peer.hash));
        }
    })?;
    let lost = all.iter().filter(|(_, own)| own.missing > 0);
    if let Some((_, first)) = lost.clone().min_by_key(|(_, own)| own.offset) {
        found.push(Difference {
            is_lost: true,
            count: lost.map(|(_, own)| own.missing.unsigned_abs()).sum(),
            offset: first.offset,
            record: kind_name(first.kind),
            message: String::new(),
        });
    }
    let others = all.iter().filter(|(_, own)| own.missing == 0 && own.values != 0);
    if let Some((&content, first)) = others.clone().min_by_key(|(_, own)| own.offset) {
        found.push(Difference {
            is_lost: false,
            count: others.count() as u64,
            offset: first.offset,
            record: kind_name(first.kind),
            message: describe(content, ours, peer)?,
        });
    }
    Ok(())
}

/// Returns the values of a record that differ.
fn describe(content: u64, ours: &Ours<'_>, peer: &Peer<'_>) -> Result<String, Refusal> {
    let (mut own, mut other) = (None, None);
    let fields = |seen: &Seen<'_>| Some(seen.values.as_ref().map(SeenValues::fields));
    ours.each(&mut |seen, _| {
        if own.is_none() && seen.content == content {
            own = fields(seen);
        }
    });
    peer.each(&mut |seen| {
        if other.is_none() && seen.content == content {
            other = fields(seen);
        }
    })?;
    Ok(match (own.flatten(), other.flatten()) {
        (Some(own), Some(other)) => {
            let pairs = own.into_iter().zip(other);
            let changed = pairs.filter(|(own, other)| own != other);
            let changed = changed.map(|((name, own), (_, other))| format!("{name} {other}, not {own}"));
            changed.collect::<Vec<_>>().join("; ")
        }
        _ => "it cannot be parsed".into(),
    })
}
