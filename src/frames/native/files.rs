//! Files of modules: the build that was recorded, wherever this machine has it.

use std::env;
use std::ffi::OsStr;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::bytes::{base_name, hex_digits};
use crate::elf::limited_reads::MemoryRoom;
use crate::files::input_file::memory_size;
use crate::files::objects::{build_id_cache, store};
use crate::files::open_file::is_trusted;
use crate::files::search::folder_of;
use crate::files::stdio::is_standard;
use crate::files::walk::{self, Scope};
use crate::files::{FileOrigin, OpenFile, Reach};
use crate::frames::native::modules::Module;
use crate::load::{LoadOptions, led_by};
use crate::results::diagnostics::{Diagnostic, Issue};

/// Finds files of modules.
#[derive(Debug)]
pub struct NativeFiles {
    reach: Reach,
    /// Folder that has the files of the recorded machine, below their paths.
    root: Option<PathBuf>,
    /// Folder of the profile; `None` for standard input.
    folder: Option<PathBuf>,
    /// Whether files of all users are used.
    is_blind: bool,
    /// Memory for the contents of all files.
    pub memory: MemoryRoom,
}

/// Folder in which distributions install supplementary files.
const DWZ_FOLDER: &str = ".dwz";

/// Name of the code that the kernel maps into each process.
pub const VDSO: &[u8] = b"[vdso]";

impl NativeFiles {
    /// Prepares the search.
    pub fn new(options: &LoadOptions) -> Self {
        Self {
            reach: options.reach(),
            root: options.symfs.clone(),
            folder: profile_folder(options),
            is_blind: options.force,
            memory: MemoryRoom::new(max_memory()),
        }
    }

    /// Whether no file outside of the profile's folder may be opened, and no process may be examined.
    pub fn is_confined(&self) -> bool {
        self.reach.is_confined()
    }

    /// Returns the files that may be a module: the one at its path, that beside the profile, and the copy in perf's build-id
    /// cache. The caller compares their build IDs, with [`is_same_build`]. With a folder for the files of the recorded machine,
    /// those of this machine count only for modules with a build ID.
    pub fn of(&self, module: &Module) -> impl Iterator<Item = OpenFile> {
        let path = Path::new(OsStr::from_bytes(&module.path));
        let at_path = path.has_root().then(|| self.open_below_root(path)).flatten();
        let in_cache = || {
            let name = if module.path == VDSO { "vdso" } else { "elf" };
            let cache = build_id_cache::default_folder()?;
            let path = build_id_cache::file_path(&cache, module.build_id.as_deref()?, name)?;
            self.reach.open_recorded(&path).ok()
        };
        let is_here = path.has_root() && self.root.is_some() && module.build_id.is_some();
        let here = is_here.then(|| self.reach.open_recorded(path).ok()).flatten();
        let is_file = path.has_root() || module.path == VDSO;
        let cached = is_file.then(in_cache).flatten();
        let beside = iter::once_with(move || self.beside_profile(module)).flatten();
        at_path.into_iter().chain(here).chain(beside).chain(cached)
    }

    /// Returns the file of an object of jitinject whose directory was moved with the profile.
    fn beside_profile(&self, module: &Module) -> Option<OpenFile> {
        let is_object = store::has_functions(base_name(&module.path)).is_some();
        let folder = self
            .folder
            .as_deref()
            .filter(|_| is_object && module.build_id.is_some())?;
        let path = Path::new(OsStr::from_bytes(&module.path));
        let inside = Path::new(path.parent()?.file_name()?).join(path.file_name()?);
        walk::open(&inside, Scope::Beneath(folder)).ok()
    }

    /// Returns the separate debug files with a build ID.
    pub fn debug_files(&self, build_id: &[u8]) -> impl Iterator<Item = OpenFile> {
        let [installed, downloaded] = debug_paths(build_id);
        let below_root = installed.as_deref().filter(|_| self.root.is_some());
        let below_root = below_root.and_then(|path| self.open_below_root(path));
        let others = installed.into_iter().chain(downloaded);
        let others = others.filter_map(|path| self.reach.open_recorded(&path).ok());
        below_root.into_iter().chain(others)
    }

