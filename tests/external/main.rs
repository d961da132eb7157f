//! Tests that need other programs: perf, other readers of its profiles and of ELF, browsers, runtimes and
//! compilers. `scripts/test` installs them; a test whose tool is missing fails. `cargo test --test external` runs
//! them.

// Tests report failures by panicking.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
// Tests read only their own, trusted files.
#![allow(clippy::disallowed_types)]
// Tests use only paths of their own.
#![allow(clippy::disallowed_methods)]

mod attach;
mod attribution;
mod build_id_cache;
mod captures;
mod ci;
mod conventions;
mod dwarf_units;
mod export;
mod faults;
mod formats;
mod hotspot;
mod images;
mod inlined_calls;
mod instructions;
mod line_limits;
mod lines;
mod live;
mod machines;
mod mono_live;
mod mono_names;
mod native_stacks;
mod objects;
mod other_users;
mod perf_inject;
mod perf_maps;
mod perf_versions;
mod private_scripts;
mod public_items;
mod random_debug_info;
mod reader;
mod readme;
mod record;
mod record_users;
mod report;
mod runtimes;
mod script_lines;
mod sharing;
mod split_debug_info;
mod support;
mod symbolize;
mod synthesis;
mod synthetic;
mod timeline_functions;
mod timeline_page;
mod unwinding;
mod viewers;
mod xray;
mod xray_events;
mod xray_functions;
mod xray_joined;
