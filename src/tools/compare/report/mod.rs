//! Writes a comparison for people.

pub mod flame_graph;
mod markdown;
mod text;

use jitdump::printable;

/// Longest name in a table, in characters.
const MAX_NAME: usize = 120;

/// Returns a name as one line without control characters. Of long names, the start and the end are kept.
pub(super) fn shortened(name: &str) -> String {
    let name = printable(name.as_bytes());
    let count = name.chars().count();
    if count <= MAX_NAME {
        return name;
    }
    let (start, end) = (MAX_NAME * 2 / 3, MAX_NAME / 3 - 1);
    let head = name.chars().take(start);
    let tail = name.chars().skip(count.saturating_sub(end));
    head.chain(['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(shortened("a\u{1b}b"), "a\\u{1b}b");
        let long = shortened(&format!("start{}end", "x".repeat(100_000)));
        assert_eq!(long.chars().count(), 120);
        assert!(long.starts_with("startx") && long.ends_with("xend"));
    }
}
