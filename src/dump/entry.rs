//! A piece of a file, and what it says: the same fields for JSON and for people.

use std::fmt::{self, Display, Write as _};

use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};

use crate::bytes::printable;

/// A piece of a file: some bytes of it, and what they say.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// How many bytes of the file it is.
    pub size: u64,
    /// What it is, by the name that the format has for it.
    pub kind: &'static str,
    /// When, as the file tells it: nanoseconds, cycles or ticks.
    pub time: Option<u64>,
    /// What it says.
    pub fields: Fields<'a>,
}

impl Entry<'_> {
    /// Whether it is no part of what was meant to be there, or not all of it.
    pub fn is_damaged(&self) -> bool {
        self.kind == DAMAGE || [FAULT, CUT, REPAIRED].iter().any(|key| self.fields.has(key))
    }
}

/// The kind of bytes that could not be read.
pub const DAMAGE: &str = "damage";

/// The kind of bytes that mean nothing, and are not meant to.
pub const PADDING: &str = "padding";

/// The field that says what is wrong with a piece.
pub const FAULT: &str = "fault";

/// The field of a piece that the file, or what is around it, ends inside of.
pub const CUT: &str = "cut";

/// The field of a piece whose size was wrong, and could be told from what is behind it.
pub const REPAIRED: &str = "repaired";

/// What some bytes say, by the names that the format has for it.
#[derive(Debug, Default)]
pub struct Fields<'a>(Vec<(&'static str, Value<'a>)>);

/// The value of a field.
#[derive(Debug)]
pub enum Value<'a> {
    /// Something that is so; left out in text where it is not.
    Flag(bool),
    /// A size, count, time or the like.
    Number(u64),
    /// A number with a sign.
    Signed(i64),
    /// A number with a fraction.
    Float(f64),
    /// An address, or bits: in JSON a string, `0x` and digits.
    Hex(u64),
    /// One of some words.
    Word(&'static str),
    /// A text of this program.
    Text(String),
    /// A text of the file, which may be anything.
    Name(&'a [u8]),
    /// Bytes of the file: in JSON a string of hexadecimal digits.
    Bytes(&'a [u8]),
    /// Some more fields.
    Fields(Fields<'a>),
    /// Values of one sort.
    List(List<'a>),
}

/// Values that are made one by one while they are printed: a record may have millions.
pub struct List<'a>(Box<dyn Items<'a> + 'a>);

trait Items<'a> {
    fn iter(&self) -> Box<dyn Iterator<Item = Value<'a>> + '_>;
}

/// What is walked in the file each time.
struct Walked<I, F>(I, F);

impl<'a, I: IntoIterator + Clone, F: Fn(I::Item) -> Value<'a>> Items<'a> for Walked<I, F> {
    fn iter(&self) -> Box<dyn Iterator<Item = Value<'a>> + '_> {
        Box::new(self.0.clone().into_iter().map(&self.1))
    }
}

/// What was read before.
struct Kept<T, F>(Vec<T>, F);

impl<'a, T, F: Fn(&T) -> Value<'a>> Items<'a> for Kept<T, F> {
    fn iter(&self) -> Box<dyn Iterator<Item = Value<'a>> + '_> {
        Box::new(self.0.iter().map(&self.1))
    }
}

impl<'a> List<'a> {
    /// What `items` walks over, as values.
    pub fn walked<I>(items: I, value: impl Fn(I::Item) -> Value<'a> + 'a) -> Self
    where
        I: IntoIterator + Clone + 'a,
    {
        Self(Box::new(Walked(items, value)))
    }

    /// What `items` holds, as values.
    pub fn kept<T: 'a>(items: Vec<T>, value: impl Fn(&T) -> Value<'a> + 'a) -> Self {
        Self(Box::new(Kept(items, value)))
    }

    /// The values.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        self.0.iter()
    }

    /// Whether the values are fields, each of which gets a line of text.
    fn has_rows(&self) -> bool {
        matches!(self.iter().next(), Some(Value::Fields(_)))
    }
}

impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Fields<'a> {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field.
    pub fn push(&mut self, key: &'static str, value: Value<'a>) {
        self.0.push((key, value));
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: Value<'a>) -> Self {
        self.push(key, value);
        self
    }

    /// With one more number.
    #[must_use]
    pub fn number(self, key: &'static str, value: impl Into<u64>) -> Self {
        self.with(key, Value::Number(value.into()))
    }

    /// With one more number, where there is one.
    #[must_use]
    pub fn number_if(self, key: &'static str, value: Option<impl Into<u64>>) -> Self {
        match value {
            Some(value) => self.number(key, value),
            None => self,
        }
    }

    /// With one more address, or more bits.
    #[must_use]
    pub fn hex(self, key: &'static str, value: impl Into<u64>) -> Self {
        self.with(key, Value::Hex(value.into()))
    }

    /// With one more address, where there is one.
    #[must_use]
    pub fn hex_if(self, key: &'static str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.hex(key, value),
            None => self,
        }
    }

    /// With one more word.
    #[must_use]
    pub fn word(self, key: &'static str, value: &'static str) -> Self {
        self.with(key, Value::Word(value))
    }

    /// With one more text of the file.
    #[must_use]
    pub fn name(self, key: &'static str, value: &'a [u8]) -> Self {
        self.with(key, Value::Name(value))
    }

    /// With one more text of the file, where there is one.
    #[must_use]
    pub fn name_if(self, key: &'static str, value: &'a [u8]) -> Self {
        match value {
            b"" => self,
            _ => self.name(key, value),
        }
    }

    /// With one more list, unless it is empty.
    #[must_use]
    pub fn list(self, key: &'static str, list: List<'a>) -> Self {
        if list.iter().next().is_none() {
            return self;
        }
        self.with(key, Value::List(list))
    }

    /// With a mark.
    #[must_use]
    pub fn flag(self, key: &'static str) -> Self {
        self.with(key, Value::Flag(true))
    }

    /// With what is wrong.
    #[must_use]
    pub fn fault(self, fault: impl Display) -> Self {
        self.with(FAULT, Value::Text(fault.to_string()))
    }

    /// A field by its name.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        let field = self.0.iter().find(|&&(name, _)| name == key);
        field.map(|(_, value)| value)
    }

    /// Whether there is a field of this name.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// A field that is a number, in whatever form.
    pub fn get_number(&self, key: &str) -> Option<u64> {
        match self.get(key) {
            Some(&(Value::Number(number) | Value::Hex(number))) => Some(number),
            _ => None,
        }
    }

    /// A field that is a text of the file.
    pub fn get_name(&self, key: &str) -> Option<&'a [u8]> {
        match self.get(key) {
            Some(&Value::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// Adds them to a map of JSON.
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

impl Serialize for Entry<'_> {
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
            Self::Bytes(bytes) => serializer.collect_str(&Digits(bytes)),
            Self::Fields(fields) => fields.serialize(serializer),
            Self::List(list) => {
                let mut seq = serializer.serialize_seq(None)?;
                for value in list.iter() {
                    seq.serialize_element(&value)?;
                }
                seq.end()
            }
        }
    }
}

/// The text form: a line, and more lines for lists of fields. It ends without a line break.
impl Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x} {} {}", self.offset, self.kind, self.details())
    }
}

impl Entry<'_> {
    /// The text form without place and kind.
    pub fn details(&self) -> impl Display + '_ {
        Details(self)
    }
}

struct Details<'e, 'a>(&'e Entry<'a>);

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
    /// Writes all fields that go into one line, each with a blank in front, and then the others in lines of their own.
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
            Self::Bytes(bytes) => Digits(bytes).fmt(f),
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

/// Bytes as hexadecimal digits.
struct Digits<'a>(&'a [u8]);

impl Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
