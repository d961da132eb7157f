//! Files that others planted, in every place where one is read or written, and names that lead elsewhere.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jitinject::bytes::{ByteOrder, steers_terminal};

use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::{attempt, capture, inject, inject_into, objects_of, said, scratch, tools};

/// A process and its dump, with one function in which a sample was taken.
struct Recording {
    folder: tempfile::TempDir,
    profile: PathBuf,
    dump: PathBuf,
    output: PathBuf,
}

/// A number that no process has.
const PID: u32 = 4_190_000;

impl Recording {
    fn new() -> Self {
        Self::with_inode(|_| 0)
    }

    /// The profile says that the dump had some inode.
    fn with_inode(inode: impl Fn(&Path) -> u64) -> Self {
        let folder = scratch();
        let dump = folder.path().join(format!("jit-{PID}.dump"));
        let mut writer = DumpWriter::new(ByteOrder::Little, 62, PID);
        writer.load(1000, 0x4000_0000, 0, b"named", &[0x90; 64]);
        fs::write(&dump, writer.bytes).unwrap();
        let mut writer = ProfileWriter::new(ByteOrder::Little);
        writer.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&dump), 500);
        // behind the record's header, two numbers of the process, three of the map and two of the device
        writer.records[48..56].copy_from_slice(&inode(&dump).to_le_bytes());
        writer.mmap2(PID, 0x4000_0000, 4096, 0, "//anon", 501);
        writer.sample(PID, 2000, &[0x4000_0004], None);
        let profile = folder.path().join("perf.data");
        fs::write(&profile, writer.finish()).unwrap();
        Self {
            output: folder.path().join("out.data"),
            folder,
            profile,
            dump,
        }
    }

    fn inject(&self, more: &[&str]) -> String {
        inject(&self.profile, &self.output, more)
    }
}

const NAMED: &str = "1 in JIT code, 1 of them named";

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Somebody who is neither root nor the one who runs the tests. Only root can give them a file.
const STRANGER: u32 = 54_321;

fn give_away(path: &Path) {
    chown(path, Some(STRANGER), None).unwrap();
}

/// Whether a test that needs several users can go on. If not, because somebody else than root runs it, it has been run
/// by root of a namespace, who has the numbers that `/etc/subuid` gives to that user.
fn has_users(test: &str) -> bool {
    if is_root() {
        return true;
    }
    let test = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let ran = Command::new("unshare")
        .args(["--map-root-user", "--map-auto", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &test])
        .output()
        .unwrap();
    let heard = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && heard.contains("1 passed"),
        "{test} needs several users: run it as root, or install newuidmap and give yourself numbers in /etc/subuid and /etc/subgid: \
         {heard}{}",
        said(&ran)
    );
    false
}

#[test]
fn dumps_of_strangers_are_refused_unless_the_process_mapped_them() {
    if !has_users("dumps_of_strangers_are_refused_unless_the_process_mapped_them") {
        return;
    }
    let recording = Recording::new();
    give_away(&recording.dump);
    let said = recording.inject(&[]);
    assert!(said.contains("belongs to user 54321"), "{said}");
    assert!(said.contains("not used (-f does)"), "{said}");
    assert!(recording.inject(&["-f"]).contains(NAMED));
    let named = recording.inject(&["--jitdump", tools::text(&recording.dump)]);
    assert!(named.contains(NAMED), "who names a file means it: {named}");

    // The very file that the process had mapped.
    let recording = Recording::with_inode(|dump| fs::metadata(dump).unwrap().ino());
    give_away(&recording.dump);
    let said = recording.inject(&[]);
    assert!(said.contains(NAMED), "{said}");

    // The profile is of the same user, which they told with -f.
    let recording = Recording::new();
    give_away(&recording.dump);
    give_away(&recording.profile);
    let ran = attempt(&recording.profile, &recording.output, &[]);
    assert_eq!(ran.status.code(), Some(1), "{}", crate::support::said(&ran));
    assert!(recording.inject(&["-f"]).contains(NAMED));
}

