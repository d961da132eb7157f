//! Source files on this machine: the scripts that jitdumps name, and their source maps. V8's functions get names, lines and
//! inlined calls from both.
//!
//! ```text
//! paths in jitdumps ─► [paths]: files on this machine ─► [v8_scripts]: scripts and their source maps
//! functions in jitdumps ────────────────────────────────────┴─► [names_and_lines]: names, lines, inlined calls
//! ```

pub mod names_and_lines;
pub mod paths;
#[cfg(feature = "scripts")]
mod v8_scripts;
#[cfg(not(feature = "scripts"))]
#[path = "without_scripts.rs"]
mod v8_scripts;

pub(crate) use paths::SourceFiles;
pub use paths::{SourceMapOptions, SourceOptions};

use jitdump::debug_info::SourceFile;
use jitdump::printable;

use crate::files::open_file::is_trusted;
use crate::files::walk::MAX_PATH;

/// A source file that lines name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SourceName {
    /// Owner of the runtime's file.
    pub owner: u32,
    /// Path in the runtime's file or in a source map.
    pub path: Vec<u8>,
    /// Path of the script whose source map names the file, if no runtime does.
    pub script: Option<Vec<u8>>,
}

impl SourceName {
    /// Returns the name of a file in lines of a runtime's file that belongs to `owner`.
    pub fn new(owner: u32, file: &SourceFile<'_>) -> Self {
        Self {
            owner,
            path: file.path.to_vec(),
            script: file.script.as_deref().map(<[u8]>::to_vec),
        }
    }
}

/// Returns what is shown of a path: the start of one that no file can have, such as a URL with a script in it.
pub fn shown_path(path: &[u8]) -> String {
    printable(path.get(..MAX_PATH).unwrap_or(path))
}

/// Returns the text of a file that may be in an output, if it is known. `owner` is that of the jitdump. The text in a source map
/// comes from this machine, where `owner` may not be allowed to read it.
pub fn text_to_write<'a>(file: &SourceFile<'a>, owner: u32) -> Option<&'a [u8]> {
    file.text.filter(|_| file.script.is_none() || is_trusted(owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_4096_bytes_of_a_path_are_shown() {
        for (size, shown) in [(4096, 4096), (4097, 4096)] {
            assert_eq!(shown_path(&vec![b'a'; size]).len(), shown);
        }
    }
}
