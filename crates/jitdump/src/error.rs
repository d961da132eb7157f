//! Why a file cannot be read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::bytes::{hex, printable_path};

/// Why a file cannot be read.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    path: Option<PathBuf>,
}

/// The kind of an [`Error`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The jitdump has no bytes.
    Empty,
    /// The jitdump ends inside its header.
    TooShort {
        /// Size of the file in bytes.
        size: u64,
    },
    /// The file is not a jitdump.
    NotAJitdump {
        /// Its first four bytes.
        magic: [u8; 4],
    },
    /// The file has become shorter since it was read last.
    Shrunk,
    /// The operating system refused to open or read the file.
    Unreadable(io::Error),
}

impl Error {
    /// Sets the affected file.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        let path = Some(path.to_owned());
        Self { path, ..self }
    }

    /// Creates the error that a file cannot be opened or read.
    pub(crate) fn unreadable(path: &Path, cause: io::Error) -> Self {
        Self::from(ErrorKind::Unreadable(cause)).in_file(path)
    }

    /// Returns why the file cannot be read.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Returns the path of the file; `None` if only its bytes were given.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, path: None }
    }
}

impl fmt::Display for Error {
    /// Formats the path, if there is one, and the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", printable_path(path))?;
        }
        match &self.kind {
            ErrorKind::Empty => f.write_str("empty file"),
            ErrorKind::TooShort { size } => write!(f, "ends inside its header, after {size} bytes"),
            ErrorKind::NotAJitdump { magic } => {
                write!(f, "not a jitdump: starts with {}, not with JiTD", hex(magic))
            }
            ErrorKind::Shrunk => f.write_str("became shorter while it was read: its end is missing"),
            ErrorKind::Unreadable(cause) => write!(f, "cannot be read: {cause}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Unreadable(cause) => Some(cause),
            _ => None,
        }
    }
}
