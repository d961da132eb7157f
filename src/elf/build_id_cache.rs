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

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use crate::bytes::hex_digits;
use crate::diagnostics::{Diagnostic, Issue};
use crate::files::{InputFile, SharedFolder};
use crate::units::BuildId;

/// Name of the directory with the links.
const LINKS: &str = ".build-id";
/// File name of every object.
const OBJECT: &str = "elf";

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
        let Some(equals) = line
            .iter()
            .position(|&byte| byte == b'=')
            .filter(|_| is_in_section)
        else {
            continue;
        };
        let (key, value) = line.split_at(equals);
        let value = value.strip_prefix(b"=").unwrap_or(value);
        let value = value
            .split(|byte| matches!(byte, b'#' | b';'))
            .next()
            .unwrap_or_default()
            .trim_ascii();
        let quoted = value
            .strip_prefix(b"\"")
            .and_then(|value| value.strip_suffix(b"\""));
        let value = quoted.unwrap_or(value);
        let is_plain = !value.is_empty() && !value.iter().any(|byte| matches!(byte, b'"' | b'\\'));
        if key.trim_ascii().eq_ignore_ascii_case(b"dir") && is_plain {
            found = Some(value);
        }
    }
    found
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
    root: SharedFolder,
    links: SharedFolder,
    /// The most recently used directory, with the original path of the objects in it.
    folder: Option<(PathBuf, SharedFolder)>,
}

impl BuildIdCache {
    /// Opens a cache; creates it if it does not exist.
    pub fn create(path: &Path) -> Result<Self, Diagnostic> {
        let root = SharedFolder::create(path).map_err(|cause| error(path, &cause))?;
        Ok(Self {
            links: enter(&root, LINKS.as_ref())?,
            root,
            folder: None,
        })
    }

    /// Adds the object file at an absolute path. The link is created last, so that it never dangles.
    pub fn add(&mut self, build_id: &BuildId, path: &Path) -> Result<Added, Diagnostic> {
        let object = InputFile::open(path).map_err(|cause| error(path, &cause))?;
        let name = build_id.to_string();
        let (first, rest) = name.split_at(2);
        let links = enter(&self.links, first.as_ref())?;
        let link = links.path().join(rest);
        if has_content(&link, &object) {
            return Ok(Added::Present);
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let file_name = path.file_name().unwrap_or_default();
        let entry = enter(&enter(self.folder(folder)?, file_name)?, name.as_ref())?;
        let added = entry.add_file(OBJECT, &object);
        added.map_err(|cause| error(&entry.path().join(OBJECT), &cause))?;
        let target: PathBuf = components(path).collect();
        let target = Path::new("../..").join(target).join(&name);
        let linked = links.create_symlink(rest, &target);
        linked.map_err(|cause| error(&link, &cause))?;
        Ok(if has_content(&link, &object) {
            Added::New
        } else {
            Added::Occupied
        })
    }

    fn folder(&mut self, path: &Path) -> Result<&SharedFolder, Diagnostic> {
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

/// Returns the normal components of an absolute path.
fn components(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

fn enter(folder: &SharedFolder, name: &OsStr) -> Result<SharedFolder, Diagnostic> {
    folder
        .open_subfolder(name)
        .map_err(|cause| error(&folder.path().join(name), &cause))
}

fn error(path: &Path, cause: &io::Error) -> Diagnostic {
    Diagnostic::new(Issue::CacheIncomplete)
        .in_file(path)
        .caused_by(cause)
}

/// Returns whether a link leads to a file with the same content.
fn has_content(link: &Path, object: &InputFile) -> bool {
    InputFile::open(&link.join(OBJECT)).is_ok_and(|found| found[..] == object[..])
}

#[cfg(test)]
mod tests {
    use super::*;

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
