//! Samples of synthetic events.

use jitdump::{Address, ByteOrder, Time};
use linux_perf_event_reader::SampleFormat;
use linux_perf_event_reader::constants::PERF_CONTEXT_USER;

use crate::bytes::write_padded;
use crate::perf::record::{self, HEADER_SIZE};
use crate::perf::synthetic::SyntheticThread;
use crate::traces::conversion::synthesis::definition::SyntheticEvent;

/// Processor number that perf's readers show as -1.
pub const UNKNOWN_CPU: u32 = u32::MAX;

/// A sample of a synthetic event.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticSample<'a> {
    /// Index of the event's definition.
    pub event: usize,
    /// Sampled thread.
    pub thread: SyntheticThread,
    /// Time of the sample.
    pub time: Time,
    /// CPU of the sample; may be [`UNKNOWN_CPU`].
    pub cpu: u32,
    /// Period in the unit of the event; 1 if events are only counted.
    pub period: u64,
    /// Call chain in user space, innermost first. Readers take all entries except the first for return
    /// addresses and look up the byte before them.
    pub chain: &'a [Address],
    /// Bytes written by a program, for [`Bytes`](super::SampleContent::Bytes) events. Others lose them.
    pub raw: &'a [u8],
}

/// The parts of a sample that were cut because they did not fit. Raw data of an event that has none are cut, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cut {
    pub chain: bool,
    pub raw: bool,
}

/// Maximum size of a record: a multiple of 8 in a 16-bit field.
pub(super) const MAX_RECORD_SIZE: usize = 65_528;

/// Header, ID, address, PID and TID, time, CPU, period.
const FIXED: usize = HEADER_SIZE + 6 * WORD;
const WORD: usize = 8;

/// Appends a SAMPLE record with the fields of its event.
///
/// If the record would be too large, the call chain loses its outermost callers, and the raw data are cut at
/// the end. If both are too large, each gets half of the space, or what the other leaves.
pub(super) fn write_sample(
    out: &mut Vec<u8>,
    endian: ByteOrder,
    sample: &SyntheticSample<'_>,
    event: &SyntheticEvent,
) -> Cut {
    let has_raw = event.attr.sample_format.contains(SampleFormat::RAW);
    let has_time = event.attr.sample_format.contains(SampleFormat::TIME);
    let fixed = if has_time { FIXED } else { FIXED - WORD };
    // Words for the length of the call chain, its context marker, and the size and padding of the raw data.
    let length_fields = if has_raw { 3 * WORD } else { 2 * WORD };
    let space = MAX_RECORD_SIZE
        .saturating_sub(fixed)
        .saturating_sub(length_fields);
    let raw = if has_raw { sample.raw } else { &[] };
    let (chain, raw) = fitting(sample.chain, raw, space);
    let chain_size = chain.len().saturating_mul(WORD);
    // The kernel counts the padding as data. Together, the 32-bit size and the data are whole words.
    let raw_size = raw.len().saturating_add(4).next_multiple_of(WORD);
    let size = fixed.saturating_add(2 * WORD).saturating_add(chain_size);
    let size = if has_raw {
        size.saturating_add(raw_size)
    } else {
        size
    };
    record::write_header(out, endian, record::SAMPLE, record::MISC_USER, size);
    endian.write_u64(out, event.id);
    endian.write_u64(out, chain.first().map_or(0, |address| address.0));
    endian.write_u32(out, sample.thread.pid.0);
    endian.write_u32(out, sample.thread.tid.0);
    if has_time {
        endian.write_u64(out, sample.time.0);
    }
    endian.write_u32(out, sample.cpu);
    endian.write_u32(out, 0);
    endian.write_u64(out, sample.period);
    endian.write_u64(out, (chain.len() as u64).saturating_add(1));
    endian.write_u64(out, PERF_CONTEXT_USER);
    for address in chain {
        endian.write_u64(out, address.0);
    }
    if has_raw {
        let declared_size = raw_size.saturating_sub(4);
        endian.write_u32(out, u32::try_from(declared_size).unwrap_or(u32::MAX));
        write_padded(out, raw, declared_size);
    }
    Cut {
        chain: chain.len() < sample.chain.len(),
        raw: raw.len() < sample.raw.len(),
    }
}

