//! Checks of function and file names.

/// Returns whether a name is UTF-8 that was read as Latin-1 and encoded again: it is not ASCII, and its characters as
/// single bytes are valid UTF-8.
pub(super) fn is_encoded_twice(name: &str) -> bool {
    if name.is_ascii() {
        return false;
    }
    let bytes = name.chars().map(|character| u8::try_from(u32::from(character)));
    let bytes: Result<Vec<u8>, _> = bytes.collect();
    bytes.is_ok_and(|bytes| std::str::from_utf8(&bytes).is_ok())
}

/// Returns whether the path of a source file is relative: it does not start at the root, has no scheme or drive, and is
/// not a synthetic name of a runtime.
pub(super) fn is_relative(path: &[u8]) -> bool {
    let starts_elsewhere = path.first().is_some_and(|first| b"/\\<[(".contains(first));
    !path.is_empty() && !starts_elsewhere && !path.contains(&b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn double_encoding_is_seen() {
        assert!(is_encoded_twice("grÃ¶Ã\u{9f}e"));
        for name in ["große", "größe", "plain", "中文", "é", ""] {
            assert!(!is_encoded_twice(name), "{name}");
        }
    }

    #[test]
    fn relative_names_are_told_from_whole_ones() {
        for path in [&b"work.erl"[..], b"java/lang/String.java", b"./a.js"] {
            assert!(is_relative(path));
        }
        for path in [
            &b"/a.js"[..],
            b"file:///a.js",
            b"node:internal/main",
            b"C:\\a.js",
            b"<frozen os>",
            b"[native]",
            b"",
        ] {
            assert!(!is_relative(path));
        }
    }
}
