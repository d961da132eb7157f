//! The jitdump format: the file that most JIT compilers write for perf.
//!
//! ```text
//! header ── record ── record ── record ──  …
//! [header]  [record]: prefix (type, size, time) and content
//!           LOAD, MOVE ─► functions and code events  [load], [dump], put together in [pairing] and [moves]
//!           DEBUG_INFO, DEBUG_INFO2 ─► lines, inlined calls  [debug_info], [debug_info2], [source_file]
//!           UNWINDING_INFO ─► .eh_frame                     [unwinding]
//! ```
//!
//! The format is Linux' `tools/perf/Documentation/jitdump-specification.txt`, version 2. What real runtimes
//! write differs from it in many ways; each of their quirks is handled where it is met, under a comment that
//! starts with `Quirk`. linux-perf-data's reader of the format can't serve: it panics or loops on damaged
//! files.

pub mod debug_info;
pub mod debug_info2;
pub mod dump;
pub mod header;
pub mod load;
pub mod marker;
mod moves;
pub mod record;
mod record_association;
mod repeats;
pub mod source_file;
pub mod tier;
pub mod unwinding;

pub use dump::{Dump, Fault, FunctionSources, first_time, last_time, records};
pub use header::{Error, Header};
pub use load::Load;
pub use moves::Moved;
pub use record::Records;
