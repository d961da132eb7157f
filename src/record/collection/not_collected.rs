//! Reports of files that are not in a recording.

use std::io;
use std::path::Path;

use crate::results::diagnostics::{Diagnostic, Issue};

/// What to do about a jitdump that may be somebody else's.
const COPY_TO_DUMPS: &str =
    "If the program wrote it, copy it to dumps/ in the directory of the recording, which keeps its names.";

/// Reports a file that is not in the recording, or not in its archive.
pub fn left_out(path: &Path, cause: &io::Error) -> Diagnostic {
    Diagnostic::new(Issue::NotCollected)
        .in_file(path)
        .caused_by(cause)
}

/// Reports a jitdump that may be somebody's whom its process reads.
pub fn of_other_user(path: &Path) -> Diagnostic {
    let cause = io::Error::other("it belongs to another user than its process");
    left_out(path, &cause).with_remedy(COPY_TO_DUMPS)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use crate::code::profile_index::ProfileIndex;
    use crate::files::Folder;
    use crate::load::MappingTimes;
    use crate::record::collection::Collection;
    use crate::record::collection::tests::{ENDED, marker};
    use crate::record::watch::Seen;

    #[test]
    fn a_file_for_which_nothing_can_be_created_stays_and_is_reported() {
        let scratch = tempfile::tempdir().unwrap();
        let dump = scratch.path().join(format!("jit-{ENDED}.dump"));
        let started = SystemTime::now();
        fs::write(&dump, "content").unwrap();
        let mut index = ProfileIndex::default();
        let file = fs::metadata(&dump).unwrap();
        index.markers.push(marker(ENDED, &dump, Some(&file)));
        let folder = Folder::create_all(&scratch.path().join("r")).unwrap();
        let dumps = folder.at("dumps").create_private_folder().unwrap();
        fs::remove_dir(dumps.path()).unwrap();
        let collection = Collection {
            folder: &folder,
            dumps: &dumps,
            seen: &Seen::default(),
            mapped: MappingTimes::new(None, &index, None),
            started,
            is_own: true,
        };
        let collected = collection.run(&index);
        assert!(dump.exists() && collected.files.is_empty());
        assert_eq!(collected.left_out.len(), 1);
    }
}
