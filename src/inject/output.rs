//! Writing the output: a profile and a directory of objects, committed together or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use crate::files::objects::store;
use crate::files::objects::store::{CommittedObjects, Store, StoreMode};
use crate::files::staged::Committed;
use crate::files::stdio::is_standard;
use crate::files::{
    CommitGuard, Folder, FolderContents, NameInFolder, StagedFile, StagedFolder, stdio, stream,
};
use crate::inject::options::InjectOptions;
use crate::inject::summary_file::StagedSummary;
use crate::load::{Recording, RecordingData, path_file_id, refuse_input_as_output};
use crate::perf::output::{OmittedFeatures, Rewrite};
use crate::results::diagnostics::{Diagnostic, Issue};

/// Refuses outputs that would overwrite an input or another output.
pub fn refuse_conflicts(options: &InjectOptions, recording: &Recording<'_>) -> Result<(), Diagnostic> {
    let outputs = std::iter::once(&options.output).chain(&options.summary);
    refuse_input_as_output(&options.load, recording, outputs)?;
    let elf_dir = elf_dir(options);
    if elf_dir.ancestors().any(|folder| is_same(folder, &options.output)) {
        return Err(Diagnostic::new(Issue::ObjectsInTheWay).in_file(&elf_dir));
    }
    if let Some(summary) = &options.summary
        && is_in_output(options, summary)
    {
        return Err(Diagnostic::new(Issue::SummaryInTheWay).in_file(summary));
    }
    match &options.build_id_cache {
        Some(cache) if !options.is_cache_optional => refuse_cache(options, cache),
        _ => Ok(()),
    }
}

/// Refuses a build-id cache that would be part of the output, or that is not a folder.
pub fn refuse_cache(options: &InjectOptions, cache: &Path) -> Result<(), Diagnostic> {
    if is_in_output(options, cache) {
        return Err(Diagnostic::new(Issue::CacheInTheWay).in_file(cache));
    }
    if fs::metadata(cache).is_ok_and(|metadata| !metadata.is_dir()) {
        let cause = io::ErrorKind::NotADirectory.into();
        return Err(Diagnostic::cannot_write(cache, &cause));
    }
    Ok(())
}

/// Whether a path is that of the output, or in the folder of objects.
fn is_in_output(options: &InjectOptions, path: &Path) -> bool {
    let elf_dir = elf_dir(options);
    let mut folders = path.ancestors();
    folders.any(|folder| is_same(folder, &elf_dir)) || is_same(path, &options.output)
}

/// Whether two paths mean the same file or folder, existing or not.
fn is_same(one: &Path, other: &Path) -> bool {
    match (path_file_id(one), path_file_id(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => match (std::path::absolute(one), std::path::absolute(other)) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        },
        _ => false,
    }
}

/// Whether an output gets the pipe format: standard output, or a file that cannot be renamed into place.
pub fn is_stream(path: &Path) -> bool {
    is_standard(path) || stream::is_stream(path)
}

/// Whether a path is a usual name of standard output.
fn leads_to_standard_output(path: &Path) -> bool {
    is_standard(path) || path == Path::new("/dev/stdout")
}

/// Returns the folder for the objects of an output.
pub fn elf_dir(options: &InjectOptions) -> PathBuf {
    options.elf_dir.clone().unwrap_or_else(|| {
        let output = if is_stream(&options.output) {
            Path::new(DEFAULT_OUTPUT)
        } else {
            &options.output
        };
        // Drops a trailing slash, which would become part of the name.
        let mut name = output.components().as_path().to_owned().into_os_string();
        name.push(".elf");
        name.into()
    })
}

/// Name of the output if none is given.
pub const DEFAULT_OUTPUT: &str = "perf.jit.data";

/// An output that is being written.
pub struct Output {
    path: PathBuf,
    target: Target,
    /// Path of the folder for objects.
    folder: PathBuf,
    /// A folder that is open already, and may have the outputs.
    open: Option<Folder>,
    store_mode: StoreMode,
    /// Created with the first object.
    store: Option<Store>,
}

/// Destination of the profile.
enum Target {
    File(StagedFile),
    /// A folder, for profiles with copies of the kernel's code, and the `data` file in it.
    Folder(StagedFolder, File),
    /// A pipe or device.
    Stream(File),
}

/// Name of the file with the records in a profile that is a folder.
const DATA: &str = "data";

impl Target {
    /// Prepares writing to a path: a stream, a file, or a folder with copies of the kernel.
    fn create(path: &Path, open: Option<&Folder>, kernel_copies: &[PathBuf]) -> io::Result<Self> {
        if is_stream(path) {
            let file = if is_standard(path) {
                io::stdout().as_fd().try_clone_to_owned()?.into()
            } else {
                stream::open(path)?
            };
            stream::enlarge_pipe(&file);
            return Ok(Self::Stream(file));
        }
        let place = NameInFolder::within(path, open)?;
        if kernel_copies.is_empty() {
            return StagedFile::create(place).map(Self::File);
        }
        if place.is_taken() {
            profile_contents(&place)?;
        }
        let folder = StagedFolder::create(place)?;
        let file = folder.create_file(DATA, false)?;
        for copy in kernel_copies {
            copy_folder(copy, &folder)?;
        }
        Ok(Self::Folder(folder, file))
    }

