//! Source files and directories of a unit.

use jitdump::debug_info::{DebugInfo, SourceFile};

use crate::bytes::rsplit_once;
use crate::elf::dwarf::Version;

/// The files that a function's lines, calls and declarations refer to, by their index in the unit. The first one
/// is the function's own file, or that of its first line.
#[derive(Debug, Default)]
pub struct FileTable {
    /// For each file of the debug information, its index in the unit.
    indices: Vec<Option<u32>>,
    used: Vec<UnitFile>,
    /// For each directory, the first file in it, as an index into the debug information.
    directories: Vec<u32>,
}

/// A file of the unit.
#[derive(Clone, Copy, Debug)]
struct UnitFile {
    /// Index of the file in the debug information.
    file: u32,
    /// Index of its directory; 0 for the directory that relative paths are resolved against.
    directory: u32,
}

/// Number of recent entries that are searched for a file or directory with the same path. Runtimes list each file
/// once, and duplicates do no harm.
const LOOK_BACK: usize = 4;

impl FileTable {
    /// Collects the files of a function and assigns their indices.
    pub fn collect(&mut self, info: &DebugInfo<'_>, version: Version) {
        self.indices.clear();
        self.indices.resize(info.files.len(), None);
        self.used.clear();
        self.directories.clear();
        let declared = info.functions.first().and_then(|function| function.file);
        let in_rows = info.rows.iter().filter_map(|row| row.file);
        let called = info
            .calls
            .iter()
            .filter_map(|call| info.functions.get(call.function as usize)?.file);
        let mut last = None;
        for file in declared.into_iter().chain(in_rows).chain(called) {
            if last != Some(file) {
                self.add_file(file, info, version);
            }
            last = Some(file);
        }
    }

    /// Adds a file of a function, unless it has no path or was added under the same one.
    fn add_file(&mut self, file: u32, info: &DebugInfo<'_>, version: Version) {
        let Some(source) = info
            .files
            .get(file as usize)
            .filter(|source| !source.path.is_empty())
        else {
            return;
        };
        if self.index(Some(file)).is_some() {
            return;
        }
        let path_of = |used: &UnitFile| info.files.get(used.file as usize).map(|file| &file.path);
        let position = recent_position(&self.used, |used| path_of(used) == Some(&source.path));
        let at = position.unwrap_or(self.used.len() as u32);
        if let Some(index) = self.indices.get_mut(file as usize) {
            *index = Some(version.first_file().saturating_add(at));
        }
        if position.is_none() {
            let directory = self.directory(file, source, info);
            self.used.push(UnitFile { file, directory });
        }
    }

    /// Returns the index of a file's directory.
    fn directory(&mut self, file: u32, source: &SourceFile<'_>, info: &DebugInfo<'_>) -> u32 {
        let (Some(directory_path), _) = split(&source.path) else {
            return 0;
        };
        let is_same = |&other: &u32| directory_of(info, other) == Some(directory_path);
        match recent_position(&self.directories, is_same) {
            Some(position) => position.saturating_add(1),
            None => {
                self.directories.push(file);
                self.directories.len() as u32
            }
        }
    }

    /// Returns the index of a file in the unit, if it has one.
    pub fn index(&self, file: Option<u32>) -> Option<u32> {
        self.indices.get(file? as usize).copied().flatten()
    }

    /// Returns the path of the first file.
    pub fn first<'i>(&self, info: &'i DebugInfo<'_>) -> Option<&'i [u8]> {
        let file = self.used.first()?.file;
        Some(&info.files.get(file as usize)?.path)
    }

    /// Returns the number of files.
    pub fn count(&self) -> usize {
        self.used.len()
    }

    /// Returns the files by ascending index, each with the index of its directory.
    pub fn iter<'f, 'i>(
        &'f self,
        info: &'f DebugInfo<'i>,
    ) -> impl Iterator<Item = (&'f SourceFile<'i>, u32)> {
        let file = |used: &UnitFile| Some((info.files.get(used.file as usize)?, used.directory));
        self.used.iter().filter_map(file)
    }

    /// Returns the number of directories.
    pub fn directory_count(&self) -> usize {
        self.directories.len()
    }

    /// Returns the directories by ascending index, from 1.
    pub fn directories<'i>(&self, info: &'i DebugInfo<'_>) -> impl Iterator<Item = &'i [u8]> {
        let folder = |&file: &u32| directory_of(info, file);
        self.directories.iter().filter_map(folder)
    }
}

/// Returns the index of the last match among the last [`LOOK_BACK`] items of a list.
fn recent_position<T>(list: &[T], matches: impl Fn(&T) -> bool) -> Option<u32> {
    let mut last = list.iter().enumerate().rev().take(LOOK_BACK);
    let (at, _) = last.find(|(_, item)| matches(item))?;
    Some(at as u32)
}

fn directory_of<'i>(info: &'i DebugInfo<'_>, file: u32) -> Option<&'i [u8]> {
    split(&info.files.get(file as usize)?.path).0
}

/// Splits a path into directory and file name.
pub fn split(path: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match rsplit_once(path, b'/') {
        Some((directory, name)) if !directory.is_empty() && !name.is_empty() => (Some(directory), name),
        // Paths directly below the root, and those that end in a slash, are not split.
        _ => (None, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitdump::debug_info::LineRow;

    /// Returns the numbers of files and of directories of a unit whose rows are in files with these paths, one after the
    /// other.
    fn counts(paths: &[&str]) -> (usize, usize) {
        let row = |file| LineRow {
            offset: file,
            file: Some(file),
            line: 1,
            column: 0,
            discriminator: 0,
        };
        let info = DebugInfo {
            files: paths
                .iter()
                .map(|path| SourceFile::from(path.as_bytes()))
                .collect(),
            rows: (0..paths.len() as u32).map(row).collect(),
            ..DebugInfo::default()
        };
        let mut table = FileTable::default();
        table.collect(&info, Version::Four);
        (table.count(), table.directory_count())
    }

    #[test]
    fn a_path_is_not_repeated_if_it_is_one_of_the_last_four() {
        assert_eq!(counts(&["a/a", "b/b", "c/c", "d/d", "a/a"]), (4, 4));
        assert_eq!(counts(&["a/a", "b/b", "c/c", "d/d", "e/e", "a/a"]), (6, 6));
        assert_eq!(counts(&["a/1", "b/b", "c/c", "d/d", "a/2"]), (5, 4));
    }
}
