//! How functions are named for readers: as their runtimes named them, or in another form.
//!
//! Runtimes write the compiler and the position of a function into its name. A reader that adds up samples by name then
//! shows each function once for each compiler.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jitdump::names;
use jitdump::names::{NameParts, SourceLocation};

use crate::bytes::base_name;
use crate::results::encoded_names::decoded;

/// Form of the names of functions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum NameStyle {
    /// As the runtime wrote them.
    #[default]
    Full,
    /// The function's own name.
    Plain,
    /// Parts of a name in a text.
    Pattern(Pattern),
}

/// A text with placeholders, as words between spaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    words: Vec<Vec<Piece>>,
}

/// A part of a word.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    Part(Part),
}

/// Value of a placeholder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Name,
    File,
    Path,
    Line,
    Column,
    Tier,
}

/// Placeholders and their values.
const PLACEHOLDERS: [(&str, Part); 6] = [
    ("name", Part::Name),
    ("file", Part::File),
    ("path", Part::Path),
    ("line", Part::Line),
    ("column", Part::Column),
    ("tier", Part::Tier),
];

/// Why a text is not a style.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InvalidStyle {
    /// Neither `plain` nor `full`, and no placeholder.
    NoPlaceholder,
    /// A placeholder that does not exist.
    UnknownPlaceholder(String),
    /// A brace without its counterpart.
    UnpairedBrace,
}

impl fmt::Display for InvalidStyle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPlaceholder => write!(
                out,
                "neither plain, full, nor a pattern with placeholders such as {{name}}"
            ),
            Self::UnknownPlaceholder(name) => {
                let known = PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}"));
                write!(
                    out,
                    "unknown placeholder {{{name}}}; there are {}",
                    known.join(", ")
                )
            }
            Self::UnpairedBrace => write!(out, "a brace without its counterpart"),
        }
    }
}

impl std::error::Error for InvalidStyle {}

impl fmt::Display for NameStyle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(out, "full"),
            Self::Plain => write!(out, "plain"),
            Self::Pattern(pattern) => {
                let piece = |piece: &Piece| match piece {
                    Piece::Text(text) => text.clone(),
                    Piece::Part(part) => {
                        let known = PLACEHOLDERS.iter().find(|(_, known)| known == part);
                        known.map_or_else(String::new, |(name, _)| format!("{{{name}}}"))
                    }
                };
                let words = pattern.words.iter();
                let words: Vec<String> = words.map(|word| word.iter().map(piece).collect()).collect();
                write!(out, "{}", words.join(" "))
            }
        }
    }
}

impl FromStr for NameStyle {
    type Err = InvalidStyle;

    fn from_str(text: &str) -> Result<Self, InvalidStyle> {
        match text {
            "full" => Ok(Self::Full),
            "plain" => Ok(Self::Plain),
            _ => {
                let words: Vec<_> = text.split_whitespace().map(word).collect::<Result<_, _>>()?;
                let is_pattern = words
                    .iter()
                    .flatten()
                    .any(|piece| matches!(piece, Piece::Part(_)));
                let pattern = is_pattern.then_some(Self::Pattern(Pattern { words }));
                pattern.ok_or(InvalidStyle::NoPlaceholder)
            }
        }
    }
}

/// Parses a word of a pattern.
fn word(text: &str) -> Result<Vec<Piece>, InvalidStyle> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or(InvalidStyle::UnpairedBrace)?;
        pieces.push(Piece::Text(before.to_owned()));
        let known = PLACEHOLDERS.iter().find(|(known, _)| *known == name);
        let (_, part) = known.ok_or_else(|| InvalidStyle::UnknownPlaceholder(name.to_owned()))?;
        pieces.push(Piece::Part(*part));
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    let has_brace = |piece: &Piece| matches!(piece, Piece::Text(text) if text.contains(['{', '}']));
    if pieces.iter().any(has_brace) {
        Err(InvalidStyle::UnpairedBrace)
    } else {
        Ok(pieces)
    }
}

