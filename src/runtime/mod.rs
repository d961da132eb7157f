//! Readers of the files in which JIT runtimes describe their code.
//!
//! Each file format has a module that turns its records into [`CodeEvent`]s. The rest of the program uses a
//! [`CodeFile`], which is the same for all formats. Perf maps are the exception: they only map addresses to
//! names and have no timestamps.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod code_file;
mod file_kind;
pub mod mono;
pub mod symbol_only_code;
pub mod xray;

pub use ::jitdump::internals::runtime::*;
pub use code_file::CodeFile;
pub use file_kind::FileKind;
