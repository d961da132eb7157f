//! Whether a CPython was built with frame pointers, as 3.15 and some distributions are: perf then finds the callers of its
//! interpreter without copies of the stack.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::files::search::without_links;

/// Bytes that are read of a file with the settings of a build; they are some 60 KiB.
const MAX_SIZE: u64 = 1 << 20;

/// Returns whether the build of a program keeps frame pointers, by the file that `sysconfig` reads. `false` if that is not found.
pub fn has_frame_pointers(program: &Path) -> bool {
    let flags = without_links(program)
        .ok()
        .and_then(|program| settings_file(&program))
        .and_then(|file| compiler_flags(&file));
    let Some(flags) = flags else {
        return false;
    };
    // The last one counts.
    let kept = flags.rfind("-fno-omit-frame-pointer");
    kept.is_some() && kept > flags.rfind("-fomit-frame-pointer")
}

/// Returns the file with the settings of the build of a program such as `/usr/bin/python3.15`.
fn settings_file(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    let folders = ["lib", "lib64"].map(|lib| prefix.join(lib).join(program.file_name().unwrap_or_default()));
    let mut files = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    let is_settings = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        // That of debug builds has another prefix.
        name.starts_with(b"_sysconfigdata__") && name.ends_with(b".py")
    };
    files.by_ref().map(|entry| entry.path()).find(is_settings)
}

/// Returns the value of `CFLAGS`: a string, or several on lines of their own.
#[expect(
    clippy::disallowed_methods,
    reason = "a file of the program that the user named"
)]
/// Returns the flags with which CPython was compiled, from its file of settings.
fn compiler_flags(file: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(file)
        .ok()?
        .take(MAX_SIZE)
        .read_to_string(&mut text)
        .ok()?;
    let (_, value) = text.split_once("'CFLAGS': ")?;
    // The next setting.
    let end = value.find("',\n").unwrap_or(value.len());
    value.get(..end).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_flags_of_the_build_decide() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["bin", "lib/python3.15"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("bin/python3.15"), "").unwrap();
        symlink("python3.15", path("bin/python3")).unwrap();
        let settings = path("lib/python3.15/_sysconfigdata__linux_x86_64-linux-gnu.py");
        assert!(!has_frame_pointers(&path("bin/python3")));
        for (flags, expected) in [
            ("'-Wall -O3'", false),
            ("'-Wall -fno-omit-frame-pointer -O3'", true),
            (
                "'-Wall '\n           '-fno-omit-frame-pointer '\n           '-O3'",
                true,
            ),
            ("'-fno-omit-frame-pointer -fomit-frame-pointer'", false),
        ] {
            let other = "'OPT': '-fno-omit-frame-pointer -O3'";
            let text = format!("build_time_vars = {{'CC': 'gcc',\n 'CFLAGS': {flags},\n {other}}}\n");
            fs::write(&settings, text).unwrap();
            assert_eq!(has_frame_pointers(&path("bin/python3")), expected, "{flags}");
        }
    }

    #[test]
    fn settings_are_read_up_to_one_mebibyte() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.py");
        let setting = "'CFLAGS': '-O3";
        for (size, expected) in [(1 << 20, "'-O3"), ((1 << 20) + 1, "'-O")] {
            let others = " ".repeat(size - setting.len());
            fs::write(&file, others + setting).unwrap();
            assert_eq!(compiler_flags(&file).unwrap(), expected);
        }
    }
}
