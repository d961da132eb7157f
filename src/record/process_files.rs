//! The files in which running processes log their code.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jitdump::PerfMap;
use jitdump::internals::format::marker::pid_in_name;

use super::short_command::IsStopped;
use crate::bytes::base_name;
use crate::files::folder::PRIVATE;
use crate::files::kernel;
use crate::files::walk::Scope;
use crate::files::{Folder, OpenFile};
use crate::load::running_processes::start_of;
use crate::runtimes::{Description, Runtime};
use crate::units::Pid;

/// Bytes of a file that are copied between two looks at signals.
const PIECE: u64 = 16 << 20;

/// Bytes of a file that may be in holes, which a copy does not have.
const MAX_HOLES: u64 = 16 << 20;

/// Returns whether a process has not exited. One that has, and that nobody waits for, has no program.
pub fn is_running(pid: Pid) -> bool {
    kernel::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Returns the runtime of a process, by its program and its libraries.
pub fn runtime_of(pid: u32) -> Option<&'static Description> {
    runtime_in(pid, &maps_of(pid))
}

/// Whether a process has mapped a jitdump or written a perf map.
pub fn has_files(pid: u32) -> bool {
    !files_of(pid, &maps_of(pid)).is_empty()
}

/// Returns the mappings of a process, as in proc_pid_maps(5).
pub fn maps_of(pid: u32) -> Vec<u8> {
    kernel::read(format!("/proc/{pid}/maps")).unwrap_or_default()
}

/// Returns the runtime of a process with these mappings.
pub fn runtime_in(pid: u32, maps: &[u8]) -> Option<&'static Description> {
    let program = kernel::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let program = base_name(program.as_os_str().as_bytes());
    let of_libraries =
        || kernel::mapped_files(maps).find_map(|file| Description::of_file(base_name(file.path)));
    let found = Description::of_file(program).or_else(of_libraries)?;
    // Many programs use LLVM, but not its JIT compilers.
    (found.runtime != Runtime::Lli).then_some(found)
}

/// Returns the jitdumps that a process with these mappings has mapped, and its perf map, with their paths in its file system.
pub fn files_of(pid: u32, maps: &[u8]) -> BTreeSet<PathBuf> {
    let dumps = kernel::mapped_files(maps).filter(|file| pid_in_name(base_name(file.path)).is_some());
    let dumps = dumps.map(|file| PathBuf::from(OsStr::from_bytes(file.path)));
    let folder = root_of(pid).join("tmp");
    let start = start_of(pid);
    let is_own = |file: &Metadata| file.is_file() && may_be_of(file, start);
    let map = perf_maps(pid).find(|map| fs::metadata(folder.join(map)).is_ok_and(|file| is_own(&file)));
    dumps.chain(map.map(|map| Path::new("/tmp").join(map))).collect()
}

/// Whether a file may be of the process that started then. One of an earlier process with the same ID is older.
pub fn may_be_of(file: &Metadata, start: Option<SystemTime>) -> bool {
    start.is_none_or(|start| file.modified().is_ok_and(|modified| modified >= start))
}

/// Whether a process has exited, or has the same root directory as this process.
pub fn has_same_root(pid: u32) -> bool {
    let namespace = |process: &str| kernel::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let Some(there) = namespace(&pid.to_string()) else {
        return true;
    };
    let root = kernel::read_link(format!("/proc/{pid}/root"));
    namespace("self") == Some(there) && root.is_ok_and(|root| root == Path::new("/"))
}

/// Returns the root directory of a process, as this process sees it.
fn root_of(pid: u32) -> PathBuf {
    if has_same_root(pid) {
        PathBuf::from("/")
    } else {
        PathBuf::from(format!("/proc/{pid}/root"))
    }
}

