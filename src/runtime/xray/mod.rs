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
//! A trace has only the IDs of functions. Their addresses are in the instrumented binary ([functions]).

mod basic;
mod buffers;
mod fdr;
pub mod fdr_metadata;
pub mod functions;
pub mod header;
pub mod index;
pub mod record;
pub mod trace;

pub use basic::RECORD as BASIC_RECORD;
pub use buffers::{NoBuffer, Piece};
pub use fdr_metadata::FdrMetadata;
pub use functions::Functions;
pub use header::{Header, Mode, is_trace};
pub use index::{Anchor, Buffer, Index, Thread};
pub use record::{Record, What};
pub use trace::{Pieces, Records, Trace};
