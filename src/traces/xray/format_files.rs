//! Traces as files beside a profile.

use std::sync::Arc;

use jitdump::{Machine, RuntimeTime};

use crate::code::symbol_only_code::SymbolOnlyCode;
use crate::files::InputFile;
use crate::results::FileKind;
use crate::results::diagnostics::Diagnostic;
use crate::results::summary::TraceSummary;
use crate::traces::conversion::call_stack_replay::CallStackReplay;
use crate::traces::conversion::event_selection::{EventSet, wanted_of_xray};
use crate::traces::conversion::log_format::LogFormat;
use crate::traces::conversion::samples::ReplayedSamples;
use crate::traces::conversion::splice::StackSource;
use crate::traces::conversion::synthesize::EventSource;
use crate::traces::options::{SamplingOptions, TraceOptions};
use crate::traces::used_logs::FormatFiles;
use crate::traces::xray::events::{TraceSource, call_source};
use crate::traces::xray::traces::Traces;
use crate::units::Pid;

impl FormatFiles for Traces<'_> {
    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the traces and the binary.
    fn files(&self) -> Vec<&InputFile> {
        let binary = self.binary.map(|binary| &*binary.file);
        let traces = self.all.iter().map(|trace| trace.file);
        traces.chain(binary).collect()
    }

    fn summaries(&self) -> Vec<TraceSummary> {
        let all = self.all.iter().zip(&self.counts);
        let summaries = all.map(|(trace, counts)| TraceSummary {
            path: trace.name(),
            version: trace.trace.header().version,
            threads: trace.threads.iter().flatten().count() as u64,
            calls: counts.calls,
            events: counts.events,
            clock: trace.clock.note.clone(),
        });
        summaries.collect()
    }

    fn faults(&self) -> Vec<Diagnostic> {
        let traces = self.all.iter().zip(&self.counts);
        let faults = traces.flat_map(|(trace, counts)| {
            let faults = [&trace.index.faults, &counts.faults, &counts.conversion_faults].into_iter();
            let path = Some(trace.file.path());
            let faults = faults.flat_map(move |faults| Diagnostic::of_tally(faults, path, true));
            trace.file.shrunk().into_iter().chain(faults)
        });
        faults.collect()
    }

    fn diagnostics(&self) -> Vec<Diagnostic> {
        self.diagnostics.iter().chain(&self.opening).cloned().collect()
    }
}

impl<'a> LogFormat<'a> for Traces<'a> {
    fn has_events(&self, options: &TraceOptions) -> bool {
        wanted_of_xray(options, true).is_none_or(|kinds| !kinds.is_empty())
    }

    /// Returns that of the binary.
    fn architecture(&self) -> &[u8] {
        self.binary.map_or(b"", |binary| binary.code.architecture)
    }

    fn clock_id(&self) -> Option<i32> {
        self.all.first()?.clock.id
    }

    fn select_events(&mut self, options: &TraceOptions, is_beside: bool, event_set: &mut EventSet) {
        event_set.add_xray(options, is_beside);
    }

    fn event_sources<'s>(
        &'s mut self,
        options: &TraceOptions,
        event_set: &'s EventSet,
    ) -> Vec<Box<dyn EventSource + 's>> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let source = TraceSource::new(self, Some(event_set));
        vec![Box::new(ReplayedSamples::new(
            source,
            event_set,
            options.sampling,
        ))]
    }

    fn stack_sources<'s>(&'s mut self) -> Vec<Box<dyn StackSource + 's>> {
        let source = call_source(self).into_iter();
        source
            .map(|source| Box::new(CallStackReplay::new(source)) as _)
            .collect()
    }

    fn count(&mut self) {
        let source = TraceSource::new(self, None);
        ReplayedSamples::new(source, &EventSet::default(), SamplingOptions::default()).count();
    }

    /// Returns the synthetic symbols of each process, which stand for functions without a known address.
    fn symbols(&self, machine: Machine) -> Vec<(&Arc<InputFile>, Pid, SymbolOnlyCode<'static>)> {
        let symbols = self.processes.iter().filter_map(|(pid, process)| {
            let mut code = SymbolOnlyCode::new(pid.0, machine, FileKind::XrayTrace);
            let synthetic_symbols = &process.frame_addresses.synthetic_symbols;
            // Before its first record, the process may have run another program.
            synthetic_symbols.load(&mut code, RuntimeTime(process.since.0));
            (!code.is_empty()).then_some((process.file, *pid, code))
        });
        symbols.collect()
    }
}
