//! Commands beside the main one.

pub mod check;
pub mod compare;
pub mod dump;
#[cfg(feature = "timeline")]
pub mod timeline;
