//! Logs of Mono's profiler and XRay traces: events and call chains for a profile.
//!
//! ```text
//! [detect]: files ─► [mono], [xray] ─┬─► [conversion]: events, call chains and code of a profile
//!                                    └─► [used_logs]: what a recording needs of them
//! ```

#[cfg(any(feature = "mono", feature = "xray"))]
pub mod conversion;
#[cfg(not(any(feature = "mono", feature = "xray")))]
#[path = "without_formats.rs"]
pub mod conversion;
pub mod detect;
#[cfg(feature = "mono")]
pub mod mono;
pub mod options;
pub mod used_logs;
#[cfg(feature = "xray")]
pub mod xray;
