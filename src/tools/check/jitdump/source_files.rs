//! Checks of lines against the source files on this machine.

use jitdump::debug_info::DebugInfo;
use jitdump::internals::format::record::RecordLocation;
use jitdump::v8::{Text, TextPosition};
use jitdump::{Dump, Function, names};

use crate::collections::hash::HashMap;
use crate::files::walk::MAX_PATH;
use crate::results::diagnostics::rules::debug_info as rules;
use crate::tools::check::ReadSource;
use crate::tools::check::findings::{Findings, Place};

/// Maximum size of all source files together, in bytes, and their number.
const MAX_TOTAL: usize = 128 << 20;
const MAX_FILES: usize = 4096;

/// Checks that source files, from the jitdump or from this machine, have the lines of each function, and the columns if they are V8's.
///
/// Quirk: V8 writes lines of inlined functions with the file of the outer one (capture node20-inlined). Other runtimes
/// have discriminators in place of columns.
pub(super) fn check(dump: &Dump<'_>, read: ReadSource<'_>, findings: &mut Findings) {
    let mut files = SourceTexts::new(dump, read);
    for number in 0..dump.function_count() as u32 {
        let (Some(function), Some(records)) = (dump.function(number), dump.function_records(number)) else {
            continue;
        };
        if records.debug_info.is_none() && records.debug_info2.is_none() {
            continue;
        }
        let has_columns = names::is_v8(function.name);
        let info = function.sources().info.unwrap_or_default();
        let embedded = info
            .files
            .iter()
            .filter_map(|file| Some((&file.path[..], file.text?)));
        let embedded: HashMap<&[u8], &[u8]> = embedded.collect();
        let recorded = match (records.debug_info, records.debug_info2) {
            (_, Some(place)) => lines_of_debug_info2(place, &info),
            (Some(place), None) => lines_of_debug_info(place, &function),
            (None, None) => continue,
        };
        // Any number of lines can have the same name, which is looked up for each.
        let lines = recorded.lines.iter().filter(|(name, _)| name.len() < MAX_PATH);
        let mut outside = lines.filter(|(name, position)| {
            let text = match embedded.get(name) {
                Some(&text) => files.embedded(text),
                None => files.of(name),
            };
            text.is_some_and(|text| {
                let has_line = (position.line as usize) <= text.line_count();
                !has_line || (has_columns && position.column > 0 && text.offset(*position).is_none())
            })
        });
        let Some((name, first)) = outside.next() else {
            continue;
        };
        let count = outside.count().saturating_add(1) as u64;
        findings.add_many(&rules::OTHER_FILE, count, recorded.place.offset, || {
            let name = jitdump::printable(name);
            let column = if has_columns {
                format!(":{}", first.column)
            } else {
                String::new()
            };
            Place::in_record(recorded.kind)
                .in_function(function.name)
                .with_message(format!(
                    "{count} of its entries, the first is {name}:{}{column}",
                    first.line
                ))
        });
    }
}

/// Lines in a record of a function.
struct RecordedLines<'l> {
    /// Type of the record.
    kind: &'static str,
    place: RecordLocation,
    /// File and position of each.
    lines: Vec<(&'l [u8], TextPosition)>,
}

fn position(line: u32, column: u32) -> TextPosition {
    TextPosition { line, column }
}

/// Returns the lines of a DEBUG_INFO2 record, as they are read.
fn lines_of_debug_info2<'l>(place: RecordLocation, info: &'l DebugInfo<'_>) -> RecordedLines<'l> {
    let lines = info.rows.iter().filter(|row| row.line > 0).filter_map(|row| {
        let file = info.files.get(row.file? as usize)?;
        Some((&file.path[..], position(row.line, row.column)))
    });
    RecordedLines {
        kind: "DEBUG_INFO2",
        place,
        lines: lines.collect(),
    }
}

