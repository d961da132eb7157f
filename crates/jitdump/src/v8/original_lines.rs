//! Replaces positions in generated scripts by positions in the original files.

use std::sync::OnceLock;

use crate::bytes::rsplit_once;
use crate::collections::hash::HashMap;
use crate::debug_info::{DebugInfo, InlinedCall, SourceFile, SourceFunction};
use crate::files::walk::MAX_PATH;
use crate::v8::by_path::ByPath;
use crate::v8::functions::{FunctionCalls, Script};
use crate::v8::source_map::{Original, SourceMap};
use crate::v8::text::{Text, TextPosition};
use crate::v8::v8_inlining::{Scripts, simple_name};

/// Maximum length of an original name, in bytes: any number of functions may have it. The runtime's name stays in place of a
/// longer one.
const MAX_NAME: usize = 1 << 10;

/// The map of a script, with the paths of its sources.
#[derive(Clone, Debug)]
pub struct MappedScript {
    map: SourceMap,
    /// Folder of relative paths.
    base: Vec<u8>,
    /// The sources, by index.
    sources: Vec<NeededSource>,
    /// Original line of all calls of a name in a function, by the first of their places ([`FunctionCalls::places_of`]); 0 if
    /// there are several, or if one is unknown.
    lines_of_calls: OnceLock<Vec<OnceLock<u32>>>,
}

/// What was needed of a source. Maps have many, and few are needed.
#[derive(Clone, Debug, Default)]
struct NeededSource {
    path: OnceLock<Vec<u8>>,
    text: OnceLock<Option<Text<'static>>>,
}

/// The maps of scripts, by the path of the script.
pub type SourceMaps<'s> = ByPath<'s, MappedScript>;

/// Where a function is in its original file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OriginalFunction<'s> {
    /// Name; empty if it has none.
    pub name: &'s [u8],
    /// Path of the file.
    pub path: &'s [u8],
    /// Start of the function.
    pub start: TextPosition,
}

impl MappedScript {
    /// Wraps a map, whose relative paths start at the folder `base`.
    pub fn new(map: SourceMap, base: &[u8]) -> Self {
        Self {
            sources: map.sources().iter().map(|_| NeededSource::default()).collect(),
            base: base.to_owned(),
            lines_of_calls: OnceLock::new(),
            map,
        }
    }

    fn path(&self, source: u32) -> Option<&[u8]> {
        let needed = self.sources.get(source as usize)?;
        let path = &self.map.sources().get(source as usize)?.path;
        // Longer ones are no paths of Linux. Positions in such sources stay those in the script.
        if self.base.len() > MAX_PATH {
            return None;
        }
        let path = needed.path.get_or_init(|| resolve(&self.base, path.as_bytes()));
        Some(path.as_slice()).filter(|path| path.len() <= MAX_PATH)
    }

    fn file(&self, source: u32) -> Option<SourceFile<'_>> {
        let mut file = SourceFile::from(self.path(source)?);
        file.text = self.text(source).map(Text::bytes);
        Some(file)
    }

    fn text(&self, source: u32) -> Option<&Text<'static>> {
        let text = || Text::new(self.map.text(source)?.into_bytes());
        self.sources.get(source as usize)?.text.get_or_init(text).as_ref()
    }

    /// Returns the original name of the identifier at a position: as the map has it, or as it is written there.
    fn name(&self, original: &Original) -> Option<&[u8]> {
        if let Some(index) = original.name
            && let Some(name) = self.map.name(index)
        {
            return Some(name.as_bytes()).filter(|name| name.len() <= MAX_NAME);
        }
        let text = self.text(original.source).filter(|_| original.is_exact)?;
        let start = text.offset(original.position)?;
        let rest = text.bytes().get(start as usize..)?;
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$#".contains(byte) || *byte >= 0x80;
        let read = rest.iter().take(MAX_NAME.saturating_add(1));
        let length = read.take_while(|byte| is_name(byte)).count();
        let name = rest.get(..length).filter(|_| length <= MAX_NAME)?;
        let is_identifier = name.first().is_some_and(|first| !first.is_ascii_digit());
        (is_identifier && !KEYWORDS.contains(&name)).then_some(name)
    }

    /// Returns where a function of the generated script comes from. `script` is its text. A script that was made from
    /// several files is, as a whole, in none of them.
    pub fn function<'s>(
        &'s self,
        script: Option<&'s Script<'_>>,
        start: TextPosition,
    ) -> Option<OriginalFunction<'s>> {
        let is_whole = start == TextPosition { line: 1, column: 1 };
        if is_whole && self.sources.len() > 1 {
            return None;
        }
        let original = self.map.original(start)?;
        let name = || {
            let script = script?;
            let function = script.function_that_starts_at(start)?;
            let name = script.functions().get(function as usize)?.name.clone();
            if name.is_empty() {
                return None;
            }
            self.name(&self.map.original(script.text().position(name.start))?)
        };
        Some(OriginalFunction {
            name: name().unwrap_or_default(),
            path: self.path(original.source)?,
            start: original.position,
        })
    }
}

