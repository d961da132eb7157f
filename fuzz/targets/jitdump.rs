//! Arbitrary jitdumps: functions are read, their lines are consistent, and everything unused is reported.

use jitdump::debug_info::{DebugInfo, MAX_DEPTH};
use jitdump::{Change, CodeEvent, Dump};
use jitinject_fuzz::choices::Choices;

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let machine = choices.machine();
    let file = choices.rest();
    let Ok(dump) = Dump::parse(file, machine) else {
        return;
    };
    assert!(dump.events().is_sorted_by_key(|event| event.time));
    let mut bytes = 0;
    for event in dump.events() {
        let range = dump.range(event.function).expect("a function with code");
        let view = dump.function(event.function).expect("a function that is there");
        let code = view.code.expect("the code of a function in a dump");
        assert_eq!(code.len() as u64, range.size());
        if let CodeEvent {
            change: Change::Move { to, .. },
            ..
        } = event
        {
            assert!(to.checked_add(range.size()).is_some());
            continue;
        }
        assert!(!view.name.contains(&0));
        bytes += code.len();
        if let Some(info) = view.sources().info {
            check(&info, code.len() as u32);
        }
        let _ = view.tier();
    }
    assert!(bytes <= file.len(), "no two functions share their code");
}

/// Checks the guarantees of [`DebugInfo::normalise`].
fn check(info: &DebugInfo<'_>, size: u32) {
    let has_file = |file: Option<u32>| file.is_none_or(|file| (file as usize) < info.files.len());
    assert!(!info.functions.is_empty());
    assert!(info.functions.iter().all(|function| has_file(function.file)));
    assert!(info.rows.is_sorted_by(|a, b| a.offset < b.offset));
    for row in &info.rows {
        assert!(row.offset < size && has_file(row.file));
    }
    // The ranges of each call and its callers.
    let mut open = vec![(vec![0..size], Vec::new())];
    for call in &info.calls {
        let depth = call.depth as usize;
        assert!(depth < open.len() && call.depth < MAX_DEPTH);
        assert!((call.function as usize) < info.functions.len());
        open.truncate(depth + 1);
        assert!(!call.ranges.is_empty());
        let (caller, siblings) = open.last_mut().unwrap();
        let mut end = 0;
        for range in &call.ranges {
            assert!(end <= range.start && range.start < range.end);
            end = range.end;
            assert!(
                caller
                    .iter()
                    .any(|it| it.start <= range.start && range.end <= it.end)
            );
            let overlaps = |it: &std::ops::Range<u32>| it.start < range.end && range.start < it.end;
            assert!(!siblings.iter().any(overlaps));
        }
        siblings.extend(call.ranges.iter().cloned());
        open.push((call.ranges.clone(), Vec::new()));
    }
}
