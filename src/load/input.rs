//! Opening the input: a file, directory or pipe, whose records may be compressed or damaged.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use jitdump::Tally;

use crate::bytes::printable_path;
use crate::files::search::files_below;
use crate::files::stdio::is_standard;
use crate::files::temp_file::{CopyError, temp_file_error};
use crate::files::{CompressionFormat, FileOrigin, InputFile, OpenFile, StreamedFile, TempFile, stream};
use crate::load::options::{InputKind, LoadOptions};
use crate::perf::record::data::ProfileBytes;
use crate::perf::record::resync::{self, Damage, IntactReader};
use crate::perf::{Profile, compression, header, merge};
use crate::results::FileKind;
use crate::results::diagnostics::issues::RECORD_FIRST;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::threads;
use crate::traces::detect;

/// The files of the input.
#[derive(Debug)]
pub struct InputFiles {
    /// Name for messages.
    pub name: String,
    /// Type of the input.
    pub kind: InputKind,
    /// File with the header, and usually all records.
    pub main: MainFile,
    /// More files with records, written by `perf record --threads`, sorted by the number in their names.
    pub parts: Vec<InputFile>,
    /// Folders with a copy of the kernel's code, written by `perf record --kcore`.
    pub kernel_copies: Vec<PathBuf>,
}

/// The main file of the input.
#[derive(Debug)]
pub enum MainFile {
    /// In memory.
    Whole(Arc<InputFile>),
    /// A large profile, which is read in blocks.
    Streamed(Box<StreamedFile>),
}

/// The records of a profile after they were repaired, decompressed and merged into one file.
#[derive(Debug)]
pub struct RewrittenRecords {
    /// File with the records and nothing else.
    pub file: StreamedFile,
    /// Records that were left out, by file.
    pub faults: Vec<(PathBuf, Tally<Issue>)>,
    /// Damaged bytes that were skipped, by file.
    pub damage: Vec<(PathBuf, Damage)>,
}

/// Opens the input: a file, a folder or a stream.
pub fn open(options: &LoadOptions) -> Result<InputFiles, Diagnostic> {
    let path = &options.input;
    let error = |cause| input_error(path, cause);
    if is_standard(path) {
        let stdin = io::stdin();
        let file = stdin.as_fd().try_clone_to_owned().map_err(error)?.into();
        let file = open_stream(file, Path::new("standard input"), options)?;
        return if file.is_empty() {
            Err(Diagnostic::new(Issue::StdinWithoutData))
        } else {
            Ok(InputFiles::of_file(file, options))
        };
    }
    let kind = fs::metadata(path).map_err(error)?.file_type();
    if kind.is_dir() {
        return match options.input_kind {
            Some(InputKind::MonoLog) => open_first(options, FileKind::MonoLog),
            Some(InputKind::XrayTrace) => open_first(options, FileKind::XrayTrace),
            Some(InputKind::Profile) | None => open_folder(options),
        };
    }
    let file = if kind.is_file() || options.confine {
        read_profile(open_file(path, options)?, options)?
    } else {
        // Opening a FIFO may block, which is right for a file that the user named.
        open_stream(stream::open_input(path).map_err(error)?, path, options)?
    };
    Ok(InputFiles::of_file(file, options))
}

fn input_error(path: &Path, cause: io::Error) -> Diagnostic {
    Diagnostic::cannot_read_named(path, &cause, RECORD_FIRST)
}

/// Opens the first wanted file in a folder. The others are opened with the logs or traces that options name.
fn open_first(options: &LoadOptions, wanted: FileKind) -> Result<InputFiles, Diagnostic> {
    let (folder, reach) = (&options.input, options.reach());
    let files = files_below(folder, &mut Vec::new());
    let mut files = files
        .into_iter()
        .filter_map(|path| reach.open_named(folder, &path).ok());
    match files.find(|file| {
        file.read_start()
            .is_ok_and(|start| detect::kind_of(&start) == Some(wanted))
    }) {
        Some(file) => {
            let file = InputFile::read(&file).map_err(|cause| input_error(folder, cause))?;
            Ok(InputFiles::of_file(MainFile::Whole(Arc::new(file)), options))
        }
        None => Err(input_error(folder, io::ErrorKind::NotFound.into())),
    }
}

fn open_file(path: &Path, options: &LoadOptions) -> Result<OpenFile, Diagnostic> {
    let file = options
        .reach()
        .open_named(path, path)
        .map_err(|cause| input_error(path, cause))?;
    // perf has the same rule: whoever writes a profile chooses the files that its reader opens.
    if !file.is_trusted() && !options.force {
        return Err(Diagnostic::new(Issue::ProfileOwner).in_file(path));
    }
    Ok(file)
}

