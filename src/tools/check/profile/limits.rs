//! What is checked before linux-perf-data reads a file: it allocates sizes that the file states, before it reads as much,
//! and a failed allocation ends the process.

use jitdump::ByteOrder;

use crate::bytes::Reader;
use crate::perf::attr::SIZE_VERSION_0;
use crate::perf::header::{AnyHeader, FileHeader, FileSection};
use crate::perf::record::{self, HEADER_SIZE, SIZE_OFFSET};
use crate::perf::{Profile, feature};
use crate::tools::check::profile::seen::leading_header_records;

/// Largest number of bytes that linux-perf-data may hold to sort records.
const MAX_HELD: u64 = 1 << 30;

/// Largest number of attributes: in a pipe, it compares each with each.
const MAX_ATTRS: usize = 4096;

/// Largest number of features: it searches them one by one.
const MAX_FEATURES: usize = 256;

/// `SIMPLEPERF_META_INFO`, in profiles of Android's simpleperf: attributes have IDs.
const SIMPLEPERF_META_INFO: u8 = 128;

/// Why linux-perf-data does not get a file.
pub(super) enum Limit {
    /// It would not open the file.
    Refused(String),
    /// It might need too much memory or time.
    TooMuch(String),
    /// It would read formats of tracepoints as records: the offset of their record, in bytes from the first one.
    TracingData(u64),
}

/// Checks a file without damage between records. `held` is the number of bytes that a reader holds to sort them.
pub(super) fn check(file: &[u8], profile: &Profile<'_>, held: u64) -> Option<Limit> {
    let of_header = match AnyHeader::parse(file) {
        Ok(AnyHeader::File(header)) => check_sections(file, &header),
        _ => check_header_records(profile),
    };
    of_header.or_else(|| {
        let message = || format!("it would hold {} MiB of records", held >> 20);
        (held > MAX_HELD).then(|| Limit::TooMuch(message()))
    })
}

/// Whether the bytes at `offset`, where no record could be read, are a record truncated by their end, which
/// linux-perf-data does not read on from.
pub(super) fn is_cut_record(profile: &Profile<'_>, offset: u64) -> bool {
    let rest = profile.data.tail(offset).in_memory().unwrap_or_default();
    let size = profile.endian.u16_at(rest, SIZE_OFFSET).map(usize::from);
    size.is_none_or(|size| size >= HEADER_SIZE && size > rest.len())
}

/// Checks the sections that the header locates, in the order in which linux-perf-data reads them. `None` also if it stops at the
/// end of the file, before it allocates anything.
fn check_sections(file: &[u8], header: &FileHeader) -> Option<Limit> {
    let size = file.len() as u64;
    let refused = |message: String| Some(Limit::Refused(message));
    let outside = |what: &str, section: FileSection| {
        let FileSection { offset, size } = section;
        refused(format!("{what} outside the file: {size} bytes at {offset:#x}"))
    };
    let Some(table) = header.data.offset.checked_add(header.data.size) else {
        return outside("records", header.data);
    };
    let table = usize::try_from(table).ok().and_then(|at| file.get(at..));
    let mut table = Reader::new(table.unwrap_or_default(), header.endian);
    let mut total = 0_u64;
    let mut described = None;
    let mut is_simpleperf = false;
    for id in (0..=u8::MAX).filter(|&id| header.has_feature(id)) {
        // A cut table.
        let section = FileSection::read(&mut table)?;
        let Some(content) = slice(file, section) else {
            return outside(&format!("feature {id}"), section);
        };
        total = total.saturating_add(section.size);
        if id == feature::EVENT_DESC {
            described = Some(content);
        }
        is_simpleperf |= id == SIMPLEPERF_META_INFO;
    }
    if total > size {
        return Some(Limit::TooMuch(format!(
            "its features have {total} bytes, more than the file"
        )));
    }
    if let Some(described) = described {
        return check_descriptions(described, header.endian);
    }
    /// Offset in the header of the section of event types, which perf stopped to write in 2013.
    const EVENT_TYPES: usize = 56;
    let mut types = Reader::new(file.get(EVENT_TYPES..).unwrap_or_default(), header.endian);
    if FileSection::read(&mut types).is_none_or(|types| types.size > 0) {
        return Some(Limit::TooMuch("it has a section of event types".into()));
    }
    if slice(file, header.attrs).is_none() {
        return outside("attributes", header.attrs);
    }
    let ids = if is_simpleperf { IDS_SIZE } else { 0 };
    if header.attr_size < (SIZE_VERSION_0 as u64).saturating_add(ids) {
        return refused(format!("attributes of {} bytes", header.attr_size));
    }
    is_simpleperf.then(|| check_ids(file, header)).flatten()
}

/// Size in bytes of the section that locates the IDs of an attribute.
const IDS_SIZE: u64 = 16;

