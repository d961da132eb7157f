//! Results of a run: diagnostics by code, the summary, and styles of names.
//!
//! All other directories import this one and fill its types.

pub mod diagnostics;
pub mod encoded_names;
mod file_kind;
pub mod java_names;
pub mod json;
pub mod name_style;
pub mod summary;

pub use file_kind::FileKind;
