//! The jitdump format, which most JIT runtimes write for perf.
//!
//! ```text
//! header ── record ── record ── record ──  …
//! [header]  [record]: prefix (type, size, time) and content
//!           LOAD, MOVE ─► functions and code events           [load], [moves], [duplicates]
//!           DEBUG_INFO, DEBUG_INFO2, SOURCE_TRACK ─► lines, inlined calls   [debug_info], [debug_info2]
//!           UNWINDING_INFO ─► .eh_frame                       [unwinding]
//!           JIT_TIER, EMBEDDED_SOURCE_FILE                    [tier], [source_file]
//! [dump]    the whole file; [record_association] matches records with their LOAD; [function] reads the records of one
//! ```
//!
//! The format is version 2 of Linux' `tools/perf/Documentation/jitdump-specification.txt`. Runtimes deviate
//! from it in many ways; a comment that starts with `Quirk` marks the code that handles a deviation.
//! linux-perf-data's reader is not used because it panics or loops on damaged files.

pub mod debug_info;
pub mod debug_info2;
pub mod dump;
mod duplicates;
pub mod function;
pub mod header;
pub mod load;
pub mod marker;
mod moves;
pub mod record;
mod record_association;
pub mod source_file;
pub mod tier;
pub mod unwinding;

pub use dump::{Dump, GrowingIndex, Index, first_time, last_time, records};
pub use function::{Function, FunctionSources};
pub use header::Header;
pub use load::Load;
pub use moves::Move;
pub use record::{Contents, Records};
pub use unwinding::{Placement, Unwinding};
