//! Writing a profile anew: the same parts in perf's order, with some records added, replaced or left out.

use std::io::{self, Write};

use crate::perf::feature;
use crate::perf::header::{FEATURE_WORDS, FILE_HEADER_SIZE, Header, Section};
use crate::perf::profile::Profile;
use crate::perf::record::Record;

/// What to change in the stream of records.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    edits: Vec<Edit>,
    /// The bytes that all edits add, each edit's behind the one's before.
    bytes: Vec<u8>,
}

/// At byte `at` of the records: `skip` bytes are left out and some put in their place.
#[derive(Clone, Copy, Debug)]
struct Edit {
    at: u64,
    skip: u64,
    start: usize,
    end: usize,
}

impl Edits {
    /// Adds what `put` appends before the record that starts at byte `at`, behind what was added there
    /// before.
    pub fn insert(&mut self, at: u64, put: impl FnOnce(&mut Vec<u8>)) {
        self.push(at, 0, put);
    }

    /// Puts what `put` appends in the place of a record; nothing drops it.
    pub fn replace(&mut self, record: &Record<'_>, put: impl FnOnce(&mut Vec<u8>)) {
        self.push(record.offset, record.len(), put);
    }

    fn push(&mut self, at: u64, skip: u64, put: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        put(&mut self.bytes);
        let end = self.bytes.len();
        self.edits.push(Edit { at, skip, start, end });
    }

    /// In the order of the file; what is inserted before a record comes before what replaces it.
    fn sorted(&self) -> Vec<Edit> {
        let mut edits = self.edits.clone();
        edits.sort_by_key(|edit| (edit.at, edit.skip > 0));
        edits
    }
}

/// A feature section to write in place of the profile's own, or beside them.
#[derive(Clone, Debug)]
pub struct FeatureEdit {
    /// Which one.
    pub id: u8,
    /// Its new bytes.
    pub content: Vec<u8>,
}

/// Writes `profile` with `edits` to its records, of which the first `data_end` bytes are whole, and with some
/// feature sections replaced. The layout is that of perf's own files: header, ids, attributes, records,
/// feature table, features.
pub fn write(
    profile: &Profile<'_>,
    data_end: u64,
    edits: &Edits,
    features: &[FeatureEdit],
    out: &mut dyn Write,
) -> io::Result<()> {
    let edits_in_order = edits.sorted();
    let mut head = Vec::new();
    let mut header = Header {
        order: profile.order,
        attr_size: 0,
        attrs: Section::default(),
        data: Section::default(),
        features: [0; FEATURE_WORDS],
    };
    put_attrs(profile, &mut header, &mut head);
    header.data.offset = FILE_HEADER_SIZE + head.len() as u64;
    header.data.size = edited_size(data_end, &edits_in_order);
    let shifts = Shifts::new(&edits_in_order);
    let moved = |offset: u64| {
        let at = offset.saturating_sub(profile.data_offset);
        shifts.apply(at).saturating_add(header.data.offset)
    };
    let features = merged(profile, features, moved);
    for (id, _) in &features {
        if let Some(word) = header.features.get_mut(usize::from(id / 64)) {
            *word |= 1 << (id % 64);
        }
    }
    let mut start = Vec::new();
    header.put(&mut start);
    out.write_all(&start)?;
    out.write_all(&head)?;
    write_records(profile.data, data_end, edits, &edits_in_order, out)?;
    write_features(&header, &features, out)
}

