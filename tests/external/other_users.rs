//! Files of other users, wherever jitinject reads or writes one.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::FUNCTION_LAYOUT;
use crate::support::recording::{NAMED, PID, Recording};
use crate::support::reports::line_of;
use crate::support::{
    attempt, capture, codes, has_code, inject, inject_into, objects_of, said, scratch, tools,
};

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A user other than root and the one who runs the tests. Only root can give them a file.
const STRANGER: u32 = 54_321;

pub fn give_away(path: &Path) {
    chown(path, Some(STRANGER), None).unwrap();
}

/// Returns whether a test that needs several users can run. If the user is not root, the test has been run by root
/// of a user namespace instead, with the user IDs from `/etc/subuid`.
pub fn has_users(module: &str, test: &str) -> bool {
    if is_root() {
        return true;
    }
    let test = format!("{}::{test}", module.split_once("::").unwrap().1);
    let ran = Command::new("unshare")
        .args(["--map-root-user", "--map-auto", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &test])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && printed.contains("1 passed"),
        "{test} needs several users: run it as root, or install newuidmap and add yourself to /etc/subuid and /etc/subgid: \
         {printed}{}",
        said(&ran)
    );
    false
}

/// Checks that a diagnostic, such as `warning[JI208]`, is about a file and contains the user ID of its owner.
fn assert_is_strangers(said: &str, diagnostic: &str, file: &Path) {
    let start = format!("jitinject: {diagnostic}: {}: ", file.display());
    let line = said.lines().find(|line| line.starts_with(&start));
    assert!(
        line.is_some_and(|line| line.contains(&STRANGER.to_string())),
        "{diagnostic}: {said}"
    );
}

#[test]
fn dumps_of_strangers_are_refused_unless_the_process_mapped_them() {
    if !has_users(
        module_path!(),
        "dumps_of_strangers_are_refused_unless_the_process_mapped_them",
    ) {
        return;
    }
    let recording = Recording::new();
    give_away(&recording.dump);
    let said = recording.inject(&[]);
    assert_is_strangers(&said, "warning[JI215]", &recording.dump);
    assert!(line_of(&said, "JI215").contains("(-f "), "{said}");
    assert!(recording.inject(&["-f"]).contains(NAMED));
    let named = recording.inject(&["--jitdump", tools::text(&recording.dump)]);
    assert!(named.contains(NAMED), "who names a file means it: {named}");

    // The very file that the process had mapped.
    let recording = Recording::with_mapped_file();
    give_away(&recording.dump);
    let said = recording.inject(&[]);
    assert!(said.contains(NAMED), "{said}");
    // A later file with the inode of that one.
    let created = fs::metadata(&recording.dump).unwrap().created().unwrap();
    let profile = fs::File::options().write(true).open(&recording.profile).unwrap();
    profile.set_modified(created - Duration::from_secs(60)).unwrap();
    let said = recording.inject(&[]);
    assert_is_strangers(&said, "warning[JI215]", &recording.dump);
    assert!(!said.contains(NAMED), "{said}");

    // The profile has the same owner, and -f was given.
    let recording = Recording::new();
    give_away(&recording.dump);
    give_away(&recording.profile);
    let ran = attempt(&recording.profile, &recording.output, &[]);
    let said = crate::support::said(&ran);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert_eq!(codes(&said), ["JI147"], "{said}");
    assert!(recording.inject(&["-f"]).contains(NAMED));
}

#[test]
fn perf_maps_of_strangers_are_refused() {
    if !has_users(module_path!(), "perf_maps_of_strangers_are_refused") {
        return;
    }
    let recording = Recording::new();
    fs::remove_file(&recording.dump).unwrap();
    let map = recording.folder.path().join(format!("perf-{PID}.map"));
    fs::write(&map, "40000000 40 named\n").unwrap();
    assert!(recording.inject(&[]).contains(NAMED));
    give_away(&map);
    let said = recording.inject(&[]);
    assert_is_strangers(&said, "warning[JI208]", &map);
    assert!(recording.inject(&["-f"]).contains(NAMED));
    assert!(
        recording
            .inject(&["--perf-map", tools::text(&map)])
            .contains(NAMED)
    );
}

