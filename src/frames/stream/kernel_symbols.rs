//! Symbols of the kernel, from a copy of `/proc/kallsyms`, and code that it reported while it was recorded.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jitdump::history::{Builder, History};
use jitdump::{Address, Time};

use crate::bytes::hex_digits;
use crate::files::objects::build_id_cache;
use crate::files::{OpenFile, kernel};
use crate::load::LoadOptions;
use crate::perf::Profile;
use crate::perf::process_records::{KernelCode, KernelMap};
use crate::perf::record::Record;

/// Maximum size of a copy in bytes. Kernels with many modules have 20 MB.
const MAX_BYTES: u64 = 1 << 28;

/// Symbols of the kernel and its modules.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// Start address of each function, by address, and where its name is in the names. An empty name is the end of the
    /// function before it.
    symbols: Vec<(Address, Range<usize>)>,
    /// Names of all functions, one after the other.
    names: String,
    /// Code that the kernel reported, such as eBPF programs. It has the indices after those of the symbols.
    reported: Vec<(Address, Range<usize>)>,
    /// Position in them, by address and time.
    reported_at: Option<History<u32>>,
}

impl KernelSymbols {
    /// Reads the symbols of the kernel that a profile was recorded on: from the copy in the profile's folder
    /// (`perf record --kcore`), from this kernel if it is the same boot (of `release`, and at the same address), from the
    /// copy in perf's build-id cache, or from this kernel if it is the same build. The cached copy may be older than
    /// modules. Pipes and compressed profiles have no build ID. A confined profile has its own copies only.
    pub fn find(
        map: &KernelMap<'_>,
        build_id: Option<&[u8]>,
        release: Option<&[u8]>,
        copies: &[PathBuf],
        options: &LoadOptions,
    ) -> Self {
        let reach = options.reach();
        let beside = copies.iter().filter_map(|copy| {
            let path = copy.join("kallsyms");
            let file = reach.open_named(&options.input, &path).ok()?;
            file.read_part(0, MAX_BYTES).ok()
        });
        let cached = || {
            let path = cached_copy(map.name, build_id?)?;
            OpenFile::open(&path).ok()?.read_part(0, MAX_BYTES).ok()
        };
        let same_build = || {
            let is_same = build_id.is_none_or(is_running);
            is_same.then(|| kernel::read("/proc/kallsyms").ok()).flatten()
        };
        let same_boot = || same_build().filter(|kallsyms| is_same_boot(kallsyms, map.reference, release));
        let other_boot = || build_id.and_then(|_| same_build());
        let elsewhere = || {
            std::iter::once_with(same_boot)
                .chain(std::iter::once_with(cached))
                .chain(std::iter::once_with(other_boot))
                .flatten()
        };
        let elsewhere = (!reach.is_confined()).then(elsewhere).into_iter().flatten();
        let found = beside
            .chain(elsewhere)
            .find_map(|kallsyms| Self::parse(&kallsyms, map.reference));
        found.unwrap_or_default()
    }

    /// Parses a copy. The kernel was loaded so that `_text` (or `_stext`) was at `reference`. In the file of another boot, it is at
    /// another address, and modules are anywhere, so their symbols are left out. `None` without addresses, which the kernel hides
    /// from most users.
    fn parse(kallsyms: &[u8], reference: Address) -> Option<Self> {
        let mut symbols: Vec<Line<'_>> = functions(kallsyms).collect();
        let moved = start_of_text(&symbols).map_or(0, |start| reference.0.wrapping_sub(start));
        symbols.retain(|symbol| moved == 0 || symbol.module.is_empty());
        for symbol in &mut symbols {
            symbol.address = symbol.address.wrapping_add(moved);
        }
        symbols.sort_unstable();
        symbols.dedup_by_key(|symbol| symbol.address);
        let next = symbols.iter().skip(1).map(Some).chain([None]);
        let mut found = Self::default();
        for (symbol, next) in symbols.iter().zip(next) {
            found.add_symbol(symbol.address, if symbol.is_end { &[] } else { symbol.name });
            if let Some(end) = end_of_module(symbol, next) {
                found.add_symbol(end, &[]);
            }
        }
        (!found.symbols.is_empty()).then_some(found)
    }

    /// Adds a symbol behind those before, or the end of the last one, which has no name.
    fn add_symbol(&mut self, address: u64, name: &[u8]) {
        let name = self.add_name(name);
        self.symbols.push((Address(address), name));
    }

    fn add_name(&mut self, name: &[u8]) -> Range<usize> {
        let start = self.names.len();
        self.names.push_str(&String::from_utf8_lossy(name));
        start..self.names.len()
    }