#[doc(hidden)]
impl NameStyle {
    /// Returns the name of code in this style. `declared` returns the name and location of the function that the runtime
    /// wrote beside the name of the code; they count before those in the name. `tier` is its compiler, if known.
    pub(crate) fn apply_declared<'a, 'p>(
        &self,
        name: Cow<'a, [u8]>,
        declared: impl FnOnce() -> Option<NameParts<'p>>,
        tier: Option<&[u8]>,
    ) -> Cow<'a, [u8]> {
        if *self == Self::Full {
            return name;
        }
        let parts = names::parts(&name);
        let parts = declared().map_or(parts, |declared| declared.or(parts));
        self.style(&name, parts, tier).into_owned().into()
    }

    /// Returns the name of an inlined function in this style. `location` is its declaration, after which a function
    /// without a name is named: readers would show none, or that of its caller.
    pub(crate) fn apply_to_inlined<'a>(
        &self,
        name: &'a [u8],
        location: Option<SourceLocation<'_>>,
    ) -> Cow<'a, [u8]> {
        let parts = names::parts(name);
        match self {
            _ if name.is_empty() => location.map_or(name.into(), |location| anonymous(location).into()),
            Self::Full => name.into(),
            _ => {
                let location = parts.location.or(location);
                self.style(name, NameParts { location, ..parts }, None)
            }
        }
    }

    /// Returns the name of an inlined function in a list of functions, where it must match that of its own code: it has
    /// its place if `outer`, the name of the function that contains it, has one.
    #[cfg(any(feature = "samples", feature = "timeline"))]
    pub(crate) fn name_of_inlined(
        &self,
        own: &[u8],
        location: Option<SourceLocation<'_>>,
        outer: &[u8],
    ) -> String {
        use jitdump::printable;

        let has_place = names::needs_file(outer) || !names::source_locations(outer).is_empty();
        match location {
            Some(location) if *self == Self::Full && has_place => {
                let own = if own.is_empty() { ANONYMOUS.as_bytes() } else { own };
                let (own, path) = (printable(own), printable(location.path));
                format!("{own} {path}:{}:{}", location.line, location.column)
            }
            _ => printable(&self.apply_to_inlined(own, location)),
        }
    }

    /// Returns a name in this style, by its parts and its compiler.
    fn style<'a>(&self, name: &'a [u8], parts: NameParts<'_>, tier: Option<&[u8]>) -> Cow<'a, [u8]> {
        let own_name: Cow<'_, [u8]> = match (parts.function, parts.location) {
            // Functions without names are different ones.
            ([], Some(location)) => anonymous(location).into(),
            // Code that is evaluated has no file.
            ([], None) => name.into(),
            (function, _) => match decoded(function) {
                Some(decoded) => decoded.into_bytes().into(),
                None => function.into(),
            },
        };
        match self {
            Self::Full => name.into(),
            Self::Plain => own_name.into_owned().into(),
            Self::Pattern(pattern) => {
                let location = parts.location.as_ref();
                let styled = pattern.fill(|part| part.value(&own_name, location, tier));
                if styled.is_empty() {
                    own_name.into_owned().into()
                } else {
                    styled.into()
                }
            }
        }
    }
}

/// Name of a function without a name, where no place distinguishes it from others.
pub(crate) const ANONYMOUS: &str = "(anonymous)";

/// Name of a function without a name, by its place.
pub(crate) fn anonymous(location: SourceLocation<'_>) -> Vec<u8> {
    let position = line_and_column(location);
    [
        ANONYMOUS.as_bytes(),
        b" ",
        base_name(location.path),
        position.as_bytes(),
    ]
    .concat()
}

/// Returns what follows a path: the line and column if they are known.
pub(crate) fn line_and_column(location: SourceLocation<'_>) -> String {
    match (location.line, location.column) {
        (0, _) => String::new(),
        (line, 0) => format!(":{line}"),
        (line, column) => format!(":{line}:{column}"),
    }
}

impl Part {
    /// Returns the text for a placeholder; `None` if the function does not have it.
    fn value<'v>(
        self,
        name: &'v [u8],
        location: Option<&SourceLocation<'v>>,
        tier: Option<&'v [u8]>,
    ) -> Option<Cow<'v, [u8]>> {
        let number = |number: u32| (number > 0).then(|| Cow::Owned(number.to_string().into_bytes()));
        match self {
            Self::Name => Some(name.into()),
            Self::File => Some(base_name(location?.path).into()),
            Self::Path => Some(location?.path.into()),
            Self::Line => number(location?.line),
            Self::Column => number(location?.column),
            Self::Tier => tier.map(Cow::from),
        }
    }
}

