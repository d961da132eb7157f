//! The report for a terminal.

use std::fmt::Write as _;

use crate::frames::ranking::{By, RankedRow};
use crate::frames::stream::call_tree::Weight;
use crate::results::summary::{count, count_of};
use crate::tools::report::Report;
use crate::tools::report::function::{FunctionReport, LineShare, Share, SourceLine};
use crate::tools::report::instructions::{CodeCopy, FunctionCode, InstructionLine};

/// A column with shares.
pub(super) struct ShareColumn {
    /// Its name.
    pub name: &'static str,
    /// The samples of a row in it.
    pub of: fn(&RankedRow) -> Weight,
    /// Whether such rows have it.
    is_for: fn(By) -> bool,
}

impl Report {
    /// Returns the report as text.
    pub fn text(&self) -> String {
        let mut text = self.head_lines().join("\n") + "\n";
        if self.has_samples() {
            text.push('\n');
            text.push_str(&self.body());
        }
        text
    }

    /// Whether there is more than the head.
    pub(super) fn has_samples(&self) -> bool {
        self.event.samples.samples > 0
    }

    /// Returns the lines before the table or function: what is counted, what is missing, and the kinds of code, or that
    /// there are no samples.
    pub(super) fn head_lines(&self) -> Vec<String> {
        let mut lines = vec![self.counted_text()];
        if self.has_samples() || self.missing.is_any() {
            lines.push(format!("missing: {}", self.missing.text()));
        }
        lines.push(if self.has_samples() {
            self.kinds_text()
        } else {
            "no samples match".to_owned()
        });
        lines
    }

    /// Returns the table, or the function.
    pub(super) fn body(&self) -> String {
        let mut text = String::new();
        match &self.function {
            Some(function) => self.write_function(&mut text, function),
            None => self.write_rows(&mut text),
        }
        if let Some(omitted) = self.omitted_text() {
            let _ = writeln!(text, "{omitted}");
        }
        text
    }

    /// Returns how many rows are left out, if any.
    pub(super) fn omitted_text(&self) -> Option<String> {
        let omitted = self.rows_omitted;
        (omitted > 0).then(|| format!("{}; -n 0 prints all", count(omitted, "more row")))
    }

