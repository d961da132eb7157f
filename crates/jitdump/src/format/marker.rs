//! Jitdump markers: executable mappings of a jitdump, which record its path in the profile.

use crate::bytes::base_name;

/// The suffix that the kernel appends to the path of a mapped file that has been deleted.
const DELETED: &[u8] = b" (deleted)";

/// Returns the path of the jitdump that a mapping with this name marks; `None` if it is not a marker.
///
/// The base name is `jit-*.dump`. The specification requires the PID in the middle, but Bun puts the TID
/// before it (capture bun), and in a container it differs from the PID in the profile (capture node20-pidns).
/// V8 with `--perf-prof-delete-file` deletes the file while it is mapped.
pub fn dump_path(map_name: &[u8]) -> Option<&[u8]> {
    let path = map_name.strip_suffix(DELETED).unwrap_or(map_name);
    is_dump_name(base_name(path)).then_some(path)
}

/// Returns whether a file with this base name could be a jitdump.
pub fn is_dump_name(base_name: &[u8]) -> bool {
    base_name
        .strip_prefix(b"jit-")
        .is_some_and(|rest| rest.ends_with(b".dump"))
}

/// Returns the PID in the base name of a jitdump, which is the last number in it.
pub fn pid_in_name(base_name: &[u8]) -> Option<u32> {
    let inner = base_name.strip_prefix(b"jit-")?.strip_suffix(b".dump")?;
    let number = inner.rsplit(|&byte| byte == b'-').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_recognised_by_their_base_name() {
        for (name, path) in [
            (&b"/tmp/jit-123.dump"[..], Some(&b"/tmp/jit-123.dump"[..])),
            (b"/tmp/jit-27165-27160.dump", Some(b"/tmp/jit-27165-27160.dump")),
            (b"/tmp/jit-1.dump (deleted)", Some(b"/tmp/jit-1.dump")),
            (b"jit-1.dump", Some(b"jit-1.dump")),
            (b"/tmp/jit-1.dump/other", None),
            (b"/tmp/jitted-1.dump", None),
            (b"/tmp/jit-1.dump.so", None),
            (b"//anon", None),
            (b"", None),
        ] {
            assert_eq!(dump_path(name), path);
        }
        for (name, pid) in [
            (&b"jit-123.dump"[..], Some(123)),
            (b"jit-27165-27160.dump", Some(27160)),
            (b"jit-.dump", None),
            (b"other.dump", None),
        ] {
            assert_eq!(pid_in_name(name), pid);
        }
    }
}
