//! speedscope's own format: one profile for each thread and event, with its samples in the order of time.

use std::io::{self, Write};

use serde::Serialize;

use crate::collections::interner::Interner;
use crate::frames::stream::tables::NamedFunctionIndex;
use crate::results::summary::profile::Unit;
use crate::tools::export::EXPORTER;
use crate::tools::export::calls::CallNodes;
use crate::tools::export::json::{self, LazyList};
use crate::tools::export::profile::{
    ExportedProfile, FormatDescription, FormatScope, Home, WeightedStack, cut, thread_label,
};

/// The format.
pub const FORMAT: FormatDescription = FormatDescription {
    name: "speedscope",
    end: ".speedscope.json",
    is_text: true,
    viewer: Some("https://www.speedscope.app"),
    help: "https://www.speedscope.app; each thread and event with times",
    scope: FormatScope {
        has_times: true,
        one_event: false,
        one_thread: false,
        has_markers: false,
        has_texts: false,
    },
    write,
};

/// Name of the schema, which readers recognize the format by.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File<'a, P> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: String,
    shared: Shared<'a>,
    profiles: P,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "is_unknown")]
    line: u32,
    #[serde(skip_serializing_if = "is_unknown")]
    col: u32,
}

fn is_unknown(number: &u32) -> bool {
    *number == 0
}

/// The samples of a thread.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<S, W> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: S,
    weights: W,
}

/// Writes the file.
pub fn write(profile: &ExportedProfile, out: &mut dyn Write) -> io::Result<()> {
    // A function is one frame: equal frames of different numbers are different functions for speedscope.
    let mut functions: Interner<Option<NamedFunctionIndex>> = Interner::default();
    let calls = CallNodes::of(profile, |place| functions.of(Some(place.line.function)));
    let unknown = functions.of(None);
    let path = |row: &WeightedStack| match calls.path(calls.node(row.stack)) {
        path if path.is_empty() => vec![unknown],
        path => path,
    };
    let profiles = LazyList(|| {
        profile.by_thread().map(|rows| {
            let event = rows.first().and_then(|row| profile.event(row.event));
            let periods = rows.iter().map(|row| row.weight.period);
            Sampled {
                kind: "sampled",
                name: name(profile, rows),
                // There is no unit for cycles.
                unit: match event.map(|event| event.unit) {
                    Some(Unit::Nanoseconds) => "nanoseconds",
                    Some(Unit::Cycles | Unit::Occurrences) | None => "none",
                },
                start_value: 0,
                end_value: periods.fold(0, u64::saturating_add),
                samples: LazyList(move || rows.iter().map(path)),
                weights: LazyList(move || rows.iter().map(|row| row.weight.period)),
            }
        })
    });
    let file = File {
        schema: SCHEMA,
        exporter: EXPORTER,
        name: format!("{}; missing: {}", profile.title, profile.tables.losses.text()),
        shared: Shared {
            frames: functions
                .all
                .iter()
                .map(|&function| frame(profile, function))
                .collect(),
        },
        profiles,
    };
    json::write(out, &file)
}

/// Returns the name of the samples of a thread: its label, and that of the event.
fn name(profile: &ExportedProfile, rows: &[WeightedStack]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let label = thread_label(&profile.tables.threads[first.thread]);
    match profile.event(first.event) {
        Some(event) => format!("{label} {}", event.name),
        None => label,
    }
}

/// Returns the frame of a function, or of code without one. Without a source file, it has the path of its module.
fn frame(profile: &ExportedProfile, index: Option<NamedFunctionIndex>) -> Frame<'_> {
    let Some(index) = index else {
        return Frame {
            name: "[unknown]".to_owned(),
            file: None,
            line: 0,
            col: 0,
        };
    };
    let function = &profile.tables.functions[index];
    let module = function.module.map(Home::Module);
    let module = module
        .and_then(|home| profile.module(home))
        .map(|module| &*module.path);
    Frame {
        name: profile.name(index).into_owned(),
        file: profile.path(index).or(module).map(cut),
        line: function.line,
        col: function.column,
    }
}
