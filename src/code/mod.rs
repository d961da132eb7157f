//! Functions on a time axis: which code lay at an address of a process at a moment, and which of it the
//! samples touch.
//!
//! ```text
//! profile ─► [survey]: processes, their maps, markers of dumps ─┐
//! dumps ─► code events ─► [clock]: on the profile's clock ──────┼─► [timeline] ─► [selection]: what the samples touch
//! perf maps ─► [symbols]: names without times ──────────────────┘       └─► [cover]: which maps would hide them
//! ```

pub mod call_tree;
pub mod clock;
pub mod cover;
pub mod file_code;
pub mod grouping;
pub mod history;
pub mod live_code;
pub mod pieces;
pub mod process;
mod recent;
pub mod remapped;
pub mod selection;
pub mod survey;
pub mod symbols;
pub mod threads;
pub mod tick_clock;
pub mod timeline;
pub mod unknown_addresses;
