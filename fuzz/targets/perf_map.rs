//! Arbitrary perf maps: each line is a symbol or is reported.

#![no_main]

use jitinject::diagnostics::Issue;
use jitinject::runtime::perf_map;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let map = perf_map::parse(input);
    let mut lines = input.split(|&byte| byte == b'\n');
    let lines = lines
        .by_ref()
        .filter(|line| !matches!(line, [] | [b'\r']))
        .count() as u64;
    assert_eq!(
        map.symbols.len() as u64 + map.faults.count(Issue::PerfMapBadLine),
        lines
    );
    for symbol in &map.symbols {
        assert!(!symbol.name.is_empty() && !symbol.name.contains(&b'\n') && !symbol.name.contains(&0));
        assert!(symbol.range.size() <= u64::from(u32::MAX));
    }
    // Symbols survive a round trip; those without a size come first.
    let mut text = Vec::new();
    for symbol in &map.symbols {
        let line = format!("{:x} {:x} ", symbol.range.start.0, symbol.range.size());
        text.extend_from_slice(line.as_bytes());
        text.extend_from_slice(symbol.name);
        text.push(b'\n');
    }
    let again = perf_map::parse(&text);
    let is_plain = |symbol: &perf_map::Symbol<'_>| !symbol.name.ends_with(b"\r");
    if map.symbols.iter().all(is_plain) {
        assert_eq!(again.symbols, map.symbols);
    }
});
