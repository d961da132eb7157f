//! Reading the scripts that jitdumps name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::files::OpenFile;
use crate::hash::{HashMap, HashSet};
use crate::inject::objects::source_paths::LineOptions;
use crate::script::known_functions::KnownFunctions;
use crate::script::v8_inlining::Scripts;
use crate::script::{Position, Script};
use crate::threads;

/// Maximum size of a script, of all scripts, and their number. They bound time and memory: nothing is lost but inlined
/// calls.
const MAX_SCRIPT: u64 = 64 << 20;
const MAX_TOTAL: u64 = 128 << 20;
const MAX_SCRIPTS: usize = 4096;

/// The scripts whose text is on this machine, and is that of the recording, by their paths in jitdumps.
#[derive(Debug, Default)]
pub struct ScriptFiles {
    scripts: HashMap<Vec<u8>, Script<'static>>,
}

impl ScriptFiles {
    /// Reads the scripts of functions. A file is not used if its functions start elsewhere: it has changed since.
    pub fn read<'k>(all: impl Iterator<Item = &'k KnownFunctions<'k>>, lines: &LineOptions) -> Self {
        let mut starts: HashMap<&[u8], Vec<Position>> = HashMap::default();
        let mut paths = Vec::new();
        for function in all.flat_map(KnownFunctions::all) {
            let starts = starts.entry(function.path).or_insert_with(|| {
                paths.push(function.path);
                Vec::new()
            });
            starts.push(function.start);
        }
        let mut files = Vec::new();
        let mut left = MAX_TOTAL;
        let mut seen = HashSet::default();
        for path in paths {
            let Some(file) = lines.local_path(path).and_then(|local| open(&local)) else {
                continue;
            };
            let is_new = seen.insert(file.file_id());
            if let Some(rest) = left
                .checked_sub(file.size())
                .filter(|_| is_new && files.len() < MAX_SCRIPTS)
            {
                left = rest;
                files.push((path, Mutex::new(Some(file))));
            }
        }
        let scripts = threads::map(&files, |(path, file)| {
            let file = file.lock().ok()?.take()?;
            let text = file.read_part(0, file.size()).ok()?;
            let script = Script::scan(text)?;
            let starts = starts.get(path)?;
            fits(&script, starts).then(|| (path.to_vec(), script))
        });
        Self {
            scripts: scripts.into_iter().flatten().collect(),
        }
    }

    /// Returns the scripts by path.
    pub fn by_path(&self) -> Scripts<'_> {
        self.scripts
            .iter()
            .map(|(path, script)| (&path[..], script))
            .collect()
    }
}

fn open(path: &Path) -> Option<OpenFile> {
    OpenFile::open(path).ok().filter(|file| file.size() <= MAX_SCRIPT)
}

/// Whether functions start where V8 has found them: nearly all, because it places some initializers elsewhere.
fn fits(script: &Script<'_>, starts: &[Position]) -> bool {
    let found = starts
        .iter()
        .filter(|start| script.function_that_starts_at(**start).is_some());
    found.count().saturating_mul(4) >= starts.len().saturating_mul(3)
}

impl LineOptions {
    /// Returns the absolute path of a source file on this machine.
    pub fn local_path(&self, path: &[u8]) -> Option<PathBuf> {
        let path = self.mapped_path(path);
        let path = Path::new(OsStr::from_bytes(&path));
        match path.is_absolute() {
            true => Some(path.to_owned()),
            false => Some(self.source_dir.as_ref()?.join(path)),
        }
    }
}
