//! Escapes names and paths that are written into an object.

use std::io::Write;

use crate::bytes::is_terminal_control;

/// Appends text that is safe to print: control characters for terminals and invalid UTF-8 are escaped, because
/// readers print symbols and paths as they are. The result contains no NUL.
pub fn write_escaped(out: &mut Vec<u8>, text: &[u8]) {
    write_with(out, text, |_| false);
}

/// Appends a path in the same way, but keeps invalid UTF-8 that is harmless to terminals: readers open the file
/// under exactly that name.
pub fn write_path(out: &mut Vec<u8>, path: &[u8]) {
    // Lower bytes are control characters of 8-bit terminals.
    write_with(out, path, |byte| byte >= 0xa0);
}

/// Appends a text with escapes; bytes that are not UTF-8 stay if they are `is_kept`.
fn write_with(out: &mut Vec<u8>, text: &[u8], is_kept: impl Fn(u8) -> bool) {
    // Fast path for nearly all names and paths.
    if text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        out.extend_from_slice(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid();
        if valid.contains(is_terminal_control) {
            for character in valid.chars() {
                write_character(out, character);
            }
        } else {
            out.extend_from_slice(valid.as_bytes());
        }
        for &byte in chunk.invalid() {
            if is_kept(byte) {
                out.push(byte);
            } else {
                write_byte(out, byte);
            }
        }
    }
}

fn write_character(out: &mut Vec<u8>, character: char) {
    if !is_terminal_control(character) {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    } else if character.is_ascii() {
        write_byte(out, character as u8);
    } else {
        // Writing to memory does not fail.
        let _ = write!(out, "{}", character.escape_unicode());
    }
}

/// Appends a byte as a hexadecimal escape.
fn write_byte(out: &mut Vec<u8>, byte: u8) {
    let _ = write!(out, "\\x{byte:02x}");
}
