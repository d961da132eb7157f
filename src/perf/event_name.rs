//! Names of events, from their attributes: those of cut-off profiles, pipes and other programs have no others.

use jitdump::ByteOrder;
use linux_perf_event_reader::AttrFlags;
use linux_perf_event_reader::constants::{PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_SOFTWARE};

use crate::perf::attr::{HARDWARE_EVENT, flag_bits, offset};

// By the numbers of the kernel's interface (include/uapi/linux/perf_event.h), as perf names them (tools/perf/util/evsel.c and
// parse-events.c).
const HARDWARE: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
];
const SOFTWARE: [&str; 12] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
];
const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
/// Operations on caches: of misses, and of all accesses.
const OPERATIONS: [(&str, &str); 3] = [("load", "loads"), ("store", "stores"), ("prefetch", "prefetches")];

/// Returns the name that perf gives to an event of the kernel's own types, with modifiers (`evsel__name`); `None` for others.
pub fn of(attr: &[u8], endian: ByteOrder) -> Option<String> {
    let config = endian.u64_at(attr, offset::CONFIG)?;
    let mut name = match endian.u32_at(attr, offset::TYPE)? {
        PERF_TYPE_HARDWARE => entry(&HARDWARE, config & HARDWARE_EVENT)?.to_owned(),
        PERF_TYPE_SOFTWARE => entry(&SOFTWARE, config)?.to_owned(),
        PERF_TYPE_HW_CACHE => of_cache(config)?,
        _ => return None,
    };
    let modifiers = modifiers(endian.u64_at(attr, offset::FLAGS)?, endian);
    if !modifiers.is_empty() {
        name.push(':');
        name.push_str(&modifiers);
    }
    Some(name)
}

fn entry(names: &[&'static str], number: u64) -> Option<&'static str> {
    names.get(usize::try_from(number).ok()?).copied()
}

fn of_cache(config: u64) -> Option<String> {
    let [cache, operation, result, ..] = config.to_le_bytes();
    let cache = entry(&CACHES, cache.into())?;
    let (miss, accesses) = OPERATIONS.get(usize::from(operation))?;
    match result {
        0 => Some(format!("{cache}-{accesses}")),
        1 => Some(format!("{cache}-{miss}-misses")),
        _ => None,
    }
}

/// Returns the letters of what an event counts if that is not the usual (`evsel__add_modifiers`).
fn modifiers(flags: u64, endian: ByteOrder) -> String {
    let flags = AttrFlags::from_bits_retain(flag_bits(flags, endian));
    let mut text = String::new();
    let parts = [
        (AttrFlags::EXCLUDE_KERNEL, 'k'),
        (AttrFlags::EXCLUDE_USER, 'u'),
        (AttrFlags::EXCLUDE_HV, 'h'),
    ];
    let is_restricted = parts.iter().any(|&(excluded, _)| flags.contains(excluded));
    if is_restricted {
        text.extend(
            parts
                .iter()
                .filter(|&&(excluded, _)| !flags.contains(excluded))
                .map(|&(_, letter)| letter),
        );
    }
    // `flag_bits` has reversed the two bits of this number, too.
    let (one, two) = match endian {
        ByteOrder::Little => (AttrFlags::PRECISE_IP_BIT_15, AttrFlags::PRECISE_IP_BIT_16),
        ByteOrder::Big => (AttrFlags::PRECISE_IP_BIT_16, AttrFlags::PRECISE_IP_BIT_15),
    };
    let precision = match (flags.contains(one), flags.contains(two)) {
        (false, false) => "",
        (true, false) => "p",
        (false, true) => "pp",
        (true, true) => "ppp",
    };
    text.push_str(precision);
    let is_without_guests = is_restricted || !precision.is_empty();
    let excludes_guests = flags.contains(AttrFlags::EXCLUDE_GUEST);
    let excludes_host = flags.contains(AttrFlags::EXCLUDE_HOST);
    if excludes_host || excludes_guests == is_without_guests {
        text.extend((!excludes_host).then_some('H'));
        text.extend((!excludes_guests).then_some('G'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::testing;

    fn name(kind: u32, config: u64, flags: u64) -> Option<String> {
        let mut attr = testing::attr(128, 0, flags);
        testing::ORDER.set_u32(&mut attr, offset::TYPE, kind);
        testing::ORDER.set_u64(&mut attr, offset::CONFIG, config);
        of(&attr, testing::ORDER)
    }

    /// As `perf evlist` of perf 6.1 prints them.
    #[test]
    fn events_have_perfs_names() {
        const NO_GUESTS: u64 = 1 << 20;
        for (kind, config, expected) in [
            (PERF_TYPE_SOFTWARE, 0, Some("cpu-clock")),
            (PERF_TYPE_SOFTWARE, 9, Some("dummy")),
            (PERF_TYPE_SOFTWARE, 12, None),
            (PERF_TYPE_HARDWARE, 2, Some("cache-references")),
            (PERF_TYPE_HARDWARE, 9, Some("ref-cycles")),
            (PERF_TYPE_HARDWARE, 5 << 32, Some("cycles")),
            (PERF_TYPE_HARDWARE, 10, None),
            (PERF_TYPE_HW_CACHE, 0, Some("L1-dcache-loads")),
            (PERF_TYPE_HW_CACHE, 0x1_0100, Some("L1-dcache-store-misses")),
            (PERF_TYPE_HW_CACHE, 0x1_0201, Some("L1-icache-prefetch-misses")),
            (PERF_TYPE_HW_CACHE, 5, Some("branch-loads")),
            (PERF_TYPE_HW_CACHE, 0x2_0000, None),
            (PERF_TYPE_HW_CACHE, 7, None),
            (4, 0x3c, None),
        ] {
            assert_eq!(
                name(kind, config, NO_GUESTS).as_deref(),
                expected,
                "{kind} {config:#x}"
            );
        }
        for (flags, expected) in [
            (0, "cycles:HG"),
            (0x20, "cycles:uh"),
            (0x10_0020, "cycles:uhH"),
            (0x60, "cycles:u"),
            (0x10, "cycles:kh"),
            (0x8000, "cycles:p"),
            (0x1_0000, "cycles:pp"),
            (0x1_8000, "cycles:ppp"),
            (0x11_8000, "cycles:pppH"),
            (0x8_0000, "cycles:G"),
            (0x18_0000, "cycles"),
            (0x1_8060, "cycles:uppp"),
        ] {
            assert_eq!(
                name(PERF_TYPE_HARDWARE, 0, flags).unwrap(),
                expected,
                "{flags:#x}"
            );
        }
        // From the most significant bit down, a number of two bits, as compilers for big-endian machines lay it out.
        assert_eq!(modifiers(1 << (63 - 16), ByteOrder::Big), "p");
        assert_eq!(modifiers(1 << (63 - 15), ByteOrder::Big), "pp");
    }
}
