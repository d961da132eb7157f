//! Opening of logs of Mono's profiler and XRay traces.

use std::sync::Arc;

use crate::code::process::Processes;
use crate::files::InputFile;
use crate::files::temp_file::temp_file_error;
use crate::load::find::access::Access;
use crate::load::find::open::open_given;
use crate::load::input::Input;
use crate::load::options::InputKind;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::mono::format::packed;
use crate::traces::mono::memory::Memory;
use crate::traces::mono::{OpenLog, UnpackedLog};
use crate::traces::options::TraceOptions;
use crate::traces::xray::binary::Binary;
use crate::traces::xray::format::{Trace, is_trace};
use crate::units::Pid;

/// Maximum number of logs used. Each is matched with the profile's processes, and no machine runs more Mono programs
/// at a time.
const MAX_LOGS: usize = 1000;

/// Maximum number of traces used. A program may write one for each thread.
const MAX_TRACES: usize = 10_000;

/// Logs and the core file that the user named.
#[derive(Debug, Default)]
pub struct OpenLogs {
    /// Logs of the profile's processes.
    pub logs: Vec<OpenLog>,
    /// Core file with the code of the logs' methods, if the user gave one.
    pub core: Option<Memory>,
    /// Number of logs beyond [`MAX_LOGS`].
    left_out: u64,
    /// What to report of them.
    pub diagnostics: Vec<Diagnostic>,
}

/// Opens the logs and folders of logs that the user named, and finds each log's process among `processes`, those of the
/// profile. Without a profile, the input can be a log itself.
pub fn open_logs(
    options: &TraceOptions,
    input: &Input,
    processes: Option<&Processes>,
    access: &Access,
) -> Result<OpenLogs, Diagnostic> {
    let core = options.core_file.as_deref().map(Memory::open);
    let mut opened = OpenLogs {
        core: core.transpose()?,
        ..OpenLogs::default()
    };
    let own = input.main_if(InputKind::MonoLog);
    if let Some(file) = own {
        let log = UnpackedLog::of(file.clone()).map_err(temp_file_error)?;
        let pid = log
            .header_pid(options)
            .map_err(|error| error.in_file(file.path()))?;
        opened.logs.push(log.of_process(pid));
    }
    for file in open_given(
        &options.mono_logs,
        own.map(|file| &**file),
        packed::is_log,
        access,
        &mut opened.diagnostics,
    )? {
        opened.add(options, file, processes)?;
    }
    if opened.left_out > 0 {
        let too_many = Diagnostic::new(Issue::MonoTooManyLogs).times(opened.left_out);
        opened.diagnostics.push(too_many.with("limit", MAX_LOGS));
    }
    Ok(opened)
}

impl OpenLogs {
    /// Adds a log if its process is in the profile, and a diagnostic if it is not.
    fn add(
        &mut self,
        options: &TraceOptions,
        file: Arc<InputFile>,
        processes: Option<&Processes>,
    ) -> Result<(), Diagnostic> {
        let path = file.path().to_owned();
        if self.logs.len() >= MAX_LOGS {
            self.left_out = self.left_out.saturating_add(1);
            return Ok(());
        }
        let log = UnpackedLog::of(file).map_err(temp_file_error)?;
        match log.header_pid(options) {
            Err(error) => self.diagnostics.push(error.in_file(&path).as_unused()),
            Ok(pid) if processes.is_none_or(|processes| processes.knows(pid)) => {
                self.logs.push(log.of_process(pid))
            }
            Ok(Pid(pid)) => {
                let unknown = match pid {
                    0 => Diagnostic::new(Issue::MonoWithoutPid),
                    pid => Diagnostic::new(Issue::MonoUnknownProcess).with("pid", pid),
                };
                self.diagnostics.push(unknown.in_file(&path));
            }
        }
        Ok(())
    }
}

/// Traces and the binary that the user named.
#[derive(Debug, Default)]
pub struct OpenTraces {
    /// The traces.
    pub files: Vec<Arc<InputFile>>,
    /// The instrumented binary, if the user named one.
    pub binary: Option<Binary>,
    /// What to report of them.
    pub diagnostics: Vec<Diagnostic>,
}

/// Opens the traces and folders of traces that the user named. Without a profile, the input can be a trace itself.
pub fn open_traces(options: &TraceOptions, input: &Input, access: &Access) -> Result<OpenTraces, Diagnostic> {
    let binary = options.xray_binary.as_ref().map(|path| Binary::open(path));
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
