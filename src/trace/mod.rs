//! Logs of Mono's profiler and XRay traces: events and call chains for a profile.
//!
//! ```text
//! [mono], [xray]: records of files ─► EventSource ─► [synthesize]: a profile of them, alone or beside what was recorded
//!                              └────► StackSource ─► [splice]: call chains of the profile's own samples
//! ```
//!
//! [`call_tree`] replays entries and exits, [`chain`] makes addresses of frames, [`synthetic_symbols`]
//! has addresses for frames without code, [`merge`] merges sources by time, [`threads`] matches threads with those of
//! the profile, and [`call_stack_replay`] finds the stacks of samples.

pub mod aux_logs;
mod call_stack_replay;
mod call_tree;
mod chain;
mod event_set;
mod merge;
pub mod mono;
pub mod options;
mod splice;
pub mod synthesize;
mod synthetic_symbols;
mod threads;
mod tick_clock;
pub mod xray;