/// Appends the ids and then the attributes, as they are but for where the ids lie, and says so in the header.
fn put_attrs(profile: &Profile<'_>, header: &mut Header, out: &mut Vec<u8>) {
    let mut places = Vec::new();
    for entry in &profile.attr_entries {
        places.push(Section {
            offset: FILE_HEADER_SIZE + out.len() as u64,
            size: entry.ids.len() as u64,
        });
        out.extend_from_slice(entry.ids);
    }
    header.attrs.offset = FILE_HEADER_SIZE + out.len() as u64;
    let before = out.len();
    for (entry, ids) in profile.attr_entries.iter().zip(places) {
        out.extend_from_slice(entry.attr);
        profile.order.put_u64(out, ids.offset);
        profile.order.put_u64(out, ids.size);
    }
    header.attrs.size = (out.len() - before) as u64;
    let entries = profile.attr_entries.len().max(1) as u64;
    header.attr_size = header.attrs.size / entries;
}

fn edited_size(data_end: u64, edits: &[Edit]) -> u64 {
    edits.iter().fold(data_end, |size, edit| {
        size.saturating_add((edit.end - edit.start) as u64)
            .saturating_sub(edit.skip)
    })
}

/// How far the records lie from where they were.
struct Shifts {
    /// For each edit: where in the old stream it is over, and how many bytes all edits up to it have added
    /// and left out.
    shifts: Vec<(u64, u64, u64)>,
}

impl Shifts {
    fn new(edits: &[Edit]) -> Self {
        let (mut added, mut skipped) = (0u64, 0u64);
        let shift = |edit: &Edit| {
            added = added.saturating_add((edit.end - edit.start) as u64);
            skipped = skipped.saturating_add(edit.skip);
            (edit.at.saturating_add(edit.skip), added, skipped)
        };
        Self {
            shifts: edits.iter().map(shift).collect(),
        }
    }

    /// Where a record that started at byte `at` starts now.
    fn apply(&self, at: u64) -> u64 {
        let before = self.shifts.partition_point(|&(end, _, _)| end <= at);
        let last = before.checked_sub(1).and_then(|last| self.shifts.get(last));
        last.map_or(at, |&(_, added, skipped)| {
            at.saturating_add(added).saturating_sub(skipped)
        })
    }
}

/// The features to write, in the order of their ids.
fn merged(profile: &Profile<'_>, edits: &[FeatureEdit], moved: impl Fn(u64) -> u64) -> Vec<(u8, Vec<u8>)> {
    let mut features: Vec<(u8, Vec<u8>)> = Vec::new();
    for feature in &profile.features {
        let content = match feature.id {
            feature::AUXTRACE => feature::move_auxtrace_index(feature.content, profile.order, &moved),
            _ => None,
        };
        features.push((feature.id, content.unwrap_or_else(|| feature.content.to_vec())));
    }
    for edit in edits {
        features.retain(|(id, _)| *id != edit.id);
        features.push((edit.id, edit.content.clone()));
    }
    features.sort_by_key(|(id, _)| *id);
    features
}

fn write_records(
    data: &[u8],
    data_end: u64,
    edits: &Edits,
    in_order: &[Edit],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut copied = 0;
    for edit in in_order {
        out.write_all(span(data, copied, edit.at))?;
        out.write_all(edits.bytes.get(edit.start..edit.end).unwrap_or_default())?;
        copied = copied.max(edit.at.saturating_add(edit.skip));
    }
    out.write_all(span(data, copied, data_end))
}

fn span(data: &[u8], start: u64, end: u64) -> &[u8] {
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) => data.get(start..end).unwrap_or_default(),
        _ => &[],
    }
}

fn write_features(header: &Header, features: &[(u8, Vec<u8>)], out: &mut dyn Write) -> io::Result<()> {
    /// Bytes of one entry of the table: offset and size.
    const ENTRY: u64 = 16;
    let table_offset = header.data.offset + header.data.size;
    let mut offset = table_offset + ENTRY * features.len() as u64;
    let mut table = Vec::new();
    for (_, content) in features {
        header.order.put_u64(&mut table, offset);
        header.order.put_u64(&mut table, content.len() as u64);
        offset += content.len() as u64;
    }
    out.write_all(&table)?;
    for (_, content) in features {
        out.write_all(content)?;
    }
    Ok(())
}
