//! Whether a Ruby takes the options that make it log its code. Some do not start with them, or print a warning.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::geteuid;

use super::environment::{RUBY, ZJIT};
use super::program::{find_program, search_path};
use super::recorded_process::first_line;
use super::safe_program::SafeProgram;
use super::short_command;
use crate::bytes::base_name;
use crate::files::search::without_links;
use crate::runtimes::Runtime;

/// Time that Ruby has to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns why the Ruby that a program is or starts does not take options that switch its compiler on, if it does not. It is asked
/// for its version, which names the compiler, unless the user must not run it, or it does not answer: then it gets them.
/// `is_asked_for` is whether the user named the runtime: it may be another Ruby that the program starts.
pub fn refusal(program: Option<&Path>, options: &str, is_asked_for: bool) -> Option<String> {
    let ruby = ruby_of(program, is_asked_for)?;
    let safe = SafeProgram::started(&ruby)?;
    // The programs of version managers find out by their name which one to start. Root runs the file that was checked.
    let mut command = if geteuid().is_root() {
        safe.command()
    } else {
        Command::new(&ruby)
    };
    command
        .arg0(&ruby)
        .args(options.split(' '))
        .arg("--version")
        .env_remove(RUBY);
    let printed = short_command::run(command, true, PATIENCE, &mut || false).ok()?;
    let compiler = if options == ZJIT { "+ZJIT" } else { "+YJIT" };
    let is_on = memchr::memmem::find(&printed.text, compiler.as_bytes()).is_some();
    let reason = || first_line(&printed.text).unwrap_or_else(|| printed.status.to_string());
    (!printed.status.success() || !is_on).then(reason)
}

/// Returns the program itself if it is Ruby, else the first one in `PATH`, unless the user asked for Ruby.
fn ruby_of(program: Option<&Path>, is_asked_for: bool) -> Option<PathBuf> {
    let description = Runtime::Ruby.description();
    let has_name = |path: &Path| description.has_program(base_name(path.as_os_str().as_bytes()));
    let is_ruby = |path: &&Path| has_name(path) || without_links(path).is_ok_and(|path| has_name(&path));
    match program.filter(is_ruby) {
        Some(program) => Some(program.to_owned()),
        None if is_asked_for => None,
        None => find_program(OsStr::new("ruby"), &search_path()),
    }
}
