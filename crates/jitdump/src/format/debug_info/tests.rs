//! Tests of DEBUG_INFO records.

use super::*;

const START: u64 = 0x1000;
const SIZE: u64 = 0x200;
const ORDER: ByteOrder = ByteOrder::Little;

fn range() -> AddressRange {
    AddressRange::new(Address(START), SIZE).unwrap()
}

/// A record whose entries have the given offsets, lines and names, followed by `rest`.
fn record(entries: &[(i64, u32, &[u8])], rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    ORDER.write_u64(&mut out, START);
    ORDER.write_u64(&mut out, entries.len() as u64);
    for (offset, line, name) in entries {
        ORDER.write_u64(&mut out, START.wrapping_add_signed(*offset));
        ORDER.write_u32(&mut out, *line);
        ORDER.write_u32(&mut out, 3);
        out.extend_from_slice(name);
        out.push(0);
    }
    out.extend_from_slice(rest);
    out
}

/// The offset, line and file of each row.
fn rows(name: &[u8], content: &[u8], quirks: DebugInfoQuirks) -> Option<Vec<(u32, u32, String)>> {
    let lines = parse(content, name, range(), quirks, ORDER)?;
    let file = |row: &LineRow| {
        let file = row.file.map(|file| lines.info.files[file as usize].path.to_vec());
        String::from_utf8(file.unwrap_or_default()).unwrap()
    };
    Some(
        lines
            .info
            .rows
            .iter()
            .map(|row| (row.offset, row.line, file(row)))
            .collect(),
    )
}

fn of(rows: &[(u32, u32, &str)]) -> Option<Vec<(u32, u32, String)>> {
    Some(
        rows.iter()
            .map(|&(offset, line, file)| (offset, line, file.to_owned()))
            .collect(),
    )
}

#[test]
fn names_repeat_and_ends_are_no_lines() {
    let content = record(
        &[
            (-0x31, 7, b"a.erl"),
            (8, 8, b"\xff"),
            (4, 9, b"b.erl"),
            (0x200, 0, b""),
        ],
        b"",
    );
    let plain = DebugInfoQuirks::default();
    let expected = of(&[(0, 7, "a.erl"), (8, 8, "a.erl"), (4, 9, "b.erl")]);
    assert_eq!(rows(b"m:f/1", &content, plain), expected);
    let lines = parse(&content, b"m:f/1", range(), plain, ORDER).unwrap();
    assert_eq!(lines.outside, 0);
}

#[test]
fn a_function_starts_with_a_first_entry_up_to_128_bytes_before_it() {
    let plain = DebugInfoQuirks::default();
    for (offset, expected) in [
        (-0x80, &[(0, 7, "a.erl"), (8, 8, "a.erl")][..]),
        (-0x81, &[(8, 8, "a.erl")]),
    ] {
        let content = record(&[(offset, 7, b"a.erl"), (8, 8, b"a.erl")], b"");
        assert_eq!(rows(b"m:f/1", &content, plain), of(expected), "{offset}");
    }
}

#[test]
fn rows_of_other_functions_are_counted() {
    let content = record(&[(-0x500, 1, b"a.c"), (0, 2, b"a.c"), (0x300, 3, b"a.c")], b"");
    let lines = parse(&content, b"f", range(), DebugInfoQuirks::default(), ORDER).unwrap();
    assert_eq!((lines.info.rows.len(), lines.outside), (1, 2));
}

/// A name as long as `path` whose first bytes are overwritten, as by V8.
fn damaged(path: &[u8]) -> Vec<u8> {
    let mut name = path.to_vec();
    let lost = name.len().min(16);
    name[..lost].copy_from_slice(&b"\x2d\xdc\x02\xf4\x64\x7f\0\0\x34\x17\xda\xd9\0\x19\x29\x47"[..lost]);
    name
}

#[test]
fn damaged_names_are_told_from_the_function() {
    let path = b"/tmp/project/work.js";
    let bad = damaged(path);
    for (name, padding) in [
        (&b"JS:*f /tmp/project/work.js:1:2"[..], &b""[..]),
        (b"JS:*f", b""),
        (b"JS:*with space /tmp/project/work.js:1:2", b"\0\xab\0\0\0\0\x01"),
    ] {
        let content = record(
            &[(0x40, 1, &bad), (0x48, 2, b"node:path"), (0x50, 3, path)],
            padding,
        );
        let biased = DebugInfoQuirks {
            bias: 0x40,
            has_discriminators: false,
        };
        let work = "/tmp/project/work.js";
        let expected = of(&[(0, 1, work), (8, 2, "node:path"), (16, 3, work)]);
        let expected = expected.filter(|_| name.contains(&b'/'));
        assert_eq!(rows(name, &content, biased), expected);
    }
    // The path is too short to be recognised by its end, but all entries have the same size.
    let bad = damaged(b"short.js");
    let content = record(&[(0x40, 1, &bad), (0x48, 2, &bad)], b"");
    let found = rows(b"JS:*f short.js:1:2", &content, DebugInfoQuirks::default());
    assert_eq!(found, of(&[(0x40, 1, "short.js"), (0x48, 2, "short.js")]));
}

