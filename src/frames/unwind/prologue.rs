//! Functions of runtimes that keep a frame pointer, but have no tables: how far their prologue is executed.

use crate::frames::unwind::registers::Target;

/// Maximum distance of the frame's setup from the start of a function, in bytes. V8 checks a flag before it.
const MAX_DISTANCE: usize = 96;

/// Returns the number of words that a function has pushed at `offset` of its `code`, if it has no frame yet: 0 before the
/// frame pointer is pushed, 1 after that. `None` where it has a frame, or if it never sets one up.
pub fn pushed_words(target: Target, code: &[u8], offset: u64) -> Option<u64> {
    let offset = usize::try_from(offset).ok()?;
    let start = code.get(..MAX_DISTANCE).unwrap_or(code);
    match target {
        Target::X86_64 => {
            // ret: the frame is gone.
            if code.get(offset) == Some(&0xc3) {
                return Some(0);
            }
            // push rbp; mov rbp, rsp, in both encodings
            let is_setup =
                |bytes: &[u8]| bytes == [0x55, 0x48, 0x89, 0xe5] || bytes == [0x55, 0x48, 0x8b, 0xec];
            let setup = start.windows(4).position(is_setup)?;
            match offset {
                _ if offset <= setup => Some(0),
                _ if offset == setup.saturating_add(1) => Some(1),
                _ => None,
            }
        }
        Target::Aarch64 => {
            // stp x29, x30, [sp, #-16]!; mov x29, sp
            let is_setup = |bytes: &[u8]| bytes == [0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91];
            let setup = start.windows(8).step_by(4).position(is_setup)?.checked_mul(4)?;
            match offset {
                _ if offset <= setup => Some(0),
                _ if offset == setup.saturating_add(4) => Some(1),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_pushed_so_far_are_known_at_each_instruction() {
        // nop; push rbp; mov rbp, rsp; pop rbp; ret
        let code = [0x90, 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3];
        let words = [0, 1, 2, 5, 6].map(|offset| pushed_words(Target::X86_64, &code, offset));
        assert_eq!(words, [Some(0), Some(0), Some(1), None, Some(0)]);
        assert_eq!(pushed_words(Target::X86_64, &[0x90, 0x90], 0), None);
        let code = [0xa9bf_7bfdu32, 0x9100_03fd, 0xd65f_03c0]
            .map(u32::to_le_bytes)
            .concat();
        let words = [0, 4, 8].map(|offset| pushed_words(Target::Aarch64, &code, offset));
        assert_eq!(words, [Some(0), Some(1), None]);
    }
}
