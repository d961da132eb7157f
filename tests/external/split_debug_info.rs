//! Debug information in more than one file: `.dwo` files, packages of them, supplementary files (`dwz -m`).

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::other_users::{give_away, has_users};
use crate::support::{has_code, jitinject, said, scratch, tools};

/// All builds have the same code, and by their build ID are the one that was recorded.
const BUILD_ID: &str = "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567";

fn compile(program: &Path, options: &[&str]) {
    tools::compile_to(program, "inlined.c", &[&["-g", BUILD_ID], options].concat());
}

/// Records a run of the program.
fn record(program: &Path, profile: &Path) {
    let recording = ["record", "-q", "-N", "-e", "cpu-clock:u", "-F", "499", "-o"];
    let program_run = [tools::text(profile), tools::text(program), "100000000"];
    let recorded = Command::new("perf").args(recording).args(program_run).status();
    let recorded = recorded.unwrap_or_else(|error| panic!("perf: {error}; scripts/test installs it"));
    assert!(recorded.success());
}

fn report(profile: &Path, by: &str) -> String {
    let arguments = [
        "report",
        "--json",
        "-n",
        "0",
        "--by",
        by,
        "-i",
        tools::text(profile),
    ];
    let ran = jitinject().args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn lines_and_inlined_calls_are_read_from_all_files_of_a_program() {
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name);
    let (program, profile) = (path("program"), path("perf.data"));
    compile(&program, &[]);
    record(&program, &profile);
    let reports = || ["function", "line"].map(|by| report(&profile, by));
    let expected = reports();
    for name in ["mix", "twice", "spin"] {
        assert!(expected[0].contains(&format!("\"{name}\"")), "{}", expected[0]);
    }

    for version in ["-gdwarf-4", "-gdwarf-5"] {
        std::fs::remove_file(&program).unwrap();
        compile(&program, &[version, "-gsplit-dwarf"]);
        assert_eq!(reports(), expected, "{version}");
        let unit = path("program-inlined.dwo");
        if version == "-gdwarf-4" {
            let package = path("program.dwp");
            tools::run("llvm-dwp", &["-o", tools::text(&package), tools::text(&unit)]);
            std::fs::rename(&unit, path("elsewhere.dwo")).unwrap();
            assert_eq!(reports(), expected, "a package");
            std::fs::remove_file(&package).unwrap();
            assert_ne!(reports(), expected, "missing");
        } else {
            // A unit of another build has another ID.
            std::fs::rename(path("elsewhere.dwo"), &unit).unwrap();
            assert_ne!(reports(), expected, "another build");
        }
    }

    let [other, shared] = ["other", "shared"].map(path);
    for written in ["shared", tools::text(&shared)] {
        std::fs::remove_file(&program).unwrap();
        compile(&program, &[]);
        std::fs::copy(&program, &other).unwrap();
        let moved = ["-m", tools::text(&shared), "-M", written];
        tools::run(
            "dwz",
            &[&moved[..], &[tools::text(&program), tools::text(&other)]].concat(),
        );
        assert_eq!(reports(), expected, "{written}");
        std::fs::remove_file(&shared).unwrap();
        assert_ne!(reports(), expected, "{written}, missing");
    }
}

/// Their IDs can be read by everybody.
#[test]
fn files_of_strangers_in_a_sticky_folder_have_no_lines() {
    if !has_users(
        module_path!(),
        "files_of_strangers_in_a_sticky_folder_have_no_lines",
    ) {
        return;
    }
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name);
    let (program, profile) = (path("program"), path("perf.data"));
    compile(&program, &["-gsplit-dwarf"]);
    record(&program, &profile);
    std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o1777)).unwrap();
    let ran = |options: &[&str]| {
        let arguments = ["report", "-n", "0", "-i", tools::text(&profile)];
        let ran = jitinject().args(arguments).args(options).output().unwrap();
        assert!(ran.status.success(), "{}", said(&ran));
        let has_lines = String::from_utf8_lossy(&ran.stdout).contains("inlined.c");
        (has_lines, has_code(&said(&ran), "JI208"))
    };
    assert_eq!(ran(&[]), (true, false));
    give_away(&path("program-inlined.dwo"));
    assert_eq!(ran(&[]), (false, true));
    assert_eq!(ran(&["-f"]), (true, false));
    give_away(&program);
    assert_eq!(ran(&[]), (true, false), "both are the stranger's");
}
