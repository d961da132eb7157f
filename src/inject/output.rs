//! The output: a profile and a folder of objects, which appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::elf::store::{self, Ownership, Store};
use crate::files::staged::{Committed, leads_to_open_file};
use crate::files::standard;
use crate::files::{StagedFile, StagedFolder, Uninterrupted};
use crate::inject::dumps::Found;
use crate::inject::input::Input;
use crate::inject::objects::PlacedObject;
use crate::inject::perf_maps::FoundMaps;
use crate::inject::told::Told;
use crate::inject::{Error, Options, is_standard};
use crate::perf::output::{LeftOut, Rewrite};
use crate::perf::{Profile, feature, synthesis};

/// Refuses to write over what is read, and to write two things to one place.
pub fn refuse_conflicts(
    options: &Options,
    input: &Input,
    found: &Found,
    maps: &FoundMaps,
    told: &Told<'_>,
) -> Result<(), Error> {
    let given = found.given.iter().chain(&maps.given).map(PathBuf::as_path);
    let input_path = Some(&*options.input).filter(|path| !is_standard(path));
    let core = options.code_from.as_deref();
    let named: Vec<&Path> = given.chain(input_path).chain(core).collect();
    let dumps = found.dumps.iter().map(|dump| &*dump.file);
    let maps = maps.maps.iter().map(|map| &map.file);
    let files: Vec<_> = input
        .files()
        .chain(dumps)
        .chain(maps)
        .chain(told.files())
        .collect();
    for output in std::iter::once(&options.output).chain(&options.summary) {
        let Some(number) = number(output) else { continue };
        let files = files.iter().map(|file| (file.number(), file.path()));
        let named = named.iter().filter_map(|path| Some((self::number(path)?, *path)));
        if let Some((_, input)) = files.chain(named).find(|&(input, _)| input == number) {
            return Err(Error::SameFile {
                output: output.clone(),
                input: input.to_path_buf(),
            });
        }
    }
    let elf_dir = elf_dir(options);
    if elf_dir.ancestors().any(|folder| is_same(folder, &options.output)) {
        return Err(Error::ObjectsInTheWay(elf_dir));
    }
    let is_in_output = |path: &Path| {
        let mut folders = path.ancestors();
        folders.any(|folder| is_same(folder, &elf_dir)) || is_same(path, &options.output)
    };
    match &options.summary {
        Some(summary) if is_in_output(summary) => return Err(Error::SummaryInTheWay(summary.clone())),
        _ => {}
    }
    match &options.build_id_cache {
        Some(cache) if is_in_output(cache) => return Err(Error::CacheInTheWay(cache.clone())),
        Some(cache) if fs::metadata(cache).is_ok_and(|metadata| !metadata.is_dir()) => {
            return Err(Error::Write {
                path: cache.clone(),
                cause: io::ErrorKind::NotADirectory.into(),
            });
        }
        _ => {}
    }
    Ok(())
}

/// Device and inode of what is at a path, if anything is. Devices that take anything are nothing.
fn number(path: &Path) -> Option<(u64, u64)> {
    let metadata = if is_standard(path) {
        File::from(io::stdout().as_fd().try_clone_to_owned().ok()?).metadata()
    } else {
        fs::metadata(path)
    };
    let metadata = metadata.ok()?;
    let is_device = metadata.file_type().is_char_device();
    (!is_device).then_some((metadata.dev(), metadata.ino()))
}

/// Whether two paths lead to the same file or folder, or would if there were one.
fn is_same(one: &Path, other: &Path) -> bool {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => match (std::path::absolute(one), std::path::absolute(other)) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        },
        _ => false,
    }
}

/// Whether an output is written as for a pipe: standard output, or what can't get its name once it is whole.
pub fn is_stream(path: &Path) -> bool {
    let is_special = || fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    is_standard(path) || is_special() || leads_to_open_file(path)
}

/// Whether a path is one of the usual ones for standard output.
fn leads_to_standard_output(path: &Path) -> bool {
    is_standard(path) || path == Path::new("/dev/stdout")
}

