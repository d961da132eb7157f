//! Unwinding information, as it stands in its record.

use crate::bytes::{ByteOrder, Reader};
use crate::check::findings::{Findings, Place};
use crate::check::rules::unwinding as rules;
use crate::runtime::jitdump::record::Record;
use crate::runtime::jitdump::unwinding::{Placement, Sizes, Unwinding};

/// Checks a record. What can't be understood is told by the reader.
pub(super) fn check(record: &Record<'_>, order: ByteOrder, findings: &mut Findings) {
    let rule = match Unwinding::parse(record.content, order) {
        Err(_) => return,
        Ok(None) => &rules::HEADER_ALONE,
        Ok(Some(_)) if sizes(record.content, order).is_some_and(|sizes| sizes.header == 0) => {
            &rules::NO_HEADER
        }
        Ok(Some(unwinding)) => match unwinding.placement {
            Placement::BehindCode(0) => &rules::FRAME_FIRST,
            Placement::BehindCode(_) | Placement::At(_) => &rules::HEADER_FIRST,
        },
    };
    findings.add(rule, record.offset, Place::default);
}

/// How much longer perf makes the map of the function.
pub(super) fn mapped_size(content: &[u8], order: ByteOrder) -> u64 {
    sizes(content, order).map_or(0, |sizes| sizes.mapped)
}

fn sizes(content: &[u8], order: ByteOrder) -> Option<Sizes> {
    Sizes::read(&mut Reader::new(content, order))
}
