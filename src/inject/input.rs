//! Opening the profile, whatever it lies in: a file, a folder, a pipe; its records compressed, damaged or
//! neither.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::search::files_below;
use crate::files::spool::{CopyError, copy_if};
use crate::files::{MappedFile, OpenFile, Spool};
use crate::inject::reach::Reach;
use crate::inject::{Error, InputKind, Options, is_standard};
use crate::perf::record::Records;
use crate::perf::resync::{self, Damage, WholeRecords};
use crate::perf::{Fault, Profile, compression, header, merge};
use crate::runtime::mono::packed;
use crate::runtime::xray;
use crate::tally::Tally;
use crate::threads;

/// The files of a profile.
#[derive(Debug)]
pub struct Input {
    /// The one with the header, and mostly all the records.
    pub main: Arc<MappedFile>,
    /// Others with records only, as `perf record --threads` makes them, in the order of their numbers.
    pub parts: Vec<MappedFile>,
    /// Folders with a copy of the kernel's code, as `perf record --kcore` makes them.
    pub kernel_copies: Vec<PathBuf>,
}

/// What the records of a profile were made into, whole and plain, to be read as those of one file.
#[derive(Debug)]
pub struct Expanded {
    /// The records and nothing else.
    pub file: MappedFile,
    /// What had to be left out, of which file.
    pub faults: Vec<(PathBuf, Tally<Fault>)>,
    /// What of which file was passed over, since it is damaged.
    pub damage: Vec<(PathBuf, Damage)>,
}

/// Opens the profile.
pub fn open(options: &Options) -> Result<Input, Error> {
    let path = &options.input;
    let error = |cause| input_error(path, cause);
    if is_standard(path) {
        let stdin = io::stdin();
        let file = stdin.as_fd().try_clone_to_owned().map_err(error)?.into();
        return Ok(Input::of_file(open_stream(file, Path::new("standard input"))?));
    }
    let kind = fs::metadata(path).map_err(error)?.file_type();
    if kind.is_dir() {
        return match options.input_kind {
            Some(InputKind::MonoLog) => open_first(options, packed::is_log),
            Some(InputKind::XrayTrace) => open_first(options, xray::is_trace),
            Some(InputKind::Profile) | None => open_folder(options),
        };
    }
    let file = if kind.is_file() || options.confine {
        open_file(path, options)?
    } else {
        // The user named it, so there is something to wait for.
        open_stream(File::open(path).map_err(error)?, path)?
    };
    Ok(Input::of_file(file))
}

fn spool_error(cause: io::Error) -> Error {
    Error::Spool { cause }
}

fn input_error(path: &Path, cause: io::Error) -> Error {
    Error::Input {
        path: path.to_owned(),
        cause,
    }
}

/// The error of a file that an option names, other than the input.
pub fn read_error(path: &Path, cause: io::Error) -> Error {
    Error::Read {
        path: path.to_owned(),
        cause,
    }
}

/// Opens the first file in a folder that is what is looked for. The others are found with those beside the input.
fn open_first(options: &Options, is_wanted: fn(&[u8]) -> bool) -> Result<Input, Error> {
    let (folder, reach) = (&options.input, Reach::of(options));
    let files = files_below(folder, &mut Vec::new());
    let mut files = files
        .into_iter()
        .filter_map(|path| reach.open_named(folder, &path).ok());
    match files.find(|file| file.start().is_ok_and(|start| is_wanted(&start))) {
        Some(file) => Ok(Input::of_file(
            file.read().map_err(|cause| input_error(folder, cause))?,
        )),
        None => Err(input_error(folder, io::ErrorKind::NotFound.into())),
    }
}

fn open_file(path: &Path, options: &Options) -> Result<MappedFile, Error> {
    let file = Reach::of(options)
        .open_named(path, path)
        .and_then(OpenFile::read)
        .map_err(|cause| input_error(path, cause))?;
    // As perf does: who can write a profile can make its reader open files of their choice.
    if !file.is_trusted() && !options.force {
        return Err(Error::Owner(path.to_owned()));
    }
    Ok(file)
}

/// Reads to the end, since dumps are whole only when the programs have ended that a pipe tells about.
fn open_stream(file: File, path: &Path) -> Result<MappedFile, Error> {
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        let file = OpenFile::of(file, path).and_then(OpenFile::read);
        return file.map_err(|cause| input_error(path, cause));
    }
    let mut spool = Spool::create().map_err(spool_error)?;
    copy_if(file, &mut spool, may_be_input).map_err(|error| match error {
        CopyError::Read(cause) => input_error(path, cause),
        CopyError::Write(cause) => spool_error(cause),
    })?;
    spool.map(path).map_err(spool_error)
}

/// Whether a stream may be a profile, log or trace, by its first bytes. Of others, what they are not is told by these.
fn may_be_input(start: &[u8]) -> bool {
    header::is_profile(start) || packed::is_log(start) || xray::header::has_small_numbers(start)
}

