//! Source maps (ECMA-426), from positions in a generated script to positions in the original files.
//!
//! Regular maps and indexed ones, whose sections are maps at offsets, are read into one sorted list. Sections that refer to
//! another file by URL are skipped: the standard has dropped them, and nothing is fetched.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::v8::mappings::{MapEntry, MappingsDecoder, NONE, Offset, check_room};
use crate::v8::{Text, TextPosition};

/// Maximum nesting depth of sections. The standard allows no sections in sections.
const MAX_DEPTH: u32 = 4;

/// Maximum number of sources, and size in bytes of a path with its root, and of all of them. Many short paths may share a
/// long root.
const MAX_SOURCES: usize = 1 << 20;
const MAX_PATH: usize = 64 << 10;
const MAX_PATHS: usize = 64 << 20;

/// Why a map cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MapError {
    /// It is not a JSON object with the members of a source map.
    Syntax,
    /// It has another version than 3.
    Version,
    /// A mapping is invalid, or refers to a source or name that the map does not have.
    Mapping,
    /// A section is invalid: unsorted, or nested too deeply.
    Section,
    /// It has too many mappings or sources, or too long paths.
    TooLarge,
    /// It maps lines or columns that the script does not have.
    OtherScript,
}

impl MapError {
    /// Returns the reason in words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Syntax => "not a source map in JSON",
            Self::Version => "not version 3",
            Self::Mapping => "invalid mappings",
            Self::Section => "invalid sections",
            Self::TooLarge => "too many mappings or sources, or too long paths",
            Self::OtherScript => "it maps lines or columns that the script does not have",
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for MapError {}

/// An original file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OriginalFile {
    /// Path or URL with the root of the map; may be relative to the map.
    pub path: String,
    /// Position in the map of its text as a JSON string, if the map has it. Texts are most of a map, and few are needed.
    text: Option<Range<usize>>,
}

/// A source map.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    /// The map in JSON.
    json: Vec<u8>,
    mappings: Vec<MapEntry>,
    sources: Vec<OriginalFile>,
    /// Size of the paths of the sources, in bytes.
    size_of_paths: usize,
    names: Vec<String>,
}

/// An original position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Original {
    /// The file, as an index into [`SourceMap::sources`].
    pub source: u32,
    /// The position in it.
    pub position: TextPosition,
    /// Original name of the identifier that starts exactly at the generated position, as an index; `None` if the map has
    /// none.
    pub name: Option<u32>,
    /// Whether a mapping starts exactly at the generated position.
    pub is_exact: bool,
}

/// A map or a section's map in JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json<'j> {
    version: Option<serde_json::Number>,
    source_root: Option<String>,
    #[serde(default)]
    sources: Vec<Option<String>>,
    #[serde(borrow, default)]
    sources_content: Option<Vec<Option<&'j RawValue>>>,
    #[serde(default)]
    names: Vec<serde_json::Value>,
    #[serde(borrow)]
    mappings: Option<&'j RawValue>,
    #[serde(borrow)]
    sections: Option<Vec<MapSection<'j>>>,
}

#[derive(Deserialize)]
struct MapSection<'j> {
    offset: Offset,
    #[serde(borrow)]
    map: Option<Box<Json<'j>>>,
}

impl SourceMap {
    /// Parses a map.
    pub fn parse(bytes: impl Into<Vec<u8>>) -> Result<Self, MapError> {
        let bytes = bytes.into();
        // A prefix that keeps browsers from running the map as a script.
        let text = match bytes.strip_prefix(b")]}") {
            Some(rest) => {
                let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                rest.get(end..).unwrap_or_default()
            }
            None => &bytes,
        };
        let json: Json<'_> = serde_json::from_slice(text).map_err(|_| MapError::Syntax)?;
        let mut map = Self::default();
        map.add_part(json, &bytes, Offset { line: 0, column: 0 }, 0)?;
        map.json = bytes;
        // Mappings of a line need not be sorted. Of several at one column, the last one counts.
        if !map
            .mappings
            .is_sorted_by_key(|mapping| (mapping.line, mapping.column))
        {
            map.mappings.sort_by_key(|mapping| (mapping.line, mapping.column));
        }
        Ok(map)
    }

    /// Returns the original files.
    pub fn sources(&self) -> &[OriginalFile] {
        &self.sources
    }

    /// Returns the text of an original file, if the map has it.
    pub fn text(&self, source: u32) -> Option<String> {
        let range = self.sources.get(source as usize)?.text.clone()?;
        serde_json::from_slice(self.json.get(range)?).ok()
    }

    /// Returns an original name.
    pub fn name(&self, index: u32) -> Option<&str> {
        self.names.get(index as usize).map(String::as_str)
    }

