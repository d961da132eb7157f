//! Markers of a profile of the Firefox Profiler.

use serde::Serialize;
use serde_json::{Value, json};

use crate::collections::interner::Interner;
use crate::tools::export::markers::MarkedEvent;
use crate::tools::export::profile::ExportedProfile;

/// Marker of a former name of a thread.
const NAME: &str = "Thread name";

/// Marker of what is missing in a profile.
pub const MISSING: &str = "Missing";

/// Marker of a compiled function.
const COMPILATION: &str = "Compile";

/// Marker of a garbage collection.
const COLLECTION: &str = "GC";

/// Nanoseconds of a unit of time.
const MILLISECOND: f64 = 1e6;

/// Phases of markers.
const INSTANT: u8 = 0;
const INTERVAL: u8 = 1;

/// The markers of a thread.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct MarkerTable {
    name: Vec<u32>,
    data: Vec<Data>,
    start_time: Vec<f64>,
    end_time: Vec<Option<f64>>,
    phase: Vec<u8>,
    category: Vec<usize>,
    length: usize,
}

/// What a marker has beside its times.
#[derive(Clone, Serialize)]
struct Data {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Fields {
    Text {
        text: String,
    },
    Compilation {
        /// This and the next two are indices of strings.
        function: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        position: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tier: Option<u32>,
        size: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        thread: Option<u32>,
    },
    Collection {
        generation: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        thread: Option<u32>,
    },
}

/// A marker of a runtime's event.
struct EventMarker {
    /// Position of its thread.
    thread: usize,
    start: f64,
    end: Option<f64>,
    name: u32,
    category: usize,
    data: Data,
}

/// A name that a thread no longer has.
pub struct FormerName {
    /// The name.
    pub name: String,
    /// When it got the name, in milliseconds.
    pub from: f64,
    /// When it got the next one.
    pub to: f64,
}

/// Texts and events of markers, with numbers in place of strings.
pub struct MarkerSource {
    /// Indices of [`NAME`] and [`MISSING`].
    names: [u32; 2],
    /// Position of the thread that shows what is missing: the one that viewers select.
    selected: usize,
    /// What is missing.
    missing: String,
    /// By thread and time.
    events: Vec<EventMarker>,
}

/// Converts a time.
pub fn milliseconds(time: u64) -> f64 {
    time as f64 / MILLISECOND
}

impl MarkerSource {
    /// Adds the strings of markers. `categories` are those of compilers and of garbage collectors, `selected` is the position of
    /// the thread that viewers show first.
    pub fn new(
        profile: &ExportedProfile,
        strings: &mut Interner<String>,
        categories: [usize; 2],
        selected: usize,
    ) -> Self {
        let names = [NAME, MISSING].map(|name| strings.of(name.to_owned()));
        let events = profile.markers.all.iter().map(|marker| {
            let thread = marker.other_tid().map(|tid| tid.0);
            let [of_compilers, of_collectors] = categories;
            let (kind, category, end, fields) = match &marker.event {
                MarkedEvent::Compilation {
                    function,
                    position,
                    tier,
                    size,
                } => {
                    let mut of = |text: &Option<String>| text.clone().map(|text| strings.of(text));
                    let (position, tier) = (of(position), of(tier));
                    let fields = Fields::Compilation {
                        function: strings.of(function.clone()),
                        position,
                        tier,
                        size: *size,
                        thread,
                    };
                    (COMPILATION, of_compilers, None, fields)
                }
                MarkedEvent::Collection { generation, end } => {
                    let generation = *generation;
                    let fields = Fields::Collection { generation, thread };
                    (COLLECTION, of_collectors, Some(milliseconds(*end)), fields)
                }
            };
            EventMarker {
                thread: marker.thread,
                start: milliseconds(marker.time),
                end,
                name: strings.of(kind.to_owned()),
                category,
                data: Data { kind, fields },
            }
        });
        let events = events.collect();
        Self {
            names,
            selected,
            missing: profile.tables.losses.text(),
            events,
        }
    }

    /// Returns the markers of the thread at a position, which has its first sample at `start`: what is missing, former names with
    /// their times, and events of runtimes.
    pub fn of_thread(
        &self,
        thread: usize,
        start: f64,
        names: impl Iterator<Item = FormerName>,
    ) -> MarkerTable {
        let mut table = MarkerTable::default();
        let [name, missing_name] = self.names;
        if thread == self.selected {
            let text = self.missing.clone();
            let fields = Fields::Text { text };
            table.add_marker(
                (missing_name, 0),
                Data {
                    kind: MISSING,
                    fields,
                },
                // Viewers show what is between the first and the last sample.
                (start, None),
            );
        }
        for former in names {
            let fields = Fields::Text { text: former.name };
            let times = (former.from, Some(former.to));
            table.add_marker((name, 0), Data { kind: NAME, fields }, times);
        }
        let first = self.events.partition_point(|event| event.thread < thread);
        let events = self.events.iter().skip(first);
        for event in events.take_while(|event| event.thread == thread) {
            let data = event.data.clone();
            table.add_marker((event.name, event.category), data, (event.start, event.end));
        }
        table
    }
}

impl MarkerTable {
    /// Adds a marker, whose end is known unless it is a moment.
    fn add_marker(&mut self, (name, category): (u32, usize), data: Data, (start, end): (f64, Option<f64>)) {
        self.name.push(name);
        self.data.push(data);
        self.start_time.push(start);
        self.end_time.push(end);
        self.phase.push(if end.is_some() { INTERVAL } else { INSTANT });
        self.category.push(category);
        self.length = self.length.saturating_add(1);
    }

    /// Whether a track should show any of them.
    pub fn are_in_timeline(&self) -> bool {
        let mut kinds = self.data.iter().map(|data| data.kind);
        kinds.any(|kind| kind == MISSING || kind == COLLECTION)
    }
}

/// Returns the descriptions of the markers.
pub fn schema() -> Value {
    let field = |key: &str, label: &str, format: &str| json!({"key": key, "label": label, "format": format});
    let text = |label: &str| vec![field("text", label, "string")];
    let kind = |name: &str, label: &str, display: &[&str], fields: Vec<Value>| json!({"name": name, "tooltipLabel": name, "tableLabel": label, "chartLabel": label, "display": display, "fields": fields});
    let shown = ["marker-chart", "marker-table", "timeline-overview"];
    let thread = || field("thread", "Thread", "integer");
    let text_label = "{marker.data.text}";
    json!([
        kind(NAME, text_label, &shown[..2], text("Name")),
        kind(MISSING, text_label, &shown, text("Missing in the whole profile")),
        kind(
            COMPILATION,
            "{marker.data.function} {marker.data.tier}",
            &shown[..2],
            vec![
                field("function", "Function", "unique-string"),
                field("position", "Position", "unique-string"),
                field("tier", "Tier", "unique-string"),
                field("size", "Code size", "bytes"),
                thread(),
            ]
        ),
        kind(
            COLLECTION,
            "generation {marker.data.generation}",
            &shown,
            vec![field("generation", "Generation", "integer"), thread()]
        ),
    ])
}
