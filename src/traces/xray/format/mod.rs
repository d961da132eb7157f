//! Reads the traces of LLVM's XRay: entries and exits of instrumented functions, and custom events of the
//! program.
//!
//! ```text
//! header ── buffer ── buffer ── buffer ──  …                      [header], [trace]
//! [header]  records of one thread ─► offsets of its buffers       [index]: first pass
//!                                 ─► records                      [record]: second pass, thread by thread
//! flight data recorder: buffers with sizes [buffers], records of 8 or 16 bytes with tick differences [fdr]
//!   (metadata records: [fdr_metadata])
//! basic mode: records of 32 bytes, each with its thread and tick [basic]
//! ```
//!
//! The format is that of LLVM's XRayFDRFormat document for version 1, from July 2017 on, and of compiler-rt's
//! runtimes since then, up to version 5. Where the document is incomplete, LLVM's own reader,
//! llvm-xray, is the reference.
//!
//! A trace has only the IDs of functions. Their addresses are in the instrumented binary ([instrumentation_map]).

mod basic;
mod buffer;
mod buffers;
mod fdr;
pub mod fdr_metadata;
pub mod header;
pub mod index;
pub mod instrumentation_map;
pub mod record;
pub mod trace;

pub use basic::RECORD_SIZE as BASIC_RECORD_SIZE;
pub use buffer::{Anchor, TraceBuffer};
pub use buffers::{GapReason, TraceSegment};
pub use fdr_metadata::FdrMetadata;
pub use header::{TraceHeader, TraceMode};
pub use index::{ThreadBuffers, TraceIndex};
pub use instrumentation_map::InstrumentationMap;
pub use record::{RecordKind, TraceRecord};
pub use trace::{Segments, Trace, TraceRecords, is_trace};
