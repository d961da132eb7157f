//! Files that were rejected for a marker.

use std::path::PathBuf;

use crate::bytes::printable_path;
use crate::results::diagnostics::Diagnostic;

/// Maximum number of files to list, with reasons, for a marker without a dump.
const MAX_REASONS: usize = 10;

/// Files that were rejected for a marker, with reasons.
pub type Tried = Vec<(PathBuf, Diagnostic)>;

/// Returns the first files of a list with the reason of each, and how many more there are.
pub fn listed(rejected_files: &Tried) -> String {
    let reasons = rejected_files.iter().take(MAX_REASONS);
    let mut reasons: Vec<String> = reasons
        .map(|(path, rejected)| {
            let (path, id) = (printable_path(path), rejected.issue.id());
            format!("{path}: {id}: {}", rejected.message())
        })
        .collect();
    let more = rejected_files.len().saturating_sub(MAX_REASONS);
    if more > 0 {
        reasons.push(format!("... ({more} more)"));
    }
    reasons.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::diagnostics::Issue;

    #[test]
    fn ten_rejected_files_are_listed_and_the_others_counted() {
        let list = |count: usize| {
            let files = (0..count).map(|at| {
                let rejected = Diagnostic::new(Issue::FileMissing);
                (PathBuf::from(format!("/tmp/{at}")), rejected)
            });
            listed(&files.collect())
        };
        assert_eq!(list(10).split("; ").count(), 10);
        assert!(list(10).starts_with("/tmp/0: ") && !list(10).contains("more"));
        assert!(list(13).ends_with("; ... (3 more)"));
        assert_eq!(list(13).split("; ").count(), 11);
    }
}
