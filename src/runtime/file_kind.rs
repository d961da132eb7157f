//! Which kind of file a runtime wrote, by its content.

use std::fmt;

use serde::Serialize;

use crate::runtime::{jitdump, mono, xray};

/// A kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A jitdump.
    Jitdump,
    /// A log of Mono's profiler, packed or not.
    MonoLog,
    /// A trace of XRay.
    XrayTrace,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jitdump => "jitdump",
            Self::MonoLog => "log of Mono's profiler",
            Self::XrayTrace => "trace of XRay",
        })
    }
}

impl FileKind {
    /// The kind of a file by its first bytes, beyond doubt: all of the file, or some hundred bytes.
    pub fn of(start: &[u8]) -> Option<Self> {
        if jitdump::header::byte_order(start).is_some() {
            Some(Self::Jitdump)
        } else if mono::packed::is_log(start) {
            Some(Self::MonoLog)
        } else {
            xray::is_trace(start).then_some(Self::XrayTrace)
        }
    }

    /// The kind of a file that somebody takes for one of these: also where its start is damaged or missing, and
    /// only its name tells. `name` is the base name.
    pub fn of_named(start: &[u8], name: &[u8]) -> Option<Self> {
        let by_name = || {
            if jitdump::marker::is_dump_name(name) {
                Some(Self::Jitdump)
            } else if name.ends_with(b".mlpd") {
                Some(Self::MonoLog)
            } else {
                name.starts_with(b"xray-log.").then_some(Self::XrayTrace)
            }
        };
        let may_be_trace = || xray::header::has_small_numbers(start).then_some(Self::XrayTrace);
        let by_content = Self::of(start).or_else(may_be_trace);
        by_content.or_else(|| start.is_empty().then(by_name)?)
    }
}