    /// File that the profile is written to.
    fn file(&mut self) -> &mut File {
        match self {
            Self::File(file) => file.file(),
            Self::Folder(_, file) | Self::Stream(file) => file,
        }
    }

    /// Renames the output to its final name, unless it is a stream.
    fn commit(self) -> io::Result<Option<Committed>> {
        match self {
            Self::File(file) => file.commit().map(Some),
            Self::Folder(folder, _) => folder.commit(profile_contents).map(Some),
            Self::Stream(_) => Ok(None),
        }
    }
}

/// Lists the contents of a profile folder that is to be replaced. Fails if it is not one, or has other
/// contents.
fn profile_contents(place: &NameInFolder) -> io::Result<FolderContents> {
    let strange = || io::Error::other(Diagnostic::new(Issue::OutputFolderForeign));
    let is_part = |name: &[u8]| name == DATA.as_bytes() || name.starts_with(b"data.");
    let mut contents = FolderContents::default();
    for entry in place.open_folder().map_err(|_| strange())?.entries()? {
        let (place, kind) = entry?;
        let name = Path::new(&place.name);
        if is_part(place.name.as_bytes()) && kind.is_file() {
            contents.add(name.into(), false);
        } else if place.name.as_bytes().starts_with(b"kcore_dir") && kind.is_dir() {
            contents.add(name.into(), true);
            for copy in place.open_folder()?.entries()? {
                let (copy, kind) = copy?;
                if !kind.is_file() {
                    return Err(strange());
                }
                contents.add(name.join(copy.name), false);
            }
        } else {
            return Err(strange());
        }
    }
    Ok(contents)
}

/// Copies the regular files of a folder that perf wrote. All else that somebody put there is left out, and files whose
/// names are not UTF-8: those of perf are `kcore`, `kallsyms` and `modules`.
fn copy_folder(from: &Path, to: &StagedFolder) -> io::Result<()> {
    let name = from.file_name().and_then(|name| name.to_str());
    // No folder can be created with an empty name, so another one than perf's is an error.
    let name = name.unwrap_or_default();
    to.create_folder(name)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let file = entry.file_name();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let Some(file) = file.to_str().filter(|_| is_file) else {
            continue;
        };
        let mut copy = to.create_file(&format!("{name}/{file}"), false)?;
        // It may be exchanged for a link, or for a pipe without a writer, before it is opened.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let original = rustix::fs::openat(CWD, entry.path(), flags, Mode::empty())?;
        io::copy(&mut File::from(original), &mut copy)?;
    }
    Ok(())
}

impl Output {
    /// Starts an output. It is a folder if there are folders to copy into it (`kernel_copies`).
    pub fn create(options: &InjectOptions, kernel_copies: &[PathBuf]) -> Result<Self, Diagnostic> {
        if is_standard(&options.output) && io::stdout().is_terminal() {
            return Err(Diagnostic::new(Issue::StdoutIsTerminal));
        }
        if leads_to_standard_output(&options.output) && stdio::stdout_was_closed() {
            return Err(Diagnostic::new(Issue::StdoutClosed));
        }
        let target = Target::create(&options.output, options.folder.as_ref(), kernel_copies)
            .map_err(|cause| Diagnostic::cannot_write(&options.output, &cause))?;
        Ok(Self {
            path: options.output.clone(),
            target,
            folder: elf_dir(options),
            open: options.folder.clone(),
            store_mode: match options.elf_dir {
                Some(_) => StoreMode::Shared,
                None => StoreMode::Exclusive,
            },
            store: None,
        })
    }

    /// Returns the folder for objects, which is created on the first call.
    pub fn store(&mut self) -> Result<&mut Store, Diagnostic> {
        match self.store {
            Some(ref mut store) => Ok(store),
            None => {
                let store = Store::create(&self.folder, self.store_mode, self.open.as_ref())?;
                Ok(self.store.insert(store))
            }
        }
    }

    /// Returns what to report of the folder for objects.
    pub fn diagnostic(&self) -> Option<Diagnostic> {
        self.store.as_ref()?.lock_fault()
    }

