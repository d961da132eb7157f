//! A recording as one file.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header, HeaderMode};
use zstd::stream::write::Encoder;

use super::collection;
use crate::files::{Folder, NameInFolder, StagedFile};
use crate::results::diagnostics::{Diagnostic, Issue};

/// Compression level: the default of zstd.
const LEVEL: i32 = 3;

/// Returns the path of the archive of a folder: `NAME.tar.zst` beside it.
pub fn archive_path(folder: &Path) -> PathBuf {
    // Drops a trailing slash, which would become part of the name.
    let mut path = folder.components().as_path().to_owned().into_os_string();
    path.push(".tar.zst");
    path.into()
}

/// Fails if there is an archive of that name already.
pub fn refuse_existing(archive: &Path) -> Result<(), Diagnostic> {
    match fs::symlink_metadata(archive) {
        Ok(_) => Err(Diagnostic::new(Issue::RecordingExists).in_file(archive)),
        Err(_) => Ok(()),
    }
}

/// Packs a folder. The archive appears whole or not at all, and does not contain users, modes or times, so the same files
/// make the same archive. Returns its size in bytes, and what is left out.
pub fn pack(folder: &Folder, archive: NameInFolder) -> io::Result<(u64, Vec<Diagnostic>)> {
    let mut staged = StagedFile::create(archive)?;
    let mut left_out = Vec::new();
    // The path itself is a link.
    let size = write_archive(&folder.descriptor_path().join("."), staged.file(), &mut left_out)?;
    staged.commit()?;
    Ok((size, left_out))
}

/// Writes all that is in a folder as an archive. Returns the size of the file; what cannot be read is `left_out`.
#[expect(
    clippy::disallowed_methods,
    reason = "the folder of the recording, which follows no links"
)]
fn write_archive(folder: &Path, file: &mut File, left_out: &mut Vec<Diagnostic>) -> io::Result<u64> {
    let mut builder = Builder::new(Encoder::new(&mut *file, LEVEL)?);
    builder.mode(HeaderMode::Deterministic);
    builder.follow_symlinks(false);
    let name = fs::canonicalize(folder)?
        .file_name()
        .map_or("recording".into(), PathBuf::from);
    let mut open = vec![(folder.to_owned(), name)];
    while let Some((path, name)) = open.pop() {
        let found = fs::symlink_metadata(&path)?;
        add_entry(&mut builder, &path, &name, &found, left_out)?;
        if found.is_dir() {
            let entries = fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.file_name()));
            let mut names = entries.collect::<io::Result<Vec<_>>>()?;
            names.sort();
            open.extend(
                names
                    .iter()
                    .rev()
                    .map(|entry| (path.join(entry), name.join(entry))),
            );
        }
    }
    builder.into_inner()?.finish()?.sync_data()?;
    file.metadata().map(|packed| packed.len())
}

/// Adds a file, link or folder to an archive as `name`. Holes in files stay holes. What cannot be read now is
/// `left_out`.
#[expect(
    clippy::disallowed_methods,
    reason = "the folder of the recording, which follows no links"
)]
fn add_entry(
    builder: &mut Builder<Encoder<'_, &mut File>>,
    path: &Path,
    name: &Path,
    found: &Metadata,
    left_out: &mut Vec<Diagnostic>,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    if found.is_file() {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = match rustix::fs::open(path, flags, Mode::empty()) {
            // Its owner has a lease on it.
            Err(cause @ Errno::WOULDBLOCK) => {
                left_out.push(collection::left_out(name, &cause.into()));
                return Ok(());
            }
            opened => File::from(opened?),
        };
        let found = file.metadata()?;
        // What has holes is ours, and complete. Programs that still run may write to other files, of which this is the beginning.
        if found.blocks().saturating_mul(512) < found.len() {
            return builder.append_file(name, &mut file);
        }
        header.set_metadata_in_mode(&found, HeaderMode::Deterministic);
        let content = file.chain(io::repeat(0)).take(found.len());
        return builder.append_data(&mut header, name, content);
    }
    header.set_metadata_in_mode(found, HeaderMode::Deterministic);
    if found.is_dir() {
        return builder.append_data(&mut header, name, io::empty());
    }
    if found.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        return builder.append_link(&mut header, name, fs::read_link(path)?);
    }
    // Pipes and sockets of the program have no content.
    Ok(())
}
