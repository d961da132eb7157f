//! What the targets and the programs beside them share: how inputs are made and taken apart, and how outputs
//! are read back by libraries that had no part in writing them.
//!
//! A target says that something is wrong by panicking.

pub mod choices;
pub mod read_back;

#[path = "../../tests/support/damage.rs"]
pub mod damage;
#[path = "../../tests/support/dump.rs"]
pub mod dump;
#[path = "../../tests/support/generator.rs"]
pub mod generator;
#[path = "../../tests/support/lines.rs"]
pub mod lines;
#[path = "../../tests/support/mono_log.rs"]
pub mod mono_log;
#[path = "../../tests/support/profile.rs"]
pub mod profile;
#[path = "../../tests/support/xray_map.rs"]
pub mod xray_map;
#[path = "../../tests/support/xray_trace.rs"]
pub mod xray_trace;
