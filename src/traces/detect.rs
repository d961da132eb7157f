//! Detection of logs and traces by their first bytes.

use std::io::Read as _;

use flate2::bufread::GzDecoder;

use crate::results::FileKind;

/// First bytes of a log of Mono's profiler.
pub const MONO_MAGIC: [u8; 4] = *b"\x01ZPM";

/// The two magic bytes of gzip, and the compression method (deflate).
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// Returns what a file is, if it is a log or trace. XRay traces have no magic number: only their feature recognizes them.
pub fn kind_of(start: &[u8]) -> Option<FileKind> {
    #[cfg(feature = "xray")]
    if crate::traces::xray::format::is_trace(start) {
        return Some(FileKind::XrayTrace);
    }
    is_mono_log(start).then_some(FileKind::MonoLog)
}

/// Returns whether a stream may be a log or trace.
pub fn may_be_log_or_trace(start: &[u8]) -> bool {
    #[cfg(feature = "xray")]
    if crate::traces::xray::format::header::has_plausible_version(start) {
        return true;
    }
    is_mono_log(start)
}

/// Returns whether the start of a file is that of a log of Mono's profiler; for a packed log, some hundred bytes are needed.
pub fn is_mono_log(start: &[u8]) -> bool {
    let mut first = [0; MONO_MAGIC.len()];
    start.starts_with(&MONO_MAGIC)
        || is_packed(start) && GzDecoder::new(start).read_exact(&mut first).is_ok() && first == MONO_MAGIC
}

/// Returns whether the start of a file is that of a packed file.
pub fn is_packed(start: &[u8]) -> bool {
    start.starts_with(&GZIP)
}
