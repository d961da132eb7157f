//! The rows that frames count for.

use crate::bytes::printable;
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::{IndexedTable, table_index};
use crate::files::objects::store;
use crate::frames::ranking::{By, RankedRow, process_name, thread_name};
use crate::frames::stream::tables::{Frame, FrameIndex, Line, NamedFunction, SourceFileIndex, ThreadIndex};
use crate::frames::stream::{Kind, Tables};
use crate::results::encoded_names::decoded;

/// Functions that are listed as callers of an inlined one.
const MAX_INLINED_INTO: usize = 3;

table_index! {
    /// Index of a row.
    RowIndex
}

/// What distinguishes rows.
#[derive(PartialEq, Eq, Hash, Default)]
struct RowKey {
    kind: Option<Kind>,
    name: String,
    /// Path of the source file, or else of the module.
    path: Option<String>,
    /// First file with the path of a line's.
    file_of_line: Option<SourceFileIndex>,
    line: u32,
    column: u32,
}

/// The rows, and those of each frame and thread.
pub struct RowGroups {
    /// Rows, without their samples at first.
    pub rows: IndexedTable<RowIndex, RankedRow>,
    /// Rows of the functions in each frame, the innermost first.
    of_frames: IndexedTable<FrameIndex, Vec<RowIndex>>,
    of_threads: Option<IndexedTable<ThreadIndex, RowIndex>>,
    of_kinds: Option<HashMap<Kind, RowIndex>>,
    known: HashMap<RowKey, RowIndex>,
}

impl RowGroups {
    /// Finds the rows of all frames.
    pub fn of(tables: &Tables, by: By) -> Self {
        let mut groups = Self {
            rows: IndexedTable::default(),
            of_frames: IndexedTable::default(),
            of_threads: None,
            of_kinds: None,
            known: HashMap::default(),
        };
        match by {
            By::Function => groups.add_frames(tables, Self::functions_of),
            By::Symbol => {
                // As in perf report. Many frames share a symbol.
                let symbols = tables.symbols.map(|symbol| {
                    let decoded = decoded(symbol.name.as_bytes());
                    decoded.map_or_else(|| symbol.name.clone(), |name| printable(name.as_bytes()))
                });
                let name = |frame: &Frame| match (frame.symbol, frame.lines.last()) {
                    (Some(symbol), _) => symbols[symbol].clone(),
                    (None, Some(line)) => tables.functions[line.function].name.clone(),
                    (None, None) => String::new(),
                };
                groups.add_frames(tables, |groups, _, frame| vec![groups.named(name(frame))]);
            }
            By::Line => {
                let files = first_of_paths(tables);
                groups.add_lines(tables, |groups, tables, line| {
                    groups.row_of_line(tables, &files, line)
                });
            }
            By::File => groups.add_lines(tables, Self::row_of_file),
            By::Module => groups.add_frames(tables, |groups, tables, frame| {
                vec![groups.row_of_module(tables, frame)]
            }),
            By::Tier => groups.add_frames(tables, |groups, tables, frame| {
                let tier = frame.tier.map(|tier| tables.tiers[tier].clone());
                vec![groups.named(tier.unwrap_or_else(|| format!("[{}]", frame.kind)))]
            }),
            By::Kind => {
                let rows = Kind::ALL.map(|kind| (kind, groups.named(kind.name().to_owned())));
                groups.of_kinds = Some(rows.into_iter().collect());
            }
            By::Thread => groups.add_threads(tables, thread_name),
            By::Process => groups.add_threads(tables, process_name),
        }
        groups
    }

    /// Adds the rows of each thread, by their names.
    fn add_threads(&mut self, tables: &Tables, name: fn(&Tables, ThreadIndex) -> String) {
        let threads = tables.threads.enumerate();
        let rows = threads.map(|(thread, _)| self.named(name(tables, thread)));
        self.of_threads = Some(rows.collect());
    }

    /// Adds the rows of each frame.
    fn add_frames(&mut self, tables: &Tables, rows: impl Fn(&mut Self, &Tables, &Frame) -> Vec<RowIndex>) {
        self.of_frames = tables.frames.map(|frame| rows(self, tables, frame));
    }

