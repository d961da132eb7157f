//! Checks of lines against the source files on this machine.

use jitdump::v8::{Position, Text};
use jitdump::{Dump, names};

use crate::collections::hash::HashMap;
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
        let (Some(view), Some(records)) = (dump.function(number), dump.function_records(number)) else {
            continue;
        };
        let (Some(entries), Some(place)) = (dump.line_entries(&view), records.debug_info) else {
            continue;
        };
        let has_columns = names::is_v8(view.name);
        let info = dump.sources(&view).info.unwrap_or_default();
        let embedded = info
            .files
            .iter()
            .filter_map(|file| Some((&file.path[..], file.text?)));
        let embedded: HashMap<&[u8], &[u8]> = embedded.collect();
        let mut outside = entries.iter().filter(|entry| {
            let is_line = entry.line > 0 && !entry.is_invalid() && !entry.is_end();
            let text = is_line.then(|| match embedded.get(entry.name) {
                Some(&text) => files.embedded(text),
                None => files.of(entry.name),
            });
            let text = text.flatten();
            text.is_some_and(|text| {
                let has_line = (entry.line as usize) <= text.line_count();
                let column = entry.column_or_discriminator;
                let position = Position {
                    line: entry.line,
                    column,
                };
                !has_line || (has_columns && column > 0 && text.offset(position).is_none())
            })
        });
        let Some(first) = outside.next() else { continue };
        let (name, line, column) = (first.name, first.line, first.column_or_discriminator);
        let count = outside.count().saturating_add(1) as u64;
        findings.add_many(&rules::OTHER_FILE, count, place.offset, || {
            let name = jitdump::printable(name);
            let column = if has_columns {
                format!(":{column}")
            } else {
                String::new()
            };
            Place::in_record("DEBUG_INFO")
                .in_function(view.name)
                .with_message(format!(
                    "{count} of its entries, the first is {name}:{line}{column}"
                ))
        });
    }
}

/// Texts of source files by the name that the runtime gave them.
struct SourceTexts<'d, 'r> {
    read: ReadSource<'r>,
    /// Functions of V8 by the file that their name has: the file must have them, or it is not the one of the recording.
    starts: HashMap<Vec<u8>, Vec<Position>>,
    texts: HashMap<&'d [u8], Option<Text<'static>>>,
    /// Texts in the jitdump, by their address in it.
    embedded: HashMap<(usize, usize), Option<Text<'d>>>,
    size: usize,
}

impl<'d, 'r> SourceTexts<'d, 'r> {
    fn new(dump: &Dump<'d>, read: ReadSource<'r>) -> Self {
        let mut starts: HashMap<Vec<u8>, Vec<Position>> = HashMap::default();
        let views = (0..dump.function_count() as u32).filter_map(|number| dump.function(number));
        for view in views.filter(|view| names::is_v8(view.name)) {
            if let Some(location) = names::source_locations(view.name).first()
                && location.column > 0
            {
                let start = Position {
                    line: location.line,
                    column: location.column,
                };
                starts.entry(location.path.to_vec()).or_default().push(start);
            }
        }
        Self {
            read,
            starts,
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
    fn of(&mut self, name: &'d [u8]) -> Option<&Text<'d>> {
        if !self.texts.contains_key(name) {
            let text = self.load(name);
            self.texts.insert(name, text);
        }
        self.texts.get(name)?.as_ref()
    }

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
        let starts = self.starts.get(name).map_or(&[][..], Vec::as_slice);
        let has_all = starts.iter().all(|&start| text.offset(start).is_some());
        has_all.then_some(text)
    }
}
