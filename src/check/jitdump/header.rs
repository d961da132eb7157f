//! The header of a jitdump, and the name of the file.

use crate::check::findings::{Findings, Place};
use crate::check::jitdump::HEADER;
use crate::check::rules::{Rule, jitdump as rules};
use crate::runtime::jitdump::marker::pid_in_name;
use crate::runtime::jitdump::{Dump, Header, header};

/// How much later than the first record a header's time is believed to be: some runtimes make the file while others of
/// their threads have begun.
const MAX_LATER: u64 = 1_000_000_000;

/// How much earlier: an hour, in nanoseconds.
const MAX_EARLIER: u64 = 3_600_000_000_000;

// Where the fields stand.
const VERSION: u64 = 4;
const SIZE: u64 = 8;
const MACHINE: u64 = 12;
const PADDING: usize = 16;
const PID: u64 = 20;
const TIME: u64 = 24;
const FLAGS: u64 = 32;

/// Checks header and name.
pub(super) fn check(file: &[u8], dump: &Dump<'_>, name: &[u8], findings: &mut Findings) {
    let header = *dump.header();
    let mut add = |rule, offset, message: String| {
        findings.add(rule, offset, || Place::at(HEADER).saying(message));
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
    let padding = header.order.u32_at(file, PADDING).unwrap_or(0);
    if padding != 0 {
        add(&rules::PADDING, PADDING as u64, format!("{padding:#x}"));
    }
    if header.elf_machine == 0 {
        add(&rules::NO_MACHINE, MACHINE, String::new());
    }
    match header.pid {
        0 => add(&rules::NO_PROCESS, PID, String::new()),
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
    if dump.records(0).is_none() {
        add(&rules::NO_FUNCTIONS, header.size.into(), String::new());
    }
}

/// Whether the time of a header, which may be missing, is not on the clock of the `first` record.
fn is_of_another_clock(header: &Header, first: u64) -> bool {
    let is_later = header.time > first.saturating_add(MAX_LATER);
    let is_earlier = header.time < first.saturating_sub(MAX_EARLIER);
    header.time != 0 && first != 0 && (is_later || is_earlier)
}

/// perf takes a file's name for that of a dump where there is nothing but the number of the process in it.
fn check_name(header: &Header, name: &[u8], add: &mut impl FnMut(&'static Rule, u64, String)) {
    let number = name
        .strip_prefix(b"jit-")
        .and_then(|rest| rest.strip_suffix(b".dump"));
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !number.is_some_and(is_number) {
        add(&rules::FILE_NAME, 0, String::new());
    } else if header.pid != 0 && pid_in_name(name) != Some(header.pid) {
        let message = format!("the header has {}", header.pid);
        add(&rules::FILE_NUMBER, PID, message);
    }
}
