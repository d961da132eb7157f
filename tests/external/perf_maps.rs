//! Symbols of perf maps, as perf and other readers print them.

use std::path::Path;

use crate::support::perf_map_case::{CAPTURES, Case, UNKNOWN, lines};
use crate::support::{capture, inject, inject_into, objects_of, perf, scratch, tools};

/// Returns the frames as perf prints them: address, symbol, file.
fn frames(profile: &Path, more: &[&str]) -> Vec<(u64, String, String)> {
    let mut arguments = vec![
        "script",
        "-f",
        "--no-inline",
        "--no-demangle",
        "-i",
        tools::text(profile),
    ];
    arguments.extend_from_slice(&["-F", "ip,sym,dso"]);
    arguments.extend_from_slice(more);
    let shown = perf::perf(&arguments);
    let frames = shown.lines().filter_map(|line| {
        let (address, rest) = line.trim().split_once(' ')?;
        let (symbol, file) = rest.trim_end().strip_suffix(')')?.rsplit_once(" (")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        Some((address, symbol.to_owned(), file.to_owned()))
    });
    frames.collect()
}

/// Returns the last name in a map for an address.
fn name_in(map: &str, address: u64) -> Option<&str> {
    map.lines().rev().find_map(|line| {
        let mut parts = line.splitn(3, ' ');
        let start = u64::from_str_radix(parts.next()?, 16).ok()?;
        let size = u64::from_str_radix(parts.next()?, 16).ok()?;
        (start..start + size).contains(&address).then(|| parts.next())?
    })
}

#[test]
fn every_frame_has_the_name_that_the_map_has() {
    for (name, pid, leaves) in CAPTURES {
        let folder = scratch();
        let output = folder.path().join("out.data");
        let said = inject(&capture::profile(name), &output, &[]);
        assert!(!said.contains("not named"), "{said}");
        let map = std::fs::read_to_string(capture::folder(name).join(format!("perf-{pid}.map"))).unwrap();
        // The file in which perf looks for names, whether it exists or not.
        let anonymous = format!("/tmp/perf-{pid}.map");
        for (more, expected) in [(&[][..], None), (&["-G"], Some(leaves))] {
            let before = frames(&capture::profile(name), more);
            let after = frames(&output, more);
            assert_eq!(before.len(), after.len(), "{name}");
            let mut named = 0;
            for ((address, symbol, file), (_, after, object)) in before.into_iter().zip(after) {
                if file != anonymous {
                    assert_eq!(symbol, after, "{name}: {address:#x} in {file}");
                } else {
                    assert_eq!(
                        name_in(&map, address).unwrap_or(UNKNOWN),
                        after,
                        "{name}: {address:#x}"
                    );
                    let is_ours = object.contains(&format!("/jitted-{pid}-map-"));
                    assert_eq!(after != UNKNOWN, is_ours, "{name}: {address:#x} in {object}");
                    named += u64::from(is_ours);
                }
            }
            assert!(
                expected.is_none_or(|expected| named == expected),
                "{name}: {named}"
            );
        }
    }
}

/// The object contains its type, and marks its code as unknown.
#[test]
fn objects_without_code_are_what_all_readers_understand() {
    let mut case = Case::with_process(10);
    case.write("perf-10.map", &lines(&[(0x100, 0x40, "JS:^f /tmp/a.js:3:4")]));
    case.sample(10, 0x104, "JS:^f /tmp/a.js:3:4");
    let output = inject_into(case.folder.path(), &case.input(), &[]);
    let object = objects_of(&output).remove(0);
    let object = tools::text(&object);
    let sections = tools::run("readelf", &["-SW", object]);
    let text = sections.lines().find(|line| line.contains(" .text ")).unwrap();
    let fields: Vec<&str> = text.split(']').nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        &fields[..5],
        [".text", "NOBITS", "0000000000001000", "000000", "000040"]
    );
    let symbols = tools::run("readelf", &["-sW", object]);
    assert!(
        symbols.contains("    64 FUNC    LOCAL  DEFAULT    1 JS:^f /tmp/a.js:3:4"),
        "{symbols}"
    );
    for (program, arguments) in [
        ("llvm-symbolizer", &["--no-demangle", "--obj"][..]),
        ("addr2line", &["-f", "-e"]),
        ("eu-addr2line", &["-f", "-e"]),
    ] {
        let arguments = match program {
            "llvm-symbolizer" => vec![
                arguments[0].to_owned(),
                format!("--obj={object}"),
                "0x103f".into(),
            ],
            _ => vec!["-f".into(), "-e".into(), object.to_owned(), "0x103f".into()],
        };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let shown = tools::run(program, &arguments);
        assert_eq!(shown.lines().next(), Some("JS:^f /tmp/a.js:3:4"), "{program}");
    }
    let declared = tools::run("llvm-dwarfdump", &[object]);
    assert!(declared.contains("DW_AT_decl_line\t(3)"), "{declared}");
}
