//! The traces of LLVM's XRay: entries and exits of instrumented functions, and what a program logs beside them.
//!
//! ```text
//! header ── buffer ── buffer ── buffer ──  …                  [header], [trace]
//! [header]  some records of one thread ─► where they lie      [index]: a first walk
//!                                      ─► records             [record]: in a second walk, thread by thread
//! flight data recorder: buffers with sizes [buffers], records of 8 or 16 bytes with differences of ticks [fdr]
//!   (those that only keep books of them: [bookkeeping])
//! basic mode: records of 32 bytes, each with its thread and tick [basic]
//! ```
//!
//! The format is that of LLVM's XRayFDRFormat document for version 1, from July 2017 on, and of what compiler-rt's
//! runtimes wrote since, up to version 5. llvm-xray, LLVM's own reader, tells what the document leaves out.
//!
//! A trace knows functions by numbers only. Their addresses are in the instrumented binary ([functions]).

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
pub use header::{Error, Header, Mode, is_trace};
pub use index::{Anchor, Buffer, Index, Thread};
pub use record::{Record, What};
pub use trace::{Fault, Pieces, Records, Trace};
