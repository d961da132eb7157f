//! Tests of how often functions are read, and of the limits for their objects.

use std::path::Path;

use crate::code::reads;
use crate::inject::objects::functions::{Room, is_kept};
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

#[test]
fn objects_may_have_64_times_the_size_of_the_dumps_or_64_mebibytes() {
    let objects = |dump_bytes| Room::new(dump_bytes).objects;
    assert_eq!(objects(0), 64 << 20);
    assert_eq!(objects(1 << 20), 64 << 20);
    assert_eq!(objects((1 << 20) + 1), (64 << 20) + 64);
}

#[test]
fn names_of_an_object_fit_before_it_is_encoded() {
    let room = Room::new(0);
    let least = (64 << 20) - 1;
    assert!(room.fits(least, 1) && room.fits(0, least + 1));
    assert!(!room.fits(least, 2) && !room.fits(0, least + 2) && !room.fits(least + 1, 0));
}

#[test]
fn texts_in_objects_may_have_4_times_the_size_of_the_dumps_or_64_mebibytes() {
    let texts = |dump_bytes| Room::new(dump_bytes).texts;
    assert_eq!(texts(0), 64 << 20);
    assert_eq!(texts(16 << 20), 64 << 20);
    assert_eq!(texts((16 << 20) + 1), (64 << 20) + 4);
}

#[test]
fn each_8_bytes_of_the_dumps_make_room_for_a_range_after_the_first_1_048_576() {
    let ranges = |dump_bytes| Room::new(dump_bytes).ranges;
    assert_eq!(ranges(0), 1_048_576);
    assert_eq!(ranges(8 * 1_048_576 + 7), 1_048_576);
    assert_eq!(ranges(8 * 1_048_576 + 8), 1_048_577);
}

#[test]
fn lines_of_up_to_16_times_the_size_of_the_records_are_kept_in_memory() {
    assert!(is_kept(1600, 100));
    assert!(!is_kept(1601, 100));
}
