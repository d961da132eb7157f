//! Commands for runtime developers on arbitrary files: `dump` prints each byte once and in order, with a filter no
//! more than without, and `check` prints some offsets of each finding.

use std::convert::Infallible;

use jitdump::{Address, Tally};
use jitinject::internals::results::FileKind;
use jitinject::internals::tools::check::check;
use jitinject::internals::tools::dump::{DumpEntry, EntryFilter, Options, dump};
use jitinject_fuzz::choices::Choices;

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let kinds = [FileKind::Jitdump, FileKind::MonoLog, FileKind::XrayTrace];
    let kind = kinds[usize::from(choices.byte()) % kinds.len()];
    let wanted = choices.byte();
    let with_code = wanted & 4 != 0;
    let filter = EntryFilter {
        name: (wanted & 1 != 0).then(|| b"a".to_vec()),
        address: (wanted & 2 != 0).then(|| Address(choices.u64())),
        times: None,
    };
    let file = choices.rest();

    let (mut end, mut pieces) = (0, 0);
    let all = Options {
        with_code,
        ..Options::default()
    };
    walk(file, kind, &all, |entry| {
        assert_eq!(entry.offset, end, "pieces follow each other");
        end += entry.size;
        pieces += 1;
    });
    assert_eq!(end, file.len() as u64, "each byte is in a piece");

    let (mut end, mut chosen) = (0, 0);
    walk(file, kind, &Options { filter, ..all }, |entry| {
        assert!(entry.offset >= end);
        end = entry.offset + entry.size;
        chosen += 1;
    });
    assert!(chosen <= pieces && end <= file.len() as u64);

    for finding in check(kind, file, b"jit-1.dump", &Tally::default(), &|_| {
        Some(b"a\nb\n".to_vec())
    })
    .findings
    {
        assert!(finding.count >= finding.places.len() as u64 && !finding.places.is_empty());
        // For a truncated log, the offset is that of the missing bytes.
        let is_dump = kind == FileKind::Jitdump && !file.is_empty();
        let end = file.len() as u64 + u64::from(!is_dump);
        assert!(finding.places.iter().all(|place| place.offset < end));
    }
}

/// Dumps a file and formats each entry as text and as JSON.
fn walk(file: &[u8], kind: FileKind, options: &Options, mut see: impl FnMut(&DumpEntry<'_>)) {
    let Ok(()) = dump(file, kind, options, &mut |entry| {
        see(entry);
        assert!(!entry.to_string().is_empty());
        assert!(serde_json::to_value(entry).is_ok_and(|value| value.is_object()));
        Ok::<(), Infallible>(())
    });
}
