//! Repeats the samples of a recording until there are many.

use std::ops::Range;

/// Record types of perf: a sample, and the end of a round.
const SAMPLE: u32 = 9;
const FINISHED_ROUND: u32 = 68;

/// Fields of a sample before its time, as bits of `sample_type`: the identifier, the address, the process and thread.
const BEFORE_TIME: [u64; 3] = [1 << 16, 1, 1 << 1];
const TIME: u64 = 1 << 2;

/// Offsets in the header of a file: the attributes, the size of the records after their offset, the bits of the features.
const ATTRS: usize = 24;
const DATA: usize = 40;
const FEATURES: Range<usize> = 72..104;

/// Offset of `sample_type` in an attribute.
const SAMPLE_TYPE: usize = 24;

/// Returns a profile with at least so many samples: those of `profile`, again and again, at later times. Paths of mapped files
/// that start with the first of `folders` start with the second one instead. `profile` must be a little-endian file of perf, with
/// the same layout and a time in all samples.
pub fn amplified(profile: &[u8], samples: u64, folders: [&str; 2]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(profile[at..at + 8].try_into().unwrap());
    let sample_type = word(word(ATTRS) as usize + SAMPLE_TYPE);
    assert!(sample_type & TIME != 0, "samples have times");
    let fields = BEFORE_TIME.iter().filter(|&&field| sample_type & field != 0);
    let time_at = 8 + 8 * fields.count();
    let records = word(DATA) as usize..(word(DATA) + word(DATA + 8)) as usize;
    let mut taken: Vec<(u64, &[u8])> = Vec::new();
    let mut rounds = false;
    let mut out = profile[..records.start].to_vec();
    let mut at = records.start;
    while at < records.end {
        let head = word(at);
        let record = &profile[at..at + (head >> 48) as usize];
        match head as u32 {
            SAMPLE => taken.push((word(at + time_at), record)),
            kind => rounds |= kind == FINISHED_ROUND,
        }
        out.extend(moved(record, folders));
        at += record.len();
    }
    taken.sort_by_key(|&(time, _)| time);
    let (first, last) = (taken[0].0, taken[taken.len() - 1].0);
    let mut count = taken.len() as u64;
    for turn in 1.. {
        if count >= samples {
            break;
        }
        for &(time, record) in &taken {
            let start = out.len() + time_at;
            out.extend_from_slice(record);
            let time = time + turn * (last - first + 1000);
            out[start..start + 8].copy_from_slice(&time.to_le_bytes());
        }
        count += taken.len() as u64;
        if rounds {
            out.extend(u64::to_le_bytes(8 << 48 | u64::from(FINISHED_ROUND)));
        }
    }
    let added = (out.len() - records.end) as u64;
    out[DATA + 8..DATA + 16].copy_from_slice(&(word(DATA + 8) + added).to_le_bytes());
    // The table of the features' places is after the records.
    let features = profile[FEATURES]
        .iter()
        .map(|byte| byte.count_ones() as usize)
        .sum();
    let table = out.len();
    out.extend_from_slice(&profile[records.end..]);
    for feature in 0..features {
        let place = word(records.end + 16 * feature) + added;
        out[table + 16 * feature..][..8].copy_from_slice(&place.to_le_bytes());
    }
    out
}

/// Returns a record with the new path of a file.
fn moved(record: &[u8], [old, new]: [&str; 2]) -> Vec<u8> {
    const MMAP2: u8 = 10;
    const NAME: usize = 72;
    // perf pads names with NULs to a multiple of 8 bytes.
    let padded = |name: usize| (name / 8 + 1) * 8;
    let name = record.get(NAME..).filter(|_| record[0] == MMAP2);
    let Some(rest) = name.and_then(|name| name.strip_prefix(old.as_bytes())) else {
        return record.to_vec();
    };
    let length = rest.iter().position(|&byte| byte == 0).unwrap();
    let mut out = [&record[..NAME], new.as_bytes(), &rest[..length]].concat();
    out.resize(NAME + padded(new.len() + length), 0);
    out.extend_from_slice(&record[NAME + padded(old.len() + length)..]);
    let size = u16::try_from(out.len()).unwrap();
    out[6..8].copy_from_slice(&size.to_le_bytes());
    out
}
