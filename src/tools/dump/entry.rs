//! Entries of a dump: byte ranges of a file with their decoded fields, for both JSON and text output.

use std::fmt::{self, Display, Write as _};

use jitdump::{ByteOrder, printable};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::bytes::hex_digits;

/// A range of bytes in a file and its decoded content.
#[derive(Debug)]
pub struct DumpEntry<'a> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Size in the file, in bytes.
    pub size: u64,
    /// Type of the entry, as the format's specification names it.
    pub kind: &'static str,
    /// Time in the unit of the file: nanoseconds, cycles or ticks.
    pub time: Option<u64>,
    /// Decoded fields.
    pub fields: Fields<'a>,
}

impl<'a> DumpEntry<'a> {
    /// Creates an entry without a time.
    pub(super) fn new(offset: u64, size: u64, kind: &'static str, fields: Fields<'a>) -> Self {
        Self {
            offset,
            size,
            kind,
            time: None,
            fields,
        }
    }

    /// Creates an entry for bytes that could not be read.
    pub(super) fn damage(offset: u64, size: u64, fault: impl Display) -> Self {
        Self::new(offset, size, DAMAGE, Fields::new().fault(fault))
    }

    /// Returns whether the entry is damage, is incomplete, was repaired or has another fault.
    pub fn is_damaged(&self) -> bool {
        self.kind == DAMAGE || [FAULT, CUT, REPAIRED].iter().any(|key| self.fields.has(key))
    }
}

/// Kind of an entry for bytes that could not be read.
pub const DAMAGE: &str = "damage";

/// Kind of an entry for bytes without a meaning.
pub const PADDING: &str = "padding";

/// Field that describes the fault of an entry.
pub const FAULT: &str = "fault";

/// Field that names the first missing part of an incomplete entry; also the kind of an incomplete entry of
/// unknown type.
pub const CUT: &str = "cut";

/// Field that marks a wrong size or file name that has been repaired.
pub const REPAIRED: &str = "repaired";

/// Field that marks a file name that refers to the one before it.
pub const SAME_NAME: &str = "same_name";

/// Decoded fields in output order, under the names that the format's specification uses.
#[derive(Debug, Default)]
pub struct Fields<'a>(Vec<(&'static str, Value<'a>)>);

/// The value of a field.
#[derive(Debug)]
pub enum Value<'a> {
    /// A flag; text output omits it if it is `false`.
    Flag(bool),
    /// A size, count, time or ID.
    Number(u64),
    /// A signed number.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
    /// An address or bits; in JSON a string of `0x` and hexadecimal digits.
    Hex(u64),
    /// One of a fixed set of words.
    Word(&'static str),
    /// Text written by this program.
    Text(String),
    /// Text from the file, in any encoding.
    Name(&'a [u8]),
    /// Bytes from the file; in JSON a string of hexadecimal digits.
    Bytes(&'a [u8]),
    /// Nested fields.
    Fields(Fields<'a>),
    /// A list of values of the same variant.
    List(ValueList<'a>),
}

/// Values that are created while they are printed, as a record may have millions.
pub struct ValueList<'a>(Box<dyn Items<'a> + 'a>);

trait Items<'a> {
    fn iter(&self) -> Box<dyn Iterator<Item = Value<'a>> + '_>;
}

/// Items that are read again on each iteration.
struct LazyItems<I, F>(I, F);

impl<'a, I: Iterator + Clone, F: Fn(I::Item) -> Option<Value<'a>>> Items<'a> for LazyItems<I, F> {
    fn iter(&self) -> Box<dyn Iterator<Item = Value<'a>> + '_> {
        Box::new(self.0.clone().filter_map(&self.1))
    }
}

impl<'a> ValueList<'a> {
    /// Creates a list that iterates over a clone of `items` each time and converts each item with `value`.
    pub fn lazy<I>(items: I, value: impl Fn(I::Item) -> Value<'a> + 'a) -> Self
    where
        I: Iterator + Clone + 'a,
    {
        Self(Box::new(LazyItems(items, move |item| Some(value(item)))))
    }

    /// Creates a list from a vector and converts each item with `value`.
    pub fn from_vec<T: 'a>(items: Vec<T>, value: impl Fn(&T) -> Value<'a> + 'a) -> Self {
        let places = 0..items.len();
        Self(Box::new(LazyItems(places, move |at: usize| {
            items.get(at).map(&value)
        })))
    }

    /// Iterates over the values.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        self.0.iter()
    }

    /// Returns whether the values are nested fields, which text output prints one per line.
    fn has_rows(&self) -> bool {
        matches!(self.iter().next(), Some(Value::Fields(_)))
    }
}

