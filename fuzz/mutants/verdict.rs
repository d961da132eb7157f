//! Evaluates a run.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::cases::Case;
use crate::intact;
use crate::oracle::{self, Expected};
use crate::pieces::Pieces;
use crate::profile::{Frame, Profile};
use crate::programs::End;

/// Results of a run.
pub struct Ran {
    pub end: End,
    pub said: String,
    /// Warnings in its summary: code, file and count.
    pub warnings: HashSet<(String, String, u64)>,
    /// Its output, if it can be parsed.
    output: Option<Profile>,
    /// Directory of its objects.
    objects: Vec<u8>,
}

impl Ran {
    pub fn read(end: End, said: String, output: &str, summary: Option<&Path>) -> Self {
        let bytes = fs::read(output).ok();
        Self {
            end,
            said,
            warnings: summary.and_then(warnings).unwrap_or_default(),
            output: bytes.and_then(|bytes| Profile::read(&bytes)),
            objects: format!("{output}.elf/").into_bytes(),
        }
    }
}

fn warnings(summary: &Path) -> Option<HashSet<(String, String, u64)>> {
    let summary: serde_json::Value = serde_json::from_slice(&fs::read(summary).ok()?).ok()?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let diagnostics = summary.get("diagnostics")?.as_array()?.iter();
    let warnings = diagnostics
        .filter(|it| it["severity"] == "warning")
        .map(|warning| {
            let count = warning["count"].as_u64().unwrap_or(0);
            (text(&warning["code"]), text(&warning["file"]), count)
        });
    Some(warnings.collect())
}

/// Evaluation of a run.
pub struct Verdict {
    end: End,
    has_panicked: bool,
    /// Whether there is an output that can be parsed.
    has_output: bool,
    /// Number of frames in functions with intact records whose addresses no damaged record claims.
    pub expected: u64,
    /// Number of those frames that have the right name in the output.
    pub named: u64,
    /// The other frames, with their names in the output.
    pub lost: Vec<(Expected, Option<Vec<u8>>)>,
    /// Number of frames without a name in functions with truncated or extended records.
    torn: u64,
    /// Whether it printed anything that it does not print for the valid files.
    pub is_reported: bool,
    /// Whether the profile was damaged.
    pub is_profile_damaged: bool,
    /// Whether all dumps are valid.
    has_sound_dumps: bool,
    /// Whether the output has a record at which perf stops.
    stops_perf: bool,
}

/// Compares the results of a run with the expected ones.
pub fn of(
    case: &Case,
    profile: &Pieces,
    dumps: &[Pieces],
    ran: &Ran,
    sound: &HashSet<(String, String, u64)>,
) -> Verdict {
    let whole: Vec<HashSet<usize>> = case.dumps.iter().zip(dumps).map(|it| whole(it.0, it.1)).collect();
    let claims = claims(&case.dumps, dumps);
    let is_whole = |&(file, record): &(usize, usize)| whole[file].contains(&record);
    let is_claimed = |address: u64| {
        claims
            .iter()
            .any(|&(start, size)| address.wrapping_sub(start) < size)
    };
    let is_profile_damaged = profile.bytes() != case.profile.bytes();
    let in_profile = is_profile_damaged.then(|| intact::of(case, profile)).flatten();
    let mut expected: Vec<&Expected> = case.expected.iter().collect();
    expected.retain(|it| {
        it.records.iter().all(is_whole)
            && !is_claimed(it.frame.address)
            && in_profile
                .as_ref()
                .is_none_or(|intact| intact.has(it.frame.pid, it.frame.time))
    });
    if is_profile_damaged && in_profile.is_none() {
        expected.clear();
    }
    let torn = if is_profile_damaged {
        Vec::new()
    } else {
        torn(case, dumps)
    };
    let frames: Vec<_> = expected.iter().map(|it| it.frame).collect();
    let is_object = |path: &[u8]| path.starts_with(&ran.objects) || jitted(path);
    let names_of = |frames: &[Frame]| match &ran.output {
        Some(output) => output.names(frames, is_object),
        None => vec![None; frames.len()],
    };
    let names = names_of(&frames);
    let is_named =
        |it: &Expected, name: &Option<Vec<u8>>| name.as_ref().is_some_and(|name| same(name, &it.name));
    let lost: Vec<_> = expected
        .iter()
        .zip(names)
        .filter(|(it, name)| !is_named(it, name))
        .map(|(it, name)| ((*it).clone(), name))
        .collect();
    Verdict {
        end: ran.end.clone(),
        has_panicked: ran.said.contains("panicked"),
        has_output: ran.output.is_some(),
        expected: expected.len() as u64,
        named: (expected.len() - lost.len()) as u64,
        lost,
        torn: names_of(&torn).iter().filter(|name| name.is_none()).count() as u64,
        is_reported: ran.end != End::Status(0) || ran.warnings.iter().any(|warning| !sound.contains(warning)),
        is_profile_damaged,
        has_sound_dumps: case
            .dumps
            .iter()
            .zip(dumps)
            .all(|(before, after)| before.bytes() == after.bytes()),
        stops_perf: ran.output.as_ref().is_some_and(|output| output.stops_perf),
    }
}