    /// Returns the first lines for the end of a recording: what is missing, the kinds of code, and the rows.
    pub fn first_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.has_samples() {
            return lines;
        }
        if self.missing.is_any() {
            lines.push(format!("missing: {}", self.missing.text()));
        }
        lines.push(self.kinds_text());
        let mut rows = String::new();
        self.write_rows(&mut rows);
        lines.extend(rows.lines().map(str::to_owned));
        lines
    }

    /// Returns what is counted, as one line.
    fn counted_text(&self) -> String {
        let event = &self.event;
        let mut text = format!(
            "{} of {} in {}, {}",
            count(event.samples.samples, "sample"),
            event.name,
            count_of(self.processes, "process", "processes"),
            count(self.threads, "thread"),
        );
        if let Some(duration) = self.duration_ns {
            let _ = write!(text, ", {:.2} s", duration as f64 / 1e9);
        }
        if !event.others.is_empty() {
            let _ = write!(text, "; other events (--event): {}", event.others.join(", "));
        }
        text
    }

    /// Returns the shares of the kinds of code, as one line.
    pub fn kinds_text(&self) -> String {
        let kinds = self.kinds.iter();
        let shares = kinds.map(|row| format!("{} {:.2} %", row.kind, self.percent(row.samples)));
        shares.collect::<Vec<_>>().join(", ")
    }

    /// Returns the columns with shares.
    pub(super) fn shares(&self) -> Vec<&'static ShareColumn> {
        static SHARES: [ShareColumn; 3] = [
            ShareColumn {
                name: "charged",
                of: |row| row.charged,
                is_for: By::has_charged,
            },
            ShareColumn {
                name: "self",
                of: |row| row.own,
                is_for: |_| true,
            },
            ShareColumn {
                name: "total",
                of: |row| row.total,
                is_for: |_| true,
            },
        ];
        SHARES.iter().filter(|column| (column.is_for)(self.by)).collect()
    }

    /// Writes the table of functions with its heading.
    fn write_rows(&self, text: &mut String) {
        let shares = self.shares();
        for column in &shares {
            let _ = write!(text, "{:>8} ", column.name);
        }
        let _ = writeln!(text, " {}", self.by.name());
        for row in self.rows.iter().flatten() {
            for column in &shares {
                let _ = write!(text, "{:>8.2} ", self.percent((column.of)(row)));
            }
            let _ = writeln!(text, " {}", described(row));
        }
    }

    /// Writes the report of one function.
    fn write_function(&self, text: &mut String, function: &FunctionReport) {
        let row = &function.row;
        let _ = writeln!(text, "{}", described(row));
        let [charged, own, total] = [row.charged, row.own, row.total].map(|part| self.percent(part));
        let _ = writeln!(
            text,
            "charged {charged:.2} %, self {own:.2} %, total {total:.2} %"
        );
        let tier_share = |tier: &Share| format!("{} {:.2} %", tier.name, self.percent(tier.samples));
        let omitted = |more: u64, one: &str| (more > 0).then(|| count(more, one));
        let listed = function.tiers.iter().map(tier_share);
        let tiers: Vec<String> = listed
            .chain(omitted(function.tiers_omitted, "more tier"))
            .collect();
        if !tiers.is_empty() {
            let _ = writeln!(text, "self by tier: {}", tiers.join(", "));
        }
        let listed = function.others.iter().cloned();
        let others: Vec<String> = listed
            .chain(omitted(function.others_omitted, "more function"))
            .collect();
        if !others.is_empty() {
            let _ = writeln!(text, "also: {}", others.join("; "));
        }
        self.write_lines(text, function);
        self.write_shares(text, "caller", &function.callers, function.callers_omitted);
        self.write_shares(text, "callee", &function.callees, function.callees_omitted);
        if let Some(code) = &function.code {
            self.write_code(text, code, &row.inlined_into);
        }
    }

    /// Writes the source lines of a function.
    fn write_lines(&self, text: &mut String, function: &FunctionReport) {
        if !function.lines.is_empty() {
            let _ = writeln!(text, "\n    self    total  line");
        }
        let mut last: Option<&SourceLine> = None;
        for line in &function.lines {
            if last.is_none_or(|last| last.file != line.file) {
                let _ = writeln!(text, "                   {}:", line.file);
            } else if last.is_some_and(|last| last.line.saturating_add(1) < line.line) && line.text.is_some()
            {
                let _ = writeln!(text, "                   ...");
            }
            self.write_line_shares(text, [line.own, line.total]);
            let _ = writeln!(
                text,
                " {:>5}  {}",
                line.line,
                line.text.as_deref().unwrap_or_default()
            );
            last = Some(line);
        }
        if function.lines_omitted > 0 {
            let _ = writeln!(
                text,
                "                   {}",
                count(function.lines_omitted, "more line")
            );
        }
        if let Some(LineShare { own, total }) = function.no_line {
            self.write_line_shares(text, [own, total]);
            text.push_str(" no line\n");
        }
    }

    /// Writes the samples of a line, without those that it does not have.
    fn write_line_shares(&self, text: &mut String, shares: [Weight; 2]) {
        for share in shares {
            match share.samples {
                0 => text.push_str("         "),
                _ => {
                    let _ = write!(text, "{:>8.2} ", self.percent(share));
                }
            }
        }
    }

    /// Writes the copies of a function, and the instructions of those that are disassembled.
    fn write_code(&self, text: &mut String, code: &FunctionCode, inlined_into: &[String]) {
        let _ = writeln!(text, "\n    self  machine code");
        for copy in &code.copies {
            let tier = copy.tier.as_ref().map(|tier| format!(", {tier}"));
            let size = copy.size.map(|size| format!(", {}", count(size, "byte")));
            let _ = writeln!(
                text,
                "{:>8.2}  {}{} at {}{}",
                self.percent(copy.own),
                copy.symbol,
                tier.unwrap_or_default(),
                copy.address,
                size.unwrap_or_default(),
            );
        }
        if code.copies_omitted > 0 {
            let more = count_of(code.copies_omitted, "more copy", "more copies");
            let _ = writeln!(text, "          {more}");
        }
        if code.inlined.samples > 0 {
            let share = self.percent(code.inlined);
            let _ = writeln!(text, "{share:>8.2}  inlined into {}", inlined_into.join(", "));
        }
        let copies = code.copies.iter();
        for copy in copies.filter(|copy| !copy.instructions.is_empty() || copy.missing.is_some()) {
            write_instructions(text, copy);
        }
    }

    /// Writes a list of callers or callees (`what`).
    fn write_shares(&self, text: &mut String, what: &str, shares: &[Share], omitted: u64) {
        if !shares.is_empty() {
            let _ = writeln!(text, "\n   total  {what}s");
        }
        for share in shares {
            let _ = writeln!(text, "{:>8.2}  {}", self.percent(share.samples), share.name);
        }
        if omitted > 0 {
            let _ = writeln!(text, "          {}", count(omitted, &format!("more {what}")));
        }
    }
}

