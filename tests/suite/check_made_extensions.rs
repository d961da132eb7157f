//! Dumps with one fault each in records of samply's extensions, and the rules that they break.

use crate::check_made::{KNOWN_FILE, ORDER, SIZE, TestFile, with};
use crate::support::debug_lists::Lists;

/// Types of samply's records: DEBUG_INFO2 with lists, and with positions.
const NUMBER_OF_LISTS: u32 = 827_346_259;
pub const NUMBER_OF_POSITIONS: u32 = 827_346_260;
/// Type of records with the text of a source file.
const EMBEDDED_SOURCE_FILE: u32 = 827_346_261;
/// Type of SOURCE_TRACK records.
const NUMBER_OF_TRACKS: u32 = 827_346_262;

/// Returns the content of a DEBUG_INFO2 record for the function at 0x3000, with a position at an inlining depth.
pub fn positions(depth: u32) -> Vec<u8> {
    let mut content = Vec::new();
    for word in [0x3000, 1, u64::from(depth) + 1, 2] {
        ORDER.write_u64(&mut content, word);
    }
    for word in [0, depth] {
        ORDER.write_u32(&mut content, word);
    }
    for position in 0..=depth {
        let caller = position.wrapping_sub(1);
        for word in [caller, 0, 1, 1, 1, position + 1, 1] {
            ORDER.write_u32(&mut content, word);
        }
    }
    content.extend(b"f\0/src/a.c\0");
    content
}

/// Returns the content of a DEBUG_INFO2 record with six lists: one file, and one line.
fn list_content() -> Vec<u8> {
    let file = b"/src/abc.c\0\0";
    let mut content = Vec::new();
    for number in [1, file.len() as u32, 0, 0, 0, 0, 0, 1] {
        ORDER.write_u32(&mut content, number);
    }
    content.extend(file);
    for number in [0, 0, 7, 0] {
        ORDER.write_u32(&mut content, number);
    }
    content
}

/// Returns dumps with records of each kind.
pub fn extensions() -> Vec<TestFile> {
    let record = |rules: &[&'static str], kind: u32, content: &[u8]| {
        with(rules, |clean| {
            clean.record(kind, content);
            clean.function(0x3000);
        })
    };
    vec![
        record(&["JD084", "JD086"], NUMBER_OF_POSITIONS, &positions(100)),
        record(&["JD086"], NUMBER_OF_POSITIONS, &positions(3)),
        record(&["JD086", "JD087"], NUMBER_OF_POSITIONS, &[0xff; 16]),
        record(&["JD086", "JD088"], NUMBER_OF_LISTS, &positions(3)),
        record(&["JD086", "JD088"], NUMBER_OF_POSITIONS, &list_content()),
        record(&["JD086"], NUMBER_OF_LISTS, &list_content()),
        with(&["JD086"], |clean| {
            clean.track(0x3000);
            clean.function(0x3000);
        }),
        with(&["JD071", "JD086"], |clean| clean.track(0x3000)),
        record(&["JD086", "JD087"], NUMBER_OF_TRACKS, &[0xff; 16]),
        with(&["JD086", "JD089"], |clean| {
            clean.record(NUMBER_OF_POSITIONS, b"Baseline\0");
            clean.record(NUMBER_OF_POSITIONS, b"Optimizing\0");
            clean.function(0x3000);
        }),
    ]
}

/// Returns dumps with a DEBUG_INFO2 record in lists, which samply does not read.
pub fn lists() -> Vec<TestFile> {
    let record = |rule: &'static str, lists: &Lists| {
        with(&[rule, "JD086"], |clean| {
            clean.record(NUMBER_OF_LISTS, &lists.content(ORDER));
            clean.function(0x3000);
        })
    };
    let changed = |rule: &'static str, change: &dyn Fn(&mut Lists)| {
        let mut lists = Lists::new();
        change(&mut lists);
        record(rule, &lists)
    };
    let positions_of = |rules: &[&'static str], functions: &[u64]| {
        with(rules, |clean| {
            clean.record(NUMBER_OF_POSITIONS, &positions(0));
            functions.iter().for_each(|&start| clean.function(start));
        })
    };
    vec![
        with(&["JD086"], |clean| {
            clean.record(NUMBER_OF_LISTS, &Lists::new().content(ORDER));
            clean.function(0x3000);
        }),
        changed("JD062", &|lists| {
            lists.functions[1][1] = 0;
            (lists.calls, lists.ranges) = (vec![[0, 1, 1, 1, 0]], vec![[4, 8]]);
        }),
        with(&["JD063", "JD086"], |clean| {
            clean.record(NUMBER_OF_LISTS, &Lists::new().content(ORDER));
            clean.record(NUMBER_OF_POSITIONS, &positions(0));
            clean.function(0x3000);
        }),
        with(&["JD064", "JD086"], |clean| {
            clean.record(NUMBER_OF_LISTS, &Lists::new().with_sizes(ORDER, |size| size));
            clean.function(0x3000);
        }),
        changed("JD065", &|lists| lists.lines[1][1] = 1),
        changed("JD066", &|lists| lists.functions[0][0] = 7),
        changed("JD066", &|lists| lists.functions[1][1] = 7),
        changed("JD067", &|lists| lists.files[0] = b"/src/\xff.c"),
        changed("JD067", &|lists| lists.names[1] = b"\xff"),
        with(&["JD068", "JD086"], |clean| {
            clean.track(0x3000);
            clean.track(0x3000);
            clean.function(0x3000);
        }),
        changed("JD069", &|lists| lists.files[0] = KNOWN_FILE),
        // The text in the dump decides, and not the file of that name, which has two lines.
        with(&["JD086"], |clean| {
            clean.record(EMBEDDED_SOURCE_FILE, b"/here/a.js\0a\nb\nc\nd\ne\nf\n");
            clean.function_with(0x3000, &[(0, 6, KNOWN_FILE), (SIZE as i64, 0, b"")]);
        }),
        with(&["JD069", "JD086"], |clean| {
            clean.record(EMBEDDED_SOURCE_FILE, b"/src/e.c\0a\nb\n");
            clean.function_with(0x3000, &[(0, 6, b"/src/e.c"), (SIZE as i64, 0, b"")]);
        }),
        positions_of(&["JD072", "JD086"], &[0x4000, 0x3000]),
        positions_of(&["JD085", "JD086"], &[0x4000]),
        changed("JD075", &|lists| lists.lines[1][2] = (1 << 24) + 1),
        changed("JD075", &|lists| lists.files[0] = b"/src/\n.c"),
        changed("JD077", &|lists| lists.lines[1][0] = SIZE as u32 + 8),
        changed("JD078", &|lists| lists.lines.reverse()),
        changed("JD081", &|lists| lists.files[0] = b"a.c"),
        changed("JD083", &|lists| lists.files[0] = b""),
        changed("JD084", &|lists| lists.ranges = vec![[4, 8]]),
    ]
}
