//! What can be typed.

mod slips;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::check::CheckArguments;
use crate::commands::compare::CompareArguments;
use crate::commands::completions::CompletionsArguments;
use crate::commands::dump::DumpArguments;
use crate::commands::inject::InjectArguments;
use crate::commands::man::ManArguments;
use crate::commands::timeline::TimelineArguments;
use crate::terminal;

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  perf record -k mono -g -o perf.data node --perf-prof --interpreted-frames-native-stack app.js
  jitinject perf.data && perf report -i perf.jit.data

  # nothing on disk but the objects
  perf record -k mono -g -o - node --perf-prof app.js | jitinject -i - -o - | perf report -i -

  # the jitdump was copied from elsewhere
  jitinject -i perf.data --jitdump dumps/ -o named.data

  # in CI: fail unless nearly all samples in JIT code get a name
  jitinject -q --summary summary.json --fail-under 95

Exit status: 0 done; 1 failed; 2 wrong usage; 3 fewer samples named than --fail-under asks for.";

/// Puts names and unwinding back into perf profiles of just-in-time compiled code.
///
/// Reads a profile and the jitdumps and perf maps that its processes wrote, and writes a new profile that shows their
/// functions, together with a folder of small ELF files that it points at. perf report, perf annotate and all
/// that reads perf.data work on it as on any other.
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = EXAMPLES,
    max_term_width = 120,
    propagate_version = true
)]
pub struct CommandLine {
    /// What to do instead.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The usual thing to do.
    #[command(flatten)]
    pub inject: InjectArguments,

    /// Whether messages, and what is printed for people, have colours
    ///
    /// `auto` is where they go to a terminal, unless NO_COLOR or CLICOLOR_FORCE in the environment says otherwise.
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    color: ColorChoice,
}

/// What can be done beside putting names into a profile.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Tell what changed between two runs, by the summaries that --summary wrote
    Compare(CompareArguments),
    /// Print what is in a jitdump, a log of Mono's profiler or a trace of XRay
    Dump(DumpArguments),
    /// Check what runtimes write: jitdumps, logs of Mono's profiler, traces of XRay
    Check(CheckArguments),
    /// Show the code cache over time, as a page for a browser
    Timeline(TimelineArguments),
    /// Print the manual, in the form that man reads
    Man(ManArguments),
    /// Print what a shell needs to complete jitinject's options
    Completions(CompletionsArguments),
}

impl CommandLine {
    /// What was typed. Ends the program where that makes no sense.
    pub fn read() -> Self {
        let arguments: Vec<_> = std::env::args_os().collect();
        // Messages about wrong usage have colours, too, or not.
        terminal::set_colors(typed_color(&arguments));
        let line = Self::from(arguments).unwrap_or_else(|mut error| {
            terminal::say_usage(&mut error);
            std::process::exit(error.exit_code())
        });
        terminal::set_colors(line.color);
        line
    }

    fn from(arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        if let Some(advice) = slips::advice(&arguments) {
            return Err(clap::Error::raw(ErrorKind::InvalidSubcommand, advice));
        }
        let matches = Self::command().try_get_matches_from(&arguments)?;
        let line = Self::from_arg_matches(&matches)?;
        if line.inject.profile().is_some_and(slips::is_mistyped_command) {
            // Without a profile to take the word for, clap names the command that is most like it.
            let commands_only = Self::command().mut_arg("profile", |argument| argument.long("profile"));
            commands_only.try_get_matches_from(&arguments)?;
        }
        let conflict = match matches.subcommand_name() {
            None => line.inject.conflict().map(str::to_owned),
            Some(name) => misplaced(&matches).map(|option| {
                format!("{option} stands before {name}, and what a command takes goes behind its name")
            }),
        };
        let conflict = conflict.map(|conflict| Self::command().error(ErrorKind::ArgumentConflict, conflict));
        conflict.map_or(Ok(line), Err)
    }
}

/// The first option of jitinject by itself that was typed. It is lost before the name of a command.
fn misplaced(matches: &ArgMatches) -> Option<String> {
    let own = InjectArguments::augment_args(clap::Command::new(""));
    let is_typed =
        |option: &&Arg| matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine);
    let option = own.get_arguments().find(is_typed)?;
    Some(
        option
            .get_long()
            .map_or("a profile".into(), |name| format!("--{name}")),
    )
}

/// What `--color` is given, as far as that can be seen without all else being right.
fn typed_color(arguments: &[OsString]) -> ColorChoice {
    let mut texts = arguments.iter().filter_map(|argument| argument.to_str());
    let value =
        texts
            .find_map(|text| text.strip_prefix("--color"))
            .map(|rest| match rest.strip_prefix('=') {
                Some(value) => Some(value),
                None => texts.next(),
            });
    match value.flatten() {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn options_of_one_command_are_refused_by_another() {
        let read = |line: &str| CommandLine::from(line.split(' ').map(Into::into).collect());
        assert!(read("jitinject --color never man").is_ok());
        assert!(read("jitinject perf.data").is_ok());
        assert!(read("jitinject -i perf.data ./perf.data").is_err());
        let refused = read("jitinject -i perf.data man").unwrap_err().to_string();
        assert!(refused.contains("--input stands before man"), "{refused}");
    }

    #[test]
    fn the_choice_of_colors_is_seen_before_all_else_is() {
        let typed = |line: &str| typed_color(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert_eq!(typed("jitinject --nonsense --color never"), ColorChoice::Never);
        assert_eq!(typed("jitinject --color=always --nonsense"), ColorChoice::Always);
        assert_eq!(typed("jitinject --nonsense"), ColorChoice::Auto);
    }
}
