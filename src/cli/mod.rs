//! The command line.

mod closed_stdout;
pub mod commands;
pub mod inherited;
pub mod interrupt;
mod perf_commands;
pub mod progress;
pub mod standard_input;
pub mod status_line;
pub mod terminal;

use std::ffi::OsString;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{
    Arg, ArgAction, ArgMatches, Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand,
};
use jitdump::printable;

use crate::cli::commands::check::CheckArguments;
use crate::cli::commands::compare::CompareArguments;
use crate::cli::commands::completions::CompletionsArguments;
use crate::cli::commands::dump::DumpArguments;
use crate::cli::commands::explain::ExplainArguments;
use crate::cli::commands::export::ExportArguments;
use crate::cli::commands::headings::MESSAGES;
use crate::cli::commands::inject::InjectArguments;
use crate::cli::commands::man::ManArguments;
use crate::cli::commands::record::RecordArguments;
use crate::cli::commands::report::ReportArguments;
use crate::cli::commands::timeline::TimelineArguments;

/// Examples at the end of `-h`.
const EXAMPLES: &str = "\
Examples:
  jitinject record -- node app.js

  perf record -k mono -g -o perf.data node --perf-prof --interpreted-frames-native-stack app.js
  jitinject perf.data && perf report -i perf.jit.data

--help lists all options.";

/// Examples at the end of `--help`.
const LONG_EXAMPLES: &str = "\
Examples:
  jitinject record -- node app.js

  # the same in two steps
  perf record -k mono -g -o perf.data node --perf-prof --interpreted-frames-native-stack app.js
  jitinject perf.data && perf report -i perf.jit.data

  # as a filter
  perf record -k mono -g -o - node --perf-prof app.js | jitinject -i - -o - | perf report -i -

  # with jitdumps from another machine
  jitinject -i perf.data --jitdump dumps/ -o named.data

  # in CI: fail unless most samples in JIT code get a name
  jitinject -q --summary summary.json --fail-under 95

Exit status: 0 success; 1 error; 2 invalid usage; 3 fewer samples named than --fail-under requires.";

/// Examples at the end of the help of `inject`.
const PERF_INJECT_EXAMPLES: &str = "\
Examples:
  perf record -k mono -g -o perf.data node --perf-prof app.js
  jitinject inject --jit --input perf.data --output perf.jit.data

  perf record -k mono -g -o - node --perf-prof app.js | jitinject inject -j | perf report -i -

Other options of perf inject need a separate command: perf inject -b -i perf.data | jitinject inject -j -o perf.jit.data

Exit status: 0 success; 1 error; 2 invalid usage; 3 fewer samples named than --fail-under requires.";

/// Adds names, source lines and unwind tables of JIT-compiled code to Linux perf profiles
///
/// Reads a profile and the jitdumps, perf maps, Mono logs or XRay traces of its processes. Writes a profile with function names and
/// a directory of small ELF objects for perf report, perf annotate and all other readers of perf.data.
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = EXAMPLES,
    after_long_help = LONG_EXAMPLES,
    max_term_width = 120,
    propagate_version = true,
    disable_help_flag = true,
    disable_version_flag = true
)]
pub struct CommandLine {
    /// Command; without one, a profile is converted.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Arguments without a command.
    #[command(flatten)]
    pub inject: InjectArguments,

    /// When to color output
    ///
    /// auto: if the output is a terminal, unless NO_COLOR or CLICOLOR_FORCE is set.
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, help_heading = MESSAGES)]
    color: ColorChoice,

    /// Print help (--help: all options)
    #[arg(short, long, action = ArgAction::Help, global = true, help_heading = MESSAGES)]
    help: Option<bool>,

    /// Print version
    #[arg(short = 'V', long, action = ArgAction::Version, global = true, help_heading = MESSAGES)]
    version: Option<bool>,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Record a program with perf, and name its JIT code
    Record(RecordArguments),
    /// Name JIT code, with the options and defaults of perf inject --jit
    #[command(
        after_help = PERF_INJECT_EXAMPLES,
        args_override_self = true,
        mut_arg("input", |input| with_default(input, "-")),
        mut_arg("output", |output| output.default_value("-")),
        mut_arg("elf_dir", |folder| with_default(folder, "OUTPUT.elf, or perf.jit.data.elf for standard output")),
        mut_arg("build_id_cache", |cache| with_default(cache, "perf's, ~/.debug")),
        mut_arg("no_build_id_cache", |no_cache| no_cache.hide(false).hide_short_help(true))
    )]
    Inject(Box<InjectArguments>),
    /// Print the hottest functions of a profile, or one with its lines, callers and callees
    #[command(mut_arg("pid", |pid| pid.long("log-pid")))]
    Report(Box<ReportArguments>),
    /// Export samples for the Firefox Profiler, pprof, speedscope and others, or draw a flame graph
    #[command(
        mut_arg("pid", |pid| pid.long("log-pid")),
        mut_arg("event", |event| with_default(event, "all, or the first one with samples for folded, cpuprofile and svg"))
    )]
    Export(Box<ExportArguments>),
    /// Compare the summaries of runs before and after a change
    Compare(CompareArguments),
    /// Print the records of a jitdump, Mono log or XRay trace
    Dump(DumpArguments),
    /// Check profiles, jitdumps, Mono logs and XRay traces for errors
    Check(CheckArguments),
    /// Explain a diagnostic by its code, or list all codes
    Explain(ExplainArguments),
    /// Write a web page of the code cache over time
    Timeline(TimelineArguments),
    /// Print the manual page
    Man(ManArguments),
    /// Print shell completions
    Completions(CompletionsArguments),
}

