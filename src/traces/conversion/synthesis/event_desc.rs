//! Event names: the `HEADER_EVENT_DESC` feature section, and the record that replaces it.

use jitdump::ByteOrder;

use crate::bytes::write_padded;
use crate::perf::feature;
use crate::perf::record::{self, HEADER_SIZE};
use crate::perf::synthetic::padded;

/// Reads the names of `count` events; `None` if the section is damaged or has a different number of events.
pub(super) fn names(content: &[u8], endian: ByteOrder, count: usize) -> Option<Vec<&[u8]>> {
    let names: Vec<&[u8]> = feature::event_names(content, endian).collect();
    let declared_count = usize::try_from(endian.u32_at(content, 0)?).ok()?;
    (declared_count == count && names.len() == count).then_some(names)
}

/// Returns the section for events with these attributes of the same size, IDs and names. The layout is that
/// of `write_event_desc` in perf.
pub(super) fn content<'a>(
    endian: ByteOrder,
    attr_size: usize,
    events: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8], &'a [u8])>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    endian.write_u32(&mut out, count(events.len()));
    endian.write_u32(&mut out, count(attr_size));
    for (attr, ids, name) in events {
        out.extend_from_slice(attr);
        endian.write_u32(&mut out, count(ids.len() / 8));
        feature::write_string(&mut out, endian, name);
        out.extend_from_slice(ids);
    }
    out
}

/// Appends a record that names the event with this ID. It works without names of the other events.
pub(super) fn write_event_name(out: &mut Vec<u8>, endian: ByteOrder, id: u64, name: &[u8]) {
    /// `PERF_EVENT_UPDATE__NAME`.
    const NAME: u64 = 2;
    const FIXED: usize = HEADER_SIZE + 16;
    let name_size = padded(name.len(), 8);
    let size = FIXED.saturating_add(name_size);
    record::write_header(out, endian, record::EVENT_UPDATE, 0, size);
    endian.write_u64(out, NAME);
    endian.write_u64(out, id);
    write_padded(out, name, name_size);
}