/// Returns the IDs of a process in its namespaces, from that of this process to its own; nothing if it has exited.
pub fn ids_of(pid: u32) -> Vec<u32> {
    let ids = kernel::status_of(pid, "NSpid").unwrap_or_default();
    ids.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Returns the possible names of a process's perf map in its `/tmp`. In a container, it has another ID.
fn perf_maps(pid: u32) -> impl Iterator<Item = PathBuf> {
    let ids = ids_of(pid);
    let ids = if ids.is_empty() { vec![pid] } else { ids };
    // The last one is that in the innermost namespace.
    ids.into_iter()
        .rev()
        .map(|id| PathBuf::from(format!("perf-{id}.map")))
}

/// Opens the perf map of a process that runs or has exited. In a container, others choose what is below its root directory, so
/// no link leads out of it, and a file that is mounted there is not the process's.
pub fn open_perf_map(pid: u32) -> Option<OpenFile> {
    let folder = Folder::open(Path::new("tmp"), Scope::Root(&root_of(pid))).ok()?;
    perf_maps(pid).find_map(|map| folder.at(map).open_file().ok())
}

/// Appends the perf map of a process, whose owner is `user`, to the copy in the folder for the files of runtimes, and returns
/// the path there. Later lines override earlier ones.
///
/// Returns `None` if the file belongs to another user, or does not start as perf maps do: the process could have chosen any file.
pub fn append_perf_map(
    map: &OpenFile,
    pid: u32,
    user: u32,
    dumps: &Folder,
    is_stopped: IsStopped<'_>,
) -> io::Result<Option<PathBuf>> {
    let start = map.read_start()?;
    let line = start.split_inclusive(|&byte| byte == b'\n').next();
    let is_map = line.is_none_or(|line| !PerfMap::parse(line).symbols.is_empty());
    if map.origin().owner != user || !is_map {
        return Ok(None);
    }
    let place = dumps.at(format!("perf-{pid}.map"));
    let copy = match place.append() {
        // .NET 8 writes it there itself.
        Ok(file) if file.metadata()?.uid() == user => file,
        Ok(_) => return Err(ErrorKind::AlreadyExists.into()),
        Err(_) => place.create_file(PRIVATE)?,
    };
    copy_file(map, &copy, is_stopped)?;
    // Whether it is older than its process decides whether it is used.
    copy.set_modified(map.file().metadata()?.modified()?)?;
    Ok(Some(place.path()))
}

/// Appends a file, up to its size when it was opened, to a copy, which gets the same owner: whose file it is decides whether it
/// is believed. On failure, the copy stays as it was.
///
/// Fails for a file of holes, and for one that takes more than half of the space that is left.
pub fn copy_file(file: &OpenFile, copy: &File, is_stopped: IsStopped<'_>) -> io::Result<()> {
    let (old, owner) = (copy.metadata()?, file.origin().owner);
    let system = rustix::fs::fstatvfs(copy)?;
    file.refuse_holes(MAX_HOLES)?;
    if file.size() > system.f_bavail.saturating_mul(system.f_frsize) / 2 {
        return Err(ErrorKind::StorageFull.into());
    }
    let mut copy_pieces = || {
        let mut left = file.size();
        while left > 0 {
            if is_stopped() {
                return Err(ErrorKind::Interrupted.into());
            }
            let copied = io::copy(&mut file.file().take(left.min(PIECE)), &mut &*copy)?;
            // It has become shorter.
            left = if copied == 0 {
                0
            } else {
                left.saturating_sub(copied)
            };
        }
        if owner == old.uid() {
            Ok(())
        } else {
            fchown(copy, Some(owner), None)
        }
    };
    copy_pieces().or_else(|cause| copy.set_len(old.len()).and(Err(cause)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_found_among_mappings() {
        let maps = b"00400000-00401000 r-xp 00000000 08:01 7  /a b/jit-17.dump\n\
            7f01-7f02 r-xp 00000000 08:01 7  /usr/lib/libc.so.6\n\
            7f02-7f03 rw-p 00000000 00:00 0 \n7f03-7f04 rw-p 00000000 00:00 0  [heap]\n\
            7f04-7f05 r-xp 00000000 08:01 7  /tmp/jit-18.dump (deleted)\n";
        let absent = u32::MAX;
        assert_eq!(
            files_of(absent, maps),
            BTreeSet::from(["/a b/jit-17.dump".into(), "/tmp/jit-18.dump".into()])
        );
    }

    /// A folder for copies, and one with a map.
    struct Scene {
        scratch: tempfile::TempDir,
        dumps: Folder,
    }

    impl Scene {
        fn new() -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let dumps = Folder::create_all(&scratch.path().join("dumps")).unwrap();
            Self { scratch, dumps }
        }

        fn write(&self, text: &str) -> OpenFile {
            fs::write(self.scratch.path().join("map"), text).unwrap();
            self.open()
        }

        fn open(&self) -> OpenFile {
            let folder = Folder::open(self.scratch.path(), Scope::Named).unwrap();
            folder.at("map").open_file().unwrap()
        }

        fn append(&self, map: &OpenFile) -> io::Result<Option<PathBuf>> {
            let user = rustix::process::geteuid().as_raw();
            append_perf_map(map, 17, user, &self.dumps, &mut || false)
        }

        fn copied(&self) -> String {
            fs::read_to_string(self.dumps.path().join("perf-17.map")).unwrap_or_default()
        }
    }

    #[test]
    fn perf_maps_are_joined() {
        let scene = Scene::new();
        for line in ["7f00 10 old\n", "7f00 8 new\n"] {
            let target = scene.append(&scene.write(line)).unwrap();
            assert_eq!(target, Some(scene.dumps.path().join("perf-17.map")));
        }
        assert_eq!(scene.copied(), "7f00 10 old\n7f00 8 new\n");
    }

    #[test]
    fn a_perf_map_that_grows_or_has_holes_does_not_fill_the_disk() {
        let scene = Scene::new();
        let map = scene.write("7f00 10 name\n");
        scene.write("7f00 10 name\nmore\n");
        scene.append(&map).unwrap();
        assert_eq!(scene.copied(), "7f00 10 name\n");
        let map = scene.write("7f00 10 name\n");
        let file = File::options().write(true).open(map.path()).unwrap();
        for len in [17 << 20, 2 << 30] {
            file.set_len(len).unwrap();
            let failed = scene.append(&scene.open()).unwrap_err().to_string();
            assert!(failed.contains("is sparse"), "{failed}");
        }
        let system = rustix::fs::statvfs(map.path()).unwrap();
        file.set_len(system.f_bavail * system.f_frsize / 2 + (1 << 20))
            .unwrap();
        assert!(scene.append(&scene.open()).is_err());
        file.set_len(1 << 20).unwrap();
        let stopped = append_perf_map(&scene.open(), 17, map.origin().owner, &scene.dumps, &mut || true);
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
        assert_eq!(scene.copied(), "7f00 10 name\n");
    }

    #[test]
    fn what_is_no_perf_map_of_its_user_is_not_copied() {
        let scene = Scene::new();
        let secret = scene.write("root:$y$j9T$salt$hash:20000:0:99999:7:::\n7f00 10 name\n");
        assert_eq!(scene.append(&secret).unwrap(), None);
        let map = scene.write("7f00 10 name\n");
        let copy = |user| append_perf_map(&map, 17, user, &scene.dumps, &mut || false);
        assert_eq!(copy(map.origin().owner + 1).unwrap(), None);
        assert_eq!(scene.copied(), "");
        assert!(copy(map.origin().owner).unwrap().is_some());
        assert!(scene.append(&scene.write("")).unwrap().is_some());
    }

    #[test]
    fn a_process_has_its_own_perf_map() {
        let me = std::process::id();
        assert_eq!(root_of(me), Path::new("/"));
        assert_eq!(root_of(u32::MAX), Path::new("/"));
        let names: Vec<PathBuf> = perf_maps(me).collect();
        assert!(names.contains(&format!("perf-{me}.map").into()), "{names:?}");
        assert_eq!(perf_maps(7_000_000).next(), Some("perf-7000000.map".into()));
    }
}
