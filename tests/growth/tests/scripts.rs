//! Scripts of V8's functions: any number of calls in the text of a function that any number of others have inlined.

use std::fs;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::{assert_linear, inject, tools};

const PID: u32 = 10;
const CODE: u64 = 0x7f00_0000_0000;

/// Writes a recording with `size` functions, into which the function at the start of a script is inlined. The lines of each
/// are `lines`, and it starts in line `start`.
fn recording(folder: &Path, size: u64, script: &str, start: u32, lines: &[u32]) -> PathBuf {
    let path = folder.join("a.js");
    fs::write(&path, script).unwrap();
    let path = tools::text(&path);
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    let jitdump = folder.join(format!("jit-{PID}.dump"));
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&jitdump), 500);
    let name = format!("JS:*outer {path}:{start}:15");
    for at in 0..size {
        let address = CODE + 64 * at;
        let lines = lines
            .iter()
            .zip(0..)
            .map(|(&line, row)| (address + 8 * row, line));
        let lines: Vec<(u64, u32)> = lines.collect();
        dump.positions(900, address, path.as_bytes(), &lines);
        dump.load(1000, address, at, name.as_bytes(), &[0x90; 64]);
        profile.sample(PID, 2000 + at, &[address + 1], None);
    }
    fs::write(&jitdump, &dump.bytes).unwrap();
    let input = folder.join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    input
}

#[test]
fn functions_with_any_number_of_calls_are_inlined_any_number_of_times() {
    assert_linear("an inlined function with many calls", 500, |size| {
        let folder = tempfile::tempdir().unwrap();
        let calls: String = (0..size).map(|at| format!("g{at}(x);\n")).collect();
        let script = format!("function big(x){{\n{calls}}}\nfunction outer(x){{\nreturn big(x);\n}}\n");
        let outer = size as u32 + 3;
        let input = recording(folder.path(), size, &script, outer, &[outer + 1, 3, outer + 1]);
        inject(&input, &folder.path().join("out.data"), &[], "1 jitdump, ")
    });
}

/// All calls are on one line, so their positions in the source tell which is which.
#[test]
fn original_lines_of_calls_are_found_once() {
    assert_linear("an inlined function with many calls and a map", 500, |size| {
        let folder = tempfile::tempdir().unwrap();
        let calls: String = (0..size).map(|at| format!("h{at}(x);")).collect();
        let script = format!(
            "function g(x){{\nreturn x\n}}\nfunction big(x){{\ng(x);g(x);{calls}\n}}\n\
            function outer(x){{\nreturn big(x);\n}}\n//# sourceMappingURL=a.js.map\n"
        );
        // Each line is the same one in the source.
        let mappings = format!("AAAA{}", ";AACA".repeat(8));
        let map = serde_json::json!({"version": 3, "sources": ["a.ts"], "names": [], "mappings": mappings});
        fs::write(folder.path().join("a.js.map"), map.to_string()).unwrap();
        let input = recording(folder.path(), size, &script, 7, &[8, 5, 2, 8]);
        inject(&input, &folder.path().join("out.data"), &[], "1 jitdump, ")
    });
}
