//! A differential flame graph: the call trees of both sides in one SVG file that loads nothing else.
//!
//! Callers are above their callees, so that a browser shows the roots first. The width of a frame is the mean of both
//! sides, so that calls which only one side has are visible. Its color shows the change of the time in the function itself,
//! as in Brendan Gregg's differential flame graphs and in inferno: red for more, blue for less.

use std::fmt::Write as _;

use jitdump::printable;

use crate::collections::hash::HashMap;
use crate::tools::compare::matching::{AFTER, BEFORE, Table};
use crate::tools::compare::measure::Scale;

/// Script for zooming and searching. Without it, the graph is complete but does not zoom.
const SCRIPT: &str = include_str!("flame_graph.js");

/// Width of the graph, and the margin around it.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;

/// Space above the frames, for the title and the name of the selected frame.
const TOP: f64 = 76.0;

/// Height of a frame, and width of a character in it.
const HEIGHT: f64 = 16.0;
const CHARACTER: f64 = 7.0;

/// Least width of a frame. It limits the frames of one level.
const MIN_WIDTH: f64 = 0.3;

/// Largest depth. Deeper calls count for their caller at this depth.
const MAX_DEPTH: usize = 400;

/// Frames in the file. Beyond them, those with the least time are left out.
const MAX_FRAMES: usize = 50_000;

/// Longest name in characters.
const MAX_NAME: usize = 400;

/// Call trees of both sides, merged.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FlameGraph {
    nodes: Vec<Node>,
    names: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Node {
    parent: Option<usize>,
    depth: usize,
    /// Index of the name.
    name: usize,
    /// Time in the function on both sides, in percent.
    own: [f64; 2],
    /// The same with its callees.
    total: [f64; 2],
}

impl Node {
    fn width(&self) -> f64 {
        (self.total[0] + self.total[1]) / 2.0
    }

    fn change(&self) -> f64 {
        self.own[1] - self.own[0]
    }
}

/// A frame at its place.
struct Frame {
    node: usize,
    x: f64,
    width: f64,
}

impl FlameGraph {
    /// Merges the call trees of all runs.
    pub(in crate::tools::compare) fn of(table: &Table<'_>, scale: &Scale) -> Self {
        let mut graph = Self::default();
        let mut names: HashMap<u32, usize> = HashMap::default();
        let mut known: HashMap<(Option<usize>, usize), usize> = HashMap::default();
        for side in [BEFORE, AFTER] {
            let runs = table.runs_of(side);
            let count = runs.len().max(1) as f64;
            for run in runs {
                let Some(summary) = table.runs.get(run) else {
                    continue;
                };
                let weight = scale.weights.get(run).copied().unwrap_or_default() / count;
                let mut node_of: Vec<Option<usize>> = Vec::with_capacity(summary.profile.stacks.len());
                for stack in &summary.profile.stacks {
                    let row = table.row(run, stack.function as usize).unwrap_or_default();
                    let name = *names.entry(row).or_insert_with(|| {
                        let function = table.function(row);
                        graph
                            .names
                            .push(function.map_or(String::new(), |function| function.full_name()));
                        graph.names.len().saturating_sub(1)
                    });
                    let parent = stack.caller.and_then(|caller| *node_of.get(caller as usize)?);
                    let node = graph.node(parent, name, &mut known);
                    if let Some(own) = graph.nodes.get_mut(node).and_then(|node| node.own.get_mut(side)) {
                        *own += stack.own as f64 * weight;
                    }
                    node_of.push(Some(node));
                }
            }
        }
        graph.sum_up();
        graph
    }

    /// Returns the node of a function below another node.
    fn node(
        &mut self,
        parent: Option<usize>,
        name: usize,
        known: &mut HashMap<(Option<usize>, usize), usize>,
    ) -> usize {
        let depth = match parent.and_then(|parent| self.nodes.get(parent)) {
            Some(parent) => parent.depth.saturating_add(1),
            None => 0,
        };
        if let Some(parent) = parent.filter(|_| depth >= MAX_DEPTH) {
            return parent;
        }
        *known.entry((parent, name)).or_insert_with(|| {
            self.nodes.push(Node {
                parent,
                depth,
                name,
                own: [0.0; 2],
                total: [0.0; 2],
            });
            self.nodes.len().saturating_sub(1)
        })
    }