    /// Adds the code that the kernel reported in the records of a profile.
    pub fn with_reported<'r>(
        mut self,
        records: impl Iterator<Item = Record<'r>>,
        profile: &Profile<'_>,
    ) -> Self {
        let found = records.filter_map(|record| {
            let code = KernelCode::parse(&record, profile.endian)?;
            let time = profile.attrs.time_of(&record, profile.endian);
            Some((time.unwrap_or_default(), code))
        });
        let mut found: Vec<(Time, KernelCode<'_>)> = found.collect();
        // Those of each CPU are in order.
        found.sort_by_key(|&(time, _)| time);
        let mut at = Builder::default();
        for (time, code) in found {
            if code.is_removed {
                at.clear(code.range, time);
            } else if let Ok(index) = u32::try_from(self.reported.len()) {
                let name = self.add_name(code.name);
                self.reported.push((code.range.start, name));
                at.put(code.range, time, index);
            }
        }
        self.reported_at = (!self.reported.is_empty()).then(|| at.finish());
        self
    }

    /// Returns the index of the last symbol that starts at an address or before it, unless its code ends before.
    pub fn at(&self, address: Address) -> Option<u32> {
        let after = self.symbols.partition_point(|(start, _)| *start <= address);
        let last = after.checked_sub(1)?;
        let (_, name) = self.symbols.get(last)?;
        u32::try_from(last).ok().filter(|_| !name.is_empty())
    }

    /// Returns the index of code that the kernel reported, and times around `time` at which it is there, or nothing.
    pub fn reported(&self, address: Address, time: Time) -> (Option<u32>, Range<Time>) {
        let Some(reported) = &self.reported_at else {
            return (None, Time(0)..Time::MAX);
        };
        let found = reported.at(address, time).and_then(|found| {
            let symbols = u32::try_from(self.symbols.len()).ok()?;
            symbols.checked_add(found.value)
        });
        (found, reported.times_at(address, time))
    }

    /// Returns a symbol, or reported code.
    fn entry(&self, index: u32) -> Option<&(Address, Range<usize>)> {
        let index = index as usize;
        match index.checked_sub(self.symbols.len()) {
            Some(index) => self.reported.get(index),
            None => self.symbols.get(index),
        }
    }

    /// Returns the address of a symbol.
    pub fn start(&self, index: u32) -> Option<Address> {
        Some(self.entry(index)?.0)
    }

    /// Returns the name of a symbol.
    pub fn name(&self, index: u32) -> Option<&str> {
        let (_, name) = self.entry(index)?;
        self.names.get(name.clone())
    }
}

/// A line of `/proc/kallsyms`. In their order, functions come before ends at the same address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Line<'a> {
    address: u64,
    /// Whether the kernel's code ends there, so that no function starts.
    is_end: bool,
    name: &'a [u8],
    /// Module in brackets; empty for the kernel itself.
    module: &'a [u8],
}

/// Returns the address of `_text`, or else of `_stext`.
fn start_of_text(symbols: &[Line<'_>]) -> Option<u64> {
    let text = symbols.iter().rfind(|symbol| symbol.name == b"_text");
    let text = text.or_else(|| symbols.iter().find(|symbol| symbol.name == b"_stext"));
    text.map(|symbol| symbol.address)
}

/// Returns the functions, and the ends of the kernel's code.
fn functions(kallsyms: &[u8]) -> impl Iterator<Item = Line<'_>> {
    kallsyms.split(|&byte| byte == b'\n').filter_map(|line| {
        let words = line.split(|byte| byte.is_ascii_whitespace());
        let mut words = words.filter(|word| !word.is_empty());
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        let address = std::str::from_utf8(address).ok()?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let is_function = matches!(kind, b"t" | b"T" | b"w" | b"W") && address != 0;
        is_function.then(|| Line {
            address,
            is_end: matches!(name, b"_etext" | b"_einittext"),
            name,
            module: words.next().unwrap_or_default(),
        })
    })
}

/// Returns the end of the last function of a module, where perf has it (`symbols__fixup_end` in tools/perf/util/symbol.c).
/// `next` is the symbol after `last`; `None` if that is not the last one of a module.
fn end_of_module(last: &Line<'_>, next: Option<&Line<'_>>) -> Option<u64> {
    const PAGE: u64 = 4096;
    if last.module.is_empty() || next.is_some_and(|next| next.module == last.module) {
        return None;
    }
    let end = last.address.checked_add(PAGE)?.checked_next_multiple_of(PAGE)?;
    let is_before = next.is_none_or(|next| end < next.address);
    is_before.then_some(end)
}