/// Writes the instructions of a copy, each with its share of the copy's samples.
fn write_instructions(text: &mut String, copy: &CodeCopy) {
    /// Line in place of instructions that are not shown.
    const LEFT_OUT: &str = "          ...\n";
    let _ = writeln!(text, "\n{} at {}", copy.symbol, copy.address);
    if let Some(missing) = &copy.missing {
        let _ = writeln!(text, "no instructions: {missing}");
        return;
    }
    let percent = |own: Weight| own.period as f64 * 100.0 / copy.own.period.max(1) as f64;
    let _ = writeln!(text, " percent  offset  instruction");
    // End of the last instruction, its lines, and the samples in all so far.
    let (mut end, mut last, mut shown) = (0, "", Weight::default());
    let texts: Vec<String> = copy.instructions.iter().map(|it| line_text(&it.lines)).collect();
    for (instruction, lines) in copy.instructions.iter().zip(&texts) {
        if instruction.offset != end {
            text.push_str(LEFT_OUT);
        }
        end = instruction.offset.saturating_add(instruction.size);
        shown.add(instruction.own);
        match instruction.own.samples {
            0 => text.push_str("        "),
            _ => {
                let _ = write!(text, "{:>8.2}", percent(instruction.own));
            }
        }
        let _ = write!(text, "{:>8}  ", format!("+{:x}", instruction.offset));
        // Most instructions have the lines of the one before.
        let _ = if lines == last {
            writeln!(text, "{}", instruction.text)
        } else {
            writeln!(text, "{:<40}  {lines}", instruction.text)
        };
        last = lines;
    }
    if copy.size.is_some_and(|size| end < size) {
        text.push_str(LEFT_OUT);
    }
    let hidden = Weight {
        samples: copy.own.samples.saturating_sub(shown.samples),
        period: copy.own.period.saturating_sub(shown.period),
    };
    if hidden.samples > 0 {
        let _ = writeln!(
            text,
            "{:>8.2}  in instructions that are not shown",
            percent(hidden)
        );
    }
}

/// Returns the functions and lines that an instruction is compiled from.
fn line_text(lines: &[InstructionLine]) -> String {
    let lines = lines.iter().map(|line| {
        let file = line.file.as_deref().unwrap_or_default();
        let file = file.rsplit('/').next().unwrap_or(file);
        match line.line {
            0 => line.function.clone(),
            number => format!("{} {file}:{number}", line.function),
        }
    });
    lines.collect::<Vec<_>>().join(" < ")
}

/// Returns the name of a row, with its place and what it was inlined into.
pub fn described(row: &RankedRow) -> String {
    let place = Report::place(row);
    let mut text = row.name.clone();
    // Functions without a name are called after their place.
    if !place.is_empty() && !text.contains(&place) {
        let _ = write!(text, "  {place}");
    }
    if row.is_without_symbol {
        text.push_str(if row.is_without_file {
            "  (no symbols: no file of its build found)"
        } else {
            "  (no symbols: install its debug symbols)"
        });
    }
    if !row.inlined_into.is_empty() {
        let _ = write!(text, "  (inlined into {})", row.inlined_into.join(", "));
    }
    text
}
