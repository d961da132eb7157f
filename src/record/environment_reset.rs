//! Programs that start others without the variables that make runtimes log their code.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::bytes::base_name;

/// Returns the name of the program in a command that resets the environment, if one does: `env`, or the one at `index`, which `env`
/// may start.
pub fn resets_environment(command: &[OsString], index: usize) -> Option<&[u8]> {
    let mut words = command.iter().map(|word| word.as_bytes());
    let first = base_name(words.next()?);
    if index > 0 && clears_environment(words.take(index.saturating_sub(1))) {
        return Some(first);
    }
    let mut words = command.iter().skip(index).map(|word| word.as_bytes());
    let program = base_name(words.next()?);
    let is_reset = match program {
        b"sudo" => !keeps_environment(words),
        b"su" | b"runuser" => is_login(words),
        b"doas" | b"pkexec" => true,
        _ => false,
    };
    is_reset.then_some(program)
}

/// Whether the options of `env` clear the environment.
fn clears_environment<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> bool {
    while let Some(word) = words.next() {
        match word {
            b"-" | b"--ignore-environment" => return true,
            b"-u" | b"-C" | b"--unset" | b"--chdir" => {
                words.next();
            }
            _ if has_letter(word, b'i', b"uCS") => return true,
            _ => {}
        }
    }
    false
}

/// Whether the options of `su` start a login shell.
fn is_login<'a>(words: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut words = words.take_while(|word| *word != b"--");
    words.any(|word| matches!(word, b"-" | b"--login") || has_letter(word, b'l', b"csgGwTU"))
}

/// Whether a word has an option of one letter, alone or with others. What follows one of `with_value` is no option.
fn has_letter(word: &[u8], option: u8, with_value: &[u8]) -> bool {
    let letters = word.strip_prefix(b"-").unwrap_or_default();
    let mut letters = letters.iter().take_while(|letter| !with_value.contains(letter));
    !word.starts_with(b"--") && letters.any(|&letter| letter == option)
}

/// Whether the options of `sudo` keep the environment. `words` follow `sudo`.
fn keeps_environment<'a>(words: impl Iterator<Item = &'a [u8]>) -> bool {
    /// Options with a value, which is the next word if nothing follows the letter.
    const WITH_VALUE: &[u8] = b"CDRTUghprtu";
    /// The same in full.
    const NAMES_WITH_VALUE: [&[u8]; 11] = [
        b"close-from",
        b"chdir",
        b"chroot",
        b"command-timeout",
        b"other-user",
        b"group",
        b"host",
        b"prompt",
        b"role",
        b"type",
        b"user",
    ];
    let mut words = words.take_while(|word| *word != b"--");
    while let Some(word) = words.next() {
        let has_value_behind = if let Some(name) = word.strip_prefix(b"--") {
            if name.starts_with(b"preserve-env") {
                return true;
            }
            NAMES_WITH_VALUE.contains(&name)
        } else if let Some(letters) = word.strip_prefix(b"-") {
            let end = letters.iter().position(|letter| WITH_VALUE.contains(letter));
            let own = end.and_then(|end| letters.get(..end)).unwrap_or(letters);
            if own.contains(&b'E') {
                return true;
            }
            end.is_some_and(|end| end.saturating_add(1) == letters.len())
        } else if word.contains(&b'=') {
            false
        } else {
            return false;
        };
        if has_value_behind {
            words.next();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_keeps_the_environment_by_its_own_options_only() {
        let keeps = |line: &str| keeps_environment(line.split(' ').map(str::as_bytes));
        for line in [
            "-E node",
            "-HE node",
            "-n -u root -E node",
            "--preserve-env=PATH node",
            "A=1 -E node",
            "--user other -E node",
        ] {
            assert!(keeps(line), "{line}");
        }
        for line in [
            "node",
            "python3 -E app.py",
            "-u E node",
            "-uE node",
            "-H -- -E",
            "-g -E node",
            "--user=other node -E",
        ] {
            assert!(!keeps(line), "{line}");
        }
    }

    #[test]
    fn env_and_su_reset_the_environment_by_their_options() {
        let resets = |line: &str, index| {
            let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            resets_environment(&command, index).map(<[u8]>::to_vec)
        };
        for (line, index, program) in [
            ("env -i A=1 node", 3, "env"),
            ("env - node", 2, "env"),
            ("/usr/bin/env -vi -u B node", 4, "env"),
            ("su - joe -c node", 0, "su"),
            ("su -lc node joe", 0, "su"),
            ("env A=1 runuser --login joe", 2, "runuser"),
        ] {
            assert_eq!(resets(line, index), Some(program.as_bytes().to_vec()), "{line}");
        }
        for (line, index) in [
            ("env A=-i node", 2),
            ("env -u -i node", 3),
            ("env -uia node -i", 2),
            ("su joe -c node", 0),
            ("su -cl joe", 0),
            ("su joe -- -l", 0),
            ("node - -i", 0),
        ] {
            assert_eq!(resets(line, index), None, "{line}");
        }
    }
}
