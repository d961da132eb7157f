//! What perf names by itself, it still names.

use crate::support::{capture, inject_into, perf, scratch};

/// Where the dump has nothing, and no perf map was there when it was injected, one still names code through
/// the anonymous maps, which must not get lost.
#[test]
fn what_a_perf_map_names_stays_named() {
    let name = "node20-headeronly";
    let folder = scratch();
    let alone = folder.path().join("perf.data");
    std::fs::copy(capture::profile(name), &alone).unwrap();
    let dump = capture::folder(name).join("jit-14184.dump");
    std::fs::copy(dump, folder.path().join("jit-14184.dump")).unwrap();
    let output = inject_into(folder.path(), &alone, &[]);
    // perf looks for the map in /tmp only.
    let map = capture::folder(name).join("perf-14184.map");
    std::fs::copy(map, "/tmp/perf-14184.map").unwrap();
    let leaves = perf::leaves(&output);
    std::fs::remove_file("/tmp/perf-14184.map").unwrap();
    let unknown = leaves
        .iter()
        .filter(|sample| sample.frames == ["[unknown]"])
        .count();
    assert_eq!((leaves.len(), unknown), (199, 0));
}