    /// Returns where a generated position comes from; `None` for text that no source has.
    pub fn original(&self, generated: TextPosition) -> Option<Original> {
        let (line, column) = (generated.line.checked_sub(1)?, generated.column.checked_sub(1)?);
        let after = self
            .mappings
            .partition_point(|mapping| (mapping.line, mapping.column) <= (line, column));
        let mapping = self.mappings.get(after.checked_sub(1)?)?;
        if mapping.line != line || mapping.source == NONE {
            return None;
        }
        let is_exact = mapping.column == column;
        Some(Original {
            source: mapping.source,
            position: TextPosition {
                line: mapping.source_line.saturating_add(1),
                column: mapping.source_column.saturating_add(1),
            },
            name: Some(mapping.name).filter(|&name| is_exact && name != NONE),
            is_exact,
        })
    }

    /// Checks that the script has all lines and columns of the map.
    pub fn check(&self, script: &Text<'_>) -> Result<(), MapError> {
        let lines = self.mappings.chunk_by(|one, next| one.line == next.line);
        let has = |mapping: &MapEntry| {
            let position = TextPosition {
                line: mapping.line.saturating_add(1),
                column: mapping.column.saturating_add(1),
            };
            script.offset(position).is_some()
        };
        let mut last = lines.filter_map(<[MapEntry]>::last);
        if last.all(has) {
            Ok(())
        } else {
            Err(MapError::OtherScript)
        }
    }

    /// Adds a map or section, which is a part of `bytes` inside `depth` others, and starts at `offset` in the script.
    fn add_part(&mut self, json: Json<'_>, bytes: &[u8], offset: Offset, depth: u32) -> Result<(), MapError> {
        // Sections need no version of their own.
        let is_other = |version: &serde_json::Number| version.as_f64() != Some(3.0);
        if json.version.as_ref().is_some_and(is_other) {
            return Err(MapError::Version);
        }
        match json.sections {
            Some(sections) => self.add_sections(sections, bytes, offset, depth),
            None => self.add_mappings(json, bytes, offset),
        }
    }

    /// Adds the sections of a map that is inside `depth` others. They must be in order.
    fn add_sections(
        &mut self,
        sections: Vec<MapSection<'_>>,
        bytes: &[u8],
        offset: Offset,
        depth: u32,
    ) -> Result<(), MapError> {
        if depth >= MAX_DEPTH {
            return Err(MapError::Section);
        }
        let mut last = None;
        for section in sections {
            let start = (section.offset.line, section.offset.column);
            if last.is_some_and(|last| last > start) {
                return Err(MapError::Section);
            }
            last = Some(start);
            let line = offset
                .line
                .checked_add(section.offset.line)
                .ok_or(MapError::Section)?;
            // Columns of a section in the first line count from that of the outer one.
            let base = if section.offset.line == 0 {
                offset.column
            } else {
                0
            };
            let column = base.checked_add(section.offset.column).ok_or(MapError::Section)?;
            // A section ends the one before it.
            let start = Offset { line, column };
            self.end_at(start)?;
            if let Some(map) = section.map {
                self.add_part(*map, bytes, start, depth.saturating_add(1))?;
            }
        }
        Ok(())
    }

    /// Adds the sources, names and mappings of a map without sections.
    fn add_mappings(&mut self, json: Json<'_>, bytes: &[u8], offset: Offset) -> Result<(), MapError> {
        let mappings = json.mappings.ok_or(MapError::Syntax)?;
        let mappings = string(mappings).ok_or(MapError::Syntax)?;
        let first_source = self.sources.len() as u32;
        let first_name = self.names.len() as u32;
        let root = json.source_root.unwrap_or_default();
        self.check_sources(&root, &json.sources)?;
        let mut texts = json.sources_content.unwrap_or_default().into_iter();
        self.sources
            .extend(json.sources.into_iter().map(|path| OriginalFile {
                path: with_root(&root, path.unwrap_or_default()),
                text: texts.next().flatten().and_then(|text| position(text, bytes)),
            }));
        // What is no string keeps its place, because mappings refer to names by their index.
        self.names.extend(json.names.into_iter().map(|name| match name {
            serde_json::Value::String(name) => name,
            _ => String::new(),
        }));
        let mut decoder = MappingsDecoder {
            sources: (first_source, self.sources.len() as u32),
            names: (first_name, self.names.len() as u32),
            offset,
            state: [0; 4],
        };
        decoder.decode(mappings.as_bytes(), &mut self.mappings)
    }

