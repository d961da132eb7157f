//! Names: what has happened to them on their way, as far as it can be seen.

/// Whether a name is UTF-8 whose bytes were taken for characters, and encoded once more: it has characters that are not
/// ASCII, each of them would fit into a byte, and the bytes are UTF-8.
pub(super) fn is_encoded_twice(name: &str) -> bool {
    if name.is_ascii() {
        return false;
    }
    let bytes = name.chars().map(|character| u8::try_from(u32::from(character)));
    let bytes: Result<Vec<u8>, _> = bytes.collect();
    bytes.is_ok_and(|bytes| std::str::from_utf8(&bytes).is_ok())
}

/// Whether the name of a source file says where it is only together with something else: it does not start at the root,
/// has no scheme or drive, and is no file that a runtime has made up.
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
