//! Code that perf names on its own keeps its name.

use std::io::Write;

use crate::support::{capture, inject_into, perf, scratch};

/// If code has no dump, and no perf map existed during injection, a perf map can still name it through the
/// anonymous mappings, which must be kept.
#[test]
fn what_a_perf_map_names_stays_named() {
    let name = "node20-headeronly";
    let folder = scratch();
    let alone = folder.path().join("perf.data");
    std::fs::copy(capture::profile(name), &alone).unwrap();
    let dump = capture::folder(name).join("jit-14184.dump");
    std::fs::copy(dump, folder.path().join("jit-14184.dump")).unwrap();
    let output = inject_into(folder.path(), &alone, &[]);
    // perf looks for the map in /tmp only. There may be another one; see scripts/isolated.
    let map = std::fs::read(capture::folder(name).join("perf-14184.map")).unwrap();
    let mut file = std::fs::File::create_new("/tmp/perf-14184.map").unwrap();
    file.write_all(&map).unwrap();
    let shown = perf::events("perf", &output);
    std::fs::remove_file("/tmp/perf-14184.map").unwrap();
    // Kernel symbols are not in the profile; on another kernel, perf does not find them.
    let in_kernel = |event: &&perf::Event| event.frames.first().is_some_and(|frame| frame.address >= 1 << 63);
    let unknown = shown
        .iter()
        .filter(|event| event.leaf() == perf::UNKNOWN && !in_kernel(event));
    assert_eq!((shown.len(), unknown.count()), (199, 0));
}