    /// Checks that there is room for sources with their root.
    fn check_sources(&mut self, root: &str, sources: &[Option<String>]) -> Result<(), MapError> {
        let count = self.sources.len().saturating_add(sources.len());
        let mut sizes = sources.iter().map(|path| {
            let path = path.as_deref().unwrap_or_default();
            root.len().saturating_add(path.len())
        });
        let mut is_too_long = |size: usize| {
            self.size_of_paths = self.size_of_paths.saturating_add(size);
            size > MAX_PATH || self.size_of_paths > MAX_PATHS
        };
        if count > MAX_SOURCES || sizes.any(&mut is_too_long) {
            Err(MapError::TooLarge)
        } else {
            Ok(())
        }
    }

    /// Ends the last mapping of a section where the next one starts in the same line.
    fn end_at(&mut self, start: Offset) -> Result<(), MapError> {
        check_room(self.mappings.len())?;
        if self.mappings.last().is_some_and(|last| last.line == start.line) {
            self.mappings
                .push(MapEntry::without_source(start.line, start.column));
        }
        Ok(())
    }
}

/// Returns the value of a string in JSON.
fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inside = raw
        .get()
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match inside.filter(|inside| !inside.contains('\\')) {
        Some(inside) => Some(Cow::Borrowed(inside)),
        None => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
    }
}

