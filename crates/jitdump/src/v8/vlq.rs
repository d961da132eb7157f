//! Base64 VLQ numbers of source maps (ECMA-426, 7.1).

/// Reads the next number, and returns it with the rest of the text; `None` if it is invalid or too large.
pub fn read(text: &[u8]) -> Option<(i64, &[u8])> {
    let (mut value, mut shift) = (0i64, 0u32);
    let mut rest = text;
    loop {
        let (&digit, after) = rest.split_first()?;
        rest = after;
        let digit = digit_value(digit)?;
        value |= i64::from(digit & 0x1f).checked_shl(shift)?;
        shift = shift.saturating_add(5);
        if digit & 0x20 == 0 {
            break;
        }
        // Numbers have 32 bits and a sign.
        if shift > 35 {
            return None;
        }
    }
    let magnitude = value >> 1;
    Some((
        if value & 1 == 0 {
            magnitude
        } else {
            magnitude.checked_neg()?
        },
        rest,
    ))
}

fn digit_value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => digit.checked_sub(b'A'),
        b'a'..=b'z' => digit.checked_sub(b'a')?.checked_add(26),
        b'0'..=b'9' => digit.checked_sub(b'0')?.checked_add(52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn numbers_have_signs_and_continue() {
        for (text, expected) in [
            ("A", 0),
            ("C", 1),
            ("D", -1),
            ("gB", 16),
            ("hB", -16),
            ("+/////D", 2147483647),
        ] {
            assert_eq!(read(text.as_bytes()), Some((expected, &b""[..])), "{text}");
        }
        assert_eq!(read(b"CAA"), Some((1, &b"AA"[..])));
        for text in ["", "g", "!", "gggggggggA"] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }
}
