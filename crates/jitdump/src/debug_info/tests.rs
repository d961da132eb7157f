//! Tests of debug information.

use super::*;

fn row(offset: u32, line: u32) -> LineRow {
    LineRow {
        offset,
        file: Some(0),
        line,
        column: 0,
        discriminator: 0,
    }
}

fn call(depth: u32, ranges: &[Range<u32>]) -> InlinedCall {
    InlinedCall {
        depth,
        function: 0,
        ranges: ranges.to_vec(),
        line: 1,
        column: 1,
    }
}

#[test]
fn rows_are_sorted_and_the_last_one_at_an_offset_wins() {
    let mut info = DebugInfo {
        files: vec![SourceFile::default()],
        rows: vec![
            row(8, 3),
            row(0, 1),
            row(8, 4),
            row(12, 4),
            row(100, 5),
            row(16, 5),
        ],
        ..DebugInfo::default()
    };
    assert_eq!(info.normalise(100).rows, 1);
    assert_eq!(info.rows, [row(0, 1), row(8, 4), row(16, 5)]);
}

#[test]
fn inlined_calls_are_within_their_callers_and_do_not_overlap() {
    let mut info = DebugInfo {
        calls: vec![
            call(0, &[10..20, 30..40]),
            call(1, &[0..35]),
            call(1, &[32..50]),
            call(3, &[10..20]),
            call(0, &[15..25]),
            call(0, &[10..20]),
            call(1, &[10..20]),
            call(0, &[90..200]),
        ],
        ..DebugInfo::default()
    };
    assert_eq!(info.normalise(100).calls, 3);
    let found: Vec<_> = info
        .calls
        .iter()
        .map(|call| (call.depth, call.ranges.clone()))
        .collect();
    assert_eq!(
        found,
        [
            (0, vec![10..20, 30..40]),
            (1, vec![10..20, 30..35]),
            (1, vec![35..40]),
            (0, vec![20..25]),
            (0, vec![90..100]),
        ]
    );
}

#[test]
fn rows_start_where_calls_do() {
    let mut info = DebugInfo {
        files: vec![SourceFile::default()],
        rows: vec![row(10, 1), row(20, 2)],
        calls: vec![call(0, &[5..15, 20..100])],
        ..DebugInfo::default()
    };
    assert_eq!(info.normalise(100).borders, 2);
    let unknown = |offset| LineRow {
        file: None,
        ..row(offset, 0)
    };
    assert_eq!(info.rows, [unknown(5), row(10, 1), unknown(15), row(20, 2)]);
}

#[test]
fn lines_do_not_continue_in_another_call() {
    let function = |line| SourceFunction {
        file: Some(0),
        line,
        ..SourceFunction::default()
    };
    let inner = InlinedCall {
        function: 1,
        ..call(1, &[12..16])
    };
    let mut info = DebugInfo {
        files: vec![SourceFile::default()],
        functions: vec![function(1), function(100)],
        rows: vec![row(0, 5), row(14, 101), row(40, 6)],
        calls: vec![call(0, &[10..20, 30..35]), inner],
    };
    let dropped = info.normalise(100);
    assert_eq!((dropped.borders, dropped.ranges), (6, 0));
    // The inner call starts at its declaration; the outer ones continue with their own lines.
    let expected = [
        row(0, 5),
        row(10, 1),
        row(12, 100),
        row(14, 101),
        row(16, 1),
        row(20, 5),
        row(30, 1),
        row(35, 5),
        row(40, 6),
    ];
    assert_eq!(info.rows, expected);
}

#[test]
fn ranges_that_are_empty_or_clipped_are_counted() {
    let mut info = DebugInfo {
        calls: vec![call(0, &[10..20, 5..5]), call(1, &[15..25]), call(0, &[90..120])],
        ..DebugInfo::default()
    };
    let dropped = info.normalise(100);
    assert_eq!((dropped.calls, dropped.ranges), (0, 3));
}

#[test]
fn impossible_lines_are_removed() {
    let mut info = DebugInfo {
        files: vec![SourceFile::default()],
        rows: vec![row(0, 1 << 24), row(4, (1 << 24) + 1), row(8, u32::MAX)],
        ..DebugInfo::default()
    };
    let dropped = info.normalise(100);
    assert_eq!(dropped.lines, 2);
    assert_eq!(
        info.rows.iter().map(|row| row.line).collect::<Vec<_>>(),
        [1 << 24, 0]
    );
}

#[test]
fn frames_at_an_offset_are_the_enclosing_inlined_calls() {
    let function = |file, line| SourceFunction {
        file: Some(file),
        line,
        ..SourceFunction::default()
    };
    let call = |depth, function, range, line| InlinedCall {
        depth,
        function,
        ranges: vec![range],
        line,
        column: 1,
    };
    let row = |offset, file, line| LineRow {
        offset,
        file: Some(file),
        line,
        column: 2,
        discriminator: 0,
    };
    let mut info = DebugInfo {
        files: vec![SourceFile::from(&b"a"[..]), SourceFile::from(&b"b"[..])],
        functions: vec![function(0, 1), function(1, 10), function(1, 20)],
        rows: vec![row(0, 0, 2), row(8, 1, 11), row(12, 1, 21), row(16, 0, 3)],
        calls: vec![call(0, 1, 8..16, 5), call(1, 2, 12..16, 12)],
    };
    info.normalise(32);
    let frames = |info: &DebugInfo<'_>, offset| -> Vec<_> {
        let frames = info.frames_at(offset).into_iter();
        frames
            .map(|frame| (frame.function, frame.file, frame.line))
            .collect()
    };
    assert_eq!(frames(&info, 4), [(0, Some(0), 2)]);
    assert_eq!(frames(&info, 9), [(1, Some(1), 11), (0, Some(0), 5)]);
    assert_eq!(
        frames(&info, 12),
        [(2, Some(1), 21), (1, Some(1), 12), (0, Some(0), 5)]
    );
    assert_eq!(frames(&info, 20), [(0, Some(0), 3)]);
    // The code before the first row is in the line of the declaration, if that is known.
    info.rows.remove(0);
    assert_eq!(frames(&info, 4), [(0, Some(0), 1)]);
    info.functions[0].line = 0;
    assert_eq!(frames(&info, 4), [(0, Some(1), 11)]);
    assert_eq!(
        DebugInfo::default().frames_at(0),
        [SourceFrame {
            function: 0,
            file: None,
            line: 0,
            column: 0
        }]
    );
}

#[test]
fn nesting_has_a_limit() {
    let mut info = DebugInfo {
        calls: (0..74).map(|depth| call(depth, &[0..10])).collect(),
        ..DebugInfo::default()
    };
    assert_eq!(info.normalise(10).calls, 10);
}

/// A call in pieces, in each of which there are three more, one inside the other.
#[test]
fn calls_are_split_into_twice_their_ranges_and_1024() {
    for (pieces, dropped) in [(515, 0), (516, 1)] {
        let outer: Vec<Range<u32>> = (0..pieces).map(|piece| 2 * piece..2 * piece + 1).collect();
        let inner = (1..=3).map(|depth| call(depth, &[0..2 * pieces]));
        let mut info = DebugInfo {
            functions: vec![SourceFunction::default()],
            calls: std::iter::once(call(0, &outer)).chain(inner).collect(),
            ..DebugInfo::default()
        };
        assert_eq!(info.normalise(2 * pieces).calls, dropped, "{pieces}");
        assert_eq!(info.range_count(), u64::from(pieces) * (4 - dropped));
    }
}
