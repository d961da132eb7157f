//! Commands beside the main one.

#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "compare")]
pub mod compare;
#[cfg(feature = "check")]
pub mod dump;
#[cfg(any(feature = "report", feature = "timeline"))]
mod excerpts;
#[cfg(feature = "check")]
mod file_kind;
#[cfg(feature = "report")]
pub mod report;
#[cfg(feature = "timeline")]
pub mod timeline;
