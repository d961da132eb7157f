//! Finding of runtime files, and of the processes that they belong to.
//!
//! [`jitdumps`] matches the dumps that a profile refers to with files ([`candidates`], [`claims`], [`dedup`]).
//! [`perf_maps`] and [`logs`] find the others. [`access`] decides which files may be opened and used, and [`mapped`] which
//! one a process had.

pub mod access;
mod candidates;
mod claims;
mod dedup;
pub(crate) mod folders;
pub mod found_file;
pub mod jitdumps;
pub mod logs;
pub(crate) mod mapped;
#[cfg(feature = "mono")]
mod mono_logs;
mod open;
#[cfg(any(feature = "mono", feature = "xray"))]
mod open_given;
pub mod perf_maps;
#[cfg(feature = "xray")]
mod xray_traces;
