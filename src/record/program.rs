//! Which runtime a command starts, by the name of its program, its links and its first line.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, getxattr, statvfs};
use rustix::process::{getegid, geteuid};

use crate::bytes::base_name;
use crate::files::kernel;
use crate::files::search::without_links;
use crate::runtimes::Runtime;

/// The program in a command.
#[derive(PartialEq, Eq, Debug)]
pub struct CommandProgram {
    /// Its index in the command, which is not 0 if `env` starts it.
    pub index: usize,
    /// The runtime that it is or starts, if that is known.
    pub runtime: Option<Runtime>,
    /// Whether it is the runtime itself, and not a script or launcher that starts it.
    pub is_runtime: bool,
    /// The file of the runtime: that of the program, or of its interpreter; `None` if there is none.
    pub file: Option<PathBuf>,
}

/// Returns the program that a command starts, and its runtime by the first of these that tells: its name, that of the file that
/// it is a link to, and its first line if it is a script. `search_path` is the value of `PATH`.
pub fn program_of(command: &[OsString], search_path: &OsStr) -> CommandProgram {
    let mut words = command.iter().map(|word| word.as_bytes());
    let is_env = words.next().is_some_and(|word| base_name(word) == b"env");
    let index = if is_env { 1 + words_of_env(words) } else { 0 };
    let Some(name) = command.get(index) else {
        return CommandProgram {
            index: 0,
            runtime: None,
            is_runtime: false,
            file: None,
        };
    };
    let path = find_program(name, search_path);
    let target = path.as_ref().and_then(|path| without_links(path).ok());
    let interpreter = path.as_ref().and_then(|path| interpreter(path));
    let by_name = Runtime::of_program(base_name(name.as_bytes()));
    let by_link = || Runtime::of_program(base_name(target.as_ref()?.as_os_str().as_bytes()));
    let of_interpreter = interpreter
        .as_ref()
        .and_then(|path| Runtime::of_program(base_name(path)));
    // Looks for other files, so it comes last.
    let by_launcher = || is_java_launcher(target.as_ref()?).then_some(Runtime::Java);
    let runtime = by_name.or_else(by_link).or(of_interpreter).or_else(by_launcher);
    let has_program = |path: &OsStr| {
        let description = runtime.map(Runtime::description);
        description.is_some_and(|runtime| runtime.has_program(base_name(path.as_bytes())))
    };
    CommandProgram {
        index,
        runtime,
        is_runtime: has_program(name) || target.as_ref().is_some_and(|path| has_program(path.as_os_str())),
        file: match &interpreter {
            // Not that of a script which starts the runtime.
            Some(name) if of_interpreter.is_some() => find_program(OsStr::from_bytes(name), search_path),
            _ => path.clone(),
        },
    }
}

/// Whether a program is one of a JDK: beside its folder is the library that starts the virtual machine.
fn is_java_launcher(program: &Path) -> bool {
    const LIBRARIES: [&str; 2] = ["lib/libjli.so", "lib/jli/libjli.so"];
    let jdk = program.parent().and_then(Path::parent);
    jdk.is_some_and(|jdk| LIBRARIES.iter().any(|library| jdk.join(library).is_file()))
}

/// Returns the value of `PATH`.
pub fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// Returns the path of a program: `name` itself if it has a slash, or else the first one in the folders of `search_path`.
/// `None` if there is none that can be executed.
pub fn find_program(name: &OsStr, search_path: &OsStr) -> Option<PathBuf> {
    let is_executable = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(is_executable);
    }
    std::env::split_paths(search_path)
        .map(|folder| folder.join(name))
        .find(is_executable)
}

/// Returns why the kernel ends a user's recording when a program is executed, if it does: the program must not get more
/// rights than the user, and must be readable (`begin_new_exec` in the kernel's `fs/exec.c`). `search_path` is the value of
/// `PATH`.
pub fn ends_recording(path: &Path, search_path: &OsStr) -> Option<&'static str> {
    if let Some(name) = interpreter(path) {
        let program = find_program(OsStr::from_bytes(&name), search_path)?;
        return ends_recording_of_user(&program, geteuid().as_raw());
    }
    ends_recording_of_user(path, geteuid().as_raw())
}

