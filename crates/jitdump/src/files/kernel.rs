//! Reads files of the kernel, in `/proc` and `/sys`: nobody else can put files there.

#![expect(clippy::disallowed_methods, reason = "files of the kernel only")]

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Reads a file.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    kernel_path(path.as_ref()).and_then(fs::read)
}

/// Reads a file of UTF-8 text.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    kernel_path(path.as_ref()).and_then(fs::read_to_string)
}

/// Returns a field of a process's status, as in proc_pid_status(5); `None` if there is no such process.
pub fn status_of(process: impl Display, field: &str) -> Option<String> {
    let status = read_text(format!("/proc/{process}/status")).ok()?;
    let of_field = |line: &str| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned);
    status.lines().find_map(of_field)
}

/// Returns the bits of a field of this process's status, which is a flag or a mask: none if there is no such field.
pub fn own_bits(field: &str) -> u64 {
    status_of("self", field)
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Returns the text of a link.
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    kernel_path(path.as_ref()).and_then(fs::read_link)
}

/// Opens a file for reading.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    kernel_path(path.as_ref()).and_then(File::open)
}

/// A mapping of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedFile<'m> {
    /// First address, and the one after the last.
    pub addresses: (u64, u64),
    /// Device of the file, as text.
    pub device: &'m str,
    /// Inode of the file.
    pub inode: u64,
    /// Path of the file as its process sees it.
    pub path: &'m [u8],
    /// Whether the file was removed.
    pub is_removed: bool,
}

impl MappedFile<'_> {
    /// Returns the path of the file in the directory of its process. Addresses have no leading zeros there, as they have in
    /// lists of mappings below 256 MiB.
    pub fn link(&self, pid: u32) -> PathBuf {
        let (start, end) = self.addresses;
        PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
    }
}

/// Returns the files in a list of mappings, as in proc_pid_maps(5).
pub fn mapped_files(maps: &[u8]) -> impl Iterator<Item = MappedFile<'_>> {
    maps.split(|&byte| byte == b'\n').filter_map(|line| {
        // addresses, permissions, offset, device, inode, spaces, path
        let (fields, name) = line.split_at_checked(memchr::memchr(b'/', line)?)?;
        let mut fields = std::str::from_utf8(fields).ok()?.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let path = name.strip_suffix(b" (deleted)").unwrap_or(name);
        Some(MappedFile {
            addresses: (address(start)?, address(end)?),
            device: fields.nth(2)?,
            inode: fields.next()?.parse().ok()?,
            path,
            is_removed: path.len() < name.len(),
        })
    })
}

/// Rejects paths elsewhere.
fn kernel_path(path: &Path) -> io::Result<&Path> {
    if path.starts_with("/proc") || path.starts_with("/sys") {
        Ok(path)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_not_read() {
        assert!(read_text("/proc/self/status").unwrap().contains("Pid:"));
        assert!(read_link("/proc/self/exe").is_ok() && open("/proc/self/maps").is_ok());
        assert!(read("/etc/passwd").is_err());
    }

    #[test]
    fn mapped_files_have_their_addresses_and_paths() {
        let maps = b"00400000-00401000 r-xp 00000000 08:01 77                  /a b/jit-17.dump\n\
            7f02-7f03 rw-p 00000000 00:00 0 \n7f03-7f04 rw-p 00000000 00:00 0  [heap]\n\
            7f04-7f05 r-xp 00000000 08:01 78  /tmp/jit-18.dump (deleted)\nend\n";
        let found: Vec<MappedFile<'_>> = mapped_files(maps).collect();
        let [first, second] = found[..] else {
            panic!("{found:?}")
        };
        let expected = MappedFile {
            addresses: (0x40_0000, 0x40_1000),
            device: "08:01",
            inode: 77,
            path: b"/a b/jit-17.dump",
            is_removed: false,
        };
        assert_eq!(first, expected);
        assert_eq!(first.link(5), Path::new("/proc/5/map_files/400000-401000"));
        assert_eq!((second.inode, second.path), (78, &b"/tmp/jit-18.dump"[..]));
        assert!(second.is_removed);
    }
}
