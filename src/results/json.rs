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
    /// Whether the array or object that begins is in a row, or is one.
    fn enter(&mut self) -> bool {
        self.depth += 1;
        self.stay()
    }

    /// Whether what is in the current array or object is in a row.
    fn stay(&mut self) -> bool {
        self.depth > DEPTH
    }

    /// Whether the array or object that ends was in a row, or was one.
    fn leave(&mut self) -> bool {
        let is_row = self.stay();
        self.depth -= 1;
        is_row
    }
}

/// Defines methods of a [`Formatter`] that write rows on one line each, and else with indentation. The first word is the
/// method of [`Rows`] that tells which.
macro_rules! by_depth {
    ($($is_row:ident $method:ident($($argument:ident: $type:ty)?);)+) => {$(
        fn $method<W: ?Sized + Write>(&mut self, writer: &mut W $(, $argument: $type)?) -> io::Result<()> {
            if self.$is_row() {
                CompactFormatter.$method(writer $(, $argument)?)
            } else {
                self.pretty.$method(writer $(, $argument)?)
            }
        }
    )+};
}

impl Formatter for Rows {
    by_depth! {
        enter begin_array();
        stay begin_array_value(is_first: bool);
        stay end_array_value();
        leave end_array();
        enter begin_object();
        stay begin_object_key(is_first: bool);
        stay begin_object_value();
        stay end_object_value();
        leave end_object();
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
