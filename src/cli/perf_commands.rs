//! perf commands passed to jitinject by mistake.

use std::ffi::OsString;
use std::path::Path;

use jitinject::files::stdio::is_standard;

/// perf commands that read a profile.
const READERS: [&str; 6] = ["annotate", "diff", "mem", "report", "script", "top"];

/// Returns the command to type instead of a perf command.
pub fn advice(arguments: &[OsString]) -> Option<String> {
    let command = arguments.get(1)?.to_str()?;
    match command {
        "version" => Some("type jitinject --version\n".into()),
        "inject" => Some("leave the word inject out: type jitinject perf.data\n".into()),
        _ if READERS.contains(&command) => Some(format!(
            "{command} is a command of perf: type jitinject perf.data, then perf {command} -i perf.jit.data\n"
        )),
        _ => None,
    }
}

/// Returns whether a word looks like the name of a command rather than a profile.
pub fn is_mistyped_command(word: &Path) -> bool {
    let bytes = word.as_os_str().as_encoded_bytes();
    !is_standard(word) && !bytes.contains(&b'.') && !bytes.contains(&b'/') && !word.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_perf_are_answered_with_what_to_type() {
        let advice = |line: &str| advice(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let script = advice("jitinject script").unwrap();
        assert!(script.contains("perf script -i perf.jit.data"), "{script}");
        for line in [
            "jitinject",
            "jitinject timeline",
            "jitinject record -- node app.js",
            "jitinject -i report",
            "jitinject ./report",
        ] {
            assert_eq!(advice(line), None, "{line}");
        }
    }
}
