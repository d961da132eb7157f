//! Opening of logs of Mono's profiler.

use std::sync::Arc;

use crate::code::process::Processes;
use crate::code::profile_index::IndexedProfile;
use crate::files::InputFile;
use crate::files::temp_file::temp_file_error;
use crate::load::find::access::Access;
use crate::load::find::open_given::open_given;
use crate::load::input::InputFiles;
use crate::load::options::InputKind;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::event_selection::missing_without_mono_logs;
use crate::traces::conversion::log_format::{LogFormat, OpenedFiles};
use crate::traces::detect::is_mono_log;
use crate::traces::mono::memory::MonoMemory;
use crate::traces::mono::{self, OpenLog};
use crate::traces::options::TraceOptions;
use crate::units::Pid;

/// Maximum number of logs used. Each is matched with the profile's processes, and no machine runs more Mono programs
/// at a time.
const MAX_LOGS: usize = 1000;

/// Logs and the core file that the user named.
#[derive(Debug, Default)]
pub struct OpenLogs {
    /// Logs of the profile's processes.
    pub logs: Vec<OpenLog>,
    /// Core file with the code of the logs' methods, if the user gave one.
    pub core: Option<MonoMemory>,
    /// Number of logs beyond [`MAX_LOGS`].
    left_out: u64,
    /// What to report of them.
    pub diagnostics: Vec<Diagnostic>,
}

/// Opens the logs and folders of logs that the user named, and finds each log's process among `processes`, those of the
/// profile. Without a profile, the input can be a log itself.
pub fn open(
    options: &TraceOptions,
    input: &InputFiles,
    processes: Option<&Processes>,
    access: &Access,
) -> Result<OpenLogs, Diagnostic> {
    let core = options.core_file.as_deref().map(MonoMemory::open);
    let mut opened = OpenLogs {
        core: core.transpose()?,
        ..OpenLogs::default()
    };
    let own = input.main_if(InputKind::MonoLog);
    if let Some(file) = own {
        let log = OpenLog::of(file.clone()).map_err(temp_file_error)?;
        let pid = log
            .header_pid(options)
            .map_err(|error| error.in_file(file.path()))?;
        opened.logs.push(log.of_process(pid));
    }
    for file in open_given(
        &options.mono_logs,
        own.map(|file| &**file),
        is_mono_log,
        access,
        &mut opened.diagnostics,
    )? {
        opened.add(options, file, processes)?;
    }
    if opened.left_out > 0 {
        let too_many = Diagnostic::new(Issue::MonoTooManyLogs).times(opened.left_out);
        opened.diagnostics.push(too_many.with("limit", MAX_LOGS));
    }
    if own.is_none() && options.mono_logs.is_empty() {
        opened.diagnostics.extend(missing_without_mono_logs(options));
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
        let log = OpenLog::of(file).map_err(temp_file_error)?;
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

impl OpenedFiles for OpenLogs {
    fn read<'a>(
        &'a self,
        _: &TraceOptions,
        _: Option<i64>,
        _: Option<&IndexedProfile<'_>>,
    ) -> Result<Box<dyn LogFormat<'a> + 'a>, Diagnostic> {
        let logs = mono::read(&self.logs, self.core.as_ref(), self.diagnostics.clone())?;
        Ok(Box::new(logs))
    }
}
