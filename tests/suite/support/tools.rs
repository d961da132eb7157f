//! Other people's programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs a program. One that can't be started fails the test; its own exit status is not looked at, since
/// linters report through it.
fn output(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; scripts/test installs it"))
}

/// Runs a program and returns what it printed, standard error behind standard output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// Runs a program and returns what it printed on standard error.
pub fn errors(program: &str, arguments: &[&str]) -> String {
    String::from_utf8_lossy(&output(program, arguments).stderr).into_owned()
}

/// Runs a program that must have nothing to say on standard error, and returns what it printed.
pub fn checked(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{program} {arguments:?}: {}: {errors}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Compiles a C# program of `programs/`.
pub fn compile_for_mono(folder: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/suite/programs")
        .join(name);
    let program = folder.join("program.exe");
    let out = format!("-out:{}", text(&program));
    let said = run("mcs", &["-optimize+", &out, text(&source)]);
    assert!(program.exists(), "{said}");
    program
}

/// Compiles a program of `programs/`.
pub fn compile(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/suite/programs")
        .join(name);
    let program = folder.join("program");
    let mut arguments = vec!["-O1", "-g", "-fno-omit-frame-pointer", "-Wall", "-Werror"];
    arguments.extend(["-o", text(&program), text(&source)]);
    arguments.extend_from_slice(more);
    let said = run("cc", &arguments);
    assert!(program.exists(), "{said}");
    program
}
