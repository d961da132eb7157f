//! The issues of the crate jitdump's errors and faults.

use jitdump::{Error, ErrorKind, Fault};

use super::{Diagnostic, Issue};
use crate::bytes::hex;

impl From<Fault> for Issue {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::UnknownVersion => Self::JitdumpVersion,
            Fault::InvalidHeaderSize => Self::JitdumpHeaderSize,
            Fault::UnknownFlags => Self::JitdumpUnknownFlags,
            Fault::Duplicate => Self::JitdumpDuplicate,
            Fault::RepairedSize => Self::JitdumpRepairedSize,
            Fault::SkippedBytes => Self::JitdumpSkippedBytes,
            Fault::CutTail => Self::JitdumpCutTail,
            Fault::BadLoad => Self::JitdumpBadLoad,
            Fault::LongName => Self::JitdumpLongName,
            Fault::BadMove => Self::JitdumpBadMove,
            Fault::DebugInfoUnpaired => Self::JitdumpDebugInfoUnpaired,
            Fault::UnwindingUnpaired => Self::JitdumpUnwindingUnpaired,
            Fault::BadUnwinding => Self::JitdumpBadUnwinding,
            Fault::UnknownRecord => Self::JitdumpUnknownRecord,
            Fault::TierUnpaired => Self::JitdumpTierUnpaired,
            Fault::BadExtension => Self::JitdumpBadExtension,
            Fault::BadDebugInfo => Self::JitdumpBadDebugInfo,
            Fault::RepairedFileName => Self::JitdumpRepairedFileName,
            Fault::LineOutside => Self::JitdumpLineOutside,
            Fault::LineInvalid => Self::JitdumpLineInvalid,
            Fault::CallInvalid => Self::JitdumpCallInvalid,
            Fault::RangeInvalid => Self::JitdumpRangeInvalid,
            Fault::CallInsideLine => Self::JitdumpCallInsideLine,
            Fault::OtherMachine => Self::JitdumpOtherMachine,
            Fault::BothLayouts => Self::JitdumpBothLayouts,
            Fault::InvalidLine => Self::PerfMapBadLine,
            // A fault of a newer version of that crate.
            _ => Self::JitdumpBadExtension,
        }
    }
}

impl From<Error> for Diagnostic {
    fn from(error: Error) -> Self {
        let diagnostic = match error.kind() {
            ErrorKind::TooShort { size } => Self::new(Issue::JitdumpTooShort).with("size", size),
            ErrorKind::NotAJitdump { magic } => Self::new(Issue::NotAJitdump).with("magic", hex(magic)),
            ErrorKind::Shrunk => Self::new(Issue::FileShrunk).as_error(),
            ErrorKind::Unreadable(cause) => Self::new(Issue::CannotRead).caused_by(cause),
            _ => Self::new(Issue::JitdumpEmpty),
        };
        match error.path() {
            Some(path) => diagnostic.in_file(path),
            None => diagnostic,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn faults_have_codes_of_their_own() {
        let issues: BTreeSet<Issue> = Fault::ALL.iter().map(|&fault| fault.into()).collect();
        assert_eq!(issues.len(), Fault::ALL.len());
    }

    #[test]
    fn errors_have_the_same_text_as_their_diagnostics() {
        for bytes in [&b""[..], b"DT", b"\x7fELF"] {
            let parse = || jitdump::Header::parse(bytes).unwrap_err();
            assert_eq!(parse().to_string(), Diagnostic::from(parse()).to_string());
        }
    }
}
