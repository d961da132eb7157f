//! Opening of logs and traces. Each format is a feature of the program.

use std::path::PathBuf;

use crate::code::process::Processes;
use crate::load::find::access::Access;
use crate::load::input::Input;
use crate::load::options::InputKind;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::aux_files::OpenedFiles;
use crate::traces::options::TraceOptions;

/// Opens the logs, traces and folders of them that the user named. Each log belongs to one of `processes`, those of the profile.
/// Without a profile, the input can be a log or trace itself.
pub fn open(
    options: &TraceOptions,
    input: &Input,
    processes: Option<&Processes>,
    access: &Access,
) -> Result<Vec<Box<dyn OpenedFiles>>, Diagnostic> {
    if !cfg!(feature = "mono") {
        refuse(input, InputKind::MonoLog, &options.mono_logs, "mono")?;
    }
    if !cfg!(feature = "xray") {
        refuse(input, InputKind::XrayTrace, &options.xray_logs, "xray")?;
    }
    Ok(vec![
        #[cfg(feature = "mono")]
        Box::new(super::mono_logs::open(options, input, processes, access)?),
        #[cfg(feature = "xray")]
        Box::new(super::xray_traces::open(options, input, access)?),
    ])
}

/// Fails if there is a file of a format that the program was built without.
fn refuse(
    input: &Input,
    kind: InputKind,
    named: &[PathBuf],
    feature: &'static str,
) -> Result<(), Diagnostic> {
    let own = input.main_if(kind).map(|file| file.path());
    match own.or(named.first().map(PathBuf::as_path)) {
        Some(path) => {
            let left_out = Diagnostic::new(Issue::FeatureLeftOut).with("what", "not read");
            Err(left_out.with("feature", feature).in_file(path))
        }
        None => Ok(()),
    }
}
