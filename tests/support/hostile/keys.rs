//! Keys that collide in a hash table, and dumps with such keys.

use super::cases::CODE;
use crate::support::dump::DumpWriter;

const DEBUG_INFO: u32 = 2;

/// A generator of distinct keys.
pub struct Keys {
    /// Numbers are multiples of this factor, modulo 2^64.
    factor: u64,
    /// The last 8 bytes of names.
    ending: [u8; 8],
}

/// Keys that do not collide.
pub const SCATTERED: Keys = Keys {
    factor: 0x9e37_79b9_7f4a_7c15,
    ending: *b"ordinary",
};

/// Keys that collide in rustc-hash. It multiplies numbers by 0xf135_7aea_2e62_a9c5, the inverse of `factor`, so that
/// the products are 1, 2, 3 and so on, and uses only their upper bits. In names, it combines the last 8 bytes with a
/// constant by exclusive or, and multiplies the first 8 bytes by the result, which is 0 for this `ending`.
pub const COLLIDING: Keys = Keys {
    factor: 0x7814_94a5_5daa_ed0d,
    ending: 0x1319_8a2e_0370_7344u64.to_le_bytes(),
};

impl Keys {
    /// Returns numbers of 64 bits.
    pub fn numbers(&self, count: u64) -> impl Iterator<Item = u64> {
        (1..=count).map(|at| self.factor.wrapping_mul(at))
    }

    /// Returns names of 16 bytes.
    pub fn names(&self, count: u64) -> impl Iterator<Item = Vec<u8>> {
        let digits = |at: u64| (0..8).map(move |digit| b'a' + (at >> (4 * digit) & 15) as u8);
        (0..count).map(move |at| digits(at).chain(self.ending).collect())
    }
}

/// Writes DEBUG_INFO records without LOAD records, and one function.
pub fn lines_that_wait(dump: &mut DumpWriter, count: u64, keys: &Keys) {
    for address in keys.numbers(count) {
        dump.record(DEBUG_INFO, 1000, &[address.to_le_bytes(), [0; 8]].concat());
    }
    dump.load(1000, CODE, 0, b"f", &[0x90; 8]);
}

/// Writes functions at the keys, and one that moves.
pub fn functions_and_a_move(dump: &mut DumpWriter, count: u64, keys: &Keys) {
    for address in keys.numbers(count) {
        dump.load(1000, address, address, b"f", &[0x90; 8]);
    }
    dump.load(1001, CODE, 0, b"f", &[0x90; 8]);
    dump.moved(1002, CODE, CODE + 8, 8, 0);
}
