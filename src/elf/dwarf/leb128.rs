//! Writes LEB128 integers, seven bits per byte.

/// Appends an unsigned integer.
pub fn write_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed integer.
pub fn write_signed(out: &mut Vec<u8>, mut value: i64) {
    // Bit 6 of the last byte is the sign.
    while !(-0x40..0x40).contains(&value) {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8 & 0x7f);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gimli_reads_the_same() {
        let bits = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for value in bits.chain([u64::MAX]) {
            let (mut unsigned, mut signed) = (Vec::new(), Vec::new());
            write_unsigned(&mut unsigned, value);
            let (positive, negative) = (value as i64, (value as i64).wrapping_neg());
            write_signed(&mut signed, positive);
            write_signed(&mut signed, negative);
            let mut unsigned = gimli::EndianSlice::new(&unsigned, gimli::LittleEndian);
            let mut signed = gimli::EndianSlice::new(&signed, gimli::LittleEndian);
            assert_eq!(gimli::leb128::read::unsigned(&mut unsigned), Ok(value));
            assert_eq!(gimli::leb128::read::signed(&mut signed), Ok(positive));
            assert_eq!(gimli::leb128::read::signed(&mut signed), Ok(negative));
            assert!(unsigned.is_empty() && signed.is_empty());
        }
    }
}
