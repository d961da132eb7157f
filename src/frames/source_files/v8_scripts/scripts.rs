//! Reading the scripts that jitdumps name.
//!
//! A script is used only if V8's functions start where the scanner has found some. Deno names the
//! TypeScript, but V8 compiles JavaScript, so the positions of functions show whether the file on disk or
//! the one in Deno's cache is the script.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jitdump::printable;
use jitdump::v8::known_functions::KnownFunctions;
use jitdump::v8::v8_inlining::Scripts;
use jitdump::v8::{Script, TextPosition};

use crate::collections::hash::HashMap;
use crate::files::OpenFile;
use crate::files::open_file::is_trusted;
use crate::frames::source_files::paths::{SourceFiles, SourceOptions};
use crate::frames::source_files::v8_scripts::room::OpenFileRoom;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::threads;

/// Room for scripts. It bounds time and memory.
const ROOM: OpenFileRoom = OpenFileRoom {
    file: 64 << 20,
    bytes: 128 << 20,
    files: 4096,
};

/// Number of scripts that are open at a time: programs have thousands, and users may often open only 1024 files.
const OPEN_AT_ONCE: usize = 8;

/// Scripts that functions name.
#[derive(Default)]
struct NamedScripts<'k> {
    /// Their paths, in the order in which they are named first.
    paths: Vec<&'k [u8]>,
    by_path: HashMap<&'k [u8], NamedScript>,
}

/// A script that functions name.
#[derive(Default)]
struct NamedScript {
    /// Where they start.
    starts: Vec<TextPosition>,
    namers: NamingUsers,
}

impl<'k> NamedScripts<'k> {
    /// Collects the scripts of functions, each with the owner of the files that name them.
    fn of(all: impl Iterator<Item = (u32, &'k KnownFunctions<'k>)>) -> Self {
        let mut named = Self::default();
        for (owner, functions) in all {
            let is_other = !is_trusted(owner);
            for function in functions.all() {
                let script = named.by_path.entry(function.path).or_insert_with(|| {
                    named.paths.push(function.path);
                    NamedScript::default()
                });
                script.starts.push(function.start);
                if is_other {
                    script.namers.add(owner);
                }
            }
        }
        named
    }
}

/// The scripts whose text is on this machine, and is that of the recording, by their paths in jitdumps.
#[derive(Debug, Default)]
pub struct ScriptFiles {
    scripts: HashMap<Vec<u8>, FoundScript>,
    /// Paths of the scripts whose text is another one.
    others: Vec<Vec<u8>>,
    /// Number of files that were not read because they are private, and other users have named them.
    private: u64,
    /// Number of files that were not read, for lack of room.
    left_out: u64,
}

/// A file that may be a script.
struct OpenScript<'k> {
    /// The path that functions name.
    path: &'k [u8],
    /// The file. The thread that scans it takes it.
    file: Mutex<Option<OpenFile>>,
}

/// A script on this machine.
#[derive(Debug)]
struct FoundScript {
    script: Script<'static>,
    /// Number of functions that start where V8 has found them.
    found: usize,
    namers: NamingUsers,
}

/// Other users whose files name a script, each once. They see names and lines of what is read for them, and could name any
/// file.
#[derive(Clone, Debug, Default)]
pub struct NamingUsers(Vec<u32>);

impl NamingUsers {
    fn add(&mut self, user: u32) {
        if !self.0.contains(&user) {
            self.0.push(user);
        }
    }

    /// Whether all of them may read a file: everybody may, or it is their own.
    pub fn may_read(&self, file: &OpenFile) -> bool {
        file.is_public() || self.0.iter().all(|&user| user == file.origin().owner)
    }
}

