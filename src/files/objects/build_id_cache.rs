//! Writes objects into a build ID cache, where readers find them by build ID, on any machine.
//!
//! ```text
//! DIR/.build-id/ab/cdef…  ──►  ../../PATH/abcdef…     the link that perf follows
//! DIR/PATH/abcdef…/elf                                the object that was at this path
//! ```
//!
//! The layout is that of `perf buildid-cache` (`build_id_cache__add` in `util/build-id.c`). perf looks here
//! (`dso__build_id_filename`) before it tries the path in the profile, even for processes with a mount namespace
//! of their own. debuginfod indexes files below DIR by the build IDs in them, whatever their names. It follows
//! links only with an option, so the objects are regular files.
//!
//! The cache is filled after the output is in place. The directory may be shared with others: jitinject
//! writes through no symbolic link in it and replaces nothing in it. A file with the build ID of an object
//! but other content stays, and a diagnostic reports it.
//!
//! The cache of a recording is new and stays beside its objects. It has a symbolic link for each of them, in place of
//! a directory: perf also reads a file there.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::bytes::{hex_digits, split_once};
use crate::files::folder::ignore_existing;
use crate::files::staged::write_new_file;
use crate::files::{Folder, InputFile, NameInFolder, walk};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::units::BuildId;

/// Name of the directory with the links.
const LINKS: &str = ".build-id";
/// File name of every object.
const OBJECT: &str = "elf";
/// Way from the directory of a link, such as `.build-id/ab`, to the cache.
const CACHE: &str = "../..";
/// Way from there to what is beside the cache.
const BESIDE_CACHE: &str = "../../..";

/// Returns the cache that perf uses: the one that perf, if it has started this program, names in its environment
/// (`set_buildid_dir` in `util/config.c`), that of its configuration, or `~/.debug`.
pub fn default_folder() -> Option<PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        let home = variable("HOME").map(PathBuf::from);
        let configuration = variable("PERF_CONFIG").map(PathBuf::from);
        let configuration = configuration.or_else(|| Some(home.as_ref()?.join(".perfconfig")));
        variable("PERF_BUILDID_DIR")
            .map(PathBuf::from)
            .or_else(|| configured_folder(&configuration?))
            .or_else(|| Some(home?.join(".debug")))
    });
    folder.clone()
}

/// Reads `buildid.dir` of a configuration file of perf, which must belong to this user or root, as for perf.
fn configured_folder(path: &Path) -> Option<PathBuf> {
    let file = InputFile::open(path).ok().filter(InputFile::is_trusted)?;
    buildid_dir(&file).map(|folder| PathBuf::from(OsStr::from_bytes(folder)))
}

/// Returns the value of `dir` in the section `buildid`. perf also accepts escaped characters and lines that continue on the
/// next one; such values are skipped.
fn buildid_dir(configuration: &[u8]) -> Option<&[u8]> {
    let mut is_in_section = false;
    let mut found = None;
    for line in configuration.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii) {
        if let Some(section) = line.strip_prefix(b"[") {
            is_in_section = section
                .strip_suffix(b"]")
                .is_some_and(|name| name.eq_ignore_ascii_case(b"buildid"));
            continue;
        }
        let Some((key, value)) = split_once(line, b'=').filter(|_| is_in_section) else {
            continue;
        };
        if key.trim_ascii().eq_ignore_ascii_case(b"dir") {
            // Of several, the last one counts.
            found = plain_value(value).or(found);
        }
    }
    found
}

/// Returns a value of a configuration file without the comment behind it and its quotes; `None` if it is empty or has escaped
/// characters.
fn plain_value(text: &[u8]) -> Option<&[u8]> {
    let value = text.split(|byte| matches!(byte, b'#' | b';')).next()?;
    let value = value.trim_ascii();
    let quoted = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    let value = quoted.unwrap_or(value);
    let is_plain = !value.is_empty() && !value.iter().any(|byte| matches!(byte, b'"' | b'\\'));
    is_plain.then_some(value)
}

/// Returns the path at which a cache has the file with a build ID; `None` if the ID is empty. `name` is `elf`, or `vdso` for
/// the code that the kernel maps into each process.
pub fn file_path(cache: &Path, build_id: &[u8], name: &str) -> Option<PathBuf> {
    let digits = hex_digits(build_id);
    let (first, rest) = digits.split_at_checked(2)?;
    Some(cache.join(LINKS).join(first).join(rest).join(name))
}

/// Result of adding an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// The object was added.
    New,
    /// The object was in the cache already.
    Present,
    /// Another file has this build ID in the cache; it is kept.
    Occupied,
}

