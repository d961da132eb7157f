//! Scripts that only their owner may read, and that the jitdump of another user names.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::other_users::{give_away, has_users};
use crate::support::{capture, has_code, inject, objects_of, scratch, tools};

/// The owner of a jitdump sees the names and lines in the output.
#[test]
fn private_scripts_are_not_read_for_jitdumps_of_strangers() {
    if !has_users(
        module_path!(),
        "private_scripts_are_not_read_for_jitdumps_of_strangers",
    ) {
        return;
    }
    let folder = scratch();
    let recorded = b"/tmp/typescript/bundle/app.js";
    // As long as the recorded path, so that the jitdump keeps its layout.
    let place = tempfile::Builder::new()
        .prefix("ji-scripts-")
        .rand_bytes(6)
        .tempdir_in("/tmp")
        .unwrap();
    let path = place.path().join("app.js");
    let path = tools::text(&path);
    assert_eq!(path.len(), recorded.len());
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let read = |name: &str| fs::read(capture::folder("node20-typescript").join(name)).unwrap();
    for name in ["app.js", "app.js.map"] {
        fs::write(place.path().join(name), read(name)).unwrap();
    }
    let mut dump = read("jit-18825.dump");
    let places: Vec<usize> = memchr::memmem::find_iter(&dump, recorded).collect();
    for at in places {
        dump[at..at + recorded.len()].copy_from_slice(path.as_bytes());
    }
    let jitdump = folder.path().join("jit-18825.dump");
    fs::write(&jitdump, dump).unwrap();
    let profile = folder.path().join("perf.data");
    fs::copy(capture::profile("node20-typescript"), &profile).unwrap();
    let said = || {
        let jitdump = tools::text(&jitdump);
        inject(
            &profile,
            &folder.path().join("out.data"),
            &["--verbose", "--jitdump", jitdump],
        )
    };
    let set_mode = |name: &str, mode| {
        fs::set_permissions(place.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let objects = || objects_of(&folder.path().join("out.data"));
    let has_original_names = || {
        let bytes = objects()
            .into_iter()
            .filter(|path| path.is_file())
            .map(|path| fs::read(path).unwrap());
        bytes
            .into_iter()
            .any(|bytes| memchr::memmem::find(&bytes, b"shapes.ts").is_some())
    };
    set_mode("app.js", 0o600);
    assert!(!has_code(&said(), "JI293") && has_original_names());
    give_away(&jitdump);
    let refused = said();
    assert!(has_code(&refused, "JI293") && !has_original_names(), "{refused}");
    set_mode("app.js", 0o644);
    assert!(!has_code(&said(), "JI293") && has_original_names());
    set_mode("app.js.map", 0o600);
    let refused = said();
    assert!(has_code(&refused, "JI293") && !has_original_names(), "{refused}");
    // The user's own file.
    give_away(&place.path().join("app.js.map"));
    assert!(!has_code(&said(), "JI293") && has_original_names());
    // Others do not get to it.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let refused = said();
    assert!(has_code(&refused, "JI293") && !has_original_names(), "{refused}");
}
