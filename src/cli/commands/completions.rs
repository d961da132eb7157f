//! `jitinject completions`: shell completions.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, Command, ValueHint};
use clap_complete::{Shell, generate};
use jitinject::Diagnostic;
use jitinject::internals::results::diagnostics;

use crate::cli::terminal;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArguments {
    /// Shell to write completions for
    shell: Shell,
}

impl CompletionsArguments {
    /// Prints the completions of the `program`.
    pub fn run(&self, program: Command) -> Result<ExitCode, Diagnostic> {
        let mut program = with_values(program);
        // The generator panics if writing fails.
        let mut script = Vec::new();
        generate(self.shell, &mut program, "jitinject", &mut script);
        let script = String::from_utf8_lossy(&script);
        let script = commands_come_first(self.shell, &program, &script);
        terminal::print(|output| std::io::Write::write_all(output, script.as_bytes()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Adds the codes that arguments take. The parser accepts any text, for a better message.
fn with_values(program: Command) -> Command {
    let codes = |prefixes: &[&str]| {
        let ids = diagnostics::catalogue().map(|entry| entry.id);
        let ids = ids.filter(|id| prefixes.iter().any(|prefix| id.starts_with(prefix)));
        PossibleValuesParser::new(ids.collect::<Vec<_>>())
    };
    program
        .mut_subcommand("explain", |command| {
            command.mut_arg("code", |code| code.value_parser(codes(&[""])))
        })
        .mut_subcommand("check", |command| {
            command.mut_arg("explain", |code| {
                code.value_parser(codes(&["JD", "ML", "PD", "XR"]))
            })
        })
}

/// Offers commands only as the first word: after an option or a profile, they are refused. clap's scripts offer them anywhere.
fn commands_come_first(shell: Shell, program: &Command, script: &str) -> String {
    match shell {
        Shell::Bash => for_bash(program, script),
        // A script of another version of clap stays as it is.
        Shell::Zsh => for_zsh(program, script).unwrap_or_else(|| script.to_owned()),
        Shell::Fish => for_fish(program, script),
        _ => script.to_owned(),
    }
}

/// The same in bash. clap's script also has options where files belong, and no values after `=`, which is a word in bash.
fn for_bash(program: &Command, script: &str) -> String {
    let takes_files = |command: &Command| {
        let mut arguments = command.get_positionals();
        arguments.any(|argument| argument.get_value_hint() == ValueHint::AnyPath)
    };
    let mut lines = Vec::new();
    // The line before that of the options: `jitinject)`, or `jitinject__subcmd__check)`.
    let mut case = "";
    for line in script.lines() {
        lines.push(line);
        if line == "    prev=\"$3\"" {
            lines.push("    [[ ${prev} != \"=\" ]] || prev=\"${COMP_WORDS[COMP_CWORD - 2]}\"");
        } else if line.trim_start().starts_with("opts=\"") {
            let command = case.strip_prefix("jitinject__subcmd__");
            let command = command.and_then(|name| program.find_subcommand(name));
            if case == "jitinject" {
                lines.push("            [[ ${COMP_CWORD} -eq 1 || ${cur} == -* ]] || opts=\"\"");
            } else if command.is_some_and(takes_files) {
                lines.push("            [[ ${cur} == -* ]] || opts=\"\"");
            }
        }
        case = line.trim().trim_end_matches(')');
    }
    lines.join("\n") + "\n"
}

/// The same in fish. clap's script also lacks the values of positional arguments, such as the codes to explain.
fn for_fish(program: &Command, script: &str) -> String {
    let is_command = |word: &str| {
        let mut commands = program.get_subcommands();
        commands.any(|command| command.get_name() == word) || word == "help"
    };
    let offers_command = |line: &str| {
        let offered = line.split_once(" -a \"");
        let word = offered.and_then(|(_, word)| word.split('"').next());
        word.is_some_and(is_command)
    };
    let lines = script.lines().map(|line| {
        if offers_command(line) {
            line.replace(
                "\"__fish_jitinject_needs_command\"",
                "\"test (count (commandline -opc)) -eq 1\"",
            )
        } else {
            line.to_owned()
        }
    });
    let codes: Vec<&str> = diagnostics::catalogue().map(|entry| entry.id).collect();
    let codes = format!(
        "complete -c jitinject -n \"__fish_jitinject_using_subcommand explain\" -f -a \"{}\"",
        codes.join(" ")
    );
    lines.chain([codes]).collect::<Vec<_>>().join("\n") + "\n"
}

/// The same in zsh. In clap's script, a command is only the word after a profile, and options end at the first file.
/// `None` if the script is not as expected.
fn for_zsh(program: &Command, script: &str) -> Option<String> {
    const COMMANDS: &str = "\n\":: :_jitinject_commands\" \\\n\"*::: :->jitinject\" \\\n";
    let (before, after) = script.split_once(COMMANDS)?;
    // The line before is that of the argument with the profile.
    let (options, profile) = before.rsplit_once('\n')?;
    let profile = profile.strip_suffix(" \\")?;
    let commands: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
    let commands = commands.join("|");
    let choice = format!(
        "    local -a positionals=({profile})
    if (( CURRENT == 2 )) || [[ $words[2] == ({commands}) ]]; then
        positionals=(\":: :{{ _jitinject_commands; _files }}\" \"*::: :->jitinject\")
    fi
    _arguments "
    );
    let options = options.replacen("    _arguments ", &choice, 1);
    // The name of the command, at three places.
    let after = after.replacen("$line[2]", "$line[1]", 3);
    let script = format!("{options}\n\"${{positionals[@]}}\" \\\n{after}");
    let lines = script.lines().map(|line| match line.strip_prefix("'*::") {
        // What follows a program to record are its own options.
        Some(files) if !files.starts_with("command ") => format!("'*:{files}"),
        _ => line.to_owned(),
    });
    Some(lines.collect::<Vec<_>>().join("\n") + "\n")
}
