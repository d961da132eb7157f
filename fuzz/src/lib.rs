//! Shared code of the fuzz targets and programs: creates and parses inputs, and reads outputs back with
//! independent libraries.
//!
//! Targets report failures by panicking.

pub mod choices;
pub mod read_back;

#[path = "../../tests/support/damage.rs"]
pub mod damage;
#[path = "../../tests/support/dump.rs"]
pub mod dump;
#[path = "../../tests/support/elf.rs"]
pub mod elf;
#[path = "../../tests/support/generator.rs"]
pub mod generator;
#[path = "../../tests/support/lines.rs"]
pub mod lines;
#[path = "../../tests/support/mono_log.rs"]
pub mod mono_log;
#[path = "../../tests/support/profile.rs"]
pub mod profile;
#[path = "../../tests/support/summaries.rs"]
pub mod summaries;
#[path = "../../tests/support/xray_map.rs"]
pub mod xray_map;
#[path = "../../tests/support/xray_trace.rs"]
pub mod xray_trace;
