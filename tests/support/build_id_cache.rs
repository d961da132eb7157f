//! Runs jitinject with a build ID cache, and lists the cache's content.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{capture, inject, tools};

/// Runs jitinject on a recording with a build ID cache; returns the output's path.
pub fn inject_with_cache(folder: &Path, name: &str, cache: &Path) -> PathBuf {
    let output = folder.join(format!("{name}.data"));
    let dumps = capture::folder(name);
    let more = [
        "--jitdump",
        tools::text(&dumps),
        "--build-id-cache",
        tools::text(cache),
    ];
    inject(&capture::profile(name), &output, &more);
    output
}

pub fn elf_dir(output: &Path) -> PathBuf {
    output.with_extension("data.elf")
}

/// Returns everything in a directory tree by relative path.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(current).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.permissions().mode();
            let entry = if metadata.is_symlink() {
                Entry::Link(fs::read_link(&path).unwrap())
            } else if metadata.is_dir() {
                folders.push(path.clone());
                Entry::Folder(mode)
            } else {
                Entry::File(mode, fs::read(&path).unwrap())
            };
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), entry);
        }
    }
    found
}

#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    Link(PathBuf),
    Folder(u32),
    File(u32, Vec<u8>),
}
