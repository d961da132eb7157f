//! `jitinject record` as root, with programs, files and folders of other users.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use jitdump::ByteOrder;

use crate::other_users::has_users;
use crate::record::{MIN_SAMPLES, SERVER, Scene};
use crate::support::processes::wait_until;
use crate::support::profile::ProfileWriter;
use crate::support::recording::{PID, Recording};
use crate::support::{codes, has_code, said, scratch, tools};

/// The user who attacks, and the one whose files are wanted.
const OTHER: u32 = 54_321;
const VICTIM: u32 = 54_322;

/// Returns a scene in the folder of another user.
fn scene_of_other(programs: &[(&str, &str)]) -> Scene {
    let scene = Scene::new(programs);
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(scene.folder.path(), Some(OTHER), Some(OTHER)).unwrap();
    scene
}

fn as_user(user: u32, command: &[&str]) -> Command {
    let user = user.to_string();
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .args(command)
        .stdin(Stdio::null());
    setpriv
}

/// A process that is killed when the test ends, with its perf map.
struct Running {
    process: Child,
    map: PathBuf,
}

impl Running {
    /// Starts a process of another user, which creates the file `ready`.
    fn start(scene: &Scene, command: &[&str]) -> Self {
        let process = as_user(OTHER, command)
            .current_dir(scene.folder.path())
            .spawn()
            .unwrap();
        let map = PathBuf::from(format!("/tmp/perf-{}.map", process.id()));
        let mut running = Self { process, map };
        wait_until("the process", || {
            let ended = running.process.try_wait().unwrap();
            assert!(ended.is_none(), "{command:?}: {ended:?}");
            scene.path("ready").exists()
        });
        running
    }

    fn pid(&self) -> String {
        self.process.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.map);
    }
}

/// Adds a program for everybody.
fn add_program(scene: &Scene, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = scene.path("bin").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    tools::add_program(&path, content.as_ref());
    path
}

/// Records with the programs in the folder `bin` before others.
fn record_with_programs(scene: &Scene, arguments: &[&str]) -> Output {
    let path = format!("{}:/usr/bin:/bin", scene.path("bin").display());
    scene.command(arguments).env("PATH", path).output().unwrap()
}