impl ScriptFiles {
    /// Reads the scripts of functions, each with the owner of the files that name them. A script is not used if its functions
    /// start elsewhere: it has changed since.
    pub fn read<'k>(
        all: impl Iterator<Item = (u32, &'k KnownFunctions<'k>)>,
        files: &SourceFiles<'_>,
    ) -> Self {
        let named = NamedScripts::of(all);
        let mut room = ROOM;
        let mut found = Self::default();
        for paths in named.paths.chunks(OPEN_AT_ONCE) {
            let opened = found.open(paths, &named, files, &mut room);
            found.scan(&opened, &named);
        }
        found
    }

    /// Opens the files that may be scripts, as far as there is room for them, and counts those that are not opened.
    fn open<'k>(
        &mut self,
        paths: &[&'k [u8]],
        named: &NamedScripts<'k>,
        files: &SourceFiles<'_>,
        room: &mut OpenFileRoom,
    ) -> Vec<OpenScript<'k>> {
        let mut opened = Vec::new();
        for &path in paths {
            let Some(NamedScript { namers, .. }) = named.by_path.get(path) else {
                continue;
            };
            let compiled = path_compiled_by_deno(path).and_then(|path| files.open_cached(&path).ok());
            // Most scripts are not on this machine, which is no error.
            for file in files.open(path).ok().into_iter().chain(compiled) {
                if !files.is_named(path) && !namers.may_read(&file) {
                    self.private = self.private.saturating_add(1);
                } else if room.take(file.size()) {
                    let file = Mutex::new(Some(file));
                    opened.push(OpenScript { path, file });
                } else {
                    self.left_out = self.left_out.saturating_add(1);
                }
            }
        }
        opened
    }

    /// Scans files, and closes them. Of those of one path, adds the one in which most functions start where V8 has found them, or
    /// the path to the `others` if there are none in any.
    fn scan(&mut self, opened: &[OpenScript<'_>], named: &NamedScripts<'_>) {
        let scanned = threads::map(opened, |OpenScript { path, file }| {
            let file = file.lock().ok()?.take()?;
            let NamedScript { starts, namers } = named.by_path.get(path)?;
            let (found, script) = scan(file, starts)?;
            Some(FoundScript {
                script,
                found,
                namers: namers.clone(),
            })
        });
        for (OpenScript { path, .. }, script) in opened.iter().zip(scanned) {
            let Some(script) = script else { continue };
            let best = self.scripts.get(*path);
            if best.is_none_or(|best| script.found > best.found) {
                self.scripts.insert(path.to_vec(), script);
            }
        }
        let mut without_script: Vec<&[u8]> = opened.iter().map(|opened| opened.path).collect();
        without_script.dedup();
        without_script.retain(|path| !self.scripts.contains_key(*path));
        self.others.extend(without_script.into_iter().map(<[u8]>::to_vec));
    }

    /// Returns the scripts by path.
    pub fn by_path(&self) -> Scripts<'_> {
        self.scripts
            .iter()
            .map(|(path, found)| (&path[..], &found.script))
            .collect()
    }

    /// Returns the users whose files name a script.
    pub fn namers(&self, path: &[u8]) -> Option<&NamingUsers> {
        self.scripts.get(path).map(|found| &found.namers)
    }

    /// Reports the scripts that are other ones on this machine, and those that were not read.
    pub fn diagnostics(&self) -> impl Iterator<Item = Diagnostic> {
        let differ = self.others.first().map(|path| {
            let differ = Diagnostic::new(Issue::ScriptDiffers).times(self.others.len() as u64);
            differ.with("path", printable(path))
        });
        let counts = [
            (Issue::ScriptPrivate, self.private),
            (Issue::ScriptTooLarge, self.left_out),
        ];
        let unread = counts.into_iter().filter(|&(_, count)| count > 0);
        let unread = unread.map(|(issue, count)| Diagnostic::new(issue).times(count));
        differ.into_iter().chain(unread)
    }
}

/// Reads a script, and counts the functions that start where V8 has found them. Returns nothing unless three of four do:
/// V8 places some initializers elsewhere.
fn scan(file: OpenFile, starts: &[TextPosition]) -> Option<(usize, Script<'static>)> {
    let text = file.read_part(0, file.size()).ok()?;
    let script = Script::scan(text)?;
    let found = starts.iter().filter(|start| is_start(&script, **start)).count();
    (found.saturating_mul(4) >= starts.len().saturating_mul(3)).then_some((found, script))
}

