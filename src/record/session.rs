//! A running recording: perf, the program, and signals for both.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getpgrp, pidfd_open};

use super::attach::Attachment;
use super::collection::{Collected, Collection};
use super::environment::{PHP_FILE, PHP_FOLDER, PHP_SETTINGS};
use super::launch::{OWN_GROUP, SET_BY_PERF, Start, not_started, user_variable};
use super::manifest::Manifest;
use super::pack::pack;
use super::perf::{PerfOptions, Permissions, Refusal, reason};
use super::plan::{PROFILE, Plan, SUMMARY};
use super::process_files::runtime_of;
use super::recorded::{ProgramStatus, Recorded};
use super::signals::{ReceivedSignal, Signals, is_foreground};
use super::watch::{Status, Watch};
use crate::code::profile_index::{IndexedProfile, ProfileIndex};
use crate::files::folder::{PRIVATE, open_unchangeable};
use crate::files::staged::write_file;
use crate::files::{Folder, NameInFolder};
use crate::inject::{InjectOptions, KeptStacks, UnwindOptions};
use crate::load::running_processes::{ProcessStat, SLACK, owner_of, start_of};
use crate::load::{MANIFEST, MappingTimes, RUNTIME_FILES};
use crate::results::diagnostics::issues::{NAME_RUNNING, PERMIT_CPUS, RECORD_AS_ROOT};
use crate::results::diagnostics::{Diagnostic, Issue};

/// Time between two looks at whether the program has been started.
const START: Duration = Duration::from_millis(10);

/// Maximum time between two looks at the recorded processes.
const LOOK: Duration = Duration::from_secs(1);

/// Time until the first look at a program, and until the second: many are short, and change their user first.
const FIRST_LOOK: Duration = Duration::from_millis(200);

/// Time that processes have to end after a signal: a server finishes its work, and V8 writes the end of its jitdump.
const ENDING: Duration = Duration::from_secs(2);

/// File with the process ID of the program.
const PID_FILE: &str = "program.pid";

/// What came of a recording.
#[derive(Debug)]
pub enum Outcome {
    /// There is a profile.
    Recorded(Recorded),
    /// This signal came before the program was started; there is no folder.
    Interrupted(i32),
}

/// What the caller does while a program is recorded.
pub trait Control {
    /// Returns the signals that this program got since the last call.
    fn signals(&mut self) -> Vec<ReceivedSignal>;

    /// Returns a descriptor that can be read when there are signals.
    fn arrivals(&self) -> BorrowedFd<'_>;

    /// Is called every second.
    fn show(&mut self, status: &Status, warnings: &[Diagnostic]);
}

/// A recording with its folder.
#[derive(Debug)]
pub struct Session<'a> {
    plan: &'a Plan,
    perf: PathBuf,
    /// Command that starts the program: the arguments of [`launch`](super::launch()) follow.
    launcher: Vec<OsString>,
    /// Where the folder is, while nobody moves it.
    place: NameInFolder,
    folder: Folder,
    /// Folder for the files of runtimes, in that folder.
    dumps: Folder,
    /// Path by which perf and the program reach the folder. Where others could put another folder in its place, as in that of
    /// another user, it leads through the descriptor.
    reached: PathBuf,
    attachment: Attachment,
    /// The signal that ended the recording before it began.
    interrupt: Option<i32>,
}