/// Reads a file, unless it is a profile that is better read in blocks.
fn read_profile(file: OpenFile, options: &LoadOptions) -> Result<MainFile, Diagnostic> {
    let path = file.path().to_owned();
    let is_streamed = options.streams(file.size())
        && file
            .read_start()
            .is_ok_and(|start| is_streamed_kind(&start, options));
    let read = if is_streamed {
        StreamedFile::of(file).map(|file| MainFile::Streamed(Box::new(file)))
    } else {
        InputFile::read(&file).map(|file| MainFile::Whole(Arc::new(file)))
    };
    read.map_err(|cause| input_error(&path, cause))
}

/// Whether a file with these first bytes is a profile, which needs not be in memory.
fn is_streamed_kind(start: &[u8], options: &LoadOptions) -> bool {
    matches!(options.input_kind, Some(InputKind::Profile) | None) && header::is_profile(start)
}

/// Reads a stream to its end: jitdumps are complete only after the recorded programs have exited.
fn open_stream(file: File, path: &Path, options: &LoadOptions) -> Result<MainFile, Diagnostic> {
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        let file = OpenFile::from_file(file, path).map_err(|cause| input_error(path, cause))?;
        return read_profile(file, options);
    }
    let mut temp_file = TempFile::create().map_err(temp_file_error)?;
    stream::enlarge_pipe(&file);
    let mut is_streamed = false;
    let accepts = |start: &[u8]| {
        is_streamed = is_streamed_kind(start, options);
        is_readable(start)
    };
    temp_file.append_if(&file, accepts).map_err(|error| match error {
        CopyError::Read(cause) => input_error(path, cause),
        CopyError::Write(cause) => temp_file_error(cause),
    })?;
    let read = if is_streamed {
        temp_file
            .into_streamed(path)
            .map(|file| MainFile::Streamed(Box::new(file)))
    } else {
        temp_file.map(path).map(|file| MainFile::Whole(Arc::new(file)))
    };
    read.map_err(temp_file_error)
}

/// Returns whether a stream may be a profile, log or trace by its first bytes, compressed or not.
pub fn may_be_input(start: &[u8]) -> bool {
    is_readable(start) || CompressionFormat::detect(start).is_some()
}

/// Whether a stream may be a profile, log or trace, by its first bytes. These suffice to reject others.
fn is_readable(start: &[u8]) -> bool {
    header::is_profile(start) || detect::may_be_log_or_trace(start)
}

/// Opens the folder of `perf record --threads` or `--kcore`.
fn open_folder(options: &LoadOptions) -> Result<InputFiles, Diagnostic> {
    let main = options.input.join("data");
    if let Err(cause) = fs::symlink_metadata(&main) {
        return Err(without_data(&options.input, cause));
    }
    let main = open_file(&main, options)?;
    let FolderEntries { parts, kernel_copies } = list_folder(options)?;
    let read = |file: OpenFile| {
        let path = file.path().to_owned();
        InputFile::read(&file).map_err(|cause| input_error(&path, cause))
    };
    // To be merged, the records of all files must be in memory.
    let main = if parts.is_empty() {
        read_profile(main, options)?
    } else {
        MainFile::Whole(Arc::new(read(main)?))
    };
    let mut input = InputFiles::of_file(main, options);
    input.kernel_copies = kernel_copies;
    for path in parts {
        input.parts.push(read(open_file(&path, options)?)?);
    }
    Ok(input)
}

/// Returns why a folder has no profile. `cause` is that its `data` cannot be found.
fn without_data(folder: &Path, cause: io::Error) -> Diagnostic {
    if cause.kind() != io::ErrorKind::NotFound {
        return input_error(folder, cause);
    }
    let none = Diagnostic::new(Issue::FolderWithoutProfile).in_file(folder);
    match fs::symlink_metadata(folder.join("run-1/perf.data")) {
        Ok(_) => none.with_remedy("Name one of its runs (record --runs), such as the run-1 in it."),
        Err(_) => none,
    }
}

/// What is beside the main file in a folder.
struct FolderEntries {
    /// The files of ring buffers (`data.N`), in the order of their numbers.
    parts: Vec<PathBuf>,
    /// The folders with copies of the kernel.
    kernel_copies: Vec<PathBuf>,
}

