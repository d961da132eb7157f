//! The marker: a runtime maps a page of its dump as code, only so that the profile tells where the dump is.

use crate::bytes::base_name;

/// What the kernel appends to the name of a mapped file that has been removed.
const DELETED: &[u8] = b" (deleted)";

/// The path of the dump that a map of this name marks, if it marks one.
///
/// Its base name is `jit-`, anything, `.dump`. The specification has the process's number in between, but Bun
/// puts the thread's before it (capture bun), and in a container it is another number than the profile's
/// (capture node20-pidns). V8 with `--perf-prof-delete-file` removes the file while it is mapped.
pub fn dump_path(map_name: &[u8]) -> Option<&[u8]> {
    let path = map_name.strip_suffix(DELETED).unwrap_or(map_name);
    is_dump_name(base_name(path)).then_some(path)
}

/// Whether a file of this base name could be a jitdump.
pub fn is_dump_name(base_name: &[u8]) -> bool {
    base_name
        .strip_prefix(b"jit-")
        .is_some_and(|rest| rest.ends_with(b".dump"))
}

/// The process' number in the base name of a dump: the last one in it.
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
