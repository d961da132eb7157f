//! Checks of a single UNWINDING_INFO record.

use jitdump::ByteOrder;
use jitdump::internals::format::record::Record;
use jitdump::internals::format::unwinding::{Placement, Unwinding, UnwindingSizes};

use crate::bytes::Reader;
use crate::results::diagnostics::rules::unwinding as rules;
use crate::tools::check::findings::{Findings, Place};

/// Checks a record. The reader reports records that are invalid.
pub(super) fn check(record: &Record<'_>, endian: ByteOrder, findings: &mut Findings) {
    let rule = match Unwinding::parse(record.content, endian) {
        Err(_) => return,
        Ok(None) => &rules::HEADER_ONLY,
        Ok(Some(_)) if sizes(record.content, endian).is_some_and(|sizes| sizes.header == 0) => {
            &rules::NO_HEADER
        }
        Ok(Some(unwinding)) => match unwinding.placement {
            Placement::AfterCode(0) => &rules::FRAME_FIRST,
            Placement::AfterCode(_) | Placement::At(_) => &rules::HEADER_FIRST,
        },
    };
    findings.add(rule, record.offset, Place::default);
}

/// Returns the number of bytes by which perf extends the mapping of the function.
pub(super) fn mapped_size(content: &[u8], endian: ByteOrder) -> u64 {
    sizes(content, endian).map_or(0, |sizes| sizes.mapped)
}

fn sizes(content: &[u8], endian: ByteOrder) -> Option<UnwindingSizes> {
    UnwindingSizes::read(&mut Reader::new(content, endian))
}
