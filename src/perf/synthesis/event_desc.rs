//! The feature that tells the names of events (`HEADER_EVENT_DESC`), and the record that does so without it.

use crate::bytes::{ByteOrder, Reader, until_nul};
use crate::perf::feature;
use crate::perf::record::{self, HEADER_SIZE};
use crate::perf::synthesis::{padded, put_padded};

/// The names that a profile has for its `count` events; `None` where the section is damaged, or another profile's.
pub(super) fn names(content: &[u8], order: ByteOrder, count: usize) -> Option<Vec<&[u8]>> {
    let mut reader = Reader::new(content, order);
    let said = reader.u32()?;
    let attr_size = reader.u32()?;
    if usize::try_from(said).ok()? != count {
        return None;
    }
    let mut names = Vec::new();
    for _ in 0..count {
        reader.skip(attr_size.into())?;
        let ids = reader.u32()?;
        let size = reader.u32()?;
        names.push(until_nul(reader.bytes(size.into())?));
        reader.skip(u64::from(ids).checked_mul(8)?)?;
    }
    Some(names)
}

/// The section for events with these attributes of one size, ids and names. The layout is that of
/// `write_event_desc` in perf.
pub(super) fn content<'a>(
    order: ByteOrder,
    attr_size: usize,
    events: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8], &'a [u8])>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    order.put_u32(&mut out, count(events.len()));
    order.put_u32(&mut out, count(attr_size));
    for (attr, ids, name) in events {
        out.extend_from_slice(attr);
        order.put_u32(&mut out, count(ids.len() / 8));
        feature::put_string(&mut out, order, name);
        out.extend_from_slice(ids);
    }
    out
}

/// Appends a record that gives a name to the event with this id, whatever is known of other events' names.
pub(super) fn put_event_name(out: &mut Vec<u8>, order: ByteOrder, id: u64, name: &[u8]) {
    /// `PERF_EVENT_UPDATE__NAME`.
    const NAME: u64 = 2;
    const FIXED: usize = HEADER_SIZE + 16;
    let name_size = padded(name.len(), 8);
    let size = u16::try_from(FIXED.saturating_add(name_size)).unwrap_or(u16::MAX);
    record::put_header(out, order, record::EVENT_UPDATE, 0, size);
    order.put_u64(out, NAME);
    order.put_u64(out, id);
    put_padded(out, name, name_size);
}
