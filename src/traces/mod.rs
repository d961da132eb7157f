//! Logs of Mono's profiler and XRay traces: events and call chains for a profile.
//!
//! ```text
//! [mono], [xray]: files ─► [source]: events of each thread ─► [replay] in time order
//!                             ├─► [samples] ─► [synthesize]: a profile of them, alone or beside what was recorded
//!                             └─► [call_stack_replay] ─► [splice]: call chains of the profile's own samples
//! ```
//!
//! [`event_selection`] has the events of the profile. [`call_tree`] follows entries and exits, [`chain`] makes addresses of
//! frames, [`synthetic_symbols`] has addresses for frames without code, and [`merge`] merges by time.

pub mod aux_files;
pub mod aux_logs;
mod call_stack_replay;
mod call_tree;
mod chain;
pub mod detect;
pub mod event_selection;
mod merge;
#[cfg(feature = "mono")]
pub mod mono;
pub mod options;
mod replay;
mod samples;
mod source;
mod splice;
pub mod synthesis;
pub mod synthesize;
mod synthetic_symbols;
#[cfg(feature = "xray")]
pub mod xray;
