//! Arbitrary scripts, and maps after a NUL: functions nest, positions and offsets agree, and all indices of a map are valid.

use jitdump::debug_info::{DebugInfo, LineRow, SourceFunction};
use jitdump::v8::original_lines::{MappedScript, SourceMaps};
use jitdump::v8::source_map::{SourceMap, mapping_url};
use jitdump::v8::v8_inlining::Scripts;
use jitdump::v8::{Script, TextPosition, original_lines};

pub fn run(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
    let (text, map) = input.split_at(end);
    let _ = mapping_url(text);
    let script = Script::scan(text);
    if let Some(script) = &script {
        for (function, index) in script.functions().iter().zip(0u32..) {
            assert!(function.range.start <= function.range.end);
            assert!(function.parent <= index);
            let parent = &script.functions()[function.parent as usize];
            assert!(parent.range.start <= function.range.start);
            let position = script.text().position(function.range.start);
            // The inside of a character has no position of its own.
            if let Some(offset) = script.text().offset(position) {
                assert_eq!(script.text().position(offset), position);
            }
            assert!(script.calls(index).all(|call| call.function == index));
        }
    }
    let Ok(map) = SourceMap::parse(map.get(1..).unwrap_or_default()) else {
        return;
    };
    let mapped = MappedScript::new(map, b"/app");
    let maps: SourceMaps<'_> = [(&b"a.js"[..], &mapped)].into_iter().collect();
    let scripts: Scripts<'_> = script.iter().map(|script| (&b"a.js"[..], script)).collect();
    let rows = (0..64u32).map(|number| LineRow {
        offset: number,
        file: Some(0),
        line: number / 16 + 1,
        column: number % 16 * 3 + 1,
        discriminator: 0,
    });
    let mut info = DebugInfo {
        files: vec![(&b"a.js"[..]).into()],
        functions: vec![SourceFunction {
            name: b"f",
            file: Some(0),
            line: 1,
            column: 1,
        }],
        rows: rows.collect(),
        calls: Vec::new(),
    };
    original_lines::replace(&mut info, &maps, &scripts);
    assert!(
        info.rows
            .iter()
            .all(|row| row.file.is_none_or(|file| (file as usize) < info.files.len()))
    );
    let _ = mapped.function(script.as_ref(), TextPosition { line: 1, column: 1 });
}