    /// Computes the totals. A caller is before its callees.
    fn sum_up(&mut self) {
        for node in &mut self.nodes {
            node.total = node.own;
        }
        for index in (0..self.nodes.len()).rev() {
            let Some(&Node { parent, total, .. }) = self.nodes.get(index) else {
                continue;
            };
            if let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(parent)) {
                parent.total[0] += total[0];
                parent.total[1] += total[1];
            }
        }
    }

    /// Returns the SVG file. `before` and `after` describe the sides, `values` what the percentages are of.
    pub fn svg(&self, before: &str, after: &str, values: &str) -> String {
        let frames = self.layout();
        let depth = frames
            .iter()
            .filter_map(|frame| self.nodes.get(frame.node))
            .map(|node| node.depth.saturating_add(2))
            .max()
            .unwrap_or(1);
        let height = TOP + MARGIN + depth as f64 * HEIGHT;
        let largest = self
            .nodes
            .iter()
            .map(|node| node.change().abs())
            .fold(0.0, f64::max);
        let mut svg = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n\
             <svg version=\"1.1\" xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\">\n\
             <style>text {{ font: 12px monospace; fill: #000; }} #title {{ font-size: 17px; text-anchor: middle; }} \
             .frame rect {{ stroke: #aaa; stroke-width: 0.5; }} .frame:hover rect {{ stroke: #000; cursor: pointer; }} \
             .frame text {{ pointer-events: none; }} .hidden {{ display: none; }} .outer {{ opacity: 0.5; }} \
             .found rect {{ stroke: #808; stroke-width: 2; }} .button {{ cursor: pointer; }}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text id=\"title\" x=\"{}\" y=\"24\">Differential flame graph</text>\n\
             <text x=\"{MARGIN}\" y=\"44\">{} → {}; red: more time, blue: less</text>\n\
             <text id=\"details\" x=\"{MARGIN}\" y=\"62\"> </text>\n\
             <text id=\"reset\" class=\"button hidden\" x=\"{MARGIN}\" y=\"24\">Reset zoom</text>\n\
             <text id=\"search\" class=\"button\" x=\"{}\" y=\"24\" visibility=\"hidden\">Search</text>\n\
             <g id=\"frames\">\n",
            WIDTH / 2.0,
            escaped(before),
            escaped(after),
            WIDTH - MARGIN - 50.0,
        );
        let all = self.roots_total();
        let root = format!("all: {:.2} % → {:.2} %, {values}", all[0], all[1]);
        write_frame(&mut svg, &root, "all", (MARGIN, TOP, WIDTH - 2.0 * MARGIN), 0.0);
        for frame in &frames {
            let Some(node) = self.nodes.get(frame.node) else {
                continue;
            };
            let name = self.names.get(node.name).map_or("", |name| &**name);
            let name = clipped(name);
            let [[own, own_after], [total, total_after]] = [node.own, node.total];
            let title = format!(
                "{name}: {total:.2} % → {total_after:.2} % ({:+.2}), self {own:.2} % → {own_after:.2} % ({:+.2})",
                total_after - total,
                own_after - own
            );
            let y = TOP + (node.depth as f64 + 1.0) * HEIGHT;
            let part = if largest > 0.0 {
                node.change() / largest
            } else {
                0.0
            };
            write_frame(&mut svg, &title, &name, (frame.x, y, frame.width), part);
        }
        let _ = write!(svg, "</g>\n<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n");
        svg
    }

    fn roots_total(&self) -> [f64; 2] {
        let roots = self.nodes.iter().filter(|node| node.parent.is_none());
        roots.fold([0.0; 2], |sum, node| {
            [sum[0] + node.total[0], sum[1] + node.total[1]]
        })
    }

    /// Places the frames. Frames that are too narrow to be seen are left out, with their callees.
    fn layout(&self) -> Vec<Frame> {
        let all = self.roots_total();
        let sum = (all[0] + all[1]) / 2.0;
        if sum <= 0.0 {
            return Vec::new();
        }
        let pixels = (WIDTH - 2.0 * MARGIN) / sum;
        let least = self.least_width(MIN_WIDTH / pixels);
        let is_shown = |node: &Node| node.width() >= least;
        let mut children: HashMap<Option<usize>, Vec<usize>> = HashMap::default();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| is_shown(node)) {
            children.entry(node.parent).or_default().push(index);
        }
        let name = |index: usize| {
            let node = self.nodes.get(index);
            node.and_then(|node| self.names.get(node.name))
        };
        for siblings in children.values_mut() {
            siblings.sort_by(|&one, &other| name(one).cmp(&name(other)).then(one.cmp(&other)));
        }
        let mut frames = Vec::new();
        let mut open: Vec<(Option<usize>, f64)> = vec![(None, MARGIN)];
        while let Some((parent, start)) = open.pop() {
            let mut x = start;
            for &child in children.get(&parent).into_iter().flatten() {
                let width = self.nodes.get(child).map_or(0.0, Node::width) * pixels;
                frames.push(Frame {
                    node: child,
                    x,
                    width,
                });
                open.push((Some(child), x));
                x += width;
            }
        }
        frames
    }

    /// Returns the least width, in percent, with which there are not too many frames.
    fn least_width(&self, least: f64) -> f64 {
        let mut widths: Vec<f64> = self
            .nodes
            .iter()
            .map(Node::width)
            .filter(|&it| it >= least)
            .collect();
        if widths.len() <= MAX_FRAMES {
            return least;
        }
        widths.sort_by(|one, other| other.total_cmp(one));
        widths.get(MAX_FRAMES).map_or(least, |width| width.next_up())
    }
}

