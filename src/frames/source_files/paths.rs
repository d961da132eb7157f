//! Paths of source files on this machine.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode;

use crate::files::OpenFile;
use crate::files::Reach;
use crate::files::walk::{self, Scope};
use crate::load::LoadOptions;

/// Where source files are on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceOptions {
    /// Folder for resolving relative source paths.
    pub source_dir: Option<PathBuf>,
    /// Prefixes of source paths, in whole components, and their replacements. The last matching prefix is
    /// replaced.
    pub path_map: Vec<(Vec<u8>, Vec<u8>)>,
    /// Which source maps are used.
    pub source_maps: SourceMapOptions,
}

/// Which source maps are used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceMapOptions {
    /// Whether no map is read.
    pub is_off: bool,
    /// Maps, and folders of maps, that take precedence over those that scripts name.
    pub paths: Vec<PathBuf>,
}

#[doc(hidden)]
impl SourceOptions {
    /// Returns the path on this machine, which may be relative.
    pub(crate) fn mapped_path<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        self.mapping(path).0
    }

    /// Returns the path on this machine, and the folder that the user named for it.
    fn mapping<'p>(&self, path: &'p [u8]) -> (Cow<'p, [u8]>, Option<&Path>) {
        let path = plain_path(path).map_or(Cow::Borrowed(path), Cow::Owned);
        let mut mappings = self.path_map.iter().rev();
        let mapped = mappings.find_map(|(old, new)| {
            // Names and reports have URLs.
            let old = plain_path(old).map_or(Cow::Borrowed(&old[..]), Cow::Owned);
            let mapped = replace_start(&path, &old, new)?;
            Some((mapped, Path::new(OsStr::from_bytes(new))))
        });
        match mapped {
            Some((mapped, folder)) => (Cow::Owned(mapped), Some(folder)),
            None => (path, None),
        }
    }

    /// Returns the absolute path of a source file on this machine.
    pub(crate) fn local_path(&self, path: &[u8]) -> Option<PathBuf> {
        self.local(path).map(|(path, _)| path)
    }

    /// Returns the absolute path of a source file, and the folder that the user named for it.
    fn local(&self, path: &[u8]) -> Option<(PathBuf, Option<&Path>)> {
        let (path, folder) = self.mapping(path);
        let path = Path::new(OsStr::from_bytes(&path));
        if path.is_absolute() {
            Some((path.to_owned(), folder))
        } else {
            let folder = self.source_dir.as_deref()?;
            Some((folder.join(path), Some(folder)))
        }
    }
}

/// Opens source files, within the limits for the profile.
#[derive(Debug)]
pub struct SourceFiles<'o> {
    /// Where they are.
    pub options: &'o SourceOptions,
    reach: Reach,
}

impl<'o> SourceFiles<'o> {
    /// Prepares to open the source files of a recording.
    pub fn new(options: &'o SourceOptions, load: &LoadOptions) -> Self {
        Self {
            options,
            reach: load.reach(),
        }
    }

    /// Whether the user named the folder of a file, in place of the recorded one.
    pub fn is_named(&self, path: &[u8]) -> bool {
        self.options.mapping(path).1.is_some()
    }

    /// Opens the file that a runtime named.
    pub fn open(&self, path: &[u8]) -> io::Result<OpenFile> {
        let (path, folder) = self.options.local(path).ok_or(io::ErrorKind::NotFound)?;
        self.open_in(folder, &path)
    }

    /// Opens a file in the folder of the one that a runtime named, or below. Links in that folder are not followed: it may be
    /// the work of others, and they could lead to any file of the user.
    pub fn open_beside(&self, path: &[u8], inside: &Path) -> io::Result<OpenFile> {
        let (path, named) = self.options.local(path).ok_or(io::ErrorKind::NotFound)?;
        let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
        if self.reach.is_confined() {
            self.open_in(named, &folder.join(inside))
        } else if named.is_some() {
            walk::open(inside, Scope::Beneath(folder))
        } else {
            walk::open(inside, Scope::BeneathRecorded(folder))
        }
    }

    /// Opens a file that the source map of a script names. Maps come with packages of others, and could name any file of the
    /// user: only files below the folder of the script count, and those below [`SourceOptions::source_dir`] whose mode lets
    /// everybody read them, and that are not hidden (`.env`). Links are not followed.
    pub fn open_original(&self, path: &[u8], script: &[u8]) -> io::Result<OpenFile> {
        let (path, named) = self.options.local(path).ok_or(io::ErrorKind::NotFound)?;
        let open = |folder: &Path, scope| {
            let inside = path.strip_prefix(folder).ok()?;
            Some(if self.reach.is_confined() {
                self.open_in(named, &path)
            } else {
                walk::open(inside, scope)
            })
        };
        let script = self.options.local_path(script);
        let script_folder = script.as_deref().and_then(Path::parent);
        let source_dir = self.options.source_dir.as_deref();
        let beside = script_folder.and_then(|folder| open(folder, Scope::BeneathRecorded(folder)));
        let below = || source_dir.and_then(|folder| open(folder, Scope::Beneath(folder)));
        match beside {
            Some(file) => file,
            None => {
                let file = below().ok_or(io::ErrorKind::PermissionDenied)??;
                (file.has_public_mode() && !is_hidden(&path, source_dir))
                    .then_some(file)
                    .ok_or(io::ErrorKind::PermissionDenied.into())
            }
        }
    }

