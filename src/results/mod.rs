//! What a run reports: diagnostics by code, the summary, and the form of names in both.
//!
//! The types of the summary are here, and whoever fills them is above: every other folder may report something.

pub mod diagnostics;
mod file_kind;
pub mod json;
pub mod name_style;
pub mod summary;

pub use file_kind::FileKind;