#[test]
fn perf_maps_of_strangers_are_refused() {
    if !has_users("perf_maps_of_strangers_are_refused") {
        return;
    }
    let recording = Recording::new();
    fs::remove_file(&recording.dump).unwrap();
    let map = recording.folder.path().join(format!("perf-{PID}.map"));
    fs::write(&map, "40000000 40 named\n").unwrap();
    assert!(recording.inject(&[]).contains(NAMED));
    give_away(&map);
    let said = recording.inject(&[]);
    assert!(said.contains("belongs to user 54321"), "{said}");
    assert!(recording.inject(&["-f"]).contains(NAMED));
    assert!(
        recording
            .inject(&["--perf-map", tools::text(&map)])
            .contains(NAMED)
    );
}

/// Whatever stands where a dump or a perf map should be is not waited for, and costs nothing else.
#[test]
fn what_is_no_file_is_not_opened() {
    type Plant = fn(&Path);
    let plants: [(&str, Plant); 6] = [
        ("fifo", |path| drop(tools::run("mkfifo", &[tools::text(path)]))),
        ("socket", |path| drop(UnixListener::bind(path).unwrap())),
        ("folder", |path| fs::create_dir(path).unwrap()),
        ("endless device", |path| symlink("/dev/zero", path).unwrap()),
        ("terminal", |path| symlink("/dev/tty", path).unwrap()),
        ("circle of links", |path| symlink(path, path).unwrap()),
    ];
    for (what, plant) in plants {
        let recording = Recording::new();
        fs::remove_file(&recording.dump).unwrap();
        plant(&recording.dump);
        let map = recording.folder.path().join(format!("perf-{PID}.map"));
        plant(&map);
        let folder = tools::text(recording.folder.path());
        let began = Instant::now();
        for more in [&[][..], &["--jitdump", folder, "--perf-map", folder]] {
            let said = recording.inject(more);
            assert!(
                said.contains(&format!("the jitdump of process {PID}")),
                "{what}: {said}"
            );
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        fs::remove_dir(&map).or_else(|_| fs::remove_file(&map)).unwrap();
    }
}

/// In a folder where everybody may make files, somebody else has been first everywhere.
#[test]
fn links_planted_in_a_shared_folder_lead_nowhere() {
    if !has_users("links_planted_in_a_shared_folder_lead_nowhere") {
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
    // The shell has the number of the program that it becomes.
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
            .args([env!("CARGO_BIN_EXE_jitinject"), "-i"])
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
    // A link in the place of the folder for objects, or a stranger's file in it, stops the run.
    let objects = shared.path().join("out.data.elf");
    fs::remove_dir_all(&objects).unwrap();
    fs::create_dir(victim("folder")).unwrap();
    symlink(victim("folder"), &objects).unwrap();
    let ran = run();
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(said(&ran).contains("out.data.elf"), "{}", said(&ran));
    assert_eq!(fs::read_dir(victim("folder")).unwrap().count(), 0);
    for name in ["output", "summary", "temporary"] {
        assert_eq!(fs::read(victim(name)).unwrap(), b"precious", "{name}");
    }
}

#[test]
fn links_in_a_shared_folder_of_objects_lead_nowhere() {
    let folder = scratch();
    let objects = folder.path().join("objects");
    fs::create_dir(&objects).unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    for number in 1..20 {
        symlink(&victim, objects.join(format!("jitted-26234-{number}.so"))).unwrap();
    }
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    symlink(folder.path().join("elsewhere"), objects.join("sources")).unwrap();
    let output = folder.path().join("out.data");
    inject(
        &capture::profile("php82"),
        &output,
        &["--all", "--elf-dir", tools::text(&objects)],
    );
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.path().join("elsewhere")).unwrap().count(), 0);
}

/// Names in a dump that would lead out of a folder, or steer a terminal, if they were believed.
fn hostile_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        &b"../../../../../../tmp/jitinject-escaped"[..],
        b"/tmp/jitinject-escaped",
        b"..",
        b".",
        b"/",
        b"a/../../b",
        b"two\nlines",
        b"\r\x1b]0;title\x07\x1b[2J",
        b"\xc2\x9b31mred",
        b"caf\xe9\xff\xfe",
        "\u{202e}gnp.exe".as_bytes(),
        b"$(touch /tmp/jitinject-escaped)",
        b"-rf",
        b"con:\\\\.\\pipe",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    names.push(vec![b'x'; 4096]);
    names.push(b"d/".repeat(2048));
    names.push(vec![b'y'; 1 << 20]);
    names
}

