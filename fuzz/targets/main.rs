//! All fuzz targets as one program. `JITINJECT_FUZZ_TARGET` selects one.

#![no_main]

mod commands;
mod compression;
mod core_file;
mod debug_info;
mod elf_frames;
mod growing_dump;
mod jitdump;
mod line_info;
mod mono;
mod object;
mod perf_map;
mod profile;
mod replies;
mod run;
mod script;
mod source_list;
mod summary;
mod symbols;
mod unwind;
mod unwinding;
mod xray;

use std::sync::OnceLock;

use libfuzzer_sys::{Corpus, fuzz_target};

/// Tries an input.
type Run = fn(&[u8]) -> Corpus;

const TARGETS: [(&str, Run); 21] = [
    ("commands", |input| keep(commands::run(input))),
    ("compression", compression::run),
    ("core_file", |input| keep(core_file::run(input))),
    ("debug_info", |input| keep(debug_info::run(input))),
    ("elf_frames", |input| keep(elf_frames::run(input))),
    ("growing_dump", |input| keep(growing_dump::run(input))),
    ("jitdump", |input| keep(jitdump::run(input))),
    ("line_info", |input| keep(line_info::run(input))),
    ("mono", |input| keep(mono::run(input))),
    ("object", |input| keep(object::run(input))),
    ("perf_map", |input| keep(perf_map::run(input))),
    ("profile", |input| keep(profile::run(input))),
    ("replies", |input| keep(replies::run(input))),
    ("run", |input| keep(run::run(input))),
    ("script", |input| keep(script::run(input))),
    ("source_list", |input| keep(source_list::run(input))),
    ("summary", |input| keep(summary::run(input))),
    ("symbols", |input| keep(symbols::run(input))),
    ("unwind", |input| keep(unwind::run(input))),
    ("unwinding", |input| keep(unwinding::run(input))),
    ("xray", |input| keep(xray::run(input))),
];

static SELECTED: OnceLock<Run> = OnceLock::new();

fn keep((): ()) -> Corpus {
    Corpus::Keep
}

/// Returns the selected target.
fn selected() -> Run {
    let name = std::env::var("JITINJECT_FUZZ_TARGET").unwrap_or_default();
    match TARGETS.iter().find(|(target, _)| *target == name) {
        Some(&(_, run)) => run,
        None => panic!("JITINJECT_FUZZ_TARGET is no target: {name:?}"),
    }
}

fuzz_target!(|input: &[u8]| -> Corpus { SELECTED.get_or_init(selected)(input) });
