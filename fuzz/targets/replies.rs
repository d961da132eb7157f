//! What recorded processes show and answer: mappings as in `/proc/PID/maps`, and replies of .NET.

use jitdump::internals::format::marker::dump_path;
use jitinject::internals::record::readers::{dotnet_reply_error, mapped_files};

pub fn run(input: &[u8]) {
    for file in mapped_files(input) {
        assert!(file.path.starts_with(b"/") && !file.path.contains(&b'\n'));
        if let Some(path) = dump_path(file.path) {
            assert!(file.path.starts_with(path));
        }
    }
    let is_accepted = dotnet_reply_error(input).is_none();
    assert!(!is_accepted || input.starts_with(b"DOTNET_IPC_V1\0") && input.len() >= 20);
}
