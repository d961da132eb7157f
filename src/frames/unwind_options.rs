//! Options of unwinding, and its result.

use crate::results::diagnostics::Diagnostic;
use crate::results::summary::UnwindSummary;

pub use crate::perf::attr::KeptStacks;

/// Options of unwinding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnwindOptions {
    /// What samples keep.
    pub kept: KeptStacks,
    /// Whether stacks leave out the frames of interpreters next to the functions that they run.
    pub fold_interpreter: bool,
    /// Whether stacks stay for readers to unwind if this machine lacks files for it. A recording without copied stacks is
    /// not reported then.
    pub is_optional: bool,
}

/// What was unwound, and what to report of it.
#[derive(Clone, Debug, Default)]
pub struct Unwound {
    /// Counts for the summary; `None` if nothing was to be unwound.
    pub summary: Option<UnwindSummary>,
    /// What is incomplete.
    pub diagnostics: Vec<Diagnostic>,
}

impl Unwound {
    /// Nothing was unwound, which may be reported.
    pub(super) fn nothing(diagnostic: Option<Diagnostic>) -> Self {
        Self {
            summary: None,
            diagnostics: diagnostic.into_iter().collect(),
        }
    }
}