/// Returns the lines of a DEBUG_INFO record, as they are in the file.
fn lines_of_debug_info<'l>(place: RecordLocation, function: &Function<'l>) -> RecordedLines<'l> {
    let entries = function.line_entries().unwrap_or_default().into_iter();
    let lines = entries.filter(|entry| entry.line > 0 && !entry.is_invalid() && !entry.is_end());
    let lines = lines.map(|entry| (entry.name, position(entry.line, entry.column_or_discriminator)));
    RecordedLines {
        kind: "DEBUG_INFO",
        place,
        lines: lines.collect(),
    }
}

/// Texts of source files by the name that the runtime gave them.
struct SourceTexts<'d, 'r> {
    read: ReadSource<'r>,
    /// Where V8's functions start, by file. A file without these positions is not the one of the recording.
    declared: HashMap<Vec<u8>, Vec<TextPosition>>,
    texts: HashMap<Vec<u8>, Option<Text<'static>>>,
    /// Texts in the jitdump, by their address in it.
    embedded: HashMap<(usize, usize), Option<Text<'d>>>,
    size: usize,
}

impl<'d, 'r> SourceTexts<'d, 'r> {
    /// Reads no file yet.
    fn new(dump: &Dump<'d>, read: ReadSource<'r>) -> Self {
        let mut declared: HashMap<Vec<u8>, Vec<TextPosition>> = HashMap::default();
        let functions = (0..dump.function_count() as u32).filter_map(|number| dump.function(number));
        for function in functions.filter(|function| names::is_v8(function.name)) {
            if let Some(location) = names::source_locations(function.name).first()
                && location.column > 0
            {
                let start = TextPosition {
                    line: location.line,
                    column: location.column,
                };
                declared.entry(location.path.to_vec()).or_default().push(start);
            }
        }
        Self {
            read,
            declared,
            texts: HashMap::default(),
            embedded: HashMap::default(),
            size: 0,
        }
    }

    /// Returns a text in the jitdump; `None` if it is not text.
    fn embedded(&mut self, text: &'d [u8]) -> Option<&Text<'d>> {
        let key = (text.as_ptr() as usize, text.len());
        let read = self.embedded.entry(key).or_insert_with(|| Text::new(text));
        read.as_ref()
    }

    /// Returns the text of a file; `None` if it is not there, or not the one of the recording.
    fn of(&mut self, name: &[u8]) -> Option<&Text<'d>> {
        if !self.texts.contains_key(name) {
            let text = self.load(name);
            self.texts.insert(name.to_vec(), text);
        }
        self.texts.get(name)?.as_ref()
    }

    /// Reads a source file, up to a limit for all. Returns nothing if functions are declared outside of it.
    fn load(&mut self, name: &[u8]) -> Option<Text<'static>> {
        if self.texts.len() >= MAX_FILES {
            return None;
        }
        let bytes = (self.read)(name)?;
        self.size = self
            .size
            .checked_add(bytes.len())
            .filter(|&size| size <= MAX_TOTAL)?;
        let text = Text::new(bytes)?;
        let declared = self.declared.get(name).map_or(&[][..], Vec::as_slice);
        let has_all = declared.iter().all(|&start| text.offset(start).is_some());
        has_all.then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the texts of a dump without functions, after files of `size` bytes have been read.
    fn texts(read: ReadSource<'_>, size: usize) -> SourceTexts<'static, '_> {
        SourceTexts {
            read,
            declared: HashMap::default(),
            texts: HashMap::default(),
            embedded: HashMap::default(),
            size,
        }
    }

    #[test]
    fn source_files_of_128_mib_together_are_read() {
        let read = |name: &[u8]| Some(name.to_vec());
        let mut files = texts(&read, (128 << 20) - 2);
        assert!(files.of(b"abc").is_none());
        assert!(files.of(b"ab").is_some());
    }

    #[test]
    fn source_files_are_read_up_to_a_number_of_4096() {
        let read = |_: &[u8]| Some(b"text".to_vec());
        let mut files = texts(&read, 0);
        let is_read = |number: &u32| files.of(&number.to_le_bytes()).is_some();
        assert_eq!((0..10_000).filter(is_read).count(), 4096);
    }
}
