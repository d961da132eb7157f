//! Checks of profiles: what jitinject's reader repairs or loses, and what linux-perf-data, the reader of samply and other
//! programs, sees in other ways.
//!
//! ```text
//! file ──► our reader ──► records in file order ──► faults, damage, rounds
//!   │                                          └──► sums of what each record says ─┐
//!   └────► limits ──► linux-perf-data ──► records in time order ──► sums ──────────┴──► differences
//! [limits]            [peer]                                               [seen]
//! ```

mod differences;
mod limits;
mod peer;
mod rounds;
mod seen;

use std::io;

use crate::collections::hash::RandomState;
use crate::files::{InputFile, TempFile};
use crate::perf::record::data::ProfileBytes;
use crate::perf::record::resync::needs_repair;
use crate::perf::sample::Sample;
use crate::perf::{Container, Profile, compression, record};
use crate::results::diagnostics::rules::profile as rules;
use crate::results::diagnostics::{CatalogueEntry, Issue};
use crate::tools::check::findings::{Findings, Place};
use crate::tools::check::profile::limits::Limit;
use crate::tools::check::profile::peer::{Peer, Refusal};
use crate::tools::check::profile::rounds::Rounds;
use crate::tools::check::profile::seen::{Ours, kind_name};

/// Record types in findings.
const HEADER: &str = "header";

/// Checks a file. Returns the number of its records, and the findings. Fails if compressed records cannot be written to
/// a temporary file. Offsets are those in the file, or in the decompressed records.
pub(super) fn check(file: &[u8]) -> io::Result<(u64, Findings)> {
    let mut findings = Findings::default();
    let profile = match Profile::parse(file) {
        Ok(profile) => profile,
        Err(error) => {
            findings.add(&rules::UNREADABLE, 0, || {
                Place::in_record(HEADER).with_message(error.to_string())
            });
            return Ok((0, findings));
        }
    };
    findings.add_faults(&profile.faults, rule_of);
    let expanded = expand(&profile, &mut findings)?;
    let profile = match &expanded {
        Some(expanded) => profile.with_records(ProfileBytes::Memory(expanded)),
        None => profile,
    };
    let walk = walk(&profile, &mut findings);
    if walk.may_be_compared {
        compare(file, &profile, &walk, &mut findings);
    }
    Ok((walk.records, findings))
}

/// Returns the rule for a fault, and the type of record.
fn rule_of(fault: Issue) -> Option<(&'static CatalogueEntry, &'static str)> {
    Some(match fault {
        Issue::ProfileUnfinished => (&rules::UNFINISHED, HEADER),
        Issue::ProfileDataCut => (&rules::CUT, ""),
        Issue::ProfileFeatureLost => (&rules::FEATURE, HEADER),
        Issue::ProfileIdsLost => (&rules::IDS, HEADER),
        Issue::ProfileRecordsCut
        | Issue::ProfileUndecodable
        | Issue::ProfileStreamContinues
        | Issue::ProfileTooLarge => (&rules::COMPRESSION, "COMPRESSED"),
        _ => return None,
    })
}

/// Decompresses the records; `None` if none is compressed.
fn expand(profile: &Profile<'_>, findings: &mut Findings) -> io::Result<Option<InputFile>> {
    let mut records = profile.intact_records();
    loop {
        match records.next() {
            None => return Ok(None),
            Some(record) if record.is_compressed() => break,
            Some(_) => {}
        }
    }
    let mut temp_file = TempFile::create()?;
    let faults = compression::expand(profile.data, profile.endian, &mut temp_file)?;
    findings.add_faults(&faults.offset_by(profile.data_offset), rule_of);
    temp_file.map("".as_ref()).map(Some)
}

/// What a walk over the records finds.
struct ProfileWalk {
    /// Number of records.
    records: u64,
    /// Largest number of bytes that a reader holds to sort the records.
    held: u64,
    /// Whether the records have no damage that another reader could take for records.
    may_be_compared: bool,
}

