//! ELF files for JIT-compiled functions: code, symbols, line tables and unwinding tables.
//!
//! ```text
//! name, code, lines, .eh_frame ─► [object]: an ELF file in memory
//!                                   ├─ [dwarf]: line tables and inlined calls
//!                                   ├─ [eh_frame]: unwinding tables, rebuilt
//!                                   ├─ [attributes]: CPU features for disassemblers
//!                                   └─ [escape]: names that are safe to print
//! ```
//!
//! [executable] and [symbols] read ELF files of compilers: code segments, function symbols and linkage stubs. [line_info] reads
//! their lines and inlined calls.
//!
//! [`object`] describes the layout of an object, and the readers that need each part.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod attributes;
#[cfg(feature = "unwind")]
pub mod call_frames;
pub mod core_file;
pub mod dwarf;
pub mod eh_frame;
mod escape;
#[cfg(feature = "native")]
pub mod executable;
#[cfg(feature = "native")]
pub mod limited_reads;
#[cfg(feature = "samples")]
pub mod line_info;
pub mod object;
#[cfg(feature = "native")]
pub mod symbols;
#[cfg(test)]
#[cfg(feature = "unwind")]
pub(crate) mod testing;
#[cfg(feature = "unwind")]
pub mod unwind_sections;
