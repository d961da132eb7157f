//! Opening of logs and traces. Each format is a feature of the program.

use std::path::{Path, PathBuf};

use crate::code::process::Processes;
use crate::load::find::access::Access;
use crate::load::input::InputFiles;
use crate::load::options::InputKind;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::OpenedFiles;
use crate::traces::options::TraceOptions;

/// Opens the logs, traces and folders of them that the user named. Each log belongs to one of `processes`, those of the profile.
/// Without a profile, the input can be a log or trace itself.
#[cfg_attr(not(feature = "mono"), allow(unused_variables))]
pub fn open(
    options: &TraceOptions,
    input: &InputFiles,
    processes: Option<&Processes>,
    access: &Access,
) -> Result<Vec<Box<dyn OpenedFiles>>, Diagnostic> {
    let formats = [
        (
            cfg!(feature = "mono"),
            InputKind::MonoLog,
            &options.mono_logs,
            "mono",
        ),
        (
            cfg!(feature = "xray"),
            InputKind::XrayTrace,
            &options.xray_logs,
            "xray",
        ),
    ];
    for (is_here, kind, named, feature) in formats {
        if let Some(path) = first(input, kind, named).filter(|_| !is_here) {
            let left_out = Diagnostic::new(Issue::FeatureLeftOut).with("what", "not read");
            return Err(left_out.with("feature", feature).in_file(path));
        }
    }
    Ok(vec![
        #[cfg(feature = "mono")]
        Box::new(super::mono_logs::open(options, input, processes, access)?),
        #[cfg(feature = "xray")]
        Box::new(super::xray_traces::open(options, input, access)?),
    ])
}

/// Returns the first file of a format.
fn first<'i>(input: &'i InputFiles, kind: InputKind, named: &'i [PathBuf]) -> Option<&'i Path> {
    let own = input.main_if(kind).map(|file| file.path());
    own.or_else(|| named.first().map(PathBuf::as_path))
}

#[cfg(test)]
#[cfg(not(feature = "mono"))]
mod tests {
    use crate::load::{LoadOptions, NeededFunctions, RecordingData, load};

    use super::*;

    #[test]
    fn logs_are_refused_without_their_feature() {
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
        let log = testdata.join("mono-calls/trace.mlpd");
        let alone = LoadOptions {
            input: log.clone(),
            ..LoadOptions::default()
        };
        let mut beside = LoadOptions {
            input: testdata.join("node20/perf.data"),
            force: true,
            ..LoadOptions::default()
        };
        beside.trace.mono_logs.push(log);
        for options in [alone, beside] {
            let data = RecordingData::default();
            let loaded = load(|_| Ok(()), &options, NeededFunctions::default(), &data, &mut ());
            let error = loaded.map(|_| ()).unwrap_err();
            assert_eq!(error.issue, Issue::FeatureLeftOut);
            assert_eq!(error.field("feature"), Some("mono"));
        }
    }
}
