//! A differential flame graph: the call trees of both sides, merged.
//!
//! The color of a frame shows the change of the time in the function itself, as in Brendan Gregg's differential flame graphs
//! and in inferno: red for more, blue for less.

use crate::collections::hash::HashMap;
use crate::tools::compare::matching::{AFTER, BEFORE, RunTable};
use crate::tools::compare::measure::{Part, Scale};
use crate::tools::flame_graph::{self, Color, Heading, Known};

/// Call trees of both sides, merged.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ComparedFlameGraph(flame_graph::FlameGraph<2>);

/// Returns the time in the function itself after the change, less that before it, in percent.
fn change(node: &flame_graph::FlameGraphNode<2>) -> f64 {
    node.own[1] - node.own[0]
}

impl ComparedFlameGraph {
    /// Merges the call trees of all runs.
    pub(in crate::tools::compare) fn of(table: &RunTable<'_>, scale: &Scale) -> Self {
        let mut graph = flame_graph::FlameGraph::default();
        let mut names: HashMap<u32, usize> = HashMap::default();
        let mut known = Known::default();
        for side in [BEFORE, AFTER] {
            let runs = table.runs_of(side);
            let count = runs.len().max(1) as f64;
            for run in runs {
                let Some(summary) = table.runs.get(run) else {
                    continue;
                };
                let weight = scale.weights.get(run).copied().unwrap_or_default() / count;
                let mut node_of: Vec<usize> = Vec::with_capacity(summary.profile.stacks.len());
                for stack in &summary.profile.stacks {
                    let row = table.row(run, stack.function as usize).unwrap_or_default();
                    let name = *names.entry(row).or_insert_with(|| {
                        let function = table.function(row);
                        graph
                            .names
                            .push(function.map_or(String::new(), |function| function.full_name()));
                        graph.names.len().saturating_sub(1)
                    });
                    let parent = stack
                        .caller
                        .and_then(|caller| node_of.get(caller as usize).copied());
                    let node = graph.node(parent, name, &mut known);
                    if let Some(own) = graph.nodes.get_mut(node).and_then(|node| node.own.get_mut(side)) {
                        *own += stack.own as f64 * weight * scale.period(row, run, Part::Own);
                    }
                    node_of.push(node);
                }
            }
        }
        graph.sum_up();
        Self(graph)
    }

    /// Returns the SVG file. `before` and `after` describe the sides, `values` what the percentages are of. Colors are relative
    /// to the largest change.
    pub fn svg(&self, before: &str, after: &str, values: &str) -> String {
        let changes = self.0.nodes.iter().map(|node| change(node).abs());
        let largest_change = changes.fold(0.0, f64::max);
        let all = self.0.roots_total();
        let heading = Heading {
            title: "Differential flame graph",
            lines: &[format!("{before} → {after}; red: more time, blue: less")],
            all: &format!("all: {:.2} % → {:.2} %, {values}", all[0], all[1]),
        };
        self.0.svg(heading, |node| {
            let [own_before, own_after] = node.own;
            let [total_before, total_after] = node.total;
            let description = format!(
                "{total_before:.2} % → {total_after:.2} % ({:+.2}), self {own_before:.2} % → {own_after:.2} % ({:+.2})",
                total_after - total_before,
                own_after - own_before
            );
            let relative = if largest_change > 0.0 {
                change(node) / largest_change
            } else {
                0.0
            };
            (description, color(relative))
        })
    }
}

/// Returns the color of a change relative to the largest one, from -1, all blue, to 1, all red.
fn color(relative: f64) -> Color {
    let pale = (240.0 - relative.abs() * 200.0).clamp(0.0, 255.0) as u8;
    match relative {
        more if more > 0.0 => [255, pale, pale],
        less if less < 0.0 => [pale, pale, 255],
        _ => [pale; 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::compare::matching::match_functions;
    use crate::tools::compare::testing::Profile;
    use crate::tools::compare::{CompareOptions, compare};

    fn graph(before: &Profile, after: &Profile) -> ComparedFlameGraph {
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
        assert_eq!(graph.0.nodes.len(), 3);
        assert_eq!(graph.0.nodes[0].total, [100.0, 100.0]);
        assert_eq!(graph.0.nodes[1].own, [20.0, 40.0]);
        let svg = graph.svg("old", "new", "percent");
        assert!(svg.contains("rgb(255,40,40)"), "{svg}");
        assert!(svg.contains("eat /a.js: 20.00 % → 40.00 % (+20.00)"), "{svg}");
        // What is gone has half of its width.
        assert!(svg.contains("width=\"59.0000\""), "{svg}");
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
        assert_eq!(graph.0.nodes.len(), 400);
        assert!(graph.svg("", "", "").len() < 1 << 20);
        let before = [profile.parse()];
        assert_eq!(match_functions(&before, &[]).side_counts(0, BEFORE).1, 200_000);
    }
}
