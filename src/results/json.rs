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

/// Defines methods of a [`Formatter`] that write as rows do at a depth, and else with indentation. Before that, the depth
/// grows by the first number, and after it, it shrinks by the second one.
macro_rules! by_depth {
    ($($method:ident($($argument:ident: $type:ty)?) $deeper:literal $higher:literal;)+) => {$(
        fn $method<W: ?Sized + Write>(&mut self, writer: &mut W $(, $argument: $type)?) -> io::Result<()> {
            self.depth += $deeper;
            let is_row = self.depth > DEPTH;
            self.depth -= $higher;
            match is_row {
                true => CompactFormatter.$method(writer $(, $argument)?),
                false => self.pretty.$method(writer $(, $argument)?),
            }
        }
    )+};
}

impl Formatter for Rows {
    by_depth! {
        begin_array() 1 0;
        begin_array_value(is_first: bool) 0 0;
        end_array_value() 0 0;
        end_array() 0 1;
        begin_object() 1 0;
        begin_object_key(is_first: bool) 0 0;
        begin_object_value() 0 0;
        end_object_value() 0 0;
        end_object() 0 1;
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
