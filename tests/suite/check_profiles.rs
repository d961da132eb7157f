//! `jitinject check` of profiles: made ones with one fault each, what linux-perf-data must not be given, and `--verify`.

use jitdump::ByteOrder;
use jitinject::internals::tools::check::{CheckReport, CheckedKind, Finding, check_profile};

use crate::check::{json, run};
use crate::check_made::{TestFile, test_file};
use crate::check_rules::ids;
use crate::support::capture;
use crate::support::damage::damage;
use crate::support::generator::Random;
use crate::support::profile::{ProfileWriter, field};
use crate::support::{attempt, codes, said, scratch};

/// Offsets in the header of a file: the size of the records, and the offset of the attributes.
const DATA_SIZE: usize = 48;
const ATTRS: usize = 24;

/// Types of records.
const COMM: u32 = 3;
const MMAP2: u32 = 10;
const TRACING_DATA: u32 = 66;
const AUXTRACE: u32 = 71;
const CPU_MAP: u32 = 74;
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;

/// `HEADER_HOSTNAME` and `HEADER_EVENT_DESC`.
const HOSTNAME: u32 = 3;
const EVENT_DESC: u32 = 12;

/// Returns a profile that breaks no rule, in two rounds.
fn clean(endian: ByteOrder) -> ProfileWriter {
    let mut profile = ProfileWriter::new(endian);
    profile.comm(7, "program", false, 100);
    profile.mmap2(7, 0x1000, 0x2000, 0, "/bin/program", 101);
    add_samples(&mut profile, 110);
    profile.finished_round();
    add_samples(&mut profile, 120);
    profile.finished_round();
    profile
}

fn add_samples(profile: &mut ProfileWriter, start: u64) {
    for time in start..start + 8 {
        profile.sample(7, time, &[0x1100 + time, 0x1200], None);
    }
}