fn is_harmless(text: &str) -> bool {
    let mut lines = text.lines().flat_map(str::chars);
    !lines.any(steers_terminal)
}

#[test]
fn names_of_functions_and_sources_lead_nowhere_and_steer_nothing() {
    const EMBEDDED_SOURCE_FILE: u32 = 827_346_261;
    let recording = Recording::new();
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
    for (number, name) in (0u64..).zip(hostile_names()) {
        let address = 0x4000_0000 + 0x100 * number;
        let source = [&name[..], b"\0let a;\n"].concat();
        let sized = [
            &(name.len() as u32).to_le_bytes()[..],
            &7u32.to_le_bytes(),
            &name,
            b"let a;\n",
        ];
        dump.record(EMBEDDED_SOURCE_FILE, 900 + number, &source);
        dump.record(EMBEDDED_SOURCE_FILE, 900 + number, &sized.concat());
        dump.debug_info(1000 + number, address, &name, 1);
        dump.load(1000 + number, address, number, &name, &[0x90; 64]);
    }
    fs::write(&recording.dump, dump.bytes).unwrap();
    let below = recording.folder.path().join("below");
    fs::create_dir(&below).unwrap();
    let output = below.join("out.data");
    for more in [
        &["--all"][..],
        &["--all", "--tiers=symbols", "--dwarf", "5", "-v"],
    ] {
        let ran = attempt(&recording.profile, &output, more);
        assert!(ran.status.success(), "{}", said(&ran));
        assert!(is_harmless(&said(&ran)), "{}", said(&ran));
        assert!(
            said(&ran).contains("names of functions longer than 64 KiB, cut"),
            "{}",
            said(&ran)
        );
    }
    assert!(!Path::new("/tmp/jitinject-escaped").exists());
    assert_eq!(fs::read_dir(&below).unwrap().count(), 2);
    // Each source lies in a folder of its own, right below.
    let sources = below.join("out.data.elf/sources");
    for folder in fs::read_dir(&sources).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            let file = file.unwrap();
            assert!(file.file_type().unwrap().is_file());
            assert_eq!(fs::read(file.path()).unwrap(), b"let a;\n");
        }
    }
}

#[test]
fn paths_of_dumps_steer_nothing() {
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    for (number, name) in (0u32..).zip(hostile_names()) {
        // A record has no more room.
        let name = String::from_utf8_lossy(&name[..name.len().min(60_000)]).into_owned();
        let path = format!("{name}/jit-{}.dump", PID + number);
        profile.mmap2(PID + number, 0x6000_0000, 4096, 0, &path, 500);
    }
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let ran = attempt(&input, &output, &["-v"]);
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(is_harmless(&said(&ran)), "{}", said(&ran));
    assert!(!Path::new("/tmp/jitinject-escaped").exists());
}

/// Another user in a sticky folder: nothing of theirs is replaced, and the message is about that.
#[test]
fn another_users_files_in_a_sticky_folder_stay() {
    if !has_users("another_users_files_in_a_sticky_folder_stay") {
        return;
    }
    let folder = scratch();
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    for path in [folder.path(), &shared] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o1777)).unwrap();
    }
    let program = folder.path().join("jitinject");
    fs::copy(env!("CARGO_BIN_EXE_jitinject"), &program).unwrap();
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
            .output()
            .unwrap()
    };
    let mine = shared.join("mine.data");
    assert!(run(&mine).status.success(), "{}", said(&run(&mine)));
    // the profile is root's
    let output = shared.join("out.data");
    fs::write(&output, "root's").unwrap();
    let ran = run(&output);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert_eq!(fs::read(&output).unwrap(), b"root's");
    assert!(
        !shared.join("out.data.elf").exists(),
        "objects without their profile"
    );
    // the folder is root's
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
