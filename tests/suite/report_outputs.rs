//! `jitinject report` of jitinject's own outputs.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::report::{rows, run};
use crate::support::{capture, inject, said, tools};

/// Returns the name, base name of the file, line and samples of each function of the language.
fn functions(profile: &Path, map: &str) -> Vec<[String; 5]> {
    let ran = run(&[
        "report",
        "--json",
        "-n",
        "0",
        "--path-map",
        map,
        tools::text(profile),
    ]);
    assert!(ran.status.success(), "{}", said(&ran));
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let of_language = rows(&report).iter().filter(|row| row["kind"] == "language");
    let mut found: Vec<_> = of_language
        .map(|row| {
            let file = row["file"].as_str().unwrap_or_default();
            assert!(!file.contains(".elf/sources/"), "{file}");
            let name = file.rsplit(['/', ':']).next().unwrap_or_default();
            [
                row["name"].to_string(),
                name.to_owned(),
                row["line"].to_string(),
                row["self"].to_string(),
                row["total"].to_string(),
            ]
        })
        .collect();
    found.sort_unstable();
    found
}

fn map() -> String {
    format!("/tmp/cap-node20={}", capture::folder("node20").display())
}

/// Code in files of `/dev/shm` is that of runtimes.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Lines and inlined calls have the paths that options give them, names of functions those that were recorded.
#[test]
fn a_function_of_an_output_is_one_row_whatever_paths_its_lines_have() {
    let (folder, map) = (folder(), map());
    let (profile, output) = (capture::profile("node20"), folder.path().join("out.data"));
    let recorded = functions(&profile, &map);
    assert!(recorded.len() > 10, "{recorded:?}");
    for keep in [&[][..], &["--keep-sources"]] {
        inject(&profile, &output, &[&["--path-map", &map][..], keep].concat());
        assert_eq!(functions(&output, &map), recorded, "{keep:?}");
    }
}

/// Objects of functions without code have names alone.
#[test]
fn functions_of_a_perf_map_have_their_names_in_an_output() {
    let (folder, map) = (folder(), map());
    let (profile, output) = (capture::profile("mono-map"), folder.path().join("out.data"));
    let recorded = functions(&profile, &map);
    assert!(recorded.len() > 5, "{recorded:?}");
    inject(&profile, &output, &[]);
    assert_eq!(functions(&output, &map), recorded);
}

#[test]
fn objects_and_lists_of_sources_are_found_beside_an_output_that_was_moved() {
    let (folder, map) = (folder(), map());
    let at = |name: &str| folder.path().join(name);
    let profile = capture::profile("node20");
    fs::create_dir(at("old")).unwrap();
    inject(
        &profile,
        &at("old/out.data"),
        &["--path-map", &map, "--keep-sources"],
    );
    fs::rename(at("old"), at("new")).unwrap();
    assert_eq!(functions(&at("new/out.data"), &map), functions(&profile, &map));
    fs::remove_dir_all(at("new/out.data.elf")).unwrap();
    let ran = run(&["report", tools::text(&at("new/out.data"))]);
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(
        text.contains(".so  (no symbols: no file of its build found)"),
        "{text}"
    );
}