fn changed(rules: &[&'static str], change: impl FnOnce(&mut ProfileWriter)) -> TestFile {
    let mut profile = clean(ByteOrder::Little);
    change(&mut profile);
    test_file(rules, "perf.data", profile.finish())
}

fn edited(rules: &[&'static str], edit: impl FnOnce(&mut Vec<u8>)) -> TestFile {
    let mut file = clean(ByteOrder::Little).finish();
    edit(&mut file);
    test_file(rules, "perf.data", file)
}

fn word(file: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(file[at..at + 8].try_into().unwrap())
}

fn set_word(file: &mut [u8], at: usize, word: u64) {
    file[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Returns a profile with a feature section, whose size in the table is `size`.
fn with_feature(rules: &[&'static str], id: u32, content: Vec<u8>, size: Option<u64>) -> TestFile {
    let mut profile = clean(ByteOrder::Little);
    profile.features.push((id, content));
    let table = profile.head(0).len() + profile.records.len();
    let mut file = profile.finish();
    if let Some(size) = size {
        set_word(&mut file, table + 8, size);
    }
    test_file(rules, "perf.data", file)
}

/// Returns the descriptions of events with these counts.
fn descriptions(events: u32, ids: u32, name: u32) -> Vec<u8> {
    let attr = clean(ByteOrder::Little).attr();
    let mut content = Vec::new();
    content.extend(events.to_le_bytes());
    content.extend((attr.len() as u32).to_le_bytes());
    content.extend(attr);
    content.extend(ids.to_le_bytes());
    content.extend(name.to_le_bytes());
    content.extend([0; 64]);
    content
}

/// Returns profiles with one fault each.
pub fn profiles() -> Vec<TestFile> {
    vec![
        edited(&["PD001"], |file| file.truncate(50)),
        edited(&["PD001"], |file| set_word(file, ATTRS + 8, 0)),
        // Its records are there, but not for linux-perf-data.
        edited(&["PD002", "PD022"], |file| set_word(file, DATA_SIZE, 0)),
        edited(&["PD003", "PD020"], |file| file.truncate(file.len() - 12)),
        changed(&["PD004"], |profile| {
            profile.records.extend([0xff; 40]);
            add_samples(profile, 130);
        }),
        with_feature(&["PD005", "PD020"], HOSTNAME, vec![0; 68], Some(1 << 60)),
        edited(&["PD006"], |file| {
            let ids = word(file, ATTRS) as usize + 128;
            set_word(file, ids + 8, 1 << 40);
        }),
        changed(&["PD007"], |profile| {
            profile.record(COMPRESSED, 0, b"\x28\xb5\x2f\xfd is damaged")
        }),
        changed(&["PD008"], |profile| profile.record(CPU_MAP, 0, &[0; 12])),
        // A call chain of 99 addresses that has only 3. An unknown field makes the end of samples unknown.
        changed(&["PD009"], |profile| {
            profile.sample_type |= 1 << 40;
            profile.sample(7, 130, &[0x1100, 0x1200], None);
            let length = profile.records.len() - 4 * 8;
            set_word(&mut profile.records, length, 99);
        }),
        changed(&["PD010"], |profile| add_samples(profile, 100)),
        changed(&["PD020"], |profile| profile.config = 99),
        changed(&["PD020"], |profile| profile.clock = Some(11)),
        with_feature(&["PD020"], EVENT_DESC, descriptions(u32::MAX, 0, 64), None),
        with_feature(&["PD020"], EVENT_DESC, descriptions(1, u32::MAX, 64), None),
        with_feature(&["PD020"], EVENT_DESC, descriptions(1, 0, u32::MAX), None),
        // A build ID of 200 bytes.
        changed(&["PD021"], |profile| {
            let mut body = vec![0; 64 + 8 + 24];
            body[32] = 200;
            profile.record(MMAP2, 1 << 14 | 2, &body);
        }),
        // AUX data beyond the end.
        changed(&["PD004"], |profile| {
            let mut body = [0; 40];
            body[..8].copy_from_slice(&(1_u64 << 50).to_le_bytes());
            profile.record(AUXTRACE, 0, &body);
        }),
        big_endian(),
        {
            let mut profile = clean(ByteOrder::Little);
            profile.record(TRACING_DATA, 0, &16_u32.to_le_bytes());
            profile.records.extend([1; 16]);
            add_samples(&mut profile, 130);
            test_file(&["PD024"], "perf.data", profile.finish_pipe())
        },
        {
            let mut profile = ProfileWriter::new(ByteOrder::Little);
            profile.sample_type |= field::IDENTIFIER;
            profile.ids = (1..=5000).collect();
            add_samples(&mut profile, 110);
            test_file(&["PD025"], "perf.data", profile.finish_pipe())
        },
    ]
}

/// linux-perf-data reads the flags of attributes in the wrong order, so that it finds no times of mappings.
fn big_endian() -> TestFile {
    test_file(&["PD023"], "perf.data", clean(ByteOrder::Big).finish())
}

fn check(file: &[u8]) -> CheckReport {
    check_profile(file).unwrap()
}

#[test]
fn each_rule_of_profiles_finds_what_is_made_for_it_and_nothing_else() {
    let mut mismatches = Vec::new();
    for (number, made) in profiles().into_iter().enumerate() {
        let report = check(&made.file);
        if ids(&report) != made.rules {
            mismatches.push(format!("{number}, not {:?}: {:#?}", made.rules, report.findings));
        }
        let mut places = report.findings.iter().flat_map(|finding| &finding.places);
        assert!(places.all(|place| place.offset <= made.file.len() as u64));
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

#[test]
fn a_clean_profile_breaks_no_rule_in_a_file_and_in_a_pipe() {
    let mut several = clean(ByteOrder::Little);
    several.features.push((EVENT_DESC, descriptions(1, 0, 64)));
    let profile = clean(ByteOrder::Little);
    for (file, records) in [
        (profile.finish(), 20),
        (several.finish(), 20),
        (profile.finish_pipe(), 21),
    ] {
        let report = check(&file);
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        assert_eq!((report.kind, report.records), (CheckedKind::Profile, records));
    }
}

/// Returns the only finding in a file.
fn finding(file: &[u8]) -> Finding {
    let mut findings = check(file).findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}

#[test]
fn the_first_record_with_other_values_is_named_with_them() {
    let made = big_endian();
    let found = finding(&made.file);
    // A COMM and an MMAP2 record.
    assert_eq!(found.count, 2);
    let places = found.places.iter();
    let named: Vec<_> = places.map(|place| (place.record, &*place.message)).collect();
    assert_eq!(
        named,
        [("COMM", "time none, not 100"), ("MMAP2", "time none, not 101")]
    );
    let first = found.places[0].offset as usize;
    assert_eq!(made.file[first..first + 4], COMM.to_be_bytes());
}

/// Without descriptions of the events, it does not read their IDs.
#[test]
fn samples_of_another_event_are_other_values() {
    let mut profile = clean(ByteOrder::Little);
    profile.sample_type |= field::IDENTIFIER;
    profile.records.clear();
    profile.ids = vec![70, 71];
    add_samples(&mut profile, 110);
    profile.ids = vec![71, 70];
    add_samples(&mut profile, 130);
    profile.ids = vec![70, 71];
    let found = finding(&profile.finish());
    assert_eq!((found.rule.id, found.count), ("PD023", 8));
    assert_eq!(found.places[0].message, "event 0, not 1");
}

#[test]
fn late_records_are_those_older_than_a_finished_round() {
    let mut profile = clean(ByteOrder::Little);
    // The latest sample of the first round is of 117.
    for time in [116, 117, 118] {
        profile.sample(7, time, &[0x1100], None);
    }
    let found = finding(&profile.finish());
    assert_eq!((found.rule.id, found.count), ("PD010", 1));
    assert_eq!(found.places[0].record, "SAMPLE");
    assert!(found.places[0].message.starts_with("1 ns"), "{found:?}");
}

/// It looks for each feature among all others.
#[test]
fn linux_perf_data_gets_no_profile_that_would_take_too_long() {
    let profile = clean(ByteOrder::Little);
    let pipe = profile.finish_pipe();
    let start = pipe.len() - profile.records.len();
    let mut features = ProfileWriter::new(ByteOrder::Little);
    for id in 30..400_u64 {
        features.record(HEADER_FEATURE, 0, &[id.to_le_bytes(), [1; 8]].concat());
    }
    let pipe = [&pipe[..start], &features.records, &pipe[start..]].concat();
    // Feature IDs above 255 are an error, too.
    assert_eq!(ids(&check(&pipe)), ["PD005", "PD025"]);
}

#[test]
fn damaged_profiles_are_checked_to_their_end() {
    let mut random = Random::new(11);
    let mut pipe = clean(ByteOrder::Little);
    pipe.sample_type |= field::IDENTIFIER;
    pipe.ids = vec![7];
    let mut described = clean(ByteOrder::Little);
    described.features.push((EVENT_DESC, descriptions(1, 0, 64)));
    let zstd = std::fs::read(capture::profile("node20-zstd")).unwrap();
    let files = [pipe.finish_pipe(), described.finish(), zstd];
    let mut rules = std::collections::BTreeSet::new();
    for (file, rounds) in files.iter().zip([400, 400, 30]) {
        for _ in 0..rounds {
            let mut file = file.clone();
            damage(&mut file, &mut random);
            rules.extend(ids(&check(&file)));
        }
    }
    assert!(rules.len() > 8, "{rules:?}");
}

#[test]
fn profiles_are_checked_from_standard_input_and_in_folders_without_a_word_of_the_panic() {
    let folder = scratch();
    let crash = profiles()
        .into_iter()
        .find(|made| made.rules == ["PD021"])
        .unwrap();
    let path = folder.path().join("perf.data");
    std::fs::write(&path, &crash.file).unwrap();
    let path = path.to_str().unwrap();
    let (named, output) = json(&[path]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said(&output), "");
    let file = &named["files"][0];
    assert_eq!(file["kind"], "profile");
    let finding = &file["findings"][0];
    assert_eq!(finding["rule"], "PD021");
    let message = finding["places"][0]["message"].as_str().unwrap();
    assert!(message.contains("build_id_len <= 20"), "{message}");
    let (in_folder, _) = json(&[folder.path().to_str().unwrap()]);
    assert_eq!(in_folder["files"], named["files"]);
    let output = crate::support::jitinject()
        .args(["check", "--json", "-"])
        .stdin(std::fs::File::open(path).unwrap())
        .output()
        .unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["files"][0]["findings"], named["files"][0]["findings"]);
    let output = run(&[path]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("error[PD021]"));
}

#[test]
fn outputs_of_all_recordings_are_verified() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let others = capture::OTHER_FORMATS.into_iter().chain(capture::FOREIGN);
    for name in capture::WITH_TRUTH.into_iter().chain(others) {
        let compressed = ["--verify", "--compress"];
        let more = &compressed[..1 + usize::from(name.ends_with("dwarf"))];
        let ran = attempt(&capture::profile(name), &output, more);
        assert_eq!(ran.status.code(), Some(0), "{name}: {}", said(&ran));
        let said = said(&ran);
        assert!(said.contains(" records, 0 errors, 0 warnings"), "{name}: {said}");
    }
}

#[test]
fn an_output_with_errors_is_a_failure() {
    let folder = scratch();
    let input = folder.path().join("perf.data");
    let output = folder.path().join("out.data");
    let mut profile = clean(ByteOrder::Little);
    profile.config = 99;
    std::fs::write(&input, profile.finish()).unwrap();
    assert_eq!(attempt(&input, &output, &[]).status.code(), Some(0));
    let ran = attempt(&input, &output, &["--verify"]);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(said(&ran).contains("error[PD020]"), "{}", said(&ran));
    let ran = attempt(&input, &output, &["--verify", "-q"]);
    assert_eq!(said(&ran).lines().count(), 1, "{}", said(&ran));
    // A stream cannot be read again.
    let ran = attempt(&input, "-".as_ref(), &["--verify"]);
    assert_eq!(ran.status.code(), Some(2));
    assert_eq!(codes(&said(&ran)), [] as [&str; 0]);
}