/// A link counts as its owner's file, wherever in the path it is.
#[test]
fn links_of_strangers_are_theirs_wherever_they_lead() {
    if !has_users(module_path!(), "links_of_strangers_are_theirs_wherever_they_lead") {
        return;
    }
    type Plant = fn(&Path, &Path) -> PathBuf;
    // Links the file itself, and a directory in its path; each returns the link.
    let plants: [Plant; 2] = [
        |file, elsewhere| {
            fs::rename(file, elsewhere.join("file")).unwrap();
            symlink(elsewhere.join("file"), file).unwrap();
            file.to_owned()
        },
        |file, elsewhere| {
            let folder = file.parent().unwrap();
            fs::rename(file, elsewhere.join(file.file_name().unwrap())).unwrap();
            fs::remove_dir(folder).unwrap();
            symlink(elsewhere, folder).unwrap();
            folder.to_owned()
        },
    ];
    for plant in plants {
        for with_map in [false, true] {
            let recording = Recording::below("shared");
            let (file, name) = if with_map {
                let folder = recording.dump.parent().unwrap();
                fs::remove_file(&recording.dump).unwrap();
                let map = folder.join(format!("perf-{PID}.map"));
                fs::write(&map, "40000000 40 named\n").unwrap();
                (map, "--perf-map")
            } else {
                (recording.dump.clone(), "--jitdump")
            };
            let elsewhere = scratch();
            let link = plant(&file, elsewhere.path());
            let folder = [name, tools::text(file.parent().unwrap())];
            // Links of the user and of root are followed.
            let said = recording.inject(&folder);
            assert!(said.contains(NAMED), "{said}");
            std::os::unix::fs::lchown(&link, Some(STRANGER), None).unwrap();
            let said = recording.inject(&folder);
            // The warning about a missing dump has the reasons for all candidates.
            let diagnostic = if with_map {
                "warning[JI209]"
            } else {
                "warning[JI215]"
            };
            assert_is_strangers(&said, diagnostic, &file);
            assert!(!said.contains(NAMED), "{said}");
            assert!(recording.inject(&["-f", folder[0], folder[1]]).contains(NAMED));
            let named = recording.inject(&[name, tools::text(&file)]);
            assert!(named.contains(NAMED), "who names a file means it: {named}");
        }
    }
}

/// In a world-writable directory, a FIFO may have the name of the output, and another user may read from it.
#[test]
fn fifos_of_strangers_get_nothing() {
    if !has_users(module_path!(), "fifos_of_strangers_get_nothing") {
        return;
    }
    let folder = scratch();
    let fifo = folder.path().join("fifo");
    tools::run("mkfifo", &[tools::text(&fifo)]);
    give_away(&fifo);
    let mut reader = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&fifo)
        .unwrap();
    let input = capture::profile("php82");
    let ran = attempt(&input, &fifo, &[]);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_is_strangers(&said(&ran), "error[JI401]", &fifo);
    let output = folder.path().join("out.data");
    let ran = attempt(&input, &output, &["--summary", tools::text(&fifo)]);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_is_strangers(&said(&ran), "error[JI401]", &fifo);
    assert!(!output.exists());
    let mut received = Vec::new();
    // The FIFO has no writer, so this does not block.
    reader.read_to_end(&mut received).unwrap();
    assert!(received.is_empty());
}

