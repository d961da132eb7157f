//! Threads of a profile of the Firefox Profiler: their samples and markers.

use serde::Serialize;
use serde_json::{Value, json};

use crate::frames::stream::tables::Thread;
use crate::results::summary::profile::Unit;
use crate::tools::export::calls::CallNodes;
use crate::tools::export::firefox_markers::{FormerName, MarkerSource, MarkerTable, milliseconds};
use crate::tools::export::json::LazyList;
use crate::tools::export::profile::{ExportedProfile, WeightedStack, known_name};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThreadRow {
    name: String,
    process_name: String,
    is_main_thread: bool,
    pid: String,
    tid: Value,
    process_type: &'static str,
    process_startup_time: f64,
    process_shutdown_time: (),
    register_time: f64,
    unregister_time: (),
    paused_ranges: [(); 0],
    show_markers_in_timeline: bool,
    samples: Samples,
    markers: MarkerTable,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Samples {
    stack: Vec<Option<u32>>,
    time: Vec<f64>,
    /// Nanoseconds since the sample before; without it, the profiler shows a whole CPU.
    #[serde(rename = "threadCPUDelta", skip_serializing_if = "Option::is_none")]
    thread_cpu_delta: Option<Vec<u64>>,
    weight: Option<Vec<f64>>,
    weight_type: &'static str,
    length: usize,
}

/// Returns the threads: one for each thread and event with samples. Samples of the events of `weighted` count for their
/// periods.
pub fn threads(
    profile: &ExportedProfile,
    calls: &CallNodes<u32>,
    markers: &MarkerSource,
    weighted: &[u32],
) -> impl Serialize {
    LazyList(move || {
        // Readers need one at least.
        let empty = profile.rows.is_empty().then_some(&[][..]);
        let all = profile.by_thread().chain(empty).enumerate();
        all.map(move |(index, rows)| thread(profile, calls, markers, weighted, index, rows))
    })
}

/// Makes the `index`-th thread, of the samples in `rows`.
fn thread(
    profile: &ExportedProfile,
    calls: &CallNodes<u32>,
    markers: &MarkerSource,
    weighted: &[u32],
    index: usize,
    rows: &[WeightedStack],
) -> ThreadRow {
    let first = rows.first();
    let nobody = Thread {
        pid: None,
        tid: None,
        names: Vec::new(),
        process_name: "no samples".to_owned(),
    };
    let of = first.map_or(&nobody, |row| &profile.tables.threads[row.thread]);
    let registered = first.map_or(0.0, |row| milliseconds(row.time));
    let markers = markers.of_thread(index, registered, former_names(profile, of));
    let is_first_event = first.is_none_or(|row| profile.events.first() == Some(&row.event));
    let event = first.and_then(|row| profile.event(row.event));
    let has_weights = first.is_some_and(|row| weighted.contains(&row.event));
    let is_time = event.is_some_and(|event| event.unit == Unit::Nanoseconds);
    let name = known_name(of.name());
    // There are several threads of this name then.
    let named_event = event.filter(|_| profile.events.len() > 1);
    ThreadRow {
        name: match named_event {
            Some(event) => format!("{name} ({})", event.name),
            None => name.to_owned(),
        },
        process_name: known_name(&of.process_name).to_owned(),
        is_main_thread: is_first_event && of.pid.map(|pid| pid.0) == of.tid.map(|tid| tid.0),
        pid: of.pid_text(),
        tid: of.tid.map_or_else(|| json!(of.tid_text()), |tid| json!(tid.0)),
        process_type: "default",
        process_startup_time: 0.0,
        process_shutdown_time: (),
        register_time: registered,
        unregister_time: (),
        paused_ranges: [],
        show_markers_in_timeline: markers.are_in_timeline(),
        samples: samples(rows, calls, has_weights, is_time),
        markers,
    }
}

/// Returns the names of a thread before the last one, which is the one that the profiler has for it.
fn former_names(profile: &ExportedProfile, thread: &Thread) -> impl Iterator<Item = FormerName> {
    thread.names.windows(2).filter_map(move |names| {
        let [(from, former), (to, _)] = names else {
            return None;
        };
        let (start, _) = profile.tables.times?;
        let [from, to] = [from, to].map(|time| milliseconds(time.0.saturating_sub(start.0)));
        Some(FormerName {
            name: former.clone(),
            from,
            to: to.max(from),
        })
    })
}

/// Returns the samples in `rows`, which count for their periods if they have weights. These may be times.
fn samples(rows: &[WeightedStack], calls: &CallNodes<u32>, has_weights: bool, is_time: bool) -> Samples {
    let weight = |period: u64| {
        if is_time {
            milliseconds(period)
        } else {
            period as f64
        }
    };
    let periods = || rows.iter().map(|row| row.weight.period);
    Samples {
        stack: rows.iter().map(|row| calls.node(row.stack)).collect(),
        time: rows.iter().map(|row| milliseconds(row.time)).collect(),
        thread_cpu_delta: (is_time && !has_weights).then(|| periods().collect()),
        weight: has_weights.then(|| periods().map(weight).collect()),
        weight_type: if is_time && has_weights {
            "tracing-ms"
        } else {
            "samples"
        },
        length: rows.len(),
    }
}
