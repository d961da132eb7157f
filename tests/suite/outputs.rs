//! Outputs are new files, or streams that the user named. Anything else with the name of an output is replaced or
//! refused, and never waited for.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use jitinject::inject as inject_here;
use jitinject::internals::files::Folder;
use jitinject::internals::files::walk::Scope;
use jitinject::{InjectOptions, Issue, Progress};
use rustix::fs::FlockOperation;

use crate::support::processes::wait_for_rounds;
use crate::support::scene::{Scene, left_over};
use crate::support::{attempt, capture, inject, jitinject, model, objects_of, said, scratch, tools};

/// Returns the commands that write a file, each with the option for it.
fn writers(output: &Path, folder: &Path) -> [Command; 3] {
    let input = capture::profile("php82");
    let other = folder.join("other.data");
    let mut profile = jitinject();
    profile.args(["-q", "-i", tools::text(&input), "-o", tools::text(output)]);
    let mut summary = jitinject();
    summary
        .args(["-q", "-i", tools::text(&input), "-o", tools::text(&other)])
        .args(["--summary", tools::text(output)]);
    let mut timeline = jitinject();
    timeline.args([
        "timeline",
        "-q",
        "-i",
        tools::text(&input),
        "-o",
        tools::text(output),
    ]);
    let mut commands = [profile, summary, timeline];
    for command in &mut commands {
        command.current_dir(folder);
    }
    commands
}

/// Runs a command, which must exit within a minute.
fn run(command: Command) -> Output {
    let ran = Command::new("timeout")
        .args(["--kill-after=1", "60"])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(command.get_current_dir().unwrap())
        .output()
        .unwrap();
    assert_ne!(ran.status.code(), Some(124), "{command:?} does not exit");
    ran
}

fn make_fifo(path: &Path) {
    tools::run("mkfifo", &[tools::text(path)]);
}

/// Opens a FIFO without waiting for a writer.
fn open_fifo(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .unwrap()
}

#[test]
fn links_that_have_the_name_of_an_output_are_replaced_wherever_they_lead() {
    for which in 0..3 {
        let folder = scratch();
        let fifo = folder.path().join("fifo");
        make_fifo(&fifo);
        let mut reader = open_fifo(&fifo);
        for target in [&*fifo, Path::new("/dev/full"), Path::new("/dev/null")] {
            let output = folder.path().join("output");
            let _ = fs::remove_file(&output);
            symlink(target, &output).unwrap();
            let [profile, summary, timeline] = writers(&output, folder.path());
            let ran = run([profile, summary, timeline].into_iter().nth(which).unwrap());
            assert!(ran.status.success(), "{which} {target:?}: {}", said(&ran));
            let found = fs::symlink_metadata(&output).unwrap();
            assert!(found.is_file() && found.len() > 0, "{which} {target:?}");
        }
        let mut received = Vec::new();
        // The FIFO has no writer, so this does not block.
        reader.read_to_end(&mut received).unwrap();
        assert!(received.is_empty(), "{which}: {} bytes", received.len());
    }
}

#[test]
fn a_fifo_without_a_reader_is_not_waited_for_without_end() {
    std::thread::scope(|scope| {
        for which in 0..3 {
            scope.spawn(move || {
                let folder = scratch();
                let fifo = folder.path().join("fifo");
                make_fifo(&fifo);
                let [profile, summary, timeline] = writers(&fifo, folder.path());
                let ran = run([profile, summary, timeline].into_iter().nth(which).unwrap());
                let said = said(&ran);
                assert_eq!(ran.status.code(), Some(1), "{which}: {said}");
                let error = format!("error[JI401]: {}: ", fifo.display());
                assert!(said.contains(&error), "{which}: {said}");
                // If the summary cannot be written, the output is not written either.
                let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
                assert_eq!(left.len(), 1, "{which}: {left:?}");
            });
        }
    });
}