/// The folder for objects that belongs to an output.
pub fn elf_dir(options: &Options) -> PathBuf {
    options.elf_dir.clone().unwrap_or_else(|| {
        let output = if is_stream(&options.output) {
            Path::new(DEFAULT_OUTPUT)
        } else {
            &options.output
        };
        // Without the slash that may stand behind the name of a folder.
        let mut name = output.components().as_path().to_owned().into_os_string();
        name.push(".elf");
        name.into()
    })
}

/// The output's name if none is chosen.
pub const DEFAULT_OUTPUT: &str = "perf.jit.data";

/// An output in the making.
pub struct Output {
    path: PathBuf,
    target: Target,
    folder: PathBuf,
    ownership: Ownership,
    /// Made with the first object.
    store: Option<Store>,
}

/// Where the profile goes.
enum Target {
    File(StagedFile),
    /// A folder, for a profile with copies of the kernel's code, and the file in it.
    Folder(StagedFolder, File),
    /// A pipe.
    Stream(File),
}

/// The file with the records in a profile that is a folder.
const DATA: &str = "data";

impl Target {
    fn create(path: &Path, kernel_copies: &[PathBuf]) -> io::Result<Self> {
        if is_standard(path) {
            let stdout = io::stdout().as_fd().try_clone_to_owned()?;
            return Ok(Self::Stream(stdout.into()));
        }
        if is_stream(path) {
            return Ok(Self::Stream(OpenOptions::new().write(true).open(path)?));
        }
        // A slash behind the name would be one behind the names of what is made beside it, too.
        let path = path.components().as_path();
        let is_folder = fs::symlink_metadata(path).map(|metadata| metadata.is_dir());
        if kernel_copies.is_empty() {
            return match is_folder {
                Ok(true) => Err(io::Error::other("there is a folder of that name")),
                _ => StagedFile::create(path).map(Self::File),
            };
        }
        if is_folder.is_ok_and(|is_folder| !is_folder || !is_profile(path).unwrap_or(false)) {
            return Err(io::Error::other(
                "the output is a folder, since the profile is one, and there is something else of that name",
            ));
        }
        let folder = StagedFolder::create(path)?;
        let file = folder.create_file(DATA)?;
        for copy in kernel_copies {
            copy_folder(copy, &folder)?;
        }
        Ok(Self::Folder(folder, file))
    }
}

/// Whether a folder is a profile, and nothing else.
fn is_profile(folder: &Path) -> io::Result<bool> {
    let is_part =
        |name: &[u8]| name == DATA.as_bytes() || name.starts_with(b"data.") || name.starts_with(b"kcore_dir");
    for entry in fs::read_dir(folder)? {
        if !is_part(entry?.file_name().as_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Copies the files of a folder.
fn copy_folder(from: &Path, to: &StagedFolder) -> io::Result<()> {
    let name = from
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    to.create_folder(name)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let file = entry.file_name();
        if let Some(file) = file
            .to_str()
            .filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file()))
        {
            let mut copy = to.create_file(&format!("{name}/{file}"))?;
            io::copy(&mut File::open(entry.path())?, &mut copy)?;
        }
    }
    Ok(())
}

impl Output {
    /// Starts an output. With `kernel_copies`, folders that are to be copied, it is a folder itself.
    pub fn create(options: &Options, kernel_copies: &[PathBuf]) -> Result<Self, Error> {
        if is_standard(&options.output) && io::stdout().is_terminal() {
            return Err(Error::Terminal);
        }
        if leads_to_standard_output(&options.output) && standard::output_was_closed() {
            return Err(Error::Closed);
        }
        let target = Target::create(&options.output, kernel_copies).map_err(|cause| Error::Write {
            path: options.output.clone(),
            cause,
        })?;
        Ok(Self {
            path: options.output.clone(),
            target,
            folder: elf_dir(options),
            ownership: match options.elf_dir {
                Some(_) => Ownership::Shared,
                None => Ownership::OfOutput,
            },
            store: None,
        })
    }

