//! Tests of how often functions are read.

use std::path::Path;

use crate::code::reads;
use crate::inject::{self, InjectOptions, Layout};

#[test]
fn functions_are_read_once_with_code_lines_tables_and_kept_sources() {
    let scratch = tempfile::tempdir().unwrap();
    for capture in ["wasmtime", "cpython313-dwarf"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("testdata")
            .join(capture);
        let mut options = InjectOptions::new(folder.join("perf.data"), scratch.path().join(capture));
        options.load.force = true;
        options.load.jitdumps = vec![folder];
        options.all = true;
        options.layout = Layout::Image;
        options.lines.keep_sources = true;
        let before = reads::all();
        let summary = inject::inject(&options, &mut ()).unwrap();
        let after = reads::all();
        let reads_of = |what| -> Vec<u32> {
            let reads = after.iter().filter(|((of, _), _)| *of == what);
            let reads = reads.map(|(key, count)| count - before.get(key).unwrap_or(&0));
            reads.filter(|&count| count > 0).collect()
        };
        let written = summary.functions.written as usize;
        assert!(written > 0);
        assert_eq!(reads_of("function"), vec![1; written], "{capture}");
        let tables = if capture == "cpython313-dwarf" { written } else { 0 };
        assert_eq!(reads_of("unwinding"), vec![1; tables], "{capture}");
    }
}
