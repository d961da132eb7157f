//! Collapsed stacks, as `stackcollapse-perf.pl` writes them: a line for each stack, with the number of its samples.
//!
//! Programs that read them take the last number of a line for the count, and semicolons for the ends of frames. There is no
//! way to escape them.

use std::io::{self, Write};

use crate::frames::stream::Kind;
use crate::frames::stream::tables::{NamedFunctionIndex, Thread};
use crate::tools::export::calls::CallNodes;
use crate::tools::export::profile::{ExportedProfile, FormatDescription, FormatScope, cut};

/// The format.
pub const FORMAT: FormatDescription = FormatDescription {
    name: "folded",
    end: ".folded",
    is_text: true,
    viewer: None,
    help: "flamegraph.pl, inferno, scripts; sums of one event",
    scope: FormatScope {
        has_times: false,
        one_event: true,
        one_thread: false,
        has_markers: false,
        has_texts: false,
    },
    write,
};

/// What a frame shows.
type Call = (NamedFunctionIndex, bool);

/// Writes the file.
pub fn write(profile: &ExportedProfile, out: &mut dyn Write) -> io::Result<()> {
    let calls = CallNodes::of(profile, |place| (place.line.function, place.inline_depth > 0));
    for of_thread in profile.by_thread() {
        let Some(first) = of_thread.first() else {
            continue;
        };
        let thread = process_text(&profile.tables.threads[first.thread]);
        // Stacks that differ in addresses only are one.
        let mut counts: Vec<(Option<u32>, u64)> = of_thread
            .iter()
            .map(|row| (calls.node(row.stack), row.weight.samples))
            .collect();
        counts.sort_unstable_by_key(|&(node, _)| node);
        for of_node in counts.chunk_by(|(one, _), (next, _)| one == next) {
            let Some(&(node, _)) = of_node.first() else {
                continue;
            };
            let samples: u64 = of_node.iter().map(|(_, samples)| samples).sum();
            out.write_all(thread.as_bytes())?;
            write_stack(profile, calls.path(node), out)?;
            writeln!(out, " {samples}")?;
        }
    }
    let lost = profile.tables.losses.lost;
    if lost > 0 && profile.is_whole && profile.events.len() < 2 && profile.left_out.is_none() {
        writeln!(out, "[lost] {lost}")?;
    }
    Ok(())
}

/// Writes the calls of a stack, the outermost first.
fn write_stack(profile: &ExportedProfile, path: Vec<Call>, out: &mut dyn Write) -> io::Result<()> {
    if path.is_empty() {
        out.write_all(b";[unknown]")?;
    }
    for (function, is_inlined) in path {
        let kind = profile.tables.functions[function].kind;
        let suffix = match kind {
            _ if is_inlined => "_[i]",
            Kind::Kernel | Kind::Idle => "_[k]",
            Kind::Language => "_[j]",
            Kind::Native | Kind::Compiler | Kind::Gc | Kind::Unknown => "",
        };
        write!(out, ";{}{suffix}", text(&profile.name_and_place(function)))?;
    }
    Ok(())
}

/// Returns a text that is one frame.
fn text(name: &str) -> String {
    let characters = cut(name).chars();
    let mut text: String = characters
        .map(|character| if character == ';' { ':' } else { character })
        .collect();
    // Readers would take a number at the end of a name for a count.
    if let Some((_, last)) = text.rsplit_once(' ')
        && last
            .chars()
            .all(|character| character.is_ascii_digit() || character == '.')
    {
        let at = text.len().saturating_sub(last.len()).saturating_sub(1);
        text.replace_range(at..=at, "_");
    }
    match text.trim_start() {
        "" => "[unknown]".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

fn process_text(thread: &Thread) -> String {
    let name = text(thread.name()).replace(' ', "_");
    format!("{name}-{}/{}", thread.pid_text(), thread.tid_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_counts_and_no_ends_of_frames() {
        for (name, expected) in [
            ("eat /a.js:3", "eat /a.js:3"),
            ("a;b c", "a:b c"),
            ("foo 12", "foo_12"),
            ("foo 1.5", "foo_1.5"),
            ("foo ", "foo_"),
            (" ", "_"),
            ("", "[unknown]"),
            ("  x", "x"),
        ] {
            assert_eq!(text(name), expected, "{name:?}");
        }
        assert_eq!(text(&"ä".repeat(1000)), "ä".repeat(1000));
        assert_eq!(text(&"ä".repeat(1001)), "ä".repeat(1000));
    }
}