/// Words that stand where a name may be expected, but are none.
const KEYWORDS: [&[u8]; 10] = [
    b"function",
    b"async",
    b"class",
    b"const",
    b"let",
    b"var",
    b"return",
    b"export",
    b"get",
    b"set",
];

/// Resolves a path against a folder. URLs stay as they are; what is no URL loses its escapes.
fn resolve(base: &[u8], path: &[u8]) -> Vec<u8> {
    let has_scheme = |path: &[u8]| memchr::memmem::find(path, b"://").is_some();
    if has_scheme(path) {
        return path.to_vec();
    }
    let joined = match path.first() {
        Some(b'/') => unescaped(path),
        _ if has_scheme(base) => [base, b"/", path].concat(),
        _ => [base, b"/", &unescaped(path)].concat(),
    };
    // A base may be a URL.
    let scheme = memchr::memmem::find(&joined, b"://").map_or(0, |at| at.saturating_add(3));
    let (scheme, rest) = joined.split_at_checked(scheme).unwrap_or_default();
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in rest.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.last().is_some_and(|last| *last != b"..") => {
                parts.pop();
            }
            b".." if rest.starts_with(b"/") => {}
            part => parts.push(part),
        }
    }
    let root: &[u8] = if rest.starts_with(b"/") { b"/" } else { b"" };
    [scheme, root, &parts.join(&b'/')].concat()
}

/// Characters of ASCII that paths in URLs have only as escapes.
const ESCAPED: &[u8] = b" \"#%<>?[\\]^`{|}";

/// Decodes the escapes in a path. Older tools write names as they are, so what is no escape, or one of a character that
/// needs none, belongs to a name.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = escape(rest).unwrap_or((first, after));
        decoded.push(byte);
        rest = after;
    }
    if std::str::from_utf8(&decoded).is_ok() {
        decoded
    } else {
        path.to_vec()
    }
}

/// Returns the byte whose escape a text starts with, and what follows.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'%', high, low, rest @ ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = digit(*high)?.checked_mul(16)?.checked_add(digit(*low)?)?;
    let byte = u8::try_from(value).ok()?;
    (!byte.is_ascii() || ESCAPED.contains(&byte)).then_some((byte, rest))
}

/// Returns the folder of a path.
#[doc(hidden)]
pub fn folder(path: &[u8]) -> &[u8] {
    rsplit_once(path, b'/').map_or(b".", |(folder, _)| folder)
}

/// Replaces files, lines and names of functions as far as their scripts have maps. Positions that a map does not
/// have stay, except for those of calls: they are in the files of the callers.
pub fn replace<'a>(info: &mut DebugInfo<'a>, maps: &SourceMaps<'a>, scripts: &Scripts<'a>) {
    let mapped = MappedFiles::of(&info.files, maps, scripts);
    if mapped.all.iter().all(Option::is_none) {
        return;
    }
    let mut files = OriginalFiles::default();
    // Calls are looked up by where their callers start in the scripts, so functions come last.
    mapped.replace_calls(info);
    mapped.replace_rows(info, &mut files);
    mapped.replace_functions(info, &mut files);
}

/// The files of debug information before those that are added, as far as they have maps.
struct MappedFiles<'a> {
    all: Vec<Option<MappedFile<'a>>>,
}

/// The map of a generated script, and its text, if it was read.
#[derive(Clone, Copy)]
struct MappedFile<'a> {
    map: &'a MappedScript,
    script: Option<&'a Script<'a>>,
}

impl<'a> MappedFiles<'a> {
    fn of(files: &[SourceFile<'a>], maps: &SourceMaps<'a>, scripts: &Scripts<'a>) -> Self {
        let all = files.iter().map(|file| {
            Some(MappedFile {
                map: maps.get(&file.path)?,
                script: scripts.get(&file.path),
            })
        });
        Self { all: all.collect() }
    }

    fn get(&self, file: Option<u32>) -> Option<MappedFile<'a>> {
        self.all.get(file? as usize).copied().flatten()
    }

    /// Replaces the positions of calls whose callers have an original file, with none if it is unknown.
    fn replace_calls(&self, info: &mut DebugInfo<'a>) {
        let mut originals: HashMap<u32, Option<OriginalCalls<'a>>> = HashMap::default();
        // The functions around the current call. The first one is that of the code itself.
        let mut callers = vec![0u32];
        for call in &mut info.calls {
            callers.truncate((call.depth as usize).saturating_add(1));
            let caller = callers.last().copied().unwrap_or_default();
            let original = originals.entry(caller).or_insert_with(|| {
                let function = info.functions.get(caller as usize)?;
                let MappedFile { map, script } = self.get(function.file)?;
                OriginalCalls::new(map, script, function)
            });
            if let Some(original) = original {
                let callee = info.functions.get(call.function as usize);
                let position = original.position(call, callee.map_or(b"", |callee| callee.name));
                (call.line, call.column) = (position.line, position.column);
            }
            callers.push(call.function);
        }
    }

