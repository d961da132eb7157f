//! What is found of the functions that are wanted.

use std::ops::Range;

use gimli::ColumnType;
use jitdump::debug_info::{DebugInfo, LineRow, SourceFile, SourceFunction};

use crate::collections::hash::HashMap;
use crate::elf::line_info::debug_files::DebugFile;

/// Adds to a declared function what is missing, from the entry that its own one refers to.
pub fn complete<'a>(declared: &mut SourceFunction<'a>, origin: SourceFunction<'a>) {
    if declared.name.is_empty() {
        declared.name = origin.name;
    }
    if declared.file.is_none() {
        (declared.file, declared.line, declared.column) = (origin.file, origin.line, origin.column);
    }
}

/// An entry in `.debug_info` of one of the files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EntryId {
    /// The file.
    pub file: DebugFile,
    /// Offset there.
    pub offset: usize,
}

/// A row of a line program, whose code ends at the next one.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRow {
    /// Its first address.
    pub start: u64,
    /// Index of its file in the line program.
    pub file: u64,
    line: u32,
    column: u32,
}

impl ProgramRow {
    /// Reads a row. Code without a line has no column.
    pub fn of(row: &gimli::LineRow) -> Self {
        let line = row.line().map_or(0, |line| line.get());
        let column = match row.column() {
            ColumnType::Column(column) if line > 0 => column.get(),
            ColumnType::Column(_) | ColumnType::LeftEdge => 0,
        };
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            start: row.address(),
            file: row.file_index(),
            line: small(line),
            column: small(column),
        }
    }
}

/// A function that is wanted.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Its linked addresses.
    pub range: Range<u64>,
    /// What was found. The first function is itself.
    pub info: DebugInfo<'a>,
    /// Indices of files in `info`, by those in the search.
    files: HashMap<u32, u32>,
    /// Indices of inlined functions in `info`, by their entry.
    functions: HashMap<EntryId, u32>,
}

impl<'a> Wanted<'a> {
    /// Starts without anything found.
    pub fn new(range: Range<u64>) -> Self {
        Self {
            range,
            info: DebugInfo {
                functions: vec![SourceFunction::default()],
                // Code before the first row has no line.
                rows: vec![LineRow::default()],
                ..DebugInfo::default()
            },
            files: HashMap::default(),
            functions: HashMap::default(),
        }
    }

    /// Whether its declaration was not found yet.
    pub fn is_undeclared(&self) -> bool {
        self.info.functions.first() == Some(&SourceFunction::default())
    }

    /// Sets its declaration, whose file is an index into `sources`.
    pub fn declare(&mut self, declared: &SourceFunction<'a>, sources: &[SourceFile<'a>]) {
        let function = self.function(declared, sources);
        self.info.functions = vec![function];
    }

    /// Returns the index of an inlined function, by its entry.
    pub fn inlined(
        &mut self,
        entry: EntryId,
        declared: &SourceFunction<'a>,
        sources: &[SourceFile<'a>],
    ) -> u32 {
        if let Some(&known) = self.functions.get(&entry) {
            return known;
        }
        let function = self.function(declared, sources);
        let index = self.info.functions.len() as u32;
        self.info.functions.push(function);
        self.functions.insert(entry, index);
        index
    }

    /// Sets the file of an inlined function, or of the function itself, that has none.
    pub fn set_file(&mut self, entry: Option<EntryId>, file: Option<u32>, sources: &[SourceFile<'a>]) {
        let function = entry.map_or(Some(0), |entry| self.functions.get(&entry).copied());
        let file = self.file(file, sources);
        if let Some(function) = function.and_then(|function| self.info.functions.get_mut(function as usize)) {
            function.file = function.file.or(file);
        }
    }

    /// Adds a row at addresses that may begin before the function, with a file among `sources`.
    pub fn add_row(
        &mut self,
        row: &ProgramRow,
        addresses: &Range<u64>,
        file: Option<u32>,
        sources: &[SourceFile<'a>],
    ) {
        let row = LineRow {
            offset: self.offsets(addresses).start,
            file: self.file(file, sources),
            line: row.line,
            column: row.column,
            discriminator: 0,
        };
        self.info.rows.push(row);
    }

    /// Returns the index in `info` of a file among `sources`.
    pub fn file(&mut self, file: Option<u32>, sources: &[SourceFile<'a>]) -> Option<u32> {
        let (file, files) = (file?, &mut self.info.files);
        let source = sources.get(file as usize)?;
        Some(*self.files.entry(file).or_insert_with(|| {
            files.push(source.clone());
            files.len().saturating_sub(1) as u32
        }))
    }

    fn function(&mut self, declared: &SourceFunction<'a>, sources: &[SourceFile<'a>]) -> SourceFunction<'a> {
        SourceFunction {
            file: self.file(declared.file, sources),
            ..declared.clone()
        }
    }

    /// Returns offsets of addresses.
    pub fn offsets(&self, addresses: &Range<u64>) -> Range<u32> {
        let offset = |address: u64| {
            let address = address.clamp(self.range.start, self.range.end);
            u32::try_from(address.saturating_sub(self.range.start)).unwrap_or(u32::MAX)
        };
        offset(addresses.start)..offset(addresses.end)
    }
}
