//! Names and paths as they stand in an object.

use crate::bytes::steers_terminal;

/// Appends text so that it is safe to print: what would steer a terminal, and what is not UTF-8, is escaped,
/// since readers print symbols and paths as they are. There is no NUL in it afterwards.
pub fn put_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid();
        if valid.contains(steers_terminal) {
            for character in valid.chars() {
                put_character(out, character);
            }
        } else {
            out.extend_from_slice(valid.as_bytes());
        }
        for byte in chunk.invalid() {
            out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
    }
}

fn put_character(out: &mut Vec<u8>, character: char) {
    if !steers_terminal(character) {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    } else if character.is_ascii() {
        out.extend_from_slice(format!("\\x{:02x}", u32::from(character)).as_bytes());
    } else {
        out.extend_from_slice(character.escape_unicode().to_string().as_bytes());
    }
}
