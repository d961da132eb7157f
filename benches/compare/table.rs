//! Prints the results as a table.

use std::fmt::Write;
use std::time::Duration;

use crate::measure::{End, Measured};

/// All runs of one program in one case.
pub struct Row {
    pub program: String,
    pub runs: Vec<Measured>,
    /// Number of files that a run created.
    pub files: Option<u64>,
}

/// A case: rows, and comparisons of them.
pub struct Section {
    pub title: String,
    pub rows: Vec<Row>,
    pub ratios: Vec<String>,
}

impl Row {
    fn sorted(&self, of: impl Fn(&Measured) -> Duration) -> Vec<Duration> {
        let mut all: Vec<Duration> = self.runs.iter().map(of).collect();
        all.sort_unstable();
        all
    }

    pub fn is_done(&self) -> bool {
        self.runs.iter().all(|run| run.end == End::Done)
    }

    /// Returns the median wall time in seconds.
    pub fn wall(&self) -> f64 {
        median(&self.sorted(|run| run.wall))
    }

    /// Returns the minimum wall time in seconds.
    pub fn least(&self) -> f64 {
        let least = self.runs.iter().map(|run| run.wall).min();
        least.map_or(0.0, |wall| wall.as_secs_f64())
    }

    /// Returns the mean CPU time in seconds; the resolution is too low for a median.
    pub fn cpu(&self) -> f64 {
        let all: Duration = self.runs.iter().map(|run| run.cpu).sum();
        all.as_secs_f64() / self.runs.len().max(1) as f64
    }

    /// Returns the peak memory of all runs in MiB.
    pub fn peak(&self) -> f64 {
        mebibytes(self.runs.iter().map(|run| run.peak))
    }

    fn cells(&self) -> [String; 6] {
        let walls = self.sorted(|run| run.wall);
        let wall = match (self.is_done(), &walls[..]) {
            (true, [only]) => format!("{} (1 run)", seconds(only.as_secs_f64())),
            (true, [first, .., last]) => {
                let (first, last) = (first.as_secs_f64(), last.as_secs_f64());
                format!(
                    "{} ({}–{}, {} runs)",
                    seconds(self.wall()),
                    seconds(first),
                    seconds(last),
                    walls.len()
                )
            }
            _ if self.runs.iter().any(|run| run.end == End::Stopped) => {
                format!("> {} (stopped)", seconds(self.wall()))
            }
            _ => "failed".into(),
        };
        [
            self.program.clone(),
            wall,
            seconds(self.cpu()),
            format!("{:.0}", self.peak()),
            format!("{:.0}", mebibytes(self.runs.iter().map(|run| run.anonymous))),
            self.files.map_or_else(String::new, |files| files.to_string()),
        ]
    }
}

fn median(sorted: &[Duration]) -> f64 {
    let middle = |at: usize| sorted.get(at).map_or(0.0, Duration::as_secs_f64);
    let count = sorted.len();
    (middle(count.saturating_sub(1) / 2) + middle(count / 2)) / 2.0
}

fn mebibytes(of: impl Iterator<Item = u64>) -> f64 {
    of.max().unwrap_or(0) as f64 / 1024.0
}

/// Formats a time.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{seconds:.3}"),
        ..10.0 => format!("{seconds:.2}"),
        _ => format!("{seconds:.1}"),
    }
}

/// Formats a ratio.
pub fn factor(more: f64, less: f64) -> String {
    match more / less {
        factor if factor >= 10.0 => format!("{factor:.0}"),
        factor => format!("{factor:.2}"),
    }
}

impl Section {
    /// Formats the section as Markdown that is readable as plain text.
    pub fn text(&self) -> String {
        let mut lines = vec![
            [
                "program",
                "wall, s: median (least–most)",
                "user+sys, s: mean",
                "peak, MiB",
                "not of files, MiB",
                "files made",
            ]
            .map(str::to_owned),
        ];
        lines.extend(self.rows.iter().map(Row::cells));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or(0));
        let mut out = format!("### {}\n\n", self.title);
        for (number, line) in lines.iter().enumerate() {
            let cells = line.iter().zip(widths).enumerate();
            for (column, (cell, width)) in cells {
                match column {
                    0 => write!(out, "| {cell:width$} ").unwrap(),
                    _ => write!(out, "| {cell:>width$} ").unwrap(),
                }
            }
            out.push_str("|\n");
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let dashes = "-".repeat(width + 1);
                    out.push_str(&if column == 0 {
                        format!("| {dashes}")
                    } else {
                        format!("| {}:", "-".repeat(width - 1)) + " "
                    });
                }
                out.push_str("|\n");
            }
        }
        out.push('\n');
        for ratio in &self.ratios {
            writeln!(out, "- {ratio}").unwrap();
        }
        out.push('\n');
        out
    }
}
