//! Flame graphs: call trees in an SVG file that loads nothing else.
//!
//! Callers are above their callees, so a browser shows the roots first. The width of a frame is the mean of all sides, so calls
//! of only one side are visible, too.

use std::fmt::Write as _;

use jitdump::printable;

use crate::collections::hash::HashMap;

/// Script for zooming and searching. Without it, the graph is complete but does not zoom.
const SCRIPT: &str = include_str!("flame_graph.js");

/// Width of the graph, and the margin around it.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;

/// Space above the frames, for the title and the name of the selected frame; and that of each line between them.
const TOP: f64 = 58.0;
const LINE: f64 = 18.0;

/// Baselines of the title and of the line below it.
const TITLE_Y: f64 = 24.0;
const LINE_Y: f64 = 44.0;

/// Space for the button that searches.
const SEARCH_WIDTH: f64 = 50.0;

/// Height of a frame, and width of a character in it.
const HEIGHT: f64 = 16.0;
const CHARACTER: f64 = 7.0;

/// Least width of a frame. It limits the frames of one level.
const MIN_WIDTH: f64 = 0.3;

/// Largest depth. Deeper calls count for their caller at this depth.
pub const MAX_DEPTH: usize = 400;

/// Frames in the file. Beyond them, those with the least time are left out; of those with the same time, the last ones.
const MAX_FRAMES: usize = 50_000;

/// Longest name in characters.
const MAX_NAME: usize = 400;

/// The call trees of all sides, merged.
#[derive(Clone, PartialEq, Debug)]
pub struct FlameGraph<const SIDES: usize> {
    /// Calls. A caller is before its callees.
    pub nodes: Vec<FlameGraphNode<SIDES>>,
    /// Names of functions.
    pub names: Vec<String>,
}

/// A function below another one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlameGraphNode<const SIDES: usize> {
    parent: Option<usize>,
    depth: usize,
    /// Index of the name.
    pub name: usize,
    /// Time in the function on each side, in percent.
    pub own: [f64; SIDES],
    /// The same with its callees.
    pub total: [f64; SIDES],
}

/// Calls by caller and name.
pub type Known = HashMap<(Option<usize>, usize), usize>;

/// The texts above the frames.
#[derive(Clone, Copy, Debug)]
pub struct Heading<'t> {
    /// Title.
    pub title: &'t str,
    /// Lines below it.
    pub lines: &'t [String],
    /// Title of the frame that all others are in.
    pub all: &'t str,
}

/// Red, green and blue.
pub type Color = [u8; 3];

impl<const SIDES: usize> FlameGraphNode<SIDES> {
    fn width(&self) -> f64 {
        self.total.iter().sum::<f64>() / SIDES as f64
    }
}

/// A frame at its place.
struct FrameBox {
    node: usize,
    x: f64,
    width: f64,
}

impl<const SIDES: usize> Default for FlameGraph<SIDES> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            names: Vec::new(),
        }
    }
}

impl<const SIDES: usize> FlameGraph<SIDES> {
    /// Returns the node of a function below another node.
    pub fn node(&mut self, parent: Option<usize>, name: usize, known: &mut Known) -> usize {
        let depth = match parent.and_then(|parent| self.nodes.get(parent)) {
            Some(parent) => parent.depth.saturating_add(1),
            None => 0,
        };
        if let Some(parent) = parent.filter(|_| depth >= MAX_DEPTH) {
            return parent;
        }
        *known.entry((parent, name)).or_insert_with(|| {
            self.nodes.push(FlameGraphNode {
                parent,
                depth,
                name,
                own: [0.0; SIDES],
                total: [0.0; SIDES],
            });
            self.nodes.len().saturating_sub(1)
        })
    }

