//! Determines what is intact in a damaged profile.

use std::collections::HashSet;

use jitdump::ByteOrder;

use crate::cases::Case;
use crate::pieces::{Piece, Pieces, RECORDS_SIZE};
use crate::profile::Profile;
use crate::verdict::whole;

/// Maximum number of intact records between two damaged ones that may be skipped: so few can't be distinguished
/// from other bytes.
const TOO_FEW: usize = 3;

/// The samples that must be read, except for those of processes with other damaged records.
pub struct Intact {
    /// PID and time.
    samples: HashSet<(u32, u64)>,
    /// PIDs with unknown mappings.
    unsure: HashSet<u32>,
}

impl Intact {
    /// Returns whether a sample must be read.
    pub fn has(&self, pid: u32, time: u64) -> bool {
        self.samples.contains(&(pid, time)) && !self.unsure.contains(&pid)
    }
}

/// Returns what is intact in a damaged profile; `None` if its header is damaged, or records that affect all
/// processes.
pub fn of(case: &Case, profile: &Pieces) -> Option<Intact> {
    let endian = case.profile.endian;
    let whole = whole(&case.profile, profile);
    if !profile
        .pieces
        .first()
        .is_some_and(|head| is_same_head(&case.profile.pieces[0], head))
    {
        return None;
    }
    let is_whole = |piece: &Piece| piece.record.is_some_and(|record| whole.contains(&record));
    let found = believable(profile, is_whole);
    let mut unsure = HashSet::new();
    let before = case
        .profile
        .pieces
        .iter()
        .filter(|it| it.record.is_some_and(|record| !found.contains(&record)));
    let after = profile
        .pieces
        .iter()
        .filter(|it| it.record.is_some() && !is_whole(it));
    for piece in before.chain(after) {
        unsure.extend(processes(&piece.bytes, endian)?);
    }
    let mut file = case.profile.clone();
    file.pieces
        .retain(|it| it.record.is_none_or(|record| found.contains(&record)));
    let records = file.pieces.iter().filter(|it| it.record.is_some());
    let size: usize = records.map(|it| it.bytes.len()).sum();
    let mut word = Vec::new();
    endian.write_u64(&mut word, size as u64);
    let mut bytes = file.bytes();
    bytes[RECORDS_SIZE].copy_from_slice(&word);
    let frames = Profile::read(&bytes)?.frames;
    let samples = frames.iter().map(|frame| (frame.pid, frame.time)).collect();
    Some(Intact { samples, unsure })
}

/// Returns the intact records, without short runs between damaged records, and without those after the end in the
/// header.
fn believable(profile: &Pieces, is_whole: impl Fn(&Piece) -> bool) -> HashSet<usize> {
    let head = profile.pieces.first().map(|head| &head.bytes[..]);
    let size = head.and_then(|head| profile.endian.u64_at(head, RECORDS_SIZE.start));
    let mut left = size.unwrap_or(0);
    let records = profile.pieces.iter().skip(1).map_while(|piece| {
        left = left.checked_sub(piece.bytes.len() as u64)?;
        Some(piece)
    });
    let records: Vec<&Piece> = records.collect();
    let mut found = HashSet::new();
    for (number, run) in records.split(|piece| !is_whole(piece)).enumerate() {
        if number == 0 || run.len() > TOO_FEW {
            found.extend(run.iter().filter_map(|piece| piece.record));
        }
    }
    found
}

/// Returns the PIDs of a record other than a sample; `None` if it may affect all processes.
fn processes(record: &[u8], endian: ByteOrder) -> Option<Vec<u32>> {
    const TIME_CONV: u32 = 79;
    const FORK: u32 = 7;
    let pid = endian.u32_at(record, 8);
    match endian.u32_at(record, 0) {
        Some(TIME_CONV) => None,
        Some(1 | 3 | 10) => Some(pid.into_iter().collect()),
        Some(FORK) => Some(pid.into_iter().chain(endian.u32_at(record, 12)).collect()),
        _ => Some(Vec::new()),
    }
}

/// Returns whether the bytes before all records are the same, except for the size of the records.
fn is_same_head(one: &Piece, other: &Piece) -> bool {
    let without_size = |piece: &Piece| {
        let mut bytes = piece.bytes.clone();
        bytes.get_mut(RECORDS_SIZE).unwrap_or_default().fill(0);
        bytes
    };
    other.record.is_none() && without_size(one) == without_size(other)
}
