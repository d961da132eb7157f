//! Code over time: which function is at an address of a process at a time, and which functions the samples hit.
//!
//! ```text
//! profile ─► [profile_index]: processes, mappings, dump markers ────┐
//! dumps ─► code events ─► [clock]: aligned to the profile's clock ──┼─► [timeline] ─► [selection]: code hit by samples
//! perf maps ─► [perf_map_symbols]: names without times ─────────────┘
//! ```
//!
//! If there are many functions, only functions at [recorded addresses](recorded_addresses) are on the timeline.

pub mod clock;
mod code_file;
pub mod mappings;
mod paged_table;
pub mod perf_map_symbols;
pub mod process;
pub mod profile_index;
pub mod recent;
pub mod recorded_addresses;
pub mod samples;
pub mod selection;
pub mod symbol_only_code;
pub mod timeline;
pub mod unknown_addresses;

pub use code_file::CodeFile;
#[cfg(test)]
pub use code_file::reads;
