//! JSON with one row for each entry of a long list.

use std::io::{self, Write};

use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Depth to which values are indented: entries of lists in the objects of the outermost object are rows.
const DEPTH: usize = 3;

/// Formats the outer values with indentation, and everything in them on one line.
#[derive(Debug, Default)]
pub struct Rows {
    pretty: PrettyFormatter<'static>,
    depth: usize,
}

impl Rows {
    fn is_row(&self) -> bool {
        self.depth > DEPTH
    }
}

impl Formatter for Rows {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        match self.is_row() {
            true => CompactFormatter.begin_array(writer),
            false => self.pretty.begin_array(writer),
        }
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let is_row = self.is_row();
        self.depth -= 1;
        match is_row {
            true => CompactFormatter.end_array(writer),
            false => self.pretty.end_array(writer),
        }
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, is_first: bool) -> io::Result<()> {
        match self.is_row() {
            true => CompactFormatter.begin_array_value(writer, is_first),
            false => self.pretty.begin_array_value(writer, is_first),
        }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.is_row() {
            true => CompactFormatter.end_array_value(writer),
            false => self.pretty.end_array_value(writer),
        }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        match self.is_row() {
            true => CompactFormatter.begin_object(writer),
            false => self.pretty.begin_object(writer),
        }
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let is_row = self.is_row();
        self.depth -= 1;
        match is_row {
            true => CompactFormatter.end_object(writer),
            false => self.pretty.end_object(writer),
        }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, is_first: bool) -> io::Result<()> {
        match self.is_row() {
            true => CompactFormatter.begin_object_key(writer, is_first),
            false => self.pretty.begin_object_key(writer, is_first),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.is_row() {
            true => CompactFormatter.begin_object_value(writer),
            false => self.pretty.begin_object_value(writer),
        }
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.is_row() {
            true => CompactFormatter.end_object_value(writer),
            false => self.pretty.end_object_value(writer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::{Serializer, Value, json};

    use super::*;

    #[test]
    fn entries_of_inner_lists_are_rows() {
        let value = json!({"a": {"list": [{"x": [1, 2]}, {"x": []}]}, "b": [], "c": 3});
        let mut text = Vec::new();
        value
            .serialize(&mut Serializer::with_formatter(&mut text, Rows::default()))
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        let expected = r#"{
  "a": {
    "list": [
      {"x":[1,2]},
      {"x":[]}
    ]
  },
  "b": [],
  "c": 3
}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
