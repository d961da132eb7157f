//! What goes to a terminal: messages, and texts that a command prints.

use std::io::{self, BufWriter, Write};

use anstream::{AutoStream, ColorChoice as Colors};
use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use jitinject::bytes::printable;
use jitinject::files::standard;

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

/// What messages start with, and how that looks: as from cargo and rustc.
const KINDS: [(&str, AnsiColor); 3] = [
    ("error:", AnsiColor::Red),
    ("warning:", AnsiColor::Yellow),
    ("note:", AnsiColor::Green),
];

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
pub fn say_usage(error: &clap::Error) {
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
    anyhow::ensure!(!standard::output_was_closed(), "standard output is closed");
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
