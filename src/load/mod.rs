//! Loading of a recording: from paths to a profile with the code of its processes over time.
//!
//! ```text
//! options ─► [input]: files ─► [profile]: records without damage, and their index
//!               └─► [find]: jitdumps, perf maps, logs and traces ─► [runtime_files]: code, on the profile's clock
//!                              └─► [`crate::traces`]: events and call chains for the profile
//! ```
//!
//! All commands that read a profile start with `recording::load`.

pub(crate) mod advice;
mod clocks;
mod conflicts;
mod diagnostics;
mod file_code;
mod find;
mod input;
mod mapped_code;
mod options;
mod pid_resolver;
mod profile;
mod progress;
mod recording;
mod recording_data;
pub mod running_processes;
mod runtime_files;
mod shared_memory;

pub use crate::traces::options::{MonoEvent, SamplingOptions, TraceOptions, XrayEvent};
pub(crate) use conflicts::{path_file_id, refuse_input_as_output};
#[cfg(feature = "record")]
pub use find::access::MANIFEST;
#[cfg(feature = "native")]
pub(crate) use find::access::led_by;
#[cfg(feature = "record")]
pub(crate) use find::folders::RUNTIME_FILES;
#[cfg(feature = "record")]
pub(crate) use find::mapped::MappingTimes;
#[cfg(feature = "timeline")]
pub(crate) use find::perf_maps::all_symbols;
pub(crate) use find::perf_maps::{UsedPerfMap, symbol_of};
pub use input::may_be_input;
pub(crate) use options::NeededFunctions;
pub use options::{InputKind, LoadOptions};
pub use progress::Progress;
pub(crate) use recording::{Recording, load};
pub(crate) use recording_data::RecordingData;
#[cfg(feature = "unwind")]
pub(crate) use recording_data::keep;
#[cfg(feature = "export")]
pub(crate) use runtime_files::Compilation;
pub(crate) use runtime_files::{RuntimeFiles, UsedFile, function_of};
