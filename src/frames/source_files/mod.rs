//! Source files on this machine: the scripts that jitdumps name, and their source maps. V8's functions get names, lines and
//! inlined calls from both.
//!
//! ```text
//! paths in jitdumps ─► [paths]: files on this machine ─► [scripts] ─► [source_maps]
//! functions in jitdumps ────────────────────────────────────┴──────────────┴─► [v8_functions]: names, lines, inlined calls
//! ```

pub mod paths;
mod scripts;
mod source_maps;
pub mod v8_functions;

pub(crate) use paths::SourceFiles;
pub use paths::{SourceMapOptions, SourceOptions};