/// An open build ID cache.
#[derive(Debug)]
pub struct BuildIdCache {
    root: Folder,
    links: Folder,
    /// The most recently used directory, with the original path of the objects in it.
    folder: Option<(PathBuf, Folder)>,
}

impl BuildIdCache {
    /// Opens a cache; creates it if it does not exist. `open` is a directory that is open already, and may have it.
    pub fn create(path: &Path, open: Option<&Folder>) -> Result<Self, Diagnostic> {
        let root = match open.and_then(|open| open.place_of(path)) {
            Some(place) => place.open_shared_folder(),
            None => Folder::create_all(path),
        };
        let root = root.map_err(|cause| error(path, &cause))?;
        Ok(Self {
            links: enter(&root, LINKS.as_ref())?,
            root,
            folder: None,
        })
    }

    /// Adds an object file of the directory `objects`, which a profile maps from `path`. The link is created last, so that it
    /// never dangles.
    pub fn add_object(
        &mut self,
        build_id: &BuildId,
        objects: &Folder,
        path: &Path,
    ) -> Result<Added, Diagnostic> {
        let file_name = path.file_name().unwrap_or_default();
        let original = objects.at(file_name);
        let object = original.open_file().and_then(|file| InputFile::read(&file));
        let object = object.map_err(|cause| error(path, &cause))?;
        let name = build_id.to_string();
        let (links, link) = self.folder_of_link(&name)?;
        let entry_of_link = Path::new(link).join(OBJECT);
        if has_content(&links, &entry_of_link, &object) {
            return Ok(Added::Present);
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let entry = enter(&enter(self.folder(folder)?, file_name)?, name.as_ref())?.at(OBJECT);
        add_file(&entry, &original, &object).map_err(|cause| error(&entry.path(), &cause))?;
        let target: PathBuf = components(path).collect();
        let target = Path::new(CACHE).join(target).join(&name);
        let linked = ignore_existing(links.at(link).create_link(&target));
        linked.map_err(|cause| error(&links.path().join(link), &cause.into()))?;
        Ok(if has_content(&links, &entry_of_link, &object) {
            Added::New
        } else {
            Added::Occupied
        })
    }

    /// Adds a link to an object in the directory `objects` beside the cache. A link that is there already stays, and is
    /// [`Added::Present`] if it leads to the same content: processes that share code, such as the workers of a server, have
    /// objects with one build ID.
    ///
    /// perf reads such a link like an entry of its first layout, with a file in place of a directory (`is_regular_file` in
    /// `dso__build_id_filename`).
    pub fn link(
        &mut self,
        build_id: &BuildId,
        objects: &Folder,
        object: &OsStr,
    ) -> Result<Added, Diagnostic> {
        let name = build_id.to_string();
        let (links, link) = self.folder_of_link(&name)?;
        // Only a root directory has no name, and none is beside a cache.
        let folder_name = objects.path().file_name().unwrap_or_default();
        let target = Path::new(BESIDE_CACHE).join(folder_name).join(object);
        match links.at(link).create_link(&target) {
            Ok(()) => Ok(Added::New),
            Err(Errno::EXIST) if leads_to_same(&links, link, &objects.at(object)) => Ok(Added::Present),
            Err(Errno::EXIST) => Ok(Added::Occupied),
            Err(cause) => Err(error(&links.path().join(link), &cause.into())),
        }
    }

    /// Opens the directory with the link of a build ID, of which `digits` are all digits. Returns the name of the link, too.
    fn folder_of_link<'d>(&self, digits: &'d str) -> Result<(Folder, &'d str), Diagnostic> {
        let (folder, link) = digits.split_at(2);
        Ok((enter(&self.links, folder.as_ref())?, link))
    }

    /// Opens a folder below the root. The last one stays open.
    fn folder(&mut self, path: &Path) -> Result<&Folder, Diagnostic> {
        if self.folder.as_ref().is_some_and(|(last, _)| last != path) {
            self.folder = None;
        }
        match self.folder {
            Some((_, ref folder)) => Ok(folder),
            None => {
                let mut components = components(path);
                let first = enter(&self.root, components.next().unwrap_or(OsStr::new(".")))?;
                let folder = components.try_fold(first, |folder, name| enter(&folder, name))?;
                let (_, folder) = self.folder.insert((path.to_owned(), folder));
                Ok(folder)
            }
        }
    }
}

