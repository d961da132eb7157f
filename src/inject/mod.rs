//! The main job, top to bottom: what to look for, what to write, what to say.

mod candidates;
mod dumps;
mod edits;
mod free_addresses;
pub mod lines;
mod objects;
mod output;
mod owners;
mod report;
mod sources;

use std::io;
use std::path::PathBuf;

use rustix::process::geteuid;

use crate::code::selection::Selector;
use crate::code::survey::Survey;
use crate::code::timeline::Timeline;
use crate::elf::store;
use crate::files::MappedFile;
use crate::inject::lines::LineOptions;
use crate::perf::{self, Profile};
use crate::runtime::jitdump::marker;
use crate::summary::Summary;

/// What to do.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The profile to read.
    pub input: PathBuf,
    /// The profile to write.
    pub output: PathBuf,
    /// Files and folders with jitdumps, beside those that are found without help.
    pub jitdumps: Vec<PathBuf>,
    /// The folder for the objects; `OUTPUT.elf` if there is none here.
    pub elf_dir: Option<PathBuf>,
    /// Where the caller will write the summary, which must not be where anything else is.
    pub summary: Option<PathBuf>,
    /// Whether to write all functions, not only those that samples touch.
    pub all: bool,
    /// Whether to read a profile that belongs to another user.
    pub force: bool,
    /// How lines are written.
    pub lines: LineOptions,
    /// Whether and where to tell which compiler made a function.
    pub tiers: Tiers,
}

/// Where it is told which compiler of a runtime made a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tiers {
    /// Nowhere.
    #[default]
    Off,
    /// In the summary.
    Summary,
    /// There, and behind the name in each symbol.
    Symbols,
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file can't be opened.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// The profile can't be understood.
    #[error("cannot read {}: {cause}", path.display())]
    Profile {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: perf::Error,
    },
    /// The profile's records are compressed.
    #[error(
        "cannot read {}: its records from {offset:#x} on are compressed, which this version does not read; record without -z",
        path.display()
    )]
    Compressed {
        /// Which profile.
        path: PathBuf,
        /// Where, in bytes from its start.
        offset: u64,
    },
    /// A folder with a profile, as `perf record --threads` makes them.
    #[error(
        "cannot read {}: it is a folder, as perf record --threads makes it, which this version does not read; record without --threads",
        .0.display()
    )]
    Folder(PathBuf),
    /// The profile belongs to somebody else.
    #[error("cannot read {}: it is owned neither by you nor by root (use -f to read it all the same)", .0.display())]
    Owner(PathBuf),
    /// The output would destroy an input.
    #[error("the output {} is the same file as the input {}; choose another with -o", output.display(), input.display())]
    SameFile {
        /// The output.
        output: PathBuf,
        /// The input.
        input: PathBuf,
    },
    /// The summary would destroy the output.
    #[error("the summary {} would overwrite what else is written; choose another name for it", .0.display())]
    SummaryInTheWay(PathBuf),
    /// The objects can't be written.
    #[error(transparent)]
    Objects(#[from] store::Error),
    /// An object's path does not fit into a record.
    #[error("the path of an object is too long for a profile: {0}; choose another folder with --elf-dir")]
    PathTooLong(String),
    /// The output can't be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

/// Somebody who watches.
pub trait Progress {
    /// A part of the work starts, of `total` steps.
    fn start(&mut self, what: &'static str, total: u64);
    /// So many more steps are done.
    fn advance(&mut self, steps: u64);
}

/// Nobody does.
impl Progress for () {
    fn start(&mut self, _what: &'static str, _total: u64) {}
    fn advance(&mut self, _steps: u64) {}
}

/// Reads a profile and the files of its runtimes, writes objects and a new profile, and tells what happened.
pub fn inject(options: &Options, progress: &mut dyn Progress) -> Result<Summary, Error> {
    let file = open_profile(options)?;
    let profile = Profile::parse(&file).map_err(|cause| Error::Profile {
        path: options.input.clone(),
        cause,
    })?;
    let survey = Survey::of(&profile, marker::dump_path);
    refuse_compressed(options, &profile, &survey)?;

    let found = dumps::find(&profile, &survey, &options.input, &options.jitdumps)?;
    output::refuse_conflicts(options, &file, &found)?;
    let mut sources = sources::read(&profile, &survey, &found);
    let mut timeline = Timeline::new(&survey.processes, sources.events(&survey.processes));
    if sources.has_estimates() {
        sources.refine(&profile, &survey.processes, &timeline);
        timeline = Timeline::new(&survey.processes, sources.events(&survey.processes));
    }

    progress.start("reading samples", survey.data_end);
    let states = sources.states(&survey.processes);
    let mut selection = Selector::new(&profile, &survey.processes, &timeline, &states)
        .walk(profile.records(), |bytes| progress.advance(bytes));
    if options.all || survey.has_aux {
        selection.residences.fill(true);
        selection.vacancies.fill(true);
    }
    let chosen = timeline.chosen(&selection.residences);

    progress.start("writing objects", chosen.len() as u64);
    let mut written = output::Output::create(options)?;
    let input = objects::Input {
        dumps: &sources.used,
        processes: &survey.processes,
        architecture: profile.architecture(),
        lines: &options.lines,
        has_tiers: options.tiers == Tiers::Symbols,
    };
    let objects = objects::write(&input, &chosen, &mut written, |objects| progress.advance(objects))?;

    let changes = edits::changes(
        &profile,
        &survey,
        &timeline,
        &selection,
        &sources,
        &objects.placed,
    )?;
    written.finish(&profile, survey.data_end, &changes.edits, &objects.placed)?;
    let run = report::Run {
        options,
        profile: &profile,
        survey: &survey,
        timeline: &timeline,
        selection: &selection,
        sources: &sources,
        objects: &objects,
        changes: &changes,
    };
    Ok(run.summary())
}

fn open_profile(options: &Options) -> Result<MappedFile, Error> {
    let file = MappedFile::open(&options.input).map_err(|cause| match cause.kind() {
        io::ErrorKind::IsADirectory => Error::Folder(options.input.clone()),
        _ => Error::Read {
            path: options.input.clone(),
            cause,
        },
    })?;
    // As perf does: who can write a profile can make its reader open files of their choice.
    let is_trusted = file.owner() == 0 || file.owner() == geteuid().as_raw();
    if !is_trusted && !options.force {
        return Err(Error::Owner(options.input.clone()));
    }
    Ok(file)
}

fn refuse_compressed(options: &Options, profile: &Profile<'_>, survey: &Survey) -> Result<(), Error> {
    match survey.compressed {
        None => Ok(()),
        Some(offset) => Err(Error::Compressed {
            path: options.input.clone(),
            offset: profile.data_offset.saturating_add(offset),
        }),
    }
}
