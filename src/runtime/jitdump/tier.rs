//! JIT_TIER records: which compiler made the function that is loaded next.
//!
//! samply's author named the record (number 827346260) and said that it has a tier's name and the index of a
//! colour. No runtime is known to write it, and no layout was published. This is read:
//!
//! ```text
//! u32 colour     may be left out
//! name           UTF-8, NUL-terminated, followed by nothing but NULs
//! ```

/// The tier's name; `None` if the content is something else.
pub fn parse(content: &[u8]) -> Option<&[u8]> {
    /// No compiler has a longer name.
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
    behind_colour.get(..name(behind_colour)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_with_or_without_a_colour() {
        assert_eq!(parse(b"Ion\0"), Some(&b"Ion"[..]));
        assert_eq!(parse(b"\x05\0\0\0Baseline\0\0\0\0"), Some(&b"Baseline"[..]));
        assert_eq!(parse(b"\0\0\0\x05Baseline\0"), Some(&b"Baseline"[..]));
        for other in [
            &b""[..],
            b"\0\0\0\0",
            b"Ion",
            b"Ion\0more",
            b"\x1b[2J\0",
            b"\x01\0\0\0\0",
        ] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }
}
