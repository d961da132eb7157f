//! JIT_TIER records: the compiler tier of the next function to be loaded.
//!
//! samply's author defined the record (type 827346260) as the name of a tier and the index of a colour. No
//! known runtime writes it, and its layout was never published. This layout is accepted:
//!
//! ```text
//! u32 colour     optional; may follow the name
//! name           UTF-8, NUL-terminated, followed only by NULs
//! ```

/// Returns the name of the tier; `None` if the content does not have this layout.
pub fn parse(content: &[u8]) -> Option<&[u8]> {
    /// Longer than any compiler's name, in bytes.
    const MAX_NAME: usize = 64;
    let name = |bytes: &'_ [u8]| {
        let end = memchr::memchr(0, bytes).filter(|end| (1..=MAX_NAME).contains(end))?;
        let (name, rest) = bytes.split_at_checked(end)?;
        let is_text = std::str::from_utf8(name).is_ok() && !name.iter().any(u8::is_ascii_control);
        (is_text && rest.iter().all(|&byte| byte == 0)).then_some(end)
    };
    if let Some(end) = name(content) {
        return content.get(..end);
    }
    let behind_colour = content.get(4..)?;
    if let Some(end) = name(behind_colour) {
        return behind_colour.get(..end);
    }
    // The colour follows the NUL directly, or the padding up to a multiple of 4.
    let before_colour = content.get(..content.len().checked_sub(4)?)?;
    before_colour.get(..name(before_colour)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_with_or_without_a_colour() {
        assert_eq!(parse(b"Ion\0"), Some(&b"Ion"[..]));
        assert_eq!(parse(b"\x05\0\0\0Baseline\0\0\0\0"), Some(&b"Baseline"[..]));
        assert_eq!(parse(b"\0\0\0\x05Baseline\0"), Some(&b"Baseline"[..]));
        assert_eq!(parse(b"Baseline\0\x05\0\0\0"), Some(&b"Baseline"[..]));
        assert_eq!(parse(b"Baseline\0\0\0\0\0\0\0\x05"), Some(&b"Baseline"[..]));
        for other in [
            &b""[..],
            b"\0\0\0\0",
            b"Ion",
            b"Ion\0more-more",
            b"\x1b[2J\0",
            b"\x01\0\0\0\0",
        ] {
            assert_eq!(parse(other), None, "{other:?}");
        }
        // The first four bytes of a longer name may be a colour.
        for (length, expected) in [(64, Some(64)), (68, Some(64)), (69, None)] {
            let content = ["x".repeat(length), "\0".to_owned()].concat();
            assert_eq!(parse(content.as_bytes()).map(<[u8]>::len), expected, "{length}");
        }
    }
}
