//! Symbols of the kernel, from a copy of `/proc/kallsyms`.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jitdump::Address;

use crate::bytes::hex_digits;
use crate::files::objects::build_id_cache;
use crate::files::{OpenFile, kernel};
use crate::load::LoadOptions;
use crate::perf::event::KernelMap;

/// Maximum size of a copy in bytes. Kernels with many modules have 20 MB.
const MAX_BYTES: u64 = 1 << 28;

/// Symbols of the kernel and its modules.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// Start address of each function, by address, and where its name is in the names.
    symbols: Vec<(Address, Range<usize>)>,
    /// Names of all functions, one after the other.
    names: String,
}

impl KernelSymbols {
    /// Reads the symbols of the kernel that a profile was recorded on: from the copy in the profile's folder
    /// (`perf record --kcore`), from the copy in perf's build-id cache, or from this kernel if it is the same build. If no build
    /// ID was recorded, as in pipes and compressed profiles, it must be the same boot: of `release`, and at the same address.
    /// A confined profile has its own copies only.
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
        let running = || {
            let kallsyms = || kernel::read("/proc/kallsyms").ok();
            match build_id {
                Some(build_id) => is_running(build_id).then(kallsyms).flatten(),
                None => kallsyms().filter(|kallsyms| is_same_boot(kallsyms, map.reference, release)),
            }
        };
        let elsewhere = || {
            std::iter::once_with(cached)
                .chain(std::iter::once_with(running))
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
        let mut symbols: Vec<(u64, &[u8], bool)> = functions(kallsyms).collect();
        let mut text = None;
        for &(address, name, _) in &symbols {
            if name == b"_text" || name == b"_stext" && text.is_none() {
                text = Some(address);
            }
        }
        let moved = text.map_or(0, |text| reference.0.wrapping_sub(text));
        symbols.retain(|&(.., is_of_module)| moved == 0 || !is_of_module);
        for (address, ..) in &mut symbols {
            *address = address.wrapping_add(moved);
        }
        symbols.sort_unstable();
        symbols.dedup_by_key(|&mut (address, ..)| address);
        let mut names = String::new();
        let symbols = symbols.into_iter().map(|(address, name, _)| {
            let start = names.len();
            names.push_str(&String::from_utf8_lossy(name));
            (Address(address), start..names.len())
        });
        let symbols: Vec<(Address, Range<usize>)> = symbols.collect();
        (!symbols.is_empty()).then_some(Self { symbols, names })
    }

    /// Returns the index of the last symbol that starts at an address or before it.
    pub fn at(&self, address: Address) -> Option<u32> {
        let after = self.symbols.partition_point(|(start, _)| *start <= address);
        u32::try_from(after.checked_sub(1)?).ok()
    }

    /// Returns the address of a symbol.
    pub fn start(&self, index: u32) -> Option<Address> {
        Some(self.symbols.get(index as usize)?.0)
    }

    /// Returns the name of a symbol.
    pub fn name(&self, index: u32) -> Option<&str> {
        let (_, name) = self.symbols.get(index as usize)?;
        self.names.get(name.clone())
    }
}

/// Returns the functions in lines of an address, a type, a name and the module, if it is not the kernel itself: address,
/// name, and whether it is of a module.
fn functions(kallsyms: &[u8]) -> impl Iterator<Item = (u64, &[u8], bool)> {
    kallsyms.split(|&byte| byte == b'\n').filter_map(|line| {
        let words = line.split(|byte| byte.is_ascii_whitespace());
        let mut words = words.filter(|word| !word.is_empty());
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        let address = std::str::from_utf8(address).ok()?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let is_function = matches!(kind, b"t" | b"T" | b"w" | b"W") && address != 0;
        is_function.then(|| (address, name, words.next().is_some()))
    })
}

/// Whether this machine still runs the kernel that was at `reference`, since it has chosen that address when it started.
fn is_same_boot(kallsyms: &[u8], reference: Address, release: Option<&[u8]>) -> bool {
    let running = || kernel::read("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.is_none_or(|release| running().trim_ascii_end() == release)
        && functions(kallsyms)
            .any(|(address, name, _)| address == reference.0 && matches!(name, b"_text" | b"_stext"))
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
