//! Formats of files written by a runtime.

use std::fmt;

use serde::Serialize;

/// A format of files written by a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A jitdump.
    Jitdump,
    /// A log of Mono's profiler, gzip-compressed or not.
    MonoLog,
    /// An XRay trace.
    XrayTrace,
}

impl FileKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Jitdump, Self::MonoLog, Self::XrayTrace];
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jitdump => "jitdump",
            Self::MonoLog => "Mono log",
            Self::XrayTrace => "XRay trace",
        })
    }
}
