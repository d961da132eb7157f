//! Samples of events of our own.

use linux_perf_event_reader::SampleFormat;
use linux_perf_event_reader::constants::PERF_CONTEXT_USER;

use crate::bytes::ByteOrder;
use crate::perf::record::{self, HEADER_SIZE};
use crate::perf::synthesis::definition::OwnEvent;
use crate::perf::synthesis::process::Thread;
use crate::units::{Address, Time};

/// Something that happened: whose, when, where, and how much of it.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Of which event it is: its place among the definitions.
    pub event: usize,
    /// Whose.
    pub thread: Thread,
    /// When.
    pub time: Time,
    /// On which processor; 0 where nobody knows.
    pub cpu: u32,
    /// How much of it, in the event's unit; 1 for what is only counted.
    pub period: u64,
    /// Where, in user space: addresses of code, innermost first. All but the first are return addresses to
    /// readers, which look one byte before them.
    pub chain: &'a [Address],
    /// What a program wrote, for events of [`Bytes`](super::Measure::Bytes); others have no place for it.
    pub raw: &'a [u8],
}

/// What of a sample had no place in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cut {
    pub chain: bool,
    pub raw: bool,
}

/// The largest record: its size is a 16-bit number, and a multiple of 8.
pub(super) const LARGEST_RECORD: usize = 65_528;

/// Header, id, address, thread, time, processor, period.
const FIXED: usize = HEADER_SIZE + 6 * WORD;
const WORD: usize = 8;

