//! Checks of a jitdump's header and file name.

use std::ops::RangeInclusive;

use jitdump::internals::format::header;
use jitdump::internals::format::marker::pid_in_name;
use jitdump::{Dump, Header};

use crate::results::diagnostics::CatalogueEntry;
use crate::results::diagnostics::rules::jitdump as rules;
use crate::tools::check::findings::{Findings, Place};
use crate::tools::check::jitdump::HEADER;

/// Tolerance for a header time that is later than the first record's, in nanoseconds: some runtimes create the file
/// when other threads are already running.
const MAX_LATER: u64 = 1_000_000_000;

// Offsets of the header's fields.
const VERSION: u64 = 4;
const SIZE: u64 = 8;
const MACHINE: u64 = 12;
const PADDING: usize = 16;
const PID: u64 = 20;
const TIME: u64 = 24;
const FLAGS: u64 = 32;

/// Checks the header and the file name.
pub(super) fn check(file: &[u8], dump: &Dump<'_>, name: &[u8], findings: &mut Findings) {
    let header = *dump.header();
    let mut add = |rule, offset, message: String| {
        findings.add(rule, offset, || Place::in_record(HEADER).with_message(message));
    };
    match header.version {
        0 => add(&rules::VERSION_0, VERSION, String::new()),
        1 => {}
        version => add(&rules::VERSION, VERSION, version.to_string()),
    }
    if header.size != header::SIZE {
        add(&rules::HEADER_SIZE, SIZE, header.size.to_string());
    }
    if header.counts_cycles() {
        add(&rules::CYCLES, FLAGS, String::new());
    }
    let padding = header.endian.u32_at(file, PADDING).unwrap_or(0);
    if padding != 0 {
        add(&rules::PADDING, PADDING as u64, format!("{padding:#x}"));
    }
    if header.elf_machine == 0 {
        add(&rules::NO_MACHINE, MACHINE, String::new());
    }
    if header.elf_machine > u16::MAX.into() {
        add(&rules::MACHINE, MACHINE, header.elf_machine.to_string());
    }
    match header.pid {
        0 => add(&rules::NO_PID, PID, String::new()),
        1 => add(&rules::CONTAINER, PID, String::new()),
        _ => {}
    }
    if let Some(first) = dump.first_time()
        && is_of_another_clock(&header, first.0)
    {
        let message = format!("{}, and the first record's is {}", header.time, first.0);
        add(&rules::HEADER_TIME, TIME, message);
    }
    check_name(&header, name, &mut add);
    if dump.function_records(0).is_none() {
        // The file may end after the header.
        add(&rules::NO_FUNCTIONS, 0, String::new());
    }
}

/// Returns whether the header's time, if present, is on another clock than the `first` record's, or in another unit.
///
/// A program may compile its first function hours after it creates the file. If the header's time is earlier, only its
/// magnitude is checked.
fn is_of_another_clock(header: &Header, first: u64) -> bool {
    let time = header.time;
    let is_later = time > first.saturating_add(MAX_LATER);
    let is_earlier = is_wall_clock_time(time, first) || is_in_larger_unit(time, first);
    time != 0 && first != 0 && (is_later || is_earlier)
}

/// Returns whether an earlier time is CLOCK_REALTIME in seconds or microseconds, in the years from 2014 to 2100.
fn is_wall_clock_time(time: u64, first: u64) -> bool {
    const YEARS: RangeInclusive<u64> = 1_400_000_000..=4_100_000_000;
    /// Read as nanoseconds, such microseconds are the uptime of a machine that has run for some weeks. Therefore the
    /// first function must be more than a day later.
    const DAY: u64 = 86_400_000_000_000;
    let is_earlier_by = |least: u64| first.checked_sub(time).is_some_and(|by| by > least);
    let is_microseconds = YEARS.contains(&(time / 1_000_000)) && is_earlier_by(DAY);
    is_microseconds || YEARS.contains(&time) && is_earlier_by(MAX_LATER)
}

/// Returns whether an earlier time is shortly before the first record's if it is read as microseconds, milliseconds or
/// seconds.
fn is_in_larger_unit(time: u64, first: u64) -> bool {
    const UNITS: [u64; 3] = [1_000, 1_000_000, 1_000_000_000];
    /// One minute, in nanoseconds.
    const SHORTLY: u64 = 60_000_000_000;
    let expected = first.saturating_sub(SHORTLY)..=first.saturating_add(MAX_LATER);
    let is_expected = |unit: &u64| expected.contains(&time.saturating_mul(*unit));
    first > SHORTLY && UNITS.iter().any(is_expected)
}

/// Checks the file name: perf finds a jitdump only by a name whose only variable part is the PID.
///
/// A name that no runtime gives is not an error of the runtime: the file was renamed.
fn check_name(header: &Header, name: &[u8], add: &mut impl FnMut(&'static CatalogueEntry, u64, String)) {
    let number = name
        .strip_prefix(b"jit-")
        .and_then(|rest| rest.strip_suffix(b".dump"));
    let Some(number) = number else {
        return;
    };
    if number.is_empty() || !number.iter().all(u8::is_ascii_digit) {
        add(&rules::FILE_NAME, 0, String::new());
    } else if header.pid != 0 && pid_in_name(name) != Some(header.pid) {
        let message = format!("the header has {}", header.pid);
        add(&rules::FILE_NAME_PID, PID, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(time: u64) -> Header {
        Header {
            endian: crate::bytes::ByteOrder::Little,
            version: 1,
            size: 40,
            elf_machine: 62,
            pid: 1,
            time,
            flags: 0,
        }
    }

    #[test]
    fn headers_may_be_a_second_later_than_the_first_record() {
        const SECOND: u64 = 1_000_000_000;
        let first = 5000 * SECOND;
        for (time, expected) in [
            (first + SECOND, false),
            (first + SECOND + 1, true),
            (first - 3600 * SECOND, false),
            (1_700_000_000, true),
            // Milliseconds.
            (first / 1_000_000 - 59_000, true),
            (first / 1_000_000 - 61_000, false),
        ] {
            assert_eq!(is_of_another_clock(&header(time), first), expected, "{time}");
        }
    }

    #[test]
    fn wall_clock_microseconds_are_known_if_the_first_record_is_more_than_a_day_later() {
        let time = 1_700_000_000_000_000;
        let is_of_another_clock = |later: u64| is_of_another_clock(&header(time), time + later);
        assert!(!is_of_another_clock(86_400_000_000_000));
        assert!(is_of_another_clock(86_400_000_000_001));
    }
}
