//! Code over time: which function is at an address of a process at a time, and which functions the samples hit.
//!
//! ```text
//! profile ─► [profile_index]: processes, mappings, dump markers ────┐
//! dumps ─► code events ─► [clock]: aligned to the profile's clock ──┼─► [timeline] ─► [selection]: code hit by samples
//! perf maps ─► [perf_map_symbols]: names without times ─────────────┘
//! ```
//!
//! Of many functions, only those at [recorded addresses](recorded_addresses) are on the timeline.

#[cfg(feature = "inject")]
pub mod clock;
pub mod history;
#[cfg(feature = "inject")]
pub mod live_code;
#[cfg(feature = "inject")]
pub mod mappings;
#[cfg(feature = "inject")]
pub mod perf_map_symbols;
#[cfg(feature = "inject")]
pub mod process;
#[cfg(feature = "inject")]
pub mod profile_index;
#[cfg(feature = "inject")]
pub mod recent;
#[cfg(feature = "inject")]
pub mod recorded_addresses;
#[cfg(feature = "inject")]
pub mod samples;
#[cfg(feature = "inject")]
pub mod selection;
#[cfg(feature = "inject")]
pub mod timeline;
#[cfg(feature = "inject")]
pub mod unknown_addresses;