/// Appends a SAMPLE record, with the fields that its event says.
///
/// What is too much for a record is cut: callers at the outer end, bytes at the end. If both are too much, each
/// gets half of the place, or what the other leaves.
pub(super) fn put_sample(out: &mut Vec<u8>, order: ByteOrder, sample: &Sample<'_>, event: &OwnEvent) -> Cut {
    let has_raw = event.attr.sample_format.contains(SampleFormat::RAW);
    let has_time = event.attr.sample_format.contains(SampleFormat::TIME);
    let fixed = if has_time { FIXED } else { FIXED - WORD };
    // The number of addresses and the mark in front of them, and the size of the bytes, which all end at a word.
    let counts = if has_raw { 3 * WORD } else { 2 * WORD };
    let space = LARGEST_RECORD.saturating_sub(fixed).saturating_sub(counts);
    let raw = if has_raw { sample.raw } else { &[] };
    let for_chain = space
        .saturating_sub(raw.len().next_multiple_of(WORD))
        .max(space / 2);
    let chain = sample.chain.get(..for_chain / WORD).unwrap_or(sample.chain);
    let chain_size = chain.len().saturating_mul(WORD);
    let raw = sample.raw.get(..space.saturating_sub(chain_size)).unwrap_or(raw);
    // The kernel counts its padding as data; with the 32-bit size in front, they are whole words.
    let raw_size = raw.len().saturating_add(4).next_multiple_of(WORD);
    let size = fixed.saturating_add(2 * WORD).saturating_add(chain_size);
    let size = if has_raw {
        size.saturating_add(raw_size)
    } else {
        size
    };

    record::put_header(
        out,
        order,
        record::SAMPLE,
        record::MISC_USER,
        u16::try_from(size).unwrap_or(u16::MAX),
    );
    order.put_u64(out, event.id);
    order.put_u64(out, chain.first().map_or(0, |address| address.0));
    order.put_u32(out, sample.thread.pid.0);
    order.put_u32(out, sample.thread.tid.0);
    if has_time {
        order.put_u64(out, sample.time.0);
    }
    order.put_u32(out, sample.cpu);
    order.put_u32(out, 0);
    order.put_u64(out, sample.period);
    order.put_u64(out, (chain.len() as u64).saturating_add(1));
    order.put_u64(out, PERF_CONTEXT_USER);
    for address in chain {
        order.put_u64(out, address.0);
    }
    if has_raw {
        let said = raw_size.saturating_sub(4);
        order.put_u32(out, u32::try_from(said).unwrap_or(u32::MAX));
        let end = out.len().saturating_add(said);
        out.extend_from_slice(raw);
        out.resize(end, 0);
    }
    Cut {
        chain: chain.len() < sample.chain.len(),
        raw: raw.len() < sample.raw.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::{Record, Records};
    use crate::perf::sample;
    use crate::perf::synthesis::definition::{AttrTemplate, Definition, Measure};
    use crate::units::{Pid, Tid};

    const BOTH_ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    fn event(order: ByteOrder, measure: Measure) -> OwnEvent {
        let agreement = AttrTemplate {
            order,
            attr_size: 128,
            clock_id: Some(1),
            has_trailer: true,
            has_times: true,
        };
        let name = b"event";
        OwnEvent::new(&Definition { name, measure }, 77, &agreement)
    }

    fn made<'a>(chain: &'a [Address], raw: &'a [u8]) -> Sample<'a> {
        Sample {
            event: 0,
            thread: Thread {
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

    /// The bytes behind the call chain, with their padding.
    fn raw_of(record: &Record<'_>, frames: usize, order: ByteOrder) -> Vec<u8> {
        let mut body = record.body(order);
        body.skip((FIXED - HEADER_SIZE + 2 * WORD + frames * WORD) as u64)
            .unwrap();
        let size = body.u32().unwrap();
        let raw = body.bytes(size.into()).unwrap().to_vec();
        assert!(body.rest().is_empty());
        raw
    }

    #[test]
    fn a_made_sample_reads_back_in_both_orders() {
        let chain = [Address(0x1000), Address(0x2000)];
        for order in BOTH_ORDERS {
            for (measure, raw) in [(Measure::Count, &b""[..]), (Measure::Bytes, b"12345")] {
                let event = event(order, measure);
                let mut out = Vec::new();
                let cut = put_sample(&mut out, order, &made(&chain, b"12345"), &event);
                assert_eq!((cut.chain, cut.raw), (false, measure == Measure::Count));
                let mut records = Records::new(&out, 0, order);
                let record = records.next().unwrap();
                assert!(records.next().is_none() && records.undecoded().is_none());
                assert_eq!(out.len() % 8, 0);
                assert_eq!(event.attr.time_of(&record, order), Some(Time(99)));
                assert_eq!(event.attr.id_of(&record, order), Some(77));
                let sample = sample::Sample::parse(&record, &event.attr, order);
                assert!(!sample.is_cut);
                assert_eq!((sample.ip, sample.pid), (Some(chain[0]), Some(Pid(5))));
                let addresses: Vec<_> = sample.callchain.iter().map(|it| it.0).collect();
                assert_eq!(addresses, [PERF_CONTEXT_USER, 0x1000, 0x2000]);
                if measure == Measure::Bytes {
                    let read = raw_of(&record, 2, order);
                    assert_eq!((read.get(..5), (read.len() + 4) % 8), (Some(raw), 0));
                }
            }
        }
    }

    #[test]
    fn what_is_too_much_for_a_record_is_cut_and_told() {
        let order = ByteOrder::Little;
        let event = event(order, Measure::Bytes);
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
            let cut = put_sample(&mut out, order, &made(&many[..frames], &long[..bytes]), &event);
            let record = Records::new(&out, 0, order).next().unwrap();
            assert_eq!(record.bytes.len(), out.len());
            assert!(
                (LARGEST_RECORD - 16..=LARGEST_RECORD).contains(&out.len()),
                "{}",
                out.len()
            );
            let sample = sample::Sample::parse(&record, &event.attr, order);
            let kept = sample.callchain.iter().count() - 1;
            assert_eq!(cut.chain, kept < frames);
            let raw = raw_of(&record, kept, order);
            let kept_bytes = raw.iter().filter(|&&byte| byte == 7).count();
            assert_eq!(cut.raw, kept_bytes < bytes);
            assert!(cut.chain || cut.raw);
            // neither takes all from the other
            assert!(kept >= frames.min(4_000) && kept_bytes >= bytes.min(32_000));
        }
    }
}