/// As in `jitinject -o fifo & perf report -i fifo`.
#[test]
fn a_fifo_may_get_its_reader_a_moment_later() {
    let folder = scratch();
    let fifo = folder.path().join("fifo");
    make_fifo(&fifo);
    let [mut profile, ..] = writers(&fifo, folder.path());
    let running = profile.stderr(Stdio::piped()).spawn().unwrap();
    // It tries again every 10 ms, and waits for hardly anything else.
    wait_for_rounds(&running, 30);
    assert!(
        fs::read(&fifo)
            .unwrap()
            .starts_with(b"PERFILE2\x10\0\0\0\0\0\0\0")
    );
    let ran = running.wait_with_output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
}

#[test]
fn devices_that_take_anything_are_outputs_like_others() {
    let folder = scratch();
    for command in writers(Path::new("/dev/null"), folder.path()) {
        let ran = run(command);
        assert!(ran.status.success(), "{}", said(&ran));
    }
    assert!(!fs::symlink_metadata("/dev/null").unwrap().is_file());
}

/// Calls a function when the first object is written.
struct AtFirstObject<F: FnMut()> {
    part: &'static str,
    then: Option<F>,
}

impl<F: FnMut()> Progress for AtFirstObject<F> {
    fn start(&mut self, what: &'static str, _total: u64) {
        self.part = what;
    }

    fn advance(&mut self, _steps: u64) {
        if self.part == "writing objects"
            && let Some(mut then) = self.then.take()
        {
            then();
        }
    }
}

/// Another program adds files to the objects of an earlier run while this run writes its own.
#[test]
fn what_is_put_among_objects_meanwhile_is_not_deleted() {
    let scene = Scene::new();
    let objects = scene.folder.path().join("out.data.elf");
    let precious = [objects.join("precious"), objects.join("below/precious")];
    let options = InjectOptions::new(&scene.input, &scene.output);
    for path in precious {
        let mut progress = AtFirstObject {
            part: "",
            then: Some(|| {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, "somebody's").unwrap();
            }),
        };
        let error = inject_here(&options, &mut progress).unwrap_err();
        assert_eq!(error.issue, Issue::ObjectFolderForeign, "{error}");
        let folder = error.file.as_deref().map(Path::new);
        assert_eq!(folder, Some(&*objects), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"somebody's");
        fs::remove_file(&path).unwrap();
        let _ = fs::remove_dir(objects.join("below"));
        scene.assert_unchanged("the old output is kept");
    }
}

/// Another run is about to write a profile that refers to objects in the same folder.
#[test]
fn objects_stay_while_another_run_uses_their_folder() {
    let scene = Scene::new();
    let folder = scene.folder.path().join("out.data.elf");
    let old = objects_of(&scene.output);
    let other = File::open(&folder).unwrap();
    rustix::fs::flock(&other, FlockOperation::LockShared).unwrap();
    inject(&scene.input, &scene.output, &[]);
    let both = objects_of(&scene.output);
    assert!(both.len() > old.len() && old.iter().all(|object| both.contains(object)));
    drop(other);
    inject(&scene.input, &scene.output, &[]);
    let new = objects_of(&scene.output);
    assert_eq!(both.len(), old.len() + new.len());
    assert!(new.iter().all(|object| both.contains(object)));
}

