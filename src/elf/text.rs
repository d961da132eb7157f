//! Names and paths as they stand in an object.

use std::io::Write;

use crate::bytes::steers_terminal;

/// Appends text so that it is safe to print: what would steer a terminal, and what is not UTF-8, is escaped,
/// since readers print symbols and paths as they are. There is no NUL in it afterwards.
pub fn put_escaped(out: &mut Vec<u8>, text: &[u8]) {
    put(out, text, |_| false);
}

/// Appends a path in the same way, but for bytes that are not UTF-8 and do nothing to a terminal: readers
/// look for the file under that very name.
pub fn put_path(out: &mut Vec<u8>, path: &[u8]) {
    // What is below are control characters of 8-bit terminals.
    put(out, path, |byte| byte >= 0xa0);
}

fn put(out: &mut Vec<u8>, text: &[u8], is_kept: impl Fn(u8) -> bool) {
    // Nearly all names and paths.
    if text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        out.extend_from_slice(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid();
        if valid.contains(steers_terminal) {
            for character in valid.chars() {
                put_character(out, character);
            }
        } else {
            out.extend_from_slice(valid.as_bytes());
        }
        for &byte in chunk.invalid() {
            if is_kept(byte) {
                out.push(byte);
            } else {
                put_byte(out, byte);
            }
        }
    }
}

fn put_character(out: &mut Vec<u8>, character: char) {
    if !steers_terminal(character) {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    } else if character.is_ascii() {
        put_byte(out, character as u8);
    } else {
        // Writing to memory does not fail.
        let _ = write!(out, "{}", character.escape_unicode());
    }
}

/// Appends a byte as the escape of its number.
fn put_byte(out: &mut Vec<u8>, byte: u8) {
    let _ = write!(out, "\\x{byte:02x}");
}