    /// Writes the profile, calls `report`, and commits the objects, the profile and the report if the input is
    /// unchanged. On an error, none of them is committed. Returns the features that the pipe format cannot hold, and the folder
    /// of the objects, if there are any.
    ///
    /// Data in a stream cannot be taken back, so the report is made last there, and may fail alone.
    pub fn finish(
        self,
        rewrite: Rewrite<'_>,
        data: &RecordingData,
        report: impl FnOnce(&OmittedFeatures) -> Result<Option<StagedSummary>, Diagnostic>,
    ) -> Result<(OmittedFeatures, Option<Folder>), Diagnostic> {
        let mut committed = CommittedOutputs::default();
        let (folder, open) = (self.folder.clone(), self.open.clone());
        let is_stream = matches!(self.target, Target::Stream(_));
        // Without objects of this run, those of an earlier one may be left, in a folder that is for this output alone.
        let may_be_stale = self.store.is_none() && self.store_mode == StoreMode::Exclusive;
        match self.commit(rewrite, data, report, &mut committed) {
            Ok(left_out) => {
                // A stream has the folder of an output of the default name, whose objects must stay.
                let is_current = || {
                    if is_stream {
                        !Path::new(DEFAULT_OUTPUT).exists()
                    } else {
                        committed.profile().is_some_and(Committed::is_in_place)
                    }
                };
                match &committed.objects {
                    Some(objects) => objects.remove_others(is_current)?,
                    None if may_be_stale => store::remove_stale(&folder, open.as_ref(), is_current)?,
                    None => {}
                }
                let folder = committed.objects.as_ref().map(CommittedObjects::open_folder);
                Ok((left_out, folder.transpose()?))
            }
            Err(error) => committed.undo().and(Err(error)),
        }
    }

    /// Writes the records, and then puts everything in its place: objects, profile and what `report` makes. `committed`
    /// gets what is there, also if the rest fails.
    fn commit(
        self,
        rewrite: Rewrite<'_>,
        data: &RecordingData,
        report: impl FnOnce(&OmittedFeatures) -> Result<Option<StagedSummary>, Diagnostic>,
        committed: &mut CommittedOutputs,
    ) -> Result<OmittedFeatures, Diagnostic> {
        let path = self.path.clone();
        let error = |cause| Diagnostic::cannot_write(&path, &cause);
        let mut target = self.target;
        if let Target::Stream(stream) = &mut target {
            // Before anything is written, and after: what is written cannot be taken back, but then it is an error.
            data.check_input()?;
            // A reader of the stream may open objects as soon as it has read their records.
            committed.objects = self.store.map(Store::commit).transpose()?;
            let written = write_stream(rewrite, stream);
            data.check_input()?;
            let left_out = written.map_err(error)?;
            committed.objects.iter_mut().for_each(CommittedObjects::keep);
            committed.add_report(report(&left_out)?)?;
            return Ok(left_out);
        }
        write_file(rewrite, target.file()).map_err(error)?;
        data.check_input()?;
        let left_out = OmittedFeatures::new();
        let report = report(&left_out)?;
        committed.uninterrupted = Some(CommitGuard::begin());
        committed.objects = self.store.map(Store::commit).transpose()?;
        if let Some(profile) = target.commit().map_err(error)? {
            committed.done.push((self.path, profile));
        }
        committed.add_report(report)?;
        Ok(left_out)
    }
}

/// Outputs that are committed already. They belong together, so an error undoes all of them.
#[derive(Default)]
struct CommittedOutputs {
    objects: Option<CommittedObjects>,
    /// Other committed outputs with their paths; the profile first, unless it is a stream.
    done: Vec<(PathBuf, Committed)>,
    /// Last, so that replaced files are removed before it is dropped.
    uninterrupted: Option<CommitGuard>,
}

impl CommittedOutputs {
    /// The profile, unless it is a stream.
    fn profile(&self) -> Option<&Committed> {
        self.done.first().map(|(_, committed)| committed)
    }

    fn add_report(&mut self, report: Option<StagedSummary>) -> Result<(), Diagnostic> {
        if let Some(report) = report {
            let path = report.path.clone();
            self.done.push((path, report.commit()?));
        }
        Ok(())
    }

    /// Undoes all commits, even after an error. Returns the first error.
    fn undo(self) -> Result<(), Diagnostic> {
        let undo = |(path, committed): (PathBuf, Committed)| {
            committed
                .undo()
                .map_err(|cause| Diagnostic::cannot_write(&path, &cause))
        };
        let undone = self.done.into_iter().rev().map(undo);
        let undone = undone.fold(Ok(()), Result::and);
        match self.objects {
            Some(objects) => undone.and(objects.undo()),
            None => undone,
        }
    }
}

fn write_file(rewrite: Rewrite<'_>, file: &mut File) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    rewrite.write_file(&mut writer)?;
    writer.flush()
}

fn write_stream(rewrite: Rewrite<'_>, stream: &mut File) -> io::Result<OmittedFeatures> {
    let mut writer = BufWriter::with_capacity(1 << 16, stream);
    let left_out = rewrite.write_pipe(&mut writer)?;
    writer.flush()?;
    Ok(left_out)
}
