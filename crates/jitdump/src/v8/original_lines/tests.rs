//! Tests of positions in the original files.

use super::*;
use crate::debug_info::LineRow;

#[test]
fn paths_start_at_the_map() {
    for (base, path, expected) in [
        ("/app/dist", "../src/./a.ts", "/app/src/a.ts"),
        ("/app", "/src/a.ts", "/src/a.ts"),
        ("/app", "../../../etc/a.ts", "/etc/a.ts"),
        ("dist", "../../a.ts", "../a.ts"),
        ("/app", "webpack://x/./src/a.ts", "webpack://x/./src/a.ts"),
        ("file:///app/dist", "../a.ts", "file:///app/a.ts"),
        // Escapes, as in URLs.
        ("/a%20b", "ma th %C3%a9%23.ts", "/a%20b/ma th é#.ts"),
        ("/app", "/src/%5Bid%5D%25.ts", "/src/[id]%.ts"),
        ("file:///app", "%C3%A9.ts", "file:///app/%C3%A9.ts"),
        ("/app", "webpack://x/%23.ts", "webpack://x/%23.ts"),
        // Names with percent signs.
        ("/app", "100%/%zz/%4.ts%", "/app/100%/%zz/%4.ts%"),
        ("/app", "%2e%2E%2f%41%00/%E9.ts", "/app/%2e%2E%2f%41%00/%E9.ts"),
    ] {
        let resolved = resolve(base.as_bytes(), path.as_bytes());
        assert_eq!(String::from_utf8(resolved).unwrap(), expected);
    }
}

/// `function slowPath(count: number)` and a call of it, minified to one line.
#[test]
fn lines_and_names_become_those_of_the_source() {
    let source = "export function slowPath(count: number) {\n  return count * 2;\n}\nconst fast = (n: number) => slowPath(n);\n";
    let generated = "function t(n){return n*2}const e=n=>t(n);";
    let mut encoded = String::new();
    let mut last = [0i64; 5];
    let mut segment = |column: i64, line: i64, source_column: i64, name: Option<i64>| {
        if !encoded.is_empty() {
            encoded.push(',');
        }
        for (at, value) in [(0, column), (1, 0), (2, line), (3, source_column)] {
            encode(&mut encoded, value - last[at]);
            last[at] = value;
        }
        if let Some(name) = name {
            encode(&mut encoded, name - last[4]);
            last[4] = name;
        }
    };
    segment(0, 0, 7, None);
    segment(9, 0, 16, Some(0));
    segment(10, 0, 24, None);
    segment(14, 1, 2, None);
    segment(31, 3, 6, None);
    segment(33, 3, 13, None);
    segment(36, 3, 28, None);
    let json = serde_json::json!({
        "version": 3, "sources": ["../src/work.ts"], "sourcesContent": [source], "names": ["slowPath"], "mappings": encoded,
    });
    let map = MappedScript::new(SourceMap::parse(json.to_string()).unwrap(), b"/app/dist");
    let script = Script::scan(generated.as_bytes()).unwrap();
    let maps: SourceMaps<'_> = [(&b"/app/dist/out.js"[..], &map)].into_iter().collect();
    let scripts: Scripts<'_> = [(&b"/app/dist/out.js"[..], &script)].into_iter().collect();
    let row = |offset, column| LineRow {
        offset,
        file: Some(0),
        line: 1,
        column,
        discriminator: 0,
    };
    let function = |name, column| SourceFunction {
        name,
        file: Some(0),
        line: 1,
        column,
    };
    let mut info = DebugInfo {
        files: vec![(&b"/app/dist/out.js"[..]).into()],
        functions: vec![function(b"", 34), function(b"t", 11)],
        rows: vec![row(0, 38), row(8, 15)],
        calls: vec![InlinedCall {
            depth: 0,
            function: 1,
            ranges: std::iter::once(8..16).collect(),
            line: 1,
            column: 37,
        }],
    };
    replace(&mut info, &maps, &scripts);
    assert_eq!(info.files[1].path, &b"/app/src/work.ts"[..]);
    assert_eq!(info.files[1].text, Some(source.as_bytes()));
    let rows: Vec<_> = info
        .rows
        .iter()
        .map(|row| (row.file, row.line, row.column))
        .collect();
    assert_eq!(rows, [(Some(1), 4, 29), (Some(1), 2, 3)]);
    assert_eq!(
        (
            info.functions[1].name,
            info.functions[1].line,
            info.functions[1].file
        ),
        (&b"slowPath"[..], 1, Some(1))
    );
    assert_eq!((info.calls[0].line, info.functions[0].line), (4, 4));
    // An arrow function has the name of its variable, as the source writes it.
    let arrow = map
        .function(Some(&script), TextPosition { line: 1, column: 34 })
        .unwrap();
    assert_eq!(
        (arrow.name, arrow.path, arrow.start.line),
        (&b"fast"[..], &b"/app/src/work.ts"[..], 4)
    );
}

