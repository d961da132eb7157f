//! Contents of call chains: native code, unwinding, source files, and all samples, by function or one by one.
//!
//! ```text
//! [native]: executables and libraries ─┬─► [unwind]: call chains in place of copied stacks
//! [source_files]: scripts and maps ────┴─► [stream]: samples one by one, with names and lines ─┬─► [ranking]: the hottest functions
//!                                                                                              └─► [attribution]: the summary
//! ```
//!
//! [events]: the events of samples

#[cfg(feature = "samples")]
pub mod attribution;
#[cfg(not(feature = "samples"))]
#[path = "without_samples.rs"]
pub mod attribution;
#[cfg(any(feature = "samples", feature = "timeline"))]
pub mod events;
#[cfg(feature = "native")]
pub mod native;
#[cfg(feature = "samples")]
pub mod ranking;
pub mod source_files;
#[cfg(feature = "samples")]
pub mod stream;
#[cfg(feature = "unwind")]
pub mod unwind;
#[cfg(not(feature = "unwind"))]
#[path = "without_unwind.rs"]
pub mod unwind;
pub mod unwind_options;
