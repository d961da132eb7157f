//! Reading the source maps of scripts.
//!
//! A script names its map in its last comment: in the comment itself (a `data:` URL), or by a path. Maps are read from
//! this machine only: below the directory of the script, or at the paths of `--source-map`.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use base64ct::{Base64, Encoding};
use jitdump::printable;
use jitdump::v8::Script;
use jitdump::v8::original_lines;
use jitdump::v8::original_lines::{MappedScript, SourceMaps};
use jitdump::v8::source_map::{MapError, SourceMap, mapping_url};

use crate::bytes::base_name;
use crate::collections::hash::HashMap;
use crate::frames::source_files::paths::{SourceFiles, percent_decoded};
use crate::frames::source_files::v8_scripts::room::OpenFileRoom;
use crate::frames::source_files::v8_scripts::scripts::{NamingUsers, ScriptFiles};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::threads;

/// Room for maps, as many as scripts. In memory, a map takes several times its size.
const ROOM: OpenFileRoom = OpenFileRoom {
    file: 128 << 20,
    bytes: 256 << 20,
    files: usize::MAX,
};

/// The maps of scripts by path, as in jitdumps.
#[derive(Debug, Default)]
pub struct SourceMapFiles {
    maps: HashMap<Vec<u8>, MappedScript>,
    /// Maps that are not used, and why.
    pub diagnostics: Vec<Diagnostic>,
}

/// Where the map of a script is.
enum MapLocation {
    /// In the script.
    Inline(Vec<u8>),
    /// In a file that the user named, or in a folder that the user named, which is first.
    Named(PathBuf, PathBuf),
    /// In a file at a path from the folder of the script.
    Beside(PathBuf),
    /// Nowhere that is read.
    Elsewhere,
}

/// A map that was read.
struct UnparsedMap<'s> {
    /// Path of the script.
    path: &'s [u8],
    script: &'s Script<'s>,
    /// The map in JSON. The thread that parses it takes it, which frees memory early.
    bytes: Mutex<Vec<u8>>,
    /// Folder that its sources are relative to.
    folder: Vec<u8>,
}

impl UnparsedMap<'_> {
    /// Parses the map; fails if it is invalid, or of another text than the script's.
    fn parse(&self) -> Result<SourceMap, MapError> {
        let bytes = self.bytes.lock().map(|mut bytes| std::mem::take(&mut *bytes));
        // Without them, because another thread has panicked, it is invalid.
        let map = SourceMap::parse(bytes.unwrap_or_default())?;
        map.check(self.script.text())?;
        Ok(map)
    }
}

impl MapLocation {
    /// Finds the map of a script; `None` if neither the user nor the script names one. A map that the user named is that of
    /// the script with its name, such as index.js, but of only one of several: unless the script `is_only`, its own is preferred.
    fn of(path: &[u8], script: &Script<'_>, is_only: bool, files: &SourceFiles<'_>) -> Option<Self> {
        let own = || mapping_url(script.text().bytes()).map(locate);
        let Some((named, file)) = named_map(&files.options.source_maps.paths, path) else {
            return own();
        };
        let own = if is_only { None } else { own() };
        let own = own.filter(|own| own.is_own(path, files));
        Some(own.unwrap_or(Self::Named(named, file)))
    }

    /// Whether it is a map of the script's own.
    fn is_own(&self, script: &[u8], files: &SourceFiles<'_>) -> bool {
        match self {
            Self::Inline(_) => true,
            Self::Beside(path) => files.open_beside(script, path).is_ok(),
            Self::Named(..) | Self::Elsewhere => false,
        }
    }

    /// Returns the folder that the sources of a script's map are relative to: that of the map as it was on the machine
    /// of the recording.
    fn folder(&self, script: &[u8]) -> Vec<u8> {
        match self {
            Self::Named(_, file) => {
                let folder = file.parent().unwrap_or(Path::new("."));
                folder.as_os_str().as_bytes().to_vec()
            }
            Self::Beside(file) => {
                let file = file.as_os_str().as_bytes();
                [original_lines::folder(script), b"/", original_lines::folder(file)].concat()
            }
            Self::Inline(_) | Self::Elsewhere => original_lines::folder(script).to_vec(),
        }
    }
}

impl SourceMapFiles {
    /// Reads the maps of scripts.
    pub fn read(scripts: &ScriptFiles, files: &SourceFiles<'_>) -> Self {
        let mut all = Self::default();
        let options = files.options;
        if options.source_maps.is_off {
            return all;
        }
        let mut by_path: Vec<(&[u8], _)> = scripts.by_path().iter().collect();
        by_path.sort_unstable_by_key(|&(path, _)| path);
        let mut of_name: HashMap<&[u8], u32> = HashMap::default();
        for (path, _) in &by_path {
            *of_name.entry(base_name(path)).or_default() += 1;
        }
        let mut room = ROOM;
        let mut unparsed = Vec::new();
        for (path, script) in by_path {
            let is_only = of_name.get(base_name(path)) == Some(&1);
            let Some(location) = MapLocation::of(path, script, is_only, files) else {
                continue;
            };
            let folder = location.folder(path);
            match read(location, path, scripts.namers(path), files, &mut room) {
                Ok(bytes) => unparsed.push(UnparsedMap {
                    path,
                    script,
                    bytes: Mutex::new(bytes),
                    folder,
                }),
                Err(issue) => all
                    .diagnostics
                    .push(Diagnostic::new(issue).in_file_called(printable(path))),
            }
        }
        for (UnparsedMap { path, folder, .. }, map) in
            unparsed.iter().zip(threads::map(&unparsed, UnparsedMap::parse))
        {
            match map {
                Ok(map) => {
                    all.maps.insert(path.to_vec(), MappedScript::new(map, folder));
                }
                Err(error) => {
                    let invalid = Diagnostic::new(Issue::SourceMapInvalid).with("reason", error.reason());
                    let script = printable(path);
                    all.diagnostics.push(invalid.in_file_called(script));
                }
            }
        }
        all
    }

