//! What to do about runtimes that have logged nothing, in a recording that has set variables for some of them.

use std::collections::BTreeSet;

use super::environment::is_set_for;
use super::plan::Plan;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::runtimes::{Description, Runtime};

/// What to do if the variables of a runtime were not set.
const NAME_RUNTIME: &str = "The variables of this runtime are set only for programs that are known to start it, because they could do \
     harm to others.";

impl Plan {
    /// Returns the option that makes the recording set the variables of a runtime, if it does not.
    fn missing_option(&self, runtime: &Description) -> Option<String> {
        let is_set = is_set_for(runtime.runtime, &self.runtimes, self.has_others);
        let id = runtime.id.filter(|_| self.sets_environment() && !is_set)?;
        Some(format!("record it again with --runtime {id}"))
    }

    /// Adds to a diagnostic how a runtime would log its code.
    pub(super) fn with_advice(&self, diagnostic: Diagnostic, runtime: &Description) -> Diagnostic {
        match self.missing_option(runtime) {
            Some(option) => diagnostic.with("how", option).with_remedy(NAME_RUNTIME),
            None => diagnostic.with("how", runtime.how),
        }
    }

    /// Returns the diagnostics of the named profile, with advice that helps here. That on `warned`, which was printed during
    /// the recording, is left out.
    pub fn advised(&self, diagnostics: &[Diagnostic], warned: &BTreeSet<Runtime>) -> Vec<Diagnostic> {
        let runtime = |diagnostic: &Diagnostic| {
            let is_advice = diagnostic.issue == Issue::EnableRuntime;
            let name = diagnostic.field("runtime").filter(|_| is_advice)?;
            Description::all().find(|runtime| runtime.name == name)
        };
        let is_known = |diagnostic: &Diagnostic| {
            runtime(diagnostic).is_some_and(|runtime| warned.contains(&runtime.runtime))
        };
        let mut left = diagnostics.iter().filter(|diagnostic| !is_known(diagnostic));
        let has_advice = left.any(|diagnostic| diagnostic.issue == Issue::EnableRuntime);
        // They announce advice.
        let announces = |issue| matches!(issue, Issue::NoCodeFiles | Issue::UndescribedCode);
        let left = diagnostics.iter().filter(|diagnostic| {
            !is_known(diagnostic) && (has_advice || !announces(diagnostic.issue) || warned.is_empty())
        });
        left.map(|diagnostic| match runtime(diagnostic) {
            Some(runtime) if self.missing_option(runtime).is_some() => {
                let named = Diagnostic::new(Issue::EnableRuntime).with("runtime", runtime.name);
                self.with_advice(named, runtime)
            }
            _ => diagnostic.clone(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordOptions;

    fn plan(command: &str, runtimes: &[Runtime]) -> Plan {
        let options = RecordOptions {
            command: vec![command.into()],
            output: "r".into(),
            runtimes: runtimes.to_vec(),
            ..RecordOptions::default()
        };
        Plan::new(&options).unwrap()
    }

    fn enable(runtime: Runtime) -> Diagnostic {
        let runtime = runtime.description().unwrap();
        let enable = Diagnostic::new(Issue::EnableRuntime).with("runtime", runtime.name);
        enable.with("how", runtime.how)
    }

    #[test]
    fn advice_names_the_option_of_record_once() {
        let unknown = plan("./absent-script", &[]);
        let diagnostics = [Diagnostic::new(Issue::NoCodeFiles), enable(Runtime::Java)];
        let advised = |plan: &Plan, warned: &[Runtime]| -> Vec<String> {
            let warned = warned.iter().copied().collect();
            let advised = plan.advised(&diagnostics, &warned);
            advised.iter().map(Diagnostic::message).collect()
        };
        let java = advised(&unknown, &[]);
        assert_eq!(java[1], "Java: record it again with --runtime java");
        assert_eq!(advised(&unknown, &[Runtime::Java]), [""; 0]);
        // Node.js has another problem.
        assert_eq!(advised(&unknown, &[Runtime::Node]).len(), 2);
        // The variables were set, so they were lost, or this version does not have them.
        let known = advised(&plan("./absent-script", &[Runtime::Java]), &[]);
        assert!(known[1].contains("-XX:+DumpPerfMapAtExit"), "{known:?}");
        let warning = Diagnostic::new(Issue::NoDumpYet)
            .with("pid", 1)
            .with("runtime", "Java");
        let java = Runtime::Java.description().unwrap();
        let warning = unknown.with_advice(warning.with("seconds", 2), java);
        assert!(
            warning
                .message()
                .ends_with(": record it again with --runtime java")
        );
        assert_eq!(warning.help(), NAME_RUNTIME);
    }
}
