//! Opening traces and the instrumented binary.

use std::sync::Arc;

use crate::diagnostics::{Diagnostic, Issue};
use crate::files::MappedFile;
use crate::inject::Options;
use crate::inject::candidates::open_given;
use crate::inject::ownership::Ownership;
use crate::inject::reach::Reach;
use crate::inject::xray::binary::Binary;
use crate::runtime::xray::{Trace, is_trace};

/// Maximum number of traces used. A program may write one for each thread.
const MAX_TRACES: usize = 10_000;

/// Traces and the binary that the user named.
#[derive(Debug, Default)]
pub struct Opened {
    /// The traces.
    pub files: Vec<Arc<MappedFile>>,
    /// The instrumented binary, if the user named one.
    pub binary: Option<Binary>,
    /// What to report of them.
    pub diagnostics: Vec<Diagnostic>,
}

/// Opens the traces and folders of traces that the user named. Without a profile, `input` is a trace itself.
pub fn open(
    options: &Options,
    input: Option<&Arc<MappedFile>>,
    trust: Ownership,
) -> Result<Opened, Diagnostic> {
    let binary = options.xray_binary.as_ref().map(|path| Binary::open(path));
    let mut opened = Opened {
        binary: binary.transpose()?,
        ..Opened::default()
    };
    if let Some(file) = input {
        Trace::parse(file).map_err(|error| error.in_file(file.path()))?;
        opened.files.push(file.clone());
    }
    for file in open_given(
        &options.xray_logs,
        input.map(|input| &**input),
        is_trace,
        trust,
        &Reach::of(options),
        &mut opened.diagnostics,
    )? {
        match Trace::parse(&file) {
            Ok(_) => opened.files.push(file),
            Err(error) => opened.diagnostics.push(error.in_file(file.path()).as_unused()),
        }
    }
    let left_out = opened.files.len().saturating_sub(MAX_TRACES);
    if left_out > 0 {
        opened.files.truncate(MAX_TRACES);
        let too_many = Diagnostic::new(Issue::XrayTooManyTraces).times(left_out as u64);
        opened.diagnostics.push(too_many.with("limit", MAX_TRACES));
    }
    Ok(opened)
}