/// Returns where a value is in the bytes that it was parsed from.
fn position(raw: &RawValue, bytes: &[u8]) -> Option<Range<usize>> {
    let text = raw.get();
    let start = (text.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
    Some(start..start.checked_add(text.len())?)
}

/// Joins the root of a map and the path of a source.
fn with_root(root: &str, path: String) -> String {
    match root {
        "" => path,
        _ if path.starts_with('/') || path.contains("://") => path,
        _ if root.ends_with('/') => format!("{root}{path}"),
        _ => format!("{root}/{path}"),
    }
}

/// Returns the URL in the last `//# sourceMappingURL=` comment of a script. It ends its line.
pub fn mapping_url(script: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"sourceMappingURL=";
    let start = memchr::memmem::rfind(script, NAME)?;
    let before = script.get(..start)?;
    let is_comment = [&b"//# "[..], b"//@ ", b"/*# ", b"/*@ "]
        .iter()
        .any(|mark| before.ends_with(mark));
    let rest = script
        .get(start.checked_add(NAME.len())?..)
        .filter(|_| is_comment)?;
    let size = rest
        .iter()
        .position(|byte| byte.is_ascii_whitespace() || b"*'\"".contains(byte));
    let url = rest.get(..size.unwrap_or(rest.len()))?;
    (!url.is_empty()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<SourceMap, MapError> {
        SourceMap::parse(json.as_bytes())
    }

    fn at(map: &SourceMap, line: u32, column: u32) -> Option<(String, u32, u32, Option<String>)> {
        let original = map.original(TextPosition { line, column })?;
        let source = &map.sources()[original.source as usize].path;
        let TextPosition { line, column } = original.position;
        let name = original.name.and_then(|name| map.name(name));
        Some((source.clone(), line, column, name.map(str::to_owned)))
    }

    #[test]
    fn positions_map_up_to_the_next_mapping_or_line() {
        let map = parse(
            r#"{"version": 3, "sourceRoot": "src", "sources": ["a.ts", "/b.ts"], "names": ["slow"],
                "sourcesContent": ["let a", null], "mappings": "AAAA,EAEGA;ECFD,C"}"#,
        );
        let map = map.unwrap();
        assert_eq!(at(&map, 1, 1), Some(("src/a.ts".into(), 1, 1, None)));
        assert_eq!(
            at(&map, 1, 3),
            Some(("src/a.ts".into(), 3, 4, Some("slow".into())))
        );
        assert_eq!(at(&map, 1, 9), Some(("src/a.ts".into(), 3, 4, None)));
        assert_eq!(at(&map, 2, 1), None);
        assert_eq!(at(&map, 2, 3), Some(("/b.ts".into(), 1, 3, None)));
        assert_eq!(
            (at(&map, 2, 4), at(&map, 3, 1), at(&map, 0, 0)),
            (None, None, None)
        );
        assert_eq!(map.text(0).as_deref(), Some("let a"));
        let script = |text: &'static str| map.check(&Text::new(text.as_bytes()).unwrap());
        assert_eq!(script("abc\ndefg"), Ok(()));
        assert_eq!(script("a\ndefg"), Err(MapError::OtherScript));
        assert_eq!(script("abc"), Err(MapError::OtherScript));
    }

    #[test]
    fn sections_start_at_their_offsets() {
        let map = parse(
            r#")]}'
            {"version": 3, "sections": [
                {"offset": {"line": 0, "column": 0}, "map": {"version": 3, "sources": ["a"], "names": [], "mappings": "AAAA;AACA"}},
                {"offset": {"line": 1, "column": 5}, "map": {"version": 3, "sources": ["b"], "names": ["n"], "mappings": "AAAAA;AAGA"}},
                {"offset": {"line": 9, "column": 0}, "url": "https://example.org/x.map"}]}"#,
        );
        let map = map.unwrap();
        assert_eq!(at(&map, 2, 1), Some(("a".into(), 2, 1, None)));
        assert_eq!(at(&map, 2, 6), Some(("b".into(), 1, 1, Some("n".into()))));
        assert_eq!(at(&map, 3, 2), Some(("b".into(), 4, 1, None)));
        assert_eq!(at(&map, 10, 1), None);
    }

    /// Returns a map in so many maps with sections.
    fn nested(depth: usize) -> String {
        let map = r#"{"sources": ["a"], "mappings": "AAAA"}"#.to_owned();
        (0..depth).fold(map, |map, _| {
            format!(r#"{{"sections": [{{"offset": {{"line": 0, "column": 0}}, "map": {map}}}]}}"#)
        })
    }

    #[test]
    fn sections_are_read_to_a_depth_of_four() {
        let map = parse(&nested(4)).unwrap();
        assert_eq!(at(&map, 1, 1), Some(("a".into(), 1, 1, None)));
        assert_eq!(parse(&nested(5)).unwrap_err(), MapError::Section);
    }

    #[test]
    fn there_are_up_to_1_mi_sources_in_all_sections() {
        let check = |before: usize, count: usize| {
            let mut map = SourceMap {
                sources: vec![OriginalFile::default(); before],
                ..SourceMap::default()
            };
            map.check_sources("", &vec![None; count])
        };
        assert_eq!(check(1, 1_048_575), Ok(()));
        assert_eq!(check(1, 1_048_576), Err(MapError::TooLarge));
    }

    #[test]
    fn invalid_maps_are_errors() {
        let deep = nested(5);
        let very_deep = "[".repeat(100_000);
        let with_root = |root: &str, sources: &[&str]| {
            serde_json::json!({"version": 3, "sourceRoot": root, "sources": sources, "mappings": ""})
                .to_string()
        };
        let long_root = with_root(&"r".repeat(64 << 10), &["a"]);
        let long_path = with_root("", &[&"/".repeat((64 << 10) + 1)]);
        let long_paths = with_root(&"r".repeat((64 << 10) / 2), &["a"; 2 * (64 << 20) / (64 << 10)]);
        assert!(
            parse(&with_root(
                &"r".repeat((64 << 10) / 2),
                &["a"; (64 << 20) / (64 << 10)]
            ))
            .is_ok()
        );
        for (json, error) in [
            ("", MapError::Syntax),
            (r#"{"version": 3, "mappings": "AAA"#, MapError::Syntax),
            (r#"{"version": 3}"#, MapError::Syntax),
            (&very_deep, MapError::Syntax),
            (r#"{"version": 2, "mappings": ""}"#, MapError::Version),
            (r#"{"version": 3, "mappings": "AAAA"}"#, MapError::Mapping),
            (
                r#"{"version": 3, "sources": ["a"], "mappings": "AAAAC"}"#,
                MapError::Mapping,
            ),
            (
                r#"{"version": 3, "sources": ["a"], "mappings": "D"}"#,
                MapError::Mapping,
            ),
            (
                r#"{"version": 3, "sources": ["a"], "mappings": "AA"}"#,
                MapError::Mapping,
            ),
            (&deep, MapError::Section),
            (&long_root, MapError::TooLarge),
            (&long_path, MapError::TooLarge),
            (&long_paths, MapError::TooLarge),
            (
                r#"{"sections": [{"offset": {"line": 2, "column": 0}}, {"offset": {"line": 1, "column": 0}}]}"#,
                MapError::Section,
            ),
        ] {
            assert_eq!(parse(json).err(), Some(error), "{json:.80}");
        }
    }

    #[test]
    fn scripts_name_their_maps_in_the_last_comment() {
        for (script, expected) in [
            ("a\n//# sourceMappingURL=a.js.map\n", Some("a.js.map")),
            (
                "//# sourceMappingURL=old\nb()//@ sourceMappingURL=b.map",
                Some("b.map"),
            ),
            ("a{}/*# sourceMappingURL=a.css.map */", Some("a.css.map")),
            ("x = 'sourceMappingURL=' + y", None),
            ("//# sourceMappingURL=\n", None),
        ] {
            let found = mapping_url(script.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{script}");
        }
    }
}
