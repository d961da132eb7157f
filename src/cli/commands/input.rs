//! Opening of files for `check` and `dump`, with decompression.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jitdump::Tally;
use jitinject::Issue;
use jitinject::internals::files::stdio::is_standard;
use jitinject::internals::files::temp_file::copy_if;
use jitinject::internals::files::{InputFile, TempFile};
use jitinject::internals::perf::header::is_profile;
use jitinject::internals::results::FileKind;
use jitinject::internals::traces::detect::is_packed;
use jitinject::internals::traces::mono::format::packed;

/// An open runtime file.
pub struct RuntimeFile {
    /// Content, decompressed if necessary.
    pub file: InputFile,
    /// Compressed size in bytes, if it was compressed.
    pub packed_size: Option<u64>,
    /// Faults of decompression.
    pub packing_faults: Tally<Issue>,
}

impl RuntimeFile {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = if is_standard(path) {
            let mut temp_file = TempFile::create()?;
            let may_be_one = |start: &[u8]| {
                is_profile(start) || FileKind::from_content_or_name(start, base_name(path)).is_some()
            };
            copy_if(io::stdin().lock(), &mut temp_file, may_be_one)?;
            temp_file.map(path)?
        } else {
            InputFile::open(path)?
        };
        Self::of(file)
    }

    /// Decompresses an open file.
    pub fn of(file: InputFile) -> io::Result<Self> {
        if !is_packed(&file) {
            return Ok(Self {
                file,
                packed_size: None,
                packing_faults: Tally::default(),
            });
        }
        let size = file.len() as u64;
        let mut temp_file = TempFile::create()?;
        let unpacked = packed::unpack(&file, packed::max_unpacked_size(size), &mut temp_file)?;
        if file.has_shrunk() {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        Ok(Self {
            file: temp_file.map(file.path())?,
            packed_size: Some(size),
            packing_faults: unpacked.faults,
        })
    }

    /// Returns the file type by content, or by name if the content is damaged.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_content_or_name(&self.file, base_name(self.file.path()))
    }
}

/// Returns the file name of a path.
pub fn base_name(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", OsStr::as_bytes)
}
