//! In place of unwinding, in programs without the feature `unwind`: copied stacks stay for readers.

use crate::load::{LoadOptions, Progress, Recording};
use crate::results::diagnostics::{Diagnostic, Issue};

pub use crate::frames::unwind_options::{KeptStacks, UnwindOptions, Unwound};

/// Leaves a recording as it is, and reports that if its stacks were to be unwound.
pub fn unwind<'a>(
    _: &LoadOptions,
    UnwindOptions { is_optional, .. }: UnwindOptions,
    recording: Recording<'a>,
    _: &mut dyn Progress,
) -> Result<(Recording<'a>, Unwound), Diagnostic> {
    let left_out = Diagnostic::new(Issue::FeatureLeftOut)
        .with("what", "stacks not unwound")
        .with("feature", "unwind");
    let left_out = (!is_optional).then(|| left_out.as_warning());
    Ok((recording, Unwound::nothing(left_out)))
}

/// In place of unwinding tables for functions that have none.
pub mod made_tables {
    use jitdump::{AddressRange, Machine};

    /// Returns whether functions of a machine can get tables.
    pub fn is_supported(_: Machine) -> bool {
        false
    }

    /// Returns no table.
    pub fn eh_frame(_: Machine, _: AddressRange, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::load::{NeededFunctions, RecordingData, load};

    #[test]
    fn stacks_that_stay_copied_are_reported() {
        let options = LoadOptions {
            input: Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/node20-dwarf/perf.data"),
            force: true,
            ..LoadOptions::default()
        };
        for (is_optional, issues) in [(false, &[Issue::FeatureLeftOut][..]), (true, &[])] {
            let data = RecordingData::default();
            let recording = load(|_| Ok(()), &options, NeededFunctions::default(), &data, &mut ()).unwrap();
            let how = UnwindOptions {
                kept: KeptStacks::Nothing,
                fold_interpreter: false,
                is_optional,
            };
            let (recording, unwound) = unwind(&options, how, recording, &mut ()).unwrap();
            assert!(recording.profile.profile.attrs.copies_stacks());
            let found = unwound.diagnostics.iter().map(|found| found.issue);
            assert!(found.eq(issues.iter().copied()));
        }
    }
}