/// In a world-writable directory, another user created links with all names first.
#[test]
fn links_planted_in_a_shared_folder_lead_nowhere() {
    if !has_users(module_path!(), "links_planted_in_a_shared_folder_lead_nowhere") {
        return;
    }
    let shared = scratch();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let victims = scratch();
    let victim = |name: &str| victims.path().join(name);
    let output = shared.path().join("out.data");
    let plant = |target: &Path, name: &str| {
        fs::write(target, "precious").unwrap();
        symlink(target, shared.path().join(name)).unwrap();
        std::os::unix::fs::lchown(shared.path().join(name), Some(STRANGER), None).unwrap();
    };
    plant(&victim("output"), "out.data");
    plant(&victim("summary"), "summary.json");
    // The shell has the PID of the program that it executes.
    const SCRIPT: &str = "
        for at in 0 1 2 3 4; do ln -s \"$1\" \"$2/.jitinject-$$-$at.tmp\"; done
        shift 2
        exec \"$@\"";
    fs::write(victim("temporary"), "precious").unwrap();
    let run = || {
        Command::new("sh")
            .args([
                "-c",
                SCRIPT,
                "sh",
                tools::text(&victim("temporary")),
                tools::text(shared.path()),
            ])
            .args([env!("CARGO_BIN_EXE_jitinject"), "--layout", "function", "-i"])
            .args([
                &capture::profile("php82"),
                Path::new("-o"),
                &output,
                Path::new("--summary"),
            ])
            .arg(shared.path().join("summary.json"))
            .output()
            .unwrap()
    };
    let ran = run();
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(!fs::symlink_metadata(&output).unwrap().is_symlink());
    assert_eq!(objects_of(&output).len(), 19);
    // A link instead of the directory for objects, or another user's file in it, is an error.
    let objects = shared.path().join("out.data.elf");
    fs::remove_dir_all(&objects).unwrap();
    fs::create_dir(victim("folder")).unwrap();
    symlink(victim("folder"), &objects).unwrap();
    let ran = run();
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    let error = format!("error[JI408]: {}: ", objects.display());
    assert!(said(&ran).contains(&error), "{}", said(&ran));
    assert_eq!(fs::read_dir(victim("folder")).unwrap().count(), 0);
    for name in ["output", "summary", "temporary"] {
        assert_eq!(fs::read(victim(name)).unwrap(), b"precious", "{name}");
    }
}

/// Copies go to where others may read them, so nobody else decides what is copied.
#[test]
fn sources_of_others_are_not_copied() {
    if !has_users(module_path!(), "sources_of_others_are_not_copied") {
        return;
    }
    let recording = Recording::with_mapped_file();
    let at = |name: &str| recording.folder.path().join(name);
    let private = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    let folder = at("objects");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let copies = || {
        let folders = fs::read_dir(folder.join("sources")).into_iter().flatten();
        let folders = folders
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir());
        let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
        let modes = files.map(|file| {
            let file = file.unwrap();
            (
                file.file_name().into_string().unwrap(),
                file.metadata().unwrap().mode() & 0o777,
            )
        });
        let modes: BTreeMap<String, u32> = modes.collect();
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        modes
    };
    let keep = ["--keep-sources", "--elf-dir", tools::text(&folder)];

    // A file that the process has mapped is believed, whoever it belongs to, but names no source.
    fs::write(at("public.js"), "let a;\n").unwrap();
    fs::write(at("secret.js"), "let b;\n").unwrap();
    private(&at("secret.js"));
    recording.name_files(&[&at("public.js"), &at("secret.js")]);
    let said = recording.inject(&keep);
    assert!(said.contains(NAMED), "{said}");
    let expected = [("public.js".to_owned(), 0o644), ("secret.js".to_owned(), 0o600)];
    assert_eq!(copies(), BTreeMap::from(expected));
    give_away(&recording.dump);
    let said = recording.inject(&keep);
    assert!(said.contains(NAMED) && has_code(&said, "JI273"), "{said}");
    assert_eq!(copies(), BTreeMap::new());
    chown(&recording.dump, Some(0), None).unwrap();

    // Links of others, and private files in their folders, where they could be hard links.
    let theirs = at("theirs");
    fs::create_dir(&theirs).unwrap();
    symlink(at("public.js"), theirs.join("link.js")).unwrap();
    std::os::unix::fs::lchown(theirs.join("link.js"), Some(STRANGER), None).unwrap();
    for name in ["public.js", "secret.js"] {
        fs::hard_link(at(name), theirs.join(name)).unwrap();
    }
    give_away(&theirs);
    recording.name_files(
        &["link.js", "public.js", "secret.js"]
            .map(|name| theirs.join(name))
            .each_ref()
            .map(|path| &**path),
    );
    let said = recording.inject(&keep);
    assert!(line_of(&said, "JI269").contains("2 source files "), "{said}");
    assert_eq!(copies(), BTreeMap::from([("public.js".to_owned(), 0o644)]));
}

