//! Objects: ELF files with a function's code, its name, and how to unwind it.
//!
//! ```text
//! name, code, lines, .eh_frame ─► [object]: an ELF file in memory ─► [store]: a folder of them, whole
//!                                   ├─ [dwarf]: lines and inlined calls                  or not at all
//!                                   ├─ [eh_frame]: tables for unwinding, laid out anew
//!                                   ├─ [attributes]: what disassemblers ask for
//!                                   └─ [text]: names, safe to print
//! ```
//!
//! [build_id_cache] is a second place for them, where they are found by build-id.
//!
//! How an object must lie for each reader to find everything in it is written down in [`object`].

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod attributes;
pub mod build_id_cache;
pub mod core_file;
pub mod dwarf;
pub mod eh_frame;
pub mod object;
pub mod segments;
pub mod store;
mod text;