    /// Returns the files that may be the supplementary file to which `debug_file` refers by `path` and `build_id`: debug files
    /// with that build ID, the file at the path, which may be relative to the debug file, and the one that distributions
    /// install. The caller compares their build IDs.
    pub fn supplementary_files(
        &self,
        debug_file: &Path,
        path: &[u8],
        build_id: &[u8],
    ) -> impl Iterator<Item = OpenFile> {
        let path = Path::new(OsStr::from_bytes(path));
        let at_path = if path.has_root() {
            self.open_below_root(path)
        } else {
            self.reach.open_recorded(&debug_file.with_file_name(path)).ok()
        };
        let installed = installed_supplementary(path).and_then(|path| self.open_below_root(&path));
        self.debug_files(build_id).chain(at_path).chain(installed)
    }

    /// Returns the package with the compile units of a module (`.dwp`).
    pub fn package(&self, module: &Module) -> Option<OpenFile> {
        let path = [&*module.path, b".dwp"].concat();
        self.open_below_root(Path::new(OsStr::from_bytes(&path)))
    }

    /// Returns the file of a compile unit (`.dwo`).
    pub fn split_file(&self, path: &[u8]) -> Option<OpenFile> {
        let path = Path::new(OsStr::from_bytes(path));
        path.has_root().then(|| self.open_below_root(path)).flatten()
    }

    /// Returns the user who wrote a file that is or may be a module; `None` for copies in caches, which have another owner than the
    /// original, and if others could lead to any file.
    pub fn author(&self, file: &OpenFile) -> Option<u32> {
        (!is_in_cache(file) && is_where_it_seems(file)).then_some(file.origin().owner)
    }

    /// Rejects a file that a module's file refers to if a user other than `author`, who wrote that file, could have put it, or a
    /// link to it, into a folder like `/tmp`. IDs of builds keep nobody from that: everybody can read them.
    pub fn check_companion(&self, file: &FileOrigin, author: Option<u32>) -> Result<(), Diagnostic> {
        let mut owners = file.trail.sticky_owners.iter();
        let stranger = owners.find(|&&owner| !is_trusted(owner) && Some(owner) != author);
        match stranger.filter(|_| !self.is_blind) {
            None => Ok(()),
            Some(&owner) if owner == file.owner => {
                Err(Diagnostic::new(Issue::OtherOwner).with("user", owner))
            }
            Some(&owner) => Err(led_by(owner, file)),
        }
    }

    /// Whether a file is a copy in a cache: files of builds that perf has seen, or that debuginfod has downloaded.
    pub fn is_copy(&self, file: &OpenFile) -> bool {
        is_in_cache(file) && is_where_it_seems(file)
    }

    /// Opens a file of the recorded machine. Its links lead to others of that machine.
    fn open_below_root(&self, path: &Path) -> Option<OpenFile> {
        let opened = match &self.root {
            Some(root) => walk::open(path, Scope::Root(root)),
            None => self.reach.open_recorded(path),
        };
        opened.ok()
    }
}

/// Returns the folder of the profile; `None` for standard input.
pub fn profile_folder(options: &LoadOptions) -> Option<PathBuf> {
    let input = &options.input;
    (!is_standard(input)).then(|| folder_of(input).to_owned())
}

/// Whether a path starts with that of a cache.
fn is_in_cache(file: &OpenFile) -> bool {
    let caches = [build_id_cache::default_folder(), debuginfod_folder()];
    caches
        .iter()
        .flatten()
        .any(|cache| file.path().starts_with(cache))
}

/// Whether a path leads to its file without `..` and links of others.
fn is_where_it_seems(file: &OpenFile) -> bool {
    let mut parts = file.path().components();
    let mut links = file.origin().trail.link_owners.iter();
    parts.all(|part| part != Component::ParentDir) && links.all(|&owner| is_trusted(owner))
}

