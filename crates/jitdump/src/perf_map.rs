//! Perf maps: text files (`/tmp/perf-PID.map`) that list the addresses and names of JIT-compiled functions.
//!
//! The format is described in Linux' tools/perf/Documentation/jit-interface.txt. A line is `START SIZE NAME`:
//! two hexadecimal numbers, and a name that extends to the end of the line. Lines have no timestamps.
//! Runtimes append them as they compile, so a later line overrides an earlier one for the same address.

use crate::collections::tally::Tally;
use crate::fault::Fault;
use crate::names;
use crate::units::{Address, AddressRange};

/// A function or another piece of code, with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerfMapSymbol<'a> {
    /// Addresses of the code.
    pub range: AddressRange,
    /// Name of the code.
    pub name: &'a [u8],
}

impl<'a> PerfMapSymbol<'a> {
    /// Returns the compiler tier encoded in the name.
    pub fn tier(&self) -> Option<&'a [u8]> {
        names::tier(self.name).map(str::as_bytes)
    }
}

/// The contents of a perf map.
#[derive(Clone, Debug, Default)]
pub struct PerfMap<'a> {
    /// The symbols. If several have the same address, the last one is valid.
    pub symbols: Vec<PerfMapSymbol<'a>>,
    /// Lines that were skipped.
    pub faults: Tally<Fault>,
}

impl<'a> PerfMap<'a> {
    /// Parses a perf map. Invalid lines are skipped and counted.
    pub fn parse(file: &'a [u8]) -> Self {
        let mut map = Self::default();
        let mut points = Vec::new();
        let mut offset = 0;
        for line in file.split_inclusive(|&byte| byte == b'\n') {
            let content = line.strip_suffix(b"\n").unwrap_or(line);
            let content = content.strip_suffix(b"\r").unwrap_or(content);
            // Quirk: .NET ends some lines with a NUL instead of a newline (.NET 8.0.4, one line in 1000). As in perf, other
            // text after a NUL is ignored.
            for (at, part) in content.split(|&byte| byte == 0).enumerate() {
                match parse_line(part) {
                    Some((symbol, true)) => map.symbols.push(symbol),
                    Some((symbol, false)) => points.push(symbol),
                    None if at > 0 || content.is_empty() => {}
                    None => map.faults.add(Fault::InvalidLine, offset),
                }
            }
            offset = offset.saturating_add(line.len() as u64);
        }
        // As in perf, a symbol of size 0 names its start address. It must not hide a function there, so it goes
        // first.
        map.symbols.splice(..0, points);
        map
    }
}

/// Symbols of this size in bytes or more are rejected: no function is as large, and the symbol would also
/// name unrelated code.
const MAX_SIZE: u64 = 1 << 32;

/// Parses a line into its symbol and whether the symbol's size is not 0.
fn parse_line(line: &[u8]) -> Option<(PerfMapSymbol<'_>, bool)> {
    let (start, rest) = split_number(line)?;
    let (size, name) = split_number(rest)?;
    if name.is_empty() || size >= MAX_SIZE {
        return None;
    }
    let range = AddressRange::new(Address(start), actual_size(size, name).max(1))?;
    Some((PerfMapSymbol { range, name }, size > 0))
}

/// Returns the size of a function, given the one in its line.
///
/// Quirk: on x86-64, .NET logs its resolve stubs with the size of its lookup stubs, here and in its jitdump (.NET Core 3.1 and
/// .NET 8; `ResolveStub::size` in src/coreclr/vm/amd64/virtualcallstubcpu.hpp). They run in each call of an interface
/// method with several implementations, and few samples are in their first 24 bytes. The jitdump lacks the rest of
/// their code, so the symbol in the map names it.
fn actual_size(size: u64, name: &[u8]) -> u64 {
    const LOOKUP_STUB: u64 = 24;
    const RESOLVE_STUB: u64 = 112;
    match size {
        LOOKUP_STUB if name.ends_with(b" GenerateResolveStub<GenerateResolveStub>") => RESOLVE_STUB,
        _ => size,
    }
}

/// Splits off a hexadecimal number and the white space character after it. As in perf, the number may have
/// leading white space and a `0x` prefix.
fn split_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let prefix = [&b"0x"[..], b"0X"];
    let digits = prefix.iter().find_map(|prefix| text.strip_prefix(*prefix));
    let text = digits.unwrap_or(text);
    let end = text.iter().position(u8::is_ascii_whitespace)?;
    let (digits, rest) = text.split_at_checked(end)?;
    // `from_str_radix` also accepts a sign.
    let is_plain = digits.first().is_some_and(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_plain)?;
    Some((u64::from_str_radix(digits, 16).ok()?, rest.get(1..)?))
}