/// Puts a file into the cache, unless its name is taken there.
///
/// Uses a hard link if possible, which takes no space. Otherwise copies the file, as it does if the file belongs to another
/// user, who could change it later.
fn add_file(place: &NameInFolder, original: &NameInFolder, file: &InputFile) -> io::Result<()> {
    // File systems without hard links, or that reject this one, return various errors.
    if file.is_owned_by_user() && ignore_existing(original.link(place)).is_ok() {
        return Ok(());
    }
    write_new_file(place.clone(), file)
}

/// Returns the normal components of an absolute path.
fn components(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

fn enter(folder: &Folder, name: &OsStr) -> Result<Folder, Diagnostic> {
    let place = folder.at(name);
    place
        .open_shared_folder()
        .map_err(|cause| error(&place.path(), &cause))
}

fn error(path: &Path, cause: &io::Error) -> Diagnostic {
    Diagnostic::new(Issue::CacheIncomplete)
        .in_file(path)
        .caused_by(cause)
}

/// Whether a link leads to the same content as an object has; `false` if either cannot be read.
fn leads_to_same(links: &Folder, link: &str, object: &NameInFolder) -> bool {
    let object = object.open_file().and_then(|file| InputFile::read(&file));
    object.is_ok_and(|object| has_content(links, Path::new(link), &object))
}

/// Returns whether a path leads to a file with the same content.
fn has_content(links: &Folder, path: &Path, object: &InputFile) -> bool {
    let found = walk::open_from(links.as_fd(), path).and_then(|file| InputFile::read(&file));
    found.is_ok_and(|found| found[..] == object[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::walk::Scope;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn folder_and_file(dir: &Path) -> (Folder, NameInFolder, InputFile) {
        fs::write(dir.join("file"), "content").unwrap();
        let file = Folder::open(dir, Scope::Named).unwrap().at("file");
        let read = InputFile::read(&file.open_file().unwrap()).unwrap();
        (Folder::create_all(&dir.join("a/b")).unwrap(), file, read)
    }

    #[test]
    fn files_are_linked_or_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, original, file) = folder_and_file(dir.path());
        add_file(&folder.at("same"), &original, &file).unwrap();
        write_new_file(folder.at("copy"), &file).unwrap();
        for (name, links) in [("same", 2), ("copy", 1)] {
            let path = dir.path().join("a/b").join(name);
            assert_eq!(fs::read(&path).unwrap(), b"content");
            assert_eq!(fs::metadata(&path).unwrap().nlink(), links, "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_serves_all_objects_with_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Folder::create_all(&dir.path().join("objects")).unwrap();
        let mut cache = BuildIdCache::create(&dir.path().join("debug"), None).unwrap();
        for (name, content, expected) in [
            ("of_first_worker", "code", Added::New),
            ("of_second_worker", "code", Added::Present),
            ("of_another", "other code", Added::Occupied),
        ] {
            fs::write(dir.path().join("objects").join(name), content).unwrap();
            let added = cache.link(&BuildId([7; 20]), &objects, name.as_ref()).unwrap();
            assert_eq!(added, expected, "{name}");
        }
    }

    #[test]
    fn existing_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, original, file) = folder_and_file(dir.path());
        let other = dir.path().join("other");
        fs::write(&other, "somebody else's").unwrap();
        symlink(&other, folder.path().join("linked")).unwrap();
        symlink("nowhere", folder.path().join("dangling")).unwrap();
        for name in ["linked", "dangling"] {
            add_file(&folder.at(name), &original, &file).unwrap();
            write_new_file(folder.at(name), &file).unwrap();
        }
        assert_eq!(fs::read(&other).unwrap(), b"somebody else's");
        let target = fs::read_link(folder.path().join("dangling")).unwrap();
        assert_eq!(target, Path::new("nowhere"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_folder_of_perf_s_configuration_is_read() {
        let read =
            |text: &str| buildid_dir(text.as_bytes()).map(|found| String::from_utf8(found.to_vec()).unwrap());
        for (text, expected) in [
            ("[buildid]\n\tdir = /srv/debug\n", Some("/srv/debug")),
            (
                "[ui]\ndir=/x\n[BuildID]\ndir = \"/srv/my debug\" # a comment\r\n",
                Some("/srv/my debug"),
            ),
            (
                "[buildid]\ndir = /a\ndir = /b ; c\n[report]\ndir = /c\n",
                Some("/b"),
            ),
            ("[buildid] ; x\ndir = /a", None),
            ("[buildid]\ndir =\ndir\n= /a\n", None),
            ("[buildid]\ndir = /a\\\n/b\n", None),
            ("dir = /a\n", None),
            ("", None),
        ] {
            assert_eq!(read(text).as_deref(), expected, "{text}");
        }
    }
}