/// Lists the folder of the input. Fails if a copy of the kernel is a link out of a confined one.
fn list_folder(options: &LoadOptions) -> Result<FolderEntries, Diagnostic> {
    let path = &options.input;
    let mut kernel_copies = Vec::new();
    let mut parts = Vec::new();
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.map_err(|cause| input_error(path, cause))? {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b"kcore_dir") {
            if options.confine && entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                let cause = io::Error::other("a symbolic link");
                return Err(input_error(&entry.path(), cause));
            }
            kernel_copies.push(entry.path());
        }
        let number = name.to_str().and_then(|name| name.strip_prefix("data."));
        if let Some(number) = number.and_then(|number| number.parse::<u32>().ok())
            && fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file())
        {
            parts.push((number, entry.path()));
        }
    }
    parts.sort();
    kernel_copies.sort();
    Ok(FolderEntries {
        parts: parts.into_iter().map(|(_, path)| path).collect(),
        kernel_copies,
    })
}

impl MainFile {
    /// Returns what identifies the file.
    pub fn origin(&self) -> &FileOrigin {
        match self {
            Self::Whole(file) => file.origin(),
            Self::Streamed(file) => file.origin(),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.origin().path
    }

    /// Returns the time of the last modification.
    pub fn modified(&self) -> io::Result<SystemTime> {
        match self {
            Self::Whole(file) => Ok(file.modified()),
            Self::Streamed(file) => file.modified(),
        }
    }

    /// Returns the bytes of the file.
    pub fn data(&self) -> ProfileBytes<'_> {
        match self {
            Self::Whole(file) => ProfileBytes::from(&file[..]),
            Self::Streamed(file) => ProfileBytes::of_file(&**file),
        }
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.data().is_empty()
    }

    fn check(&self) -> Result<(), Diagnostic> {
        match self {
            Self::Whole(file) => check(file),
            Self::Streamed(file) => file.check(),
        }
    }
}

/// Fails if a file has become shorter since it was opened.
fn check(file: &InputFile) -> Result<(), Diagnostic> {
    if file.has_shrunk() {
        Err(Diagnostic::new(Issue::ProfileShrunk).in_file(file.path()))
    } else {
        Ok(())
    }
}

impl InputFiles {
    /// Describes an input of one file.
    fn of_file(main: MainFile, options: &LoadOptions) -> Self {
        // The options may name the type; otherwise, the content shows it.
        let kind = options.input_kind.unwrap_or_else(|| match &main {
            MainFile::Whole(file) => match detect::kind_of(file) {
                Some(FileKind::MonoLog) => InputKind::MonoLog,
                Some(FileKind::XrayTrace) => InputKind::XrayTrace,
                Some(FileKind::Jitdump) | None => InputKind::Profile,
            },
            MainFile::Streamed(_) => InputKind::Profile,
        });
        Self {
            name: if is_standard(&options.input) {
                "standard input".into()
            } else {
                printable_path(&options.input)
            },
            kind,
            main,
            parts: Vec::new(),
            kernel_copies: Vec::new(),
        }
    }

    /// Returns the main file if the input is of this type, which is not that of profiles.
    pub fn main_if(&self, kind: InputKind) -> Option<&Arc<InputFile>> {
        match &self.main {
            MainFile::Whole(file) if self.kind == kind => Some(file),
            _ => None,
        }
    }

    /// Returns what identifies the files, the main one first.
    pub fn origins(&self) -> impl Iterator<Item = &FileOrigin> {
        let parts = self.parts.iter().map(InputFile::origin);
        std::iter::once(self.main.origin()).chain(parts)
    }

    /// Fails if one of the files has become shorter since it was opened, or has changed between two reads.
    pub fn check(&self) -> Result<(), Diagnostic> {
        self.main.check()?;
        self.parts.iter().try_for_each(check)
    }