/// Whether V8 may place a function there.
///
/// Quirk: V8 places the initializers of a class at its first field, not at the class. Seen with Node.js 26.10 and, for static
/// ones, 20.20.
fn is_start(script: &Script<'_>, start: TextPosition) -> bool {
    let is_field = |offset: u32| {
        // The first one is the script.
        let index = Some(script.function_at(offset)).filter(|&index| index != 0)?;
        let function = script.functions().get(index as usize)?;
        let before = script.text().slice(function.range.start..offset);
        // The space before a field may be long.
        let near = before.get(before.len().saturating_sub(1024)..)?;
        let tokens = near.trim_ascii_end();
        let is_after_member = [&b"{"[..], b"}", b";"].iter().any(|end| tokens.ends_with(end));
        let is_after_line = near.get(tokens.len()..)?.contains(&b'\n');
        Some(before.starts_with(b"class") && (is_after_member || is_after_line))
    };
    let is_first_field = || script.text().offset(start).and_then(is_field).unwrap_or_default();
    script.function_that_starts_at(start).is_some() || is_first_field()
}

/// Returns the path of the JavaScript that Deno has made of a script and keeps in its cache; `None` if it makes none of it.
///
/// Quirk: Deno gives TypeScript to V8 as JavaScript under the URL of the TypeScript file, so lines and columns are those of
/// the JavaScript. It ends with its source map. Seen with Deno 2.9.
fn path_compiled_by_deno(url: &[u8]) -> Option<PathBuf> {
    const EXTENSIONS: [&str; 5] = ["ts", "tsx", "mts", "cts", "jsx"];
    if !url.starts_with(b"file:///") {
        return None;
    }
    // Its cache has the paths of the recording.
    let path = SourceOptions::default().local_path(url)?;
    let extension = path.extension()?.to_str()?;
    if !EXTENSIONS.contains(&extension) {
        return None;
    }
    let mut inside: OsString = path.strip_prefix("/").ok()?.into();
    inside.push(".js");
    let folder = |variable: &str| {
        let folder = env::var_os(variable).filter(|folder| !folder.is_empty());
        folder.map(PathBuf::from)
    };
    let cache = folder("DENO_DIR")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("deno")))
        .or_else(|| Some(folder("HOME")?.join(".cache/deno")))?;
    let is_inside = Path::new(&inside)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    is_inside.then(|| cache.join("gen/file").join(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V8's own positions, from perf maps of Node.js 26.10 and 20.20, and others.
    #[test]
    fn initializers_of_classes_start_at_a_field() {
        let text = "class A {\n  x = 3;\n  static y = 5;\n  mk(n) { return n; }\n}\n\
            class B extends A { static { B.q = 1; } static m() {} ; foo = 2 }\n\
            const D = class { mk() { return 1 }\n  // comment\n  a = this.mk()\n};\n";
        let script = Script::scan(text.as_bytes()).unwrap();
        let is_start = |line, column| is_start(&script, TextPosition { line, column });
        for (line, column) in [
            (1, 1),
            (2, 3),
            (3, 3),
            (4, 5),
            (6, 21),
            (6, 57),
            (7, 11),
            (7, 21),
            (9, 3),
        ] {
            assert!(is_start(line, column), "{line}:{column}");
        }
        for (line, column) in [(2, 5), (4, 11), (7, 7), (9, 7), (11, 1)] {
            assert!(!is_start(line, column), "{line}:{column}");
        }
    }

    #[test]
    fn scripts_have_64_mebibytes_each_and_128_together() {
        let mut room = ROOM;
        assert!(!room.take((64 << 20) + 1));
        assert!(room.take(64 << 20) && room.take(64 << 20));
        assert!(!room.take(1));
    }

    #[test]
    fn up_to_4096_scripts_are_read() {
        let mut room = ROOM;
        assert!((0..4096).all(|_| room.take(10)));
        assert!(!room.take(10));
    }
}