    /// The folder for objects.
    pub fn store(&mut self) -> Result<&mut Store, store::Error> {
        match self.store {
            Some(ref mut store) => Ok(store),
            None => {
                let store = Store::create(&self.folder, self.ownership)?;
                Ok(self.store.insert(store))
            }
        }
    }

    /// Writes the profile, and puts it and the objects in place, if `input` is what it was. Returns what a pipe
    /// could not have.
    pub fn finish(self, rewrite: Rewrite<'_>, input: &Input) -> Result<LeftOut, Error> {
        let error = |cause| Error::Write {
            path: self.path.clone(),
            cause,
        };
        let has_objects = self.store.is_some();
        let commit_objects = || self.store.map(Store::commit).transpose();
        // Profile and objects belong together, and so get their names together or not at all.
        let uninterrupted;
        let (written, objects) = match self.target {
            Target::File(mut file) => {
                write_file(rewrite, file.file()).map_err(error)?;
                input.check()?;
                uninterrupted = Some(Uninterrupted::begin());
                let objects = commit_objects()?;
                (file.commit().map(|()| LeftOut::new()), objects)
            }
            Target::Folder(folder, mut file) => {
                write_file(rewrite, &mut file).map_err(error)?;
                input.check()?;
                uninterrupted = Some(Uninterrupted::begin());
                let objects = commit_objects()?;
                (folder.commit().map(|_| LeftOut::new()), objects)
            }
            Target::Stream(mut stream) => {
                input.check()?;
                // Who reads the stream may look for objects as soon as it reads of them.
                let objects = commit_objects()?;
                uninterrupted = None;
                let written = write_stream(rewrite, &mut stream);
                let is_whole = input.check().map_err(io::Error::other);
                (is_whole.and(written), objects)
            }
        };
        let result = match (written, objects) {
            (Ok(left_out), objects) => {
                drop(objects);
                if !has_objects && self.ownership == Ownership::OfOutput {
                    store::remove_stale(&self.folder)?;
                }
                Ok(left_out)
            }
            (Err(cause), objects) => {
                objects
                    .map_or(Ok(()), Committed::undo)
                    .map_err(|cause| Error::Write {
                        path: self.folder.clone(),
                        cause,
                    })?;
                Err(error(cause))
            }
        };
        drop(uninterrupted);
        result
    }
}

fn write_file(rewrite: Rewrite<'_>, file: &mut File) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    rewrite.write_file(&mut writer)?;
    writer.flush()
}

fn write_stream(rewrite: Rewrite<'_>, stream: &mut File) -> io::Result<LeftOut> {
    let mut writer = BufWriter::with_capacity(1 << 16, stream);
    let left_out = rewrite.write_pipe(&mut writer)?;
    writer.flush()?;
    Ok(left_out)
}

/// The entries of objects for the profile's table of build-ids, if it has one.
///
/// None is made where there is none. perf, `perf archive` among its commands, has enough in the build-ids of
/// maps; a table of ours alone would hide those of all other files from `perf buildid-list`, which then looks
/// at no map.
///
/// Quirk: perf 6.12 sorts all that it knows anew for each entry: with 10,000 of them, perf report takes four times as
/// long, and with 100,000 it does not end. So there are none for more than [`MAX_LISTED`] objects.
pub fn build_id_entries(profile: &Profile<'_>, objects: &[PlacedObject]) -> Vec<u8> {
    let mut entries = Vec::new();
    // Those that are mapped more than once stand side by side.
    let same_path = |one: &PlacedObject, other: &PlacedObject| one.path == other.path;
    let objects = || objects.chunk_by(same_path).filter_map(<[_]>::first);
    let is_short = objects().nth(MAX_LISTED).is_none();
    if is_short && profile.feature(feature::BUILD_ID).is_some() {
        for object in objects() {
            synthesis::put_build_id_entry(&mut entries, profile.order, &object.build_id, &object.path);
        }
    }
    entries
}

/// How many objects get an entry each in the profile's table of build-ids, if there are no more.
const MAX_LISTED: usize = 1000;