    /// Merges the records of all files into one stream: aligned, decompressed and without damage.
    pub fn expand(&self, profile: &Profile<'_>) -> Result<RewrittenRecords, Diagnostic> {
        let parts = self.parts.iter().map(|part| ProfileBytes::from(&part[..]));
        let streams = std::iter::once(profile.data).chain(parts);
        let paths = self.origins().map(|origin| &*origin.path);
        let streams: Vec<(&Path, ProfileBytes<'_>)> = paths.zip(streams).collect();
        let expanded = threads::map(&streams, |&(path, stream)| Plain::of(stream, profile, path));
        let plain: io::Result<Vec<Plain<'_>>> = expanded.into_iter().collect();
        let mut plain = plain.map_err(temp_file_error)?;
        let starts = std::iter::once(profile.data_offset).chain(std::iter::repeat(0));
        let (mut faults, mut damage) = (Vec::new(), Vec::new());
        for ((part, start), &(path, _)) in plain.iter_mut().zip(starts).zip(&streams) {
            let found = std::mem::take(&mut part.faults);
            faults.push((path.to_owned(), found.offset_by(start)));
            damage.push((path.to_owned(), part.damage.offset_by(start)));
        }
        if let [Plain { file: Some(_), .. }] = plain[..]
            && let Some(file) = plain.pop().and_then(|part| part.file)
        {
            return Ok(RewrittenRecords { file, faults, damage });
        }
        let merged = || {
            let in_memory: io::Result<Vec<_>> = plain.iter().map(Plain::in_memory).collect();
            let in_memory = in_memory?;
            let parts: Vec<&[u8]> = in_memory.iter().map(Stream::bytes).collect();
            let mut temp_file = TempFile::create()?;
            merge::merge(&parts, &profile.attrs, profile.endian, &mut temp_file)?;
            temp_file.into_streamed(self.main.path())
        };
        Ok(RewrittenRecords {
            file: merged().map_err(temp_file_error)?,
            faults,
            damage,
        })
    }

    /// Repairs records that were damaged inside compressed ones.
    pub fn repair(&self, profile: &Profile<'_>) -> Result<RewrittenRecords, Diagnostic> {
        let path = self.main.path();
        let (file, damage) = repair(profile.data, profile, path).map_err(temp_file_error)?;
        Ok(RewrittenRecords {
            file,
            faults: Vec::new(),
            damage: vec![(path.to_owned(), damage)],
        })
    }
}

/// Writes records without what is damaged to a temporary file.
fn repair(
    records: ProfileBytes<'_>,
    profile: &Profile<'_>,
    path: &Path,
) -> io::Result<(StreamedFile, Damage)> {
    let mut temp_file = TempFile::create()?;
    let damage = resync::repair(records, &profile.attrs, profile.endian, &mut temp_file)?;
    Ok((temp_file.into_streamed(path)?, damage))
}

/// The records of one file, decompressed and without damage.
struct Plain<'a> {
    stream: ProfileBytes<'a>,
    /// Rewritten records, if some were compressed, damaged or of sizes that readers reject.
    file: Option<StreamedFile>,
    faults: Tally<Issue>,
    damage: Damage,
}

/// The records of one file in memory.
enum Stream<'a> {
    Recorded(&'a [u8]),
    Rewritten(InputFile),
}

impl Stream<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Recorded(bytes) => bytes,
            Self::Rewritten(file) => file,
        }
    }
}

impl<'a> Plain<'a> {
    /// Reads through the records of a stream, repairs and decompresses them where they need it; `path` is their name in
    /// messages.
    fn of(stream: ProfileBytes<'a>, profile: &Profile<'_>, path: &Path) -> io::Result<Self> {
        let endian = profile.endian;
        let mut walk = IntactReader::new(stream, &profile.attrs, endian);
        let mut is_compressed = false;
        let mut has_refused = false;
        while let Some(record) = walk.next() {
            is_compressed |= record.is_compressed();
            has_refused |= resync::needs_repair(&record, &profile.attrs, endian);
        }
        let mut plain = Self {
            stream,
            file: None,
            faults: Tally::default(),
            damage: walk.damage(),
        };
        if has_refused || !plain.damage.is_empty() {
            plain.file = Some(repair(stream, profile, path)?.0);
        }
        if is_compressed {
            let mut temp_file = TempFile::create()?;
            let faults = compression::expand(plain.data(), endian, &mut temp_file)?;
            // Offsets in repaired records do not count skipped bytes.
            plain.faults = faults.offset_by(plain.damage.bytes);
            plain.file = Some(temp_file.into_streamed(path)?);
        }
        if let Some(offset) = walk.undecoded() {
            plain.faults.add(Issue::ProfileRecordsCut, offset);
        }
        Ok(plain)
    }

    fn data(&self) -> ProfileBytes<'_> {
        self.file
            .as_ref()
            .map_or(self.stream, |file| ProfileBytes::of_file(file))
    }

    fn in_memory(&self) -> io::Result<Stream<'_>> {
        match (&self.file, self.stream) {
            (Some(file), _) => file.read_whole().map(Stream::Rewritten),
            (None, ProfileBytes::Memory(bytes)) => Ok(Stream::Recorded(bytes)),
            (None, ProfileBytes::File(_)) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