/// Returns the paths of a separate debug file: where distributions install it, and where debuginfod downloads it.
fn debug_paths(build_id: &[u8]) -> [Option<PathBuf>; 2] {
    let digits = hex_digits(build_id);
    let Some((first, rest)) = digits.split_at_checked(2) else {
        return [None, None];
    };
    let installed = Path::new("/usr/lib/debug/.build-id")
        .join(first)
        .join(format!("{rest}.debug"));
    let downloaded = debuginfod_folder().map(|cache| cache.join(&digits).join("debuginfo"));
    [Some(installed), downloaded]
}

/// Returns where distributions install the supplementary file of a path like `../../.dwz/x86_64-linux-gnu/a.debug`; `None` for
/// other paths. A relative one leads there from the place of the debug file, but not from a link to it.
fn installed_supplementary(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    parts.find(|part| part.as_os_str() == DWZ_FOLDER)?;
    Some(Path::new("/usr/lib/debug").join(DWZ_FOLDER).join(parts))
}

/// Returns the folder to which debuginfod downloads files.
fn debuginfod_folder() -> Option<PathBuf> {
    let named = env::var_os("DEBUGINFOD_CACHE_PATH").map(PathBuf::from);
    named.or_else(|| {
        let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
        Some(cache?.join("debuginfod_client"))
    })
}

/// Returns the memory for the contents of all files in bytes: a quarter of that of this machine, within limits. The files of
/// a whole machine's profile take some 100 MB.
fn max_memory() -> u64 {
    (memory_size() / 4).clamp(256 << 20, 2 << 30)
}

