//! Searches compile units for functions.

use std::cell::Cell;
use std::ops::Range;

use gimli::constants as dw;
use gimli::{Attribute, AttributeValue, FileEntry, LineProgramHeader, Unit, UnitHeader, UnitType};
use jitdump::AddressRange;
use jitdump::debug_info::{DebugInfo, InlinedCall, SourceFile, SourceFunction};

use crate::collections::hash::{HashMap, HashSet};
use crate::elf::line_info::attributes::{join, name, number, ranges};
use crate::elf::line_info::counted_reader::{CountedReader, READS_PER_ITEM, count};
use crate::elf::line_info::debug_files::{DebugFile, DebugFiles, SplitUnit, UnitIn};
use crate::elf::line_info::other_units::OtherUnits;
use crate::elf::line_info::wanted::{EntryId, ProgramRow, Wanted, complete};
use crate::files::walk::MAX_PATH;

/// Maximum number of entries from an inlined call to the name of its function. Compilers' files have two or three.
const MAX_ORIGINS: usize = 16;

/// Schemes, as paths that jitinject writes begin with them, and whether the rest has a dot.
///
/// Quirk of jitinject itself: it writes `node:fs` as `node/fs`, because perf cuts off paths at colons.
const SCHEMES: [(&[u8], &[u8], bool); 3] = [
    (b"node/", b"node:", false),
    (b"https/", b"https://", true),
    (b"webpack/", b"webpack://", true),
];

type Result<T> = gimli::Result<T>;

/// A function whose children are read.
struct OpenFunction {
    depth: isize,
    /// Indices of wanted functions with its code.
    targets: Vec<usize>,
    /// File of the function.
    file: Option<u32>,
    /// The inlined calls whose children are read, the outermost first.
    calls: Vec<OpenCall>,
}

/// An inlined call whose children are read.
struct OpenCall {
    depth: isize,
    /// Entry of the called function.
    origin: EntryId,
    /// File of the called function.
    file: Option<u32>,
}

/// A line program.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ProgramId {
    is_supplementary: bool,
    offset: usize,
}

/// A search for functions.
pub struct FunctionSearch<'a, 'c> {
    debug_files: &'c DebugFiles<'a, 'c>,
    left: &'c Cell<u64>,
    wanted: Vec<Wanted<'a>>,
    /// Declarations by their entry. Their files are indices into `sources`.
    declared: HashMap<EntryId, SourceFunction<'a>>,
    /// All files.
    sources: Vec<SourceFile<'a>>,
    /// Their indices by path.
    by_path: HashMap<Vec<u8>, u32>,
    /// The same by a line program, and the index there.
    files: HashMap<(ProgramId, u64), Option<u32>>,
    other_units: OtherUnits<'a, 'c>,
    /// Offsets of the line programs that were read.
    programs: HashSet<usize>,
}

impl<'a, 'c> FunctionSearch<'a, 'c> {
    /// Starts a search for the functions at addresses, which must ascend.
    pub fn new(debug_files: &'c DebugFiles<'a, 'c>, left: &'c Cell<u64>, wanted: &[AddressRange]) -> Self {
        let next = wanted.iter().skip(1).map(|next| next.start.0);
        let ends = next.chain([u64::MAX]);
        let wanted = wanted.iter().zip(ends);
        let wanted = wanted.map(|(range, next)| Wanted::new(range.start.0..range.end.0.min(next)));
        Self {
            debug_files,
            left,
            wanted: wanted.collect(),
            declared: HashMap::default(),
            sources: Vec::new(),
            by_path: HashMap::default(),
            files: HashMap::default(),
            other_units: OtherUnits::default(),
            programs: HashSet::default(),
        }
    }

