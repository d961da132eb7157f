//! Tests of samples.

use super::*;
use crate::perf::record::{self, Records};
use crate::perf::testing;
use jitdump::Time;

/// An attribute with these values of sample_type, read_format and sample_regs_user.
fn attr(sample_type: u64, read_format: u64, registers: u64) -> Attr {
    let mut bytes = testing::attr(128, sample_type, 0);
    bytes[32..40].copy_from_slice(&read_format.to_le_bytes());
    bytes[80..88].copy_from_slice(&registers.to_le_bytes());
    Attr::parse(&bytes, ByteOrder::Little)
}

fn sample_record(body: &[u64]) -> Vec<u8> {
    testing::record(record::SAMPLE, record::MISC_USER, body)
}

fn numbers(addresses: CodeAddressWords<'_>) -> Vec<u64> {
    addresses.iter().map(|address| address.0).collect()
}

const PID_7: u64 = 7 | (8 << 32);

#[test]
fn every_field_before_the_stack_is_read_in_order() {
    let format = SampleFormat::IDENTIFIER
        | SampleFormat::IP
        | SampleFormat::TID
        | SampleFormat::TIME
        | SampleFormat::ADDR
        | SampleFormat::PERIOD
        | SampleFormat::READ
        | SampleFormat::CALLCHAIN
        | SampleFormat::BRANCH_STACK
        | SampleFormat::REGS_USER
        | SampleFormat::STACK_USER;
    // A group of two counters with times, IDs and lost counts.
    let attr = attr(format.bits(), 0b11111, 0b101);
    let bytes = sample_record(&[
        99, 0x1000, PID_7, 5, 0xdead, 1, // identifier .. period
        2, 11, 12, 1, 2, 3, 4, 5, 6, // read
        2, 0x1000, 0x2000, // call chain
        1, 0x3000, 0x4000, 0, // branches
        2, 0x5000, 0x6000, // registers of a 64-bit process
        24, 0x7000, 0x8000, 0x9000, 16, // 24 bytes of stack, 16 of them copied
    ]);
    let record = Records::new(&bytes, 0, ByteOrder::Little).next().unwrap();
    let sample = Sample::parse(&record, &attr, ByteOrder::Little);
    assert!(!sample.is_truncated);
    assert_eq!(sample.ip, Some(Address(0x1000)));
    assert_eq!(sample.pid, Some(Pid(7)));
    assert_eq!(numbers(sample.callchain), [0x1000, 0x2000]);
    assert_eq!(numbers(sample.branches), [0x3000, 0x4000, 0]);
    assert_eq!(numbers(sample.registers), [0x5000, 0x6000]);
    assert_eq!(numbers(sample.stack), [0x7000, 0x8000]);
    assert_eq!(attr.time_of(&record, ByteOrder::Little), Some(Time(5)));
    assert_eq!(attr.id_of(&record, ByteOrder::Little), Some(99));
}

#[test]
fn the_end_of_fields_is_that_of_the_fields_that_are_read() {
    let all = SampleFormat::all().bits();
    let fields: Vec<u64> = (0..64).map(|bit| 1 << bit).filter(|bit| all & bit != 0).collect();
    let no_fields = [0].into_iter();
    let sets = fields
        .iter()
        .flat_map(|&one| fields.iter().map(move |&other| one | other));
    // All combinations that a sample of call chains can have, and pairs of all fields.
    let of_chains = (0..1 << 9).map(|set| {
        let chosen = (0..9).filter(|bit| set >> bit & 1 != 0);
        chosen
            .map(|bit| 1 << bit)
            .fold(1 << 16 | 1 << 5, |all: u64, bit| all | bit)
    });
    let mut seen = [0; 3];
    for format in no_fields
        .chain(sets)
        .chain(of_chains)
        .filter(|format| format & !all == 0)
    {
        for read in [0, 0b111, 0b1111, 1 << 4, 1 << 5] {
            let attr = attr(format, read, 0b101);
            for body in [
                &[0; 40][..],
                &[1; 40],
                &[1; 9],
                &[],
                &[u64::MAX; 20],
                &[1 << 61; 20],
                &[2, 3, 4, 5, 6, 7, 8, 9, 10, 3, 12, 13, 14, 15, 16],
            ] {
                let bytes = sample_record(body);
                let record = Records::new(&bytes, 0, ByteOrder::Little).next().unwrap();
                let end = fields_end(&record, &attr, ByteOrder::Little);
                match end {
                    FieldsEnd::At(_) => seen[0] += 1,
                    FieldsEnd::Outside => seen[1] += 1,
                    FieldsEnd::Unknown => seen[2] += 1,
                }
                if attr.sample_size != SampleSize::Unknown {
                    let expected = end_of_all_fields(&record, &attr, ByteOrder::Little);
                    assert_eq!(end, expected, "{format:#x}, {read:#b}, {body:?}");
                }
                let [quick, slow] = [Sample::parse, Sample::of_fields]
                    .map(|parse| format!("{:?}", parse(&record, &attr, ByteOrder::Little)));
                assert_eq!(quick, slow, "{format:#x}, {read:#b}, {body:?}");
            }
        }
    }
    assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
}

#[test]
fn a_32_bit_stack_is_read_in_words_of_four_bytes() {
    let format = SampleFormat::REGS_USER | SampleFormat::STACK_USER;
    let attr = attr(format.bits(), 0, 1);
    let bytes = sample_record(&[1, 0x5000, 8, 0x1111_0000_2222, 8]);
    let record = Records::new(&bytes, 0, ByteOrder::Little).next().unwrap();
    let sample = Sample::parse(&record, &attr, ByteOrder::Little);
    assert_eq!(numbers(sample.stack), [0x2222, 0x1111]);
}

#[test]
fn invalid_lengths_truncate_the_sample_and_keep_earlier_fields() {
    let format = SampleFormat::IP | SampleFormat::TID | SampleFormat::CALLCHAIN;
    let attr = attr(format.bits(), 0, 0);
    for count in [3, 1 << 61, u64::MAX] {
        let bytes = sample_record(&[0x1000, PID_7, count, 0x2000]);
        let record = Records::new(&bytes, 0, ByteOrder::Little).next().unwrap();
        let sample = Sample::parse(&record, &attr, ByteOrder::Little);
        assert!(sample.is_truncated);
        assert_eq!(sample.pid, Some(Pid(7)));
        assert!(numbers(sample.callchain).is_empty());
    }
}