    /// Returns the maps by the path of the script.
    pub fn by_path(&self) -> SourceMaps<'_> {
        self.maps.iter().map(|(path, map)| (&path[..], map)).collect()
    }
}

/// Returns the map of a script among those that the user named: the file called like the script with `.map`.
fn named_map(paths: &[PathBuf], script: &[u8]) -> Option<(PathBuf, PathBuf)> {
    let name = std::ffi::OsString::from_vec([base_name(script), b".map"].concat());
    // `..` is not a name.
    let name = Path::new(&name);
    let mut candidates = paths.iter().filter_map(|path| {
        if path.is_dir() {
            Some((path.clone(), path.join(name.file_name()?)))
        } else {
            (path.file_name() == name.file_name()).then(|| (path.clone(), path.clone()))
        }
    });
    candidates.find(|(_, path)| path.is_file())
}

/// Finds the map that a script names by `url`.
fn locate(url: &[u8]) -> MapLocation {
    if let Some(data) = url.strip_prefix(b"data:") {
        let comma = memchr::memchr(b',', data);
        let Some((kind, data)) = comma.and_then(|comma| data.split_at_checked(comma)) else {
            return MapLocation::Elsewhere;
        };
        let data = data.get(1..).unwrap_or_default();
        let text = if kind.ends_with(b";base64") {
            std::str::from_utf8(data)
                .ok()
                .and_then(|data| Base64::decode_vec(data).ok())
        } else {
            Some(percent_decoded(data))
        };
        return text.map_or(MapLocation::Elsewhere, MapLocation::Inline);
    }
    if memchr::memmem::find(url, b"://").is_some() {
        return MapLocation::Elsewhere;
    }
    let relative = PathBuf::from(std::ffi::OsString::from_vec(percent_decoded(url)));
    // A script must not make this program read any file.
    let is_below = relative
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if is_below {
        MapLocation::Beside(relative)
    } else {
        MapLocation::Elsewhere
    }
}

/// Reads the map of a script, if there is room for it.
fn read(
    location: MapLocation,
    script: &[u8],
    namers: Option<&NamingUsers>,
    files: &SourceFiles<'_>,
    room: &mut OpenFileRoom,
) -> Result<Vec<u8>, Issue> {
    let mut take = |size| room.take(size).then_some(()).ok_or(Issue::SourceMapTooLarge);
    let is_named = matches!(location, MapLocation::Named(..)) || files.is_named(script);
    let file = match location {
        MapLocation::Inline(text) => {
            take(text.len() as u64)?;
            return Ok(text);
        }
        MapLocation::Named(named, path) => files.open_named(&named, &path),
        MapLocation::Beside(path) => files.open_beside(script, &path),
        MapLocation::Elsewhere => return Err(Issue::SourceMapMissing),
    };
    let file = file.map_err(|_| Issue::SourceMapMissing)?;
    if !is_named && namers.is_some_and(|namers| !namers.may_read(&file)) {
        return Err(Issue::ScriptPrivate);
    }
    take(file.size())?;
    file.read_part(0, file.size())
        .map_err(|_| Issue::SourceMapMissing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(url: &str) -> Option<String> {
        match locate(url.as_bytes()) {
            MapLocation::Beside(path) => Some(path.into_os_string().into_string().unwrap()),
            MapLocation::Inline(text) => Some(format!("inline {}", String::from_utf8(text).unwrap())),
            MapLocation::Named(..) | MapLocation::Elsewhere => None,
        }
    }

    #[test]
    fn maps_have_128_mebibytes_each_and_256_together() {
        let mut room = ROOM;
        assert!(!room.take((128 << 20) + 1));
        assert!(room.take(128 << 20) && room.take(128 << 20));
        assert!(!room.take(1));
    }

    #[test]
    fn maps_are_in_the_script_or_below_its_folder() {
        for (url, expected) in [
            ("a.js.map", Some("a.js.map")),
            ("./maps/a%20b.map", Some("./maps/a b.map")),
            (
                "data:application/json;charset=utf-8;base64,e30=",
                Some("inline {}"),
            ),
            ("data:application/json,%7B%7D", Some("inline {}")),
            ("data:application/json;base64,!", None),
            ("data:", None),
            ("../a.map", None),
            ("maps/../../a.map", None),
            ("/etc/passwd", None),
            ("%2e%2e/a.map", None),
            ("file:///etc/passwd", None),
            ("https://example.org/a.map", None),
        ] {
            assert_eq!(path_of(url).as_deref(), expected, "{url}");
        }
    }
}
