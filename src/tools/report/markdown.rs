//! The report as Markdown, for a ticket.

use std::fmt::Write as _;

use crate::tools::report::Report;
use crate::tools::report::text::described;

impl Report {
    /// Returns the report as Markdown.
    pub fn markdown(&self) -> String {
        let head: Vec<String> = self.head_lines().iter().map(|line| escaped(line)).collect();
        let mut markdown = head.join("\n\n") + "\n";
        if self.has_samples() {
            markdown.push('\n');
            match self.function {
                // It is in columns, and has source text.
                Some(_) => write_fenced(&mut markdown, &self.body()),
                None => self.write_table(&mut markdown),
            }
        }
        markdown
    }

    /// Writes the rows as a table.
    fn write_table(&self, markdown: &mut String) {
        let shares = self.shares();
        for column in &shares {
            let _ = write!(markdown, "| {} % ", column.name);
        }
        let _ = writeln!(markdown, "| {} |", self.by.name());
        let _ = writeln!(markdown, "{}| --- |", "| ---: ".repeat(shares.len()));
        for row in self.rows.iter().flatten() {
            for column in &shares {
                let _ = write!(markdown, "| {:.2} ", self.percent((column.of)(row)));
            }
            let _ = writeln!(markdown, "| {} |", escaped(&described(row)));
        }
        if let Some(omitted) = self.omitted_text() {
            let _ = writeln!(markdown, "\n{omitted}");
        }
    }
}

/// Writes a text as it is.
fn write_fenced(markdown: &mut String, text: &str) {
    let fence = fence(text);
    let lines: Vec<&str> = text.lines().collect();
    let _ = writeln!(markdown, "{fence}\n{}\n{fence}", lines.join("\n"));
}

/// Returns a fence that is longer than all runs of backticks: spaces may be before one that ends a block.
fn fence(text: &str) -> String {
    let runs = text.split(|character: char| character != '`');
    let longest = runs.map(str::len).max().unwrap_or(0);
    "`".repeat(longest.saturating_add(1).max(3))
}

/// Escapes what Markdown and HTML would take for marks.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '@' | '!' => {
                escaped.push('\\');
                escaped.push(character);
            }
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_neither_marks_nor_elements() {
        assert_eq!(escaped("a|b_c<img src=x>`"), "a\\|b\\_c&lt;img src=x&gt;\\`");
    }

    #[test]
    fn a_block_ends_at_no_backticks_in_it() {
        assert_eq!(fence("let x"), "```");
        assert_eq!(fence("a\n````\nb"), "`````");
        assert_eq!(fence("a\n  ```  in/it.js:1\n"), "````");
    }
}
