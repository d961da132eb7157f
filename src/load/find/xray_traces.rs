//! Opening of XRay traces.

use std::sync::Arc;

use crate::code::profile_index::IndexedProfile;
use crate::files::InputFile;
use crate::load::find::access::Access;
use crate::load::find::open_given::open_given;
use crate::load::input::InputFiles;
use crate::load::options::InputKind;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::event_selection::missing_without_xray_traces;
use crate::traces::conversion::log_format::{LogFormat, OpenedFiles};
use crate::traces::options::TraceOptions;
use crate::traces::xray;
use crate::traces::xray::binary::InstrumentedBinary;
use crate::traces::xray::format::{Trace, is_trace};

/// Maximum number of traces used. A program may write one for each thread.
const MAX_TRACES: usize = 10_000;

/// Traces and the binary that the user named.
#[derive(Debug, Default)]
pub struct OpenTraces {
    /// The traces.
    pub files: Vec<Arc<InputFile>>,
    /// The instrumented binary, if the user named one.
    pub binary: Option<InstrumentedBinary>,
    /// What to report of them.
    pub diagnostics: Vec<Diagnostic>,
}

/// Opens the traces and folders of traces that the user named. Without a profile, the input can be a trace itself.
pub fn open(options: &TraceOptions, input: &InputFiles, access: &Access) -> Result<OpenTraces, Diagnostic> {
    let binary = options
        .xray_binary
        .as_ref()
        .map(|path| InstrumentedBinary::open(path));
    let mut opened = OpenTraces {
        binary: binary.transpose()?,
        ..OpenTraces::default()
    };
    let own = input.main_if(InputKind::XrayTrace);
    if let Some(file) = own {
        Trace::parse(file).map_err(|error| error.in_file(file.path()))?;
        opened.files.push(file.clone());
    }
    for file in open_given(
        &options.xray_logs,
        own.map(|file| &**file),
        is_trace,
        access,
        &mut opened.diagnostics,
    )? {
        match Trace::parse(&file) {
            Ok(_) => opened.files.push(file),
            Err(error) => opened.diagnostics.push(error.in_file(file.path()).as_unused()),
        }
    }
    opened.drop_excess();
    if own.is_none() && options.xray_logs.is_empty() {
        opened.diagnostics.extend(missing_without_xray_traces(options));
    }
    Ok(opened)
}

impl OpenTraces {
    /// Drops traces beyond [`MAX_TRACES`], and adds a diagnostic with their number.
    fn drop_excess(&mut self) {
        let left_out = self.files.len().saturating_sub(MAX_TRACES);
        if left_out > 0 {
            self.files.truncate(MAX_TRACES);
            let too_many = Diagnostic::new(Issue::XrayTooManyTraces).times(left_out as u64);
            self.diagnostics.push(too_many.with("limit", MAX_TRACES));
        }
    }
}

impl OpenedFiles for OpenTraces {
    fn read<'a>(
        &'a self,
        options: &TraceOptions,
        clock_offset: Option<i64>,
        recorded: Option<&IndexedProfile<'_>>,
    ) -> Result<Box<dyn LogFormat<'a> + 'a>, Diagnostic> {
        let mut traces = xray::read(options, clock_offset, &self.files, self.binary.as_ref(), recorded)?;
        traces.opening.clone_from(&self.diagnostics);
        Ok(Box::new(traces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_traces_are_used_and_the_others_counted() {
        let file = Arc::new(InputFile::open(tempfile::NamedTempFile::new().unwrap().path()).unwrap());
        for (traces, left_out) in [(10_000, None), (10_003, Some((Issue::XrayTooManyTraces, 3)))] {
            let mut opened = OpenTraces {
                files: vec![file.clone(); traces],
                ..OpenTraces::default()
            };
            opened.drop_excess();
            assert_eq!(opened.files.len(), 10_000);
            let issues = opened.diagnostics.iter().map(|found| (found.issue, found.count));
            assert!(issues.eq(left_out), "{traces}");
        }
    }
}
