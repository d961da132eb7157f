//! `jitinject dump`: what is in a file that a runtime wrote.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::Style;
use anyhow::Context;
use clap::Args;
use jitinject::dump::{self, Entry, FORMAT, Filter, Options, Times};
use jitinject::files::search::shown;
use jitinject::runtime::FileKind;
use jitinject::units::Address;
use serde::Serialize;

use crate::commands::input::Opened;
use crate::terminal::{self, PlainOutput, put_json_line, say};

/// What is said behind the options.
const FORM: &str = "\
With --json, each line is an object. The first one has the version of this form (\"format\"), the \"kind\" of \
the file and its \"file_size\", which for a packed log is that of what was in it. Each of the others is a piece of the \
file: \"size\" bytes from \"offset\" on, of a \"type\", mostly with a \"time\". The pieces are in the order of the file, \
and without a filter they are all of it: header, records, buffers and their events, \"padding\", \"unknown\" for records of \
a type that is not known, \"cut\" for the start of a record that the file ends in, and \"damage\" for what can't be \
read. Sizes add up to \"file_size\".

Addresses and bits are strings (\"0x7f00\"), all else that counts is a number. Bytes of names that are not UTF-8 are \
replaced; then NAME_bytes has all of them in hexadecimal digits. \"fault\" says what is wrong, \"cut\" which field is \
the first that is not there whole, and \"missing\" how many bytes are missing. Times of a jitdump or log are \
nanoseconds (cycles, if the header says so); those of XRay's traces are ticks.

Examples:
  jitinject dump jit-1234.dump | less
  jitinject dump --name work --json jit-1234.dump | jq 'select(.type == \"LOAD\") | .code_addr'";

/// What can be typed behind `dump`.
#[derive(Args, Debug)]
#[command(after_help = FORM)]
pub struct DumpArguments {
    /// A jitdump, a log of Mono's profiler, packed or not, or a trace of XRay; - for standard input
    file: PathBuf,

    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,

    /// Print the bytes of code as well, which only jitdumps have
    #[arg(long)]
    code: bool,

    /// Only what is about functions whose name has this in it
    #[arg(long, value_name = "TEXT")]
    name: Option<OsString>,

    /// Only what is about code that holds this address, now or before it was moved; hexadecimal, with or without 0x
    #[arg(long, value_name = "ADDR", value_parser = address)]
    address: Option<Address>,

    /// Only what has a time from FROM up to, not including, TO, as it is in the file; either may be left out
    #[arg(long, value_name = "FROM..TO")]
    time: Option<Times>,
}

/// Reads hexadecimal digits.
fn address(text: &str) -> Result<Address, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let number = u64::from_str_radix(digits, 16);
    number
        .map(Address)
        .map_err(|_| "not an address in hexadecimal digits".into())
}

/// The first line of JSON.
#[derive(Serialize)]
struct Preamble {
    format: u32,
    kind: FileKind,
    file_size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    packed_size: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    packing_faults: Vec<String>,
}

impl DumpArguments {
    /// Prints it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let name = shown(&self.file);
        let opened = Opened::open(&self.file).with_context(|| format!("cannot read {name}"))?;
        if opened.file.is_empty() {
            let faults = faults(&opened).join("; ");
            anyhow::ensure!(faults.is_empty(), "nothing can be unpacked from {name}: {faults}");
            anyhow::bail!("{name} is empty");
        }
        let kind = opened.kind().with_context(|| {
            format!("{name} is no jitdump, no log of Mono's profiler and no trace of XRay")
        })?;
        let options = Options {
            filter: Filter {
                name: self.name.as_ref().map(|name| name.as_bytes().to_vec()),
                address: self.address,
                times: self.time,
            },
            with_code: self.code,
        };
        if options.filter.is_about_functions() && kind == FileKind::XrayTrace {
            say(&format!(
                "note: a {kind} knows functions by numbers only, so that no record has a name or an address"
            ));
        }
        let style = match terminal::has_colors() {
            true => terminal::emphasis(terminal::WARNING),
            false => Style::new(),
        };
        terminal::print_plain(|output| {
            let preamble = Preamble::new(&opened, kind);
            match self.json {
                true => put_json_line(output, &preamble)?,
                false => preamble.write(output)?,
            }
            dump::dump(&opened.file, kind, &options, &mut |entry| match self.json {
                true => put_json_line(output, entry),
                false => text_line(output, entry, style),
            })
        })?;
        if opened.file.has_shrunk() {
            say(&format!("warning: {name} has got shorter while it was read"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What could not be unpacked, in words.
fn faults(opened: &Opened) -> Vec<String> {
    let faults = opened.packing_faults();
    faults.iter().map(|(fault, _)| fault.to_string()).collect()
}

/// A line, with its type in `style` if something is wrong.
fn text_line(output: &mut PlainOutput, entry: &Entry<'_>, style: Style) -> io::Result<()> {
    if !entry.is_damaged() {
        return writeln!(output, "{entry}");
    }
    let (offset, kind) = (entry.offset, entry.kind);
    writeln!(
        output,
        "{offset:#010x} {style}{kind}{style:#} {}",
        entry.details()
    )
}

impl Preamble {
    fn new(opened: &Opened, kind: FileKind) -> Self {
        Self {
            format: FORMAT,
            kind,
            file_size: opened.file.len() as u64,
            packed_size: opened.packed.as_ref().map(|packed| packed.size),
            packing_faults: faults(opened),
        }
    }

    /// The same as text.
    fn write(&self, output: &mut PlainOutput) -> io::Result<()> {
        write!(output, "{}, {} bytes", self.kind, self.file_size)?;
        if let Some(size) = self.packed_size {
            write!(output, ", unpacked from {size}")?;
        }
        for fault in &self.packing_faults {
            write!(output, "; {fault}")?;
        }
        writeln!(output)
    }
}
