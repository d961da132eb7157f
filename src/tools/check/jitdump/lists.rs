//! Checks of a function's DEBUG_INFO2 record.

use jitdump::debug_info::DebugInfo;
use jitdump::internals::format::debug_info::ParsedDebugInfo;
use jitdump::internals::format::debug_info2::DebugInfo2Layout;
use jitdump::internals::format::record::RecordLocation;
use jitdump::internals::format::{Records, debug_info2};
use jitdump::{Dump, Function};

use crate::results::diagnostics::CatalogueEntry;
use crate::results::diagnostics::rules::debug_info as rules;
use crate::tools::check::findings::{Findings, Place};
use crate::tools::check::jitdump::names;

/// Checks the record at `place`. `info` is what the reader makes of it.
pub(super) fn check(
    file: &[u8],
    dump: &Dump<'_>,
    function: &Function<'_>,
    place: RecordLocation,
    info: Option<&DebugInfo<'_>>,
    findings: &mut Findings,
) {
    let endian = dump.header().endian;
    let content = Records::content(file, place).unwrap_or_default();
    let size = u32::try_from(function.range.size()).unwrap_or(u32::MAX);
    let Some(parsed) = debug_info2::parse(content, size, endian) else {
        return;
    };
    let mut add = |rule: &'static CatalogueEntry, count: u64, message: &dyn Fn() -> String| {
        findings.add_many(rule, count, place.offset, || {
            Place::in_record("DEBUG_INFO2")
                .in_function(function.name)
                .with_message(message())
        });
    };
    if let Some(DebugInfo2Layout::Positions(address)) = debug_info2::layout(content, endian)
        && address != function.range.start
    {
        let start = function.range.start;
        add(&rules::OTHER_ADDRESS, 1, &|| {
            format!("{address}, and LOAD has {start}")
        });
    }
    let is_unrounded = debug_info2::has_unrounded_sizes(content, endian);
    add(&rules::LIST_SIZES, is_unrounded.into(), &String::new);
    for (rule, count, what) in counts(&parsed) {
        add(rule, count, &|| format!("{count} of its {what}"));
    }
    let foreign = info.map_or(0, DebugInfo::rows_in_other_files);
    add(&rules::FOREIGN_FILE, foreign, &|| {
        format!("{foreign} of its lines")
    });
}

/// Returns how often each rule is broken, and by what.
fn counts(parsed: &ParsedDebugInfo<'_>) -> [(&'static CatalogueEntry, u64, &'static str); 6] {
    let info = &parsed.info;
    let is_text = |name: &[u8]| std::str::from_utf8(name).is_ok();
    let files = || info.files.iter().map(|file| &file.path[..]);
    let names = info.functions.iter().map(|function| function.name);
    let not_text = files().chain(names).filter(|name| !is_text(name)).count();
    let relative = files().filter(|path| names::is_relative(path)).count();
    let controls = files()
        .filter(|path| path.iter().any(u8::is_ascii_control))
        .count();
    let is_nameless = |file: u32| {
        info.files
            .get(file as usize)
            .is_some_and(|file| file.path.is_empty())
    };
    let nameless = info
        .rows
        .iter()
        .filter(|row| row.line > 0 && row.file.is_some_and(is_nameless))
        .count();
    [
        (&rules::NAMES_NOT_UTF8, not_text as u64, "names"),
        (&rules::RELATIVE, relative as u64, "files"),
        (
            &rules::IMPOSSIBLE_ENTRIES,
            controls as u64,
            "files have control characters in their names",
        ),
        (&rules::NO_FILE, nameless as u64, "lines"),
        (&rules::UNSORTED, parsed.unsorted, "lines"),
        (&rules::BAD_INDEX, parsed.missing_indices, "names and files"),
    ]
}
