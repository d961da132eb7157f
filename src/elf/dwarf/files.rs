//! The source files of a unit, and the folders that they lie in.

use crate::bytes::rsplit_once;
use crate::debug_info::{DebugInfo, SourceFile};
use crate::elf::dwarf::Version;

/// The files that something of a function lies in, by their numbers in its unit. The first of them is the
/// function's own, or that of its first line.
#[derive(Debug, Default)]
pub struct Files {
    /// The number of each file of the debug information.
    numbers: Vec<Option<u32>>,
    used: Vec<UsedFile>,
    /// The folders: for each the file, of the debug information, that was first to lie in it.
    directories: Vec<u32>,
}

/// A file with a number.
#[derive(Clone, Copy, Debug)]
struct UsedFile {
    /// Which of the debug information it is.
    file: u32,
    /// The number of its folder; 0 for the one that relative paths start from.
    directory: u32,
}

/// How far to look back for a file or folder with the same path. Runtimes name each file once; one that is
/// there a second time does no harm.
const LOOK_BACK: usize = 4;

impl Files {
    /// Numbers the files of a function.
    pub fn collect(&mut self, info: &DebugInfo<'_>, version: Version) {
        self.numbers.clear();
        self.numbers.resize(info.files.len(), None);
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
                self.add(file, info, version);
            }
            last = Some(file);
        }
    }

    fn add(&mut self, file: u32, info: &DebugInfo<'_>, version: Version) {
        let Some(source) = info
            .files
            .get(file as usize)
            .filter(|source| !source.path.is_empty())
        else {
            return;
        };
        if self.number(Some(file)).is_some() {
            return;
        }
        let path_of = |used: &UsedFile| info.files.get(used.file as usize).map(|file| &file.path);
        let known = last_of(&self.used, |used| path_of(used) == Some(&source.path));
        let at = known.unwrap_or(self.used.len() as u32);
        if let Some(number) = self.numbers.get_mut(file as usize) {
            *number = Some(version.first_file().saturating_add(at));
        }
        if known.is_none() {
            let directory = self.directory(file, source, info);
            self.used.push(UsedFile { file, directory });
        }
    }

    /// The number of the folder that a file lies in.
    fn directory(&mut self, file: u32, source: &SourceFile<'_>, info: &DebugInfo<'_>) -> u32 {
        let (Some(wanted), _) = split(&source.path) else {
            return 0;
        };
        let is_wanted = |&known: &u32| directory_of(info, known) == Some(wanted);
        match last_of(&self.directories, is_wanted) {
            Some(known) => known.saturating_add(1),
            None => {
                self.directories.push(file);
                self.directories.len() as u32
            }
        }
    }

    /// The number of a file, if it has one.
    pub fn number(&self, file: Option<u32>) -> Option<u32> {
        self.numbers.get(file? as usize).copied().flatten()
    }

    /// The path of the first file.
    pub fn first<'i>(&self, info: &'i DebugInfo<'_>) -> Option<&'i [u8]> {
        let file = self.used.first()?.file;
        Some(&info.files.get(file as usize)?.path)
    }

    /// How many files there are.
    pub fn count(&self) -> usize {
        self.used.len()
    }

    /// The files in the order of their numbers, each with the number of its folder.
    pub fn iter<'f, 'i>(
        &'f self,
        info: &'f DebugInfo<'i>,
    ) -> impl Iterator<Item = (&'f SourceFile<'i>, u32)> {
        let file = |used: &UsedFile| Some((info.files.get(used.file as usize)?, used.directory));
        self.used.iter().filter_map(file)
    }

    /// How many folders there are.
    pub fn directory_count(&self) -> usize {
        self.directories.len()
    }

    /// The folders in the order of their numbers, from 1.
    pub fn directories<'i>(&self, info: &'i DebugInfo<'_>) -> impl Iterator<Item = &'i [u8]> {
        let folder = |&file: &u32| directory_of(info, file);
        self.directories.iter().filter_map(folder)
    }
}

/// The place of the last thing in a list that is the one, if it is not far from the end.
fn last_of<T>(list: &[T], is_it: impl Fn(&T) -> bool) -> Option<u32> {
    let mut last = list.iter().enumerate().rev().take(LOOK_BACK);
    let (at, _) = last.find(|(_, thing)| is_it(thing))?;
    Some(at as u32)
}

fn directory_of<'i>(info: &'i DebugInfo<'_>, file: u32) -> Option<&'i [u8]> {
    split(&info.files.get(file as usize)?.path).0
}

/// A path as folder and name.
pub fn split(path: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match rsplit_once(path, b'/') {
        Some((directory, name)) if !directory.is_empty() && !name.is_empty() => (Some(directory), name),
        // What is left of a path from the root is a whole one, and so is one that ends in a slash.
        _ => (None, path),
    }
}
