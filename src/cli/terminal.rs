//! Output to a terminal: diagnostics, and what a command prints.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};

use anstream::{AutoStream, ColorChoice as Colors};
use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use clap::error::ContextValue;
use jitdump::internals::bytes::is_terminal_control;
use jitdump::printable;
use jitinject::internals::files::stdio;
use jitinject::internals::results::summary::count;
use jitinject::{Diagnostic, Issue, Severity};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Sets the use of colors.
pub fn set_colors(choice: ColorChoice) {
    // `Auto` depends on the terminal, NO_COLOR (no-color.org) and CLICOLOR_FORCE (bixense.com/clicolors).
    match choice {
        ColorChoice::Auto => Colors::Auto,
        ColorChoice::Always => Colors::Always,
        ColorChoice::Never => Colors::Never,
    }
    .write_global();
}

/// Color of errors, as in cargo and rustc.
pub const ERROR: AnsiColor = AnsiColor::Red;
/// Color of warnings.
pub const WARNING: AnsiColor = AnsiColor::Yellow;
/// Color of notes.
pub const NOTE: AnsiColor = AnsiColor::Green;
/// Color of recommended actions.
const HELP: AnsiColor = AnsiColor::Cyan;

/// Returns the style of a severity.
pub fn style(severity: Severity) -> Style {
    bold(match severity {
        Severity::Error => ERROR,
        Severity::Warning => WARNING,
        Severity::Note => NOTE,
    })
}

/// Prints lines under the program's name on standard error, without control characters.
pub fn print_message(text: &str) {
    let mut stderr = anstream::stderr().lock();
    for line in text.lines() {
        // There is nowhere to report a closed standard error.
        let _ = writeln!(stderr, "jitinject: {}", printable(line.as_bytes()));
    }
}

/// Prints a line without the program's name on standard error, without control characters.
pub fn print_line(text: &str) {
    let _ = writeln!(anstream::stderr(), "{}", printable(text.as_bytes()));
}

/// Prints a diagnostic and the recommended action on standard error.
pub fn report(diagnostic: &Diagnostic) {
    report_line(diagnostic);
    report_help(diagnostic);
}

fn report_line(diagnostic: &Diagnostic) {
    let (style, severity, id) = (
        style(diagnostic.severity),
        diagnostic.severity,
        diagnostic.issue.id(),
    );
    let text = printable(diagnostic.to_string().as_bytes());
    let _ = writeln!(
        anstream::stderr(),
        "jitinject: {style}{severity}[{id}]{style:#}: {text}"
    );
}

fn report_help(diagnostic: &Diagnostic) {
    let help = diagnostic.help();
    if !help.is_empty() {
        let style = bold(HELP);
        let _ = writeln!(anstream::stderr(), "jitinject: {style}help{style:#}: {help}");
    }
}

/// Maximum number of printed diagnostics per code, and in total: there may be thousands of files.
const MAX_REPORTED_PER_CODE: usize = 10;
const MAX_REPORTED: usize = 100;

/// Prints errors, warnings and, if `is_verbose`, notes, up to a limit per code. The recommended action is printed once per
/// code.
pub fn report_all(diagnostics: &[Diagnostic], is_verbose: bool) {
    let (reported, hidden) = reportable(diagnostics, is_verbose);
    let mut helped = BTreeSet::new();
    for diagnostic in reported {
        report_line(diagnostic);
        if !diagnostic.help().is_empty() && helped.insert(diagnostic.issue) {
            report_help(diagnostic);
        }
    }
    if hidden > 0 {
        print_message(&format!(
            "{} not shown; jitinject --summary FILE lists all",
            count(hidden, "more diagnostic")
        ));
    }
}

/// Returns the diagnostics to print, the most severe first, and the number of others.
fn reportable(diagnostics: &[Diagnostic], is_verbose: bool) -> (Vec<&Diagnostic>, u64) {
    let least = if is_verbose {
        Severity::Note
    } else {
        Severity::Warning
    };
    let mut reportable: Vec<&Diagnostic> = diagnostics.iter().filter(|it| it.severity >= least).collect();
    reportable.sort_by_key(|diagnostic| std::cmp::Reverse(diagnostic.severity));
    let all = reportable.len();
    let mut counts: BTreeMap<Issue, usize> = BTreeMap::new();
    reportable.retain(|diagnostic| {
        let count = counts.entry(diagnostic.issue).or_default();
        *count += 1;
        *count <= MAX_REPORTED_PER_CODE
    });
    reportable.truncate(MAX_REPORTED);
    let hidden = all - reportable.len();
    (reportable, hidden as u64)
}

/// Returns a bold style of a color.
pub fn bold(color: AnsiColor) -> Style {
    color.on_default().bold()
}

/// Prints a usage error, or the requested help.
pub fn print_usage_error(error: &mut clap::Error) {
    // Arguments may be file names chosen by others, from a pattern of the shell.
    let typed = error.context().filter_map(|(kind, value)| {
        let value = match value {
            ContextValue::String(word) => ContextValue::String(printable(word.as_bytes())),
            ContextValue::Strings(words) => {
                let words = words.iter().map(|word| printable(word.as_bytes()));
                ContextValue::Strings(words.collect())
            }
            _ => return None,
        };
        Some((kind, value))
    });
    for (kind, value) in typed.collect::<Vec<_>>() {
        error.insert(kind, value);
    }
    let text = error.render();
    let _ = if error.use_stderr() {
        write!(anstream::stderr(), "{}", text.ansi())
    } else {
        write!(anstream::stdout(), "{}", text.ansi())
    };
}

