//! Samples by source line, and source text on the page of `jitinject timeline`.

use std::collections::BTreeMap;
use std::path::Path;

use jitdump::ByteOrder;

use crate::support::dump::{self, DumpWriter};
use crate::support::timeline::{Values, page_of, page_of_capture};
use crate::support::tools::text;
use crate::support::{capture, has_code, jitinject, said, scratch};
use crate::timeline::profile;

/// A profile with samples in two lines of a source file in `folder`, in a function of an unknown compiler, and in none of a
/// built-in function.
fn profile_with_lines(folder: &Path, source: &str) -> std::path::PathBuf {
    let code = [0x90; 0x100];
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, 10);
    dump.lines(
        1999,
        0x7000_0000,
        source.as_bytes(),
        &[(0x7000_0000, 2), (0x7000_0010, 3), (0x7000_0020, 300)],
    );
    dump.load(
        2000,
        0x7000_0000,
        1,
        format!("JS:~run {source}:2:1").as_bytes(),
        &code,
    );
    dump.load(2001, 0x7000_1000, 2, b"Builtin:Add", &code);
    profile(folder, &dump, |profile| {
        for (time, offset) in [(0, 0x10), (1, 0x1f), (2, 0x20), (3, 0x0)] {
            profile.sample(10, 2500 + time, &[0x7000_0000 + offset], None);
        }
    })
}

/// Returns function, path, line and samples of each source line.
fn source_lines(values: &Values) -> Vec<(u64, String, u64, u64)> {
    let [function, file, line, samples] =
        ["function", "file", "line", "samples"].map(|column| values.numbers("lines", column));
    let row = |at: usize| {
        let path = values.0["files"][file[at] as usize].as_str().unwrap();
        (function[at], path.to_owned(), line[at], samples[at])
    };
    (0..function.len()).map(row).collect()
}

#[test]
fn samples_are_counted_by_source_line() {
    let folder = scratch();
    let source = folder.path().join("work.js");
    std::fs::write(&source, "// </script><b>\nfunction run() {\n\treturn 1;\n}\n").unwrap();
    let input = profile_with_lines(folder.path(), text(&source));
    let (page, said) = page_of(folder.path(), &input, &["-v"]);
    let values = Values::of(&page);
    let path = text(&source);
    let row = |line, samples| (0, path.to_owned(), line, samples);
    assert_eq!(
        source_lines(&values),
        [row(2, 1), row(3, 2), row(300, 1)],
        "{said}"
    );
    assert_eq!(values.0["excerpts"], serde_json::json!([]), "only on request");
    assert_eq!(values.0["built_ins"], serde_json::json!([1]));
    assert_eq!(values.0["colors"], serde_json::json!(["#c9a800", "#9c6b4e"]));
    let name = values.0["names"][0].as_str().unwrap();
    let part = |column: &str| values.numbers("locations", column)[0] as usize;
    assert_eq!(&name[part("function_start")..part("function_end")], "run");
    assert_eq!(&name[part("path_start")..part("path_end")], path);

    let (page, _) = page_of(folder.path(), &input, &["--sources"]);
    let excerpt = &Values::of(&page).0["excerpts"][0];
    assert_eq!(excerpt["first"], 1);
    let lines = ["// </script><b>", "function run() {", "    return 1;", "}", ""];
    assert_eq!(excerpt["text"], serde_json::json!(lines));
    assert!(!std::fs::read_to_string(&page).unwrap().contains("</script><b>"));
    // The file elsewhere.
    let moved = folder.path().join("other");
    std::fs::create_dir(&moved).unwrap();
    std::fs::rename(&source, moved.join("work.js")).unwrap();
    let map = format!("{}={}", folder.path().display(), moved.display());
    let (page, said) = page_of(folder.path(), &input, &["--sources", "-v"]);
    assert_eq!(Values::of(&page).0["excerpts"], serde_json::json!([]));
    assert!(has_code(&said, "JI267"), "{said}");
    let (page, _) = page_of(folder.path(), &input, &["--sources", "--path-map", &map]);
    assert_eq!(Values::of(&page).0["excerpts"][0]["text"][1], lines[1]);
}

