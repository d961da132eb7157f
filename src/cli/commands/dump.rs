//! `jitinject dump`: the records of a jitdump, Mono log or XRay trace.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::Style;
use clap::Args;
use jitdump::Address;
use jitinject::internals::files::InputFile;
use jitinject::internals::results::FileKind;
use jitinject::internals::tools::dump;
use jitinject::internals::tools::dump::{DumpEntry, EntryFilter, FORMAT, FunctionNames, Options, TimeRange};
use jitinject::{Diagnostic, Issue};
use serde::Serialize;

use crate::cli::commands::input::RuntimeFile;
use crate::cli::terminal::{self, PlainOutput, report, write_json_line};

/// Text after the options.
const AFTER_HELP: &str = "\
With --json, each line is an object. The first one has the format version (\"format\"), the \"kind\" of the file and its \
\"file_size\" (uncompressed). Each of the others is a part of the file: \"size\" bytes at \"offset\", with a \"type\" and \
mostly a \"time\". Parts are in file order. Without a filter they cover the whole file, and sizes add up to \"file_size\": \
header, records, buffers and their events, \"padding\", \"unknown\" for records of unknown types, \"cut\" for a last record \
that ends within its type, and \"damage\" for invalid bytes.

Addresses and bit masks are strings (\"0x7f00\"), other numbers are numbers. Invalid UTF-8 in names is replaced; \
NAME_bytes then has the bytes in hexadecimal. \"fault\" has the code and text of a diagnostic, \"cut\" the first field that is \
truncated, and \"missing\" the number of missing bytes. Times of jitdumps and Mono logs are nanoseconds (or cycles, if the \
header says so); those of XRay traces are ticks.

Examples:
  jitinject dump jit-1234.dump | less
  jitinject dump --name work --json jit-1234.dump | jq 'select(.type == \"LOAD\") | .code_addr'";

/// Arguments of `dump`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct DumpArguments {
    /// Jitdump, Mono log or XRay trace; - is standard input
    file: PathBuf,

    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,

    /// Print machine code, which only jitdumps have
    #[arg(long)]
    code: bool,

    /// Print only records of functions whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    name: Option<OsString>,

    /// Print only records of code at this hexadecimal address, also before it was moved
    #[arg(long, value_name = "ADDR", value_parser = address)]
    address: Option<Address>,

    /// Instrumented binary that wrote an XRay trace, to print names of functions
    #[arg(long, value_name = "FILE")]
    xray_binary: Option<PathBuf>,

    /// Print only records from time FROM to before TO, in the file's unit; either may be omitted
    #[arg(long, value_name = "FROM..TO")]
    time: Option<TimeRange>,
}

/// Parses a hexadecimal address, with or without `0x`.
fn address(text: &str) -> Result<Address, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let number = u64::from_str_radix(digits, 16);
    number
        .map(Address)
        .map_err(|_| "not an address in hexadecimal digits".into())
}

/// First line of the output, which describes the file.
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
    /// Prints the file.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        let cannot_read = |cause| Diagnostic::cannot_read(&self.file, &cause);
        let input = RuntimeFile::open(&self.file).map_err(cannot_read)?;
        let kind = self.kind_of(&input)?;
        let options = self.options()?;
        let has_names = self.xray_binary.is_some() && self.address.is_none();
        if options.filter.selects_functions() && kind == FileKind::XrayTrace && !has_names {
            report(&Diagnostic::new(Issue::NamesNeedFunctions));
        }
        let style = if terminal::has_colors() {
            terminal::bold(terminal::WARNING)
        } else {
            Style::new()
        };
        terminal::print_plain(|output| {
            let preamble = Preamble::new(&input, kind);
            if self.json {
                write_json_line(output, &preamble)?
            } else {
                preamble.write(output)?
            }
            dump::dump(&input.file, kind, &options, &mut |entry| {
                if self.json {
                    write_json_line(output, entry)
                } else {
                    text_line(output, entry, style)
                }
            })
        })?;
        if input.file.has_shrunk() {
            report(&Diagnostic::new(Issue::FileShrunk).in_file(&self.file));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl DumpArguments {
    /// Returns the kind of a file. Fails if it is empty, or none that can be printed.
    fn kind_of(&self, input: &RuntimeFile) -> Result<FileKind, Diagnostic> {
        if input.file.is_empty() {
            let faults = faults(input).join("; ");
            let empty = if faults.is_empty() {
                Diagnostic::new(Issue::EmptyFile)
            } else {
                Diagnostic::new(Issue::NothingUnpacked).with("faults", faults)
            };
            return Err(empty.in_file(&self.file));
        }
        input.kind().ok_or_else(|| {
            let unknown = Diagnostic::new(Issue::NotARuntimeFile).in_file(&self.file);
            unknown.with("kinds", "jitdump")
        })
    }

    fn options(&self) -> Result<Options, Diagnostic> {
        Ok(Options {
            filter: EntryFilter {
                name: self.name.as_ref().map(|name| name.as_bytes().to_vec()),
                address: self.address,
                times: self.time,
            },
            with_code: self.code,
            function_names: self.function_names()?,
        })
    }

    /// Reads the names of a trace's functions.
    fn function_names(&self) -> Result<FunctionNames, Diagnostic> {
        let Some(path) = &self.xray_binary else {
            return Ok(FunctionNames::default());
        };
        let file = InputFile::open(path).map_err(|cause| Diagnostic::cannot_read(path, &cause))?;
        FunctionNames::read(&file).map_err(|error| error.in_file(path))
    }
}

/// Returns the faults of decompression.
fn faults(input: &RuntimeFile) -> Vec<String> {
    let faults = input.packing_faults.iter();
    faults.map(|(fault, _)| fault.to_string()).collect()
}

/// Writes an entry as a line, with the type in `style` if it is damaged.
fn text_line(output: &mut PlainOutput, entry: &DumpEntry<'_>, style: Style) -> io::Result<()> {
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
    fn new(input: &RuntimeFile, kind: FileKind) -> Self {
        Self {
            format: FORMAT,
            kind,
            file_size: input.file.len() as u64,
            packed_size: input.packed_size,
            packing_faults: faults(input),
        }
    }

    /// Writes the line of the text output.
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