/// Returns the part of a call chain and that of raw data that fit into `space` bytes together.
fn fitting<'a>(chain: &'a [Address], raw: &'a [u8], space: usize) -> (&'a [Address], &'a [u8]) {
    let for_chain = space
        .saturating_sub(raw.len().next_multiple_of(WORD))
        .max(space / 2);
    let chain = chain.get(..for_chain / WORD).unwrap_or(chain);
    let for_raw = space.saturating_sub(chain.len().saturating_mul(WORD));
    (chain, raw.get(..for_raw).unwrap_or(raw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::{Record, Records};
    use crate::perf::sample;
    use crate::traces::conversion::synthesis::definition::{AttrTemplate, Definition, SampleContent};
    use crate::units::{Pid, Tid};

    const BOTH_ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    fn event(endian: ByteOrder, measure: SampleContent) -> SyntheticEvent {
        let template = AttrTemplate {
            endian,
            attr_size: 128,
            clock_id: Some(1),
            has_trailer: true,
            has_times: true,
        };
        let name = b"event";
        SyntheticEvent::new(&Definition { name, measure }, 77, &template)
    }

    fn made<'a>(chain: &'a [Address], raw: &'a [u8]) -> SyntheticSample<'a> {
        SyntheticSample {
            event: 0,
            thread: SyntheticThread {
                pid: Pid(5),
                tid: Tid(6),
            },
            time: Time(99),
            cpu: 3,
            period: 1234,
            chain,
            raw,
        }
    }

    /// Returns the bytes after the call chain, with their padding.
    fn raw_of(record: &Record<'_>, frames: usize, endian: ByteOrder) -> Vec<u8> {
        let mut body = record.body(endian);
        body.skip((FIXED - HEADER_SIZE + 2 * WORD + frames * WORD) as u64)
            .unwrap();
        let size = body.u32().unwrap();
        let raw = body.bytes(size.into()).unwrap().to_vec();
        assert!(body.rest().is_empty());
        raw
    }

    #[test]
    fn a_synthetic_sample_reads_back_in_both_byte_orders() {
        let chain = [Address(0x1000), Address(0x2000)];
        for endian in BOTH_ORDERS {
            for (measure, raw) in [(SampleContent::Count, &b""[..]), (SampleContent::Bytes, b"12345")] {
                let event = event(endian, measure);
                let mut out = Vec::new();
                let cut = write_sample(&mut out, endian, &made(&chain, b"12345"), &event);
                assert_eq!((cut.chain, cut.raw), (false, measure == SampleContent::Count));
                let mut records = Records::new(&out, 0, endian);
                let record = records.next().unwrap();
                assert!(records.next().is_none() && records.undecoded().is_none());
                assert_eq!(out.len() % 8, 0);
                assert_eq!(event.attr.time_of(&record, endian), Some(Time(99)));
                assert_eq!(event.attr.id_of(&record, endian), Some(77));
                let sample = sample::Sample::parse(&record, &event.attr, endian);
                assert!(!sample.is_truncated);
                assert_eq!((sample.ip, sample.pid), (Some(chain[0]), Some(Pid(5))));
                let addresses: Vec<_> = sample.callchain.iter().map(|it| it.0).collect();
                assert_eq!(addresses, [PERF_CONTEXT_USER, 0x1000, 0x2000]);
                if measure == SampleContent::Bytes {
                    let read = raw_of(&record, 2, endian);
                    assert_eq!((read.get(..5), (read.len() + 4) % 8), (Some(raw), 0));
                }
            }
        }
    }

    #[test]
    fn oversized_chains_and_data_are_truncated() {
        let endian = ByteOrder::Little;
        let event = event(endian, SampleContent::Bytes);
        let many = vec![Address(1); 10_000];
        let long = vec![7; 100_000];
        for (frames, bytes) in [
            (10_000, 0),
            (10_000, 9),
            (0, 100_000),
            (3, 100_000),
            (10_000, 100_000),
            (8_000, 2_000),
        ] {
            let mut out = Vec::new();
            let cut = write_sample(&mut out, endian, &made(&many[..frames], &long[..bytes]), &event);
            let record = Records::new(&out, 0, endian).next().unwrap();
            assert_eq!(record.bytes.len(), out.len());
            assert!((65_528 - 16..=65_528).contains(&out.len()), "{}", out.len());
            let sample = sample::Sample::parse(&record, &event.attr, endian);
            let kept = sample.callchain.iter().count() - 1;
            assert_eq!(cut.chain, kept < frames);
            let raw = raw_of(&record, kept, endian);
            let kept_bytes = raw.iter().filter(|&&byte| byte == 7).count();
            assert_eq!(cut.raw, kept_bytes < bytes);
            assert!(cut.chain || cut.raw);
            // Neither takes all space from the other.
            assert!(kept >= frames.min(4_000) && kept_bytes >= bytes.min(32_000));
        }
    }
}
