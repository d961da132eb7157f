//! Tests of the whole program that need only a Rust toolchain, one file for each subject. They compare the output with
//! what was recorded and with the results of readers written in Rust; with `PERF_PROGRAMS=perf:...` also with those of
//! these programs. `tests/external` has the tests that need other programs.

// Tests fail by panicking.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
// The keys of maps in tests are trusted.
#![allow(clippy::disallowed_types)]
// So are the paths.
#![allow(clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

mod adversarial;
mod advice;
mod architecture;
mod attribution;
mod bad_input;
mod build_id_cache;
mod captures;
mod catalogue;
mod changing_files;
mod check;
mod check_files;
mod check_made;
mod check_made_extensions;
mod check_made_logs;
mod check_profiles;
mod check_rules;
mod ci;
mod clocks;
mod codes;
mod codes_of_events;
mod command_line;
mod compare;
mod compare_outputs;
mod conventions;
mod debug_info2;
mod dependencies;
mod dump;
mod dump_contents;
mod dwarf;
mod dwarf_units;
mod examples;
mod export;
mod export_markers;
mod faults;
mod formats;
mod hostile_files;
mod house;
mod instructions;
mod interface;
mod kept_sources;
mod kernel;
mod many_functions;
mod matching;
mod mono;
mod mono_damage;
mod mono_events;
mod mono_heap;
mod mono_hostile;
mod mono_processes;
mod mono_versions;
mod names;
mod native_lines;
mod outputs;
mod perf_inject;
mod perf_maps;
mod processes;
mod profile_damage;
mod readers;
mod record;
mod record_choices;
mod record_files;
mod record_inherited;
mod record_pack;
mod record_rights;
mod record_running;
mod records;
mod report;
mod report_missing;
mod report_names;
mod report_outputs;
mod same_bytes;
mod source_maps;
mod stream;
mod streaming;
mod symbolize;
mod synthetic;
mod timeline;
mod timeline_lines;
mod tracks;
mod unsafe_code;
mod unwind;
mod unwind_aarch64;
mod unwind_native_code;
mod unwinding;
mod v8_inlining;
mod viewers;
mod without_times;
mod xray;
mod xray_damage;
mod xray_events;
mod xray_functions;
mod xray_versions;
