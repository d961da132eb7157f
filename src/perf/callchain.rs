//! Replaces the callers in samples, if another source has better ones than the kernel's frame pointer
//! unwinding.

#[cfg(feature = "unwind")]
pub mod unwound;

use linux_perf_event_reader::constants::PERF_CONTEXT_USER;

use crate::bytes::Reader;
use crate::perf::attr::Attr;
use crate::perf::record::{self, Record};
use crate::perf::sample::{ChainEntry, Sample, USER_DEFERRED};
use jitdump::Address;
use jitdump::ByteOrder;

/// Returns the user-space address of a sample: the first user address in its call chain, which is the sampled
/// address or the one from which the program entered the kernel. `None` if it has none, as in kernel threads
/// and in samples with only the kernel part of a call chain.
pub fn user_address(record: &Record<'_>, sample: &Sample<'_>) -> Option<Address> {
    let is_user = record.cpu_mode() == record::MISC_USER;
    split_at_user(record, sample)
        .and_then(|(_, user)| user)
        .or(sample.ip.filter(|_| is_user))
}

/// Splits a call chain: the number of entries before the callers of the first user address, and that address,
/// if any. The marker of a deferred user part is excluded: readers would append that part to the callers.
fn split_at_user(record: &Record<'_>, sample: &Sample<'_>) -> Option<(usize, Option<Address>)> {
    sample.callchain_offset?;
    let mut is_user = record.cpu_mode() == record::MISC_USER;
    let mut count = 0_usize;
    for entry in sample.chain_entries() {
        match entry {
            ChainEntry::Marker(USER_DEFERRED) => break,
            ChainEntry::Marker(marker) => is_user = marker == PERF_CONTEXT_USER,
            ChainEntry::Address(address) if is_user => return Some((count.saturating_add(1), Some(address))),
            ChainEntry::Address(_) | ChainEntry::Cookie => {}
        }
        count = count.saturating_add(1);
    }
    Some((count, None))
}

/// Appends a sample in which `callers`, innermost first, replace those of its first user address. The stack
/// copy is removed, because readers would append the frames they unwind from it. `None` if the sample has no
/// call chain or no user address, or would become too large. Then a part of it may have been appended.
pub fn write_with_callers(
    out: &mut Vec<u8>,
    endian: ByteOrder,
    record: &Record<'_>,
    attr: &Attr,
    callers: impl ExactSizeIterator<Item = Address>,
) -> Option<()> {
    const WORD: usize = 8;
    let sample = Sample::parse(record, attr, endian);
    if sample.is_truncated {
        return None;
    }
    let start = sample.callchain_offset?;
    let (kept, user) = split_at_user(record, &sample)?;
    // Samples with a stack copy have only the kernel part of the chain.
    let inserted = match user {
        Some(_) => None,
        None => Some(user_address(record, &sample)?),
    };
    let inserted_entries = if inserted.is_some() { 2 } else { 0 };
    let count = kept.checked_add(inserted_entries)?.checked_add(callers.len())?;
    let chain = start.checked_add(WORD)?;
    let chain_end = chain.checked_add(sample.callchain.count().checked_mul(WORD)?)?;
    let stack = sample.stack_offset.unwrap_or(record.bytes.len());
    let after_chain = record.bytes.get(chain_end..stack)?;
    let after_stack = match sample.stack_offset {
        Some(offset) => after_stack(record.bytes.get(offset..)?, endian)?,
        None => &[],
    };

    let before = out.len();
    out.extend_from_slice(record.bytes.get(..start)?);
    endian.write_u64(out, count as u64);
    out.extend_from_slice(record.bytes.get(chain..)?.get(..kept.checked_mul(WORD)?)?);
    if let Some(user) = inserted {
        endian.write_u64(out, PERF_CONTEXT_USER);
        endian.write_u64(out, user.0);
    }
    for caller in callers {
        endian.write_u64(out, caller.0);
    }
    out.extend_from_slice(after_chain);
    if sample.stack_offset.is_some() {
        endian.write_u64(out, 0);
        out.extend_from_slice(after_stack);
    }
    let size = out.len().saturating_sub(before);
    let Ok(size) = u16::try_from(size) else {
        out.truncate(before);
        return None;
    };
    endian.set_u16(out.get_mut(before..)?, record::SIZE_OFFSET, size);
    Some(())
}

