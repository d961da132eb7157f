//! Opening of runtime files for `check` and `dump`, with decompression.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jitinject::diagnostics::Issue;
use jitinject::files::stdio::is_standard;
use jitinject::files::temp_file::copy_if;
use jitinject::files::{InputFile, TempFile};
use jitinject::runtime::FileKind;
use jitinject::runtime::mono::packed;
use jitinject::tally::Tally;

/// An open file.
pub struct Opened {
    /// Content, decompressed if necessary.
    pub file: InputFile,
    /// Compression, if there is any.
    pub packed: Option<Packed>,
}

/// A compressed file.
pub struct Packed {
    /// Its size in bytes.
    pub size: u64,
    /// Faults of decompression.
    pub faults: Tally<Issue>,
}

impl Opened {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = match is_standard(path) {
            true => {
                let mut temp_file = TempFile::create()?;
                let may_be_one = |start: &[u8]| FileKind::of_named(start, base_name(path)).is_some();
                copy_if(io::stdin().lock(), &mut temp_file, may_be_one)?;
                temp_file.map(path)?
            }
            false => InputFile::open(path)?,
        };
        Self::of(file)
    }

    /// Decompresses an open file.
    pub fn of(file: InputFile) -> io::Result<Self> {
        if !packed::is_packed(&file) {
            return Ok(Self { file, packed: None });
        }
        let size = file.len() as u64;
        let mut temp_file = TempFile::create()?;
        let unpacked = packed::unpack(&file, packed::largest(size), &mut temp_file)?;
        let has_shrunk = file.has_shrunk();
        let packed = Packed {
            size,
            faults: unpacked.faults,
        };
        let file = temp_file.map(file.path())?;
        match has_shrunk {
            true => Err(io::Error::other("it became shorter while it was read")),
            false => Ok(Self {
                file,
                packed: Some(packed),
            }),
        }
    }

    /// Returns the file type by content, or by name if the content is damaged.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::of_named(&self.file, base_name(self.file.path()))
    }

    /// Returns the faults of decompression.
    pub fn packing_faults(&self) -> Tally<Issue> {
        let faults = self.packed.as_ref().map(|packed| packed.faults.clone());
        faults.unwrap_or_default()
    }
}

/// Returns the file name of a path.
pub fn base_name(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", OsStr::as_bytes)
}
