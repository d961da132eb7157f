//! Options that select samples.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use jitinject::internals::frames::stream::{SampleFilter, StreamOptions};
use jitinject::{Diagnostic, LoadOptions};

use crate::cli::commands::headings::SYMBOLS;
use crate::cli::commands::source_files::{SourceArguments, TrackArgument, check_named};

/// Heading of the options that select samples and rows.
pub const SELECTION: &str = "Samples and rows";

/// Which samples to read. Commands that also take [`crate::cli::commands::runtime_files::LogFiles`] rename the `--pid` there.
#[derive(Args, Debug)]
pub struct SelectionArguments {
    /// Event to count [default: the first one with samples]
    #[arg(short, long, value_name = "EVENT", help_heading = SELECTION)]
    event: Option<String>,

    /// Only samples of these processes
    #[arg(long = "pid", value_name = "PID", value_delimiter = ',', allow_negative_numbers = true, help_heading = SELECTION)]
    pids: Vec<u32>,

    /// Only samples of these threads
    #[arg(long = "tid", value_name = "TID", value_delimiter = ',', allow_negative_numbers = true, help_heading = SELECTION)]
    tids: Vec<u32>,

    /// Only samples in this time, in seconds since the first record; either may be empty
    #[arg(long, value_name = "FROM,TO", value_parser = times, help_heading = SELECTION)]
    time: Option<Times>,

    /// Leave out lines and inlined calls of executables and libraries
    ///
    /// They are read from the debug information of the files on this machine, if it is of the recorded build.
    #[arg(long, help_heading = SYMBOLS)]
    no_native_lines: bool,

    /// Directory with the executables and libraries of the recorded machine
    ///
    /// Paths in the profile are looked up below DIR instead of /.
    #[arg(long, value_name = "DIR", help_heading = SYMBOLS, hide_short_help = true)]
    symfs: Option<PathBuf>,
}

/// Times since the first record.
#[derive(Clone, Copy, Debug)]
struct Times(Option<Duration>, Option<Duration>);

/// Parses two numbers of seconds, each of which may be empty.
fn times(text: &str) -> Result<Times, String> {
    let (from, to) = text
        .split_once(',')
        .ok_or("not two numbers of seconds, as in 1.5,2")?;
    let seconds = |text: &str| match text {
        "" => Ok(None),
        text => {
            let number: f64 = text.parse().map_err(|_| "not a number of seconds")?;
            let time = Duration::try_from_secs_f64(number).map_err(|_| "not a time")?;
            Ok::<_, String>(Some(time))
        }
    };
    let (from, to) = (seconds(from)?, seconds(to)?);
    match from.zip(to) {
        Some((from, to)) if from > to => Err("FROM is after TO".to_owned()),
        _ => Ok(Times(from, to)),
    }
}

impl SelectionArguments {
    /// Returns what to read of a profile.
    pub fn stream(
        &self,
        load: LoadOptions,
        source_files: &SourceArguments,
        track: &TrackArgument,
    ) -> Result<StreamOptions, Diagnostic> {
        check_named(&self.symfs)?;
        let mut sources = source_files.options()?;
        track.apply(&mut sources);
        Ok(StreamOptions {
            load: LoadOptions {
                symfs: self.symfs.clone(),
                ..load
            },
            sources,
            track: track.name(),
            no_native_lines: self.no_native_lines,
            filter: self.filter(),
            all_functions: false,
        })
    }

    fn filter(&self) -> SampleFilter {
        let Times(from, to) = self.time.unwrap_or(Times(None, None));
        SampleFilter {
            event: self.event.clone(),
            pids: self.pids.clone(),
            tids: self.tids.clone(),
            from,
            to,
        }
    }
}