#[test]
fn runs_side_by_side_leave_a_profile_with_all_its_objects() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    // Without its dump, it has no objects, and those of others are removed.
    let without = folder.path().join("perf.data");
    fs::copy(capture::profile("php82"), &without).unwrap();
    let inputs = [capture::profile("php82"), capture::profile("wasmtime"), without];
    let start = |input: &PathBuf| {
        let mut command = jitinject();
        command.args(["-q", "-i", tools::text(input), "-o", tools::text(&output)]);
        command.spawn().unwrap()
    };
    for _ in 0..20 {
        let runs: Vec<_> = inputs.iter().cycle().take(6).map(start).collect();
        for mut run in runs {
            assert!(run.wait().unwrap().success());
        }
        let parts = model::parse(&fs::read(&output).unwrap());
        let names = parts
            .records
            .iter()
            .filter_map(|record| model::map_name(record, parts.endian));
        let objects: HashSet<PathBuf> = names
            .filter(|name| name.contains("out.data.elf"))
            .map(PathBuf::from)
            .collect();
        assert!(objects.iter().all(|object| object.exists()), "{objects:?}");
    }
    inject(&inputs[0], &output, &[]);
    let left = objects_of(&output).len();
    inject(&inputs[0], &folder.path().join("alone.data"), &[]);
    assert_eq!(left, objects_of(&folder.path().join("alone.data")).len());
}

/// What a stream has delivered refers to the objects, so they stay if only the summary fails.
#[test]
fn objects_of_a_stream_stay_without_its_summary() {
    let folder = scratch();
    let (objects, summary) = (folder.path().join("objects"), folder.path().join("summary.json"));
    let options = InjectOptions {
        summary: Some(summary.clone()),
        elf_dir: Some(objects.clone()),
        ..InjectOptions::new(capture::profile("php82"), "/dev/null")
    };
    let mut progress = AtFirstObject {
        part: "",
        then: Some(|| fs::create_dir(&summary).unwrap()),
    };
    let error = inject_here(&options, &mut progress).unwrap_err();
    assert_eq!(error.file.as_deref().map(Path::new), Some(&*summary), "{error}");
    assert!(fs::read_dir(&objects).unwrap().count() > 0);
}

/// A stream has the folder of an output of the default name.
#[test]
fn a_stream_leaves_the_objects_of_the_profile_with_its_folder() {
    let folder = scratch();
    let profile = folder.path().join("perf.jit.data");
    inject(&capture::profile("php82"), &profile, &[]);
    let own = objects_of(&profile);
    let stream = || {
        let mut command = jitinject();
        command.current_dir(&folder).args(["-q", "-o", "-", "-i"]);
        let ran = command.arg(capture::profile("wasmtime")).output().unwrap();
        assert!(ran.status.success());
        objects_of(&profile)
    };
    let both = stream();
    assert!(both.len() > own.len() && own.iter().all(|object| both.contains(object)));
    fs::remove_file(&profile).unwrap();
    assert_eq!(stream().len(), both.len() - own.len());
}

/// The same if the new output has no objects, so that those of the old one are removed.
#[test]
fn what_is_put_among_stale_objects_is_not_deleted() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    inject(&capture::profile("php82"), &output, &[]);
    let count = objects_of(&output).len();
    let precious = folder.path().join("out.data.elf/precious");
    fs::write(&precious, "somebody's").unwrap();
    let without = folder.path().join("perf.data");
    fs::copy(capture::profile("php82"), &without).unwrap();
    inject(&without, &output, &[]);
    assert_eq!(fs::read(&precious).unwrap(), b"somebody's");
    assert_eq!(objects_of(&output).len(), count + 1);
}

/// If the summary cannot be written, the old profile, its objects and the old summary are kept.
#[test]
fn an_output_without_its_summary_is_not_written() {
    let scene = Scene::new();
    let summary = scene.folder.path().join("summary.json");
    fs::write(&summary, "the old one").unwrap();
    let full = scene.folder.path().join("full");
    fs::create_dir(&full).unwrap();
    for (what, place) in [
        ("a missing folder", scene.folder.path().join("missing/summary")),
        ("a folder of that name", full.clone()),
        ("a full device", PathBuf::from("/dev/full")),
    ] {
        let ran = attempt(&scene.input, &scene.output, &["--summary", tools::text(&place)]);
        assert_eq!(ran.status.code(), Some(1), "{what}: {}", said(&ran));
        let error = format!("error[JI401]: {}: ", place.display());
        assert!(said(&ran).contains(&error), "{what}: {}", said(&ran));
        if place != Path::new("/dev/full") {
            scene.assert_unchanged(what);
        }
    }
    assert_eq!(fs::read(&summary).unwrap(), b"the old one");
}