/// Standard output of a command, with colors if enabled.
pub type Output = BufWriter<AutoStream<io::StdoutLock<'static>>>;

/// Runs `print` with standard output. A closed pipe, as with `head`, is not an error.
pub fn print(print: impl FnOnce(&mut Output) -> io::Result<()>) -> Result<(), Diagnostic> {
    print_to(AutoStream::auto(io::stdout().lock()), print)
}

/// Standard output without colors.
pub type PlainOutput = BufWriter<io::StdoutLock<'static>>;

/// Runs `print` with standard output, for large output: its colors are not removed, so they depend on [`has_colors`].
pub fn print_plain(print: impl FnOnce(&mut PlainOutput) -> io::Result<()>) -> Result<(), Diagnostic> {
    print_to(io::stdout().lock(), print)
}

/// Returns whether colors are enabled for standard output.
pub fn has_colors() -> bool {
    AutoStream::choice(&io::stdout()) != Colors::Never
}

/// Prints through a buffer. It is no error if the reader has closed the stream.
fn print_to<W: Write>(
    stream: W,
    print: impl FnOnce(&mut BufWriter<W>) -> io::Result<()>,
) -> Result<(), Diagnostic> {
    /// Size of the output buffer in bytes.
    const BUFFER_SIZE: usize = 64 << 10;
    if stdio::stdout_was_closed() {
        return Err(Diagnostic::new(Issue::StdoutClosed));
    }
    let mut output = BufWriter::with_capacity(BUFFER_SIZE, stream);
    match print(&mut output).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // Drop the rest.
            let _ = output.into_parts();
            Ok(())
        }
        result => result.map_err(|cause| Diagnostic::new(Issue::CannotPrint).caused_by(&cause)),
    }
}

/// Defines methods of a [`Formatter`] that call those of the formatter in `self.0`.
macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty)?);)+) => {$(
        fn $method<W: ?Sized + Write>(&mut self, writer: &mut W $(, $argument: $type)?) -> io::Result<()> {
            self.0.$method(writer $(, $argument)?)
        }
    )+};
}

/// Writes JSON with all control and invisible characters escaped.
struct PrintableJson<F>(F);

impl<F: Formatter> Formatter for PrintableJson<F> {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // Most text is plain ASCII.
        if fragment.is_ascii() && !fragment.contains('\x7f') {
            return self.0.write_string_fragment(writer, fragment);
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(is_terminal_control) {
            let (before, after) = rest.split_at(at);
            self.0.write_string_fragment(writer, before)?;
            let mut after = after.chars();
            for unit in after.next().unwrap_or_default().encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = after.as_str();
        }
        self.0.write_string_fragment(writer, rest)
    }

    forward! {
        begin_array();
        begin_array_value(is_first: bool);
        end_array_value();
        end_array();
        begin_object();
        begin_object_key(is_first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
        end_object();
    }
}

/// Writes a value as one line of JSON.
pub fn write_json_line(output: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    write_json(output, value, CompactFormatter)
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Diagnostic> {
    print_plain(|output| write_json(output, value, PrettyFormatter::new()))
}

fn write_json(output: &mut impl Write, value: &impl Serialize, formatter: impl Formatter) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(
        &mut *output,
        PrintableJson(formatter),
    ))?;
    output.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_diagnostics_some_of_each_code_are_printed() {
        let of_issue = |issue, count| vec![Diagnostic::new(issue); count];
        let mut all = of_issue(Issue::ClockGuessed, 1);
        all.extend(of_issue(Issue::JitdumpCutTail, 12));
        all.extend(of_issue(Issue::JitdumpBadLoad, 3));
        let (warnings, hidden) = reportable(&all, false);
        assert_eq!((warnings.len(), hidden), (13, 2));
        let (with_notes, hidden) = reportable(&all, true);
        assert_eq!((with_notes.len(), hidden), (14, 2));
        assert_eq!(with_notes.last().unwrap().issue, Issue::ClockGuessed);
        let many: Vec<Diagnostic> = Issue::ALL.iter().map(|&issue| Diagnostic::new(issue)).collect();
        let (printed, hidden) = reportable(&many, true);
        assert_eq!((printed.len(), hidden), (100, many.len() as u64 - 100));
    }

    #[test]
    fn json_means_the_same_and_steers_no_terminal() {
        let text = "a\u{9b}31m\u{7f}\u{202e}\u{2028}\u{feff}\u{e0041}\"\\\n\u{1b}[2J ä 😀";
        let value = serde_json::json!({"names": [text, "", "plain"], "nothing": {}, "none": []});
        for formatter in [true, false] {
            let mut out = Vec::new();
            if formatter {
                write_json(&mut out, &value, CompactFormatter).unwrap()
            } else {
                write_json(&mut out, &value, PrettyFormatter::new()).unwrap()
            }
            let written = String::from_utf8(out).unwrap();
            assert!(
                !written.replace('\n', "").contains(is_terminal_control),
                "{written:?}"
            );
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&written).unwrap(),
                value
            );
            let plain = if formatter {
                serde_json::to_string(&value["names"][2])
            } else {
                serde_json::to_string_pretty(&value["names"][2])
            };
            assert!(written.contains(&plain.unwrap()));
        }
    }
}