/// Symbols are escaped if they contain control characters for terminals.
fn same(found: &[u8], name: &[u8]) -> bool {
    found == name || !name.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Returns whether perf inject wrote a file.
fn jitted(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name.starts_with(b"jitted-")
}

/// Returns the unchanged records of a file.
pub fn whole(before: &Pieces, after: &Pieces) -> HashSet<usize> {
    let originals: std::collections::HashMap<_, _> = before
        .pieces
        .iter()
        .filter_map(|it| Some((it.record?, &it.bytes)))
        .collect();
    let records = after.pieces.iter().filter_map(|it| Some((it.record?, &it.bytes)));
    let whole = records.filter(|(record, bytes)| originals.get(record) == Some(bytes));
    whole.map(|(record, _)| record).collect()
}

/// Returns the frames in functions whose records were truncated or extended, and are not all zeros, as reserved
/// space is. With other damage, the actual content of the record is unknown.
fn torn(case: &Case, dumps: &[Pieces]) -> Vec<Frame> {
    let mut torn = HashSet::new();
    for (file, (before, after)) in case.dumps.iter().zip(dumps).enumerate() {
        for piece in &after.pieces {
            let original = before.pieces.iter().find(|it| it.record == piece.record);
            let is_torn = original.is_some_and(|it| it.bytes.len() != piece.bytes.len());
            let is_there = piece.bytes.iter().any(|&byte| byte != 0);
            if let (Some(record), true, true) = (piece.record, is_torn, is_there) {
                torn.insert((file, record));
            }
        }
    }
    let frames = case.expected.iter();
    let frames = frames.filter(|it| it.records.iter().any(|record| torn.contains(record)));
    frames.map(|it| it.frame).collect()
}

/// Returns the addresses in damaged records.
fn claims(before: &[Pieces], after: &[Pieces]) -> Vec<(u64, u64)> {
    let mut claims = Vec::new();
    for (before, after) in before.iter().zip(after) {
        let whole = whole(before, after);
        let damaged = after.pieces.iter();
        let damaged = damaged.filter(|it| it.record.is_some_and(|record| !whole.contains(&record)));
        claims.extend(damaged.filter_map(|it| oracle::claims(&it.bytes, after.endian)));
    }
    claims
}

impl Verdict {
    /// Returns the exit status or signal as text.
    pub fn end_text(&self) -> String {
        match &self.end {
            End::Status(status) => format!("status {status}"),
            End::Signal(signal) => format!("signal {signal}"),
            End::TimeOut => "time-out".into(),
        }
    }

    /// Returns what is wrong.
    pub fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        let may_fail = self.is_profile_damaged;
        match self.end {
            End::Status(0) if self.has_output => {}
            End::Status(0) => findings.push("status 0 without an output that can be read".into()),
            End::Status(1) if may_fail && !self.has_panicked => {}
            _ => findings.push(self.end_text()),
        }
        if self.has_panicked {
            findings.push("a panic".into());
        }
        if self.torn > 0 && !self.is_reported {
            findings.push(format!(
                "{} frames in functions with torn records lost without a word",
                self.torn
            ));
        }
        if self.stops_perf {
            findings.push("an output with a record of a type that perf stops at".into());
        }
        // Damage in a profile must not affect what is intact in it.
        let must_have_all = self.is_profile_damaged && self.has_sound_dumps && self.has_output;
        if let (Some((first, name)), true) = (self.lost.first(), must_have_all || !self.is_reported) {
            findings.push(format!(
                "{} frames lost {}, the first {:x?} of {:?} as {:?}",
                self.lost.len(),
                if self.is_reported {
                    "behind damage in the profile"
                } else {
                    "without a word"
                },
                first.frame,
                String::from_utf8_lossy(&first.name),
                name.as_deref().map(String::from_utf8_lossy)
            ));
        }
        findings
    }
}
