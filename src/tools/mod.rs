//! The commands `check`, `dump`, `compare`, `report`, `export` and `timeline`.

#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "compare")]
pub mod compare;
#[cfg(feature = "check")]
pub mod dump;
#[cfg(any(feature = "report", feature = "timeline"))]
mod excerpts;
#[cfg(feature = "export")]
pub mod export;
#[cfg(feature = "check")]
mod file_kind;
#[cfg(any(feature = "compare", feature = "export"))]
mod flame_graph;
#[cfg(feature = "report")]
pub mod report;
#[cfg(feature = "timeline")]
pub mod timeline;