impl fmt::Debug for ValueList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Fields<'a> {
    /// Creates an empty set of fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a field.
    pub fn push(&mut self, key: &'static str, value: Value<'a>) {
        self.0.push((key, value));
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: Value<'a>) -> Self {
        self.push(key, value);
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, key: &'static str, value: impl Into<u64>) -> Self {
        self.with(key, Value::Number(value.into()))
    }

    /// Adds a number if there is one.
    #[must_use]
    pub fn number_if(self, key: &'static str, value: Option<impl Into<u64>>) -> Self {
        match value {
            Some(value) => self.number(key, value),
            None => self,
        }
    }

    /// Adds a signed number.
    #[must_use]
    pub fn signed(self, key: &'static str, value: impl Into<i64>) -> Self {
        self.with(key, Value::Signed(value.into()))
    }

    /// Adds an address or bits.
    #[must_use]
    pub fn hex(self, key: &'static str, value: impl Into<u64>) -> Self {
        self.with(key, Value::Hex(value.into()))
    }

    /// Adds an address if there is one.
    #[must_use]
    pub fn hex_if(self, key: &'static str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.hex(key, value),
            None => self,
        }
    }

    /// Adds a word.
    #[must_use]
    pub fn word(self, key: &'static str, value: &'static str) -> Self {
        self.with(key, Value::Word(value))
    }

    /// Adds text from the file.
    #[must_use]
    pub fn name(self, key: &'static str, value: &'a [u8]) -> Self {
        self.with(key, Value::Name(value))
    }

    /// Adds text from the file unless it is empty.
    #[must_use]
    pub fn name_if(self, key: &'static str, value: &'a [u8]) -> Self {
        match value {
            b"" => self,
            _ => self.name(key, value),
        }
    }

    /// Adds a list unless it is empty.
    #[must_use]
    pub fn list(self, key: &'static str, list: ValueList<'a>) -> Self {
        if list.iter().next().is_none() {
            return self;
        }
        self.with(key, Value::List(list))
    }

    /// Adds a flag that is set.
    #[must_use]
    pub fn flag(self, key: &'static str) -> Self {
        self.with(key, Value::Flag(true))
    }

    /// Adds the endianness of the file.
    #[must_use]
    pub(super) fn byte_order(self, endian: ByteOrder) -> Self {
        let is_little = endian == ByteOrder::Little;
        self.word("byte_order", if is_little { "little" } else { "big" })
    }

    /// Adds the description of a fault.
    #[must_use]
    pub fn fault(self, fault: impl Display) -> Self {
        self.with(FAULT, Value::Text(fault.to_string()))
    }

    /// Returns the value of a field.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        let field = self.0.iter().find(|&&(name, _)| name == key);
        field.map(|(_, value)| value)
    }

    /// Returns whether there is a field with this name.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns a field that is a number or an address; `None` for all other values.
    pub fn get_number(&self, key: &str) -> Option<u64> {
        match self.get(key) {
            Some(&(Value::Number(number) | Value::Hex(number))) => Some(number),
            _ => None,
        }
    }

    /// Returns a field that is text from the file.
    pub fn get_name(&self, key: &str) -> Option<&'a [u8]> {
        match self.get(key) {
            Some(&Value::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// Adds the fields to a JSON object.
    fn serialize_into<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
            if let Value::Name(name) = value
                && std::str::from_utf8(name).is_err()
            {
                map.serialize_entry(&format_args!("{key}_bytes"), &Value::Bytes(name))?;
            }
        }
        Ok(())
    }
}

impl Serialize for DumpEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("offset", &self.offset)?;
        map.serialize_entry("size", &self.size)?;
        map.serialize_entry("type", self.kind)?;
        if let Some(time) = self.time {
            map.serialize_entry("time", &time)?;
        }
        self.fields.serialize_into(&mut map)?;
        map.end()
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.serialize_into(&mut map)?;
        map.end()
    }
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Signed(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Hex(number) => serializer.collect_str(&format_args!("{number:#x}")),
            Self::Word(word) => serializer.serialize_str(word),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Name(name) => serializer.serialize_str(&String::from_utf8_lossy(name)),
            Self::Bytes(bytes) => serializer.serialize_str(&hex_digits(bytes)),
            Self::Fields(fields) => fields.serialize(serializer),
            Self::List(list) => serializer.collect_seq(list.iter()),
        }
    }
}

/// Text form: one line, followed by lines for lists of fields. It ends without a line break.
impl Display for DumpEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x} {} {}", self.offset, self.kind, self.details())
    }
}

impl DumpEntry<'_> {
    /// Returns the text form without offset and kind.
    pub fn details(&self) -> impl Display + '_ {
        Details(self)
    }
}

struct Details<'e, 'a>(&'e DumpEntry<'a>);

impl Display for Details<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(entry) = self;
        write!(f, "size={}", entry.size)?;
        if let Some(time) = entry.time {
            write!(f, " time={time}")?;
        }
        entry.fields.write(f, 1)
    }
}

impl Fields<'_> {
    /// Writes the fields that fit on one line, each after a space, then lists of fields on lines of their
    /// own.
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        const INDENTATION: usize = 4;
        let mut lists = Vec::new();
        for (key, value) in &self.0 {
            match value {
                Value::List(list) if list.has_rows() => lists.push((key, list)),
                Value::Flag(true) => write!(f, " {key}")?,
                Value::Flag(false) => {}
                _ => write!(f, " {key}={value}")?,
            }
        }
        let indentation = depth.saturating_mul(INDENTATION);
        for (key, list) in lists {
            write!(f, "\n{:indentation$}{key}:", "")?;
            for value in list.iter() {
                write!(f, "\n{:indentation$}   ", "")?;
                match value {
                    Value::Fields(fields) => fields.write(f, depth.saturating_add(1))?,
                    other => write!(f, " {other}")?,
                }
            }
        }
        Ok(())
    }
}

impl Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Hex(number) => write!(f, "{number:#x}"),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => write!(f, "\"{}\"", printable(text.as_bytes())),
            Self::Name(name) => write!(f, "\"{}\"", printable(name)),
            Self::Bytes(bytes) => f.write_str(&hex_digits(bytes)),
            Self::Fields(fields) => {
                f.write_char('{')?;
                fields.write(f, 1)?;
                f.write_str(" }")
            }
            Self::List(list) => {
                f.write_char('[')?;
                for (at, value) in list.iter().enumerate() {
                    let separator = if at == 0 { "" } else { " " };
                    write!(f, "{separator}{value}")?;
                }
                f.write_char(']')
            }
        }
    }
}