/// Walks over all records.
fn walk(profile: &Profile<'_>, findings: &mut Findings) -> ProfileWalk {
    let mut count = 0_u64;
    let mut rounds = Rounds::default();
    let mut records = profile.intact_records();
    let endian = profile.endian;
    while let Some(record) = records.next() {
        count = count.saturating_add(1);
        let offset = profile.data_offset.saturating_add(record.offset);
        let place = || Place::in_record(kind_name(record.kind));
        if needs_repair(&record, &profile.attrs, endian) {
            findings.add(&rules::REFUSED, offset, place);
        }
        let event = profile.attrs.event_of(&record, endian);
        if let Some(attr) = event
            && record.kind == record::SAMPLE
            && Sample::parse(&record, attr, endian).is_truncated
        {
            findings.add(&rules::CUT_SAMPLE, offset, place);
        }
        let time = event.filter(|_| record.kind < record::USER_TYPE_START);
        let time = time.and_then(|attr| attr.time_of(&record, endian));
        if let Some(late) = rounds.add(&record, time) {
            findings.add(&rules::ORDER, offset, || {
                place().with_message(format!("{late} ns older than the round"))
            });
        }
    }
    let damage = records.damage();
    findings.add_many(
        &rules::DAMAGE,
        damage.areas,
        profile.data_offset.saturating_add(damage.first_offset),
        || Place::default().with_message(format!("{} bytes", damage.bytes)),
    );
    let mut may_be_compared = damage.is_empty();
    if let Some(end) = records.undecoded() {
        let at = profile.data_offset.saturating_add(end);
        let is_cut = limits::is_cut_record(profile, end);
        let rule = if is_cut { &rules::CUT } else { &rules::DAMAGE };
        let size = profile.data.len().saturating_sub(end);
        findings.add(rule, at, || {
            Place::default().with_message(format!("{size} bytes"))
        });
        may_be_compared &= is_cut;
    }
    ProfileWalk {
        records: count,
        held: rounds.most_held,
        may_be_compared: may_be_compared && !findings.has(&rules::COMPRESSION),
    }
}

/// Compares with what linux-perf-data sees.
fn compare(file: &[u8], profile: &Profile<'_>, walk: &ProfileWalk, findings: &mut Findings) {
    if let Some(limit) = limits::check(file, profile, walk.held) {
        let (rule, message) = match limit {
            Limit::Refused(message) => (&rules::REJECTED, message),
            Limit::TooMuch(message) => (&rules::NOT_COMPARED, message),
            Limit::TracingData(offset) => {
                let offset = profile.data_offset.saturating_add(offset);
                findings.add(&rules::TRACING_DATA, offset, || {
                    Place::in_record(kind_name(record::HEADER_TRACING_DATA))
                });
                return;
            }
        };
        findings.add(rule, 0, || Place::default().with_message(message));
        return;
    }
    let hash = &RandomState::default();
    let peer = Peer {
        file,
        is_pipe: profile.container == Container::Pipe,
        hash,
    };
    match differences::find(&Ours { profile, hash }, &peer) {
        Ok(differences) => {
            for difference in differences {
                let rule = if difference.is_lost {
                    &rules::LOST
                } else {
                    &rules::OTHER_VALUES
                };
                let offset = profile.data_offset.saturating_add(difference.offset);
                findings.add_many(rule, difference.count, offset, || {
                    Place::in_record(difference.record).with_message(difference.message)
                });
            }
        }
        Err(Refusal::Rejected { records, error }) => {
            findings.add(&rules::REJECTED, 0, || {
                Place::default().with_message(match records {
                    0 => error,
                    records => format!("{error}, after {records} of {} records", walk.records),
                })
            });
        }
        Err(Refusal::Crashed(message)) => {
            findings.add(&rules::CRASH, 0, || Place::default().with_message(message));
        }
    }
}
