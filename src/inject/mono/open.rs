//! Finding and opening logs, and the processes that they are of.

use std::io;
use std::sync::Arc;

use crate::code::process::Processes;
use crate::files::search::shown;
use crate::files::{MappedFile, Spool};
use crate::inject::candidates::open_given;
use crate::inject::dumps::FoundDump;
use crate::inject::mono::memory::Memory;
use crate::inject::ownership::Ownership;
use crate::inject::reach::Reach;
use crate::inject::{Error, Options};
use crate::runtime::mono::{self, Log, packed};
use crate::tally::Tally;
use crate::units::Pid;

/// How many logs are used. Each is looked for in the processes of the profile, and a machine that runs more programs on
/// Mono at a time is none.
const MAX_LOGS: usize = 1000;

/// A log that belongs to the profile.
#[derive(Debug)]
pub struct OpenLog {
    /// The file, unpacked if it was packed, and its process.
    pub found: FoundDump,
    /// What could not be unpacked.
    pub faults: Tally<mono::Fault>,
    /// The file as it was, if it was packed.
    pub packed: Option<Arc<MappedFile>>,
}

/// What was made of the files that the user named.
#[derive(Debug, Default)]
pub struct Opened {
    /// The logs.
    pub logs: Vec<OpenLog>,
    /// The core file that has their code, if there is one.
    pub core: Option<Memory>,
    /// How many logs are too many.
    left_out: u64,
    /// Other things that the user should know.
    pub notes: Vec<String>,
}

/// Opens the logs that the user named, and those in folders that they named, and finds the process of each among
/// `processes`, those of the profile.
/// If there is no profile, `input` can be a log itself.
pub fn open(
    options: &Options,
    input: Option<&Arc<MappedFile>>,
    processes: Option<&Processes>,
    trust: Ownership,
) -> Result<Opened, Error> {
    let core = options.code_from.as_deref().map(Memory::open);
    let mut opened = Opened {
        core: core.transpose()?,
        ..Opened::default()
    };
    if let Some(input) = input {
        let log = OpenLog::unpack(input.clone()).map_err(|cause| Error::Spool { cause })?;
        let pid = log.pid(options).map_err(|cause| Error::Log {
            path: input.path().to_owned(),
            cause,
        })?;
        opened.logs.push(log.of(pid));
    }
    for file in open_given(
        &options.mono_logs,
        input.map(|input| &**input),
        packed::is_log,
        trust,
        &Reach::of(options),
        &mut opened.notes,
    )? {
        opened.add(options, file, processes)?;
    }
    if opened.left_out > 0 {
        let left_out = opened.left_out;
        opened.notes.push(format!(
            "{left_out} logs of Mono are left out: no more than {MAX_LOGS} are used at a time"
        ));
    }
    Ok(opened)
}

impl Opened {
    /// Adds a log, if it is of a process that the profile knows.
    fn add(
        &mut self,
        options: &Options,
        file: Arc<MappedFile>,
        processes: Option<&Processes>,
    ) -> Result<(), Error> {
        let name = shown(file.path());
        if self.logs.len() >= MAX_LOGS {
            self.left_out = self.left_out.saturating_add(1);
            return Ok(());
        }
        let log = OpenLog::unpack(file).map_err(|cause| Error::Spool { cause })?;
        match log.pid(options) {
            Err(error) => self.notes.push(format!("{name} {error}: not used")),
            Ok(pid) if processes.is_none_or(|processes| processes.knows(pid)) => self.logs.push(log.of(pid)),
            Ok(Pid(pid)) => {
                let what = match pid {
                    0 => "does not tell its process".into(),
                    pid => format!("is of process {pid}, which is not in the profile"),
                };
                self.notes.push(format!(
                    "{name} {what}: not used; say with --pid which one it is of"
                ));
            }
        }
        Ok(())
    }
}

impl OpenLog {
    /// The process that it says it is of, or the user.
    fn pid(&self, options: &Options) -> Result<Pid, mono::Error> {
        let log = Log::parse(&self.found.file)?;
        Ok(Pid(options.pid.unwrap_or(log.header().pid)))
    }

    /// It as that of a process.
    fn of(mut self, Pid(pid): Pid) -> Self {
        // Number 0 would be the idle task.
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

    fn new(file: Arc<MappedFile>, faults: Tally<mono::Fault>, packed: Option<Arc<MappedFile>>) -> Self {
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
