//! Writing the summary as JSON, committed together with the output.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Serializer;

use crate::files::staged::Committed;
use crate::files::stdio::is_standard;
use crate::files::{Folder, NameInFolder, StagedFile, stdio, stream};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::json::Rows;
use crate::results::summary::Summary;

/// Destination of the summary, if any.
#[derive(Debug)]
pub struct SummaryOutput(Option<(PathBuf, Target)>);

#[derive(Debug)]
enum Target {
    /// A file and its place, until it is staged.
    File(NameInFolder, Option<StagedFile>),
    /// Standard output, a pipe or a device.
    Stream(File),
}

/// A summary that is written but not committed.
#[derive(Debug)]
pub struct StagedSummary {
    /// Final path.
    pub path: PathBuf,
    file: StagedFile,
}

impl StagedSummary {
    /// Renames the file to its final path.
    pub fn commit(self) -> Result<Committed, Diagnostic> {
        self.file.commit().map_err(error(&self.path))
    }
}

impl SummaryOutput {
    /// Opens the destination of the summary, if there is one: a file, or standard output if it is `-`. `open` is a folder that
    /// is open already, and may have it.
    pub fn create(path: Option<&Path>, open: Option<&Folder>) -> Result<Self, Diagnostic> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        if is_standard(path) && stdio::stdout_was_closed() {
            return Err(Diagnostic::new(Issue::StdoutClosed));
        }
        let target = if is_standard(path) {
            let stdout = io::stdout().as_fd().try_clone_to_owned();
            stdout.map(|stdout| Target::Stream(stdout.into()))
        } else if stream::is_stream(path) {
            stream::open(path).map(Target::Stream)
        } else {
            NameInFolder::within(path, open).and_then(|place| {
                let file = StagedFile::create(place.clone())?;
                Ok(Target::File(place, Some(file)))
            })
        };
        Ok(Self(Some((path.to_owned(), target.map_err(error(path))?))))
    }

    /// Writes the summary.
    pub fn write(mut self, summary: &Summary) -> Result<(), Diagnostic> {
        if let Some(staged) = self.stage(summary)? {
            staged.commit()?;
        }
        self.finish(summary, false)
    }

    /// Writes the summary if it goes to a file, without committing it. Data in a stream cannot be taken back,
    /// so [`SummaryOutput::finish`] writes streams.
    pub fn stage(&mut self, summary: &Summary) -> Result<Option<StagedSummary>, Diagnostic> {
        let Some((path, Target::File(_, file))) = &mut self.0 else {
            return Ok(None);
        };
        let Some(mut file) = file.take() else {
            return Ok(None);
        };
        write(file.file(), summary).map_err(error(path))?;
        Ok(Some(StagedSummary {
            path: path.clone(),
            file,
        }))
    }

    /// Writes the summary if it goes to a stream, or if it goes to a file and `has_changed` since it was
    /// staged.
    pub fn finish(self, summary: &Summary, has_changed: bool) -> Result<(), Diagnostic> {
        match self.0 {
            Some((path, Target::Stream(mut stream))) => match write(&mut stream, summary) {
                // The reader of a pipe has what it needs, as with `head`.
                Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                result => result.map_err(error(&path)),
            },
            Some((path, Target::File(place, _))) if has_changed => {
                let write_anew = || {
                    let mut file = StagedFile::create(place)?;
                    write(file.file(), summary)?;
                    file.commit().map(drop)
                };
                write_anew().map_err(error(&path))
            }
            _ => Ok(()),
        }
    }
}

fn write(file: &mut File, summary: &Summary) -> io::Result<()> {
    let mut json = Vec::new();
    summary.serialize(&mut Serializer::with_formatter(&mut json, Rows::default()))?;
    json.push(b'\n');
    file.write_all(&json)
}

fn error(path: &Path) -> impl Fn(io::Error) -> Diagnostic {
    move |cause| Diagnostic::cannot_write(path, &cause)
}
