//! The C example, compiled and run: on a file, and on a process that has mapped one.

// Tests fail by panicking.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Name by which programs look for the library.
const SONAME: &str = "libjitinject_c.so.1";

/// A program that maps its argument as runtimes map their jitdumps, prints its PID, and waits for the end of its input.
const MAPPER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int file = open(argv[1], O_RDONLY);
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) return 1;
    printf("%d\n", getpid());
    fflush(stdout);
    char byte;
    return read(0, &byte, 1) > 0;
}
"#;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn compile(source: &Path, output: &Path, more: &[&str]) {
    let mut compiler = Command::new("cc");
    compiler
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(output)
        .arg(source)
        .args(more);
    assert!(compiler.status().unwrap().success(), "{compiler:?}");
}

/// Builds the library, which tests of a package don't do by themselves if it is not for Rust, and returns its folder.
fn library_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // TARGET/debug/deps/c_example-…
        let test = std::env::current_exe().unwrap();
        let folder = test.ancestors().nth(2).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--quiet",
            "--locked",
            "-p",
            "jitinject-c",
            "--target-dir",
        ]);
        cargo.arg(folder.parent().unwrap()).current_dir(package());
        assert!(cargo.status().unwrap().success(), "{cargo:?}");
        // As a package has it.
        let _ = std::fs::remove_file(folder.join(SONAME));
        std::os::unix::fs::symlink("libjitinject_c.so", folder.join(SONAME)).unwrap();
        folder.to_owned()
    })
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", library_folder());
    command.output().unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the last function of a little-endian jitdump with this text in its name: address, and name.
fn function(dump: &[u8], text: &str) -> (u64, String) {
    let word = |at: usize| u32::from_le_bytes(dump[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (40, None);
    while at + 16 < dump.len() {
        let size = word(at + 4) as usize;
        if word(at) == 0 {
            let address = u64::from_le_bytes(dump[at + 32..at + 40].try_into().unwrap());
            let name = dump[at + 56..].split(|&byte| byte == 0).next().unwrap();
            let name = String::from_utf8(name.to_vec()).unwrap();
            if name.contains(text) {
                found = Some((address, name));
            }
        }
        at += size;
    }
    found.unwrap()
}

#[test]
fn the_c_example_answers_for_files_and_processes() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("symbolize");
    let include = format!("-I{}", package().join("include").to_str().unwrap());
    let library = format!("-L{}", library_folder().to_str().unwrap());
    compile(
        &package().join("examples/symbolize.c"),
        &program,
        &[&include, &library, "-ljitinject_c"],
    );
    let needed = format!("\0{SONAME}\0").into_bytes();
    let linked = std::fs::read(&program).unwrap();
    assert!(
        linked.windows(needed.len()).any(|bytes| bytes == needed),
        "another major version may be installed beside it"
    );
    let dump = package().join("../testdata/node20/jit-11682.dump");
    let (address, name) = function(&std::fs::read(&dump).unwrap(), "JS:*");
    let wanted = format!("{:#x}", address + 4);
    let text = printed(&run(&program, &[dump.to_str().unwrap(), &wanted]));
    assert!(text.starts_with(&format!("{name}+0x4, there since ")), "{text}");
    assert!(text.lines().nth(1).unwrap().contains("work.js:"), "{text}");
    assert!(
        !run(&program, &[dump.to_str().unwrap(), &wanted, "1"])
            .status
            .success(),
        "before its load"
    );

    let copy = folder.path().join("jit-1.dump");
    std::fs::copy(&dump, &copy).unwrap();
    let (source, mapper) = (folder.path().join("mapper.c"), folder.path().join("mapper"));
    std::fs::write(
        &source,
        MAPPER.replace("int argc, char", "int argc __attribute__((unused)), char"),
    )
    .unwrap();
    compile(&source, &mapper, &[]);
    let mut mapper = Command::new(&mapper)
        .arg(&copy)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut pid, mut byte) = (String::new(), [0]);
    let mut output = mapper.stdout.take().unwrap();
    while output.read(&mut byte).unwrap() > 0 && byte != *b"\n" {
        pid.push(byte[0].into());
    }
    assert_eq!(printed(&run(&program, &[&pid, &wanted])), text);
    drop(mapper.stdin.take());
    assert!(mapper.wait().unwrap().success());

    // Not a jitdump, no file, not a regular one, and a process that no Linux has.
    for (given, reason) in [
        (source.to_str().unwrap(), "mapper.c: not a jitdump"),
        ("/nowhere/jit-1.dump", "No such file or directory"),
        ("/dev/null", "Invalid argument"),
        ("8388608", "/proc/8388608/maps: cannot be read"),
    ] {
        let refused = run(&program, &[given, "1"]);
        assert_eq!(refused.status.code(), Some(1));
        let message = String::from_utf8(refused.stderr).unwrap();
        assert!(
            message.starts_with("error: ") && message.contains(reason),
            "{message}"
        );
    }
}

/// The header in the repository has every function and no other.
#[test]
fn the_header_is_that_of_the_library() {
    let names = |text: &str, before: &str| {
        let names = text.split(before).skip(1);
        let mut names: Vec<String> = names
            .filter_map(|rest| Some(rest.split_once('(')?.0.to_owned()))
            .filter(|name| {
                name.chars()
                    .all(|character| character.is_ascii_lowercase() || character == '_')
            })
            .collect();
        names.sort();
        names
    };
    let library = std::fs::read_to_string(package().join("src/lib.rs")).unwrap();
    let header = std::fs::read_to_string(package().join("include/jitinject.h")).unwrap();
    let exported = names(&library, "extern \"C\" fn jitinject_");
    let declarations: String = header
        .lines()
        .filter(|line| line.contains("jitinject_") && !line.starts_with(' '))
        .collect::<Vec<_>>()
        .join("\n");
    let declared = names(&declarations.replace(['*', ' '], "\n"), "\njitinject_");
    assert_eq!(exported.len(), 8);
    assert_eq!(declared, exported);
}
