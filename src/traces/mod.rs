//! Logs of Mono's profiler and XRay traces: events and call chains for a profile.
//!
//! ```text
//! [detect]: files ─► [mono], [xray] ─┬─► [conversion]: events, call chains and code of a profile
//!                                    └─► [aux_files]: what a recording needs of them
//! ```

pub mod aux_files;
#[cfg(any(feature = "mono", feature = "xray"))]
pub mod conversion;
#[cfg(not(any(feature = "mono", feature = "xray")))]
#[path = "without_formats.rs"]
pub mod conversion;
pub mod detect;
#[cfg(feature = "mono")]
pub mod mono;
pub mod options;
#[cfg(feature = "xray")]
pub mod xray;
