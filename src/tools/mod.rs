//! Commands beside the main one.

pub mod check;
pub mod compare;
pub mod dump;
mod file_kind;
#[cfg(feature = "timeline")]
pub mod timeline;