/// Returns the PID in the base name of a perf map, `perf-PID.map`.
pub fn pid_in_name(base_name: &[u8]) -> Option<u32> {
    let number = base_name.strip_prefix(b"perf-")?.strip_suffix(b".map")?;
    let is_plain = number.first().is_some_and(u8::is_ascii_digit);
    std::str::from_utf8(number)
        .ok()
        .filter(|_| is_plain)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start, size and name of each symbol.
    fn symbols(file: &str) -> Vec<(u64, u64, String)> {
        let symbols = PerfMap::parse(file.as_bytes()).symbols;
        let parts = symbols.iter().map(|symbol| {
            let name = String::from_utf8_lossy(symbol.name).into_owned();
            (symbol.range.start.0, symbol.range.size(), name)
        });
        parts.collect()
    }

    fn one(line: &str) -> Option<(u64, u64, String)> {
        symbols(line).pop()
    }

    #[test]
    fn lines_are_read_as_each_writer_has_them() {
        for (line, start, size, name) in [
            (
                "7f84ac0e0000 b py::fib:/w.py\n",
                0x7f84_ac0e_0000,
                0xb,
                "py::fib:/w.py",
            ),
            ("0x1000 0x20 name", 0x1000, 0x20, "name"),
            ("0X1000\t20\tname\r\n", 0x1000, 0x20, "name"),
            ("  1000  20 two words \n", 0x1000, 0x20, "two words "),
            ("1000 20  behind a space", 0x1000, 0x20, " behind a space"),
            ("FFFF 1 x", 0xffff, 1, "x"),
            ("1000 0 label", 0x1000, 1, "label"),
            ("1000 10 cut\0off", 0x1000, 0x10, "cut"),
            ("1000 10 cut\0off\0 2000 20 next\0", 0x2000, 0x20, "next"),
        ] {
            assert_eq!(one(line), Some((start, size, name.to_owned())), "{line:?}");
        }
    }

    #[test]
    fn damaged_lines_are_counted_once_each() {
        for line in [
            "name",
            "1000",
            "1000 20",
            "1000 20 ",
            "1000 20 \0name",
            "xyz 20 name",
            "1000 xyz name",
            "+1000 20 name",
            "-1000 20 name",
            "0x 20 name",
            "10000000000000000 20 name",
            "ffffffffffffffff 20 name",
            "1000 100000000 name",
            "\u{1b}[2J",
        ] {
            let file = format!("\n10 10 good\n{line}\n20 10 good\n");
            let map = PerfMap::parse(file.as_bytes());
            assert_eq!(map.symbols.len(), 2, "{line:?}");
            assert_eq!(map.faults.count(Fault::InvalidLine), 1, "{line:?}");
            assert_eq!(map.faults.iter().next().unwrap().1.first_offset, 12, "{line:?}");
        }
        assert!(PerfMap::parse(b"").faults.is_empty());
        assert!(PerfMap::parse(b"\n\r\n\n").faults.is_empty());
    }

    #[test]
    fn symbols_are_smaller_than_4_gib() {
        assert_eq!(one("1000 ffffffff name").unwrap().1, 0xffff_ffff);
        assert_eq!(one("1000 100000000 name"), None);
    }

    #[test]
    fn resolve_stubs_of_dotnet_have_their_actual_size() {
        let stub = "stub<678> GenerateResolveStub<GenerateResolveStub>";
        for (size, actual) in [(0x18, 0x70), (0x10, 0x10), (0x70, 0x70)] {
            let line = format!("0x7f4fcba10960 {size:x} {stub}");
            assert_eq!(one(&line), Some((0x7f4f_cba1_0960, actual, stub.to_owned())));
        }
        let other = "stub<678> GenerateLookupStub<GenerateLookupStub>";
        assert_eq!(one(&format!("1000 18 {other}")).unwrap().1, 0x18);
    }

    #[test]
    fn a_symbol_without_a_size_comes_before_all_others() {
        let names: Vec<String> = symbols("10 8 function\n10 0 label\n")
            .into_iter()
            .map(|it| it.2)
            .collect();
        assert_eq!(names, ["label", "function"]);
    }

    #[test]
    fn names_of_files_tell_the_process() {
        for (name, pid) in [
            (&b"perf-123.map"[..], Some(123)),
            (b"perf-1.map", Some(1)),
            (b"perf-.map", None),
            (b"perf-+1.map", None),
            (b"perf-12a.map", None),
            (b"perf-99999999999.map", None),
            (b"perf-1.map.old", None),
        ] {
            assert_eq!(pid_in_name(name), pid);
        }
    }
}
