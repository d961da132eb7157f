//! Finding and opening traces and the instrumented binary.

use std::sync::Arc;

use crate::files::MappedFile;
use crate::files::search::shown;
use crate::inject::candidates::open_given;
use crate::inject::ownership::Ownership;
use crate::inject::reach::Reach;
use crate::inject::xray::binary::Binary;
use crate::inject::{Error, Options};
use crate::runtime::xray::{Trace, is_trace};

/// How many traces are used. A program may write one for each thread.
const MAX_TRACES: usize = 10_000;

/// What was made of the files that the user named.
#[derive(Debug, Default)]
pub struct Opened {
    /// The traces.
    pub files: Vec<Arc<MappedFile>>,
    /// The instrumented binary, if they named one.
    pub binary: Option<Binary>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Opens the traces that the user named, and those in folders that they named. If there is no profile, `input` is a trace
/// itself.
pub fn open(options: &Options, input: Option<&Arc<MappedFile>>, trust: Ownership) -> Result<Opened, Error> {
    let binary = options.xray_binary.as_ref().map(|path| Binary::open(path));
    let mut opened = Opened {
        binary: binary.transpose()?,
        ..Opened::default()
    };
    if let Some(file) = input {
        Trace::parse(file).map_err(|cause| Error::Trace {
            path: file.path().to_owned(),
            cause,
        })?;
        opened.files.push(file.clone());
    }
    for file in open_given(
        &options.xray_logs,
        input.map(|input| &**input),
        is_trace,
        trust,
        &Reach::of(options),
        &mut opened.notes,
    )? {
        match Trace::parse(&file) {
            Ok(_) => opened.files.push(file),
            Err(error) => {
                let name = shown(file.path());
                opened.notes.push(format!("{name} {error}: not used"));
            }
        }
    }
    let left_out = opened.files.len().saturating_sub(MAX_TRACES);
    if left_out > 0 {
        opened.files.truncate(MAX_TRACES);
        opened.notes.push(format!(
            "{left_out} traces are left out: no more than {MAX_TRACES} are used at a time"
        ));
    }
    Ok(opened)
}