/// Waits until one of some descriptors can be read, but no longer than for a time.
fn wait(descriptors: [Option<BorrowedFd<'_>>; 2], time: Duration) {
    let readable = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
    let mut descriptors: Vec<PollFd<'_>> = descriptors.into_iter().flatten().map(readable).collect();
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    // If it is interrupted, the caller looks once more.
    let _ = poll(&mut descriptors, Some(&time));
}

/// Waits until a signal has ended the recorded processes of a group, but not if they take long or another one comes.
fn wait_for_rest(group: i32, watch: &Watch<'_>, signals: &mut Signals, control: &mut dyn Control) {
    let started = Instant::now();
    while watch.has_rest(group) && started.elapsed() < ENDING {
        wait([None, Some(control.arrivals())], START);
        let received = control.signals();
        if !received.is_empty() {
            signals.receive(received);
            break;
        }
    }
}

/// Creates a folder for recordings, and returns where it is.
pub fn create_folder(path: &Path) -> Result<NameInFolder, Diagnostic> {
    let failed = |cause: io::Error| not_created(path, &cause);
    let place = NameInFolder::of(path).map_err(failed)?;
    place.create_private_folder().map_err(failed)?;
    Ok(place)
}

/// Returns why the directory of a recording could not be created.
fn not_created(path: &Path, cause: &io::Error) -> Diagnostic {
    match cause.kind() {
        io::ErrorKind::AlreadyExists => Diagnostic::new(Issue::RecordingExists).in_file(path),
        io::ErrorKind::PermissionDenied => {
            Diagnostic::cannot_write(path, cause).with_remedy("Choose a directory elsewhere with -o.")
        }
        _ => Diagnostic::cannot_write(path, cause),
    }
}

impl<'a> Session<'a> {
    /// Creates the folder of a recording. `launcher` is a command that calls [`launch`](super::launch()) with the file, the
    /// process group or 0, and the command that follow it.
    pub fn create(plan: &'a Plan, launcher: Vec<OsString>) -> Result<Self, Diagnostic> {
        let perf = Plan::find_perf()?;
        plan.check_program()?;
        let failed = |cause: io::Error| not_created(plan.folder(), &cause);
        let path = plan.path("");
        let place = NameInFolder::of(path.components().as_path()).map_err(failed)?;
        let folder = place.create_private_folder().map_err(failed)?;
        let fill = || {
            let dumps = folder.at(RUNTIME_FILES).create_private_folder()?;
            if plan.php_settings().is_some() {
                let settings = dumps.at(PHP_FOLDER).create_private_folder()?;
                let mut file = settings.at(PHP_FILE).create_file(PRIVATE)?;
                file.write_all(PHP_SETTINGS.as_bytes())?;
            }
            Ok(dumps)
        };
        let dumps = fill().map_err(|cause| {
            remove(&place, &folder);
            failed(cause)
        })?;
        let reached = match open_unchangeable(folder.path()) {
            Some(_) => plan.folder().to_owned(),
            None => folder.descriptor_path(),
        };
        Ok(Self {
            plan,
            perf,
            launcher,
            place,
            folder,
            dumps,
            reached,
            attachment: Attachment::default(),
            interrupt: None,
        })
    }

    /// Returns the profile as perf writes it.
    fn profile(&self) -> PathBuf {
        self.reached.join(PROFILE)
    }

    fn pid_file(&self) -> PathBuf {
        self.reached.join(PID_FILE)
    }

    /// Makes processes that run already log their code, as far as they can, until a signal comes. Returns what failed.
    pub fn attach(&mut self, control: &mut dyn Control) -> Vec<Diagnostic> {
        let interrupt = &mut self.interrupt;
        let mut is_stopped = || is_stopped(control, interrupt);
        let options = self.plan.attach;
        let (attachment, failures) =
            Attachment::start(&self.plan.perf.pids, options, &self.dumps, &mut is_stopped);
        self.attachment = attachment;
        failures
    }

    /// Records until the program has ended, or until a signal if there is no program. Without a profile, the folder is
    /// removed.
    pub fn run(&mut self, control: &mut dyn Control) -> Result<Outcome, Diagnostic> {
        let recorded = match self.interrupt {
            Some(signal) => Ok(Outcome::Interrupted(signal)),
            None => self.record(control),
        };
        let mut is_stopped = || is_stopped(control, &mut self.interrupt);
        let failures = self.attachment.finish(&mut is_stopped);
        if let Ok(Outcome::Recorded(mut recorded)) = recorded {
            recorded.diagnostics = failures;
            // Only perf and the program needed them.
            let _ = self.folder.at(PID_FILE).remove();
            let _ = self.dumps.at(PHP_FOLDER).remove_all();
            // Injection reads the profile by its path.
            if self.place.holds(&self.folder) {
                return Ok(Outcome::Recorded(recorded));
            }
            let cause = io::Error::other("it was moved, or another directory was put in its place");
            return Err(Diagnostic::cannot_write(self.plan.folder(), &cause));
        }
        remove(&self.place, &self.folder);
        recorded
    }

    /// Runs perf and the program until both have ended, and shows meanwhile what is seen of its runtimes.
    fn record(&self, control: &mut dyn Control) -> Result<Outcome, Diagnostic> {
        let (started, clock) = (SystemTime::now(), Instant::now());
        let is_foreground = is_foreground();
        let mut child = self.spawn(is_foreground)?;
        // Through the descriptor: somebody may move the folder meanwhile.
        let pid_file = self.folder.descriptor_path().join(PID_FILE);
        let program = (!self.plan.command.is_empty()).then(|| pid_file.clone());
        let mut signals = Signals::new(child.id(), program.clone(), is_foreground);
        let mut watch = match &program {
            Some(_) => Watch::of_descendants(child.id(), self.plan, &self.profile()),
            None => Watch::of_processes(self.plan, &self.profile()),
        };
        let status = self.follow_perf(&mut child, &mut signals, &mut watch, control, clock)?;
        // Those that came with the end of perf.
        signals.receive(control.signals());
        signals.end_group();
        if let Some(signal) = signals.ending_in_foreground() {
            watch.end_rest(signal);
        }
        let duration = clock.elapsed();
        if let Some(group) = signals.ending_group() {
            wait_for_rest(group, &watch, &mut signals, control);
        }
        let status = match program {
            Some(_) => match Start::read(&pid_file) {
                Start::Started(_) => signals.status_of_program(status),
                Start::Failed(cause) => return Err(self.not_started(&cause)),
                Start::Pending => match signals.received {
                    Some(signal) => return Ok(Outcome::Interrupted(signal.as_raw())),
                    None => return Err(self.explain(status)),
                },
            },
            None if status.success() || signals.has_stopped => ProgramStatus::Stopped,
            None => return Err(self.explain(status)),
        };
        Ok(Outcome::Recorded(Recorded {
            status,
            interrupt: signals.received.map(|signal| signal.as_raw()),
            started,
            duration,
            seen: watch.into_seen(),
            diagnostics: Vec::new(),
        }))
    }

    /// Follows perf until it ends: passes on signals, stops it after the time that was asked for, and shows what is seen of the
    /// processes. `clock` is when it was started. Returns its status.
    fn follow_perf(
        &self,
        child: &mut Child,
        signals: &mut Signals,
        watch: &mut Watch<'_>,
        control: &mut dyn Control,
        clock: Instant,
    ) -> Result<ExitStatus, Diagnostic> {
        let has_program = !self.plan.command.is_empty();
        // Kernels before 5.3 have none.
        let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
        let mut next_look = FIRST_LOOK;
        if !has_program {
            // These processes run already, and perf may end at any time.
            let (status, warnings) = watch.look(Duration::ZERO);
            control.show(&status, &warnings);
            next_look = LOOK;
        }
        loop {
            if let Some(status) = child.try_wait().map_err(|cause| self.perf_error(&cause))? {
                return Ok(status);
            }
            signals.receive(control.signals());
            let elapsed = clock.elapsed();
            let duration = self.plan.options.duration.filter(|_| has_program);
            if duration.is_some_and(|duration| elapsed >= duration) {
                signals.stop();
            }
            signals.deliver();
            if elapsed >= next_look {
                let (status, warnings) = watch.look(elapsed);
                control.show(&status, &warnings);
                next_look = elapsed + elapsed.min(LOOK);
            }
            let end_of_time = duration.filter(|_| !signals.has_stopped);
            let next = end_of_time.map_or(next_look, |end| end.min(next_look));
            let left = if end.is_some() && signals.are_delivered() {
                next.saturating_sub(elapsed)
            } else {
                START
            };
            let end = end.as_ref().map(AsFd::as_fd);
            wait([end, Some(control.arrivals())], left);
        }
    }

    fn perf_error(&self, cause: &io::Error) -> Diagnostic {
        Diagnostic::new(Issue::PerfFailed).with("cause", cause)
    }

    fn not_started(&self, cause: &str) -> Diagnostic {
        let program = self.plan.command.first();
        not_started(program.map_or(Path::new(""), Path::new), &cause)
    }

    /// Starts perf in a process group of its own.
    fn spawn(&self, is_foreground: bool) -> Result<Child, Diagnostic> {
        let mut perf = Command::new(&self.perf);
        perf.args(self.plan.perf.command_line(&self.profile(), false));
        perf.process_group(0);
        if !self.plan.command.is_empty() {
            let group = if is_foreground {
                getpgrp().as_raw_nonzero().get()
            } else {
                OWN_GROUP
            };
            perf.arg("--").args(&self.launcher);
            perf.arg(self.pid_file()).arg(group.to_string());
            perf.args(&self.plan.command).envs(self.variables());
            for name in SET_BY_PERF {
                if let Some(value) = std::env::var_os(name) {
                    perf.env(user_variable(name), value);
                }
            }
        } else if let Some(duration) = self.plan.options.duration {
            // perf starts it when it records, which may take a while.
            perf.args(["--", "sleep", &duration.as_secs_f64().to_string()]);
        }
        perf.spawn().map_err(|cause| self.perf_error(&cause))
    }

    /// Returns the variables of the program, with the path by which it reaches the folder.
    fn variables(&self) -> BTreeMap<&'static str, OsString> {
        let reached = self.reached.join(RUNTIME_FILES);
        let reached = std::path::absolute(&reached).unwrap_or(reached);
        let variables = self.plan.environment.iter();
        variables
            .map(|(name, value)| (*name, replaced(value, self.dumps.path(), &reached)))
            .collect()
    }

    /// Records another program. Returns what perf prints if it fails, which it does only without `-q`.
    fn attempt(&self, options: &PerfOptions) -> Result<(), String> {
        let output = self.reached.join("attempt.data");
        let attempt = Command::new(&self.perf)
            .args(options.command_line(&output, true))
            .args(["--", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output();
        match attempt {
            Ok(attempt) if attempt.status.success() => Ok(()),
            Ok(attempt) => Err(String::from_utf8_lossy(&attempt.stderr).into_owned()),
            Err(cause) => Err(cause.to_string()),
        }
    }

    /// Returns why perf recorded nothing.
    fn explain(&self, status: ExitStatus) -> Diagnostic {
        let options = &self.plan.perf;
        let attempt = self.attempt(options);
        let messages = attempt.err().unwrap_or_else(|| status.to_string());
        let is_free_without_stacks = || self.attempt(&options.without_stacks()).is_ok();
        let permissions = Permissions::current();
        let refusal = permissions.refusal(&messages, options, owner_of, is_free_without_stacks);
        let paranoid = |level| Diagnostic::new(Issue::PerfParanoid).with("level", level);
        let forbidden = || Diagnostic::new(Issue::PerfNotPermitted);
        let absent = options.pids.iter().find(|&&pid| ProcessStat::of(pid).is_none());
        let cause = match (&refusal, absent) {
            (Refusal::OtherUser(pid), _) => format!("process {pid} belongs to another user"),
            (Refusal::Other, Some(pid)) => format!("there is no process {pid}"),
            _ => reason(&messages),
        };
        let failed = match refusal {
            Refusal::OtherUser(_) => forbidden().with_remedy(RECORD_AS_ROOT),
            Refusal::Cpus(level) => paranoid(level).with_remedy(PERMIT_CPUS),
            Refusal::Paranoid(level) => paranoid(level),
            Refusal::Container => forbidden(),
            Refusal::Other => match absent {
                Some(_) => Diagnostic::new(Issue::PerfFailed).with_remedy(NAME_RUNNING),
                None => Diagnostic::new(Issue::PerfFailed),
            },
        };
        failed.with("cause", cause)
    }

    /// Moves the files of runtimes into the folder.
    pub fn collect(&self, recorded: &Recorded, profile: &IndexedProfile<'_>) -> Collected {
        let index = &profile.index;
        let end = recorded.started.checked_add(recorded.duration);
        let collection = Collection {
            folder: &self.folder,
            dumps: &self.dumps,
            seen: &recorded.seen,
            mapped: MappingTimes::new(profile.profile.clock_data(), index, end),
            started: recorded.started,
            is_own: self.is_own(),
        };
        collection.run(index)
    }

    /// Whether the recording has started all processes in it.
    fn is_own(&self) -> bool {
        !self.plan.command.is_empty() && !self.plan.perf.has_cpus()
    }

    /// Returns the processes of known runtimes that a program has left running when it ended, with their runtimes.
    pub fn left_running(&self, recorded: &Recorded, index: &ProfileIndex) -> BTreeMap<u32, &'static str> {
        let mut left = BTreeMap::new();
        if !self.is_own() || recorded.interrupt.is_some() {
            return left;
        }
        // Another process may have got the ID of one that has ended.
        let is_later = |pid| {
            let start = start_of(pid).and_then(|start| start.checked_add(2 * SLACK));
            start.is_some_and(|start| start >= recorded.started)
        };
        let pids: BTreeSet<u32> = index.processes.spaces.iter().map(|space| space.pid.0).collect();
        for pid in pids {
            if let Some(runtime) = runtime_of(pid).filter(|_| is_later(pid)) {
                left.insert(pid, runtime.name);
            }
        }
        left
    }

    /// Writes the manifest into the folder.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), Diagnostic> {
        let written = manifest
            .to_json()
            .and_then(|json| write_file(self.folder.at(MANIFEST), &json));
        written.map_err(|cause| Diagnostic::cannot_write(&self.plan.folder().join(MANIFEST), &cause))
    }

    /// Packs the folder, and returns the size of the archive in bytes, and what is left out.
    pub fn pack(&self, archive: &Path) -> Result<(u64, Vec<Diagnostic>), Diagnostic> {
        let place = self.place.folder.at(archive.file_name().unwrap_or_default());
        pack(&self.folder, place).map_err(|cause| Diagnostic::cannot_write(archive, &cause))
    }

    /// Returns the options for the injection of the recording.
    pub fn inject_options(&self, recorded: &Recorded) -> InjectOptions {
        let folder = self.plan.folder();
        let mut options = InjectOptions::new(self.plan.profile(), folder.join("perf.jit.data"));
        options.load.jitdumps = vec![folder.join(RUNTIME_FILES)];
        options.load.perf_maps = vec![folder.join(RUNTIME_FILES)];
        options.load.process_owners = recorded.seen.owners.clone();
        options.folder = Some(self.folder.clone().with_path(folder.components().as_path()));
        options.build_id_cache = Some(folder.join("debug"));
        options.is_cache_linked = true;
        options.summary = Some(folder.join(SUMMARY));
        options.lines.sources.source_dir = std::env::current_dir().ok();
        options.lines.keep_sources = !self.plan.options.without_sources;
        options.names = self.plan.options.names.clone();
        options.unwind = self.plan.perf.has_stack_copies().then_some(UnwindOptions {
            kept: KeptStacks::Nothing,
            fold_interpreter: false,
            is_optional: false,
        });
        options
    }
}

/// Removes the folder of a recording with everything in it, unless another one is in its place.
fn remove(place: &NameInFolder, folder: &Folder) {
    // Nothing can be done if it cannot be removed.
    let _ = folder.clear();
    if place.holds(folder) {
        let _ = place.remove_folder();
    }
}

/// Whether a signal has come that ends the recording, which is remembered.
fn is_stopped(control: &mut dyn Control, interrupt: &mut Option<i32>) -> bool {
    let received = control.signals().into_iter().rfind(|signal| signal.is_end());
    *interrupt = interrupt.or(received.map(|signal| signal.number));
    interrupt.is_some()
}

/// Returns a text with one path in place of another.
fn replaced(text: &OsStr, path: &Path, new: &Path) -> OsString {
    let (mut rest, path) = (text.as_bytes(), path.as_os_str().as_bytes());
    let mut replaced = OsString::new();
    while let Some((before, after)) = memchr::memmem::find(rest, path)
        .and_then(|at| Some((rest.get(..at)?, rest.get(at..)?.strip_prefix(path)?)))
    {
        replaced.push(OsStr::from_bytes(before));
        replaced.push(new);
        rest = after;
    }
    replaced.push(OsStr::from_bytes(rest));
    replaced
}
