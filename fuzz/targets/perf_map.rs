//! Arbitrary perf maps: each line is a symbol or is reported.

use jitdump::Fault;
use jitdump::{PerfMap, PerfMapSymbol};

pub fn run(input: &[u8]) {
    let map = PerfMap::parse(input);
    let lines = input.split(|&byte| byte == b'\n');
    let lines: Vec<&[u8]> = lines.filter(|line| !matches!(line, [] | [b'\r'])).collect();
    let parts = lines.iter().flat_map(|line| line.split(|&byte| byte == 0));
    // A NUL may end a line, or the name in it.
    let (least, most) = (lines.len() as u64, parts.count() as u64);
    let found = map.symbols.len() as u64 + map.faults.count(Fault::InvalidLine);
    assert!((least..=most).contains(&found), "{found} of {least} to {most}");
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
    let again = PerfMap::parse(&text);
    let is_plain = |symbol: &PerfMapSymbol<'_>| !symbol.name.ends_with(b"\r");
    if map.symbols.iter().all(is_plain) {
        assert_eq!(again.symbols, map.symbols);
    }
}