/// The bytes after a stack copy.
fn after_stack(bytes: &[u8], endian: ByteOrder) -> Option<&[u8]> {
    let mut reader = Reader::new(bytes, endian);
    let size = reader.u64()?;
    if size > 0 {
        reader.skip(size)?;
        reader.skip(8)?;
    }
    Some(reader.rest())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Records;
    use crate::perf::testing;
    use linux_perf_event_reader::SampleFormat;

    const KERNEL: u64 = -128i64 as u64;

    fn attr(format: SampleFormat) -> Attr {
        Attr::parse(&testing::attr(128, format.bits(), 0), ByteOrder::Little)
    }

    fn sample(misc: u16, words: &[u64]) -> Vec<u8> {
        testing::record(record::SAMPLE, misc, words)
    }

    fn spliced(format: SampleFormat, bytes: &[u8], callers: &[u64]) -> Option<Vec<u8>> {
        let record = Records::new(bytes, 0, ByteOrder::Little).next().unwrap();
        let callers: Vec<Address> = callers.iter().copied().map(Address).collect();
        let mut out = Vec::new();
        let callers = callers.into_iter();
        write_with_callers(&mut out, ByteOrder::Little, &record, &attr(format), callers)?;
        Some(out)
    }

    #[test]
    fn only_entries_after_the_first_user_address_are_replaced() {
        let format = SampleFormat::IP | SampleFormat::CALLCHAIN | SampleFormat::RAW;
        let raw = 4 | 0x6161_6161 << 32;
        let bytes = sample(
            1,
            &[
                0xffff_1000,
                6,
                KERNEL,
                0xffff_1000,
                PERF_CONTEXT_USER,
                0x10,
                0xbad,
                0xbad,
                raw,
            ],
        );
        let expected = sample(
            1,
            &[
                0xffff_1000,
                5,
                KERNEL,
                0xffff_1000,
                PERF_CONTEXT_USER,
                0x10,
                0x20,
                raw,
            ],
        );
        assert_eq!(spliced(format, &bytes, &[0x20]), Some(expected));
    }

    #[test]
    fn a_deferred_user_part_is_not_appended_to_callers() {
        const DEFERRED: u64 = -640i64 as u64;
        const COOKIE: u64 = 0x2_0000_0000_0007;
        let format = SampleFormat::IP | SampleFormat::CALLCHAIN;
        let bytes = sample(record::MISC_USER, &[0x10, 2, DEFERRED, COOKIE]);
        let expected = sample(record::MISC_USER, &[0x10, 3, PERF_CONTEXT_USER, 0x10, 0x20]);
        assert_eq!(spliced(format, &bytes, &[0x20]), Some(expected));
        // Without another stack, the sample is not changed.
        let in_kernel = sample(1, &[0xffff_1000, 4, KERNEL, 0xffff_1000, DEFERRED, COOKIE]);
        assert_eq!(spliced(format, &in_kernel, &[0x20]), None);
    }

    #[test]
    fn a_stack_copy_is_removed_for_callers() {
        let format = SampleFormat::IP | SampleFormat::CALLCHAIN | SampleFormat::STACK_USER;
        let bytes = sample(record::MISC_USER, &[0x10, 0, 16, 1, 2, 16]);
        let expected = sample(record::MISC_USER, &[0x10, 3, PERF_CONTEXT_USER, 0x10, 0x20, 0]);
        assert_eq!(spliced(format, &bytes, &[0x20]), Some(expected));
    }

    #[test]
    fn samples_without_user_address_chain_or_space_are_unchanged() {
        let format = SampleFormat::IP | SampleFormat::CALLCHAIN;
        assert_eq!(
            spliced(format, &sample(1, &[0xffff_1000, 1, 0xffff_1000]), &[0x20]),
            None
        );
        assert_eq!(spliced(SampleFormat::IP, &sample(2, &[0x10]), &[0x20]), None);
        let room = sample(2, &[0x10, 1, 0x10]);
        assert_eq!(spliced(format, &room, &vec![0x20; 9000]), None);
    }
}
