//! `jitinject export`: the samples of a profile, in formats of other viewers.
//!
//! ```text
//! samples of [`crate::frames::stream`] ─► [profile] ─┬─► [calls] ─┬─► [folded], [speedscope], [cpuprofile], [flame_graph]
//!                                                     │            └─► [firefox]
//!                                                     └─► [pprof]
//! compilations and garbage collections ─► [markers] ─► [firefox]
//! ```
//!
//! Formats with times keep each sample, the others sums of equal stacks.

mod calls;
mod cpuprofile;
mod firefox;
mod firefox_markers;
mod firefox_threads;
mod flame_graph;
mod folded;
mod json;
mod markers;
mod pprof;
mod profile;
mod protobuf;
mod speedscope;

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use jitdump::printable;
use regex_lite::Regex;

use crate::files::folder::NameInFolder;
use crate::files::staged::StagedFile;
use crate::files::stream;
use crate::frames::stream::StreamOptions;
use crate::load::Progress;
use crate::results::diagnostics::Diagnostic;
use crate::results::summary::count;
use crate::tools::export::profile::{ExportedProfile, FormatDescription};

/// The program that writes the files.
const EXPORTER: &str = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));

/// A format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Collapsed stacks.
    Folded,
    /// pprof's `profile.proto`.
    Pprof,
    /// Processed profile of the Firefox Profiler.
    Firefox,
    /// speedscope's own format.
    Speedscope,
    /// `.cpuprofile` of V8.
    CpuProfile,
    /// Flame graph as SVG.
    Svg,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 6] = [
        Self::Firefox,
        Self::Pprof,
        Self::Speedscope,
        Self::CpuProfile,
        Self::Folded,
        Self::Svg,
    ];

    fn description(self) -> &'static FormatDescription {
        match self {
            Self::Folded => &folded::FORMAT,
            Self::Pprof => &pprof::FORMAT,
            Self::Firefox => &firefox::FORMAT,
            Self::Speedscope => &speedscope::FORMAT,
            Self::CpuProfile => &cpuprofile::FORMAT,
            Self::Svg => &flame_graph::FORMAT,
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    /// Returns its line in the help.
    pub fn help(self) -> String {
        let FormatDescription { name, end, help, .. } = self.description();
        format!("  {end:<18}{name:<12}{help}\n")
    }

    /// Returns the format of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Returns the format of a file by the end of its name.
    pub fn of_path(path: &Path) -> Option<Self> {
        let name = printable(path.file_name()?.as_encoded_bytes()).to_lowercase();
        // Files of speedscope are not compressed: that would be a Firefox profile.
        if name.ends_with(".speedscope.json.gz") {
            return None;
        }
        let mut formats = Self::ALL.into_iter();
        formats.find(|format| name.ends_with(format.description().end))
    }

    /// Whether files are text.
    pub fn is_text(self) -> bool {
        self.description().is_text
    }

    /// Whether files have events of runtimes.
    pub fn has_markers(self) -> bool {
        self.description().scope.has_markers
    }
}

/// What to export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The samples.
    pub stream: StreamOptions,
    /// The format.
    pub format: Format,
    /// What the name, file or module of a function in a stack must match.
    pub filter: Option<Regex>,
    /// Whether formats with source text get that of this machine's files.
    pub has_sources: bool,
    /// Whether compiled functions without samples get markers, too.
    pub marks_all_functions: bool,
}

/// Samples to be written.
#[derive(Debug)]
pub struct Export {
    format: Format,
    profile: ExportedProfile,
}

/// Reads a profile.
pub fn export(options: &ExportOptions, progress: &mut dyn Progress) -> Result<Export, Diagnostic> {
    let ExportOptions {
        stream,
        format,
        filter,
        has_sources,
        marks_all_functions,
    } = options;
    let scope = format.description().scope;
    let mut profile = ExportedProfile::read(stream, filter.as_ref(), scope, *marks_all_functions, progress)?;
    if scope.has_texts {
        profile.read_texts(stream, *has_sources);
    }
    Ok(Export {
        format: *format,
        profile,
    })
}

impl Export {
    /// Returns what is not as it should be.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.profile.tables.diagnostics
    }

    /// Writes the samples.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        (self.format.description().write)(&self.profile, out)
    }

    /// Writes a file, which is there when it is complete. Only its owner can read it, as with profiles of perf.
    pub fn save(&self, path: &Path) -> Result<(), Diagnostic> {
        let save = || {
            if stream::is_stream(path) {
                return self.write_buffered(&mut stream::open(path)?);
            }
            let mut file = StagedFile::create(NameInFolder::of(path)?)?;
            self.write_buffered(file.file())?;
            file.commit().map(drop)
        };
        save().map_err(|cause: io::Error| Diagnostic::cannot_write(path, &cause))
    }

    fn write_buffered(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        self.write(&mut out)?;
        out.flush()
    }

    /// Returns what was exported, what is missing, and how to open the file, if there is one.
    pub fn message(&self, path: Option<&Path>) -> String {
        let profile = &self.profile;
        let mut threads: Vec<_> = profile.rows.iter().map(|row| row.thread).collect();
        threads.dedup();
        let mut text = format!(
            "{} of {}; events: {}\n",
            count(profile.total().samples, "sample"),
            count(threads.len() as u64, "thread"),
            profile.event_names(),
        );
        let losses = &profile.tables.losses;
        if !profile.rows.is_empty() || losses.is_any() {
            let _ = writeln!(text, "missing: {}", losses.text());
        }
        if let Some(left_out) = &profile.left_out {
            let _ = writeln!(text, "not in this format: {left_out}");
        }
        if let Some(markers) = profile.markers.text() {
            let _ = writeln!(text, "markers: {markers}");
        }
        if profile.rows.is_empty() {
            text.push_str("no samples match\n");
        } else if let Some((path, viewer)) = path.zip(self.format.description().viewer) {
            let path = printable(path.as_os_str().as_encoded_bytes());
            let _ = writeln!(text, "next: open {path} in {viewer}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_have_formats() {
        for (name, expected) in [
            ("a.json.gz", Some(Format::Firefox)),
            ("/x.svg/a.pb.gz", Some(Format::Pprof)),
            ("a.speedscope.json", Some(Format::Speedscope)),
            ("A.CPUPROFILE", Some(Format::CpuProfile)),
            ("a.folded", Some(Format::Folded)),
            ("a.svg", Some(Format::Svg)),
            ("a.json", None),
            ("a.speedscope.json.gz", None),
            ("svg", None),
            ("-", None),
        ] {
            assert_eq!(Format::of_path(Path::new(name)), expected, "{name}");
        }
    }
}
