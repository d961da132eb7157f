//! Threads of a profile of the Firefox Profiler: their samples and markers.

use serde::Serialize;
use serde_json::{Value, json};

use crate::frames::stream::tables::Thread;
use crate::tools::export::calls::Calls;
use crate::tools::export::json::List;
use crate::tools::export::profile::{Profile, Row};

/// Marker of a former name of a thread.
pub const NAME: &str = "Thread name";

/// Marker of what is missing in a profile.
pub const MISSING: &str = "Missing";

/// Nanoseconds of a unit of time.
pub const MILLISECOND: f64 = 1e6;

/// Phases of markers.
const INSTANT: u8 = 0;
const INTERVAL: u8 = 1;

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
    markers: Markers,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Samples {
    stack: Vec<Option<u32>>,
    time: Vec<f64>,
    weight: (),
    weight_type: &'static str,
    length: usize,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Markers {
    name: Vec<u32>,
    data: Vec<Value>,
    start_time: Vec<f64>,
    end_time: Vec<Option<f64>>,
    phase: Vec<u8>,
    category: Vec<u32>,
    length: usize,
}

impl Markers {
    fn add(&mut self, name: u32, kind: &str, text: &str, (start, end): (f64, Option<f64>)) {
        self.name.push(name);
        self.data.push(json!({"type": kind, "text": text}));
        self.start_time.push(start);
        self.end_time.push(end);
        self.phase.push(if end.is_some() { INTERVAL } else { INSTANT });
        self.category.push(0);
        self.length = self.length.saturating_add(1);
    }
}

/// Returns the threads: one for each thread and event with samples. `name` and `missing` are the indices of [`NAME`] and
/// [`MISSING`] in the strings.
pub fn threads(profile: &Profile, calls: &Calls<u32>, name: u32, missing: u32) -> impl Serialize {
    List(move || {
        // Readers need one at least.
        let empty = profile.rows.is_empty().then_some(&[][..]);
        let all = profile.by_thread().chain(empty).enumerate();
        all.map(move |(index, rows)| thread(profile, calls, rows, [name, missing], index == 0))
    })
}

fn thread(profile: &Profile, calls: &Calls<u32>, rows: &[Row], names: [u32; 2], is_first: bool) -> ThreadRow {
    let [name, missing] = names;
    let first = rows.first();
    let nobody = Thread {
        pid: None,
        tid: None,
        names: Vec::new(),
        process_name: "no samples".to_owned(),
    };
    let of = first.map_or(&nobody, |row| &profile.tables.threads[row.thread]);
    let milliseconds = |time: u64| time as f64 / MILLISECOND;
    let (start, _) = profile.tables.times.unwrap_or_default();
    let mut markers = Markers::default();
    let registered = first.map_or(0.0, |row| milliseconds(row.time));
    if is_first {
        // Viewers show what is between the first and the last sample.
        markers.add(
            missing,
            MISSING,
            &profile.tables.losses.text(),
            (registered, None),
        );
    }
    // The profiler has one name for a thread, the last one.
    for names in of.names.windows(2) {
        if let [(from, former), (to, _)] = names {
            let [from, to] = [from, to].map(|time| milliseconds(time.0.saturating_sub(start.0)));
            markers.add(name, NAME, former, (from, Some(to.max(from))));
        }
    }
    let is_first_event = first.is_none_or(|row| profile.events.first() == Some(&row.event));
    let event = first.and_then(|row| profile.event(row.event));
    let event = event.filter(|_| profile.events.len() > 1);
    ThreadRow {
        name: match event {
            Some(event) => format!("{} ({})", of.name(), event.name),
            None => of.name().to_owned(),
        },
        process_name: of.process_name.clone(),
        is_main_thread: is_first_event && of.pid.map(|pid| pid.0) == of.tid.map(|tid| tid.0),
        pid: of.pid_text(),
        tid: of.tid.map_or_else(|| json!(of.tid_text()), |tid| json!(tid.0)),
        process_type: "default",
        process_startup_time: 0.0,
        process_shutdown_time: (),
        register_time: registered,
        unregister_time: (),
        paused_ranges: [],
        show_markers_in_timeline: is_first,
        samples: Samples {
            stack: rows.iter().map(|row| calls.node(row.stack)).collect(),
            time: rows.iter().map(|row| milliseconds(row.time)).collect(),
            weight: (),
            weight_type: "samples",
            length: rows.len(),
        },
        markers,
    }
}