/// Returns an argument whose help has another default, at the end of the first paragraph.
fn with_default(argument: Arg, default: &str) -> Arg {
    let changed = |help: &StyledStr| {
        let help = help.to_string();
        let (first, rest) = help.split_at(help.find("\n\n").unwrap_or(help.len()));
        let first = first.split(" [default: ").next().unwrap_or(first);
        format!("{first} [default: {default}]{rest}")
    };
    let help = argument.get_help().map(changed);
    let long_help = argument.get_long_help().map(changed);
    let argument = match help {
        Some(help) => argument.help(help),
        None => argument,
    };
    match long_help {
        Some(help) => argument.long_help(help),
        None => argument,
    }
}

impl CommandLine {
    /// Parses the arguments of the program; exits if they are invalid.
    pub fn read() -> Self {
        let arguments = perf_commands::with_command(std::env::args_os().collect());
        // Messages about invalid usage use colors, too.
        terminal::set_colors(color_argument(&arguments));
        let line = Self::from(arguments).unwrap_or_else(|mut error| {
            terminal::print_usage_error(&mut error);
            std::process::exit(error.exit_code())
        });
        terminal::set_colors(line.color);
        line
    }

    /// Parses arguments, the first of which is the program. An error says what to type instead if that is known.
    fn from(arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        if let Some(advice) = perf_commands::advice(&arguments) {
            return Err(clap::Error::raw(ErrorKind::InvalidSubcommand, advice));
        }
        let matches = Self::command()
            .try_get_matches_from(&arguments)
            .map_err(|error| match error.kind() {
                ErrorKind::UnknownArgument => Self::option_of_perf(&arguments, &error)
                    .or_else(|| Self::mistyped(&arguments))
                    .unwrap_or(error),
                _ => error,
            })?;
        let line = Self::from_arg_matches(&matches)?;
        let profile = line.inject.profile();
        if profile.is_some_and(perf_commands::is_mistyped_command) {
            if let Some(error) = Self::without_equals(&arguments, profile) {
                return Err(error);
            }
            Self::commands_only().try_get_matches_from(&arguments)?;
        }
        let command = matches.subcommand_name();
        let misplaced = || {
            let name = command?;
            let option = misplaced_option(&matches)?;
            Some(format!("put {option} after `{name}`"))
        };
        let conflict = misplaced().or_else(|| line.conflict(&arguments));
        match conflict {
            Some(conflict) => Err(Self::misused(command, conflict)),
            None => Ok(line),
        }
    }

    /// Returns why arguments contradict each other, if they do, which clap cannot know. `typed` are all words.
    fn conflict(&self, typed: &[OsString]) -> Option<String> {
        // No option of compare takes it as its value.
        let is_separated = || typed.iter().any(|argument| argument == "--");
        match &self.command {
            None => self.inject.conflict(),
            Some(Command::Compare(arguments)) => arguments.conflict(is_separated()).map(str::to_owned),
            Some(Command::Record(arguments)) => arguments.conflict().map(str::to_owned),
            Some(Command::Report(arguments)) => arguments.conflict(),
            Some(Command::Export(arguments)) => arguments.conflict(),
            Some(Command::Inject(arguments)) => arguments.conflict(),
            Some(Command::Timeline(arguments)) => arguments.conflict(),
            // Their arguments are independent of each other.
            Some(
                Command::Dump(_)
                | Command::Check(_)
                | Command::Explain(_)
                | Command::Man(_)
                | Command::Completions(_),
            ) => None,
        }
    }

    /// Returns an error with the usage of a command.
    fn misused(command: Option<&str>, conflict: String) -> clap::Error {
        let mut all = Self::command();
        // Before, the usage of a command lacks the name of the program.
        all.build();
        let used = command.and_then(|name| all.find_subcommand(name)).cloned();
        used.unwrap_or(all).error(ErrorKind::ArgumentConflict, conflict)
    }

    /// Returns what to type if the profile is meant as the value of the option before it, which needs an equals sign.
    fn without_equals(arguments: &[OsString], profile: Option<&Path>) -> Option<clap::Error> {
        let profile = profile?.as_os_str();
        let pair = arguments
            .windows(2)
            .find(|pair| pair.last().is_some_and(|word| word == profile))?;
        let option = pair.first()?.to_str()?;
        let name = option.strip_prefix("--")?;
        let needs_equals = |known: &Arg| known.get_long() == Some(name) && known.is_require_equals_set();
        let value = printable(profile.as_encoded_bytes());
        let advice = format!("type {option}={value}\n");
        let error = || clap::Error::raw(ErrorKind::InvalidValue, advice);
        Self::command().get_arguments().any(needs_equals).then(error)
    }

