//! Messages about what `record` has copied, packed or left.

use std::collections::BTreeMap;
use std::path::Path;

use indicatif::HumanBytes;
use jitdump::internals::bytes::printable_path;
use jitinject::internals::record::Plan;
use jitinject::internals::results::summary::shell_word;

/// Number of processes and files in a message. More are workers of a server, or files that somebody has put into `/tmp`.
const MAX_LISTED: usize = 10;

/// Returns the message about processes that the program has left running, with their runtimes.
pub fn running_text(running: &BTreeMap<u32, &'static str>) -> String {
    let names = running
        .iter()
        .map(|(pid, runtime)| format!("{runtime} (process {pid})"));
    let pids = running.keys().take(MAX_LISTED).map(u32::to_string);
    let (names, pids) = (listed(names), pids.collect::<Vec<_>>().join(","));
    format!("left running: {names}; to record it: jitinject record -p {pids}")
}

/// Returns a list of up to [`MAX_LISTED`] of some texts.
pub fn listed(texts: impl ExactSizeIterator<Item = String>) -> String {
    let more = texts.len().saturating_sub(MAX_LISTED);
    let first = texts.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    let end = (more > 0).then(|| format!(" and {more} more"));
    first + &end.unwrap_or_default()
}

/// Returns the message about an archive, with the command that shows the profile after it has been unpacked.
pub fn packed_text(plan: &Plan, archive: &Path, size: u64, is_whole: bool) -> String {
    let name = plan.path("");
    let name = name
        .file_name()
        .and_then(|name| name.to_str())
        .map(shell_word)
        .unwrap_or_default();
    let (archive, size) = (printable_path(archive), HumanBytes(size));
    let content = if is_whole { "all of it" } else { "all else" };
    format!(
        "{archive} has {content} ({size}); where it is unpacked: \
         perf --buildid-dir {name}/debug report --no-children -i {name}/perf.jit.data"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_files_ten_are_named() {
        let texts = |count: u32| listed((0..count).map(|number| number.to_string()));
        assert_eq!(texts(10), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9");
        assert_eq!(texts(12), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more");
    }
}
