//! Checks of a single UNWINDING_INFO record.

use jitdump::ByteOrder;
use jitdump::internals::format::record::Record;
use jitdump::internals::format::unwinding::{Placement, Unwinding, UnwindingSizes};

use crate::bytes::Reader;
use crate::results::diagnostics::rules::unwinding as rules;
use crate::tools::check::findings::{Findings, Place};

/// Number of bytes by which a writer may round up the size of mapped tables: less than a page.
const MAX_ROUNDING: u64 = 4096;

/// Size of the numbers before the tables, in bytes.
const SIZES: u64 = 24;

/// The version of every `.eh_frame_hdr`.
const HEADER_VERSION: u8 = 1;

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
    let sizes = sizes(record.content, endian);
    if let Some(UnwindingSizes { data, mapped, .. }) = sizes
        && mapped > 0
        && !(0..MAX_ROUNDING).contains(&mapped.wrapping_sub(data))
    {
        findings.add(&rules::MAPPED_SIZE, record.offset, || {
            Place::default().with_message(format!("{mapped} bytes mapped, {data} bytes of data"))
        });
    }
    let is_frame_first = rule.id == rules::FRAME_FIRST.id;
    let header = sizes.and_then(|sizes| {
        let start = SIZES.checked_add(sizes.data.checked_sub(sizes.header)?)?;
        record.content.get(usize::try_from(start).ok()?).copied()
    });
    if is_frame_first && header != Some(HEADER_VERSION) {
        findings.add(&rules::BAD_HEADER, record.offset, || {
            Place::default()
                .with_message(header.map_or_else(String::new, |version| format!("version {version}")))
        });
    }
}

/// Returns the number of bytes by which perf extends the mapping of the function.
pub(super) fn mapped_size(content: &[u8], endian: ByteOrder) -> u64 {
    sizes(content, endian).map_or(0, |sizes| sizes.mapped)
}

fn sizes(content: &[u8], endian: ByteOrder) -> Option<UnwindingSizes> {
    UnwindingSizes::read(&mut Reader::new(content, endian))
}