    /// Returns the command line without a profile to convert, for which clap suggests the most similar command.
    fn commands_only() -> clap::Command {
        Self::command().mut_arg("profile", |argument| argument.long("profile"))
    }

    /// Returns what to type instead of an option of perf inject, if that is the unknown one.
    fn option_of_perf(arguments: &[OsString], error: &clap::Error) -> Option<clap::Error> {
        let is_inject = match Self::command().find_subcommand(arguments.get(1)?) {
            Some(command) => command.get_name() == "inject",
            None => true,
        };
        let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg).filter(|_| is_inject)
        else {
            return None;
        };
        let advice = perf_commands::option_advice(option)?;
        Some(clap::Error::raw(ErrorKind::UnknownArgument, advice))
    }

    /// Returns what is wrong with arguments of which the first is neither an option, a command nor a profile; `None` if it is
    /// one.
    fn mistyped(arguments: &[OsString]) -> Option<clap::Error> {
        let (first, rest) = arguments.get(1..)?.split_first()?;
        if Self::command().find_subcommand(first).is_some() {
            return None;
        }
        let is_option = first.as_encoded_bytes().starts_with(b"-");
        let is_word = !is_option && perf_commands::is_mistyped_command(first.as_ref());
        if !is_word && first != "--" {
            return None;
        }
        let found = Self::commands_only().try_get_matches_from(arguments).err();
        let is_similar = |error: &clap::Error| error.get(ContextKind::SuggestedSubcommand).is_some();
        if let Some(error) = found.filter(is_similar) {
            return Some(error);
        }
        let advice = "to record a program, type jitinject record -- and the program with its arguments\n";
        (!rest.is_empty()).then(|| clap::Error::raw(ErrorKind::InvalidSubcommand, advice))
    }
}

/// Returns the first option that belongs to jitinject without a command. Before a command's name, it has no effect.
fn misplaced_option(matches: &ArgMatches) -> Option<String> {
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

/// Returns the value of `--color`, even if other arguments are invalid.
fn color_argument(arguments: &[OsString]) -> ColorChoice {
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
        assert!(refused.contains("put --input after `man`"), "{refused}");
    }

    #[test]
    fn a_mistyped_command_is_answered_with_what_to_type() {
        let refused = |line: &str| {
            let read = CommandLine::from(line.split(' ').map(Into::into).collect());
            read.unwrap_err().to_string()
        };
        for line in [
            "recrod -- node a.js",
            "recrod node a.js",
            "recrod",
            "recod -o x node a.js",
        ] {
            let said = refused(&format!("jitinject {line}"));
            assert!(said.contains("'record'"), "{line}: {said}");
        }
        for line in ["--compress 5", "-q --unwind keep"] {
            let said = refused(&format!("jitinject {line}"));
            let typed = line.trim_start_matches("-q ").replace(' ', "=");
            assert!(said.contains(&format!("type {typed}")), "{line}: {said}");
        }
        for line in ["node a.js", "-- node a.js", "npm test"] {
            let said = refused(&format!("jitinject {line}"));
            assert!(said.contains("jitinject record -- "), "{line}: {said}");
        }
        let said = refused("jitinject record");
        assert!(
            said.contains("Usage: jitinject record [OPTIONS] -- COMMAND"),
            "{said}"
        );
        for line in ["record --nonsense -- node", "timeline a b"] {
            let said = refused(&format!("jitinject {line}"));
            assert!(said.contains("unexpected argument"), "{line}: {said}");
        }
    }

    #[test]
    fn negative_numbers_are_values() {
        for line in [
            "report -n -1",
            "export -o x.svg --pid -1",
            "report --tid -2",
            "record --duration -1 -- node",
            "compare --min-change -1 a b",
        ] {
            let words = format!("jitinject {line}");
            let read = CommandLine::from(words.split(' ').map(Into::into).collect());
            let said = read.unwrap_err().to_string();
            assert!(said.contains("invalid value '-"), "{line}: {said}");
        }
    }

    #[test]
    fn one_side_of_a_comparison_is_not_enough() {
        let said = |line: &str| {
            let read = CommandLine::from(line.split(' ').map(Into::into).collect());
            read.unwrap_err().to_string()
        };
        assert!(said("jitinject compare a").contains("after the change"));
        assert!(said("jitinject compare a b c").contains("put --"));
        assert!(said("jitinject compare a b --flame-graph -").contains("name a file"));
    }

    #[test]
    fn the_color_option_is_found_in_invalid_arguments() {
        let typed = |line: &str| color_argument(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert_eq!(typed("jitinject --nonsense --color never"), ColorChoice::Never);
        assert_eq!(typed("jitinject --color=always --nonsense"), ColorChoice::Always);
        assert_eq!(typed("jitinject --nonsense"), ColorChoice::Auto);
    }
}
