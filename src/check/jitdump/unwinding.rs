//! Unwinding information, as it stands in its record.

use crate::bytes::{ByteOrder, Reader};
use crate::check::findings::{Findings, Place};
use crate::check::rules::unwinding as rules;
use crate::runtime::jitdump::record::Record;
use crate::runtime::jitdump::unwinding::{Placement, Unwinding};

/// Checks a record. What can't be understood is told by the reader.
pub(super) fn check(record: &Record<'_>, order: ByteOrder, findings: &mut Findings) {
    let rule = match Unwinding::parse(record.content, order) {
        Err(_) => return,
        Ok(None) => &rules::HEADER_ALONE,
        Ok(Some(_)) if header_size(record.content, order) == Some(0) => &rules::NO_HEADER,
        Ok(Some(unwinding)) => match unwinding.placement {
            Placement::BehindCode(0) => &rules::FRAME_FIRST,
            Placement::BehindCode(_) | Placement::At(_) => &rules::HEADER_FIRST,
        },
    };
    findings.add(rule, record.offset, Place::default);
}

fn header_size(content: &[u8], order: ByteOrder) -> Option<u64> {
    numbers(content, order).map(|[_, header, _]| header)
}

/// How much longer perf makes the map of the function.
pub(super) fn mapped_size(content: &[u8], order: ByteOrder) -> u64 {
    numbers(content, order).map_or(0, |[_, _, mapped]| mapped)
}

/// The sizes of data, header, and what is mapped.
fn numbers(content: &[u8], order: ByteOrder) -> Option<[u64; 3]> {
    let mut reader = Reader::new(content, order);
    Some([reader.u64()?, reader.u64()?, reader.u64()?])
}
