//! Options for the paths of source files, shared by the commands that use lines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{PathBuf, absolute};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::commands::headings::SYMBOLS;

/// Where source files are on this machine.
#[derive(Args, Debug)]
pub struct SourcePaths {
    /// Directory for resolving relative source paths
    #[arg(long, value_name = "DIR", help_heading = SYMBOLS)]
    source_dir: Option<PathBuf>,

    /// Replace the start OLD of source paths by NEW; may be repeated
    ///
    /// For programs that ran in a container or on another machine. If several match, the last one is used.
    #[arg(long, value_name = "OLD=NEW", value_parser = OsStringValueParser::new().try_map(path_mapping),
        help_heading = SYMBOLS)]
    path_map: Vec<(Vec<u8>, Vec<u8>)>,
}

impl SourcePaths {
    /// Returns the directory for relative paths. It is absolute, because readers resolve a relative one against their own.
    pub fn source_dir(&self) -> Option<PathBuf> {
        let directory = self.source_dir.as_ref()?;
        Some(absolute(directory).unwrap_or_else(|_| directory.clone()))
    }

    /// Returns the prefixes of paths and their replacements.
    pub fn path_map(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.path_map.clone()
    }
}

fn path_mapping(text: OsString) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut parts = text.as_bytes().splitn(2, |&byte| byte == b'=');
    match (parts.next(), parts.next()) {
        (Some(old), Some(new)) if !old.is_empty() => Ok((old.to_vec(), new.to_vec())),
        _ => Err("not of the form OLD=NEW".into()),
    }
}
