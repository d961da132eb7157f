use super::*;

const ORDER: ByteOrder = ByteOrder::Little;

fn record(kind: u32, time: u64, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    ORDER.write_u32(&mut out, kind);
    ORDER.write_u32(&mut out, (PREFIX_SIZE + content.len()) as u32);
    ORDER.write_u64(&mut out, time);
    out.extend_from_slice(content);
    out
}

fn load(time: u64, code: &[u8]) -> Vec<u8> {
    named_load(time, "name", code)
}

fn named_load(time: u64, name: &str, code: &[u8]) -> Vec<u8> {
    let mut content = vec![0; 24];
    ORDER.write_u64(&mut content, code.len() as u64);
    ORDER.write_u64(&mut content, time);
    content.extend_from_slice(name.as_bytes());
    content.push(0);
    content.extend_from_slice(code);
    record(LOAD, time, &content)
}

fn walk(file: &[u8]) -> Vec<Step<'_>> {
    Records::new(file, 0, ORDER).collect()
}

fn times(steps: &[Step<'_>]) -> Vec<u64> {
    let records = steps.iter().filter_map(|step| step.record());
    records.map(|record| record.time).collect()
}

#[test]
fn loads_smaller_than_their_name_and_code_are_repaired_if_records_follow() {
    let rest = [load(3, b"d"), record(CLOSE, 4, b"")].concat();
    for size in [0, 7, 16, 40, 61, 63] {
        for padding in [&b""[..], &[0; 7], &[0; 8]] {
            let mut small = [load(2, b"abc"), padding.to_vec()].concat();
            small[4..8].copy_from_slice(&u32::to_le_bytes(size));
            let file = [load(1, b"abc"), small.clone(), rest.clone()].concat();
            let steps = walk(&file);
            let Step::Repaired(repaired) = steps[1] else {
                assert_eq!(padding.len(), 8, "{size} {steps:?}");
                continue;
            };
            assert!(padding.len() <= 7, "{size} {steps:?}");
            assert_eq!(PREFIX_SIZE + repaired.content.len(), small.len(), "{size}");
            assert_eq!(times(&steps), [1, 2, 3, 4]);
        }
    }
}

#[test]
fn small_loads_with_names_of_up_to_64_kib_are_repaired() {
    for (length, is_repaired) in [(65_536, true), (65_537, false)] {
        let mut small = named_load(1, &"x".repeat(length), b"abc");
        small[4..8].copy_from_slice(&u32::to_le_bytes(16));
        let file = [small, load(2, b"d"), load(3, b"e"), load(4, b"f")].concat();
        let steps = walk(&file);
        assert_eq!(matches!(steps[0], Step::Repaired(_)), is_repaired, "{length}");
        assert!(times(&steps).ends_with(&[2, 3, 4]), "{length}");
    }
}

#[test]
fn unknown_records_are_passed_by_their_size() {
    let file = [
        load(1, b"abc"),
        record(77, 2, b"what"),
        record(78, 3, b""),
        record(CLOSE, 4, b""),
    ];
    let steps = file.concat();
    assert_eq!(times(&walk(&steps)), [1, 2, 3, 4]);
}

#[test]
fn sizes_of_moves_and_closes_are_known() {
    let load = [load(1, b"abc"), load(2, b"abcd"), load(3, b"x")].concat();
    for (kind, content) in [(MOVE, &[7; 48][..]), (CLOSE, &[])] {
        let mut wrong = record(kind, 4, content);
        wrong[4..8].copy_from_slice(&(PREFIX_SIZE as u32 + content.len() as u32 - 4).to_le_bytes());
        let file = [&load[..], &wrong, &load].concat();
        let steps = walk(&file);
        assert_eq!(times(&steps), [1, 2, 3, 4, 1, 2, 3]);
        let Step::Repaired(repaired) = steps[3] else {
            panic!("{:?}", steps[3])
        };
        assert_eq!((repaired.kind, repaired.content), (kind, content));
    }
}

#[test]
fn a_cut_tail_keeps_all_that_is_whole() {
    let whole = [load(1, b"abc"), load(2, b"abcd")].concat();
    for cut in 1..load(3, b"xyz").len() {
        let file = [whole.clone(), load(3, b"xyz")[..cut].to_vec()].concat();
        let steps = walk(&file);
        assert_eq!(times(&steps), [1, 2], "cut after {cut} bytes");
        let last = Step::CutTail {
            offset: whole.len() as u64,
        };
        assert!(
            cut < 8 || steps.last() == Some(&last),
            "cut after {cut} bytes: {steps:?}"
        );
    }
}

#[test]
fn the_walk_goes_on_behind_damage() {
    let head = [load(1, b"abc"), load(2, b"abcd")].concat();
    let tail = [load(3, b"e"), load(4, &[0; 300]), record(CLOSE, 5, b"")].concat();
    for junk in [
        &b"junk"[..],
        &[0; 5000],
        &[0xff; 33],
        &load(9, b"torn in the middle")[7..],
    ] {
        let file = [&head, junk, &tail].concat();
        let steps = walk(&file);
        assert_eq!(times(&steps), [1, 2, 3, 4, 5]);
        let damage = Step::Damage {
            offset: head.len() as u64,
            size: junk.len() as u64,
        };
        assert!(steps.contains(&damage), "{steps:?}");
    }
}

#[test]
fn three_valid_records_are_enough_after_damage_and_two_are_not() {
    let loads = |times: &[u64]| times.iter().flat_map(|&time| load(time, b"abc")).collect();
    let file: Vec<Vec<u8>> = vec![
        loads(&[1, 2]),
        vec![0xff; 33],
        loads(&[8, 9]),
        vec![0xff; 33],
        loads(&[3, 4, 5]),
        vec![0xff; 33],
        loads(&[6, 7]),
    ];
    assert_eq!(times(&walk(&file.concat())), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn times_after_damage_are_within_thirteen_days() {
    let far = 2 + (1 << 50);
    let records = [far, far - 1, far - 2].map(|time| load(time, b"abc"));
    let file = [load(1, b"abc"), load(2, b"abc"), vec![0xff; 33], records.concat()].concat();
    assert_eq!(times(&walk(&file)), [1, 2, far - 1, far - 2]);
}

#[test]
fn a_size_that_lies_does_not_hide_the_records_behind_it() {
    let first = load(1, b"abc");
    let rest = [load(2, b"d"), load(3, b"e"), load(4, b"f"), load(5, b"g")].concat();
    for size in [
        0,
        1,
        15,
        first.len() as u32 + 60,
        (first.len() + load(2, b"d").len()) as u32,
        first.len() as u32 + 100,
        u32::MAX,
    ] {
        let mut file = [first.clone(), rest.clone()].concat();
        file[4..8].copy_from_slice(&size.to_le_bytes());
        let steps = walk(&file);
        let found = times(&steps);
        assert!(found.ends_with(&[2, 3, 4, 5]), "size {size}: {found:?}");
        if let Step::Repaired(record) = steps[0] {
            assert_eq!(record.content, &first[PREFIX_SIZE..]);
        }
    }
}

/// Each record is valid, but the unknown one of time 0 after it does not resemble it.
#[test]
fn records_that_do_not_look_alike_cost_no_more_than_others() {
    let late = 1 << 60;
    let pair = [load(late, b"abc"), record(99, 0, b"unknown")].concat();
    let file = pair.repeat(20_000);
    assert_eq!(walk(&file).len(), 40_000);
}

#[test]
fn space_set_aside_at_the_end_is_no_damage() {
    let file = [load(1, b"abc"), vec![0; 4096]].concat();
    assert_eq!(walk(&file).len(), 1);
}

#[test]
fn a_record_whose_content_lies_is_still_a_record() {
    let mut bad = load(2, b"abc");
    // `code_size`
    bad[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
    let file = [load(1, b"abc"), bad, load(3, b"abc")].concat();
    assert_eq!(times(&walk(&file)), [1, 2, 3]);
}

/// Lines look like records: a MOVE, or a CLOSE, before another record that the file ends in.
#[test]
fn lines_in_a_cut_tail_are_no_records() {
    let whole = [load(1, b"abc"), load(2, b"abcd")].concat();
    let mut content = vec![0; 8];
    ORDER.write_u64(&mut content, 100);
    for (kind, size) in [(MOVE, MOVE_SIZE), (CLOSE, CLOSE_SIZE)] {
        let mut bogus = record(kind, 3, &vec![7; size - PREFIX_SIZE]);
        bogus.extend(&record(DEBUG_INFO, 3, &[0; 1000])[..40]);
        let mut tail = record(DEBUG_INFO, 3, &[&content[..], &bogus, &[7; 2000]].concat());
        tail.truncate(PREFIX_SIZE + content.len() + bogus.len());
        let file = [&whole[..], &tail].concat();
        let steps = walk(&file);
        assert_eq!(times(&steps), [1, 2], "{kind} {steps:?}");
        let offset = whole.len() as u64;
        assert_eq!(steps[2..], [Step::CutTail { offset }], "{kind}");
        // The record may also have a wrong size.
        let file = [&file[..], &load(4, b"a"), &load(5, b"b"), &load(6, b"c")].concat();
        assert_eq!(times(&walk(&file)), [1, 2, 4, 5, 6], "{kind}");
    }
}

#[test]
fn moves_have_no_more_than_padding_after_their_fields() {
    for (size, is_move) in [(47, false), (48, true), (55, true), (56, false)] {
        let moved = record(MOVE, 1, &vec![0; size]);
        let found = Records::new(&moved, 0, ORDER).next_by_itself();
        assert_eq!(found.is_some(), is_move, "{size}");
    }
}