/// Returns why the kernel ends a recording of this user when the program starts, if it does.
fn ends_recording_of_user(program: &Path, user: u32) -> Option<&'static str> {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2010;
    let found = program.metadata().ok()?;
    let is_set = |bits: u32| found.mode() & bits == bits;
    let changes_user = is_set(SET_USER) && found.uid() != user;
    let changes_group = is_set(SET_GROUP) && found.gid() != getegid().as_raw();
    // Root has all capabilities anyway.
    let has_capabilities =
        || user != 0 && getxattr(program, "security.capability", &mut [0u8; 64][..]).is_ok();
    let gives_rights = !is_without_new_rights(program);
    if gives_rights && (changes_user || changes_group) {
        Some("it runs with the rights of another user or group")
    } else if gives_rights && has_capabilities() {
        Some("it has capabilities of its own")
    } else {
        access(program, Access::READ_OK)
            .is_err()
            .then_some("it is not readable")
    }
}

/// Whether programs get no more rights than the user, by a mount option or a property of this process.
fn is_without_new_rights(program: &Path) -> bool {
    kernel::own_bits("NoNewPrivs") == 1
        || statvfs(program).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NOSUID))
}

/// Returns the name of the user who runs this program with `sudo` as root.
pub fn user_of_sudo() -> Option<OsString> {
    let is_other = std::env::var_os("SUDO_UID").is_some_and(|user| user != "0");
    std::env::var_os("SUDO_USER").filter(|_| geteuid().is_root() && is_other)
}

/// Returns the interpreter in the first line of a script: its path, or its name if `env` looks for it. `None` if the kernel
/// runs none.
#[expect(clippy::disallowed_methods, reason = "the user named it")]
fn interpreter(path: &Path) -> Option<Vec<u8>> {
    /// Size of the kernel's buffer (`BINPRM_BUF_SIZE`). If the line does not end in it, its last byte and what follows is cut
    /// off. A script whose interpreter path is cut off is not executed.
    const BUFFER_SIZE: usize = 256;
    let mut start = Vec::new();
    File::open(path)
        .ok()?
        .take(BUFFER_SIZE as u64)
        .read_to_end(&mut start)
        .ok()?;
    let text = start.strip_prefix(b"#!")?;
    let line = text.split(|&byte| byte == b'\n').next()?;
    let is_cut = start.len() == BUFFER_SIZE && line.len() == text.len();
    let (last, cut_line) = line.split_last()?;
    let line = if is_cut { cut_line } else { line };
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let mut word = words.next()?;
    let is_last = words.clone().next().is_none() && line.ends_with(word);
    if is_cut && is_last && !matches!(last, b' ' | b'\t' | 0) {
        return None;
    }
    if base_name(word) == b"env" {
        let own = words_of_env(words.clone());
        word = words.nth(own)?;
    }
    Some(word.to_owned())
}

