//! In place of conversion, in programs without the features `mono` and `xray`: there are no logs and traces.

use std::convert::Infallible;
use std::iter;
use std::marker::PhantomData;
use std::sync::Arc;

use jitdump::Machine;

use crate::code::clock::Alignment;
use crate::code::profile_index::IndexedProfile;
use crate::code::symbol_only_code::SymbolOnlyCode;
use crate::files::{InputFile, StreamedFile};
use crate::perf::Profile;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::options::TraceOptions;
use crate::traces::used_logs::{LoggedCode, UsedLogs};
use crate::units::Pid;

/// No opened logs or traces.
pub trait OpenedFiles: std::fmt::Debug {}

/// No profile is made of events.
#[derive(Debug)]
pub struct SynthesizedProfile {
    /// The records.
    pub records: StreamedFile,
    none: Infallible,
}

impl SynthesizedProfile {
    /// Returns the profile.
    pub fn profile(&self) -> Profile<'_> {
        match self.none {}
    }
}

/// No logs and traces.
#[derive(Debug)]
pub struct LogConversion<'a>(PhantomData<&'a ()>);

impl<'a> LogConversion<'a> {
    /// Reads nothing.
    pub fn read(
        _: &'a [Box<dyn OpenedFiles>],
        _: &TraceOptions,
        _: Option<i64>,
        _: Option<&IndexedProfile<'_>>,
    ) -> Result<Self, Diagnostic> {
        Ok(Self(PhantomData))
    }

    /// No events are added.
    pub fn has_events(&self, _: &TraceOptions) -> bool {
        false
    }

    /// No call chains are replaced.
    pub fn has_stacks(&self, _: &TraceOptions) -> bool {
        false
    }

    /// Prepares nothing.
    pub fn prepare(&mut self, _: Option<&IndexedProfile<'_>>, _: &[Option<Alignment>]) {}

    /// Returns no code.
    pub fn code(&self, _: &IndexedProfile<'_>, _: Machine, _: bool) -> impl Iterator<Item = LoggedCode<'a>> {
        iter::empty()
    }

    /// Returns no symbols.
    pub fn symbols(
        &self,
        _: Machine,
    ) -> impl Iterator<Item = (&Arc<InputFile>, Pid, SymbolOnlyCode<'static>)> {
        iter::empty()
    }

    /// Fails: a profile is not made of nothing.
    pub fn make_events(
        &mut self,
        _: &TraceOptions,
        _: Option<&Profile<'_>>,
    ) -> Result<SynthesizedProfile, Diagnostic> {
        Err(left_out())
    }

    /// Fails: no call chains are known.
    pub fn splice_stacks(&mut self, _: &TraceOptions, _: &Profile<'_>) -> Result<StreamedFile, Diagnostic> {
        Err(left_out())
    }

    /// Returns that there are none.
    pub fn finish(self) -> UsedLogs<'a> {
        UsedLogs::default()
    }
}

fn left_out() -> Diagnostic {
    let left_out = Diagnostic::new(Issue::FeatureLeftOut).with("what", "logs and traces not read");
    left_out.with("feature", "mono")
}