    /// Replaces the files and positions of rows that the maps have.
    fn replace_rows(&self, info: &mut DebugInfo<'a>, files: &mut OriginalFiles) {
        for row in info.rows.iter_mut().filter(|row| row.line > 0) {
            let Some(MappedFile { map, .. }) = self.get(row.file) else {
                continue;
            };
            let position = TextPosition {
                line: row.line,
                column: row.column.max(1),
            };
            if let Some(original) = map.map.original(position)
                && let Some(file) = files.index_of_source(&mut info.files, row.file, map, original.source)
            {
                (row.file, row.line, row.column) =
                    (Some(file), original.position.line, original.position.column);
            }
        }
    }

    /// Replaces the files, positions and names of functions whose start the maps have.
    fn replace_functions(&self, info: &mut DebugInfo<'a>, files: &mut OriginalFiles) {
        for function in &mut info.functions {
            let Some(MappedFile { map, script }) = self.get(function.file) else {
                continue;
            };
            let start = TextPosition {
                line: function.line,
                column: function.column,
            };
            let (Some(original), Some(source)) = (map.function(script, start), map.map.original(start))
            else {
                continue;
            };
            if let Some(file) = files.index_of_source(&mut info.files, function.file, map, source.source) {
                function.file = Some(file);
                (function.line, function.column) = (original.start.line, original.start.column);
                // A function without a name has the one of its symbol.
                if !original.name.is_empty() && !function.name.is_empty() {
                    function.name = original.name;
                }
            }
        }
    }
}

/// The calls from a function that has an original file.
struct OriginalCalls<'a> {
    map: &'a MappedScript,
    /// Text of the script, and the calls from the function in it.
    calls: Option<(&'a Script<'a>, FunctionCalls<'a>)>,
    /// Original file of the function.
    source: u32,
}

impl<'a> OriginalCalls<'a> {
    /// Returns the calls from a function; `None` if it stays in the generated script.
    fn new(
        map: &'a MappedScript,
        script: Option<&'a Script<'a>>,
        caller: &SourceFunction<'_>,
    ) -> Option<Self> {
        let start = TextPosition {
            line: caller.line,
            column: caller.column,
        };
        map.function(script, start)?;
        let calls = |script: &'a Script<'a>| {
            let function = script.function_that_starts_at(start)?;
            Some((script, script.calls_of(function)))
        };
        Some(Self {
            map,
            calls: script.and_then(calls),
            source: map.map.original(start)?.source,
        })
    }

    /// Returns the original position of a call of `name`; none if it is unknown, or in another file.
    fn position(&self, call: &InlinedCall, name: &[u8]) -> TextPosition {
        let generated = TextPosition {
            line: call.line,
            column: call.column,
        };
        if call.column > 0 || call.line == 0 {
            return self.original(generated).unwrap_or_default();
        }
        // There are several on this line.
        TextPosition {
            line: self.line(simple_name(name)).unwrap_or_default(),
            column: 0,
        }
    }

    fn original(&self, generated: TextPosition) -> Option<TextPosition> {
        let original = self.map.map.original(generated)?;
        (original.source == self.source).then_some(original.position)
    }

    /// Returns the line in the original file in which a name is called; 0 or `None` if there are several, or if one is
    /// unknown. Any number of functions may have the call inlined, so it is read once.
    fn line(&self, name: &[u8]) -> Option<u32> {
        let (script, calls) = self.calls.as_ref()?;
        let places = calls.places_of(name);
        if places.is_empty() {
            return None;
        }
        let unknown = || vec![OnceLock::new(); script.call_count()];
        let known = self.map.lines_of_calls.get_or_init(unknown).get(places.start)?;
        let line = || {
            let originals = calls.starts(places).map(|start| self.original(start));
            let mut lines = originals.map(|original| original.map_or(0, |original| original.line));
            let first = lines.next()?;
            lines.all(|line| line == first).then_some(first)
        };
        Some(*known.get_or_init(|| line().unwrap_or_default()))
    }
}

/// Original files that were added to the files of a function, by the generated file and the source.
#[derive(Default)]
struct OriginalFiles {
    known: HashMap<(Option<u32>, u32), u32>,
}

impl OriginalFiles {
    /// Returns the index in `files` of a source of a map, for lines of the `generated` file. Adds it if it is new.
    fn index_of_source<'a>(
        &mut self,
        files: &mut Vec<SourceFile<'a>>,
        generated: Option<u32>,
        map: &'a MappedScript,
        source: u32,
    ) -> Option<u32> {
        if let Some(&index) = self.known.get(&(generated, source)) {
            return Some(index);
        }
        let script = files.get(generated? as usize)?.path.clone();
        let mut file = map.file(source)?;
        file.script = Some(script);
        let index = files.len() as u32;
        files.push(file);
        self.known.insert((generated, source), index);
        Some(index)
    }
}

#[cfg(test)]
mod tests;