    /// Returns what was found of each.
    pub fn finish(self) -> Vec<DebugInfo<'a>> {
        let found = self.wanted.into_iter().map(|mut wanted| {
            let size = wanted.offsets(&wanted.range).end;
            wanted.info.normalise_tables(size);
            wanted.info
        });
        found.collect()
    }

    /// Returns the indices of the wanted functions with code at some addresses.
    fn at(&self, addresses: &Range<u64>) -> Range<usize> {
        let start = self
            .wanted
            .partition_point(|wanted| wanted.range.end <= addresses.start);
        let end = self
            .wanted
            .partition_point(|wanted| wanted.range.start < addresses.end);
        start..end.max(start)
    }

    fn count_item(&self) -> Result<()> {
        count(self.left, READS_PER_ITEM)
    }

    /// Adds what a compile unit has of the functions.
    pub fn add_unit(&mut self, header: UnitHeader<CountedReader<'a, 'c>>) -> Result<()> {
        let Some(unit) = self.wanted_unit(header)? else {
            return Ok(());
        };
        let own = UnitIn::new(DebugFile::Own, &self.debug_files.own, &unit);
        let entries = match self.debug_files.split(&unit) {
            Ok(Some((file, dwarf, split))) => self.add_entries(UnitIn::new(file, dwarf, &split)),
            Ok(None) => self.add_entries(own),
            Err(error) => Err(error),
        };
        self.add_rows(own)?;
        entries
    }

    /// Returns where a unit of the functions has its entries; `None` if they are in the file itself.
    pub fn split_unit(&self, header: UnitHeader<CountedReader<'a, 'c>>) -> Result<Option<SplitUnit>> {
        // Since DWARF 5, their headers say so.
        let is_skeleton = header.version() < 5 || matches!(header.type_(), UnitType::Skeleton(_));
        if !is_skeleton {
            return Ok(None);
        }
        let Some(unit) = self.wanted_unit(header)? else {
            return Ok(None);
        };
        let Some(id) = unit.dwo_id else {
            return Ok(None);
        };
        let unit = unit.unit_ref(&self.debug_files.own);
        let Some(file) = unit.dwo_name()? else {
            return Ok(None);
        };
        let mut path = Vec::new();
        join(&mut path, unit.comp_dir.map_or(&[], |folder| folder.bytes()));
        join(&mut path, name(unit, file)?);
        self.count_item()?;
        Ok((path.len() <= MAX_PATH).then_some(SplitUnit { id, path }))
    }

    /// Returns a unit that has code of the functions.
    fn wanted_unit(
        &self,
        header: UnitHeader<CountedReader<'a, 'c>>,
    ) -> Result<Option<Unit<CountedReader<'a, 'c>>>> {
        if matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. }) {
            return Ok(None);
        }
        let dwarf = &self.debug_files.own;
        let unit = dwarf.unit(header)?;
        let in_file = unit.unit_ref(dwarf);
        let mut entries = in_file.entries_raw(None)?;
        let Some(root) = entries.read_abbreviation()? else {
            return Ok(None);
        };
        let mut attributes = Vec::new();
        entries.read_attributes(root.attributes(), &mut attributes)?;
        let ranges = ranges(in_file, &attributes)?;
        let is_wanted = ranges.iter().any(|range| !self.at(range).is_empty());
        Ok(is_wanted.then_some(unit))
    }

    /// Adds the functions of a unit, and what is inlined into them. Entries are in the order of the tree, so `open` has the
    /// functions around the current one, the outermost first.
    fn add_entries(&mut self, unit: UnitIn<'_, 'a, 'c>) -> Result<()> {
        let mut entries = unit.entries_raw(None)?;
        let mut attributes = Vec::new();
        let mut open: Vec<OpenFunction> = Vec::new();
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            // Bytes are counted as they are read, but some attributes take none.
            let specs = abbreviation.attributes();
            count(self.left, specs.len() as u64)?;
            // An entry that is not deeper ends functions and calls. That of a block ends calls, too.
            while open.pop_if(|function| function.depth >= depth).is_some() {}
            // Calls in functions that nobody wants are skipped.
            let mut caller = open.last_mut().filter(|function| !function.targets.is_empty());
            if let Some(caller) = &mut caller {
                while caller.calls.pop_if(|call| call.depth >= depth).is_some() {}
            }
            match (abbreviation.tag(), caller) {
                (dw::DW_TAG_subprogram, _) => {
                    entries.read_attributes(specs, &mut attributes)?;
                    let function = self.function(unit, depth, &attributes)?;
                    open.push(function);
                }
                (dw::DW_TAG_inlined_subroutine, Some(caller)) => {
                    entries.read_attributes(specs, &mut attributes)?;
                    self.add_call(unit, depth, &attributes, caller)?;
                }
                _ => entries.skip_attributes(specs)?,
            }
        }
        Ok(())
    }

    /// Opens a function of the entries at `depth`, and declares those at its addresses that are wanted and not declared yet.
    fn function(
        &mut self,
        unit: UnitIn<'_, 'a, 'c>,
        depth: isize,
        attributes: &[Attribute<CountedReader<'a, 'c>>],
    ) -> Result<OpenFunction> {
        let mut targets = Vec::new();
        for range in ranges(*unit, attributes)? {
            for target in self.at(&range) {
                self.count_item()?;
                targets.push(target);
            }
        }
        targets.sort_unstable();
        targets.dedup();
        // Linkers give identical functions the same code.
        targets.retain(|&target| self.wanted.get(target).is_some_and(Wanted::is_undeclared));
        let mut file = None;
        if !targets.is_empty() {
            let declared = self.declaration(unit, attributes, 0)?;
            for &target in &targets {
                if let Some(wanted) = self.wanted.get_mut(target) {
                    wanted.declare(&declared, &self.sources);
                }
            }
            file = declared.file;
        }
        Ok(OpenFunction {
            depth,
            targets,
            file,
            calls: Vec::new(),
        })
    }

    /// Adds the call of a function that is inlined into `caller`.
    fn add_call(
        &mut self,
        unit: UnitIn<'_, 'a, 'c>,
        depth: isize,
        attributes: &[Attribute<CountedReader<'a, 'c>>],
        caller: &mut OpenFunction,
    ) -> Result<()> {
        let (mut origin, mut file, mut line, mut column) = (None, None, 0, 0);
        for attribute in attributes {
            match attribute.name() {
                dw::DW_AT_abstract_origin => origin = Some(attribute.value()),
                dw::DW_AT_call_file => file = self.file(unit, &attribute.value())?,
                dw::DW_AT_call_line => line = number(attribute),
                dw::DW_AT_call_column => column = number(attribute),
                _ => {}
            }
        }
        let origin = origin.ok_or(gimli::Error::MissingUnitDie)?;
        let (entry, declared) = self.declared(unit, &origin, 0)?;
        let nesting = caller.calls.len() as u32;
        let outer = caller.calls.last().map(|call| call.origin);
        let in_file = self.file_around_call(caller, file);
        // Lines of calls are in the file of the caller.
        if file.is_some() && file != in_file {
            (line, column) = (0, 0);
        }
        let targets = self.targets_at(&ranges(*unit, attributes)?)?;
        for of_target in targets.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((target, _)) = of_target.first() else {
                continue;
            };
            let is_callers = caller.targets.binary_search(target).is_ok();
            let Some(wanted) = self.wanted.get_mut(*target).filter(|_| is_callers) else {
                continue;
            };
            wanted.set_file(outer, in_file, &self.sources);
            let function = wanted.inlined(entry, &declared, &self.sources);
            wanted.info.calls.push(InlinedCall {
                depth: nesting,
                function,
                ranges: of_target.iter().map(|(_, range)| range.clone()).collect(),
                line,
                column,
            });
        }
        caller.calls.push(OpenCall {
            depth,
            origin: entry,
            file: declared.file,
        });
        Ok(())
    }

    /// Returns the file of the innermost open function of `caller`. If it is not declared anywhere, the function is where it calls,
    /// in `file`, and is from then on.
    fn file_around_call(&mut self, caller: &mut OpenFunction, file: Option<u32>) -> Option<u32> {
        let entry = caller.calls.last().map(|call| call.origin);
        let in_file = match caller.calls.last_mut() {
            Some(call) => &mut call.file,
            None => &mut caller.file,
        };
        let mut own = None;
        let declared = match entry.and_then(|entry| self.declared.get_mut(&entry)) {
            Some(declared) => &mut declared.file,
            None => &mut own,
        };
        *declared = declared.or(*in_file).or(file);
        *in_file = in_file.or(*declared);
        *in_file
    }

    /// Returns the indices of the wanted functions at addresses, in ascending order, each with a range of its offsets.
    fn targets_at(&self, ranges: &[Range<u64>]) -> Result<Vec<(usize, Range<u32>)>> {
        let mut targets = Vec::new();
        for range in ranges {
            for target in self.at(range) {
                self.count_item()?;
                let wanted = self.wanted.get(target);
                targets.extend(wanted.map(|wanted| (target, wanted.offsets(range))));
            }
        }
        targets.sort_unstable_by_key(|(target, range)| (*target, range.start));
        Ok(targets)
    }

    /// Returns the entry that a value refers to, and the function that is declared there.
    fn declared(
        &mut self,
        unit: UnitIn<'_, 'a, 'c>,
        origin: &AttributeValue<CountedReader<'a, 'c>>,
        origins: usize,
    ) -> Result<(EntryId, SourceFunction<'a>)> {
        let unknown = gimli::Error::MissingUnitDie;
        let (file, global) = match *origin {
            AttributeValue::UnitRef(offset) => {
                let global = offset.to_debug_info_offset(&unit.header).ok_or(unknown)?;
                (unit.file, global)
            }
            AttributeValue::DebugInfoRef(offset) => (unit.file, offset),
            AttributeValue::DebugInfoRefSup(offset) => (DebugFile::Supplementary, offset),
            _ => return Err(unknown),
        };
        let id = EntryId {
            file,
            offset: global.0,
        };
        if let Some(known) = self.declared.get(&id) {
            return Ok((id, known.clone()));
        }
        // The supplementary file may be missing.
        let Some(dwarf) = self.debug_files.dwarf(file) else {
            return Ok((id, SourceFunction::default()));
        };
        let other = match *origin {
            AttributeValue::UnitRef(_) => None,
            _ => Some(self.other_units.at(id, dwarf, self.left)?),
        };
        let unit = match &other {
            Some(other) => other.in_file(file, dwarf),
            None => unit,
        };
        let offset = global.to_unit_offset(&unit.header).ok_or(unknown)?;
        let mut entries = unit.entries_raw(Some(offset))?;
        let abbreviation = entries.read_abbreviation()?.ok_or(unknown)?;
        count(self.left, abbreviation.attributes().len() as u64)?;
        let mut attributes = Vec::new();
        entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
        let declared = self.declaration(unit, &attributes, origins)?;
        self.declared.insert(id, declared.clone());
        Ok((id, declared))
    }

    /// Returns the function that an entry declares.
    fn declaration(
        &mut self,
        unit: UnitIn<'_, 'a, 'c>,
        attributes: &[Attribute<CountedReader<'a, 'c>>],
        origins: usize,
    ) -> Result<SourceFunction<'a>> {
        let mut declared = SourceFunction::default();
        let (mut has_linkage_name, mut origin) = (false, None);
        for attribute in attributes {
            match attribute.name() {
                dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name => {
                    declared.name = name(*unit, attribute.value())?;
                    has_linkage_name = true;
                }
                dw::DW_AT_name if !has_linkage_name => declared.name = name(*unit, attribute.value())?,
                dw::DW_AT_decl_file => declared.file = self.file(unit, &attribute.value())?,
                dw::DW_AT_decl_line => declared.line = number(attribute),
                dw::DW_AT_decl_column => declared.column = number(attribute),
                dw::DW_AT_abstract_origin | dw::DW_AT_specification => origin = Some(attribute.value()),
                _ => {}
            }
        }
        let is_complete = !declared.name.is_empty() && declared.file.is_some();
        if let Some(origin) = origin.filter(|_| !is_complete && origins < MAX_ORIGINS) {
            let (_, origin) = self.declared(unit, &origin, origins.saturating_add(1))?;
            complete(&mut declared, origin);
        }
        Ok(declared)
    }

    /// Returns the file with an index in the line program of a unit.
    fn file(
        &mut self,
        unit: UnitIn<'_, 'a, 'c>,
        index: &AttributeValue<CountedReader<'a, 'c>>,
    ) -> Result<Option<u32>> {
        match index {
            // Before DWARF 5, it means no file.
            AttributeValue::FileIndex(0) if unit.header.version() < 5 => Ok(None),
            &AttributeValue::FileIndex(index) => self.file_at(unit, index),
            _ => Ok(None),
        }
    }

    /// Returns the index in `sources` of the file with an index in the unit's line program; `None` if the program has no such
    /// file, or its path is too long.
    fn file_at(&mut self, unit: UnitIn<'_, 'a, 'c>, index: u64) -> Result<Option<u32>> {
        let Some(program) = unit.line_program else {
            return Ok(None);
        };
        let header = program.header();
        let program = ProgramId {
            is_supplementary: unit.file == DebugFile::Supplementary,
            offset: header.offset().0,
        };
        let key = (program, index);
        if let Some(known) = self.files.get(&key) {
            return Ok(*known);
        }
        let file = match header.file(index) {
            Some(entry) => self.add_file_entry(unit, header, entry)?,
            None => None,
        };
        self.files.insert(key, file);
        Ok(file)
    }

    /// Adds the file of an entry of a line program, with its text if that is embedded. Returns its index in `sources`; `None`
    /// if its path is too long.
    fn add_file_entry(
        &mut self,
        unit: UnitIn<'_, 'a, 'c>,
        header: &LineProgramHeader<CountedReader<'a, 'c>>,
        entry: &FileEntry<CountedReader<'a, 'c>>,
    ) -> Result<Option<u32>> {
        let path = self.path_of_file_entry(unit, header, entry)?;
        let text = entry.source().map(|text| unit.attr_string(text)).transpose()?;
        count(self.left, path.len() as u64)?;
        let text = text.map(|text| text.bytes()).filter(|text| !text.is_empty());
        Ok((path.len() <= MAX_PATH).then(|| self.add_source(path, text)))
    }

    /// Returns the path of an entry of a line program, in the unit's folder if it is relative, or the URL that jitinject wrote
    /// as a path.
    fn path_of_file_entry(
        &self,
        unit: UnitIn<'_, 'a, 'c>,
        header: &LineProgramHeader<CountedReader<'a, 'c>>,
        entry: &FileEntry<CountedReader<'a, 'c>>,
    ) -> Result<Vec<u8>> {
        let mut relative = Vec::new();
        // Folder 0 is that of the unit, which is added below.
        let folder = entry.directory(header).filter(|_| entry.directory_index() > 0);
        if let Some(folder) = folder {
            join(&mut relative, unit.attr_string(folder)?.bytes());
        }
        join(&mut relative, unit.attr_string(entry.path_name())?.bytes());
        // Who wrote the unit is only read for the few paths that may be URLs.
        if let Some(url) = with_scheme(&relative)
            && self.is_written_by_jitinject(unit)?
        {
            return Ok(url);
        }
        let mut path = Vec::new();
        join(&mut path, unit.comp_dir.map_or(&[], |folder| folder.bytes()));
        join(&mut path, &relative);
        Ok(path)
    }

    /// Whether jitinject wrote a unit.
    fn is_written_by_jitinject(&self, unit: UnitIn<'_, 'a, 'c>) -> Result<bool> {
        let mut entries = unit.entries_raw(None)?;
        let Some(root) = entries.read_abbreviation()? else {
            return Ok(false);
        };
        // It is read for each such file, and some attributes take no bytes.
        count(self.left, root.attributes().len() as u64)?;
        let mut attributes = Vec::new();
        entries.read_attributes(root.attributes(), &mut attributes)?;
        let producer = attributes
            .iter()
            .find(|attribute| attribute.name() == dw::DW_AT_producer);
        let producer = producer.and_then(|producer| name(*unit, producer.value()).ok());
        Ok(producer == Some(&b"jitinject"[..]))
    }

    /// Adds a file, unless there is one with this path. Returns its index.
    fn add_source(&mut self, path: Vec<u8>, text: Option<&'a [u8]>) -> u32 {
        if let Some(&known) = self.by_path.get(&path) {
            return known;
        }
        let index = self.sources.len() as u32;
        self.sources.push(SourceFile {
            path: path.clone().into(),
            text,
            script: None,
        });
        self.by_path.insert(path, index);
        index
    }

    /// Adds the rows of the line program of a unit.
    fn add_rows(&mut self, unit: UnitIn<'_, 'a, 'c>) -> Result<()> {
        let Some(program) = unit.line_program.cloned() else {
            return Ok(());
        };
        if !self.programs.insert(program.header().offset().0) {
            return Ok(());
        }
        let mut rows = program.rows();
        // The last row of the sequence.
        let mut last: Option<ProgramRow> = None;
        // Whether the sequence is that of a function that the linker left out.
        let mut is_left_out = false;
        while let Some((_, row)) = rows.next_row()? {
            is_left_out = row.address() == 0 || is_left_out && last.is_some();
            if let Some(last) = last.filter(|_| !is_left_out) {
                self.add_row(unit, &last, last.start..row.address())?;
            }
            last = (!row.end_sequence()).then(|| ProgramRow::of(row));
        }
        Ok(())
    }

    /// Adds a row of a line program to the wanted functions at its addresses.
    fn add_row(&mut self, unit: UnitIn<'_, 'a, 'c>, row: &ProgramRow, addresses: Range<u64>) -> Result<()> {
        let targets = self.at(&addresses);
        if addresses.is_empty() || targets.is_empty() {
            return Ok(());
        }
        let file = self.file_at(unit, row.file)?;
        for target in targets {
            self.count_item()?;
            if let Some(wanted) = self.wanted.get_mut(target) {
                wanted.add_row(row, &addresses, file, &self.sources);
            }
        }
        Ok(())
    }
}

/// Returns the name with a scheme that jitinject wrote as a relative path.
fn with_scheme(path: &[u8]) -> Option<Vec<u8>> {
    SCHEMES.iter().find_map(|&(folder, scheme, has_dot)| {
        let rest = path.strip_prefix(folder)?;
        (rest.contains(&b'.') == has_dot).then(|| [scheme, rest].concat())
    })
}
