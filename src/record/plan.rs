//! What a recording will do, before anything is done.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, SystemTime};

use humantime::format_rfc3339_seconds;
use jitdump::printable;
use rustix::fs::{Access, access, stat};

use super::attach::AttachOptions;
use super::cpython_build::has_frame_pointers;
use super::environment::{self, EnvironmentRequest, PHP_FILE, PHP_FOLDER, PHP_SETTINGS};
use super::environment_reset::resets_environment;
use super::perf::PerfOptions;
use super::php::PhpCompiler;
use super::program::{CommandProgram, ends_recording, find_program, program_of, search_path, user_of_sudo};
use super::ruby;
use crate::bytes::printable_path;
use crate::files::kernel;
use crate::load::RUNTIME_FILES;
use crate::results::diagnostics::issues::{CHECK_PATH, KEEP_PATH};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::name_style::NameStyle;
use crate::results::summary::shell_word;
use crate::runtimes::Runtime;

/// Name of the recorded profile in the folder of a recording.
pub(super) const PROFILE: &str = "perf.data";

/// Name of the summary in the folder of a recording.
pub const SUMMARY: &str = "summary.json";

/// How stacks of CPython are recorded if it has no frame pointers. In black, 70 % of the stacks are larger than perf's 8 KiB, and
/// 3 % than these.
const STACKS_OF_CPYTHON: &str = "dwarf,32768";

/// Options of a recording.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// Program to record, with its arguments; empty to record what runs already.
    pub command: Vec<OsString>,
    /// Directory to create.
    pub output: PathBuf,
    /// Runtimes to record; without any, the program's and all that it may start.
    pub runtimes: Vec<Runtime>,
    /// Whether to leave environment and command as they are.
    pub without_environment: bool,
    /// perf's agent for Java, if it is not at a usual place.
    pub java_agent: Option<PathBuf>,
    /// Whether to make a running CPython log its code, by running code in it.
    pub has_remote_exec: bool,
    /// Options for perf.
    pub perf: PerfOptions,
    /// When to end the recording, if the program still runs.
    pub duration: Option<Duration>,
    /// Whether to leave out the source files that lines name.
    pub without_sources: bool,
    /// Track of source lines, as it was given.
    pub track: Option<String>,
    /// Form of the names of functions.
    pub names: NameStyle,
}

