//! Detection of a runtime file's format, by content or by name.

use jitdump::internals::format as jitdump;

use crate::results::FileKind;
use crate::traces::detect;
use crate::traces::xray::format as xray;

impl FileKind {
    /// Returns the format of a file if its first bytes identify it with certainty.
    ///
    /// `start` is the whole file or its first few hundred bytes.
    pub fn from_content(start: &[u8]) -> Option<Self> {
        match jitdump::header::byte_order(start) {
            Some(_) => Some(Self::Jitdump),
            None => detect::kind_of(start),
        }
    }

    /// Returns the format that files with the base name `name` usually have.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        if jitdump::marker::is_dump_name(name) {
            Some(Self::Jitdump)
        } else if name.ends_with(b".mlpd") {
            Some(Self::MonoLog)
        } else {
            name.starts_with(b"xray-log.").then_some(Self::XrayTrace)
        }
    }

    /// Returns the format of a file that is expected to be one of these.
    ///
    /// This is more lenient than [`Self::from_content`]: it also accepts XRay traces of unknown versions and types, and
    /// goes by the name if the file is too short to be recognised.
    pub fn from_content_or_name(start: &[u8], name: &[u8]) -> Option<Self> {
        /// Number of bytes that it takes to recognise any of the formats.
        const MAGIC_SIZE: usize = 4;
        let by_name = Self::from_name(name);
        let may_be_trace = || {
            let has_other_name = by_name.is_some_and(|kind| kind != Self::XrayTrace);
            let is_alike = !has_other_name && xray::header::has_plausible_version(start);
            is_alike.then_some(Self::XrayTrace)
        };
        let by_content = Self::from_content(start).or_else(may_be_trace);
        by_content.or(by_name.filter(|_| start.len() < MAGIC_SIZE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_kind_only_where_the_content_is_too_short_to() {
        let named = |start, name| FileKind::from_content_or_name(start, name);
        for start in [&b""[..], b"DT", b"\0\0\0"] {
            assert_eq!(named(start, b"jit-1.dump"), Some(FileKind::Jitdump));
            assert_eq!(named(start, b"app.mlpd"), Some(FileKind::MonoLog));
            assert_eq!(named(start, b"xray-log.app.1"), Some(FileKind::XrayTrace));
            assert_eq!(named(start, b"app.txt"), None);
        }
        assert_eq!(named(b"\0\0\0\0", b"jit-1.dump"), None);
        assert_eq!(named(b"DTiJ", b"xray-log.app.1"), Some(FileKind::Jitdump));
        // an XRay trace of an unknown version
        let trace = b"\x06\0\x01\0";
        assert_eq!(named(trace, b"xray-log.app.1"), Some(FileKind::XrayTrace));
        assert_eq!(named(trace, b"trace"), Some(FileKind::XrayTrace));
        assert_eq!(named(trace, b"jit-1.dump"), None);
    }
}
