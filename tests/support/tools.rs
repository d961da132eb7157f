//! Runs other programs. Only exit status and standard output are checked, because standard error differs between
//! machines.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs a program, whatever its exit status. Panics if it cannot be started.
pub fn output(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; scripts/test installs it"))
}

/// Runs a program, which must succeed; returns its standard output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a linter, which may report on either output; returns the whole report.
pub fn report(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// Runs a program and returns its standard error.
pub fn errors(program: &str, arguments: &[&str]) -> String {
    String::from_utf8_lossy(&output(program, arguments).stderr).into_owned()
}

/// Adds a program that everybody can run. Another process writes it: children that other tests start at that moment
/// would inherit our file, and no program can be started while it is open for writing.
pub fn add_program(path: &Path, content: &[u8]) {
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin", text(path)])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    install.stdin.take().unwrap().write_all(content).unwrap();
    assert!(install.wait().unwrap().success(), "{}", path.display());
}

/// Adds a copy of a program, as `add_program` does.
pub fn copy_program(source: &str, path: &Path) {
    run("install", &["-m", "755", source, text(path)]);
}

/// Converts a path to an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/external/programs")
        .join(name)
}

/// Compiles a C# program of `programs/`.
pub fn compile_for_mono(folder: &Path, name: &str) -> PathBuf {
    let program = folder.join("program.exe");
    let out = format!("-out:{}", text(&program));
    run("mcs", &["-optimize+", &out, text(&source(name))]);
    program
}

/// Compiles a program of `programs/`.
pub fn compile(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let frame_pointers = ["-g", "-fno-omit-frame-pointer"];
    let program = folder.join("program");
    compile_to(&program, name, &[&frame_pointers, more].concat());
    program
}

/// Compiles a program or library of `programs/` with these options.
pub fn compile_to(output: &Path, name: &str, options: &[&str]) {
    let source = source(name);
    let fixed = ["-O1", "-Wall", "-Werror", "-o", text(output), text(&source)];
    run("cc", &[&fixed, options].concat());
}

/// Moves the symbols and debug information of a program or library to a file in a debuginfod cache.
pub fn separate_debug_file(program: &Path, debug_files: &Path) {
    let notes = run("readelf", &["-nW", text(program)]);
    let build_id = notes.split("Build ID: ").nth(1).unwrap().lines().next().unwrap();
    let debug_file = debug_files.join(build_id).join("debuginfo");
    std::fs::create_dir_all(debug_file.parent().unwrap()).unwrap();
    run(
        "objcopy",
        &["--only-keep-debug", text(program), text(&debug_file)],
    );
    run("strip", &[text(program)]);
}
