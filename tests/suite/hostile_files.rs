//! Files of attackers in all places that jitinject reads from or writes to, and names that lead out of a folder or
//! control a terminal.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use jitdump::ByteOrder;
use jitdump::internals::bytes::is_terminal_control;
use jitinject::{Diagnostic, Issue};
use serde_json::Value;

use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::recording::{NAMED, PID, Recording};
use crate::support::reports::reports;
use crate::support::{attempt, capture, codes, diagnostics, inject, jitinject, said, scratch, tools};

/// Opening some of these would block. They are reported, and the run goes on.
#[test]
fn only_regular_files_are_opened() {
    type Create = fn(&Path);
    let kinds: [(&str, Create); 6] = [
        ("fifo", |path| drop(tools::run("mkfifo", &[tools::text(path)]))),
        ("socket", |path| drop(UnixListener::bind(path).unwrap())),
        ("folder", |path| fs::create_dir(path).unwrap()),
        ("endless device", |path| symlink("/dev/zero", path).unwrap()),
        ("terminal", |path| symlink("/dev/tty", path).unwrap()),
        ("circle of links", |path| symlink(path, path).unwrap()),
    ];
    for (kind, create) in kinds {
        let recording = Recording::new();
        fs::remove_file(&recording.dump).unwrap();
        create(&recording.dump);
        let map = recording.folder.path().join(format!("perf-{PID}.map"));
        create(&map);
        let folder = tools::text(recording.folder.path());
        for more in [&[][..], &["--jitdump", folder, "--perf-map", folder]] {
            let said = recording.inject(more);
            assert!(
                reports(&said, "JI215", tools::text(&recording.dump)),
                "{kind}: {said}"
            );
            assert!(reports(&said, "JI400", tools::text(&map)), "{kind}: {said}");
        }
        fs::remove_dir(&map).or_else(|_| fs::remove_file(&map)).unwrap();
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

/// Returns names that lead out of a folder as paths, or control a terminal when printed.
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

/// Returns whether a text has no characters that control a terminal, except line feeds.
fn is_harmless(text: &str) -> bool {
    let mut lines = text.lines().flat_map(str::chars);
    !lines.any(is_terminal_control)
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
            reports(&said(&ran), "JI015", tools::text(&recording.dump)),
            "{}",
            said(&ran)
        );
    }
    assert!(!Path::new("/tmp/jitinject-escaped").exists());
    assert_eq!(fs::read_dir(&below).unwrap().count(), 2);
    // Each source has its own folder directly below, beside the list of their hashes.
    let sources = below.join("out.data.elf/sources");
    for found in fs::read_dir(&sources).unwrap() {
        let found = found.unwrap();
        if tools::text(Path::new(&found.file_name())).starts_with("SHA256SUMS-") {
            let list = fs::read_to_string(found.path()).unwrap();
            assert!(is_harmless(&list), "{list}");
            continue;
        }
        for file in fs::read_dir(found.path()).unwrap() {
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
        // Records are limited to 64 KiB.
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

/// The first bytes show that the input is not of a supported format, so the rest is not read.
#[test]
fn endless_devices_are_refused_by_their_first_bytes() {
    let folder = scratch();
    let commands: [(&[&str], &str); 8] = [
        (&["-i", "/dev/zero"], "JI140"),
        (&["--mono-log", "/dev/zero"], "JI062"),
        (&["--xray-log", "/dev/zero"], "JI102"),
        (&["timeline", "-i", "/dev/zero"], "JI140"),
        (&["compare", "/dev/zero", "/dev/zero"], "JI417"),
        (&["-i", "-"], "JI140"),
        (&["dump", "-"], "JI422"),
        (&["check", "-"], "JI422"),
    ];
    for (command, code) in commands {
        let ran = Command::new("sh")
            // 256 MiB in blocks of 512 bytes: a copy in a temporary file fails at this size.
            .args([
                "-c",
                "ulimit -f 524288; exec timeout 60 \"$0\" \"$@\" < /dev/zero",
            ])
            .arg(env!("CARGO_BIN_EXE_jitinject"))
            .args(command)
            .current_dir(folder.path())
            .env("TMPDIR", folder.path())
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(1), "{command:?}: {}", said(&ran));
        let printed = String::from_utf8_lossy(&[&*ran.stdout, &*ran.stderr].concat()).into_owned();
        assert_eq!(codes(&printed), [code], "{command:?}: {printed}");
    }
}

/// There is one diagnostic for all unreadable files of a folder.
#[test]
fn unreadable_files_in_a_folder_of_logs_are_counted() {
    let logs = scratch();
    let fifo = logs.path().join("trace.mlpd");
    tools::run("mkfifo", &[tools::text(&fifo)]);
    drop(UnixListener::bind(logs.path().join("xray-log.socket")).unwrap());
    symlink("nowhere", logs.path().join("a-link")).unwrap();
    let folder = scratch();
    let (output, summary) = (folder.path().join("out.data"), folder.path().join("summary.json"));
    let first = logs.path().join("a-link");
    for option in ["--mono-log", "--xray-log"] {
        let said = inject(
            &capture::profile("php82"),
            &output,
            &[
                option,
                tools::text(logs.path()),
                "--summary",
                tools::text(&summary),
            ],
        );
        assert!(reports(&said, "JI202", tools::text(&first)), "{option}: {said}");
        let json: Value = serde_json::from_slice(&fs::read(&summary).unwrap()).unwrap();
        let unreadable = diagnostics(&json, "JI202");
        assert_eq!(unreadable.len(), 1, "{option}: {json}");
        assert_eq!(unreadable[0]["severity"], "warning");
        assert_eq!(unreadable[0]["file"], tools::text(logs.path()));
        assert_eq!(unreadable[0]["count"], 3);
    }
}

/// Invisible and control characters of each kind, and a line that looks like a diagnostic of jitinject.
const STEERING: &str =
    "\u{1b}[2J\u{9b}2J\u{202e}\u{2028}\u{2029}\u{feff}\u{200b}\u{ad}\njitinject: error[JI400]: forged";

/// Attackers can choose the names of files, and so a part of the messages about them.
#[test]
fn paths_in_messages_of_every_command_are_one_line_and_steer_nothing() {
    let folder = scratch();
    let hostile = folder.path().join(STEERING);
    fs::create_dir(&hostile).unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = hostile.join(name);
        fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let profile = file("perf.data", &fs::read(capture::profile("php82")).unwrap());
    let nothing = file("nothing", b"nothing that is known");
    let empty = file("empty", b"");
    let packed = file("packed", b"\x1f\x8b\x08\0\0\0\0\0\0\0");
    let missing = file("missing", b"");
    fs::remove_file(&missing).unwrap();
    let text = |path: &Path| tools::text(path).to_owned();
    let (folder_itself, output) = (text(&hostile), text(&hostile.join("out.data")));
    let below = |name: &str| format!("{missing}/{name}");
    let mut lines = vec![
        vec!["man", "--output-dir", &nothing],
        vec!["compare", &missing, &missing],
        vec!["compare", &nothing, &empty],
        vec!["check", &missing, &nothing, &empty, &folder_itself, &packed],
        vec!["check", "--explain", STEERING],
        vec!["explain", STEERING],
        vec!["timeline", "-i", &profile, "-o", &nothing, STEERING],
        vec![STEERING],
        vec!["check", "--level", STEERING, &nothing],
        vec!["dump", "--address", STEERING, &nothing],
        vec!["dump", "--time", STEERING, &nothing],
    ];
    for path in [&missing, &nothing, &empty, &folder_itself, &packed] {
        lines.push(vec!["dump", path]);
        lines.push(vec!["timeline", path]);
        lines.push(vec!["-o", &output, "-i", path]);
        for option in [
            "--jitdump",
            "--perf-map",
            "--mono-log",
            "--xray-log",
            "--xray-binary",
            "--code-from",
        ] {
            lines.push(vec!["-v", "-i", &profile, "-o", &output, option, path]);
        }
    }
    let (no_output, no_folder) = (below("out.data"), below("elf"));
    lines.push(vec!["-i", &profile, "-o", &no_output]);
    lines.push(vec!["-i", &profile, "-o", &output, "--summary", &no_output]);
    lines.push(vec!["timeline", "-i", &profile, "-o", &no_output]);
    lines.push(vec!["timeline", "-i", &profile, "-o", &folder_itself]);
    let in_file = format!("{nothing}/elf");
    for objects in [&no_folder, &in_file, &nothing] {
        lines.push(vec!["-i", &profile, "-o", &output, "--elf-dir", objects]);
        lines.push(vec!["-i", &profile, "-o", &output, "--build-id-cache", objects]);
    }
    lines.push(vec!["-i", &profile, "-o", &profile]);
    lines.push(vec!["-i", &profile, "-o", &output, "--summary", &output]);
    for line in lines {
        // Some write files with default names.
        let ran = jitinject()
            .args(&line)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let printed = [&ran.stdout[..], &ran.stderr].concat();
        // All of these commands write pages and profiles to files.
        let printed = String::from_utf8(printed).unwrap();
        let steers =
            |character| "\u{1b}\u{9b}\u{202e}\u{2028}\u{2029}\u{feff}\u{200b}\u{ad}".contains(character);
        assert!(!printed.contains(steers), "{line:?}: {printed:?}");
        let is_forged = |line: &str| line.starts_with("jitinject: error[JI400]: forged");
        assert!(!printed.lines().any(is_forged), "{line:?}: {printed}");
    }
}

/// Profiles contain paths of any files. With --confine, only those in the profile's folder are opened.
#[test]
fn a_confined_profile_has_files_opened_below_its_folder_only() {
    let recording = Recording::new();
    let tenant = scratch();
    let profile = tenant.path().join("perf.data");
    fs::copy(&recording.profile, &profile).unwrap();
    let output = tenant.path().join("out.data");
    assert!(inject(&profile, &output, &[]).contains(NAMED));
    let confined = inject(&profile, &output, &["--confine"]);
    let out_of_reach = Diagnostic::new(Issue::DumpNotFoundConfined).in_file(&recording.dump);
    assert!(
        reports(&confined, "JI214", &out_of_reach.with("pid", PID).to_string()),
        "{confined}"
    );
    assert!(!confined.contains(NAMED));
    // Files that the user names are opened anywhere.
    let dump = tools::text(&recording.dump);
    assert!(inject(&profile, &output, &["--confine", "--jitdump", dump]).contains(NAMED));
    // The recorded path is allowed if the profile is in the same folder.
    assert!(recording.inject(&["--confine"]).contains(NAMED));

    // Symbolic links are not followed, neither in the profile's folder nor in a named one.
    let link = tenant.path().join(recording.dump.file_name().unwrap());
    symlink(&recording.dump, &link).unwrap();
    let folder = tools::text(tenant.path());
    for more in [&["--confine"][..], &["--confine", "--jitdump", folder]] {
        let said = inject(&profile, &output, more);
        let rejected = format!("{}: ", link.display());
        assert!(
            reports(&said, "JI215", &rejected) && reports(&said, "JI215", "symbolic link"),
            "{said}"
        );
        assert!(!said.contains(NAMED));
    }
    assert!(inject(&profile, &output, &[]).contains(NAMED));

    // A perf map in /tmp is not used, but one beside the profile is.
    fs::remove_file(&link).unwrap();
    let name = format!("perf-{PID}.map");
    let map = Path::new("/tmp").join(&name);
    fs::write(&map, "40000000 40 named\n").unwrap();
    let confined = inject(&profile, &output, &["--confine"]);
    let free = inject(&profile, &output, &["--jitdump", folder]);
    fs::rename(&map, tenant.path().join(&name))
        .or_else(|_| fs::copy(&map, tenant.path().join(&name)).and_then(|_| fs::remove_file(&map)))
        .unwrap();
    assert!(!confined.contains(NAMED), "{confined}");
    assert!(free.contains(NAMED), "{free}");
    let beside = inject(&profile, &output, &["--confine"]);
    assert!(beside.contains(NAMED), "{beside}");

    // The profile itself must be a regular file, too.
    let link = tenant.path().join("link.data");
    symlink(&profile, &link).unwrap();
    let fifo = tenant.path().join("fifo.data");
    tools::run("mkfifo", &[tools::text(&fifo)]);
    for (input, cause) in [(&link, "symbolic link"), (&fifo, "not a regular file")] {
        let ran = attempt(input, &output, &["--confine"]);
        assert_eq!(ran.status.code(), Some(1));
        let refused = format!("{}: ", input.display());
        assert!(
            reports(&said(&ran), "JI400", &refused) && reports(&said(&ran), "JI400", cause),
            "{}",
            said(&ran)
        );
    }
}

#[test]
fn sockets_are_refused_as_outputs() {
    let folder = scratch();
    let socket = folder.path().join("socket");
    let _bound = UnixListener::bind(&socket).unwrap();
    let output = folder.path().join("out.data");
    let summary = ["--summary", tools::text(&socket)];
    for (output, more) in [(&socket, &[][..]), (&output, &summary)] {
        let ran = attempt(&capture::profile("php82"), output, more);
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{}", said(&ran));
    }
}