#[test]
fn paths_and_folders_have_up_to_4096_bytes() {
    for (folder, path, is_used) in [(4096, 4096, true), (4097, 1, false), (1, 4097, false)] {
        let path = format!("/{}", "a".repeat(path - 1));
        let json = serde_json::json!({"version": 3, "sources": [path], "mappings": ""});
        let map = MappedScript::new(SourceMap::parse(json.to_string()).unwrap(), &vec![b'.'; folder]);
        assert_eq!(map.path(0).is_some(), is_used);
    }
}

#[test]
fn a_script_of_several_files_is_as_a_whole_in_none_of_them() {
    for (sources, is_mapped) in [(&["a.ts"][..], true), (&["a.ts", "b.ts"], false)] {
        let json = serde_json::json!({"version": 3, "sources": sources, "mappings": "AAAA"});
        let map = MappedScript::new(SourceMap::parse(json.to_string()).unwrap(), b"/app");
        let at = |column| map.function(None, TextPosition { line: 1, column });
        assert_eq!(at(1).is_some(), is_mapped);
        assert!(at(5).is_some());
    }
}

/// `r` calls `s` twice in different lines of the source, `q` twice in one, and `u` once in another file. All are on
/// one line of the script.
#[test]
fn a_call_has_the_original_line_that_all_calls_of_the_name_have() {
    let generated = "function s(n){return n}function r(n){s(n);s(n)}\
        function q(n){return s(n)+s(n)}function u(n){s(n)}";
    let at = |text: &str| generated.find(text).unwrap();
    let in_u = generated.rfind("s(n)").unwrap();
    let mut mappings = String::new();
    let mut last = [0i64; 4];
    for (column, source, line) in [
        (0, 1, 1),
        (at("function r"), 0, 2),
        (at("s(n);"), 0, 3),
        (at("s(n)}function q"), 0, 5),
        (at("function q"), 0, 7),
        (at("s(n)+"), 0, 8),
        (at("s(n)}function u"), 0, 8),
        (at("function u"), 0, 10),
        (in_u, 1, 4),
    ] {
        let segment = [column as i64, source, line - 1, 0];
        for (value, last) in segment.iter().zip(&mut last) {
            encode(&mut mappings, *value - std::mem::replace(last, *value));
        }
        mappings.push(',');
    }
    let json = serde_json::json!({"version": 3, "sources": ["a.ts", "b.ts"], "mappings": mappings});
    let map = MappedScript::new(SourceMap::parse(json.to_string()).unwrap(), b"/app");
    let script = Script::scan(generated.as_bytes()).unwrap();
    let maps: SourceMaps<'_> = [(&b"out.js"[..], &map)].into_iter().collect();
    let scripts: Scripts<'_> = [(&b"out.js"[..], &script)].into_iter().collect();
    // Line and column of a call of `s`.
    let call = |caller: usize, column: usize, scripts: &Scripts<'_>| {
        let function = |name, start: usize| SourceFunction {
            name,
            file: Some(0),
            line: 1,
            column: start as u32 + 1,
        };
        let mut info = DebugInfo {
            files: vec![(&b"out.js"[..]).into()],
            functions: vec![function(b"", caller), function(b"exports.s", at("(n){return n}"))],
            rows: Vec::new(),
            calls: vec![InlinedCall {
                depth: 0,
                function: 1,
                ranges: std::iter::once(8..16).collect(),
                line: 1,
                column: column as u32,
            }],
        };
        replace(&mut info, &maps, scripts);
        (info.calls[0].line, info.calls[0].column)
    };
    let (r, q, u) = (at("(n){s(n);"), at("(n){return s"), at("(n){s(n)}"));
    assert_eq!(call(r, 0, &scripts), (0, 0));
    assert_eq!(call(r, at("s(n)}function q") + 1, &scripts), (5, 1));
    assert_eq!(call(q, 0, &scripts), (8, 0));
    assert_eq!(call(q, 0, &Scripts::default()), (0, 0));
    assert_eq!(call(u, in_u + 1, &scripts), (0, 0));
    // The script itself stays in its file, and its calls, too.
    assert_eq!(call(0, 0, &scripts), (1, 0));
}

/// Appends a number in base64 VLQ.
fn encode(out: &mut String, value: i64) {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut left = (value.unsigned_abs() << 1) | u64::from(value < 0);
    loop {
        let digit = left & 31;
        left >>= 5;
        out.push(DIGITS[(digit | if left > 0 { 32 } else { 0 }) as usize] as char);
        if left == 0 {
            return;
        }
    }
}
