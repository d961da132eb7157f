//! Requests to processes that ran before the recording, to start logging their code.

mod cpython;
mod dotnet;
mod java;

pub use dotnet::reply_error as dotnet_reply_error;

use super::process_files;
use super::short_command::{IsStopped, Printed};
use crate::files::Folder;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::runtimes::Runtime;

/// What may be asked of running processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttachOptions {
    /// Whether to send the requests that runtimes have for tools.
    pub has_requests: bool,
    /// Whether to make CPython run code.
    pub has_remote_exec: bool,
}

/// How a process is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RequestKind {
    /// By jcmd.
    Java,
    /// By its diagnostic socket.
    DotNet,
    /// By code that CPython runs.
    RemoteExec,
}

impl AttachOptions {
    /// Returns how processes of a runtime are asked, if they are.
    fn request_to(self, runtime: Runtime) -> Option<RequestKind> {
        let (request, is_wanted) = match runtime {
            Runtime::Java => (RequestKind::Java, self.has_requests),
            Runtime::DotNet => (RequestKind::DotNet, self.has_requests),
            Runtime::Python => (RequestKind::RemoteExec, self.has_remote_exec),
            _ => return None,
        };
        is_wanted.then_some(request)
    }

    /// Returns why the code of a running process will have no names, if that is clear from the start.
    pub fn without_log(self, pid: u32) -> Option<Diagnostic> {
        let runtime = process_files::runtime_of(pid)?;
        // Only the backends of a PostgreSQL server write jitdumps.
        let logs_later = self.request_to(runtime.runtime).is_some() || runtime.runtime == Runtime::PostgreSql;
        if logs_later || process_files::has_files(pid) {
            return None;
        }
        let without = Diagnostic::new(Issue::StartedWithoutLog).with("pid", pid);
        let without = without.with("runtime", runtime.name);
        let start = |diagnostic: Diagnostic| {
            diagnostic.with("how", format_args!("it must be started with {}", runtime.how))
        };
        Some(match runtime.runtime {
            Runtime::LuaJit => without
                .with("how", runtime.how)
                .with_remedy("Record a LuaJIT that is built so."),
            Runtime::Python => start(without).with_remedy(
                "Start it again with jitinject record -- COMMAND, or with that option. CPython 3.14 and later can log from \
                 now on: add --remote-exec.",
            ),
            _ => start(without),
        })
    }

    /// Returns a line for each process that is asked, as comments for a shell.
    pub fn shell_text(self, pid: u32) -> Option<String> {
        let (files, how) = match self.request_to(runtime_of(pid)?)? {
            RequestKind::Java => ("a perf map", "jcmd, before and after the recording"),
            RequestKind::DotNet => ("a jitdump and a perf map", "its diagnostic socket"),
            RequestKind::RemoteExec => ("a perf map", "sys.remote_exec"),
        };
        Some(format!("# asks process {pid} to write {files}, with {how}\n"))
    }
}

/// Running processes that were asked to log their code.
#[derive(Debug, Default)]
pub struct Attachment {
    java: Vec<u32>,
    dotnet: Vec<dotnet::LoggingProcess>,
    cpython: Vec<cpython::Request>,
}

impl Attachment {
    /// Asks processes to log their code, until the user wants to end that. Returns what failed. `dumps` is the folder for the
    /// files of runtimes.
    pub fn start(
        pids: &[u32],
        options: AttachOptions,
        dumps: &Folder,
        is_stopped: IsStopped<'_>,
    ) -> (Self, Vec<Diagnostic>) {
        let mut attachment = Self::default();
        let mut failures = Vec::new();
        for &pid in pids {
            if is_stopped() {
                break;
            }
            let Some(runtime) = runtime_of(pid) else { continue };
            let Some(request) = options.request_to(runtime) else {
                continue;
            };
            let asked = match request {
                // Code that Java discards meanwhile is in this map only.
                RequestKind::Java => {
                    java::copy_map(pid, dumps, is_stopped).map(|()| attachment.java.push(pid))
                }
                RequestKind::DotNet => dotnet::LoggingProcess::start(pid, is_stopped)
                    .map(|process| attachment.dotnet.extend(process)),
                RequestKind::RemoteExec if process_files::has_files(pid) => Ok(()),
                RequestKind::RemoteExec => cpython::Request::send(pid, is_stopped).and_then(|request| {
                    let waited = request.wait(is_stopped);
                    attachment.cpython.push(request);
                    waited
                }),
            };
            failures.extend(asked.err().map(|cause| failed(pid, runtime, cause)));
        }
        (attachment, failures)
    }

    /// Asks again for what is complete at the end, unless the user wants to end that. Returns what failed.
    pub fn finish(&mut self, is_stopped: IsStopped<'_>) -> Vec<Diagnostic> {
        self.cpython.iter_mut().for_each(cpython::Request::finish);
        let mut failures = Vec::new();
        let mut add = |pid, runtime, asked: Result<(), String>| {
            failures.extend(asked.err().map(|cause| failed(pid, runtime, cause)));
        };
        // What has been switched on is switched off in any case.
        for process in &self.dotnet {
            add(process.pid(), Runtime::DotNet, process.finish(is_stopped));
        }
        for &pid in &self.java {
            // It may have ended, and the recording with it.
            if !is_stopped() && runtime_of(pid) == Some(Runtime::Java) {
                add(pid, Runtime::Java, java::write_map(pid, is_stopped));
            }
        }
        failures
    }
}

/// The program may be one that loads the runtime, as most of .NET are.
fn runtime_of(pid: u32) -> Option<Runtime> {
    process_files::runtime_of(pid).map(|found| found.runtime)
}

fn failed(pid: u32, runtime: Runtime, cause: String) -> Diagnostic {
    let failed = Diagnostic::new(Issue::AttachFailed).with("pid", pid);
    failed.with("runtime", runtime.name()).with("cause", cause)
}

/// Returns the last line that a program has printed, as the reason of its failure.
fn last_line(printed: &Printed) -> String {
    let text = String::from_utf8_lossy(&printed.text);
    // jcmd prints an exception of Java, whose calls are indented.
    let is_reason = |line: &&str| !line.starts_with('\t') && !line.trim().is_empty();
    let last = text.lines().rfind(is_reason);
    last.map_or(printed.status.to_string(), |line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn the_reason_is_the_last_line_that_is_not_a_call() {
        let reason = |text: &[u8]| {
            last_line(&Printed {
                status: ExitStatus::from_raw(1 << 8),
                text: text.to_vec(),
            })
        };
        let exception = b"7:\ncom.sun.tools.attach.AttachNotSupportedException: no mechanism\n\tat a.B.c(B.java:1)\n\tat d.E.f(E.java:2)\n";
        assert_eq!(
            reason(exception),
            "com.sun.tools.attach.AttachNotSupportedException: no mechanism"
        );
        assert_eq!(reason(b"no such process\n\n"), "no such process");
        assert_eq!(reason(b"\tat a.B.c(B.java:1)\n"), "exit status: 1");
    }
}
