//! What goes to a terminal: messages, and texts that a command prints.

use std::io::{self, BufWriter, Write};

use anstream::{AutoStream, ColorChoice as Colors};
use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use clap::error::ContextValue;
use jitinject::bytes::{printable, steers_terminal};
use jitinject::files::stdio;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Decides on colours, for all that is printed from now on.
pub fn set_colors(choice: ColorChoice) {
    // `Auto` asks the terminal, NO_COLOR (no-color.org) and CLICOLOR_FORCE (bixense.com/clicolors).
    match choice {
        ColorChoice::Auto => Colors::Auto,
        ColorChoice::Always => Colors::Always,
        ColorChoice::Never => Colors::Never,
    }
    .write_global();
}

/// How what is wrong looks: as from cargo and rustc.
pub const ERROR: AnsiColor = AnsiColor::Red;
/// How what may be wrong looks.
pub const WARNING: AnsiColor = AnsiColor::Yellow;
/// How what is worth knowing looks.
pub const NOTE: AnsiColor = AnsiColor::Green;

/// What messages start with.
const KINDS: [(&str, AnsiColor); 3] = [("error:", ERROR), ("warning:", WARNING), ("note:", NOTE)];

/// Prints lines under the program's name on standard error, without anything from a file that could steer the
/// terminal.
pub fn say(text: &str) {
    let mut stderr = anstream::stderr().lock();
    for line in text.lines() {
        let line = printable(line.as_bytes());
        let kind = KINDS.iter().find(|(kind, _)| line.starts_with(kind));
        // A closed standard error can't be told about.
        let _ = match kind {
            Some((kind, color)) => {
                let (style, rest) = (emphasis(*color), line.get(kind.len()..).unwrap_or_default());
                writeln!(stderr, "jitinject: {style}{kind}{style:#}{rest}")
            }
            None => writeln!(stderr, "jitinject: {line}"),
        };
    }
}

/// A bold colour, for the words that matter.
pub fn emphasis(color: AnsiColor) -> Style {
    color.on_default().bold()
}

/// Says what is wrong with the usage, or shows the help that was asked for.
pub fn say_usage(error: &mut clap::Error) {
    // Words may come from a pattern of the shell, and so be names that others gave to files.
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
    let _ = match error.use_stderr() {
        true => write!(anstream::stderr(), "{}", text.ansi()),
        false => write!(anstream::stdout(), "{}", text.ansi()),
    };
}

/// Standard output, for what a command is there to print. It has colours where they are wanted.
pub type Output = BufWriter<AutoStream<io::StdoutLock<'static>>>;

/// Lets `print` print what a command is there for. Whoever reads it may have enough before its end, as `head` does:
/// that is no error.
pub fn print(print: impl FnOnce(&mut Output) -> io::Result<()>) -> anyhow::Result<()> {
    print_to(AutoStream::auto(io::stdout().lock()), print)
}

/// Standard output as it is.
pub type PlainOutput = BufWriter<io::StdoutLock<'static>>;

/// Lets `print` print much, in which there is no colour unless [`has_colors`]: to look for colours that are not wanted
/// takes as long as all else.
pub fn print_plain(print: impl FnOnce(&mut PlainOutput) -> io::Result<()>) -> anyhow::Result<()> {
    print_to(io::stdout().lock(), print)
}

/// Whether colours are wanted on standard output.
pub fn has_colors() -> bool {
    AutoStream::choice(&io::stdout()) != Colors::Never
}

fn print_to<W: Write>(
    stream: W,
    print: impl FnOnce(&mut BufWriter<W>) -> io::Result<()>,
) -> anyhow::Result<()> {
    /// How many bytes are written at a time.
    const PIECE: usize = 64 << 10;
    anyhow::ensure!(!stdio::output_was_closed(), "standard output is closed");
    let mut output = BufWriter::with_capacity(PIECE, stream);
    match print(&mut output).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // What is left goes nowhere.
            let _ = output.into_parts();
            Ok(())
        }
        result => Ok(result?),
    }
}

/// JSON of which no character steers a terminal, whatever is in its strings.
struct PrintableJson<F>(F);

impl<F: Formatter> Formatter for PrintableJson<F> {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // Most text is of this kind, which is seen fast.
        if fragment.is_ascii() && !fragment.contains('\x7f') {
            return self.0.write_string_fragment(writer, fragment);
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(steers_terminal) {
            let (before, behind) = rest.split_at(at);
            self.0.write_string_fragment(writer, before)?;
            let mut behind = behind.chars();
            for unit in behind.next().unwrap_or_default().encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = behind.as_str();
        }
        self.0.write_string_fragment(writer, rest)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_key(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }
}

/// Writes a value as JSON on a line of its own.
pub fn put_json_line(output: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    put_json(output, value, CompactFormatter)
}

/// Prints a value as JSON for people to read as well.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_plain(|output| put_json(output, value, PrettyFormatter::new()))
}

fn put_json(output: &mut impl Write, value: &impl Serialize, formatter: impl Formatter) -> io::Result<()> {
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
    fn json_means_the_same_and_steers_no_terminal() {
        let text = "a\u{9b}31m\u{7f}\u{202e}\u{2028}\u{feff}\u{e0041}\"\\\n\u{1b}[2J ä 😀";
        let value = serde_json::json!({"names": [text, "", "plain"], "nothing": {}, "none": []});
        for formatter in [true, false] {
            let mut out = Vec::new();
            match formatter {
                true => put_json(&mut out, &value, CompactFormatter).unwrap(),
                false => put_json(&mut out, &value, PrettyFormatter::new()).unwrap(),
            }
            let written = String::from_utf8(out).unwrap();
            assert!(
                !written.replace('\n', "").contains(steers_terminal),
                "{written:?}"
            );
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&written).unwrap(),
                value
            );
            let plain = match formatter {
                true => serde_json::to_string(&value["names"][2]),
                false => serde_json::to_string_pretty(&value["names"][2]),
            };
            assert!(written.contains(&plain.unwrap()));
        }
    }
}