/// Whether this machine still runs the kernel that was at `reference`, since it has chosen that address when it started.
fn is_same_boot(kallsyms: &[u8], reference: Address, release: Option<&[u8]>) -> bool {
    let running = || kernel::read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_reference =
        |line: Line<'_>| line.address == reference.0 && matches!(line.name, b"_text" | b"_stext");
    release.is_none_or(|release| running().trim_ascii_end() == release)
        && functions(kallsyms).any(is_reference)
}

/// Returns the path of the copy in perf's build-id cache.
fn cached_copy(name: &[u8], build_id: &[u8]) -> Option<PathBuf> {
    let cache = build_id_cache::default_folder()?;
    // Not a path: `name` is in brackets.
    let name = Path::new(OsStr::from_bytes(name));
    (name.components().count() == 1).then(|| cache.join(name).join(hex_digits(build_id)).join("kallsyms"))
}

/// Whether the kernel of this machine has a build ID.
fn is_running(build_id: &[u8]) -> bool {
    let notes = kernel::read("/sys/kernel/notes").unwrap_or_default();
    !build_id.is_empty() && memchr::memmem::find(&notes, build_id).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &[u8] =
        b"ffffffff81000000 T _text\nffffffff81000100 t do_work\nffffffff82000000 D data\n\
                              ffffffffc0000000 t driver_run\t[driver]\nbroken\n";

    #[test]
    fn symbols_are_where_the_kernel_was_loaded() {
        let name = |reference, address| {
            let symbols = KernelSymbols::parse(KALLSYMS, Address(reference)).unwrap();
            let symbol = symbols.at(Address(address));
            symbol.and_then(|symbol| symbols.name(symbol)).map(str::to_owned)
        };
        let moved = |address| name(0xffff_ffff_9100_0000, address);
        assert_eq!(moved(0xffff_ffff_9100_0123).unwrap(), "do_work");
        assert_eq!(moved(0xffff_ffff_9000_0000), None);
        // Modules do not move with the kernel.
        assert_eq!(moved(0xffff_ffff_d000_0010).unwrap(), "do_work");
        let same_boot = name(0xffff_ffff_8100_0000, 0xffff_ffff_c000_0010);
        assert_eq!(same_boot.unwrap(), "driver_run");
    }

    #[test]
    fn what_is_behind_the_code_of_the_kernel_and_of_a_module_has_no_name() {
        let kallsyms = b"ffffffff81000000 T _text\nffffffff81000100 t do_work\nffffffff81002000 T _etext\n\
                         ffffffff81003000 T _einittext\nffffffff81003000 t same_address\n\
                         ffffffff83000000 t setup\nffffffff83001000 T _einittext\n\
                         ffffffffc0000000 t driver_run\t[driver]\nffffffffc0000800 t driver_stop\t[driver]\n\
                         ffffffffc0100000 t bpf_prog_1\t[bpf]\nffffffffc0200000 t bpf_prog_2\t[bpf]\n";
        let symbols = KernelSymbols::parse(kallsyms, Address(0xffff_ffff_8100_0000)).unwrap();
        for (address, expected) in [
            (0x8100_1fff, Some("do_work")),
            (0x8100_2000, None),
            (0x8100_3000, Some("same_address")),
            (0x8300_0fff, Some("setup")),
            (0x8300_1000, None),
            (0xc000_07ff, Some("driver_run")),
            (0xc000_1fff, Some("driver_stop")),
            (0xc000_2000, None),
            (0xc01f_ffff, Some("bpf_prog_1")),
            (0xc020_0fff, Some("bpf_prog_2")),
            (0xc020_1000, None),
        ] {
            let symbol = symbols.at(Address(0xffff_ffff_0000_0000 | address));
            assert_eq!(
                symbol.and_then(|symbol| symbols.name(symbol)),
                expected,
                "{address:x}"
            );
        }
    }

    #[test]
    fn without_a_build_id_the_kernel_must_be_at_the_recorded_address() {
        let is_same = |reference, release| is_same_boot(KALLSYMS, Address(reference), release);
        let running = kernel::read("/proc/sys/kernel/osrelease").unwrap();
        assert!(is_same(0xffff_ffff_8100_0000, Some(running.trim_ascii_end())));
        assert!(is_same(0xffff_ffff_8100_0000, None));
        assert!(!is_same(0xffff_ffff_8100_0000, Some(b"another")));
        assert!(!is_same(0xffff_ffff_8100_0100, None));
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        assert!(
            KernelSymbols::parse(b"0000000000000000 T _text\n0000000000000000 t work\n", Address(1))
                .is_none()
        );
    }
}
