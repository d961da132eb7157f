//! Commands beside the main one.

#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "compare")]
pub mod compare;
#[cfg(feature = "check")]
pub mod dump;
#[cfg(feature = "check")]
mod file_kind;
#[cfg(feature = "timeline")]
pub mod timeline;
