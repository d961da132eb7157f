//! Diagnostics in JSON.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::results::diagnostics::{Diagnostic, Severity};

impl Serialize for Severity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Diagnostic", 6)?;
        fields.serialize_field("code", self.issue.entry().id)?;
        fields.serialize_field("severity", &self.severity)?;
        fields.serialize_field("file", &self.file)?;
        fields.serialize_field("offset", &self.offset)?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("message", &self.message())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::results::diagnostics::Issue;

    #[test]
    fn a_diagnostic_has_its_code_and_place() {
        let one = Diagnostic::new(Issue::JitdumpSkippedBytes);
        let many = one.in_file(Path::new("jit-77.dump")).times(78).at(0x10963);
        let json = serde_json::to_value(&many).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "code": "JI012", "severity": "warning", "file": "jit-77.dump", "offset": 0x10963, "count": 78,
                "message": "78 invalid bytes between records skipped",
            })
        );
    }
}