/// A shell script that does what perf does: `$output` is the profile.
fn perf_script(profile: &Path, before: &str) -> String {
    format!(
        r#"#!/bin/sh
[ "$1" != --version ] || {{ echo perf version 6.1.0; exit; }}
while [ $# -gt 0 ] && [ "$1" != -- ]; do [ "$1" != -o ] || output=$2; shift; done
[ $# -eq 0 ] || shift
{before}
cat '{}' > "$output"
"$@"
"#,
        profile.display()
    )
}

#[test]
fn recordings_in_the_folder_of_another_user_are_like_others() {
    if !has_users(
        module_path!(),
        "recordings_in_the_folder_of_another_user_are_like_others",
    ) {
        return;
    }
    scene_of_other(&[("fib.js", "app.js")]).check(&["node", "app.js"], "JS:*fib ");
    scene_of_other(&[("fib.php", "app.php")]).check(&["php", "app.php"], "$fib$");
}

/// Whose file it is decides which sources it may name.
#[test]
fn a_copy_of_a_jitdump_has_the_owner_of_the_original() {
    if !has_users(
        module_path!(),
        "a_copy_of_a_jitdump_has_the_owner_of_the_original",
    ) {
        return;
    }
    let scene = scene_of_other(&[]);
    fs::write(scene.path("server.js"), SERVER).unwrap();
    let node = Running::start(&scene, &["node", "--perf-prof", "server.js"]);
    let output = scene.record(&["-p", &node.pid(), "--duration", "2"]);
    assert!(output.status.success(), "{}", said(&output));
    let samples = &scene.json("summary.json")["samples"];
    assert!(samples["named"].as_u64().unwrap() >= MIN_SAMPLES, "{samples}");
    let name = format!("jit-{}.dump", node.pid());
    let owners =
        [scene.path(&name), scene.path("r/dumps").join(&name)].map(|path| path.metadata().unwrap().uid());
    assert_eq!(owners, [OTHER; 2]);
}

/// The process has ended, and root cannot ask whose it was.
#[test]
fn a_perf_map_of_a_program_that_root_starts_as_another_user_is_used() {
    if !has_users(
        module_path!(),
        "a_perf_map_of_a_program_that_root_starts_as_another_user_is_used",
    ) {
        return;
    }
    let scene = scene_of_other(&[("fib.js", "app.js")]);
    let node = as_user(OTHER, &["node", "--perf-basic-prof", "app.js"]);
    let command: Vec<&str> = node.get_args().map(|word| word.to_str().unwrap()).collect();
    let output = scene.record(&[&["--no-env", "--", "setpriv"], &command[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    scene.remove_maps();
    assert!(!has_code(&said(&output), "JI208"), "{}", said(&output));
    let samples = &scene.json("summary.json")["samples"];
    assert!(samples["named"].as_u64().unwrap() >= MIN_SAMPLES, "{samples}");
    // The next command that is advised.
    let mut report = Command::new(env!("CARGO_BIN_EXE_jitinject"));
    let output = report.arg("report").arg(scene.path("r")).output().unwrap();
    assert!(
        output.status.success() && !has_code(&said(&output), "JI208"),
        "{}",
        said(&output)
    );
}

/// In a mount namespace of one's own, every file can be given every name.
#[test]
fn a_perf_map_that_a_container_has_mounted_is_not_copied() {
    if !has_users(
        module_path!(),
        "a_perf_map_that_a_container_has_mounted_is_not_copied",
    ) {
        return;
    }
    let scene = scene_of_other(&[]);
    let secret = scene.path("secret");
    fs::write(&secret, "7f00 10 SECRET\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let script =
        "touch /tmp/perf-$$.map && mount --bind secret /tmp/perf-$$.map && : > ready && exec sleep 1000";
    let container = Running::start(
        &scene,
        &["unshare", "--map-root-user", "--mount", "sh", "-c", script],
    );
    let seen = format!("/proc/{}/root{}", container.pid(), container.map.display());
    assert_eq!(fs::read(seen).unwrap(), b"7f00 10 SECRET\n");
    let output = scene.record(&["-p", &container.pid(), "--duration", "0.2"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read_dir(scene.path("r/dumps")).unwrap().count(), 0);
}

/// As a perf map, its lines would be names of functions.
#[test]
fn private_files_to_which_a_process_leads_are_no_perf_maps() {
    if !has_users(
        module_path!(),
        "private_files_to_which_a_process_leads_are_no_perf_maps",
    ) {
        return;
    }
    let by_link = "ln -s $PWD/secret /tmp/perf-$$.map";
    let by_mount = "touch /tmp/perf-$$.map && mount --bind secret /tmp/perf-$$.map";
    for lead in [by_link, by_mount] {
        let scene = scene_of_other(&[]);
        let secret = scene.path("secret");
        fs::write(&secret, "7f00 10 SECRET\n").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let script = format!("{lead} && : > ready && while :; do :; done");
        let process = Running::start(
            &scene,
            &["unshare", "--map-root-user", "--mount", "sh", "-c", &script],
        );
        let output = scene.record(&["-p", &process.pid(), "--duration", "0.5"]);
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert!(has_code(&said, "JI209") && !said.contains("1 perf map"), "{said}");
    }
}

/// While it executes one of root's, a process whose program another user chose is root's.
#[test]
fn root_executes_no_program_of_another_user() {
    if !has_users(module_path!(), "root_executes_no_program_of_another_user") {
        return;
    }
    let scene = Scene::new(&[]);
    let program = add_program(&scene, "node", fs::read("/bin/bash").unwrap());
    let version = |user| {
        chown(&program, Some(user), None).unwrap();
        let script = "for ((i = 0; i < 1000000; i++)); do :; done";
        let output = scene.record(&["--", tools::text(&program), "-c", script]);
        assert!(output.status.success(), "{}", said(&output));
        let processes = scene.json("manifest.json")["processes"].clone();
        fs::remove_dir_all(scene.path("r")).unwrap();
        assert_eq!(processes[0]["runtime"], "Node.js", "{processes}");
        processes[0]["version"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(version(OTHER), "");
    assert!(version(0).starts_with("GNU bash"));
}

/// The owner of a folder renames the new folder in it, and puts one with links in its place.
#[test]
fn a_folder_in_the_place_of_the_recording_is_not_entered() {
    if !has_users(
        module_path!(),
        "a_folder_in_the_place_of_the_recording_is_not_entered",
    ) {
        return;
    }
    let recording = Recording::new();
    let scene = scene_of_other(&[]);
    let victim = scratch();
    let victim = victim.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let names = [
        "perf.data",
        "program.new",
        "program.pid",
        "dumps/probe",
        "dumps/perf-4190000.map",
    ];
    let links = names.map(|name| format!("ln -s '{}' r/{name}", victim.display()));
    let attack = format!("mv r taken && mkdir r r/dumps && {}", links.join(" && "));
    let attack = format!("setpriv --reuid {OTHER} --clear-groups sh -c \"{attack}\" || exit 9");
    add_program(&scene, "perf", perf_script(&recording.profile, &attack));
    let program =
        "echo probe > $JITDUMPDIR/probe; cat taken/dumps/probe taken/program.pid; echo .$$ $PHP_INI_SCAN_DIR";
    let output = record_with_programs(&scene, &["--", "sh", "-c", program]);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    let (pid, folder) = printed.split_once("probe\n").unwrap().1.split_once('.').unwrap();
    assert!(folder.starts_with(&format!("{pid} :/proc/")), "{printed}");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(codes(&said(&output)), ["JI401"], "{}", said(&output));
    // It has the profile, and what the program wrote.
    assert_eq!(fs::read_dir(scene.path("taken")).unwrap().count(), 2);
    assert_eq!(fs::read(scene.path("taken/dumps/probe")).unwrap(), b"probe\n");
    assert_eq!(fs::read_dir(scene.path("r")).unwrap().count(), 4);
}

/// Java cannot write its perf map, says so in its own output, and jcmd succeeds.
#[test]
fn a_perf_map_of_a_third_user_is_not_that_of_java() {
    if !has_users(module_path!(), "a_perf_map_of_a_third_user_is_not_that_of_java") {
        return;
    }
    let scene = scene_of_other(&[]);
    let java = add_program(&scene, "java", fs::read("/bin/sleep").unwrap());
    add_program(&scene, "jcmd", "#!/bin/sh\n");
    fs::write(scene.path("ready"), "").unwrap();
    let java = Running::start(&scene, &[tools::text(&java), "1000"]);
    let started = SystemTime::now();
    let record = |owner, modified| {
        fs::write(&java.map, "7f00 10 FALSE\n").unwrap();
        chown(&java.map, Some(owner), None).unwrap();
        let file = fs::File::options().write(true).open(&java.map).unwrap();
        file.set_modified(modified).unwrap();
        let output = record_with_programs(&scene, &["-p", &java.pid(), "--duration", "0.2"]);
        assert!(output.status.success(), "{}", said(&output));
        let copied = fs::read_to_string(scene.path(&format!("r/dumps/perf-{}.map", java.pid())));
        fs::remove_dir_all(scene.path("r")).unwrap();
        (copied.unwrap_or_default(), has_code(&said(&output), "JI448"))
    };
    assert_eq!(record(VICTIM, SystemTime::now()), (String::new(), true));
    // Written by another process that had its ID.
    let before = started - Duration::from_secs(3600);
    assert_eq!(record(OTHER, before), (String::new(), true));
    // Its own, but not written on request. It is used as that of any other process is.
    wait_until("a request that is later, even with rounded times", || {
        started.elapsed().is_ok_and(|age| age > Duration::from_secs(2))
    });
    let (copied, is_reported) = record(OTHER, started - Duration::from_secs(1));
    assert_eq!((&*copied, is_reported), ("7f00 10 FALSE\n", true));
    // Written on request: now, and again at the end.
    let (copied, is_reported) = record(OTHER, SystemTime::now());
    assert_eq!((copied.lines().count(), is_reported), (2, false));
}

/// The process was too short to be seen while it ran. A link that another user has put on the path of its jitdump meanwhile leads
/// to files of root with its ID.
#[test]
fn files_behind_links_of_strangers_are_neither_moved_nor_copied() {
    if !has_users(
        module_path!(),
        "files_behind_links_of_strangers_are_neither_moved_nor_copied",
    ) {
        return;
    }
    let scene = Scene::new(&[]);
    let names = [format!("jit-{PID}.dump"), format!("isolate0x1-{PID}-v8.log")];
    for (owner, copied) in [(OTHER, 0), (0, 1)] {
        fs::create_dir(scene.path("private")).unwrap();
        let link = scene.path("link");
        symlink("private", &link).unwrap();
        lchown(&link, Some(owner), None).unwrap();
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&link.join(&names[0])), 500);
        profile.sample(PID, 2000, &[0x4000_0004], None);
        fs::write(scene.path("made.data"), profile.finish()).unwrap();
        let write = format!(
            "for name in {}; do echo content > private/$name; done",
            names.join(" ")
        );
        let script = perf_script(&scene.path("made.data"), &write);
        add_program(&scene, "perf", script);
        let output = record_with_programs(&scene, &["--", "true"]);
        assert!(output.status.success(), "{}", said(&output));
        let count = |folder: &str| fs::read_dir(scene.path(folder)).unwrap().count();
        assert_eq!((count("private"), count("r/dumps")), (2, copied), "{owner}");
        for folder in ["private", "r"] {
            fs::remove_dir_all(scene.path(folder)).unwrap();
        }
        fs::remove_file(link).unwrap();
    }
}
