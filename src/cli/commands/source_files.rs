//! Options for source files, shared by the commands that name functions.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{PathBuf, absolute};

use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use jitinject::Diagnostic;
use jitinject::internals::frames::source_files::{SourceMapOptions, SourceOptions};
use jitinject::internals::results::diagnostics::issues::CHECK_PATH;

use crate::cli::commands::headings::SYMBOLS;

/// Source files and source maps.
#[derive(Args, Debug)]
pub struct SourceArguments {
    /// Directory for resolving relative source paths
    #[arg(long, value_name = "DIR", help_heading = SYMBOLS)]
    source_dir: Option<PathBuf>,

    /// Find source files whose paths start with OLD at NEW; may be repeated
    ///
    /// For programs that ran in a container or on another machine. If several match, the last one is used. Text and scripts are
    /// read at NEW, and lines in objects lead there. Reports, exports, pages and summaries keep the paths of their input.
    #[arg(long, value_name = "OLD=NEW", value_parser = OsStringValueParser::new().try_map(path_mapping),
        help_heading = SYMBOLS)]
    path_map: Vec<(Vec<u8>, Vec<u8>)>,

    /// Use the source maps of scripts: auto or off
    ///
    /// Files, lines and names come from the original program. A script names its map in its last comment; maps are read
    /// from the script itself or below its directory, never from a network.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
        default_value = "auto", help_heading = SYMBOLS)]
    source_maps: SourceMapsArgument,

    /// Source map, or directory with the maps of scripts; may be repeated
    ///
    /// The map of work.js is work.js.map. It takes precedence over the one that the script names.
    #[arg(long, value_name = "PATH", help_heading = SYMBOLS)]
    source_map: Vec<PathBuf>,
}

/// The track that lines are taken from.
#[derive(Args, Debug)]
pub struct TrackArgument {
    /// Track to read source lines from [default: original]
    ///
    /// original: the files of the program, through source maps. generated: the text that the runtime compiled, without source
    /// maps. Other names are tracks that the runtime logs beside its usual lines, such as bytecode; jitinject dump prints them.
    #[arg(long, value_name = "TRACK", value_parser = NonEmptyStringValueParser::new(), help_heading = SYMBOLS,
        hide_short_help = true)]
    track: Option<String>,
}

impl TrackArgument {
    /// Returns the argument as it was given.
    pub fn argument(&self) -> Option<String> {
        self.track.clone()
    }

    /// Returns the name of the runtime's track; `None` for the usual lines.
    pub fn name(&self) -> Option<Vec<u8>> {
        let name = self.track.as_deref()?;
        (!["original", GENERATED].contains(&name)).then(|| name.as_bytes().to_vec())
    }

    /// Applies the argument to the options of source files: generated code has no source maps.
    pub fn apply(&self, sources: &mut SourceOptions) {
        sources.source_maps.is_off |= self.track.as_deref() == Some(GENERATED);
    }
}

/// Name of the track with the usual lines, without source maps.
const GENERATED: &str = "generated";

/// Values of `--source-maps`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum SourceMapsArgument {
    /// Where a script names one
    Auto,
    /// Never
    Off,
}

fn path_mapping(text: OsString) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut parts = text.as_bytes().splitn(2, |&byte| byte == b'=');
    match (parts.next(), parts.next()) {
        (Some(old), Some(new)) if !old.is_empty() => Ok((old.to_vec(), new.to_vec())),
        _ => Err("not of the form OLD=NEW".into()),
    }
}

impl SourceArguments {
    /// Returns why the arguments contradict each other, if they do.
    pub fn conflict(&self) -> Option<&'static str> {
        let is_off = self.source_maps == SourceMapsArgument::Off;
        (is_off && !self.source_map.is_empty()).then_some("--source-maps=off and --source-map")
    }

    /// Returns the options of the library. The source maps must be there; the source files may be on another machine.
    pub fn options(&self) -> Result<SourceOptions, Diagnostic> {
        check_named(&self.source_map)?;
        Ok(SourceOptions {
            // Readers resolve a relative directory against their own.
            source_dir: self
                .source_dir
                .as_ref()
                .map(|dir| absolute(dir).unwrap_or_else(|_| dir.clone())),
            path_map: self.path_map.clone(),
            source_maps: SourceMapOptions {
                is_off: self.source_maps == SourceMapsArgument::Off,
                paths: self.source_map.clone(),
            },
        })
    }
}

/// Fails if a file or directory that an option names is not there.
pub fn check_named<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Diagnostic> {
    for path in paths {
        fs::metadata(path).map_err(|cause| Diagnostic::cannot_read_named(path, &cause, CHECK_PATH))?;
    }
    Ok(())
}