fn open_folder(options: &Options) -> Result<Input, Error> {
    let path = &options.input;
    let mut input = Input::of_file(open_file(&path.join("data"), options)?);
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut parts = Vec::new();
    for entry in entries.map_err(|cause| input_error(path, cause))? {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b"kcore_dir") {
            if options.confine && entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                let cause = io::Error::other("it is a symbolic link");
                return Err(input_error(&entry.path(), cause));
            }
            input.kernel_copies.push(entry.path());
        }
        let number = name.to_str().and_then(|name| name.strip_prefix("data."));
        if let Some(number) = number.and_then(|number| number.parse::<u32>().ok())
            && fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file())
        {
            parts.push((number, entry.path()));
        }
    }
    parts.sort();
    input.kernel_copies.sort();
    for (_, path) in parts {
        input.parts.push(open_file(&path, options)?);
    }
    Ok(input)
}

impl Input {
    fn of_file(main: MappedFile) -> Self {
        Self {
            main: Arc::new(main),
            parts: Vec::new(),
            kernel_copies: Vec::new(),
        }
    }

    /// What it is: as the user says, or by its content.
    pub fn kind(&self, options: &Options) -> InputKind {
        options.input_kind.unwrap_or_else(|| match &**self.main {
            file if packed::is_log(file) => InputKind::MonoLog,
            file if xray::is_trace(file) => InputKind::XrayTrace,
            _ => InputKind::Profile,
        })
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = &MappedFile> {
        std::iter::once(&*self.main).chain(&self.parts)
    }

    /// Makes sure that none of the files has got shorter while it was read.
    pub fn check(&self) -> Result<(), Error> {
        match self.files().find(|file| file.has_shrunk()) {
            Some(file) => Err(Error::Shrunk(file.path().to_owned())),
            None => Ok(()),
        }
    }

    /// The records of all files as they would be in one, without damage, aligned and with none of them compressed.
    pub fn expand(&self, profile: &Profile<'_>) -> Result<Expanded, Error> {
        let streams = std::iter::once(profile.data).chain(self.parts.iter().map(|part| &part[..]));
        let streams: Vec<(&Path, &[u8])> = self.files().map(MappedFile::path).zip(streams).collect();
        let plain = threads::map(&streams, |&(path, stream)| Plain::of(stream, profile, path));
        let plain: io::Result<Vec<Plain<'_>>> = plain.into_iter().collect();
        let mut plain = plain.map_err(spool_error)?;
        let starts = std::iter::once(profile.data_offset).chain(std::iter::repeat(0));
        let (mut faults, mut damage) = (Vec::new(), Vec::new());
        for ((part, start), &(path, _)) in plain.iter_mut().zip(starts).zip(&streams) {
            let found = std::mem::take(&mut part.faults);
            faults.push((path.to_owned(), found.moved(start)));
            damage.push((path.to_owned(), part.damage.moved(start)));
        }
        if let [Plain { file: Some(_), .. }] = plain[..]
            && let Some(file) = plain.pop().and_then(|part| part.file)
        {
            return Ok(Expanded { file, faults, damage });
        }
        let parts: Vec<&[u8]> = plain.iter().map(Plain::bytes).collect();
        let merged = || {
            let mut spool = Spool::create()?;
            merge::merge(&parts, &profile.attrs, profile.order, &mut spool)?;
            spool.map(self.main.path())
        };
        Ok(Expanded {
            file: merged().map_err(spool_error)?,
            faults,
            damage,
        })
    }

    /// The same once more, for records that are damaged inside of compressed ones.
    pub fn mend(&self, profile: &Profile<'_>) -> Result<Expanded, Error> {
        let path = self.main.path();
        let (file, damage) = mend(profile.whole_records(), path).map_err(spool_error)?;
        Ok(Expanded {
            file,
            faults: Vec::new(),
            damage: vec![(path.to_owned(), damage)],
        })
    }
}

fn mend(records: WholeRecords<'_>, path: &Path) -> io::Result<(MappedFile, Damage)> {
    let mut spool = Spool::create()?;
    let damage = resync::mend(records, &mut spool)?;
    Ok((spool.map(path)?, damage))
}

/// The records of one file, whole and none of them compressed.
struct Plain<'a> {
    stream: &'a [u8],
    /// What they were made into, if some were compressed, damaged or of sizes that readers refuse.
    file: Option<MappedFile>,
    faults: Tally<Fault>,
    damage: Damage,
}

impl<'a> Plain<'a> {
    fn of(stream: &'a [u8], profile: &Profile<'_>, path: &Path) -> io::Result<Self> {
        let order = profile.order;
        let records = WholeRecords::new(stream, &profile.attrs, order);
        let mut walk = records.clone();
        let mut is_compressed = false;
        let mut has_refused = false;
        for record in walk.by_ref() {
            is_compressed |= record.is_compressed();
            has_refused |= resync::needs_mending(&record, &profile.attrs, order);
        }
        let mut plain = Self {
            stream,
            file: None,
            faults: Tally::default(),
            damage: walk.damage(),
        };
        if has_refused || !plain.damage.is_empty() {
            plain.file = Some(mend(records, path)?.0);
        }
        if is_compressed {
            let mut spool = Spool::create()?;
            let faults = compression::expand(Records::new(plain.bytes(), 0, order), order, &mut spool)?;
            // Places in what was mended are not those of the file.
            plain.faults = faults.moved(plain.damage.bytes);
            plain.file = Some(spool.map(path)?);
        }
        if let Some(offset) = walk.undecoded() {
            plain.faults.add(Fault::RecordsCut, offset);
        }
        Ok(plain)
    }

    fn bytes(&self) -> &[u8] {
        self.file.as_deref().unwrap_or(self.stream)
    }
}
