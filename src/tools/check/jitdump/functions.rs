//! Checks of a single LOAD record.

use jitdump::Dump;
use jitdump::internals::format::Load;

use crate::bytes::is_terminal_control;
use crate::results::diagnostics::rules::jitdump as rules;
use crate::tools::check::findings::{Findings, Place};
use crate::tools::check::jitdump::names::is_encoded_twice;

/// Checks the record at `offset`.
pub(super) fn check(dump: &Dump<'_>, offset: u64, load: &Load<'_>, findings: &mut Findings) {
    let mut add = |rule, message: &dyn Fn() -> String| {
        findings.add(rule, offset, || {
            Place::in_record("LOAD")
                .in_function(load.name)
                .with_message(message())
        });
    };
    let nothing_more: &dyn Fn() -> String = &String::new;
    if load.size == 0 {
        add(&rules::NO_CODE, &|| format!("at {}", load.start));
    }
    if load.vma != load.start.0 {
        add(&rules::VMA, &|| {
            format!("vma is {:#x}, code_addr {}", load.vma, load.start)
        });
    }
    if !load.padding.is_empty() {
        add(&rules::LOAD_PADDING, &|| {
            format!("{} of them", load.padding.len())
        });
    }
    let own = dump.header().pid;
    if own != 0 && load.pid != own {
        add(&rules::OTHER_PID, &|| format!("process {}", load.pid));
    }
    if load.name.is_empty() {
        add(&rules::NO_NAME, &|| format!("code at {}", load.start));
    }
    match std::str::from_utf8(load.name) {
        Err(_) => add(&rules::NOT_UTF8, nothing_more),
        Ok(name) => {
            if is_encoded_twice(name) {
                add(&rules::ENCODED_TWICE, nothing_more);
            } else if name.contains(is_terminal_control) {
                add(&rules::CONTROL_CHARACTERS, nothing_more);
            }
        }
    }
}
