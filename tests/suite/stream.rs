//! The stream of samples, and the tables that they refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use jitinject::internals::frames::stream::{Kind, Sample, StreamOptions, Tables, read};
use jitinject::{InjectOptions, LoadOptions, inject};
use serde_json::Value;

use crate::support::{capture, scratch};

/// Reads a capture with the files beside it.
fn samples_of(name: &str) -> (Vec<Sample>, Tables) {
    let options = StreamOptions {
        load: load(name),
        ..StreamOptions::default()
    };
    let mut samples = Vec::new();
    let tables = read(&options, &mut |sample| samples.push(*sample), &mut ()).unwrap();
    (samples, tables)
}

fn load(name: &str) -> LoadOptions {
    LoadOptions {
        input: capture::profile(name),
        jitdumps: vec![capture::folder(name)],
        ..LoadOptions::default()
    }
}

/// Own and total samples of the symbols of JIT code, as the summary counts them.
fn counts_of_summary(name: &str) -> BTreeMap<String, (u64, u64)> {
    let folder = scratch();
    let mut options = InjectOptions::new(capture::profile(name), folder.path().join("out.data"));
    options.load = load(name);
    options.summary = Some(folder.path().join("summary.json"));
    inject(&options, &mut ()).unwrap();
    let summary: Value = serde_json::from_slice(&fs::read(options.summary.unwrap()).unwrap()).unwrap();
    let mut found = BTreeMap::new();
    for function in summary["profile"]["functions"].as_array().unwrap() {
        let sum = |counts: &Value| {
            let counts = counts.as_array().unwrap().iter();
            counts.map(|count| count.as_u64().unwrap()).sum::<u64>()
        };
        if function["kind"] == "jit" && function["size"].is_u64() {
            let name = function["name"].as_str().unwrap().to_owned();
            let (own, total): &mut (u64, u64) = found.entry(name).or_default();
            *own += sum(&function["self"]);
            *total += sum(&function["total"]);
        }
    }
    found
}

#[test]
fn symbols_have_the_samples_that_the_summary_counts() {
    for name in ["node20", "node22", "php82", "mono-map", "node20-multievent"] {
        let (samples, tables) = samples_of(name);
        let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for sample in &samples {
            let of_jit = tables.frames(sample.stack).map(|frame| {
                let symbol = frame.symbol.filter(|_| frame.module.is_none());
                symbol.map(|symbol| &tables.symbols[symbol].name)
            });
            let names: Vec<Option<&String>> = of_jit.collect();
            if let Some(Some(leaf)) = names.first() {
                found.entry((*leaf).clone()).or_default().0 += 1;
            }
            for name in names.into_iter().flatten().collect::<BTreeSet<_>>() {
                found.entry(name.clone()).or_default().1 += 1;
            }
        }
        let expected = counts_of_summary(name);
        assert!(!expected.is_empty(), "{name}");
        // The summary has the own samples of inlined functions in their rows.
        assert!(found.keys().eq(expected.keys()), "{name}");
        for (function, (own, total)) in expected {
            let (found_own, found_total) = found[&function];
            assert_eq!(found_total, total, "{name} {function}");
            assert!(found_own >= own, "{name} {function}");
        }
        assert_eq!(tables.losses.samples, samples.len() as u64, "{name}");
    }
}

#[test]
fn inlined_calls_are_functions_with_lines() {
    let (samples, tables) = samples_of("node20-inlined");
    let mut inlined = BTreeSet::new();
    for sample in &samples {
        for call in tables.calls(sample.stack) {
            let function = &tables.functions[call.line.function];
            // Libraries of this machine may have some, too.
            if call.inline_depth > 0 && call.frame.kind == Kind::Language {
                inlined.insert((function.name.clone(), function.line, call.line.line > 0));
            }
        }
    }
    assert!(!inlined.is_empty());
    assert!(
        inlined.iter().any(|(_, line, has_line)| *line > 0 && *has_line),
        "{inlined:?}"
    );
}

#[test]
fn samples_have_threads_times_and_stacks() {
    let (samples, tables) = samples_of("node20");
    assert!(
        samples
            .iter()
            .all(|sample| sample.time.is_some() && sample.stack.is_some())
    );
    assert!(
        tables.threads.iter().any(|thread| thread.name() == "node"),
        "{:?}",
        tables.threads
    );
    let events: u64 = tables.events.iter().map(|event| event.samples).sum();
    assert_eq!(events, samples.len() as u64);
    for (index, stack) in tables.stacks.enumerate() {
        assert!(stack.caller.is_none_or(|caller| caller < index));
    }
}
