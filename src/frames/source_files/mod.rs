//! Source files on this machine: the scripts that jitdumps name, their source maps, and what both say of V8's functions.
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