/// Checks the IDs of simpleperf's attributes.
fn check_ids(file: &[u8], header: &FileHeader) -> Option<Limit> {
    let attrs = slice(file, header.attrs)?;
    let mut total = 0_u64;
    for attr in attrs.chunks_exact(usize::try_from(header.attr_size).ok()?) {
        let start = attr.len().checked_sub(IDS_SIZE as usize);
        let encoded = start.and_then(|start| attr.get(start..)).unwrap_or_default();
        let ids = FileSection::read(&mut Reader::new(encoded, header.endian))?;
        if slice(file, ids).is_none() {
            return Some(Limit::Refused(format!(
                "event IDs outside the file, at {:#x}",
                ids.offset
            )));
        }
        total = total.saturating_add(ids.size);
    }
    let is_large = total > file.len() as u64;
    is_large.then(|| Limit::TooMuch(format!("its events have {total} bytes of IDs")))
}

fn slice(file: &[u8], section: FileSection) -> Option<&[u8]> {
    let end = section.offset.checked_add(section.size)?;
    crate::bytes::slice(file, section.offset, end)
}

/// Checks the records at the start of a pipe.
fn check_header_records(profile: &Profile<'_>) -> Option<Limit> {
    let mut first = profile.records();
    let (mut attrs, mut features) = (0_usize, 0_usize);
    let mut records = leading_header_records(profile);
    while records > 0
        && let Some(record) = first.next()
    {
        records = records.saturating_sub(1);
        if record.kind == record::HEADER_ATTR {
            attrs = attrs.saturating_add(1);
            continue;
        }
        features = features.saturating_add(1);
        let mut body = record.body(profile.endian);
        if body.u64() == Some(feature::EVENT_DESC.into()) && !body.rest().is_empty() {
            let limit = check_descriptions(body.rest(), profile.endian);
            if limit.is_some() {
                return limit;
            }
        }
    }
    if attrs > MAX_ATTRS || features > MAX_FEATURES {
        let message = format!("it starts with {attrs} attributes and {features} features");
        return Some(Limit::TooMuch(message));
    }
    let mut records = profile.records();
    let mut header_records = profile.header_records.iter();
    let is_tracing_data = |&&(offset, _): &&(u64, u64)| {
        records.seek(offset);
        records
            .next()
            .is_some_and(|record| record.kind == record::HEADER_TRACING_DATA)
    };
    header_records
        .find(is_tracing_data)
        .map(|&(offset, _)| Limit::TracingData(offset))
}

/// Checks the counts in the descriptions of events.
fn check_descriptions(content: &[u8], endian: ByteOrder) -> Option<Limit> {
    let mut reader = Reader::new(content, endian);
    let mut all = || {
        let count = reader.u32()?;
        let attr_size = reader.u32()?;
        let least = u64::from(count).checked_mul(SIZE_VERSION_0 as u64)?;
        (least <= content.len() as u64).then_some(())?;
        for _ in 0..count {
            reader.skip(attr_size.into())?;
            let ids = u64::from(reader.u32()?);
            let name = u64::from(reader.u32()?);
            reader.skip(name.checked_add(ids.checked_mul(8)?)?)?;
        }
        Some(())
    };
    match all() {
        Some(()) => None,
        None => Some(Limit::Refused(
            "descriptions of events that exceed their section".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::AttrEntry;
    use crate::perf::header::write_pipe_header;
    use crate::perf::pipe::{write_attr, write_feature};

    const ENDIAN: ByteOrder = ByteOrder::Little;

    fn pipe(attrs: usize, features: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_pipe_header(&mut bytes, ENDIAN);
        let mut attr = vec![0; SIZE_VERSION_0];
        ENDIAN.set_u32(&mut attr, 4, SIZE_VERSION_0 as u32);
        let ids = Vec::new();
        let entry = AttrEntry { attr, ids };
        for _ in 0..attrs {
            write_attr(&mut bytes, ENDIAN, &entry).unwrap();
        }
        for _ in 0..features {
            write_feature(&mut bytes, ENDIAN, feature::ARCH, b"x86_64").unwrap();
        }
        bytes
    }

    fn is_compared(file: &[u8], held: u64) -> bool {
        check(file, &Profile::parse(file).unwrap(), held).is_none()
    }

    #[test]
    fn linux_perf_data_may_hold_a_gibibyte_of_records() {
        let file = pipe(1, 1);
        assert!(is_compared(&file, 1 << 30));
        assert!(!is_compared(&file, (1 << 30) + 1));
    }

    #[test]
    fn pipes_may_start_with_4096_attributes_and_256_features() {
        assert!(is_compared(&pipe(4096, 256), 0));
        assert!(!is_compared(&pipe(4097, 1), 0));
        assert!(!is_compared(&pipe(1, 257), 0));
    }
}