    /// Adds the row of each function in each frame.
    fn add_lines(&mut self, tables: &Tables, row: impl Fn(&mut Self, &Tables, &Line) -> RowIndex) {
        self.add_frames(tables, |groups, tables, frame| {
            let lines = frame.lines.iter();
            lines.map(|line| row(groups, tables, line)).collect()
        });
    }

    /// Returns the row of a sample, if rows are not those of frames.
    pub fn of_sample(&self, kind: Kind, thread: ThreadIndex) -> Option<RowIndex> {
        match (&self.of_threads, &self.of_kinds) {
            (Some(of_threads), _) => Some(of_threads[thread]),
            (_, Some(of_kinds)) => of_kinds.get(&kind).copied(),
            _ => None,
        }
    }

    /// Returns the row of the innermost function in a frame.
    pub fn innermost(&self, frame: FrameIndex) -> Option<RowIndex> {
        self.of_frames[frame].first().copied()
    }

    /// Returns the rows of the functions in a frame, the innermost first.
    pub fn of_frame(&self, frame: FrameIndex) -> impl Iterator<Item = RowIndex> + use<> {
        self.of_frames[frame].clone().into_iter()
    }

    /// Returns the row that has a name and nothing else.
    fn named(&mut self, name: String) -> RowIndex {
        let row = RankedRow {
            name: name.clone(),
            ..RankedRow::default()
        };
        let key = RowKey {
            name,
            ..RowKey::default()
        };
        self.row(key, row)
    }

    /// Returns the row with a key; `row` is added if there is none.
    fn row(&mut self, key: RowKey, row: RankedRow) -> RowIndex {
        let rows = &mut self.rows;
        *self.known.entry(key).or_insert_with(|| rows.push(row))
    }

    /// Returns the row of the module of a frame.
    fn row_of_module(&mut self, tables: &Tables, frame: &Frame) -> RowIndex {
        let name = match (frame.kind, frame.module.map(|module| &tables.modules[module])) {
            (Kind::Unknown, _) => "[unknown]".to_owned(),
            // A profile of a user who may not read the kernel's addresses has no map of it.
            (Kind::Kernel, None) => "[kernel.kallsyms]".to_owned(),
            (Kind::Language, _) | (_, None) => "[JIT code]".to_owned(),
            // An object of an earlier run, with code that is not of the language: builtins, regular expressions.
            (_, Some(module)) if store::has_functions(module.name.as_bytes()).is_some() => {
                "[JIT code]".to_owned()
            }
            (_, Some(module)) => module.path.clone(),
        };
        self.named(name)
    }

    /// Returns the rows of the functions in a frame, the innermost first, and adds their details.
    fn functions_of(&mut self, tables: &Tables, frame: &Frame) -> Vec<RowIndex> {
        let tier = frame.tier.map(|tier| &tables.tiers[tier]);
        let mut rows = Vec::new();
        for (at, line) in frame.lines.iter().enumerate() {
            let row = self.row_of_function(tables, &tables.functions[line.function]);
            let outer = frame.lines.get(at.saturating_add(1));
            self.add_details(tables, row, line, tier, outer);
            rows.push(row);
        }
        rows
    }

    /// Adds the function of a line, its tier, and the function that it was inlined into.
    fn add_details(
        &mut self,
        tables: &Tables,
        row: RowIndex,
        line: &Line,
        tier: Option<&String>,
        outer: Option<&Line>,
    ) {
        let row = &mut self.rows[row];
        row.functions.insert(line.function);
        if let Some(tier) = tier.filter(|tier| !row.tiers.contains(tier)) {
            row.tiers.push(tier.clone());
        }
        let outer = outer.map(|line| &tables.functions[line.function].name);
        if let Some(outer) = outer
            && row.inlined_into.len() < MAX_INLINED_INTO
            && !row.inlined_into.contains(outer)
        {
            row.inlined_into.push(outer.clone());
        }
    }

    /// Returns the row of a line's file, or else of its module or function.
    fn row_of_file(&mut self, tables: &Tables, line: &Line) -> RowIndex {
        let function = &tables.functions[line.function];
        let file = line.file.or(function.file);
        let file = file.map(|file| tables.files[file].path.clone());
        let module = function.module.map(|module| tables.modules[module].path.clone());
        self.named(file.or(module).unwrap_or_else(|| function.name.clone()))
    }

