//! A comparison as Markdown, for the comment of a pull request.
//!
//! Names come from files of others. In a comment, they must not become markup, mentions of people, links or images.

use std::fmt::Write as _;

use crate::tools::compare::comparison::{Comparison, FunctionChange};
use crate::tools::compare::report::shortened;

/// Functions that are shown at once.
const MAX_TOP: usize = 10;

/// Functions in the collapsed section.
const MAX_MORE: usize = 100;

/// Size of the text in bytes, less than the limit of GitHub's comments.
const MAX_SIZE: usize = 60_000;

impl Comparison {
    /// Returns the Markdown, with changes of at least `min_change` percentage points.
    pub fn markdown(&self, min_change: f64) -> String {
        let mut text = String::new();
        let is_broken = self.rules.iter().any(|rule| rule.is_broken);
        let result = match (self.rules.is_empty(), is_broken) {
            (true, _) => "Profile",
            (false, false) => "Profile: passed",
            (false, true) => "Profile: failed",
        };
        let _ = writeln!(text, "### {result}: {}\n", self.verdict_text());
        self.write_rules(&mut text);
        if let Some(cpu) = self.cpu_text() {
            let _ = writeln!(text, "- {}", cpu.replace('*', r"\*"));
        }
        let _ = writeln!(text, "- before: {}", self.before.text(code));
        let _ = writeln!(text, "- after: {}", self.after.text(code));
        self.write_functions(&mut text, min_change);
        let _ = writeln!(
            text,
            "\nValues are {}. \\* = significant at {} % among all functions.{}",
            self.measure.text(),
            self.confidence,
            if self.is_variation_assumed {
                " One run on each side: the variation from run to run is assumed."
            } else {
                ""
            }
        );
        if let Some(lost) = self.kernel_text() {
            let _ = writeln!(text, "{lost}");
        }
        text
    }

    /// Writes a line for each rule: `- ✅ self > 5%`, or ❌ and the reason.
    fn write_rules(&self, text: &mut String) {
        for rule in &self.rules {
            let sign = if rule.is_broken { "❌" } else { "✅" };
            let _ = write!(text, "- {sign} {}", code(&rule.rule));
            if rule.is_broken {
                // The names in it are shortened.
                let _ = write!(text, ": {}", code(&rule.reason));
            }
            text.push('\n');
        }
    }

    /// Writes the functions that changed by `min_change` or more, or significantly: the first significant ones in a table, and
    /// all others in one that is collapsed.
    fn write_functions(&self, text: &mut String, min_change: f64) {
        let changed = self.functions.iter().filter(|change| {
            let is_large = change.own.change.abs() >= min_change && change.own.change != 0.0;
            is_large || change.total.is_significant
        });
        let is_significant = |change: &FunctionChange| {
            change.own.is_significant || change.explanation.is_some() || change.significant_change() != 0.0
        };
        let (mut top, mut more) = (Vec::new(), Vec::new());
        for change in changed {
            if is_significant(change) && top.len() < MAX_TOP {
                top.push(change)
            } else {
                more.push(change)
            }
        }
        if !top.is_empty() {
            text.push('\n');
            write_table(text, &top);
        }
        if !more.is_empty() {
            let number = more.len();
            let _ = writeln!(text, "\n<details><summary>{number} more</summary>\n");
            let shown = write_table(text, more.get(..MAX_MORE).unwrap_or(&more));
            if let Some(hidden @ 1..) = number.checked_sub(shown) {
                let _ = writeln!(text, "\n{hidden} not shown; --json has all");
            }
            text.push_str("\n</details>\n");
        }
    }
}

/// Writes a table as far as there is room. Returns the number of rows.
fn write_table(text: &mut String, changes: &[&FunctionChange]) -> usize {
    text.push_str("| function | self before | after | change | total | change |\n");
    text.push_str("| --- | ---: | ---: | ---: | ---: | ---: |\n");
    for (shown, change) in changes.iter().enumerate() {
        let points = |estimate: &crate::tools::compare::Estimate| {
            let margin = estimate
                .margin
                .map_or(String::new(), |margin| format!(" ± {margin:.2}"));
            let mark = if estimate.is_significant { r" \*" } else { "" };
            format!("{:+.2}{margin}{mark}", estimate.change)
        };
        let notes = change.note_texts();
        let notes = if notes.is_empty() {
            String::new()
        } else {
            format!("<br>{}", plain(&notes.join("; ")))
        };
        let row = format!(
            "| {}{notes} | {:.2} % | {:.2} % | {} | {:.2} % | {} |\n",
            code(&shortened(&change.function.text())),
            change.own.before,
            change.own.after,
            points(&change.own),
            change.total.after,
            points(&change.total)
        );
        if text.len().saturating_add(row.len()) > MAX_SIZE {
            return shown;
        }
        text.push_str(&row);
    }
    changes.len()
}

