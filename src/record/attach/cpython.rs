//! CPython 3.14 and later run a script that another process names (PEP 768), with which they switch on their perf map.
//!
//! Quirk (CPython 3.14.8): switching it off and on again crashes the process, so it stays on; and the jitdump of a running
//! process is empty, because it is buffered, so it writes a perf map.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, fchown};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::last_line;
use crate::bytes::hex_digits;
use crate::files::kernel;
use crate::load::running_processes::owner_of;
use crate::record::process_files;
use crate::record::safe_program::SafeProgram;
use crate::record::short_command::{self, IsStopped};
use crate::runtimes::Runtime;

/// Code that asks the process in the first argument to run the script in the second one.
const ASK: &str = "\
import sys
if not hasattr(sys, 'remote_exec'):
    sys.exit('it is older than CPython 3.14')
try:
    sys.remote_exec(int(sys.argv[1]), sys.argv[2])
except Exception as error:
    sys.exit(f'sys.remote_exec: {error}')
";

/// Script that the process runs. It answers [`DONE`] or its error in the file with the path `PATH`, in hexadecimal.
const SCRIPT: &str = "\
import sys
try:
    if not sys.is_stack_trampoline_active():
        sys.activate_stack_trampoline('perf')
    answer = 'done'
except Exception as error:
    answer = f'{type(error).__name__}: {error}'
try:
    with open(bytes.fromhex('PATH'), 'w', encoding='utf-8', errors='replace') as file:
        file.write(answer)
except OSError:
    pass
";

/// Answer of the script if there was no error.
const DONE: &str = "done";

/// Bytes that are read of an answer.
const MAX_ANSWER: usize = 500;

/// Time that the process has for the script. It runs it between two instructions of Python code.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time that a second process of the program has to ask the first one.
const MAX_START: Duration = Duration::from_secs(10);

/// A request to a CPython process. The process reads the script when it gets to it.
#[derive(Debug)]
pub struct Request {
    pid: u32,
    folder: TempDir,
    /// File for the answer of the script.
    answer: File,
}

impl Request {
    /// Asks a process to write a perf map from now on. Fails with a reason.
    #[expect(clippy::disallowed_methods, reason = "a new private folder")]
    pub fn send(pid: u32, is_stopped: IsStopped<'_>) -> Result<Self, String> {
        let failed = |cause: io::Error| cause.to_string();
        // It must be the same version, so it is the same program.
        let program = kernel::read_link(format!("/proc/{pid}/exe")).map_err(failed)?;
        if Runtime::of_process(pid) != Some(Runtime::Python) {
            return Err("it is part of another program".to_owned());
        }
        if !process_files::has_same_root(pid) {
            return Err("it runs in a container".to_owned());
        }
        let program = SafeProgram::open(pid, &program)
            .ok_or("its program, which has to ask it, is one that other users can change")?;
        let folder = tempfile::tempdir().map_err(failed)?;
        let script = folder.path().join("perf-map.py");
        let path = folder.path().join("answer");
        let answer = File::create_new(&path).map_err(failed)?;
        let path = hex_digits(path.as_os_str().as_bytes());
        fs::write(&script, SCRIPT.replace("PATH", &path)).map_err(failed)?;
        // The process may run as another user.
        fs::set_permissions(&script, Permissions::from_mode(0o644)).map_err(failed)?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).map_err(failed)?;
        // Without an answer, it is waited for.
        let _ = fchown(&answer, owner_of(pid), None);
        let mut command = program.command();
        command
            .args(["-I", "-S", "-c", ASK])
            .arg(pid.to_string())
            .arg(&script);
        let printed = short_command::run(command, true, MAX_START, is_stopped).map_err(failed)?;
        if printed.status.success() {
            Ok(Self { pid, folder, answer })
        } else {
            Err(last_line(&printed))
        }
    }

    /// Waits until the process logs its code. Fails with a reason.
    pub fn wait(&self, is_stopped: IsStopped<'_>) -> Result<(), String> {
        let asked = Instant::now();
        while !process_files::has_files(self.pid) && !is_stopped() {
            match self.answer() {
                Some(error) if error != DONE => return Err(error),
                Some(_) if asked.elapsed() > PATIENCE => break,
                _ => {}
            }
            if asked.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                return Err(format!(
                    "it waits for something, and has run no Python code within {seconds} s"
                ));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns the answer of the script; `None` if the process has not run it.
    fn answer(&self) -> Option<String> {
        let mut text = [0; MAX_ANSWER];
        let size = self.answer.read_at(&mut text, 0).ok()?;
        let text = text.get(..size).filter(|text| !text.is_empty())?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Removes the script, unless the process will still read it: CPython prints an error if it cannot.
    pub fn finish(&mut self) {
        let has_run = process_files::has_files(self.pid) || self.answer().is_some();
        self.folder.disable_cleanup(!has_run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: &str) -> Request {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answer");
        fs::write(&path, answer).unwrap();
        Request {
            pid: u32::MAX,
            folder,
            answer: File::open(path).unwrap(),
        }
    }

    #[test]
    fn an_error_of_the_script_is_the_reason() {
        let error = "ValueError: Cannot activate the perf trampoline if the JIT is active";
        let failed = answered(error).wait(&mut || false);
        assert_eq!(failed.unwrap_err(), error);
        let failed = answered(&"x".repeat(1000)).wait(&mut || false);
        assert_eq!(failed.unwrap_err().len(), MAX_ANSWER);
    }

    #[test]
    fn the_folder_of_a_script_that_has_run_is_removed() {
        for (answer, is_left) in [("ValueError: reason", false), (DONE, false), ("", true)] {
            let mut request = answered(answer);
            let folder = request.folder.path().to_owned();
            request.finish();
            drop(request);
            assert_eq!(folder.exists(), is_left, "{answer}");
            let _ = fs::remove_dir_all(folder);
        }
    }
}
