//! ELF files for JIT-compiled functions: code, symbols, line tables and unwinding tables.
//!
//! ```text
//! name, code, lines, .eh_frame ─► [object]: an ELF file in memory ─► [store]: a directory of them,
//!                                   ├─ [dwarf]: line tables and inlined calls        written atomically
//!                                   ├─ [eh_frame]: unwinding tables, rebuilt
//!                                   ├─ [attributes]: CPU features for disassemblers
//!                                   └─ [escape]: names that are safe to print
//! ```
//!
//! [build_id_cache] stores the same objects where readers find them by build ID.
//!
//! [executable] and [symbols] read ELF files of compilers: code segments and function symbols.
//!
//! [`object`] describes the layout of an object, and which reader needs what of it.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod attributes;
pub mod build_id_cache;
pub mod call_frames;
pub mod core_file;
pub mod dwarf;
pub mod eh_frame;
mod escape;
pub mod executable;
pub mod limited_reads;
pub mod object;
pub mod sparse;
pub mod store;
pub mod stored_source;
pub mod symbols;
pub mod unwind_sections;
