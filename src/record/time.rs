//! Dates in names and in the manifest, in UTC.

use std::path::PathBuf;
use std::time::SystemTime;

use humantime::format_rfc3339_seconds;

/// Returns a time as in RFC 3339.
pub fn rfc3339(time: SystemTime) -> String {
    format_rfc3339_seconds(time).to_string()
}

/// Returns the folder of a recording that starts now and has no name.
pub fn default_folder() -> PathBuf {
    let time = rfc3339(SystemTime::now())
        .replace([':', '-', 'Z'], "")
        .replace('T', "-");
    PathBuf::from(format!("jitinject-record-{time}"))
}