/// Writes a frame. `part` is the change of its own time, from -1 to 1.
fn write_frame(svg: &mut String, title: &str, name: &str, (x, y, width): (f64, f64, f64), part: f64) {
    let pale = (240.0 - part.abs() * 200.0).clamp(0.0, 255.0) as u8;
    let (red, blue) = match part {
        part if part > 0.0 => (255, pale),
        part if part < 0.0 => (pale, 255),
        _ => (pale, pale),
    };
    let room = ((width - 4.0) / CHARACTER).max(0.0) as usize;
    let text: String = match name.chars().count() {
        count if count <= room => name.to_owned(),
        _ if room < 3 => String::new(),
        _ => name.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
    };
    let _ = writeln!(
        svg,
        "<g class=\"frame\"><title>{}</title><rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{HEIGHT}\" \
         fill=\"rgb({red},{pale},{blue})\"/><text x=\"{:.2}\" y=\"{}\">{}</text></g>",
        escaped(title),
        x + 2.0,
        y + 12.0,
        escaped(&text)
    );
}

/// Returns a name without control characters, of limited length.
fn clipped(name: &str) -> String {
    let name = printable(name.as_bytes());
    match name.chars().nth(MAX_NAME) {
        None => name,
        Some(_) => name.chars().take(MAX_NAME).chain(['…']).collect(),
    }
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML permits no control characters, and these two in no form.
            character if character.is_control() => escaped.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::compare::matching::match_functions;
    use crate::tools::compare::testing::Profile;
    use crate::tools::compare::{CompareOptions, compare};

    fn graph(before: &Profile, after: &Profile) -> FlameGraph {
        let [before, after] = [[before.parse()], [after.parse()]];
        let options = CompareOptions::default();
        compare(&before, &after, &options, true).unwrap().flame_graph
    }

    fn profile(eat: u64, gone: u64) -> Profile {
        Profile::new(100)
            .jit("JS:*main /a.js:1:1", 100 - eat - gone)
            .jit("JS:*eat /a.js:2:1", eat)
            .jit("JS:*gone /a.js:3:1", gone)
            .stacks(&[(-1, 0, 100 - eat - gone), (0, 1, eat), (0, 2, gone)])
    }

    #[test]
    fn trees_are_merged_and_colored_by_change() {
        let graph = graph(&profile(20, 10), &profile(40, 0));
        assert_eq!(graph.nodes.len(), 3);
        assert_eq!(graph.nodes[0].total, [100.0, 100.0]);
        assert_eq!(graph.nodes[1].own, [20.0, 40.0]);
        let svg = graph.svg("old", "new", "percent");
        assert!(svg.contains("rgb(255,40,40)"), "{svg}");
        assert!(svg.contains("eat /a.js: 20.00 % → 40.00 % (+20.00)"), "{svg}");
        // What is gone has half of its width.
        assert!(svg.contains("width=\"59.00\""), "{svg}");
        for line in svg.lines() {
            let loads = ["href", "src=", "url(", "import"];
            assert!(!loads.iter().any(|load| line.contains(load)), "{line}");
        }
    }

    #[test]
    fn names_are_text() {
        let hostile = "</title><script>alert(1)</script>\"'&;\u{1b}[31m\u{ffff}";
        let profile = Profile::new(10).jit(hostile, 10).stacks(&[(-1, 0, 10)]);
        let svg = graph(&profile, &profile).svg(hostile, hostile, "percent");
        assert_eq!(svg.matches("<script>").count(), 1, "{svg}");
        assert!(!svg.contains('\u{1b}') && !svg.contains('\u{ffff}'));
    }

    #[test]
    fn deep_and_wide_trees_have_limits() {
        let deep: Vec<(i64, usize, u64)> = (0..200_000).map(|depth| (depth - 1, 0, 1)).collect();
        let profile = Profile::new(200_000).jit("f", 200_000).stacks(&deep);
        let graph = graph(&profile, &profile);
        assert_eq!(graph.nodes.len(), 400);
        assert!(graph.svg("", "", "").len() < 1 << 20);
        let before = [profile.parse()];
        assert_eq!(match_functions(&before, &[]).counts(0, 0).total, 200_000);
    }
}
