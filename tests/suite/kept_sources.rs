//! `--keep-sources`: copies of the source files that lines name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::recording::Recording;
use crate::support::reports::{inject_with_summary, only, reports};
use crate::support::{codes, jitinject, objects_of, said, scratch, symbolizer, tools};

/// Returns the folder of sources of a recording, and the stored files by name. Checks the list with sha256sum.
fn stored(recording: &Recording) -> (PathBuf, Vec<(String, PathBuf)>) {
    let mut folder = recording.output.clone().into_os_string();
    folder.push(".elf/sources");
    let folder = PathBuf::from(folder);
    let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, lists): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let [list] = &lists[..] else { panic!("{lists:?}") };
    let checked = Command::new("sha256sum")
        .args(["--strict", "-c", tools::text(list)])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(
        checked.stdout.split(|&byte| byte == b'\n').count(),
        folders.len() + 1
    );
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for folder in folders {
        let file = fs::read_dir(folder).unwrap().next().unwrap().unwrap();
        files.push((file.file_name().into_string().unwrap(), file.path()));
    }
    files.sort();
    (folder, files)
}

#[test]
fn files_that_lines_name_are_copied_and_referred_to() {
    let recording = Recording::new();
    let at = |name: &str| recording.folder.path().join(name);
    fs::create_dir(at("lib")).unwrap();
    fs::write(at("app.js"), "app();\n").unwrap();
    fs::write(at("lib/app.js"), "lib();\n").unwrap();
    fs::write(at("relative.js"), "relative();\n").unwrap();
    let (app, lib) = (at("app.js"), at("lib/app.js"));
    recording.name_files(&[&app, &lib, Path::new("relative.js"), &at("absent.js")]);
    let folder = recording.folder.path();
    let options = ["--keep-sources", "--source-dir", tools::text(folder)];
    let (said, summary) = inject_with_summary(&recording.profile, &recording.output, &options);
    assert_eq!(codes(&said), [""; 0], "{said}");
    assert_eq!(only(&summary, "JI267")["count"], 1);
    let (folder, files) = stored(&recording);
    assert_eq!(files.len(), 3);
    // The line table leads to the copies.
    let objects = objects_of(&recording.output);
    let object = objects
        .iter()
        .find(|path| path.extension().is_some_and(|it| it == "so"));
    let shown: Vec<String> = symbolizer::sites(object.unwrap(), &[0x40, 0x41, 0x42, 0x43])
        .iter()
        .map(|chain| chain[0].file.clone())
        .collect();
    let copies = shown[..3].iter().map(|path| fs::read_to_string(path).unwrap());
    assert_eq!(
        copies.collect::<Vec<_>>(),
        ["app();\n", "lib();\n", "relative();\n"]
    );
    assert!(Path::new(&shown[0]).starts_with(&folder));
    assert_eq!(shown[3], tools::text(&at("absent.js")));
    // A second run without the option removes them.
    recording.inject(&[]);
    assert!(!folder.exists());
}

#[test]
fn what_is_no_text_or_too_large_stays_where_it_is() {
    let recording = Recording::new();
    let at = |name: &str| recording.folder.path().join(name);
    fs::write(at("app.js"), "app();\n").unwrap();
    fs::write(at("key"), b"secret\0").unwrap();
    fs::File::create(at("large.js"))
        .unwrap()
        .set_len(40 << 20)
        .unwrap();
    symlink("app.js", at("link.js")).unwrap();
    tools::run("mkfifo", &[tools::text(&at("fifo"))]);
    let hostile = at("../".repeat(20).as_str()).join("dev/zero");
    let files = ["app.js", "key", "large.js", "link.js", "fifo"].map(at);
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).chain([&*hostile]).collect();
    recording.name_files(&files);
    let said = recording.inject(&["--keep-sources"]);
    assert!(reports(&said, "JI268", "1 source file "), "{said}");
    assert!(reports(&said, "JI269", "3 source files "), "{said}");
    let (_, files) = stored(&recording);
    let names: Vec<&str> = files.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["app.js", "link.js"]);
}

#[test]
fn links_of_proc_and_paths_out_of_reach_are_not_followed() {
    let recording = Recording::new();
    let elsewhere = scratch();
    let (app, secret) = (
        recording.folder.path().join("app.js"),
        elsewhere.path().join("secret"),
    );
    fs::write(&app, "app();\n").unwrap();
    fs::write(&secret, "secret\n").unwrap();
    let names = |files: &[(String, PathBuf)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();

    // Such a link may lead into the mounts of a process, whatever the path looks like from here.
    let by_proc = Path::new("/proc/self/root").join(secret.strip_prefix("/").unwrap());
    recording.name_files(&[&app, &by_proc]);
    let said = recording.inject(&["--keep-sources"]);
    assert!(reports(&said, "JI269", "1 source file "), "{said}");
    assert_eq!(names(&stored(&recording).1), ["app.js"]);

    recording.name_files(&[&app, &secret]);
    recording.inject(&["--keep-sources"]);
    assert_eq!(names(&stored(&recording).1), ["app.js", "secret"]);
    recording.inject(&["--keep-sources", "--confine"]);
    assert_eq!(names(&stored(&recording).1), ["app.js"]);
    // Folders that the user names are in reach.
    let map = format!("/elsewhere={}", elsewhere.path().display());
    recording.name_files(&[&app, Path::new("/elsewhere/secret")]);
    recording.inject(&["--keep-sources", "--confine", "--path-map", &map]);
    assert_eq!(names(&stored(&recording).1), ["app.js", "secret"]);
}

#[test]
fn lists_that_are_too_large_are_reported() {
    let recording = Recording::new();
    let app = recording.folder.path().join("app.js");
    fs::write(&app, "app();\n").unwrap();
    recording.name_files(&[&app]);
    let sources = recording.folder.path().join("perf.jit.data.elf/sources");
    fs::create_dir_all(&sources).unwrap();
    let list = fs::File::create(sources.join("SHA256SUMS-0123456789ab")).unwrap();
    list.set_len((16 << 20) + 1).unwrap();
    let (profile, page) = (
        tools::text(&recording.profile),
        recording.folder.path().join("page.html"),
    );
    for options in [
        &["report", profile, "named"][..],
        &["timeline", "--sources", "-o", tools::text(&page), profile],
    ] {
        let ran = jitinject().args(options).output().unwrap();
        let said = said(&ran);
        assert!(reports(&said, "JI278", "1 list of kept source files"), "{said}");
    }
}
