//! Compressed records: whatever they hold, they are decompressed within bounds, and what came out of them
//! comes out again when it is compressed anew.

#![no_main]

use jitinject::perf::compression::{self, Compressor};
use jitinject::perf::record::Records;
use jitinject_fuzz::choices::Choices;
use libfuzzer_sys::{Corpus, fuzz_target};

/// From how many bytes on records are not compressed anew, and their input is no start for others: a few bytes
/// can be made into 64 MiB, which takes as long as a thousand other inputs.
const LARGE: usize = 256 << 10;

/// How hard to compress. That is zstd's concern, and the lowest level takes the least time.
const LEVEL: i32 = 1;

fuzz_target!(|input: &[u8]| -> Corpus {
    let mut choices = Choices::new(input);
    let order = choices.order();
    let packed = choices.rest();
    let mut plain = Vec::new();
    compression::expand(Records::new(packed, 0, order), order, &mut plain).unwrap();
    let whole = Records::new(&plain, 0, order)
        .map(|record| record.len())
        .sum::<u64>();
    let plain = &plain[..whole as usize];
    if plain.len() > LARGE {
        return Corpus::Reject;
    }
    // Records that are compressed themselves stay what they are only outside.
    let mut records = Records::new(plain, 0, order);
    if records.any(|record| record.is_compressed()) {
        return Corpus::Keep;
    }
    let mut again = Vec::new();
    let mut compressor = Compressor::new(LEVEL, order).unwrap();
    compressor.write(plain, &mut again).unwrap();
    compressor.flush(&mut again).unwrap();
    let mut expanded = Vec::new();
    compression::expand(Records::new(&again, 0, order), order, &mut expanded).unwrap();
    assert_eq!(expanded, plain);
    Corpus::Keep
});
