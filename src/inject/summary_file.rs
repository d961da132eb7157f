//! The summary as JSON, which gets its name together with the output.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::files::staged::Committed;
use crate::files::{StagedFile, stdio, stream};
use crate::inject::{Error, Options, is_standard};
use crate::summary::Summary;

/// Where the summary goes.
#[derive(Debug)]
pub struct SummaryOutput(Option<(PathBuf, Target)>);

#[derive(Debug)]
enum Target {
    /// A file, until it is written.
    File(Option<StagedFile>),
    /// Standard output, a pipe or a device.
    Stream(File),
}

/// A summary that is written, and waits for its name.
#[derive(Debug)]
pub struct StagedSummary {
    /// What it will be called.
    pub path: PathBuf,
    file: StagedFile,
}

impl StagedSummary {
    /// Gives it its name.
    pub fn commit(self) -> Result<Committed, Error> {
        self.file.commit().map_err(error(&self.path))
    }
}

impl SummaryOutput {
    /// Opens what the summary will be written to, if it is asked for.
    pub fn create(options: &Options) -> Result<Self, Error> {
        let Some(path) = &options.summary else {
            return Ok(Self(None));
        };
        if is_standard(path) && stdio::output_was_closed() {
            return Err(Error::Closed);
        }
        let target = match is_standard(path) {
            true => io::stdout()
                .as_fd()
                .try_clone_to_owned()
                .map(|it| Target::Stream(it.into())),
            false if stream::is_stream(path) => stream::open(path).map(Target::Stream),
            false => StagedFile::create(path).map(|file| Target::File(Some(file))),
        };
        Ok(Self(Some((path.clone(), target.map_err(error(path))?))))
    }

    /// Writes a file, before the output has its name. What is written to a stream can't be taken back, so it waits for
    /// [`SummaryOutput::finish`].
    pub fn stage(&mut self, summary: &Summary) -> Result<Option<StagedSummary>, Error> {
        let Some((path, Target::File(file))) = &mut self.0 else {
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

    /// Writes a stream, and a file anew if the summary `has_changed` since it was written.
    pub fn finish(self, summary: &Summary, has_changed: bool) -> Result<(), Error> {
        match self.0 {
            Some((path, Target::Stream(mut stream))) => write(&mut stream, summary).map_err(error(&path)),
            Some((path, Target::File(_))) if has_changed => {
                let write_anew = || {
                    let mut file = StagedFile::create(&path)?;
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
    let mut json = serde_json::to_vec_pretty(summary)?;
    json.push(b'\n');
    file.write_all(&json)
}

fn error(path: &Path) -> impl Fn(io::Error) -> Error {
    move |cause| Error::Summary {
        path: path.to_owned(),
        cause,
    }
}