/// Another user's files in a sticky directory are not replaced, and the message is about that.
#[test]
fn another_users_files_in_a_sticky_folder_stay() {
    if !has_users(module_path!(), "another_users_files_in_a_sticky_folder_stay") {
        return;
    }
    let folder = scratch();
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    for path in [folder.path(), &shared] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o1777)).unwrap();
    }
    let program = folder.path().join("jitinject");
    tools::copy_program(env!("CARGO_BIN_EXE_jitinject"), &program);
    let input = folder.path().join("perf.data");
    fs::copy(capture::profile("php82"), &input).unwrap();
    fs::copy(
        capture::folder("php82").join("jit-26234.dump"),
        folder.path().join("jit-26234.dump"),
    )
    .unwrap();
    for file in ["perf.data", "jit-26234.dump"] {
        fs::set_permissions(folder.path().join(file), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let run = |output: &Path| {
        Command::new("setpriv")
            .args(["--reuid", "54321", "--regid", "54321", "--clear-groups"])
            .args([&program, Path::new("-i"), &input, Path::new("-o"), output])
            .args(FUNCTION_LAYOUT)
            .output()
            .unwrap()
    };
    let mine = shared.join("mine.data");
    assert!(run(&mine).status.success(), "{}", said(&run(&mine)));
    // the profile belongs to root
    let output = shared.join("out.data");
    fs::write(&output, "root's").unwrap();
    let ran = run(&output);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_eq!(fs::read(&output).unwrap(), b"root's");
    assert!(
        !shared.join("out.data.elf").exists(),
        "objects without their profile"
    );
    // the directory belongs to root
    fs::remove_file(&output).unwrap();
    inject_into(&shared, &input, &[]);
    fs::remove_file(&output).unwrap();
    let ran = run(&output);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(!output.exists());
    assert_eq!(objects_of(&output).len(), 19);
    let left: Vec<_> = fs::read_dir(&shared)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

/// Whoever can open a folder can lock it.
#[test]
fn folders_locked_by_strangers_are_used_without_a_lock() {
    if !has_users(
        module_path!(),
        "folders_locked_by_strangers_are_used_without_a_lock",
    ) {
        return;
    }
    let folder = scratch();
    let objects = folder.path().join("objects");
    fs::create_dir(&objects).unwrap();
    for path in [folder.path(), &objects] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut stranger = Command::new("setpriv")
        .args(["--reuid", "54321", "--regid", "54321", "--clear-groups"])
        .args(["flock", "--exclusive", "--no-fork", tools::text(&objects)])
        .args(["sh", "-c", "echo locked; exec sleep 600"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut locked = [0; 6];
    stranger.stdout.as_mut().unwrap().read_exact(&mut locked).unwrap();
    let output = folder.path().join("out.data");
    let ran = Command::new("timeout")
        .args(["300", env!("CARGO_BIN_EXE_jitinject"), "-v", "--elf-dir"])
        .args([&objects, Path::new("-o"), &output, Path::new("-i")])
        .arg(capture::profile("php82"))
        .args(FUNCTION_LAYOUT)
        .output()
        .unwrap();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let said = said(&ran);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    assert!(
        said.contains(&format!("note[JI431]: {}: ", objects.display())),
        "{said}"
    );
    assert_eq!(fs::read_dir(&objects).unwrap().count(), 19);
}

/// A file of another user may have the same bytes now, and others later.
#[test]
fn objects_of_strangers_are_replaced_in_shared_folders() {
    if !has_users(
        module_path!(),
        "objects_of_strangers_are_replaced_in_shared_folders",
    ) {
        return;
    }
    let folder = scratch();
    let objects = folder.path().join("objects");
    let (input, output) = (capture::profile("php82"), folder.path().join("out.data"));
    let more = ["--elf-dir", tools::text(&objects)];
    inject(&input, &output, &more);
    let mut all: Vec<PathBuf> = fs::read_dir(&objects)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    all.sort();
    let [theirs, writable, linked, own, ..] = &all[..] else {
        panic!("{all:?}")
    };
    give_away(theirs);
    fs::set_permissions(writable, fs::Permissions::from_mode(0o666)).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(linked, &elsewhere).unwrap();
    symlink(&elsewhere, linked).unwrap();
    let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
    let before = [theirs, writable, linked, own].map(|path| inode(path));
    inject(&input, &output, &more);
    let is_replaced = [theirs, writable, linked, own].map(|path| inode(path));
    let is_replaced = [0, 1, 2, 3].map(|at| is_replaced[at] != before[at]);
    assert_eq!(is_replaced, [true, true, true, false]);
    for path in [theirs, writable, linked] {
        let found = fs::symlink_metadata(path).unwrap();
        assert!(
            found.is_file() && found.uid() == 0 && found.mode() & 0o022 == 0,
            "{path:?}"
        );
    }

    // A user cannot replace them in a sticky folder.
    fs::set_permissions(&objects, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    give_away(theirs);
    let program = folder.path().join("jitinject");
    tools::copy_program(env!("CARGO_BIN_EXE_jitinject"), &program);
    for file in ["perf.data", "jit-26234.dump"] {
        let copy = folder.path().join(file);
        fs::copy(capture::folder("php82").join(file), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let users = folder.path().join("user.data");
    let ran = Command::new("setpriv")
        .args(["--reuid", "54322", "--regid", "54322", "--clear-groups"])
        .args([&program, Path::new("-i"), &folder.path().join("perf.data")])
        .args([Path::new("-o"), &users, Path::new("--elf-dir"), &objects])
        .args(FUNCTION_LAYOUT)
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_is_strangers(&said(&ran), "error[JI401]", theirs);
    assert!(!users.exists());
}

/// A user with a limit of a few threads, including the program's own.
#[test]
fn few_threads_are_enough_or_too_few() {
    if !has_users(module_path!(), "few_threads_are_enough_or_too_few") {
        return;
    }
    let folder = scratch();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let program = folder.path().join("jitinject");
    tools::copy_program(env!("CARGO_BIN_EXE_jitinject"), &program);
    for file in ["perf.data", "jit-26234.dump"] {
        let copy = folder.path().join(file);
        fs::copy(capture::folder("php82").join(file), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let output = folder.path().join("out.data");
    let run = |command: &[&str], limit: u32| {
        Command::new("setpriv")
            .args(["--reuid", "54322", "--regid", "54322", "--clear-groups"])
            .args(["prlimit", &format!("--nproc={limit}")])
            .arg(&program)
            .args(command)
            .args(["-f", "-v"])
            .args([
                Path::new("-i"),
                &folder.path().join("perf.data"),
                Path::new("-o"),
                &output,
            ])
            .env("RAYON_NUM_THREADS", "4")
            .output()
            .unwrap()
    };
    for command in [&[][..], &["timeline"]] {
        let mut outputs = Vec::new();
        for limit in 1..9 {
            let ran = run(command, limit);
            let said = said(&ran);
            let is_alone = has_code(&said, "JI414");
            match ran.status.code() {
                // Not even a signal thread.
                Some(1) => assert!(limit == 1 && has_code(&said, "JI415"), "{said}"),
                Some(0) => assert_eq!(is_alone, limit < 5, "{limit}: {said}"),
                status => panic!("{limit}: {status:?}: {said}"),
            }
            outputs.extend(fs::read(&output));
            let _ = fs::remove_file(&output);
        }
        assert_eq!(outputs.len(), 7);
        assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "{command:?}");
    }
}
