//! Functions on a time axis: which code lay at an address of a process at a moment, and which of it the
//! samples touch.
//!
//! ```text
//! profile ─► [profile_index]: processes, their maps, markers of dumps ─┐
//! dumps ─► code events ─► [clock]: on the profile's clock ──────┼─► [timeline] ─► [selection]: what the samples touch
//! perf maps ─► [symbols]: names without times ──────────────────┘       └─► [cover]: which maps would hide them
//! ```

pub mod call_tree;
pub mod clock;
pub mod file_code;
pub mod grouping;
pub mod history;
pub mod live_code;
pub mod mmap_trim;
pub mod perf_map_symbols;
pub mod pieces;
pub mod process;
pub mod profile_index;
mod recent;
pub mod remapped;
pub mod selection;
pub mod threads;
pub mod tick_clock;
pub mod timeline;
pub mod unknown_addresses;