/// If the profile cannot be renamed to its final path, the old summary is restored.
#[test]
fn a_summary_without_its_output_is_not_written() {
    let folder = scratch();
    let input = capture::profile("php82");
    let output = folder.path().join("out.data");
    let summary = folder.path().join("summary.json");
    fs::write(&summary, "the old one").unwrap();
    let options = InjectOptions {
        summary: Some(summary.clone()),
        ..InjectOptions::new(input, &output)
    };
    let mut progress = AtFirstObject {
        part: "",
        then: Some(|| fs::create_dir(&output).unwrap()),
    };
    inject_here(&options, &mut progress).unwrap_err();
    assert_eq!(fs::read(&summary).unwrap(), b"the old one");
    assert!(!folder.path().join("out.data.elf").exists());
    assert_eq!(left_over(folder.path()), Vec::<PathBuf>::new());
}

/// Calls a function when a part of the work starts.
struct AtStart<F: FnMut()> {
    part: &'static str,
    then: Option<F>,
}

impl<F: FnMut()> Progress for AtStart<F> {
    fn start(&mut self, what: &'static str, _total: u64) {
        if what == self.part
            && let Some(mut then) = self.then.take()
        {
            then();
        }
    }

    fn advance(&mut self, _steps: u64) {}
}

/// Its owner puts another folder in the place of the one that is open, before it is written to or meanwhile.
#[test]
fn outputs_in_an_open_folder_stay_there_whatever_its_path_is() {
    for (part, has_link) in [
        ("reading samples", false),
        ("reading samples", true),
        ("writing objects", true),
        ("counting samples", false),
        ("filling the build-id cache", true),
    ] {
        let scratch = scratch();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("other/summary.json"), "precious").unwrap();
        let options = InjectOptions {
            folder: Some(Folder::open(&at("folder"), Scope::Named).unwrap()),
            summary: Some(at("folder/summary.json")),
            build_id_cache: Some(at("folder/debug")),
            ..InjectOptions::new(capture::profile("php82"), at("folder/out.data"))
        };
        let mut progress = AtStart {
            part,
            then: Some(|| {
                fs::rename(at("folder"), at("moved")).unwrap();
                if has_link {
                    symlink("other", at("folder")).unwrap()
                } else {
                    fs::rename(at("other"), at("folder")).unwrap()
                }
            }),
        };
        let summary = inject_here(&options, &mut progress).unwrap();
        assert!(summary.diagnostics.is_empty(), "{summary:?}");
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let outputs = ["debug", "out.data", "out.data.elf", "summary.json"];
        assert_eq!(names(&at("moved")), outputs);
        assert!(!names(&at("moved/out.data.elf")).is_empty());
        assert!(!names(&at("moved/debug/.build-id")).is_empty());
        assert_eq!(names(&at("folder")), ["summary.json"]);
        assert_eq!(fs::read(at("folder/summary.json")).unwrap(), b"precious");
    }
}

#[test]
fn new_parents_of_a_folder_of_objects_are_the_user_s_whatever_the_umask_is() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name);
    let output = Command::new("sh")
        .args(["-c", "umask 0; exec \"$@\"", "sh"])
        .args([env!("CARGO_BIN_EXE_jitinject"), "-i"])
        .arg(capture::profile("php82"))
        .arg("-o")
        .arg(at("out.data"))
        .arg("--elf-dir")
        .arg(at("n1/n2/objects"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for (name, mode) in [("n1", 0o755), ("n1/n2", 0o755), ("n1/n2/objects", 0o700)] {
        assert_eq!(at(name).metadata().unwrap().mode() & 0o777, mode, "{name}");
    }
}