/// Returns how many words behind `env` are its options and variables. The program follows.
fn words_of_env<'a>(words: impl Iterator<Item = &'a [u8]>) -> usize {
    let mut is_value = false;
    let is_own = |word: &&[u8]| {
        let is_option = word.starts_with(b"-");
        let is_own = is_value || is_option || word.contains(&b'=');
        is_value = !is_value && [&b"-u"[..], b"--unset", b"-C", b"--chdir"].contains(word);
        is_own
    };
    words.take_while(is_own).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_scripts_and_env_lead_to_the_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let write = |name: &str, text: &str| {
            fs::write(path.join(name), text).unwrap();
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("node", "\x7fELF");
        symlink("node", path.join("engine")).unwrap();
        write("tool", "#!/usr/bin/env -S node --no-warnings\n");
        write("serve", "#!/usr/bin/python3 -u\n");
        write("unset", "#!/usr/bin/env -S -u A B=1 node\n");
        write("run", "#!/bin/sh\nnode app.js\n");
        fs::create_dir_all(path.join("jdk/bin")).unwrap();
        fs::create_dir_all(path.join("jdk/lib")).unwrap();
        fs::write(path.join("jdk/lib/libjli.so"), "").unwrap();
        write("jdk/bin/jwebserver", "\x7fELF");
        symlink("jdk/bin/jwebserver", path.join("web")).unwrap();
        let found = |line: &str| {
            let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let program = program_of(&command, path.as_os_str());
            (program.index, program.runtime)
        };
        let is_runtime = |name: &str| program_of(&[name.into()], path.as_os_str()).is_runtime;
        assert_eq!(found("node app.js"), (0, Some(Runtime::Node)));
        assert_eq!(found("engine app.js"), (0, Some(Runtime::Node)));
        assert_eq!(found("tool"), (0, Some(Runtime::Node)));
        assert_eq!(found("serve"), (0, Some(Runtime::Python)));
        assert_eq!(found("unset"), (0, Some(Runtime::Node)));
        assert_eq!(found("run"), (0, None));
        assert_eq!(found("web -p 80"), (0, Some(Runtime::Java)));
        let tool = program_of(&["tool".into()], path.as_os_str());
        assert_eq!(tool.file.unwrap(), path.join("node"));
        assert_eq!(found("env A=1 B=2 node app.js"), (3, Some(Runtime::Node)));
        assert_eq!(
            found("env -i -u NODE_PATH A=1 node app.js"),
            (5, Some(Runtime::Node))
        );
        assert_eq!(found("env -u PATH"), (0, None));
        assert_eq!(
            ["node", "engine", "tool", "serve", "npm", "run"].map(is_runtime),
            [true, true, false, false, false, false]
        );
        assert_eq!(find_program(OsStr::new("absent"), path.as_os_str()), None);
    }

    #[test]
    fn programs_with_more_rights_than_the_user_end_a_recording() {
        let folder = tempfile::tempdir().unwrap();
        let (program, script) = (folder.path().join("tool"), folder.path().join("script"));
        fs::write(&script, "#!/usr/bin/env tool\n").unwrap();
        let ends = |mode, user| {
            fs::write(&program, "\x7fELF").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            ends_recording_of_user(&program, user)
        };
        let user = geteuid().as_raw();
        if !is_without_new_rights(&program) {
            let changed = Some("it runs with the rights of another user or group");
            assert_eq!(ends(0o4755, user + 1), changed);
        }
        assert_eq!(ends(0o4755, user), None);
        assert_eq!(ends(0o755, user + 1), None);
        assert_eq!(ends_recording(&script, folder.path().as_os_str()), None);
        // Root can read everything.
        if !geteuid().is_root() {
            assert_eq!(ends(0o311, user), Some("it is not readable"));
            let of_script = ends_recording(&script, folder.path().as_os_str());
            assert_eq!(of_script, Some("it is not readable"));
        }
    }

    #[test]
    fn the_first_line_of_a_script_is_read_as_far_as_the_kernel_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let found = |line: String| {
            fs::write(&script, line).unwrap();
            interpreter(&script).map(|found| String::from_utf8(found).unwrap())
        };
        for (size, expected) in [(255, "node"), (256, "nod")] {
            let width = size - "#!env".len();
            let line = format!("#!env{:>width$}\n", "node");
            assert_eq!(found(line).as_deref(), Some(expected), "{size}");
        }
        // A longer path is not executed.
        for (size, is_run) in [(255, true), (256, false)] {
            let path = format!("/{}", "n".repeat(size - "#!/".len()));
            let line = format!("#!{path} --option\n");
            assert_eq!(found(line), is_run.then_some(path), "{size}");
        }
    }
}