    /// Computes the totals.
    pub fn sum_up(&mut self) {
        for node in &mut self.nodes {
            node.total = node.own;
        }
        for index in (0..self.nodes.len()).rev() {
            let Some(&FlameGraphNode { parent, total, .. }) = self.nodes.get(index) else {
                continue;
            };
            if let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(parent)) {
                for (sum, part) in parent.total.iter_mut().zip(total) {
                    *sum += part;
                }
            }
        }
    }

    /// Returns the sums of all nodes without a caller.
    pub fn roots_total(&self) -> [f64; SIDES] {
        let mut sums = [0.0; SIDES];
        for root in self.nodes.iter().filter(|node| node.parent.is_none()) {
            for (sum, part) in sums.iter_mut().zip(root.total) {
                *sum += part;
            }
        }
        sums
    }

    /// Returns the SVG file. `describe` returns what the title of a frame has after its name, and its color.
    pub fn svg(
        &self,
        heading: Heading<'_>,
        describe: impl Fn(&FlameGraphNode<SIDES>) -> (String, Color),
    ) -> String {
        let frames = self.layout();
        let shown = frames.iter().filter_map(|frame| self.nodes.get(frame.node));
        // Depths are from 0, and below the frame that all others are in.
        let levels = shown.map(|node| node.depth.saturating_add(2)).max();
        let top = TOP + heading.lines.len() as f64 * LINE;
        let height = top + MARGIN + levels.unwrap_or(1) as f64 * HEIGHT;
        let mut svg = head(heading, height);
        svg.push_str("<g id=\"frames\">\n");
        let whole = Bar {
            x: MARGIN,
            y: top,
            width: WIDTH - 2.0 * MARGIN,
        };
        write_frame(&mut svg, heading.all, "all", whole, [240, 240, 240]);
        for frame in &frames {
            let Some(node) = self.nodes.get(frame.node) else {
                continue;
            };
            let name = clipped(self.names.get(node.name).map_or("", |name| &**name));
            let (description, color) = describe(node);
            let title = format!("{name}: {description}");
            let bar = Bar {
                x: frame.x,
                y: top + (node.depth as f64 + 1.0) * HEIGHT,
                width: frame.width,
            };
            write_frame(&mut svg, &title, &name, bar, color);
        }
        let _ = write!(svg, "</g>\n<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n");
        svg
    }

    /// Places the frames. Frames that are too narrow to be seen are left out, with their callees.
    fn layout(&self) -> Vec<FrameBox> {
        let whole = self.roots_total().iter().sum::<f64>() / SIDES as f64;
        if whole <= 0.0 {
            return Vec::new();
        }
        let pixels_per_unit = (WIDTH - 2.0 * MARGIN) / whole;
        let mut children: HashMap<Option<usize>, Vec<usize>> = HashMap::default();
        for index in self.shown(MIN_WIDTH / pixels_per_unit) {
            if let Some(node) = self.nodes.get(index) {
                children.entry(node.parent).or_default().push(index);
            }
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
                let width = self.nodes.get(child).map_or(0.0, FlameGraphNode::width) * pixels_per_unit;
                frames.push(FrameBox {
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

    /// Returns the nodes that are at least `min_width` units wide, or the [`MAX_FRAMES`] widest of them.
    fn shown(&self, min_width: f64) -> Vec<usize> {
        let widths = self.nodes.iter().map(FlameGraphNode::width).enumerate();
        let mut shown: Vec<(usize, f64)> = widths.filter(|&(_, width)| width >= min_width).collect();
        // The sort is stable, and a caller is before its callees: it is shown if one of them is.
        shown.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        shown.truncate(MAX_FRAMES);
        shown.into_iter().map(|(node, _)| node).collect()
    }
}

/// Returns the beginning of a file of this height: its style, the texts above the frames, and the buttons, which the script
/// shows.
fn head(heading: Heading<'_>, height: f64) -> String {
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n\
         <svg version=\"1.1\" xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>text {{ font: 12px monospace; fill: #000; }} #title {{ font-size: 17px; text-anchor: middle; }} \
         .frame rect {{ stroke: #aaa; stroke-width: 0.5; }} .frame:hover rect {{ stroke: #000; cursor: pointer; }} \
         .frame text {{ pointer-events: none; }} .hidden {{ display: none; }} .outer {{ opacity: 0.5; }} \
         .found rect {{ stroke: #808; stroke-width: 2; }} .button {{ cursor: pointer; }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text id=\"title\" x=\"{}\" y=\"{TITLE_Y}\">{}</text>\n",
        WIDTH / 2.0,
        escaped(heading.title),
    );
    let mut y = LINE_Y;
    for line in heading.lines {
        let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(line));
        y += LINE;
    }
    let _ = write!(
        svg,
        "<text id=\"details\" x=\"{MARGIN}\" y=\"{y}\"> </text>\n\
         <text id=\"reset\" class=\"button hidden\" x=\"{MARGIN}\" y=\"{TITLE_Y}\">Reset zoom</text>\n\
         <text id=\"search\" class=\"button\" x=\"{}\" y=\"{TITLE_Y}\" visibility=\"hidden\">Search</text>\n",
        WIDTH - MARGIN - SEARCH_WIDTH,
    );
    svg
}

/// Where a frame is in the picture, in pixels.
struct Bar {
    x: f64,
    y: f64,
    width: f64,
}

/// Writes a frame.
fn write_frame(
    svg: &mut String,
    title: &str,
    name: &str,
    Bar { x, y, width }: Bar,
    [red, green, blue]: Color,
) {
    let room = ((width - 4.0) / CHARACTER).max(0.0) as usize;
    let text: String = match name.chars().count() {
        count if count <= room => name.to_owned(),
        _ if room < 3 => String::new(),
        _ => name.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
    };
    let _ = writeln!(
        svg,
        "<g class=\"frame\"><title>{}</title><rect x=\"{x:.4}\" y=\"{y}\" width=\"{width:.4}\" height=\"{HEIGHT}\" \
         fill=\"rgb({red},{green},{blue})\"/><text x=\"{:.2}\" y=\"{}\">{}</text></g>",
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

    /// Returns a graph of functions without callers, with these shares of the time.
    fn graph(shares: impl Iterator<Item = f64>) -> FlameGraph<1> {
        let mut graph = FlameGraph::default();
        let mut known = Known::default();
        for (name, share) in shares.enumerate() {
            let node = graph.node(None, name, &mut known);
            graph.nodes[node].own = [share];
            graph.names.push(format!("f{name}"));
        }
        graph.sum_up();
        graph
    }

    #[test]
    fn frames_of_three_tenths_of_a_pixel_are_shown() {
        // The frames have 1,180 pixels.
        let graph = graph([1179.4, 0.31, 0.29].into_iter());
        let shown: Vec<usize> = graph.layout().iter().map(|frame| frame.node).collect();
        assert_eq!(shown, [0, 1]);
    }

    #[test]
    fn the_50_000_widest_frames_are_shown() {
        let shown = |count: usize| {
            let shares = [0.5].into_iter().chain(std::iter::repeat_n(1.0, count - 1));
            graph(shares).shown(0.1)
        };
        assert_eq!(shown(50_000).len(), 50_000);
        // Of equally wide ones, the first.
        let widest: Vec<usize> = (1..=50_000).collect();
        assert_eq!(shown(50_001), widest);
        assert_eq!(shown(50_002), widest);
    }

    /// The script shows what is within the selected frame.
    #[test]
    fn callees_are_within_their_callers_as_the_script_compares_them() {
        let shares = (0_u32..200).map(|root| {
            [
                1.0 + f64::from(root * 7 % 13) * 0.37,
                2.0 + f64::from(root % 11) * 0.53,
            ]
        });
        let mut graph: FlameGraph<1> = FlameGraph::default();
        let mut known = Known::default();
        for (root, shares) in shares.enumerate() {
            let caller = graph.node(None, root, &mut known);
            graph.names.push(format!("f{root:03}"));
            for (callee, share) in shares.into_iter().enumerate() {
                let callee = graph.node(Some(caller), callee, &mut known);
                graph.nodes[callee].own = [share];
            }
        }
        graph.sum_up();
        let heading = Heading {
            title: "",
            lines: &[],
            all: "all",
        };
        let svg = graph.svg(heading, |_| (String::new(), [0; 3]));
        let number = |frame: &str, name: &str| -> f64 {
            let (_, rest) = frame.split_once(&format!(" {name}=\"")).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let frames: Vec<[f64; 3]> = svg
            .lines()
            .filter_map(|line| line.split_once("<rect"))
            .filter(|(before, _)| before.starts_with("<g class=\"frame\">"))
            .map(|(_, rect)| ["x", "y", "width"].map(|name| number(rect, name)))
            .collect();
        let (_, slack) = SCRIPT.split_once("const slack = ").unwrap();
        let slack: f64 = slack.split(';').next().unwrap().parse().unwrap();
        assert!(slack < MIN_WIDTH);
        let mut pairs = 0;
        for [x, y, width] in &frames {
            let middle = x + width / 2.0;
            let around = |[outer, above, outer_width]: &&[f64; 3]| {
                *above == y - HEIGHT && (*outer..*outer + outer_width).contains(&middle)
            };
            let Some([outer, _, outer_width]) = frames.iter().find(around) else {
                continue;
            };
            let is_inside = *x >= outer - slack && x + width <= outer + outer_width + slack;
            assert!(is_inside, "{x} {width} in {outer} {outer_width}");
            pairs += 1;
        }
        assert_eq!(pairs, 200 + 400);
    }

    #[test]
    fn names_have_up_to_400_characters() {
        assert_eq!(clipped(&"ä".repeat(400)), "ä".repeat(400));
        assert_eq!(clipped(&"ä".repeat(401)), "ä".repeat(400) + "…");
    }
}
