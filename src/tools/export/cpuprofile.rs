//! `.cpuprofile` of V8, for one thread.

use std::collections::BTreeMap;
use std::io::{self, Write};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;

use crate::collections::indexed_table::IndexedTable;
use crate::frames::stream::tables::NamedFunctionIndex;
use crate::tools::export::calls::CallNodes;
use crate::tools::export::json::{self, LazyList};
use crate::tools::export::profile::{
    ExportedProfile, FormatDescription, FormatScope, WeightedStack, cut, thread_label,
};

/// The format.
pub const FORMAT: FormatDescription = FormatDescription {
    name: "cpuprofile",
    end: ".cpuprofile",
    is_text: true,
    viewer: Some("Chrome's DevTools or VS Code"),
    help: "Chrome's DevTools, VS Code; the thread with most samples, with times",
    scope: FormatScope {
        has_times: true,
        one_event: true,
        one_thread: true,
        has_markers: false,
        has_texts: false,
    },
    write,
};

/// ID of the node that calls all others.
const ROOT: u32 = 1;

/// ID of the node for samples of which nothing was recorded.
const UNKNOWN: u32 = 2;

/// ID of the node of the first call.
const FIRST: u32 = 3;

/// Nanoseconds of a unit of time.
const MICROSECOND: u64 = 1000;

/// What a path in a URL does not have as it is.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?');

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<N, S, D> {
    nodes: N,
    start_time: u64,
    end_time: u64,
    samples: S,
    time_deltas: D,
    /// Readers ignore it.
    comment: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    id: u32,
    call_frame: CallFrame,
    hit_count: u64,
    children: &'a [u32],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    position_ticks: Vec<Ticks>,
}

/// A function. Its line and column are from 0, or -1.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallFrame {
    function_name: String,
    script_id: String,
    url: String,
    line_number: i64,
    column_number: i64,
}

impl CallFrame {
    fn without_place(name: &str) -> Self {
        Self {
            function_name: name.to_owned(),
            script_id: "0".to_owned(),
            url: String::new(),
            line_number: -1,
            column_number: -1,
        }
    }

    /// Returns the frame of a function. Its line and column count from 0, and are -1 if they are unknown.
    fn of(profile: &ExportedProfile, index: NamedFunctionIndex) -> Self {
        let function = &profile.tables.functions[index];
        let module = function
            .module
            .map(|module| &*profile.tables.modules[module].path);
        Self {
            script_id: function
                .file
                .map_or(0, |file| u64::from(file.0).saturating_add(1))
                .to_string(),
            url: profile
                .path(index)
                .or(module)
                .map(cut)
                .map(url)
                .unwrap_or_default(),
            line_number: i64::from(function.line).saturating_sub(1),
            column_number: i64::from(function.column).saturating_sub(1),
            ..Self::without_place(&profile.name(index))
        }
    }
}

/// Samples in a line, from 1.
#[derive(Serialize)]
struct Ticks {
    line: u32,
    ticks: u64,
}

/// Numbers of samples.
#[derive(Default)]
struct Hits {
    /// By node.
    of_nodes: BTreeMap<u32, u64>,
    /// By node and line of its function's file.
    of_lines: BTreeMap<(u32, u32), u64>,
}

impl Hits {
    /// Counts all samples. `id` returns the node of one.
    fn of(profile: &ExportedProfile, id: impl Fn(&WeightedStack) -> u32) -> Self {
        let mut hits = Self::default();
        for row in &profile.rows {
            let of_node = hits.of_nodes.entry(id(row)).or_default();
            *of_node = of_node.saturating_add(1);
            let leaf = row
                .stack
                .map(|stack| &profile.tables.frames[profile.tables.stacks[stack].frame]);
            // Ticks have no file: a line of another one would be that of the function's.
            let line = leaf
                .and_then(|leaf| leaf.lines.first())
                .filter(|line| line.file == profile.tables.functions[line.function].file)
                .map_or(0, |line| line.line);
            if line > 0 {
                let of_line = hits.of_lines.entry((id(row), line)).or_default();
                *of_line = of_line.saturating_add(1);
            }
        }
        hits
    }
}

/// IDs of the nodes that each node calls.
struct Callees {
    of_nodes: IndexedTable<u32, Vec<u32>>,
    /// Those of nodes without a caller.
    roots: Vec<u32>,
}

impl Callees {
    fn of(calls: &CallNodes<NamedFunctionIndex>) -> Self {
        let mut callees = Self {
            of_nodes: calls.nodes.map(|_| Vec::new()),
            roots: Vec::new(),
        };
        for (node, id) in calls.nodes.iter().zip(FIRST..) {
            match node.caller {
                Some(caller) => callees.of_nodes[caller].push(id),
                None => callees.roots.push(id),
            }
        }
        callees
    }
}

/// Writes the file.
pub fn write(profile: &ExportedProfile, out: &mut dyn Write) -> io::Result<()> {
    let calls = CallNodes::of(profile, |place| place.line.function);
    let id = |row: &WeightedStack| {
        let node = calls.node(row.stack);
        node.map_or(UNKNOWN, |node| node.saturating_add(FIRST))
    };
    let hits = Hits::of(profile, id);
    let hit_count = |id: u32| hits.of_nodes.get(&id).copied().unwrap_or_default();
    let has_unknown = hit_count(UNKNOWN) > 0;
    let Callees {
        of_nodes: children,
        mut roots,
    } = Callees::of(&calls);
    roots.extend(has_unknown.then_some(UNKNOWN));
    let node = |id: u32, call_frame: CallFrame, children| Node {
        id,
        call_frame,
        hit_count: hit_count(id),
        children,
        position_ticks: hits
            .of_lines
            .range((id, 0)..=(id, u32::MAX))
            .map(|(&(_, line), &ticks)| Ticks { line, ticks })
            .collect(),
    };
    let all = LazyList(|| {
        let root = std::iter::once(node(ROOT, CallFrame::without_place("(root)"), &*roots));
        let unknown = has_unknown.then(|| node(UNKNOWN, CallFrame::without_place("[unknown]"), &[]));
        let nodes = calls.nodes.iter().zip(&children).zip(FIRST..);
        let nodes =
            nodes.map(|((call, children), id)| node(id, CallFrame::of(profile, call.call), &**children));
        root.chain(unknown).chain(nodes)
    });
    let times = || profile.rows.iter().map(|row| row.time / MICROSECOND);
    let start = times().next().unwrap_or_default();
    let label = profile
        .rows
        .first()
        .map(|row| thread_label(&profile.tables.threads[row.thread]));
    let event = profile.first_event().map_or("", |event| &event.name);
    let file = File {
        nodes: all,
        start_time: start,
        end_time: times().next_back().unwrap_or_default(),
        samples: LazyList(|| profile.rows.iter().map(id)),
        time_deltas: LazyList(|| {
            let before = std::iter::once(start).chain(times());
            times()
                .zip(before)
                .map(|(time, before)| time.saturating_sub(before))
        }),
        comment: format!(
            "{}, {event} of thread {}; missing: {}",
            profile.title,
            label.unwrap_or_default(),
            profile.tables.losses.text()
        ),
    };
    json::write(out, &file)
}

/// Returns a path as a URL. Other names, such as `node:fs`, stay as they are.
fn url(path: &str) -> String {
    if path.starts_with('/') {
        format!("file://{}", utf8_percent_encode(path, ESCAPED))
    } else {
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_urls() {
        assert_eq!(url("/a b/ä#1.js"), "file:///a%20b/%C3%A4%231.js");
        assert_eq!(url("node:fs"), "node:fs");
    }
}