/// Returns a name as code.
fn code(name: &str) -> String {
    // In a span of code, nothing is markup. Only its end and that of the cell cannot be written there.
    if name.contains(['`', '|', '\\']) || name.trim() != name || name.is_empty() {
        format!("<code>{}</code>", plain(name))
    } else {
        format!("`{name}`")
    }
}

/// Returns a text in which nothing is markup, a mention or a link.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut previous = ' ';
    while let Some(character) = characters.next() {
        let next = characters.peek().copied().unwrap_or(' ');
        let is_in_number = previous.is_ascii_digit() && next.is_ascii_digit();
        previous = character;
        match character {
            // Nothing begins at these.
            ',' | ';' | '%' | '(' | ')' | ' ' | '+' | '=' | '/' => escaped.push(character),
            '.' if is_in_number => escaped.push(character),
            _ if character.is_ascii_punctuation() => {
                let _ = write!(escaped, "&#{};", u32::from(character));
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::compare::testing::{changes, comparison};
    use crate::tools::compare::{Estimate, GateRule, MeasureChoice};

    #[test]
    fn names_are_code_or_plain_text() {
        assert_eq!(code("eat /a.js"), "`eat /a.js`");
        assert_eq!(code("<img src=x> @me #1"), "`<img src=x> @me #1`");
        assert_eq!(code("a|b"), "<code>a&#124;b</code>");
        assert_eq!(code("a`</code>"), "<code>a&#96;&#60;/code&#62;</code>");
        assert_eq!(code(r"App\fib"), "<code>App&#92;fib</code>");
        assert_eq!(
            plain("www.a.b @me :x: größe"),
            "www&#46;a&#46;b &#64;me &#58;x&#58; größe"
        );
        assert_eq!(plain("1.5 of 2, 3.x"), "1.5 of 2, 3&#46;x");
    }

    #[test]
    fn ten_functions_are_shown_at_once_and_a_hundred_below_them() {
        let shown = |count: usize, is_significant: bool| {
            let text = comparison(changes(count, is_significant)).markdown(0.5);
            let (top, more) = text.split_once("<details>").unwrap_or((&*text, ""));
            [top, more].map(|part| part.lines().filter(|line| line.starts_with("| `f")).count())
        };
        assert_eq!(shown(10, true), [10, 0]);
        assert_eq!(shown(11, true), [10, 1]);
        assert_eq!(shown(100, false), [0, 100]);
        assert_eq!(shown(101, false), [0, 100]);
        let text = |count| comparison(changes(count, false)).markdown(0.5);
        assert!(!text(100).contains("not shown") && text(101).contains("\n1 not shown; --json has all\n"));
    }

    #[test]
    fn functions_that_changed_by_their_total_alone_are_shown_at_once() {
        let mut functions = changes(1, true);
        functions[0].own = Estimate::default();
        let text = comparison(functions).markdown(0.5);
        assert!(text.contains("| `f0` |") && !text.contains("<details>"), "{text}");
    }

    #[test]
    fn reasons_of_rules_have_all_their_functions() {
        let mut functions = changes(3, true);
        for change in &mut functions {
            change.function.file = Some(format!("/app/{}/a_file_of_usual_length.js", change.function.name));
            change.function.name = format!("aMethodWithAUsualName_{}", change.function.name);
        }
        let mut comparison = comparison(functions);
        let rule: GateRule = "self > 0.5%".parse().unwrap();
        let result = rule.check(&comparison, &[], MeasureChoice::Auto).unwrap();
        comparison.rules = vec![result];
        let text = comparison.markdown(0.5);
        let reason = "aMethodWithAUsualName_f0 f0/a_file_of_usual_length.js +1.00; \
                      aMethodWithAUsualName_f1 f1/a_file_of_usual_length.js +1.00; \
                      aMethodWithAUsualName_f2 f2/a_file_of_usual_length.js +1.00";
        assert!(
            text.contains(&format!("- ❌ `self > 0.5%`: `{reason}`\n")),
            "{text}"
        );
    }

    #[test]
    fn tables_end_before_60_000_bytes() {
        let mut functions = changes(100, false);
        for change in &mut functions {
            // Each of these characters takes five bytes.
            change.function.name = "`".repeat(120);
            change.function.previous = Some("`".repeat(120));
        }
        let text = comparison(functions).markdown(0.5);
        let (tables, _) = text.split_once("\n</details>").unwrap();
        assert!((58_000..=60_000).contains(&tables.len()), "{}", tables.len());
    }
}