    /// Opens a file that the user named, or one in a folder that the user named; `named` is the named path.
    pub fn open_named(&self, named: &Path, path: &Path) -> io::Result<OpenFile> {
        self.reach.open_named(named, path)
    }

    /// Opens a file of a cache on this machine.
    pub fn open_cached(&self, path: &Path) -> io::Result<OpenFile> {
        self.open_in(None, path)
    }

    fn open_in(&self, folder: Option<&Path>, path: &Path) -> io::Result<OpenFile> {
        match folder {
            Some(folder) => self.reach.open_named(folder, path),
            None => self.reach.open_recorded(path),
        }
    }
}

/// Whether a file below a folder, or one of the folders between them, is hidden.
fn is_hidden(path: &Path, folder: Option<&Path>) -> bool {
    let inside = folder.and_then(|folder| path.strip_prefix(folder).ok());
    let mut parts = inside.unwrap_or(path).components();
    parts.any(|part| part.as_os_str().as_bytes().starts_with(b"."))
}

/// Replaces the prefix `old` of `path` with `new`, if it ends at a component boundary.
fn replace_start(path: &[u8], old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(old.strip_suffix(b"/").unwrap_or(old))?;
    let new = new.strip_suffix(b"/").unwrap_or(new);
    let replaced = [new, rest].concat();
    ((rest.is_empty() || rest.starts_with(b"/")) && !replaced.is_empty()).then_some(replaced)
}

/// Path for a name with a scheme: that of a `file:` URL (V8's modules), and for other schemes one without the
/// colon (`node:internal/util`), since perf cuts off names at the first colon.
fn plain_path(name: &[u8]) -> Option<Vec<u8>> {
    let colon = memchr::memchr(b':', name)?;
    let (scheme, rest) = (name.get(..colon)?, name.get(colon + 1..)?);
    let is_scheme = scheme.len() > 1
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(byte));
    if !is_scheme || rest.is_empty() {
        return None;
    }
    match rest.strip_prefix(b"//") {
        Some(path) if scheme == b"file" && path.starts_with(b"/") => Some(percent_decoded(path)),
        _ => {
            let start = rest.iter().position(|&byte| byte != b'/')?;
            Some([scheme, b"/", rest.get(start..)?].concat())
        }
    }
}

/// Decodes the percent escapes of a URL, unless one stands for NUL, which no path has.
pub(super) fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let decoded: Vec<u8> = percent_decode(text).collect();
    if decoded.contains(&0) {
        text.to_vec()
    } else {
        decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_may_be_urls_as_names_have_them() {
        let options = SourceOptions {
            path_map: vec![(b"file:///app/my%20code".to_vec(), b"/src".to_vec())],
            ..SourceOptions::default()
        };
        for path in [&b"file:///app/my%20code/a.mjs"[..], b"/app/my code/a.mjs"] {
            assert_eq!(*options.mapped_path(path), *b"/src/a.mjs");
        }
    }

    #[test]
    fn the_last_prefix_that_fits_is_replaced() {
        let options = SourceOptions {
            path_map: vec![
                (b"/app".to_vec(), b"/home/me/app".to_vec()),
                (b"/app/gen/".to_vec(), b"/tmp/gen".to_vec()),
            ],
            ..SourceOptions::default()
        };
        let mapped = |path: &'static [u8]| String::from_utf8(options.mapped_path(path).into_owned()).unwrap();
        for (path, expected) in [
            (&b"/app/a.js"[..], "/home/me/app/a.js"),
            (b"/app/gen/b.js", "/tmp/gen/b.js"),
            (b"/app/gene.js", "/home/me/app/gene.js"),
            (b"/apple/c.js", "/apple/c.js"),
            (b"relative/app/c.js", "relative/app/c.js"),
            (b"file:///app/my%20file.mjs", "/home/me/app/my file.mjs"),
            (b"node:internal/util", "node/internal/util"),
            (b"webpack://x/./a.js", "webpack/x/./a.js"),
            (b"C:\\a.js", "C:\\a.js"),
        ] {
            assert_eq!(mapped(path), expected);
        }
    }
}
