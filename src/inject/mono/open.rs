//! Opening logs and finding their processes in the profile.

use std::io;
use std::sync::Arc;

use crate::code::process::Processes;
use crate::diagnostics::{Diagnostic, Issue};
use crate::files::{MappedFile, Spool};
use crate::inject::Options;
use crate::inject::candidates::open_given;
use crate::inject::dumps::FoundDump;
use crate::inject::input::spool_error;
use crate::inject::mono::memory::Memory;
use crate::inject::ownership::Ownership;
use crate::inject::reach::Reach;
use crate::runtime::mono::{Log, packed};
use crate::tally::Tally;
use crate::units::Pid;

/// Maximum number of logs used. Each is matched with the profile's processes, and no machine runs more Mono programs at
/// a time.
const MAX_LOGS: usize = 1000;

/// A log that belongs to the profile.
#[derive(Debug)]
pub struct OpenLog {
    /// The file, decompressed if it was compressed, and its process.
    pub found: FoundDump,
    /// Errors found while decompressing the file.
    pub faults: Tally<Issue>,
    /// The compressed file, if it was compressed.
    pub packed: Option<Arc<MappedFile>>,
}

/// Logs and the core file that the user named.
#[derive(Debug, Default)]
pub struct Opened {
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
/// profile. Without a profile, `input` can be a log itself.
pub fn open(
    options: &Options,
    input: Option<&Arc<MappedFile>>,
    processes: Option<&Processes>,
    trust: Ownership,
) -> Result<Opened, Diagnostic> {
    let core = options.code_from.as_deref().map(Memory::open);
    let mut opened = Opened {
        core: core.transpose()?,
        ..Opened::default()
    };
    if let Some(input) = input {
        let log = OpenLog::unpack(input.clone()).map_err(spool_error)?;
        let pid = log.pid(options).map_err(|error| error.in_file(input.path()))?;
        opened.logs.push(log.of(pid));
    }
    for file in open_given(
        &options.mono_logs,
        input.map(|input| &**input),
        packed::is_log,
        trust,
        &Reach::of(options),
        &mut opened.diagnostics,
    )? {
        opened.add(options, file, processes)?;
    }
    if opened.left_out > 0 {
        let left_out = opened.left_out;
        let too_many = Diagnostic::new(Issue::MonoTooManyLogs).times(left_out);
        opened.diagnostics.push(too_many.with("limit", MAX_LOGS));
    }
    Ok(opened)
}

impl Opened {
    /// Adds a log if its process is in the profile, and a diagnostic if it is not.
    fn add(
        &mut self,
        options: &Options,
        file: Arc<MappedFile>,
        processes: Option<&Processes>,
    ) -> Result<(), Diagnostic> {
        let path = file.path().to_owned();
        if self.logs.len() >= MAX_LOGS {
            self.left_out = self.left_out.saturating_add(1);
            return Ok(());
        }
        let log = OpenLog::unpack(file).map_err(spool_error)?;
        match log.pid(options) {
            Err(error) => self.diagnostics.push(error.in_file(&path).as_unused()),
            Ok(pid) if processes.is_none_or(|processes| processes.knows(pid)) => self.logs.push(log.of(pid)),
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

impl OpenLog {
    /// Returns the process given with `--pid`, or the one in the log's header.
    fn pid(&self, options: &Options) -> Result<Pid, Diagnostic> {
        let log = Log::parse(&self.found.file)?;
        Ok(Pid(options.pid.unwrap_or(log.header().pid)))
    }

    /// Assigns the log to a process.
    fn of(mut self, Pid(pid): Pid) -> Self {
        // PID 0 would be the idle task.
        self.found.pids.push(Pid(pid.max(1)));
        self
    }

    fn unpack(file: Arc<MappedFile>) -> io::Result<Self> {
        if !packed::is_packed(&file) {
            return Ok(Self::new(file, Tally::default(), None));
        }
        let mut spool = Spool::create()?;
        let unpacked = packed::unpack(&file, packed::largest(file.len() as u64), &mut spool)?;
        let plain = spool.map(file.path())?;
        Ok(Self::new(Arc::new(plain), unpacked.faults, Some(file)))
    }

    fn new(file: Arc<MappedFile>, faults: Tally<Issue>, packed: Option<Arc<MappedFile>>) -> Self {
        Self {
            found: FoundDump {
                file,
                pids: Vec::new(),
                pids_before: Vec::new(),
                marked: None,
                markers: Vec::new(),
            },
            faults,
            packed,
        }
    }
}