/// Whether a file with the build ID `found` can be the one that was profiled.
pub fn is_same_build(recorded: Option<&[u8]>, found: &[u8]) -> bool {
    /// The kernel records at most that many bytes.
    const MAX_RECORDED: usize = 20;
    recorded.is_none_or(|recorded| found.get(..MAX_RECORDED).unwrap_or(found) == recorded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_first_20_bytes_of_build_ids_are_compared() {
        let found: Vec<u8> = (0..64).collect();
        assert!(is_same_build(Some(&found[..20]), &found));
        assert!(!is_same_build(Some(&found[..19]), &found));
        assert!(!is_same_build(Some(&found[..21]), &found));
        assert!(is_same_build(Some(&found[..8]), &found[..8]));
    }

    #[test]
    fn the_author_of_a_file_is_its_owner_unless_others_or_a_cache_lead_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.so");
        fs::write(&path, "own").unwrap();
        let files = NativeFiles::new(&LoadOptions::default());
        let author = |path: &Path| files.author(&OpenFile::open(path).unwrap());
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(author(&path), Some(me));
        fs::create_dir(folder.path().join("other")).unwrap();
        assert_eq!(author(&folder.path().join("other/../own.so")), None);
        symlink(&path, folder.path().join("link.so")).unwrap();
        assert_eq!(author(&folder.path().join("link.so")), Some(me));
        if let Some(cache) = build_id_cache::default_folder() {
            let copy =
                OpenFile::from_file(fs::File::open(&path).unwrap(), &cache.join(".build-id/00/11/elf"));
            assert_eq!(files.author(&copy.unwrap()), None);
        }
    }

    #[test]
    fn supplementary_files_are_installed_below_one_folder() {
        for (path, expected) in [
            (
                "../../.dwz/amd64/a.debug",
                Some("/usr/lib/debug/.dwz/amd64/a.debug"),
            ),
            ("/other/.dwz/a.debug", Some("/usr/lib/debug/.dwz/a.debug")),
            ("../a.debug", None),
        ] {
            let installed = installed_supplementary(Path::new(path));
            assert_eq!(installed.as_deref(), expected.map(Path::new), "{path}");
        }
    }

    #[test]
    fn what_strangers_put_into_folders_like_tmp_is_not_used() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let opened = OpenFile::open(file.path()).unwrap();
        let me = opened.origin().owner;
        let (stranger, other) = (me + 1, me + 2);
        let rejected = |owner, sticky_owners: &[u32], author, force| {
            let mut file = opened.origin().clone();
            (file.owner, file.trail.sticky_owners) = (owner, sticky_owners.to_vec());
            let files = NativeFiles::new(&LoadOptions {
                force,
                ..LoadOptions::default()
            });
            let checked = files.check_companion(&file, author);
            checked.err().map(|rejected| rejected.issue)
        };
        let used = None;
        for (owner, sticky_owners, author, expected) in [
            (me, &[0, me][..], None, used),
            (stranger, &[], Some(me), used),
            (stranger, &[stranger], Some(stranger), used),
            (stranger, &[me, stranger], Some(me), Some(Issue::OtherOwner)),
            (stranger, &[stranger], Some(other), Some(Issue::OtherOwner)),
            (stranger, &[stranger], None, Some(Issue::OtherOwner)),
            (me, &[stranger, me], Some(me), Some(Issue::LinkOwner)),
        ] {
            let found = rejected(owner, sticky_owners, author, false);
            assert_eq!(found, expected, "{owner} {sticky_owners:?} {author:?}");
            assert_eq!(rejected(owner, sticky_owners, author, true), None);
        }
    }

    #[test]
    fn objects_are_found_beside_the_profile_without_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("new/out.elf")).unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("new/out.elf/jitted-1-2.so"), "moved").unwrap();
        fs::write(at("new/out.elf/own.so"), "own").unwrap();
        fs::write(at("elsewhere/jitted-1-2.so"), "elsewhere").unwrap();
        symlink("../elsewhere", at("new/link.elf")).unwrap();
        let starts = |path: &str, input: &str, build_id: Option<Vec<u8>>, confine| {
            let options = LoadOptions {
                input: at(input),
                confine,
                ..LoadOptions::default()
            };
            let module = Module {
                path: path.into(),
                build_id,
            };
            let files = NativeFiles::new(&options);
            let files = files.of(&module);
            files.map(|file| file.read_start().unwrap()).collect::<Vec<_>>()
        };
        let (object, id) = ("/absent/out.elf/jitted-1-2.so", Some(vec![7; 20]));
        let none = [[0u8; 0]; 0];
        for confine in [false, true] {
            assert_eq!(starts(object, "new/out.data", id.clone(), confine), [b"moved"]);
            assert_eq!(starts(object, "out.data", id.clone(), confine), none);
            assert_eq!(starts(object, "new/out.data", None, confine), none);
            for other in [
                "/absent/out.elf/own.so",
                "/absent/link.elf/jitted-1-2.so",
                "/absent/new/../jitted-1-2.so",
            ] {
                assert_eq!(
                    starts(other, "new/out.data", id.clone(), confine),
                    none,
                    "{other}"
                );
            }
        }
    }

    #[test]
    fn links_below_symfs_lead_to_files_of_the_recorded_machine() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/own.so"), "own").unwrap();
        fs::write(folder.path().join("outside.so"), "outside").unwrap();
        symlink("/usr/lib", root.join("lib")).unwrap();
        symlink(folder.path().join("outside.so"), root.join("usr/lib/link.so")).unwrap();
        let options = LoadOptions {
            symfs: Some(root),
            ..LoadOptions::default()
        };
        let starts = |path: &str| {
            let module = Module {
                path: path.into(),
                build_id: None,
            };
            let files = NativeFiles::new(&options);
            let files = files.of(&module);
            files.map(|file| file.read_start().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(starts("/lib/own.so"), [b"own"]);
        assert_eq!(starts("/lib/link.so"), [[0u8; 0]; 0]);
        assert_eq!(starts("/usr/../../outside.so"), [[0u8; 0]; 0]);
    }
}
