//! The tests of the whole program, one file for each kind of promise. They compare with somebody else: with
//! what was really run, with perf, with other readers of the same formats. `scripts/test` installs what they
//! need; a test whose tool is missing fails.

// A test says that something is wrong by panicking.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod adversarial;
mod advice;
mod bad_input;
mod build_id_cache;
mod captures;
mod check;
mod check_files;
mod check_made;
mod check_made_logs;
mod check_rules;
mod ci;
mod clocks;
mod command_line;
mod conventions;
mod dump;
mod dump_contents;
mod dwarf;
mod dwarf_units;
mod examples;
mod faults;
mod formats;
mod hostile_files;
mod house;
mod lines;
mod live;
mod machines;
mod matching;
mod mono;
mod mono_damage;
mod mono_events;
mod mono_hostile;
mod mono_live;
mod mono_names;
mod mono_processes;
mod mono_versions;
mod objects;
mod perf_maps;
mod perf_versions;
mod readers;
mod records;
mod runtimes;
mod support;
mod synthesis;
mod synthetic;
mod timeline;
mod timeline_page;
mod unsafe_code;
mod unwinding;
mod xray;
mod xray_damage;
mod xray_events;
mod xray_functions;
mod xray_joined;
mod xray_versions;
