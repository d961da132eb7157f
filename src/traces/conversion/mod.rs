//! Conversion of logs and traces to events and call chains of a profile, and to code.
//!
//! ```text
//! [log_format]: a format ─► [source]: events of each thread ─► [replay] in time order
//!                              ├─► [samples] ─► [synthesize]: a profile of them, alone or beside what was recorded
//!                              └─► [call_stack_replay] ─► [splice]: call chains of the profile's own samples
//! ```
//!
//! `log_conversion` does so with all formats. [`event_selection`] has the events of the profile. [`call_tree`] follows entries and
//! exits, [`chain`] makes addresses of frames, [`synthetic_symbols`] has addresses for frames without code, and `merge` merges
//! by time.

pub mod call_stack_replay;
pub mod call_tree;
pub mod chain;
pub mod event_selection;
mod log_conversion;
pub mod log_format;
mod merge;
mod replay;
pub mod samples;
pub mod source;
pub mod splice;
pub mod synthesis;
pub mod synthesize;
pub mod synthetic_symbols;

pub use log_conversion::LogConversion;
pub use log_format::OpenedFiles;
pub use synthesize::SynthesizedProfile;
