//! In place of all samples by function and stack, in programs without the feature `samples`: there is no summary to write.

use std::convert::Infallible;
use std::iter;

use crate::code::selection::{Selection, Selector};
use crate::code::timeline::FunctionId;
use crate::frames::source_files::names_and_lines::NamesAndLines;
use crate::frames::unwind::Unwound;
use crate::load::{LoadOptions, Progress, Recording};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::name_style::NameStyle;
use crate::results::summary::profile::ProfileSummary;

/// Nothing that names native code.
#[derive(Debug)]
pub struct NativeNames;

impl NativeNames {
    /// Finds nothing.
    pub fn of(_: &LoadOptions, _: &Recording<'_>) -> Self {
        Self
    }
}

/// Nothing gets samples.
pub type SampleObserver<'o> = Option<&'o Infallible>;

/// No samples are counted.
#[derive(Debug)]
pub struct CountedSamples(Infallible);

impl CountedSamples {
    /// Fails: nothing names the functions.
    pub fn count(
        _: &Recording<'_>,
        _: &NativeNames,
        _: &Selector<'_>,
        _: SampleObserver<'_>,
        _: &mut dyn Progress,
    ) -> Result<(Self, Selection), Diagnostic> {
        let left_out = Diagnostic::new(Issue::FeatureLeftOut).with("what", "summary not written");
        Err(left_out.with("feature", "samples"))
    }

    /// Returns no functions.
    pub fn functions(&self) -> impl Iterator<Item = FunctionId> {
        iter::empty()
    }

    /// There is none.
    pub fn summary(
        self,
        _: &NamesAndLines<'_>,
        _: Option<&[u8]>,
        _: &NameStyle,
        _: &Unwound,
    ) -> ProfileSummary {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::inject::{InjectOptions, inject};

    #[test]
    fn a_summary_is_rejected_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/node20/perf.data");
        let mut options = InjectOptions::new(input, folder.path().join("out.data"));
        options.load.force = true;
        options.summary = Some(folder.path().join("summary.json"));
        let error = inject(&options, &mut ()).unwrap_err();
        assert_eq!(error.issue, Issue::FeatureLeftOut);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        options.summary = None;
        let summary = inject(&options, &mut ()).unwrap();
        assert!(summary.samples.named > 0 && summary.profile.is_none());
    }
}