/// Collapsed stacks mark inlined calls with `_[i]`, behind the function that contains them with `_[j]`. They have the line
/// that was sampled, and the page the one of the declaration.
#[test]
fn samples_in_inlined_functions_are_those_of_the_stacks() {
    for name in ["node20", "node20-inlined", "node20-typescript", "node22"] {
        let folder = scratch();
        let values = Values::of(&page_of_capture(folder.path(), name));
        let mut of_page: BTreeMap<(u64, String), u64> = BTreeMap::new();
        for (pid, _, inlined, samples) in values.inlined() {
            let [_column, _line, function] = *inlined.rsplitn(3, ':').collect::<Vec<_>>() else {
                panic!("{inlined}");
            };
            *of_page.entry((pid, function.to_owned())).or_default() += samples;
        }
        let stacks = folder.path().join("stacks.folded");
        let mut export = jitinject();
        export.args(["export", "-f", "-i"]).arg(capture::profile(name));
        export.arg("--jitdump").arg(capture::folder(name));
        let exported = export.arg("-o").arg(&stacks).output().unwrap();
        assert!(exported.status.success(), "{}", said(&exported));
        let mut of_stacks: BTreeMap<(u64, String), u64> = BTreeMap::new();
        for line in std::fs::read_to_string(stacks).unwrap().lines() {
            let (stack, samples) = line.rsplit_once(' ').unwrap();
            let mut frames = stack.rsplit(';');
            let Some(inlined) = frames.next().unwrap().strip_suffix("_[i]") else {
                continue;
            };
            let outer = frames.find(|frame| !frame.ends_with("_[i]")).unwrap();
            if outer.ends_with("_[j]") {
                let (function, _line) = inlined.rsplit_once(':').unwrap();
                let (process, _) = stack.split_once(['/', ';']).unwrap();
                let pid = process.rsplit_once('-').unwrap().1.parse().unwrap();
                *of_stacks.entry((pid, function.to_owned())).or_default() += samples.parse::<u64>().unwrap();
            }
        }
        assert!(!of_stacks.is_empty(), "{name}");
        assert_eq!(of_page, of_stacks, "{name}");
    }
}

#[test]
fn kept_sources_are_shown_as_they_were() {
    let folder = scratch();
    let source = folder.path().join("work.js");
    std::fs::write(&source, "\nthen\n").unwrap();
    let input = profile_with_lines(folder.path(), text(&source));
    let output = folder.path().join("perf.jit.data");
    crate::support::inject(&input, &output, &["--keep-sources"]);
    std::fs::write(&source, "\nnow\n").unwrap();
    let shown = |expected: &str| {
        let (page, _) = page_of(folder.path(), &input, &["--sources"]);
        assert_eq!(Values::of(&page).0["excerpts"][0]["text"][1], expected);
    };
    shown("then");
    // A copy that was changed is not used.
    let kept = folder.path().join("perf.jit.data.elf/sources");
    let copies = std::fs::read_dir(kept)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for copy in copies.filter(|path| path.is_dir()) {
        std::fs::write(copy.join("work.js"), "\nchanged\n").unwrap();
    }
    shown("now");
}

#[test]
fn source_text_on_a_page_has_a_limit() {
    let folder = scratch();
    let source = folder.path().join("long.js");
    // More than 2 MiB, and only the start of each line is shown.
    std::fs::write(&source, format!("{}\n", "é".repeat(400)).repeat(6000)).unwrap();
    let code = [0x90; 0x4000];
    let mut dump = DumpWriter::new(ByteOrder::Little, dump::X86_64, 10);
    let lines: Vec<(u64, u32)> = (0..1000)
        .map(|at| (0x7000_0000 + 8 * at, 5 + 5 * at as u32))
        .collect();
    dump.lines(1999, 0x7000_0000, text(&source).as_bytes(), &lines);
    dump.load(2000, 0x7000_0000, 1, b"long", &code);
    let input = profile(folder.path(), &dump, |profile| {
        for &(address, _) in &lines {
            profile.sample(10, 2500, &[address], None);
        }
    });
    let (page, said) = page_of(folder.path(), &input, &["-v", "--sources"]);
    assert!(has_code(&said, "JI307"), "{said}");
    let size = std::fs::metadata(page).unwrap().len();
    assert!((2 << 20..3 << 20).contains(&size), "{size}");
}
