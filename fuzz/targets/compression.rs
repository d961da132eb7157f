//! Compressed records: decompression of arbitrary records stays within bounds, and decompressed records survive a
//! round trip.

use jitinject::internals::perf::compression;
use jitinject::internals::perf::compression::Compressor;
use jitinject::internals::perf::record::Records;
use jitinject::internals::perf::record::data::ProfileBytes;
use jitinject_fuzz::choices::Choices;
use libfuzzer_sys::Corpus;

/// Size from which records are not compressed again, and their input is not kept: a few bytes can decompress to 64
/// MiB, which takes as long as a thousand other inputs.
const LARGE: usize = 256 << 10;

/// Compression level. The level is zstd's concern; the lowest one takes the least time.
const LEVEL: i32 = 1;

pub fn run(input: &[u8]) -> Corpus {
    let mut choices = Choices::new(input);
    let endian = choices.endian();
    let packed = choices.rest();
    let mut plain = Vec::new();
    compression::expand(ProfileBytes::from(packed), endian, &mut plain).unwrap();
    let whole = Records::new(&plain, 0, endian)
        .map(|record| record.size())
        .sum::<u64>();
    let plain = &plain[..whole as usize];
    if plain.len() > LARGE {
        return Corpus::Reject;
    }
    // Compressed records within others do not survive the round trip.
    let mut records = Records::new(plain, 0, endian);
    if records.any(|record| record.is_compressed()) {
        return Corpus::Keep;
    }
    let mut again = Vec::new();
    let mut compressor = Compressor::new(LEVEL, endian).unwrap();
    compressor.write(plain, &mut again).unwrap();
    compressor.flush(&mut again).unwrap();
    let mut expanded = Vec::new();
    compression::expand(ProfileBytes::from(&again[..]), endian, &mut expanded).unwrap();
    assert_eq!(expanded, plain);
    Corpus::Keep
}
