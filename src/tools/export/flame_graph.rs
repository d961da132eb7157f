//! A flame graph as SVG, with inlined calls as frames and kinds of code in colors.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::collections::indexed_table::IndexedTable;
use crate::collections::interner::Interner;
use crate::frames::stream::Kind;
use crate::results::summary::count;
use crate::tools::export::calls::CallNodes;
use crate::tools::export::profile::{ExportedProfile, FormatDescription, FormatScope, WeightedStack};
use crate::tools::flame_graph::{Color, FlameGraph, Heading, Known};

/// The format.
pub const FORMAT: FormatDescription = FormatDescription {
    name: "svg",
    end: ".svg",
    is_text: true,
    viewer: Some("a browser"),
    help: "a flame graph for any browser; sums of one event",
    scope: FormatScope {
        has_times: false,
        one_event: true,
        one_thread: false,
        has_markers: false,
        has_texts: false,
    },
    write,
};

/// Returns the color of a kind of code, and its name.
fn color(kind: Kind) -> (&'static str, Color) {
    match kind {
        Kind::Language => ("green", [170, 220, 130]),
        Kind::Native => ("blue", [150, 190, 235]),
        Kind::Kernel => ("orange", [250, 190, 110]),
        Kind::Compiler => ("purple", [205, 165, 230]),
        Kind::Gc => ("red", [240, 140, 130]),
        Kind::Idle => ("pale", [235, 235, 235]),
        Kind::Unknown => ("gray", [205, 205, 205]),
    }
}

/// Writes the file.
pub fn write(profile: &ExportedProfile, out: &mut dyn Write) -> io::Result<()> {
    let mut functions: Interner<_> = Interner::default();
    let calls = CallNodes::of(profile, |place| functions.of(Some(place.line.function)));
    let unknown = functions.of(None) as usize;
    let mut graph: FlameGraph<1> = FlameGraph {
        names: functions
            .all
            .iter()
            .map(|function| function.map_or_else(|| "[unknown]".to_owned(), |it| profile.name_and_place(it)))
            .collect(),
        ..FlameGraph::default()
    };
    let mut known = Known::default();
    let mut places: IndexedTable<u32, usize> = IndexedTable::default();
    for node in &calls.nodes {
        let caller = node.caller.map(|caller| places[caller]);
        places.push(graph.node(caller, node.call as usize, &mut known));
    }
    let total = profile.total();
    for row in &profile.rows {
        let node = calls.node(row.stack).map(|node| places[node]);
        // Nothing was recorded of its stack.
        let node = node.unwrap_or_else(|| graph.node(None, unknown, &mut known));
        if let Some([own]) = graph.nodes.get_mut(node).map(|node| &mut node.own) {
            *own += share(row, total.period);
        }
    }
    graph.sum_up();
    let kind_of = |name: usize| {
        let function = functions.all.rows().get(name).copied().flatten();
        function.map_or(Kind::Unknown, |function| profile.tables.functions[function].kind)
    };
    let shares = shares_text(&shares_of_kinds(profile, total.period));
    let event = profile.first_event().map_or("", |event| &*event.name);
    let samples = count(total.samples, "sample");
    let missing = profile.tables.losses.text();
    let heading = Heading {
        title: &profile.title,
        lines: &[
            format!("{event}, {samples}: {shares}"),
            format!("missing: {missing}"),
        ],
        all: &format!("all: 100.00 %, {event}, {samples}; missing: {missing}"),
    };
    let svg = graph.svg(heading, |node| {
        let ([own_share], [total_share], kind) = (node.own, node.total, kind_of(node.name));
        let (_, color) = color(kind);
        let description = format!("{total_share:.2} %, self {own_share:.2} %, {kind}");
        (description, color)
    });
    out.write_all(svg.as_bytes())
}

/// Returns the share of samples of a stack in all, whose periods have this sum, in percent.
fn share(row: &WeightedStack, total_period: u64) -> f64 {
    row.weight.period as f64 * 100.0 / total_period.max(1) as f64
}

/// Returns the share of each kind of code, in percent.
fn shares_of_kinds(profile: &ExportedProfile, total_period: u64) -> BTreeMap<Kind, f64> {
    let mut shares: BTreeMap<Kind, f64> = BTreeMap::new();
    for row in &profile.rows {
        let kind = profile.tables.kind(row.stack, row.thread);
        *shares.entry(kind).or_default() += share(row, total_period);
    }
    shares
}

/// Returns the shares of kinds of code, without those that are 0.
fn shares_text(shares: &BTreeMap<Kind, f64>) -> String {
    let shares = shares.iter().filter(|&(_, &share)| share > 0.0);
    let shares = shares.map(|(&kind, share)| {
        let (color, _) = color(kind);
        format!("{kind} ({color}) {share:.1} %")
    });
    shares.collect::<Vec<_>>().join(", ")
}