    /// Returns the row of a line, or else of its function. `files` are [`first_of_paths`].
    fn row_of_line(
        &mut self,
        tables: &Tables,
        files: &IndexedTable<SourceFileIndex, SourceFileIndex>,
        line: &Line,
    ) -> RowIndex {
        let function = &tables.functions[line.function];
        if line.line == 0 {
            return self.row_of_function(tables, function);
        }
        let file_of_line = line.file.map(|file| files[file]);
        let row = RankedRow {
            name: match file_of_line {
                Some(_) => String::new(),
                None => format!(":{}", line.line),
            },
            kind: Some(function.kind),
            file_of_line,
            line: Some(line.line),
            ..RankedRow::default()
        };
        let key = RowKey {
            file_of_line,
            line: line.line,
            ..RowKey::default()
        };
        self.row(key, row)
    }

    /// Returns the row that a function is counted in.
    fn row_of_function(&mut self, tables: &Tables, function: &NamedFunction) -> RowIndex {
        let row = RankedRow::of_function(tables, function);
        let key = RowKey {
            kind: row.kind,
            name: row.name.clone(),
            path: row.file.clone().or_else(|| row.module.clone()),
            line: function.line,
            column: function.column,
            ..RowKey::default()
        };
        self.row(key, row)
    }
}

/// Returns, for each source file, the first one with its path: files of several users have the same.
fn first_of_paths(tables: &Tables) -> IndexedTable<SourceFileIndex, SourceFileIndex> {
    let mut first: HashMap<&str, SourceFileIndex> = HashMap::default();
    let files = tables.files.enumerate();
    files
        .map(|(index, file)| *first.entry(&file.path).or_insert(index))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::source_files::SourceName;
    use crate::frames::stream::tables::File;

    #[test]
    fn rows_of_lines_have_no_path_of_their_own() {
        let mut tables = Tables::default();
        let function = NamedFunction::new(Kind::Language, "f".to_owned(), None);
        let function = tables.functions.push(function);
        // The first two are of different users.
        let files = [(1, "/src/a.js"), (2, "/src/a.js"), (1, "/src/b.js")].map(|(owner, path)| {
            tables.files.push(File {
                path: path.to_owned(),
                name: SourceName {
                    owner,
                    path: path.into(),
                    script: None,
                },
                text: None,
            })
        });
        let lines = files.map(Some).into_iter().chain([None]);
        let lines: Vec<Line> = lines
            .map(|file| Line {
                function,
                file,
                line: 7,
                column: 0,
                generated: None,
            })
            .collect();
        let mut groups = RowGroups::of(&tables, By::Line);
        let files = first_of_paths(&tables);
        let rows: Vec<RowIndex> = lines
            .iter()
            .map(|line| groups.row_of_line(&tables, &files, line))
            .collect();
        assert_eq!(rows[0], rows[1]);
        assert_eq!(groups.rows.len(), 3);
        let stored: Vec<&str> = groups.rows.iter().map(|row| &*row.name).collect();
        assert_eq!(stored, ["", "", ":7"]);
        assert!(groups.rows.iter().all(|row| row.file.is_none()));
        let named: Vec<RankedRow> = groups.rows.into_iter().map(|row| row.named(&tables)).collect();
        let names: Vec<(&str, Option<&str>)> = named
            .iter()
            .map(|row| (&*row.name, row.file.as_deref()))
            .collect();
        let expected = [
            ("/src/a.js:7", Some("/src/a.js")),
            ("/src/b.js:7", Some("/src/b.js")),
            (":7", None),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_row_has_the_first_three_functions_that_it_was_inlined_into() {
        let function = |name: &str| NamedFunction::new(Kind::Language, name.to_owned(), None);
        let functions = ["one", "two", "three", "four"].map(function);
        let mut tables = Tables::default();
        tables.functions.extend(functions);
        let mut groups = RowGroups::of(&tables, By::Function);
        let row = groups.named("inlined".to_owned());
        for (function, _) in tables.functions.enumerate() {
            let outer = Line {
                function,
                file: None,
                line: 1,
                column: 0,
                generated: None,
            };
            groups.add_details(&tables, row, &outer, None, Some(&outer));
        }
        assert_eq!(groups.rows[row].inlined_into, ["one", "two", "three"]);
    }
}