impl Pattern {
    /// Fills in the values of placeholders. Words with a placeholder that has no value are left out.
    fn fill<'v>(&self, value: impl Fn(Part) -> Option<Cow<'v, [u8]>>) -> Vec<u8> {
        let filled = self.words.iter().filter_map(|word| {
            let pieces: Option<Vec<Cow<'_, [u8]>>> = word
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => Some(text.as_bytes().into()),
                    Piece::Part(part) => value(*part),
                })
                .collect();
            Some(pieces?.concat())
        });
        filled.collect::<Vec<_>>().join(&b' ')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styled(style: &str, name: &str) -> String {
        let style: NameStyle = style.parse().unwrap();
        let tier = names::tier(name.as_bytes()).map(str::as_bytes);
        let styled = style.apply_declared(name.as_bytes().into(), || None, tier);
        String::from_utf8(styled.into_owned()).unwrap()
    }

    #[test]
    fn each_style_gives_its_names() {
        const PATTERN: &str = "{name} {file}:{line} [{tier}]";
        for (name, plain, pattern) in [
            ("JS:*run /app/a.js:3:4", "run", "run a.js:3 [TurboFan]"),
            ("JS:~run /app/a.js:3:4", "run", "run a.js:3 [Ignition]"),
            (
                "JS:^ /app/a.js:3:4",
                "(anonymous) a.js:3:4",
                "(anonymous) a.js:3:4 a.js:3 [Sparkplug]",
            ),
            ("JS:* :1:20", "JS:* :1:20", "JS:* :1:20 [TurboFan]"),
            ("JS:*inner :1:20", "inner", "inner [TurboFan]"),
            ("py::fib:/app/a.py", "fib", "fib [Python]"),
            (
                "Builtin:ArrayMap",
                "Builtin:ArrayMap",
                "Builtin:ArrayMap [Builtin]",
            ),
            ("lists:map/2", "lists:map/2", "lists:map/2"),
            ("LShare;alpha(I)J", "Share.alpha(int)", "Share.alpha(int)"),
            #[cfg(feature = "native")]
            ("_ZN3app3hotIlEET_S1_", "app::hot<long>", "app::hot<long>"),
            ("", "", ""),
        ] {
            assert_eq!(styled("full", name), name);
            assert_eq!(styled("plain", name), plain);
            assert_eq!(styled(PATTERN, name), pattern);
        }
        assert_eq!(styled("{path}", "JS:*run /app/a.js:3:4"), "/app/a.js");
        assert_eq!(styled("{path}", "lists:map/2"), "lists:map/2");
        assert_eq!(styled("<{name}@{column}>", "JS:*run /app/a.js:3:4"), "<run@4>");
    }

    #[test]
    fn inlined_functions_have_the_place_of_their_declaration() {
        let location = SourceLocation {
            path: b"/app/lib.js",
            line: 7,
            column: 2,
        };
        let styled = |style: &str, name: &'static [u8]| {
            let style: NameStyle = style.parse().unwrap();
            String::from_utf8(style.apply_to_inlined(name, Some(location)).into_owned()).unwrap()
        };
        assert_eq!(styled("plain", b"small"), "small");
        assert_eq!(
            styled("{name} {file}:{line} [{tier}]", b"small"),
            "small lib.js:7"
        );
        for style in ["full", "plain"] {
            assert_eq!(styled(style, b""), "(anonymous) lib.js:7:2");
        }
    }

    #[test]
    fn fields_of_records_count_before_names() {
        let declared = |name, path: &'static [u8]| {
            let location = SourceLocation {
                path,
                line: 7,
                column: 2,
            };
            Some(NameParts {
                function: name,
                location: Some(location).filter(|location| !location.path.is_empty()),
            })
        };
        let styled = |style: &str, name: &'static [u8], declared| {
            let style: NameStyle = style.parse().unwrap();
            let name = style.apply_declared(name.into(), || declared, Some(b"Ion"));
            String::from_utf8(name.into_owned()).unwrap()
        };
        const PATTERN: &str = "{name} {file}:{line} [{tier}]";
        let name = b"[opt2] run@a.js#7";
        assert_eq!(
            styled("full", name, declared(b"run", b"/app/a.js")),
            "[opt2] run@a.js#7"
        );
        assert_eq!(styled("plain", name, declared(b"run", b"/app/a.js")), "run");
        assert_eq!(
            styled(PATTERN, name, declared(b"run", b"/app/a.js")),
            "run a.js:7 [Ion]"
        );
        let name = b"JS:*other /app/b.js:3:4";
        assert_eq!(styled(PATTERN, name, declared(b"run", b"")), "run b.js:3 [Ion]");
        assert_eq!(
            styled(PATTERN, name, declared(b"", b"/app/a.js")),
            "other a.js:7 [Ion]"
        );
        assert_eq!(styled("plain", name, None), "other");
    }

    #[test]
    fn styles_are_printed_as_they_are_typed() {
        for text in [
            "full",
            "plain",
            "{name} {file}:{line} [{tier}]",
            "a {column}b {path}",
        ] {
            assert_eq!(text.parse::<NameStyle>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, reason) in [
            ("", InvalidStyle::NoPlaceholder),
            ("short", InvalidStyle::NoPlaceholder),
            (
                "{name} {module}",
                InvalidStyle::UnknownPlaceholder("module".to_owned()),
            ),
            ("{}", InvalidStyle::UnknownPlaceholder(String::new())),
            ("{name", InvalidStyle::UnpairedBrace),
            ("name}", InvalidStyle::UnpairedBrace),
            ("{name}}", InvalidStyle::UnpairedBrace),
        ] {
            assert_eq!(text.parse::<NameStyle>(), Err(reason), "{text}");
        }
    }
}