/// A recording that has not been started.
#[derive(Debug)]
pub struct Plan {
    /// Options as they were given.
    pub options: RecordOptions,
    /// Program to record, with options that its runtime needs; empty to record what runs already.
    pub command: Vec<OsString>,
    /// Runtimes that the program is known to start.
    pub runtimes: Vec<Runtime>,
    /// Variables to set.
    pub environment: Vec<(&'static str, OsString)>,
    /// Options for perf.
    pub perf: PerfOptions,
    /// What to ask of running processes.
    pub attach: AttachOptions,
    /// What the user may want to know.
    pub notes: Vec<String>,
    /// What will be missing.
    pub diagnostics: Vec<Diagnostic>,
    /// Absolute path of the folder.
    absolute: PathBuf,
    /// Index of the program in the command.
    program: usize,
}

/// Returns the folder of a recording that starts now and has no name, with the time in UTC. Several may start in one second.
pub fn default_folder() -> PathBuf {
    let time = format_rfc3339_seconds(SystemTime::now()).to_string();
    let time = time.replace([':', '-', 'Z'], "").replace('T', "-");
    let name = format!("jitinject-record-{time}");
    let others = (2_u32..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(others).map(PathBuf::from);
    names
        .find(|name| name.symlink_metadata().is_err())
        .unwrap_or_else(|| PathBuf::from(name))
}

/// A program to record.
struct RecordedProgram {
    /// Its runtime, if it is a known one.
    runtime: Option<Runtime>,
    /// Its executable, if it was found.
    file: Option<PathBuf>,
}

/// Returns the programs of processes, or that of the command if there are none.
fn recorded_programs(pids: &[u32], program: &CommandProgram) -> Vec<RecordedProgram> {
    if pids.is_empty() {
        return vec![RecordedProgram {
            runtime: program.runtime,
            file: program.file.clone(),
        }];
    }
    let of_process = |&pid: &u32| RecordedProgram {
        runtime: Runtime::of_process(pid),
        file: kernel::read_link(format!("/proc/{pid}/exe")).ok(),
    };
    pids.iter().map(of_process).collect()
}

impl Plan {
    /// Plans a recording. Nothing is written, and nothing is started except for PHP and Ruby, which are asked
    /// for their configuration.
    pub fn new(options: RecordOptions) -> Result<Self, Diagnostic> {
        let folder = absolute(&options.output);
        let folder = folder.map_err(|cause| Diagnostic::cannot_write(&options.output, &cause))?;
        if let Some(agent) = &options.java_agent {
            stat(agent.as_path())
                .map_err(|cause| Diagnostic::cannot_read_named(agent, &cause.into(), CHECK_PATH))?;
        }
        let program = program_of(&options.command, &search_path());
        let mut plan = Self {
            command: options.command.clone(),
            runtimes: options.runtimes.clone(),
            environment: Vec::new(),
            perf: options.perf.clone(),
            attach: AttachOptions {
                has_requests: !options.without_environment,
                has_remote_exec: options.has_remote_exec,
            },
            notes: Vec::new(),
            diagnostics: Vec::new(),
            absolute: folder,
            program: program.index,
            options,
        };
        let mut recorded = recorded_programs(&plan.perf.pids, &program);
        let without_log = plan.perf.pids.iter().map(|&pid| plan.attach.without_log(pid));
        plan.diagnostics.extend(without_log.flatten());
        if plan.runtimes.is_empty() {
            let runtimes: BTreeSet<Runtime> = recorded.iter().filter_map(|program| program.runtime).collect();
            plan.runtimes.extend(runtimes);
        }
        if plan.perf.stacks().is_none() && plan.runtimes.contains(&Runtime::Python) {
            // A launcher starts another program.
            recorded.retain(|program| program.runtime.is_none_or(|runtime| runtime == Runtime::Python));
            plan.choose_stacks_of_cpython(&recorded);
        }
        if !plan.command.is_empty() && !plan.options.without_environment {
            plan.set_environment(program.file.as_deref());
            plan.add_option(&program);
        }
        Ok(plan)
    }

    /// Adds an option to the command if its program is a runtime that needs one.
    fn add_option(&mut self, program: &CommandProgram) {
        if let Some(runtime) = program.runtime.filter(|_| program.is_runtime)
            && self.runtimes.contains(&runtime)
            && let Some(option) = environment::added_option(runtime, &self.command, program.index)
        {
            self.command
                .insert(option.index.min(self.command.len()), option.text.into());
            let name = runtime.name();
            self.notes
                .push(format!("{name}: {} added to the command", option.text));
        }
    }

    /// Chooses how stacks of CPython are recorded: by frame pointers, or by copies if a recorded program was built without.
    fn choose_stacks_of_cpython(&mut self, recorded: &[RecordedProgram]) {
        let mut files = recorded.iter().map(|program| program.file.as_deref());
        if !recorded.is_empty() && files.all(|file| file.is_some_and(has_frame_pointers)) {
            let note = "CPython: it was built with frame pointers, so stacks are not copied";
            self.notes.push(note.to_owned());
        } else {
            self.perf.call_graph = Some(STACKS_OF_CPYTHON.to_owned());
        }
    }

    /// Notes compilers that run in the recording only. Returns the runtimes whose variables must stay as they are.
    fn note_compilers(&mut self, program: Option<&Path>) -> Vec<Runtime> {
        let mut without = Vec::new();
        if self.runtimes.contains(&Runtime::Php) {
            let note = match program.map_or(PhpCompiler::Off, PhpCompiler::of) {
                PhpCompiler::On => None,
                PhpCompiler::SwitchedOff => {
                    without.push(Runtime::Php);
                    Some(
                        "PHP: opcache is switched off by configuration and stays off, so there is no JIT code",
                    )
                }
                PhpCompiler::Off => Some(
                    "PHP: its JIT compiler, which is off otherwise, is switched on for the recording; --no-env leaves it off",
                ),
            };
            self.notes.extend(note.map(str::to_owned));
        }
        if self.runtimes.contains(&Runtime::Ruby) {
            let current = env::var_os(environment::RUBY);
            let options = environment::ruby_options(&self.command, current.as_deref());
            let is_asked_for = !self.options.runtimes.is_empty();
            if let Some(cause) = ruby::refusal(program, options, is_asked_for) {
                without.push(Runtime::Ruby);
                self.notes.push(format!("Ruby: {options} are left out: {cause}"));
            } else if !environment::has_ruby_compiler(&self.command) {
                let note =
                    "Ruby: its JIT compiler is switched on for the recording; --no-env leaves it as it is";
                self.notes.push(note.to_owned());
            }
        }
        without
    }

    /// Decides on the variables to set.
    fn set_environment(&mut self, program: Option<&Path>) {
        let is_java = self.runtimes.contains(&Runtime::Java);
        let agent = self
            .options
            .java_agent
            .as_ref()
            .map(|path| absolute(path).unwrap_or(path.clone()));
        let agent = agent.or_else(|| is_java.then(environment::find_java_agent).flatten());
        if is_java {
            self.notes.push(match &agent {
                Some(agent) => format!("Java: perf's agent {}", printable_path(agent)),
                None => "Java: perf's agent libperf-jvmti.so not found (docs/java.md builds it, --java-agent names it); \
                         names are those of the perf map that Java 17 and later write when they exit"
                    .to_owned(),
            });
        }
        self.diagnostics.extend(self.environment_reset());
        let mut without = self.runtimes_without_folder(has_working_folder()).to_vec();
        without.extend(self.note_compilers(program));
        let dumps = self.dumps();
        for (runtime, separator) in environment::cannot_name(&dumps) {
            without.push(runtime);
            if self.runtimes.contains(&runtime) {
                let warning = Diagnostic::new(Issue::FolderWithSeparator).with("runtime", runtime.name());
                self.diagnostics
                    .push(warning.with("separator", char::from(separator)));
            }
        }
        let request = EnvironmentRequest {
            dumps: &dumps,
            command: &self.command,
            runtimes: &self.runtimes,
            has_others: self.has_others(),
            without: &without,
            has_stack_copies: self.perf.has_stack_copies(),
            java_agent: agent.as_deref(),
        };
        self.environment = environment::variables(&request, |name| env::var_os(name));
        let has_compiler = env::var_os("PYTHON_JIT").is_some_and(|value| !value.is_empty() && value != "0");
        if has_compiler && environment::has_variables(Runtime::Python, &self.environment) {
            let note = "CPython: its JIT compiler stays off while it logs its code; --no-env leaves it on";
            self.notes.push(note.to_owned());
        }
    }

    /// Returns a warning if the program removes the variables of runtimes.
    fn environment_reset(&self) -> Option<Diagnostic> {
        let program = resets_environment(&self.command, self.program)?;
        Some(Diagnostic::new(Issue::EnvironmentReset).with("program", printable(program)))
    }

    /// Returns the runtimes that must not log their code. `has_folder` is whether the working directory is writable.
    fn runtimes_without_folder(&mut self, has_folder: bool) -> &'static [Runtime] {
        // Quirk: where V8 (Node.js 20) cannot write to the working directory, --perf-prof logs to standard output.
        if has_folder {
            return &[];
        }
        if self.runtimes.contains(&Runtime::Node) {
            self.diagnostics.push(Diagnostic::new(Issue::NoFolderForJitdump));
        }
        &[Runtime::Node]
    }

    /// Returns the absolute path of a file in the folder of the recording.
    pub fn path(&self, name: &str) -> PathBuf {
        self.absolute.join(name)
    }

    /// Returns the absolute path of the folder for the files of runtimes.
    pub(super) fn dumps(&self) -> PathBuf {
        self.path(RUNTIME_FILES)
    }

    /// Returns the folder of the recording, as the user named it.
    pub fn folder(&self) -> &Path {
        &self.options.output
    }

    /// Returns the profile as perf records it, below the folder as the user named it.
    pub fn profile(&self) -> PathBuf {
        self.folder().join(PROFILE)
    }

    /// Returns the profile that a path stands for: that in it if it is the folder of a recording, else itself.
    pub fn profile_at(path: PathBuf) -> PathBuf {
        let inside = path.join(PROFILE);
        // Folders that perf writes have a file `data`: the folder itself may be one, and the profile in it.
        let is_profile = inside.is_file() || inside.join("data").is_file();
        if is_profile && !path.join("data").exists() {
            inside
        } else {
            path
        }
    }

    /// Whether variables of other runtimes are set, too.
    pub(super) fn has_others(&self) -> bool {
        self.options.runtimes.is_empty()
    }

    /// Returns PHP's file of settings, if the program may be PHP.
    pub(super) fn php_settings(&self) -> Option<PathBuf> {
        let has_folder = |(name, _): &(&str, OsString)| *name == "PHP_INI_SCAN_DIR";
        let is_used = self.environment.iter().any(has_folder);
        is_used.then(|| self.dumps().join(PHP_FOLDER).join(PHP_FILE))
    }

    /// Returns the path of perf.
    pub(super) fn find_perf() -> Result<PathBuf, Diagnostic> {
        find_program(OsStr::new("perf"), &search_path()).ok_or_else(|| Diagnostic::new(Issue::PerfNotFound))
    }

    /// Fails if the program does not exist, or cannot be recorded.
    pub(super) fn check_program(&self) -> Result<(), Diagnostic> {
        let Some(program) = self.command.first() else {
            return Ok(());
        };
        let search_path = search_path();
        if find_program(program, &search_path).is_some() {
            return self.check_rights(&search_path);
        }
        let path = Path::new(program);
        let cause = match path.metadata() {
            Ok(found) if found.is_dir() => "it is a directory",
            Ok(_) if program.as_bytes().contains(&b'/') => "it is not executable",
            Ok(_) => "no program in PATH, but a file here",
            Err(_) => "no such program",
        };
        let failed = super::launch::not_started(path, &cause);
        let is_sudo = user_of_sudo().is_some() && !program.as_bytes().contains(&b'/');
        Err(if is_sudo {
            failed.with_remedy(KEEP_PATH)
        } else {
            failed
        })
    }

    /// Fails if the kernel would end the recording when the program starts. Recordings of whole CPUs go on.
    fn check_rights(&self, search_path: &OsStr) -> Result<(), Diagnostic> {
        let program = self.command.get(self.program);
        let path = program.and_then(|program| find_program(program, search_path));
        let cause = path.and_then(|path| ends_recording(&path, search_path));
        match (program, cause) {
            (Some(program), Some(cause)) if !self.perf.has_cpus() => {
                let failed = Diagnostic::new(Issue::ProgramOfOtherRights);
                let failed = failed.with("program", printable_path(Path::new(program)));
                Err(failed.with("cause", cause))
            }
            _ => Ok(()),
        }
    }

    /// Returns the command with which the user of `sudo` gets files that belong to root.
    pub fn chown_command(&self, archive: Option<&Path>) -> Option<String> {
        let word = |word: &OsStr| shell_word(&printable(word.as_bytes()));
        let paths = [Some(self.folder()), archive];
        let words = paths.into_iter().flatten().map(|path| word(path.as_os_str()));
        let words: Vec<String> = words.collect();
        let user = user_of_sudo()?;
        Some(format!("sudo chown -R {} {}", word(&user), words.join(" ")))
    }

    /// Returns the commands that `record` would run, for a shell.
    pub fn shell_text(&self) -> String {
        let word = |word: &OsStr| shell_word(&printable(word.as_bytes()));
        let path = |path: &Path| word(path.as_os_str());
        let mut text = String::new();
        for (name, value) in &self.environment {
            let _ = writeln!(text, "export {name}={}", word(value));
        }
        let _ = writeln!(
            text,
            "mkdir -m 700 {} {}",
            path(self.folder()),
            path(&self.dumps())
        );
        if let Some(file) = self.php_settings() {
            let folder = file.parent().unwrap_or(&file);
            let settings = shell_word(PHP_SETTINGS.trim_end());
            let _ = writeln!(
                text,
                "mkdir {} && echo {settings} > {}",
                path(folder),
                path(&file)
            );
        }
        text.extend(
            self.perf
                .pids
                .iter()
                .filter_map(|&pid| self.attach.shell_text(pid)),
        );
        let words: Vec<String> = self.perf_words().iter().map(|it| word(it)).collect();
        let _ = writeln!(text, "{}", words.join(" "));
        let _ = writeln!(text, "{}", self.inject_line());
        text
    }

    /// Returns the command that records, as [`Plan::shell_text`] has it: perf, and the program or its time.
    fn perf_words(&self) -> Vec<OsString> {
        let mut line = vec![OsString::from("perf")];
        line.extend(self.perf.command_line(&self.profile(), false));
        match (self.command.is_empty(), self.options.duration) {
            (true, Some(duration)) => {
                line.extend(["--", "sleep"].map(OsString::from));
                line.push(duration.as_secs_f64().to_string().into());
            }
            (true, None) => {}
            (false, duration) => {
                line.push("--".into());
                if let Some(duration) = duration {
                    line.extend(["timeout".into(), duration.as_secs_f64().to_string().into()]);
                }
                line.extend_from_slice(&self.command);
            }
        }
        line
    }

    /// Returns the command that names the profile, as [`Plan::shell_text`] has it.
    fn inject_line(&self) -> String {
        let file = |name: &str| shell_word(&printable(self.folder().join(name).as_os_str().as_bytes()));
        let sources = if self.options.without_sources {
            ""
        } else {
            " --keep-sources"
        };
        let unwind = if self.perf.has_stack_copies() {
            " --unwind"
        } else {
            ""
        };
        let track = self.options.track.as_ref();
        let track = track.map_or_else(String::new, |track| format!(" --track {}", shell_word(track)));
        let names = match &self.options.names {
            NameStyle::Full => String::new(),
            names => format!(" --names {}", shell_word(&names.to_string())),
        };
        format!(
            "jitinject -i {} -o {} --jitdump {dumps} --perf-map {dumps} --build-id-cache {} --summary {} \
             --source-dir .{sources}{unwind}{track}{names}",
            file(PROFILE),
            file("perf.jit.data"),
            file("debug"),
            file(SUMMARY),
            dumps = file(RUNTIME_FILES),
        )
    }
}

/// Whether files can be created in the working directory. In one that was removed, nobody can, although root may write to it.
fn has_working_folder() -> bool {
    let is_there = || stat(".").is_ok_and(|folder| folder.st_nlink > 0);
    access(".", Access::WRITE_OK).is_ok() && is_there()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_processes_decides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let start = |name: &str| {
            let program = folder.path().join(name);
            std::fs::copy("/bin/sleep", &program).unwrap();
            std::process::Command::new(program).arg("60").spawn().unwrap()
        };
        let mut processes = ["node", "python3.12"].map(start);
        let [node, python] = processes.each_ref().map(|process| process.id());
        let plan = |pids: &[u32]| {
            let mut options = RecordOptions {
                output: "r".into(),
                ..RecordOptions::default()
            };
            options.perf.pids = pids.to_vec();
            let plan = Plan::new(options).unwrap();
            (plan.runtimes, plan.perf.call_graph)
        };
        let plans = [plan(&[node, python]), plan(&[python, node])];
        for process in &mut processes {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        let stacks = Some(STACKS_OF_CPYTHON.to_owned());
        assert_eq!(plans[0], (vec![Runtime::Node, Runtime::Python], stacks));
        assert_eq!(plans[0], plans[1]);
    }

    #[test]
    fn node_does_not_log_to_standard_output() {
        let options = RecordOptions {
            command: vec!["/absent/node".into()],
            output: "r".into(),
            ..RecordOptions::default()
        };
        let mut plan = Plan::new(options).unwrap();
        assert!(plan.runtimes_without_folder(true).is_empty());
        assert!(plan.diagnostics.is_empty());
        assert_eq!(plan.runtimes_without_folder(false), [Runtime::Node]);
        let issues: Vec<Issue> = plan.diagnostics.iter().map(|it| it.issue).collect();
        assert_eq!(issues, [Issue::NoFolderForJitdump]);
    }
}
