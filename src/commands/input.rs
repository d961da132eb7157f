//! Files of runtimes, opened for the commands that look into them, and unpacked where they are packed.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jitinject::files::spool::copy_if;
use jitinject::files::{MappedFile, Spool};
use jitinject::inject::is_standard;
use jitinject::runtime::FileKind;
use jitinject::runtime::mono::{Fault, packed};
use jitinject::tally::Tally;

/// A file.
pub struct Opened {
    /// What is in it; of a packed one, what came out.
    pub file: MappedFile,
    /// How it was packed, if it was.
    pub packed: Option<Packed>,
}

/// What is known of a packed file.
pub struct Packed {
    /// Its size in bytes.
    pub size: u64,
    /// What could not be unpacked.
    pub faults: Tally<Fault>,
}

impl Opened {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = match is_standard(path) {
            true => {
                let mut spool = Spool::create()?;
                let may_be_one = |start: &[u8]| FileKind::of_named(start, base_name(path)).is_some();
                copy_if(io::stdin().lock(), &mut spool, may_be_one)?;
                spool.map(path)?
            }
            false => MappedFile::open(path)?,
        };
        Self::of(file)
    }

    /// The same of a file that is open.
    pub fn of(file: MappedFile) -> io::Result<Self> {
        if !packed::is_packed(&file) {
            return Ok(Self { file, packed: None });
        }
        let size = file.len() as u64;
        let mut spool = Spool::create()?;
        let unpacked = packed::unpack(&file, packed::largest(size), &mut spool)?;
        let has_shrunk = file.has_shrunk();
        let packed = Packed {
            size,
            faults: unpacked.faults,
        };
        let file = spool.map(file.path())?;
        match has_shrunk {
            true => Err(io::Error::other("it has got shorter while it was read")),
            false => Ok(Self {
                file,
                packed: Some(packed),
            }),
        }
    }

    /// What kind of file it is, by its content; where nothing of that is left, by its name.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::of_named(&self.file, base_name(self.file.path()))
    }

    /// What could not be unpacked.
    pub fn packing_faults(&self) -> Tally<Fault> {
        let faults = self.packed.as_ref().map(|packed| packed.faults.clone());
        faults.unwrap_or_default()
    }
}

/// The part of a path behind its last slash.
pub fn base_name(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", OsStr::as_bytes)
}