#[test]
fn latin_1_names_of_v8_are_those_in_the_function() {
    let script: &[u8] = b"jos\xe9/app.js";
    let content = record(&[(0x40, 1, script), (0x48, 2, script)], b"");
    for name in ["JS:*hot josé/app.js:1:13", "JS:*hot /a josé/app.js:1:13"] {
        let lines = parse(
            &content,
            name.as_bytes(),
            range(),
            DebugInfoQuirks::default(),
            ORDER,
        );
        let info = lines.unwrap().info;
        let paths: Vec<&[u8]> = info.files.iter().map(|file| &*file.path).collect();
        assert_eq!(paths, ["josé/app.js".as_bytes()], "{name}");
        assert!(info.rows.iter().all(|row| row.file == Some(0)), "{name}");
        assert_eq!((info.functions[0].file, info.functions[0].line), (Some(0), 1));
    }
}

#[test]
fn the_bias_is_that_of_v8_llvm_and_dart_only() {
    let find = |name: &'static [u8], offsets: &[&[i64]]| {
        let entries = offsets.iter().map(|offsets| {
            let entries: Vec<_> = offsets.iter().map(|&offset| (offset, 1, &b"a"[..])).collect();
            record(&entries, b"")
        });
        let records: Vec<Vec<u8>> = entries.collect();
        let examined = records.iter().filter_map(|content| {
            let entries = super::entries(content, name, range(), ORDER)?;
            Some((name, range(), entries))
        });
        DebugInfoQuirks::detect(examined, true).bias
    };
    // V8: no entry below the bias, and not always one exactly there.
    assert_eq!(find(b"JS:^f a.js:1:1", &[&[0x40, 0x60], &[0x47]]), 0x40);
    assert_eq!(find(b"JS:^f a.js:1:1", &[&[0x10, 0x60], &[0x47]]), 0);
    // LLVM: entries exactly at the bias and past the end; rows of another function make no difference.
    assert_eq!(find(b"main", &[&[0x40, 0x220], &[-0x300, 0x40, 0x210]]), 0x40);
    // Dart: not always an entry at the bias, but always one past the end, and none where no biased one can be.
    assert_eq!(
        find(b"WriteBarrier", &[&[0x89, 0x11a, 0x23c], &[0x40, 0x240]]),
        0x40
    );
    assert_eq!(find(b"WriteBarrier", &[&[0x89, 0x11a, 0x23c], &[0x40, 0x241]]), 0);
    assert_eq!(find(b"WriteBarrier", &[&[-8, 0x11a, 0x23c], &[0x89, 0x240]]), 0);
    // A Java method whose first line starts as late.
    assert_eq!(find(b"LWork;run()V", &[&[0x40, 0x60], &[0x40]]), 0);
    assert_eq!(find(b"LWork;run()V", &[&[0x57, 0x60], &[0x220]]), 0);
    assert_eq!(find(b"f", &[]), 0);
}

#[test]
fn baseline_code_of_v8_has_the_line_of_its_function() {
    let content = record(
        &[(0x40, 7, b"a.js"), (0x43, 9, b"a.js"), (0x300, 9, b"a.js")],
        b"",
    );
    let quirks = DebugInfoQuirks {
        bias: MAX_BIAS,
        has_discriminators: false,
    };
    let optimized = of(&[(0, 7, "a.js"), (3, 9, "a.js")]);
    assert_eq!(rows(b"JS:*f a.js:5:1", &content, quirks), optimized);
    assert_eq!(rows(b"JS:^f a.js:5:1", &content, quirks), of(&[(0, 5, "a.js")]));
    let baseline = parse(&content, b"JS:^f a.js:5:1", range(), quirks, ORDER).unwrap();
    assert_eq!(baseline.outside, 0);
    // A function that was made from text has no file in its name.
    assert_eq!(rows(b"JS:^f :5:1", &content, quirks), of(&[(0, 5, "a.js")]));
}

#[test]
fn files_of_v8_are_scripts_or_else_the_urls_in_their_text() {
    let of_script = |name: &str, url: &str| {
        let content = record(&[(0x40, 7, url.as_bytes()), (0x48, 8, url.as_bytes())], b"");
        let info = parse(
            &content,
            name.as_bytes(),
            range(),
            DebugInfoQuirks::default(),
            ORDER,
        )
        .unwrap()
        .info;
        let path = |file: u32| String::from_utf8(info.files[file as usize].path.to_vec()).unwrap();
        assert_eq!(info.files.len(), 1, "{name}");
        assert!(info.rows.iter().all(|row| row.file == Some(0)), "{name}");
        let function = &info.functions[0];
        (path(0), function.file.map(path), function.line, function.column)
    };
    for (name, url, path, line, column) in [
        ("JS:*f /a.ts:22:15", "file:///a.ts", "/a.ts", 22, 15),
        (
            "JS:*f :16:27",
            "webpack:///./src/lib.js?",
            "webpack:///./src/lib.js?",
            16,
            27,
        ),
        ("JS:*get x :3:4", "lib.js", "lib.js", 3, 4),
        ("LazyCompile:* :1", "lib.js", "lib.js", 1, 0),
    ] {
        let expected = (path.to_owned(), Some(path.to_owned()), line, column);
        assert_eq!(of_script(name, url), expected, "{name}");
    }
    // All code without a name has this file.
    let unknown = ("<unknown>".to_owned(), None, 0, 0);
    assert_eq!(of_script("JS:*f :16:27", "<unknown>"), unknown);
}
