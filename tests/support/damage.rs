//! Damages files at random.

use super::generator::Random;

/// Damages a file: flips bits, removes or duplicates bytes, sets integers to extreme values.
pub fn damage(file: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        if file.is_empty() {
            return;
        }
        let at = random.below(file.len() as u64) as usize;
        let end = (at + 1 + random.below(64) as usize).min(file.len());
        match random.below(6) {
            0 => file[at] ^= 1 << random.below(8),
            1 => file.truncate(at.max(1)),
            2 => drop(file.drain(at..end)),
            3 => {
                let doubled = file[at..end].to_vec();
                file.splice(at..at, doubled);
            }
            _ => {
                let extremes = [0, 1, 0x7f, 0xff];
                let size = [1, 2, 4, 8][random.below(4) as usize];
                let end = (at + size).min(file.len());
                file[at..end].fill(extremes[random.below(4) as usize]);
            }
        }
    }
}
