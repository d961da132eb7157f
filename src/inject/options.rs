//! Options of injection.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::files::Folder;
use crate::frames::unwind::UnwindOptions;
use crate::inject::objects::source_paths::LineOptions;
use crate::load::LoadOptions;
use crate::results::name_style::NameStyle;

/// Options of [`inject`](crate::inject::inject).
#[derive(Clone, Debug, Default)]
pub struct InjectOptions {
    /// What to read.
    pub load: LoadOptions,
    /// Path of the profile to write; `-` is standard output, which gets the pipe format.
    pub output: PathBuf,
    /// A folder that is open already: outputs directly in it, by its path, are written through its descriptor, whatever is at
    /// the path by then.
    #[doc(hidden)]
    pub folder: Option<Folder>,
    /// Compression level of the records in the output (1 to 22); `None` leaves them uncompressed.
    pub compression: Option<i32>,
    /// Folder for the objects. `None` is `OUTPUT.elf`, or `perf.jit.data.elf` if the output is not a file.
    pub elf_dir: Option<PathBuf>,
    /// Build-ID cache to add the objects to.
    pub build_id_cache: Option<PathBuf>,
    /// Whether that is only tried: if the objects cannot be added, the run succeeds with a note.
    pub is_cache_optional: bool,
    /// Whether that is a new one beside the folder of objects, with links to them: it moves with that folder.
    pub is_cache_linked: bool,
    /// Path of the JSON summary, which must differ from all inputs and other outputs; `-` is standard output.
    pub summary: Option<PathBuf>,
    /// Labels to store in the summary, such as the commit that was profiled.
    pub labels: BTreeMap<String, String>,
    /// Whether to write all functions, not only those that samples reference.
    pub all: bool,
    /// How functions are grouped into objects.
    pub layout: Layout,
    /// How line tables are written.
    pub lines: LineOptions,
    /// Whether and how to replace copied stacks by call chains.
    pub unwind: Option<UnwindOptions>,
    /// Where to record the compiler that made a function.
    pub tiers: Tiers,
    /// Form of the names of functions.
    pub names: NameStyle,
}

impl InjectOptions {
    /// Returns the default options for a profile to read and one to write.
    pub fn new(input: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            load: LoadOptions {
                input: input.into(),
                ..LoadOptions::default()
            },
            output: output.into(),
            ..Self::default()
        }
    }
}

/// How functions are grouped into objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Layout {
    /// One function per object if they are few, otherwise as many as possible.
    #[default]
    Auto,
    /// As many functions per object as possible.
    Image,
    /// One function per object.
    Function,
}

/// Where to record the compiler that made a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Tiers {
    /// Nowhere.
    #[default]
    Off,
    /// In the summary.
    Summary,
    /// In the summary, and after the name in each symbol.
    Symbols,
}
