//! Limits for the files that are read together.

/// Room for the files that are still to be read.
#[derive(Clone, Copy, Debug)]
pub struct OpenFileRoom {
    /// Maximum size of a file, in bytes.
    pub file: u64,
    /// Size of all files that are left, in bytes.
    pub bytes: u64,
    /// Number of files that are left.
    pub files: usize,
}

impl OpenFileRoom {
    /// Takes the room of a file of so many bytes. Returns whether there is enough.
    pub fn take(&mut self, size: u64) -> bool {
        let bytes = self.bytes.checked_sub(size).filter(|_| size <= self.file);
        let left = bytes.zip(self.files.checked_sub(1));
        if let Some((bytes, files)) = left {
            (self.bytes, self.files) = (bytes, files);
        }
        left.is_some()
    }
}
