//! Messages of protocol buffers.

use crate::elf::dwarf::leb128;

/// Wire types of fields.
const VARINT: u64 = 0;
const BYTES: u64 = 2;

/// A message that is being written.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds an integer, which is encoded as in DWARF.
    fn varint(&mut self, value: u64) {
        leb128::write_unsigned(&mut self.0, value);
    }

    /// Adds a number, unless it is 0, which is the number of a field that is missing.
    pub fn number(&mut self, field: u64, value: impl Into<u64>) {
        let value = value.into();
        if value != 0 {
            self.varint(field << 3 | VARINT);
            self.varint(value);
        }
    }

    /// Adds a flag.
    pub fn flag(&mut self, field: u64, value: bool) {
        self.number(field, value);
    }

    /// Adds text or a message.
    pub fn field(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Adds a list of numbers.
    pub fn numbers(&mut self, field: u64, values: impl IntoIterator<Item = u64>) {
        let mut packed = Self::default();
        values.into_iter().for_each(|value| packed.varint(value));
        if !packed.0.is_empty() {
            self.field(field, &packed.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_in_the_documentation_of_protocol_buffers() {
        let mut message = Message::default();
        message.number(1, 150_u32);
        message.number(9, 0_u32);
        message.field(2, b"testing");
        message.numbers(6, [3, 270, 86942]);
        let expected = b"\x08\x96\x01\x12\x07testing\x32\x06\x03\x8e\x02\x9e\xa7\x05";
        assert_eq!(message.bytes(), expected);
    }
}
